"""The OpenGL renderer: GL 3.3 core, on any driver, Mesa's software rasteriser included.

Three stages per frame. The processor sorts by camera z; a fragment pass projects every Gaussian once, in that
order, into float textures; a compositor turns them into the picture. There are two, because drivers differ in what
they are slow at: on graphics cards `QuadCompositor` blends triangles, on software rasterisers `tiles` has each pixel
walk along the list of its tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import moderngl
import numpy as np

from splatview_viewer.core.errors import RendererError, error_text
from splatview_viewer.geometry.cameras import MODELS
from splatview_viewer.gpu.work import is_software
from splatview_viewer.render.activation import activate, middle
from splatview_viewer.render.base import (
    AMBIENT,
    BODY_SIGMAS,
    COVARIANCE_MAX,
    EPS_2D,
    LIGHT,
    MARK_COLOR,
    PAINTS,
    RING_INSIDE,
    RING_PX,
    TRANSMITTANCE_MIN,
    Pixels,
    RenderedPicture,
    Renderer,
    RenderOptions,
)
from splatview_viewer.render.gl.passes import (
    BlendTarget,
    Compositor,
    FieldTextures,
    Pass,
    Passes,
    stable_order,
    texels,
    texture_source,
)
from splatview_viewer.render.gl.tiles import TileCompositor
from splatview_viewer.scene import EVERYTHING, HIDDEN, MARKED, flags
from splatview_viewer.scene.scene import FIELDS, GaussianScene, nothing

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_ipc.gl.sources import TextureSource
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.scene import Selection

COLUMNS = 4096
"""Gaussians per row of the textures that hold their order and projections."""
SAMPLE = 10_000
"""Gaussians that are looked at for the middle of a scene, or a few more."""
MARKED_FROM = 1 << 30
"""Added to the index of a Gaussian that is marked; shaders/project.frag knows it too."""


@dataclass
class GlPicture(RenderedPicture):
    """Picture of `GlRenderer`. Valid until it draws again or is closed."""

    color: moderngl.Texture
    """RGBA, premultiplied; row 0 is the top row."""
    depth: moderngl.Texture | None
    """Accumulated depth in the first channel."""

    def pixels(self) -> Pixels:
        rgba = texels(self.color)
        if self.depth is None:
            depth = None
        else:
            depth = np.ascontiguousarray(texels(self.depth)[..., 0])
        return Pixels(
            np.ascontiguousarray(rgba[..., :3]),
            np.ascontiguousarray(rgba[..., 3]),
            depth,
        )

    def source(self) -> TextureSource:
        """The target itself: no copy."""
        return texture_source(self.color)


class GlRenderer(Renderer):
    """Draws Gaussians with OpenGL 3.3 in a context that the caller owns and keeps current.

    Leaves the bound framebuffer and the enable flags as they were; the blend and depth functions are moderngl's
    defaults afterwards.
    """

    name = "gl"

    def __init__(self, ctx: moderngl.Context, note: str = "") -> None:
        """`note`: why it is not CUDA that draws.

        Raises RendererError when the context is older than 3.3, or the driver refuses the shaders.
        """
        if ctx.version_code < 330:
            raise RendererError(
                f"gl: OpenGL {ctx.version_code / 100:.1f} is too old; 3.3 is needed. "
                "Update the graphics driver"
            )
        self.ctx = ctx
        self.note = note
        self._limit = min(
            ctx.info["GL_MAX_TEXTURE_SIZE"], *ctx.info["GL_MAX_VIEWPORT_DIMS"]
        )
        self._columns = min(COLUMNS, self._limit)
        self._compositor = (TileCompositor if is_software(ctx) else QuadCompositor)(ctx)
        self._fields = FieldTextures(ctx)
        self._means = np.empty((0, 3), np.float32)
        self._origin = np.zeros(3)
        self._dtype = np.dtype(np.float32)
        self._scene: GaussianScene | None = None
        """Result of `scene`."""
        self._flags: tuple[Selection, np.ndarray] | None = None
        """Result of a selection: `scene.flags`."""
        self._sh_degree = 0
        self._sh_stored = 0
        self._sh_columns = 0
        self._packed_columns = 0

    def load(
        self, scene: GaussianScene, ready: Callable[[int], None] | None = None
    ) -> None:
        """Activate and upload a scene. Raises RendererError when it exceeds the texture size limit."""
        self._check_open()
        active, left_out = activate(scene.to_host(ready))
        centers, quats, scales, opacities, sh0, rest = (
            getattr(active, name).numpy() for name in FIELDS
        )
        # Relative to the middle, taken in float64: a scene far from the origin keeps its detail. Not the mean: one
        # Gaussian that has flown off to 10^20 would take the detail of all others with it.
        origin, _ = middle(centers[:: max(len(active) // SAMPLE, 1)])
        with np.errstate(over="ignore"):  # what is that far away lies beyond `far`
            means = (centers - origin).astype(np.float32)
        self._means = np.empty((0, 3), np.float32)  # should there be no room
        stored = rest.shape[1]
        # K-1 texels side by side per Gaussian, so that `shN` goes up as it lies; a power of two of them in a row.
        sh_columns = 1 << ((self._limit // max(stored, 1)).bit_length() - 1)
        packed_columns = 1 << ((self._limit // 4).bit_length() - 1)
        capacity = self._limit * min(self._columns, packed_columns, sh_columns)
        if len(active) > capacity:
            raise RendererError(
                f"gl: {len(active)} Gaussians with {stored + 1} SH coefficients each do not fit: this "
                f"driver's textures go up to {self._limit}x{self._limit}, which holds {capacity}"
            )
        # What the projection needs of one Gaussian fills one line of a processor's cache.
        packed = np.zeros((len(active), 16), np.float32)
        packed[:, 0:3] = means
        packed[:, 3] = opacities
        packed[:, 4:8] = quats
        packed[:, 8:11] = scales
        packed[:, 12:15] = sh0
        self._fields.write("gaussians", packed.reshape(-1, 4), packed_columns * 4)
        self._fields.write("shN", rest.reshape(-1, 3), sh_columns * max(stored, 1))
        self._sh_degree = active.sh_degree
        self._sh_stored = stored
        self._sh_columns = sh_columns
        self._packed_columns = packed_columns
        self._means = means
        self._origin = origin
        self.left_out = left_out
        self._dtype = centers.dtype
        self._scene = None
        if self._flags is not None:  # here, where the arrays are at hand
            self._flags = self._flags[0], flags(active, self._flags[0]).numpy()

    def scene(self) -> GaussianScene:
        """Read back from where it was uploaded to, once for each load."""
        self._check_open()
        if self._scene is None:
            n = len(self._means)
            stored = self._sh_stored
            if n == 0:
                return nothing()
            packed = texels(self._fields["gaussians"]).reshape(-1, 16)[:n]
            rest = (
                texels(self._fields["shN"])
                .reshape(-1, 3)[: n * stored]
                .reshape(n, stored, 3)
            )
            means = (self._means + self._origin).astype(self._dtype)
            quats, scales, opacities, sh0 = (
                packed[:, part].copy()
                for part in (slice(4, 8), slice(8, 11), 3, slice(12, 15))
            )
            self._scene = GaussianScene.of_arrays(
                means,
                quats,
                scales,
                opacities,
                sh0,
                rest,
                activated=True,
                sh_degree=self._sh_degree,
            )
        return self._scene

    def render(self, camera: Camera, options: RenderOptions) -> GlPicture:
        self._check(camera, self._limit)
        compositor = self._compositor
        try:
            with self.ctx.scope(
                compositor.begin((camera.width, camera.height), options),
                moderngl.NOTHING,
            ):
                visible = 0
                if len(self._means):
                    visible = self._sort(camera, options)
                    self._project(camera, options, visible)
                picture = GlPicture(*compositor.draw(visible, camera.near))
        except moderngl.Error as e:
            raise RendererError(f"gl: {error_text(e)}") from e
        self.thinned = compositor.thinned
        return picture

    def rest(self) -> None:
        if not self._closed:
            self._compositor.rest()

    def close(self) -> None:
        """Release every GL object. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._fields.release()
        self._compositor.release()
        self._means = np.empty((0, 3), np.float32)
        self._scene = None
        self._flags = None

    def _sort(self, camera: Camera, options: RenderOptions) -> int:
        """Upload the order by camera z, nearest first. Returns how many lie between near and far and are selected."""
        axis = camera.viewmat[2, :3]
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # of those that are too far away to be seen
            z = self._means @ axis.astype(np.float32)
            z += np.float32(axis @ self._origin + camera.viewmat[2, 3])
        within = (z >= camera.near) & (z <= camera.far)
        if options.selection == EVERYTHING:
            self._flags = None
        else:
            if self._flags is None or self._flags[0] != options.selection:
                self._flags = (
                    options.selection,
                    flags(self.scene(), options.selection).numpy(),
                )
            within &= (self._flags[1] & HIDDEN) == 0
        visible = np.flatnonzero(within)
        # Positive floats order as their bits do. Stable: as in gsplat the Gaussian that comes first in the scene is
        # the nearer one in a tie.
        order = stable_order(z[visible].view(np.int32))
        entries = visible[order].astype(np.int32)
        if self._flags is not None:
            entries[(self._flags[1][entries] & MARKED) != 0] |= MARKED_FROM
        self._fields.write("order", entries[:, None], self._columns, len(self._means))
        return len(order)

    def _project(self, camera: Camera, options: RenderOptions, visible: int) -> None:
        paint = PAINTS[options.paint]
        projected = self._compositor.reserve(
            self._columns, max(-(-len(self._means) // self._columns), 1), paint
        )
        K, (limit_low, limit_high) = camera.K, camera.slope_limits()
        rotation = camera.viewmat[:3, :3]
        if options.sh_degree is None:
            degree = self._sh_degree
        else:
            degree = min(options.sh_degree, self._sh_degree)
        p = self._compositor.projection(*paint.defines)
        p.read(
            order=self._fields["order"],
            gaussians=self._fields["gaussians"],
            shN=self._fields["shN"],
        )
        p.set(
            count=visible,
            columns=self._columns,
            packed_columns=self._packed_columns,
            sh_columns=self._sh_columns,
            sh_stored=self._sh_stored,
            sh_degree=degree,
            rotation=rotation.T.ravel(),  # GL takes columns
            translation=rotation @ self._origin + camera.viewmat[:3, 3],
            focal=(K[0, 0], K[1, 1]),
            center=K[:2, 2],
            size=(camera.width, camera.height),
            limit_low=limit_low,
            limit_high=limit_high,
            z_near=camera.near,
            z_far=camera.far,
            eps_2d=EPS_2D,
            covariance_max=COVARIANCE_MAX,
            model=MODELS.index(camera.model),
            antialiased=options.mode == "antialiased",
            scale=options.scale,
            mark_color=MARK_COLOR,
            body_sigmas=BODY_SIGMAS,
            point_reach=options.point_reach,
        )
        projected.use()
        projected.viewport = 0, 0, self._columns, -(-visible // self._columns)
        p.fill()


MAX_BATCHES = 8
SMALL = 40.0
"""Radius in pixels up to which one triangle around the ellipse is drawn instead of a rectangle's two. It covers 30 %
more, but most Gaussians are so thin that triangles, not pixels, cost time."""
PIXELS_PER_GAUSSIAN = 16
"""A batch has at least one Gaussian for this many pixels: marking costs as much as there are pixels."""


class QuadCompositor(Compositor):
    """Compositing with blending: instanced shapes around the ellipses, front to back into a float target.

    They come in batches. After each one, pixels that are opaque are marked, and neither shaded again nor, where whole
    tiles are finished, even rasterised. The way of graphics cards, which set up triangles in no time.

    One rule of gsplat's is out of reach here: a pixel ends *before* the Gaussian that would take its transmittance to
    1e-4 or below. Fixed blending cannot know the transmittance, so that Gaussian and some behind it are drawn too.
    """

    formats = dict.fromkeys(("place", "shape", "color"), (4, "f4"))

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self.projection = Passes(ctx, "fullscreen.vert", "project.frag")
        """The projection pass by the defines of paints, with the outputs that this compositor reads."""
        self._splat = Passes(ctx, "splat.vert", "splat.frag")
        self._mark = Pass(ctx, "fullscreen.vert", "mark.frag")
        self._tiles = Pass(ctx, "fullscreen.vert", "tiles.frag")
        self._target: BlendTarget | None = None
        self._options = RenderOptions()

    def begin(
        self, size: tuple[int, int], options: RenderOptions
    ) -> moderngl.Framebuffer:
        """Make room for a picture of `size` pixels. Returns what to bind; call before projecting."""
        self._options = options
        depth = options.depth
        if (
            self._target is None
            or self._target.size != size
            or (self._target.depth is not None) != depth
        ):
            if self._target is not None:
                self._target.release()
                self._target = None
            self._target = BlendTarget(self._ctx, size, depth)
        return self._target.framebuffer

    def draw(
        self, visible: int, near: float
    ) -> tuple[moderngl.Texture, moderngl.Texture | None]:
        """Composite the first `visible` projections. Returns colour (RGBA, premultiplied, row 0 at the top) and,
        if asked for, accumulated depth in the first channel. `near`: the camera's.
        """
        target = self._target
        assert target is not None
        target.clear()
        paint = PAINTS[self._options.paint]
        if visible and paint.composition == "nearest":  # by the depth test
            splat = self._splats(target, "BODIES")
            splat.set(first=0, z_near=near)
            target.framebuffer.use()
            target.framebuffer.depth_mask = True
            self._ctx.enable_only(moderngl.DEPTH_TEST)
            self._ctx.depth_func = "<"
            splat.vao.render(moderngl.TRIANGLE_STRIP, vertices=4, instances=visible)
            target.framebuffer.depth_mask = False
        elif visible and paint.composition == "counted":
            if target.depth is not None:
                self._blend(target, visible)
            target.counting.use()
            target.counting.clear()
            splat = self._splats(target, "OVERDRAW")
            splat.set(first=0)
            self._ctx.enable_only(moderngl.BLEND)
            self._ctx.blend_func = moderngl.ONE, moderngl.ONE
            self._ctx.blend_equation = moderngl.FUNC_ADD, moderngl.MAX
            splat.vao.render(moderngl.TRIANGLE_STRIP, vertices=4, instances=visible)
            self._ctx.blend_equation = moderngl.FUNC_ADD, moderngl.FUNC_ADD
            self._ctx.blend_func = moderngl.SRC_ALPHA, moderngl.ONE_MINUS_SRC_ALPHA
        elif visible:
            self._blend(target, visible, *paint.defines)
        return target.color, target.depth

    def rest(self) -> None:
        if self._target is not None:
            self._target.release()
            self._target = None

    def release(self) -> None:
        for held in (
            self.projection,
            self._splat,
            self._mark,
            self._tiles,
            self._projected,
            self._target,
        ):
            if held is not None:
                held.release()
        self._projected = None
        self._target = None

    def _splats(self, target: BlendTarget, *defines: str) -> Pass:
        """The pass that draws, ready but for the first Gaussian."""
        assert self._projected is not None
        splat = self._splat(*defines)
        options = self._options
        splat.read(**self._projected.textures, tiles=target.tiles)
        splat.set(
            columns=self._projected.size[0],
            size=target.size,
            small=SMALL,
            body_sigmas=BODY_SIGMAS,
            ring_px=RING_PX,
            ring_inside=RING_INSIDE,
            point_reach=options.point_reach,
            light=LIGHT,
            ambient=AMBIENT,
        )
        return splat

    def _blend(self, target: BlendTarget, visible: int, *defines: str) -> None:
        ctx = self._ctx
        mark = self._mark
        tiles = self._tiles
        splat = self._splats(target, *defines)
        for p in (mark, tiles):
            p.read(8, finished=target.color)  # a unit that `splat` does not use
            p.set(enough=1 - TRANSMITTANCE_MIN)
        pixels = target.size[0] * target.size[1]
        batches = min(max(visible * PIXELS_PER_GAUSSIAN // pixels, 1), MAX_BATCHES)
        ctx.blend_func = moderngl.ONE_MINUS_DST_ALPHA, moderngl.ONE
        for first, end in pairwise(visible * k // batches for k in range(batches + 1)):
            if first:
                ctx.enable_only(
                    moderngl.DEPTH_TEST
                )  # without it depth would not be written
                ctx.depth_func = "1"
                target.marking.use()
                mark.fill()
                ctx.enable_only(moderngl.NOTHING)
                target.tiling.use()
                tiles.fill()
            ctx.enable_only(
                moderngl.BLEND | (moderngl.DEPTH_TEST if first else moderngl.NOTHING)
            )
            ctx.depth_func = "<"
            target.framebuffer.use()
            splat.set(first=first)
            splat.vao.render(moderngl.TRIANGLE_STRIP, vertices=4, instances=end - first)
        ctx.blend_func = moderngl.SRC_ALPHA, moderngl.ONE_MINUS_SRC_ALPHA
