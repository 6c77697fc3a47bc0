"""A browser tab as a screen: what is drawn goes out as encoded pictures, what its user does comes back."""

from __future__ import annotations

import io
import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import moderngl

from splatview_ipc.control.errors import IpcError
from splatview_viewer.core.errors import FileError, GraphicsError
from splatview_viewer.core.events import ClickCounter, Expose, FileDrop, PointerMove, Resize
from splatview_viewer.core.screen import MIN_SIZE
from splatview_viewer.formats.pictures import safe_name
from splatview_viewer.gpu.work import is_software
from splatview_viewer.screens._mailbox import Mailbox
from splatview_viewer.screens._readback import BufferReader, CudaReader, HostReader
from splatview_viewer.screens._target import Target
from splatview_viewer.web import messages as m
from splatview_viewer.web.connection import Upload
from splatview_viewer.web.encoders import choose
from splatview_viewer.web.encoders.base import MAX_SIDE
from splatview_viewer.web.encoders.turbo import TurboEncoder
from splatview_viewer.web.sender import Sender, scaled, workers

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    import numpy as np

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Caption
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.screens._readback import Reader
    from splatview_viewer.web.connection import Connection
    from splatview_viewer.web.encoders.base import Encoder

log = logging.getLogger("splatview")

_FAILURES = (moderngl.Error, IpcError, RuntimeError)
"""What OpenGL, the ways from it to CUDA and torch raise, where there is too little memory for instance."""
_MOST_PIXELS = 3840 * 2160
"""Of a page, as in the page's own script. A page holds about five pictures of 4 bytes a pixel: what is drawn, read,
encoded and shown, and what waits to be sent."""
_GLANCE = 0.002
"""Seconds until a picture that the GPU is reading is looked for again."""
_MOST_KEPT = 2
"""Pictures to be kept that are on their way to one page."""


class BrowserScreen:
    """One page. Draws in a context that it shares with other screens and does not close."""

    name: ClassVar[str] = "browser"
    says_trouble: ClassVar[bool] = True

    def __init__(self, ctx: moderngl.Context, connection: Connection, wake: Callable[[], None], *,
                 encoder: Encoder | None = None, pool: Executor | None = None,
                 work: GpuWork | None = None) -> None:
        """`wake` ends the sleep of the loop that draws, from any thread. `encoder`: shared with others, and not closed
        here; by default one of its own. `pool`: the threads that encode. `work`: what is told how long the GPU encodes.

        Raises GraphicsError when no framebuffer of the page's size can be made.
        """
        self.ctx = ctx
        self._connection = connection
        self._wake_loop = wake
        self._work = work
        self._own_encoder = choose(ctx) if encoder is None else None
        self._encoder: Encoder = encoder or self._own_encoder  # type: ignore[assignment]
        self._pool = pool or workers()
        self._most = min(MAX_SIDE, int(ctx.info["GL_MAX_TEXTURE_SIZE"]))
        hello = connection.hello
        self._asked = Resize(*self._legal(hello.width, hello.height), hello.scale)
        """The size that the page would like to have."""
        self._visible, self._suspended = hello.visible, not hello.visible
        self._keeping = threading.Semaphore(_MOST_KEPT)
        """Of pictures to be kept: how many more may be encoded."""
        self._closed = self._released = self._missed = False
        self._mailbox: Mailbox[tuple[Event, float]] = Mailbox(_supersedes)
        self._clicks = ClickCounter()
        self._at = self._at_drawn = 0.0, 0.0
        """The newest event since the last picture, and the newest in that: the page's time and ours."""
        self._caption: Caption | None = None
        self._clipboard = ""
        self._glancing = False
        self._size = self._asked.width, self._asked.height
        try:
            made, self._reader = self._make((MIN_SIZE, MIN_SIZE) if self._suspended else self._size)
        except BaseException:
            self._close_encoder()
            raise
        self._shared = made.shared is not None
        self._target: Target | None = made
        """None while nothing is shown."""
        if self._suspended:
            made.release()
            self._target = None
        self._sender = Sender(connection, self._encoder, self._changed, pool=self._pool)
        connection.attach(self)

    def _legal(self, width: int, height: int) -> tuple[int, int]:
        width = min(max(width, MIN_SIZE), self._most)
        return width, min(max(height, MIN_SIZE), self._most, _MOST_PIXELS // width)

    def _make(self, size: tuple[int, int]) -> tuple[Target, Reader]:
        """What to draw into and how to read it."""
        try:
            if self._encoder.cuda:
                made = self._make_shared(size)
                if made is not None:
                    return made
            target = Target(self.ctx, size)
        except _FAILURES as e:
            raise GraphicsError(f"no picture of {size[0]} x {size[1]} can be drawn for a browser: {e}") from e
        if is_software(self.ctx):
            return target, HostReader()
        return target, BufferReader(self.ctx)

    def _make_shared(self, size: tuple[int, int]) -> tuple[Target, Reader] | None:
        """For an encoder that takes CUDA tensors; None, and another encoder, where OpenGL's pictures do not get there
        any faster than through host memory."""
        try:
            target = Target(self.ctx, size, shared=True)
            return target, CudaReader(self._encoder.device)  # type: ignore[attr-defined]
        except IpcError as e:
            reason = str(e)
        log.warning("pictures for browsers are encoded on the CPU: %s", reason)
        self._encoder = TurboEncoder(reason)
        return None

    # -- in the web thread -----------------------------------------------------------------------------------

    def take(self, message: m.ClientMessage | Upload, now: float) -> None:
        """What the page says."""
        if isinstance(message, Upload):
            self._put(FileDrop((str(message.path),), message.done), now)
            return
        if isinstance(message, m.Ack):
            self._sender.acked(message.number, now)
            if self._suspended:
                self.wake()
            return
        if isinstance(message, m.Visible):
            before, self._visible = self._visible, message.on
            self.wake()
            if message.on and not before:
                self._put(Expose(), now)
            elif not message.on:
                self._sender.hidden()
            return
        event = m.event_of(message, self._clicks, now, self.scale)
        if event is not None:
            self._put(event, now)

    def _put(self, event: Event, now: float) -> None:
        self._sender.used(now)
        if self._released or not self._mailbox.put((event, now)):
            _give_back(event)
            self._connection.close("the viewer is too far behind; connect again")
        elif self._released:  # since a moment
            self._give_back()
        self._wake_loop()

    def _give_back(self) -> None:
        for event, _ in self._mailbox.take(0):
            _give_back(event)

    def lost(self) -> None:
        """The page is gone."""
        self._closed = True
        self.wake()

    # -- in any thread ---------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """Another picture may be taken."""
        self.wake()

    def wake(self) -> None:
        self._mailbox.wake()
        self._wake_loop()  # which sleeps elsewhere: it polls this screen only in passing

    # -- in the thread that draws ----------------------------------------------------------------------------

    @property
    def size(self) -> tuple[int, int]:
        return self._size

    @property
    def scale(self) -> float:
        return self._asked.scale

    @property
    def framebuffer(self) -> moderngl.Framebuffer:
        return self._drawn().framebuffer

    def _drawn(self) -> Target:
        """Return what is drawn into; a suspended page's is made when something is drawn all the same."""
        if self._target is None:
            if not self._retarget(self._size):
                self._size = MIN_SIZE, MIN_SIZE
                self._target = Target(self.ctx, self._size)
            assert self._target is not None
        return self._target

    @property
    def closed(self) -> bool:
        return self._closed or self._connection.closed

    @property
    def visible(self) -> bool:
        return self._visible and not self._suspended and not self.closed

    @property
    def ready(self) -> bool:
        return not self.closed and not self._suspended and not self._reader.reading and self._sender.ready

    def poll(self, timeout: float) -> list[Event]:
        self._look_after()
        if timeout > 0:
            glance = _GLANCE if self._reader.reading else timeout
            due = self._sender.due - time.monotonic() if self._visible else timeout
            timeout = max(min(timeout, glance, due), 0.0)
        items = self._mailbox.take(timeout)
        if timeout > 0:
            self._look_after()
        events = []
        for event, now in items:
            if event.at > 0:
                self._at = event.at, now
            if isinstance(event, Resize):
                self._asked = Resize(*self._legal(event.width, event.height), event.scale)
                self._fit()
                event = Resize(*self._size, self.scale)
            events.append(event)
        return events

    def _look_after(self) -> None:
        """What goes on beside the drawing."""
        if self._released:
            return
        self._suspend(not self._visible or self._sender.unread(time.monotonic()))
        if self._suspended:
            self._release_target()  # it may have been made for a picture to keep
            return
        self._collect()
        if self._visible:
            self._sender.rest()
        while self._sender.took:
            size, ms = self._sender.took.popleft()
            if self._work is not None:
                self._work.took(("encode", *size), ms)
        if self._missed and self.ready:
            self._missed = False
            self._mailbox.put((Expose(), time.monotonic()))

    def _collect(self) -> None:
        frame = self._reader.collect()
        if frame is not None:
            frame.at, frame.taken = self._at_drawn
            self._sender.send(frame)
        elif self._reader.reading and not self._glancing:
            self._glancing = True
            self._pool.submit(self._glance)

    def _glance(self) -> None:
        """Have the loop look for what the GPU reads, which tells nobody when it is done."""
        time.sleep(_GLANCE)
        self._glancing = False
        self._changed()

    def _suspend(self, on: bool) -> None:
        """Give back the memory for pictures while nothing is shown, or begin to show something again."""
        if on == self._suspended:
            return
        self._suspended = on
        self._sender.suspend(on)
        if not on:
            self._fit()
            self._mailbox.put((Expose(), time.monotonic()))
            return
        self._missed = False
        self._reader.close()

    def _release_target(self) -> None:
        if self._target is not None:
            self._target.release()
            self._target = None

    def _fit(self) -> None:
        """Take the size that the page asks for."""
        size = self._asked.width, self._asked.height
        if self._released or (size != self._size and self._target is not None and not self._retarget(size)):
            return
        self._size = size

    def _retarget(self, size: tuple[int, int]) -> bool:
        try:
            target = Target(self.ctx, size, shared=self._shared)
        except _FAILURES as e:
            log.warning("no picture of %d x %d can be drawn for the browser at %s: %s", *size, self._connection.peer, e)
            self._connection.close("no picture of this size can be drawn")
            return False
        before, self._target = self._target, target
        if before is not None:
            before.release()
        return True

    def present(self) -> None:
        """Hand over what was drawn. While the screen is not `ready` that is remembered, and asked for again."""
        if not self.ready:
            self._missed = not self.closed
            return
        self._missed = False
        self._at_drawn, self._at = self._at, (0.0, 0.0)
        if self._work is not None and self._encoder.cuda:
            self._work.governor.gives(("encode", *scaled(self.size, self._sender.level.scale)), "cuda")
        try:
            self._reader.begin(self._drawn())
            self._collect()
        except _FAILURES as e:
            log.warning("the browser at %s gets no picture: %s", self._connection.peer, e)
            self._connection.close("no picture can be read")

    def pixels(self) -> np.ndarray:
        return self._drawn().pixels()

    def caption(self, caption: Caption) -> None:
        if caption != self._caption:
            self._caption = caption
            self._connection.send(m.Caption(caption.title, caption.trouble, caption.typing))

    def copy(self, text: str) -> None:
        self._clipboard = text
        self._connection.send(m.Clipboard(text))

    def clipboard(self) -> str:
        return self._clipboard

    def hand_over(self, path: Path) -> None:
        try:
            if path.is_file():
                self._connection.offer(path, path.stat().st_size)
        except OSError as e:
            log.warning("%s is not offered to the browser at %s: %s", path, self._connection.peer, e.strerror or e)

    def keep(self, picture: np.ndarray, name: str) -> None:
        clean = safe_name(name)
        if self._connection.files_waiting >= _MOST_KEPT or not self._keeping.acquire(blocking=False):
            raise FileError(f"{clean}.png was not sent: {_MOST_KEPT} pictures are on their way to this page; try again "
                            "once they have arrived")
        self._pool.submit(self._keep, picture, clean)

    def _keep(self, picture: np.ndarray, name: str) -> None:
        try:
            _keep(self._connection, picture, name)
        finally:
            self._keeping.release()

    def _close_encoder(self) -> None:
        if self._own_encoder is not None:
            self._own_encoder.close()

    def close(self) -> None:
        self._closed = True
        if self._released:
            return
        self._released = True
        self._connection.close()
        self._give_back()
        self._sender.close()
        self._reader.close()
        self._release_target()
        self._close_encoder()
        self.wake()


def _supersedes(new: tuple[Event, float], last: tuple[Event, float]) -> bool:
    """Whether an event says all that the one before it said."""
    return type(new[0]) is type(last[0]) and isinstance(new[0], (PointerMove, Resize, Expose))


def _give_back(event: Event) -> None:
    """Nobody will take this event: let go of what comes with it."""
    if isinstance(event, FileDrop) and event.done is not None:
        for path in event.paths:
            event.done(Path(path))


def _keep(connection: Connection, picture: np.ndarray, name: str) -> None:
    from PIL import Image

    try:
        png = io.BytesIO()
        Image.fromarray(picture).save(png, "PNG", compress_level=4)
        connection.send_file(f"{name}.png", png.getvalue())
    except Exception:
        log.exception("A picture for the page at %s could not be kept", connection.peer)
