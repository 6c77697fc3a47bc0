"""Framebuffers of screens without a window, and copies of what was drawn, for other threads."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.shared_texture import SharedTexture
from splatview_ipc.gl.texture_tensor import TextureTensor

if TYPE_CHECKING:
    import moderngl
    import torch

    Pixels = np.ndarray | torch.Tensor


class Target:
    """A framebuffer of one size, black at first. Lives in the thread of its context, which it does not own."""

    def __init__(self, ctx: moderngl.Context, size: tuple[int, int], *, shared: bool = False) -> None:
        """`shared`: CUDA reads the texture as well, by `self.shared`. Raises SharingError or moderngl's Error when it
        cannot be made."""
        self._ctx = ctx
        self.shared: SharedTexture | TextureTensor | None = None
        with ExitStack() as held:
            if shared:
                with suppress(SharingError):  # nothing waits but the GPU
                    self.shared = SharedTexture(ctx, size)
                    held.callback(self.shared.close)
            if isinstance(self.shared, SharedTexture):
                texture = self.shared.texture
            else:
                texture = ctx.texture(size, 4)
                held.callback(texture.release)
                if shared:
                    self.shared = TextureTensor(texture, "register")
                    held.callback(self.shared.close)
            self.framebuffer = ctx.framebuffer([texture])
            held.callback(self.framebuffer.release)
            self._held = held.pop_all()
        self.framebuffer.use()  # moderngl binds what was in use again after a clear: that must not be an old one
        self.framebuffer.clear(0.0, 0.0, 0.0, 1.0)

    @property
    def size(self) -> tuple[int, int]:
        width, height = self.framebuffer.size
        return width, height

    def tensor(self) -> torch.Tensor:
        """Return what has been drawn, for the next work of the current CUDA stream: (H, W, 4) uint8, lowest row first.
        The next call writes into the same tensor."""
        assert self.shared is not None, "made without `shared`"
        return self.shared.read() if isinstance(self.shared, SharedTexture) else self.shared.update()

    def release(self) -> None:
        """Idempotent."""
        if self._ctx.fbo is self.framebuffer:
            self._ctx.detect_framebuffer(0).use()
        self._held.close()


@dataclass(eq=False)
class Copy:
    """One picture for other threads."""

    pixels: Pixels
    """(H, W, 4) uint8, the lowest row first."""
    at: float
    """The newest event that the picture reflects, by the page's clock; 0: none."""
    arrived: torch.cuda.Event | None = None
    """Passed by the GPU once the pixels are there; None: they are."""

    @property
    def size(self) -> tuple[int, int]:
        return self.pixels.shape[1], self.pixels.shape[0]


def copied(target: Target, at: float, device: int | None) -> Copy:
    """Copy what has been drawn, in the thread of the context.

    Copies on a GPU stay there, and nothing waits; others wait for the drawing. `device`: CUDA's ordinal of the GPU that
    OpenGL draws on, for targets that are shared with it.
    """
    if target.shared is None:
        width, height = target.size
        pixels = np.empty((height, width, 4), np.uint8)
        target.framebuffer.read_into(pixels, components=4, alignment=1)
        return Copy(pixels, at)
    import torch

    with torch.cuda.device(device):
        tensor, arrived = target.tensor().clone(), torch.cuda.Event(blocking=True)  # a thread that waits sleeps
        arrived.record()
    return Copy(tensor, at, arrived)
