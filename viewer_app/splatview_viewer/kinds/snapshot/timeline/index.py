"""What is live at each moment: one index for allocations, for spans, or for some of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.kinds.snapshot.timeline.compiled import kernels

if TYPE_CHECKING:
    from collections.abc import Callable



class CancelledError(Exception):
    """The layout was not wanted any more."""


def never() -> bool:
    return False


def frozen(values: Any, dtype: Any) -> np.ndarray:
    """The same numbers as a plain array that kernels may read: contiguous, not writable, copied only if it must be."""
    array = np.ascontiguousarray(values, dtype).view(np.ndarray).view()
    array.flags.writeable = False
    return array


class LiveIndex:
    """Intervals of moments: number i is live at start[i] < k <= end[i]."""

    def __init__(self, start: np.ndarray, end: np.ndarray, events: int, cancelled: Callable[[], bool] = never) -> None:
        """start, end: events, int32 (A,), start ascending, in -1 <= start and end <= M. events: M.

        ValueError when start does not ascend. Raises CancelledError.
        """
        self.start = frozen(start, np.int32)
        self.end = frozen(end, np.int32)
        self.events = events
        n = len(self.start)
        if n and bool((self.start[1:] < self.start[:-1]).any()):
            raise ValueError("the allocations of a trace must be in the order in which they began")
        order, ends = np.empty(n, np.int32), np.empty(n, np.int32)
        count = kernels().order_by_end(self.end, events, order, ends)
        stop(cancelled)
        room = n // kernels().APART + 3
        moment, first, begin = np.empty(room, np.int32), np.empty(room, np.int32), np.zeros(room, np.int64)
        listed = np.empty(3 * n, np.int32)
        made, used = kernels().checkpoints(self.start, self.end, moment, first, begin,
                                                                           listed)
        self.kernel = (self.start, self.end, frozen(moment[:made], np.int32), frozen(first[:made], np.int32),
                       frozen(begin[:made + 1], np.int64), frozen(listed[:used].copy(), np.int32),
                       frozen(ends[:count], np.int32), frozen(order[:count], np.int32))
        follows = np.append(self.kernel[3][1:], n)
        self.longest = int((np.diff(self.kernel[4]) + follows - self.kernel[3]).max())
        """At most so many have to be looked at for one moment."""
        self._room = 1024

    @property
    def nbytes(self) -> int:
        """Bytes that it takes beside the trace's own arrays."""
        return sum(a.nbytes for a in self.kernel[2:])

    def live(self, moment: int) -> np.ndarray:
        """int32: the numbers of what is live, ascending. IndexError for a moment outside of the trace."""
        if not 0 <= moment <= self.events:
            raise IndexError(f"there is no moment {moment}: they are 0 to {self.events}")
        live_at = kernels().live_at
        out = np.empty(self._room, np.int32)
        count = live_at(self.kernel, moment, out)
        if count < 0:
            self._room = -count * 5 // 4
            out = np.empty(-count, np.int32)
            count = live_at(self.kernel, moment, out)
        return out[:count]


class Lists:
    """Lists of entries that painting threads borrow, one for each that paints at once."""

    def __init__(self, index: LiveIndex) -> None:
        self._length = len(index.start)
        self._room = (2 * index.longest + 4096 + 255) // 256 * 256
        self._free: list[tuple[np.ndarray, ...]] = []
        self._lock = threading.Lock()

    def take(self) -> tuple[np.ndarray, ...]:
        """numbers, shades, sizes, sums of small and of large blocks, places: see `_kernels.LIST`."""
        with self._lock:
            if self._free:
                return self._free.pop()
        n = self._room
        return (np.empty(n, np.int32), np.empty(n, np.int32), np.zeros(n), np.zeros((n // 16, 4)),
                np.zeros((n // 256, 4)), np.empty(self._length, np.int32))

    def give(self, lists: tuple[np.ndarray, ...]) -> None:
        with self._lock:
            self._free.append(lists)


def stop(cancelled: Callable[[], bool]) -> None:
    if cancelled():
        raise CancelledError
