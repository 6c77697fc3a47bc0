"""Which Gaussians touch which tile of the picture: lists in drawing order, made on the processor with NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.render.gl.compositor import stable_order
from splatview_viewer.render.work import LISTED_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

TILE = 8
"""Side in pixels; shaders/project.frag and walk.frag know it too."""
BUDGET = 1 << 21
"""Entries of all lists together in one chunk: what bounds the memory, some 60 MB."""


@dataclass(frozen=True)
class Lists:
    """One chunk: for each tile the Gaussians that touch it, nearest first."""

    entries: np.ndarray
    """(E,) int32 places in drawing order, tile after tile."""
    ranges: np.ndarray
    """(tiles, 2) int32: where in `entries` a tile's list starts and ends; tiles row by row."""


class Chunks:
    """Goes through the Gaussians from front to back in chunks of at most `BUDGET` entries.

    Iterate over it; before the next chunk is asked for, `close_tiles` may say where nothing more can be seen. Ends
    after `most` entries, or those of one more Gaussian, whatever is left.
    """

    def __init__(self, boxes: np.ndarray, grid: tuple[int, int], most: int = LISTED_MAX):
        """`boxes` (N, 2) int32, in drawing order: the first tile's number, row by row, and width + (height << 16) in
        tiles, 0 where nothing shows. `grid`: tiles across and down."""
        self.listed = self.lacking = 0
        """Entries of all chunks so far, and those that the last one left out at the end."""
        self._most = most
        self._columns, self._rows = grid
        self._held = _Boxes(np.arange(len(boxes), dtype=np.int32), boxes[:, 0], boxes[:, 1] & 0xFFFF, boxes[:, 1] >> 16)

    def __iter__(self) -> Iterator[Lists]:
        while len(self._held.rank):
            held = self._held
            n, total = len(held.rank), np.cumsum(held.widths * held.heights, dtype=np.int64)
            budget = min(BUDGET, self._most - self.listed)
            if total[-1] > 0 and budget <= 0:
                self.lacking = int(total[-1])
                return
            if total[-1] > budget:  # one Gaussian at least: it has no more entries than the picture has tiles
                n = max(int(np.searchsorted(total, budget, side="right")), 1)
            self._held = held[n:]
            self.listed += int(total[n - 1])
            if total[n - 1]:
                yield self._lists(held[:n])

    @property
    def remaining(self) -> int:
        """Gaussians that no chunk has held yet."""
        return len(self._held.rank)

    def close_tiles(self, unfinished: np.ndarray) -> None:
        """Forget Gaussians that touch only tiles where `unfinished` (rows, columns), bool, is False."""
        table = np.zeros((self._rows + 1, self._columns + 1), np.int32)  # sums over everything left of and above
        np.cumsum(np.cumsum(unfinished, axis=0, dtype=np.int32), axis=1, out=table[1:, 1:])
        held = self._held
        y0, x0 = np.divmod(held.first, self._columns)
        y1, x1 = y0 + held.heights, x0 + held.widths
        self._held = held[np.flatnonzero(table[y1, x1] - table[y0, x1] - table[y1, x0] + table[y0, x0])]

    def _lists(self, boxes: _Boxes) -> Lists:
        columns, tiles = self._columns, self._columns * self._rows
        # First every row of tiles that a box has, then every tile of such a row. The tile's number is what its row
        # of tiles starts with plus how far along it is; repeating (start - place) and adding places gives that.
        owner = np.repeat(np.arange(len(boxes.rank), dtype=np.int32), boxes.heights)
        first = (boxes.first - columns * _starts(boxes.heights)).take(owner)
        first += np.arange(0, len(owner) * columns, columns, dtype=np.int32)
        widths = boxes.widths.take(owner)
        pairs = np.stack([first - _starts(widths), boxes.rank.take(owner)], axis=1)
        # Both at once: as one number of 64 bits.
        pairs = np.repeat(pairs.view(np.int64)[:, 0], widths).view(np.int32).reshape(-1, 2)
        tile = pairs[:, 0] + np.arange(len(pairs), dtype=np.int32)
        entries = pairs[:, 1].take(stable_order(tile.view(np.uint32), tiles))
        ranges = np.empty((tiles, 2), np.int32)
        count = np.bincount(tile, minlength=tiles)
        np.cumsum(count, out=ranges[:, 1])
        np.subtract(ranges[:, 1], count, out=ranges[:, 0])
        return Lists(entries, ranges)


@dataclass(frozen=True)
class _Boxes:
    """(M,) int32 each."""

    rank: np.ndarray
    """Place in drawing order."""
    first: np.ndarray
    widths: np.ndarray
    heights: np.ndarray

    def __getitem__(self, which: slice | np.ndarray) -> _Boxes:
        return _Boxes(self.rank[which], self.first[which], self.widths[which], self.heights[which])


def _starts(counts: np.ndarray) -> np.ndarray:
    """Where each of several runs begins that lie one after the other."""
    return np.cumsum(counts, dtype=np.int32) - counts
