"""Create the tables that users query about a memory snapshot, in a DuckDB database.

The large tables are views: DuckDB reads the snapshot's arrays in place. A column of a
view is an array of numbers and an SQL expression that turns each number into the value
that a query sees: an index into a name, say, or -1 into NULL.

Tables whose names end in an underscore are internal; the list of tables that users get
leaves them out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.snapshot.analysis.categories import categories
from splatview_viewer.snapshot.analysis.frames import USER, frame_kinds, sites
from splatview_viewer.snapshot.model import (
    ACTIONS,
    BLOCK_STATES,
    SEGMENT_TYPES,
    live_bytes,
    measure_peak,
    reserved_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    import duckdb

    from splatview_viewer.snapshot.model import MemorySnapshot, Stacks, Trace

TABLES = {
    "allocations": (
        "memory that was handed out once; size is what was requested, in bytes; an event "
        "outside the trace is NULL"
    ),
    "events": "every entry of the trace, in its order",
    "moments": "live and reserved bytes after the first `moment` events",
    "segments": "the memory that the allocator holds from the driver, at the end",
    "blocks": "the blocks that the segments are divided into, at the end",
    "spans": "ranges of memory while they were reserved from the driver",
    "stacks": (
        "one row for each stack: its innermost frame, the innermost of your own code, "
        "and all as `text`"
    ),
    "frames": "one row for each frame of a stack; position 0 is the innermost",
    "annotations": "records that the program added itself, such as a profiler's",
}
"""What each table holds, for users."""


class Macro(NamedTuple):
    """A function that queries can call; it returns a table or a value."""

    description: str
    """What it returns, for users."""
    columns: str
    """The columns of its table, for users; "" where it returns a value."""
    definition: str
    """The SQL that follows CREATE TEMP MACRO."""


MACROS = {
    "live_at(moment)": Macro(
        description="the allocations that are live at a moment",
        columns="as allocations",
        definition="""live_at(at_moment) AS TABLE
        SELECT * FROM allocations
        WHERE (start_event IS NULL OR start_event < at_moment)
            AND (end_event IS NULL OR end_event >= at_moment)""",
    ),
    "at_peak()": Macro(
        description=(
            "the allocations that are live when most bytes are, on each device at its "
            "own moment"
        ),
        columns="as allocations",
        definition="""at_peak() AS TABLE
        SELECT allocations.* FROM allocations JOIN peaks_ USING (device)
        WHERE (start_event IS NULL OR start_event < moment)
            AND (end_event IS NULL OR end_event >= moment)""",
    ),
    "peak()": Macro(
        description="the moment with most live bytes; peak(0): of device 0",
        columns="",
        definition="""peak(of_device := NULL) AS (
        SELECT moment FROM peaks_
        WHERE of_device IS NULL OR device = of_device
        ORDER BY live DESC, device LIMIT 1)""",
    ),
}
"""Functions for queries; each key shows how a query calls one."""


class Column(NamedTuple):
    """A column of a view: numbers of the snapshot, and what a query sees of them."""

    array: np.ndarray | None
    """One number a row; None: `expression` only uses other columns."""
    expression: str
    """SQL for the value of a row. "{}" stands for the row's number."""


_SCHEMA_TABLES = "texts_|lines_|peaks_|tables_"
"""Internal tables that a schema has."""
_REGISTERED = r"frames_|entries_|stacks_|[a-z]+_\d+_"
"""Arrays that are given to DuckDB; they are in no schema."""


class _InSchema:
    """A connection whose statements are about the tables of one schema."""

    def __init__(self, con: duckdb.DuckDBPyConnection, schema: str) -> None:
        self._con = con
        self._schema = schema

    def execute(self, sql: str, *values: Any) -> duckdb.DuckDBPyConnection:
        schema = self._schema
        sql = re.sub(r"\bCREATE TEMP (VIEW|MACRO) ", rf"CREATE \1 {schema}.", sql)
        sql = re.sub(rf"\b({_REGISTERED})(?!\w)", rf"{schema}_\1", sql)
        sql = re.sub(rf"(?<![\w.])({_SCHEMA_TABLES})(?!\w)", rf"{schema}.\1", sql)
        sql = re.sub(r"\bCREATE TABLE (\w+) ", rf"CREATE TABLE {schema}.\1 ", sql)
        names = "|".join(TABLES)
        sql = re.sub(rf"\b(FROM|JOIN) ({names})\b", rf"\1 {schema}.\2", sql)
        sql = re.sub(r"\bstack_text\(", f"{schema}_stack_text(", sql)
        return self._con.execute(sql, *values)

    def register(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        self._con.register(f"{self._schema}_{name}", arrays)

    def create_function(self, name: str, *values: Any) -> None:
        self._con.create_function(f"{self._schema}_{name}", *values)


def create_schemas(
    con: duckdb.DuckDBPyConnection, snapshots: dict[str, MemorySnapshot]
) -> None:
    """Create the tables of several snapshots, each in a schema of its own.

    Args:
        con: an empty database.
        snapshots: by the names of their schemas.

    Raises:
        ViewerError: a snapshot is empty.
    """
    described = []
    for schema, snapshot in snapshots.items():
        con.execute(f"CREATE SCHEMA {schema}")
        in_schema: Any = _InSchema(con, schema)
        create_tables(in_schema, snapshot)
        described.append(
            f'SELECT \'{schema}.\' || "table" AS "table", "what it holds", columns '
            f"FROM {schema}.tables_"
        )
    con.execute(f"CREATE TABLE tables_ AS {' UNION ALL '.join(described)}")


def create_tables(con: duckdb.DuckDBPyConnection, snapshot: MemorySnapshot) -> None:
    """Create the tables, views and macros of a snapshot in an empty database.

    Raises:
        ViewerError: the snapshot is empty.
    """
    if not snapshot.traces:
        raise ViewerError("the snapshot is empty: it has neither events nor segments")
    texts = {
        "text_id INTEGER": range(len(snapshot.texts)),
        "text VARCHAR": snapshot.texts,
    }
    _create_table(con, "texts_", texts)
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
    """Create a small table, with a copy of its values.

    It is not a temporary one: a transaction that only reads could write to those.

    Args:
        con: the database.
        name: the name of the table.
        columns: the values of each column. A key is the column's name, a space, and its
            SQL type.
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
    """Create the views of the arrays of all devices, one device after another."""
    selects: dict[str, list[str]] = {}
    for index, trace in enumerate(snapshot.traces):
        for table, columns in _device_columns(snapshot, trace).items():
            array_table = f"{table}_{index}_"
            con.register(array_table, _arrays(columns))
            selected = [
                f"{column.expression.replace('{}', name)} AS {name}"
                for name, column in columns.items()
            ]
            # The device comes first, or in `allocations` second, after the id.
            position = 1 if table == "allocations" else 0
            selected.insert(position, f"{trace.device} AS device")
            select = f"SELECT {', '.join(selected)} FROM {array_table}"
            selects.setdefault(table, []).append(select)
    for table, table_selects in selects.items():
        union = " UNION ALL ".join(table_selects)
        con.execute(f"CREATE TEMP VIEW {table} AS {union}")


def _arrays(columns: dict[str, Column]) -> dict[str, np.ndarray]:
    """Return the arrays of columns, contiguous, as DuckDB needs them."""
    arrays = {}
    for name, column in columns.items():
        if column.array is not None:
            arrays[name] = np.ascontiguousarray(column.array)
    return arrays


def _add_annotations(con: duckdb.DuckDBPyConnection, snapshot: MemorySnapshot) -> None:
    """Create the table `annotations`."""
    annotations = snapshot.annotations
    columns: dict[str, Iterable[Any]] = {
        "device INTEGER": [annotation.device for annotation in annotations],
        "time_us BIGINT": [annotation.time_us for annotation in annotations],
        "name VARCHAR": [annotation.name for annotation in annotations],
        "stage VARCHAR": [annotation.stage for annotation in annotations],
    }
    _create_table(con, "annotations", columns)


def _add_peaks(con: duckdb.DuckDBPyConnection, snapshot: MemorySnapshot) -> None:
    """Create the table of each device's moment with most live bytes, for the macros."""
    peaks = [measure_peak(trace) for trace in snapshot.traces]
    columns: dict[str, Iterable[Any]] = {
        "device INTEGER": [trace.device for trace in snapshot.traces],
        "moment INTEGER": [peak.peak_moment for peak in peaks],
        "live BIGINT": [peak.peak_bytes for peak in peaks],
    }
    _create_table(con, "peaks_", columns)


def _add_description(con: duckdb.DuckDBPyConnection) -> None:
    """Create the table `tables_`, which tells users what there is to query."""
    table_columns = []
    for table in TABLES:
        # Each entry of `description` is a tuple that begins with a column's name.
        fields = con.execute(f"FROM {table} LIMIT 0").description or []
        table_columns.append(", ".join(name for name, *_ in fields))
    macros = MACROS.values()
    columns: dict[str, Iterable[Any]] = {
        "table VARCHAR": [*TABLES, *MACROS],
        "what it holds VARCHAR": [
            *TABLES.values(),
            *(macro.description for macro in macros),
        ],
        "columns VARCHAR": [*table_columns, *(macro.columns for macro in macros)],
    }
    _create_table(con, "tables_", columns)


# -- stacks ----------------------------------------------------------------------------

_CREATE_LINES = """CREATE TABLE lines_ AS
SELECT frame, functions.text AS function, files.text AS file, line, own_code
FROM frames_
JOIN texts_ AS functions ON functions.text_id = function_text
JOIN texts_ AS files ON files.text_id = file_text"""
_CREATE_FRAMES = """CREATE TEMP VIEW frames AS
SELECT stack_id, position, function, file, line, own_code
FROM entries_ JOIN lines_ USING (frame)"""
_CREATE_STACKS = """CREATE TEMP VIEW stacks AS
SELECT stack_id, depth,
    innermost.function AS function, innermost.file AS file, innermost.line AS line,
    own.function AS own_function, own.file AS own_file, own.line AS own_line,
    stack_text(stack_id) AS text
FROM stacks_
LEFT JOIN lines_ AS innermost ON innermost.frame = innermost_frame
LEFT JOIN lines_ AS own ON own.frame = own_frame"""


def _add_stacks(con: duckdb.DuckDBPyConnection, snapshot: MemorySnapshot) -> None:
    """Create the views `stacks` and `frames`."""
    _register_stack_arrays(con, snapshot)

    def stack_text(stack_id: int) -> str:
        if not 0 <= stack_id < len(snapshot.stacks):
            return ""
        lines = [
            f"{frame.name}  {frame.file}:{frame.line}"
            for frame in snapshot.stack(stack_id)
        ]
        return "\n".join(lines)

    con.create_function("stack_text", stack_text, ["INTEGER"], "VARCHAR")  # type: ignore[arg-type]
    con.execute(_CREATE_LINES)
    con.execute(_CREATE_FRAMES)
    con.execute(_CREATE_STACKS)


def _register_stack_arrays(
    con: duckdb.DuckDBPyConnection, snapshot: MemorySnapshot
) -> None:
    """Give DuckDB the arrays of stacks as three internal tables.

    `frames_` has a row for each different frame, `stacks_` for each different stack,
    and `entries_` for each frame of each stack.
    """
    stacks = snapshot.stacks
    is_user_frame = frame_kinds(snapshot) == USER
    depth = np.diff(stacks.start).astype(np.int32)
    stack_id = np.arange(len(stacks), dtype=np.int32)
    entry = np.arange(len(stacks.frames), dtype=np.int64)
    position = entry - np.repeat(stacks.start[:-1], depth)
    con.register(
        "frames_",
        {
            "frame": np.arange(len(is_user_frame), dtype=np.int32),
            "function_text": stacks.name,
            "file_text": stacks.file,
            "line": stacks.line,
            "own_code": is_user_frame,
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
        "stacks_",
        {
            "stack_id": stack_id,
            "depth": depth,
            "innermost_frame": _innermost_frames(stacks),
            "own_frame": _own_frames(snapshot, is_user_frame),
        },
    )


def _innermost_frames(stacks: Stacks) -> np.ndarray:
    """Return the innermost frame of each stack, int32 (S,); -1: the stack is empty."""
    frames = np.full(len(stacks), -1, np.int32)
    starts = stacks.start[:-1]
    has_frames = starts < stacks.start[1:]
    frames[has_frames] = stacks.frames[starts[has_frames]]
    return frames


def _own_frames(snapshot: MemorySnapshot, is_user_frame: np.ndarray) -> np.ndarray:
    """Return the innermost frame of the user's code in each stack; -1: none."""
    # `sites` prefers the user's code, and falls back to other frames.
    frames = sites(snapshot)
    if not len(is_user_frame):
        return frames
    return np.where((frames >= 0) & is_user_frame[frames], frames, -1)


# -- columns of a device's tables ------------------------------------------------------

_NULL_IF_ZERO = "nullif({}, 0)"
"""The expression of numbers that are 0 where they are not known."""


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
