"""Panes of the view of memory snapshots react to clicks and keys of a user."""

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
from support.wait import PATIENCE_S

from splatview_viewer.core.events import Key, PointerMove, Wheel
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
    users: list[User] = []

    def make_user(snapshot: MemorySnapshot, tab: str, **state: Any) -> User:
        users.append(User(screen, snapshot, tab=tab, **state))
        return users[-1]

    yield make_user
    for opened in users:
        opened.close()


def test_panes_are_painted_and_accept_clicks_anywhere(
    user: Any, full: MemorySnapshot
) -> None:
    u = user(full, "timeline")
    for device, tab in itertools.product((0, 1), TABS):
        u.view.state = replace(u.state.for_device(device), tab=tab, selected=0)
        pixels = u.settle()[260:, :500]
        # A pane of texts has many colours, an empty one few.
        assert len(np.unique(pixels @ np.array([1, 256, 65536]))) > 20, tab
        u.do(*(PointerMove(60, y) for y in range(310, 600, 97)))
        u.click((60, 500))
        if u.state.hovered is not None:
            assert 0 <= u.state.hovered < len(u.view.trace.allocations)


def test_click_on_an_event_goes_there_and_double_click_zooms(
    user: Any, real: MemorySnapshot
) -> None:
    u = user(real, "events")
    u.press("events 7")
    assert u.state.moment == 8
    assert u.state.selected == real.traces[0].events.allocation[7]
    u.press("events 9", double=True)
    low, high = u.state.x or (0.0, 1e9)
    assert low <= u.state.moment == 10 <= high < low + 200
    # The table scrolls to a moment that is far away.
    u.view.choose_moment(EVENT_INDEX)
    u.settle()
    assert f"events {EVENT_INDEX - 1}" in widgets.drawn


def test_click_on_a_block_selects_its_allocation(
    user: Any, full: MemorySnapshot
) -> None:
    # Three allocations fill the segment.
    u = user(full, "segments", moment=4)
    segments = u.answer_of("segments")
    assert segments.moment == 4
    assert segments.reserved == 20 << 20
    row = widgets.drawn["segments 0"]
    selected_ids = []
    for x in range(row.x + 250, row.x + row.width - 30, 60):
        u.click((x, row.y + row.height / 2))
        selected_ids.append(u.state.selected)
        u.view.change(selected=None)
        u.settle()
    assert {0, 1, 2} <= set(selected_ids) <= {0, 1, 2, None}
    order = [i for i in selected_ids if i is not None]
    assert order == sorted(order)


def test_details_copy_and_show_an_allocation(user: Any, real: MemorySnapshot) -> None:
    trace = real.traces[0]
    starts_inside = trace.allocations.start > 0
    ends_inside = trace.allocations.end < len(trace.events)
    index = int(np.flatnonzero(starts_inside & ends_inside)[0])
    u = user(real, "timeline", selected=index)
    u.view.host.around = "none"
    u.press("Copy")
    assert imgui.get_clipboard_text() == describe(real, trace, index).text()
    u.press("Begin")
    assert u.state.moment == trace.allocations.start[index] + 1
    u.press("End")
    assert u.state.moment == trace.allocations.end[index]
    u.press("Same stack")
    stacks = trace.allocations.stack
    assert u.highlighted == np.flatnonzero(stacks == stacks[index]).tolist()
    u.press("no allocation")
    assert u.state.selected is None


def test_row_toggles_the_highlight_of_its_allocations(
    user: Any, real: MemorySnapshot
) -> None:
    u = user(real, "stacks", moment=EVENT_INDEX, choices=(("by", "category"),))
    trace = real.traces[0]
    is_live = live_mask(trace, EVENT_INDEX)
    table = group_allocations(real, trace, is_live, "category")
    u.press("table 1")
    assert u.highlighted == sorted(table.allocations(table[1].key).tolist())
    u.press("table 1")
    assert u.highlighted is None
    # This button sorts the rows by their count.
    u.press("Blocks")
    u.press("table 0")
    largest = table[int(table.counts.argmax())]
    assert u.highlighted == sorted(table.allocations(largest.key).tolist())


def test_flame_graph_zooms_highlights_and_goes_back(
    user: Any, real: MemorySnapshot
) -> None:
    u = user(real, "stacks")
    trace = real.traces[0]
    # Without a chosen moment the graph shows the peak.
    peak = int(live_bytes(trace).argmax())
    graph = flame_graph(real, trace, live_mask(trace, peak))
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
    u = user(real, "timeline", shows="both")
    trace = real.traces[0]
    live = live_bytes(trace)
    # Without marks the start and the peak are compared.
    assert u.answer_of("compare").bytes_before == live[0]
    assert u.answer_of("compare").bytes_after == live.max()
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
    # A second file fills B by itself.
    other_user = user(full, "timeline")
    u.view.change(highlight=None, line_up="peak", moment=None)
    u.settle()
    assert u.answer_of("compare").bytes_before == live.max()
    assert u.answer_of("compare").bytes_after == live_bytes(full.traces[0]).max()
    u.press("compare 0")
    ids = u.answer_of("compare").sides_of(0)[1]
    partner = u.view.two_runs.partner
    highlight = partner.state.highlight
    assert np.flatnonzero(highlight.mask).tolist() == ids.tolist()
    other_user.close()
    u.settle()
    assert u.answer_of("compare").bytes_before == live[3000]


def test_two_timelines_share_their_axis(
    user: Any, real: MemorySnapshot, full: MemorySnapshot
) -> None:
    other_user = user(full, "timeline")
    u = user(real, "timeline", shows="both")
    partner = u.view.two_runs.partner
    assert partner.content is other_user.view.content
    for line_up in ("start", "peak"):
        u.view.change(line_up=line_up, x=(100.0, 200.0))
        u.settle()
        shift = u.view.two_runs.shift(partner)
        assert shift is not None
        assert (shift != 0) == (line_up == "peak")
        assert partner.state.x == (100.0 + shift, 200.0 + shift)
    # The lower timeline is zoomed, and the upper one goes along.
    u.view.change(line_up="start", x=None)
    u.settle()
    u.do(PointerMove(300, 380), Wheel(300, 380, 3))
    assert u.state.x is not None
    assert u.state.x == partner.state.x
    u.view.change(tied_time=False)
    u.settle()
    u.do(Wheel(300, 380, 3))
    assert u.state.x != partner.state.x
    for shows in ("growth", "alone"):
        u.view.change(shows=shows)
        u.settle()
    assert u.view.two_runs.partner is None


def test_leaks_pane_highlights_leaked_allocations(
    user: Any, real: MemorySnapshot
) -> None:
    u = user(real, "leaks")
    suspects = find_leaks(real, real.traces[0])
    u.press("leaks 0")
    assert u.highlighted == sorted(suspects[0].ids.tolist())
    u.press("To the oldest")
    assert u.state.moment == suspects[0].oldest + 1
    assert u.state.selected in suspects[0].ids


def test_post_mortem_opens_first_and_highlights_holders(
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


def run_sql(u: User, text: str) -> Any:
    u.view.state = u.state.with_choice("sql", text)
    u.press("Run")
    return u.answer_of("sql")


def test_answer_highlights_its_allocations_and_click_goes_there(
    sql: User, real: MemorySnapshot
) -> None:
    a = real.traces[0].allocations
    rows = run_sql(
        sql,
        "SELECT id FROM allocations WHERE size > 20000000 AND start_event > 100 ORDER "
        "BY id DESC",
    ).rows
    ids = [row[0] for row in rows]
    expected = np.flatnonzero((a.size > 20_000_000) & (a.start > 100)).tolist()
    assert sql.highlighted == ids[::-1] == expected
    sql.press("rows id 2")
    assert sql.state.selected == ids[2]
    assert sql.state.moment == a.start[ids[2]] + 1
    for order in (ids, ids[::-1], ids):
        sql.press("id")
        sql.press("rows id 1")
        assert sql.state.selected == order[1]
    answer = run_sql(
        sql,
        "SELECT stack_id, count(*) AS n FROM allocations WHERE stack_id >= 0 GROUP BY "
        "stack_id",
    )
    # The new answer names no allocations.
    assert sql.highlighted is None
    sql.press("rows stack_id n 0")
    stack_id, _ = answer.rows[0]
    assert sql.highlighted == np.flatnonzero(a.stack == stack_id).tolist()


def test_values_of_millions_of_letters_take_no_drawing_memory(sql: User) -> None:
    """Only as much of a text is looked at as a tooltip holds.

    The same is true of lists and structs of texts.
    """
    run_sql(
        sql,
        "SELECT repeat('a b ', 1000000) AS t, list(range::VARCHAR) AS l, "
        "{'x': repeat('c d ', 1000000)} AS s FROM range(100000)",
    )
    tracemalloc.start()
    sql.draw()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_fault_is_shown_and_ctrl_enter_runs_the_query(sql: User) -> None:
    sql.view.state = sql.state.with_choice("sql", "SELECT nope FROM allocations")
    sql.press("Run")
    assert "nope" in sql.view.content.fault(("sql", "SELECT nope FROM allocations"))
    sql.view.state = sql.state.with_choice("sql", "SELECT 42 AS answer")
    sql.press("sql")
    sql.do(Key("enter", mods=frozenset({"ctrl"})))
    sql.settle()
    assert sql.answer_of("sql").rows == [(42,)]


def test_copy_button_copies_an_answer_as_csv(sql: User) -> None:
    answer = run_sql(
        sql, "SELECT id, size, category FROM allocations ORDER BY id LIMIT 25"
    )
    sql.press("Copy")
    rows = list(csv.reader(imgui.get_clipboard_text().splitlines()))
    assert rows == [
        ["id", "size", "category"],
        *([str(v) for v in row] for row in answer.rows),
    ]


def test_cancel_button_ends_a_long_query(sql: User) -> None:
    # The first query opens the database.
    run_sql(sql, "SELECT 1")
    sql.view.state = sql.state.with_choice(
        "sql",
        "SELECT count(*) FROM range(100000000000) a, range(1000) b WHERE a.range % 7 = "
        "b.range",
    )
    run_query(sql.view)
    for _ in range(2):
        sql.draw()
    assert sql.view.content.busy
    sql.click(widgets.middle("Cancel"))
    assert sql.view.content.wait(PATIENCE_S)
    assert run_sql(sql, "SELECT 7 AS n").rows == [(7,)]
