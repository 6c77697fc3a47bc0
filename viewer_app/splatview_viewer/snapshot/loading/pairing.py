"""Events that belong to one allocation, also of one that begins before the trace or ends after it; reserved ranges.

Pairs are found by arrays: an event's meaning depends only on the event before it at the same address.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from operator import itemgetter

import numpy as np

from splatview_viewer.snapshot.model import (
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

ALLOC, REQUESTED, COMPLETED, FREE = (
    ACTIONS.index(a) for a in ("alloc", "free_requested", "free_completed", "free")
)
ACTIVE = BLOCK_STATES.index("active_allocated")
PENDING = BLOCK_STATES.index("active_pending_free")
GOT = tuple(ACTIONS.index(a) for a in ("segment_alloc", "segment_map"))
GIVEN = tuple(ACTIONS.index(a) for a in ("segment_free", "segment_unmap"))
NOTHING = 255


def pair_events(
    events: Events, blocks: Blocks, block_stream: np.ndarray, block_pool: np.ndarray
) -> tuple[Allocations, int]:
    """The allocations of a trace and of the blocks at its end, numbered as `model` says. Writes their numbers into
    `events.allocation` and `blocks.allocation`.

    Args:
        block_stream, block_pool: int16, of each block's segment.

    Returns: the allocations, and the number of oddities: those that ended because their address was handed out again;
        frees and blocks of memory whose address was in use and free before; those live at the end that no block holds,
        though there are blocks. A completed free whose request lies before the trace has no allocation.
    """
    m = len(events)
    which = np.flatnonzero((events.action <= COMPLETED) | (events.action == FREE))
    which = which[np.argsort(events.addr[which], kind="stable")]
    addr = events.addr[which]
    action = events.action[which]
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
    unknown = (
        ~taken & (before != ALLOC) & ((action == REQUESTED) | (before != REQUESTED))
    )
    # Where requests are recorded, the request of such a completion lies before the trace: its memory was not live.
    has_requests = bool((action == REQUESTED).any())
    orphaned = unknown & (action == COMPLETED) & has_requests
    unknown &= ~orphaned
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
    reused = alloc & (after[first] == ALLOC)
    freed_again = (unknown | orphaned) & (before != NOTHING)
    odd = int(reused.sum()) + int(freed_again.sum())

    # The allocation of the trace that each block holds at its end: the last one at its address.
    held = np.full(len(blocks), -1, np.int64)
    if len(first):
        at = np.maximum(np.searchsorted(addr[first], blocks.addr, side="right") - 1, 0)
        live = (blocks.state == ACTIVE) & (end[at] == m)
        pending = (blocks.state == PENDING) & (freed[at] == m) & (end[at] < m)
        held = np.where((addr[first][at] == blocks.addr) & (live | pending), at, -1)
    new = np.flatnonzero(
        (blocks.state == ACTIVE) & (held < 0)
    )  # never seen by the trace: live throughout
    if len(addr):
        place = np.minimum(np.searchsorted(addr, blocks.addr[new]), n - 1)
        odd += int((addr[place] == blocks.addr[new]).sum())
    held[new] = len(first) + np.arange(len(new))

    every = dict(
        addr=np.concatenate([addr[first], blocks.addr[new]]),
        size=np.concatenate(
            [events.size[which[first]].view(np.int64), blocks.requested[new]]
        ),
        start=np.concatenate([start, np.full(len(new), -1)]),
        end=np.concatenate([end, np.full(len(new), m)]),
        freed=np.concatenate([freed, np.full(len(new), m)]),
        stream=np.concatenate([events.stream[which[first]], block_stream[new]]),
        pool=np.concatenate([events.pool[which[first]], block_pool[new]]),
        stack=np.concatenate(
            [np.where(alloc, events.stack[which[first]], NO_STACK), blocks.stack[new]]
        ),
    )
    # What was there before the trace first, of that what stays longest; then in the order of their beginning.
    old = np.flatnonzero(every["start"] < 0)
    began = np.flatnonzero(every["start"] >= 0)
    order = np.concatenate(
        [
            old[np.lexsort((every["addr"][old], -every["end"][old]))],
            began[np.argsort(every["start"][began])],
        ]
    )
    ids = np.empty(len(order), np.int32)
    ids[order] = np.arange(len(order), dtype=np.int32)

    events.allocation[which[~orphaned]] = ids[number[~orphaned]]
    known = np.flatnonzero(held >= 0)
    of = ids[held[known]]
    blocks.allocation[known] = of
    dtypes = {
        "start": np.int32,
        "end": np.int32,
        "freed": np.int32,
        "stack": np.int32,
        "stream": np.int16,
        "pool": np.int16,
    }
    allocations = Allocations(
        **{
            name: column[order].astype(dtypes.get(name, column.dtype))
            for name, column in every.items()
        },
        rounded=np.zeros(len(order), np.int64),
    )
    # The blocks at the end say the rounded size, and what the events did not.
    a = allocations
    a.rounded[of] = blocks.size[known]
    a.stack[of] = np.where(a.stack[of] == NO_STACK, blocks.stack[known], a.stack[of])
    a.pool[of] = np.where(a.pool[of] == UNKNOWN_POOL, block_pool[known], a.pool[of])
    live = a.end == m
    live[of] = False
    return allocations, odd + (int(live.sum()) if len(blocks) else 0)


def make_spans(events: Events, segments: Segments) -> Spans:
    """The ranges that were reserved, ordered by their beginning, then by address.

    What is given back or there at the end without having been got in the trace was there before it.
    """
    m = len(events)
    held: list[tuple[int, int, int, int, int]] = []
    """Ranges reserved now, by address: its first byte, its end, event, stream, pool."""
    rows: list[tuple[int, int, int, int, int, int]] = []

    def take_out(low: int, high: int, event: int) -> list[tuple[int, int]]:
        """End what is reserved of a range. Returns the parts of it that were not known to be reserved."""
        i = bisect_right(held, low, key=itemgetter(1))
        j = bisect_left(held, high, key=itemgetter(0))
        unknown = []
        keep = []
        at = low
        for first, last, start, stream, pool in held[i:j]:
            a = max(first, low)
            b = min(last, high)
            rows.append((a, b - a, start, event, stream, pool))
            unknown.append((at, a))
            keep += [(first, a, start, stream, pool), (b, last, start, stream, pool)]
            at = b
        unknown.append((at, high))
        held[i:j] = [part for part in keep if part[0] < part[1]]
        return [part for part in unknown if part[0] < part[1]]

    for e in np.flatnonzero(np.isin(events.action, GOT + GIVEN)).tolist():
        low = int(events.addr[e])
        stream = int(events.stream[e])
        pool = int(events.pool[e])
        high = low + int(events.size[e])
        if high <= low:
            continue
        unknown = take_out(low, high, e)
        if events.action[e] in GOT:
            insort(held, (low, high, e, stream, pool))
        else:
            rows += [(a, b - a, -1, e, stream, pool) for a, b in unknown]
    for low, size, stream, pool in zip(
        segments.addr.tolist(),
        segments.total.tolist(),
        segments.stream.tolist(),
        segments.pool.tolist(),
        strict=True,
    ):
        count = len(rows)
        unknown = take_out(low, low + size, m)
        # What the events did not say, the segment does.
        rows[count:] = [
            (*r[:5], pool if r[5] == UNKNOWN_POOL else r[5]) for r in rows[count:]
        ]
        rows += [(a, b - a, -1, m, stream, pool) for a, b in unknown]
    rows += [
        (first, last - first, start, m, stream, pool)
        for first, last, start, stream, pool in held
    ]
    rows.sort(key=itemgetter(2, 0, 3))
    dtypes = np.uint64, np.int64, np.int32, np.int32, np.int16, np.int16
    return Spans(
        *map(np.array, zip(*rows, strict=True) if rows else [()] * len(dtypes), dtypes)
    )


def fill_pools(allocations: Allocations, events: Events, segments: Segments) -> None:
    """The pools that events do not tell: of the segment that the address lies in at the end."""
    a = allocations
    e = events
    if len(segments):
        at = np.maximum(np.searchsorted(segments.addr, a.addr, side="right") - 1, 0)
        low = segments.addr[at]
        high = segments.addr[at] + segments.total[at].view(np.uint64)
        missing = (a.pool == UNKNOWN_POOL) & (low <= a.addr) & (a.addr < high)
        a.pool[missing] = segments.pool[at][missing]
    missing = (e.pool == UNKNOWN_POOL) & (e.allocation >= 0)
    e.pool[missing] = a.pool[e.allocation[missing]]
