"""Finds allocations that may be leaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.core.quantities import age_text, count_text, size_text
from splatview_viewer.snapshot.analysis import frames as _frames
from splatview_viewer.snapshot.analysis.categories import CATEGORIES, categories
from splatview_viewer.snapshot.model import cached

if TYPE_CHECKING:
    from splatview_viewer.snapshot.model import MemorySnapshot, Trace

PERIODS = 32
"""The trace is cut into this many periods of equally many events."""
_RECENT_PERIODS = 2
"""Allocations of the last periods may just be in use."""
_MIN_GROWTH = 0.5
"""Share of the periods with allocations of a stack from which some are still there."""
_MIN_PERIODS = 4
"""Periods from which allocations of a growing stack are still there."""
_MAX_SUSPECTS = 200
_MODEL_STATE = ("parameters", "gradients", "optimizer state")
"""Categories of what a training step fills once, which is no leak."""


@dataclass(frozen=True, eq=False)
class Suspect:
    """Memory that one stack allocated in the trace and was not freed by its end."""

    stack: int
    label: str
    ids: np.ndarray
    """int32: the allocations, without those of the last periods."""
    bytes: int
    oldest: int
    """The event that made the oldest of them."""
    age_us: int
    """Lifetime of the oldest, to the end of the trace; 0 where there are no times."""
    kept_counts: np.ndarray
    """int64 (PERIODS,): how many allocations of each period are still there."""
    is_growing: bool
    """It looks like a leak, and not like something that was made once and is kept."""

    @property
    def verdict(self) -> str:
        """The suspicion in a sentence."""
        if self.age_us:
            age = f"for {age_text(self.age_us)}"
        else:
            age = f"since event {self.oldest:,}"
        count = count_text(len(self.ids), "allocation")
        if self.is_growing:
            periods = int(np.count_nonzero(self.kept_counts))
            per_period = size_text(self.bytes // max(periods, 1))
            return (
                f"Grows: {count} left behind in {periods} of {PERIODS} parts of the trace, "
                f"about {per_period} in each; the oldest is held {age}."
            )
        if len(self.ids) == 1:
            return f"It was made once and held {age}."
        return f"{count} held {age}; it does not grow steadily."


@dataclass(slots=True)
class _Growth:
    """The history of the remaining allocations of each stack; G stacks."""

    stacks: np.ndarray
    group: np.ndarray
    """The stack of each remaining allocation, an index in `stacks`."""
    kept_counts: np.ndarray
    """Remaining allocations by stack and period, (G, PERIODS)."""
    bytes: np.ndarray
    is_growing: np.ndarray
    spread: np.ndarray
    """0 to 1: how evenly they were left behind over the trace."""
    is_late: np.ndarray
    """The first was allocated after the first tenth of the trace."""


@cached
def find_leaks(snapshot: MemorySnapshot, trace: Trace) -> list[Suspect]:
    """Return suspects, the worst first.

    First what grows over the trace, then what was allocated after its first tenth and
    stays. What was there before the trace, and what was allocated last, is not suspected:
    a snapshot cannot show it.
    """
    allocations = trace.allocations
    event_count = len(trace.events)
    edges = np.linspace(0, event_count, PERIODS + 1).astype(np.int64)
    is_judged = (allocations.start >= 0) & (
        allocations.start < edges[-1 - _RECENT_PERIODS]
    )
    remaining = np.flatnonzero(is_judged & (allocations.end >= event_count))
    if event_count < 2 * PERIODS or not len(remaining):
        return []
    growth = _measure_growth(snapshot, trace, edges, is_judged, remaining)
    # Bytes, weighed by growth; those that do not grow count little.
    weight = np.where(growth.is_growing, growth.spread, 0.02 * growth.spread)
    score = growth.bytes * weight
    listed = np.flatnonzero(growth.is_growing | growth.is_late)
    order = np.lexsort(
        (-growth.bytes[listed], -score[listed], ~growth.is_growing[listed])
    )
    return [
        _suspect(snapshot, trace, growth, row, remaining)
        for row in listed[order][:_MAX_SUSPECTS].tolist()
    ]


def _measure_growth(
    snapshot: MemorySnapshot,
    trace: Trace,
    edges: np.ndarray,
    is_judged: np.ndarray,
    remaining: np.ndarray,
) -> _Growth:
    """Return the growth of each stack with remaining allocations.

    Args:
        edges: the events at which periods begin, and the end.
        is_judged: allocations that were made early enough to be judged, bool (A,).
        remaining: ids of those of them that are still there at the end.
    """
    allocations = trace.allocations
    stacks, first_of_stack, group = np.unique(
        allocations.stack[remaining], return_index=True, return_inverse=True
    )
    kept_counts = _count_by_period(
        group, allocations.start[remaining], edges, len(stacks)
    )
    # All allocations of these stacks, also those that were freed. The last row of
    # row_of_stack is for NO_STACK.
    row_of_stack = np.full(len(snapshot.stacks) + 1, -1, np.int64)
    row_of_stack[stacks] = np.arange(len(stacks))
    of_suspects = np.flatnonzero(is_judged & (row_of_stack[allocations.stack] >= 0))
    all_counts = _count_by_period(
        row_of_stack[allocations.stack[of_suspects]],
        allocations.start[of_suspects],
        edges,
        len(stacks),
        outer=True,
    )
    active_periods = np.count_nonzero(all_counts, axis=1)
    kept_periods = np.count_nonzero(kept_counts, axis=1)
    first = np.argmax(kept_counts > 0, axis=1)
    last = PERIODS - 1 - np.argmax(kept_counts[:, ::-1] > 0, axis=1)
    # What a loop has in hand is kept from its last turn only, though it is made at every
    # turn.
    ratio = kept_periods / np.maximum(active_periods, 1)
    category = categories(snapshot, trace)[0][remaining[first_of_stack]]
    is_state = np.isin(category, [CATEGORIES.index(name) for name in _MODEL_STATE])
    is_steady = (ratio >= _MIN_GROWTH) & (kept_periods >= _MIN_PERIODS)
    is_long = last - first >= PERIODS // 4
    return _Growth(
        stacks=stacks,
        group=group,
        kept_counts=kept_counts,
        bytes=np.bincount(group, allocations.size[remaining]).astype(np.int64),
        is_growing=is_steady & is_long & ~is_state,
        spread=ratio * np.minimum(1.0, (last - first) / (PERIODS / 2)),
        is_late=first >= PERIODS // 10,
    )


def _count_by_period(
    rows: np.ndarray,
    events: np.ndarray,
    edges: np.ndarray,
    row_count: int,
    *,
    outer: bool = False,
) -> np.ndarray:
    """Return how many events each row has in each period, (row_count, PERIODS).

    Args:
        outer: with a period before the trace and one after it.
    """
    width = PERIODS + 2
    cell = rows * width + np.searchsorted(edges, events, "right")
    counts = np.bincount(cell, minlength=row_count * width).reshape(-1, width)
    if outer:
        return counts
    return counts[:, 1:-1]


def _suspect(
    snapshot: MemorySnapshot,
    trace: Trace,
    growth: _Growth,
    row: int,
    remaining: np.ndarray,
) -> Suspect:
    """Return the suspect of one row of `growth`."""
    times = trace.events.time_us
    stack = int(growth.stacks[row])
    ids = remaining[growth.group == row].astype(np.int32)
    oldest = int(trace.allocations.start[ids].min())
    age_us = 0
    if times[oldest] > 0:
        age_us = int(times[-1] - times[oldest])
    return Suspect(
        stack=stack,
        label=_frames.stack_text(snapshot, stack),
        ids=ids,
        bytes=int(growth.bytes[row]),
        oldest=oldest,
        age_us=age_us,
        kept_counts=growth.kept_counts[row],
        is_growing=bool(growth.is_growing[row]),
    )
