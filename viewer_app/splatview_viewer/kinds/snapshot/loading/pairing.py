"""Events that belong to one allocation, also of one that begins before the trace or ends after it; reserved ranges.

Pairs are found by arrays: an event's meaning depends only on the event before it at the same address.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np

from splatview_viewer.kinds.snapshot.model import (
    ACTIONS,
    BLOCK_STATES,
    NO_STACK,
    UNKNOWN_POOL,
    Allocations,
    Blocks,
    Events,
    Segments,
    Spans,
)

ALLOC, REQUESTED, COMPLETED, FREE = (ACTIONS.index(a) for a in ("alloc", "free_requested", "free_completed", "free"))
ACTIVE, PENDING = BLOCK_STATES.index("active_allocated"), BLOCK_STATES.index("active_pending_free")
GOT = tuple(ACTIONS.index(a) for a in ("segment_alloc", "segment_map"))
GIVEN = tuple(ACTIONS.index(a) for a in ("segment_free", "segment_unmap"))
NOTHING = 255


@dataclass
class Paired:
    """The allocations of a device, and what was odd."""

    allocations: Allocations
    events_allocation: np.ndarray
    """int32 (M,)"""
    blocks_allocation: np.ndarray
    lost_frees: int
    """Allocations that ended because their address was handed out again."""
    late: int
    """Frees and blocks of memory whose address was in use and free before: their alloc is missing in mid-trace."""
    unheld: int
    """Allocations that are live at the end and that no block holds, though there are blocks."""


def pair(events: Events, blocks: Blocks, block_stream: np.ndarray, block_pool: np.ndarray) -> Paired:
    """The allocations of a trace and of the blocks at its end, numbered as `model` says.

    Args:
        block_stream: int16, the stream of each block's segment.
        block_pool: int16, likewise.
    """
    m = len(events)
    which = _by_address(events)
    addr, action = events.addr[which], events.action[which]
    n = len(which)
    same = np.zeros(n, bool)
    same[1:] = addr[1:] == addr[:-1]
    before = np.full(n, NOTHING, np.uint8)
    before[1:][same[1:]] = action[:-1][same[1:]]
    after = np.full(n, NOTHING, np.uint8)
    after[:-1][same[1:]] = action[1:][same[1:]]
    then = np.full(n, m, np.int64)  # the event after it at this address
    then[:-1][same[1:]] = which[1:][same[1:]]

    taken = action == ALLOC
    # A free of what no event before it handed out; with skip_actions=["free_requested"] it is the completion alone.
    unknown = ~taken & (before != ALLOC) & ((action == REQUESTED) | (before != REQUESTED))
    begins = taken | unknown
    number = np.cumsum(begins) - 1  # in the order of addresses, for now
    first = np.flatnonzero(begins)

    # Where each ends: an alloc with the next event at its address whatever that is, the others with themselves.
    alloc = taken[first]
    end = np.where(alloc, then[first], which[first])
    by_request = np.where(alloc, after[first] == REQUESTED, action[first] == REQUESTED)
    request = np.where(alloc, first + 1, first)[by_request]
    freed = end.copy()
    freed[by_request] = then[request]
    start = np.where(alloc, which[first], -1)
    lost = int((alloc & (after[first] == ALLOC)).sum())
    late = int((unknown & (before != NOTHING)).sum())

    held = _match(blocks, addr[first], end, freed, m)
    new = np.flatnonzero((blocks.state == ACTIVE) & (held < 0))  # never seen by the trace: live throughout
    if len(addr):
        place = np.minimum(np.searchsorted(addr, blocks.addr[new]), n - 1)
        late += int((addr[place] == blocks.addr[new]).sum())
    held[new] = len(first) + np.arange(len(new))

    every = dict(
        addr=np.concatenate([addr[first], blocks.addr[new]]),
        size=np.concatenate([events.size[which[first]].view(np.int64), blocks.requested[new]]),
        start=np.concatenate([start, np.full(len(new), -1)]),
        end=np.concatenate([end, np.full(len(new), m)]),
        freed=np.concatenate([freed, np.full(len(new), m)]),
        stream=np.concatenate([events.stream[which[first]], block_stream[new]]),
        pool=np.concatenate([events.pool[which[first]], block_pool[new]]),
        stack=np.concatenate([np.where(alloc, events.stack[which[first]], NO_STACK), blocks.stack[new]]))
    order = _order(every)
    ids = np.empty(len(order), np.int32)
    ids[order] = np.arange(len(order), dtype=np.int32)

    of_events = np.full(m, -1, np.int32)
    of_events[which] = ids[number]
    of_blocks = np.where(held >= 0, ids[held], -1).astype(np.int32) if len(ids) else held.astype(np.int32)
    dtypes = {"start": np.int32, "end": np.int32, "freed": np.int32, "stack": np.int32, "stream": np.int16,
              "pool": np.int16}
    allocations = Allocations(**{name: column[order].astype(dtypes.get(name, column.dtype))
                                 for name, column in every.items()}, rounded=np.zeros(len(order), np.int64))
    _take_from_blocks(allocations, blocks, of_blocks, block_pool)
    unheld = 0
    if len(blocks):
        live = allocations.end == m
        live[of_blocks[of_blocks >= 0]] = False
        unheld = int(live.sum())
    return Paired(allocations, of_events, of_blocks, lost, late, unheld)


def _by_address(events: Events) -> np.ndarray:
    """The events int64 (n,) that hand out or free memory: by address, those of one address in their order."""
    which = np.flatnonzero((events.action <= COMPLETED) | (events.action == FREE))
    if len(which) == 0:
        return which
    addr = events.addr[which]
    addr -= addr.min()
    ones = int(np.bitwise_or.reduce(addr))
    shift = (ones & -ones).bit_length() - 1 if ones else 0
    bits = int(which[-1]).bit_length()
    if (ones >> shift).bit_length() + bits > 63:
        return which[np.argsort(addr, kind="stable")]
    # Both in one number: sorting numbers is several times quicker than a stable order.
    addr = (addr >> np.uint64(shift)).view(np.int64)
    addr <<= bits
    addr |= which
    addr.sort()
    addr &= (1 << bits) - 1
    return addr


def _match(blocks: Blocks, addr: np.ndarray, end: np.ndarray, freed: np.ndarray, m: int) -> np.ndarray:
    """The allocation int64 (blocks,) of those found in the trace that each block holds at its end, or -1."""
    if len(addr) == 0 or len(blocks) == 0:
        return np.full(len(blocks), -1, np.int64)
    last = np.searchsorted(addr, blocks.addr, side="right") - 1  # the last allocation at this address
    at = np.maximum(last, 0)
    there = (last >= 0) & (addr[at] == blocks.addr)
    live = there & (blocks.state == ACTIVE) & (end[at] == m)
    pending = there & (blocks.state == PENDING) & (freed[at] == m) & (end[at] < m)
    return np.where(live | pending, at, -1)


def _order(rows: dict[str, np.ndarray]) -> np.ndarray:
    """Which of these allocations comes at each id."""
    old = np.flatnonzero(rows["start"] < 0)
    old = old[np.lexsort((rows["addr"][old], -rows["end"][old]))]
    new = np.flatnonzero(rows["start"] >= 0)
    return np.concatenate([old, new[np.argsort(rows["start"][new])]])


def _take_from_blocks(a: Allocations, blocks: Blocks, of_blocks: np.ndarray, pool: np.ndarray) -> None:
    """Take over from the blocks at the end: the rounded size, and what the events did not say."""
    known = np.flatnonzero(of_blocks >= 0)
    of = of_blocks[known]
    a.rounded[of] = blocks.size[known]
    a.stack[of] = np.where(a.stack[of] == NO_STACK, blocks.stack[known], a.stack[of])
    a.pool[of] = np.where(a.pool[of] == UNKNOWN_POOL, pool[known], a.pool[of])


class _Reserved:
    """Reserved memory along the trace: ranges that do not overlap, in the order of their addresses."""

    def __init__(self) -> None:
        self.first: list[int] = []
        self.rest: list[tuple[int, int, int, int]] = []  # end of the range, event, stream, pool
        self.rows: list[tuple[int, int, int, int, int, int]] = []

    def take_out(self, low: int, high: int, event: int) -> list[tuple[int, int]]:
        """End what is reserved of a range. Returns the parts of it that were not known to be reserved."""
        i = max(bisect_right(self.first, low) - 1, 0)
        j = bisect_left(self.first, high)
        unknown: list[tuple[int, int]] = []
        keep: list[tuple[int, tuple[int, int, int, int]]] = []
        at = low
        for first, (last, start, stream, pool) in zip(self.first[i:j], self.rest[i:j], strict=True):
            a, b = max(first, low), min(last, high)
            if a >= b:
                keep.append((first, (last, start, stream, pool)))
                continue
            if at < a:
                unknown.append((at, a))
            at = b
            self.rows.append((a, b - a, start, event, stream, pool))
            if first < a:
                keep.append((first, (a, start, stream, pool)))
            if b < last:
                keep.append((b, (last, start, stream, pool)))
        if at < high:
            unknown.append((at, high))
        self.first[i:j] = [k[0] for k in keep]
        self.rest[i:j] = [k[1] for k in keep]
        return unknown

    def put(self, low: int, high: int, event: int, stream: int, pool: int) -> None:
        i = bisect_left(self.first, low)
        self.first.insert(i, low)
        self.rest.insert(i, (high, event, stream, pool))


def make_spans(events: Events, segments: Segments) -> Spans:
    """The ranges that were reserved, ordered by their beginning, then by address.

    What is given back or there at the end without having been got in the trace was there before it.
    """
    m = len(events)
    reserved = _Reserved()
    for e in np.flatnonzero(np.isin(events.action, GOT + GIVEN)).tolist():
        low, stream, pool = int(events.addr[e]), int(events.stream[e]), int(events.pool[e])
        high = low + int(events.size[e])
        if high <= low:
            continue
        unknown = reserved.take_out(low, high, e)
        if events.action[e] in GOT:
            reserved.put(low, high, e, stream, pool)
        else:
            reserved.rows += [(a, b - a, -1, e, stream, pool) for a, b in unknown]
    for low, size, stream, pool in zip(segments.addr.tolist(), segments.total.tolist(), segments.stream.tolist(),
                                       segments.pool.tolist(), strict=True):
        count = len(reserved.rows)
        unknown = reserved.take_out(low, low + size, m)
        # What the events did not say, the segment does.
        reserved.rows[count:] = [(*r[:5], pool if r[5] == UNKNOWN_POOL else r[5]) for r in reserved.rows[count:]]
        reserved.rows += [(a, b - a, -1, m, stream, pool) for a, b in unknown]
    reserved.rows += [(first, last - first, start, m, stream, pool)
                      for first, (last, start, stream, pool) in zip(reserved.first, reserved.rest, strict=True)]
    rows = sorted(reserved.rows, key=lambda r: (r[2], r[0], r[3]))
    dtypes = np.uint64, np.int64, np.int32, np.int32, np.int16, np.int16
    return Spans(*map(np.array, zip(*rows, strict=True) if rows else [()] * len(dtypes), dtypes))


def fill_pools(allocations: Allocations, events: Events, segments: Segments, spans: Spans) -> None:
    """The pools that events do not tell: of the segment that the address lies in, as far as it was there then."""
    if len(segments) == 0:
        return
    since = np.full(len(segments), len(events), np.int64)
    ends = spans.end == len(events)
    at = np.searchsorted(segments.addr, spans.addr[ends], side="right") - 1
    inside = at >= 0
    np.minimum.at(since, at[inside], spans.start[ends][inside])

    def look(addr: np.ndarray, event: np.ndarray) -> np.ndarray:
        at = np.searchsorted(segments.addr, addr, side="right") - 1
        i = np.maximum(at, 0)
        inside = (at >= 0) & (addr < segments.addr[i] + segments.total[i].view(np.uint64)) & (event >= since[i])
        return np.where(inside, segments.pool[i], UNKNOWN_POOL)

    missing = np.flatnonzero(allocations.pool == UNKNOWN_POOL)
    allocations.pool[missing] = look(allocations.addr[missing], allocations.start[missing])
    missing = np.flatnonzero((events.pool == UNKNOWN_POOL) & ((events.action <= GIVEN[-1]) | (events.action == FREE)))
    of = events.allocation[missing]
    told = np.where(of >= 0, allocations.pool[np.maximum(of, 0)], UNKNOWN_POOL) if len(allocations) else (
        np.full(len(missing), UNKNOWN_POOL))
    events.pool[missing] = np.where(told != UNKNOWN_POOL, told, look(events.addr[missing], missing))
