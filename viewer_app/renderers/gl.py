"""The OpenGL renderer: GL 3.3 core, on any driver, Mesa's software rasteriser included.

Three stages per frame: a fragment pass projects every Gaussian once into three float textures, the processor
sorts by camera z meanwhile, and one instanced draw blends rectangles from back to front into a float target.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import moderngl
import numpy as np

from viewer_app.errors import RendererError
from viewer_app.renderers.activation import activate
from viewer_app.renderers.base import COVARIANCE_MAX, EPS_2D, Pixels, RenderOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from viewer_app.cameras import Camera
    from viewer_app.renderers.activation import Activated
    from viewer_app.scene import GaussianScene

SHADERS = Path(__file__).parent / "shaders"
COLUMNS = 4096
"""Gaussians per row of the attribute textures."""


@dataclass
class GlPicture:
    """What `GlRenderer.render` returns. Valid until it draws again or is closed."""

    color: moderngl.Texture
    """RGBA, premultiplied; row 0 is the top row."""
    depth: moderngl.Texture | None
    """R, accumulated depth."""

    def pixels(self) -> Pixels:
        rgba = _read(self.color)
        depth = None if self.depth is None else _read(self.depth)[..., 0]
        return Pixels(np.ascontiguousarray(rgba[..., :3]), np.ascontiguousarray(rgba[..., 3]), depth)

    def texture(self, ctx: moderngl.Context) -> moderngl.Texture:
        """The target itself: no copy. `ctx` must be the context that the renderer was made with."""
        if ctx is not self.color.ctx:
            raise RendererError("gl: the picture belongs to another OpenGL context; use pixels() to carry it over")
        return self.color


class _Target:
    """A framebuffer and the textures it draws into."""

    def __init__(self, ctx: moderngl.Context, size: tuple[int, int], formats: list[tuple[int, str]]):
        """One texture per (components, dtype) of `formats`."""
        self.size = size
        self.formats = formats
        self.textures = [ctx.texture(size, components, dtype=dtype) for components, dtype in formats]
        for texture in self.textures:
            texture.filter = moderngl.NEAREST, moderngl.NEAREST  # no mipmaps: it would be incomplete otherwise
        self.framebuffer = ctx.framebuffer(self.textures)

    def release(self) -> None:
        self.framebuffer.release()
        for texture in self.textures:
            texture.release()


class GlRenderer:
    """Draws Gaussians with OpenGL 3.3 in a context that the caller owns and keeps current.

    Leaves the bound framebuffer and the enable flags as they were; the blend function is moderngl's default
    afterwards. Before the first `load` the picture is empty.
    """

    name: ClassVar[str] = "gl"

    def __init__(self, ctx: moderngl.Context, precision: Literal["f4", "f2"] = "f4", profile: bool = False):
        """`precision` of the target: "f4" agrees with gsplat to about 80 dB, "f2" takes half the memory and
        agrees to about 55 dB. `profile` waits for the GPU after each stage, so that `timings` hold its work.

        Raises RendererError when the context is older than 3.3.
        """
        if ctx.version_code < 330:
            raise RendererError(f"gl: OpenGL {ctx.version_code / 100:.1f} is too old; 3.3 is needed. "
                                "Update the graphics driver")
        self.ctx = ctx
        self.profile = profile
        self._precision = precision
        self._limit = min(ctx.info["GL_MAX_TEXTURE_SIZE"], *ctx.info["GL_MAX_VIEWPORT_DIMS"])
        self._columns = min(COLUMNS, self._limit)
        self._project = ctx.program(_shader("fullscreen.vert"), _shader("project.frag"))
        self._splat = ctx.program(_shader("splat.vert"), _shader("splat.frag"))
        self._project_vao = ctx.vertex_array(self._project, [])
        self._splat_vao: moderngl.VertexArray | None = None
        self._attributes: dict[str, moderngl.Texture] = {}
        self._projected: _Target | None = None
        self._order: moderngl.Buffer | None = None
        self._target: _Target | None = None
        self._count = 0
        self._sh_degree = 0
        self._sh_stored = 0
        self._skipped = 0
        self._means = np.empty((0, 3), np.float32)
        self._origin = np.zeros(3)
        self._drawn: tuple | None = None
        self._picture: GlPicture | None = None
        self._timings: dict[str, float] = {}
        self._closed = False

    @property
    def skipped(self) -> int:
        """How many Gaussians of the loaded scene hold NaN, infinities or a zero quaternion."""
        return self._skipped

    @property
    def timings(self) -> dict[str, float]:
        """Milliseconds: activate, upload (last load); project, sort, draw (last render that drew).

        Unless `profile` is set these are times on the processor; what the GPU does is not waited for.
        """
        return dict(self._timings)

    def load(self, scene: GaussianScene) -> None:
        """Activate and upload a scene. Raises RendererError when it exceeds the texture size limit."""
        self._check_open()
        with self._stage("activate"):
            a = activate(scene)
            # Relative to the middle, taken in float64: a scene far from the origin keeps its detail.
            self._origin = a.means.mean(axis=0, dtype=np.float64) if len(a) else np.zeros(3)
            self._means = (a.means - self._origin).astype(np.float32)
        with self._stage("upload"):
            self._upload(a)
        self._count, self._skipped = len(a), a.skipped
        self._sh_degree, self._sh_stored = a.sh_degree, a.shN.shape[1]
        self._drawn = None

    def render(self, camera: Camera, options: RenderOptions) -> GlPicture:
        """Draw; an unchanged scene, camera and options give back the picture that is there."""
        self._check_open()
        if not (0 < camera.width <= self._limit and 0 < camera.height <= self._limit):
            raise RendererError(f"gl: a picture of {camera.width}x{camera.height} pixels cannot be drawn; "
                                f"sides from 1 to {self._limit} are possible here")
        wanted = (camera.viewmat.tobytes(), camera.K.tobytes(), camera.width, camera.height, camera.model,
                  camera.near, camera.far, options)
        if self._picture is not None and wanted == self._drawn:
            return self._picture
        self._drawn = None
        target = self._make_target(camera.width, camera.height, options.depth)
        with self.ctx.scope(target.framebuffer, moderngl.NOTHING):
            if self._count:
                with self._stage("project"):
                    self._run_projection(camera, options)
                with self._stage("sort"):
                    visible = self._sort(camera)
            else:
                visible = 0
            with self._stage("draw"):
                target.framebuffer.use()
                target.framebuffer.clear()
                if visible:
                    self._draw(camera, visible)
        self._drawn = wanted
        self._picture = GlPicture(target.textures[0], target.textures[1] if options.depth else None)
        return self._picture

    def close(self) -> None:
        """Release every GL object. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._drop_target()
        self._drop_scene()
        for held in (self._project_vao, self._project, self._splat):
            held.release()
        self._means = np.empty((0, 3), np.float32)

    # -- scene ---------------------------------------------------------------------------------------------

    def _upload(self, a: Activated) -> None:
        stored = a.shN.shape[1]
        # A power of two, so that the shader's division is a shift; K-1 texels side by side per Gaussian.
        sh_columns = 1 << ((self._limit // max(stored, 1)).bit_length() - 1)
        capacity = self._limit * min(self._columns, sh_columns)
        if len(a) > capacity:
            raise RendererError(f"gl: {len(a)} Gaussians with SH degree {a.sh_degree} do not fit: this driver's "
                                f"textures go up to {self._limit}x{self._limit}, which holds {capacity}")
        fields = {"means": self._means, "quats": a.quats, "scales": a.scales, "opacities": a.opacities[:, None],
                  "sh0": a.sh0}
        size = self._columns, max(-(-len(a) // self._columns), 1)
        if self._projected is None or self._projected.size != size:
            self._drop_scene()
            self._projected = _Target(self.ctx, size, [(4, "f4")] * 3)
        for name, array in fields.items():
            self._fill(name, array, self._columns)
        if stored:
            self._fill("shN", a.shN.reshape(-1, 3), sh_columns * stored)
            self._project["sh_columns"] = sh_columns
        if self._order is None or self._order.size < 4 * max(len(a), 1):
            if self._splat_vao is not None:
                self._splat_vao.release()
            if self._order is not None:
                self._order.release()
            self._order = self.ctx.buffer(reserve=4 * max(len(a), 1), dynamic=True)
            self._splat_vao = self.ctx.vertex_array(self._splat, [(self._order, "1i /i", "in_index")])

    def _fill(self, name: str, array: np.ndarray, width: int) -> None:
        """Write `array` (n, components) into the texture `name`, n texels in rows of `width`."""
        n, components = array.shape
        rows = max(-(-n // width), 1)
        texture = self._attributes.get(name)
        if texture is None or texture.size != (width, rows) or texture.components != components:
            if texture is not None:
                texture.release()
            texture = self.ctx.texture((width, rows), components, dtype="f4", alignment=4)
            texture.filter = moderngl.NEAREST, moderngl.NEAREST  # without mipmaps, or it is incomplete
            self._attributes[name] = texture
        full = n // width
        array = np.ascontiguousarray(array)
        if full:
            texture.write(array[: full * width], viewport=(0, 0, width, full), alignment=4)
        if n > full * width:
            texture.write(array[full * width:], viewport=(0, full, n - full * width, 1), alignment=4)

    # -- stages --------------------------------------------------------------------------------------------

    def _run_projection(self, camera: Camera, options: RenderOptions) -> None:
        assert self._projected is not None
        p = self._project
        K = camera.K
        focal, center = np.array([K[0, 0], K[1, 1]]), np.array([K[0, 2], K[1, 2]])
        size = np.array([camera.width, camera.height], np.float64)
        margin = 0.3 * 0.5 * size / focal
        degree = self._sh_degree if options.sh_degree is None else min(options.sh_degree, self._sh_degree)
        rotation = camera.viewmat[:3, :3]
        for unit, name in enumerate(("means", "quats", "scales", "opacities", "sh0", "shN")):
            self._attributes.get(name, self._attributes["sh0"]).use(unit)
            p[name] = unit
        p["count"] = self._count
        p["columns"] = self._columns
        p["sh_stored"] = self._sh_stored
        p["sh_degree"] = degree
        p["rotation"] = rotation.T.ravel()  # GL takes columns
        p["translation"] = rotation @ self._origin + camera.viewmat[:3, 3]
        p["focal"] = focal
        p["center"] = center
        p["size"] = size
        p["limit_low"] = -(center / focal + margin)
        p["limit_high"] = (size - center) / focal + margin
        p["near"] = camera.near
        p["far"] = camera.far
        p["eps_2d"] = EPS_2D
        p["covariance_max"] = COVARIANCE_MAX
        p["ortho"] = camera.model == "ortho"
        p["antialiased"] = options.mode == "antialiased"
        self._projected.framebuffer.use()
        self._project_vao.render(moderngl.TRIANGLES, vertices=3)

    def _sort(self, camera: Camera) -> int:
        """Write the drawing order, back to front by camera z, and return how many there are to draw."""
        assert self._order is not None
        axis = camera.viewmat[2, :3]
        z = self._means @ axis.astype(np.float32)
        z += np.float32(axis @ self._origin + camera.viewmat[2, 3])
        visible = np.flatnonzero((z >= camera.near) & (z <= camera.far))
        # Positive floats order as their bits do, so 32 bits are sorted exactly by two stable passes over 16 each,
        # which numpy does by counting: half the time of its comparison sort. Stable, then reversed: as in gsplat
        # the Gaussian that comes first in the scene is the nearer one in a tie.
        bits = z[visible].view(np.uint32)
        order = np.argsort(bits.astype(np.uint16), kind="stable")
        order = order[np.argsort((bits >> 16).astype(np.uint16)[order], kind="stable")][::-1]
        self._order.orphan()
        self._order.write(visible[order].astype(np.int32))
        return len(order)

    def _draw(self, camera: Camera, visible: int) -> None:
        assert self._projected is not None and self._splat_vao is not None
        for unit, (name, texture) in enumerate(zip(("place", "shape", "color"), self._projected.textures,
                                                   strict=True)):
            texture.use(unit)
            self._splat[name] = unit
        self._splat["columns"] = self._columns
        self._splat["size"] = camera.width, camera.height
        self.ctx.enable_only(moderngl.BLEND)
        self.ctx.blend_func = moderngl.ONE, moderngl.ONE_MINUS_SRC_ALPHA
        self._splat_vao.render(moderngl.TRIANGLE_STRIP, vertices=4, instances=visible)
        self.ctx.blend_func = moderngl.SRC_ALPHA, moderngl.ONE_MINUS_SRC_ALPHA

    # -- housekeeping --------------------------------------------------------------------------------------

    def _make_target(self, width: int, height: int, depth: bool) -> _Target:
        formats = [(4, self._precision), (1, "f4")][: 1 + depth]
        if self._target is None or self._target.size != (width, height) or self._target.formats != formats:
            self._drop_target()
            self._target = _Target(self.ctx, (width, height), formats)
        return self._target

    def _drop_target(self) -> None:
        if self._target is not None:
            self._target.release()
        self._target = self._picture = self._drawn = None

    def _drop_scene(self) -> None:
        for texture in self._attributes.values():
            texture.release()
        self._attributes.clear()
        if self._projected is not None:
            self._projected.release()
            self._projected = None
        if self._splat_vao is not None:
            self._splat_vao.release()
            self._splat_vao = None
        if self._order is not None:
            self._order.release()
            self._order = None

    def _check_open(self) -> None:
        if self._closed:
            raise RendererError("gl: this renderer is closed; make a new one")

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        if self.profile:
            self.ctx.finish()
        self._timings[name] = (time.perf_counter() - begin) * 1e3


def _shader(name: str) -> str:
    return (SHADERS / name).read_text(encoding="utf-8")


def _read(texture: moderngl.Texture) -> np.ndarray:
    """The texels (height, width, components) float32, row 0 first."""
    dtype = np.float32 if texture.dtype == "f4" else np.float16
    data = np.frombuffer(texture.read(alignment=1), dtype)
    return data.reshape(texture.height, texture.width, texture.components).astype(np.float32, copy=False)
