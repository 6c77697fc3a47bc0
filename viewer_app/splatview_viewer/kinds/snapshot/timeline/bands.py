"""Stacked bands: each allocation is on those before it and sinks when one of these is freed; the canvas for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.snapshot.model import pool_text
from splatview_viewer.kinds.snapshot.timeline.compiled import kernels
from splatview_viewer.kinds.snapshot.timeline.index import Envelope, Lists, LiveIndex, accumulated, frozen, reserved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.kinds.snapshot.model import Trace

Color = tuple[int, int, int]
MAX_PIXELS = 1 << 27


class Canvas:
    """A picture whose columns lie one behind the other, so that threads can paint columns of their own."""

    def __init__(self, width: int, height: int, *, blank: bool = True) -> None:
        """`blank`: False where every pixel is written before it is read."""
        if width < 1 or height < 1 or width * height > MAX_PIXELS:
            raise ValueError(f"a canvas cannot have {width} x {height} pixels: 1 x 1 up to {MAX_PIXELS} in all")
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

    def __post_init__(self) -> None:
        k = len(self.palette)
        if self.palette.ndim != 2 or self.palette.shape[1] != 3 or not 1 <= k <= 1 << 15:
            raise ValueError(f"a palette of shape {self.palette.shape}: it must have 1 to 32768 rows of three")
        if len(self.classes) and int(self.classes.max()) >= k:
            raise ValueError(f"class {int(self.classes.max())} has no colour: the palette ends at {k - 1}")
        if self.lit is not None and len(self.lit) != len(self.classes):
            raise ValueError(f"{len(self.lit)} allocations are lit or not, and {len(self.classes)} have a class")
        object.__setattr__(self, "shades", self._shades())

    def _shades(self) -> np.ndarray:
        palette = self.palette.astype(np.float64)
        dimmed = palette + (np.array(self.dim) - palette) * self.dimming
        return np.ascontiguousarray(np.concatenate([palette, dimmed]).round().clip(0, 255))

    def tables(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For the kernels: classes uint16 (A,), lit uint8 (A,) or (0,), and float64 (2 K, 3) colours, dimmed ones last.

        ValueError unless there is a class for each of `count` allocations."""
        if len(self.classes) != count:
            raise ValueError(f"{len(self.classes)} classes for {count} allocations: there must be one for each")
        lit = np.empty(0, np.uint8) if self.lit is None else np.ascontiguousarray(self.lit).view(np.uint8)
        return np.ascontiguousarray(self.classes, np.uint16), lit, self.shades  # type: ignore[attr-defined]

    def grounds(self) -> np.ndarray:
        """float64 (2, 3): background, reserved."""
        return np.array([self.background, self.reserved], np.float64)


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
        self.live = accumulated(start, end, self._size, len(trace.events))
        """int64 (M + 1,): bytes at each moment."""
        self._envelope = Envelope(self.live)
        self._index = LiveIndex(start, end, len(trace.events))
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


class Lane:
    """A pool of memory. Its arrays are worked out when they are first asked for: on a worker thread, please."""

    def __init__(self, trace: Trace, pool: int, name: str) -> None:
        self.pool = pool
        """A place in `Snapshot.pools`, or UNKNOWN_POOL."""
        self.name = name
        """What people call it: "default pool", "private pool (0, 3)"."""
        self._trace = trace

    @cached_property
    def bands(self) -> Bands:
        """The allocations of this pool, stacked."""
        return Bands(self._trace, self._trace.allocations.pool == self.pool)

    @cached_property
    def reserved(self) -> np.ndarray:
        """int64 (M + 1,): bytes reserved for this pool at each moment."""
        return reserved(self._trace, self.pool)

    @cached_property
    def height(self) -> int:
        """Bytes that the lane needs: the most that was ever live or reserved."""
        return int(max(self.reserved.max(), self.bands.live.max()))


def lanes(trace: Trace, pools: Sequence[tuple[int, int]]) -> list[Lane]:
    """A lane for each pool that has allocations or memory: the default one first, then by number, unknown ones last.

    pools: `Snapshot.pools`."""
    seen = set(np.unique(trace.allocations.pool).tolist()) | set(np.unique(trace.spans.pool).tolist())
    return [Lane(trace, pool, pool_text(None if pool < 0 else pools[pool]))
            for pool in sorted(seen, key=lambda p: (p < 0, p))]
