"""Connected browsers, each with a screen of its own."""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING

from splatview_viewer.web.address import lines, local_url
from splatview_viewer.web.browser import BrowserScreen
from splatview_viewer.web.encoders import choose, forced_encoder
from splatview_viewer.web.server import WebServer

if TYPE_CHECKING:
    from collections.abc import Callable

    import moderngl

    from splatview_viewer.core.screen import Screen
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.web.encoders import Encoder

log = logging.getLogger("splatview")


@dataclass(frozen=True)
class Browser:
    """A connected browser."""

    who: str
    """The same for one that comes back."""
    name: str
    """The name that others see."""
    screen: Screen


class Browsers:
    """Serves the page, and makes a screen for each browser that connects."""

    def __init__(self, ctx: moderngl.Context, wake: Callable[[], None], *, host: str | None = None, port: int = 7007,
                 run: str | None = None, token: str | None = None) -> None:
        """Serves from now on, only to this machine if `host` is None. `token`: the one that pages at `port` have
        already; by default a new one. `ctx`: what the screens are drawn with; `wake` ends the loop's sleep, from any
        thread; `run`: what other programs are told.

        Raises ViewerError when there is no such address, or no free port.
        """
        from splatview_ipc.control.registry import Announcement

        self._ctx = ctx
        self._encoder: Encoder | None = None if forced_encoder() is None else choose(ctx)
        self._count = 0
        Thread(target=_prepare, name="prepare", daemon=True).start()
        with ExitStack() as opened:
            self.server = WebServer(host or "127.0.0.1", port, token=token, wake=wake)
            opened.callback(self.server.close)
            self._entry = opened.enter_context(Announcement(local_url(self.server), host=self.server.host,
                                                            port=self.server.port, run=run))
            self._opened = opened.pop_all()

    def say(self, environ: dict[str, str]) -> None:
        """Print the page's address."""
        for line in lines(self.server, environ):
            print(line, file=sys.stderr, flush=True)

    def arrivals(self, now: float, work: GpuWork) -> list[Browser]:
        """Return the browsers that connected since the last call. Call it at each turn."""
        self._entry.refresh(now)
        while self._encoder is not None and self._encoder.took:
            size, ms = self._encoder.took.popleft()
            work.took(("encode", *size), ms)
        browsers = []
        for connection in self.server.arrivals():
            if self._encoder is None:  # made late: on a GPU it takes some hundred MB
                self._encoder = choose(self._ctx)
            try:
                screen = BrowserScreen(self._ctx, connection, self._encoder, work)
            except Exception as e:  # must not end the viewer
                log.warning("a browser at %s cannot be served: %s", connection.peer, e)
                connection.close("no picture can be drawn for it")
                continue
            self._count += 1
            browsers.append(Browser(connection.hello.id, f"Browser {self._count}", screen))
        return browsers

    def close(self) -> None:
        """Stop serving and end the connections. Idempotent."""
        self._opened.close()
        if self._encoder is not None:
            self._encoder.close()


def _prepare() -> None:
    """Load libraries that the first browser would wait for. No CUDA context is made."""
    from splatview_viewer.core.errors import ViewerError
    from splatview_viewer.web.nvjpeg import library

    with suppress(ViewerError, ImportError):
        library()
        import torch  # noqa: F401
