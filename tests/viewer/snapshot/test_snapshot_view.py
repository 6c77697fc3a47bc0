"""The view of memory snapshots paints, reacts to events and lays out its panes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from support.memory_data import event, small_snapshot, snapshot
from support.snapshot_cases import User
from support.wait import PATIENCE_S

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import (
    Key,
    Mods,
    PointerMove,
    PointerPress,
    PointerRelease,
    Text,
    Wheel,
)
from splatview_viewer.core.host import Host
from splatview_viewer.core.screen import Rect
from splatview_viewer.kinds.snapshot.captions import missing_caption
from splatview_viewer.kinds.snapshot.content import Content
from splatview_viewer.kinds.snapshot.state import TABS, SnapshotState
from splatview_viewer.kinds.snapshot.view import SnapshotView
from splatview_viewer.kinds.snapshot.world import lay_out
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.snapshot.analysis.annotations import annotated_ranges
from splatview_viewer.snapshot.analysis.search import search
from splatview_viewer.snapshot.loading import from_pickled
from splatview_viewer.snapshot.model import Annotation

pytestmark = pytest.mark.usefixtures("timeline_kernels")

RECT = Rect(0, 0, 180, 120)


@pytest.fixture
def user(screen: OffscreenScreen) -> Iterator[User]:
    opened = User(screen, small_snapshot(0, 400), (1000, 500), legend=False)
    yield opened
    opened.close()


def test_only_selected_and_hovered_allocations_are_brightened(user: User) -> None:
    picture = user.view.picture
    painted = picture.current
    assert painted is not None
    assert picture.texture is not None
    ids, counts = np.unique(painted.ids[painted.ids >= 0], return_counts=True)
    most_painted = int(ids[counts.argmax()])
    for lifted in ((most_painted, None), (None, most_painted), (None, None)):
        picture.brighten(*lifted)
        texture = np.frombuffer(picture.texture.read(), np.uint32)
        is_changed = texture.reshape(painted.ids.shape) != painted.pixels
        expected = (painted.ids == most_painted) & (lifted != (None, None))
        np.testing.assert_array_equal(is_changed, expected)


@pytest.mark.parametrize(
    ("events", "tab", "message"),
    [
        ([event("alloc", 1 << 20)], "addresses", "names no segments"),
        ([event("alloc", 1 << 20)], "timeline", ""),
        ([event("segment_alloc", 1 << 20)], "addresses", ""),
        ([event("snapshot", 0, 0)], "addresses", "Nothing was allocated"),
        ([event("snapshot", 0, 0)], "timeline", "Nothing was allocated"),
    ],
)
def test_plot_names_what_a_snapshot_lacks(
    events: list[Any], tab: str, message: str, screen: OffscreenScreen
) -> None:
    user = User(screen, from_pickled(snapshot(events)), legend=False, tab=tab)
    caption = missing_caption(user.view)
    assert message in caption
    assert bool(caption) == bool(message)
    corner = user.settle()[55:85, 60:400]
    user.close()
    has_white_letters = (corner.min(axis=2) > 180).any()
    assert has_white_letters == bool(message)


def test_wheel_zooms_around_the_pointer(user: User) -> None:
    def window() -> tuple[tuple[float, float], tuple[float, float]]:
        world = user.view.world()
        assert world is not None
        return world.window(user.state)

    user.do(PointerMove(300, 250))
    for dy in (1, 2, 3, -1, 4):
        pointer = user.view.pointer
        previous = window()
        user.do(Wheel(300, 250, dy))
        assert user.view.pointer == pytest.approx(pointer, rel=0.02)
        for (a, b), (c, d) in zip(previous, window(), strict=True):
            assert d - c == pytest.approx((b - a) / 1.2**dy, rel=0.01)
    cases: tuple[tuple[Mods, tuple[bool, bool]], ...] = (
        (frozenset({"shift"}), (True, False)),
        (frozenset({"ctrl"}), (False, True)),
    )
    for mods, changes in cases:
        previous = window()
        name = next(iter(mods))
        user.do(
            Key(name, mods=mods),
            Wheel(300, 250, 1, mods=mods),
            Key(name, pressed=False),
        )
        x, y = previous
        new_x, new_y = window()
        assert (x != new_x, y != new_y) == changes


def test_drag_moves_the_plot_and_selects_nothing(user: User) -> None:
    user.do(PointerMove(300, 250), Wheel(300, 250, 4))
    x = user.state.x
    y = user.view.pointer
    user.do(
        PointerPress(300, 250),
        PointerMove(290, 245),
        PointerMove(250, 240),
        PointerRelease(250, 240),
    )
    user.settle()
    assert user.state.x != x
    assert user.view.pointer == pytest.approx(y, rel=0.01)
    assert user.state.selected is None


def test_click_selects_and_double_click_shows_all(
    user: User,
) -> None:
    for point in ((300, 350), (500, 360), (400, 80)):
        user.do(PointerMove(*point))
        event_index = user.state.pointed_moment
        assert event_index is not None
        assert user.view.info().readout.startswith(f"{event_index:,} ")
        byte = user.view.pointer[1]
        a = user.view.trace.allocations
        live = np.flatnonzero((a.start < event_index) & (event_index <= a.end))
        candidates = live[np.searchsorted(np.cumsum(a.size[live]), byte, "right") :]
        is_on_allocation = len(candidates) and byte >= 0
        expected = candidates[0] if is_on_allocation else None
        user.click(point)
        assert user.state.moment == event_index
        assert user.state.selected == expected
        user.view.change(selected=None)
        user.settle()
    user.do(Wheel(300, 350, 3))
    assert user.state.x is not None
    user.click((300, 350), double=True)
    assert user.state.x is user.state.y is user.state.selected is None
    user.do(PointerMove(5, 5))
    assert user.state.hovered is user.state.pointed_moment is None
    assert user.view.info().readout == ""


def test_minimap_moves_the_window(user: User) -> None:
    # Without a time area, which has it as a rule.
    user.view.host = Host(around="none")
    user.settle()
    user.do(PointerMove(500, 300), Wheel(500, 300, 5))
    first = user.state.x
    assert first is not None
    user.do(PointerPress(500, 470), PointerMove(200, 475))
    dragged = user.state.x
    user.do(PointerRelease(200, 475), PointerMove(600, 470))
    assert dragged is not None
    assert dragged[0] < first[0]
    assert user.state.x == dragged


def test_keys_move_the_window_and_set_marks(user: User) -> None:
    view = user.view

    def press(name: str, **options: Any) -> SnapshotState:
        user.do(Key(name, **options))
        return view.state

    first = press("e").x
    assert first is not None
    assert press("d").x != first
    assert press("a").x == pytest.approx(first)
    assert press("w").y != press("s").y
    assert (press("home").x or (1,))[0] == 0
    assert press("f") == SnapshotState(legend=False)
    for event_index, marks in ((70, (70, None)), (20, (20, 70)), (30, (30, None))):
        view.choose_moment(event_index)
        assert press("m").marks == marks
    assert press("2").tab == "addresses"
    unchanged = view.state
    assert press("x") == unchanged
    assert press("f", mods=frozenset({"ctrl"})) == unchanged
    assert press("e", pressed=False) == unchanged
    assert press("escape").marks == (None, None)
    assert press("escape").moment is None


def test_content_answers_only_the_newest_request_and_none_after_closing() -> None:
    content = Content(small_snapshot(0))
    has_started = threading.Event()
    may_finish = threading.Event()
    done: list[Any] = []

    def answer_first() -> bool:
        has_started.set()
        return may_finish.wait(PATIENCE_S)

    def answer(name: Any) -> Any:
        done.append(name)
        return name

    content.request(("s", "first"), answer_first, newest=True)
    assert has_started.wait(PATIENCE_S)
    for k in range(20):
        content.request(("s", k), partial(answer, k), newest=True)
    content.request(("other",), partial(answer, "other"))
    may_finish.set()
    assert content.wait(PATIENCE_S)
    assert done == [19, "other"]
    content.close()
    assert content.request(("after",), partial(answer, "after")) is None
    assert content.wait(PATIENCE_S)
    assert "after" not in done


def test_panes_do_not_overlap_and_stay_inside() -> None:
    for scale, details, tab in itertools.product((1.0, 2.0), (False, True), TABS):
        for width, height in ((1000, 694), (390, 514), (260, 180), (64, 48), (1, 1)):
            rect = Rect(11, 7, round(width * scale), round(height * scale))
            layout = lay_out(rect, scale, tab, details=details)
            cover = np.zeros((rect.height + 20, rect.width + 20), np.int8)
            for r in vars(layout).values():
                if r is not None:
                    assert r.width > 0
                    assert r.height > 0
                    cover[r.y : r.y + r.height, r.x : r.x + r.width] += 1
            assert cover.max() == 1, (tab, details, width, height)
            cover[rect.y : rect.y + rect.height, rect.x : rect.x + rect.width] = 0
            assert not cover.any(), (tab, details, width, height)


def test_search_highlights_its_hits(user: User) -> None:
    user.do(Key("slash"))
    user.draw()
    assert user.panel.is_typing
    user.do(Text("step_3"))
    pixels = user.settle()
    snapshot = small_snapshot(0, 400)
    want = search(snapshot, snapshot.traces[0], "step_3").mask
    assert 0 < want.sum() < len(want)
    assert user.highlighted == np.flatnonzero(want).tolist()
    user.do(Key("escape"))
    user.view.change(search="")
    assert (user.settle() != pixels).any()
    assert user.highlighted is None


def test_annotations_and_marks_change_the_picture(screen: OffscreenScreen) -> None:
    base = small_snapshot(0, 200)
    times = base.traces[0].events.time_us
    annotations = (
        Annotation("step", "START", 0, int(times[50])),
        Annotation("step", "END", 0, int(times[150])),
    )
    user = User(screen, replace(base, annotations=annotations))
    ranges = annotated_ranges(user.view.content.snapshot, user.view.trace)
    assert ranges.names == ["step"]
    assert ranges.moments[:, 0] == pytest.approx((51, 151), abs=2)
    pictures = [user.settle()]
    for changes in ({"marks": (90, None)}, {"moment": 120}, {"unit": "time"}):
        user.view.change(**changes)
        pictures.append(user.settle())
    for earlier, later in pairwise(pictures):
        assert (earlier != later).any()
    user.do(PointerMove(400, 300))
    assert user.view.info().readout
    user.close()


def test_view_fits_screens_of_any_size(screen: OffscreenScreen) -> None:
    user = User(screen, small_snapshot(0, 200), (390, 600), selected=2)
    for tab in TABS:
        user.view.change(tab=tab)
        user.settle()
    for size in ((64, 48), (700, 300)):
        screen.resize(*size, 1.0)
        user.rect = Rect(0, 0, *size)
        user.settle()
    user.close()


def test_view_takes_another_snapshot_and_refuses_an_empty_one(
    user: User,
) -> None:
    with pytest.raises(ViewerError, match="no events and no segments"):
        user.view.take("", replace(small_snapshot(0), traces=()))
    user.view.change(selected=2, moment=100, tab="events", unit="time")
    second_view = SnapshotView(user.view.data, user.state)
    user.view.take("", small_snapshot(1, 60))
    second_view.tick(0.0)
    expected = SnapshotState("time", legend=False, tab="events")
    assert user.state == second_view.state == expected
    second_view.release("closed")
