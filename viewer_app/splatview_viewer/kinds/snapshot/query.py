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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from splatview_ipc.system.optional_packages import needed
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.kinds.snapshot._query_tables import CALLS, COLUMNS, TABLES, Tables
from splatview_viewer.kinds.snapshot.needs import SQL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import duckdb

    from splatview_viewer.kinds.snapshot.model import Snapshot

__all__ = ["COLUMNS", "EXAMPLES", "LEGAL", "TABLES", "Database", "QueryError", "Result"]

EXAMPLES = (
    ("Who holds the memory when most is live",
     "SELECT coalesce(own_function, category) AS who, own_line AS line, count(*) AS n,\n"
     "    format_bytes(sum(size)::BIGINT) AS bytes\n"
     "FROM at_peak() LEFT JOIN stacks USING (stack_id)\n"
     "GROUP BY ALL ORDER BY sum(size) DESC LIMIT 10"),
    ("What came of one function, and how long it stayed",
     "SELECT id, device, size, lifetime_us, category FROM allocations JOIN stacks USING (stack_id)\n"
     "WHERE text LIKE '%softmax%' ORDER BY size DESC, id LIMIT 20"),
    ("How free and used memory is cut up at the end",
     "SELECT pool, state, count(*) AS n, format_bytes(sum(size)::BIGINT) AS bytes, max(size) AS largest\n"
     "FROM blocks JOIN segments USING (device, segment) GROUP BY ALL ORDER BY ALL"),
)
"""Queries that show what can be asked: what each tells, and its text."""

_BATCH = 64
"""Rows that are fetched at once: so many become Python's objects between two looks at the time and their size."""
MAX_ANSWER = 64 << 20
"""Bytes that the rows of an answer may take, about: DuckDB's own limit does not count what was fetched."""
_HEAVY = 1 << 16
"""Bytes of a row, on average, beyond which rows are fetched one at a time."""
MAX_CSV = 4 << 30
"""Characters of a CSV."""
LEGAL = "SELECT, WITH, FROM, VALUES, EXPLAIN, DESCRIBE, SHOW and SUMMARIZE"
"""First words of legal queries."""


class QueryError(ViewerError):
    """A query that is invalid or refused, took too long or was interrupted."""


@dataclass(frozen=True)
class Result:
    """The answer to a query."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    """What DuckDB calls the types of the columns: "BIGINT", "VARCHAR"."""
    rows: list[tuple[Any, ...]]
    truncated: bool = False
    """There are more rows than these."""
    total: int | None = None
    """How many rows there are; None: that was not counted."""
    allocations: dict[int, np.ndarray] = field(default_factory=dict)
    """int32, ascending, by device: the allocations that all rows name, also those left out, by a column `id`, or
    `allocation` where there is no `id`. Of which device they are, a column `device` says."""
    note: str = ""
    """Why no allocations are named though there is such a column; "" otherwise."""
    seconds: float = 0.0


class Database:
    """A snapshot as tables that can be read. For any thread; queries of several wait for each other.

    DuckDB lets a query read or write no file, load no extension and change no setting (`_connect`). Each query runs in
    a transaction that only reads.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """Takes milliseconds; the larger tables are made when a query names them."""
        self._devices = {t.device: len(t.allocations) for t in snapshot.traces}
        self._lock = threading.Lock()
        self._stop: threading.Event | None = None
        """Ends the query that runs now."""
        self._con = _connect()
        # DuckDB complains on stderr about connections that are open when the program ends.
        self._close = weakref.finalize(self, _close, self._con)
        self._tables = Tables(snapshot, self._con)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what runs, and give the memory back. Queries fail from now on."""
        self.interrupt()
        with self._lock:
            self._close()

    def interrupt(self) -> None:
        """End the query that runs now, whoever asked it, if one does: its caller gets a QueryError."""
        if (stop := self._stop) is not None:
            stop.set()

    def run(self, sql: str, limit: int = 10_000, timeout: float = 30.0,
            stop: threading.Event | None = None) -> Result:
        """The answer to one query, of which at most `limit` rows are fetched, and fewer if they are very large.

        Args:
            stop: ends this query alone once it is set, also one that still waits for another.

        Raises:
            QueryError: it is not a query that reads, or it is wrong (the message shows where), or it was interrupted,
                or it took longer than `timeout` seconds.
        """
        began = time.monotonic()
        with self._query(sql, timeout, stop) as (con, proceed):
            if (listing := _listing(sql)) is not None:
                return listing
            columns, types = _columns(con)
            rows, weight = [], 0
            while len(rows) <= limit and weight <= MAX_ANSWER and (
                    some := con.fetchmany(1 if weight >= _HEAVY * len(rows) else min(_BATCH, limit + 1 - len(rows)))):
                proceed()
                rows += some
                weight += sum(map(_weight, some))
            truncated = len(rows) > limit or weight > MAX_ANSWER
            del rows[limit:]
            total, named, note = self._named(sql, columns, rows, truncated)
            if weight > MAX_ANSWER:
                note = f"the rows are too large for more than {len(rows):,} of them{'; ' if note else ''}{note}"
        return Result(columns, types, rows, truncated, total, named, note, time.monotonic() - began)

    def csv(self, sql: str, out: TextIO, timeout: float = float("inf"), stop: threading.Event | None = None) -> int:
        """Write all rows of the answer as CSV with a line of names: NULL is empty. Returns how many rows.

        Raises QueryError as `run` does and when there is more than MAX_CSV, and what writing raises.
        """
        with self._query(sql, timeout, stop) as (con, proceed):
            writer = csv.writer(out, lineterminator="\n")
            if (listing := _listing(sql)) is not None:
                writer.writerows([listing.columns, *listing.rows])
                return len(listing.rows)
            writer.writerow(_columns(con)[0])
            count = weight = 0
            while rows := con.fetchmany(1 if weight >= _HEAVY * count else _BATCH):
                proceed()
                writer.writerows(rows)
                count += len(rows)
                weight += sum(map(_weight, rows))
                if weight > MAX_CSV:
                    raise QueryError(f"the answer is larger than {MAX_CSV:,} bytes after {count:,} rows; ask for less")
            return count

    @contextmanager
    def _query(self, sql: str, timeout: float, stop: threading.Event | None
               ) -> Iterator[tuple[duckdb.DuckDBPyConnection, Callable[[], None]]]:
        """The connection with the answer to a query, and what raises once the query is to end; what goes wrong
        meanwhile becomes a QueryError."""
        import duckdb

        with self._lock:
            if not self._close.alive:
                raise QueryError("the snapshot was closed")
            stop = self._stop = stop or threading.Event()
            over = threading.Event()
            why: list[str] = []
            watch = threading.Thread(target=self._watch, args=(over, why, timeout, stop), name="splatview-query",
                                     daemon=True)
            watch.start()

            def proceed() -> None:
                if why:
                    raise QueryError(why[0])

            try:
                if stop.is_set():
                    raise QueryError("interrupted")
                _check(self._con, sql)
                self._tables.need(sql)
                self._con.execute("BEGIN TRANSACTION READ ONLY")
                if _listing(sql) is None:
                    self._con.execute(sql)
                yield self._con, proceed
            except RuntimeError as e:
                if str(e) == "Query interrupted":  # DuckDB's words for Ctrl-C
                    raise KeyboardInterrupt from None
                raise QueryError(str(e)) from None
            # Values that Python cannot hold come as its own errors: dates far away, a string of gigabytes.
            except (duckdb.Error, ImportError, MemoryError, OverflowError, ValueError) as e:
                raise QueryError(why[0] if why else str(e).strip() or type(e).__name__) from None
            finally:
                self._stop = None
                over.set()
                watch.join()
                with suppress(duckdb.Error):  # none was begun
                    self._con.execute("ROLLBACK")
                self._con.execute("SELECT 0").fetchall()  # an answer that is not fetched whole is in the next one's way

    def _watch(self, over: threading.Event, why: list[str], timeout: float, stop: threading.Event) -> None:
        """Interrupt the connection when that is asked for, the time is up, or the program grows by more than DuckDB may
        take: texts and lists under way are not counted by it. Again, should it not have begun yet."""
        end, most = time.monotonic() + timeout, _resident() + memory_limit()
        while not over.wait(0.02):
            if not why and stop.is_set():
                why.append("interrupted")
            elif not why and time.monotonic() > end:
                why.append(f"not done within {timeout:g} s; ask for less, or for longer")
            elif not why and _resident() > most:
                why.append(f"it takes more than {memory_limit() >> 20:,} MiB; ask for less")
            if why:
                self._con.interrupt()

    def _named(self, sql: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]],
               truncated: bool) -> tuple[int | None, dict[int, np.ndarray], str]:
        """How many rows there are, the allocations that they name, and a note, as in Result."""
        import duckdb

        lower = [c.casefold() for c in columns]
        which = next((lower.index(n) for n in ("id", "allocation") if n in lower), None)
        device = lower.index("device") if "device" in lower else None
        note = ""
        if which is not None and device is None and len(self._devices) != 1:
            which, note = None, "name the column device as well: the snapshot has several"
        if not truncated:
            if which is None:
                return len(rows), {}, note
            ids = np.array([_whole(r[which]) for r in rows], np.int64)
            devices = None if device is None else np.array([_whole(r[device]) for r in rows], np.int64)
            return len(rows), self._by_device(ids, devices), note
        # Grouped by what can be an allocation: never more than there are, however many rows there are.
        wanted = [] if which is None else [(columns[which], range(max(self._devices.values(), default=0)))]
        if which is not None and device is not None:
            wanted.append((columns[device], range(min(self._devices, default=0), max(self._devices, default=0) + 1)))
        cast = [f"try_cast({_named_column(name)} AS BIGINT)" for name, _ in wanted]
        legal = [f"CASE WHEN {c} BETWEEN {r.start} AND {r.stop - 1} THEN {c} ELSE -1 END AS c{i}"
                 for i, (c, (_, r)) in enumerate(zip(cast, wanted, strict=True))]
        text = f"SELECT {', '.join([*legal, 'count(*) AS n'])} FROM (\n{sql.strip().rstrip(';')}\n) AS answer"
        text += " GROUP BY ALL" * bool(legal)
        try:
            if _kinds(self._con, text) != ["SELECT"]:
                return None, {}, note
        except duckdb.Error:  # EXPLAIN, which cannot be part of another query
            return None, {}, note
        found = self._con.execute(text).fetchnumpy()
        total = int(np.asarray(found["n"], np.int64).sum())
        if which is None:
            return total, {}, note
        ids = np.asarray(found["c0"], np.int64)
        return total, self._by_device(ids, np.asarray(found["c1"], np.int64) if "c1" in found else None), note

    def _by_device(self, ids: np.ndarray, devices: np.ndarray | None) -> dict[int, np.ndarray]:
        out = {}
        for device, count in self._devices.items():
            seen = np.zeros(count, bool)
            here = ids if devices is None else ids[devices == device]
            seen[here[(here >= 0) & (here < count)]] = True
            if seen.any():
                out[device] = np.flatnonzero(seen).astype(np.int32)
        return out


def _named_column(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _weight(value: Any) -> int:
    """About how many bytes a value takes. Of a long list some are looked at: it is to be cheap."""
    if isinstance(value, (str, bytes)):
        return 50 + len(value)
    if isinstance(value, dict):
        return 200 + _weight(list(value.items()))
    if isinstance(value, (list, tuple)):
        some = value[:: max(1, len(value) // 16)]
        return 60 + (sum(map(_weight, some)) * len(value) // len(some) if some else 0)
    return 40


def memory_limit() -> int:
    """Bytes that a query may take: a quarter of the machine's."""
    return max(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4, 256 << 20)


def _resident() -> int:
    """Bytes of this program that lie in memory and are no file's."""
    with open("/proc/self/statm", "rb") as f:
        words = f.read().split()
    return (int(words[1]) - int(words[2])) * os.sysconf("SC_PAGE_SIZE")


def _whole(value: Any) -> int:
    """A whole number that could be an id; -1 for everything else."""
    return value if type(value) is int and 0 <= value < 1 << 31 else -1


def _columns(con: duckdb.DuckDBPyConnection) -> tuple[tuple[str, ...], tuple[str, ...]]:
    described = con.description or []
    return tuple(str(d[0]) for d in described), tuple(str(d[1]) for d in described)


def _listing(sql: str) -> Result | None:
    """Our own answer to the question which tables there are; None for any other."""
    if sql.strip().rstrip(";").strip().casefold() not in ("show tables", "show all tables", "describe", "show"):
        return None
    rows: list[tuple[Any, ...]] = [(name, what, ", ".join(COLUMNS[name])) for name, what in TABLES.items()]
    rows += [(call, what, "" if call == "peak()" else "as allocations") for call, what in CALLS.items()]
    return Result(("table", "what it holds", "columns"), ("VARCHAR",) * 3, rows, total=len(rows))


def _check(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Raise QueryError unless this is one query. DuckDB refuses what lies within it."""
    kinds = _kinds(con, sql)
    if not kinds:
        raise QueryError(f"no statement; a query begins with {LEGAL}")
    if len(kinds) > 1:
        raise QueryError(f"{len(kinds)} statements; one at a time")
    if kinds[0] not in ("SELECT", "EXPLAIN"):
        raise QueryError(f"{kinds[0]} is refused: a snapshot can only be read. A query begins with {LEGAL}")


def _kinds(con: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    """DuckDB's names of the kinds of the statements in a text. Raises duckdb.Error for invalid ones."""
    return [statement.type.name for statement in con.extract_statements(sql)]


def _connect() -> duckdb.DuckDBPyConnection:
    with needed(SQL, "duckdb", error=ViewerError):
        import duckdb
    con = duckdb.connect(":memory:", config={
        "enable_external_access": "false",  # files, ATTACH, COPY, extensions
        "python_enable_replacements": "false",  # variables of this program
        "autoinstall_known_extensions": "false", "autoload_known_extensions": "false",
        "allow_community_extensions": "false", "temp_directory": "",
        "memory_limit": f"{memory_limit() >> 20}MiB",
        "threads": str(max(1, min(4, (os.cpu_count() or 1) // 2))),  # the training beside it needs the others
    })
    con.execute("SET lock_configuration = true")
    return con


def _close(con: duckdb.DuckDBPyConnection) -> None:
    con.close()
