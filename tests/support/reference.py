"""The slow, readable reference: gsplat's rules in NumPy, float64.

It is for tests and for readers. Each rule names the place in gsplat where it comes from
(files of gsplat/cuda at version 1.5.3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from splatview_viewer.core.errors import RendererError
from splatview_viewer.geometry import rotations
from splatview_viewer.render.activation import activate
from splatview_viewer.render.base import (
    ALPHA_MIN,
    AMBIENT,
    BODY_SIGMAS,
    COLOR_MAX,
    COVARIANCE_MAX,
    LIGHT,
    MARK_COLOR,
    RING_INSIDE,
    RING_PX,
    TRANSMITTANCE_MIN,
    Pixels,
    RenderedPicture,
    Renderer,
    RenderOptions,
    Rules,
)
from splatview_viewer.render.paints import PAINTS
from splatview_viewer.render.picking import blur_covariance, project_points
from splatview_viewer.scene import HIDDEN, MARKED, flags
from splatview_viewer.scene.scene import FIELDS, GaussianScene, empty_scene
from splatview_viewer.scene.turning import harmonics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import moderngl

    from splatview_ipc.gl.base import PixelSource
    from splatview_viewer.geometry.cameras import Camera


@dataclass(frozen=True)
class Bodies:
    """The surfaces of M Gaussians where the density is that at `BODY_SIGMAS`.

    They are in the affine approximation that also makes ellipses of Gaussians: around
    each centre, columns and rows of the picture and camera z are linear in space.

    With v = `whiten` @ (offset in pixels), the surface's front lies at camera z + slope
    . v - thickness * s, where s = sqrt(BODY_SIGMAS ** 2 - v . v); its normal, towards
    the camera and of any length, is (s, v) @ `normals`.
    """

    whiten: np.ndarray
    """(M, 2, 2) from pixels to standard deviations.

    Its transpose times itself is the conic.
    """
    slope: np.ndarray
    """(M, 2) world units along camera z per standard deviation."""
    thickness: np.ndarray
    """(M,) the standard deviation of camera z at one place of the picture."""
    normals: np.ndarray
    """(M, 3, 3) in camera axes."""


@dataclass(frozen=True)
class Projected:
    """The M Gaussians that touch the picture, nearest first, float64, in pixels."""

    centers: np.ndarray
    """(M, 2) x right, y down; the top left pixel's centre is (0.5, 0.5)."""
    conics: np.ndarray
    """(M, 3) the inverse covariance's entries xx, xy, yy, in 1 / square pixels."""
    half_boxes: np.ndarray
    """(M, 2) half the sides of the box outside which alpha is below `ALPHA_MIN`."""
    opacities: np.ndarray
    """(M,)."""
    rgbz: np.ndarray
    """(M, 4) colour and camera z."""
    bodies: Bodies | None = None
    """Their surfaces, where these are drawn."""

    def pixels(self, width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
        """Compute the boxes of pixels whose centres lie in the half boxes.

        Returns:
            First column and row (M, 2), and those after the last, within the picture.
        """
        first = np.ceil(self.centers - self.half_boxes - 0.5)
        low = np.maximum(first, 0).astype(np.int64)
        end = np.floor(self.centers + self.half_boxes - 0.5) + 1
        high = np.minimum(end, [width, height]).astype(np.int64)
        return low, np.maximum(high, low)


@dataclass(frozen=True)
class ReferencePicture(RenderedPicture):
    """Picture of the reference renderer."""

    values: Pixels
    ctx: moderngl.Context | None = None

    def pixels(self) -> Pixels:
        return self.values

    def source(self) -> PixelSource:
        """Make a texture of the renderer's context, which lives as long as the source."""
        from splatview_viewer.render.gl.passes import texture_source

        if self.ctx is None:
            raise RendererError(
                "reference: made without an OpenGL context; only pixels() works"
            )
        rgba = np.dstack([self.values.color, self.values.alpha])
        height, width = rgba.shape[:2]
        data = np.ascontiguousarray(rgba)
        return texture_source(self.ctx.texture((width, height), 4, data, dtype="f4"))


class ReferenceRenderer(Renderer):
    """Draws one Gaussian after another: seconds for 100,000 of them."""

    name = "reference"

    def __init__(
        self, ctx: moderngl.Context | None = None, rules: Rules | None = None
    ) -> None:
        """Make a renderer.

        Args:
            ctx: Only for `Picture.source`.
            rules: Of the gsplat that it stands for; by default 1.5.3.
        """
        self._ctx = ctx
        if rules is not None:
            self.rules = rules
        self._scene = empty_scene()

    def load(
        self, scene: GaussianScene, ready: Callable[[int], None] | None = None
    ) -> None:
        self._check_open()
        a, self.left_out = activate(scene.to_host(ready))
        self._scene = replace(a, **{name: getattr(a, name).clone() for name in FIELDS})

    def render(self, camera: Camera, options: RenderOptions) -> ReferencePicture:
        self._check(camera, 1 << 30)
        projected = None
        if len(self._scene):
            projected = project(self._scene, camera, options, self.rules)
        size = camera.width, camera.height
        if projected is not None and projected.bodies is not None:
            sums, alpha = solid(projected, projected.bodies, camera.near, size)
        else:
            sums, alpha = blend(projected, *size, options, self.rules.alpha_max)
        sums = sums.astype(np.float32)
        depth = None
        if options.depth:
            depth = np.ascontiguousarray(sums[..., 3])
        color = np.ascontiguousarray(sums[..., :3])
        values = Pixels(color, alpha.astype(np.float32), depth)
        return ReferencePicture(values, self._ctx)

    def scene(self) -> GaussianScene:
        self._check_open()
        return self._scene

    def close(self) -> None:
        self._closed = True


def project(
    a: GaussianScene, camera: Camera, options: RenderOptions, rules: Rules
) -> Projected:
    """Project activated Gaussians into the picture, sorted by camera z.

    The source is csrc/ProjectionEWA3DGSFused.cu.
    """
    means, quats, scales, opacities, sh0, higher_sh = (
        getattr(a, name).numpy() for name in FIELDS
    )
    scene_flags = flags(a, options.selection).numpy()
    world_to_camera = camera.viewmat[:3, :3]
    p = means.astype(np.float64) @ world_to_camera.T + camera.viewmat[:3, 3]
    is_in_range = (p[:, 2] >= camera.near) & (p[:, 2] <= camera.far)
    index = np.flatnonzero(is_in_range & ((scene_flags & HIDDEN) == 0))
    p = p[index]
    # The covariance in camera space is m m^T (quat_scale_to_covar_preci and covarW2C in
    # include/Utils.cuh); the rotation is quat_to_rotmat.
    axes = world_to_camera @ rotations.matrix(quats[index])
    m = axes * (scales[index].astype(np.float64) * options.scale)[:, None, :]

    size = np.array([camera.width, camera.height], np.float64)
    centers, jacobian, (xx, xy, yy), det, det_sharp = ellipses(p, camera, m)

    opacities = opacities[index].astype(np.float64)
    by_opacity = PAINTS[options.paint].by_density
    if options.mode == "antialiased" and by_opacity:
        factors = np.sqrt(det_sharp / det)
        opacities = opacities * np.maximum(factors, rules.least_compensation)
    # exp(-sigma) opacity = 1/255 at this many standard deviations.
    if by_opacity:
        sigmas = np.sqrt(2 * np.log(np.maximum(opacities / ALPHA_MIN, 1)))
    else:
        sigmas = np.full(len(p), BODY_SIGMAS)
    half_boxes = sigmas[:, None] * np.sqrt(np.stack([xx, yy], axis=1))
    visible = (opacities >= ALPHA_MIN) & (xx + yy < COVARIANCE_MAX)
    if options.paint == "points":
        half_boxes = np.full((len(p), 2), options.point_reach)
        visible &= ((centers >= 0) & (centers < size)).all(axis=1)
    visible &= ((centers + half_boxes > 0) & (centers - half_boxes < size)).all(axis=1)

    order = np.flatnonzero(visible)
    # gsplat sorts the bits of float32 depths, stably (csrc/IntersectTile.cu).
    order = order[np.argsort(p[order, 2].astype(np.float32), kind="stable")]
    shapes = None
    if options.paint == "ellipsoids":
        covariances = np.stack([xx, xy, yy], axis=1)
        shapes = bodies(jacobian[order], m[order], covariances[order], det[order])
    index = index[order]
    if options.paint == "normals":
        towards = p[order]
        if camera.model == "ortho":
            towards = np.array([[0.0, 0.0, 1.0]])
        rgb = normal_colors(axes[order], scales[index], towards)
    else:
        degree = a.sh_degree
        if options.sh_degree is not None:
            degree = min(options.sh_degree, a.sh_degree)
        # The direction is from the camera's centre to the mean, in world axes
        # (rendering.py).
        directions = p[order] @ world_to_camera
        rgb = colors(sh0[index], higher_sh[index], directions, degree)
    # Numbers have no marks.
    if not PAINTS[options.paint].is_mapped:
        marked = (scene_flags[index] & MARKED) != 0
        rgb[marked] = (rgb[marked] + MARK_COLOR) / 2
    conics = np.stack([yy, -xy, xx], axis=1) / det[:, None]
    return Projected(
        centers=centers[order],
        conics=conics[order],
        half_boxes=half_boxes[order],
        opacities=opacities[order],
        rgbz=np.column_stack([rgb, p[order, 2]]),
        bodies=shapes,
    )


def ellipses(p: np.ndarray, camera: Camera, m: np.ndarray) -> Iterator[np.ndarray]:
    """Project Gaussians at points (M, 3) in camera axes.

    Args:
        p: The points.
        camera: The camera.
        m: (M, 3, 3) square roots of the covariances.

    Returns:
        Places (M, 2) in pixels, Jacobians (M, 2, 3), and what `blur_covariance` returns.
    """
    coordinates, rows = project_points(torch.from_numpy(p).unbind(1), camera)
    jacobian = np.stack([np.stack(row, axis=1) for row in rows], axis=1)
    covariances = blur_covariance(torch.from_numpy(jacobian @ m).permute(1, 2, 0))
    arrays = (np.stack(coordinates, axis=1), jacobian, *covariances)
    return (np.asarray(array) for array in arrays)


def colors(
    sh0: np.ndarray, shN: np.ndarray, directions: np.ndarray, degree: int
) -> np.ndarray:
    """Compute (M, 3) RGB in [0, `COLOR_MAX`] from spherical harmonics.

    They are seen along `directions` (M, 3), of any length.
    """
    length = np.linalg.norm(directions, axis=1, keepdims=True)
    rgb = 0.2820947917738781 * sh0.astype(np.float64)
    if degree:
        values = harmonics(directions / np.where(length > 0, length, 1), degree)
        coefficients = shN[:, : values.shape[1]].astype(np.float64)
        rgb += np.einsum("mk,mkc->mc", values, coefficients)
    return np.clip(rgb + 0.5, 0, COLOR_MAX)


def blend(
    projected: Projected | None,
    width: int,
    height: int,
    options: RenderOptions,
    alpha_max: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Blend Gaussians from front to back (csrc/RasterizeToPixels3DGSFwd.cu).

    Returns:
        Sums (H, W, 4) of weight times RGB and z, and alpha (H, W). For `overdraw`, the
        number of Gaussians stands in place of RGB.
    """
    sums = np.zeros((height, width, 4))
    left = np.ones((height, width))
    finished = np.zeros((height, width), bool)
    counts = np.zeros((height, width))
    if projected is None:
        return sums, counts
    is_counted = PAINTS[options.paint].is_counted
    columns = np.arange(width) + 0.5
    rows = np.arange(height) + 0.5
    for (x0, y0), (x1, y1), (cx, cy), conic, opacity, rgbz in zip(
        *projected.pixels(width, height),
        projected.centers,
        projected.conics,
        projected.opacities,
        projected.rgbz,
        strict=True,
    ):
        box = slice(y0, y1), slice(x0, x1)
        if finished[box].all() and not is_counted:
            continue
        offsets = columns[x0:x1] - cx, (rows[y0:y1] - cy)[:, None]
        alpha, is_covered = coverage(options, offsets, conic, opacity, alpha_max)
        is_covered &= alpha >= ALPHA_MIN
        counts[box] += is_covered
        hit = is_covered & ~finished[box]
        new_left = left[box] * (1 - alpha)
        ends = hit & (new_left <= TRANSMITTANCE_MIN)
        # A pixel stops before the Gaussian that would end it.
        if options.paint not in ("rings", "points"):
            hit &= ~ends
        sums[box] += np.where(hit, alpha * left[box], 0)[..., None] * rgbz
        left[box] = np.where(hit, new_left, left[box])
        finished[box] |= ends
    if is_counted:
        sums[..., :3] = counts[..., None]
        return sums, np.minimum(counts, 1)
    return sums, 1 - left


# -- other paints: `RenderOptions.paint`


def bodies(
    jacobian: np.ndarray, m: np.ndarray, cov: np.ndarray, det: np.ndarray
) -> Bodies:
    """Compute the bodies of Gaussians.

    Args:
        jacobian: (M, 2, 3) of their projection in pixels.
        m: (M, 3, 3) square roots of their covariances in camera space.
        cov: (M, 3) projected covariances with blur: xx, xy, yy.
        det: (M,) determinants of those.
    """
    # The whitening is the Cholesky factor of the conic, in which xx does not occur.
    _, xy, yy = cov.T
    whiten = np.zeros((len(det), 2, 2))
    whiten[:, 0, 0] = np.sqrt(yy / det)
    whiten[:, 0, 1] = -xy / np.sqrt(yy * det)
    whiten[:, 1, 1] = 1 / np.sqrt(yy)
    depth_row = m[:, 2]
    slope = np.einsum("mij,mjk,mkl,ml->mi", whiten, jacobian, m, depth_row)
    variance = (depth_row * depth_row).sum(axis=1) - (slope * slope).sum(axis=1)
    thickness = np.sqrt(np.maximum(variance, 0))
    # How the standard deviations of the picture change in space.
    sides = whiten @ jacobian
    front = np.einsum("mi,mij->mj", slope, sides) - [0, 0, 1]
    normals = np.concatenate([front[:, None], thickness[:, None, None] * sides], axis=1)
    return Bodies(whiten, slope, thickness, normals)


def normal_colors(
    axes: np.ndarray, scales: np.ndarray, towards: np.ndarray
) -> np.ndarray:
    """Compute (M, 3) RGB of the shortest of three axes in camera space.

    Args:
        axes: (M, 3, 3), in columns.
        scales: (M, 3) their lengths; of equal ones the first is taken.
        towards: (M, 3) direction of sight, against which the axis points.
    """
    n = axes[np.arange(len(axes)), :, np.argmin(scales, axis=1)]
    return (np.where((n * towards).sum(axis=1, keepdims=True) > 0, -n, n) + 1) / 2


def coverage(
    options: RenderOptions,
    d: tuple[np.ndarray, np.ndarray],
    conic: np.ndarray,
    opacity: float | np.ndarray,
    alpha_max: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the alpha of Gaussians, and whether they are seen at all.

    Args:
        options: The paint, and the size of points.
        d: Offsets in pixels from their centres.
        conic: Entries xx, xy, yy, each of one Gaussian or broadcast against `d`.
        opacity: Of one Gaussian, or broadcast against `d`.
        alpha_max: Alpha is clamped to this.
    """
    dx, dy = d
    a, b, c = conic
    if options.paint == "points":
        alpha = np.clip(options.point_reach - np.hypot(dx, dy), 0, 1)
        return np.minimum(alpha_max, alpha), alpha > 0
    sigma = 0.5 * (a * dx * dx + c * dy * dy) + b * dx * dy
    if options.paint != "rings":
        return np.minimum(alpha_max, opacity * np.exp(-sigma)), sigma >= 0
    m = np.sqrt(2 * np.maximum(sigma, 0))
    # m times the length of the gradient of m.
    steepness = np.hypot(a * dx + b * dy, b * dx + c * dy)
    # Pixels to the outline, where that is near.
    inwards = (BODY_SIGMAS - m) * m / np.maximum(steepness, 1e-12)
    line = np.clip(np.minimum(inwards, RING_PX + 1 - inwards), 0, 1)
    return np.minimum(alpha_max, np.maximum(line, RING_INSIDE)), m <= BODY_SIGMAS


def solid(
    projected: Projected, shapes: Bodies, near: float, size: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the nearest surface at each pixel; what is nearer than `near` is cut away.

    Returns:
        RGB and camera z (H, W, 4), and alpha (H, W).
    """
    width, height = size
    picture = np.zeros((height, width, 4))
    alpha = np.zeros((height, width))
    nearest = np.full((height, width), np.inf)
    low, high = projected.pixels(width, height)
    for i, ((x0, y0), (x1, y1)) in enumerate(zip(low, high, strict=True)):
        columns, rows = np.meshgrid(np.arange(x0, x1) + 0.5, np.arange(y0, y1) + 0.5)
        v = np.stack([columns, rows], axis=-1) - projected.centers[i]
        v = v @ shapes.whiten[i].T
        square = BODY_SIGMAS**2 - (v * v).sum(axis=-1)
        s = np.sqrt(np.maximum(square, 0))
        z = projected.rgbz[i, 3] + v @ shapes.slope[i] - shapes.thickness[i] * s
        box = slice(y0, y1), slice(x0, x1)
        hit = (square >= 0) & (z >= near) & (z < nearest[box])
        n = np.concatenate([s[..., None], v], axis=-1) @ shapes.normals[i]
        lengths = np.maximum(np.linalg.norm(n, axis=-1), 1e-30)
        brightness = AMBIENT + (1 - AMBIENT) * np.maximum((n @ LIGHT) / lengths, 0)
        shaded = projected.rgbz[i, :3] * brightness[..., None]
        surface = np.concatenate([shaded, z[..., None]], axis=-1)
        picture[box] = np.where(hit[..., None], surface, picture[box])
        nearest[box] = np.where(hit, z, nearest[box])
        alpha[box][hit] = 1
    return picture, alpha
