"""One number over the course of a training, in a bounded number of rows however long it lasts.

The newest samples keep a row each. Older ones share rows, each for so many samples as a power of two says, the same for
all of them, so that the whole course stays in sight at an even resolution. A row knows the extremes of its samples: no
peak is lost.
"""

from __future__ import annotations

import numpy as np

from splatview_ipc.kinds.scalars import SCALAR_COLUMNS

_VALUE, _LOW, _HIGH, _COUNT, _BROKEN = range(2, 7)


class Series:
    """Rows of SCALAR_COLUMNS, the oldest first."""

    def __init__(self, most: int) -> None:
        """most: rows, 8 or more."""
        self.samples = 0
        """How many there were in all."""
        self._most = most
        self._rows = np.empty((min(most, 256), len(SCALAR_COLUMNS)))
        self._n = 0

    @property
    def rows(self) -> np.ndarray:
        """(N, len(SCALAR_COLUMNS)) float64, a view that the next `extend` may change."""
        return self._rows[: self._n]

    def limit(self, most: int) -> None:
        """Have at most so many rows from now on, 8 or more."""
        self._most = most
        if self._n > most:
            self._thin()

    def extend(self, samples: np.ndarray) -> None:
        """Add samples, the oldest first: (K, 3) float64, of each step, time, value."""
        begin = 0
        while begin < len(samples):
            if self._n >= self._most:
                self._thin()
            new = samples[begin: begin + self._most - self._n]
            self._grow(self._n + len(new))
            rows = self._rows[self._n: self._n + len(new)]
            finite = np.isfinite(new[:, 2])
            rows[:, :3] = new
            rows[:, _LOW] = rows[:, _HIGH] = np.where(finite, new[:, 2], np.nan)
            rows[:, _COUNT], rows[:, _BROKEN] = 1, ~finite
            self._n += len(new)
            self.samples += len(new)
            begin += len(new)

    def _grow(self, needed: int) -> None:
        if needed > len(self._rows):
            rows = np.empty((min(max(2 * len(self._rows), needed), self._most), len(SCALAR_COLUMNS)))
            rows[: self._n] = self.rows
            self._rows = rows

    def _thin(self) -> None:
        """Keep the newest half, and a quarter of rows for all that is older."""
        fine = self._most // 2
        old, new = self.rows[: self._n - fine], self.rows[self._n - fine:]
        first = np.cumsum(old[:, _COUNT]) - old[:, _COUNT]  # the number of each row's first sample
        span = 1
        while (first[-1] + old[-1, _COUNT]) / span > self._most // 4:
            span *= 2
        merged = merge(old, np.flatnonzero(np.diff(first // span, prepend=-1)))
        rows = np.empty((self._most, len(SCALAR_COLUMNS)))
        self._n = len(merged) + len(new)
        rows[: len(merged)], rows[len(merged): self._n] = merged, new
        self._rows = rows


def merge(rows: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """One row for each group of rows of SCALAR_COLUMNS, which begin at `starts` (the first is 0) and end before the
    next. (len(starts), 7) float64."""
    ends = np.append(starts[1:], len(rows)) - 1
    out = rows[ends]
    good = rows[:, _COUNT] - rows[:, _BROKEN]
    n = np.add.reduceat(good, starts)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        total = np.add.reduceat(np.where(good > 0, rows[:, _VALUE], 0) * good, starts)
        out[:, _VALUE] = np.where(n > 0, total / n, out[:, _VALUE])
    out[:, _LOW] = np.fmin.reduceat(rows[:, _LOW], starts)
    out[:, _HIGH] = np.fmax.reduceat(rows[:, _HIGH], starts)
    out[:, _COUNT] = np.add.reduceat(rows[:, _COUNT], starts)
    out[:, _BROKEN] = np.add.reduceat(rows[:, _BROKEN], starts)
    return out
