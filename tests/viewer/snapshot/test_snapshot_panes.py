"""Panes of the view of memory snapshots, drawn without a screen over a real snapshot, and used as a person would."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from imgui_bundle import imgui
from support.snapshot_cases import GROUND, MOMENT, WHOLE, Rig, press
from support.wait import PATIENCE, wait_until

from splatview_viewer.core.screen import Rect
from splatview_viewer.kinds.snapshot.analysis.details import describe
from splatview_viewer.kinds.snapshot.analysis.flame import flame
from splatview_viewer.kinds.snapshot.analysis.tables import compare, group, leaks, post_mortem
from splatview_viewer.kinds.snapshot.model import live_bytes, live_mask
from splatview_viewer.kinds.snapshot.panes import PANES
from splatview_viewer.kinds.snapshot.panes.sql import SqlPane, count_words, tabbed

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_viewer.kinds.snapshot.model import Snapshot

pytestmark = pytest.mark.usefixtures("timeline_kernels")

RECT = Rect(300, 200, 400, 300)


def lit(rig: Rig) -> list[int]:
    """The allocations that are lit."""
    assert rig.look.lit is not None
    return np.flatnonzero(rig.look.lit).tolist()


@pytest.mark.parametrize("name", PANES)
def test_a_pane_draws_its_rectangle_alone_and_takes_clicks_anywhere(rig: Rig, full: Snapshot, name: str) -> None:
    rig.show(PANES[name](), full, RECT)
    rig.look.select(0)
    rig.settle()
    pixels = rig.pixels()
    inside = np.zeros(pixels.shape[:2], bool)
    inside[RECT.y: RECT.y + RECT.height, RECT.x: RECT.x + RECT.width] = True
    drawn = (pixels != GROUND).any(-1)
    np.testing.assert_array_equal(drawn, inside)
    assert len(np.unique(pixels[inside] @ np.array([1, 256, 65536]))) > 20  # words, not a ground alone
    for device in (0, 1):
        rig.look.show_device(device)
        rig.settle()
        for y in range(RECT.y + 5, RECT.y + RECT.height, 47):
            rig.move(RECT.x + 60, y)
        rig.click((RECT.x + 60, RECT.y + 200))
    assert rig.look.hovered is None or 0 <= rig.look.hovered < len(rig.content.trace(rig.look).allocations)


def test_a_click_on_an_event_goes_there_and_a_double_click_looks_closer(rig: Rig, real: Snapshot) -> None:
    rig.show(PANES["events"](), real)
    rig.look.x = (0.0, 1000.0)
    rig.click(rig.row(7))
    assert rig.look.moment == 8
    assert rig.look.selected == real.traces[0].events.allocation[7]
    rig.look.x = None
    rig.click(rig.row(9), double=True)
    low, high = rig.look.x or (0.0, 1e9)
    assert rig.look.moment == 10
    assert low <= 10 <= high and high - low < 200


def test_a_click_on_a_block_selects_what_it_holds(rig: Rig, full: Snapshot) -> None:
    pane = rig.show(PANES["segments"](), full)
    pane.width = "full"
    rig.look.go(4)  # three allocations fill the segment
    rig.settle()
    assert (rig.found.moment, rig.found.reserved) == (4, 20 << 20)
    _, y = rig.row(0)
    found = []
    for x in range(WHOLE.x + 300, WHOLE.x + WHOLE.width - 30, 60):
        rig.click((x, y))
        found.append(rig.look.selected)
    assert {0, 1, 2} <= set(found) <= {0, 1, 2, None}
    order = [i for i in found if i is not None]
    assert order == sorted(order)


def test_details_can_be_copied_and_shown(rig: Rig, real: Snapshot) -> None:
    trace = real.traces[0]
    rig.show(PANES["details"](), real, Rect(900, 20, 340, 660))
    chosen = int(np.flatnonzero((trace.allocations.start > 0) & (trace.allocations.end < len(trace.events)))[0])
    rig.look.select(chosen)
    rig.settle()
    press(rig, "Copy")
    assert imgui.get_clipboard_text() == describe(real, trace, chosen).text()
    press(rig, "Begin")
    assert rig.look.moment == trace.allocations.start[chosen] + 1
    press(rig, "End")
    assert rig.look.moment == trace.allocations.end[chosen]
    press(rig, "Same stack")
    assert lit(rig) == np.flatnonzero(trace.allocations.stack == trace.allocations.stack[chosen]).tolist()
    rig.click((900 + 340 - 10 - 8, 20 + 9 + 12))
    assert rig.look.selected is None


@pytest.mark.parametrize("by", ["stack", "category"])
def test_a_row_lights_its_allocations_and_puts_them_out(rig: Rig, real: Snapshot, by: Any) -> None:
    pane = rig.show(PANES["stacks"](), real)
    pane.by = by
    rig.look.go(MOMENT)
    rig.settle()
    table = group(real, real.traces[0], live_mask(real.traces[0], MOMENT), by)
    rig.click(rig.row(1))
    assert lit(rig) == sorted(table.allocations(table[1].key).tolist())
    rig.click(rig.row(1))
    assert rig.look.lit is None


def test_the_flame_graph_zooms_lights_and_goes_back(rig: Rig, real: Snapshot) -> None:
    rig.show(PANES["stacks"](), real)
    trace = real.traces[0]
    graph = flame(real, trace, live_mask(trace, int(live_bytes(trace).argmax())))  # no moment was chosen: the peak
    child = 1
    rig.click(rig.box(child))
    assert trace.allocations.size[rig.look.lit].sum() == graph.width[child]
    zoomed = rig.pixels()
    rig.click(rig.box(child), button=1)
    rig.click(rig.box(0))
    assert rig.look.lit is None
    assert (rig.pixels() != zoomed).any()


def test_moments_are_compared(rig: Rig, real: Snapshot) -> None:
    rig.show(PANES["compare"](), real)
    trace = real.traces[0]
    live = live_bytes(trace)
    assert (rig.found.before, rig.found.after) == (live[0], live.max())  # from the beginning to the peak
    rig.look.mark(MOMENT)
    rig.look.mark(3000)
    rig.settle()
    assert rig.found.changes.sum() == live[MOMENT] - live[3000]
    rig.click(rig.row(0))
    found = compare((real, trace, 3000), (real, trace, MOMENT))
    assert lit(rig) == np.union1d(*found.allocations(found[0])).tolist()


def test_leaks_light_what_was_left_behind(rig: Rig, real: Snapshot) -> None:
    rig.show(PANES["leaks"](), real)
    suspects = leaks(real, real.traces[0])
    rig.click(rig.row(0))
    assert lit(rig) == sorted(suspects[0].ids.tolist())
    press(rig, "To the oldest")
    assert rig.look.moment == suspects[0].oldest + 1
    assert rig.look.selected in suspects[0].ids


def test_the_post_mortem_lights_holders_and_goes_there(rig: Rig, full: Snapshot) -> None:
    rig.show(PANES["oom"](), full)
    (oom,) = post_mortem(full, full.traces[0])
    assert oom.kind == "fragmentation"
    rig.click(rig.row(0))
    assert lit(rig) == oom.allocations(full.traces[0], oom.holders[0]).tolist()
    press(rig, "Go there")
    assert rig.look.moment == oom.event


@pytest.fixture
def sql(rig: Rig, real: Snapshot, tmp_path: Path) -> SqlPane:
    pane = rig.show(SqlPane(), real)
    pane.folder = tmp_path
    return pane


def ask(rig: Rig, pane: SqlPane, text: str) -> None:
    pane.text = text
    pane.run(rig.look)
    rig.settle()


def test_allocations_of_an_answer_are_lit(rig: Rig, sql: SqlPane, real: Snapshot) -> None:
    ask(rig, sql, "SELECT id, size FROM allocations WHERE size > 20000000")
    large = np.flatnonzero(real.traces[0].allocations.size > 20_000_000)
    assert len(rig.found.rows) == len(large)
    assert lit(rig) == large.tolist()
    assert rig.look.lit_by.startswith("SQL")
    ask(rig, sql, "SELECT 1 AS one")
    assert rig.look.lit is None  # the new answer names none


def test_a_click_on_a_row_goes_there_and_a_title_sorts(rig: Rig, sql: SqlPane, real: Snapshot) -> None:
    a = real.traces[0].allocations
    ask(rig, sql, "SELECT id FROM allocations WHERE start_event > 100 ORDER BY id DESC")
    chosen = [row[0] for row in rig.found.rows]
    rig.click(rig.row(2))
    assert rig.look.selected == chosen[2] and rig.look.moment == a.start[chosen[2]] + 1
    for order in (chosen, chosen[::-1], chosen):
        rig.click(rig.title())
        rig.click(rig.row(1))
        assert rig.look.selected == order[1]
    ask(rig, sql, "SELECT event FROM events ORDER BY event DESC LIMIT 5")
    rig.click(rig.row(1))
    assert rig.look.moment == len(real.traces[0].events) - 1
    ask(rig, sql, "SELECT stack_id, count(*) AS n FROM allocations WHERE stack_id >= 0 GROUP BY stack_id")
    rig.click(rig.row(0))
    assert lit(rig) == np.flatnonzero(a.stack == rig.found.rows[0][0]).tolist()


def test_a_fault_is_drawn_in_red(rig: Rig, sql: SqlPane) -> None:
    ask(rig, sql, "SELECT nope FROM allocations")
    image = rig.pixels()[WHOLE.y + 170: WHOLE.y + 300, WHOLE.x: WHOLE.x + 600].astype(int)
    assert ((image[..., 0] > 180) & (image[..., 2] < 140)).any()
    sql.text = "SELECT 42 AS answer"
    rig.click((WHOLE.x + 100, WHOLE.y + 40))
    io = imgui.get_io()
    for down in (True, False):
        io.add_key_event(imgui.Key.mod_ctrl, down)
        io.add_key_event(imgui.Key.enter, down)
        rig.frame()
    rig.settle()
    assert rig.found.rows == [(42,)]


def test_answers_are_saved_and_copied(rig: Rig, sql: SqlPane, tmp_path: Path) -> None:
    ask(rig, sql, "SELECT id, size, category FROM allocations ORDER BY id LIMIT 25")
    for _ in range(2):
        press(rig, "Save CSV")
    names = ["training_memory_snapshot query-2.csv", "training_memory_snapshot query.csv"]
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == names
    with (tmp_path / names[1]).open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [["id", "size", "category"], *([str(v) for v in row] for row in rig.found.rows)]
    sql.folder = tmp_path / "missing"
    press(rig, "Save CSV")
    assert len(list(tmp_path.glob("*.csv"))) == 2
    ask(rig, sql, "SELECT * FROM (VALUES (1, 'a\tb\nc'), (2, NULL)) AS t(n, word)")
    press(rig, "Copy")
    assert imgui.get_clipboard_text() == tabbed(rig.found) == "n\tword\n1\ta b c\n2\t\n"
    assert count_words(rig.found).startswith("2 rows, ")


def test_a_long_question_can_be_cancelled(rig: Rig, sql: SqlPane) -> None:
    ask(rig, sql, "SELECT 1")  # the database is open
    sql.text = "SELECT count(*) FROM range(100000000000) a, range(1000) b WHERE a.range % 7 = b.range"
    sql.run(rig.look)
    rig.frame()
    wait_until(lambda: rig.content.working)
    sql.cancel(rig.content)
    assert rig.content.wait(PATIENCE)
    ask(rig, sql, "SELECT 7 AS n")
    assert rig.found.rows == [(7,)]
