"""Segments and their blocks at any moment of a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.snapshot.analysis.live import check_moment
from splatview_viewer.kinds.snapshot.model import ACTIONS, signed, unsigned

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace

INACTIVE, ACTIVE, PENDING = 0, 1, 2
"""States of blocks, as in model.BLOCK_STATES: free in the cache, in use, freed but another stream may still use it."""
_MAPPED = ACTIONS.index("segment_map")
_UNMAPPED = ACTIONS.index("segment_unmap")
SMALL_SEGMENT = 2 << 20
SMALL = 1 << 20
"""PyTorch's allocator: segments for small blocks have 2 MiB; from larger ones no rest of up to 1 MiB is split off."""


@dataclass(frozen=True, eq=False)
class SegmentsAt:
    """What was reserved at a moment, in the order of the addresses; n segments, and their blocks, which fill them."""

    moment: int
    addr: np.ndarray
    """int64 (n,)"""
    size: np.ndarray
    """int64 (n,)"""
    stream: np.ndarray
    """int16 (n,): places in Snapshot.streams."""
    pool: np.ndarray
    """int16 (n,): places in Snapshot.pools; -1: not known."""
    expandable: np.ndarray
    """bool (n,)"""
    block_start: np.ndarray
    """int64 (n + 1,): segment i has the blocks block_start[i] to block_start[i + 1]."""
    block_addr: np.ndarray
    """int64 (b,)"""
    block_size: np.ndarray
    """int64 (b,), bytes that the block takes."""
    block_state: np.ndarray
    """uint8 (b,): INACTIVE, ACTIVE or PENDING."""
    block_allocation: np.ndarray
    """int32 (b,): -1 for inactive blocks."""

    def __len__(self) -> int:
        return len(self.addr)

    def bytes_of(self, state: int) -> int:
        """Bytes of all blocks of a state."""
        return int(self.block_size.sum(where=self.block_state == state))

    @property
    def reserved(self) -> int:
        """Bytes of all segments."""
        return int(self.size.sum())

    @property
    def active(self) -> int:
        """Bytes of the blocks in use, rounded up as the allocator does."""
        return self.bytes_of(ACTIVE)

    @property
    def pending(self) -> int:
        """Bytes that were freed but wait for another stream."""
        return self.bytes_of(PENDING)

    @property
    def free(self) -> int:
        """Bytes in the cache that could be handed out."""
        return self.bytes_of(INACTIVE)

    @property
    def largest_free(self) -> int:
        """Bytes of the largest free block: what can be handed out at once without asking the driver."""
        return int(self.block_size.max(initial=0, where=self.block_state == INACTIVE))

    @property
    def free_blocks(self) -> int:
        """How many free blocks there are."""
        return int(np.count_nonzero(self.block_state == INACTIVE))

    @property
    def fragmentation(self) -> float:
        """The share of the free memory that is not in the largest free block; 0 when nothing is free."""
        return 1 - self.largest_free / self.free if self.free else 0.0

    def free_of_segment(self) -> np.ndarray:
        """int64 (n,): free bytes in each segment."""
        return self._by_segment(INACTIVE)

    def active_of_segment(self) -> np.ndarray:
        """int64 (n,): bytes in use in each segment."""
        return self._by_segment(ACTIVE)

    def _by_segment(self, state: int) -> np.ndarray:
        sums = np.zeros(len(self.block_size) + 1, np.int64)
        np.cumsum(np.where(self.block_state == state, self.block_size, 0), out=sums[1:])
        return sums[self.block_start[1:]] - sums[self.block_start[:-1]]

    def segment_of_block(self) -> np.ndarray:
        """int64 (b,): the segment that each block lies in."""
        return np.repeat(np.arange(len(self)), np.diff(self.block_start))

    def at(self, addr: int) -> int:
        """The segment that has an address; -1: none."""
        i = int(np.searchsorted(self.addr, addr, "right")) - 1
        return i if i >= 0 and addr < int(self.addr[i]) + int(self.size[i]) else -1


def segments_at(snapshot: Snapshot, trace: Trace, moment: int) -> SegmentsAt:
    """Segments and blocks at a moment. Raises: ValueError for a moment that the trace does not have.

    Sizes of blocks are the allocator's where the snapshot tells them (what is there at its end); others are rounded up
    to 512 bytes, and take the rest behind them where the allocator would not have split it off.
    """
    check_moment(trace, moment)
    addr, size, stream, pool, expandable = _reserved(trace, moment)
    b_addr, b_size, state, allocation, known = _occupied(trace, moment)
    segment = np.searchsorted(addr, b_addr, "right") - 1
    inside = segment >= 0
    inside[inside] = b_addr[inside] < (addr + size)[segment[inside]]
    b_addr, b_size, state, allocation, known, segment = (
        x[inside] for x in (b_addr, b_size, state, allocation, known, segment))
    end_of = addr + size
    limit = np.append(b_addr[1:], np.iinfo(np.int64).max)[:len(b_addr)]
    limit = np.minimum(limit, end_of[segment])
    b_size = np.minimum(b_size, limit - b_addr)
    rest = limit - b_addr - b_size
    whole = ~known & (rest > 0) & (rest <= SMALL) & (size[segment] > SMALL_SEGMENT) & ~expandable[segment]
    b_size = np.where(whole, limit - b_addr, b_size)
    keep = b_size > 0
    b_addr, b_size, state, allocation, segment = (x[keep] for x in (b_addr, b_size, state, allocation, segment))
    return _filled(moment, (addr, size, stream, pool, expandable), (b_addr, b_size, state, allocation, segment))


def _filled(moment: int, segments: tuple[np.ndarray, ...], blocks: tuple[np.ndarray, ...]) -> SegmentsAt:
    """Put free blocks where nothing is."""
    addr, size, stream, pool, expandable = segments
    b_addr, b_size, state, allocation, segment = blocks
    first = np.searchsorted(segment, np.arange(len(addr) + 1))
    end_of = addr + size
    following = np.append(b_addr, np.int64(0))
    after_start = np.where(first[:-1] < first[1:], following[first[:-1]], end_of)
    last = np.append(segment[1:] != segment[:-1], True)[:len(segment)]
    after_block = np.where(last, end_of[segment], following[1:])
    gap_addr = np.concatenate([addr, b_addr + b_size])
    gap = np.concatenate([after_start, after_block]) - gap_addr
    gap_segment = np.concatenate([np.arange(len(addr)), segment])
    some = gap > 0
    count = int(np.count_nonzero(some))
    all_addr = np.concatenate([b_addr, gap_addr[some]])
    order = np.argsort(all_addr, kind="stable")
    of_segment = np.concatenate([segment, gap_segment[some]])[order]
    return SegmentsAt(
        moment, unsigned(addr), size, stream, pool, expandable,
        np.searchsorted(of_segment, np.arange(len(addr) + 1)), unsigned(all_addr[order]),
        np.concatenate([b_size, gap[some]])[order],
        np.concatenate([state, np.full(count, INACTIVE, np.uint8)])[order],
        np.concatenate([allocation, np.full(count, -1, np.int32)])[order])


def _reserved(trace: Trace, moment: int) -> tuple[np.ndarray, ...]:
    """addr (signed), size, stream, pool, expandable of segments: ranges of one expandable segment are put together."""
    s, m = trace.spans, len(trace.events)
    there = np.flatnonzero((s.start < moment) & (s.end >= moment))
    there = there[np.argsort(s.addr[there], kind="stable")]
    addr, size, stream, pool = signed(s.addr[there]), s.size[there], s.stream[there], s.pool[there]
    expandable = np.zeros(len(there), bool)
    if m:
        began, ended = s.start[there], s.end[there]
        expandable |= (began >= 0) & (trace.events.action[np.maximum(began, 0)] == _MAPPED)
        expandable |= (ended < m) & (trace.events.action[np.minimum(ended, m - 1)] == _UNMAPPED)
    if len(trace.segments):
        order = np.argsort(trace.segments.addr, kind="stable")
        last = signed(trace.segments.addr[order])
        at = np.maximum(np.searchsorted(last, addr, "right") - 1, 0)
        within = (addr >= last[at]) & (addr < last[at] + trace.segments.total[order][at])
        expandable |= within & (s.end[there] >= m) & trace.segments.expandable[order][at]
    new = np.ones(len(there), bool)
    new[1:] = ~(expandable[1:] & expandable[:-1] & (addr[1:] == addr[:-1] + size[:-1]) & (stream[1:] == stream[:-1])
                & (pool[1:] == pool[:-1]))
    first = np.flatnonzero(new)
    total = np.add.reduceat(size, first) if len(first) else size
    return addr[first], total, stream[first], pool[first], expandable[first]


def _occupied(trace: Trace, moment: int) -> tuple[np.ndarray, ...]:
    """addr (signed), size, state, allocation of what is in use or pending, by address; and if its size is known."""
    a = trace.allocations
    ids = np.flatnonzero((a.start < moment) & (np.maximum(a.freed, a.end) >= moment))
    ids = ids[np.argsort(a.addr[ids], kind="stable")]
    rounded = a.rounded[ids]
    size = np.where(rounded > 0, rounded, (np.maximum(a.size[ids], 1) + 511) & ~np.int64(511))
    state = np.where(a.end[ids] >= moment, ACTIVE, PENDING).astype(np.uint8)
    return signed(a.addr[ids]), size, state, ids.astype(np.int32), rounded > 0
