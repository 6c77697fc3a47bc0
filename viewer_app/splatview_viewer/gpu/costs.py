"""Costs of works on a GPU, as far as they are measured, and of pictures at other resolutions.

A work is anything that is given to the GPU: a tuple of a name and what decides its cost,
such as ("scene", 1280, 720).
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    WorkKey = tuple[object, ...]
    """The name of a work, and what decides its cost."""
    Costs = dict[float, float]
    """Milliseconds by resolution."""

SCALES = (1.0, 0.84, 0.71, 0.59, 0.5, 0.42, 0.35)
"""Resolutions of pictures while the camera moves: a few, so that each is measured
often."""
_MEMORY_S = 5.0
"""Seconds after which a measurement is forgotten, unless nothing was measured since."""
_SAMPLES = 32
"""Measurements of one work that are kept."""
_MAX_WORKS = 200
"""Works from which on old ones are forgotten."""
_FIXED_SHARE = 0.5
"""Share of a picture's cost that does not depend on its resolution, as long as only one
resolution is measured."""


class _Sample(NamedTuple):
    measured_at: float
    ms: float


class WorkCosts:
    """The milliseconds that works take.

    Other processes' work in between counts in: the least of the last few measurements is
    what a work costs.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._samples: dict[WorkKey, deque[_Sample]] = {}
        self._costs: dict[WorkKey, float] = {}
        """The least of the samples by work."""

    def record(self, work_key: WorkKey, ms: float) -> None:
        """Take note that a work took `ms`, from its start to its end."""
        now = self._clock()
        samples = self._samples.setdefault(work_key, deque(maxlen=_SAMPLES))
        samples.append(_Sample(now, ms))
        recent = [s.ms for s in samples if now - s.measured_at <= _MEMORY_S]
        self._costs[work_key] = min(recent)
        if len(self._samples) > _MAX_WORKS:
            # They are of windows that were dragged to many sizes.
            for old_key, old_samples in list(self._samples.items()):
                if now - old_samples[-1].measured_at >= _MEMORY_S:
                    del self._samples[old_key]
                    del self._costs[old_key]

    def cost(self, work_key: WorkKey) -> float | None:
        """Return the milliseconds that a work takes; None if it was not measured."""
        return self._costs.get(work_key)

    def by_scale(self, name: str, size: tuple[int, int], *options: object) -> Costs:
        """Return the cost of the work `(name, width, height, *options)` at each of SCALES.

        Only as far as it is known. Measurements beside another process are often too
        much: a resolution that is not drawn is soon unknown again, and drawn again if what
        others cost lets it.
        """
        costs: Costs = {}
        measured_at: dict[float, float] = {}
        for scale, work_key in _works_by_scale(name, size, options):
            if work_key in self._samples:
                measured_at[scale] = self._samples[work_key][-1].measured_at
                costs[scale] = self._costs[work_key]
        newest = max(measured_at.values(), default=0.0)
        for scale, time in measured_at.items():
            if newest - time > _MEMORY_S:
                del costs[scale]
        return costs


@lru_cache
def _works_by_scale(
    name: str, size: tuple[int, int], options: tuple[object, ...]
) -> list[tuple[float, WorkKey]]:
    """Return each of SCALES with the work `(name, width, height, *options)` there."""
    return [(scale, (name, *scaled_size(size, scale), *options)) for scale in SCALES]


def scaled_size(size: tuple[int, int], scale: float) -> tuple[int, int]:
    """Return the width and height of a picture of `size` at a resolution of `scale`.

    At least 16, or what there is.
    """
    width, height = size
    return (
        max(int(width * scale), min(16, width)),
        max(int(height * scale), min(16, height)),
    )


def scale_within(most_scale: float) -> float:
    """Return the highest of SCALES that is not above a scale; itself below them all."""
    return next((scale for scale in SCALES if scale <= most_scale), most_scale)


def estimate(costs: Costs, scale: float) -> float:
    """Return the milliseconds of a picture at a scale, from those known at others.

    A part stays, a part goes with the number of pixels.
    """
    if scale in costs:
        return costs[scale]
    nearest = sorted(costs, key=lambda measured: abs(measured - scale))
    first = nearest[0]
    if len(nearest) == 1:
        pixel_ratio = (scale / first) ** 2
        return costs[first] * (_FIXED_SHARE + (1 - _FIXED_SHARE) * pixel_ratio)
    second = nearest[1]
    difference = costs[second] - costs[first]
    slope = max(difference / (second * second - first * first), 0.0)
    return max(costs[first] + slope * (scale * scale - first * first), 0.0)


def highest_scale(
    costs: Costs, budget_ms: float, current: float | None, current_budget_ms: float
) -> float:
    """Return the highest of SCALES within a budget; the lowest there is where none is.

    Args:
        costs: of some of SCALES.
        budget_ms: milliseconds that a picture may cost.
        current: a scale that has a budget of its own, so that it is kept for a while.
        current_budget_ms: the budget of `current`.
    """
    for scale in SCALES:
        if scale == current:
            limit = current_budget_ms
        else:
            limit = budget_ms
        if estimate(costs, scale) <= limit:
            return scale
    return SCALES[-1]
