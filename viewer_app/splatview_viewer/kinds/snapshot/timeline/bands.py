"""Layout of a picture of a trace: stacked bands, the address space; the canvas for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.snapshot.model import MIDDLE, live_bytes, signed
from splatview_viewer.kinds.snapshot.timeline.compiled import kernels
from splatview_viewer.kinds.snapshot.timeline.index import LiveIndex, Peaks, frozen

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Trace

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
