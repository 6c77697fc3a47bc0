"""The SQL pane of the view of memory snapshots: asked, answered, saved, cancelled."""

from __future__ import annotations

import csv
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from imgui_bundle import imgui
from support.snapshot_panes_rig import WHOLE, Rig, real_fixture, rig_fixture  # noqa: F401
from support.wait import PATIENCE

from splatview.viewer_app.views._snapshot.panes._examples import EXAMPLES
from splatview.viewer_app.views._snapshot.panes.sql import SqlPane, count_words, tabbed

if TYPE_CHECKING:
    from pathlib import Path

    from splatview.viewer_app.memory.model import Snapshot


@pytest.fixture
def pane(rig: Rig, real: Snapshot, tmp_path: Path) -> SqlPane:
    pane = rig.show(SqlPane(), real)
    pane.folder = tmp_path
    return pane


def ask(rig: Rig, pane: SqlPane, text: str) -> None:
    pane.text = text
    pane.run(rig.look)
    rig.settle()


def test_allocations_of_the_answer_are_lit(rig: Rig, pane: SqlPane, real: Snapshot) -> None:
    ask(rig, pane, "SELECT id, size FROM allocations WHERE size > 20000000")
    size = real.traces[0].allocations.size
    assert pane._shown is not None and len(pane._shown.rows) == (size > 20_000_000).sum()
    assert (rig.look.lit == (size > 20_000_000)).all()
    assert rig.look.lit_by.startswith("SQL")
    ask(rig, pane, "SELECT 1 AS one")
    assert rig.look.lit is None  # the new answer names none


def test_a_row_is_gone_to(rig: Rig, pane: SqlPane, real: Snapshot) -> None:
    a = real.traces[0].allocations
    ask(rig, pane, "SELECT id FROM allocations WHERE start_event > 100 ORDER BY id DESC")
    rig.click(pane._grid.middle(2))
    assert pane._shown is not None
    chosen = pane._shown.rows[2][0]
    assert rig.look.selected == chosen and rig.look.moment == a.start[chosen] + 1
    ask(rig, pane, "SELECT event FROM events ORDER BY event DESC LIMIT 5")
    rig.click(pane._grid.middle(1))
    assert rig.look.moment == len(real.traces[0].events) - 1
    ask(rig, pane, "SELECT moment FROM moments LIMIT 9")
    rig.click(pane._grid.middle(3))
    assert rig.look.moment == pane._shown.rows[3][0]
    ask(rig, pane, "SELECT stack_id, count(*) AS n FROM allocations WHERE stack_id >= 0 GROUP BY stack_id")
    rig.click(pane._grid.middle(0))
    assert (rig.look.lit == (a.stack == pane._shown.rows[0][0])).all()


@pytest.mark.parametrize("text", ["SELECT nope FROM allocations", "DROP TABLE allocations", "SELEC",
                                  "SELECT 1; SELECT 2", "SELECT * FROM read_csv('/etc/passwd')"])
def test_faults_are_said_in_place(rig: Rig, pane: SqlPane, text: str) -> None:
    ask(rig, pane, text)
    assert pane._shown is None
    fault = rig.content.fault(pane._key())
    assert fault
    image = rig.pixels()[WHOLE.y + 170: WHOLE.y + 300, WHOLE.x: WHOLE.x + 600].astype(int)
    assert ((image[..., 0] > 180) & (image[..., 2] < 140)).any()  # in red
    ask(rig, pane, "SELECT 42 AS answer")
    assert pane._shown is not None and pane._shown.rows == [(42,)]


def test_a_title_sorts(rig: Rig, pane: SqlPane) -> None:
    ask(rig, pane, "SELECT * FROM (VALUES (2, 'b'), (3, NULL), (1, 'c')) AS t(n, word)")
    x, y, _ = pane._grid.place
    order = []
    for _ in range(3):
        rig.click((x + 5, y - 8))
        order.append(None if pane._order is None else pane._order.tolist())
    assert order == [[1, 0, 2], [2, 0, 1], None]
    assert pane._shown is not None
    pane._sort(pane._shown, 1)
    assert pane._order is not None and pane._order.tolist() == [2, 0, 1]  # nothing is less than any text


def test_saved_as_csv_in_a_file_of_its_own(rig: Rig, pane: SqlPane, tmp_path: Path) -> None:
    ask(rig, pane, "SELECT id, size, category FROM allocations ORDER BY id LIMIT 25")
    for number in (1, 2):
        pane._save(rig.content)
        rig.settle()
        saved = rig.content.peek(pane._saving)
        assert saved == f"Saved {tmp_path / 'training_memory_snapshot query'}{'' if number == 1 else '-2'}.csv"
    with (tmp_path / "training_memory_snapshot query.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert pane._shown is not None
    assert rows == [["id", "size", "category"], *([str(v) for v in row] for row in pane._shown.rows)]


def test_what_cannot_be_saved_leaves_nothing(rig: Rig, pane: SqlPane, tmp_path: Path) -> None:
    ask(rig, pane, "SELECT 1 AS one")
    pane.folder = tmp_path / "missing"
    pane._save(rig.content)
    rig.settle()
    assert "there is no folder" in rig.content.fault(pane._saving)
    pane.folder, pane._asked = tmp_path, ("SELECT nope", 999)
    pane._save(rig.content)
    rig.content.wait(PATIENCE)
    assert rig.content.fault(pane._saving) and not list(tmp_path.iterdir())


def test_a_long_question_can_be_cancelled(rig: Rig, pane: SqlPane) -> None:
    ask(rig, pane, "SELECT 1")  # the database is open
    pane.text = "SELECT count(*) FROM range(100000000000) a, range(1000) b WHERE a.range % 7 = b.range"
    pane.run(rig.look)
    end = time.monotonic() + PATIENCE
    rig.frame()
    assert pane._is_running(rig.content)
    while not rig.content.working and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.1)
    pane.cancel()
    rig.settle()
    assert pane.said == "Cancelled" and not rig.content.working
    ask(rig, pane, "SELECT 7 AS n")
    assert pane._shown is not None and pane._shown.rows == [(7,)]


def test_the_keyboard_runs_it(rig: Rig, pane: SqlPane) -> None:
    pane.text = "SELECT 5 AS five"
    rig.click((WHOLE.x + 100, WHOLE.y + 40))
    io = imgui.get_io()
    io.add_key_event(imgui.Key.mod_ctrl, True)
    io.add_key_event(imgui.Key.enter, True)
    rig.frame()
    io.add_key_event(imgui.Key.enter, False)
    io.add_key_event(imgui.Key.mod_ctrl, False)
    rig.settle()
    assert pane._shown is not None and pane._shown.rows == [(5,)]


def test_copied_rows_have_tabs(rig: Rig, pane: SqlPane) -> None:
    ask(rig, pane, "SELECT * FROM (VALUES (1, 'a\tb\nc'), (2, NULL)) AS t(n, word)")
    assert pane._shown is not None
    assert tabbed(pane._shown) == "n\tword\n1\ta b c\n2\t\n"
    assert count_words(pane._shown).startswith("2 rows, ")


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_have_answers(rig: Rig, pane: SqlPane, name: str) -> None:
    ask(rig, pane, EXAMPLES[name])
    assert rig.content.fault(pane._key()) == ""
    assert pane._shown is not None and pane._shown.rows and np.all([len(r) == len(pane._shown.columns)
                                                                    for r in pane._shown.rows])


def test_who_cancels_ends_no_other_users_question(rig: Rig, pane: SqlPane) -> None:
    ask(rig, pane, "SELECT 1")
    other = SqlPane()
    for each in (pane, other):  # the same question: they are two
        each.text = "SELECT count(*) FROM range(100000000000) a, range(1000) b WHERE a.range % 7 = b.range"
        each.run(rig.look)
        rig.pane = each
        rig.frame()
    end = time.monotonic() + PATIENCE
    while not rig.content.working and time.monotonic() < end:
        time.sleep(0.01)
    other.cancel()
    time.sleep(0.2)
    assert pane._is_running(rig.content) and rig.content.working
    pane.close()
    rig.pane = pane
    assert rig.content.wait(PATIENCE)
    assert rig.content.fault(pane._key()) == "interrupted"


def test_questions_leave_nothing_behind(rig: Rig, pane: SqlPane) -> None:
    ask(rig, pane, "SELECT 0")
    before = len(rig.content._answers), len(rig.content._faults)
    for i in range(20):
        ask(rig, pane, f"SELECT {i}" if i % 2 else f"SELECT nope{i}")
    assert (len(rig.content._answers), len(rig.content._faults)) <= (before[0] + 6, before[1] + 6)
    rig.content.leave(pane, pane._lamp)
    assert not any(isinstance(key, tuple) and key[0] in ("sql", "lamp")
                   for key in [*rig.content._answers, *rig.content._faults])
