"""Parts of a scene that outlast its arrays: facts, a sample of its Gaussians, and hints about its numbers."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.geometry.cameras import NEAR, Camera, bounds, frame_points, intrinsics
from splatview_viewer.scene.scene import GaussianScene, HostCopy
from splatview_viewer.ui.widgets import Hint

if TYPE_CHECKING:
    from collections.abc import Callable


_VISIBLE = 0.05
"""Gaussians of at most this opacity do not count when a scene is framed."""
_SAMPLE = 200_000
"""Gaussians that are looked at to frame a scene."""


def hint_of(scene: GaussianScene, ready: Callable[[int], None] | None) -> Hint | None:
    """Return the form that a scene's numbers seem to have, unless their publisher says so. `ready`: as for
    `GaussianScene.to_host`; waits for the GPU."""
    step = max(len(scene) // 10_000, 1)
    some = replace(scene, shN=scene.shN[:, :0])[::step].to_host(ready)  # without harmonics, most of what there is
    scales, opacities, quats = (t.double().numpy() for t in (some.scales, some.opacities, some.quats))
    if len(some) < 10:
        return None
    if some.activated and (scales < 0).mean() > 0.1:
        return Hint("activated", "scales look like logarithms", "Show as logarithms")
    shares = (scales > 0).mean(), ((opacities >= 0) & (opacities <= 1)).mean()
    if not some.activated and min(shares) > 0.99 and (opacities > 0.02).any():
        return Hint("activated", "scales and opacities look activated", "Show as activated")
    quats = np.abs(quats[np.isfinite(quats).all(1) & quats.any(1)])
    w, *_, z = (quats / np.linalg.norm(quats, axis=1, keepdims=True)).sum(0) / max(len(quats), 1)
    return Hint("quats", "quaternions look like x y z w", "Show as x y z w") if z > max(0.6, 2 * w) else None


@dataclass(frozen=True)
class Facts:
    """Facts about the scene that is shown; its arrays may be gone by now."""

    count: int
    sh_degree: int
    stored_sh_degree: int
    antialiased: bool
    notes: tuple[str, ...]
    shards: tuple[tuple[int, int], ...] = ()
    up: tuple[float, float, float] | None = None

    @classmethod
    def of(cls, scene: GaussianScene) -> Facts:
        return cls(len(scene), scene.sh_degree, scene.stored_sh_degree, scene.antialiased, scene.notes, scene.shards,
                   scene.up)

    def shard_of(self, index: int) -> tuple[int, int] | None:
        """Return the rank of a Gaussian and its index there; None for a scene that is not in parts."""
        for rank, count in self.shards:
            if index < count:
                return rank, index
            index -= count
        return None

    @property
    def phrases(self) -> list[str]:
        degrees = f"SH {min(self.sh_degree, self.stored_sh_degree)} of {self.stored_sh_degree}"
        return [*([degrees] if self.stored_sh_degree else []), *(["antialiased"] if self.antialiased else [])]


@dataclass(frozen=True)
class Sight:
    """A sample of a scene to frame it: some of its Gaussians, evenly spread over the arrays."""

    means: np.ndarray
    """(M, 3) float32, or float64 as the scene's."""
    opacities: np.ndarray
    """(M,) float32 in [0, 1]."""

    @classmethod
    def of(cls, scene: GaussianScene, ready: Callable[[int], None] | None = None) -> Sight:
        """`ready` as for `GaussianScene.to_host`. Waits for the GPU where the scene lies on one."""
        scene.wait(ready)
        return cls(*map(np.copy, HostCopy(scene, lambda: scene.sample(_SAMPLE)).arrays()))

    @property
    def weights(self) -> np.ndarray | None:
        """(M,) opacities, 0 for what can hardly be seen; None when nothing can."""
        weights = np.where(self.opacities > _VISIBLE, self.opacities, 0.0)  # NaN counts as invisible
        return weights if weights.any() else None

    @functools.cached_property
    def center(self) -> np.ndarray:
        """(3,) the middle of all of it, whether it can be seen or not."""
        return bounds(self.means)[0]

    @functools.cached_property
    def bounds(self) -> tuple[np.ndarray, float]:
        """The middle (3,) of what can be seen, and its radius."""
        return bounds(self.means, self.weights)

    def near_of(self, camera: Camera) -> Camera:
        """A camera whose near plane is gsplat's default, with one that fits a scene smaller than a unit."""
        return replace(camera, near=self._near) if self._near < camera.near == NEAR else camera

    @functools.cached_property
    def _near(self) -> float:
        few = slice(None, None, len(self.means) // 5000 + 1)  # each version of a stream is asked
        return min(NEAR, NEAR * bounds(self.means[few])[1])

    @property
    def middle(self) -> np.ndarray:
        """(3,) the middle of what can be seen."""
        return self.bounds[0]

    def camera(self, width: int, height: int, up: Any) -> Camera:
        """The camera from which the scene is seen whole, in the middle of the picture.

        Starts from `frame_points`, whose direction it keeps, and corrects it by where the visible Gaussians come to
        lie in the picture. Floaters, the outer hundredth on each side, do not count, and it never moves far.
        """
        return self._filled(frame_points(self.means, width, height, weights=self.weights, up=up))

    def seen_along(self, rotation: np.ndarray, fov: float, width: int, height: int) -> Camera:
        """As `camera`, but in the direction in which another one looks: `rotation` (3, 3) is its world to camera, `fov`
        its vertical angle in degrees."""
        center, radius = self.bounds
        half = math.radians(fov) / 2
        half = min(half, math.atan(math.tan(half) * width / height))
        distance = radius / math.sin(half)
        viewmat = np.eye(4)
        viewmat[:3, :3] = rotation
        viewmat[:3, 3] = [0, 0, distance] - rotation @ center
        return self._filled(Camera(viewmat, intrinsics(fov, width, height), width, height,
                                   near=min(NEAR, distance * NEAR)))

    def _filled(self, camera: Camera) -> Camera:
        """Another place for a pinhole camera, from where the visible Gaussians fill its picture."""
        weights, width, height = self.weights, camera.width, camera.height
        means = self.means if weights is None else self.means[weights > 0]
        means = means[np.isfinite(means).all(axis=1)]
        means = means[:: max(len(means) // 50_000, 1)].astype(np.float64)
        focal, viewmat = camera.K[0, 0], camera.viewmat
        for _ in range(2):  # the correction is exact for a flat scene; the second turn takes in depth
            p = means @ viewmat[:3, :3].T + viewmat[:3, 3]
            p = p[p[:, 2] > camera.near]
            if len(p) < 2:
                break
            distance = float(np.median(p[:, 2]))
            low, high = np.percentile(p[:, :2] / p[:, 2:], (1, 99), axis=0)
            room = np.array([width, height]) / focal * 0.84
            nearer = float(np.clip(((high - low) / room).max(), 0.7, 1.6))
            shift = np.array([*((low + high) / 2 * distance), distance * (1 - nearer)])
            viewmat = viewmat.copy()
            viewmat[:3, 3] -= shift
        return replace(camera, viewmat=viewmat)
