"""Where moments lie on the horizontal axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Trace


class Axis:
    """x in moments ("events": moment k is at k <= x < k + 1) or in microseconds since the first event ("time")."""

    def __init__(self, trace: Trace, unit: Literal["events", "time"]) -> None:
        """ValueError for another unit. A trace without times is at 0 from the first to the last event."""
        if unit not in ("events", "time"):
            raise ValueError(f"unit: '{unit}' is not 'events' or 'time'")
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
        if not x1 > x0 or width < 1:
            raise ValueError(f"no columns: from {x0} to {x1} in {width}")
        x = np.ceil(np.linspace(x0, x1, width + 1).clip(-2.0**62, 2.0**62))
        if self.unit == "events":
            return x.clip(0, self.last + 2).astype(np.int64)
        edges = np.searchsorted(self._begins, x.astype(np.int64), "left")
        edges[x > self.extent[1]] = self.last + 2
        return edges.astype(np.int64)

    def moment(self, x: float) -> int:
        """What holds there; the first or the last moment outside of the axis."""
        if self.unit == "events":
            return int(min(max(np.floor(x), 0), self.last))
        return int(min(max(np.searchsorted(self._begins, x, "right") - 1, 0), self.last))

    def x_of(self, moment: int) -> float:
        """Where a moment begins; M + 1 and more: the end of the axis."""
        if moment > self.last:
            return float(self.extent[1])
        return float(moment) if self.unit == "events" else float(self._begins[max(moment, 0)])

    def time_us(self, moment: int) -> int:
        """Microseconds since the epoch at which a moment began (moment 0: when the trace began); 0: not known."""
        if not self.timed:
            return 0
        return self.origin_us + max(int(self._begins[min(max(moment, 0), self.last)]), 0)
