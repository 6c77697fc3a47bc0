"""Shader passes and textures, which the compositors in quads.py and tiles.py share.

A pass reads its input from textures ("gathers") and needs no vertex data. The first pass
projects the Gaussians: one texel of a few textures for each. The passes after it
composite these projections into a picture.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import moderngl
import numpy as np

from splatview_ipc.gl.base import Form
from splatview_ipc.gl.sources import TextureSource
from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.core.errors import RendererError, telling
from splatview_viewer.render.gl.shader_text import shader_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from splatview_viewer.gpu.steps import Steps
    from splatview_viewer.render.base import RenderOptions
    from splatview_viewer.render.paints import PaintFacts

    Size = tuple[int, int]
    """Width and height in pixels."""
    Formats = dict[str, tuple[int, str]]
    """By the name of a texture, its number of components and moderngl's dtype."""

TILE = 16
"""Side, in pixels, of the tiles that `BlendTarget` marks as finished. The same number is
the constant `TILE` of shaders/tiles.frag and splat.vert."""
BODIES: Formats = {"body0": (4, "f4"), "body1": (4, "f4"), "body2": (4, "f4")}
"""Further textures of projections where Gaussians are drawn as solid bodies: from these
their surface and its light are computed (shaders/project.frag)."""


class Pass:
    """A shader program whose vertices come from gl_VertexID and textures alone.

    The preprocessor may remove some of its samplers and uniforms, depending on the
    defines. The methods ignore those that are not there.
    """

    def __init__(
        self,
        ctx: moderngl.Context,
        vertex: str,
        fragment: str,
        *defines: str,
        reading: str = "",
    ) -> None:
        """Compile and link the shaders.

        Args:
            ctx: OpenGL's context.
            vertex: the file of the vertex shader.
            fragment: the file of the fragment shader.
            defines: names that are defined for the preprocessor in both files.
            reading: the file by which the fragment shader reads Gaussians, if it does.

        Raises:
            RendererError: the driver refuses the shaders.
        """
        try:
            self._program = ctx.program(
                shader_text(vertex, *defines),
                shader_text(fragment, *defines, reading=reading),
            )
            self.vao = ctx.vertex_array(self._program, [])
        except (moderngl.Error, OSError) as e:
            raise RendererError(
                f"gl: this driver refuses {fragment} ({telling(str(e))}); update the "
                "graphics driver"
            ) from e

    def bind_textures(
        self, first_unit: int = 0, /, **textures: moderngl.Texture
    ) -> None:
        """Bind textures to the samplers of the same names.

        They take successive texture units, from `first_unit` on.
        """
        unit = first_unit
        for name, texture in textures.items():
            if name not in self._program:
                continue
            texture.use(unit)
            self._program[name] = unit
            unit += 1

    def set_uniforms(self, **uniforms: object) -> None:
        """Set uniforms by name."""
        for name, value in uniforms.items():
            if name in self._program:
                self._program[name] = value

    def draw_fullscreen(self) -> None:
        """Run the fragment shader for every pixel of the bound framebuffer.

        The vertex shader must be fullscreen.vert, a triangle over the whole target.
        """
        self.vao.render(moderngl.TRIANGLES, vertices=3)

    def release(self) -> None:
        """Release the program."""
        self.vao.release()
        self._program.release()


class PassVariants:
    """Variants of one pass by their defines, each compiled when it is first called for."""

    def __init__(
        self,
        ctx: moderngl.Context,
        vertex: str,
        fragment: str,
        *common_defines: str,
        reading: str = "",
    ) -> None:
        """Remember the shaders, and what all variants have in common; see `Pass`."""
        self._ctx = ctx
        self._vertex = vertex
        self._fragment = fragment
        self._common_defines = common_defines
        self._reading = reading
        self._passes: dict[tuple[str, ...], Pass] = {}

    def __call__(self, *defines: str) -> Pass:
        """Return the variant with these defines beside the common ones."""
        if defines not in self._passes:
            all_defines = (*self._common_defines, *defines)
            self._passes[defines] = Pass(
                self._ctx,
                self._vertex,
                self._fragment,
                *all_defines,
                reading=self._reading,
            )
        return self._passes[defines]

    def release(self) -> None:
        """Release all passes."""
        for compiled in self._passes.values():
            compiled.release()
        self._passes.clear()


class BlendTarget:
    """Float textures to blend a picture into, and marks of the pixels that are finished.

    A pixel is finished when it is opaque. Its mark is the depth 0, which fails the depth
    test of all that is drawn later.
    """

    size: Size
    color: moderngl.Texture
    depth: moderngl.Texture | None
    """Accumulated depth, in the first channel; None: not asked for."""
    tiles: moderngl.Texture
    """One texel for each tile: 1 where all of its pixels are finished."""
    framebuffer: moderngl.Framebuffer
    """For blending into colour and depth. It reads the marks, and does not write them."""
    mark_framebuffer: moderngl.Framebuffer
    """For writing marks. It does not hold the colours, so that the shader can read them."""
    tile_framebuffer: moderngl.Framebuffer
    """For writing `tiles`."""
    sum_framebuffer: moderngl.Framebuffer
    """For adding up into colour, also where pixels are finished."""
    release: Callable[[], None]
    """Frees all textures and framebuffers."""

    def __init__(self, ctx: moderngl.Context, size: Size, depth: bool) -> None:
        """Make the textures; after an error none of them stays."""
        self.size = size
        with ExitStack() as resources:

            def texture(size: Size, components: int, dtype: str) -> moderngl.Texture:
                new_texture = _make_texture(ctx, size, components, dtype)
                resources.callback(new_texture.release)
                return new_texture

            def framebuffer(
                textures: list[moderngl.Texture],
                marks: moderngl.Renderbuffer | None = None,
            ) -> moderngl.Framebuffer:
                new_framebuffer = ctx.framebuffer(textures, marks)
                resources.callback(new_framebuffer.release)
                return new_framebuffer

            self.color = texture(size, 4, "f4")
            self.depth = None
            attachments = [self.color]
            if depth:
                # Four channels though one is used: blending front to back weighs each
                # texture by its own alpha.
                self.depth = texture(size, 4, "f4")
                attachments.append(self.depth)
            width, height = size
            tile_counts = (ceil_div(width, TILE), ceil_div(height, TILE))
            self.tiles = texture(tile_counts, 1, "f1")
            marks = ctx.depth_renderbuffer(size)
            resources.callback(marks.release)
            self.framebuffer = framebuffer(attachments, marks)
            self.mark_framebuffer = framebuffer([], marks)
            self.tile_framebuffer = framebuffer([self.tiles])
            self.sum_framebuffer = framebuffer([self.color])
            self.release = resources.pop_all().close

    def clear(self) -> None:
        """Make all pixels transparent black, and none finished."""
        self.framebuffer.depth_mask = True
        self.framebuffer.clear(depth=1.0)
        self.framebuffer.depth_mask = False


class RenderTarget:
    """Named textures of one size, and a framebuffer that writes them all at once.

    The outputs of a fragment shader follow the order of the textures.
    """

    def __init__(
        self, ctx: moderngl.Context, size: Size, **formats: tuple[int, str]
    ) -> None:
        """Make a texture of each format; see `Formats`."""
        self.size = size
        self.textures: dict[str, moderngl.Texture] = {}
        with ExitStack() as resources:
            for name, (components, dtype) in formats.items():
                texture = _make_texture(ctx, size, components, dtype)
                self.textures[name] = texture
                resources.callback(texture.release)
            self.framebuffer = ctx.framebuffer(list(self.textures.values()))
            resources.callback(self.framebuffer.release)
            self.release = resources.pop_all().close


class Channels(NamedTuple):
    """A composited picture."""

    color: moderngl.Texture
    """RGBA, premultiplied, row 0 at the top."""
    depth: moderngl.Texture | None
    """Accumulated depth in the first channel; None: not asked for."""


class Parts(NamedTuple):
    """Sizes of the parts that are drawn in one step.

    The defaults are what a software rasteriser draws in a moment.
    """

    gaussians: int = 1 << 15
    """That are projected at once."""
    entries: int = 1 << 16
    """Of tiles' lists that pixels walk along at once."""
    pixels: int = 1 << 17
    """That are brought together at once."""
    texels: int = 1 << 19
    """Of textures that are written at once."""


_MOST = 1 << 40
"""More than there ever is."""
WHOLE = Parts(gaussians=_MOST, entries=_MOST, pixels=_MOST, texels=_MOST)
"""All in one step."""


def row_bands(rows: int, width: int, size: int) -> Iterator[tuple[int, int]]:
    """Divide the rows of a texture into bands of a size.

    Yields the first row and the number of rows of each.

    Args:
        rows: the number of rows.
        width: texels of a row.
        size: texels of a band; it has one row at least.
    """
    step = max(size // width, 1)
    for first in range(0, rows, step):
        yield first, min(step, rows - first)


class Compositor:
    """Base of the compositors: holds the textures of the projected Gaussians."""

    formats: ClassVar[Formats]
    """Formats of these textures, one texel per Gaussian."""
    _ctx: moderngl.Context
    _projected: RenderTarget | None = None
    thinned = ""
    """The reason why the last picture shows fewer Gaussians than there are, or "" (see
    `Renderer.thinned`)."""

    def begin(self, size: Size, options: RenderOptions) -> None:
        """Make room for a picture of `size` pixels, before its projection."""
        raise NotImplementedError

    def steps(self, visible: int, near: float, part_sizes: Parts) -> Steps[Channels]:
        """Return the steps that composite the first `visible` projections.

        Args:
            visible: Gaussians that are drawn.
            near: the camera's.
            part_sizes: sizes of what is drawn in one step.
        """
        raise NotImplementedError

    def reserve(
        self, columns: int, rows: int, paint: PaintFacts
    ) -> moderngl.Framebuffer:
        """Return the framebuffer to project into, of columns x rows Gaussians.

        The textures of the last call are used again where they fit.

        Args:
            columns: Gaussians in a row of the textures, a power of two.
            rows: the number of rows of the textures.
            paint: decides which textures are needed.
        """
        formats = self.formats
        if paint.composition == "nearest":
            formats = formats | BODIES
        target = self._projected
        # So that no released textures stay here if there is no memory for new ones.
        self._projected = None
        if target is not None:
            has_size = target.size == (columns, rows)
            if not has_size or list(target.textures) != list(formats):
                target.release()
                target = None
        if target is None:
            target = RenderTarget(self._ctx, (columns, rows), **formats)
        self._projected = target
        return target.framebuffer


class ArrayTextures:
    """Textures by name that arrays are written into.

    A texture is made again only when its size changes.
    """

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._textures: dict[str, moderngl.Texture] = {}

    def __getitem__(self, name: str) -> moderngl.Texture:
        return self._textures[name]

    def write_steps(
        self,
        name: str,
        array: np.ndarray,
        width: int,
        part_sizes: Parts,
        capacity: int = 1,
    ) -> Steps[None]:
        """Return the steps that write an array into a texture, row by row.

        Args:
            name: the name of the texture.
            array: (N, components), float32 or int32: N texels.
            width: texels of a row.
            part_sizes: sizes of what is written in one step.
            capacity: the minimum of texels that the texture has room for; it has room
                for N anyway.
        """
        count, components = array.shape
        height = max(ceil_div(max(count, capacity), width), 1)
        dtype = "i4" if array.dtype == np.int32 else "f4"
        texture = self._reserve(name, (width, height), components, dtype)
        array = np.ascontiguousarray(array)
        rows, columns = divmod(count, width)
        for first, band_rows in row_bands(rows, width, part_sizes.texels):
            full_rows = array[first * width : (first + band_rows) * width]
            viewport = (0, first, width, band_rows)
            texture.write(full_rows, viewport=viewport, alignment=4)
            yield None
        if columns:
            last_row = array[rows * width :]
            texture.write(last_row, viewport=(0, rows, columns, 1), alignment=4)

    def _reserve(
        self, name: str, size: Size, components: int, dtype: str
    ) -> moderngl.Texture:
        """Return the texture of this name; make a new one if its form has changed."""
        texture = self._textures.get(name)
        if texture is not None:
            if texture.size == size and texture.components == components:
                return texture
            del self._textures[name]
            texture.release()
        texture = _make_texture(self._ctx, size, components, dtype)
        self._textures[name] = texture
        return texture

    def release(self) -> None:
        """Release all textures."""
        for texture in self._textures.values():
            texture.release()
        self._textures.clear()


def read_texels(texture: moderngl.Texture) -> np.ndarray:
    """Read a float texture, (height, width, components) float32, its row 0 first."""
    data = np.empty((texture.height, texture.width, texture.components), np.float32)
    texture.read_into(data, alignment=1)
    return data


def texture_source(texture: moderngl.Texture) -> TextureSource:
    """Wrap an RGBA float texture with row 0 at the top, for shaders of any source."""
    dtype = "float32" if texture.dtype == "f4" else "float16"
    return TextureSource(texture, Form(texture.width, texture.height, 4, dtype, "HWC"))


def _make_texture(
    ctx: moderngl.Context, size: Size, components: int, dtype: str
) -> moderngl.Texture:
    """Make a texture without filtering.

    Raises:
        RendererError: the GPU's memory is full.
    """
    texture = ctx.texture(size, components, dtype=dtype, alignment=1)
    if ctx.error == "GL_OUT_OF_MEMORY":
        texture.release()
        raise RendererError(
            f"gl: the GPU's memory is full: there is no room for {size[0]} x {size[1]} "
            "numbers more. A smaller picture or scene needs less"
        )
    # OpenGL's default filter needs mipmaps, and these textures have none.
    texture.filter = moderngl.NEAREST, moderngl.NEAREST
    return texture


def stable_order(keys: np.ndarray) -> np.ndarray:
    """Return the indices that sort keys (N,) int32; equal keys keep their order."""
    import torch

    # torch sorts by the keys' bits (radix sort), several times as fast as NumPy.
    return torch.from_numpy(keys).argsort(stable=True).numpy()
