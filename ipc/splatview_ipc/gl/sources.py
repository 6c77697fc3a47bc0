"""Pixel sources in textures, and what all sources set in a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import moderngl

from splatview_ipc.gl.base import DTYPES, PixelSource
from splatview_ipc.gl.glapi import GL

if TYPE_CHECKING:
    from splatview_ipc.gl.base import Form


def set_uniform(program: moderngl.Program, name: str, value: Any) -> None:
    """Set a uniform unless the compiler found it unused."""
    if name in program:
        program[name] = value


def set_units(program: moderngl.Program, count: int, first: int) -> None:
    """Have u_source_0 to u_source_(count - 1) read the texture units from `first` on.

    By hand: moderngl passes over the values of samplers of buffer textures.
    """
    gl = GL.current()
    gl.glUseProgram(program.glo)  # not put back: a program that was released meanwhile cannot be used again
    for k in range(count):
        member = program.get(f"u_source_{k}", None)
        if isinstance(member, moderngl.Uniform):  # unless the compiler found it unused
            gl.glUniform1i(member.location, first + k)


class TextureSource(PixelSource):
    """A 2-D texture whose row 0 is the picture's top row. It does not own the texture.

    With `planar` each channel's rows follow those of the channel before, in a texture of one component.
    """

    def __init__(self, texture: moderngl.Texture, form: Form, *, planar: bool = False, stride: int = 1) -> None:
        super().__init__(form, "SOURCE_TEXTURE", *(("PLANAR",) if planar else ()), stride=stride)
        self.texture = texture

    def bind(self, program: moderngl.Program, unit: int = 0) -> None:
        self.texture.use(unit)
        set_units(program, 1, unit)
        set_uniform(program, "u_source_size", self.size)


def picture_texture(ctx: moderngl.Context, form: Form, *, planar: bool) -> moderngl.Texture:
    """A texture for pictures of a form; `planar` as for `TextureSource`."""
    size = (form.width, form.height * form.channels) if planar else (form.width, form.height)
    texture = ctx.texture(size, 1 if planar else form.channels, alignment=1, dtype=DTYPES[form.dtype].texture)
    texture.filter = moderngl.NEAREST, moderngl.NEAREST  # there are no mipmaps, and integers cannot be filtered
    texture.repeat_x = texture.repeat_y = False
    return texture
