"""Pairs the events of a trace: allocations, and reserved ranges.

An allocation may begin before the trace or end after it. Pairs are found by arrays: the
meaning of an event depends only on the event before it at the same address.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_viewer.snapshot.model import (
    ACTIONS,
    BLOCK_STATES,
    NO_STACK,
    UNKNOWN_POOL,
    Allocations,
    BlockTable,
    Events,
    Segments,
    Spans,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ALLOC = ACTIONS.index("alloc")
REQUESTED = ACTIONS.index("free_requested")
COMPLETED = ACTIONS.index("free_completed")
FREE = ACTIONS.index("free")
ACTIVE = BLOCK_STATES.index("active_allocated")
PENDING = BLOCK_STATES.index("active_pending_free")
RESERVING = tuple(ACTIONS.index(name) for name in ("segment_alloc", "segment_map"))
RELEASING = tuple(ACTIONS.index(name) for name in ("segment_free", "segment_unmap"))
NO_ACTION = 255

_DTYPES = {
    "start": np.int32,
    "end": np.int32,
    "freed": np.int32,
    "stack": np.int32,
    "stream": np.int16,
    "pool": np.int16,
}
"""Dtypes of columns of `Allocations` that are computed in wider ones."""


def pair_events(
    events: Events, blocks: BlockTable, block_stream: np.ndarray, block_pool: np.ndarray
) -> tuple[Allocations, int]:
    """Return the allocations of a trace and of the blocks at its end, as `model` says.

    Writes their ids into `events.allocation` and `blocks.allocation`. A completed free
    whose request lies before the trace has no allocation.

    Args:
        block_stream: stream of each block's segment, int16.
        block_pool: pool of each block's segment, int16.

    Returns:
        The allocations, and the number of oddities: those that ended because their
        address was handed out again; frees and blocks of memory whose address was in use
        and free before; those live at the end that no block holds, though there are
        blocks.
    """
    event_count = len(events)
    sequence = _sort_by_address(events)
    starts = _match_frees(sequence)
    block_owner = _match_blocks(sequence, starts, blocks, event_count)
    odd_count = starts.odd_count

    # Active blocks that the trace never mentions are live throughout.
    unseen = np.flatnonzero((blocks.state == ACTIVE) & (block_owner < 0))
    if len(sequence.addr):
        last = len(sequence.addr) - 1
        nearest = np.minimum(np.searchsorted(sequence.addr, blocks.addr[unseen]), last)
        odd_count += int((sequence.addr[nearest] == blocks.addr[unseen]).sum())
    block_owner[unseen] = len(starts.first) + np.arange(len(unseen))

    events_of = sequence.event[starts.first]
    never = np.full(len(unseen), event_count)
    event_stacks = np.where(starts.is_alloc, events.stack[events_of], NO_STACK)
    columns = {
        "addr": np.concatenate([sequence.addr[starts.first], blocks.addr[unseen]]),
        "size": np.concatenate(
            [events.size[events_of].view(np.int64), blocks.requested[unseen]]
        ),
        "start": np.concatenate([starts.start, np.full(len(unseen), -1)]),
        "end": np.concatenate([starts.end, never]),
        "freed": np.concatenate([starts.freed, never]),
        "stream": np.concatenate([events.stream[events_of], block_stream[unseen]]),
        "pool": np.concatenate([events.pool[events_of], block_pool[unseen]]),
        "stack": np.concatenate([event_stacks, blocks.stack[unseen]]),
    }
    order = _stacking_order(columns["addr"], columns["start"], columns["end"])
    ids = np.empty(len(order), np.int32)
    ids[order] = np.arange(len(order), dtype=np.int32)

    is_paired = ~starts.is_orphaned
    events.allocation[sequence.event[is_paired]] = ids[starts.owner[is_paired]]
    held_blocks = np.flatnonzero(block_owner >= 0)
    block_ids = ids[block_owner[held_blocks]]
    blocks.allocation[held_blocks] = block_ids
    sorted_columns = {
        name: column[order].astype(_DTYPES.get(name, column.dtype))
        for name, column in columns.items()
    }
    allocations = Allocations(**sorted_columns, rounded=np.zeros(len(order), np.int64))
    _complete_from_blocks(allocations, blocks, held_blocks, block_ids, block_pool)
    if len(blocks):
        is_unheld = allocations.end == event_count
        is_unheld[block_ids] = False
        odd_count += int(is_unheld.sum())
    return allocations, odd_count


@dataclass(slots=True)
class _AddressSequence:
    """Allocs and frees, ordered by address and then by time; N rows."""

    event: np.ndarray
    """Index of the event in the trace."""
    addr: np.ndarray
    action: np.ndarray
    previous: np.ndarray
    """Action of the event before it at the same address, or NO_ACTION."""
    following: np.ndarray
    """Action of the event after it at the same address, or NO_ACTION."""
    next_event: np.ndarray
    """Index of the event after it at the same address; M: there is none."""


def _sort_by_address(events: Events) -> _AddressSequence:
    """Return the allocs and frees of a trace, with their neighbours at each address."""
    is_used = (events.action <= COMPLETED) | (events.action == FREE)
    event = np.flatnonzero(is_used)
    event = event[np.argsort(events.addr[event], kind="stable")]
    addr = events.addr[event]
    action = events.action[event]
    # Row i and row i + 1 are of one address.
    is_same = addr[1:] == addr[:-1]
    previous = np.full(len(event), NO_ACTION, np.uint8)
    previous[1:][is_same] = action[:-1][is_same]
    following = np.full(len(event), NO_ACTION, np.uint8)
    following[:-1][is_same] = action[1:][is_same]
    next_event = np.full(len(event), len(events), np.int64)
    next_event[:-1][is_same] = event[1:][is_same]
    return _AddressSequence(event, addr, action, previous, following, next_event)


@dataclass(slots=True)
class _Starts:
    """Allocations in the order of their addresses, one for each event that begins one."""

    first: np.ndarray
    """Row of `_AddressSequence` that begins each allocation."""
    is_alloc: np.ndarray
    """False: it is a free of memory that was handed out before the trace."""
    start: np.ndarray
    end: np.ndarray
    freed: np.ndarray
    """Events, as in `Allocations`."""
    owner: np.ndarray
    """The allocation of each row of `_AddressSequence`."""
    is_orphaned: np.ndarray
    """Rows of `_AddressSequence` that belong to no allocation."""
    odd_count: int


def _match_frees(sequence: _AddressSequence) -> _Starts:
    """Return the allocations that events begin, and the events that end them."""
    action = sequence.action
    previous = sequence.previous
    is_alloc = action == ALLOC
    # A free of what no event before it handed out; with
    # skip_actions=["free_requested"] it is the completion alone.
    is_first_free = (action == REQUESTED) | (previous != REQUESTED)
    is_unknown = ~is_alloc & (previous != ALLOC) & is_first_free
    # Where requests are recorded, the request of such a completion lies before the trace:
    # its memory was not live.
    has_requests = bool((action == REQUESTED).any())
    is_orphaned = is_unknown & (action == COMPLETED) & has_requests
    is_freed_again = is_unknown & (previous != NO_ACTION)
    is_unknown &= ~is_orphaned
    begins = is_alloc | is_unknown
    first = np.flatnonzero(begins)

    # An alloc ends with the next event at its address, whatever that is; a free of memory
    # from before the trace ends what it begins.
    begins_in_trace = is_alloc[first]
    end = np.where(begins_in_trace, sequence.next_event[first], sequence.event[first])
    by_request = np.where(
        begins_in_trace,
        sequence.following[first] == REQUESTED,
        action[first] == REQUESTED,
    )
    request_row = np.where(begins_in_trace, first + 1, first)[by_request]
    freed = end.copy()
    freed[by_request] = sequence.next_event[request_row]
    is_reused = begins_in_trace & (sequence.following[first] == ALLOC)
    return _Starts(
        first=first,
        is_alloc=begins_in_trace,
        start=np.where(begins_in_trace, sequence.event[first], -1),
        end=end,
        freed=freed,
        owner=np.cumsum(begins) - 1,
        is_orphaned=is_orphaned,
        odd_count=int(is_reused.sum()) + int(is_freed_again.sum()),
    )


def _match_blocks(
    sequence: _AddressSequence, starts: _Starts, blocks: BlockTable, event_count: int
) -> np.ndarray:
    """Return the allocation that each block holds at the end, int64; -1: none.

    It is the last one at the block's address.
    """
    if not len(starts.first):
        return np.full(len(blocks), -1, np.int64)
    start_addr = sequence.addr[starts.first]
    last = np.maximum(np.searchsorted(start_addr, blocks.addr, side="right") - 1, 0)
    is_ended = starts.end[last] < event_count
    is_live = (blocks.state == ACTIVE) & (starts.end[last] == event_count)
    is_pending = (blocks.state == PENDING) & (starts.freed[last] == event_count)
    is_held = is_live | (is_pending & is_ended)
    return np.where((start_addr[last] == blocks.addr) & is_held, last, -1)


def _stacking_order(addr: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the order of allocations by their ids.

    Those from before the trace come first, of them those that stay longest; then the
    others in the order of their beginning.
    """
    early = np.flatnonzero(start < 0)
    late = np.flatnonzero(start >= 0)
    early_order = np.lexsort((addr[early], -end[early]))
    late_order = np.argsort(start[late])
    return np.concatenate([early[early_order], late[late_order]])


def _complete_from_blocks(
    allocations: Allocations,
    blocks: BlockTable,
    held_blocks: np.ndarray,
    ids: np.ndarray,
    block_pool: np.ndarray,
) -> None:
    """Fill in what only the blocks at the end say: rounded sizes, stacks, pools.

    Args:
        held_blocks: indices of the blocks that hold an allocation.
        ids: ids of these allocations.
        block_pool: pool of each block's segment, int16.
    """
    allocations.rounded[ids] = blocks.size[held_blocks]
    stack = allocations.stack[ids]
    has_no_stack = stack == NO_STACK
    allocations.stack[ids] = np.where(has_no_stack, blocks.stack[held_blocks], stack)
    pool = allocations.pool[ids]
    has_no_pool = pool == UNKNOWN_POOL
    allocations.pool[ids] = np.where(has_no_pool, block_pool[held_blocks], pool)


# -- reserved ranges -------------------------------------------------------------------


class _Range(NamedTuple):
    """A reserved range of addresses. Compared by `first`; ranges do not overlap."""

    first: int
    last: int
    """The address after the range."""
    start: int
    """The event that reserved it; -1: before the trace."""
    stream: int
    pool: int


class _SpanRow(NamedTuple):
    """A row of `Spans`."""

    addr: int
    size: int
    start: int
    end: int
    stream: int
    pool: int


_SPAN_DTYPES = (np.uint64, np.int64, np.int32, np.int32, np.int16, np.int16)
"""Dtypes of the columns of a `_SpanRow`."""


class _ReservedRanges:
    """The ranges that are reserved at one moment, and rows for those that ended."""

    def __init__(self) -> None:
        self.ranges: list[_Range] = []
        """Reserved ranges in the order of their addresses."""
        self.rows: list[_SpanRow] = []

    def release(self, low: int, high: int, event: int) -> list[tuple[int, int]]:
        """End what is reserved from `low` to `high`.

        Returns the parts of it that were not known to be reserved.
        """
        i = bisect_right(self.ranges, low, key=attrgetter("last"))
        j = bisect_left(self.ranges, high, key=attrgetter("first"))
        unknown = []
        remaining = []
        position = low
        for reserved in self.ranges[i:j]:
            first = max(reserved.first, low)
            last = min(reserved.last, high)
            self.rows.append(
                _SpanRow(
                    addr=first,
                    size=last - first,
                    start=reserved.start,
                    end=event,
                    stream=reserved.stream,
                    pool=reserved.pool,
                )
            )
            unknown.append((position, first))
            remaining.append(reserved._replace(last=first))
            remaining.append(reserved._replace(first=last))
            position = last
        unknown.append((position, high))
        self.ranges[i:j] = [r for r in remaining if r.first < r.last]
        return [(first, last) for first, last in unknown if first < last]


def make_spans(events: Events, segments: Segments) -> Spans:
    """Return the reserved ranges, ordered by their beginning, then by address.

    A range that is returned to the driver, or is there at the end, without having been
    reserved in the trace was there before it.
    """
    reserved = _ReservedRanges()
    _replay_events(reserved, events)
    _close_segments(reserved, segments, len(events))
    rows = reserved.rows
    rows += (
        _SpanRow(r.first, r.last - r.first, r.start, len(events), r.stream, r.pool)
        for r in reserved.ranges
    )
    rows.sort(key=lambda row: (row.start, row.addr, row.end))
    if rows:
        columns = zip(*rows, strict=True)
    else:
        columns = [()] * len(_SPAN_DTYPES)
    return Spans(*map(np.array, columns, _SPAN_DTYPES))


def _replay_events(reserved: _ReservedRanges, events: Events) -> None:
    """Follow the events that reserve ranges and return them to the driver."""
    for event in np.flatnonzero(np.isin(events.action, RESERVING + RELEASING)).tolist():
        low = int(events.addr[event])
        high = low + int(events.size[event])
        if high <= low:
            continue
        stream = int(events.stream[event])
        pool = int(events.pool[event])
        unknown = reserved.release(low, high, event)
        if events.action[event] in RESERVING:
            insort(reserved.ranges, _Range(low, high, event, stream, pool))
        else:
            reserved.rows += (
                _SpanRow(first, last - first, -1, event, stream, pool)
                for first, last in unknown
            )


def _close_segments(
    reserved: _ReservedRanges, segments: Segments, event_count: int
) -> None:
    """End the ranges of the segments that are there at the end of the trace."""
    for low, size, stream, pool in _segment_rows(segments):
        row_count = len(reserved.rows)
        unknown = reserved.release(low, low + size, event_count)
        # The segment says the pool where the events did not.
        reserved.rows[row_count:] = [
            row._replace(pool=pool) if row.pool == UNKNOWN_POOL else row
            for row in reserved.rows[row_count:]
        ]
        reserved.rows += (
            _SpanRow(first, last - first, -1, event_count, stream, pool)
            for first, last in unknown
        )


def _segment_rows(segments: Segments) -> Iterator[tuple[int, int, int, int]]:
    """Yield the address, size, stream and pool of each segment."""
    return zip(
        segments.addr.tolist(),
        segments.total.tolist(),
        segments.stream.tolist(),
        segments.pool.tolist(),
        strict=True,
    )


def fill_pools(allocations: Allocations, events: Events, segments: Segments) -> None:
    """Set the pools that events lack to that of the segment around the address."""
    if len(segments):
        segment = np.searchsorted(segments.addr, allocations.addr, side="right") - 1
        segment = np.maximum(segment, 0)
        low = segments.addr[segment]
        high = low + segments.total[segment].view(np.uint64)
        is_inside = (low <= allocations.addr) & (allocations.addr < high)
        is_missing = (allocations.pool == UNKNOWN_POOL) & is_inside
        allocations.pool[is_missing] = segments.pool[segment][is_missing]
    is_missing = (events.pool == UNKNOWN_POOL) & (events.allocation >= 0)
    events.pool[is_missing] = allocations.pool[events.allocation[is_missing]]
