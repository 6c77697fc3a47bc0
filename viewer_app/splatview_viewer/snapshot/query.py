"""Answers SQL over a snapshot, in DuckDB without access to files, extensions, settings.

    with Database(snapshot) as db:
        result = db.run("SELECT * FROM at_peak() ORDER BY size DESC LIMIT 10")

The tables are described in `query_tables.TABLES`; EXAMPLES are queries to begin with.
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

from splatview_ipc.system.optional_packages import importing
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.snapshot import SQL, query_memory, query_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import duckdb

    from splatview_viewer.snapshot.model import MemorySnapshot, Trace

_TABLES_QUERIES = ("show tables", "show all tables", "describe", "show")
"""Queries that the table `tables_` answers: DuckDB would also list internal tables."""
EXAMPLES = {
    "The largest allocations": "SELECT id, size, start_event, end_event, category, own_function, own_file, own_line\n"
    "FROM allocations LEFT JOIN stacks USING (stack_id)\n"
    "ORDER BY size DESC\nLIMIT 100",
    "Who holds the memory when most is live": "SELECT coalesce(own_function, category) AS who, "
    "own_line AS line, count(*) AS n,\n"
    "    format_bytes(sum(size)::BIGINT) AS bytes\n"
    "FROM at_peak() LEFT JOIN stacks USING (stack_id)\n"
    "GROUP BY ALL ORDER BY sum(size) DESC LIMIT 10",
    "How free and used memory is cut up at the end": "SELECT pool, state, count(*) AS n, "
    "format_bytes(sum(size)::BIGINT) AS bytes, max(size) AS largest\n"
    "FROM blocks JOIN segments USING (device, segment) GROUP BY ALL ORDER BY ALL",
    "Who is live at the end": "SELECT stack_id, count(*) AS blocks, sum(size) AS bytes, any_value(own_function) AS func\n"
    "FROM allocations LEFT JOIN stacks USING (stack_id)\n"
    "WHERE end_event IS NULL GROUP BY stack_id ORDER BY bytes DESC",
}
"""Queries that show what can be asked, by what they tell."""
PAIR_EXAMPLES = {
    "What grew from peak to peak": "SELECT who, line, coalesce(y.bytes, 0) - coalesce(x.bytes, 0) AS growth\n"
    "FROM (SELECT coalesce(own_function, category) AS who, coalesce(own_line, 0) AS line, sum(size)::BIGINT AS bytes\n"
    "    FROM a.at_peak() LEFT JOIN a.stacks USING (stack_id) GROUP BY ALL) x\n"
    "FULL JOIN (SELECT coalesce(own_function, category) AS who, coalesce(own_line, 0) AS line, sum(size)::BIGINT AS bytes\n"
    "    FROM b.at_peak() LEFT JOIN b.stacks USING (stack_id) GROUP BY ALL) y USING (who, line)\n"
    "ORDER BY growth DESC",
    "How many events and allocations both have": "SELECT 'a' AS snapshot, (SELECT count(*) FROM a.events) AS events, "
    "(SELECT count(*) FROM a.allocations) AS allocations\n"
    "UNION ALL SELECT 'b', (SELECT count(*) FROM b.events), (SELECT count(*) FROM b.allocations)",
}
"""The same of two snapshots, whose tables are in the schemas `a` and `b`."""
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
"""Bytes of any value beside those of its text or of its items."""
_MAX_ERROR_LETTERS = 2000
"""Letters of an error that are kept: DuckDB repeats names of any length."""
_WATCH_SECONDS = 0.02
"""Seconds between two looks at whether a query is to end."""
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
    def _folded_names(self) -> list[str]:
        return [name.casefold() for name in self.columns]

    def integer(self, row: int, device: int, *names: str) -> int:
        """Return an integer of a row, of the first of these columns that there is.

        -1 if there is none, or the row is of another device.
        """
        # Of columns of the same name the first counts.
        names_and_values = zip(
            reversed(self._folded_names), reversed(self.rows[row]), strict=True
        )
        values = dict(names_and_values)
        value = next((values[name] for name in names if name in values), -1)
        if isinstance(value, int) and values.get("device", device) == device:
            return value
        return -1

    def allocations(self, trace: Trace) -> np.ndarray:
        """Return the allocations of a trace that the rows name, int32, ascending.

        They stand in a column `id` or `allocation`.
        """
        count = len(trace.allocations)
        ids = {
            self.integer(row, trace.device, "id", "allocation")
            for row in range(len(self.rows))
        }
        return np.array(sorted(i for i in ids if 0 <= i < count), np.int32)


class Database:
    """A snapshot as tables that can be read.

    Any thread may use it; queries of several wait for each other. DuckDB lets a query read
    or write no file, load no extension and change no setting (`_connect`). Each query runs
    in a transaction that only reads, with the memory that `query_memory` allows.
    """

    def __init__(
        self,
        snapshot: MemorySnapshot,
        other_snapshot: MemorySnapshot | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Make the tables, in about a second for ten million events.

        Args:
            snapshot: whose tables they are.
            other_snapshot: a second one, whose tables are in the schema `b`; those of the first
                are in the schema `a` then.
            cancelled: called again and again; True ends it.

        Raises:
            ViewerError: DuckDB is missing, the snapshot is empty, or it was cancelled.
        """
        self._lock = threading.Lock()
        self._end_reason = ""
        """Why the query that runs now is to end."""
        self._con = _connect()
        # DuckDB complains on stderr about connections that are open when the program ends.
        self._close = weakref.finalize(self, _close, self._con)
        try:
            with self._watch(float("inf"), cancelled):
                if other_snapshot is None:
                    query_tables.create_tables(self._con, snapshot)
                else:
                    snapshots = {"a": snapshot, "b": other_snapshot}
                    query_tables.create_schemas(self._con, snapshots)
        except Exception:
            self._close()
            if cancelled():
                raise QueryError("interrupted") from None
            raise

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the memory once the query that runs has ended. Later queries fail."""
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
            cancelled: called again and again; True interrupts the query.

        Raises:
            QueryError: it is not a query that reads, or it is wrong (the message shows
                where), or it was interrupted, or it took longer than `timeout` seconds, or
                its values are larger than `query_memory.RESULT_BYTES`.
        """
        started_at = time.perf_counter()
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
            columns=tuple(str(column[0]) for column in described),
            types=tuple(str(column[1]) for column in described),
            rows=rows[:limit],
            truncated=len(rows) > limit,
            seconds=time.perf_counter() - started_at,
        )

    def csv(self, sql: str, out: TextIO) -> None:
        """Write all rows of the answer as CSV with a line of names; NULL is empty.

        Raises QueryError as `run` does, and what writing raises.
        """
        with self._query(sql, float("inf"), lambda: False) as con:
            described = con.description or []
            varying = _varying_columns(described)
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow([column[0] for column in described])
            while rows := con.fetchmany(_BATCH):
                if _rows_bytes(rows, varying) > query_memory.RESULT_BYTES:
                    raise QueryError(_too_large(len(rows)))
                writer.writerows(rows)

    @contextmanager
    def _query(
        self, sql: str, timeout: float, cancelled: Callable[[], bool]
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """Run a query; the connection holds its answer.

        Errors, also those while the answer is fetched, become QueryErrors.
        """
        import duckdb

        # Halves of characters, of which a command line that is not UTF-8 is made.
        sql = sql.encode("utf-8", "replace").decode("utf-8")
        with self._lock, query_memory.bounded_memory():
            if not self._close.alive:
                raise QueryError("the snapshot was closed")
            self._end_reason = ""
            try:
                # Not from before the lock: a query is not late because another one ran.
                with self._watch(timeout, cancelled):
                    self._start(sql)
                    yield self._con
            except RuntimeError as error:
                # DuckDB's text for Ctrl-C.
                if str(error) == "Query interrupted":
                    raise KeyboardInterrupt from None
                raise QueryError(str(error)) from None
            # Values that Python cannot hold come as its own errors: dates far away, a
            # string of gigabytes.
            except (
                duckdb.Error,
                ImportError,
                MemoryError,
                OverflowError,
                ValueError,
            ) as error:
                raise QueryError(self._end_reason or _error_text(error)) from None
            finally:
                # There may be no transaction, or the program ends.
                with suppress(duckdb.Error):
                    self._con.execute("ROLLBACK")
                # An answer that is not fetched to its end is in the next one's way.
                with suppress(duckdb.Error):
                    self._con.execute("SELECT 0").fetchall()

    def _start(self, sql: str) -> None:
        """Start a query. Raises QueryError for statements that are not legal."""
        statements = self._con.extract_statements(sql)
        if len(statements) != 1:
            raise QueryError(
                f"{len(statements)} statements; one at a time, which begins with "
                f"{LEGAL_STARTS}"
            )
        kind = statements[0].type.name
        if kind not in ("SELECT", "EXPLAIN"):
            raise QueryError(
                f"{kind} is refused: a snapshot can only be read. A query begins with "
                f"{LEGAL_STARTS}"
            )
        self._con.execute("BEGIN TRANSACTION READ ONLY")
        normalized = sql.strip().rstrip(";").strip().casefold()
        self._con.execute("FROM tables_" if normalized in _TABLES_QUERIES else sql)

    @contextmanager
    def _watch(self, timeout: float, cancelled: Callable[[], bool]) -> Iterator[None]:
        """Interrupt the query from a thread if it is cancelled or takes too long."""
        done = threading.Event()
        deadline = time.perf_counter() + timeout

        def watch() -> None:
            while not done.wait(_WATCH_SECONDS):
                if not self._end_reason and cancelled():
                    self._end_reason = "interrupted"
                elif not self._end_reason and time.perf_counter() > deadline:
                    self._end_reason = (
                        f"not done within {timeout:g} s; ask for less, or for longer"
                    )
                # Again and again: the query may not have begun yet.
                if self._end_reason:
                    self._con.interrupt()

        thread = threading.Thread(target=watch, name="splatview-query", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def import_duckdb() -> None:
    """Import DuckDB. Raises ViewerError where it is missing."""
    with importing(SQL, "duckdb", error=ViewerError):
        import duckdb  # noqa: F401


def _connect() -> duckdb.DuckDBPyConnection:
    """Return an empty database in memory. Raises ViewerError without DuckDB."""
    import_duckdb()
    import duckdb

    # A training beside the viewer needs the other processors.
    thread_count = max(1, min(4, (os.cpu_count() or 1) // 2))
    con = duckdb.connect(
        ":memory:",
        config={
            # Files, ATTACH, COPY and extensions.
            "enable_external_access": "false",
            # Variables of this program.
            "python_enable_replacements": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "temp_directory": "",
            "memory_limit": f"{query_memory.memory_bound() >> 20}MiB",
            "threads": str(thread_count),
        },
    )
    con.execute("SET lock_configuration = true")
    return con


def _close(con: duckdb.DuckDBPyConnection) -> None:
    """Close a connection, unless its query still runs, as when the program ends."""
    import duckdb

    with suppress(duckdb.Error):
        con.close()


# -- sizes of answers, and errors ------------------------------------------------------


def _varying_columns(described: Sequence[Any]) -> list[int]:
    """Return the columns of an answer whose values are of any size: texts and lists."""
    columns = []
    for index, column in enumerate(described):
        type_name = str(column[1])
        if type_name.endswith("]") or not type_name.startswith(_FIXED_TYPES):
            columns.append(index)
    return columns


def _rows_bytes(rows: list[tuple[Any, ...]], varying: list[int]) -> int:
    """Return roughly the bytes that rows take.

    Args:
        varying: as `_varying_columns` returns them.
    """
    size = _VALUE_BYTES * sum(map(len, rows))
    for row in rows:
        size += sum(_value_bytes(row[i]) for i in varying)
    return size


def _value_bytes(value: Any) -> int:
    """Return roughly the bytes that a value of an answer takes."""
    if isinstance(value, (str, bytes, bytearray)):
        return _VALUE_BYTES + len(value)
    if isinstance(value, dict):
        return _VALUE_BYTES + sum(map(_value_bytes, (*value, *value.values())))
    if isinstance(value, (list, tuple)):
        return _VALUE_BYTES + sum(map(_value_bytes, value))
    return _VALUE_BYTES


def _too_large(row_count: int) -> str:
    """Return the error for an answer whose rows so far are too large."""
    return (
        f"the answer is too large: the values of {row_count:,} rows take more than "
        f"{query_memory.RESULT_BYTES >> 20} MiB; ask for fewer or smaller columns, for "
        "parts of texts (left(text, 200)), or for a count or sum"
    )


def _error_text(error: BaseException) -> str:
    """Return DuckDB's message, and advice where memory was not enough."""
    text = str(error).strip()
    says_memory = "Out of Memory" in text or "bad_alloc" in text
    if isinstance(error, MemoryError) or says_memory:
        reason = text.partition("\n")[0] or type(error).__name__
        return (
            f"not enough memory: a query may take {query_memory.memory_bound() >> 20:,} "
            f"MiB; ask for fewer rows or columns, or end other programs ({reason})"
        )
    return text[:_MAX_ERROR_LETTERS] or type(error).__name__
