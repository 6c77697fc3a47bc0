"""Which Gaussians touch which tile of the picture: lists in drawing order, made on the processor with NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from viewer_app.renderers.gl_compositor import stable_order

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

    Iterate over it; before the next chunk is asked for, `close_tiles` may say where nothing more can be seen.
    """

    def __init__(self, boxes: np.ndarray, grid: tuple[int, int]):
        """`boxes` (N, 4) uint16: x and y of the first tile and of the one past the last, in drawing order; empty
        where nothing shows. `grid`: tiles across and down."""
        self._columns, self._rows = grid
        self._rank = np.flatnonzero(boxes[:, 2]).astype(np.int32)
        self._boxes = boxes[self._rank].T.astype(np.int32)

    def __iter__(self) -> Iterator[Lists]:
        while len(self._rank):
            x0, y0, x1, y1 = self._boxes
            total = np.cumsum((x1 - x0) * (y1 - y0), dtype=np.int64)
            n = len(total)
            if total[-1] > BUDGET:  # one Gaussian at least: it has no more entries than the picture has tiles
                n = max(int(np.searchsorted(total, BUDGET, side="right")), 1)
            boxes, rank = self._boxes[:, :n], self._rank[:n]
            self._boxes, self._rank = self._boxes[:, n:], self._rank[n:]
            yield self._lists(boxes, rank)

    @property
    def remaining(self) -> int:
        """Gaussians that no chunk has held yet."""
        return len(self._rank)

    def close_tiles(self, unfinished: np.ndarray) -> None:
        """Forget Gaussians that touch only tiles where `unfinished` (rows, columns), bool, is False."""
        table = np.zeros((self._rows + 1, self._columns + 1), np.int32)  # sums over everything left of and above
        np.cumsum(np.cumsum(unfinished, axis=0, dtype=np.int32), axis=1, out=table[1:, 1:])
        x0, y0, x1, y1 = self._boxes
        keep = np.flatnonzero(table[y1, x1] - table[y0, x1] - table[y1, x0] + table[y0, x0])
        self._boxes, self._rank = self._boxes[:, keep], self._rank[keep]

    def _lists(self, boxes: np.ndarray, rank: np.ndarray) -> Lists:
        columns, tiles = self._columns, self._columns * self._rows
        x0, y0, x1, y1 = boxes
        # First every row of tiles that a box has, then every tile of such a row. The tile's number is what its row
        # of tiles starts with plus how far along it is; repeating (start - place) and adding places gives that.
        heights = y1 - y0
        owner = np.repeat(np.arange(len(rank), dtype=np.int32), heights)
        first = y0 * columns + x0 - columns * _starts(heights)
        widths = (x1 - x0)[owner]
        first = first[owner] + np.arange(0, len(owner) * columns, columns, dtype=np.int32) - _starts(widths)
        tile = np.repeat(first, widths)
        tile += np.arange(len(tile), dtype=np.int32)
        entries = np.repeat(rank[owner], widths)[stable_order(tile.view(np.uint32), tiles)]
        ranges = np.empty((tiles, 2), np.int32)
        count = np.bincount(tile, minlength=tiles)
        np.cumsum(count, out=ranges[:, 1])
        np.subtract(ranges[:, 1], count, out=ranges[:, 0])
        return Lists(entries, ranges)


def _starts(counts: np.ndarray) -> np.ndarray:
    """Where each of several runs begins that lie one after the other."""
    return np.cumsum(counts, dtype=np.int32) - counts
