"""A picture of a renderer in a texture of one's own, which the renderer's next picture leaves alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import moderngl

from splatview_viewer.render.gl.textures import texture_source

if TYPE_CHECKING:
    from splatview_ipc.gl.base import PixelSource
    from splatview_ipc.gl.sources import TextureSource

_FORMATS = {"float16": "f2", "float32": "f4"}


class PictureCopy:
    """One picture at a time, bit by bit as it was."""

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._framebuffer: moderngl.Framebuffer | None = None
        self._source: TextureSource | None = None

    def take(self, source: PixelSource, array: moderngl.VertexArray) -> TextureSource:
        """The same picture, valid until the next `take`. `source`: four channels of float16 or float32; `array`: what
        draws its values (compose.glsl with COPY). Leaves the bound framebuffer and the enable flags as they were."""
        before = self._source
        if self._framebuffer is None or before is None or (before.size, before.dtype) != (source.size, source.dtype):
            self.close()
            texture = self._ctx.texture(source.size, source.channels, dtype=_FORMATS[source.dtype], alignment=1)
            texture.filter = moderngl.NEAREST, moderngl.NEAREST
            self._framebuffer = self._ctx.framebuffer([texture])
            self._source = before = texture_source(texture)
        with self._ctx.scope(self._framebuffer, moderngl.NOTHING):
            source.bind(array.program, 0)
            array.render(moderngl.TRIANGLES, vertices=3)
        return before

    def close(self) -> None:
        """Give back everything. Idempotent."""
        if self._framebuffer is not None and self._source is not None:
            self._framebuffer.release()
            self._source.texture.release()
        self._framebuffer = self._source = None
