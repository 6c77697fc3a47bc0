"""Panes of the view of memory snapshots, drawn without a screen over a real snapshot, and used as a person would."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from imgui_bundle import imgui
from support.repetitions import exhaustive
from support.snapshot_panes_rig import (  # noqa: F401
    GROUND,
    MOMENT,
    WHOLE,
    Rig,
    full_fixture,
    press,
    real_fixture,
    rig_fixture,
)

from splatview.viewer_app.controls import Rect
from splatview.viewer_app.memory.analysis import describe, segments_at
from splatview.viewer_app.memory.model import ACTIONS
from splatview.viewer_app.views._snapshot.panes._grid import Column, Grid, Rows, fitting
from splatview.viewer_app.views._snapshot.panes.about import AboutPane, settings_facts, snapshot_facts, trace_facts
from splatview.viewer_app.views._snapshot.panes.details import DetailsPane
from splatview.viewer_app.views._snapshot.panes.events import EventsPane, events_of
from splatview.viewer_app.views._snapshot.panes.segments import SegmentsPane, _parts
from splatview.viewer_app.views._snapshot.panes.stacks import StacksPane

if TYPE_CHECKING:
    from splatview.viewer_app.memory.model import Snapshot

pytestmark = pytest.mark.usefixtures("timeline_kernels")

PANES = {"events": "EventsPane", "stacks": "StacksPane", "segments": "SegmentsPane", "compare": "ComparePane",
         "leaks": "LeaksPane", "oom": "OomPane", "sql": "SqlPane", "about": "AboutPane", "details": "DetailsPane"}


def make(name: str) -> Any:
    return getattr(import_module(f"splatview.viewer_app.views._snapshot.panes.{name}"), PANES[name])()


# -- every pane ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PANES)
@pytest.mark.parametrize(("rect", "scale"), [exhaustive(WHOLE, 1.0), (Rect(300, 200, 400, 300), 1.0),
                                             exhaustive(Rect(0, 0, 90, 40), 1.0),
                                             exhaustive(Rect(100, 50, 1100, 600), 2.0)])
def test_draws_its_rectangle_alone_and_comes_to_rest(rig: Rig, real: Snapshot, name: str, rect: Rect,
                                                     scale: float) -> None:
    rig.show(make(name), real, rect, scale)
    rig.look.select(100)
    rig.settle()
    pixels = rig.pixels()
    inside = np.zeros(pixels.shape[:2], bool)
    inside[rect.y: rect.y + rect.height, rect.x: rect.x + rect.width] = True
    drawn = (pixels != GROUND).any(-1)
    assert drawn[inside].all()
    assert not drawn[~inside].any()
    if rect.width > 300:
        assert len(np.unique(pixels[inside] @ np.array([1, 256, 65536]))) > 20  # words, not a ground alone


@pytest.mark.parametrize("name", PANES)
def test_pointer_and_clicks_anywhere_do_no_harm(rig: Rig, full: Snapshot, name: str) -> None:
    rig.show(make(name), full)
    rig.look.select(0)
    for device in (0, 1, 0):
        rig.look.show_device(device)
        rig.settle()
        for y in range(WHOLE.y + 5, WHOLE.y + WHOLE.height, 47):
            for x in range(WHOLE.x + 5, WHOLE.x + WHOLE.width, 313):
                rig.move(x, y)
        rig.click((WHOLE.x + 60, WHOLE.y + 200))
    trace = rig.content.trace(rig.look)
    assert rig.look.hovered is None or 0 <= rig.look.hovered < len(trace.allocations)


def test_what_is_not_hovered_any_more_is_let_go(rig: Rig, real: Snapshot) -> None:
    pane = rig.show(EventsPane(), real)
    rig.move(*pane._grid.middle(4))
    assert rig.look.hovered == real.traces[0].events.allocation[4]
    rig.move(WHOLE.x + 20, WHOLE.y + 12)
    assert rig.look.hovered is None


# -- a table ---------------------------------------------------------------------------------------------------------


class Table:
    """A table of ten million rows as a pane."""

    def __init__(self, columns: int = 1) -> None:
        self.grid, self.seen, self.touch = Grid(), [], None
        self.columns = [Column(f"c{i}", 20) for i in range(columns)]

    def draw(self, content: Any, look: Any, rect: Rect, scale: float) -> bool:
        from splatview.viewer_app.views._snapshot.panes._pane import pane

        self.seen = []

        def cells(row: int) -> list[str]:
            self.seen.append(row)
            return [f"{row}"] * len(self.columns)

        with pane(self, "table", rect, scale):
            touch = self.grid.draw("t", self.columns, Rows(10_000_000, cells, wide=True), scale)
            if touch.row is not None:
                self.touch = touch
            return touch.any


def test_only_rows_in_sight_are_asked_for_and_each_can_be_reached(rig: Rig, real: Snapshot) -> None:
    table = rig.show(Table(), real)
    assert table.seen[0] == 0 and len(table.seen) < 60
    table.grid.reveal(7_654_321)
    rig.settle()
    assert 7_654_321 in table.seen
    rig.click(table.grid.middle(7_654_321))
    assert table.touch.row == 7_654_321  # no row is off by one, however far down
    right = WHOLE.x + WHOLE.width - 16
    rig.drag((right, rig.pane.grid.place[1] + 5), (right, 3000))
    assert rig.pane.seen[-1] == 9_999_999 or 9_999_999 in rig.pane.seen


def test_wheel_and_scroll_bars(rig: Rig, real: Snapshot) -> None:
    table = rig.show(Table(9), real)
    rig.wheel(table.grid.middle(3), -2)
    assert table.grid.top == 6
    rig.wheel(table.grid.middle(9), 50)
    assert table.grid.top == 0
    bottom = WHOLE.y + WHOLE.height - 13
    rig.drag((WHOLE.x + 30, bottom), (3000, bottom))
    width = 9 * 20 * imgui.get_font_size()
    assert table.grid.left == pytest.approx(width - (WHOLE.width - 24 - 12), abs=2)
    assert table.touch is None  # dragging a bar chooses no row


# -- events ------------------------------------------------------------------------------------------------------------


def test_a_click_on_an_event_goes_there(rig: Rig, real: Snapshot) -> None:
    pane = rig.show(EventsPane(), real)
    rig.look.x = (10_000.0, 11_000.0)
    rig.click(pane._grid.middle(7))
    event = int(pane._grid.top) + 7
    assert rig.look.moment == event + 1
    assert rig.look.selected == real.traces[0].events.allocation[event]
    low, high = rig.look.x
    assert low <= event + 1 <= high and high - low == pytest.approx(1000)


def test_a_double_click_on_an_event_looks_closer(rig: Rig, real: Snapshot) -> None:
    pane = rig.show(EventsPane(), real)
    assert rig.look.x is None
    rig.click(pane._grid.middle(7), double=True)
    look = rig.look
    assert look.x is not None and look.moment is not None
    low, high = look.x
    assert low <= look.moment <= high and high - low < 200


def test_the_list_follows_the_moment(rig: Rig, real: Snapshot) -> None:
    pane = rig.show(EventsPane(), real)
    rig.look.go(MOMENT)
    rig.settle()
    assert pane._grid.top < MOMENT - 1 < pane._grid.top + 40
    pane.show = "segment"
    rig.settle()
    which = events_of(real.traces[0], "segment", None)
    assert pane._grid.top <= min(np.searchsorted(which, MOMENT - 1), len(which)) <= pane._grid.top + 40


@pytest.mark.parametrize("show", ["all", "alloc", "free", "segment", "mark"])
def test_events_of_a_kind(full: Snapshot, show: str) -> None:
    trace = full.traces[0]
    said = [ACTIONS[a] for a in trace.events.action]
    kinds = {"all": "", "alloc": "alloc", "free": "free", "segment": "segment", "mark": "oom"}
    assert events_of(trace, show, None).tolist() == [i for i, a in enumerate(said) if a.startswith(kinds[show])]
    mask = np.zeros(len(trace.allocations), bool)
    mask[1] = True
    assert events_of(trace, show, mask).tolist() == [
        i for i, a in enumerate(said) if a.startswith(kinds[show]) and trace.events.allocation[i] == 1]


def test_columns_give_way(rig: Rig, real: Snapshot) -> None:
    columns = [Column("a", 5), Column("b", 5, gives=1), Column("c", 0), Column("d", 5, gives=2)]
    assert [[c.title for c in fitting(columns, width)] for width in (100, 25, 20, 1)] == [
        ["a", "b", "c", "d"], ["a", "b", "c"], ["a", "c"], ["a", "c"]]
    pane = rig.show(StacksPane(), real, Rect(0, 0, 360, 600))
    pane._sorted = 3
    rig.settle()
    rig.click((pane._grid.place[0] + 300, pane._grid.place[1] - 8))  # the last title that is left
    assert pane._sorted == 1


# -- segments --------------------------------------------------------------------------------------------------------


def test_segments_are_those_of_the_moment(rig: Rig, real: Snapshot) -> None:
    pane = rig.show(SegmentsPane(), real)
    for moment in (MOMENT, 1, len(real.traces[0].events)):
        rig.look.go(moment)
        rig.settle()
        at = segments_at(real, real.traces[0], moment)
        assert pane._shown.moment == moment and pane._shown.reserved == at.reserved


@pytest.mark.parametrize("width", ["scale", "full"])
def test_a_click_on_a_block_selects_what_it_holds(rig: Rig, full: Snapshot, width: str) -> None:
    pane = rig.show(SegmentsPane(), full)
    pane.width = width
    rig.settle()
    at = pane._shown
    (parts,) = pane._parts.values()
    x = WHOLE.x + WHOLE.width - 12 - 12 - parts[-1].x1
    _, y = pane._grid.middle(0)
    held = {int(at.block_allocation[p.block]) for p in parts} - {-1}
    assert held
    for part in parts:
        rig.look.select(None)
        rig.click((x + (part.x0 + part.x1) / 2, y))
        allocation = int(at.block_allocation[part.block])
        assert rig.look.selected == (allocation if allocation >= 0 else None)


def test_a_segments_bar_tells_of_every_block(real: Snapshot) -> None:
    at = segments_at(real, real.traces[0], MOMENT)
    many = int(np.argmax(np.diff(at.block_start)))
    first, last = int(at.block_start[many]), int(at.block_start[many + 1])
    wide = _parts(at, many, 1e6, None, None)
    assert [p.block for p in wide] == list(range(first, last))
    assert wide[0].x0 == 0 and wide[-1].x1 == pytest.approx(1e6)
    narrow = _parts(at, many, 5.0, None, None)
    assert len(narrow) <= 10 and min(p.x0 for p in narrow) < 1 and max(p.x1 for p in narrow) >= 4


# -- details and about -------------------------------------------------------------------------------------------------


def test_details_can_be_copied_and_shown(rig: Rig, real: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = real.traces[0]
    rig.show(DetailsPane(), real, Rect(900, 20, 340, 660))
    chosen = int(np.flatnonzero((trace.allocations.start > 0) & (trace.allocations.end < len(trace.events)))[0])
    rig.look.select(chosen)
    rig.settle()
    press(monkeypatch, rig, "Copy")
    assert imgui.get_clipboard_text() == describe(real, trace, chosen).text()
    press(monkeypatch, rig, "Begin")
    assert rig.look.moment == trace.allocations.start[chosen] + 1
    press(monkeypatch, rig, "End")
    assert rig.look.moment == trace.allocations.end[chosen]
    press(monkeypatch, rig, "Same stack")
    assert rig.look.lit is not None
    assert (np.flatnonzero(rig.look.lit) == np.flatnonzero(
        trace.allocations.stack == trace.allocations.stack[chosen])).all()
    rig.click((900 + 340 - 10 - 8, 20 + 9 + 12))
    assert rig.look.selected is None


def test_about_tells_everything(rig: Rig, full: Snapshot, real: Snapshot) -> None:
    rig.show(AboutPane(), full)
    assert dict(settings_facts(full.settings)) == {"expandable_segments": "no", "max_split_size": "no limit",
                                                   "roundup.2": "4"}
    facts = dict(trace_facts(full, full.traces[0]))
    assert facts["Events"] == "9" and "20.0 MiB reserved in 1 segment" in facts["At the end"]
    assert dict(snapshot_facts(real))["File"] == "training_memory_snapshot.pickle"
