"""The OpenGL renderer: GL 3.3 core, on any driver, Mesa's software rasteriser included.

Three stages per frame. The processor sorts by camera z; a fragment pass projects every Gaussian once, in that
order, into float textures; instanced shapes around their ellipses are blended front to back into a float target.
They come in batches. After each one, pixels that are opaque are marked, and neither shaded again nor, where whole
tiles are finished, even rasterised.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import moderngl
import numpy as np

from viewer_app.errors import RendererError
from viewer_app.renderers.activation import activate
from viewer_app.renderers.base import COVARIANCE_MAX, EPS_2D, TRANSMITTANCE_MIN, Pixels, RenderOptions
from viewer_app.renderers.gl_textures import Fields, Projected, Target, texels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from viewer_app.cameras import Camera
    from viewer_app.renderers.activation import Activated
    from viewer_app.scene import GaussianScene

SHADERS = Path(__file__).parent / "shaders"
COLUMNS = 4096
"""Gaussians per row of the textures that hold their order and projections."""
MAX_BATCHES = 8
SMALL = 40.0
"""Radius in pixels up to which one triangle around the ellipse is drawn instead of a rectangle's two. It covers 30 %
more, but most Gaussians are so thin that triangles, not pixels, cost time."""
PIXELS_PER_GAUSSIAN = 16
"""A batch has at least one Gaussian for this many pixels: marking costs as much as there are pixels."""


@dataclass
class GlPicture:
    """What `GlRenderer.render` returns. Valid until it draws again or is closed."""

    color: moderngl.Texture
    """RGBA, premultiplied; row 0 is the top row."""
    depth: moderngl.Texture | None
    """Accumulated depth in the first channel."""

    def pixels(self) -> Pixels:
        rgba = texels(self.color)
        depth = None if self.depth is None else np.ascontiguousarray(texels(self.depth)[..., 0])
        return Pixels(np.ascontiguousarray(rgba[..., :3]), np.ascontiguousarray(rgba[..., 3]), depth)

    def texture(self, ctx: moderngl.Context) -> moderngl.Texture:
        """The target itself: no copy. `ctx` must be the context that the renderer was made with."""
        if ctx is not self.color.ctx:
            raise RendererError("gl: the picture belongs to another OpenGL context; use pixels() to carry it over")
        return self.color


class GlRenderer:
    """Draws Gaussians with OpenGL 3.3 in a context that the caller owns and keeps current.

    Leaves the bound framebuffer and the enable flags as they were; the blend and depth functions are moderngl's
    defaults afterwards.
    """

    name: ClassVar[str] = "gl"

    def __init__(self, ctx: moderngl.Context, precision: Literal["f4", "f2"] = "f4", profile: bool = False):
        """`precision` of the target: "f4" agrees with gsplat to 70 dB and more, "f2" takes half the memory and
        agrees to about 55 dB. `profile` waits for the GPU after each stage, so that `timings` hold its work.

        Raises RendererError when the context is older than 3.3.
        """
        if ctx.version_code < 330:
            raise RendererError(f"gl: OpenGL {ctx.version_code / 100:.1f} is too old; 3.3 is needed. "
                                "Update the graphics driver")
        self.ctx = ctx
        self.profile = profile
        self._precision: Literal["f4", "f2"] = precision
        self._limit = min(ctx.info["GL_MAX_TEXTURE_SIZE"], *ctx.info["GL_MAX_VIEWPORT_DIMS"])
        self._columns = min(COLUMNS, self._limit)
        # Software rasterisers pay for triangles most: there it is one for everything, and a corner less to shade.
        software = any(name in ctx.info["GL_RENDERER"].lower() for name in ("llvmpipe", "softpipe", "swiftshader"))
        self._corners, self._small = (3, float("inf")) if software else (4, SMALL)
        self._passes = {name: _Pass(ctx, *shaders) for name, shaders in {
            "project": ("fullscreen.vert", "project.frag"), "splat": ("splat.vert", "splat.frag"),
            "mark": ("fullscreen.vert", "mark.frag"), "tiles": ("fullscreen.vert", "tiles.frag")}.items()}
        self._fields = Fields(ctx)
        self._projected: Projected | None = None
        self._target: Target | None = None
        self._means = np.empty((0, 3), np.float32)
        self._origin = np.zeros(3)
        self._sh_degree = self._sh_stored = self._sh_columns = self._packed_columns = 0
        self._skipped = 0
        self._drawn: tuple | None = None
        self._picture: GlPicture | None = None
        self._timings: dict[str, float] = {}
        self._closed = False

    @property
    def skipped(self) -> int:
        """How many Gaussians of the loaded scene can never be drawn: NaN, infinities, zero quaternions."""
        return self._skipped

    @property
    def timings(self) -> dict[str, float]:
        """Milliseconds: activate, upload (last load); sort, project, draw (last render that drew).

        Unless `profile` is set these are times on the processor; what the GPU does is not waited for.
        """
        return dict(self._timings)

    def load(self, scene: GaussianScene) -> None:
        """Activate and upload a scene. Raises RendererError when it exceeds the texture size limit."""
        self._check_open()
        with self._stage("activate"):
            a = activate(scene)
            # Relative to the middle, taken in float64: a scene far from the origin keeps its detail.
            origin = a.means.mean(axis=0, dtype=np.float64) if len(a) else np.zeros(3)
            means = (a.means - origin).astype(np.float32)
        with self._stage("upload"):
            self._upload(a, means)
        self._means, self._origin, self._skipped = means, origin, a.skipped
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
        target = self._make_target((camera.width, camera.height), options.depth)
        with self.ctx.scope(target.framebuffer, moderngl.NOTHING):
            visible = 0
            if len(self._means):
                with self._stage("sort"):
                    visible = self._sort(camera)
                with self._stage("project"):
                    self._project(camera, options, visible)
            with self._stage("draw"):
                target.clear()
                self._draw(target, visible)
        self._drawn = wanted
        self._picture = GlPicture(target.color, target.depth)
        return self._picture

    def close(self) -> None:
        """Release every GL object. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for held in (self._fields, self._projected, self._target, *self._passes.values()):
            if held is not None:
                held.release()
        self._projected = self._target = self._picture = None
        self._means = np.empty((0, 3), np.float32)

    def _upload(self, a: Activated, means: np.ndarray) -> None:
        stored = a.shN.shape[1]
        # K-1 texels side by side per Gaussian, so that `shN` goes up as it lies; a power of two of them in a row.
        sh_columns = 1 << ((self._limit // max(stored, 1)).bit_length() - 1)
        packed_columns = 1 << ((self._limit // 4).bit_length() - 1)
        capacity = self._limit * min(self._columns, packed_columns, sh_columns)
        if len(a) > capacity:
            raise RendererError(f"gl: {len(a)} Gaussians with {stored + 1} SH coefficients each do not fit: this "
                                f"driver's textures go up to {self._limit}x{self._limit}, which holds {capacity}")
        # What the projection needs of one Gaussian fills one line of a processor's cache.
        packed = np.zeros((len(a), 16), np.float32)
        packed[:, 0:3], packed[:, 3], packed[:, 4:8] = means, a.opacities, a.quats
        packed[:, 8:11], packed[:, 12:15] = a.scales, a.sh0
        self._fields.write("gaussians", packed.reshape(-1, 4), packed_columns * 4)
        self._fields.write("shN", a.shN.reshape(-1, 3), sh_columns * max(stored, 1))
        self._sh_degree, self._sh_stored, self._sh_columns = a.sh_degree, stored, sh_columns
        self._packed_columns = packed_columns
        size = self._columns, max(-(-len(a) // self._columns), 1)
        if self._projected is None or self._projected.size != size:
            if self._projected is not None:
                self._projected.release()
            self._projected = Projected(self.ctx, size)

    def _sort(self, camera: Camera) -> int:
        """Upload the order by camera z, nearest first, and return how many lie between near and far."""
        axis = camera.viewmat[2, :3]
        z = self._means @ axis.astype(np.float32)
        z += np.float32(axis @ self._origin + camera.viewmat[2, 3])
        visible = np.flatnonzero((z >= camera.near) & (z <= camera.far))
        # Positive floats order as their bits do, so 32 bits are sorted exactly by two stable passes over 16 each,
        # which numpy does by counting: half the time of its comparison sort. Stable: as in gsplat the Gaussian
        # that comes first in the scene is the nearer one in a tie.
        bits = z[visible].view(np.uint32)
        order = np.argsort(bits.astype(np.uint16), kind="stable")
        order = order[np.argsort((bits >> 16).astype(np.uint16)[order], kind="stable")]
        self._fields.write("order", visible[order].astype(np.int32)[:, None], self._columns, len(self._means))
        return len(order)

    def _project(self, camera: Camera, options: RenderOptions, visible: int) -> None:
        assert self._projected is not None
        K = camera.K
        focal, center = np.array([K[0, 0], K[1, 1]]), np.array([K[0, 2], K[1, 2]])
        size = np.array([camera.width, camera.height], np.float64)
        margin = 0.3 * 0.5 * size / focal
        rotation = camera.viewmat[:3, :3]
        degree = self._sh_degree if options.sh_degree is None else min(options.sh_degree, self._sh_degree)
        p = self._passes["project"]
        p.read(order=self._fields["order"], gaussians=self._fields["gaussians"], shN=self._fields["shN"])
        p.set(count=visible, columns=self._columns, packed_columns=self._packed_columns,
              sh_columns=self._sh_columns, sh_stored=self._sh_stored, sh_degree=degree,
              rotation=rotation.T.ravel(),  # GL takes columns
              translation=rotation @ self._origin + camera.viewmat[:3, 3],
              focal=focal, center=center, size=size,
              limit_low=-(center / focal + margin), limit_high=(size - center) / focal + margin,
              z_near=camera.near, z_far=camera.far, eps_2d=EPS_2D, covariance_max=COVARIANCE_MAX,
              ortho=camera.model == "ortho", antialiased=options.mode == "antialiased")
        self._projected.framebuffer.use()
        self._projected.framebuffer.viewport = 0, 0, self._columns, -(-visible // self._columns)
        p.vao.render(moderngl.TRIANGLES, vertices=3)

    def _draw(self, target: Target, visible: int) -> None:
        if visible == 0:
            return
        assert self._projected is not None
        ctx, splat, mark, tiles = self.ctx, self._passes["splat"], self._passes["mark"], self._passes["tiles"]
        splat.read(**self._projected.textures, tiles=target.tiles)
        splat.set(columns=self._columns, size=target.size, small=self._small)
        for p in (mark, tiles):
            p.read(8, finished=target.color)  # a unit that `splat` does not use
            p.set(enough=1 - TRANSMITTANCE_MIN)
        pixels = target.size[0] * target.size[1]
        batches = min(max(visible * PIXELS_PER_GAUSSIAN // pixels, 1), MAX_BATCHES)
        ctx.blend_func = moderngl.ONE_MINUS_DST_ALPHA, moderngl.ONE
        for first, end in pairwise(visible * k // batches for k in range(batches + 1)):
            if first:
                ctx.enable_only(moderngl.DEPTH_TEST)  # without it depth would not be written
                ctx.depth_func = "1"
                target.marking.use()
                mark.vao.render(moderngl.TRIANGLES, vertices=3)
                ctx.enable_only(moderngl.NOTHING)
                target.tiling.use()
                tiles.vao.render(moderngl.TRIANGLES, vertices=3)
            ctx.enable_only(moderngl.BLEND | (moderngl.DEPTH_TEST if first else moderngl.NOTHING))
            ctx.depth_func = "<"
            target.framebuffer.use()
            splat.set(first=first)
            splat.vao.render(moderngl.TRIANGLE_STRIP, vertices=self._corners, instances=end - first)
        ctx.blend_func = moderngl.SRC_ALPHA, moderngl.ONE_MINUS_SRC_ALPHA

    def _make_target(self, size: tuple[int, int], depth: bool) -> Target:
        if self._target is None or self._target.size != size or self._target.kind != (depth, self._precision):
            if self._target is not None:
                self._target.release()
            self._picture = None
            self._target = Target(self.ctx, size, depth, self._precision)
        return self._target

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


class _Pass:
    """A program without vertex data: its shaders make everything from gl_VertexID and textures."""

    def __init__(self, ctx: moderngl.Context, vertex: str, fragment: str):
        self._program = ctx.program((SHADERS / vertex).read_text(encoding="utf-8"),
                                    (SHADERS / fragment).read_text(encoding="utf-8"))
        self.vao = ctx.vertex_array(self._program, [])

    def read(self, unit: int = 0, /, **textures: moderngl.Texture) -> None:
        """Bind textures to the samplers of their names, on units from `unit` on."""
        for i, (name, texture) in enumerate(textures.items(), unit):
            texture.use(i)
            self._program[name] = i

    def set(self, **uniforms: object) -> None:
        for name, value in uniforms.items():
            self._program[name] = value

    def release(self) -> None:
        self.vao.release()
        self._program.release()
