"""`Window`: a window that shows one image or one Gaussian scene of this process; async_torchwindow's class."""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
import threading
import time
import weakref
from operator import index
from typing import TYPE_CHECKING, Any

from splatview.adapters.metadata import check_tensor
from splatview.api import session as publishing
from splatview.api import windows
from splatview_ipc.control import limits
from splatview_ipc.system import programs

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from splatview_ipc.shm.window_page import WindowPage

__all__ = ["Window"]

_log = logging.getLogger("splatview")
_NEW_EACH_TIME = 3
"""Images in a row, each in other memory than the one before, that tell that the next will be as well."""
_SOON = 0.25
"""Seconds within which the next of such images comes."""


class Window:
    """A window on the desktop, drawn by another process. The methods of async_torchwindow's class, and on the CPU too.

    Nothing here waits for the window, neither for its process to start nor for a picture to be drawn, unless asked
    to (`start(blocking=True)`, `destroy()`); drawing neither takes the GIL nor a thread of this process. What is set is
    published as two streams of this run, so that other viewers, `splatview shot` and `splatview.annotate` reach it as
    well: an image under the window's title ("window" by default), a scene under the same with " scene".

    A window may be started before or after something is set. When its user closes it, or after `destroy()`,
    `is_running()` is False and all other methods go on working without effect; tensors are let go of then. `start()`
    opens it again, for what is set from then on. In the window: H shows the panel, F fits, the mouse moves and zooms.
    Use one from one thread at a time. A forked child has no window: for it all of them are closed.
    """

    def __init__(self, width: int, height: int, title: str = "splatview") -> None:
        """width, height: of the window in points, 16 to 16384 (pixels, but on displays that scale); it can be resized.
        title: what stands over it, up to 200 characters.

        Opens nothing yet: see `start`. Raises TypeError, ValueError.
        """
        from splatview_ipc.shm.window_page import MAX_SIDE, MIN_SIDE

        sides = []
        for name, value in (("width", width), ("height", height)):
            try:
                if isinstance(value, bool):
                    raise TypeError
                sides.append(index(value))
            except TypeError:
                raise TypeError(f"{name} is a {type(value).__name__}, not a whole number of points") from None
            if not MIN_SIDE <= sides[-1] <= MAX_SIDE:
                raise ValueError(f"{name} is {value}; legal are {MIN_SIDE} to {MAX_SIDE}")
        if not isinstance(title, str):
            raise TypeError(f"title is a {type(title).__name__}, not a str")
        if len(title) > limits.MAX_NAME or not (title.isprintable() or not title):
            raise ValueError(f"title {title[:40]!r}: legal are up to {limits.MAX_NAME} printable characters")
        windows.tidy()
        _all.add(self)
        self._asked_size = sides[0], sides[1]
        self._title = title
        self._streams: tuple[str, str] | None = None
        """The names of its image's and its scene's stream."""
        self._shown = 0
        self._run = ""
        self._process: subprocess.Popen[Any] | None = None
        self._page: WindowPage | None = None
        self._abandoned: list[weakref.finalize[..., Any]] = []
        """What happens when nobody holds it any more."""
        self._over = False
        """Whether it was closed since it was last started."""
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._last: tuple[Any, ...] = ()
        self._moves = 0
        self._image: Any = None
        """An image that is not followed where it lies, though it may be the last for long; and when it came."""
        self._image_at = 0.0
        self._background: tuple[Any, Any] | None = None

    # -- as in async_torchwindow -----------------------------------------------------------------------------

    def start(self, blocking: bool = False) -> None:
        """Open the window, and return at once; with `blocking`, when it was closed.

        Raises RuntimeError when it is open already, where there is no display, and, if blocking, when it could not be
        opened. Not blocking, that is logged, and `is_running()` is False. Does nothing with SPLATVIEW_DISABLE=1.
        """
        with self._lock:
            if self._open():
                raise RuntimeError("the window is already started; destroy() closes it")
            if publishing.disabled():
                return
            windows.check_display()
            if publishing.session().run() is None:
                raise RuntimeError("no window can be opened: this process could not begin to publish, and a warning "
                                   "says why; splatview doctor says more")
            self._launch()
            process = self._process
        if blocking:
            assert process is not None
            process.wait()
            with self._lock:
                if self._process is process and (reason := self._let_go()):
                    raise RuntimeError(reason)

    def is_running(self) -> bool:
        """Whether the window is open, or about to be. Costs a system call."""
        with self._lock:
            if not self._open():
                return False
            if self._image is not None and time.monotonic() - self._image_at > _SOON:
                self._publish_image(self._image, live=True)  # no new one came: this one may change where it lies
            return True

    def size(self) -> tuple[int, int]:
        """(width, height) of the window's picture in pixels; before it is open, what was asked for."""
        with self._lock:
            size = self._page.size if self._page is not None else (0, 0)
        return size if all(size) else self._asked_size

    def fps(self) -> float:
        """Pictures that the window drew in the last second: none while nothing changes; 0.0 when it is closed."""
        with self._lock:
            return self._page.fps if self._page is not None and self._open() else 0.0

    def set_image(self, image: Any, height: int | None = None, data_ptr: int | None = None, *,
                  channels: int | None = None) -> None:
        """Show an image, and go on showing it as it changes in place; `set_image(tensor)`, or, as in older versions,
        `set_image(width, height, data_ptr)`.

        image: (H, W, 3|4) or (1, H, W, 3|4), or whatever else `splatview.publish` takes as an image: (H, W),
            (1|3|4, H, W), uint8 in 0..255 or float16, bfloat16, float32 in [0, 1], on a GPU or the CPU. The upper row
            is the first.
        width, height, data_ptr: (height, width, 4) float32 pixels at an address of a GPU or of this process's memory,
            copied at the call: call it again when they change. The address has to be right.
        channels: 3 or 4, of pixels at an address.

        Raises TypeError or ValueError for what is no image.
        """
        old = height is not None or data_ptr is not None
        if old and (height is None or data_ptr is None):
            raise TypeError("set_image takes an image, or width, height and data_ptr")
        if channels is not None and not old:
            raise TypeError("channels is for pixels at an address: a tensor's shape tells")
        with self._lock:
            if self._is_over():
                return
            if old:
                from splatview.adapters.images import picture_at

                image = picture_at(data_ptr, image, height, channels)
            elif getattr(image, "ndim", 0) == 4 and image.shape[0] == 1:
                image = image[0]
            live = self._stays(image)
            self._publish_image(image, live)

    def set_gaussian_splatting_scene(self, background: Any, means3d: Any, shs: Any, opacity: Any, scales: Any,
                                     rotations: Any) -> None:
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
        with self._lock:
            if self._is_over():
                return
            background = self._beside(background, means3d)
            self._image, self._moves, self._last = None, 0, ()
            self._publish(1, (background, means3d, shs, opacity, scales, rotations), "gaussians", live=True)

    def destroy(self) -> None:
        """Close the window, and wait until it is gone; let go of what it showed. Idempotent."""
        with self._lock:
            if self._process is not None and self._page is not None and self._pid == os.getpid():
                programs.end(self._process, windows.PATIENCE)
                self._page.close()
            self._forget()
            self._over = True

    def __enter__(self) -> Window:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.destroy()

    # -- the other process -----------------------------------------------------------------------------------

    def _launch(self) -> None:
        import msgspec

        from splatview_ipc.shm.window_page import WindowPage, WindowSettings

        if self._pid != os.getpid():  # a forked child: what there was is its parent's
            windows.disown(self._process)
            self._pid, self._streams, self._shown = os.getpid(), None, 0
            self._abandoned.clear()
        self._over = False
        image, scene = self._streams or self._take_names()
        page = WindowPage()
        try:
            settings = WindowSettings(*self._asked_size, self._title, self._pid, image, scene, page.fd)
            # Its words, where there are any, belong to this process's own.
            process = programs.start("splatview_viewer", "window", msgspec.json.encode(settings).decode(),
                                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[page.fd])
        except BaseException:
            page.close()
            raise
        self._page, self._process = page, process
        self._when_abandoned(windows.abandon, process, page, self._pid)
        if self._shown:
            page.show(self._shown, self._run)

    def _when_abandoned(self, call: Callable[..., Any], *arguments: Any) -> None:
        one = weakref.finalize(self, call, *arguments)
        one.atexit = False  # then it is destroyed
        self._abandoned.append(one)

    def _open(self) -> bool:
        """Whether there is a window; takes in that it was closed."""
        process, page = self._process, self._page
        if process is None or page is None or self._pid != os.getpid():
            return False
        from splatview_ipc.shm.window_page import CLOSED, FAILED

        if page.state not in (CLOSED, FAILED) and process.poll() is None:
            return True
        if reason := self._let_go():
            _log.warning("%s", reason)
        return False

    def _let_go(self) -> str:
        """The window is gone: give back what belongs to it. Why it is gone, as `windows.failure`."""
        assert self._process is not None and self._page is not None
        reason = windows.failure(self._process, self._page)
        if self._process.poll() is None:
            self._process.kill()  # it has closed all and only has to end, for which nobody here shall wait
        self._process.wait()
        self._page.close()
        self._forget()
        self._over = True
        return reason

    def _is_over(self) -> bool:
        """Whether what is set goes nowhere."""
        return self._pid != os.getpid() or (self._process is not None and not self._open()) or self._over

    def _forget(self) -> None:
        """Let go of all that it showed."""
        self._last, self._image, self._background, self._moves = (), None, None, 0
        if self._pid != os.getpid():
            return
        self._process = self._page = None
        self._shown = 0
        for one in self._abandoned:
            one.detach()
        self._abandoned.clear()
        if self._streams is not None:
            windows.give_back(self._streams)
        self._streams = None

    # -- what it shows ---------------------------------------------------------------------------------------

    def _take_names(self) -> tuple[str, str]:
        names = self._streams = windows.take_names(self._title)
        self._when_abandoned(windows.unnamed.append, (self._pid, names))
        return names

    def _publish(self, which: int, value: Any, kind: str, live: bool) -> None:
        from splatview_ipc.shm.window_page import IMAGE, SCENE

        names = self._streams or self._take_names()
        publishing.publish(value, names[which], kind=kind, live=live)
        publisher, shown = publishing.session().run(), (IMAGE, SCENE)[which]
        run = publisher.run_id if publisher is not None else ""
        if (shown, run) != (self._shown, self._run):
            self._shown, self._run = shown, run
            if self._page is not None:
                self._page.show(shown, run)

    def _publish_image(self, image: Any, live: bool) -> None:
        self._image, self._image_at = None if live else image, time.monotonic()
        self._publish(0, image, "image", live)

    def _stays(self, image: Any) -> bool:
        """Whether to follow an image where it lies. Those of a GPU that are new at every call are better copied there,
        as `publish` does: to say each time where they lie costs more."""
        import torch

        check_tensor(image, "image")
        now = time.monotonic()
        if not isinstance(image, torch.Tensor) or not image.is_cuda:
            self._last, self._moves = (), 0
            return True
        place = image.data_ptr(), image.shape, image.dtype
        moved = place != self._last[:3] and self._last and now - self._last[3] < _SOON
        self._last = *place, now
        self._moves = self._moves + 1 if moved else 0
        return self._moves < _NEW_EACH_TIME

    def _beside(self, background: Any, means: Any) -> Any:
        """A background on the device of the Gaussians."""
        import torch

        if isinstance(background, (tuple, list)):
            background = torch.tensor(background, dtype=torch.float32)
        if not (isinstance(background, torch.Tensor) and isinstance(means, torch.Tensor)
                and background.device != means.device):
            return background
        key = id(background), background._version, means.device
        if self._background is None or self._background[0][:3] != key:
            self._background = (*key, background), background.to(means.device)
        return self._background[1]


_all: weakref.WeakSet[Window] = weakref.WeakSet()


@atexit.register
def _destroy_all() -> None:
    for window in list(_all):
        window.destroy()
