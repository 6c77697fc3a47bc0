"""Post-mortem of a run that had no memory left: what was asked, who held it, and why it did not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.snapshot.analysis import _kept
from splatview_viewer.kinds.snapshot.analysis.live import live_ids
from splatview_viewer.kinds.snapshot.analysis.segments import INACTIVE, SMALL, SMALL_SEGMENT, SegmentsAt, segments_at
from splatview_viewer.kinds.snapshot.analysis.tables import Tables
from splatview_viewer.kinds.snapshot.labels import pool_text, stream_text
from splatview_viewer.kinds.snapshot.model import ACTIONS
from splatview_viewer.ui.format import count_text, size_text

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace

_OOM = ACTIONS.index("oom")


@dataclass(frozen=True, eq=False)
class Holder:
    """What one stack held; as a Row of a table, but without its snapshot, with which it is kept."""

    key: int
    """The stack."""
    label: str
    bytes: int
    count: int
    largest: int
    allocations: np.ndarray
    """int32: the ids."""


@dataclass(frozen=True, eq=False)
class Oom:
    """One time that an allocation failed."""

    event: int
    moment: int
    """The moment before the event."""
    time_us: int
    asked: int
    """Bytes"""
    device_free: int
    """Bytes that the driver still had."""
    live: int
    """Bytes requested by what was live."""
    active: int
    """The same as the allocator rounds them."""
    pending: int
    """Bytes freed that wait for another stream."""
    reserved: int
    cached: int
    """Bytes that the allocator had and that were free."""
    usable: int
    """Of these, what the request's own pool and stream could use."""
    largest_free: int
    """The largest free block that it could use."""
    free_blocks: int
    """How many free blocks it could use."""
    holders: list[Holder]
    """Who held most, by stack; at most 20."""
    kind: str
    """"fragmentation", "elsewhere", "pending", "limit" or "full"."""
    verdict: str
    """In a sentence or three."""
    stack: int
    """Where it was asked for."""


@_kept.of_trace
def post_mortem(snapshot: Snapshot, trace: Trace) -> list[Oom]:
    """What is known of each `oom` of the trace, in their order; at most the last 32."""
    events = np.flatnonzero(trace.events.action == _OOM)[-32:]
    return [_one(snapshot, trace, int(event)) for event in events]


def _one(snapshot: Snapshot, trace: Trace, event: int) -> Oom:
    e = trace.events
    ids = live_ids(trace, event)
    at = segments_at(snapshot, trace, event)
    asked, device_free = int(e.size[event]), max(int(e.addr[event]), 0)
    pool, stream = int(e.pool[event]), int(e.stream[event])
    holders = [Holder(row.key, row.label, row.bytes, row.count, row.largest, row.allocations)
               for row in Tables(snapshot).group(trace, ids, "stack")[:20]]
    usable = _usable(at, max(pool, 0), stream, asked)
    free, largest = int(usable.sum()), int(usable.max(initial=0))
    kind, verdict = _verdict(at, (asked, device_free, free, largest), len(usable))
    where = ""
    if pool > 0 or snapshot.streams[stream] != 0:
        where = f" It was asked for in the {pool_text(snapshot.pools[max(pool, 0)])} on the " \
                f"{stream_text(snapshot.streams[stream])}."
    return Oom(event, event, int(e.time_us[event]), asked, device_free, int(trace.allocations.size[ids].sum()),
               at.active, at.pending, at.reserved, at.free, free, largest, len(usable),
               holders, kind, verdict + where, int(e.stack[event]))


def _usable(at: SegmentsAt, pool: int, stream: int, asked: int) -> np.ndarray:
    """int64: sizes of the free blocks that a request in this pool and on this stream could take.

    Segments of 2 MiB serve only requests up to 1 MiB, and those are served by no others (but expandable ones).
    """
    mine = ((at.pool == pool) | (at.pool < 0)) & (at.stream == stream)
    mine &= ((at.size <= SMALL_SEGMENT) == (asked <= SMALL)) | at.expandable
    return at.block_size[(at.block_state == INACTIVE) & mine[at.segment_of_block()]]


def _verdict(at: SegmentsAt, sizes: tuple[int, int, int, int], blocks: int) -> tuple[str, str]:
    """The kind, and the sentences. sizes: bytes asked, free at the driver, usable in the cache, and its largest."""
    asked, device_free, free, largest = sizes
    a, limit = size_text(asked), ""
    if largest >= asked:
        return "limit", (f"A free block of {size_text(largest)} was there for the {a} that was asked for; a limit, "
                         f"or max_split_size, kept it from being used.")
    if device_free >= asked:
        limit = (f"The driver still had {size_text(device_free)}: a limit (set_per_process_memory_fraction) kept the "
                 f"allocator from taking it. Under the limit: ")
        device_free = 0
    driver = "" if limit else f", and the driver had {size_text(device_free)} left"
    none_larger = f"{size_text(free)} was free in {count_text(blocks, 'block')}, none larger than {size_text(largest)}"
    kind = "full"
    if free >= asked:
        kind, why = "fragmentation", f"fragmentation: {none_larger}; {a} was asked for{driver}. {_HELPS}"
    elif free and free + device_free >= asked:
        kind, why = "fragmentation", (f"fragmentation: {none_larger}; with the {size_text(device_free)} that the "
                                      f"driver had left, {a} would have fitted in one piece. {_HELPS}")
    elif at.pending and free + device_free + at.pending >= asked:
        kind, why = "pending", (f"{size_text(at.pending)} was freed but waited for another stream (record_stream); "
                                f"with it the {a} that was asked for would have fitted.")
    elif at.free > free and at.free + device_free >= asked:
        kind, why = "elsewhere", (
            f"{size_text(at.free - free)} was free, but in other pools, for other streams or in segments for small "
            f"blocks, where this request may not take it; {a} was asked for, {size_text(free)} free here{driver}.")
    else:
        left = "" if limit else f" and {size_text(device_free)} at the driver"
        why = (f"really full: {size_text(at.active)} of {size_text(at.reserved)} reserved was in use; {a} was asked "
               f"for, only {size_text(free)} cached{left} was free.")
    return kind, limit + (why if limit else why[0].upper() + why[1:])


_HELPS = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True often helps."
