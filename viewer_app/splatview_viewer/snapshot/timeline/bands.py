"""Layout of the picture of a trace: its axis, what is live at each moment, stacked bands, the address space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from splatview_viewer.snapshot.model import (
    MIDDLE_ADDRESS,
    bytes_at_moments,
    live_bytes,
    signed,
)
from splatview_viewer.snapshot.timeline.compiled import kernels

if TYPE_CHECKING:
    from splatview_viewer.snapshot.model import Trace


def frozen(values: Any, dtype: Any) -> np.ndarray:
    """The same numbers as a plain array that kernels may read: contiguous, not writable, copied only if it must be."""
    array = np.ascontiguousarray(values, dtype).view(np.ndarray).view()
    array.flags.writeable = False
    return array


MIN_CHECKPOINT_GAP = 2048
"""Fewest allocations between two checkpoints."""


def live_index(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, ...]:
    """An index of what is live when, for the kernel. Number i is live at the moments start[i] < k <= end[i].

    It has checkpoints, lists of what is live then: each after at least as many numbers as the list before is long, so
    that all of them together are at most twice as long as there are numbers.

    Args:
        start, end: events, int32 (A,), start ascending from -1 on.
    """
    moment = [0]
    first = [int(np.searchsorted(start, 0))]
    lists = [np.arange(first[0])]
    while (at := first[-1] + max(len(lists[-1]), MIN_CHECKPOINT_GAP)) < len(start):
        moment.append(int(start[at]) + 1)
        first.append(int(np.searchsorted(start, moment[-1])))
        there = np.append(lists[-1], np.arange(*first[-2:]))
        lists.append(there[end[there] >= moment[-1]])
    begin = np.cumsum([0, *map(len, lists)])
    columns = start, end, moment, first, begin, np.concatenate(lists)
    return tuple(frozen(c, np.int64 if c is begin else np.int32) for c in columns)


class TimelineAxis:
    """x in moments ("events": moment k is at k <= x < k + 1) or in microseconds since the first event ("time")."""

    def __init__(self, trace: Trace, unit: Literal["events", "time"]) -> None:
        """A trace without times is at 0 from the first to the last event."""
        self.unit = unit
        self.last_moment = len(trace.events)
        """M, the last moment."""
        told = trace.events.time_us
        self.has_times = bool(self.last_moment) and int(told.max()) > 0
        """Whether the trace says when things happened."""
        first = int(told[np.argmax(told > 0)]) if self.has_times else 0
        self.origin_us = first
        """Microseconds since the epoch of x = 0 of the axis of time."""
        begins = np.empty(self.last_moment + 1, np.int64)  # when each moment begins
        np.maximum.accumulate(told, out=begins[1:])
        begins[1:] -= first
        np.maximum(begins[1:], 0, out=begins[1:])
        length = int(begins[-1]) if self.last_moment else 0
        pad = max(length // 100, 1)
        begins[0] = -pad
        self._begins = begins
        self.extent: tuple[float, float] = (
            (-pad, length + pad) if unit == "time" else (0.0, self.last_moment + 1.0)
        )
        """From where to where there is something to show."""

    def edges(self, x0: float, x1: float, width: int) -> np.ndarray:
        """int64 (width + 1,): column i has the moments edges[i] <= k < edges[i + 1], those that begin in it.

        From before the axis they are 0, from after it M + 2, so that `peaks` knows what lies outside.
        """
        x = np.ceil(np.linspace(x0, x1, width + 1).clip(-(2.0**62), 2.0**62))
        if self.unit == "events":
            return x.clip(0, self.last_moment + 2).astype(np.int64)
        edges = np.searchsorted(self._begins, x.astype(np.int64), "left")
        edges[x > self.extent[1]] = self.last_moment + 2
        return edges.astype(np.int64)

    def moment(self, x: float) -> int:
        """Return the moment at x; the first or the last moment outside of the axis."""
        if self.unit == "events":
            return int(min(max(np.floor(x), 0), self.last_moment))
        return int(
            min(max(np.searchsorted(self._begins, x, "right") - 1, 0), self.last_moment)
        )

    def x_of(self, moment: int) -> float:
        """Return the x at which a moment begins; M + 1 and more: the end of the axis."""
        if moment > self.last_moment:
            return float(self.extent[1])
        if self.unit == "events":
            return float(moment)
        return float(self._begins[max(moment, 0)])

    def time_us(self, moment: int) -> int:
        """Microseconds since the epoch at which a moment began (moment 0: when the trace began); 0: not known."""
        if not self.has_times:
            return 0
        return self.origin_us + max(
            int(self._begins[min(max(moment, 0), self.last_moment)]), 0
        )


def peaks(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """int32 (W,): for column x the place of the greatest of edges[x] <= k < edges[x + 1], the first of equals.

    A column without a place of its own: edges[x] - 1, whose value holds there; -1 beyond the values. edges: int64
    (W + 1,), ascending.
    """
    n = len(values)
    first = np.maximum(edges[:-1], 0)
    last = np.minimum(edges[1:], len(values))
    out = np.where((edges[:-1] >= 1) & (edges[:-1] <= n), edges[:-1] - 1, -1).astype(
        np.int32
    )
    for x in np.flatnonzero(first < last).tolist():
        out[x] = first[x] + values[first[x] : last[x]].argmax()
    return out


Color = tuple[int, int, int]
"""Red, green, blue, 0 to 255."""
BACKGROUND: Color = (16, 17, 20)
"""Where nothing is."""
RESERVED: Color = (25, 28, 32)
EDGE: Color = (76, 85, 102)
"""Bytes that are reserved and not live, and the line where they end."""
RESERVED_FREE: Color = (32, 35, 41)
"""In the address space: memory that is reserved and holds nothing."""
_DIM: Color = (40, 42, 48)
_DIMMING = 0.8
"""What the colours of those that are not lit are drawn to, and how far: 0 not at all, 1 wholly."""


Inks = tuple[np.ndarray, np.ndarray, np.ndarray]


def inks_of(
    classes: np.ndarray, palette: np.ndarray, lit: np.ndarray | None = None
) -> Inks:
    """The colour of each allocation, for the kernel: classes, lit (uint8; none: all are), float64 (2 K, 3) colours, the
    dimmed ones last.

    Args:
        classes: uint16 (A,), rows of the palette, uint8 (K, 3).
        lit: bool (A,): those that keep their colour while the others are dimmed; None: all do.
    """
    bright = palette.astype(np.float64)
    dimmed = bright + (np.array(_DIM) - bright) * _DIMMING
    return (
        frozen(classes, np.uint16),
        frozen([] if lit is None else lit, np.uint8),
        frozen(np.concatenate([bright, dimmed]).round().clip(0, 255), np.float64),
    )


Layer = tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class TimelineLayers:
    """What a picture is painted of: rectangles of allocations over what is reserved. Any thread may paint."""

    blocks: Layer
    """An index of what is live, the byte at which each begins (empty: one on the other), and sizes."""
    spans: Layer
    """The same of what is reserved."""
    reserved: np.ndarray
    """int64 (M + 1,): reserved bytes at each moment, instead of `spans`."""
    grounds: tuple[Color, ...]

    def paint(
        self,
        canvas: tuple[np.ndarray, np.ndarray],
        columns: tuple[int, int],
        moments: np.ndarray,
        low: float,
        per_pixel: float,
        inks: Inks,
    ) -> None:
        """Paint columns of a picture; without the GIL, so that threads can paint different columns at once.

        canvas: pixels uint32 (H, W), red, green, blue and alpha, and ids int32 (H, W), the allocation under the centre
        of each pixel, -1: none; row y shows the bytes from low + y * per_pixel on. columns: the first, and the one
        after the last. moments: int32 (W,), of each column; -1: nothing but background.

        A pixel shows the mean of the colours of all that lies in it, by their bytes. What is 3 pixels high and more
        has a darker line at its lower edge.
        """
        kernels().paint(
            self.blocks,
            self.spans,
            self.reserved,
            (*inks, frozen(self.grounds, np.float64)),
            (frozen(moments, np.int32), float(low), float(per_pixel)),
            columns,
            canvas,
        )


class Bands:
    """The bands of a trace: allocations one on the other."""

    def __init__(self, trace: Trace) -> None:
        a = trace.allocations
        s = trace.spans
        self.live = frozen(live_bytes(trace), np.int64)
        """int64 (M + 1,): bytes at each moment."""
        self.reserved = frozen(
            bytes_at_moments(trace.moment_count, s.start, s.end, s.size), np.int64
        )
        """int64 (M + 1,): bytes that the allocator had from the driver at each moment."""
        self.height = int(max(self.live.max(), self.reserved.max()))
        """Bytes from the bottom to the top."""
        none = live_index(np.empty(0, np.int32), np.empty(0, np.int32)), _NONE, _NONE
        self.layers = TimelineLayers(
            (live_index(a.start, a.end), _NONE, frozen(a.size, np.int64)),
            none,
            self.reserved,
            (BACKGROUND, RESERVED, EDGE),
        )


MAX_GAPS_SHARE = 0.15
"""How much of the height gaps may take in all, beside what they part."""
GAP_SHARE = 1 / 250
"""The height of one gap, as a part of what they part, where there are few."""


class Addresses:
    """The addresses that were reserved at any time, one range above the other, with a small gap where there is one.

    y is a place in them: bytes from the lowest address, without what lies in the gaps.
    """

    def __init__(self, trace: Trace) -> None:
        a = trace.allocations
        s = trace.spans
        addr = signed(a.addr)
        size = frozen(a.size, np.int64)
        self._ranges(signed(s.addr), signed(s.addr) + s.size)
        lost = (
            self._places_of(addr, size) < 0
        )  # in no range that was reserved: the trace does not say all
        if lost.any():
            self._ranges(
                np.concatenate([self._first, addr[lost]]),
                np.concatenate([self._last, addr[lost] + np.maximum(size[lost], 1)]),
            )
        places = self._places_of(addr, size)
        spans = self._places_of(signed(s.addr), s.size)
        self.layers = TimelineLayers(
            (live_index(a.start, a.end), places, size),
            (live_index(s.start, s.end), spans, frozen(s.size, np.int64)),
            _NONE,
            (BACKGROUND, RESERVED_FREE, EDGE),
        )

    def _ranges(self, first: np.ndarray, last: np.ndarray) -> None:
        """Put ranges, which may overlap or touch, one above the other."""
        if len(first):
            order = np.argsort(first, kind="stable")
            first = first[order]
            last = np.maximum.accumulate(last[order])
            opens = np.append(True, first[1:] > last[:-1])
            first = first[opens]
            last = last[np.append(opens[1:], True)]
        total = int((last - first).sum())
        gap = int(total * min(GAP_SHARE, MAX_GAPS_SHARE / max(len(first) - 1, 1)))
        if len(first):
            bottom = np.concatenate([[0], np.cumsum(last - first + gap)[:-1]])
        else:
            bottom = first
        self._first = first
        self._last = last
        self._bottom = bottom
        self.height = int(bottom[-1] + last[-1] - first[-1]) if len(first) else 0
        """Bytes from the bottom to the top."""

    def _places_of(self, addr: np.ndarray, size: np.ndarray) -> np.ndarray:
        """int64: y of each (signed) address; -1 for memory that does not lie in one range."""
        if not len(self._first):
            return frozen(np.full(len(addr), -1), np.int64)
        r = np.maximum(np.searchsorted(self._first, addr, "right") - 1, 0)
        inside = (self._first[r] <= addr) & (addr + size <= self._last[r])
        return frozen(
            np.where(inside, addr - self._first[r] + self._bottom[r], -1), np.int64
        )

    def address(self, y: float) -> int | None:
        """The address at y; None in a gap, below and above."""
        y = int(np.floor(y))
        r = int(np.searchsorted(self._bottom, y, "right")) - 1
        addr = y + int(self._first[r]) - int(self._bottom[r])
        return MIDDLE_ADDRESS + addr if r >= 0 and addr < self._last[r] else None
