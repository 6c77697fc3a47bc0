"""SQL over a snapshot: `Database`, in DuckDB without access to files, extensions and settings.

    with Database(snapshot) as db:
        result = db.run("SELECT * FROM at_peak() ORDER BY size DESC LIMIT 10")

The tables are described in `TABLES`; good queries to begin with are `EXAMPLES`.
"""

from __future__ import annotations

import csv
import os
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from splatview_ipc.system.optional_packages import needed
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.snapshot import SQL, query_memory
from splatview_viewer.snapshot.analysis.frames import (
    USER,
    categories,
    frame_kinds,
    sites,
)
from splatview_viewer.snapshot.model import (
    ACTIONS,
    BLOCK_STATES,
    SEGMENT_TYPES,
    bytes_at_moments,
    live_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import duckdb

    from splatview_viewer.snapshot.model import MemorySnapshot, Trace

    Column = tuple[np.ndarray | None, str]
    """Numbers, and SQL for the values of a column that is made of them, where {} is their name."""

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
MACROS = {
    "live_at(moment)": (
        "the allocations that are live at a moment",
        """live_at(at_moment) AS TABLE
        SELECT * FROM allocations
        WHERE (start_event IS NULL OR start_event < at_moment) AND (end_event IS NULL OR end_event >= at_moment)""",
    ),
    "at_peak()": (
        "the allocations that are live when most bytes are, on each device at its own moment",
        """at_peak()
        AS TABLE SELECT a.* FROM allocations a JOIN peaks_ p ON p.device = a.device
        WHERE (start_event IS NULL OR start_event < p.moment) AND (end_event IS NULL OR end_event >= p.moment)""",
    ),
    "peak()": (
        "the moment with most live bytes; peak(0): of device 0",
        """peak(of_device := NULL) AS (SELECT moment
        FROM peaks_ WHERE of_device IS NULL OR device = of_device ORDER BY live DESC, device LIMIT 1)""",
    ),
}
"""Macros: what a query can call, what it is given, and how they are made."""
_SHOW = ("show tables", "show all tables", "describe", "show")
"""Questions for the tables, which `tables_` answers: DuckDB would list those behind them too."""
EXAMPLES = {
    "The largest allocations": "SELECT id, size, start_event, end_event, category, own_function, own_file, own_line\n"
    "FROM allocations LEFT JOIN stacks USING (stack_id)\n"
    "ORDER BY size DESC\nLIMIT 100",
    "Who holds the memory when most is live": "SELECT coalesce(own_function, category) AS who, own_line AS line, count(*) AS n,\n"
    "    format_bytes(sum(size)::BIGINT) AS bytes\n"
    "FROM at_peak() LEFT JOIN stacks USING (stack_id)\n"
    "GROUP BY ALL ORDER BY sum(size) DESC LIMIT 10",
    "How free and used memory is cut up at the end": "SELECT pool, state, count(*) AS n, format_bytes(sum(size)::BIGINT) AS bytes, max(size) AS largest\n"
    "FROM blocks JOIN segments USING (device, segment) GROUP BY ALL ORDER BY ALL",
    "Who is live at the end": "SELECT stack_id, count(*) AS blocks, sum(size) AS bytes, any_value(own_function) AS func\n"
    "FROM allocations LEFT JOIN stacks USING (stack_id)\n"
    "WHERE end_event IS NULL GROUP BY stack_id ORDER BY bytes DESC",
}
"""Queries that show what can be asked, by what they tell."""
NUMERIC_TYPES = (
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "UHUGEINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL",
)
"""First letters of DuckDB's types of numbers."""

_FIXED_TYPES = (*NUMERIC_TYPES, "BOOLEAN", "DATE", "TIME", "INTERVAL", "UUID")
"""First letters of the types whose values are of one size."""
_BATCH = 64
"""Rows that are fetched at once: few, because each can be large."""
_VALUE_BYTES = 32
"""Bytes of any value beside those of its text or of what it holds."""
_MOST_WORDS = 2000
"""Letters of an error that are told: DuckDB repeats names of any length."""
LEGAL_STARTS = "SELECT, WITH, FROM, VALUES, EXPLAIN, DESCRIBE, SHOW and SUMMARIZE"
"""First words of legal queries."""


class QueryError(ViewerError):
    """A query that is invalid or refused, took too long or was interrupted."""


@dataclass(frozen=True)
class QueryResult:
    """The answer to a query."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    """DuckDB's names of the columns' types: "BIGINT", "VARCHAR"."""
    rows: list[tuple[Any, ...]]
    truncated: bool
    """There are more rows than these."""
    seconds: float

    @cached_property
    def _names(self) -> list[str]:
        return [c.casefold() for c in self.columns]

    def integer(self, row: int, device: int, *names: str) -> int:
        """A number of a row, of the first of these columns that there is; -1: it has none, or is of another device."""
        values = dict(zip(reversed(self._names), reversed(self.rows[row]), strict=True))
        found = next((values[name] for name in names if name in values), -1)
        if isinstance(found, int) and values.get("device", device) == device:
            return found
        return -1

    def allocations(self, trace: Trace) -> np.ndarray:
        """int32: the allocations of a trace that the rows name, in a column `id` or `allocation`, ascending."""
        named = {
            self.integer(i, trace.device, "id", "allocation")
            for i in range(len(self.rows))
        }
        return np.array(
            sorted(i for i in named if 0 <= i < len(trace.allocations)), np.int32
        )


class Database:
    """A snapshot as tables that can be read. For any thread; queries of several wait for each other.

    DuckDB lets a query read or write no file, load no extension and change no setting (`_connect`). Each query runs in
    a transaction that only reads, with the memory that `query_memory` allows.
    """

    def __init__(self, snapshot: MemorySnapshot) -> None:
        """Takes a second for ten million events. Raises ViewerError."""
        self._lock = threading.Lock()
        self._why = ""
        """Why the query that runs now is to end."""
        self._con = _connect()
        # DuckDB complains on stderr about connections that are open when the program ends.
        self._close = weakref.finalize(self, _close, self._con)
        _fill(self._con, snapshot)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory back, after the query that runs. Queries fail from now on."""
        with self._lock:
            self._close()

    def run(
        self,
        sql: str,
        limit: int = 10_000,
        timeout: float = 30.0,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> QueryResult:
        """Answer one query, of which at most `limit` rows are fetched.

        Args:
            cancelled: asked again and again; True interrupts the query.

        Raises:
            QueryError: it is not a query that reads, or it is wrong (the message shows where), or it was interrupted,
                or it took longer than `timeout` seconds, or its values are larger than `query_memory.RESULT_BYTES`.
        """
        began = time.perf_counter()
        rows: list[tuple[Any, ...]] = []
        size = 0
        with self._query(sql, timeout, cancelled) as con:
            described = con.description or []
            varying = _varying_columns(described)
            while len(rows) <= limit:
                batch = con.fetchmany(min(_BATCH, limit + 1 - len(rows)))
                if not batch:
                    break
                size += _rows_bytes(batch, varying)
                if size > query_memory.RESULT_BYTES:
                    raise QueryError(_too_large(len(rows) + len(batch)))
                rows += batch
        return QueryResult(
            tuple(str(d[0]) for d in described),
            tuple(str(d[1]) for d in described),
            rows[:limit],
            len(rows) > limit,
            time.perf_counter() - began,
        )

    def csv(self, sql: str, out: TextIO) -> None:
        """Write all rows of the answer as CSV with a line of names: NULL is empty.

        Raises QueryError as `run` does, and what writing raises.
        """
        with self._query(sql, float("inf"), lambda: False) as con:
            described = con.description or []
            varying = _varying_columns(described)
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow([d[0] for d in described])
            while rows := con.fetchmany(_BATCH):
                if _rows_bytes(rows, varying) > query_memory.RESULT_BYTES:
                    raise QueryError(_too_large(len(rows)))
                writer.writerows(rows)

    @contextmanager
    def _query(
        self, sql: str, timeout: float, cancelled: Callable[[], bool]
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """The connection with the answer to a query; what goes wrong meanwhile becomes a QueryError."""
        import duckdb

        over = threading.Event()
        # Halves of characters, of which a command line that is not UTF-8 is made.
        sql = sql.encode("utf-8", "replace").decode("utf-8")

        def watch() -> None:
            while not over.wait(0.02):
                if not self._why and cancelled():
                    self._why = "interrupted"
                elif not self._why and time.perf_counter() > end:
                    self._why = (
                        f"not done within {timeout:g} s; ask for less, or for longer"
                    )
                if self._why:  # again: the query may not have begun yet
                    self._con.interrupt()

        with self._lock, query_memory.bounded_memory():
            if not self._close.alive:
                raise QueryError("the snapshot was closed")
            self._why = ""
            # Not from before the lock: a query is not late because another one ran.
            end = time.perf_counter() + timeout
            thread = threading.Thread(target=watch, name="splatview-query", daemon=True)
            thread.start()
            try:
                kinds = [
                    statement.type.name
                    for statement in self._con.extract_statements(sql)
                ]
                if len(kinds) != 1:
                    raise QueryError(
                        f"{len(kinds)} statements; one at a time, which begins with {LEGAL_STARTS}"
                    )
                if kinds[0] not in ("SELECT", "EXPLAIN"):
                    raise QueryError(
                        f"{kinds[0]} is refused: a snapshot can only be read. A query begins with {LEGAL_STARTS}"
                    )
                self._con.execute("BEGIN TRANSACTION READ ONLY")
                shows = sql.strip().rstrip(";").strip().casefold() in _SHOW
                self._con.execute("FROM tables_" if shows else sql)
                yield self._con
            except RuntimeError as e:
                if str(e) == "Query interrupted":  # DuckDB's words for Ctrl-C
                    raise KeyboardInterrupt from None
                raise QueryError(str(e)) from None
            # Values that Python cannot hold come as its own errors: dates far away, a string of gigabytes.
            except (
                duckdb.Error,
                ImportError,
                MemoryError,
                OverflowError,
                ValueError,
            ) as e:
                raise QueryError(self._why or _error_text(e)) from None
            finally:
                over.set()
                thread.join()
                with suppress(duckdb.Error):  # none was begun
                    self._con.execute("ROLLBACK")
                with suppress(duckdb.Error):  # the program ends
                    # An answer that is not fetched whole is in the next one's way.
                    self._con.execute("SELECT 0").fetchall()


def _close(con: duckdb.DuckDBPyConnection) -> None:
    """Close a connection; one whose query still runs, as when the program ends, is left as it is."""
    import duckdb

    with suppress(duckdb.Error):
        con.close()


def _varying_columns(described: Sequence[Any]) -> list[int]:
    """Return the columns of an answer whose values are of any size: texts, lists and the like."""
    names = [str(description[1]) for description in described]
    return [
        i
        for i, name in enumerate(names)
        if name.endswith("]") or not name.startswith(_FIXED_TYPES)
    ]


def _rows_bytes(rows: list[tuple[Any, ...]], varying: list[int]) -> int:
    """Return the bytes that rows take, roughly. `varying`: as `_varying_columns` returns them."""
    size = sum(_value_bytes(row[i]) for row in rows for i in varying)
    return size + _VALUE_BYTES * sum(map(len, rows))


def _value_bytes(value: Any) -> int:
    """Return the bytes that a value of an answer takes, roughly."""
    if isinstance(value, (str, bytes, bytearray)):
        return _VALUE_BYTES + len(value)
    if isinstance(value, dict):
        return _VALUE_BYTES + sum(map(_value_bytes, (*value, *value.values())))
    if isinstance(value, (list, tuple)):
        return _VALUE_BYTES + sum(map(_value_bytes, value))
    return _VALUE_BYTES


def _too_large(row_count: int) -> str:
    return (
        f"the answer is too large: the values of {row_count:,} rows take more than {query_memory.RESULT_BYTES >> 20} MiB; "
        "ask for fewer or smaller columns, for parts of texts (left(text, 200)), or for a count or sum"
    )


def _error_text(error: BaseException) -> str:
    """Return DuckDB's words, and a next step where memory was not enough."""
    text = str(error).strip()
    is_memory = (
        isinstance(error, MemoryError) or "Out of Memory" in text or "bad_alloc" in text
    )
    if is_memory:
        return (
            f"not enough memory: a query may take {query_memory.memory_bound() >> 20:,} MiB; ask for fewer rows or columns, or end "
            f"other programs ({text.partition(chr(10))[0] or type(error).__name__})"
        )
    return text[:_MOST_WORDS] or type(error).__name__


# -- the tables --------------------------------------------------------------------------------------------------------


def _fill(con: duckdb.DuckDBPyConnection, snapshot: MemorySnapshot) -> None:
    """Make the tables of a snapshot in an empty database: views of its arrays, and small tables of texts."""
    if not snapshot.traces:
        raise ViewerError("the snapshot is empty: it has neither events nor segments")
    _table(
        con,
        "texts",
        {"n INTEGER": range(len(snapshot.texts)), "words VARCHAR": snapshot.texts},
    )
    _add_stacks(con, snapshot)
    selects: dict[str, list[str]] = {}
    for number, trace in enumerate(snapshot.traces):
        for table, columns in _columns(snapshot, trace).items():
            raw = f"{table}_{number}_"
            con.register(
                raw,
                {
                    c: np.ascontiguousarray(a)
                    for c, (a, _) in columns.items()
                    if a is not None
                },
            )
            values = [
                f"{sql.replace('{}', c)} AS {c}" for c, (_, sql) in columns.items()
            ]
            values.insert(
                table == "allocations", f"{trace.device} AS device"
            )  # behind the id that names one
            selects.setdefault(table, []).append(
                f"SELECT {', '.join(values)} FROM {raw}"
            )
    for table, parts in selects.items():
        con.execute(f"CREATE TEMP VIEW {table} AS " + " UNION ALL ".join(parts))
    rows = snapshot.annotations
    lives = [live_bytes(t) for t in snapshot.traces]
    _table(
        con,
        "annotations",
        {
            "device INTEGER": [r.device for r in rows],
            "time_us BIGINT": [r.time_us for r in rows],
            "name VARCHAR": [r.name for r in rows],
            "stage VARCHAR": [r.stage for r in rows],
        },
    )
    _table(
        con,
        "peaks_",
        {
            "device INTEGER": [t.device for t in snapshot.traces],
            "moment INTEGER": [int(live.argmax()) for live in lives],
            "live BIGINT": [int(live.max()) for live in lives],
        },
    )
    for _, macro in MACROS.values():
        con.execute(f"CREATE TEMP MACRO {macro}")
    described = [
        ", ".join(d[0] for d in con.execute(f"FROM {name} LIMIT 0").description or [])
        for name in TABLES
    ]
    _table(
        con,
        "tables_",
        {
            "table VARCHAR": [*TABLES, *MACROS],
            "what it holds VARCHAR": [
                *TABLES.values(),
                *(words for words, _ in MACROS.values()),
            ],
            "columns VARCHAR": [*described, "as allocations", "as allocations", ""],
        },
    )


def _table(
    con: duckdb.DuckDBPyConnection, name: str, columns: dict[str, Iterable[Any]]
) -> None:
    """A real, small table: the rows of each column by its name and type. Not a temporary one: those could be written to
    in a transaction that only reads.
    """
    values = [
        f'unnest(?::{kind}[]) AS "{column}"'
        for column, _, kind in (c.rpartition(" ") for c in columns)
    ]
    con.execute(
        f"CREATE TABLE {name} AS SELECT {', '.join(values)}",
        [list(rows) for rows in columns.values()],
    )


def _add_stacks(con: duckdb.DuckDBPyConnection, snapshot: MemorySnapshot) -> None:
    s = snapshot.stacks
    kinds = frame_kinds(snapshot)
    site = sites(snapshot)
    depth = np.diff(s.start).astype(np.int32)
    number = np.arange(len(s), dtype=np.int32)
    if len(kinds):
        own = np.where((site >= 0) & (kinds[site] == USER), site, -1)
    else:
        own = site
    top = np.append(s.frames, np.int32(-1))[np.where(depth > 0, s.start[:-1], -1)]
    position = np.arange(len(s.frames), dtype=np.int64) - np.repeat(s.start[:-1], depth)
    con.register(
        "frames_",
        {
            "frame": np.arange(len(kinds), dtype=np.int32),
            "name": s.name,
            "path": s.file,
            "line": s.line,
            "own_code": kinds == USER,
        },
    )
    con.register(
        "entries_",
        {
            "stack_id": np.repeat(number, depth),
            "position": position.astype(np.int32),
            "frame": s.frames,
        },
    )
    con.register(
        "stacks_", {"stack_id": number, "depth": depth, "top": top, "own": own}
    )

    def stack_text(stack: int) -> str:
        frames = snapshot.stack(stack) if 0 <= stack < len(s) else ()
        return "\n".join(f"{f.name}  {f.file}:{f.line}" for f in frames)

    con.create_function("stack_text", stack_text, ["INTEGER"], "VARCHAR")  # type: ignore[arg-type]
    con.execute("""CREATE TABLE lines_ AS SELECT frame, f.words AS function, p.words AS file, line, own_code
        FROM frames_ JOIN texts f ON f.n = name JOIN texts p ON p.n = path""")
    con.execute("""CREATE TEMP VIEW frames AS SELECT stack_id, position, function, file, line, own_code
        FROM entries_ JOIN lines_ USING (frame)""")
    con.execute("""CREATE TEMP VIEW stacks AS SELECT stack_id, depth, t.function AS function, t.file AS file,
            t.line AS line, o.function AS own_function, o.file AS own_file, o.line AS own_line,
            stack_text(stack_id) AS text
        FROM stacks_ LEFT JOIN lines_ t ON t.frame = top LEFT JOIN lines_ o ON o.frame = own""")


def _columns(snapshot: MemorySnapshot, trace: Trace) -> dict[str, dict[str, Column]]:
    """The columns of each table of one device."""
    a = trace.allocations
    b = trace.blocks
    e = trace.events
    p = trace.spans
    s = trace.segments
    n = len(trace.events)
    moments = trace.moment_count
    oom = f"action = {ACTIONS.index('oom')}"
    pools = [
        "default" if pool == (0, 0) else f"private ({pool[0]}, {pool[1]})"
        for pool in snapshot.pools
    ]

    def place(rows: Any) -> dict[str, Column]:
        return {
            "stream": (
                rows.stream,
                f"list_extract({[*snapshot.streams]}, {{}}::INTEGER + 1)",
            ),
            "pool": _named(rows.pool, pools),
        }

    def life(rows: Any) -> dict[str, Column]:
        return {
            "start_event": _known(rows.start),
            "end_event": (rows.end, f"CASE WHEN {{}} < {n} THEN {{}} END"),
            "start_us": _times(trace, rows.start),
            "end_us": _times(trace, rows.end),
        }

    return {
        "events": {
            "event": _count(n),
            "action": _named(e.action, ACTIONS),
            "addr": (e.addr, f"CASE WHEN NOT {oom} THEN {_number(e.addr)[1]} END"),
            "size": _number(e.size),
            **place(e),
            "time_us": (e.time_us, _NO_ZERO),
            "stack_id": _known(e.stack),
            "allocation": _known(e.allocation),
            "device_free": (e.addr, f"CASE WHEN {oom} THEN {_number(e.addr)[1]} END"),
            "compile_context": _text(e.context),
            "user_metadata": _text(e.metadata),
        },
        "allocations": {
            "id": _count(len(a)),
            "addr": _number(a.addr),
            "size": _number(a.size),
            "requested_size": _number(a.size),
            "rounded_size": (a.rounded, _NO_ZERO),
            **life(a),
            "lifetime_us": (None, "nullif(end_us, 0) - nullif(start_us, 0)"),
            **place(a),
            "stack_id": _known(a.stack),
            "freed_event": (a.freed, f"CASE WHEN {{}} < {n} THEN {{}} END"),
            "category": _named(*categories(snapshot, trace)),
        },
        "moments": {
            "moment": _count(moments),
            "time_us": (np.append(0, e.time_us), _NO_ZERO),
            "live": _number(live_bytes(trace)),
            "reserved": _number(bytes_at_moments(moments, p.start, p.end, p.size)),
        },
        "segments": {
            "segment": _count(len(s)),
            "addr": _number(s.addr),
            "total_size": _number(s.total),
            "allocated_size": _number(s.allocated),
            "active_size": _number(s.active),
            "requested_size": _number(s.requested),
            "blocks": _number(s.blocks),
            **place(s),
            "type": _named(s.type, SEGMENT_TYPES),
            "expandable": (s.expandable, "{}::BOOLEAN"),
            "stack_id": _known(s.stack),
        },
        "blocks": {
            "segment": (np.repeat(np.arange(len(s), dtype=np.int32), s.blocks), "{}"),
            "addr": _number(b.addr),
            "size": _number(b.size),
            "requested_size": _number(b.requested),
            "state": _named(b.state, BLOCK_STATES),
            "stack_id": _known(b.stack),
            "allocation": _known(b.allocation),
        },
        "spans": {
            "addr": _number(p.addr),
            "size": _number(p.size),
            **life(p),
            **place(p),
        },
    }


_NO_ZERO = "nullif({}, 0)"


def _count(rows: int) -> Column:
    return np.arange(rows, dtype=np.int32), "{}"


def _number(values: np.ndarray) -> Column:
    """Whole numbers: none is unsigned of 64 bits, since differences of such numbers are errors."""
    if values.dtype != np.uint64:
        return values, "{}"
    return values, "{}::HUGEINT" if values.max(initial=0) >> np.uint64(
        63
    ) else "{}::BIGINT"


def _known(values: np.ndarray) -> Column:
    return values, "CASE WHEN {} >= 0 THEN {} END"


def _times(trace: Trace, events: np.ndarray) -> Column:
    """The times of these events; NULL for those outside the trace, and where there is none."""
    return np.append(trace.events.time_us, [0, 0])[
        events
    ], _NO_ZERO  # M finds the last but one, -1 the last


def _named(values: np.ndarray, names: Iterable[str]) -> Column:
    """The name of each number; NULL for -1."""
    listed = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
    return values, f"list_extract([{listed}], {{}}::INTEGER + 1)" if listed else "NULL"


def _text(values: np.ndarray) -> Column:
    """The text of each number. By a subquery, not a join, so that rows stay in their order."""
    return values, "(SELECT words FROM texts WHERE n = {})" if (
        values >= 0
    ).any() else "NULL::VARCHAR"


def _connect() -> duckdb.DuckDBPyConnection:
    with needed(SQL, "duckdb", error=ViewerError):
        import duckdb
    con = duckdb.connect(
        ":memory:",
        config={
            "enable_external_access": "false",  # files, ATTACH, COPY, extensions
            "python_enable_replacements": "false",  # variables of this program
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "temp_directory": "",
            "memory_limit": f"{query_memory.memory_bound() >> 20}MiB",
            "threads": str(
                max(1, min(4, (os.cpu_count() or 1) // 2))
            ),  # the training beside it needs the others
        },
    )
    con.execute("SET lock_configuration = true")
    return con
