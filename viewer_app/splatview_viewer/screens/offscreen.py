"""A screen without a display: an EGL context and a framebuffer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import moderngl
import numpy as np

from splatview_ipc.gl.glapi import GL
from splatview_viewer.core.events import Close, Inbox, Resize
from splatview_viewer.core.screen import ScreenState, read_pixels
from splatview_viewer.formats.pictures import output_path, save_picture
from splatview_viewer.screens.draw_target import DrawTarget
from splatview_viewer.screens.egl import create_context, current_context, let_go

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Caption, Favour, Rect


class LocalDesktop:
    """The user of a screen on this machine: files are where they were written."""

    favours: frozenset[Favour] = frozenset()

    def __init__(self) -> None:
        self._clipboard = ""

    @property
    def is_full(self) -> bool:
        return False

    def ask(self, favour: Favour) -> None:
        """Do nothing: there is no monitor."""

    def leave_full(self) -> None:
        if self.is_full:
            self.ask("fullscreen")

    def copy(self, text: str) -> None:
        self._clipboard = text

    def pasted(self) -> str:
        return self._clipboard

    def keep(self, picture: np.ndarray, name: str) -> Path:
        return save_picture(picture, output_path(name), numbered=True)

    def hand_over(self, path: Path) -> None:
        """Do nothing: the user finds the file where it is."""


class _UnreadPicture(NamedTuple):
    """A picture that CUDA drew, as long as it was not read."""

    pixels: torch.Tensor
    rect: Rect
    cover: Callable[[moderngl.Framebuffer], object] | None
    """Draws what lies over it."""


class OffscreenPictures:
    """Holds the picture that CUDA drew until the framebuffer is asked for."""

    gpu = None

    def __init__(self) -> None:
        self.unread: _UnreadPicture | None = None

    def put(
        self,
        pixels: torch.Tensor,
        rect: Rect,
        cover: Callable[[moderngl.Framebuffer], object] | None = None,
    ) -> None:
        self.unread = _UnreadPicture(pixels, rect, cover)

    def show_in(self, framebuffer: moderngl.Framebuffer) -> None:
        """Write the picture into a framebuffer, if it was not read yet."""
        unread = self.unread
        if unread is None:
            return
        self.unread = None
        rect = unread.rect
        opaque = np.full((rect.height, rect.width, 4), 255, np.uint8)
        opaque[..., :3] = unread.pixels.cpu().numpy()[::-1]
        (texture,) = framebuffer.color_attachments
        assert isinstance(texture, moderngl.Texture)
        texture.write(opaque, rect.viewport(framebuffer.height), alignment=1)
        if unread.cover is not None:
            unread.cover(framebuffer)


class OffscreenScreen:
    """Draws into a texture.

    Events come from `push`, so that a test or a program can act as the user.
    """

    def __init__(
        self,
        width: int = 1280,
        height: int = 720,
        scale: float = 1.0,
        *,
        gpu_uuid: str | None = None,
    ) -> None:
        """`gpu_uuid` as in `create_context`.

        Raises GraphicsError when no EGL context can be made.
        """
        self.ctx = create_context(gpu_uuid)
        self.desktop = LocalDesktop()
        self.interface = None
        self.device_pictures = OffscreenPictures()
        self.scenes = None
        self._egl_context: int | None = current_context()
        """None once it was released."""
        self._scale = scale
        self._closed = False
        self._inbox: Inbox[Event] = Inbox(capacity=1_000_000)
        self._target = DrawTarget(self.ctx, (width, height))

    def resize(
        self,
        width: int,
        height: int,
        scale: float | None = None,
        *,
        shared: bool = False,
    ) -> None:
        """Draw in this many pixels from now on.

        Raises SharingError, moderngl's Error where nothing so large can be made.

        Args:
            shared: CUDA reads them (`tensor`).
        """
        if scale is not None:
            self._scale = scale
        is_shared = self._target.shared is not None
        if (width, height) != self.size or shared != is_shared:
            self.device_pictures.unread = None
            previous = self._target
            self._target = DrawTarget(self.ctx, (width, height), shared=shared)
            previous.release()

    def tensor(self) -> torch.Tensor | None:
        """Return `DrawTarget.tensor`; None where CUDA does not read it."""
        if self._target.shared is None:
            return None
        self.device_pictures.show_in(self._target.framebuffer)
        return self._target.tensor()

    @property
    def size(self) -> tuple[int, int]:
        return self._target.size

    @property
    def state(self) -> ScreenState:
        return ScreenState(
            size=self._target.size,
            scale=self._scale,
            visible=not self._closed,
            ready=not self._closed,
            closed=self._closed,
        )

    @property
    def framebuffer(self) -> moderngl.Framebuffer:
        framebuffer = self._target.framebuffer
        self.device_pictures.show_in(framebuffer)
        return framebuffer

    def push(self, *events: Event) -> None:
        """Add events as if a user had caused them. May be called from any thread."""
        self._inbox.put(*events)

    @property
    def has_events(self) -> bool:
        return self._inbox.has_items

    def poll(self, timeout: float) -> list[Event]:
        events = self._inbox.take(timeout)
        for event in events:
            if isinstance(event, Resize):
                self.resize(event.width, event.height, event.scale)
            elif isinstance(event, Close):
                self._closed = True
        return events

    def wake(self) -> None:
        self._inbox.wake()

    def present(self, caption: Caption | None = None) -> None:
        """Give the drawing to the GPU, and wait for nothing."""
        if self.device_pictures.unread is None:
            GL.current().glFlush()

    def pixels(self) -> np.ndarray:
        """Return `read_pixels` of its framebuffer."""
        return read_pixels(self.framebuffer)

    def close(self) -> None:
        self._closed = True
        if self._egl_context is None:
            return
        self.device_pictures.unread = None
        self._target.release()
        self.ctx.release()
        let_go(self._egl_context)
        self._egl_context = None
