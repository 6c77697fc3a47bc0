"""Paints pictures of timelines by a few threads: columns that are there already are taken over."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.snapshot.timeline import Canvas, assemble, paint_ground

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from splatview_viewer.kinds.snapshot.timeline import Addresses, Axis, Bands, Paint

_LEAST_SLICE = 160
"""Columns that a thread paints in one go, at least: each go begins with all that is live."""
_LEAST_TURNED = 64
"""Columns that a thread puts into the picture in one go, at least."""
_MOST_THREADS = 8


@lru_cache(maxsize=1)
def pool() -> ThreadPoolExecutor:
    """The threads that paint, for all views of the program."""
    return ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_THREADS), thread_name_prefix="paint")


@dataclass(frozen=True)
class Sheet:
    """A picture that is wanted: a part of a world in so many columns and rows."""

    world: Hashable
    """Pictures of one world show the same things at the same x and y."""
    colors: Hashable
    """Pictures of one world and of these colours look the same where they show the same."""
    x0: float
    step: float
    """The first column begins at x0; a column is `step` wide."""
    width: int
    low: float
    per_pixel: float
    """The lowest row begins at the byte `low`; a row is `per_pixel` bytes high."""
    height: int
    grain: int = 1
    """2: half as many columns and rows are painted, and each is seen twice."""

    @property
    def looks(self) -> tuple[Hashable, ...]:
        """Two columns at one moment are alike if this is."""
        return self.world, self.colors, self.low, self.per_pixel, self.height, self.grain


@dataclass(frozen=True)
class Layer:
    """A part of the world that is laid out by itself: its bytes lie from `base` up to `base + height`."""

    painter: Bands | Addresses
    base: float = 0.0
    height: float = float("inf")
    reserved: np.ndarray | None = None
    """int64 (M + 1,): bytes whose ground is seen as reserved, at each moment; None: there is no such ground."""


@dataclass(frozen=True)
class Material:
    """What a world is painted from."""

    axis: Axis
    bands: Bands
    """Says which moment a column shows: the one with most live bytes."""
    layers: tuple[Layer, ...]
    paint: Paint
    ground: tuple[int, int, int] = (0, 0, 0)
    edge: tuple[int, int, int] = (0, 0, 0)
    """0 to 255: where memory is reserved, and the line where it ends."""
    line: int = 1
    """Rows that the line is high."""


@dataclass
class Buffers:
    """What a picture is painted in. Memory that was used before is quicker than new memory."""

    canvas: Canvas
    fresh: Canvas
    """For what is not there yet."""
    rows: np.ndarray

    @classmethod
    def of(cls, sheet: Sheet, spare: Buffers | None) -> Buffers:
        """For a picture; `spare` if it fits."""
        size = -(-sheet.width // sheet.grain), -(-sheet.height // sheet.grain)
        if spare is not None and spare.canvas.ids.shape == size and spare.rows.shape == (sheet.height, sheet.width):
            return spare
        return cls(Canvas(*size, blank=False), Canvas(*size, blank=False),
                   np.empty((sheet.height, sheet.width), np.uint32))


class Painting:
    """A picture, painted by the threads of `pool()` from its making on."""

    def __init__(self, sheet: Sheet, material: Material, before: Painting | None = None,
                 spare: Buffers | None = None) -> None:
        """`before`: a picture that is done, whose columns can be taken over where they are the same. `spare`: buffers
        that nobody uses any more."""
        self.sheet = sheet
        self.canvas: Canvas | None = None
        """What was painted, a pixel for each `grain`; whole when `done` is set, unless it failed or was cancelled."""
        self.rows = np.empty((0, 0), np.uint32)
        """uint32 (H, W): red, green, blue, alpha of the picture, its lowest row first; likewise."""
        self.moments = np.empty(0, np.int32)
        """int32: the moment that each column of the canvas shows."""
        self.done = threading.Event()
        self.error: Exception | None = None
        self.seconds = 0.0
        """From beginning to end."""
        self.painted = 0
        """Columns that were not taken over."""
        self.buffers: Buffers | None = spare
        """What it was painted in, once it is done."""
        self._material = material
        self._before = before if before is not None and before.sheet.looks == sheet.looks else None
        self._cancelled = False
        self._since = time.perf_counter()
        self._lock = threading.Lock()
        self._tasks: deque[Callable[[], None]] = deque()
        self._left = 0
        self._then: Callable[[], None] = self._end
        self._fresh: Canvas | None = None
        self._fresh_moments = self.moments
        self._from: tuple[np.ndarray, np.ndarray] = self.moments, self.moments
        pool().submit(self._share, [self._plan], self._paint_all)

    def cancel(self) -> None:
        """Nobody wants it any more."""
        self._cancelled = True

    def moment_at(self, x: float) -> int | None:
        """The moment that the column at this place of the axis shows; None: there is none."""
        s = self.sheet
        column = int((x - s.x0) // (s.step * s.grain))
        moment = int(self.moments[column]) if 0 <= column < len(self.moments) else -1
        return moment if moment >= 0 else None

    # -- sharing the work ----------------------------------------------------------------------------------------

    def _share(self, tasks: Sequence[Callable[[], None]], then: Callable[[], None]) -> None:
        """Have the threads do the tasks; the last one goes on with `then`."""
        with self._lock:
            self._tasks.extend(tasks)
            self._left, self._then = len(tasks), then
        for _ in range(min(pool()._max_workers, len(tasks)) - 1):
            pool().submit(self._work)
        self._work()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._tasks:
                    return
                task = self._tasks.popleft()
            error = None
            try:
                if not self._cancelled and self.error is None:
                    task()
            except Exception as e:
                error = e
            with self._lock:
                self.error = self.error or error
                self._left -= 1
                then = self._then if not self._left else None
            if then is not None:
                if self.error is not None or self._cancelled:
                    then = self._end
                try:
                    then()
                except Exception as e:
                    self.error = e
                    self._end()
                return

    def _end(self) -> None:
        if self.error is not None or self._cancelled:
            self.canvas = None
        self.seconds = time.perf_counter() - self._since
        self._before = self._fresh = None
        self.done.set()

    # -- the work ------------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Which moment each column shows, and which columns have to be painted: each moment once."""
        s, m = self.sheet, self._material
        columns, step = -(-s.width // s.grain), s.step * s.grain
        moments = m.bands.peaks(m.axis.edges(s.x0, s.x0 + step * columns, columns)).astype(np.int32, copy=False)
        self.moments = moments
        old = self._before.moments if self._before is not None else moments[:0]
        if (np.diff(old) < 0).any():  # columns beyond the end
            old = old[:0]
        there = np.minimum(np.searchsorted(old, moments), max(len(old) - 1, 0))
        known = old[there] == moments if len(old) else np.zeros(len(moments), bool)
        new = ~known
        first = new.copy()
        first[1:] &= ~(new[:-1] & (moments[1:] == moments[:-1]))
        self._fresh_moments = np.ascontiguousarray(moments[first])
        self.painted = len(self._fresh_moments)
        self._from = np.where(known, there, -1), np.cumsum(first) - 1
        self.buffers = Buffers.of(s, self.buffers)
        self._fresh = self.buffers.fresh.first(max(self.painted, 1))
        if len(m.layers) > 1:  # one layer fills all of it
            self._fresh.rgba[:], self._fresh.ids[:] = 0, -1

    def _paint_all(self) -> None:
        n = max(_LEAST_SLICE, -(-self.painted // (2 * pool()._max_workers)))
        parts = [slice(i, min(i + n, self.painted)) for i in range(0, self.painted, n)]
        if parts:
            self._share([partial(self._paint, part) for part in parts], self._put_together)
        else:
            self._put_together()

    def _paint(self, columns: slice) -> None:
        s, m, fresh = self.sheet, self._material, self._fresh
        assert fresh is not None
        low, per_row, height = s.low, s.per_pixel * s.grain, fresh.height
        moments = np.ascontiguousarray(self._fresh_moments[columns])
        for layer in m.layers:
            if len(m.layers) == 1:
                layer.painter.paint(fresh, columns, self._fresh_moments, low, per_row, m.paint)
                self._paint_reserved(layer, fresh.rgba[columns], moments, low, per_row)
                continue
            # The rows whose middle lies in the layer.
            top = height - int(np.ceil((layer.base + layer.height - low) / per_row - 0.5))
            bottom = height - int(np.ceil((layer.base - low) / per_row - 0.5))
            top, bottom = min(max(top, 0), height), min(max(bottom, 0), height)
            if bottom > top:
                self._paint_lane(layer, columns, moments, (top, bottom))
        if any(layer.base for layer in m.layers):
            self._paint_gaps(columns)

    def _paint_lane(self, layer: Layer, columns: slice, moments: np.ndarray, rows: tuple[int, int]) -> None:
        s, fresh = self.sheet, self._fresh
        assert fresh is not None
        top, bottom = rows
        per_row = s.per_pixel * s.grain
        part = Canvas(columns.stop - columns.start, bottom - top)
        low = s.low + (fresh.height - bottom) * per_row - layer.base
        layer.painter.paint(part, slice(0, len(moments)), moments, low, per_row, self._material.paint)
        self._paint_reserved(layer, part.rgba, moments, low, per_row)
        fresh.rgba[columns, top:bottom] = part.rgba
        fresh.ids[columns, top:bottom] = part.ids

    def _paint_gaps(self, columns: slice) -> None:
        """Between lanes there is nothing: not even what the canvas was made with."""
        assert self._fresh is not None
        part = self._fresh.rgba[columns]
        part[part[..., 3] == 0] = (*self._material.paint.background, 255)

    def _paint_reserved(self, layer: Layer, rgba: np.ndarray, moments: np.ndarray, low: float, per_row: float) -> None:
        """The ground over what is live, up to what is reserved. rgba: uint8 (W, H, 4), of these moments."""
        if layer.reserved is None:
            return
        m, height = self._material, rgba.shape[1]
        at = np.maximum(moments, 0)
        live = layer.painter.live[at]  # type: ignore[union-attr]
        bottom, top = (np.clip(np.round(height - (b - low) / per_row), 0, height).astype(np.int64)
                       for b in (live, layer.reserved[at]))
        paint_ground(rgba, np.where(moments >= 0, top, bottom), bottom, (m.ground, m.edge), m.line)

    def _put_together(self) -> None:
        """What was painted and what was there, in one canvas; and as rows."""
        fresh, buffers = self._fresh, self.buffers
        assert fresh is not None
        assert buffers is not None
        if self.painted == len(self.moments):
            buffers.canvas, buffers.fresh = buffers.fresh, buffers.canvas
        self.canvas, self.rows = buffers.canvas, buffers.rows
        n = max(_LEAST_TURNED, -(-len(self.moments) // pool()._max_workers))
        self._share([partial(self._assemble, i, min(i + n, len(self.moments))) for i in range(0, len(self.moments), n)],
                    self._end)

    def _assemble(self, first: int, last: int) -> None:
        before = self._before.canvas if self._before is not None else None
        assert self.canvas is not None
        assert self._fresh is not None
        assemble(before, self._fresh, self._from, self.canvas, self.rows, (first, last), self.sheet.grain)
