"""Numbers over the course of a training, in a bounded number of rows however long it lasts.

The newest samples have a row each. Older ones share rows, each for a number of samples that is a power of two, the same
for all of them, so that the whole course stays in sight at an even resolution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from splatview_ipc.kinds.scalars import SCALAR_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable

    Merge = Callable[[np.ndarray, np.ndarray], np.ndarray]
    """From rows, and the places where groups of them begin (the first at 0), one row for each group."""

_VALUE, _LOW, _HIGH, _COUNT, _BROKEN = range(2, 7)


class Series:
    """Rows of float64, the oldest first, of which one column counts samples."""

    def __init__(self, max_rows: int, columns: int, count: int, merge: Merge) -> None:
        """most: rows, 8 or more; count: the column that counts, which `merge` sums."""
        self.rows = np.empty((0, columns))
        """Replaced, never changed in place."""
        self._most = max_rows
        self._count = count
        self._merge = merge

    def set_max_rows(self, most: int) -> None:
        """Have at most so many rows from now on, 8 or more."""
        self._most = most
        if len(self.rows) > most:
            self._thin()

    def extend(self, samples: np.ndarray) -> None:
        """Add samples, the oldest first: (K, columns) float64."""
        while len(samples):
            if len(self.rows) >= self._most:
                self._thin()
            new, samples = np.split(samples, [self._most - len(self.rows)])
            self.rows = np.concatenate((self.rows, new))

    def _thin(self) -> None:
        """Keep the newest half, and a quarter of rows for all that is older."""
        old, new = np.split(self.rows, [-(self._most // 2)])
        first = (
            np.cumsum(old[:, self._count]) - old[:, self._count]
        )  # the number of each row's first sample
        span = 1
        while (first[-1] + old[-1, self._count]) / span > self._most // 4:
            span *= 2
        merged = self._merge(old, np.flatnonzero(np.diff(first // span, prepend=-1)))
        self.rows = np.concatenate((merged, new))


def scalar_series(max_rows: int) -> Series:
    """Return a series of SCALAR_COLUMNS. A row knows the extremes of its samples: no peak is lost."""
    return Series(max_rows, len(SCALAR_COLUMNS), _COUNT, _merge_scalars)


def scalar_rows(samples: np.ndarray) -> np.ndarray:
    """Return the rows of samples: (K, 3) float64, of each step, time, value."""
    finite = np.isfinite(samples[:, 2])
    extreme = np.where(finite, samples[:, 2], np.nan)
    return np.column_stack((samples, extreme, extreme, np.ones(len(samples)), ~finite))


def _merge_scalars(rows: np.ndarray, starts: np.ndarray) -> np.ndarray:
    out = rows[np.append(starts[1:], len(rows)) - 1]
    good = rows[:, _COUNT] - rows[:, _BROKEN]
    n = np.add.reduceat(good, starts)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        total = np.add.reduceat(np.where(good > 0, rows[:, _VALUE], 0) * good, starts)
        out[:, _VALUE] = np.where(n > 0, total / n, out[:, _VALUE])
    out[:, _LOW] = np.fmin.reduceat(rows[:, _LOW], starts)
    out[:, _HIGH] = np.fmax.reduceat(rows[:, _HIGH], starts)
    out[:, _COUNT:] = np.add.reduceat(rows[:, _COUNT:], starts)
    return out
