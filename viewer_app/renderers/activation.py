"""From what trainers store to what renderers use: exp, sigmoid, unit quaternions, and what cannot be drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from viewer_app.scene import GaussianScene
from viewer_app.selecting import HIDDEN, MARKED

if TYPE_CHECKING:
    from viewer_app.renderers.base import RenderOptions


@dataclass(frozen=True)
class Activated:
    """The drawable Gaussians of a scene, M of its N, contiguous float32, free of NaN and infinities.

    Arrays may share memory with the scene they came from: upload or copy them before that changes.
    """

    means: np.ndarray
    """(M, 3) centres in world units."""
    quats: np.ndarray
    """(M, 4) unit quaternions w, x, y, z."""
    scales: np.ndarray
    """(M, 3) standard deviations in world units."""
    opacities: np.ndarray
    """(M,) in [0, 1]."""
    sh0: np.ndarray
    """(M, 3)."""
    shN: np.ndarray  # noqa: N815
    """(M, K-1, 3)."""
    sh_degree: int
    """The degree in use; at most what `shN` holds."""
    skipped: int
    """N - M."""
    kept: np.ndarray | None = None
    """(M,) the index of each in the scene; None where that is the same."""

    def __len__(self) -> int:
        return len(self.means)

    def scene(self) -> GaussianScene:
        """All N of them again, as `Renderer.scene` gives them."""
        fields = [self.means, self.quats, self.scales, self.opacities, self.sh0, self.shN]
        if self.kept is not None:
            whole = [np.zeros((len(self) + self.skipped, *a.shape[1:]), np.float32) for a in fields]
            for to, values in zip(whole, fields, strict=True):
                to[self.kept] = values
            fields = whole
        return GaussianScene(*fields, activated=True, sh_degree=self.sh_degree)


def selected(scene: GaussianScene, kept: np.ndarray | None, options: RenderOptions) -> tuple[np.ndarray, np.ndarray]:
    """Which of the M Gaussians that can be drawn are to be, and which are marked: (M,) bool each. `scene`, `kept`: as
    `Activated` has them."""
    flags = np.asarray(options.selection.flags(scene))
    flags = flags if kept is None else flags[kept]
    return (flags & HIDDEN) == 0, (flags & MARKED) != 0


def activate(scene: GaussianScene) -> Activated:
    """Apply the activations of `scene` and leave out what cannot be drawn.

    Left out, because gsplat's arithmetic gives NaN for them and so draws nothing: a NaN or an infinity in any
    field, a scale beyond float32 once exp is applied, a quaternion of length zero.
    """
    fields = [np.ascontiguousarray(a, np.float32)
              for a in (scene.means, scene.quats, scene.scales, scene.opacities, scene.sh0, scene.shN)]
    keep = np.ones(len(scene), bool)
    for a in fields:
        if not _all_finite(a):
            keep &= np.isfinite(a).reshape(len(a), -1).all(axis=1)
    means, quats, scales, opacities, sh0, shN = fields
    # Overflow and NaN are dealt with below; numpy's warnings would only repeat it.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if not scene.activated:
            scales = np.exp(scales)
            opacities = 1 / (1 + np.exp(-opacities))
            if not _all_finite(scales):
                keep &= np.isfinite(scales).all(axis=1)
        # Lengths in float64: the square of a small component would vanish in float32.
        length = np.sqrt(np.einsum("ij,ij->i", quats, quats, dtype=np.float64)).astype(np.float32)
        keep &= length > 0
        quats = quats / length[:, None]
    arrays = [means, quats, scales, opacities, sh0, shN]
    skipped = len(keep) - int(np.count_nonzero(keep))
    kept = np.flatnonzero(keep) if skipped else None
    if skipped:
        arrays = [a[keep] for a in arrays]
    return Activated(*arrays, sh_degree=min(scene.sh_degree, scene.stored_sh_degree), skipped=skipped, kept=kept)


def _all_finite(a: np.ndarray) -> bool:
    """Minimum and maximum carry every NaN and infinity, at half the cost of looking at each element."""
    return a.size == 0 or bool(np.isfinite(a.min()) and np.isfinite(a.max()))
