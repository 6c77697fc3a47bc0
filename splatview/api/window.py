"""`Window`: a window that shows one image or one Gaussian scene of this process; async_torchwindow's class."""

from __future__ import annotations

import itertools
import logging
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any

import msgspec

from splatview.adapters import checks
from splatview.api.publish import publish
from splatview.api.session import begun, disabled, public, session
from splatview_ipc.control import limits
from splatview_ipc.control.render_requests import (
    MAX_SIDE,
    MIN_SIDE,
    NewestLines,
    Show,
    WindowSettings,
    WindowState,
    encode,
)
from splatview_ipc.system.child_program import ChildProgram

if TYPE_CHECKING:
    from types import TracebackType

    from splatview.api.session import Session

_log = logging.getLogger("splatview")
_NEW_EACH_TIME = 3
"""Images in a row in GPU memory other than that of the one before, after which images are copied there."""
_PATIENCE_S = 5.0
_publish = publish.__wrapped__  # type: ignore[attr-defined]  # within calls that are public themselves


class Window:
    """A window on the desktop, drawn by another process. The methods of async_torchwindow's class, and on the CPU too.

    No call waits for the window, neither for its process to start nor for a picture to be drawn, but
    `start(blocking=True)` and `destroy()`; drawing takes neither the GIL nor a thread of this process. Values that are
    set are published as two streams of this run, so that other viewers, `splatview shot` and `splatview.annotate` reach
    them as well: an image under the window's title ("window" by default), a scene under the same with " scene".

    A window may be started before or after something is set. When its user closes it, or after `destroy()`,
    `is_running()` is False and all other methods go on working without effect; tensors are released then. `start()`
    opens it again, for what is set from then on. In the window: H shows the panel, F fits, the mouse moves and zooms.
    Without a display it is a page for a browser, whose address is printed; `is_running()` is True until `destroy()`.
    Use one from one thread at a time. In a forked child all windows are closed.
    """

    def __init__(self, width: int, height: int, title: str = "splatview") -> None:
        """width, height: of the window in points, 16 to 16384 (pixels, but on displays that scale); it can be resized.
        title: what stands over it, up to 200 characters.

        Opens nothing yet: see `start`. Raises TypeError, ValueError.
        """
        self._asked_size = (
            checks.integer("width", width, MIN_SIDE, MAX_SIDE),
            checks.integer("height", height, MIN_SIDE, MAX_SIDE),
        )
        if not isinstance(title, str):
            raise TypeError(f"title is a {type(title).__name__}, not a str")
        if len(title) > limits.MAX_NAME or not (title.isprintable() or not title):
            raise ValueError(
                f"title is {title[:40]!r}; legal are up to {limits.MAX_NAME} printable characters"
            )
        self._title = title
        self._owner: Session | None = None
        """The session that publishes for it."""
        self._streams: tuple[str, str] | None = None
        """The names of its image's and its scene's stream."""
        self._end: weakref.finalize[..., Window] | None = None
        self._shown: tuple[str, str] | None = None
        self._program: ChildProgram | None = None
        self._pipes: NewestLines | None = None
        self._state = WindowState(*self._asked_size)
        self._closed = False
        """True if it was closed since it was last started."""
        self._last_place: tuple[Any, ...] | None = None
        self._moves = 0
        """Images in a row that were elsewhere than the one before."""

    # -- as in async_torchwindow

    @public(answers=True)
    def start(self, blocking: bool = False) -> None:
        """Open the window, and return at once; with `blocking`, when it was closed.

        Raises RuntimeError when it is open already and, if blocking, when it could not be opened. Not blocking, that is
        logged, and `is_running()` is False. Does nothing with SPLATVIEW_DISABLE=1.
        """
        if self._is_open():
            raise RuntimeError("the window is already started; destroy() closes it")
        if disabled():
            return
        if session().run() is None:
            raise RuntimeError(
                "no window can be opened: this process could not begin to publish, and a warning "
                "says why; splatview doctor says more"
            )
        self._take_over()
        if os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY"):
            settings = encode(
                WindowSettings(*self._asked_size, self._title, os.getpid())
            ).decode()
            program = ChildProgram("splatview_viewer", "window", settings, pipes=True)
            assert program.stdin is not None
            assert program.stdout is not None
            self._pipes = NewestLines(program.stdout.fileno(), program.stdin.fileno())
        else:
            program = ChildProgram(
                "splatview_viewer",
                "serve",
                "--web",
                "--run",
                str(os.getpid()),
                on_error=lambda line: print(line, file=sys.stderr, flush=True),
            )
        self._program, self._state, self._closed = (
            program,
            WindowState(*self._asked_size),
            False,
        )
        if self._shown is not None:
            self._show(self._shown)
        if blocking:
            program.wait()
            if self._program is program and (reason := self._let_go()):
                raise RuntimeError(reason)

    @public(fallback=lambda self: False)
    def is_running(self) -> bool:
        """Return True while the window is open, or about to be. Costs some system calls."""
        return self._is_open()

    @public(fallback=lambda self: self._asked_size)
    def size(self) -> tuple[int, int]:
        """Return (width, height) of the window's picture in pixels; what was asked for before it is open, and where a
        fault of the surroundings hides it.
        """
        if self._is_open():
            return (self._state.width, self._state.height)
        return self._asked_size

    @public(fallback=lambda self: 0.0)
    def fps(self) -> float:
        """Return the pictures that the window drew in the last second; 0.0 while nothing changes, or when closed."""
        return self._state.fps if self._is_open() else 0.0

    @public()
    def set_image(
        self,
        image: Any,
        height: int | None = None,
        data_ptr: int | None = None,
        *,
        channels: int = 4,
    ) -> None:
        """Show an image, and go on showing it as it changes in place: `set_image(tensor)`, or, as in older versions,
        `set_image(width, height, data_ptr)`.

        image: (H, W, 3|4) or whatever else `splatview.publish` takes as an image: (H, W), (1|3|4, H, W), uint8 in
            0..255 or float16, bfloat16, float32 in [0, 1], on a GPU or the CPU; also (1, H, W, 3|4). The upper row is
            the first.
        width, height, data_ptr: (height, width, channels) float32 pixels at an address of a GPU or of this process's
            memory, copied at the call: call it again when they change. The address has to be right.
        channels: 3 or 4, of pixels at an address.

        Raises TypeError or ValueError for what is no image.
        """
        import torch

        if not self._takes():
            return
        if height is not None and data_ptr is not None:
            from splatview.adapters.images import picture_at

            image = picture_at(data_ptr, image, height, channels)
        elif height is not None or data_ptr is not None:
            raise TypeError("set_image takes an image, or width, height and data_ptr")
        checks.check_tensor(image, "image")
        if getattr(image, "ndim", 0) == 4 and len(image) == 1:
            image = image[0]
        place = None
        if isinstance(image, torch.Tensor) and image.is_cuda:
            place = image.data_ptr(), image.shape, image.dtype
        moved = place is not None and self._last_place not in (None, place)
        self._moves = self._moves + 1 if moved else 0
        self._last_place = place
        # To share memory that is another each time costs more than to copy it on the GPU.
        self._set(0, image, "image", live=self._moves < _NEW_EACH_TIME)

    @public()
    def set_gaussian_splatting_scene(
        self,
        background: Any,
        means3d: Any,
        shs: Any,
        opacity: Any,
        scales: Any,
        rotations: Any,
    ) -> None:
        """Show a scene of P Gaussians, and go on showing it as it changes in place.

        background: (3,) RGB in [0, 1]; it may lie on another device than the rest, and is then read at this call alone.
        means3d: (P, 3) centres in world units, OpenCV axes (x right, y down, z forward).
        shs: (P, M, 3) coefficients of spherical harmonics, M = 1, 4, 9, 16 or 25.
        opacity: (P,) or (P, 1) in [0, 1]: activated.
        scales: (P, 3) standard deviations in world units: activated.
        rotations: (P, 4) quaternions w, x, y, z.

        All float16, bfloat16, float32 or float64, on one GPU or the CPU. Raises TypeError or ValueError that names
        what is wrong.
        """
        import torch

        if not self._takes():
            return
        if isinstance(background, (tuple, list)):
            background = torch.tensor(background, dtype=torch.float32)
        if isinstance(background, torch.Tensor) and isinstance(means3d, torch.Tensor):
            background = background.to(means3d.device)
        self._last_place = None
        self._set(
            1,
            (background, means3d, shs, opacity, scales, rotations),
            "gaussians",
            live=True,
        )

    @public()
    def destroy(self) -> None:
        """Close the window, and wait until it is gone; release what it showed. Idempotent."""
        if self._program is not None and self._owner is session():
            self._pipes = None  # whose descriptors are closed now
            self._program.end(_PATIENCE_S)
        self._let_go()

    def __enter__(self) -> Window:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.destroy()

    # -- the program

    def _is_open(self) -> bool:
        """Take in what the program wrote; False, and all is released, if it has ended."""
        program = self._program
        if program is None or self._owner is not session():
            return False
        self._receive()
        if program.running() and not self._state.closed:
            return True
        reason = self._let_go()
        if reason:
            _log.warning("%s", reason)
        return False

    def _receive(self) -> None:
        if self._pipes is not None and (line := self._pipes.newest()) is not None:
            self._state = msgspec.json.decode(line, type=WindowState)

    def _show(self, shown: tuple[str, str]) -> None:
        self._shown = shown
        if self._pipes is not None:
            self._pipes.send(encode(Show(*shown)) + b"\n")

    def _let_go(self) -> str:
        """Release what belongs to the window. Return why it is gone, "" if its user or the script closed it."""
        program = self._program
        reason = ""
        if self._owner is session():
            if program is not None:
                self._receive()
                code = program.exit_code
                reason = self._state.reason
                if not reason and code not in (None, 0) and not self._state.closed:
                    reason = f"the window's process ended by itself, with code {code}"
                program.end(0)  # of a window that is closed already
            if self._end is not None:
                self._end()
        self._program = None
        self._pipes = None
        self._streams = None
        self._shown = None
        self._last_place = None
        self._closed = True
        return reason

    # -- the streams

    def _takes(self) -> bool:
        """False if what is set has no effect: the window was closed, or is the parent's of a forked child."""
        if self._closed or self._owner not in (None, session()):
            return False
        return self._program is None or self._is_open()

    def _take_over(self) -> None:
        """Begin to publish in this session; in a forked child, anew."""
        if self._owner is not session():
            self._owner = session()
            self._program = None
            self._pipes = None
            self._streams = None
            self._shown = None

    def _set(self, which: int, value: Any, kind: str, live: bool) -> None:
        self._take_over()
        if self._streams is None:
            streams = publisher.streams if (publisher := begun()) is not None else {}
            base = " ".join(
                "".join(c for c in self._title if c.isprintable() and c != "/").split()
            )
            if base in ("", "splatview"):
                base = "window"
            else:
                base = base[: limits.MAX_NAME - 20]
            names = itertools.chain(
                [base], (f"{base} {number}" for number in itertools.count(2))
            )
            pairs = ((name, f"{name} scene") for name in names)
            self._streams = next(
                pair
                for pair in pairs
                if not any(  # nothing of this process is shown under them
                    n in session().published
                    or (n in streams and streams[n].kind != other)
                    for n, other in zip(pair, ("image", "gaussians"), strict=True)
                )
            )
            self._end = weakref.finalize(self, _forget, session(), self._streams)
            self._end.atexit = False
        name = self._streams[which]
        _publish(value, name, kind=kind, live=live)
        publisher = begun()
        if publisher is not None and (shown := (name, publisher.run_id)) != self._shown:
            self._show(shown)


def _forget(owner: Session, names: tuple[str, str]) -> None:
    """Release what a window showed that is closed, or that was garbage collected."""
    if owner is session():  # not in a forked child
        for name in names:
            owner.forget(name)
