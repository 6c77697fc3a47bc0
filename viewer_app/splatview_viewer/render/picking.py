"""What a picture shows at a pixel: the Gaussian that contributes most, its numbers, and how far away the surface is.

By the rules of the renderers (`reference.py`), so that what is picked is what is seen. Two steps:
bounds find the few Gaussians that may reach the pixel, where the scene lies, NumPy or CUDA; these few are gone through
exactly, in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.kinds.gaussians import SH_REST
from splatview_viewer.geometry.cameras import point_at
from splatview_viewer.render.base import ALPHA_MAX, ALPHA_MIN, COVARIANCE_MAX, EPS_2D, TRANSMITTANCE_MIN
from splatview_viewer.render.reference import places, rotations
from splatview_viewer.scene.scene import FIELDS, SH_C0, GaussianScene, as_floats
from splatview_viewer.scene.selection import EVERYTHING, HIDDEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.render.base import RenderOptions

_CHUNK = 1 << 16
"""Gaussians that are looked at in one go in host memory: what comes between stays in the processor's cache."""
_CHUNK_GPU = 1 << 21
_OUTLINE = 2.0
"""Standard deviations at which a Gaussian is outlined."""
_CORNERS = 48
_MOST = 8192
"""Gaussians over one pixel that are looked at on a GPU, the nearest ones: the pixel is opaque long before as a rule."""


@dataclass(frozen=True, eq=False)
class Hit:
    """What is seen in a pixel."""

    index: int
    """Of the Gaussian that contributes most, into the scene that was asked."""
    weight: float
    """Its share of the pixel, alpha times transmittance."""
    alpha: float
    """Of the pixel: what all of them contribute, in [0, 1]."""
    depth: float
    """Expected depth of the pixel: the mean of camera z by weight, world units."""
    point: np.ndarray
    """(3,) float64: where that is, on the ray through the pixel's centre, world coordinates."""


def pick(scene: GaussianScene, camera: Camera, x: float, y: float, options: RenderOptions) -> Hit | None:
    """What a picture with these options shows in the pixel that holds (x, y); None where nothing is.

    Takes some 60 ms for a million Gaussians in host memory, and waits for the GPU where the scene lies there:
    `pick_later` does neither.

    Args:
        scene: activated, as `Renderer.scene()` gives it.
        camera: of the picture.
        x: pixels to the right of the picture's left edge.
        y: pixels below its top edge.
        options: mode, scale and selection count; a picture of another paint is looked at as if of colours.
    """
    return pick_later(scene, camera, x, y, options)()


def pick_later(scene: GaussianScene, camera: Camera, x: float, y: float,
               options: RenderOptions) -> Callable[[], Hit | None]:
    """As `pick`, but what takes long is done by what is returned, in whichever thread that is called.

    A scene on a GPU is looked at on torch's current stream, without waiting: it may be overwritten there afterwards.
    One in host memory has to stay as it is until the answer has come.
    """
    at = math.floor(x) + 0.5, math.floor(y) + 0.5
    if not scene.on_gpu:
        return lambda: _first(_near(scene, camera, at, options), camera, at, options)
    few = _near_on_gpu(scene, camera, at, options)
    return lambda: _first(few(), camera, at, options)


def _first(few: tuple[np.ndarray, GaussianScene], camera: Camera, at: tuple[float, float],
           options: RenderOptions) -> Hit | None:
    """Which of a few Gaussians contributes most at `at`: their indices, ascending, and they themselves."""
    index, scene = few
    if not len(index):
        return None
    keep = np.ones(len(index), bool)
    if (opened := replace(options.selection, marked=())) != EVERYTHING:
        keep = (np.asarray(opened.flags(scene)) & HIDDEN) == 0
    p, alpha = _alphas(scene, camera, at, options)
    keep &= (p[:, 2] >= camera.near) & (p[:, 2] <= camera.far) & (alpha >= ALPHA_MIN)
    order = np.flatnonzero(keep)
    # As the renderers sort: by float32 depth, and as they lie in the scene where that is the same.
    order = order[np.argsort(p[order, 2].astype(np.float32), kind="stable")]
    after = np.cumprod(1 - alpha[order])
    shown = after > TRANSMITTANCE_MIN
    shown = order[: len(order) if shown.all() else int(np.argmin(shown))]
    if not len(shown):
        return None
    before = np.concatenate([[1.0], after[: len(shown) - 1]])
    weights = alpha[shown] * before
    total = float(weights.sum())
    best = int(np.argmax(weights))
    depth = float(weights @ p[shown, 2]) / total
    return Hit(int(index[shown[best]]), float(weights[best]), total, depth, point_at(camera, *at, depth))


def project(scene: GaussianScene, camera: Camera, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of M Gaussians in host memory, float64: centres in camera axes (M, 3), places in the picture (M, 2) in pixels,
    and square roots (M, 2, 3) of their covariances there, without the blur: root times its transpose. What lies behind
    the camera may be anything."""
    world_to_camera = camera.viewmat[:3, :3]
    p = np.asarray(scene.means, np.float64) @ world_to_camera.T + camera.viewmat[:3, 3]
    scales = np.asarray(scene.scales, np.float64) * scale
    with np.errstate(all="ignore"):
        m = world_to_camera @ (rotations(np.asarray(scene.quats)) * scales[:, None, :])
        centers, jacobian = places(p, camera)
        return p, centers, jacobian @ m


def _alphas(scene: GaussianScene, camera: Camera, at: tuple[float, float],
            options: RenderOptions) -> tuple[np.ndarray, np.ndarray]:
    """Centres in camera axes (M, 3) and alphas at `at` (M,), 0 where nothing is drawn; float64."""
    p, centers, root = project(scene, camera, options.scale)
    with np.errstate(all="ignore"):  # of those behind the camera, which are not used
        cov = root @ root.transpose(0, 2, 1)
        det_sharp = (np.cross(root[:, 0], root[:, 1]) ** 2).sum(axis=1)
        det = det_sharp + EPS_2D * (cov[:, 0, 0] + cov[:, 1, 1]) + EPS_2D ** 2
        xx, xy, yy = cov[:, 0, 0] + EPS_2D, cov[:, 0, 1], cov[:, 1, 1] + EPS_2D
        opacities = np.asarray(scene.opacities, np.float64)
        if options.mode == "antialiased":
            opacities = opacities * np.sqrt(det_sharp / det)
        dx, dy = (np.array(at) - centers).T
        sigma = (0.5 * (yy * dx * dx + xx * dy * dy) - xy * dx * dy) / det
        alpha = np.minimum(ALPHA_MAX, opacities * np.exp(-sigma))
        return p, np.where((sigma >= 0) & (xx + yy < COVARIANCE_MAX), alpha, 0.0)


# -- those that may reach the pixel ------------------------------------------------------------------------------


def _near(scene: GaussianScene, camera: Camera, at: tuple[float, float],
          options: RenderOptions) -> tuple[np.ndarray, GaussianScene]:
    found = [np.empty(0, np.int64)]
    for start in range(0, len(scene), _CHUNK):
        rows = slice(start, start + _CHUNK)
        with np.errstate(all="ignore"):
            reaches, _ = _reaches(np, scene.means[rows], scene.scales[rows], scene.opacities[rows], (camera, at),
                                  options.scale)
        found.append(np.flatnonzero(reaches) + start)
    index = np.concatenate(found)
    return index, _rows(scene, index)


def _near_on_gpu(scene: GaussianScene, camera: Camera, at: tuple[float, float],
                 options: RenderOptions) -> Callable[[], tuple[np.ndarray, GaussianScene]]:
    """What gives the nearest `_MOST` of them, once the GPU has done its work, all of which it is given at once."""
    import torch

    with torch.no_grad(), torch.cuda.device(scene.gpu):
        parts = []
        for start in range(0, max(len(scene), 1), _CHUNK_GPU):
            rows = slice(start, start + _CHUNK_GPU)
            reaches, z = _reaches(torch, scene.means[rows], scene.scales[rows], scene.opacities[rows], (camera, at),
                                  options.scale)
            z = torch.where(reaches, z, math.inf)
            nearest, index = torch.topk(z, min(_MOST, len(z)), largest=False)
            parts.append((nearest, index + start))
        z, index = (torch.cat(part) for part in zip(*parts, strict=True))
        if len(parts) > 1:
            z, which = torch.topk(z, min(_MOST, len(z)), largest=False)
            index = index[which]
        arrays = {name: getattr(scene, name)[index] for name in FIELDS}
        copies = {name: as_floats(t).to("cpu", non_blocking=True) for name, t in arrays.items()}  # into pinned memory
        far, place = z.to("cpu", non_blocking=True), index.to("cpu", non_blocking=True)
        done = torch.cuda.Event(blocking=True)
        done.record()

    def few() -> tuple[np.ndarray, GaussianScene]:
        done.synchronize()
        there = far.numpy() < math.inf
        rows = place.numpy()[there]
        order = np.argsort(rows)
        host = {name: t.numpy()[there][order] for name, t in copies.items()}
        return rows[order], replace(scene, **host)

    return few


def _rows(scene: GaussianScene, index: np.ndarray) -> GaussianScene:
    return replace(scene, **{name: getattr(scene, name)[index] for name in FIELDS})


def _reaches(xp: Any, means: Any, scales: Any, opacities: Any, where: tuple[Camera, tuple[float, float]],
             scale: float) -> tuple[Any, Any]:
    """Which of these may contribute at a place of a camera's picture (never false for one that does), and camera z,
    float64 arrays of `xp`, NumPy or torch."""
    camera, at = where
    rotation, translation = camera.viewmat[:3, :3].tolist(), camera.viewmat[:3, 3].tolist()
    if xp is np:
        means, scales, opacities = (a.astype(np.float64) for a in (means, scales, opacities))
    else:
        means, scales, opacities = means.double(), scales.double(), opacities.double()
    axes = [means[:, 0], means[:, 1], means[:, 2]]
    x, y, z = (sum((a * r for a, r in zip(axes, row, strict=True)), t)
               for row, t in zip(rotation, translation, strict=True))
    fx, fy, cx, cy = (float(v) for v in camera.K[[0, 1, 0, 1], [0, 1, 2, 2]])
    if camera.model == "ortho":
        u, v, norm = x, y, fx * fx + fy * fy
    elif camera.model == "pinhole":
        u, v = x / z, y / z
        low, high = camera.slope_limits()
        a, b = xp.clip(u, *(float(k) for k in (low[0], high[0]))), xp.clip(v, *(float(k) for k in (low[1], high[1])))
        norm = (fx * fx * (1 + a * a) + fy * fy * (1 + b * b)) / (z * z)
    else:
        # Of the equidistant projection: along the radius, and across it.
        square = x * x + y * y + 1e-7
        length = xp.sqrt(square)
        angle = xp.arctan2(length, z)
        u, v = x * (angle / length), y * (angle / length)
        # Twice as much as that, for gsplat's guard near the axis.
        norm = 2 * max(fx, fy) ** 2 * (1 / (square + z * z) + angle * angle / square)
    far = (fx * u + (cx - at[0])) ** 2 + (fy * v + (cy - at[1])) ** 2
    largest = scale * (scales.max(axis=1) if xp is np else scales.amax(1))
    # exp(-sigma) opacity = 1/255 at so many standard deviations, squared; no eigenvalue is larger than the trace.
    reach = 2 * xp.log(xp.clip(opacities / ALPHA_MIN, 1.0, None))
    near_enough = far <= reach * (1.001 * norm * (largest * largest) + 1.05 * EPS_2D)
    return near_enough & (z >= camera.near * 0.999) & (z <= camera.far * 1.001), z


# -- the numbers of one Gaussian ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Values:
    """Of one Gaussian of one version of a scene, activated."""

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
        one = GaussianScene(self.mean[None], self.quat[None], self.scale[None], np.ones(1, np.float32), self.sh0[None],
                            self.shN[None], activated=True)
        p, centers, root = project(one, camera, scale)
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
    """The numbers of a scene's Gaussian `index`, which it has: read now, on torch's current stream where it lies on a
    GPU, and told by what is returned, which waits for that; in any thread."""
    if not scene.on_gpu:
        rows: list[Any] = [np.array(getattr(scene, name)[index]) for name in FIELDS]
        return lambda: _values(rows, version)
    import torch

    with torch.no_grad(), torch.cuda.device(scene.gpu):
        parts: list[Any] = [as_floats(getattr(scene, name)[index]) for name in FIELDS]
        row = torch.cat([part.reshape(-1) for part in parts]).to("cpu", non_blocking=True)  # into pinned memory
        done = torch.cuda.Event(blocking=True)
        done.record()

    def tell() -> Values:
        done.synchronize()
        ends = np.cumsum([part.numel() for part in parts])[:-1]
        return _values([a.reshape(tuple(part.shape)) for a, part in zip(np.split(row.numpy().copy(), ends), parts,
                                                                         strict=True)], version)

    return tell


def _values(rows: list[Any], version: int) -> Values:
    mean, quat, scale, opacity, sh0, rest = rows
    return Values(version, mean, quat, scale, float(opacity), sh0, rest)
