"""The passes that draw an image: a pixel shader, or a compute shader and a copy.

Data-centre GPUs run pixel shaders on a few of their processors, compute shaders on all.
The copy is one fetch a pixel, an image may need 27 and more.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Protocol

import moderngl

from splatview_ipc.gl.base import fragment_head
from splatview_ipc.gl.sources import set_uniform
from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.core.view import VERTEX
from splatview_viewer.scene import color_maps

if TYPE_CHECKING:
    from splatview_ipc.gl.base import ShaderProgram

_EXTENSIONS = ("GL_ARB_compute_shader", "GL_ARB_shader_image_load_store")
"""What a compute shader needs in a context of OpenGL 3.3."""
_GROUP = 16
"""Pixels along a side of a group of the compute shader, as image.glsl has it."""
_BARRIERS = (
    moderngl.Context.SHADER_IMAGE_ACCESS_BARRIER_BIT
    | moderngl.Context.TEXTURE_FETCH_BARRIER_BIT
)
_COPY = """#version 330
uniform sampler2D u_picture;
uniform ivec4 u_viewport;
out vec4 f_color;
void main() { f_color = texelFetch(u_picture, ivec2(gl_FragCoord.xy) - u_viewport.xy, 0); }
"""

Viewport = tuple[int, int, int, int]
"""Left, bottom, width and height in a framebuffer, in pixels."""


class ImagePass(Protocol):
    """A compiled shader that draws images of one form."""

    @property
    def program(self) -> ShaderProgram:
        """Return the program, whose uniforms are set before `draw`."""
        ...

    def draw(self, viewport: Viewport) -> None:
        """Draw into the framebuffer in use, whose viewport this is."""
        ...

    def release(self) -> None:
        """Release the program."""
        ...


class PixelPass:
    """Draws an image by a pixel shader."""

    def __init__(self, ctx: moderngl.Context, defines: tuple[str, ...]) -> None:
        """Make the program with defines."""
        self.program: moderngl.Program = ctx.program(
            vertex_shader=VERTEX, fragment_shader=_shader(defines)
        )
        self._array = ctx.vertex_array(self.program, [])

    def draw(self, viewport: Viewport) -> None:
        self._array.render(moderngl.TRIANGLES, vertices=3)

    def release(self) -> None:
        self.program.release()
        self._array.release()


class ComputeCanvas:
    """The texture that compute shaders draw into, and its copy to a framebuffer."""

    def __init__(self, ctx: moderngl.Context) -> None:
        """Compile the copy; the texture is made when its size is known."""
        self._ctx = ctx
        self._texture: moderngl.Texture | None = None
        self._program = ctx.program(vertex_shader=VERTEX, fragment_shader=_COPY)
        self._array = ctx.vertex_array(self._program, [])

    def bind(self, width: int, height: int) -> None:
        """Make the texture the first image, at least as large as this."""
        texture = self._texture
        if texture is None or texture.width < width or texture.height < height:
            if texture is not None:
                # Views of several sizes share it.
                width = max(width, texture.width)
                height = max(height, texture.height)
                texture.release()
            texture = self._ctx.texture((width, height), 4)
            self._texture = texture
        texture.bind_to_image(0, read=False, write=True)

    def copy(self, viewport: Viewport) -> None:
        """Draw the texture's lower left part into the framebuffer in use."""
        assert self._texture is not None
        self._texture.use(0)
        self._program["u_picture"] = 0
        self._program["u_viewport"] = viewport
        self._array.render(moderngl.TRIANGLES, vertices=3)

    def release(self) -> None:
        """Release everything on the GPU. Idempotent."""
        if self._texture is not None:
            self._texture.release()
            self._texture = None
        self._program.release()
        self._array.release()


class ComputePass:
    """Draws an image by a compute shader into a canvas, and copies it from there."""

    def __init__(
        self, ctx: moderngl.Context, canvas: ComputeCanvas, defines: tuple[str, ...]
    ) -> None:
        """Make the program with defines, COMPUTE among them."""
        self._ctx = ctx
        self._canvas = canvas
        lines = "".join(f"#extension {name} : require\n" for name in _EXTENSIONS)
        version, body = _shader(defines).split("\n", 1)
        self.program: moderngl.ComputeShader = ctx.compute_shader(
            f"{version}\n{lines}{body}"
        )

    def draw(self, viewport: Viewport) -> None:
        _, _, width, height = viewport
        set_uniform(self.program, "u_viewport", viewport)
        self._canvas.bind(width, height)
        # The copy before has to be done, and the source may have changed.
        self._ctx.memory_barrier(_BARRIERS)
        self.program.run(ceil_div(width, _GROUP), ceil_div(height, _GROUP))
        self._ctx.memory_barrier(_BARRIERS)
        self._canvas.copy(viewport)

    def release(self) -> None:
        self.program.release()


class ImagePasses:
    """The passes that draw an image for all its views, each compiled once."""

    def __init__(self, ctx: moderngl.Context) -> None:
        """Choose between pixel shaders and compute shaders; compile nothing yet."""
        self.canvas: ComputeCanvas | None = None
        """Compute shaders draw into it; None: pixel shaders draw."""
        if gains_by_compute(ctx):
            self.canvas = ComputeCanvas(ctx)
        self._ctx = ctx
        self._passes: dict[tuple[str, ...], ImagePass] = {}

    def drawing(self, defines: tuple[str, ...]) -> ImagePass:
        """Return the pass that draws a source with these defines."""
        if self.canvas is None:
            return self.by_pixels(defines)
        key = (*defines, "COMPUTE")
        if key not in self._passes:
            self._passes[key] = ComputePass(self._ctx, self.canvas, key)
        return self._passes[key]

    def by_pixels(self, defines: tuple[str, ...]) -> ImagePass:
        """Return the pass by a pixel shader for a source with these defines."""
        if defines not in self._passes:
            self._passes[defines] = PixelPass(self._ctx, defines)
        return self._passes[defines]

    def release(self) -> None:
        """Release everything on the GPU. Idempotent."""
        for image_pass in self._passes.values():
            image_pass.release()
        self._passes.clear()
        if self.canvas is not None:
            self.canvas.release()
            self.canvas = None


def gains_by_compute(ctx: moderngl.Context) -> bool:
    """Return True if compute shaders may draw faster than pixel shaders.

    Other makers' GPUs run both on all processors, and save the copy.
    """
    is_nvidia = ctx.info["GL_VENDOR"].startswith("NVIDIA")
    return is_nvidia and ctx.extensions.issuperset(_EXTENSIONS)


def _shader(defines: tuple[str, ...]) -> str:
    """Return the source of the shader with defines."""
    shader = files("splatview_viewer.kinds.image").joinpath("image.glsl")
    return fragment_head(defines) + color_maps.SHADER + shader.read_text()
