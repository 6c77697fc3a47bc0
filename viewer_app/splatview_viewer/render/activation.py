"""From what trainers store to what renderers use: exp, sigmoid, unit quaternions, and what cannot be drawn."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.render.base import SCALE_MAX, SH_MAX, LeftOut
from splatview_viewer.scene.scene import FIELDS, GaussianScene

if TYPE_CHECKING:
    import torch


def activate(scene: GaussianScene) -> tuple[GaussianScene, LeftOut]:
    """Apply the activations of a scene on the CPU; float32, `means` also float64. May share memory with it: upload or
    copy the result before that changes.

    Those that cannot be drawn get opacity 0 and a centre of NaN, and are counted: gsplat's arithmetic gives NaN for
    them, or they are too large for any picture. They are what is not finite after the activation, a scale over
    `SCALE_MAX`, a quaternion of length zero. Opacities beyond 0 to 1, and coefficients beyond `SH_MAX`, count as the
    nearest number that is possible.
    """
    import torch

    means, quats, scales, opacities, sh0, rest = (
        getattr(scene, name) for name in FIELDS
    )
    logarithms = scales
    if not scene.activation.scales:
        scales = scales.exp()
        # What exp does not make finite, and no more: a flat Gaussian's logarithm is minus infinity.
        logarithms = logarithms.clamp(min=0)
    if not scene.activation.opacities:
        opacities = opacities.sigmoid()
    finite = torch.ones(len(scene), dtype=torch.bool)
    for values in (means, quats, logarithms, opacities, sh0, rest):
        if not values.sum().isfinite():  # which is quicker to find than each
            finite &= values.isfinite().reshape(len(scene), -1).all(1)
    fits = (scales.abs() <= SCALE_MAX).all(1)
    # Lengths in float64: the square of a small component would vanish in float32, that of a large one overflow.
    length = quats.double().norm(dim=1)
    turned = length > 0
    keep = finite & fits & turned
    if not keep.all():
        means = torch.where(keep[:, None], means, math.nan)
        opacities = torch.where(keep, opacities, 0.0)
    left_out = LeftOut(
        *(int(why.sum()) for why in (~finite, finite & ~fits, finite & fits & ~turned))
    )
    made = GaussianScene(
        means,
        (quats / length[:, None]).float(),
        scales,
        opacities.clamp(0, 1),
        _possible(sh0),
        _possible(rest),
        activated=True,
        sh_degree=min(scene.sh_degree, scene.stored_sh_degree),
    )
    return made, left_out


def _possible(coefficients: torch.Tensor) -> torch.Tensor:
    """Return the coefficients, or a copy in which none is beyond `SH_MAX`."""
    if not coefficients.numel() or all(
        abs(end) <= SH_MAX for end in coefficients.aminmax()
    ):
        return coefficients
    return coefficients.clamp(-SH_MAX, SH_MAX)


def middle(points: np.ndarray) -> tuple[np.ndarray, float]:
    """(3,) float64: a point in the middle of (M, 3), wherever a few of them are, and how far the others reach along an
    axis, most of them; the origin and 0 for none.
    """
    points = points[np.isfinite(points).all(axis=1)]
    if not len(points):
        return np.zeros(3), 0.0
    center = np.median(points.astype(np.float64), axis=0)
    return center, float(np.median(np.abs(points - center).max(axis=1)))
