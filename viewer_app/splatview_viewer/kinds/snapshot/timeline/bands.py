"""Layout of a picture of a trace: stacked bands, the address space; the canvas for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.snapshot.model import MIDDLE, held, signed
from splatview_viewer.kinds.snapshot.timeline.compiled import kernels
from splatview_viewer.kinds.snapshot.timeline.index import LiveIndex, Peaks, frozen

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Trace

Color = tuple[int, int, int]


class Canvas:
    """A picture whose columns lie one behind the other, so that threads can paint columns of their own."""

    def __init__(self, width: int, height: int, *, blank: bool = True) -> None:
        """`blank`: False where every pixel is written before it is read."""
        self.rgba = np.zeros((width, height, 4), np.uint8) if blank else np.empty((width, height, 4), np.uint8)
        """uint8 (W, H, 4): rgba[x, y], y from the top."""
        self.ids = np.full((width, height), -1, np.int32) if blank else np.empty((width, height), np.int32)
        """int32 (W, H): the allocation under the centre of each pixel; -1: none."""

    @property
    def width(self) -> int:
        return self.ids.shape[0]

    @property
    def height(self) -> int:
        return self.ids.shape[1]

    @property
    def packed(self) -> np.ndarray:
        """uint32 (W, H): the same memory as `rgba`, a pixel in one number."""
        return self.rgba.view("<u4").reshape(self.ids.shape)


def assemble(before: Canvas | None, fresh: Canvas, origin: tuple[np.ndarray, np.ndarray], canvas: Canvas,
             rows: np.ndarray, part: tuple[int, int]) -> None:
    """Puts columns of two canvases into one, and as rows into a picture; without the GIL.

    origin: int64 (W,) twice: which column of `before` each is, or -1; which one of `fresh` otherwise. rows: uint32
    (H, W), the lowest row first. part: first and last column (exclusive)."""
    work = kernels().assemble
    old = fresh if before is None else before
    work((old.packed, old.ids), (fresh.packed, fresh.ids), origin, (canvas.packed, canvas.ids), rows, part)


def paint_ground(rgba: np.ndarray, top: np.ndarray, bottom: np.ndarray, shades: tuple[Color, Color], line: int
                 ) -> None:
    """Paints the rows from top to bottom of each column in a colour, the highest `line` of them in another unless they
    are the picture's highest. rgba: uint8 (W, H, 4), contiguous; top, bottom: int64 (W,), within 0..H."""
    work = kernels().paint_ground
    pixels = rgba.view("<u4").reshape(rgba.shape[:2])
    ground, edge = (np.array([*shade, 255], np.uint8).view(np.uint32)[0] for shade in shades)
    work(pixels, top, bottom, (ground, edge), line)


@dataclass(frozen=True, eq=False)
class Paint:
    """The colour of each allocation."""

    classes: np.ndarray
    """uint16 (A,): a row of the palette for each allocation."""
    palette: np.ndarray
    """uint8 (K, 3)"""
    lit: np.ndarray | None = None
    """bool or uint8 (A,): those that keep their colour while the others are dimmed; None: all do."""
    background: Color = (18, 20, 24)
    """Where nothing is."""
    reserved: Color = (34, 38, 46)
    """In `Addresses`: memory that is reserved and holds nothing."""
    dim: Color = (44, 47, 54)
    """What the colours of those that are not lit are drawn to."""
    dimming: float = 0.8
    """How far: 0 not at all, 1 wholly."""

    @cached_property
    def shades(self) -> np.ndarray:
        palette = self.palette.astype(np.float64)
        dimmed = palette + (np.array(self.dim) - palette) * self.dimming
        return frozen(np.concatenate([palette, dimmed]).round().clip(0, 255), np.float64)

    def tables(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """For the kernels: classes uint16 (A,), lit uint8 (A,) or (0,), float64 (2 K, 3) colours, dimmed ones last, and
        float64 (2, 3): background, reserved.

        ValueError unless there is a class for each of `count` allocations."""
        if len(self.classes) != count:
            raise ValueError(f"{len(self.classes)} classes for {count} allocations: there must be one for each")
        lit = np.empty(0, np.uint8) if self.lit is None else np.ascontiguousarray(self.lit).view(np.uint8)
        return (frozen(self.classes, np.uint16), frozen(lit, np.uint8), self.shades,
                frozen((self.background, self.reserved), np.float64))


class Bands:
    """The bands of a trace, or of some of its allocations. Several threads may ask and paint at once."""

    def __init__(self, trace: Trace, members: np.ndarray | None = None) -> None:
        """members: bool (A,), those that are stacked; None: all."""
        a = trace.allocations
        self.count = len(a)
        """A: of all allocations of the trace."""
        self.numbers = frozen(np.flatnonzero(members) if members is not None else (), np.int32)
        self._some = members is not None
        start, end, size = (column[self.numbers] if self._some else column for column in (a.start, a.end, a.size))
        self._size = frozen(size, np.int64)
        self.live = frozen(held(trace.moments, start, end, size), np.int64)
        """int64 (M + 1,): bytes at each moment."""
        self.peaks = Peaks(self.live)
        """Which moment a column shows: `bands.peaks(edges)`."""
        self._index = LiveIndex(start, end, len(trace.events))

    def pick(self, moment: int, byte: float) -> int:
        """The allocation that has this byte of the stack; -1: none. IndexError for a moment outside of the trace."""
        live = self._index.live(moment)
        found = int(np.searchsorted(np.cumsum(self._size[live]), byte, "right")) if byte >= 0 else len(live)
        if found >= len(live):
            return -1
        return int(self.numbers[live[found]] if self._some else live[found])

    def paint(self, canvas: Canvas, columns: slice, moments: np.ndarray, low: float, per_pixel: float,
              paint: Paint) -> None:
        """Paints columns of a canvas; without the GIL, so that threads can paint different columns at once.

        columns: which of them; slices of 200 and more columns are worth it, since each begins with all that is live.
        moments: int32 (W,), the moment of each column; -1: nothing but the background. low, per_pixel: bytes; row y
        shows the bytes from low + (H - 1 - y) * per_pixel on.

        A pixel shows the mean of the colours of all bands in it, by their bytes. Bands of 3 pixels and more have a
        darker line at their lower edge.
        """
        n = 2 * self._index.longest + 4096
        lists = (np.empty(n, np.int32), np.empty(n, np.int32), np.zeros(n), np.zeros(((n >> kernels().BLOCK) + 1, 4)),
                 np.empty(len(self._size), np.int32))
        kernels().paint_bands(self._index.kernel, self._size, self.numbers, paint.tables(self.count),
                              (frozen(moments, np.int32), float(low), float(per_pixel)),
                              columns.indices(canvas.width)[:2], (canvas.packed, canvas.ids), lists)


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
        self._places = self._places_of(addr, size)
        self._spans = (LiveIndex(s.start, s.end, events).kernel, self._places_of(signed(s.addr), s.size),
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
        """Return the lower edge of the rectangle of an allocation."""
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
        kernels().paint_addresses((self._index.kernel, self._places, self._size), self._spans,
                                  paint.tables(len(self._size)),
                                  (frozen(moments, np.int32), float(low), float(per_pixel)),
                                  columns.indices(canvas.width)[:2], (canvas.packed, canvas.ids),
                                  np.empty((2, canvas.height + 2, kernels().SUMS)))
