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
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from splatview_ipc.system.optional_packages import needed
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.kinds.snapshot import SQL
from splatview_viewer.kinds.snapshot.analysis.frames import USER, categories, frame_kinds
from splatview_viewer.kinds.snapshot.model import (
    ACTIONS,
    BLOCK_STATES,
    SEGMENT_TYPES,
    Allocations,
    Blocks,
    Events,
    Segments,
    Spans,
    Trace,
    held,
    live_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import duckdb

    from splatview_viewer.kinds.snapshot.model import Snapshot

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
COLUMNS = {name: tuple(columns.split()) for name, columns in {
    "allocations": "id device addr size requested_size rounded_size start_event end_event start_us end_us lifetime_us "
                   "stream pool stack_id freed_event category",
    "events": "device event action addr size stream pool time_us stack_id allocation device_free compile_context "
              "user_metadata",
    "moments": "device moment time_us live reserved",
    "segments": "device segment addr total_size allocated_size active_size requested_size blocks stream pool type "
                "expandable stack_id",
    "blocks": "device segment addr size requested_size state stack_id allocation",
    "spans": "device addr size start_event end_event start_us end_us stream pool",
    "stacks": "stack_id depth function file line own_function own_file own_line text",
    "frames": "stack_id position function file line own_code",
    "annotations": "device time_us name stage",
}.items()}
"""The names of their columns."""

CALLS = {
    "live_at(moment)": "the allocations that are live at a moment",
    "at_peak()": "the allocations that are live when most bytes are, on each device at its own moment",
    "peak()": "the moment with most live bytes; peak(0): of device 0",
}
"""What a query can call, and what it is given."""
MACROS = {
    "live_at": """live_at(at_moment) AS TABLE SELECT * FROM allocations
        WHERE (start_event IS NULL OR start_event < at_moment) AND (end_event IS NULL OR end_event >= at_moment)""",
    "at_peak": """at_peak() AS TABLE SELECT a.* FROM allocations a JOIN peaks_ p ON p.device = a.device
        WHERE (start_event IS NULL OR start_event < p.moment) AND (end_event IS NULL OR end_event >= p.moment)""",
    "peak": """peak(of_device := NULL) AS (SELECT moment FROM peaks_
        WHERE of_device IS NULL OR device = of_device ORDER BY live DESC, device LIMIT 1)""",
}
"""What queries may call; see CALLS."""


class Tables:
    """Makes the tables of one snapshot in an empty database. Those that cost something are made when they are needed:
    `need` says so before each query."""

    def __init__(self, snapshot: Snapshot, con: duckdb.DuckDBPyConnection) -> None:
        self._snapshot = snapshot
        self._con = con
        self._traces = snapshot.traces or (_nothing(),)
        self._made: set[str] = set()
        self._peaks: list[tuple[int, int, int]] = []
        """Of each device: its number, the first moment with most live bytes, and how many."""
        self._stream = _pick([str(s) for s in snapshot.streams], "stream")
        self._pool = _pick([_quoted(pool_name(p)) for p in snapshot.pools], "pool")
        con.create_function("stack_text", self._stack_text, ["INTEGER"], "VARCHAR")  # type: ignore[arg-type]
        self._make_stacks()
        self._view("events", [self._events(t) for t in self._traces])
        self._view("segments", [self._segments(t) for t in self._traces])
        self._view("blocks", [self._blocks(t) for t in self._traces])
        self._view("spans", [self._spans(t) for t in self._traces])
        self._make_annotations()

    def need(self, sql: str) -> None:
        """Make what this query may ask for and is not there yet."""
        words = sql.casefold()
        if "allocations" in words or "live_at" in words or "at_peak" in words:
            self._once("allocations", self._allocations)
        if "moments" in words or "peak" in words:
            self._once("moments", self._moments)
        if "peak" in words and "peaks_" not in self._made:
            self._table("peaks_", {"device": "INTEGER", "moment": "INTEGER", "live": "BIGINT"},
                        [list(column) for column in zip(*self._peaks, strict=True)])
            self._made.add("peaks_")  # not before it is there: it may have been interrupted
        for name, macro in MACROS.items():
            if name in words and name not in self._made:
                self._con.execute(f"CREATE OR REPLACE TEMP MACRO {macro}")
                self._made.add(name)

    def _once(self, name: str, make: Any) -> None:
        if name not in self._made:
            self._view(name, [make(t) for t in self._traces])
            self._made.add(name)

    # -- how a table comes about -----------------------------------------------------------------------------

    def _view(self, name: str, selects: list[str]) -> None:
        self._con.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS " + "\nUNION ALL ".join(selects))

    def _raw(self, name: str, **columns: np.ndarray) -> str:
        """Show arrays of one length to DuckDB. Returns what a query finds them as: nothing in it is unsigned of 64
        bits, since differences of such numbers are errors."""
        unsigned = [c for c, a in columns.items() if a.dtype == np.uint64]
        casts = ", ".join(f"{c}::{'HUGEINT' if columns[c].max(initial=0) >> 63 else 'BIGINT'} AS {c}" for c in unsigned)
        self._con.register(name, {c: np.ascontiguousarray(a) for c, a in columns.items()})
        return f"(SELECT * REPLACE ({casts}) FROM {name})" if casts else name

    def _table(self, name: str, types: dict[str, str], columns: list[list[Any]]) -> None:
        """A real, small table. Not a temporary one: those could be written to in a transaction that only reads."""
        values = ", ".join(f"unnest(?::{t}[]) AS {c}" for c, t in types.items())
        self._con.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT {values}", columns)

    # -- stacks and texts ------------------------------------------------------------------------------------

    def _stack_text(self, number: int) -> str:
        if not 0 <= number < len(self._snapshot.stacks):
            return ""
        return "\n".join(f"{f.name}  {f.file}:{f.line}" for f in self._snapshot.stack(number))

    def _make_stacks(self) -> None:
        stacks, texts = self._snapshot.stacks, self._snapshot.texts
        known: dict[int, str] = {}

        def words(numbers: np.ndarray) -> list[str]:
            return [known[n] if n in known else known.setdefault(n, texts[n]) for n in numbers.tolist()]

        user = frame_kinds(self._snapshot) == USER
        self._table("frame_texts", {"frame": "INTEGER", "function": "VARCHAR", "file": "VARCHAR", "line": "INTEGER"},
                    [list(range(len(stacks.file))), words(stacks.name), words(stacks.file), stacks.line.tolist()])
        lengths = np.diff(stacks.start)
        number = np.repeat(np.arange(len(stacks), dtype=np.int32), lengths)
        position = np.arange(len(stacks.frames), dtype=np.int64) - np.repeat(stacks.start[:-1], lengths)
        users = user[stacks.frames]
        self._raw("frames_", stack=number, position=position.astype(np.int32), frame=stacks.frames, users=users)
        self._view("frames", ["""SELECT stack AS stack_id, position, function, file, line, users AS own_code
            FROM frames_ JOIN frame_texts USING (frame)"""])
        own = np.full(len(stacks), -1, np.int32)
        places = np.flatnonzero(users)[::-1]  # backwards: the innermost is written last, and stays
        own[number[places]] = stacks.frames[places]
        top = np.full(len(stacks), -1, np.int32)
        some = lengths > 0
        top[some] = stacks.frames[stacks.start[:-1][some]]
        self._raw("stacks_", stack=np.arange(len(stacks), dtype=np.int32), depth=lengths.astype(np.int32), top=top,
                  own=own)
        self._view("stacks", ["""SELECT stack AS stack_id, depth, t.function AS function, t.file AS file,
                t.line AS line, o.function AS own_function, o.file AS own_file, o.line AS own_line,
                stack_text(stack) AS text
            FROM stacks_ LEFT JOIN frame_texts t ON t.frame = top LEFT JOIN frame_texts o ON o.frame = own"""])

    def _texts(self, name: str, numbers: np.ndarray) -> str:
        """An expression for the texts of these numbers, which stand in a column `name`."""
        used = np.zeros(len(self._snapshot.texts) + 1, bool)
        used[numbers] = True  # -1, none, is the last
        which = np.flatnonzero(used[:-1])
        if not len(which):
            return f"NULL::VARCHAR AS {name}"
        table = f"{name}_texts_{len(self._made)}"
        self._made.add(table)
        self._table(table, {"n": "INTEGER", "words": "VARCHAR"},
                    [which.tolist(), [self._snapshot.texts[n] for n in which.tolist()]])
        # A subquery, not a join: rows stay in their order.
        return f"(SELECT words FROM {table} WHERE n = {name}_) AS {name}"

    # -- one table of one device each ------------------------------------------------------------------------

    def _events(self, trace: Trace) -> str:
        e = trace.events
        raw = self._raw(f"events_{trace.device}_", event=_count(e), action_=e.action, addr_=e.addr, size=e.size,
                        time_=e.time_us, stream=e.stream, pool=e.pool, stack=e.stack, allocation_=e.allocation,
                        compile_context_=e.context, user_metadata_=e.metadata)
        return f"""SELECT {trace.device} AS device, event, {_pick(map(_quoted, ACTIONS), 'action_')} AS action,
            CASE WHEN action_ <> {ACTIONS.index('oom')} THEN addr_ END AS addr, size, {self._stream} AS stream,
            {self._pool} AS pool, nullif(time_, 0) AS time_us, {_known('stack')} AS stack_id,
            {_known('allocation_')} AS allocation,
            CASE WHEN action_ = {ACTIONS.index('oom')} THEN addr_ END AS device_free,
            {self._texts('compile_context', e.context)}, {self._texts('user_metadata', e.metadata)} FROM {raw}"""

    def _allocations(self, trace: Trace) -> str:
        a, n = trace.allocations, len(trace.events)
        category, names = categories(self._snapshot, trace)
        raw = self._raw(f"allocations_{trace.device}_", id=_count(a), addr=a.addr, size=a.size, rounded=a.rounded,
                        start=a.start, stop=a.end, freed=a.freed, stream=a.stream, pool=a.pool, stack=a.stack,
                        started=_times(trace, a.start), stopped=_times(trace, a.end), category=category)
        return f"""SELECT id, {trace.device} AS device, addr, size, size AS requested_size,
            nullif(rounded, 0) AS rounded_size, {_known('start')} AS start_event,
            CASE WHEN stop < {n} THEN stop END AS end_event, nullif(started, 0) AS start_us,
            nullif(stopped, 0) AS end_us, nullif(stopped, 0) - nullif(started, 0) AS lifetime_us,
            {self._stream} AS stream, {self._pool} AS pool, {_known('stack')} AS stack_id,
            CASE WHEN freed < {n} THEN freed END AS freed_event,
            {_pick(map(_quoted, names), 'category')} AS category FROM {raw}"""

    def _spans(self, trace: Trace) -> str:
        s, n = trace.spans, len(trace.events)
        raw = self._raw(f"spans_{trace.device}_", addr=s.addr, size=s.size, start=s.start, stop=s.end,
                        stream=s.stream, pool=s.pool, started=_times(trace, s.start), stopped=_times(trace, s.end))
        return f"""SELECT {trace.device} AS device, addr, size, {_known('start')} AS start_event,
            CASE WHEN stop < {n} THEN stop END AS end_event, nullif(started, 0) AS start_us,
            nullif(stopped, 0) AS end_us, {self._stream} AS stream, {self._pool} AS pool FROM {raw}"""

    def _segments(self, trace: Trace) -> str:
        s = trace.segments
        raw = self._raw(f"segments_{trace.device}_", segment=_count(s), addr=s.addr, total=s.total,
                        allocated=s.allocated, active=s.active, requested=s.requested, stream=s.stream, pool=s.pool,
                        type_=s.type, expandable=s.expandable, stack=s.stack,
                        blocks=np.diff(s.block_start).astype(np.int32))
        return f"""SELECT {trace.device} AS device, segment, addr, total AS total_size, allocated AS allocated_size,
            active AS active_size, requested AS requested_size, blocks, {self._stream} AS stream, {self._pool} AS pool,
            {_pick(map(_quoted, SEGMENT_TYPES), 'type_')} AS type, expandable::BOOLEAN AS expandable,
            {_known('stack')} AS stack_id FROM {raw}"""

    def _blocks(self, trace: Trace) -> str:
        b = trace.blocks
        segment = np.repeat(np.arange(len(trace.segments), dtype=np.int32), np.diff(trace.segments.block_start))
        raw = self._raw(f"blocks_{trace.device}_", segment=segment, addr=b.addr, size=b.size, requested=b.requested,
                        state_=b.state, stack=b.stack, allocation_=b.allocation)
        return f"""SELECT {trace.device} AS device, segment, addr, size, requested AS requested_size,
            {_pick(map(_quoted, BLOCK_STATES), 'state_')} AS state, {_known('stack')} AS stack_id,
            {_known('allocation_')} AS allocation FROM {raw}"""

    def _moments(self, trace: Trace) -> str:
        s, time = trace.spans, np.zeros(trace.moments, np.int64)
        time[1:] = trace.events.time_us
        live = live_bytes(trace)
        self._peaks.append((trace.device, int(live.argmax()), int(live.max())))
        raw = self._raw(f"moments_{trace.device}_", moment=np.arange(trace.moments, dtype=np.int32), time_=time,
                        live=live,
                        reserved=held(trace.moments, s.start, s.end, s.size))
        return f"SELECT {trace.device} AS device, moment, nullif(time_, 0) AS time_us, live, reserved FROM {raw}"

    def _make_annotations(self) -> None:
        rows = self._snapshot.annotations
        self._table("annotations", {"device": "INTEGER", "time_us": "BIGINT", "name": "VARCHAR", "stage": "VARCHAR"},
                    [[r.device for r in rows], [r.time_us for r in rows], [r.name for r in rows],
                     [r.stage for r in rows]])


def pool_name(pool: tuple[int, int]) -> str:
    """Return the name of a pool in queries."""
    return "default" if pool == (0, 0) else f"private ({pool[0]}, {pool[1]})"


def _times(trace: Trace, events: np.ndarray) -> np.ndarray:
    """int64: the times of these events; 0 for those outside the trace."""
    times = np.zeros(len(trace.events) + 2, np.int64)
    times[:-2] = trace.events.time_us  # M finds the last but one, -1 the last
    return times[events]


def _count(rows: Any) -> np.ndarray:
    return np.arange(len(rows), dtype=np.int32)


def _known(column: str) -> str:
    return f"CASE WHEN {column} >= 0 THEN {column} END"


def _pick(values: Any, index: str) -> str:
    """SQL for the value with this number; NULL for -1."""
    listed = ", ".join(values)
    return f"list_extract([{listed}], {index}::INTEGER + 1)" if listed else "NULL"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _nothing() -> Trace:
    """A trace in which nothing happens, so that queries over an empty snapshot find tables without rows."""
    empty = [cls(**{f.name: np.zeros(int(f.name == "block_start"), np.int32) for f in fields(cls)})
             for cls in (Events, Allocations, Spans, Segments, Blocks)]
    return Trace(0, *empty)  # type: ignore[arg-type]


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

_BATCH = 1024
"""Rows of a CSV that are fetched at once."""
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
        self._why = ""
        """Why the query that runs now is to end."""
        self._con = _connect()
        # DuckDB complains on stderr about connections that are open when the program ends.
        self._close = weakref.finalize(self, self._con.close)
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
        """End the query that runs now, if any, from any thread: its caller gets a QueryError."""
        self._why = "interrupted"

    def run(self, sql: str, limit: int = 10_000, timeout: float = 30.0,
            cancelled: Callable[[], bool] = lambda: False) -> Result:
        """The answer to one query, of which at most `limit` rows are fetched.

        Args:
            cancelled: asked again and again; True interrupts the query.

        Raises:
            QueryError: it is not a query that reads, or it is wrong (the message shows where), or it was interrupted,
                or it took longer than `timeout` seconds.
        """
        began = time.perf_counter()
        with self._query(sql, timeout, cancelled) as con:
            if (listing := _listing(sql)) is not None:
                return listing
            columns, types = _columns(con)
            rows = con.fetchmany(limit + 1)
            truncated = len(rows) > limit
            del rows[limit:]
            total, named, note = self._named(sql, columns, rows, truncated)
        return Result(columns, types, rows, truncated, total, named, note, time.perf_counter() - began)

    def csv(self, sql: str, out: TextIO, timeout: float = float("inf"),
            cancelled: Callable[[], bool] = lambda: False) -> int:
        """Write all rows of the answer as CSV with a line of names: NULL is empty. Returns how many rows.

        Raises QueryError as `run` does, and what writing raises.
        """
        with self._query(sql, timeout, cancelled) as con:
            writer = csv.writer(out, lineterminator="\n")
            if (listing := _listing(sql)) is not None:
                writer.writerows([listing.columns, *listing.rows])
                return len(listing.rows)
            writer.writerow(_columns(con)[0])
            count = 0
            while not self._why and (rows := con.fetchmany(_BATCH)):
                writer.writerows(rows)
                count += len(rows)
            self._proceed()
            return count

    def _proceed(self) -> None:
        if self._why:
            raise QueryError(self._why)

    @contextmanager
    def _query(self, sql: str, timeout: float, cancelled: Callable[[], bool]) -> Iterator[duckdb.DuckDBPyConnection]:
        """The connection with the answer to a query; what goes wrong meanwhile becomes a QueryError."""
        import duckdb

        with self._lock:
            if not self._close.alive:
                raise QueryError("the snapshot was closed")
            self._why = ""
            over = threading.Event()
            watch = threading.Thread(target=self._watch, args=(over, timeout, cancelled), name="splatview-query",
                                     daemon=True)
            watch.start()
            try:
                _check(self._con, sql)
                self._tables.need(sql)
                self._con.execute("BEGIN TRANSACTION READ ONLY")
                self._proceed()
                if _listing(sql) is None:
                    self._con.execute(sql)
                yield self._con
            except RuntimeError as e:
                if str(e) == "Query interrupted":  # DuckDB's words for Ctrl-C
                    raise KeyboardInterrupt from None
                raise QueryError(str(e)) from None
            # Values that Python cannot hold come as its own errors: dates far away, a string of gigabytes.
            except (duckdb.Error, ImportError, MemoryError, OverflowError, ValueError) as e:
                raise QueryError(self._why or str(e).strip() or type(e).__name__) from None
            finally:
                over.set()
                watch.join()
                with suppress(duckdb.Error):  # none was begun
                    self._con.execute("ROLLBACK")
                self._con.execute("SELECT 0").fetchall()  # an answer that is not fetched whole is in the next one's way

    def _watch(self, over: threading.Event, timeout: float, cancelled: Callable[[], bool]) -> None:
        """Interrupt the connection when that is asked for or the time is up; again, should it not have begun yet."""
        end = time.perf_counter() + timeout
        while not over.wait(0.02):
            if not self._why and cancelled():
                self._why = "interrupted"
            elif not self._why and time.perf_counter() > end:
                self._why = f"not done within {timeout:g} s; ask for less, or for longer"
            if self._why:
                self._con.interrupt()

    def _named(self, sql: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]],
               truncated: bool) -> tuple[int | None, dict[int, np.ndarray], str]:
        """Return the number of rows, the allocations that they name, and a note, as in Result."""
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
        cast = ['try_cast("' + name.replace('"', '""') + '" AS BIGINT)' for name, _ in wanted]
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
    bytes_of_machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    con = duckdb.connect(":memory:", config={
        "enable_external_access": "false",  # files, ATTACH, COPY, extensions
        "python_enable_replacements": "false",  # variables of this program
        "autoinstall_known_extensions": "false", "autoload_known_extensions": "false",
        "allow_community_extensions": "false", "temp_directory": "",
        "memory_limit": f"{max(bytes_of_machine >> 22, 256)}MiB",  # a quarter of it
        "threads": str(max(1, min(4, (os.cpu_count() or 1) // 2))),  # the training beside it needs the others
    })
    con.execute("SET lock_configuration = true")
    return con
