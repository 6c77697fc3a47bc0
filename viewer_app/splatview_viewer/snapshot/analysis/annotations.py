"""Pairs the ranges that the program annotated."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_viewer.snapshot.model import cached

if TYPE_CHECKING:
    from splatview_viewer.snapshot.model import MemorySnapshot, Trace


class Ranges(NamedTuple):
    """R ranges that the program annotated, in the order of their beginning."""

    names: list[str]
    depth: list[int]
    """The number of other ranges that each lies in."""
    moments: np.ndarray
    """The moments at which they begin and end, int64 (2, R)."""
    times: np.ndarray
    """Beginnings and ends in microseconds since the epoch, int64 (2, R)."""


class _AnnotatedRange(NamedTuple):
    """A range in microseconds since the epoch."""

    start: int
    end: int
    name: str


@cached
def annotated_ranges(snapshot: MemorySnapshot, trace: Trace) -> Ranges:
    """Return annotated ranges, START and END paired.

    A START without an END lasts to the end of the trace, an END without a START from its
    beginning. Annotations of other devices, and those outside of the trace's time, are left
    out.
    """
    times = np.maximum.accumulate(trace.events.time_us)
    trace_start = 0
    trace_end = 0
    if len(times):
        first_known = np.searchsorted(times, 0, "right") % len(times)
        trace_start = int(times[first_known])
        trace_end = int(times[-1])
    ranges = [
        r
        for r in _pair_annotations(snapshot, trace.device, trace_start, trace_end)
        if r.end >= trace_start and r.start <= trace_end and r.end > r.start
    ]
    ranges.sort(key=lambda r: (r.start, -r.end))
    limits = np.array([(r.start, r.end) for r in ranges], np.int64).reshape(-1, 2).T
    return Ranges(
        names=[r.name for r in ranges],
        depth=_depths(ranges),
        moments=np.searchsorted(times, limits, "right"),
        times=limits,
    )


def _pair_annotations(
    snapshot: MemorySnapshot, device: int, trace_start: int, trace_end: int
) -> list[_AnnotatedRange]:
    """Return the ranges of one device, in no order."""
    annotations = [a for a in snapshot.annotations if a.device in (device, -1)]
    annotations.sort(key=lambda annotation: annotation.time_us)
    ranges: list[_AnnotatedRange] = []
    open_starts: dict[str, list[int]] = {}
    for annotation in annotations:
        name = annotation.name
        if annotation.stage == "START":
            open_starts.setdefault(name, []).append(annotation.time_us)
        elif annotation.stage == "END":
            starts = open_starts.get(name)
            start = starts.pop() if starts else trace_start
            ranges.append(_AnnotatedRange(start, annotation.time_us, name))
    for name, starts in open_starts.items():
        ranges.extend(_AnnotatedRange(start, trace_end, name) for start in starts)
    return ranges


def _depths(ranges: list[_AnnotatedRange]) -> list[int]:
    """Return the number of ranges that each range begins in; they are sorted."""
    depths: list[int] = []
    enclosing_ends: list[int] = []
    for range_ in ranges:
        while enclosing_ends and enclosing_ends[-1] <= range_.start:
            enclosing_ends.pop()
        depths.append(len(enclosing_ends))
        enclosing_ends.append(range_.end)
    return depths
