"""Create the tables that users query about a memory snapshot, in a DuckDB database.

The large tables are views: DuckDB reads the snapshot's arrays in place.

Tables whose names end in an underscore are internal; the list of tables that users get
leaves them out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.snapshot.analysis.frames import USER, frame_kinds, sites
from splatview_viewer.snapshot.model import (
    measure_peak,
)
from splatview_viewer.snapshot.query_columns import device_columns

if TYPE_CHECKING:
    from collections.abc import Iterable

    import duckdb

    from splatview_viewer.snapshot.model import MemorySnapshot, Stacks
    from splatview_viewer.snapshot.query_columns import Column

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
        for table, columns in device_columns(snapshot, trace).items():
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
