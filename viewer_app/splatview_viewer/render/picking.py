"""Picking at a pixel: the Gaussian that contributes most, and how far away the surface is.

By the rules of the renderers, so that what is picked is what is seen: exactly, in
float64, on the scene's device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_ipc.kinds.gaussians import SH_REST_COUNTS
from splatview_viewer.geometry.cameras import unproject
from splatview_viewer.render.base import (
    ALPHA_MIN,
    COVARIANCE_MAX,
    EPS_2D,
    TRANSMITTANCE_MIN,
)
from splatview_viewer.scene import EVERYTHING, HIDDEN, flags
from splatview_viewer.scene.scene import (
    FIELDS,
    SH_C0,
    GaussianScene,
    SceneCopy,
    as_floats,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.render.base import RenderOptions, Rules

_CHUNK = 1 << 17
"""Gaussians that are projected at a time."""
_MAX_LAYERS = 8192
"""Gaussians over one pixel that are looked at, the nearest ones: the pixel is opaque long
before as a rule."""
_OUTLINE_SIGMAS = 2.0
"""Standard deviations at which a Gaussian is outlined."""
_OUTLINE_POINTS = 48


@dataclass(frozen=True, eq=False)
class Hit:
    """The result of picking in a pixel."""

    index: int
    """Index of the Gaussian that contributes most, in the given scene."""
    weight: float
    """Its share of the pixel, alpha times transmittance."""
    alpha: float
    """Alpha of the pixel, in [0, 1]."""
    depth: float
    """Expected depth of the pixel: the mean of camera z by weight, world units."""
    point: np.ndarray
    """(3,) float64: the point at that depth on the ray through the pixel's centre, world
    coordinates."""


def pick_later(
    scene: GaussianScene,
    camera: Camera,
    x: float,
    y: float,
    options: RenderOptions,
    rules: Rules,
) -> Callable[[], Hit | None]:
    """Begin to pick in the pixel that holds (x, y) of a picture.

    The returned function does what takes long, in the thread that calls it, and returns
    the result, or None where nothing is. The scene is read as `SceneCopy` says.

    Args:
        scene: activated, as `Renderer.scene()` gives it.
        camera: the camera of the picture.
        x: pixels to the right of the picture's left edge.
        y: pixels below its top edge.
        options: of the picture: mode, scale and selection count; a picture of another
            paint is looked at as if of colours.
        rules: of the renderer that drew it.
    """
    pixel = math.floor(x) + 0.5, math.floor(y) + 0.5
    copy = SceneCopy(
        scene, lambda: _nearest_layers(scene, camera, pixel, options, rules)
    )

    def read() -> Hit | None:
        z, index, alpha = copy.arrays()
        # As the renderers sort: by float32 depth, and as they lie in the scene where that
        # is the same.
        order = np.lexsort((index, z.astype(np.float32)))
        order = order[z[order] < math.inf]
        transmittance = np.cumprod(1 - alpha[order])
        # It falls: these are the layers before the one that ends the pixel.
        count = int((transmittance > TRANSMITTANCE_MIN).sum())
        if not count:
            return None
        layers = order[:count]
        in_front = np.concatenate([[1.0], transmittance[: count - 1]])
        weights = alpha[layers] * in_front
        total = float(weights.sum())
        heaviest = int(np.argmax(weights))
        depth = float(weights @ z[layers]) / total
        return Hit(
            index=int(index[layers[heaviest]]),
            weight=float(weights[heaviest]),
            alpha=total,
            depth=depth,
            point=unproject(camera, *pixel, depth),
        )

    return read


def _nearest_layers(
    scene: GaussianScene,
    camera: Camera,
    pixel: tuple[float, float],
    options: RenderOptions,
    rules: Rules,
) -> list[torch.Tensor]:
    """Return camera z, indices and alpha of `_MAX_LAYERS` Gaussians.

    The nearest that are seen at a pixel come first, then others, at an infinite z.
    """
    import torch

    chunks = []
    for start in range(0, max(len(scene), 1), _CHUNK):
        chunk = scene[start : start + _CHUNK]
        z, alpha = _alpha_at(chunk, camera, pixel, options, rules, start)
        nearest = torch.topk(z, min(_MAX_LAYERS, len(z)), largest=False)
        index = nearest.indices
        chunks.append((nearest.values, index + start, alpha[index]))
    z, index, alpha = (torch.cat(column) for column in zip(*chunks, strict=True))
    z, order = torch.topk(z, min(_MAX_LAYERS, len(z)), largest=False)
    return [z, index[order], alpha[order]]


def _alpha_at(
    scene: GaussianScene,
    camera: Camera,
    pixel: tuple[float, float],
    options: RenderOptions,
    rules: Rules,
    first: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return camera z and alpha of each Gaussian at a pixel; z is infinite if unseen.

    first: the index of the first of them in their scene.
    """
    import torch

    projected = _project(scene, camera, options.scale)
    covariance = blur_covariance(projected.root)
    xx, xy, yy = covariance.entries
    opacities = scene.opacities.double()
    if options.mode == "antialiased":
        compensations = (covariance.sharp_det / covariance.det).sqrt()
        opacities = opacities * compensations.clamp(min=rules.least_compensation)
    z = projected.local[2]
    dx = pixel[0] - projected.center[0]
    dy = pixel[1] - projected.center[1]
    exponent = 0.5 * (yy * dx * dx + xx * dy * dy) - xy * dx * dy
    sigma = exponent / covariance.det
    alpha = (opacities * (-sigma).exp()).clamp(max=rules.alpha_max)
    is_seen = (sigma >= 0) & (xx + yy < COVARIANCE_MAX) & (alpha >= ALPHA_MIN)
    is_seen &= (z >= camera.near) & (z <= camera.far)
    selection = options.selection.unmarked
    if selection != EVERYTHING:
        is_seen &= (flags(scene, selection, first) & HIDDEN) == 0
    return torch.where(is_seen, z, math.inf), alpha


# -- projection ---------------------------------------------------------------------------
# Of M Gaussians, numbers are tensors (M,) float64: a camera's numbers need not come to a
# GPU as tensors, which waits.


class Projected(NamedTuple):
    """Gaussians in a camera's picture. Those behind the camera may be anything."""

    local: Any
    """Centres in camera axes: x, y, z."""
    center: Any
    """Centres in pixels: x, y."""
    root: Any
    """Square roots of their covariances in the picture without the blur, two rows of
    three: root times its transpose."""


def _project(scene: GaussianScene, camera: Camera, scale: float = 1.0) -> Projected:
    """Project Gaussians, their standard deviations times `scale`."""
    rotation = camera.viewmat[:3, :3].tolist()
    translation = camera.viewmat[:3, 3].tolist()
    means = scene.means.double().unbind(1)
    local = [_dot(row, means) + t for row, t in zip(rotation, translation, strict=True)]
    scales = scene.scales.double() * scale
    center, root = project_root(scene.quats.double(), scales, local, camera)
    return Projected(local, center, root)


def project_root(
    quats: torch.Tensor,
    scales: torch.Tensor,
    local: Sequence[torch.Tensor],
    camera: Camera,
) -> tuple[Any, Any]:
    """Return `center` and `root` of `Projected`, in the precision of the arguments."""
    import torch

    rotation = camera.viewmat[:3, :3].tolist()
    w, x, y, z = torch.nn.functional.normalize(quats, dim=1).unbind(1)
    axes = (
        (1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)),
        (2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)),
        (2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)),
    )
    local_axes = []
    for axis, length in zip(axes, scales.unbind(1), strict=True):
        local_axes.append([_dot(row, axis) * length for row in rotation])
    center, jacobian = project_points(local, camera)
    root = []
    for row in jacobian:
        root.append([_dot(row, axis) for axis in local_axes])
    return center, root


def project_points(
    points: Sequence[torch.Tensor], camera: Camera
) -> tuple[list[torch.Tensor], list[list[torch.Tensor]]]:
    """Project points (x, y, z) in camera axes.

    Returns their places (x, y) in pixels, and the Jacobians, two rows of three.
    """
    if camera.model == "fisheye":
        slopes, rows = _project_fisheye(points)
    elif camera.model == "pinhole":
        slopes, rows = _project_pinhole(points, camera)
    else:
        slopes, rows = _project_ortho(points)
    focals = camera.K[[0, 1], [0, 1]].tolist()
    centers = camera.K[:2, 2].tolist()
    pixels = []
    jacobian = []
    for slope, row, focal, c in zip(slopes, rows, focals, centers, strict=True):
        pixels.append(focal * slope + c)
        jacobian.append([focal * value for value in row])
    return pixels, jacobian


def _project_fisheye(points: Sequence[torch.Tensor]) -> tuple[Any, Any]:
    """Return slopes and Jacobian of fisheye_proj for a focal length of 1."""
    import torch

    x, y, z = points
    # gsplat's guard against dividing by 0 on the axis.
    eps = 1e-7
    length = torch.hypot(x, y) + eps
    angle = torch.arctan2(length, z + eps) / length
    xx = x * x + eps
    xy = x * y
    yy = y * y
    square = xx + yy
    inverse = 1 / (square + z * z)
    tangential = torch.arctan2(length, z) / length / square
    radial = z * inverse / square
    mixed = xy * (radial - tangential)
    rows = (
        [xx * radial + yy * tangential, mixed, -x * inverse],
        [mixed, yy * radial + xx * tangential, -y * inverse],
    )
    return (x * angle, y * angle), rows


def _project_pinhole(points: Sequence[torch.Tensor], camera: Camera) -> tuple[Any, Any]:
    """Return slopes and Jacobian of persp_proj for a focal length of 1.

    The slope is clamped in the Jacobian only, not for the centre.
    """
    import torch

    x, y, z = points
    u = x / z
    v = y / z
    low, high = (limits.tolist() for limits in camera.slope_limits())
    zero = torch.zeros_like(z)
    rows = (
        [1 / z, zero, -u.clamp(low[0], high[0]) / z],
        [zero, 1 / z, -v.clamp(low[1], high[1]) / z],
    )
    return (u, v), rows


def _project_ortho(points: Sequence[torch.Tensor]) -> tuple[Any, Any]:
    """Return slopes and Jacobian of an orthographic camera of one pixel a world unit."""
    import torch

    x, y, z = points
    zero = torch.zeros_like(z)
    return (x, y), ([zero + 1, zero, zero], [zero, zero + 1, zero])


class BlurredCovariance(NamedTuple):
    """Covariances in the picture with the blur (add_blur)."""

    entries: list[torch.Tensor]
    """xx, xy, yy."""
    det: torch.Tensor
    sharp_det: torch.Tensor
    """Determinants without the blur."""


def blur_covariance(root: Any) -> BlurredCovariance:
    """Blur projected covariances, given by their square roots, two rows of three."""
    a, b = root
    xx = _dot(a, a)
    xy = _dot(a, b)
    yy = _dot(b, b)
    # |row x row|^2 is the determinant (Cauchy-Binet) without the cancellation of
    # xx yy - xy^2.
    crossed = [a[i - 2] * b[i - 1] - a[i - 1] * b[i - 2] for i in range(3)]
    sharp_det = _dot(crossed, crossed)
    det = sharp_det + EPS_2D * (xx + yy) + EPS_2D**2
    return BlurredCovariance([xx + EPS_2D, xy, yy + EPS_2D], det, sharp_det)


def _dot(a: Any, b: Any) -> Any:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


# -- the numbers of one Gaussian ----------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GaussianValues:
    """The numbers of one Gaussian of one version of a scene, activated."""

    version: int
    mean: np.ndarray
    """(3,) world units."""
    quat: np.ndarray
    """(4,) w, x, y, z."""
    scale: np.ndarray
    """(3,) standard deviations, world units."""
    opacity: float
    sh0: np.ndarray
    """(3,)."""
    shN: np.ndarray  # noqa: N815
    """(K-1, 3)."""

    @property
    def color(self) -> tuple[float, float, float]:
        """RGB in [0, 1] of degree 0 alone."""
        rgb = np.nan_to_num(0.5 + SH_C0 * self.sh0)
        r, g, b = np.clip(rgb, 0, 1).tolist()
        return r, g, b

    @property
    def energies(self) -> list[float]:
        """The sum of squares of the coefficients of each degree from 1 on."""
        squares = (self.shN.astype(np.float64) ** 2).sum(axis=1)
        degrees = range(1, SH_REST_COUNTS.index(len(self.shN)) + 1)
        return [float(squares[d * d - 1 : (d + 1) ** 2 - 1].sum()) for d in degrees]

    def outline(self, camera: Camera, scale: float = 1.0) -> np.ndarray | None:
        """Return the ellipse of its `_OUTLINE_SIGMAS` in a picture, (M, 2) pixels.

        None where it is not seen. scale: as `RenderOptions.scale`.
        """
        opacity = np.array(self.opacity, np.float32)
        rows = (self.mean, self.quat, self.scale, opacity, self.sh0, self.shN)
        scene = GaussianScene.of_arrays(*(row[None] for row in rows), activated=True)
        projected = _project(scene, camera, scale)
        z = float(projected.local[2])
        center = np.squeeze(projected.center, -1)
        root = np.squeeze(projected.root, -1)
        covariance = root @ root.T + EPS_2D * np.eye(2)
        is_finite = np.isfinite(covariance).all() and np.isfinite(center).all()
        if not is_finite or not camera.near <= z <= camera.far:
            return None
        squares, axes = np.linalg.eigh(covariance)
        angles = np.linspace(0, 2 * math.pi, _OUTLINE_POINTS, endpoint=False)
        circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        lengths = np.sqrt(np.maximum(squares, 0))
        return center + _OUTLINE_SIGMAS * (circle * lengths) @ axes.T


def values_later(
    scene: GaussianScene, index: int, version: int
) -> Callable[[], GaussianValues]:
    """Read the numbers of a scene's Gaussian; the returned function waits for them.

    It may be called in any thread. The scene is read as `SceneCopy` says.

    Args:
        scene: activated.
        index: the index of the Gaussian, which is there.
        version: the version of the scene.
    """

    def row() -> list[torch.Tensor]:
        return [as_floats(getattr(scene, name)[index]).clone() for name in FIELDS]

    copy = SceneCopy(scene, row)

    def read() -> GaussianValues:
        mean, quat, scale, opacity, sh0, shN = copy.arrays()
        return GaussianValues(version, mean, quat, scale, float(opacity), sh0, shN)

    return read
