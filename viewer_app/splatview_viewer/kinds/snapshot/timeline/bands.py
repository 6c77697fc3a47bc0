"""Stacked bands: each allocation lies on those before it, and sinks when one of these is freed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.snapshot.timeline.compiled import kernels
from splatview_viewer.kinds.snapshot.timeline.index import Lists, LiveIndex, frozen, never, stop
from splatview_viewer.kinds.snapshot.timeline.series import Envelope, accumulated

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.kinds.snapshot.model import Trace
    from splatview_viewer.kinds.snapshot.timeline.canvas import Canvas, Paint


class Bands:
    """The bands of a trace, or of some of its allocations. Several threads may ask and paint at once."""

    def __init__(self, trace: Trace, members: np.ndarray | None = None, *,
                 cancelled: Callable[[], bool] = never) -> None:
        """members: bool (A,), those that are stacked; None: all.

        Raises CancelledError when `cancelled` says so, ValueError for members of another length and for allocations
        that are not in order.
        """
        a = trace.allocations
        self.count = len(a)
        """A: of all allocations of the trace."""
        if members is not None and len(members) != len(a):
            raise ValueError(f"{len(members)} are members or not, and there are {len(a)} allocations")
        self.numbers = frozen(np.flatnonzero(members) if members is not None else (), np.int32)
        self._some = members is not None
        start, end, size = (column[self.numbers] if self._some else column for column in (a.start, a.end, a.size))
        self._size = frozen(size, np.int64)
        self.live = accumulated(start, end, self._size, len(trace.events))
        """int64 (M + 1,): bytes at each moment."""
        stop(cancelled)
        self._envelope = Envelope(self.live)
        stop(cancelled)
        self._index = LiveIndex(start, end, len(trace.events), cancelled)
        self._lists = Lists(self._index)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes beside the trace's own arrays."""
        return self.live.nbytes + self._index.nbytes + (self._size.nbytes + self.numbers.nbytes if self._some else 0)

    def peak(self, first: int, last: int) -> int:
        """The moment in first..last, inclusive, with most live bytes; the first of equals.

        IndexError when none of them is a moment of the trace."""
        if max(first, 0) > min(last, len(self.live) - 1):
            raise IndexError(f"no moment from {first} to {last}: they are 0 to {len(self.live) - 1}")
        return int(self.peaks(np.array([max(first, 0), last + 1], np.int64))[0])

    def peaks(self, edges: np.ndarray) -> np.ndarray:
        """int32 (W,): for column x the moment with most live bytes of edges[x] <= k < edges[x + 1].

        A column without a moment of its own: edges[x] - 1, which holds there; -1 outside of the trace."""
        return self._envelope.peaks(edges)

    def envelope(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int64 (W,) twice: the least and the most live bytes in each column."""
        return self._envelope(edges)

    def at(self, moment: int) -> tuple[np.ndarray, np.ndarray]:
        """What is live: allocations int32, in stacking order, and the byte at which each begins, int64.

        IndexError for a moment outside of the trace."""
        live = self._index.live(moment)
        sizes = self._size[live]
        base = np.cumsum(sizes)
        base -= sizes
        return (self.numbers[live] if self._some else live), base

    def pick(self, moment: int, byte: float) -> int:
        """The allocation that this byte of the stack belongs to; -1: none. IndexError as `at`."""
        live = self._index.live(moment)
        found = int(np.searchsorted(np.cumsum(self._size[live]), byte, "right")) if byte >= 0 else len(live)
        if found >= len(live):
            return -1
        return int(self.numbers[live[found]] if self._some else live[found])

    def base(self, allocation: int, moment: int) -> int | None:
        """The byte at which an allocation begins; None if it is not live, or no member. IndexError as `at`."""
        ids, base = self.at(moment)
        place = int(np.searchsorted(ids, allocation))
        return int(base[place]) if place < len(ids) and ids[place] == allocation else None

    def paint(self, canvas: Canvas, columns: slice, moments: np.ndarray, low: float, per_pixel: float, paint: Paint,
              offset: np.ndarray | None = None) -> None:
        """Paints columns of a canvas; without the GIL, so that threads can paint different columns at once.

        columns: which of them; slices of 200 and more columns are worth it, since each begins with all that is live.
        moments: int32 (W,), the moment of each column; -1: nothing but the background. low, per_pixel: bytes; row y
        shows the bytes from low + (H - 1 - y) * per_pixel on. offset: int64 (W,), bytes under the stack.

        A pixel shows the mean of the colours of all bands in it, by their bytes. Bands of 3 pixels and more have a
        darker line at their lower edge.
        """
        first, last, inks, where = prepared(canvas, columns, moments, low, per_pixel, paint,
                                            (self.count, self._index.events))
        under = frozen(() if offset is None else offset, np.int64)
        if offset is not None and len(under) != canvas.width:
            raise ValueError(f"{len(under)} offsets for {canvas.width} columns")
        paint_bands = kernels().paint_bands
        lists = self._lists.take()
        try:
            paint_bands(self._index.kernel, self._size, self.numbers, inks,
                        (where, under, float(low), float(per_pixel)), (first, last), (canvas.packed, canvas.ids), lists)
        finally:
            self._lists.give(lists)


def prepared(canvas: Canvas, columns: slice, moments: np.ndarray, low: float, per_pixel: float, paint: Paint,
             shape: tuple[int, int]) -> tuple[int, int, tuple[np.ndarray, ...], np.ndarray]:
    """Checked for the kernels: first and last column, inks, moments. ValueError says what does not fit.

    shape: how many allocations the trace has, and its last moment."""
    if not np.isfinite(low):
        raise ValueError(f"low is {low}: it must be a number of bytes")
    if not per_pixel > 0 or not np.isfinite(per_pixel):
        raise ValueError(f"{per_pixel} bytes per pixel: it must be more than 0")
    if len(moments) != canvas.width:
        raise ValueError(f"{len(moments)} moments for {canvas.width} columns")
    first, last, step = columns.indices(canvas.width)
    if step != 1:
        raise ValueError(f"columns are painted one after the other, not in steps of {step}")
    wrong = np.flatnonzero((np.asarray(moments) < -1) | (np.asarray(moments) > shape[1]))
    if len(wrong):
        raise ValueError(f"moment {moments[wrong[0]]} of column {wrong[0]}: they are 0 to {shape[1]}, or -1 for none")
    classes, lit, shades = paint.tables(shape[0])
    inks = tuple(frozen(a, a.dtype) for a in (classes, lit, shades, paint.grounds()))
    return first, max(first, last), inks, frozen(moments, np.int32)
