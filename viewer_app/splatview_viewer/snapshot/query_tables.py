"""Makes the tables of a snapshot in a database: views of its arrays, and small tables.

Columns are numbers that DuckDB reads from the snapshot's arrays, and SQL for their values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.snapshot.analysis.categories import categories
from splatview_viewer.snapshot.analysis.frames import USER, frame_kinds, sites
from splatview_viewer.snapshot.model import (
    ACTIONS,
    BLOCK_STATES,
    SEGMENT_TYPES,
    bytes_at_moments,
    live_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    import duckdb

    from splatview_viewer.snapshot.model import MemorySnapshot, Trace

TABLES = {
    "allocations": "memory that was handed out once; size is what was requested, in bytes; NULL: outside the trace",
    "events": "every entry of the trace, in its order",
    "moments": "live and reserved bytes after the first `moment` events",
    "segments": "what the allocator holds of the driver's memory, at the end",
    "blocks": "what the segments are cut into, at the end",
    "spans": "memory while it was reserved",
    "stacks": "one row for each stack: its innermost frame, the innermost of your own code, and all as `text`",
    "frames": "one row for each frame of a stack; position 0 is the innermost",
    "annotations": "what the program said about itself",
}
"""The tables and what they hold."""


class Macro(NamedTuple):
    """A table or a value that a query can call."""

    description: str
    definition: str
    """SQL behind CREATE TEMP MACRO."""


MACROS = {
    "live_at(moment)": Macro(
        "the allocations that are live at a moment",
        """live_at(at_moment) AS TABLE
        SELECT * FROM allocations
        WHERE (start_event IS NULL OR start_event < at_moment) AND (end_event IS NULL OR end_event >= at_moment)""",
    ),
    "at_peak()": Macro(
        "the allocations that are live when most bytes are, on each device at its own moment",
        """at_peak()
        AS TABLE SELECT a.* FROM allocations a JOIN peaks_ p ON p.device = a.device
        WHERE (start_event IS NULL OR start_event < p.moment) AND (end_event IS NULL OR end_event >= p.moment)""",
    ),
    "peak()": Macro(
        "the moment with most live bytes; peak(0): of device 0",
        """peak(of_device := NULL) AS (SELECT moment
        FROM peaks_ WHERE of_device IS NULL OR device = of_device ORDER BY live DESC, device LIMIT 1)""",
    ),
}
"""Macros by the way in which they are called."""


class Column(NamedTuple):
    """A column of a table."""

    values: np.ndarray | None
    """Numbers; None: it is computed from other columns."""
    sql: str
    """SQL for the values that a query sees, where {} is the name of the numbers."""


def fill(con: duckdb.DuckDBPyConnection, snapshot: MemorySnapshot) -> None:
    """Make the tables of a snapshot in an empty database.

    Raises:
        ViewerError: the snapshot is empty.
    """
    if not snapshot.traces:
        raise ViewerError("the snapshot is empty: it has neither events nor segments")
    texts = {"n INTEGER": range(len(snapshot.texts)), "words VARCHAR": snapshot.texts}
    _create_table(con, "texts", texts)
    _add_stacks(con, snapshot)
    _add_device_tables(con, snapshot)
    _add_annotations(con, snapshot)
    _add_peaks(con, snapshot)
    for macro in MACROS.values():
        con.execute(f"CREATE TEMP MACRO {macro.definition}")
    _add_description(con)


def _create_table(
    con: duckdb.DuckDBPyConnection, name: str, columns: dict[str, Iterable[Any]]
) -> None:
    """Create a small table of the values of each column, by its name and type.

    Not a temporary one: those could be written to in a transaction that only reads.
    """
    selected = []
    for column in columns:
        column_name, _, column_type = column.rpartition(" ")
        selected.append(f'unnest(?::{column_type}[]) AS "{column_name}"')
    con.execute(
        f"CREATE TABLE {name} AS SELECT {', '.join(selected)}",
        [list(values) for values in columns.values()],
    )


def _add_device_tables(
    con: duckdb.DuckDBPyConnection, snapshot: MemorySnapshot
) -> None:
    """Make the tables of traces: views of the arrays of all devices."""
    selects: dict[str, list[str]] = {}
    for index, trace in enumerate(snapshot.traces):
        for table, columns in _device_columns(snapshot, trace).items():
            array_table = f"{table}_{index}_"
            con.register(array_table, _arrays(columns))
            values = [
                f"{column.sql.replace('{}', name)} AS {name}"
                for name, column in columns.items()
            ]
            # The device stands first, or behind the id that names an allocation.
            position = 1 if table == "allocations" else 0
            values.insert(position, f"{trace.device} AS device")
            select = f"SELECT {', '.join(values)} FROM {array_table}"
            selects.setdefault(table, []).append(select)
    for table, table_selects in selects.items():
        union = " UNION ALL ".join(table_selects)
        con.execute(f"CREATE TEMP VIEW {table} AS {union}")


def _arrays(columns: dict[str, Column]) -> dict[str, np.ndarray]:
    """Return the arrays of columns as DuckDB can read them."""
    arrays = {}
    for name, column in columns.items():
        if column.values is not None:
            arrays[name] = np.ascontiguousarray(column.values)
    return arrays


def _add_annotations(con: duckdb.DuckDBPyConnection, snapshot: MemorySnapshot) -> None:
    """Make the table of the program's annotations."""
    annotations = snapshot.annotations
    columns: dict[str, Iterable[Any]] = {
        "device INTEGER": [annotation.device for annotation in annotations],
        "time_us BIGINT": [annotation.time_us for annotation in annotations],
        "name VARCHAR": [annotation.name for annotation in annotations],
        "stage VARCHAR": [annotation.stage for annotation in annotations],
    }
    _create_table(con, "annotations", columns)


def _add_peaks(con: duckdb.DuckDBPyConnection, snapshot: MemorySnapshot) -> None:
    """Make the table of each device's moment with most live bytes, for the macros."""
    live = [live_bytes(trace) for trace in snapshot.traces]
    columns: dict[str, Iterable[Any]] = {
        "device INTEGER": [trace.device for trace in snapshot.traces],
        "moment INTEGER": [int(values.argmax()) for values in live],
        "live BIGINT": [int(values.max()) for values in live],
    }
    _create_table(con, "peaks_", columns)


def _add_description(con: duckdb.DuckDBPyConnection) -> None:
    """Make the table that describes the others."""
    column_names = []
    for table in TABLES:
        described = con.execute(f"FROM {table} LIMIT 0").description or []
        column_names.append(", ".join(column[0] for column in described))
    macro_descriptions = [macro.description for macro in MACROS.values()]
    columns: dict[str, Iterable[Any]] = {
        "table VARCHAR": [*TABLES, *MACROS],
        "what it holds VARCHAR": [*TABLES.values(), *macro_descriptions],
        "columns VARCHAR": [*column_names, "as allocations", "as allocations", ""],
    }
    _create_table(con, "tables_", columns)


def _add_stacks(con: duckdb.DuckDBPyConnection, snapshot: MemorySnapshot) -> None:
    """Make the views `stacks` and `frames`."""
    stacks = snapshot.stacks
    kinds = frame_kinds(snapshot)
    site = sites(snapshot)
    own = site
    if len(kinds):
        is_own = (site >= 0) & (kinds[site] == USER)
        own = np.where(is_own, site, -1)
    depth = np.diff(stacks.start).astype(np.int32)
    stack_id = np.arange(len(stacks), dtype=np.int32)
    first_entry = np.where(depth > 0, stacks.start[:-1], -1)
    top = np.append(stacks.frames, np.int32(-1))[first_entry]
    entry = np.arange(len(stacks.frames), dtype=np.int64)
    position = entry - np.repeat(stacks.start[:-1], depth)
    con.register(
        "frames_",
        {
            "frame": np.arange(len(kinds), dtype=np.int32),
            "name": stacks.name,
            "path": stacks.file,
            "line": stacks.line,
            "own_code": kinds == USER,
        },
    )
    con.register(
        "entries_",
        {
            "stack_id": np.repeat(stack_id, depth),
            "position": position.astype(np.int32),
            "frame": stacks.frames,
        },
    )
    con.register(
        "stacks_", {"stack_id": stack_id, "depth": depth, "top": top, "own": own}
    )

    def stack_text(stack: int) -> str:
        if not 0 <= stack < len(stacks):
            return ""
        frames = snapshot.stack(stack)
        return "\n".join(f"{f.name}  {f.file}:{f.line}" for f in frames)

    con.create_function("stack_text", stack_text, ["INTEGER"], "VARCHAR")  # type: ignore[arg-type]
    con.execute(
        """CREATE TABLE lines_ AS
        SELECT frame, f.words AS function, p.words AS file, line, own_code
        FROM frames_ JOIN texts f ON f.n = name JOIN texts p ON p.n = path"""
    )
    con.execute(
        """CREATE TEMP VIEW frames AS
        SELECT stack_id, position, function, file, line, own_code
        FROM entries_ JOIN lines_ USING (frame)"""
    )
    con.execute(
        """CREATE TEMP VIEW stacks AS
        SELECT stack_id, depth, t.function AS function, t.file AS file, t.line AS line,
            o.function AS own_function, o.file AS own_file, o.line AS own_line,
            stack_text(stack_id) AS text
        FROM stacks_ LEFT JOIN lines_ t ON t.frame = top
        LEFT JOIN lines_ o ON o.frame = own"""
    )


# -- columns of traces -----------------------------------------------------------------


def _device_columns(
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
    addr = _integer(events.addr)
    is_oom = f"action = {ACTIONS.index('oom')}"
    return {
        "event": _row_numbers(len(events)),
        "action": _named(events.action, ACTIONS),
        "addr": Column(events.addr, f"CASE WHEN NOT {is_oom} THEN {addr.sql} END"),
        "size": _integer(events.size),
        **_stream_and_pool(snapshot, events),
        "time_us": Column(events.time_us, _NULL_IF_ZERO),
        "stack_id": _index(events.stack),
        "allocation": _index(events.allocation),
        "device_free": Column(events.addr, f"CASE WHEN {is_oom} THEN {addr.sql} END"),
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
    spans = trace.spans
    moment_count = trace.moment_count
    reserved = bytes_at_moments(moment_count, spans.start, spans.end, spans.size)
    return {
        "moment": _row_numbers(moment_count),
        "time_us": Column(np.append(0, trace.events.time_us), _NULL_IF_ZERO),
        "live": _integer(live_bytes(trace)),
        "reserved": _integer(reserved),
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


def _pool_text(first: int, second: int) -> str:
    """Return a memory pool's name for users."""
    if (first, second) == (0, 0):
        return "default"
    return f"private ({first}, {second})"


def _stream_and_pool(snapshot: MemorySnapshot, rows: Any) -> dict[str, Column]:
    """Return the columns "stream" and "pool" of a table."""
    pools = [_pool_text(*pool) for pool in snapshot.pools]
    streams = list(snapshot.streams)
    stream_sql = f"list_extract({streams}, {{}}::INTEGER + 1)"
    return {
        "stream": Column(rows.stream, stream_sql),
        "pool": _named(rows.pool, pools),
    }


def _start_and_end(trace: Trace, rows: Any) -> dict[str, Column]:
    """Return the columns on the beginning and the end of allocations or spans."""
    return {
        "start_event": _index(rows.start),
        "end_event": _event_within(trace, rows.end),
        "start_us": _event_times(trace, rows.start),
        "end_us": _event_times(trace, rows.end),
    }


_NULL_IF_ZERO = "nullif({}, 0)"


def _row_numbers(count: int) -> Column:
    """Return the column of the numbers from 0 on."""
    return Column(np.arange(count, dtype=np.int32), "{}")


def _integer(values: np.ndarray) -> Column:
    """Return a column of integers.

    None is unsigned of 64 bits, since differences of such numbers are errors.
    """
    if values.dtype != np.uint64:
        return Column(values, "{}")
    is_huge = bool(values.max(initial=0) >> np.uint64(63))
    return Column(values, "{}::HUGEINT" if is_huge else "{}::BIGINT")


def _index(values: np.ndarray) -> Column:
    """Return a column of indices; NULL for -1."""
    return Column(values, "CASE WHEN {} >= 0 THEN {} END")


def _event_within(trace: Trace, events: np.ndarray) -> Column:
    """Return a column of events; NULL for M, behind the trace."""
    return Column(events, f"CASE WHEN {{}} < {len(trace.events)} THEN {{}} END")


def _event_times(trace: Trace, events: np.ndarray) -> Column:
    """Return the times of events; NULL for those outside the trace or without a time."""
    # M takes the last value but one, -1 the last.
    times = np.append(trace.events.time_us, [0, 0])
    return Column(times[events], _NULL_IF_ZERO)


def _named(values: np.ndarray, names: Iterable[str]) -> Column:
    """Return the name of each index; NULL for -1."""
    quoted = ["'" + name.replace("'", "''") + "'" for name in names]
    if not quoted:
        return Column(values, "NULL")
    return Column(values, f"list_extract([{', '.join(quoted)}], {{}}::INTEGER + 1)")


def _text(values: np.ndarray) -> Column:
    """Return the text of each index in `texts`; NULL for -1."""
    if not (values >= 0).any():
        return Column(values, "NULL::VARCHAR")
    # By a subquery, not a join, so that rows stay in their order.
    return Column(values, "(SELECT words FROM texts WHERE n = {})")
