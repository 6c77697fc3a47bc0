"""Layout of the picture of a trace: its axis, what is live at each moment, stacked bands, the address space."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from splatview_viewer.kinds.snapshot.model import MIDDLE, held, live_bytes, signed
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


Color = tuple[int, int, int]
"""Red, green, blue, 0 to 255."""
BACKGROUND: Color = (16, 17, 20)
"""Where nothing is."""
HELD: Color = (32, 35, 41)
"""In the address space: memory that is reserved and holds nothing."""
_DIM: Color = (40, 42, 48)
_DIMMING = 0.8
"""What the colours of those that are not lit are drawn to, and how far: 0 not at all, 1 wholly."""


class Canvas:
    """A picture whose columns lie one behind the other, so that threads can paint columns of their own."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.pixels = np.empty((width, height), np.uint32)
        """(W, H): red, green, blue, alpha of pixels[x, y], y from the top."""
        self.ids = np.empty((width, height), np.int32)
        """(W, H): the allocation under the centre of each pixel; -1: none."""

    @property
    def kernel(self) -> tuple[np.ndarray, np.ndarray]:
        return self.pixels, self.ids


@dataclass(frozen=True, eq=False)
class Paint:
    """The colour of each allocation."""

    classes: np.ndarray
    """uint16 (A,): a row of the palette for each allocation."""
    palette: np.ndarray
    """uint8 (K, 3)"""
    lit: np.ndarray | None = None
    """bool or uint8 (A,): those that keep their colour while the others are dimmed; None: all do."""
    @cached_property
    def shades(self) -> np.ndarray:
        palette = self.palette.astype(np.float64)
        dimmed = palette + (np.array(_DIM) - palette) * _DIMMING
        return frozen(np.concatenate([palette, dimmed]).round().clip(0, 255), np.float64)

    def tables(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """For the kernels: classes uint16 (A,), lit uint8 (A,) or (0,), float64 (2 K, 3) colours, dimmed ones last, and
        float64 (2, 3): BACKGROUND, HELD.

        ValueError unless there is a class for each of `count` allocations."""
        if len(self.classes) != count:
            raise ValueError(f"{len(self.classes)} classes for {count} allocations: there must be one for each")
        lit = np.empty(0, np.uint8) if self.lit is None else np.ascontiguousarray(self.lit).view(np.uint8)
        return (frozen(self.classes, np.uint16), frozen(lit, np.uint8), self.shades,
                frozen((BACKGROUND, HELD), np.float64))


class Bands:
    """The bands of a trace. Several threads may ask and paint at once."""

    def __init__(self, trace: Trace) -> None:
        a = trace.allocations
        self._size = frozen(a.size, np.int64)
        self.live = frozen(live_bytes(trace), np.int64)
        """int64 (M + 1,): bytes at each moment."""
        self.peaks = Peaks(self.live)
        """Which moment a column shows: `bands.peaks(edges)`."""
        self._index = LiveIndex(a.start, a.end, len(trace.events))

    def pick(self, moment: int, byte: float) -> int:
        """The allocation that has this byte of the stack; -1: none. IndexError for a moment outside of the trace."""
        live = self._index.live(moment)
        found = int(np.searchsorted(np.cumsum(self._size[live]), byte, "right")) if byte >= 0 else len(live)
        return int(live[found]) if found < len(live) else -1

    def paint(self, canvas: Canvas, columns: slice, moments: np.ndarray, low: float, per_pixel: float,
              paint: Paint) -> None:
        """Paints columns of a canvas; without the GIL, so that threads can paint different columns at once.

        columns: which of them; slices of 200 and more columns are worth it, since each begins with all that is live.
        moments: int32 (W,), the moment of each column, ascending but for -1 at both ends: nothing but background.
        low, per_pixel: bytes; row y shows the bytes from low + (H - 1 - y) * per_pixel on.

        A pixel shows the mean of the colours of all bands in it, by their bytes. Bands of 3 pixels and more have a
        darker line at their lower edge.
        """
        n = 2 * self._index.longest + 4096
        lists = (np.empty(n, np.int32), np.empty(n, np.int32), np.zeros(n), np.zeros(((n >> kernels().BLOCK) + 1, 4)),
                 np.empty(len(self._size), np.int32))
        kernels().paint_bands(self._index.kernel, self._size, paint.tables(len(self._size)),
                              (frozen(moments, np.int32), float(low), float(per_pixel)),
                              columns.indices(canvas.width)[:2], canvas.kernel, lists)


GAPS = 0.15
"""How much of the height gaps may take in all, beside what they part."""
GAP = 1 / 250
"""The height of one gap, as a part of what they part, where there are few."""


class Addresses:
    """The addresses that were reserved at any time, one range above the other, with a small gap where there is one.

    y is a place in them: bytes from the lowest address, without what lies in the gaps. Several threads may ask and
    paint at once."""

    def __init__(self, trace: Trace) -> None:
        a, s = trace.allocations, trace.spans
        events = len(trace.events)
        addr, size = signed(a.addr), frozen(a.size, np.int64)
        self._ranges(signed(s.addr), signed(s.addr) + s.size)
        lost = self._places_of(addr, size) < 0  # in no range that was reserved: the trace does not say all
        if lost.any():
            self._ranges(np.concatenate([self._first, addr[lost]]),
                         np.concatenate([self._last, addr[lost] + np.maximum(size[lost], 1)]))
        self._index = LiveIndex(a.start, a.end, events)
        self._size = size
        self.places = self._places_of(addr, size)
        """int64 (A,): the lower edge of each allocation's rectangle."""
        self.span_places = self._places_of(signed(s.addr), s.size)
        self._spans = (LiveIndex(s.start, s.end, events).kernel, self.span_places,
                       frozen(s.size, np.int64))

    def _ranges(self, first: np.ndarray, last: np.ndarray) -> None:
        """Put ranges, which may overlap or touch, one above the other."""
        if len(first):
            order = np.argsort(first, kind="stable")
            first, last = first[order], np.maximum.accumulate(last[order])
            opens = np.append(True, first[1:] > last[:-1])
            first, last = first[opens], last[np.append(opens[1:], True)]
        total = int((last - first).sum())
        gap = int(total * min(GAP, GAPS / max(len(first) - 1, 1)))
        bottom = np.concatenate([[0], np.cumsum(last - first + gap)[:-1]]) if len(first) else first
        self._first, self._last = first, last
        self._bottom = bottom
        self.height = int(bottom[-1] + last[-1] - first[-1]) if len(first) else 0
        """Bytes from the bottom to the top."""

    def _places_of(self, addr: np.ndarray, size: np.ndarray) -> np.ndarray:
        """int64: y of each (signed) address; -1 for memory that does not lie in one range."""
        if not len(self._first):
            return frozen(np.full(len(addr), -1), np.int64)
        r = np.maximum(np.searchsorted(self._first, addr, "right") - 1, 0)
        inside = (self._first[r] <= addr) & (addr + size <= self._last[r])
        return frozen(np.where(inside, addr - self._first[r] + self._bottom[r], -1), np.int64)

    def address(self, y: float) -> int | None:
        """The address at y; None in a gap, below and above."""
        y = int(np.floor(y))
        r = int(np.searchsorted(self._bottom, y, "right")) - 1
        addr = y + int(self._first[r]) - int(self._bottom[r])
        return MIDDLE + addr if r >= 0 and addr < self._last[r] else None

    def pick(self, moment: int, y: float) -> int:
        """The allocation that lies there then; -1: none. IndexError for a moment outside of the trace."""
        live = self._index.live(moment)
        at = y - self.places[live]
        hit = np.flatnonzero((at >= 0) & (at < self._size[live]))
        return int(live[hit[-1]]) if len(hit) else -1

    def paint(self, canvas: Canvas, columns: slice, moments: np.ndarray, low: float, per_pixel: float,
              paint: Paint) -> None:
        """Paints columns of a canvas, as `Bands.paint` does; what is reserved then is painted in `HELD`."""
        first, last, _ = columns.indices(canvas.width)
        sums = np.zeros((last - first + 1, canvas.height, kernels().SUMS), np.float32)
        kernels().paint_addresses((self._index.kernel, self.places, self._size), self._spans,
                                  paint.tables(len(self._size)),
                                  (frozen(moments, np.int32), float(low), float(per_pixel)), (first, last),
                                  canvas.kernel, sums)
