"""What a program said about itself, and what happened to the allocator, as marks on the axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.snapshot.analysis import _kept
from splatview_viewer.kinds.snapshot.model import ACTIONS
from splatview_viewer.ui.format import size_text

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace

_POINTS = {ACTIONS.index(name): name for name in ("oom", "snapshot", "annotate", "user_defined")}


@dataclass(frozen=True)
class Mark:
    """A range of moments, or a point where first == last."""

    name: str
    kind: str
    """"annotation", or the action of an event: "oom", "snapshot", "annotate", "user_defined"."""
    first: int
    """The moment it begins at."""
    last: int
    """The moment it ends at."""
    first_us: int
    """Microseconds since the epoch; 0 where there are no times."""
    last_us: int
    depth: int
    """How many ranges it lies in."""

    @property
    def is_range(self) -> bool:
        """Whether it has a beginning and an end of its own."""
        return self.last_us > self.first_us or self.last > self.first


@_kept.of_trace
def marks(snapshot: Snapshot, trace: Trace) -> list[Mark]:
    """Annotations, START and END paired, and single events, in the order of their beginning.

    A START without an END lasts to the end of the trace, an END without a START from its beginning. Annotations of
    other devices, and those outside of the trace's time, are left out.
    """
    telling = np.isin(np.arange(256), list(_POINTS))
    out = [_point(snapshot, trace, int(e)) for e in np.flatnonzero(telling[trace.events.action])]
    times = trace.events.time_us
    if not snapshot.annotations or not len(times) or times[-1] <= 0:
        return out
    times = np.maximum.accumulate(times)
    begin, end = int(times[np.searchsorted(times, 0, "right")]), int(times[-1])
    open_: dict[str, list[int]] = {}
    ranges: list[tuple[int, int, str]] = []
    said = sorted((a for a in snapshot.annotations if a.device in (trace.device, -1)), key=lambda a: a.time_us)
    for a in said:
        if a.stage == "START":
            open_.setdefault(a.name, []).append(a.time_us)
        elif a.stage == "END":
            started = open_.get(a.name)
            ranges.append((started.pop() if started else begin, a.time_us, a.name))
        else:
            ranges.append((a.time_us, a.time_us, f"{a.name} {a.stage}".strip()))
    ranges += [(start, end, name) for name, starts in open_.items() for start in starts]
    enclosing: list[int] = []
    for first, last, name in sorted(ranges, key=lambda r: (r[0], -r[1])):
        if last < begin or first > end:
            continue
        while enclosing and enclosing[-1] <= first and last > enclosing[-1]:
            enclosing.pop()
        moments = np.searchsorted(times, [first, last], "right").tolist()
        out.append(Mark(name, "annotation", moments[0], moments[1], first, last, len(enclosing)))
        if last > first:
            enclosing.append(last)
    return sorted(out, key=lambda mark: (mark.first, -mark.last, mark.depth))


def _point(snapshot: Snapshot, trace: Trace, event: int) -> Mark:
    kind = _POINTS[int(trace.events.action[event])]
    name = snapshot.texts[int(trace.events.metadata[event])] or kind
    if kind == "oom":
        name = f"out of memory: {size_text(int(trace.events.size[event]))} asked"
    time = int(trace.events.time_us[event])
    return Mark(name, kind, event, event, time, time, 0)
