"""Picking at a pixel: the Gaussian that contributes most, its numbers, and how far away the surface is.

By the rules of the renderers, so that what is picked is what is seen. Two steps: bounds find the few Gaussians that may
reach the pixel, on the scene's device; these few are gone through exactly, in NumPy and float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from splatview_ipc.kinds.gaussians import SH_REST
from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.cameras import point_at
from splatview_viewer.render.base import ALPHA_MAX, ALPHA_MIN, COVARIANCE_MAX, EPS_2D, TRANSMITTANCE_MIN
from splatview_viewer.scene import EVERYTHING, HIDDEN, flags
from splatview_viewer.scene.scene import FIELDS, SH_C0, GaussianScene, HostCopy, as_floats

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.render.base import RenderOptions

_MOST = 8192
"""Gaussians over one pixel that are looked at, the nearest ones: the pixel is opaque long before as a rule."""
_OUTLINE = 2.0
"""Standard deviations at which a Gaussian is outlined."""
_CORNERS = 48


@dataclass(frozen=True, eq=False)
class Hit:
    """Pick in a pixel."""

    index: int
    """Index of the Gaussian that contributes most, in the given scene."""
    weight: float
    """Its share of the pixel, alpha times transmittance."""
    alpha: float
    """Alpha of the pixel, in [0, 1]."""
    depth: float
    """Expected depth of the pixel: the mean of camera z by weight, world units."""
    point: np.ndarray
    """(3,) float64: where that is, on the ray through the pixel's centre, world coordinates."""


def pick_later(scene: GaussianScene, camera: Camera, x: float, y: float,
               options: RenderOptions) -> Callable[[], Hit | None]:
    """Begin to pick; the returned function does what takes long, in the thread that calls it, and returns the pick in
    the pixel that holds (x, y) of a picture with these options, or None where nothing is. The scene is read as
    `HostCopy` says.

    Args:
        scene: activated, as `Renderer.scene()` gives it.
        camera: of the picture.
        x: pixels to the right of the picture's left edge.
        y: pixels below its top edge.
        options: mode, scale and selection count; a picture of another paint is looked at as if of colours.
    """
    at = math.floor(x) + 0.5, math.floor(y) + 0.5
    copy = HostCopy(scene, lambda: _nearest(scene, camera, at, options.scale))

    def read() -> Hit | None:
        z, index, *fields = copy.arrays()
        order = np.argsort(index)
        order = order[z[order] < math.inf]
        return _first(index[order], GaussianScene.of_arrays(*(a[order] for a in fields)), camera, at, options)

    return read


def _first(index: np.ndarray, scene: GaussianScene, camera: Camera, at: tuple[float, float],
           options: RenderOptions) -> Hit | None:
    """Return which of a few Gaussians on the CPU contributes most at `at`. `index`: theirs in the whole scene,
    ascending."""
    if not len(index):
        return None
    p, centers, root = _project(scene, camera, options.scale)
    with np.errstate(all="ignore"):  # of those behind the camera, which are not used
        (xx, xy, yy), det, det_sharp = blurred(root)
        opacities = scene.opacities.double().numpy()
        if options.mode == "antialiased":
            opacities = opacities * np.sqrt(det_sharp / det)
        dx, dy = (np.array(at) - centers).T
        sigma = (0.5 * (yy * dx * dx + xx * dy * dy) - xy * dx * dy) / det
        alpha = np.minimum(ALPHA_MAX, opacities * np.exp(-sigma))
        keep = (sigma >= 0) & (xx + yy < COVARIANCE_MAX) & (alpha >= ALPHA_MIN)
    keep &= (p[:, 2] >= camera.near) & (p[:, 2] <= camera.far)
    if (opened := replace(options.selection, marked=())) != EVERYTHING:
        keep &= (flags(scene, opened).numpy() & HIDDEN) == 0
    order = np.flatnonzero(keep)
    # As the renderers sort: by float32 depth, and as they lie in the scene where that is the same.
    order = order[np.argsort(p[order, 2].astype(np.float32), kind="stable")]
    after = np.cumprod(1 - alpha[order])
    count = int((after > TRANSMITTANCE_MIN).sum())  # it falls: those before the one that ends the pixel
    if not count:
        return None
    shown = order[:count]
    weights = alpha[shown] * np.concatenate([[1.0], after[:count - 1]])
    total, best = float(weights.sum()), int(np.argmax(weights))
    depth = float(weights @ p[shown, 2]) / total
    return Hit(int(index[shown[best]]), float(weights[best]), total, depth, point_at(camera, *at, depth))


def _project(scene: GaussianScene, camera: Camera, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Geometry of M Gaussians on the CPU, float64: centres in camera axes (M, 3), places (M, 2) in pixels,
    and square roots (M, 2, 3) of their covariances there, without the blur: root times its transpose. What lies behind
    the camera may be anything."""
    world_to_camera = camera.viewmat[:3, :3]
    p = scene.means.double().numpy() @ world_to_camera.T + camera.viewmat[:3, 3]
    scales = scene.scales.double().numpy() * scale
    with np.errstate(all="ignore"):
        m = world_to_camera @ (rotations.matrix(scene.quats.numpy()) * scales[:, None, :])
        centers, jacobian = places(p, camera)
        return p, centers, jacobian @ m


def places(p: np.ndarray, camera: Camera) -> tuple[np.ndarray, np.ndarray]:
    """Project points (M, 3) in camera axes: places (M, 2) in pixels, and the Jacobians (M, 2, 3)."""
    focal, center = np.array([camera.K[0, 0], camera.K[1, 1]]), camera.K[:2, 2]
    if camera.model == "fisheye":  # fisheye_proj; the small number is gsplat's guard against dividing by 0 on the axis
        eps = 1e-7
        x, y, z = p.T
        length = np.hypot(x, y) + eps
        centers = p[:, :2] * (np.arctan2(length, z + eps) / length)[:, None]
        xx, xy, yy = x * x + eps, x * y, y * y
        square = xx + yy
        inverse = 1 / (square + z * z)
        across, along = np.arctan2(length, z) / length / square, z * inverse / square
        jacobian = np.stack([xx * along + yy * across, xy * (along - across), -x * inverse,
                             xy * (along - across), yy * along + xx * across, -y * inverse], axis=1).reshape(-1, 2, 3)
    else:
        centers, jacobian = p[:, :2], np.zeros((len(p), 2, 3))
        jacobian[:, 0, 0] = jacobian[:, 1, 1] = 1
        if camera.model == "pinhole":  # persp_proj: the slope is clamped in the Jacobian only, not for the centre
            centers = p[:, :2] / p[:, 2:]
            clamped = np.clip(centers, *camera.slope_limits())
            jacobian /= p[:, 2, None, None]
            jacobian[:, :, 2] = -clamped / p[:, 2:]
    return centers * focal + center, jacobian * focal[:, None]


def blurred(root: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """From square roots (M, 2, 3) of projected covariances: xx, xy, yy with the blur (3, M), the determinants (M,) with
    it, and without (add_blur)."""
    cov = root @ root.transpose(0, 2, 1)
    # |row x row|^2 is the determinant (Cauchy-Binet) without the cancellation of xx yy - xy^2.
    det_sharp = (np.cross(root[:, 0], root[:, 1]) ** 2).sum(axis=1)
    det = det_sharp + EPS_2D * (cov[:, 0, 0] + cov[:, 1, 1]) + EPS_2D ** 2
    return np.stack([cov[:, 0, 0] + EPS_2D, cov[:, 0, 1], cov[:, 1, 1] + EPS_2D]), det, det_sharp


# -- those that may reach the pixel ------------------------------------------------------------------------------


def _nearest(scene: GaussianScene, camera: Camera, at: tuple[float, float], scale: float) -> list[torch.Tensor]:
    """Camera z, indices and fields of `_MOST` Gaussians: the nearest that may reach a place of the picture first, then
    others, at an infinite z."""
    import torch

    parts = []
    for start, part in scene.chunks():
        reaches, z = _reaches(part, camera, at, scale)
        z, index = torch.topk(torch.where(reaches, z, math.inf), min(_MOST, len(z)), largest=False)
        parts.append((z, index + start))
    z, index = (torch.cat(part) for part in zip(*parts, strict=True))
    z, which = torch.topk(z, min(_MOST, len(z)), largest=False)
    index = index[which]
    return [z, index, *(as_floats(getattr(scene, name)[index]) for name in FIELDS)]


def _reaches(scene: GaussianScene, camera: Camera, at: tuple[float, float], scale: float
             ) -> tuple[torch.Tensor, torch.Tensor]:
    """Which Gaussians may contribute at a place of a camera's picture (never false for one that does), and camera z,
    float64."""
    import torch

    rotation, translation = camera.viewmat[:3, :3].tolist(), camera.viewmat[:3, 3].tolist()
    axes, scales, opacities = scene.means.double().unbind(1), scene.scales.double(), scene.opacities.double()
    x, y, z = (axes[0] * a + axes[1] * b + axes[2] * c + t for (a, b, c), t in zip(rotation, translation, strict=True))
    fx, fy, cx, cy = (float(v) for v in camera.K[[0, 1, 0, 1], [0, 1, 2, 2]])
    if camera.model == "ortho":
        u, v, norm = x, y, fx * fx + fy * fy
    elif camera.model == "pinhole":
        u, v = x / z, y / z
        low, high = (limits.tolist() for limits in camera.slope_limits())
        a, b = u.clamp(low[0], high[0]), v.clamp(low[1], high[1])
        norm = (fx * fx * (1 + a * a) + fy * fy * (1 + b * b)) / (z * z)
    else:
        # Of the equidistant projection: along the radius, and across it.
        square = x * x + y * y + 1e-7
        length = square.sqrt()
        angle = torch.arctan2(length, z)
        u, v = x * (angle / length), y * (angle / length)
        # Twice as much as that, for gsplat's guard near the axis.
        norm = 2 * max(fx, fy) ** 2 * (1 / (square + z * z) + angle * angle / square)
    far = (fx * u + (cx - at[0])) ** 2 + (fy * v + (cy - at[1])) ** 2
    largest = scale * scales.amax(1)
    # exp(-sigma) opacity = 1/255 at so many standard deviations, squared; no eigenvalue is larger than the trace.
    reach = 2 * (opacities / ALPHA_MIN).clamp(1.0).log()
    near_enough = far <= reach * (1.001 * norm * (largest * largest) + 1.05 * EPS_2D)
    return near_enough & (z >= camera.near * 0.999) & (z <= camera.far * 1.001), z


# -- the numbers of one Gaussian ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Values:
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
        r, g, b = np.clip(np.nan_to_num(0.5 + SH_C0 * self.sh0), 0, 1).tolist()
        return r, g, b

    @property
    def energies(self) -> list[float]:
        """The sum of squares of the coefficients of each degree from 1 on."""
        degrees = SH_REST.index(len(self.shN))
        return [float((self.shN[d * d - 1: (d + 1) ** 2 - 1].astype(np.float64) ** 2).sum())
                for d in range(1, degrees + 1)]

    def outline(self, camera: Camera, scale: float = 1.0) -> np.ndarray | None:
        """(M, 2) pixels: the ellipse that its `_OUTLINE` standard deviations fill in the picture; None where it is not
        seen. `scale`: as `RenderOptions.scale`."""
        rows = self.mean, self.quat, self.scale, np.array(self.opacity, np.float32), self.sh0, self.shN
        one = GaussianScene.of_arrays(*(row[None] for row in rows), activated=True)
        p, centers, root = _project(one, camera, scale)
        if not camera.near <= p[0, 2] <= camera.far:
            return None
        cov = root[0] @ root[0].T + EPS_2D * np.eye(2)
        if not (np.isfinite(cov).all() and np.isfinite(centers).all()):
            return None
        lengths, axes = np.linalg.eigh(cov)
        turn = np.linspace(0, 2 * math.pi, _CORNERS, endpoint=False)
        circle = np.stack([np.cos(turn), np.sin(turn)], axis=1)
        return centers[0] + _OUTLINE * (circle * np.sqrt(np.maximum(lengths, 0))) @ axes.T


def values_later(scene: GaussianScene, index: int, version: int) -> Callable[[], Values]:
    """Read the numbers of a scene's Gaussian `index`, which it has; the returned function waits for them, in any
    thread. The scene is read as `HostCopy` says."""
    copy = HostCopy(scene, lambda: [as_floats(getattr(scene, name)[index]).clone() for name in FIELDS])

    def read() -> Values:
        mean, quat, scale, opacity, sh0, rest = copy.arrays()
        return Values(version, mean, quat, scale, float(opacity), sh0, rest)

    return read
