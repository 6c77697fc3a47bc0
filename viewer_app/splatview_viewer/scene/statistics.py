"""Counts of a scene's Gaussians by opacity, scale and energy of the harmonics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_viewer.scene.scene import SceneCopy
from splatview_viewer.scene.selecting import HIDDEN, flags, largest_scale, sh_energy

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
    """Start of the first bin, in `log10` units where that is set. Lower values are
    counted there."""
    high: float
    bins: int
    log: bool = True

    def values_of(self, scene: GaussianScene) -> torch.Tensor:
        """Return the quantity of each Gaussian of an activated scene, (N,)."""
        if self.name == "opacity":
            return scene.opacities
        if self.name == "scale":
            return largest_scale(scene)
        return sh_energy(scene)

    def edge(self, position: float) -> float:
        """Return the value at this position, counted in bins from the left."""
        value = self.low + position * (self.high - self.low) / self.bins
        if not self.log:
            return value
        return float(10.0**value)

    def position(self, value: float) -> float:
        """Return the position of a value, from 0 to `bins`: the inverse of `edge`."""
        if self.log and value <= 0:
            value = self.low
        elif self.log:
            value = float(np.log10(value))
        share = (value - self.low) / (self.high - self.low)
        return min(max(share, 0.0), 1.0) * self.bins


QUANTITIES = (
    Quantity("opacity", 0.0, 1.0, 64, log=False),
    Quantity("scale", -7.0, 5.0, 600),
    Quantity("sh_energy", -8.0, 4.0, 600),
)
"""Bins that are the same for every scene, so that its extremes need not be known
first."""


class Counts(NamedTuple):
    """Numbers of Gaussians in each bin of a quantity, int64."""

    total: np.ndarray
    selected: np.ndarray


@dataclass(frozen=True)
class Statistics:
    """Statistics of those Gaussians of one version of a scene that can be drawn."""

    total: int
    selected: int
    """Number of those that the selection does not hide."""
    counts: dict[str, Counts]
    """By the name of a quantity."""

    def occupied_bins(self, quantity: Quantity) -> tuple[int, int]:
        """Return the first bin that is worth a look, and the one after the last.

        Floaters, a ten-thousandth on each side, do not count.
        """
        counts = self.counts[quantity.name].total
        if not quantity.log or not counts.any():
            return 0, quantity.bins
        cumulative = np.cumsum(counts)
        total = int(cumulative[-1])
        floaters = total // 10_000
        first = int(np.searchsorted(cumulative, floaters, "right"))
        last = int(np.searchsorted(cumulative, total - floaters))
        return max(first - 1, 0), min(last + 2, quantity.bins)


def count_later(scene: GaussianScene, selection: Selection) -> Callable[[], Statistics]:
    """Count an activated scene's Gaussians; the returned function waits for the result.

    It may be called in any thread. The scene is read as `SceneCopy` says.
    """
    selection = selection.unmarked
    copy = SceneCopy(scene, lambda: [_count_all(scene, selection)])

    def read() -> Statistics:
        row = copy.arrays()[0]
        counts: dict[str, Counts] = {}
        start = 2
        for quantity in QUANTITIES:
            middle = start + quantity.bins
            end = middle + quantity.bins
            total = row[start:middle]
            selected = row[middle:end]
            counts[quantity.name] = Counts(total, selected)
            start = end
        drawn_count = int(row[0])
        selected_count = int(row[1])
        return Statistics(drawn_count, selected_count, counts)

    return read


def _count_all(scene: GaussianScene, selection: Selection) -> torch.Tensor:
    """Return all numbers in one row, int64.

    The Gaussians that can be drawn, the selected ones, then of each quantity all bins of
    both.
    """
    import torch

    rows = []
    for first, chunk in scene.chunks():
        is_drawn = chunk.opacities > 0
        is_selected = is_drawn & ((flags(chunk, selection, first) & HIDDEN) == 0)
        row = [is_drawn.sum()[None], is_selected.sum()[None]]
        for quantity in QUANTITIES:
            row += _count_bins(chunk, quantity, is_drawn, is_selected)
        rows.append(torch.cat(row))
    return torch.stack(rows).sum(0)


def _count_bins(
    scene: GaussianScene,
    quantity: Quantity,
    is_drawn: torch.Tensor,
    is_selected: torch.Tensor,
) -> list[torch.Tensor]:
    """Return the numbers of drawn and of selected Gaussians in each bin."""
    import torch

    values = quantity.values_of(scene).float()
    if quantity.log:
        values = values.clamp(10.0**quantity.low).log10()
    bins_per_unit = quantity.bins / (quantity.high - quantity.low)
    bins = ((values - quantity.low) * bins_per_unit).floor()
    bins = bins.nan_to_num(0.0).clamp(0, quantity.bins - 1)
    # Selected ones are counted in bins of their own; -1 is beyond the ends, and not
    # counted.
    centers = bins + 0.5 + quantity.bins * is_selected
    positions = torch.where(is_drawn, centers, -1.0)
    bin_count = 2 * quantity.bins
    counts = torch.histc(positions, bin_count, 0, bin_count).long()
    unselected, selected = counts.chunk(2)
    return [unselected + selected, selected]
