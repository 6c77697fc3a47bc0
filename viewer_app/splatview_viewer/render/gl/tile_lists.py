"""Lists of the Gaussians that touch each tile, nearest first, in chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_viewer.render.base import LISTED_MAX
from splatview_viewer.render.gl.passes import stable_order

if TYPE_CHECKING:
    from collections.abc import Iterator

TILE = 8
"""Side in pixels; shaders/project.frag and walk.frag know it too."""
BUDGET = 1 << 21
"""Entries of all lists together in one chunk: this bounds the memory, some 60 MB."""


class TileLists(NamedTuple):
    """The lists of one chunk."""

    entries: np.ndarray
    """(E,) int32 ranks (places in drawing order) of the Gaussians that touch a tile,
    nearest first, tile after tile."""
    ranges: np.ndarray
    """(tiles, 2) int32 where a tile's list starts and ends, tiles row by row."""


class Chunks:
    """Goes through the Gaussians from front to back in chunks of at most `BUDGET` entries.

    Iterate over it. Before the next chunk is asked for, `close_tiles` may say where
    nothing more can be seen. Ends after `limit` entries, or those of one more Gaussian,
    whatever is left.
    """

    def __init__(
        self, boxes: np.ndarray, grid: tuple[int, int], limit: int = LISTED_MAX
    ) -> None:
        """Start with all Gaussians.

        Args:
            boxes: (N, 2) int32, in drawing order: the first tile's number, row by row, and
                width + (height << 16) in tiles, 0 where nothing shows.
            grid: tiles across and down.
            limit: entries of all chunks.
        """
        self.is_cut = False
        """True if it has ended before everything was in a chunk."""
        self._budget = limit
        """Entries that are left of `limit`."""
        self._columns, self._rows = grid
        ranks = np.arange(len(boxes), dtype=np.int32)
        widths = boxes[:, 1] & 0xFFFF
        heights = boxes[:, 1] >> 16
        self._pending = np.stack([ranks, boxes[:, 0], widths, heights])
        """(4, M) int32: rank, first tile, width and height of those that were in no chunk
        yet."""

    def __iter__(self) -> Iterator[TileLists]:
        return self

    def __next__(self) -> TileLists:
        while self.remaining:
            count = self.remaining
            _, _, widths, heights = self._pending
            entries = np.cumsum(widths * heights, dtype=np.int64)
            budget = min(BUDGET, self._budget)
            if entries[-1] > 0 and budget <= 0:
                self.is_cut = True
                break
            if entries[-1] > budget:
                # One Gaussian at least: it has no more entries than the picture has tiles.
                fitting = int(np.searchsorted(entries, budget, side="right"))
                count = max(fitting, 1)
            chunk = self._pending[:, :count]
            self._pending = self._pending[:, count:]
            self._budget -= int(entries[count - 1])
            if entries[count - 1]:
                return self._make_lists(*chunk)
        raise StopIteration

    @property
    def remaining(self) -> int:
        """Number of Gaussians that were in no chunk yet."""
        return self._pending.shape[1]

    def close_tiles(self, unfinished: np.ndarray) -> None:
        """Forget Gaussians that touch no unfinished tile.

        Args:
            unfinished: (rows, columns) bool.
        """
        # Sums over everything left of and above a tile.
        sums = np.zeros((self._rows + 1, self._columns + 1), np.int32)
        down = np.cumsum(unfinished, axis=0, dtype=np.int32)
        np.cumsum(down, axis=1, out=sums[1:, 1:])
        _, first, widths, heights = self._pending
        y0, x0 = np.divmod(first, self._columns)
        y1 = y0 + heights
        x1 = x0 + widths
        touched = sums[y1, x1] - sums[y0, x1] - sums[y1, x0] + sums[y0, x0]
        self._pending = self._pending[:, np.flatnonzero(touched)]

    def _make_lists(
        self,
        ranks: np.ndarray,
        first: np.ndarray,
        widths: np.ndarray,
        heights: np.ndarray,
    ) -> TileLists:
        """Return the lists of some Gaussians, given in drawing order."""
        columns = self._columns
        tiles = self._columns * self._rows
        # First every row of tiles that a box has, then every tile of such a row. The
        # tile's number is the number its row of tiles starts with plus how far along it
        # is; repeating (start - place) and adding places gives that.
        owner = np.repeat(np.arange(len(ranks), dtype=np.int32), heights)
        row_starts = (first - columns * _run_starts(heights)).take(owner)
        row_starts += np.arange(0, len(owner) * columns, columns, dtype=np.int32)
        row_widths = widths.take(owner)
        pairs = np.stack(
            [row_starts - _run_starts(row_widths), ranks.take(owner)], axis=1
        )
        # Both are repeated at once: as one number of 64 bits.
        repeated = np.repeat(pairs.view(np.int64)[:, 0], row_widths)
        pairs = repeated.view(np.int32).reshape(-1, 2)
        tile = pairs[:, 0] + np.arange(len(pairs), dtype=np.int32)
        entries = pairs[:, 1].take(stable_order(tile))
        count = np.bincount(tile, minlength=tiles)
        ranges = np.empty((tiles, 2), np.int32)
        np.cumsum(count, out=ranges[:, 1])
        np.subtract(ranges[:, 1], count, out=ranges[:, 0])
        return TileLists(entries, ranges)


def _run_starts(counts: np.ndarray) -> np.ndarray:
    """Return the start of each of several consecutive runs, (N,) int32."""
    return np.cumsum(counts, dtype=np.int32) - counts
