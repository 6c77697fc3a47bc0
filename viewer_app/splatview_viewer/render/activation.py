"""From what trainers store to what renderers use: exp, sigmoid, unit quaternions, and what cannot be drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.render.base import SCALE_MAX, SH_MAX, LeftOut
from splatview_viewer.scene import HIDDEN, MARKED, flags
from splatview_viewer.scene.scene import FIELDS, GaussianScene

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.render.base import RenderOptions


@dataclass(frozen=True)
class Activated:
    """The drawable Gaussians of a scene, M of its N, contiguous float32, `means` also float64, and finite.

    Arrays may share memory with the scene they came from: upload or copy them before that changes.
    """

    means: np.ndarray
    """(M, 3); the others as those of a `GaussianScene`, with unit quaternions."""
    quats: np.ndarray
    scales: np.ndarray
    opacities: np.ndarray
    sh0: np.ndarray
    shN: np.ndarray  # noqa: N815
    sh_degree: int
    """The degree in use; at most what `shN` holds."""
    left_out: LeftOut
    """Gaussians left out: N - M."""
    kept: np.ndarray | None = None
    """(M,) the index of each in the scene; None where that is the same."""

    def __len__(self) -> int:
        return len(self.means)

    def scene(self) -> GaussianScene:
        """All N of them again, as `Renderer.scene` gives them."""
        fields = [getattr(self, name) for name in FIELDS]
        if self.kept is not None:
            whole = [np.zeros((len(self) + self.left_out.total, *a.shape[1:]), a.dtype) for a in fields]
            for to, values in zip(whole, fields, strict=True):
                to[self.kept] = values
            fields = whole
        return GaussianScene.of_arrays(*fields, activated=True, sh_degree=self.sh_degree)


def selected(scene: GaussianScene, kept: np.ndarray | None, options: RenderOptions) -> tuple[np.ndarray, np.ndarray]:
    """Which of the M Gaussians that can be drawn are to be, and which are marked: (M,) bool each. `scene`, `kept`: as
    `Activated` has them."""
    found = flags(scene, options.selection).numpy()
    found = found if kept is None else found[kept]
    return (found & HIDDEN) == 0, (found & MARKED) != 0


def activate(scene: GaussianScene) -> Activated:
    """Apply the activations of `scene` and leave out what cannot be drawn.

    Left out, because gsplat's arithmetic gives NaN for them or they are too large for any picture, so that it draws
    nothing: what is not finite after the activation, a scale over `SCALE_MAX`, a quaternion of length zero. Opacities
    beyond 0 to 1, and coefficients beyond `SH_MAX`, count as the nearest number that is possible.
    """
    fields = [getattr(scene, name).contiguous().numpy() for name in FIELDS]
    finite = np.ones(len(scene), bool)
    defined: list[Callable[[np.ndarray], np.ndarray]] = [np.isfinite] * len(fields)
    if not scene.activated:  # exp and sigmoid are defined at infinities
        defined[2:4] = lambda scales: scales < np.inf, lambda opacities: ~np.isnan(opacities)
    for a, test in zip(fields, defined, strict=True):
        # Minimum and maximum carry every NaN and infinity, at half the cost of looking at each element.
        if a.size and not (np.isfinite(a.min()) and np.isfinite(a.max())):
            finite &= test(a).reshape(len(a), -1).all(axis=1)
    means, quats, scales, opacities, sh0, shN = fields
    # Overflow and NaN are dealt with below; numpy's warnings would only repeat it.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if not scene.activated:
            scales = np.exp(scales)
            opacities = 1 / (1 + np.exp(-opacities))
        else:
            opacities = _within(opacities, 0.0, 1.0)
        fits = (np.abs(scales) <= SCALE_MAX).all(axis=1)
        # Lengths in float64: the square of a small component would vanish in float32, that of a large one overflow.
        length = np.sqrt(np.einsum("ij,ij->i", quats, quats, dtype=np.float64))
        turned = length > 0
        quats = (quats / length[:, None]).astype(np.float32)
    keep = finite & fits & turned
    left_out, kept = LeftOut(), None
    arrays = [means, quats, scales, opacities, _within(sh0, -SH_MAX, SH_MAX), _within(shN, -SH_MAX, SH_MAX)]
    if not keep.all():
        left_out = LeftOut(*(int(np.count_nonzero(why)) for why in (
            ~finite, finite & ~fits, finite & fits & ~turned)))
        kept = np.flatnonzero(keep)
        arrays = [a[keep] for a in arrays]
    return Activated(*arrays, sh_degree=min(scene.sh_degree, scene.stored_sh_degree), left_out=left_out, kept=kept)


def middle(points: np.ndarray) -> np.ndarray:
    """(3,) float64: a point in the middle of (M, 3), wherever a few of them are; the origin for none."""
    points = points[np.isfinite(points).all(axis=1)]
    return medians(points.T.astype(np.float64, order="C")) if len(points) else np.zeros(3)


def medians(values: np.ndarray) -> np.ndarray:
    """Along the last axis, of finite numbers: np.median takes several times as long."""
    n = values.shape[-1]
    parts = np.partition(values, (n // 2,) if n % 2 else (n // 2 - 1, n // 2), axis=-1)
    return (parts[..., (n - 1) // 2] + parts[..., n // 2]) / 2


def _within(a: np.ndarray, low: float, high: float) -> np.ndarray:
    """`a`, or a copy whose numbers are; what is not finite does not matter."""
    if a.size == 0 or (a.min() >= low and a.max() <= high):
        return a
    return np.clip(a, low, high)
