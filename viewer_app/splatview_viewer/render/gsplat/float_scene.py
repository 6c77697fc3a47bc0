"""Activated Gaussians on a GPU, as pictures of record are drawn from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from splatview_ipc.kinds.gaussians import SH_REST_COUNTS

if TYPE_CHECKING:
    import torch

ARRAYS = ("means", "quats", "scales", "opacities", "colors")
"""Names of a `FloatScene`'s arrays."""


@dataclass(frozen=True)
class FloatScene:
    """N Gaussians to draw from: contiguous, float32, on one device.

    May be the very memory that is activated.
    """

    means: torch.Tensor
    """(N, 3) relative to an origin"""
    quats: torch.Tensor
    """(N, 4) w, x, y, z, of any length but 0; the largest component of activated ones is 1
    or -1"""
    scales: torch.Tensor
    """(N, 3) in world units"""
    opacities: torch.Tensor
    """(N,) in [0, 1]; 0 for a Gaussian that cannot be drawn: one that is not finite
    (`LeftOut`), a scale over `SCALE_MAX` or a quaternion of length zero. gsplat looks at
    nothing else of it"""
    colors: torch.Tensor
    """(N, K, 3); K is 1, 4, 9, 16 or 25"""
    flags: torch.Tensor | None = None
    """(N,) uint8 as `selecting.flags` gives them, for kinds of frames that are
    `selected`"""

    @property
    def count(self) -> int:
        """Return N."""
        return len(self.means)

    @property
    def degree(self) -> int:
        """Return the highest degree that there are coefficients for."""
        return SH_REST_COUNTS.index(self.colors.shape[1] - 1)

    @property
    def sh0(self) -> torch.Tensor:
        """Return the constant coefficients, (N, 3); rows lie apart."""
        return self.colors[:, 0]

    @property
    def shN(self) -> torch.Tensor:  # noqa: N802
        """Return the other coefficients, (N, K-1, 3); rows of (K-1) * 3 lie apart."""
        return self.colors[:, 1:]

    @property
    def layout(self) -> tuple[Any, ...]:
        """Return all that a graph remembers of the tensors, but for `flags`."""
        tensors = [getattr(self, name) for name in ARRAYS]
        return tuple((t.data_ptr(), t.shape) for t in tensors)

    def with_flags(self, flags: torch.Tensor | None) -> FloatScene:
        """Return the same scene with other flags."""
        return replace(self, flags=flags)
