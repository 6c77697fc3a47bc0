"""`Window`: a window that shows an image or a scene; the class of async_torchwindow."""

from __future__ import annotations

import logging
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from splatview.adapters import checks
from splatview.api.publish import publish
from splatview.api.session import disabled, public, session, started_publisher
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
_MAX_MOVES = 3
"""Images in a row at another address than the one before, from which on they are copied.

Sharing memory that is another each time costs more than copying it on the GPU.
"""
_END_TIMEOUT_S = 5.0


class StreamNames(NamedTuple):
    """The names under which a window publishes its image and its scene."""

    image: str
    scene: str


class ImageAddress(NamedTuple):
    """The address and form of an image in GPU memory."""

    pointer: int
    shape: Any
    dtype: Any


class Window:
    """A window on the desktop, drawn by another process.

    It has the methods of async_torchwindow's class, and shows tensors of the CPU too. No
    call waits for the window, neither for its process to start nor for a picture to be
    drawn, but `start(blocking=True)` and `destroy()`; drawing takes neither the GIL nor a
    thread of this process. Values that are set are published as two streams of this run,
    so that other viewers, `splatview shot` and `splatview.annotate` reach them as well:
    an image under the window's title ("window" by default), a scene under the same with
    " scene".

    A window may be started before or after something is set. When its user closes it, or
    after `destroy()`, `is_running()` is False and all other methods go on working without
    effect; tensors are released then. `start()` opens it again, for what is set from then
    on. In the window: H shows the panel, F fits, the mouse moves and zooms. Without a
    display it is a page for a browser, whose address is printed; `is_running()` is True
    until `destroy()`. Use one from one thread at a time. In a forked child all windows
    are closed.
    """

    def __init__(self, width: int, height: int, title: str = "splatview") -> None:
        """Note how the window is to be; `start` opens it.

        Args:
            width: width of the window in points, 16 to 16384 (pixels, but on displays that
                scale); it can be resized.
            height: likewise.
            title: the text over it, up to 200 characters.

        Raises:
            TypeError: an argument is of another type.
            ValueError: an argument is out of range.
        """
        self._initial_size = (
            checks.integer("width", width, MIN_SIDE, MAX_SIDE),
            checks.integer("height", height, MIN_SIDE, MAX_SIDE),
        )
        if not isinstance(title, str):
            raise TypeError(f"title is {checks.type_text(title)}, not a str")
        is_printable = title.isprintable() or not title
        if len(title) > limits.MAX_NAME or not is_printable:
            raise ValueError(
                f"title is {title[:40]!r}; expected up to {limits.MAX_NAME} printable "
                "characters"
            )
        self._title = title
        self._owner: Session | None = None
        """The session that publishes for it."""
        self._streams: StreamNames | None = None
        self._release: weakref.finalize[..., Window] | None = None
        """Releases what the window shows."""
        self._shown_stream: Show | None = None
        """The stream that the program was told to show last."""
        self._program: ChildProgram | None = None
        self._pipes: NewestLines | None = None
        self._state = WindowState(*self._initial_size)
        self._is_closed = False
        """True if it was closed since it was last started."""
        self._last_address: ImageAddress | None = None
        self._moves = 0
        """Images in a row that were at another address than the one before."""

    # The methods of async_torchwindow.

    @public(answers=True)
    def start(self, blocking: bool = False) -> None:
        """Open the window, and return at once; with `blocking`, when it was closed.

        Raises RuntimeError when it is open already and, if blocking, when it could not be
        opened. Not blocking, that is logged, and `is_running()` is False. Does nothing
        with SPLATVIEW_DISABLE=1.
        """
        if self._is_open():
            raise RuntimeError("the window is already started; destroy() closes it")
        if disabled():
            return
        if session().run() is None:
            raise RuntimeError(
                "no window can be opened: this process could not begin to publish, and a "
                "warning says why; splatview doctor says more"
            )
        self._adopt()
        program = self._start_program()
        self._program = program
        self._state = WindowState(*self._initial_size)
        self._is_closed = False
        if self._shown_stream is not None:
            self._show(self._shown_stream)
        if blocking:
            program.wait()
            if self._program is program:
                reason = self._forget_program()
                if reason:
                    raise RuntimeError(reason)

    @public(fallback=lambda self: False)
    def is_running(self) -> bool:
        """Return True while the window is open, or about to be.

        Costs some system calls.
        """
        return self._is_open()

    @public(fallback=lambda self: self._initial_size)
    def size(self) -> tuple[int, int]:
        """Return (width, height) of the window's picture in pixels.

        They are those given to the constructor before it is open, and where a fault of
        the surroundings hides them.
        """
        if self._is_open():
            return (self._state.width, self._state.height)
        return self._initial_size

    @public(fallback=lambda self: 0.0)
    def fps(self) -> float:
        """Return the pictures that the window drew in the last second.

        0.0 while nothing changes, or when it is closed.
        """
        if not self._is_open():
            return 0.0
        return self._state.fps

    @public()
    def set_image(
        self,
        image: Any,
        height: int | None = None,
        data_ptr: int | None = None,
        *,
        channels: int = 4,
    ) -> None:
        """Show an image, and go on showing it as it changes in place.

        `set_image(tensor)`, or, as in older versions, `set_image(width, height,
        data_ptr)`.

        Args:
            image: (H, W, 3|4) or whatever else `splatview.publish` takes as an image:
                (H, W), (1|3|4, H, W), uint8 in 0..255, uint16, or float16, bfloat16,
                float32 in [0, 1], on a GPU or the CPU; also (1, H, W, 3|4). The upper row
                is the first. In the older form the width of the picture.
            height: the height of the picture at an address.
            data_ptr: the address of (height, width, channels) float32 pixels in a GPU's
                or this process's memory. They are copied at the call: call it again when
                they change. The address has to be right.
            channels: 3 or 4, of pixels at an address.

        Raises:
            TypeError: not an image.
            ValueError: shape, dtype or device are not those of an image.
        """
        import torch

        if not self._has_effect():
            return
        if height is not None and data_ptr is not None:
            from splatview.adapters.images import picture_at

            image = picture_at(data_ptr, image, height, channels)
        elif height is not None or data_ptr is not None:
            raise TypeError("set_image takes an image, or width, height and data_ptr")
        checks.check_tensor(image, "image")
        if getattr(image, "ndim", 0) == 4 and len(image) == 1:
            image = image[0]
        address = None
        if isinstance(image, torch.Tensor) and image.is_cuda:
            address = ImageAddress(image.data_ptr(), image.shape, image.dtype)
        has_moved = address is not None and self._last_address not in (None, address)
        self._moves += 1
        if not has_moved:
            self._moves = 0
        self._last_address = address
        name = self._stream_names().image
        self._publish(image, name, "image", live=self._moves < _MAX_MOVES)

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

        All are float16, bfloat16, float32 or float64, on one GPU or the CPU.

        Args:
            background: (3,) RGB in [0, 1]; it may lie on another device than the rest,
                and is then read at this call alone.
            means3d: (P, 3) centres in world units, OpenCV axes (x right, y down, z
                forward).
            shs: (P, M, 3) coefficients of spherical harmonics, M = 1, 4, 9, 16 or 25.
            opacity: (P,) or (P, 1) in [0, 1]: activated.
            scales: (P, 3) standard deviations in world units: activated.
            rotations: (P, 4) quaternions w, x, y, z.

        Raises:
            TypeError: a part is no array.
            ValueError: a part has another shape, dtype or device.
        """
        import torch

        if not self._has_effect():
            return
        if isinstance(background, (tuple, list)):
            background = torch.tensor(background, dtype=torch.float32)
        if isinstance(background, torch.Tensor) and isinstance(means3d, torch.Tensor):
            background = background.to(means3d.device)
        self._last_address = None
        scene = (background, means3d, shs, opacity, scales, rotations)
        self._publish(scene, self._stream_names().scene, "gaussians", live=True)

    @public()
    def destroy(self) -> None:
        """Close the window, and wait until it is gone; release what it showed. Idempotent."""
        if self._program is not None and self._owner is session():
            # Its descriptors are closed below.
            self._pipes = None
            self._program.end(_END_TIMEOUT_S)
        self._forget_program()

    def __enter__(self) -> Window:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.destroy()

    # The program that draws.

    def _start_program(self) -> ChildProgram:
        """Start a window, or without a display a page for browsers."""
        if not (os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY")):
            return ChildProgram(
                "splatview_viewer",
                *("serve", "--web", "--run", str(os.getpid())),
                on_error=_print_error_line,
            )
        width, height = self._initial_size
        settings = WindowSettings(width, height, self._title, os.getpid())
        arguments = ("window", encode(settings).decode())
        program = ChildProgram("splatview_viewer", *arguments, pipes=True)
        assert program.stdin is not None
        assert program.stdout is not None
        self._pipes = NewestLines(program.stdout.fileno(), program.stdin.fileno())
        return program

    def _is_open(self) -> bool:
        """Return whether the program runs; release everything if it has ended."""
        program = self._program
        if program is None or self._owner is not session():
            return False
        self._receive()
        if program.is_running() and not self._state.closed:
            return True
        reason = self._forget_program()
        if reason:
            _log.warning("%s", reason)
        return False

    def _receive(self) -> None:
        """Take in the newest state that the program wrote."""
        line = None if self._pipes is None else self._pipes.newest()
        if line is not None:
            self._state = msgspec.json.decode(line, type=WindowState)

    def _show(self, request: Show) -> None:
        """Have the program show a stream."""
        self._shown_stream = request
        if self._pipes is not None:
            self._pipes.send(encode(request) + b"\n")

    def _forget_program(self) -> str:
        """Release everything that belongs to the window.

        Returns the reason why it is gone, "" if its user or the script closed it.
        """
        program = self._program
        reason = ""
        if self._owner is session():
            if program is not None:
                self._receive()
                code = program.exit_code
                reason = self._state.reason
                has_failed = code not in (None, 0) and not self._state.closed
                if not reason and has_failed:
                    reason = f"the window's process ended by itself, with code {code}"
                # The window is closed already.
                program.end(0)
            if self._release is not None:
                self._release()
        self._program = None
        self._pipes = None
        self._streams = None
        self._shown_stream = None
        self._last_address = None
        self._is_closed = True
        return reason

    # The streams.

    def _has_effect(self) -> bool:
        """Return whether what is set is shown.

        It is not if the window was closed, or is the parent's of a forked child.
        """
        if self._is_closed or self._owner not in (None, session()):
            return False
        return self._program is None or self._is_open()

    def _adopt(self) -> None:
        """Begin to publish in this session; in a forked child, again."""
        if self._owner is not session():
            self._owner = session()
            self._program = None
            self._pipes = None
            self._streams = None
            self._shown_stream = None

    def _stream_names(self) -> StreamNames:
        """Return the names under which the window publishes, chosen at the first call."""
        self._adopt()
        if self._streams is None:
            self._streams = _free_names(self._title)
            self._release = weakref.finalize(self, _forget, session(), self._streams)
            self._release.atexit = False
        return self._streams

    def _publish(self, value: Any, name: str, kind: str, live: bool) -> None:
        """Publish a value and have the program show its stream."""
        publish(value, name, kind=kind, live=live)
        publisher = started_publisher()
        if publisher is None:
            return
        request = Show(name, publisher.run_id)
        if request != self._shown_stream:
            self._show(request)


def _print_error_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _free_names(title: str) -> StreamNames:
    """Return names made of a window's title that this process uses for nothing else."""
    letters = "".join(c for c in title if c.isprintable() and c != "/")
    base = " ".join(letters.split())
    if base in ("", ".", "..", "splatview"):
        base = "window"
    base = base[: limits.MAX_NAME - 20]
    names = StreamNames(base, f"{base} scene")
    suffix = 1
    while _is_used(names.image, "image") or _is_used(names.scene, "gaussians"):
        suffix += 1
        names = StreamNames(f"{base} {suffix}", f"{base} {suffix} scene")
    return names


def _is_used(name: str, kind: str) -> bool:
    """Return whether this process shows anything else under a name."""
    if name in session().published:
        return True
    publisher = started_publisher()
    stream = None if publisher is None else publisher.streams.get(name)
    return stream is not None and stream.kind != kind


def _forget(owner: Session, names: StreamNames) -> None:
    """Release what a window showed that is closed, or that was garbage collected."""
    is_forked_child = owner is not session()
    if not is_forked_child:
        for name in names:
            owner.forget(name)
