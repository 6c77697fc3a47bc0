"""Moments of a trace: their axis, what is live at each, and numbers that have a value at each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from splatview_viewer.kinds.snapshot.model import held
from splatview_viewer.kinds.snapshot.timeline.compiled import kernels

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Trace


def frozen(values: Any, dtype: Any) -> np.ndarray:
    """The same numbers as a plain array that kernels may read: contiguous, not writable, copied only if it must be."""
    array = np.ascontiguousarray(values, dtype).view(np.ndarray).view()
    array.flags.writeable = False
    return array


class LiveIndex:
    """Intervals of moments: number i is live at start[i] < k <= end[i]."""

    def __init__(self, start: np.ndarray, end: np.ndarray, events: int) -> None:
        """start, end: events, int32 (A,), start ascending, in -1 <= start and end <= M. events: M.

        ValueError when start does not ascend.
        """
        self.start = frozen(start, np.int32)
        self.end = frozen(end, np.int32)
        self.events = events
        n = len(self.start)
        if n and bool((self.start[1:] < self.start[:-1]).any()):
            raise ValueError("the allocations of a trace must be in the order in which they began")
        # Both in one number: sorting numbers is several times quicker than a stable order.
        ending = np.flatnonzero(self.end < events)
        ordered = np.sort(self.end[ending].astype(np.int64) << 32 | ending)
        ends, order = ordered >> 32, ordered & 0xFFFFFFFF
        room = n // kernels().APART + 3
        moment, first, begin = np.empty(room, np.int32), np.empty(room, np.int32), np.zeros(room, np.int64)
        listed = np.empty(3 * n, np.int32)
        made, used = kernels().checkpoints(self.start, self.end, moment, first, begin, listed)
        self.kernel = (self.start, self.end, frozen(moment[:made], np.int32), frozen(first[:made], np.int32),
                       frozen(begin[:made + 1], np.int64), frozen(listed[:used].copy(), np.int32),
                       frozen(ends, np.int32), frozen(order, np.int32))
        follows = np.append(self.kernel[3][1:], n)
        self.longest = int((np.diff(self.kernel[4]) + follows - self.kernel[3]).max())
        """At most so many have to be looked at for one moment."""

    def live(self, moment: int) -> np.ndarray:
        """int32: the numbers of what is live, ascending. IndexError for a moment outside of the trace."""
        if not 0 <= moment <= self.events:
            raise IndexError(f"there is no moment {moment}: they are 0 to {self.events}")
        out = np.empty(self.longest, np.int32)
        return out[:kernels().live_at(self.kernel, moment, out)]


class Axis:
    """x in moments ("events": moment k is at k <= x < k + 1) or in microseconds since the first event ("time")."""

    def __init__(self, trace: Trace, unit: Literal["events", "time"]) -> None:
        """A trace without times is at 0 from the first to the last event."""
        self.unit = unit
        self.last = len(trace.events)
        """M, the last moment."""
        told = trace.events.time_us
        self.timed = bool(self.last) and int(told.max()) > 0
        """Whether the trace says when things happened."""
        first = int(told[np.argmax(told > 0)]) if self.timed else 0
        self.origin_us = first
        """Microseconds since the epoch of x = 0 of the axis of time."""
        begins = np.empty(self.last + 1, np.int64)  # when each moment begins
        np.maximum.accumulate(told, out=begins[1:])
        begins[1:] -= first
        np.maximum(begins[1:], 0, out=begins[1:])
        length = int(begins[-1]) if self.last else 0
        pad = max(length // 100, 1)
        begins[0] = -pad
        self._begins = begins
        self.extent: tuple[float, float] = (-pad, length + pad) if unit == "time" else (0.0, self.last + 1.0)
        """From where to where there is something to show."""

    def edges(self, x0: float, x1: float, width: int) -> np.ndarray:
        """int64 (width + 1,): column i has the moments edges[i] <= k < edges[i + 1], those that begin in it.

        From before the axis they are 0, from after it M + 2, so that `Bands.peaks` knows what lies outside."""
        x = np.ceil(np.linspace(x0, x1, width + 1).clip(-2.0**62, 2.0**62))
        if self.unit == "events":
            return x.clip(0, self.last + 2).astype(np.int64)
        edges = np.searchsorted(self._begins, x.astype(np.int64), "left")
        edges[x > self.extent[1]] = self.last + 2
        return edges.astype(np.int64)

    def moment(self, x: float) -> int:
        """Return the moment at x; the first or the last moment outside of the axis."""
        if self.unit == "events":
            return int(min(max(np.floor(x), 0), self.last))
        return int(min(max(np.searchsorted(self._begins, x, "right") - 1, 0), self.last))

    def x_of(self, moment: int) -> float:
        """Return the x at which a moment begins; M + 1 and more: the end of the axis."""
        if moment > self.last:
            return float(self.extent[1])
        return float(moment) if self.unit == "events" else float(self._begins[max(moment, 0)])

    def time_us(self, moment: int) -> int:
        """Microseconds since the epoch at which a moment began (moment 0: when the trace began); 0: not known."""
        if not self.timed:
            return 0
        return self.origin_us + max(int(self._begins[min(max(moment, 0), self.last)]), 0)


def reserved(trace: Trace) -> np.ndarray:
    """int64 (M + 1,): bytes that the allocator had from the driver at each moment."""
    s = trace.spans
    return held(trace.moments, s.start, s.end, s.size)


class Peaks:
    """Where the greatest of many values is in each column of a picture."""

    def __init__(self, values: np.ndarray) -> None:
        """values: int64 (n,), n >= 1."""
        self._values = frozen(values, np.int64)
        self._high = frozen(np.maximum.reduceat(values, np.arange(0, len(values), kernels().PYRAMID)), np.int64)

    def __call__(self, edges: np.ndarray) -> np.ndarray:
        """int32 (W,): for column x the place of the greatest of edges[x] <= k < edges[x + 1], the first of equals.

        A column without a place of its own: edges[x] - 1, whose value holds there; -1 beyond the values. edges: int64
        (W + 1,), ascending."""
        out = np.empty(len(edges) - 1, np.int32)
        kernels().peaks(self._values, self._high, frozen(edges, np.int64), out)
        return out

    def most(self, edges: np.ndarray) -> np.ndarray:
        """int64 (W,): these values; the last one in columns beyond the values."""
        return self._values[self(edges)]
