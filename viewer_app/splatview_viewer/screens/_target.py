"""A texture to draw into, for screens that have no window."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.shared_texture import SharedTexture
from splatview_ipc.gl.texture_tensor import TextureTensor

if TYPE_CHECKING:
    import moderngl
    import torch


class Target:
    """A framebuffer of one size, black at first. Lives in the thread of its context, which it does not own."""

    def __init__(self, ctx: moderngl.Context, size: tuple[int, int], *, shared: bool = False) -> None:
        """`shared`: CUDA reads the texture as well, by `self.shared`. Raises SharingError or moderngl's Error when it
        cannot be made."""
        self._ctx = ctx
        self.shared: SharedTexture | TextureTensor | None = None
        if shared:
            with suppress(SharingError):  # nothing waits but the GPU
                self.shared = SharedTexture(ctx, size)
        self._texture = self.shared.texture if isinstance(self.shared, SharedTexture) else ctx.texture(size, 4)
        try:
            if shared and self.shared is None:
                self.shared = TextureTensor(self._texture, "register")
            self.framebuffer = ctx.framebuffer([self._texture])
        except BaseException:
            self._release_texture()
            raise
        self.framebuffer.use()  # moderngl binds what was in use again after a clear: that must not be an old one
        self.framebuffer.clear(0.0, 0.0, 0.0, 1.0)
        self._released = False

    @property
    def size(self) -> tuple[int, int]:
        width, height = self.framebuffer.size
        return width, height

    def pixels(self) -> np.ndarray:
        """(H, W, 4) uint8, top row first; waits for what is drawn."""
        width, height = self.size
        data = self.framebuffer.read(components=4, alignment=1)
        return np.frombuffer(data, np.uint8).reshape(height, width, 4)[::-1].copy()

    def tensor(self) -> torch.Tensor:
        """What has been drawn, for what the current CUDA stream does next: (H, W, 4) uint8, the lowest row first. The
        next call writes into the same tensor."""
        assert self.shared is not None, "made without `shared`"
        return self.shared.read() if isinstance(self.shared, SharedTexture) else self.shared.update()

    def _release_texture(self) -> None:
        if self.shared is not None:
            self.shared.close()
        if not isinstance(self.shared, SharedTexture):  # which owns its texture
            self._texture.release()

    def release(self) -> None:
        """Idempotent."""
        if self._released:
            return
        self._released = True
        if self._ctx.fbo is self.framebuffer:
            self._ctx.detect_framebuffer(0).use()
        self.framebuffer.release()
        self._release_texture()
