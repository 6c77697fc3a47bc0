"""From the values that trainers store to those that renderers use.

That is exp, sigmoid, unit quaternions, and Gaussians that cannot be drawn.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.render.base import SCALE_MAX, SH_MAX, LeftOut
from splatview_viewer.scene.scene import FIELDS, GaussianScene

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


def activate(scene: GaussianScene) -> tuple[GaussianScene, LeftOut]:
    """Apply the activations of a scene where it lies, and count what cannot be drawn.

    The result is on the scene's device, float32 where the scene is, `means` also float64.
    It may share memory with the scene: upload or copy it before that changes.

    Gaussians that cannot be drawn get opacity 0 and a centre of NaN: gsplat's arithmetic
    gives NaN for them, or they are too large for any picture. They are not finite after
    the activation, have a scale over `SCALE_MAX`, or a quaternion of length zero.
    Opacities beyond 0 to 1, and coefficients beyond `SH_MAX`, count as the nearest number
    that is possible.
    """
    import torch

    means, quats, scales, opacities, sh0, shN = (
        getattr(scene, name) for name in FIELDS
    )
    log_scales = scales
    if not scene.activation.scales:
        scales = scales.exp()
        # exp makes every negative number finite: the logarithm of a flat Gaussian's scale
        # is minus infinity.
        log_scales = log_scales.clamp(min=0)
    if not scene.activation.opacities:
        opacities = opacities.sigmoid()
    is_finite = _finite_rows((means, quats, log_scales, opacities, sh0, shN))
    is_small = (scales.abs() <= SCALE_MAX).all(1)
    # Lengths in float64: the square of a small component would vanish in float32, that of
    # a large one overflow.
    lengths = quats.double().norm(dim=1)
    has_rotation = lengths > 0
    is_drawable = is_finite & is_small & has_rotation
    if not is_drawable.all():
        means = torch.where(is_drawable[:, None], means, math.nan)
        opacities = torch.where(is_drawable, opacities, 0.0)
    left_out = LeftOut(
        not_finite=int((~is_finite).sum()),
        too_large=int((is_finite & ~is_small).sum()),
        no_rotation=int((is_finite & is_small & ~has_rotation).sum()),
    )
    active = GaussianScene(
        means,
        (quats / lengths[:, None]).float(),
        scales,
        opacities.clamp(0, 1),
        _clamp_coefficients(sh0),
        _clamp_coefficients(shN),
        activated=True,
        sh_degree=min(scene.sh_degree, scene.stored_sh_degree),
    )
    return active, left_out


def _finite_rows(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return (N,) bool: the rows that are finite in all tensors (N, ...)."""
    import torch

    rows = tensors[0]
    is_finite = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    for values in tensors:
        # The sum tells quickly that all are finite.
        if not values.sum().isfinite():
            is_finite &= values.isfinite().reshape(len(values), -1).all(1)
    return is_finite


def _clamp_coefficients(coefficients: torch.Tensor) -> torch.Tensor:
    """Return the coefficients, or a copy in which none is beyond `SH_MAX`."""
    if not coefficients.numel():
        return coefficients
    smallest, largest = coefficients.aminmax()
    if abs(smallest) <= SH_MAX and abs(largest) <= SH_MAX:
        return coefficients
    return coefficients.clamp(-SH_MAX, SH_MAX)


def center_and_size(points: np.ndarray) -> tuple[np.ndarray, float]:
    """Return a point in the middle of points (M, 3), and how far most others reach.

    The point is (3,) float64; the size is along an axis. The origin and 0 without points.
    """
    points = points[np.isfinite(points).all(axis=1)]
    if not len(points):
        return np.zeros(3), 0.0
    center = np.median(points.astype(np.float64), axis=0)
    return center, float(np.median(np.abs(points - center).max(axis=1)))
