"""What the memory of this process was like: samples, of what lies long ago fewer, and how they become frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from splatview.adapters import NamedTensors
from splatview_ipc.kinds.memory import MEMORY_COLUMNS, MEMORY_ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

FINE = 1024
"""The newest samples, which keep a row each."""
COARSE = 1024
"""Rows that all older ones are brought down to when there are too many."""
_LATEST = [MEMORY_COLUMNS.index(name) for name in ("time", "step", "allocated", "allocations", "retries", "ooms")]
_LOW = MEMORY_COLUMNS.index("low")
LAYOUT = NamedTensors("memory", ("samples",), shape=(MEMORY_ROWS, len(MEMORY_COLUMNS)), dtype="float64")


class Samples:
    """Rows of MEMORY_COLUMNS, the oldest first, at most MEMORY_ROWS. Rows that were given out never change."""

    def __init__(self) -> None:
        self._rows = np.empty((MEMORY_ROWS, len(MEMORY_COLUMNS)))
        self._count = 0

    def add(self, row: Sequence[float]) -> None:
        """Add the newest sample, in the order of MEMORY_COLUMNS."""
        if self._count == MEMORY_ROWS:
            self._thin()
        self._rows[self._count] = row
        self._count += 1

    @property
    def rows(self) -> np.ndarray:
        """(N, len(MEMORY_COLUMNS)) float64, a view."""
        return self._rows[: self._count]

    def _thin(self) -> None:
        """Make one row of several that are close in time, but for the newest. What spans of time they stand for doubles
        from one time to the next, so that rows go on standing for the same."""
        old, new = self._rows[: MEMORY_ROWS - FINE], self._rows[MEMORY_ROWS - FINE:]
        time = old[:, 0]
        span = max(float(time[-1] - time[0]), 1e-6) / COARSE
        groups = np.floor(time / 2.0 ** np.ceil(np.log2(span)))
        starts = np.flatnonzero(np.diff(groups, prepend=-np.inf))[:COARSE]  # clocks that are set back make more of them
        ends = np.append(starts[1:], len(old)) - 1
        rows = np.empty_like(self._rows)
        n = len(starts)
        rows[:n] = np.maximum.reduceat(old, starts, axis=0)
        rows[:n, _LATEST] = old[ends][:, _LATEST]
        rows[:n, _LOW] = np.minimum.reduceat(old[:, _LOW], starts)
        rows[n: n + FINE] = new
        self._rows, self._count = rows, n + FINE
