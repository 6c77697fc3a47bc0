"""SQL over a snapshot: tables agree with other counts, and queries are bounded."""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.memory_data import HIGH, TORCH, several
from support.wait import PATIENCE_S

from splatview_viewer.snapshot import query_memory
from splatview_viewer.snapshot.model import MemorySnapshot, live_bytes
from splatview_viewer.snapshot.query import EXAMPLES, Database, QueryError
from splatview_viewer.snapshot.query_tables import TABLES


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    with Database(several()) as database:
        yield database


@pytest.fixture(scope="module")
def real_db(real: MemorySnapshot) -> Iterator[Database]:
    with Database(real) as database:
        yield database


def rows(db: Database, sql: str) -> list[tuple[Any, ...]]:
    return db.run(sql).rows


def test_tables_fit_their_description(db: Database) -> None:
    table_rows = rows(db, "show tables;")
    assert [r[0] for r in table_rows] == [
        *TABLES,
        "live_at(moment)",
        "at_peak()",
        "peak()",
    ]
    for table, _, columns in table_rows[: len(TABLES)]:
        assert ", ".join(r[0] for r in rows(db, f"DESCRIBE {table}")) == columns


def test_allocations_table_holds_all_devices(db: Database) -> None:
    allocations = rows(
        db,
        "SELECT device, addr, size, requested_size, rounded_size, start_event, "
        "end_event, start_us, "
        "end_us, lifetime_us, stream, pool, freed_event FROM allocations ORDER BY "
        "device, id",
    )
    assert allocations == [
        (0, 0x900, 64, 64, None, None, 0, None, 1, None, 0, None, 1),
        (0, 0x1000, 1000, 1000, None, 2, 5, 10, 40, 30, 0, None, 6),
        (0, 0x2000, 500, 500, 512, 3, None, 20, None, None, 0, "private (0, 1)", None),
        (1, HIGH, 7, 7, 512, 0, None, None, None, None, 9, "default", None),
    ]


def test_events_table_holds_actions_and_texts(db: Database) -> None:
    assert rows(
        db,
        "SELECT action, addr, device_free, size, time_us, allocation FROM events WHERE "
        "device = 0",
    ) == [
        ("free_requested", 0x900, None, 64, 1, 0),
        ("free_completed", 0x900, None, 64, 2, 0),
        ("alloc", 0x1000, None, 1000, 10, 1),
        ("alloc", 0x2000, None, 500, 20, 2),
        ("oom", None, 12345, 2**64 - 512, 30, None),
        ("free_requested", 0x1000, None, 1000, 40, 1),
        ("free_completed", 0x1000, None, 1000, 45, 1),
    ]
    assert rows(
        db,
        "SELECT event, compile_context, user_metadata FROM events WHERE "
        "compile_context IS NOT NULL",
    ) == [(2, "(0/0)", "it's \u00e9")]
    assert rows(
        db, "SELECT 5 - max(blocks.addr), -max(e.size) FROM blocks, events e"
    ) == [(5 - HIGH, 512 - 2**64)]


def test_stacks_table_names_the_innermost_and_own_frames(
    db: Database,
) -> None:
    stacks = (
        "SELECT depth, function, file, line, own_function, own_line, text FROM "
        "allocations JOIN stacks "
        "USING (stack_id) WHERE start_event = 2"
    )
    assert rows(db, stacks) == [
        (
            2,
            "mul",
            TORCH,
            3,
            "attention",
            42,
            f"mul  {TORCH}:3\nattention  /home/me/train.py:42",
        )
    ]
    assert rows(
        db,
        "SELECT position, function, own_code FROM frames JOIN events USING (stack_id) "
        "WHERE event = 2 AND device = 0 ORDER BY position",
    ) == [(0, "mul", False), (1, "attention", True)]


def test_moments_and_peaks_of_a_real_snapshot_agree_with_numpy(
    real: MemorySnapshot, real_db: Database
) -> None:
    (trace,) = real.traces
    answer = real_db.run("SELECT live FROM moments ORDER BY moment", limit=10**9)
    live = np.array([row[0] for row in answer.rows])
    np.testing.assert_array_equal(live, live_bytes(trace))
    assert rows(real_db, "SELECT peak(), (SELECT sum(size) FROM at_peak())") == [
        (int(live.argmax()), live.max())
    ]
    for moment_index in (0, 777, len(trace.events)):
        query = f"SELECT sum(size) FROM live_at({moment_index})"
        assert rows(real_db, query) == [(live[moment_index],)]
    assert rows(real_db, "SELECT arg_max(reserved, moment) FROM moments") == [
        (trace.segments.total.sum(),)
    ]


def test_example_queries_return_rows(real_db: Database) -> None:
    for title, sql in EXAMPLES.items():
        assert real_db.run(sql).rows, title


@pytest.mark.parametrize(
    ("sql", "highlighted"),
    [
        ("SELECT device, id FROM allocations WHERE size < 1000", ([0, 2], [0])),
        ("SELECT device, allocation FROM events WHERE action = 'alloc'", ([1, 2], [0])),
        (
            "SELECT 1 AS id, 5 AS device UNION ALL SELECT 99, 0 UNION ALL SELECT NULL, "
            "1",
            ([], []),
        ),
        ("SELECT count(*) FROM events", ([], [])),
    ],
)
def test_answers_name_the_allocations_to_highlight(
    db: Database, sql: str, highlighted: tuple[list[int], ...]
) -> None:
    answer = db.run(sql)
    ids = [answer.allocations(trace).tolist() for trace in several().traces]
    assert tuple(ids) == highlighted


HOSTILE = [
    "FROM read_text('/etc/passwd')",
    "FROM 'x.csv'",
    "SELECT 1 WHERE 1 IN (SELECT 1 FROM read_blob('/etc/passwd'))",
    "COPY (SELECT 1) TO 'x.csv'",
    "EXPORT DATABASE 'x'",
    "ATTACH 'x.db'",
    "INSTALL httpfs",
    "SET enable_external_access = true",
    "PRAGMA memory_limit = '100GB'",
    "CALL enable_logging(storage = 'file')",
    "CREATE TEMP VIEW events AS SELECT 1",
    "WITH a AS (DELETE FROM annotations RETURNING *) SELECT * FROM a",
    "EXPLAIN ANALYZE DROP TABLE annotations",
    "SELECT 1; DROP TABLE annotations",
    "COMMIT",
    "",
]


def test_database_refuses_all_but_reading(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for sql in HOSTILE:
        with pytest.raises(QueryError):
            db.run(sql)
        with pytest.raises(QueryError):
            db.csv(sql, io.StringIO())
        assert not list(tmp_path.iterdir()), sql
        assert rows(db, "FROM annotations") == [(0, 5, "step", "START")], sql
        assert rows(db, "SELECT count(*) FROM events") == [(8,)], sql


def test_database_runs_all_statements_that_read(db: Database) -> None:
    for sql in (
        "EXPLAIN SELECT 1",
        "explain analyze (select 1)",
        "VALUES (1)",
        "WITH a AS (SELECT 1) FROM a",
        "SUMMARIZE annotations",
        "SELECT 1 -- ; DROP TABLE annotations",
        "SELECT ';'",
        "/* a */ FROM range(3)",
    ):
        assert db.run(sql).rows, sql


ENDLESS = "SELECT sum(a.size * 1.5 * b.size) FROM events a, events b, events c"


def test_query_ends_at_its_timeout_and_when_cancelled(real_db: Database) -> None:
    with pytest.raises(QueryError, match=r"not done within 0\.1 s"):
        real_db.run(ENDLESS, timeout=0.1)

    def is_cancelled() -> bool:
        return True

    with pytest.raises(QueryError, match="interrupted"):
        real_db.run(ENDLESS, timeout=PATIENCE_S, cancelled=is_cancelled)
    assert rows(real_db, "SELECT 1") == [(1,)]


@pytest.mark.parametrize(
    "value", ["repeat('x', 3000)", "range(100)", "{'a': [repeat('x', 3000)]}"]
)
def test_too_large_answer_raises_an_error(
    value: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fetched rows are counted one by one; a CSV that is written as it comes is
    unlimited.
    """
    monkeypatch.setattr(query_memory, "RESULT_BYTES", 1 << 20)
    sql = f"SELECT {value} FROM range(1000)"
    with pytest.raises(QueryError, match=r"too large.* more than 1 MiB; ask for"):
        db.run(sql)
    assert len(db.run(sql, limit=100).rows) == 100
    out = io.StringIO()
    db.csv(sql, out)
    assert out.getvalue().count("\n") == 1001
    monkeypatch.setattr(query_memory, "RESULT_BYTES", 1 << 10)
    with pytest.raises(QueryError, match="too large"):
        db.csv(sql, io.StringIO())


def test_query_stays_within_its_memory_limit(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of a single function, which DuckDB does not count, are limited as well.

    Other queries keep running under the same limit.
    """

    def memory_bound() -> int:
        return 200 << 20

    monkeypatch.setattr(query_memory, "memory_bound", memory_bound)
    monkeypatch.setattr(query_memory, "RESULT_BYTES", 1 << 20)
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    with query_memory.bounded_memory():
        inside = resource.getrlimit(resource.RLIMIT_DATA)
        for value in ("repeat(text, 1500000000 // length(text))", "range(100000000)"):
            with pytest.raises(QueryError, match=r"not enough memory.* 200 MiB"):
                db.run(f"SELECT length({value}::VARCHAR) FROM stacks LIMIT 1")
        assert db.run("SELECT 1").rows == [(1,)]
        assert resource.getrlimit(resource.RLIMIT_DATA) == inside != limits
    assert resource.getrlimit(resource.RLIMIT_DATA) == limits


def test_waiting_for_another_query_does_not_count_as_query_time(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries of several users to one snapshot wait for each other."""
    now = [0.0]
    waits = threading.Event()

    def clock() -> float:
        if threading.current_thread() is second:
            waits.set()
        return now[0]

    def cancelled() -> bool:
        """Start the second query, and let it wait for a minute."""
        if second.ident is None:
            second.start()
        if waits.is_set():
            now[0] = 60.0
        return waits.is_set()

    def run_second() -> None:
        rows.extend(db.run("SELECT 1").rows)

    rows: list[Any] = []
    second = threading.Thread(target=run_second)
    monkeypatch.setattr("time.perf_counter", clock)
    with pytest.raises(QueryError, match="interrupted"):
        db.run(
            "SELECT count(*) FROM range(1000000000000)",
            timeout=float("inf"),
            cancelled=cancelled,
        )
    second.join(PATIENCE_S)
    assert rows == [(1,)]


def test_errors_about_endless_names_are_short(
    db: Database,
) -> None:
    assert db.run("SELECT 'a\udcff'").rows == [("a?",)]
    with pytest.raises(QueryError) as e:
        db.run("SELECT a" + ".a" * 400 + "a" * 5000)
    assert len(str(e.value)) <= 2000


@pytest.mark.programs
def test_program_ends_quietly_while_a_query_runs() -> None:
    code = (
        "import threading\n"
        "from support.memory_data import two_devices\n"
        "from splatview_viewer.core.jobs import JobQueue\n"
        "from splatview_viewer.snapshot.query import Database\n"
        "db, runs = Database(two_devices()), threading.Event()\n"
        "endless = 'SELECT count(*) FROM range(1000000000000)'\n"
        "def is_cancelled(job):\n"
        "    runs.set()\n"
        "    return job.cancelled\n"
        "def query(job):\n"
        "    return db.run(endless, cancelled=lambda: is_cancelled(job))\n"
        "JobQueue('query').submit(query)\n"
        "runs.wait()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert (done.returncode, done.stderr) == (0, "")
