"""Numbers over the course of a training, in a bounded number of rows.

The newest samples have a row each. Older ones share rows, each for a number of samples
that is a power of two, the same for all of them, so that the whole course stays in
sight at an even resolution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from splatview_ipc.kinds.scalars import SCALAR_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable

    Merge = Callable[[np.ndarray, np.ndarray], np.ndarray]
    """From rows, and the indices at which groups of them start (the first is 0), one
    row for each group."""

_VALUE, _LOW, _HIGH, _COUNT, _BROKEN = range(2, 7)


class Series:
    """Rows of float64, the oldest first, of which one column counts samples."""

    def __init__(self, max_rows: int, columns: int, count: int, merge: Merge) -> None:
        """Make a series without rows.

        Args:
            max_rows: the maximum number of rows, 8 or more.
            columns: the number of columns of a row.
            count: the index of the column that counts samples, which `merge` sums.
            merge: makes one row of several.
        """
        self.rows = np.empty((0, columns))
        """Replaced, never changed in place."""
        self._max_rows = max_rows
        self._count = count
        self._merge = merge

    def set_max_rows(self, max_rows: int) -> None:
        """Keep at most this many rows from now on, 8 or more."""
        self._max_rows = max_rows
        if len(self.rows) > max_rows:
            self._thin()

    def extend(self, samples: np.ndarray) -> None:
        """Add samples, the oldest first: (K, columns) float64."""
        while len(samples):
            if len(self.rows) >= self._max_rows:
                self._thin()
            free_rows = self._max_rows - len(self.rows)
            self.rows = np.concatenate((self.rows, samples[:free_rows]))
            samples = samples[free_rows:]

    def _thin(self) -> None:
        """Keep the newest half, and a quarter of rows for all that is older."""
        old, new = np.split(self.rows, [-(self._max_rows // 2)])
        counts = old[:, self._count]
        # The number of each row's first sample.
        first_samples = np.cumsum(counts) - counts
        sample_count = first_samples[-1] + counts[-1]
        span = 1
        while sample_count / span > self._max_rows // 4:
            span *= 2
        starts = np.flatnonzero(np.diff(first_samples // span, prepend=-1))
        self.rows = np.concatenate((self._merge(old, starts), new))


def scalar_series(max_rows: int) -> Series:
    """Return a series of SCALAR_COLUMNS.

    A row knows the extremes of its samples: no peak is lost.
    """
    return Series(max_rows, len(SCALAR_COLUMNS), _COUNT, _merge_scalars)


def scalar_rows(samples: np.ndarray) -> np.ndarray:
    """Return the rows of samples: (K, 3) float64, of each step, time, value."""
    values = samples[:, 2]
    is_finite = np.isfinite(values)
    extremes = np.where(is_finite, values, np.nan)
    counts = np.ones(len(samples))
    return np.column_stack((samples, extremes, extremes, counts, ~is_finite))


def _merge_scalars(rows: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return one row for each group of rows, which start at `starts`."""
    last_rows = np.append(starts[1:], len(rows)) - 1
    merged = rows[last_rows]
    finite = rows[:, _COUNT] - rows[:, _BROKEN]
    finite_in_group = np.add.reduceat(finite, starts)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        sums = np.where(finite > 0, rows[:, _VALUE], 0) * finite
        means = np.add.reduceat(sums, starts) / finite_in_group
        merged[:, _VALUE] = np.where(finite_in_group > 0, means, merged[:, _VALUE])
    merged[:, _LOW] = np.fmin.reduceat(rows[:, _LOW], starts)
    merged[:, _HIGH] = np.fmax.reduceat(rows[:, _HIGH], starts)
    merged[:, _COUNT:] = np.add.reduceat(rows[:, _COUNT:], starts)
    return merged
