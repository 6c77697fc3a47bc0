"""Pixel sources in textures, uniforms of all sources, and reading a source back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import moderngl
import numpy as np

from splatview_ipc.gl.base import PixelSource, fragment_head
from splatview_ipc.gl.glapi import GL

if TYPE_CHECKING:
    from splatview_ipc.gl.base import Form, ShaderProgram

VERTEX = """#version 330
void main() {  // one triangle over everything
    gl_Position = vec4(gl_VertexID == 1 ? 3.0 : -1.0, gl_VertexID == 2 ? 3.0 : -1.0, 0.0, 1.0);
}
"""
_BODY = """
uniform ivec2 u_first;
out uvec4 f_bits;
void main() { f_bits = floatBitsToUint(stored(u_first + ivec2(gl_FragCoord.xy))); }
"""


def set_uniform(program: ShaderProgram, name: str, value: Any) -> None:
    """Set a uniform unless the compiler found it unused."""
    if name in program:
        program[name] = value


def set_units(program: ShaderProgram, count: int, first: int) -> None:
    """Have u_source_0 to u_source_(count - 1) read the texture units from `first` on.

    By hand: moderngl passes over the values of samplers of buffer textures.
    """
    gl = GL.current()
    # The program before is not put back: if it was released meanwhile, it cannot be
    # used again.
    gl.glUseProgram(program.glo)
    for k in range(count):
        member = program.get(f"u_source_{k}", None)
        if isinstance(member, moderngl.Uniform):  # unless the compiler found it unused
            gl.glUniform1i(member.location, first + k)


class TextureSource(PixelSource):
    """A 2-D texture of another owner, whose row 0 is the picture's top row."""

    def __init__(
        self,
        texture: moderngl.Texture,
        form: Form,
        *,
        planar: bool = False,
        stride: int = 1,
    ) -> None:
        """Read pixels from a texture.

        Args:
            texture: the texture.
            form: shape and dtype of the picture.
            planar: True if each channel's rows follow those of the channel before, in a
                texture of one component.
            stride: as `PixelSource.stride`.
        """
        defines = ["SOURCE_TEXTURE"]
        if planar:
            defines.append("PLANAR")
        super().__init__(form, *defines, stride=stride)
        self.texture = texture

    def bind(self, program: ShaderProgram, unit: int = 0) -> None:
        """Bind the texture and set the uniforms; see `PixelSource.bind`."""
        self.texture.use(unit)
        set_units(program, 1, unit)
        set_uniform(program, "u_source_size", self.size)


def read_source(
    ctx: moderngl.Context,
    source: PixelSource,
    part: tuple[int, int, int, int] | None = None,
) -> np.ndarray:
    """Return the pixels of a source, bit for bit as `stored` returns them.

    Waits for the GPU.

    Args:
        ctx: the source's context.
        source: the pixels.
        part: (column, row, width, height), by default everything.

    Returns:
        (H, W, 4) float32, top row first.
    """
    x, y, width, height = part or (0, 0, *source.size)
    array = _reader(ctx, source.defines)
    target = ctx.texture((width, height), 4, dtype="u4", alignment=1)
    framebuffer = ctx.framebuffer([target])
    try:
        array.program["u_first"] = x, y
        with ctx.scope(framebuffer, moderngl.NOTHING):
            source.bind(array.program)
            array.render(moderngl.TRIANGLES, vertices=3)
            pixels = np.frombuffer(target.read(alignment=1), np.float32)
            return pixels.reshape(height, width, 4)
    finally:
        framebuffer.release()
        target.release()


def _reader(ctx: moderngl.Context, defines: tuple[str, ...]) -> moderngl.VertexArray:
    """Return a program that writes the bits of a source, made once for a context."""
    # The programs hold the context: kept anywhere else, they would keep it.
    arrays = vars(ctx).setdefault("_splatview_programs", {})
    if defines not in arrays:
        program = ctx.program(
            vertex_shader=VERTEX, fragment_shader=fragment_head(defines) + _BODY
        )
        arrays[defines] = ctx.vertex_array(program, [])
    return arrays[defines]
