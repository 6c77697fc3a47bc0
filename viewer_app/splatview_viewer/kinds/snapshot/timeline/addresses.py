"""The address space over time: one rectangle for each allocation, at its address, as long as it lived."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.snapshot.model import MIDDLE, signed
from splatview_viewer.kinds.snapshot.timeline.bands import prepared
from splatview_viewer.kinds.snapshot.timeline.compiled import kernels
from splatview_viewer.kinds.snapshot.timeline.index import LiveIndex, frozen

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Trace
    from splatview_viewer.kinds.snapshot.timeline.bands import Canvas, Paint

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
        place = kernels().place
        addr, size = frozen(signed(a.addr), np.int64), frozen(a.size, np.int64)
        self._ranges(*_union(signed(s.addr), signed(s.addr) + s.size))
        places = np.empty(len(a), np.int64)
        if place(addr, size, self._first, self._last, self._shift, places):
            lost = places < 0  # in no range that was reserved: the trace does not say all
            first = np.concatenate([self._first, addr[lost]])
            last = np.concatenate([self._last, addr[lost] + np.maximum(size[lost], 1)])
            self._ranges(*_union(first, last))
            place(addr, size, self._first, self._last, self._shift, places)
        self._index = LiveIndex(a.start, a.end, events)
        self._size = size
        self._places = frozen(places, np.int64)
        order = np.argsort(s.start, kind="stable")
        starts, ends, bottoms, sizes = (np.asarray(c)[order] for c in (s.start, s.end, signed(s.addr), s.size))
        lies = np.empty(len(s), np.int64)
        place(frozen(bottoms, np.int64), frozen(sizes, np.int64), self._first, self._last, self._shift, lies)
        self._spans = LiveIndex(starts, ends, events).kernel, frozen(lies, np.int64), frozen(sizes, np.int64)

    def _ranges(self, first: np.ndarray, last: np.ndarray) -> None:
        total = int((last - first).sum())
        gap = int(total * min(GAP, GAPS / max(len(first) - 1, 1)))
        bottom = np.concatenate([[0], np.cumsum(last - first + gap)[:-1]]) if len(first) else first
        self._first, self._last = frozen(first, np.int64), frozen(last, np.int64)
        self._bottom = frozen(bottom, np.int64)
        self._shift = frozen(bottom - first, np.int64)
        self.height = int(bottom[-1] + last[-1] - first[-1]) if len(first) else 0
        """Bytes from the bottom to the top."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes beside the trace's own arrays."""
        return self._index.nbytes + self._places.nbytes

    def place(self, addr: int) -> int | None:
        """y of an address; None where nobody ever had memory."""
        r = int(np.searchsorted(self._first, addr - MIDDLE, "right")) - 1
        return addr - self._base(r) if r >= 0 and addr - MIDDLE < self._last[r] else None

    def address(self, y: float) -> int | None:
        """The address at y; None in a gap, below and above."""
        y = int(np.floor(y))
        r = int(np.searchsorted(self._bottom, y, "right")) - 1
        return y + self._base(r) if r >= 0 and y + self._base(r) - MIDDLE < self._last[r] else None

    def _base(self, r: int) -> int:
        """The address that a range would have at y = 0."""
        return MIDDLE + int(self._first[r]) - int(self._bottom[r])

    def y(self, allocation: int) -> int:
        """Where the rectangle of an allocation begins."""
        return int(self._places[allocation])

    def pick(self, moment: int, y: float) -> int:
        """The allocation that lies there then; -1: none. IndexError for a moment outside of the trace."""
        live = self._index.live(moment)
        at = y - self._places[live]
        hit = np.flatnonzero((at >= 0) & (at < self._size[live]))
        return int(live[hit[-1]]) if len(hit) else -1

    def paint(self, canvas: Canvas, columns: slice, moments: np.ndarray, low: float, per_pixel: float,
              paint: Paint) -> None:
        """Paints columns of a canvas, as `Bands.paint` does; what is reserved then is painted as `paint.reserved`."""
        first, last, inks, where = prepared(canvas, columns, moments, low, per_pixel, paint,
                                            (len(self._size), self._index.events))
        paint_addresses = kernels().paint_addresses
        paint_addresses((self._index.kernel, self._places, self._size), self._spans, inks,
                    (where, frozen((), np.int64), float(low), float(per_pixel)), (first, last),
                    (canvas.packed, canvas.ids), np.empty((2, canvas.height + 2, kernels().SUMS)))


def _union(first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranges that neither overlap nor touch, ascending, of ranges that may."""
    if not len(first):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order = np.argsort(first, kind="stable")
    first, last = first[order], np.maximum.accumulate(last[order])
    opens = np.concatenate([[True], first[1:] > last[:-1]])
    closes = np.concatenate([opens[1:], [True]])
    return first[opens], last[closes]
