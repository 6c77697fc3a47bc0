"""SQL over a snapshot: what the tables hold, by another way of counting; what is refused; how a query ends."""

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
from support.wait import PATIENCE

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


def test_the_tables_are_as_they_are_described(db: Database) -> None:
    shown = rows(db, "show tables;")
    assert [r[0] for r in shown] == [*TABLES, "live_at(moment)", "at_peak()", "peak()"]
    for table, _, columns in shown[: len(TABLES)]:
        assert ", ".join(r[0] for r in rows(db, f"DESCRIBE {table}")) == columns


def test_allocations_of_several_devices(db: Database) -> None:
    found = rows(
        db,
        "SELECT device, addr, size, requested_size, rounded_size, start_event, end_event, start_us, "
        "end_us, lifetime_us, stream, pool, freed_event FROM allocations ORDER BY device, id",
    )
    assert found == [
        (0, 0x900, 64, 64, None, None, 0, None, 1, None, 0, None, 1),
        (0, 0x1000, 1000, 1000, None, 2, 5, 10, 40, 30, 0, None, 6),
        (0, 0x2000, 500, 500, 512, 3, None, 20, None, None, 0, "private (0, 1)", None),
        (1, HIGH, 7, 7, 512, 0, None, None, None, None, 9, "default", None),
    ]


def test_events_and_their_texts(db: Database) -> None:
    assert rows(
        db,
        "SELECT action, addr, device_free, size, time_us, allocation FROM events WHERE device = 0",
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
        "SELECT event, compile_context, user_metadata FROM events WHERE compile_context IS NOT NULL",
    ) == [(2, "(0/0)", "it's \u00e9")]
    assert rows(
        db, "SELECT 5 - max(blocks.addr), -max(e.size) FROM blocks, events e"
    ) == [(5 - HIGH, 512 - 2**64)]


def test_stacks_tell_the_innermost_frame_and_that_of_ones_own_code(
    db: Database,
) -> None:
    stacks = (
        "SELECT depth, function, file, line, own_function, own_line, text FROM allocations JOIN stacks "
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


def test_moments_and_peaks_of_a_real_snapshot(
    real: MemorySnapshot, real_db: Database
) -> None:
    (trace,) = real.traces
    live = np.array(
        [
            r[0]
            for r in real_db.run(
                "SELECT live FROM moments ORDER BY moment", limit=10**9
            ).rows
        ]
    )
    np.testing.assert_array_equal(live, live_bytes(trace))
    assert rows(real_db, "SELECT peak(), (SELECT sum(size) FROM at_peak())") == [
        (int(live.argmax()), live.max())
    ]
    for moment in (0, 777, len(trace.events)):
        assert rows(real_db, f"SELECT sum(size) FROM live_at({moment})") == [
            (live[moment],)
        ]
    assert rows(real_db, "SELECT arg_max(reserved, moment) FROM moments") == [
        (trace.segments.total.sum(),)
    ]


def test_the_examples_find_something(real_db: Database) -> None:
    for title, sql in EXAMPLES.items():
        assert real_db.run(sql).rows, title


@pytest.mark.parametrize(
    ("sql", "lit"),
    [
        ("SELECT device, id FROM allocations WHERE size < 1000", ([0, 2], [0])),
        ("SELECT device, allocation FROM events WHERE action = 'alloc'", ([1, 2], [0])),
        (
            "SELECT 1 AS id, 5 AS device UNION ALL SELECT 99, 0 UNION ALL SELECT NULL, 1",
            ([], []),
        ),
        ("SELECT count(*) FROM events", ([], [])),
    ],
)
def test_the_allocations_of_an_answer_can_be_lit(
    db: Database, sql: str, lit: tuple[list[int], ...]
) -> None:
    found = db.run(sql)
    assert tuple(found.allocations(trace).tolist() for trace in several().traces) == lit


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


def test_nothing_but_reading_is_let_in(
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


def test_whatever_reads_is_let_in(db: Database) -> None:
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


def test_a_query_ends_when_it_takes_too_long_or_is_cancelled(real_db: Database) -> None:
    with pytest.raises(QueryError, match=r"not done within 0\.1 s"):
        real_db.run(ENDLESS, timeout=0.1)
    with pytest.raises(QueryError, match="interrupted"):
        real_db.run(ENDLESS, timeout=PATIENCE, cancelled=lambda: True)
    assert rows(real_db, "SELECT 1") == [(1,)]


@pytest.mark.parametrize(
    "value", ["repeat('x', 3000)", "range(100)", "{'a': [repeat('x', 3000)]}"]
)
def test_an_answer_that_is_too_large_is_an_error(
    value: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is fetched is counted row by row; what is written as it comes may be as large as it likes."""
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


def test_a_query_takes_no_more_memory_than_it_may(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what one function makes, which DuckDB does not count; and other queries run on under the same limit."""
    monkeypatch.setattr(query_memory, "memory_bound", lambda: 200 << 20)
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


def test_a_query_that_waited_for_another_has_its_whole_time(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several users ask one snapshot, whose queries wait for each other."""
    now = [0.0]
    waits = threading.Event()

    def clock() -> float:
        if threading.current_thread() is second:
            waits.set()
        return now[0]

    def cancelled() -> bool:
        """Another one comes, and waits for a minute."""
        if second.ident is None:
            second.start()
        if waits.is_set():
            now[0] = 60.0
        return waits.is_set()

    rows: list[Any] = []
    second = threading.Thread(target=lambda: rows.extend(db.run("SELECT 1").rows))
    monkeypatch.setattr("time.perf_counter", clock)
    with pytest.raises(QueryError, match="interrupted"):
        db.run(
            "SELECT count(*) FROM range(1000000000000)",
            timeout=float("inf"),
            cancelled=cancelled,
        )
    second.join(PATIENCE)
    assert rows == [(1,)]


def test_text_that_is_no_utf8_and_endless_names_are_errors_in_few_words(
    db: Database,
) -> None:
    assert db.run("SELECT 'a\udcff'").rows == [("a?",)]
    with pytest.raises(QueryError) as e:
        db.run("SELECT a" + ".a" * 400 + "a" * 5000)
    assert len(str(e.value)) <= 2000


@pytest.mark.programs
def test_a_query_that_runs_when_the_program_ends_is_no_error() -> None:
    code = (
        "import threading\n"
        "from support.memory_data import two_devices\n"
        "from splatview_viewer.core.jobs import Jobs\n"
        "from splatview_viewer.snapshot.query import Database\n"
        "db, runs = Database(two_devices()), threading.Event()\n"
        "endless = 'SELECT count(*) FROM range(1000000000000)'\n"
        "Jobs('query').submit(lambda _: db.run(endless, cancelled=runs.set))\n"
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
