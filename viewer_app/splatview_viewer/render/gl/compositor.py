"""What the two ways of compositing in OpenGL have in common: their protocol, shader passes, stages, sorting."""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import moderngl
import numpy as np

from splatview_viewer.core.errors import RendererError, telling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_viewer.render.base import Paint, RenderOptions

SHADERS = Path(__file__).parent / "shaders"


class Compositor(Protocol):
    """Turns Gaussians, projected in drawing order by shaders/project.frag, into a picture."""

    projection: Passes
    """The projection pass by `DEFINES`, with the outputs that this compositor reads."""

    def reserve(self, columns: int, rows: int, paint: Paint) -> moderngl.Framebuffer:
        """Where the projections go: one texel per Gaussian, `columns` (a power of two) of them in a row."""
        ...

    def begin(self, size: tuple[int, int], options: RenderOptions) -> moderngl.Framebuffer:
        """Make room for a picture of `size` pixels. Returns what to bind; call before projecting."""
        ...

    thinned: str
    """As `Renderer.thinned`."""
    most_pixels: int
    """How many pixels may be filled without counting them exactly; 0 where that is of no interest."""

    def draw(self, visible: int, near: float, pixels: float) -> tuple[moderngl.Texture, moderngl.Texture | None]:
        """Composite the first `visible` projections. Returns colour (RGBA, premultiplied, row 0 at the top) and,
        if asked for, accumulated depth in the first channel. `near`: the camera's. `pixels`: how many are filled at
        most, if each Gaussian were as large as it could be; asked for where `most_pixels` is not 0."""
        ...

    def release(self) -> None: ...


class Pass:
    """A program without vertex data: its shaders make everything from gl_VertexID and textures."""

    def __init__(self, ctx: moderngl.Context, vertex: str, fragment: str, *defines: str):
        """`defines` are set for the preprocessor of both shaders."""
        try:
            self._program = ctx.program(_source(vertex, defines), _source(fragment, defines))
            self.vao = ctx.vertex_array(self._program, [])
        except (moderngl.Error, OSError) as e:
            raise ShaderError(f"gl: this driver refuses {fragment} ({telling(str(e))}); update the graphics "
                              "driver") from e

    def read(self, unit: int = 0, /, **textures: moderngl.Texture) -> None:
        """Bind textures to the samplers of their names, on units from `unit` on."""
        for i, (name, texture) in enumerate(textures.items(), unit):
            texture.use(i)
            self._program[name] = i

    def read_used(self, unit: int = 0, /, **textures: moderngl.Texture) -> None:
        """As `read`, those that are left with these defines."""
        self.read(unit, **{name: texture for name, texture in textures.items() if name in self._program})

    def set(self, **uniforms: object) -> None:
        for name, value in uniforms.items():
            self._program[name] = value

    def set_used(self, **uniforms: object) -> None:
        """Those that are left with these defines."""
        self.set(**{name: value for name, value in uniforms.items() if name in self._program})

    def fill(self) -> None:
        """Run the fragment shader for every pixel of what is bound; for passes with fullscreen.vert."""
        self.vao.render(4, vertices=3)  # GL_TRIANGLES

    def release(self) -> None:
        self.vao.release()
        self._program.release()


class ShaderError(RendererError):
    """A driver does not take a shader."""


def _source(file: str, defines: tuple[str, ...]) -> str:
    version, _, body = (SHADERS / file).read_text(encoding="utf-8").partition("\n")
    return "\n".join([version, *(f"#define {name}" for name in defines), "#line 2", body])


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
            self._made[defines] = Pass(self._ctx, *self._shaders, *self._always, *defines)
        return self._made[defines]

    def release(self) -> None:
        for made in self._made.values():
            made.release()
        self._made.clear()


DEFINES: dict[Paint, tuple[str, ...]] = {
    "color": (), "normals": ("NORMALS",), "ellipsoids": ("BODIES",), "rings": ("RINGS",), "points": ("POINTS",),
    "overdraw": ("OVERDRAW",),
}
"""How the shaders know what to draw."""
BODIES: dict[str, tuple[int, str]] = {"body0": (4, "f4"), "body1": (4, "f4"), "body2": (4, "f4")}
"""Textures of the numbers that bodies are drawn from: formats as for `Layers`."""


class Stages:
    """How long each named stage took."""

    def __init__(self, ctx: moderngl.Context, profile: bool):
        self._ctx = ctx
        self.profile = profile
        """Wait for the GPU after each stage, so that its work is counted where it belongs."""
        self.milliseconds: dict[str, float] = {}

    def reset(self, *names: str) -> None:
        for name in names:
            self.milliseconds.pop(name, None)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Adds to what is there under `name`."""
        begin = time.perf_counter()
        yield
        if self.profile:
            self._ctx.finish()
        self.milliseconds[name] = self.milliseconds.get(name, 0.0) + (time.perf_counter() - begin) * 1e3


def stable_order(keys: np.ndarray, below: int = 1 << 32) -> np.ndarray:
    """The indices that sort `keys` (uint32 (N,), all less than `below`), equal ones in their present order.

    32 bits are sorted by two stable passes over 16 each, which numpy does by counting: half the time of its
    comparison sort.
    """
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    if below > 1 << 16:
        order = order[np.argsort((keys >> 16).astype(np.uint16)[order], kind="stable")]
    return order


def keep_freed_memory() -> None:
    """Let arrays of some megabytes, freed and allocated anew every frame, reuse the same memory.

    glibc gives blocks above a threshold back to the system, and then each new array costs page faults, which take
    longer than the arithmetic. Once such a block was freed the threshold is its size, at most 32 MB (mallopt(3),
    M_MMAP_THRESHOLD). Without effect on other systems.
    """
    np.empty(31 << 20, np.uint8)
