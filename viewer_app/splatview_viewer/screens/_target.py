"""A texture to draw into, for screens that have no window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import moderngl

    from splatview_ipc.gl.shared_texture import SharedTexture


class Target:
    """A framebuffer of one size, black at first. Lives in the thread of its context, which it does not own."""

    def __init__(self, ctx: moderngl.Context, size: tuple[int, int], *, shared: bool = False) -> None:
        """`shared`: the texture is one that CUDA reads as well, `self.shared`. Raises SharingError or moderngl's Error
        when it cannot be made."""
        self._ctx = ctx
        self.shared: SharedTexture | None = None
        if shared:
            from splatview_ipc.gl.shared_texture import SharedTexture

            self.shared = SharedTexture(ctx, size)
        self._texture = self.shared.texture if self.shared is not None else ctx.texture(size, 4)
        try:
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

    def _release_texture(self) -> None:
        if self.shared is not None:
            self.shared.close()
        else:
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
