"""Parts of both OpenGL compositors: shader passes, textures, sorting."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

import moderngl
import numpy as np

from splatview_ipc.gl.base import Form
from splatview_ipc.gl.sources import TextureSource
from splatview_viewer.core.errors import RendererError, telling

if TYPE_CHECKING:
    from splatview_viewer.render.base import PaintFacts

    Size = tuple[int, int]
    """Width and height in pixels."""
    Formats = dict[str, tuple[int, str]]
    """Components and moderngl's dtype of textures by name."""

SHADERS = Path(__file__).parent / "shaders"
TILE = 16
"""Side in pixels of the tiles that `BlendTarget` keeps track of; shaders/tiles.frag and
splat.vert know it as `TILE`."""
BODIES: Formats = {"body0": (4, "f4"), "body1": (4, "f4"), "body2": (4, "f4")}
"""Textures of the numbers that bodies are drawn from."""

_T = TypeVar("_T")


class Pass:
    """A program without vertex data: its shaders make everything from gl_VertexID and textures."""

    def __init__(
        self, ctx: moderngl.Context, vertex: str, fragment: str, *defines: str
    ) -> None:
        """Compile two shaders, with `defines` set for the preprocessor of both.

        Raises:
            RendererError: the driver refuses them.
        """
        try:
            self._program = ctx.program(
                _read_shader(vertex, defines), _read_shader(fragment, defines)
            )
            self.vao = ctx.vertex_array(self._program, [])
        except (moderngl.Error, OSError) as e:
            raise RendererError(
                f"gl: this driver refuses {fragment} ({telling(str(e))}); update the "
                "graphics driver"
            ) from e

    def read(self, unit: int = 0, /, **textures: moderngl.Texture) -> None:
        """Bind textures to the samplers of their names, on units from `unit` on.

        Only those that are left with these defines.
        """
        for name, texture in textures.items():
            if name not in self._program:
                continue
            texture.use(unit)
            self._program[name] = unit
            unit += 1

    def set(self, **uniforms: object) -> None:
        """Set the uniforms that are left with these defines."""
        for name, value in uniforms.items():
            if name in self._program:
                self._program[name] = value

    def fill(self) -> None:
        """Run the fragment shader for every pixel of the bound framebuffer.

        For passes with fullscreen.vert.
        """
        self.vao.render(moderngl.TRIANGLES, vertices=3)

    def release(self) -> None:
        """Release the program."""
        self.vao.release()
        self._program.release()


def _read_shader(file: str, defines: tuple[str, ...]) -> str:
    """Return a shader's text with defines behind its first line, the version."""
    version, _, body = (SHADERS / file).read_text(encoding="utf-8").partition("\n")
    lines = [f"#define {name}" for name in defines]
    return "\n".join([version, *lines, "#line 2", body])


class Passes:
    """One pass for each set of defines, made when it is first needed."""

    def __init__(
        self, ctx: moderngl.Context, vertex: str, fragment: str, *common_defines: str
    ) -> None:
        """Name the shaders; `common_defines` are defined in each pass."""
        self._ctx = ctx
        self._vertex = vertex
        self._fragment = fragment
        self._common_defines = common_defines
        self._passes: dict[tuple[str, ...], Pass] = {}

    def __call__(self, *defines: str) -> Pass:
        """Return the pass with these defines."""
        if defines not in self._passes:
            all_defines = (*self._common_defines, *defines)
            self._passes[defines] = Pass(
                self._ctx, self._vertex, self._fragment, *all_defines
            )
        return self._passes[defines]

    def release(self) -> None:
        """Release all passes."""
        for compiled in self._passes.values():
            compiled.release()
        self._passes.clear()


class BlendTarget:
    """Float textures to blend into, and which of their pixels are finished."""

    def __init__(self, ctx: moderngl.Context, size: Size, depth: bool) -> None:
        self.size = size
        with ExitStack() as resources:

            def keep(resource: _T) -> _T:
                resources.callback(resource.release)  # type: ignore[attr-defined]
                return resource

            self.color = keep(_make_texture(ctx, size, 4, "f4"))
            self.depth: moderngl.Texture | None = None
            attachments = [self.color]
            if depth:
                # Four channels though one is used: blending front to back weighs each
                # texture by its own alpha.
                self.depth = keep(_make_texture(ctx, size, 4, "f4"))
                attachments.append(self.depth)
            tiles_size = -(-size[0] // TILE), -(-size[1] // TILE)
            self.tiles = keep(_make_texture(ctx, tiles_size, 1, "f1"))
            """1 where a tile of the picture is finished."""
            marks = keep(ctx.depth_renderbuffer(size))
            self.framebuffer = keep(ctx.framebuffer(attachments, marks))
            """For blending: does not write the depth buffer, in which 0 marks finished
            pixels."""
            self.marking = keep(ctx.framebuffer([], marks))
            """For marking. The colour texture is not in it, so that it can be read
            meanwhile."""
            self.tiling = keep(ctx.framebuffer([self.tiles]))
            self.counting = keep(ctx.framebuffer([self.color]))
            """For adding up, whatever is finished."""
            self.release = resources.pop_all().close

    def clear(self) -> None:
        """Make everything transparent black, with nothing finished."""
        self.framebuffer.depth_mask = True
        self.framebuffer.clear(depth=1.0)
        self.framebuffer.depth_mask = False


class LayerTextures:
    """Textures of one size by name, and a framebuffer that writes them all, in their order."""

    def __init__(
        self, ctx: moderngl.Context, size: Size, **formats: tuple[int, str]
    ) -> None:
        """Make textures of these formats: components and moderngl's dtype."""
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


class Compositor:
    """Holds the projections that a compositor reads, one texel per Gaussian."""

    formats: ClassVar[Formats]
    """Formats of the projections' textures."""
    _ctx: moderngl.Context
    _projected: LayerTextures | None = None
    thinned = ""
    """As `Renderer.thinned`."""

    def reserve(
        self, columns: int, rows: int, paint: PaintFacts
    ) -> moderngl.Framebuffer:
        """Return the target of the projections: `columns` (a power of two) in a row."""
        formats = self.formats
        if paint.composition == "nearest":
            formats = formats | BODIES
        layers = self._projected
        # It stays None should there be no memory.
        self._projected = None
        if layers is not None:
            has_size = layers.size == (columns, rows)
            if not has_size or list(layers.textures) != list(formats):
                layers.release()
                layers = None
        if layers is None:
            layers = LayerTextures(self._ctx, (columns, rows), **formats)
        self._projected = layers
        return layers.framebuffer


class FieldTextures:
    """Arrays as textures by name, written in place as long as their size stays."""

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._textures: dict[str, moderngl.Texture] = {}

    def __getitem__(self, name: str) -> moderngl.Texture:
        return self._textures[name]

    def write(
        self, name: str, array: np.ndarray, width: int, capacity: int = 1
    ) -> None:
        """Write an array into rows of texels, from the first on.

        Args:
            name: of the texture.
            array: (n, components), float32 or int32.
            width: texels of a row.
            capacity: the texture has room for so many texels or n, whichever is more.
        """
        n, components = array.shape
        size = width, max(-(-max(n, capacity) // width), 1)
        dtype = "i4" if array.dtype == np.int32 else "f4"
        texture = self._reserve(name, size, components, dtype)
        array = np.ascontiguousarray(array)
        rows, columns = divmod(n, width)
        if rows:
            full_rows = array[: rows * width]
            texture.write(full_rows, viewport=(0, 0, width, rows), alignment=4)
        if columns:
            last_row = array[rows * width :]
            texture.write(last_row, viewport=(0, rows, columns, 1), alignment=4)

    def _reserve(
        self, name: str, size: Size, components: int, dtype: str
    ) -> moderngl.Texture:
        """Return the texture of this name, made anew if its form has changed."""
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


def texels(texture: moderngl.Texture) -> np.ndarray:
    """Return the content of a float texture, (height, width, components) float32.

    Row 0 first.
    """
    data = np.empty((texture.height, texture.width, texture.components), np.float32)
    texture.read_into(data, alignment=1)
    return data


def texture_source(texture: moderngl.Texture) -> TextureSource:
    """Wrap an RGBA float texture with row 0 at the top, for shaders that read any source."""
    dtype = "float32" if texture.dtype == "f4" else "float16"
    return TextureSource(texture, Form(texture.width, texture.height, 4, dtype, "HWC"))


def _make_texture(
    ctx: moderngl.Context, size: Size, components: int, dtype: str
) -> moderngl.Texture:
    texture = ctx.texture(size, components, dtype=dtype, alignment=1)
    if ctx.error == "GL_OUT_OF_MEMORY":
        texture.release()
        raise RendererError(
            f"gl: the GPU's memory is full: there is no room for {size[0]} x {size[1]} "
            "numbers more. A smaller picture or scene needs less"
        )
    # There are no mipmaps: with another filter it would be incomplete.
    texture.filter = moderngl.NEAREST, moderngl.NEAREST
    return texture


def stable_order(keys: np.ndarray) -> np.ndarray:
    """Return the indices that sort keys (N,) int32, equal ones in their present order."""
    import torch

    # torch sorts by the keys' bits, several times as fast as NumPy.
    return torch.from_numpy(keys).argsort(stable=True).numpy()
