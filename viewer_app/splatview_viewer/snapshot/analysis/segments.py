"""Reconstructs segments and blocks at a moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_viewer.snapshot.model import ACTIONS, signed, unsigned

if TYPE_CHECKING:
    from splatview_viewer.snapshot.model import MemorySnapshot, Trace

INACTIVE = 0
"""State of a block, as in `model.BLOCK_STATES`: free in the cache."""
ACTIVE = 1
"""State of a block: in use."""
PENDING = 2
"""State of a block: freed, but another stream may still use it."""
_MAPPED = ACTIONS.index("segment_map")
_UNMAPPED = ACTIONS.index("segment_unmap")
SMALL_SEGMENT = 2 << 20
"""PyTorch's allocator gives segments for small blocks 2 MiB."""
SMALL = 1 << 20
"""It splits no rest of up to 1 MiB off the blocks of larger segments."""
_MAX_INT64 = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class SegmentsAt:
    """Reserved memory at one moment, in the order of the addresses.

    There are n segments, and b blocks, which fill them.
    """

    moment: int
    addr: np.ndarray
    size: np.ndarray
    """uint64 and int64 (n,)"""
    stream: np.ndarray
    pool: np.ndarray
    """int16 (n,): indices into `streams` and `pools` of the snapshot; -1: the pool is not
    known."""
    expandable: np.ndarray
    """bool (n,)"""
    block_start: np.ndarray
    """int64 (n + 1,): segment i has the blocks block_start[i] to block_start[i + 1]."""
    block_addr: np.ndarray
    block_size: np.ndarray
    """uint64 and int64 (b,): bytes that the block takes."""
    block_state: np.ndarray
    """uint8 (b,): INACTIVE, ACTIVE or PENDING."""
    block_allocation: np.ndarray
    """int32 (b,): -1 for inactive blocks."""

    active: int
    """Bytes of the blocks in use, rounded up as the allocator does."""
    pending: int
    """Bytes that were freed but wait for another stream."""
    free: int
    """Bytes in the cache that could be handed out."""

    def __len__(self) -> int:
        return len(self.addr)

    @property
    def reserved(self) -> int:
        """Bytes of all segments."""
        return int(self.size.sum())


class _Reserved(NamedTuple):
    """Segments at a moment, in the order of their (signed) addresses."""

    addr: np.ndarray
    size: np.ndarray
    stream: np.ndarray
    pool: np.ndarray
    expandable: np.ndarray

    def locate(self, addr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the segment at or below each address, and whether the address is in it."""
        segment = np.searchsorted(self.addr, addr, "right") - 1
        is_inside = segment >= 0
        segment_below = segment[is_inside]
        is_inside[is_inside] = addr[is_inside] < (self.addr + self.size)[segment_below]
        return segment, is_inside


def segments_at(snapshot: MemorySnapshot, trace: Trace, event_index: int) -> SegmentsAt:
    """Return segments and blocks at a moment.

    Sizes of blocks are the allocator's where the snapshot has them (blocks that are there
    at its end). Others are rounded up to 512 bytes, and take the rest after them where the
    allocator would not have split it off.
    """
    reserved = _reserved_at(trace, event_index)
    ids, start, end = _blocks_in_use(trace, event_index, reserved)

    # Every piece between two edges is one block, or free.
    segment_end = reserved.addr + reserved.size
    edges = np.unique(np.concatenate([reserved.addr, segment_end, start, end]))
    length = np.diff(edges)
    edges = edges[:-1]
    segment, is_inside = reserved.locate(edges)
    edges = edges[is_inside]
    length = length[is_inside]
    segment = segment[is_inside]

    is_empty = end <= start
    ids = ids[~is_empty]
    start = start[~is_empty]
    block = np.searchsorted(start, edges)
    is_used = np.append(start, _MAX_INT64)[block] == edges
    nothing = np.int32(-1)
    allocation = np.where(is_used, np.append(ids, nothing)[block], nothing)
    state = np.full(len(edges), INACTIVE, np.uint8)
    is_live = trace.allocations.end[allocation[is_used]] >= event_index
    state[is_used] = np.where(is_live, ACTIVE, PENDING)
    free, active, pending = np.bincount(state, length, 3).astype(int).tolist()
    return SegmentsAt(
        moment=event_index,
        addr=unsigned(reserved.addr),
        size=reserved.size,
        stream=reserved.stream,
        pool=reserved.pool,
        expandable=reserved.expandable,
        block_start=np.searchsorted(segment, np.arange(len(reserved.addr) + 1)),
        block_addr=unsigned(edges),
        block_size=length,
        block_state=state,
        block_allocation=allocation,
        active=active,
        pending=pending,
        free=free,
    )


def _blocks_in_use(
    trace: Trace, event_index: int, reserved: _Reserved
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ids, first bytes and ends of blocks that are in use or pending.

    They are in the order of their (signed) addresses, and lie in segments.
    """
    allocations = trace.allocations
    freed = np.maximum(allocations.freed, allocations.end)
    is_there = (allocations.start < event_index) & (freed >= event_index)
    ids = np.flatnonzero(is_there).astype(np.int32)
    ids = ids[np.argsort(allocations.addr[ids], kind="stable")]
    segment, is_inside = reserved.locate(signed(allocations.addr[ids]))
    ids = ids[is_inside]
    segment = segment[is_inside]

    start = signed(allocations.addr[ids])
    following = np.append(start[1:], _MAX_INT64)[: len(start)]
    segment_end = (reserved.addr + reserved.size)[segment]
    limit = np.minimum(following, segment_end)
    rounded = allocations.rounded[ids]
    is_rounded = rounded > 0
    estimate = (np.maximum(allocations.size[ids], 1) + 511) & ~np.int64(511)
    block_bytes = np.where(is_rounded, rounded, estimate)
    bytes_left = limit - start - block_bytes
    is_large_segment = reserved.size[segment] > SMALL_SEGMENT
    takes_bytes_left = ~is_rounded & (bytes_left <= SMALL) & is_large_segment
    takes_bytes_left &= ~reserved.expandable[segment]
    end = np.where(takes_bytes_left, limit, np.minimum(limit, start + block_bytes))
    return ids, start, end


def _reserved_at(trace: Trace, event_index: int) -> _Reserved:
    """Return the segments at a moment. Ranges of one expandable segment are joined."""
    spans = trace.spans
    rows = np.flatnonzero((spans.start < event_index) & (spans.end >= event_index))
    rows = rows[np.argsort(spans.addr[rows], kind="stable")]
    addr = signed(spans.addr[rows])
    size = spans.size[rows]
    stream = spans.stream[rows]
    pool = spans.pool[rows]
    expandable = _is_expandable(trace, rows)
    continues = expandable[1:] & expandable[:-1]
    continues &= addr[1:] == addr[:-1] + size[:-1]
    continues &= (stream[1:] == stream[:-1]) & (pool[1:] == pool[:-1])
    is_first = np.ones(len(rows), bool)
    is_first[1:] = ~continues
    first = np.flatnonzero(is_first)
    total = np.add.reduceat(size, first) if len(first) else size
    return _Reserved(addr[first], total, stream[first], pool[first], expandable[first])


def _is_expandable(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """Return which spans belong to expandable segments, bool (len(rows),)."""
    spans = trace.spans
    event_count = len(trace.events)
    start = spans.start[rows]
    end = spans.end[rows]
    expandable = np.zeros(len(rows), bool)
    if event_count:
        action = trace.events.action
        start_action = action[np.maximum(start, 0)]
        end_action = action[np.minimum(end, event_count - 1)]
        expandable |= (start >= 0) & (start_action == _MAPPED)
        expandable |= (end < event_count) & (end_action == _UNMAPPED)
    segments = trace.segments
    if len(segments):
        # Of spans that are there at the end, the segment says it.
        addr = signed(spans.addr[rows])
        order = np.argsort(segments.addr, kind="stable")
        segment_addr = signed(segments.addr[order])
        segment = np.maximum(np.searchsorted(segment_addr, addr, "right") - 1, 0)
        low = segment_addr[segment]
        is_within = (addr >= low) & (addr < low + segments.total[order][segment])
        is_at_end = end >= event_count
        expandable |= is_within & is_at_end & segments.expandable[order][segment]
    return expandable
