"""Leak suspects: stacks that keep allocating what nobody gives back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.snapshot.analysis import _kept
from splatview_viewer.kinds.snapshot.analysis import frames as _frames
from splatview_viewer.kinds.snapshot.analysis.categories import CATEGORIES, categories
from splatview_viewer.ui.format import age_text, count_text, size_text

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace

PERIODS = 32
"""The trace is cut into so many parts of equally many events, where it has that many."""
_RECENT = 2
"""What was made in this many last periods may just be in use."""


@dataclass(frozen=True, eq=False)
class Suspect:
    """What one stack allocated in the trace and was not freed by its end."""

    stack: int
    label: str
    bytes: int
    """Of its allocations that are still there, those of the last periods left out."""
    count: int
    oldest: int
    """The event that made the oldest of them."""
    age_us: int
    """How long that one lives, to the end of the trace; 0 where there are no times."""
    live: np.ndarray
    """int64 (PERIODS,): bytes of this stack that were live at the end of each period."""
    kept: np.ndarray
    """int64 (PERIODS,): how many of those made in each period are still there."""
    growth: float
    """0..1: of the periods in which the stack allocated, the share that left something behind. 1: all of them."""
    score: float
    """Suspects are listed by this: bytes, weighed by growth."""
    growing: bool
    """Whether it looks like a leak, and not like something that was made once and is kept."""
    verdict: str
    """A sentence."""
    ids: np.ndarray
    """int32: the allocations."""


_GROWING, _FEW = 0.5, 4
_STATE = ("parameters", "gradients", "optimizer state")
"""What a training step fills once, which is no leak."""


@_kept.of_trace
def leaks(snapshot: Snapshot, trace: Trace) -> list[Suspect]:
    """Suspects, the worst first: what grows over the trace, then what was made after its first tenth and stays.

    What was there before the trace, and what was made last, is not suspected: nobody can tell.
    """
    a, m = trace.allocations, len(trace.events)
    if m < 2 * PERIODS:
        return []
    edges = np.linspace(0, m, PERIODS + 1).astype(np.int64)
    staying = np.flatnonzero((a.end >= m) & (a.start >= 0) & (a.start < edges[-1 - _RECENT]))
    groups, group = np.unique(a.stack[staying], return_inverse=True)
    if not len(groups):
        return []
    period = np.searchsorted(edges, a.start[staying], "right") - 1
    kept = np.bincount(group * PERIODS + period, minlength=len(groups) * PERIODS).reshape(-1, PERIODS)
    total = np.zeros(len(groups), np.int64)
    np.add.at(total, group, a.size[staying])
    number = np.full(len(snapshot.stacks) + 1, -1, np.int64)  # the last is for NO_STACK
    number[groups] = np.arange(len(groups))
    mine = np.flatnonzero(number[a.stack] >= 0)
    of_mine = number[a.stack[mine]]
    born = _born(trace, edges, mine, of_mine, len(groups))
    first, last = np.argmax(kept > 0, 1), PERIODS - 1 - np.argmax(kept[:, ::-1] > 0, 1)
    filled = np.count_nonzero(kept, 1)
    # what a loop has in hand is kept from its last turn only, though it was made at every turn
    growth = filled / np.maximum(born, 1)
    spread = growth * np.minimum(1.0, (last - first) / (PERIODS / 2))
    count = kept.sum(1)
    first_id = staying[np.unique(group, return_index=True)[1]]
    kind = categories(snapshot, trace)[0][first_id]
    state = np.isin(kind, [CATEGORIES.index(name) for name in _STATE])
    growing = (growth >= _GROWING) & (filled >= _FEW) & (last - first >= PERIODS // 4) & ~state
    score = total * np.where(growing, spread, 0.02 * spread)
    late = first >= PERIODS // 10  # what is made at the beginning and once is the model
    listed = np.flatnonzero(growing | late)
    listed = listed[np.lexsort((-total[listed], -score[listed], ~growing[listed]))][:200]
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(len(groups) + 1))
    live = _live(trace, edges, mine, of_mine, listed)
    out = []
    for row, g in enumerate(listed.tolist()):
        ids = staying[order[bounds[g]: bounds[g + 1]]].astype(np.int32)
        oldest = int(a.start[ids].min())
        times = trace.events.time_us
        age = int(times[-1] - times[oldest]) if times[oldest] > 0 else 0
        out.append(Suspect(int(groups[g]), _frames.stack_text(snapshot, int(groups[g])), int(total[g]), int(count[g]),
                           oldest, age, live[row], kept[g], float(growth[g]), float(score[g]),
                           bool(growing[g]), "", ids))
        made = CATEGORIES[kind[g]] if state[g] else ""
        out[-1] = replace(out[-1], verdict=_verdict(out[-1], made))
    return out


def _born(trace: Trace, edges: np.ndarray, mine: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
    """int64 (groups,): in how many periods, the last left out, each group allocated at all.

    mine: ids. group: int64, the group of each of them.
    """
    start = trace.allocations.start[mine]
    inside = (start >= 0) & (start < edges[-1 - _RECENT])
    period = np.searchsorted(edges, start[inside], "right") - 1
    made = np.bincount(group[inside] * PERIODS + period, minlength=groups * PERIODS)
    return np.count_nonzero(made.reshape(-1, PERIODS), 1)


def _live(trace: Trace, edges: np.ndarray, mine: np.ndarray, group: np.ndarray, listed: np.ndarray) -> np.ndarray:
    """int64 (len(listed), PERIODS): live bytes of these groups at the end of each period."""
    a = trace.allocations
    row = np.full(int(group.max(initial=0)) + 1, -1, np.int64)
    row[listed] = np.arange(len(listed))
    row = row[group]
    ids, row = mine[row >= 0], row[row >= 0]
    change = np.zeros((len(listed), PERIODS + 2), np.int64)
    born = np.where(a.start[ids] < 0, 0, np.searchsorted(edges, a.start[ids], "right"))
    died = np.searchsorted(edges, a.end[ids], "right")
    np.add.at(change, (row, born), a.size[ids])
    np.subtract.at(change, (row, np.minimum(died, PERIODS + 1)), a.size[ids])
    return np.cumsum(change, 1)[:, 1: PERIODS + 1]


def _verdict(suspect: Suspect, made: str) -> str:
    """made: what it is where a training step makes and keeps such things, else ""."""
    since = f"for {age_text(suspect.age_us)}" if suspect.age_us else f"since event {suspect.oldest:,}"
    if suspect.growing:
        some = int(np.count_nonzero(suspect.kept))
        return (f"Grows: {count_text(suspect.count, 'allocation')} left behind in {some} of {PERIODS} parts of the "
                f"trace, about {size_text(suspect.bytes // max(some, 1))} in each; the oldest is held {since}.")
    what = f"Probably {made}, which are kept: " if made else ""
    if suspect.count == 1:
        return f"{what or 'It was '}made once and held {since}."
    return f"{what}{count_text(suspect.count, 'allocation')} held {since}" + (
        "." if made else "; it does not grow steadily.")
