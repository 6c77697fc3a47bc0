"""The viewer's page for browsers: each one that connects gets a screen."""

from __future__ import annotations

import logging
import math
import shlex
import sys
from contextlib import ExitStack, suppress
from threading import Thread
from typing import TYPE_CHECKING
from weakref import WeakSet

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.heap import trim
from splatview_viewer.web.address import local_url, startup_lines
from splatview_viewer.web.browser import BrowserScreen
from splatview_viewer.web.encoders import choose_encoder, nvjpeg_library
from splatview_viewer.web.sender import encode_threads
from splatview_viewer.web.server import WebServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import moderngl

    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.web.encoders import Encoder

log = logging.getLogger("splatview")

_TRIM_AFTER_S = 2.0
"""Seconds from the end of a page until the memory that it leaves is released: others
may end with it."""


class Browsers:
    """Serves the page, and makes a screen for each browser that connects."""

    def __init__(
        self,
        ctx: moderngl.Context,
        wake: Callable[[], None],
        *,
        host: str | None = None,
        port: int = 7007,
        allow_hosts: Iterable[str] = (),
        run: str | None = None,
    ) -> None:
        """Serve the page from now on.

        Args:
            ctx: what the screens are drawn with.
            wake: ends the loop's sleep, from any thread.
            host: an address of this machine; None serves only this machine.
            port: where it is taken, one of those that follow.
            allow_hosts: names of reverse proxies.
            run: what other programs are told.

        Raises:
            ViewerError: there is no such address, or no free port.
        """
        from splatview_ipc.control.registry import Announcement

        self._ctx = ctx
        self._encoder: Encoder | None = None
        self._screens: WeakSet[BrowserScreen] = WeakSet()
        self._target_count = 0
        """Pages that had something to draw into at the last call of `arrivals`."""
        self._trim_at = math.inf
        Thread(target=_load_libraries, name="prepare", daemon=True).start()
        with ExitStack() as opened:
            self.server = WebServer(
                host or "127.0.0.1", port, allow_hosts=allow_hosts, wake=wake
            )
            self.server.command = _command(self.server)
            opened.callback(self.server.close)
            self._entry = opened.enter_context(
                Announcement(
                    local_url(self.server),
                    host=self.server.host,
                    port=self.server.port,
                    run=run,
                )
            )
            self._opened = opened.pop_all()

    def print_address(self, environ: dict[str, str]) -> None:
        """Print the page's address."""
        for line in startup_lines(self.server, environ):
            print(line, file=sys.stderr, flush=True)

    def arrivals(self, now: float, gpu_work: GpuWork) -> list[BrowserScreen]:
        """Return the screens of browsers that connected since the last call.

        It is called at each turn of the loop.
        """
        self._entry.refresh(now)
        self._return_memory(now)
        while self._encoder is not None and self._encoder.durations:
            size, ms = self._encoder.durations.popleft()
            gpu_work.record(("encode", *size), ms)
        screens = []
        for connection in self.server.arrivals():
            # It is made late: on a GPU it takes some hundred MB.
            if self._encoder is None:
                self._encoder = choose_encoder(self._ctx)
            try:
                screen = BrowserScreen(self._ctx, connection, self._encoder, gpu_work)
            # A fault of one page must not end the viewer.
            except Exception as e:
                log.warning("a browser at %s cannot be served: %s", connection.peer, e)
                connection.close("no picture can be drawn for it")
                continue
            screens.append(screen)
            self._screens.add(screen)
        return screens

    def _return_memory(self, now: float) -> None:
        """Return the memory that pages were drawn with to the system and the GPU.

        This waits until the encoders are through with pages that have gone.
        """
        target_count = sum(screen.has_target for screen in self._screens)
        if target_count < self._target_count:
            self._trim_at = now + _TRIM_AFTER_S
        self._target_count = target_count
        if now < self._trim_at:
            return
        without_target = [s for s in self._screens if not s.has_target]
        if not any(screen.is_encoding for screen in without_target):
            self._trim_at = math.inf
            encode_threads().submit(trim)
            _empty_cache()

    def close(self) -> None:
        """Stop serving and end the connections. Idempotent."""
        self._opened.close()
        if self._encoder is not None:
            self._encoder.close()


def _command(server: WebServer) -> str:
    """Return the command that starts such a viewer again."""
    arguments = ["splatview", "serve", "--web"]
    if server.host != "127.0.0.1":
        arguments += ["--host", server.host]
    arguments += ["--port", str(server.port)]
    for name in server.allowed:
        arguments += ["--allow-host", name]
    return shlex.join(arguments)


def _empty_cache() -> None:
    """Empty torch's cache of GPU memory, where pictures were encoded.

    No CUDA context is made.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        # That a GPU has failed is reported where it draws.
        with suppress(RuntimeError):
            torch.cuda.empty_cache()


def _load_libraries() -> None:
    """Load libraries that the first browser would wait for.

    No CUDA context is made.
    """
    with suppress(ViewerError, ImportError):
        nvjpeg_library()
        import torch  # noqa: F401
