"""How the Gaussians of a scene are distributed: how many there are of which opacity, size and SH energy, and how many
of those are chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.scene.selection import EVERYTHING, HIDDEN, largest_scale, sh_energy

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.scene.scene import GaussianScene
    from splatview_viewer.scene.selection import Selection


@dataclass(frozen=True)
class Quantity:
    """One number of each Gaussian, and the bins in which it is counted."""

    name: str
    """The field of `Selection` that limits it."""
    low: float
    """Of the first bin, in `log10` units where that is set. What is below is counted there."""
    high: float
    bins: int
    log: bool = True

    def of(self, scene: GaussianScene) -> Any:
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
    """Of those Gaussians of one version of a scene that can be drawn."""

    total: int
    chosen: int
    """Of which the selection hides none."""
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
    """Count what an activated scene holds. A scene on a GPU is looked at now, on torch's current stream, without
    waiting; what is returned waits, in any thread. One in host memory is looked at by what is returned, until when it
    has to stay as it is."""
    selection = replace(selection, marked=())
    if not scene.on_gpu:
        return lambda: _count(scene, selection)
    return _count_on_gpu(scene, selection)


def _count(scene: GaussianScene, selection: Selection) -> Statistics:
    drawn = np.asarray(scene.opacities) > 0
    hidden = None if selection == EVERYTHING else (np.asarray(selection.flags(scene)) & HIDDEN) != 0
    chosen = drawn if hidden is None else drawn & ~hidden
    counts = {}
    for quantity in QUANTITIES:
        bins = _bins(np, quantity, quantity.of(scene)).astype(np.int32)
        every = np.bincount(bins[drawn], minlength=quantity.bins)
        counts[quantity.name] = every, every if hidden is None else np.bincount(bins[chosen], minlength=quantity.bins)
    return Statistics(int(np.count_nonzero(drawn)), int(np.count_nonzero(chosen)), counts)


def _count_on_gpu(scene: GaussianScene, selection: Selection) -> Callable[[], Statistics]:
    import torch

    with torch.no_grad(), torch.cuda.device(scene.gpu):
        opacities: Any = scene.opacities
        drawn = opacities > 0
        flags: Any = selection.flags(scene)
        chosen = drawn & ((flags & HIDDEN) == 0)
        parts = [drawn.sum().float()[None], chosen.sum().float()[None]]
        for quantity in QUANTITIES:
            bins = _bins(torch, quantity, quantity.of(scene)) + 0.5
            # What lies beyond the ends is not counted.
            parts += [torch.histc(torch.where(which, bins, -1.0), quantity.bins, 0, quantity.bins)
                      for which in (drawn, chosen)]
        row = torch.cat(parts).to("cpu", non_blocking=True)  # into pinned memory
        done = torch.cuda.Event(blocking=True)
        done.record()

    def tell() -> Statistics:
        done.synchronize()
        values = row.numpy().astype(np.int64)
        counts, at = {}, 2
        for quantity in QUANTITIES:
            pair = np.split(values[at: at + 2 * quantity.bins], 2)
            counts[quantity.name] = pair[0], pair[1]
            at += 2 * quantity.bins
        return Statistics(int(values[0]), int(values[1]), counts)

    return tell


def _bins(xp: Any, quantity: Quantity, values: Any) -> Any:
    """(N,) float32 of `xp`, NumPy or torch: in which bin each value lies; whatever is no number lies in the first."""
    values = values.astype(np.float32) if xp is np else values.float()
    if quantity.log:
        values = xp.log10(xp.clip(values, 10.0 ** quantity.low, None))
    at = xp.floor((values - quantity.low) * (quantity.bins / (quantity.high - quantity.low)))
    return xp.clip(xp.nan_to_num(at, nan=0.0), 0, quantity.bins - 1)
