"""A Gaussian scene on the viewer's side, wherever it came from: a stream or a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

SH_C0 = 0.28209479177387814
"""The constant spherical harmonic Y00: RGB = SH_C0 * sh0 + 0.5 (3D Gaussian Splatting, Kerbl et al. 2023)."""


@dataclass(frozen=True)
class GaussianScene:
    """N Gaussians in world space, in OpenCV axes (x right, y down, z forward), as trainers hold them.

    Arrays are float32. They may be views of shared memory that is rewritten later: copy what must stay.
    """

    means: np.ndarray
    """(N, 3) centres in world units."""
    quats: np.ndarray
    """(N, 4) rotations as quaternions w, x, y, z; not normalised."""
    scales: np.ndarray
    """(N, 3) standard deviations along the rotated axes: natural logarithms, or world units if `activated`."""
    opacities: np.ndarray
    """(N,) logits, or values in [0, 1] if `activated`."""
    sh0: np.ndarray
    """(N, 3) coefficients of degree 0, RGB."""
    shN: np.ndarray  # noqa: N815  (gsplat's own name for the field)
    """(N, K-1, 3) coefficients of degrees 1 to 3 (K-1 is 0, 3, 8 or 15), RGB."""
    activated: bool = False
    """Whether `scales` and `opacities` already went through exp and sigmoid."""
    sh_degree: int = 3
    """The degree in use, which a trainer raises as it goes; at most what `shN` holds."""
    antialiased: bool = False
    """Whether the scene was trained with the antialiased (mip) mode."""
    version: int = 0
    """Counts updates of the stream; 0 for a file."""
    notes: tuple[str, ...] = field(default=())
    """What a reader wants said about this scene, one line each."""

    def __len__(self) -> int:
        return len(self.means)

    @property
    def stored_sh_degree(self) -> int:
        """The highest degree for which `shN` holds coefficients."""
        return {0: 0, 3: 1, 8: 2, 15: 3}[self.shN.shape[1]]
