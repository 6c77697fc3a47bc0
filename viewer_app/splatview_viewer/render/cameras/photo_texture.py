"""One photograph on the GPU, drawn over the whole of a framebuffer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import moderngl
import numpy as np

from splatview_viewer.core.view import VERTEX

if TYPE_CHECKING:
    from splatview_viewer.geometry.controls import Rect

_FRAGMENT = """
#version 330
uniform sampler2D u_photo;
uniform vec2 u_corner;   // of the rectangle, in pixels from the lower left
uniform vec2 u_size;
out vec4 f_color;
void main() {
    vec2 at = (gl_FragCoord.xy - u_corner) / u_size;
    if (min(at.x, at.y) < 0.0 || max(at.x, at.y) > 1.0) discard;
    f_color = vec4(texture(u_photo, vec2(at.x, 1.0 - at.y)).rgb, 1.0);
}
"""


class PhotoTexture:
    """Belongs to the thread that holds the context."""

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._photo: np.ndarray | None = None
        self._texture: moderngl.Texture | None = None
        self._array: moderngl.VertexArray | None = None

    def take(self, photo: np.ndarray) -> None:
        """Hold this photograph, (H, W, 3) uint8 that nobody changes. Nothing is done if it is held already."""
        if photo is self._photo:
            return
        size = photo.shape[1], photo.shape[0]
        if self._texture is None or self._texture.size != size:
            self._release()
            self._texture = self._ctx.texture(size, 3, alignment=1)
            self._texture.repeat_x = self._texture.repeat_y = False
        self._texture.write(np.ascontiguousarray(photo).tobytes(), alignment=1)
        self._texture.build_mipmaps()
        self._photo = photo

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect, clip: Rect | None = None) -> None:
        """Draw it into a part of a framebuffer, every pixel of it once: smoothed, but as it is in its own size. `clip`:
        where anything is drawn at all; None: in `rect`."""
        texture = self._texture
        if texture is None:
            return
        if self._array is None:
            self._array = self._ctx.vertex_array(self._ctx.program(vertex_shader=VERTEX, fragment_shader=_FRAGMENT), [])
        exact = texture.size == (rect.width, rect.height)
        texture.filter = ((moderngl.NEAREST, moderngl.NEAREST) if exact else
                          (moderngl.LINEAR_MIPMAP_LINEAR, moderngl.LINEAR))
        viewport = rect.viewport(framebuffer.height)
        program = self._array.program
        program["u_corner"], program["u_size"] = viewport[:2], (rect.width, rect.height)
        texture.use(0)
        program["u_photo"] = 0
        framebuffer.use()
        framebuffer.viewport = (clip or rect).viewport(framebuffer.height)
        self._ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        self._array.render(moderngl.TRIANGLES, vertices=3)

    def _release(self) -> None:
        if self._texture is not None:
            self._texture.release()
        self._texture = self._photo = None

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self._release()
        if self._array is not None:
            self._array.program.release()
            self._array.release()
            self._array = None
