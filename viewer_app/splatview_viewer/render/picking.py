"""Picking at a pixel: the Gaussian that contributes most, its numbers, and how far away the surface is.

By the rules of the renderers, so that what is picked is what is seen: exactly, in float64, on the scene's device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.kinds.gaussians import SH_REST
from splatview_viewer.geometry.cameras import point_at
from splatview_viewer.render.base import (
    ALPHA_MAX,
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
    HostCopy,
    as_floats,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.render.base import RenderOptions

_CHUNK = 1 << 17
"""Gaussians that are projected at a time."""
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


def pick_later(
    scene: GaussianScene, camera: Camera, x: float, y: float, options: RenderOptions
) -> Callable[[], Hit | None]:
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
    copy = HostCopy(scene, lambda: _nearest(scene, camera, at, options))

    def read() -> Hit | None:
        z, index, alpha = copy.arrays()
        # As the renderers sort: by float32 depth, and as they lie in the scene where that is the same.
        order = np.lexsort((index, z.astype(np.float32)))
        order = order[z[order] < math.inf]
        after = np.cumprod(1 - alpha[order])
        count = int(
            (after > TRANSMITTANCE_MIN).sum()
        )  # it falls: those before the one that ends the pixel
        if not count:
            return None
        shown = order[:count]
        weights = alpha[shown] * np.concatenate([[1.0], after[: count - 1]])
        total = float(weights.sum())
        best = int(np.argmax(weights))
        depth = float(weights @ z[shown]) / total
        return Hit(
            int(index[shown[best]]),
            float(weights[best]),
            total,
            depth,
            point_at(camera, *at, depth),
        )

    return read


def _nearest(
    scene: GaussianScene,
    camera: Camera,
    at: tuple[float, float],
    options: RenderOptions,
) -> list[torch.Tensor]:
    """Camera z, indices and alpha of `_MOST` Gaussians: the nearest that are seen at a place of the picture first, then
    others, at an infinite z.
    """
    import torch

    opened = replace(options.selection, marked=())
    parts = []
    for start in range(0, max(len(scene), 1), _CHUNK):
        part = scene[start : start + _CHUNK]
        (*_, z), (u, v), root = _project(part, camera, options.scale)
        (xx, xy, yy), det, det_sharp = blurred(root)
        opacities = part.opacities.double()
        if options.mode == "antialiased":
            opacities = opacities * (det_sharp / det).sqrt()
        dx = at[0] - u
        dy = at[1] - v
        sigma = (0.5 * (yy * dx * dx + xx * dy * dy) - xy * dx * dy) / det
        alpha = (opacities * (-sigma).exp()).clamp(max=ALPHA_MAX)
        seen = (sigma >= 0) & (xx + yy < COVARIANCE_MAX) & (alpha >= ALPHA_MIN)
        seen &= (z >= camera.near) & (z <= camera.far)
        if opened != EVERYTHING:
            seen &= (flags(part, opened) & HIDDEN) == 0
        z, index = torch.topk(
            torch.where(seen, z, math.inf), min(_MOST, len(z)), largest=False
        )
        parts.append((z, index + start, alpha[index]))
    z, index, alpha = (torch.cat(part) for part in zip(*parts, strict=True))
    z, which = torch.topk(z, min(_MOST, len(z)), largest=False)
    return [z, index[which], alpha[which]]


# Of M Gaussians, numbers are tensors (M,) float64: a camera's numbers need not come to a GPU as tensors, which waits.


def _project(
    scene: GaussianScene, camera: Camera, scale: float = 1.0
) -> tuple[Any, Any, Any]:
    """Centres of Gaussians in camera axes (x, y, z), their places (x, y) in pixels, and square roots of their
    covariances there, two rows of three, without the blur: root times its transpose. What lies behind the camera may be
    anything.
    """
    import torch

    turn = camera.viewmat[:3, :3].tolist()
    shift = camera.viewmat[:3, 3].tolist()
    means = scene.means.double().unbind(1)
    scales = (scene.scales.double() * scale).unbind(1)
    w, x, y, z = torch.nn.functional.normalize(scene.quats.double(), dim=1).unbind(1)
    axes = (
        (1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)),
        (2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)),
        (2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)),
    )
    p = [_dot(row, means) + t for row, t in zip(turn, shift, strict=True)]
    seen = [
        [_dot(row, axis) * s for row in turn]
        for axis, s in zip(axes, scales, strict=True)
    ]
    center, jacobian = places(p, camera)
    return p, center, [[_dot(row, axis) for axis in seen] for row in jacobian]


def places(
    p: Sequence[torch.Tensor], camera: Camera
) -> tuple[list[torch.Tensor], list[list[torch.Tensor]]]:
    """Project points (x, y, z) in camera axes: places (x, y) in pixels, and the Jacobians, two rows of three."""
    import torch

    x, y, z = p
    (fx, fy), (cx, cy) = (camera.K[[0, 1], [0, 1]].tolist(), camera.K[:2, 2].tolist())
    nothing = torch.zeros_like(z)
    if (
        camera.model == "fisheye"
    ):  # fisheye_proj; the small number is gsplat's guard against dividing by 0 on the axis
        eps = 1e-7
        length = torch.hypot(x, y) + eps
        angle = torch.arctan2(length, z + eps) / length
        u = x * angle
        v = y * angle
        xx = x * x + eps
        xy = x * y
        yy = y * y
        square = xx + yy
        inverse = 1 / (square + z * z)
        across = torch.arctan2(length, z) / length / square
        along = z * inverse / square
        mixed = xy * (along - across)
        rows = (
            [xx * along + yy * across, mixed, -x * inverse],
            [mixed, yy * along + xx * across, -y * inverse],
        )
    elif (
        camera.model == "pinhole"
    ):  # persp_proj: the slope is clamped in the Jacobian only, not for the centre
        u = x / z
        v = y / z
        low, high = (limits.tolist() for limits in camera.slope_limits())
        rows = (
            [1 / z, nothing, -u.clamp(low[0], high[0]) / z],
            [nothing, 1 / z, -v.clamp(low[1], high[1]) / z],
        )
    else:
        u = x
        v = y
        rows = ([nothing + 1, nothing, nothing], [nothing, nothing + 1, nothing])
    return [fx * u + cx, fy * v + cy], [
        [f * value for value in row] for f, row in zip((fx, fy), rows, strict=True)
    ]


def blurred(root: Any) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    """From square roots of projected covariances, two rows of three: xx, xy, yy with the blur, the determinants with
    it, and without (add_blur).
    """
    a, b = root
    xx = _dot(a, a)
    xy = _dot(a, b)
    yy = _dot(b, b)
    # |row x row|^2 is the determinant (Cauchy-Binet) without the cancellation of xx yy - xy^2.
    crossed = [a[i - 2] * b[i - 1] - a[i - 1] * b[i - 2] for i in range(3)]
    det_sharp = _dot(crossed, crossed)
    return (
        [xx + EPS_2D, xy, yy + EPS_2D],
        det_sharp + EPS_2D * (xx + yy) + EPS_2D**2,
        det_sharp,
    )


def _dot(a: Any, b: Any) -> Any:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


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
        return [
            float(
                (self.shN[d * d - 1 : (d + 1) ** 2 - 1].astype(np.float64) ** 2).sum()
            )
            for d in range(1, degrees + 1)
        ]

    def outline(self, camera: Camera, scale: float = 1.0) -> np.ndarray | None:
        """(M, 2) pixels: the ellipse that its `_OUTLINE` standard deviations fill in the picture; None where it is not
        seen. `scale`: as `RenderOptions.scale`.
        """
        rows = (
            self.mean,
            self.quat,
            self.scale,
            np.array(self.opacity, np.float32),
            self.sh0,
            self.shN,
        )
        one = GaussianScene.of_arrays(*(row[None] for row in rows), activated=True)
        (*_, z), center, root = (
            np.squeeze(values, -1) for values in _project(one, camera, scale)
        )
        cov = root @ root.T + EPS_2D * np.eye(2)
        if not (
            camera.near <= z <= camera.far
            and np.isfinite(cov).all()
            and np.isfinite(center).all()
        ):
            return None
        lengths, axes = np.linalg.eigh(cov)
        turn = np.linspace(0, 2 * math.pi, _CORNERS, endpoint=False)
        circle = np.stack([np.cos(turn), np.sin(turn)], axis=1)
        return center + _OUTLINE * (circle * np.sqrt(np.maximum(lengths, 0))) @ axes.T


def values_later(
    scene: GaussianScene, index: int, version: int
) -> Callable[[], Values]:
    """Read the numbers of a scene's Gaussian `index`, which it has; the returned function waits for them, in any
    thread. The scene is read as `HostCopy` says.
    """
    copy = HostCopy(
        scene,
        lambda: [as_floats(getattr(scene, name)[index]).clone() for name in FIELDS],
    )

    def read() -> Values:
        mean, quat, scale, opacity, sh0, rest = copy.arrays()
        return Values(version, mean, quat, scale, float(opacity), sh0, rest)

    return read
