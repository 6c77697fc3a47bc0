"""The screen of one page: encoded pictures go out, and the user's events come back."""

from __future__ import annotations

import logging
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

import moderngl

from splatview_ipc.control.errors import IpcError
from splatview_ipc.system.terminal import printable
from splatview_viewer.core.errors import GraphicsError
from splatview_viewer.core.events import ClickCounter, Expose, Resize
from splatview_viewer.core.screen import Pane, Rect, SceneDrawing, ScreenState
from splatview_viewer.screens.draw_target import DrawTarget, copied, uncopied
from splatview_viewer.web import messages as m
from splatview_viewer.web.page_desktop import PageDesktop
from splatview_viewer.web.sender import Sender, scaled_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Caption, HandedPane
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.web.connection import PageConnection
    from splatview_viewer.web.encoders import Encoder

log = logging.getLogger("splatview")

_GRAPHICS_ERRORS = (moderngl.Error, IpcError, RuntimeError)
"""Raised by OpenGL, the bridges from it to CUDA, and torch, where there is too little
memory for instance."""
_MAX_PIXELS = 3840 * 2160
"""Largest picture of a page, as in its script. A page holds about eight of 4 bytes a
pixel: of its interface and of its pictures what is drawn, waits, is encoded, and was
sent last."""


class _PageTargets:
    """Holds what a page's pictures and its interface are drawn into."""

    def __init__(
        self, ctx: moderngl.Context, size: tuple[int, int], *, shared: bool
    ) -> None:
        with ExitStack() as resources:
            self.pictures = DrawTarget(ctx, size, shared=shared)
            resources.callback(self.pictures.release)
            self.interface = DrawTarget(ctx, size, shared=shared)
            resources.pop_all()

    def release(self) -> None:
        self.pictures.release()
        self.interface.release()


class _PageInterface:
    """The layer of a page's interface."""

    def __init__(self, screen: BrowserScreen) -> None:
        self._screen = screen

    @property
    def framebuffer(self) -> moderngl.Framebuffer:
        return self._screen.targets.interface.framebuffer

    @property
    def takes_pictures(self) -> bool:
        return self._screen.takes_pictures

    def present(
        self, caption: Caption, panes: Sequence[Pane], *, answers: bool
    ) -> None:
        self._screen.present_interface(caption, panes, answers=answers)

    def present_pictures(
        self, panes: Sequence[Pane], *, answers: bool, is_next_begun: bool = False
    ) -> int:
        return self._screen.present_pictures(
            panes, answers=answers, is_next_begun=is_next_begun
        )

    @property
    def sent_pictures(self) -> int:
        return self._screen.sent_pictures


class _DevicePicture(NamedTuple):
    """A picture that CUDA drew, and its place on the screen."""

    pixels: torch.Tensor
    rect: Rect


class _PagePictures:
    """The way in for pictures on the GPU that encodes for a page."""

    def __init__(self, gpu: int) -> None:
        self.gpu = gpu
        self.next: _DevicePicture | None = None
        """The picture to present next; None: what was drawn into the framebuffer."""

    def put(self, pixels: torch.Tensor, rect: Rect, cover: object = None) -> None:
        # Nothing covers the pictures of a page: its interface is another layer.
        self.next = _DevicePicture(pixels, rect)


class _PageScenes:
    """The way in for scenes that a page draws by itself."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def put(self, panes: Sequence[HandedPane]) -> None:
        self._sender.scenes.put(panes)
        if all(pane.handed.drawing is not None for pane in panes):
            # The last picture need not be sent without loss.
            self._sender.clear_pictures()


class BrowserScreen:
    """The screen of one page.

    Draws in a context that it shares with other screens and does not close.
    """

    def __init__(
        self,
        ctx: moderngl.Context,
        connection: PageConnection,
        encoder: Encoder,
        gpu_work: GpuWork | None = None,
    ) -> None:
        """Make the screen.

        Args:
            ctx: the shared context.
            connection: the connection to the page.
            encoder: shared with other screens, and not closed here.
            gpu_work: counts what the GPU encodes.

        Raises:
            GraphicsError: no framebuffer of the page's size can be made.
        """
        self.ctx = ctx
        self.page_id = connection.hello.id
        """The same for a browser that comes back."""
        self.desktop = PageDesktop(connection)
        self._connection = connection
        self._gpu_work = gpu_work
        hello = connection.hello
        self._size = _drawn_size(hello.width, hello.height)
        self._scale = hello.scale
        self._visible = hello.visible
        self._closed = False
        self._drawing: SceneDrawing | None = None
        """What the page said last; None: nothing yet."""
        self._has_missed_picture = False
        """True if a picture was presented while the screen was not ready."""
        self._clicks = ClickCounter()
        self._newest_event_ms = 0.0
        """The newest event since the last picture, by the page's clock; 0: none."""
        self._begun_event_ms = 0.0
        """The newest event that a picture shows which is begun; 0: none."""
        self._caption: Caption | None = None
        self._device = encoder.device
        self._shared = self._device is not None
        self._device_pictures = None
        if self._device is not None:
            self._device_pictures = _PagePictures(self._device)
        self._sender = Sender(connection, encoder)
        self._scenes = _PageScenes(self._sender)
        self.interface = _PageInterface(self)
        self._targets: _PageTargets | None = None
        """None while the page is hidden."""
        if self._visible:
            self._make_targets(self._size)

    def _make_targets(self, size: tuple[int, int]) -> _PageTargets:
        """Make targets of this size in place of those before.

        Raises:
            GraphicsError: there are none of this size; those before stay.
        """
        width, height = size
        try:
            targets = self._new_targets(size)
        except _GRAPHICS_ERRORS as e:
            raise GraphicsError(
                f"no picture of {width} x {height} can be drawn for the browser at "
                f"{self._connection.peer}: {e}"
            ) from e
        self._release_targets()
        self._targets = targets
        self._size = size
        return targets

    def _new_targets(self, size: tuple[int, int]) -> _PageTargets:
        """Return targets that CUDA can read, if they can be made for this page."""
        try:
            return _PageTargets(self.ctx, size, shared=self._shared)
        except IpcError as e:
            log.warning("pictures for browsers are read and encoded on the CPU: %s", e)
            self._shared = False
            return _PageTargets(self.ctx, size, shared=False)

    def _release_targets(self) -> None:
        if self._targets is not None:
            self._targets.release()
            self._targets = None

    @property
    def targets(self) -> _PageTargets:
        """The targets to draw into; made anew for a picture to keep of a hidden page."""
        return self._targets or self._make_targets(self._size)

    @property
    def state(self) -> ScreenState:
        closed = self._closed or self._connection.closed
        visible = self._visible and not closed
        ready = visible and self._sender.ready
        latency_ms = self._sender.latency_ms
        return ScreenState(
            self._size, self._scale, visible, ready, closed, latency_ms, self._drawing
        )

    @property
    def takes_pictures(self) -> bool:
        """True if pictures of panes are taken now."""
        return self.state.visible and self._sender.takes_pictures

    @property
    def has_target(self) -> bool:
        """True while there is something to draw into: the page is open and visible."""
        return self._targets is not None

    @property
    def is_encoding(self) -> bool:
        """True while a picture is encoded, also the last one of a page that has gone."""
        return self._sender.is_encoding

    @property
    def framebuffer(self) -> moderngl.Framebuffer:
        if self._device_pictures is not None:
            self._device_pictures.next = None
        return self.targets.pictures.framebuffer

    @property
    def device_pictures(self) -> _PagePictures | None:
        if not self._shared:
            return None
        return self._device_pictures

    @property
    def scenes(self) -> _PageScenes | None:
        if self._drawing is None or not self._drawing.is_on:
            return None
        return self._scenes

    @property
    def has_events(self) -> bool:
        return self._connection.inbox.has_items

    def poll(self, timeout: float) -> list[Event]:
        if self._closed:
            return []
        events: list[Event] = []
        for message in self._connection.inbox.take(timeout):
            if isinstance(message, m.Visible):
                self._set_visible(message.on)
                event = None
                if message.on:
                    event = Expose()
            elif isinstance(message, m.Draws):
                self._take_draws(message)
                event = Expose()
            elif isinstance(message, m.Lost):
                self._sender.clear()
                event = Expose()
            else:
                event = self._complete(message)
            if event is not None:
                events.append(event)
        if not self._visible:
            # A target may have been made for a picture to keep.
            self._release_targets()
        elif self._has_missed_picture and self.takes_pictures:
            self._has_missed_picture = False
            events.append(Expose())
        return events

    def _take_draws(self, message: m.Draws) -> None:
        """Take over whether the page draws scenes by itself."""
        is_possible = message.max_gaussians > 0
        is_on = message.on and is_possible
        reason = printable(message.reason)
        self._drawing = SceneDrawing(is_on, is_possible, reason)
        if is_on:
            self._sender.scenes.begin(message.max_gaussians)
        else:
            self._sender.scenes.stop()

    def _set_visible(self, visible: bool) -> None:
        """Take over that the page was shown or hidden."""
        self._visible = visible
        self._sender.scenes.pause(not visible)
        self._has_missed_picture = False
        if visible:
            self._resize(self._size)
        else:
            self._sender.clear()
            self._release_targets()

    def _complete(self, message: Event) -> Event | None:
        """Return an event of the page as the viewer handles it; None for none."""
        event = m.event_of(message, self._clicks, self._scale)
        if event is None:
            return None
        if event.at > 0:
            self._newest_event_ms = event.at
        if isinstance(event, Resize):
            self._scale = event.scale
            self.desktop.is_full = event.full
            self._resize(_drawn_size(event.width, event.height))
            return Resize(*self._size, self._scale)
        return event

    def _resize(self, size: tuple[int, int]) -> None:
        """Draw in another size; end the connection where that is not possible."""
        if not self._visible:
            self._size = size
        elif size != self._size or self._targets is None:
            try:
                self._make_targets(size)
            except GraphicsError as e:
                log.warning("%s", e)
                self._connection.close("no picture of this size can be drawn")

    def wake(self) -> None:
        self._connection.inbox.wake()
        # The loop sleeps elsewhere: it polls this screen only in passing.
        self._connection.wake()

    def present(self, caption: Caption) -> None:
        """Send what was drawn as one picture, with nothing over it.

        While the screen takes none, an Expose follows once it does.
        """
        self._send_caption(caption)
        pane = Pane(0, Rect(0, 0, *self._size))
        self.present_pictures([pane], answers=True)

    def present_interface(
        self, caption: Caption, panes: Sequence[Pane], *, answers: bool
    ) -> None:
        """Send what changed in the interface."""
        self._send_caption(caption)
        if not self.state.ready or self._targets is None:
            return
        event_ms = self._take_event_ms() if answers else 0.0
        with self._ending("no interface can be read"):
            copy = copied(self._targets.interface, event_ms, self._device)
            self._sender.put_interface(copy, self._size, panes)

    @property
    def sent_pictures(self) -> int:
        return self._sender.sent_number

    def present_pictures(
        self, panes: Sequence[Pane], *, answers: bool, is_next_begun: bool = False
    ) -> int:
        """Send the pictures of panes as one; return their number.

        While they are not taken, an Expose follows once they are.
        """
        drawn = self._take_device_picture()
        if not self.takes_pictures or self._targets is None:
            self._has_missed_picture = self._visible
            return self._sender.put_number
        self._has_missed_picture = False
        handed = self._sender.scenes.handed_panes
        rects = [pane.rect for pane in panes if pane.number not in handed]
        area = bounding_rect(rects or [pane.rect for pane in panes], self._size)
        if drawn is not None:
            area = drawn.rect
        if self._gpu_work is not None and self._shared:
            size = area.width, area.height
            encoded_size = scaled_size(size, self._sender.level.scale)
            self._gpu_work.governor.charge(("encode", *encoded_size), "cuda")
        event_ms = 0.0
        if answers:
            event_ms = self._take_shown_event_ms(is_next_begun)
        with self._ending("no picture can be read"):
            if drawn is not None:
                copy = uncopied(drawn.pixels, event_ms)
            else:
                copy = copied(self._targets.pictures, event_ms, self._device, area)
            self._sender.put(copy, self._size, panes, area)
        return self._sender.put_number

    def _take_device_picture(self) -> _DevicePicture | None:
        """Return what was put last; None where the framebuffer has been drawn into."""
        pictures = self._device_pictures
        if pictures is None:
            return None
        drawn = pictures.next
        pictures.next = None
        return drawn

    def _take_event_ms(self) -> float:
        """Return the newest event since the last call, by the page's clock."""
        event_ms = self._newest_event_ms
        self._newest_event_ms = 0.0
        return event_ms

    def _take_shown_event_ms(self, is_next_begun: bool) -> float:
        """Return the newest event that pictures show, by the page's clock."""
        newest_ms = self._take_event_ms()
        begun_ms = self._begun_event_ms
        if is_next_begun:
            self._begun_event_ms = newest_ms
            return begun_ms
        self._begun_event_ms = 0.0
        return max(newest_ms, begun_ms)

    def _send_caption(self, caption: Caption) -> None:
        """Send a caption if it is another one."""
        if caption != self._caption:
            self._caption = caption
            self._connection.send(caption)

    @contextmanager
    def _ending(self, reason: str) -> Iterator[None]:
        """End the connection where OpenGL fails, and say so."""
        try:
            yield
        except _GRAPHICS_ERRORS as e:
            peer = self._connection.peer
            log.warning("the browser at %s gets no picture: %s", peer, e)
            self._connection.close(reason)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._connection.close()
        self._sender.close()
        self._release_targets()
        self.wake()


def bounding_rect(rects: Sequence[Rect], size: tuple[int, int]) -> Rect:
    """Return the part of a screen that rectangles lie in; at least a pixel."""
    width, height = size
    left = min(max(min(r.x for r in rects), 0), width - 1)
    top = min(max(min(r.y for r in rects), 0), height - 1)
    right = min(max(r.x + r.width for r in rects), width)
    bottom = min(max(r.y + r.height for r in rects), height)
    return Rect(left, top, max(right - left, 1), max(bottom - top, 1))


def _drawn_size(width: int, height: int) -> tuple[int, int]:
    """Return the size of what is drawn for a page of this size.

    The messages bound width and height.
    """
    return width, min(height, _MAX_PIXELS // width)
