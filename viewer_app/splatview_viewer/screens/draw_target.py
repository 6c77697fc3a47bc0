"""Framebuffers without a window, and copies of what was drawn for other threads."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.glapi import GL
from splatview_ipc.gl.shared_texture import SharedTexture
from splatview_ipc.gl.texture_tensor import TextureTensor
from splatview_viewer.core.screen import Rect

if TYPE_CHECKING:
    import moderngl
    import torch

    Pixels = np.ndarray | torch.Tensor


class DrawTarget:
    """A framebuffer of one size, black at first.

    Lives in the thread of its context, which it does not own.
    """

    def __init__(
        self, ctx: moderngl.Context, size: tuple[int, int], *, shared: bool = False
    ) -> None:
        """Make the texture. Raises SharingError, or moderngl's Error.

        Args:
            shared: CUDA reads the texture as well, by `self.shared`.
        """
        self._ctx = ctx
        self.size = size
        """Width and height in pixels."""
        self.shared: SharedTexture | TextureTensor | None = None
        with ExitStack() as stack:
            texture = self._make_texture(size, shared, stack)
            self.framebuffer = ctx.framebuffer([texture])
            stack.callback(self.framebuffer.release)
            self._resources = stack.pop_all()
        # Moderngl binds what was in use again after a clear: that must not be an old
        # one.
        self.framebuffer.use()
        self.framebuffer.clear(0.0, 0.0, 0.0, 1.0)

    def _make_texture(
        self, size: tuple[int, int], shared: bool, stack: ExitStack
    ) -> moderngl.Texture:
        """Make the texture, and what CUDA reads it by; `stack` releases both."""
        if shared:
            # Reading it in this way has only the GPU wait.
            with suppress(SharingError):
                shared_texture = SharedTexture(self._ctx, size)
                stack.callback(shared_texture.close)
                self.shared = shared_texture
                return shared_texture.texture
        texture = self._ctx.texture(size, 4)
        stack.callback(texture.release)
        if shared:
            self.shared = TextureTensor(texture, "register")
            stack.callback(self.shared.close)
        return texture

    def tensor(self) -> torch.Tensor:
        """Return what has been drawn, for the next work of the current CUDA stream.

        (H, W, 4) uint8, lowest row first. The next call writes into the same tensor.
        """
        assert self.shared is not None, "made without `shared`"
        if isinstance(self.shared, SharedTexture):
            return self.shared.read()
        return self.shared.update()

    def release(self) -> None:
        """Release the framebuffer and its texture. Idempotent."""
        if self._ctx.fbo is self.framebuffer:
            self._ctx.detect_framebuffer(0).use()
        self._resources.close()


@dataclass(eq=False)
class Copy:
    """One picture for other threads."""

    pixels: Pixels
    """uint8: (H, W, 4) as OpenGL has it, or (H, W, 3)."""
    at: float
    """The newest event that the picture reflects, by the page's clock; 0: none."""
    arrived: torch.cuda.Event | None = None
    """Passed by the GPU once the pixels are there; None: they are."""
    is_top_first: bool = False
    """The first row is the top one; otherwise it is the lowest, as OpenGL has it."""

    @property
    def size(self) -> tuple[int, int]:
        height, width = self.pixels.shape[:2]
        return width, height


def copied(
    target: DrawTarget, at: float, device: int | None, area: Rect | None = None
) -> Copy:
    """Copy what has been drawn, in the thread of the context.

    Copies on a GPU stay there, and nothing waits; others wait for the drawing.

    Args:
        target: what was drawn into.
        at: as in `Copy`.
        device: CUDA's ordinal of the GPU that OpenGL draws on, for targets that are
            shared with it.
        area: the part to copy; None: all.
    """
    width, height = target.size
    area = area or Rect(0, 0, width, height)
    if target.shared is None:
        # Other threads run meanwhile, unlike within `read_into`.
        GL.current().glFinish()
        pixels = np.empty((area.height, area.width, 4), np.uint8)
        target.framebuffer.read_into(
            pixels, area.viewport(height), components=4, alignment=1
        )
        return Copy(pixels, at)
    import torch

    with torch.cuda.device(device):
        _, bottom, _, _ = area.viewport(height)
        rows = slice(bottom, bottom + area.height)
        columns = slice(area.x, area.x + area.width)
        tensor = target.tensor()[rows, columns].clone(
            memory_format=torch.contiguous_format
        )
        return Copy(tensor, at, _arrival())


def uncopied(pixels: torch.Tensor, at: float) -> Copy:
    """Hand a picture to other threads that is never written again.

    Args:
        pixels: uint8 (H, W, 3), top row first, for what torch's current stream does
            next on its GPU.
        at: as in `Copy`.
    """
    import torch

    with torch.cuda.device(pixels.device):
        return Copy(pixels, at, _arrival(), is_top_first=True)


def _arrival() -> torch.cuda.Event:
    """Return an event after all that the current stream was given."""
    import torch

    # A thread that waits for a blocking event sleeps.
    arrived = torch.cuda.Event(blocking=True)
    arrived.record()
    return arrived
