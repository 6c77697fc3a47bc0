"""Gaussians on a GPU as frames of record are drawn from: activated float32 arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class FloatScene:
    """N Gaussians to draw from: contiguous, float32, on one device.

    May be the very memory that is activated.
    """

    means: torch.Tensor
    """(N, 3) relative to an origin"""
    quats: torch.Tensor
    """(N, 4); the largest component is 1 or -1"""
    scales: torch.Tensor
    """(N, 3) in world units"""
    opacities: torch.Tensor
    """(N,) in [0, 1]; 0 for a Gaussian that cannot be drawn: one that is not finite
    (`LeftOut`), a scale over `SCALE_MAX` or a quaternion of length zero. gsplat looks at
    nothing else of it"""
    colors: torch.Tensor
    """(N, K, 3); K is 1, 4, 9, 16 or 25"""
