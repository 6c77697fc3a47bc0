"""Paints pictures of timelines by a few threads: columns that are there already are taken over."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.snapshot.timeline.bands import Canvas, Color
from splatview_viewer.kinds.snapshot.timeline.compiled import kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from splatview_viewer.kinds.snapshot.timeline.bands import Addresses, Bands, Paint
    from splatview_viewer.kinds.snapshot.timeline.index import Axis

_LEAST_SLICE = 160
"""Columns that a thread paints in one go, at least: each go begins with all that is live."""
_LEAST_TURNED = 64
"""Columns that a thread puts into the picture in one go, at least."""
_MOST_THREADS = 8
_RESERVED: Color = (25, 28, 32)
_EDGE: Color = (76, 85, 102)
"""Bytes that are reserved and not live, and the line where they end."""
_SHADES = tuple(np.array([*shade, 255], np.uint8).view(np.uint32)[0] for shade in (_RESERVED, _EDGE))


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

    @property
    def looks(self) -> tuple[Hashable, ...]:
        """Two columns at one moment are alike if this is."""
        return self.world, self.colors, self.low, self.per_pixel, self.height


@dataclass(frozen=True)
class Material:
    """Data that a world is painted from."""

    axis: Axis
    bands: Bands
    """Says which moment a column shows: the one with most live bytes."""
    painter: Bands | Addresses
    paint: Paint
    reserved: np.ndarray | None = None
    """int64 (M + 1,): bytes whose ground is seen as reserved, at each moment; None: there is no such ground."""
    line: int = 1
    """Rows that the line is high."""


@dataclass(frozen=True, eq=False)
class Painting:
    """A picture that is painted."""

    sheet: Sheet
    canvas: Canvas
    rows: np.ndarray
    """uint32 (H, W): red, green, blue, alpha of the picture, its lowest row first."""
    moments: np.ndarray
    """int32 (W,): the moment that each column shows."""
    painted: int
    """Columns that were not taken over."""
    seconds: float

    def moment_at(self, x: float) -> int | None:
        """Return the moment that the column at this place of the axis shows; None: there is none."""
        column = int((x - self.sheet.x0) // self.sheet.step)
        moment = int(self.moments[column]) if 0 <= column < len(self.moments) else -1
        return moment if moment >= 0 else None


def paint(sheet: Sheet, material: Material, before: Painting | None = None,
          cancelled: Callable[[], bool] = lambda: False) -> Painting:
    """Paint a picture by the threads of `pool()`: each moment once, and none that `before` shows in the same way.

    Once `cancelled` says so, columns are left as they are.
    """
    since = time.perf_counter()
    s, m = sheet, material
    moments = m.bands.peaks(m.axis.edges(s.x0, s.x0 + s.step * s.width, s.width)).astype(np.int32, copy=False)
    old = before.moments if before is not None and before.sheet.looks == s.looks else moments[:0]
    if (np.diff(old) < 0).any():  # columns beyond the end
        old = old[:0]
    there = np.minimum(np.searchsorted(old, moments), max(len(old) - 1, 0))
    known = old[there] == moments if len(old) else np.zeros(len(moments), bool)
    first = ~known
    first[1:] &= known[:-1] | (moments[1:] != moments[:-1])
    origin = np.where(known, there, -1), np.cumsum(first) - 1
    new = np.ascontiguousarray(moments[first])
    fresh = Canvas(max(len(new), 1), s.height)

    def fill(columns: slice) -> None:
        m.painter.paint(fresh, columns, new, s.low, s.per_pixel, m.paint)
        if m.reserved is not None:  # the ground over what is live, up to what is reserved
            at = np.maximum(new[columns], 0)
            bottom, top = (np.clip(np.round(s.height - (b[at] - s.low) / s.per_pixel), 0, s.height).astype(np.int64)
                           for b in (m.bands.live, m.reserved))
            kernels().paint_ground(fresh.pixels[columns], np.where(new[columns] >= 0, top, bottom), bottom, _SHADES,
                                   m.line)

    def share(count: int, least: int, work: Callable[[slice], None]) -> None:
        parts = [slice(i, min(i + least, count)) for i in range(0, count, least)]
        list(pool().map(lambda part: None if cancelled() else work(part), parts))

    threads = pool()._max_workers
    share(len(new), max(_LEAST_SLICE, -(-len(new) // (2 * threads))), fill)
    former = before.canvas if before is not None else fresh
    canvas = fresh if len(new) == s.width else Canvas(s.width, s.height)
    rows = np.empty((s.height, s.width), np.uint32)
    share(s.width, max(_LEAST_TURNED, -(-s.width // threads)), lambda part: kernels().assemble(
        former.kernel, fresh.kernel, origin, canvas.kernel, rows, (part.start, part.stop)))
    return Painting(s, canvas, rows, moments, len(new), time.perf_counter() - since)
