"""The numbers of one Gaussian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_ipc.kinds.gaussians import SH_REST
from splatview_viewer.scene.scene import FIELDS, SH_C0, GaussianScene, HostCopy, as_floats

if TYPE_CHECKING:
    from collections.abc import Callable


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

    @property
    def scene(self) -> GaussianScene:
        """Return a scene of this Gaussian alone."""
        rows = self.mean, self.quat, self.scale, np.array(self.opacity, np.float32), self.sh0, self.shN
        return GaussianScene.of_arrays(*(row[None] for row in rows), activated=True)


def values_later(scene: GaussianScene, index: int, version: int) -> Callable[[], Values]:
    """Read the numbers of a scene's Gaussian `index`, which it has; the returned function waits for them, in any
    thread. The scene is read as `HostCopy` says."""
    copy = HostCopy(scene, lambda: [as_floats(getattr(scene, name)[index]).clone() for name in FIELDS])

    def read() -> Values:
        mean, quat, scale, opacity, sh0, rest = copy.arrays()
        return Values(version, mean, quat, scale, float(opacity), sh0, rest)

    return read
