"""The columns of the tables that users query about a memory snapshot.

A column of a view is an array of numbers and an SQL expression that turns each number
into the value that a query sees: an index into a name, say, or -1 into NULL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_viewer.snapshot.analysis.categories import categories
from splatview_viewer.snapshot.model import (
    ACTIONS,
    BLOCK_STATES,
    SEGMENT_TYPES,
    live_bytes,
    reserved_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from splatview_viewer.snapshot.model import MemorySnapshot, Trace


class Column(NamedTuple):
    """A column of a view: numbers of the snapshot, and what a query sees of them."""

    array: np.ndarray | None
    """One number a row; None: `expression` only uses other columns."""
    expression: str
    """SQL for the value of a row. "{}" stands for the row's number."""


_NULL_IF_ZERO = "nullif({}, 0)"
"""The expression of numbers that are 0 where they are not known."""


def device_columns(
    snapshot: MemorySnapshot, trace: Trace
) -> dict[str, dict[str, Column]]:
    """Return the columns of each table of one device."""
    return {
        "events": _event_columns(snapshot, trace),
        "allocations": _allocation_columns(snapshot, trace),
        "moments": _moment_columns(trace),
        "segments": _segment_columns(snapshot, trace),
        "blocks": _block_columns(trace),
        "spans": _span_columns(snapshot, trace),
    }


def _event_columns(snapshot: MemorySnapshot, trace: Trace) -> dict[str, Column]:
    """Return the columns of the table `events`."""
    events = trace.events
    # Of a failed request, `addr` is the memory that the driver still had.
    addr = _integer(events.addr).expression
    is_oom = f"action = {ACTIONS.index('oom')}"
    return {
        "event": _row_numbers(len(events)),
        "action": _named(events.action, ACTIONS),
        "addr": Column(events.addr, f"CASE WHEN NOT {is_oom} THEN {addr} END"),
        "size": _integer(events.size),
        **_stream_and_pool(snapshot, events),
        "time_us": Column(events.time_us, _NULL_IF_ZERO),
        "stack_id": _index(events.stack),
        "allocation": _index(events.allocation),
        "device_free": Column(events.addr, f"CASE WHEN {is_oom} THEN {addr} END"),
        "compile_context": _text(events.context),
        "user_metadata": _text(events.metadata),
    }


def _allocation_columns(snapshot: MemorySnapshot, trace: Trace) -> dict[str, Column]:
    """Return the columns of the table `allocations`."""
    allocations = trace.allocations
    return {
        "id": _row_numbers(len(allocations)),
        "addr": _integer(allocations.addr),
        "size": _integer(allocations.size),
        # Also by the name that this size has in `blocks` and `segments`.
        "requested_size": _integer(allocations.size),
        "rounded_size": Column(allocations.rounded, _NULL_IF_ZERO),
        **_start_and_end(trace, allocations),
        "lifetime_us": Column(None, "nullif(end_us, 0) - nullif(start_us, 0)"),
        **_stream_and_pool(snapshot, allocations),
        "stack_id": _index(allocations.stack),
        "freed_event": _event_within(trace, allocations.freed),
        "category": _named(*categories(snapshot, trace)),
    }


def _moment_columns(trace: Trace) -> dict[str, Column]:
    """Return the columns of the table `moments`."""
    return {
        "moment": _row_numbers(trace.moment_count),
        "time_us": Column(np.append(0, trace.events.time_us), _NULL_IF_ZERO),
        "live": _integer(live_bytes(trace)),
        "reserved": _integer(reserved_bytes(trace)),
    }


def _segment_columns(snapshot: MemorySnapshot, trace: Trace) -> dict[str, Column]:
    """Return the columns of the table `segments`."""
    segments = trace.segments
    return {
        "segment": _row_numbers(len(segments)),
        "addr": _integer(segments.addr),
        "total_size": _integer(segments.total),
        "allocated_size": _integer(segments.allocated),
        "active_size": _integer(segments.active),
        "requested_size": _integer(segments.requested),
        "blocks": _integer(segments.blocks),
        **_stream_and_pool(snapshot, segments),
        "type": _named(segments.type, SEGMENT_TYPES),
        "expandable": Column(segments.expandable, "{}::BOOLEAN"),
        "stack_id": _index(segments.stack),
    }


def _block_columns(trace: Trace) -> dict[str, Column]:
    """Return the columns of the table `blocks`."""
    blocks = trace.blocks
    segment_ids = np.arange(len(trace.segments), dtype=np.int32)
    return {
        "segment": Column(np.repeat(segment_ids, trace.segments.blocks), "{}"),
        "addr": _integer(blocks.addr),
        "size": _integer(blocks.size),
        "requested_size": _integer(blocks.requested),
        "state": _named(blocks.state, BLOCK_STATES),
        "stack_id": _index(blocks.stack),
        "allocation": _index(blocks.allocation),
    }


def _span_columns(snapshot: MemorySnapshot, trace: Trace) -> dict[str, Column]:
    """Return the columns of the table `spans`."""
    spans = trace.spans
    return {
        "addr": _integer(spans.addr),
        "size": _integer(spans.size),
        **_start_and_end(trace, spans),
        **_stream_and_pool(snapshot, spans),
    }


def _pool_name(pool_id: tuple[int, int]) -> str:
    """Return a memory pool's name for users."""
    if pool_id == (0, 0):
        return "default"
    return f"private {pool_id}"


def _stream_and_pool(snapshot: MemorySnapshot, rows: Any) -> dict[str, Column]:
    """Return the columns "stream" and "pool" of a table with these rows."""
    pools = [_pool_name(pool_id) for pool_id in snapshot.pools]
    streams = list(snapshot.streams)
    stream_sql = f"list_extract({streams}, {{}}::INTEGER + 1)"
    return {
        "stream": Column(rows.stream, stream_sql),
        "pool": _named(rows.pool, pools),
    }


def _start_and_end(trace: Trace, rows: Any) -> dict[str, Column]:
    """Return the columns on the start and the end of allocations or spans."""
    return {
        "start_event": _index(rows.start),
        "end_event": _event_within(trace, rows.end),
        "start_us": _event_times(trace, rows.start),
        "end_us": _event_times(trace, rows.end),
    }


# -- kinds of columns ------------------------------------------------------------------


def _row_numbers(count: int) -> Column:
    """Return a column that numbers the rows from 0."""
    return Column(np.arange(count, dtype=np.int32), "{}")


def _integer(array: np.ndarray) -> Column:
    """Return a column of integers with a sign.

    Differences of unsigned 64-bit numbers would be errors in SQL where they are
    negative.
    """
    if array.dtype != np.uint64:
        return Column(array, "{}")
    is_huge = bool(array.max(initial=0) >> np.uint64(63))
    return Column(array, "{}::HUGEINT" if is_huge else "{}::BIGINT")


def _index(indices: np.ndarray) -> Column:
    """Return a column of indices; -1 becomes NULL."""
    return Column(indices, "CASE WHEN {} >= 0 THEN {} END")


def _event_within(trace: Trace, events: np.ndarray) -> Column:
    """Return a column of events; the number of events ("never") becomes NULL."""
    return Column(events, f"CASE WHEN {{}} < {len(trace.events)} THEN {{}} END")


def _event_times(trace: Trace, events: np.ndarray) -> Column:
    """Return a column of the times of events; NULL where an event has none."""
    # -1 stands for an event before the trace, the number of events for one after it.
    # Used as indices, they find the last and the first of the two zeros.
    times = np.append(trace.events.time_us, [0, 0])
    return Column(times[events], _NULL_IF_ZERO)


def _named(indices: np.ndarray, names: Iterable[str]) -> Column:
    """Return a column of names, given as indices; -1 becomes NULL."""
    quoted = ["'" + name.replace("'", "''") + "'" for name in names]
    if not quoted:
        return Column(indices, "NULL")
    return Column(indices, f"list_extract([{', '.join(quoted)}], {{}}::INTEGER + 1)")


def _text(text_ids: np.ndarray) -> Column:
    """Return a column of the snapshot's texts, given as indices; -1 becomes NULL."""
    if not (text_ids >= 0).any():
        return Column(text_ids, "NULL::VARCHAR")
    # A join would not keep the rows in their order; a subquery does.
    return Column(text_ids, "(SELECT text FROM texts_ WHERE text_id = {})")
