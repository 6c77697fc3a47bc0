"""The OpenGL renderer: GL 3.3 core, on any driver, Mesa's software rasteriser included.

Three stages per frame. The processor sorts by camera z; a fragment pass projects every
Gaussian once, in that order, into float textures; a compositor turns them into the
picture. There are two, because drivers differ in what they are slow at: on graphics cards
`QuadCompositor` blends triangles, on software rasterisers `TileCompositor` has each pixel
walk along the list of its tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import moderngl
import numpy as np

from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.core.errors import RendererError, error_text
from splatview_viewer.geometry.cameras import MODELS
from splatview_viewer.gpu.steps import run_at_once
from splatview_viewer.gpu.work import is_software
from splatview_viewer.render.activation import activate, center_and_size
from splatview_viewer.render.base import (
    BODY_SIGMAS,
    COVARIANCE_MAX,
    EPS_2D,
    MARK_COLOR,
    LeftOut,
    Pixels,
    RenderedPicture,
    Renderer,
    RenderOptions,
)
from splatview_viewer.render.gl.passes import (
    WHOLE,
    ArrayTextures,
    Parts,
    read_texels,
    row_bands,
    stable_order,
    texture_source,
)
from splatview_viewer.render.gl.quads import QuadCompositor
from splatview_viewer.render.gl.tiles import TileCompositor
from splatview_viewer.render.paints import PAINTS
from splatview_viewer.scene import EVERYTHING, HIDDEN, MARKED, flags
from splatview_viewer.scene.scene import FIELDS, GaussianScene, empty_scene

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_ipc.gl.sources import TextureSource
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.gpu.steps import Steps
    from splatview_viewer.scene import Selection

COLUMNS = 4096
"""Gaussians per row of the textures that hold their order and projections."""
SAMPLE = 10_000
"""Gaussians that are looked at for the middle of a scene, or a few more."""
STEPPED_FROM = 16_000
"""Gaussians from which on a software rasteriser draws a picture in steps, where that may
be. Fewer are drawn in a moment while the camera moves, in lower resolution."""
MARKED_FROM = 1 << 30
"""Added to the index of a Gaussian that is marked; shaders/project.frag knows it too."""
_PACKED = 16
"""Numbers of one Gaussian in the texture "gaussians"."""


@dataclass
class GlPicture(RenderedPicture):
    """Picture of `GlRenderer`. Valid until it draws again or is closed."""

    color: moderngl.Texture
    """RGBA, premultiplied; row 0 is the top row."""
    depth: moderngl.Texture | None
    """Accumulated depth in the first channel."""

    def pixels(self) -> Pixels:
        rgba = read_texels(self.color)
        depth = None
        if self.depth is not None:
            depth = np.ascontiguousarray(read_texels(self.depth)[..., 0])
        color = np.ascontiguousarray(rgba[..., :3])
        alpha = np.ascontiguousarray(rgba[..., 3])
        return Pixels(color, alpha, depth)

    def source(self) -> TextureSource:
        """Return the target itself: no copy."""
        return texture_source(self.color)


class _Layout(NamedTuple):
    """Layout of a scene in its textures."""

    sh_stored: int = 0
    """Coefficients per Gaussian beyond the first."""
    sh_columns: int = 0
    """Gaussians in a row of the texture "shN"."""
    packed_columns: int = 0
    """Gaussians in a row of the texture "gaussians"."""


class _SelectionFlags(NamedTuple):
    """The result of a selection: `scene.flags`."""

    selection: Selection
    flags: np.ndarray


class _PackedScene(NamedTuple):
    """A scene as it is uploaded."""

    gaussians: np.ndarray
    """(4 N, 4): what the projection needs of a Gaussian, in one line of a processor's
    cache."""
    coefficients: np.ndarray
    """(N K, 3): beyond the first."""
    means: np.ndarray
    """(N, 3) float32, relative to `origin`."""
    origin: np.ndarray
    means_dtype: np.dtype
    sh_degree: int
    left_out: LeftOut
    flags: _SelectionFlags | None


def _pack(scene: GaussianScene, selection: Selection | None) -> _PackedScene:
    """Activate a scene on the CPU, and select of it."""
    active, left_out = activate(scene)
    centers, quats, scales, opacities, sh0, shN = (
        getattr(active, name).numpy() for name in FIELDS
    )
    # Relative to the middle, taken in float64: a scene far from the origin keeps its
    # detail. Not the mean: one Gaussian that has flown off to 10^20 would take the
    # detail of all others with it.
    step = max(len(active) // SAMPLE, 1)
    origin, _ = center_and_size(centers[::step])
    # Gaussians at an infinite distance lie beyond `far`.
    with np.errstate(over="ignore"):
        means = (centers - origin).astype(np.float32)
    packed = np.zeros((len(active), _PACKED), np.float32)
    packed[:, 0:3] = means
    packed[:, 3] = opacities
    packed[:, 4:8] = quats
    packed[:, 8:11] = scales
    packed[:, 12:15] = sh0
    selected = None
    if selection is not None:
        # Selected here, where the arrays are at hand.
        selected = _select(active, selection)
    return _PackedScene(
        gaussians=packed.reshape(-1, 4),
        coefficients=shN.reshape(-1, 3),
        means=means,
        origin=origin,
        means_dtype=centers.dtype,
        sh_degree=active.sh_degree,
        left_out=left_out,
        flags=selected,
    )


def _select(scene: GaussianScene, selection: Selection) -> _SelectionFlags:
    """Return the flags of a selection of an activated scene; from any thread."""
    return _SelectionFlags(selection, flags(scene, selection).numpy())


class GlRenderer(Renderer):
    """Draws Gaussians with OpenGL 3.3 in a context that the caller owns and keeps current.

    Leaves the bound framebuffer and the enable flags as they were; the blend and depth
    functions are moderngl's defaults afterwards.
    """

    name = "gl"

    def __init__(self, ctx: moderngl.Context, note: str = "") -> None:
        """Compile the shaders.

        Args:
            ctx: the context.
            note: the reason why it is not CUDA that draws.

        Raises:
            RendererError: the context is older than 3.3, or the driver refuses the
                shaders.
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
        self._compositor: TileCompositor | QuadCompositor
        self._is_software = is_software(ctx)
        if self._is_software:
            self._compositor = TileCompositor(ctx)
        else:
            self._compositor = QuadCompositor(ctx)
        self._fields = ArrayTextures(ctx)
        self._means = np.empty((0, 3), np.float32)
        """Centres relative to `_origin`."""
        self._origin = np.zeros(3)
        self._means_dtype = np.dtype(np.float32)
        """dtype of the scene's own centres."""
        self._scene: GaussianScene | None = None
        """Result of `scene`."""
        self._unread: GaussianScene | None = None
        """The last scene, on the CPU, as long as it is not uploaded."""
        self._flags: _SelectionFlags | None = None
        self._sh_degree = 0
        self._layout = _Layout()

    def load(
        self, scene: GaussianScene, ready: Callable[[int], None] | None = None
    ) -> None:
        """Activate and upload a scene.

        Raises:
            RendererError: it exceeds the texture size limit.
        """
        self._take(scene.to_host(ready))
        run_at_once(self._read(WHOLE))

    def load_kept(
        self, scene: GaussianScene, ready: Callable[[int], None] | None = None
    ) -> None:
        self._take(scene.to_host(ready))
        if not self.draws_in_steps:
            run_at_once(self._read(WHOLE))

    @property
    def unread_scene(self) -> GaussianScene | None:  # type: ignore[override]
        return self._unread

    def _take(self, scene: GaussianScene) -> None:
        """Take over a scene that is read next."""
        self._check_open()
        self._plan(len(scene), scene.shN.shape[1])
        self._unread = scene
        self._scene = None

    def _read(self, part_sizes: Parts) -> Steps[None]:
        """Return the steps that activate and upload the scene that is not read yet."""
        scene = self._unread
        if scene is None:
            return
        selection = None if self._flags is None else self._flags.selection
        layout = self._plan(len(scene), scene.shN.shape[1])
        packed = yield partial(_pack, scene, selection)
        # The scene is empty should there be no memory.
        self._means = np.empty((0, 3), np.float32)
        packed_width = layout.packed_columns * _PACKED // 4
        rest_width = layout.sh_columns * max(layout.sh_stored, 1)
        write = self._fields.write_steps
        yield from write("gaussians", packed.gaussians, packed_width, part_sizes)
        yield from write("shN", packed.coefficients, rest_width, part_sizes)
        self._layout = layout
        self._sh_degree = packed.sh_degree
        self._means = packed.means
        self._origin = packed.origin
        self.left_out = packed.left_out
        self._means_dtype = packed.means_dtype
        self._flags = packed.flags
        self._unread = None

    def _plan(self, count: int, sh_stored: int) -> _Layout:
        """Lay a scene out in textures. Raises RendererError if it does not fit."""
        # K-1 texels side by side per Gaussian, so that `shN` goes up as it lies; a power
        # of two of them in a row.
        sh_columns = 1 << ((self._limit // max(sh_stored, 1)).bit_length() - 1)
        packed_columns = 1 << ((self._limit // (_PACKED // 4)).bit_length() - 1)
        capacity = self._limit * min(self._columns, packed_columns, sh_columns)
        if count > capacity:
            raise RendererError(
                f"gl: {count} Gaussians with {sh_stored + 1} SH coefficients each do not "
                f"fit: this driver's textures go up to {self._limit}x{self._limit}, which "
                f"holds {capacity}"
            )
        return _Layout(sh_stored, sh_columns, packed_columns)

    def scene(self) -> GaussianScene:
        """Read the scene back from where it was uploaded to, once for each load."""
        self._check_open()
        if self._scene is None:
            if self._unread is not None:
                self._scene, _ = activate(self._unread)
            elif len(self._means) == 0:
                return empty_scene()
            else:
                self._scene = self._read_back()
        return self._scene

    def _read_back(self) -> GaussianScene:
        n = len(self._means)
        stored = self._layout.sh_stored
        packed = read_texels(self._fields["gaussians"]).reshape(-1, _PACKED)[:n]
        shN = read_texels(self._fields["shN"]).reshape(-1, 3)[: n * stored]
        return GaussianScene.of_arrays(
            means=(self._means + self._origin).astype(self._means_dtype),
            quats=packed[:, 4:8].copy(),
            scales=packed[:, 8:11].copy(),
            opacities=packed[:, 3].copy(),
            sh0=packed[:, 12:15].copy(),
            shN=shN.reshape(n, stored, 3),
            activated=True,
            sh_degree=self._sh_degree,
        )

    def render(self, camera: Camera, options: RenderOptions) -> GlPicture:
        self._check(camera, self._limit)
        return run_at_once(self._draw(camera, options, WHOLE))

    @property
    def draws_in_steps(self) -> bool:  # type: ignore[override]
        count = len(self._means)
        if self._unread is not None:
            count = len(self._unread)
        return self._is_software and count >= STEPPED_FROM

    def steps(self, camera: Camera, options: RenderOptions) -> Steps[GlPicture]:
        self._check(camera, self._limit)
        return self._draw(camera, options, Parts())

    def _draw(
        self, camera: Camera, options: RenderOptions, part_sizes: Parts
    ) -> Steps[GlPicture]:
        """Return the steps of a picture, each of a part of these sizes."""
        compositor = self._compositor
        try:
            yield from self._read(part_sizes)
            compositor.begin((camera.width, camera.height), options)
            visible = 0
            if len(self._means):
                selected = yield from self._selected(options.selection)
                entries = yield partial(self._sort, self._means, camera, selected)
                visible = len(entries)
                yield from self._fields.write_steps(
                    "order",
                    entries[:, None],
                    self._columns,
                    part_sizes,
                    capacity=len(self._means),
                )
                yield from self._project(camera, options, visible, part_sizes)
            channels = yield from compositor.steps(visible, camera.near, part_sizes)
        except moderngl.Error as e:
            raise RendererError(f"gl: {error_text(e)}") from e
        self.thinned = compositor.thinned
        return GlPicture(channels.color, channels.depth)

    def free_pictures(self) -> None:
        if not self._closed:
            self._compositor.free_pictures()

    def close(self) -> None:
        """Release every GL object. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._fields.release()
        self._compositor.release()
        self._means = np.empty((0, 3), np.float32)
        self._scene = None
        self._unread = None
        self._flags = None

    def _selected(self, selection: Selection) -> Steps[np.ndarray | None]:
        """Return the steps that find a selection's flags; None if it is everything."""
        if selection == EVERYTHING:
            self._flags = None
            return None
        selected = self._flags
        if selected is None or selected.selection != selection:
            selected = yield partial(_select, self.scene(), selection)
            self._flags = selected
        return selected.flags

    def _sort(
        self, means: np.ndarray, camera: Camera, selected: np.ndarray | None
    ) -> np.ndarray:
        """Return the indices of Gaussians by camera z, nearest first.

        Those between near and far that are selected; the marked ones plus
        `MARKED_FROM`. Any thread may call this.
        """
        axis = camera.viewmat[2, :3]
        # Of Gaussians that are too far away to be seen, z is anything.
        with np.errstate(over="ignore", invalid="ignore"):
            z = means @ axis.astype(np.float32)
            z += np.float32(axis @ self._origin + camera.viewmat[2, 3])
        is_visible = (z >= camera.near) & (z <= camera.far)
        if selected is not None:
            is_visible &= (selected & HIDDEN) == 0
        visible = np.flatnonzero(is_visible)
        # Positive floats order as their bits do. Stable: as in gsplat the Gaussian that
        # comes first in the scene is the nearer one in a tie.
        order = stable_order(z[visible].view(np.int32))
        entries = visible[order].astype(np.int32)
        if selected is not None:
            entries[(selected[entries] & MARKED) != 0] |= MARKED_FROM
        return entries

    def _project(
        self,
        camera: Camera,
        options: RenderOptions,
        visible: int,
        part_sizes: Parts,
    ) -> Steps[None]:
        """Project the first `visible` Gaussians of the order into float textures."""
        rows = ceil_div(visible, self._columns)
        bands = row_bands(rows, self._columns, part_sizes.gaussians)
        for first, band_rows in bands:
            area = (0, first, self._columns, band_rows)
            self._project_area(camera, options, visible, area)
            yield None

    def _project_area(
        self,
        camera: Camera,
        options: RenderOptions,
        visible: int,
        area: tuple[int, int, int, int],
    ) -> None:
        """Project the Gaussians of an area of the float textures."""
        paint = PAINTS[options.paint]
        rows = max(ceil_div(len(self._means), self._columns), 1)
        projected = self._compositor.reserve(self._columns, rows, paint)
        K = camera.K
        limit_low, limit_high = camera.slope_limits()
        rotation = camera.viewmat[:3, :3]
        degree = self._sh_degree
        if options.sh_degree is not None:
            degree = min(options.sh_degree, degree)
        projection = self._compositor.projection(*paint.projection_defines)
        projection.bind_textures(
            order=self._fields["order"],
            gaussians=self._fields["gaussians"],
            shN=self._fields["shN"],
        )
        projection.set_uniforms(
            count=visible,
            columns=self._columns,
            packed_columns=self._layout.packed_columns,
            sh_columns=self._layout.sh_columns,
            sh_stored=self._layout.sh_stored,
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
        with self.ctx.scope(projected, moderngl.NOTHING):
            projected.viewport = area
            projection.draw_fullscreen()
