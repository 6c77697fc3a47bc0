"""The pixel sources: a texture, or memory read through buffer textures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import moderngl

from splatview_ipc.gl.base import DTYPE_DEFINES
from splatview_ipc.gl.glapi import GL

if TYPE_CHECKING:
    from splatview_ipc.gl.base import Form

TEXTURE_DTYPES = {"uint8": "f1", "uint16": "nu2", "float16": "f2", "bfloat16": "u2", "float32": "f4"}
"""moderngl's names of the texture formats that keep each dtype's bits."""


def set_uniform(program: moderngl.Program, name: str, value: Any) -> None:
    """Set a uniform unless the compiler found it unused."""
    if name in program:
        program[name] = value


def set_units(program: moderngl.Program, count: int, first: int) -> None:
    """Tell u_source_0 to u_source_(count - 1) to read the texture units from `first` on.

    By hand: moderngl passes over the values of samplers of buffer textures.
    """
    gl = GL.current()
    gl.glUseProgram(program.glo)  # and not what was in use again: a program that was released meanwhile cannot be
    for k in range(count):
        member = program.get(f"u_source_{k}", None)
        if isinstance(member, moderngl.Uniform):  # unless the compiler found it unused
            gl.glUniform1i(member.location, first + k)


class TextureSource:
    """A 2-D texture whose row 0 is the picture's top row. It does not own the texture.

    With `planar` each channel's rows lie below those of the channel before, in a texture of one component.
    """

    def __init__(self, texture: moderngl.Texture, form: Form, *, planar: bool = False, stride: int = 1) -> None:
        self.texture = texture
        self.size = form.width, form.height
        self.channels, self.dtype, self.layout = form.channels, form.dtype, form.layout
        self.stride = stride
        self.defines: tuple[str, ...] = ("SOURCE_TEXTURE", DTYPE_DEFINES[form.dtype], f"CHANNELS {form.channels}",
                                         *(("PLANAR",) if planar else ()))

    def bind(self, program: moderngl.Program, unit: int = 0) -> None:
        self.texture.use(unit)
        set_units(program, 1, unit)
        set_uniform(program, "u_source_size", self.size)


def picture_texture(ctx: moderngl.Context, form: Form, *, planar: bool) -> moderngl.Texture:
    """A texture that holds pictures of a form; with `planar` as `TextureSource` says."""
    size = (form.width, form.height * form.channels) if planar else (form.width, form.height)
    components = 1 if planar else form.channels
    texture = ctx.texture(size, components, alignment=1, dtype=TEXTURE_DTYPES[form.dtype])
    texture.filter = moderngl.NEAREST, moderngl.NEAREST  # there are no mipmaps, and integers cannot be filtered
    texture.repeat_x = texture.repeat_y = False
    return texture
