"""Distributions of a scene's Gaussians: counts by opacity, size and SH energy, and how many
of those are chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.scene.scene import HIDDEN, HostCopy, flags, largest_scale, sh_energy

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from splatview_viewer.core.selection import Selection
    from splatview_viewer.scene.scene import GaussianScene


@dataclass(frozen=True)
class Quantity:
    """One number of each Gaussian, and the bins in which it is counted."""

    name: str
    """The field of `Selection` that limits it."""
    low: float
    """Begin of the first bin, in `log10` units where that is set. What is below is counted there."""
    high: float
    bins: int
    log: bool = True

    def of(self, scene: GaussianScene) -> torch.Tensor:
        """(N,) its values, of an activated scene."""
        if self.name == "opacity":
            return scene.opacities
        return largest_scale(scene) if self.name == "scale" else sh_energy(scene)

    def edge(self, position: float) -> float:
        """The value at this position, counted in bins from the left."""
        at = self.low + position * (self.high - self.low) / self.bins
        return float(10.0 ** at) if self.log else at

    def position(self, value: float) -> float:
        """The inverse, from 0 to `bins`."""
        if self.log:
            value = float(np.log10(value)) if value > 0 else self.low
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0) * self.bins


QUANTITIES = (Quantity("opacity", 0.0, 1.0, 64, log=False), Quantity("scale", -7.0, 5.0, 600),
              Quantity("sh_energy", -8.0, 4.0, 600))
"""Bins that are the same for every scene, so that nobody has to look for its extremes first."""


@dataclass(frozen=True)
class Statistics:
    """Statistics of those Gaussians of one version of a scene that can be drawn."""

    total: int
    chosen: int
    """Number of those that the selection does not hide."""
    counts: dict[str, tuple[np.ndarray, np.ndarray]]
    """By the name of a quantity: how many lie in each bin, all and chosen ones; int64."""

    def used(self, quantity: Quantity) -> tuple[int, int]:
        """The first bin in which there is anything worth a look, and the one after the last; floaters, a ten-thousandth
        on each side, do not count."""
        counts = self.counts[quantity.name][0]
        if not quantity.log or not counts.any():
            return 0, quantity.bins
        below = np.cumsum(counts)
        few = int(below[-1]) // 10_000
        first, last = int(np.searchsorted(below, few, "right")), int(np.searchsorted(below, below[-1] - few))
        return max(first - 1, 0), min(last + 2, quantity.bins)


def count_later(scene: GaussianScene, selection: Selection) -> Callable[[], Statistics]:
    """Count what an activated scene holds; the returned function waits for it, in any thread. The scene is read as
    `HostCopy` says."""
    selection = replace(selection, marked=())
    copy = HostCopy(scene, lambda: [_counts(scene, selection)])

    def read() -> Statistics:
        (total, chosen), *counts = np.split(copy.arrays()[0], np.cumsum([2, *(2 * q.bins for q in QUANTITIES)])[:-1])
        pairs = {q.name: np.split(pair, 2) for q, pair in zip(QUANTITIES, counts, strict=True)}
        return Statistics(int(total), int(chosen), {name: (every, some) for name, (every, some) in pairs.items()})

    return read


def _counts(scene: GaussianScene, selection: Selection) -> torch.Tensor:
    """Numbers: that can be drawn, that are chosen, then of each quantity all bins of both, int64 in one row."""
    import torch

    rows = []
    for _, part in scene.chunks():
        drawn = part.opacities > 0
        chosen = drawn & ((flags(part, selection) & HIDDEN) == 0)
        row = [drawn.sum()[None], chosen.sum()[None]]
        for quantity in QUANTITIES:
            values = quantity.of(part).float()
            if quantity.log:
                values = values.clamp(10.0 ** quantity.low).log10()
            at = (values - quantity.low) * (quantity.bins / (quantity.high - quantity.low))
            at = at.floor().nan_to_num(0.0).clamp(0, quantity.bins - 1)
            # Chosen ones are counted in bins of their own; what is beyond the ends is not counted.
            bins = at + 0.5 + quantity.bins * chosen
            apart = torch.histc(torch.where(drawn, bins, -1.0), 2 * quantity.bins, 0, 2 * quantity.bins).long()
            others, counted = apart.chunk(2)
            row += [others + counted, counted]
        rows.append(torch.cat(row))
    return torch.stack(rows).sum(0)
