"""Panes of the view of memory snapshots, over a real snapshot, used as a person would."""

from __future__ import annotations

import csv
import itertools
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from imgui_bundle import imgui
from support import widgets
from support.snapshot_cases import EVENT_INDEX, User
from support.wait import PATIENCE

from splatview_viewer.core.events import Key, PointerMove
from splatview_viewer.kinds.snapshot.panes.sql import run_query
from splatview_viewer.kinds.snapshot.state import TABS
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.snapshot.analysis.details import describe
from splatview_viewer.snapshot.analysis.flame import flame_graph
from splatview_viewer.snapshot.analysis.leaks import find_leaks
from splatview_viewer.snapshot.analysis.oom import explain_oom
from splatview_viewer.snapshot.analysis.tables import compare_moments, group_allocations
from splatview_viewer.snapshot.model import MemorySnapshot, live_bytes, live_mask

pytestmark = pytest.mark.usefixtures("timeline_kernels")


@pytest.fixture
def user(screen: OffscreenScreen) -> Iterator[Callable[..., User]]:
    made: list[User] = []

    def make(snapshot: MemorySnapshot, tab: str, **state: Any) -> User:
        made.append(User(screen, snapshot, tab=tab, **state))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_panes_show_something_and_take_clicks_anywhere(
    user: Any, full: MemorySnapshot
) -> None:
    u = user(full, "timeline")
    for device, tab in itertools.product((0, 1), TABS):
        u.view.state = replace(u.state.for_device(device), tab=tab, selected=0)
        pixels = u.settle()[260:, :500]
        assert len(np.unique(pixels @ np.array([1, 256, 65536]))) > 20, (
            tab
        )  # words, not a ground alone
        u.do(*(PointerMove(60, y) for y in range(310, 600, 97)))
        u.click((60, 500))
        assert u.state.hovered is None or 0 <= u.state.hovered < len(
            u.view.trace.allocations
        )


def test_a_click_on_an_event_goes_there_and_a_double_click_looks_closer(
    user: Any, real: MemorySnapshot
) -> None:
    u = user(real, "events")
    u.press("events 7")
    assert (u.state.moment, u.state.selected) == (
        8,
        real.traces[0].events.allocation[7],
    )
    u.press("events 9", double=True)
    low, high = u.state.x or (0.0, 1e9)
    assert low <= u.state.moment == 10 <= high < low + 200
    u.view.choose_moment(EVENT_INDEX)  # far away: the table goes there
    u.settle()
    assert f"events {EVENT_INDEX - 1}" in widgets.drawn


def test_a_click_on_a_block_selects_what_it_holds(
    user: Any, full: MemorySnapshot
) -> None:
    u = user(full, "segments", moment=4)  # three allocations fill the segment
    at = u.answer_of("segments")
    assert (at.moment, at.reserved) == (4, 20 << 20)
    row = widgets.drawn["segments 0"]
    found = []
    for x in range(row.x + 250, row.x + row.width - 30, 60):
        u.click((x, row.y + row.height / 2))
        found.append(u.state.selected)
        u.view.change(selected=None)
        u.settle()
    assert {0, 1, 2} <= set(found) <= {0, 1, 2, None}
    order = [i for i in found if i is not None]
    assert order == sorted(order)


def test_details_can_be_copied_and_shown(user: Any, real: MemorySnapshot) -> None:
    trace = real.traces[0]
    chosen = int(
        np.flatnonzero(
            (trace.allocations.start > 0) & (trace.allocations.end < len(trace.events))
        )[0]
    )
    u = user(real, "timeline", selected=chosen)
    u.press("Copy")
    assert imgui.get_clipboard_text() == describe(real, trace, chosen).text()
    u.press("Begin")
    assert u.state.moment == trace.allocations.start[chosen] + 1
    u.press("End")
    assert u.state.moment == trace.allocations.end[chosen]
    u.press("Same stack")
    assert (
        u.highlighted
        == np.flatnonzero(
            trace.allocations.stack == trace.allocations.stack[chosen]
        ).tolist()
    )
    u.press("\u00d7")
    assert u.state.selected is None


def test_a_row_lights_its_allocations_and_puts_them_out(
    user: Any, real: MemorySnapshot
) -> None:
    u = user(real, "stacks", moment=EVENT_INDEX, choices=(("by", "category"),))
    table = group_allocations(
        real, real.traces[0], live_mask(real.traces[0], EVENT_INDEX), "category"
    )
    u.press("table 1")
    assert u.highlighted == sorted(table.allocations(table[1].key).tolist())
    u.press("table 1")
    assert u.highlighted is None
    u.press("Blocks")  # sorted by their number
    u.press("table 0")
    assert u.highlighted == sorted(
        table.allocations(table[int(table.counts.argmax())].key).tolist()
    )


def test_the_flame_graph_zooms_lights_and_goes_back(
    user: Any, real: MemorySnapshot
) -> None:
    u = user(real, "stacks")
    trace = real.traces[0]
    graph = flame_graph(
        real, trace, live_mask(trace, int(live_bytes(trace).argmax()))
    )  # no moment was chosen: the peak
    u.click(u.box(1))
    assert trace.allocations.size[u.highlighted].sum() == graph.width[1]
    zoomed = u.settle()
    u.click(u.box(1), button="right")
    u.click(u.box(0))
    assert u.highlighted is None
    assert (u.settle() != zoomed).any()


def test_moments_and_snapshots_are_compared(
    user: Any, real: MemorySnapshot, full: MemorySnapshot
) -> None:
    other = user(full, "timeline")
    u = user(real, "compare")
    trace = real.traces[0]
    live = live_bytes(trace)
    assert (
        u.answer_of("compare").bytes_before,
        u.answer_of("compare").bytes_after,
    ) == (
        live[0],
        live.max(),
    )  # up to the peak
    u.view.state = u.state.with_mark(EVENT_INDEX).with_mark(3000)
    u.settle()
    assert u.answer_of("compare").changes.sum() == live[EVENT_INDEX] - live[3000]
    u.press("compare 0")
    assert (
        u.highlighted
        == compare_moments((real, trace, 3000), (real, trace, EVENT_INDEX))
        .allocations(0)
        .tolist()
    )
    u.view.state = u.state.with_choice("with", full.name)
    u.settle()
    assert u.answer_of("compare").bytes_before == live_bytes(full.traces[0]).max()
    other.close()
    u.settle()
    assert u.answer_of("compare").bytes_before == live[3000]


def test_leaks_light_what_was_left_behind(user: Any, real: MemorySnapshot) -> None:
    u = user(real, "leaks")
    suspects = find_leaks(real, real.traces[0])
    u.press("leaks 0")
    assert u.highlighted == sorted(suspects[0].ids.tolist())
    u.press("To the oldest")
    assert u.state.moment == suspects[0].oldest + 1
    assert u.state.selected in suspects[0].ids


def test_the_post_mortem_is_seen_first_lights_holders_and_goes_there(
    user: Any, full: MemorySnapshot
) -> None:
    u = user(full, "")
    trace = full.traces[0]
    oom = explain_oom(full, trace, len(trace.events) - 1)
    assert u.view.tab == "oom"
    assert oom.verdict.startswith("Fragmentation")
    u.press("oom 0")
    assert u.highlighted == oom.holders.allocations(oom.holders[0].key).tolist()
    u.press("Go there")
    assert u.state.moment == oom.event


@pytest.fixture
def sql(user: Any, real: MemorySnapshot) -> User:
    return user(real, "sql")


def ask(u: User, text: str) -> Any:
    u.view.state = u.state.with_choice("sql", text)
    u.press("Run")
    return u.answer_of("sql")


def test_an_answer_lights_its_allocations_and_a_click_goes_there(
    sql: User, real: MemorySnapshot
) -> None:
    a = real.traces[0].allocations
    rows = ask(
        sql,
        "SELECT id FROM allocations WHERE size > 20000000 AND start_event > 100 ORDER BY id DESC",
    ).rows
    chosen = [row[0] for row in rows]
    assert (
        sql.highlighted
        == chosen[::-1]
        == np.flatnonzero((a.size > 20_000_000) & (a.start > 100)).tolist()
    )
    sql.press("rows id 2")
    assert sql.state.selected == chosen[2]
    assert sql.state.moment == a.start[chosen[2]] + 1
    for order in (chosen, chosen[::-1], chosen):
        sql.press("id")
        sql.press("rows id 1")
        assert sql.state.selected == order[1]
    found = ask(
        sql,
        "SELECT stack_id, count(*) AS n FROM allocations WHERE stack_id >= 0 GROUP BY stack_id",
    )
    assert sql.highlighted is None  # the new answer names none
    sql.press("rows stack_id n 0")
    assert sql.highlighted == np.flatnonzero(a.stack == found.rows[0][0]).tolist()


def test_values_of_millions_of_letters_cost_a_picture_nothing(sql: User) -> None:
    """Of texts, and of lists and structs of them, no more than a tooltip holds is looked at."""
    ask(
        sql,
        "SELECT repeat('a b ', 1000000) AS t, list(range::VARCHAR) AS l, "
        "{'x': repeat('c d ', 1000000)} AS s FROM range(100000)",
    )
    tracemalloc.start()
    sql.draw()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_a_fault_is_seen_and_ctrl_enter_asks_again(sql: User) -> None:
    sql.view.state = sql.state.with_choice("sql", "SELECT nope FROM allocations")
    sql.press("Run")
    assert "nope" in sql.view.content.fault(("sql", "SELECT nope FROM allocations"))
    sql.view.state = sql.state.with_choice("sql", "SELECT 42 AS answer")
    sql.press("sql")
    sql.do(Key("enter", mods=frozenset({"ctrl"})))
    sql.settle()
    assert sql.answer_of("sql").rows == [(42,)]


def test_answers_are_copied(sql: User) -> None:
    found = ask(sql, "SELECT id, size, category FROM allocations ORDER BY id LIMIT 25")
    sql.press("Copy")
    rows = list(csv.reader(imgui.get_clipboard_text().splitlines()))
    assert rows == [
        ["id", "size", "category"],
        *([str(v) for v in row] for row in found.rows),
    ]


def test_a_long_question_can_be_cancelled(sql: User) -> None:
    ask(sql, "SELECT 1")  # the database is open
    sql.view.state = sql.state.with_choice(
        "sql",
        "SELECT count(*) FROM range(100000000000) a, range(1000) b WHERE a.range % 7 = b.range",
    )
    run_query(sql.view)
    for _ in range(2):
        sql.draw()
    assert sql.view.content.busy
    sql.click(widgets.middle("Cancel"))
    assert sql.view.content.wait(PATIENCE)
    assert ask(sql, "SELECT 7 AS n").rows == [(7,)]
