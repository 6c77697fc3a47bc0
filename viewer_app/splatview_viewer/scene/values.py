"""The numbers of one Gaussian."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.kinds.gaussians import SH_REST
from splatview_viewer.render.base import EPS_2D
from splatview_viewer.scene.pick import project
from splatview_viewer.scene.scene import FIELDS, SH_C0, GaussianScene, as_floats

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.geometry.cameras import Camera

_OUTLINE = 2.0
"""Standard deviations at which a Gaussian is outlined."""
_CORNERS = 48


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
