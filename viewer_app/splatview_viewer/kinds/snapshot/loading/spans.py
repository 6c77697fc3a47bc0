"""What was reserved, and when: from the events about segments and the segments at the end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.snapshot.model import ACTIONS, UNKNOWN_POOL, Spans

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Allocations, Events, Segments

GOT = tuple(ACTIONS.index(a) for a in ("segment_alloc", "segment_map"))
FREE = ACTIONS.index("free")
GIVEN = tuple(ACTIONS.index(a) for a in ("segment_free", "segment_unmap"))


class _Reserved:
    """What is reserved as the trace goes by: ranges that do not overlap, in the order of their addresses."""

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
