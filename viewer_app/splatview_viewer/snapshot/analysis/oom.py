"""Explains why an allocation failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.core.quantities import count_text, size_text
from splatview_viewer.snapshot.analysis.segments import (
    INACTIVE,
    SMALL,
    SMALL_SEGMENT,
    SegmentsAt,
    segments_at,
)
from splatview_viewer.snapshot.analysis.tables import GroupTable, group_allocations
from splatview_viewer.snapshot.model import live_mask, pool_text, stream_text

if TYPE_CHECKING:
    from splatview_viewer.snapshot.model import MemorySnapshot, Trace


@dataclass(frozen=True, eq=False)
class Oom:
    """A failed allocation, and the memory at that event."""

    event: int
    """Also the moment before it."""
    requested: int
    """Bytes"""
    device_free: int
    """Bytes that the driver still had."""
    segments: SegmentsAt
    usable: np.ndarray
    """int64: sizes of the free blocks that the request could take."""
    holders: GroupTable
    """Live memory, by stack."""
    verdict: str
    """The reason in one to three sentences."""
    stack: int
    """The stack of the request."""


def explain_oom(snapshot: MemorySnapshot, trace: Trace, event: int) -> Oom:
    """Explain an event `oom` of the trace."""
    events = trace.events
    segments = segments_at(snapshot, trace, event)
    requested = int(events.size[event])
    device_free = int(events.addr[event])
    pool = max(int(events.pool[event]), 0)
    stream = int(events.stream[event])
    is_usable = (segments.pool == pool) | (segments.pool < 0)
    is_usable &= segments.stream == stream
    # Segments of 2 MiB serve only requests up to 1 MiB, which are served by no others but
    # expandable ones.
    is_small_segment = segments.size <= SMALL_SEGMENT
    is_usable &= (is_small_segment == (requested <= SMALL)) | segments.expandable
    block_count = np.diff(segments.block_start)
    is_free = segments.block_state == INACTIVE
    usable = segments.block_size[is_free & np.repeat(is_usable, block_count)]
    verdict = _verdict(segments, requested, device_free, usable)
    if pool or snapshot.streams[stream] != 0:
        verdict += (
            f" It was asked for in the {pool_text(snapshot.pools[pool])} on the "
            f"{stream_text(snapshot.streams[stream])}."
        )
    live = live_mask(trace, event)
    return Oom(
        event=event,
        requested=requested,
        device_free=device_free,
        segments=segments,
        usable=usable,
        holders=group_allocations(snapshot, trace, live, "stack"),
        verdict=verdict,
        stack=int(events.stack[event]),
    )


def _verdict(
    segments: SegmentsAt, requested: int, device_free: int, usable: np.ndarray
) -> str:
    """Return why a request failed.

    Args:
        usable: sizes of the free blocks that the request could take.
    """
    free = int(usable.sum())
    largest = int(usable.max(initial=0))
    a = size_text(requested)
    left = size_text(device_free)
    if largest >= requested:
        return (
            f"A free block of {size_text(largest)} was there for the {a} that was asked "
            "for; a limit, or max_split_size, kept it from being used."
        )
    if device_free >= requested:
        return (
            f"The driver still had {left}: a limit (set_per_process_memory_fraction) kept "
            f"the allocator from taking it. {size_text(free)} was free in its cache, {a} "
            "was asked for."
        )
    if free and free + device_free >= requested:
        return (
            f"Fragmentation: {size_text(free)} was free in "
            f"{count_text(len(usable), 'block')}, none larger than {size_text(largest)}; "
            f"{a} was asked for, and the driver had {left} left. "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True often helps."
        )
    if segments.pending and free + device_free + segments.pending >= requested:
        return (
            f"{size_text(segments.pending)} was freed but waited for another stream "
            f"(record_stream); with it the {a} that was asked for would have fitted."
        )
    if segments.free > free and segments.free + device_free >= requested:
        return (
            f"{size_text(segments.free - free)} was free, but in other pools, for other "
            f"streams or in segments for small blocks, where this request may not take it; "
            f"{a} was asked for, {size_text(free)} was free here, and the driver had {left} "
            "left."
        )
    return (
        f"Really full: {size_text(segments.active)} of {size_text(segments.reserved)} "
        f"reserved was in use; {a} was asked for, only {size_text(free)} cached and {left} "
        "at the driver was free."
    )
