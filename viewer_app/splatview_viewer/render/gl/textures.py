"""The textures of the OpenGL renderer: what it draws into, and Gaussians' fields laid out as texels."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import moderngl
import numpy as np

from splatview_ipc.gl.base import Form
from splatview_ipc.gl.sources import TextureSource
from splatview_viewer.core.errors import RendererError

_T = TypeVar("_T")

TILE = 16
"""Side in pixels of the tiles that `Target` keeps track of; shaders/tiles.frag and splat.vert know it as `TILE`."""


class Target:
    """Float textures to blend into, and which of their pixels are finished."""

    def __init__(self, ctx: moderngl.Context, size: tuple[int, int], depth: bool, precision: Literal["f4", "f2"]):
        self.size = size
        self.kind = depth, precision
        self._held: list[Any] = []
        try:
            self.color = self._keep(_texture(ctx, size, 4, precision))
            # Four channels though one is used: blending front to back weighs each texture by its own alpha.
            self.depth = self._keep(_texture(ctx, size, 4, "f4")) if depth else None
            self.tiles = self._keep(_texture(ctx, (-(-size[0] // TILE), -(-size[1] // TILE)), 1, "f1"))
            """1 where a tile of the picture is finished."""
            self._marks = self._keep(ctx.depth_renderbuffer(size))
            textures = [self.color] if self.depth is None else [self.color, self.depth]
            self.framebuffer = self._keep(ctx.framebuffer(textures, self._marks))
            """For blending: does not write the depth buffer, in which 0 marks finished pixels."""
            self.marking = self._keep(ctx.framebuffer([], self._marks))
            """For marking. The colour texture is not in it, so that it can be read meanwhile."""
            self.tiling = self._keep(ctx.framebuffer([self.tiles]))
            self.counting = self._keep(ctx.framebuffer([self.color]))
            """For adding up, whatever is finished."""
        except BaseException:
            self.release()
            raise

    def _keep(self, made: _T) -> _T:
        self._held.append(made)
        return made

    def clear(self) -> None:
        """Transparent black, nothing finished."""
        self.framebuffer.depth_mask = True
        self.framebuffer.clear(depth=1.0)
        self.framebuffer.depth_mask = False

    def release(self) -> None:
        while self._held:
            self._held.pop().release()


class Layers:
    """Textures of one size by name, and a framebuffer that writes them all, in their order."""

    def __init__(self, ctx: moderngl.Context, size: tuple[int, int], **formats: tuple[int, str]):
        """`formats`: components and moderngl's dtype."""
        self.size = size
        self.textures: dict[str, moderngl.Texture] = {}
        try:
            for name, format_ in formats.items():
                self.textures[name] = _texture(ctx, size, *format_)
            self.framebuffer = ctx.framebuffer(list(self.textures.values()))
        except BaseException:
            for texture in self.textures.values():
                texture.release()
            raise

    def release(self) -> None:
        self.framebuffer.release()
        for texture in self.textures.values():
            texture.release()


class Fields:
    """Arrays as textures by name, written in place as long as their size stays."""

    def __init__(self, ctx: moderngl.Context):
        self._ctx = ctx
        self._textures: dict[str, moderngl.Texture] = {}

    def __getitem__(self, name: str) -> moderngl.Texture:
        return self._textures[name]

    def write(self, name: str, array: np.ndarray, width: int, capacity: int = 1) -> None:
        """Put `array` (n, components), float32 or int32, into rows of `width` texels, from the first on.

        The texture has room for `capacity` texels or n, whichever is more.
        """
        n, components = array.shape
        size = width, max(-(-max(n, capacity) // width), 1)
        texture = self._textures.get(name)
        if texture is None or texture.size != size or texture.components != components:
            if texture is not None:
                del self._textures[name]
                texture.release()
            texture = _texture(self._ctx, size, components, "i4" if array.dtype == np.int32 else "f4")
            self._textures[name] = texture
        array = np.ascontiguousarray(array)
        full = n // width
        if full:
            texture.write(array[: full * width], viewport=(0, 0, width, full), alignment=4)
        if n > full * width:
            texture.write(array[full * width:], viewport=(0, full, n - full * width, 1), alignment=4)

    def release(self) -> None:
        for texture in self._textures.values():
            texture.release()
        self._textures.clear()


def texels(texture: moderngl.Texture) -> np.ndarray:
    """What a float texture holds, (height, width, components) float32, row 0 first."""
    data = np.empty((texture.height, texture.width, texture.components), np.dtype(texture.dtype))
    texture.read_into(data, alignment=1)
    return data.astype(np.float32, copy=False)


def texture_source(texture: moderngl.Texture) -> TextureSource:
    """An RGBA float texture with row 0 at the top, for shaders that read any source."""
    dtype = "float32" if texture.dtype == "f4" else "float16"
    return TextureSource(texture, Form(texture.width, texture.height, 4, dtype, "HWC"))


def _texture(ctx: moderngl.Context, size: tuple[int, int], components: int, dtype: str) -> moderngl.Texture:
    texture = ctx.texture(size, components, dtype=dtype, alignment=1)
    if ctx.error == "GL_OUT_OF_MEMORY":
        texture.release()
        raise RendererError(f"gl: the GPU's memory is full: there is no room for {size[0]} x {size[1]} numbers more. "
                            "A smaller picture or scene needs less")
    texture.filter = moderngl.NEAREST, moderngl.NEAREST  # there are no mipmaps: it would be incomplete otherwise
    return texture
