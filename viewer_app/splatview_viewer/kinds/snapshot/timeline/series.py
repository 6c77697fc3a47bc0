"""Numbers that have a value at each moment: live, allocated and reserved bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.snapshot.timeline.compiled import kernels
from splatview_viewer.kinds.snapshot.timeline.index import frozen

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Trace

BLOCK = 512  # the least piece of memory that PyTorch hands out


def accumulated(start: np.ndarray, end: np.ndarray, size: np.ndarray, events: int) -> np.ndarray:
    """int64 (M + 1,): the sum of the sizes of what is live at each moment."""
    out = np.zeros(events + 1, np.int64)
    accumulate = kernels().accumulate
    accumulate(frozen(start, np.int32), frozen(end, np.int32), frozen(size, np.int64), out)
    return frozen(out, np.int64)


def reserved(trace: Trace, pool: int | None = None) -> np.ndarray:
    """int64 (M + 1,): bytes that the allocator had from the driver at each moment. pool: those of one pool."""
    s = trace.spans
    chosen = slice(None) if pool is None else s.pool == pool
    return accumulated(s.start[chosen], s.end[chosen], s.size[chosen], len(trace.events))


def allocated(trace: Trace, pool: int | None = None) -> np.ndarray:
    """int64 (M + 1,): bytes of the blocks that were handed out at each moment, up to the request to free them.

    Where the size of a block is not known, what was requested is rounded up to 512 bytes: PyTorch's least unit."""
    a = trace.allocations
    chosen = slice(None) if pool is None else a.pool == pool
    return accumulated(a.start[chosen], a.end[chosen], _rounded(a.size[chosen], a.rounded[chosen]), len(trace.events))


def active(trace: Trace, pool: int | None = None) -> np.ndarray:
    """int64 (M + 1,): like `allocated`, but up to when the free was completed: with what other streams still use."""
    a = trace.allocations
    chosen = slice(None) if pool is None else a.pool == pool
    until = np.maximum(a.freed[chosen], a.end[chosen])
    return accumulated(a.start[chosen], until, _rounded(a.size[chosen], a.rounded[chosen]), len(trace.events))


def _rounded(size: np.ndarray, rounded: np.ndarray) -> np.ndarray:
    return np.where(rounded > 0, rounded, (size + BLOCK - 1) // BLOCK * BLOCK)


class Envelope:
    """The least, the greatest and the peak of many values in each column of a picture, exactly, by a pyramid."""

    def __init__(self, values: np.ndarray) -> None:
        """values: int64 (n,), n >= 1."""
        if not len(values):
            raise ValueError("no values: there is at least one moment")
        self._values = frozen(values, np.int64)
        block = kernels().PYRAMID
        blocks = (len(values) + block - 1) // block
        low, high = np.empty(blocks, np.int64), np.empty(blocks, np.int64)
        kernels().pyramid(self._values, low, high)
        self._low, self._high = frozen(low, np.int64), frozen(high, np.int64)

    def __call__(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int64 (W,) twice: least and greatest of edges[x] <= k < edges[x + 1]; in a column without any: what holds.

        edges: int64 (W + 1,), ascending."""
        low, high = np.empty(len(edges) - 1, np.int64), np.empty(len(edges) - 1, np.int64)
        compute = kernels().envelope
        compute(self._values, self._low, self._high, frozen(edges, np.int64), low, high)
        return low, high

    def peaks(self, edges: np.ndarray) -> np.ndarray:
        """int32 (W,): where the greatest is; see `Bands.peaks`."""
        out = np.empty(len(edges) - 1, np.int32)
        kernels().peaks(self._values, self._high, frozen(edges, np.int64), out)
        return out
