"""Parts of both OpenGL compositors: shader passes, the textures that they read and fill, sorting."""

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

SHADERS = Path(__file__).parent / "shaders"
TILE = 16
"""Side in pixels of the tiles that `Target` keeps track of; shaders/tiles.frag and splat.vert know it as `TILE`."""
BODIES: dict[str, tuple[int, str]] = {
    "body0": (4, "f4"),
    "body1": (4, "f4"),
    "body2": (4, "f4"),
}
"""Textures of the numbers that bodies are drawn from: formats as for `Layers`."""

_T = TypeVar("_T")


class Pass:
    """A program without vertex data: its shaders make everything from gl_VertexID and textures."""

    def __init__(
        self, ctx: moderngl.Context, vertex: str, fragment: str, *defines: str
    ):
        """`defines` are set for the preprocessor of both shaders."""
        try:
            self._program = ctx.program(
                _source(vertex, defines), _source(fragment, defines)
            )
            self.vao = ctx.vertex_array(self._program, [])
        except (moderngl.Error, OSError) as e:
            raise RendererError(
                f"gl: this driver refuses {fragment} ({telling(str(e))}); update the graphics "
                "driver"
            ) from e

    def read(self, unit: int = 0, /, **textures: moderngl.Texture) -> None:
        """Bind textures to the samplers of their names, those that are left with these defines, on units from `unit`
        on.
        """
        for i, name in enumerate(
            (name for name in textures if name in self._program), unit
        ):
            textures[name].use(i)
            self._program[name] = i

    def set(self, **uniforms: object) -> None:
        """Set those that are left with these defines."""
        for name, value in uniforms.items():
            if name in self._program:
                self._program[name] = value

    def fill(self) -> None:
        """Run the fragment shader for every pixel of what is bound; for passes with fullscreen.vert."""
        self.vao.render(4, vertices=3)  # GL_TRIANGLES

    def release(self) -> None:
        self.vao.release()
        self._program.release()


def _source(file: str, defines: tuple[str, ...]) -> str:
    version, _, body = (SHADERS / file).read_text(encoding="utf-8").partition("\n")
    return "\n".join(
        [version, *(f"#define {name}" for name in defines), "#line 2", body]
    )


class Passes:
    """One pass for each set of defines, made when it is first needed."""

    def __init__(self, ctx: moderngl.Context, vertex: str, fragment: str, *always: str):
        """`always`: defined in each."""
        self._ctx = ctx
        self._shaders = vertex, fragment
        self._always = always
        self._made: dict[tuple[str, ...], Pass] = {}

    def __call__(self, *defines: str) -> Pass:
        if defines not in self._made:
            self._made[defines] = Pass(
                self._ctx, *self._shaders, *self._always, *defines
            )
        return self._made[defines]

    def release(self) -> None:
        for made in self._made.values():
            made.release()
        self._made.clear()


class BlendTarget:
    """Float textures to blend into, and which of their pixels are finished."""

    def __init__(self, ctx: moderngl.Context, size: tuple[int, int], depth: bool):
        self.size = size
        with ExitStack() as held:

            def keep(made: _T) -> _T:
                held.callback(made.release)  # type: ignore[attr-defined]
                return made

            self.color = keep(_texture(ctx, size, 4, "f4"))
            # Four channels though one is used: blending front to back weighs each texture by its own alpha.
            self.depth = keep(_texture(ctx, size, 4, "f4")) if depth else None
            self.tiles = keep(
                _texture(ctx, (-(-size[0] // TILE), -(-size[1] // TILE)), 1, "f1")
            )
            """1 where a tile of the picture is finished."""
            marks = keep(ctx.depth_renderbuffer(size))
            self.framebuffer = keep(
                ctx.framebuffer(list(filter(None, (self.color, self.depth))), marks)
            )
            """For blending: does not write the depth buffer, in which 0 marks finished pixels."""
            self.marking = keep(ctx.framebuffer([], marks))
            """For marking. The colour texture is not in it, so that it can be read meanwhile."""
            self.tiling = keep(ctx.framebuffer([self.tiles]))
            self.counting = keep(ctx.framebuffer([self.color]))
            """For adding up, whatever is finished."""
            self.release = held.pop_all().close

    def clear(self) -> None:
        """Transparent black, nothing finished."""
        self.framebuffer.depth_mask = True
        self.framebuffer.clear(depth=1.0)
        self.framebuffer.depth_mask = False


class LayerTextures:
    """Textures of one size by name, and a framebuffer that writes them all, in their order."""

    def __init__(
        self, ctx: moderngl.Context, size: tuple[int, int], **formats: tuple[int, str]
    ):
        """`formats`: components and moderngl's dtype."""
        self.size = size
        self.textures: dict[str, moderngl.Texture] = {}
        with ExitStack() as held:
            for name, format_ in formats.items():
                self.textures[name] = _texture(ctx, size, *format_)
                held.callback(self.textures[name].release)
            self.framebuffer = ctx.framebuffer(list(self.textures.values()))
            held.callback(self.framebuffer.release)
            self.release = held.pop_all().close


class Compositor:
    """Holds the projections that a compositor reads: one texel per Gaussian, in textures of these `formats`."""

    formats: ClassVar[dict[str, tuple[int, str]]]
    _ctx: moderngl.Context
    _projected: LayerTextures | None = None
    thinned = ""
    """As `Renderer.thinned`."""

    def reserve(
        self, columns: int, rows: int, paint: PaintFacts
    ) -> moderngl.Framebuffer:
        """Target of the projections: `columns` (a power of two) of them in a row."""
        formats = self.formats | (BODIES if paint.composition == "nearest" else {})
        # should there be no room
        held = self._projected
        self._projected = None
        if held is not None and (held.size, list(held.textures)) != (
            (columns, rows),
            list(formats),
        ):
            held.release()
            held = None
        self._projected = held or LayerTextures(self._ctx, (columns, rows), **formats)
        return self._projected.framebuffer


class FieldTextures:
    """Arrays as textures by name, written in place as long as their size stays."""

    def __init__(self, ctx: moderngl.Context):
        self._ctx = ctx
        self._textures: dict[str, moderngl.Texture] = {}

    def __getitem__(self, name: str) -> moderngl.Texture:
        return self._textures[name]

    def write(
        self, name: str, array: np.ndarray, width: int, capacity: int = 1
    ) -> None:
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
            texture = _texture(
                self._ctx, size, components, "i4" if array.dtype == np.int32 else "f4"
            )
            self._textures[name] = texture
        array = np.ascontiguousarray(array)
        full = n // width
        if full:
            texture.write(
                array[: full * width], viewport=(0, 0, width, full), alignment=4
            )
        if n > full * width:
            texture.write(
                array[full * width :],
                viewport=(0, full, n - full * width, 1),
                alignment=4,
            )

    def release(self) -> None:
        for texture in self._textures.values():
            texture.release()
        self._textures.clear()


def texels(texture: moderngl.Texture) -> np.ndarray:
    """Content of a float texture, (height, width, components) float32, row 0 first."""
    data = np.empty((texture.height, texture.width, texture.components), np.float32)
    texture.read_into(data, alignment=1)
    return data


def texture_source(texture: moderngl.Texture) -> TextureSource:
    """An RGBA float texture with row 0 at the top, for shaders that read any source."""
    dtype = "float32" if texture.dtype == "f4" else "float16"
    return TextureSource(texture, Form(texture.width, texture.height, 4, dtype, "HWC"))


def _texture(
    ctx: moderngl.Context, size: tuple[int, int], components: int, dtype: str
) -> moderngl.Texture:
    texture = ctx.texture(size, components, dtype=dtype, alignment=1)
    if ctx.error == "GL_OUT_OF_MEMORY":
        texture.release()
        raise RendererError(
            f"gl: the GPU's memory is full: there is no room for {size[0]} x {size[1]} numbers more. "
            "A smaller picture or scene needs less"
        )
    texture.filter = (
        moderngl.NEAREST,
        moderngl.NEAREST,
    )  # there are no mipmaps: it would be incomplete otherwise
    return texture


def stable_order(keys: np.ndarray) -> np.ndarray:
    """The indices that sort `keys` (int32 (N,)), equal ones in their present order."""
    import torch

    return (
        torch.from_numpy(keys).argsort(stable=True).numpy()
    )  # by their bits: several times as fast as numpy
