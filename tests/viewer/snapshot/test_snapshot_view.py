"""The view of memory snapshots: answers of threads, layout, what it paints, what hands do; the whole."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from support.memory_data import event, small_snapshot, snapshot
from support.snapshot_cases import User
from support.wait import PATIENCE

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
from splatview_viewer.core.screen import Rect
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
    made = User(screen, small_snapshot(0, 400), (1000, 500), legend=False)
    yield made
    made.close()


def test_what_is_selected_is_lifted_and_nothing_else(user: User) -> None:
    picture = user.view.picture
    painted = picture.current
    assert painted is not None
    assert picture.texture is not None
    there, counts = np.unique(painted.ids[painted.ids >= 0], return_counts=True)
    chosen = int(there[counts.argmax()])
    for lifted in ((chosen, None), (None, chosen), (None, None)):
        picture.brighten(*lifted)
        now = np.frombuffer(picture.texture.read(), np.uint32).reshape(
            painted.ids.shape
        )
        np.testing.assert_array_equal(
            now != painted.pixels, (painted.ids == chosen) & (lifted != (None, None))
        )


@pytest.mark.parametrize(
    ("events", "tab", "words"),
    [
        ([event("alloc", 1 << 20)], "addresses", "names no segments"),
        ([event("alloc", 1 << 20)], "timeline", ""),
        ([event("segment_alloc", 1 << 20)], "addresses", ""),
        ([event("snapshot", 0, 0)], "addresses", "Nothing was allocated"),
        ([event("snapshot", 0, 0)], "timeline", "Nothing was allocated"),
    ],
)
def test_what_a_snapshot_does_not_tell_is_said_over_the_plot(
    events: list[Any], tab: str, words: str, screen: OffscreenScreen
) -> None:
    made = User(screen, from_pickled(snapshot(events)), legend=False, tab=tab)
    assert words in made.view.missing_text
    assert bool(made.view.missing_text) == bool(words)
    corner = made.settle()[55:85, 60:400]
    made.close()
    assert (corner.min(axis=2) > 180).any() == bool(words), "white letters"


def test_the_wheel_keeps_what_is_under_the_pointer(user: User) -> None:
    def window() -> tuple[tuple[float, float], tuple[float, float]]:
        found = user.view.world()
        assert found is not None
        return found.window(user.state)

    user.do(PointerMove(300, 250))
    for dy in (1, 2, 3, -1, 4):
        at = user.view.pointer
        before = window()
        user.do(Wheel(300, 250, dy))
        assert user.view.pointer == pytest.approx(at, rel=0.02)
        for (a, b), (c, d) in zip(before, window(), strict=True):
            assert d - c == pytest.approx((b - a) / 1.2**dy, rel=0.01)
    held: tuple[tuple[Mods, tuple[bool, bool]], ...] = (
        (frozenset({"shift"}), (True, False)),
        (frozenset({"ctrl"}), (False, True)),
    )
    for mods, changes in held:
        before = window()
        name = next(iter(mods))
        user.do(
            Key(name, mods=mods),
            Wheel(300, 250, 1, mods=mods),
            Key(name, pressed=False),
        )
        assert tuple(a != b for a, b in zip(before, window(), strict=True)) == changes


def test_a_drag_takes_the_picture_along_and_is_no_click(user: User) -> None:
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


def test_a_click_selects_what_lies_there_and_a_double_click_sees_all(
    user: User,
) -> None:
    for at in ((300, 350), (500, 360), (400, 80)):
        user.do(PointerMove(*at))
        moment = user.state.pointed_moment
        assert moment is not None
        assert user.view.info().readout.startswith(f"{moment:,} ")
        byte = user.view.pointer[1]
        a = user.view.trace.allocations
        live = np.flatnonzero((a.start < moment) & (moment <= a.end))
        over = live[np.searchsorted(np.cumsum(a.size[live]), byte, "right") :]
        chosen = over[0] if len(over) and byte >= 0 else None
        user.click(at)
        assert (user.state.moment, user.state.selected) == (moment, chosen)
        user.view.change(selected=None)
        user.settle()
    user.do(Wheel(300, 350, 3))
    assert user.state.x is not None
    user.click((300, 350), double=True)
    assert user.state.x is user.state.y is user.state.selected is None
    user.do(PointerMove(5, 5))
    assert user.state.hovered is user.state.pointed_moment is None
    assert user.view.info().readout == ""


def test_the_minimap_moves_the_window(user: User) -> None:
    user.do(PointerMove(500, 300), Wheel(500, 300, 5))
    first = user.state.x
    assert first is not None
    user.do(PointerPress(500, 470), PointerMove(200, 475))
    dragged = user.state.x
    user.do(PointerRelease(200, 475), PointerMove(600, 470))
    assert dragged is not None
    assert dragged[0] < first[0]
    assert user.state.x == dragged


def test_keys(user: User) -> None:
    view = user.view

    def press(name: str, **how: Any) -> SnapshotState:
        view.handle(Key(name, **how), RECT)
        return view.state

    first = press("e").x
    assert first is not None
    assert press("d").x != first
    assert press("a").x == pytest.approx(first)
    assert press("w").y != press("s").y
    assert (press("home").x or (1,))[0] == 0
    assert press("f") == SnapshotState(legend=False)
    for moment, marks in ((70, (70, None)), (20, (20, 70)), (30, (30, None))):
        view.choose_moment(moment)
        assert press("m").marks == marks
    assert press("2").tab == "addresses"
    before = view.state
    assert (
        press("x")
        == press("f", mods=frozenset({"ctrl"}))
        == press("e", pressed=False)
        == before
    )
    assert press("escape").marks == (None, None)
    assert press("escape").moment is None


def test_only_the_newest_question_is_worked_on_and_none_after_closing() -> None:
    content = Content(small_snapshot(0))
    begun = threading.Event()
    go = threading.Event()
    done = []
    content.request(
        ("s", "first"), lambda: begun.set() or go.wait(PATIENCE), newest=True
    )
    assert begun.wait(PATIENCE)
    for k in range(20):
        content.request(("s", k), lambda k=k: done.append(k) or k, newest=True)
    content.request(("other",), lambda: done.append("other") or 1)
    go.set()
    assert content.wait(PATIENCE)
    assert done == [19, "other"]
    content.close()
    assert content.request(("after",), lambda: done.append("after")) is None
    assert content.wait(PATIENCE)
    assert "after" not in done


def test_nothing_overlaps() -> None:
    for scale, details, tab in itertools.product((1.0, 2.0), (False, True), TABS):
        for width, height in ((1000, 694), (390, 514), (260, 180), (64, 48), (1, 1)):
            rect = Rect(11, 7, round(width * scale), round(height * scale))
            found = lay_out(rect, scale, tab, details=details)
            cover = np.zeros((rect.height + 20, rect.width + 20), np.int8)
            for r in vars(found).values():
                if r is not None:
                    assert r.width > 0
                    assert r.height > 0
                    cover[r.y : r.y + r.height, r.x : r.x + r.width] += 1
            assert cover.max() == 1, (tab, details, width, height)
            cover[rect.y : rect.y + rect.height, rect.x : rect.x + rect.width] = 0
            assert not cover.any(), (tab, details, width, height)


def test_search_lights_what_it_finds(user: User) -> None:
    user.do(Key("slash"))
    user.draw()
    assert user.panel.typing
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


def test_annotations_and_marks_are_drawn(screen: OffscreenScreen) -> None:
    base = small_snapshot(0, 200)
    times = base.traces[0].events.time_us
    ends = tuple(
        Annotation("step", stage, 0, int(times[at]))
        for stage, at in (("START", 50), ("END", 150))
    )
    made = User(screen, replace(base, annotations=ends))
    found = annotated_ranges(made.view.content.snapshot, made.view.trace)
    assert found.names == ["step"]
    assert found.moments[:, 0] == pytest.approx((51, 151), abs=2)
    pictures = [made.settle()]
    for changes in ({"marks": (90, None)}, {"moment": 120}, {"unit": "time"}):
        made.view.change(**changes)
        pictures.append(made.settle())
    assert all((one != other).any() for one, other in pairwise(pictures))
    made.do(PointerMove(400, 300))
    assert made.view.info().readout
    made.close()


def test_the_size_of_a_screen_may_be_anything(screen: OffscreenScreen) -> None:
    made = User(screen, small_snapshot(0, 200), (390, 600), selected=2)
    for tab in TABS:
        made.view.change(tab=tab)
        made.settle()
    for size in ((64, 48), (700, 300)):
        screen.resize(*size, 1.0)
        made.rect = Rect(0, 0, *size)
        made.settle()
    made.close()


def test_another_snapshot_takes_the_place_of_one_and_an_empty_one_is_refused(
    user: User,
) -> None:
    with pytest.raises(ViewerError, match="no events and no segments"):
        user.view.take("", replace(small_snapshot(0), traces=()))
    user.view.change(selected=2, moment=100, tab="events", unit="time")
    other = SnapshotView(user.view.data, user.state)
    user.view.take("", small_snapshot(1, 60))
    other.tick(0.0)
    assert (
        user.state == other.state == SnapshotState("time", legend=False, tab="events")
    )
    other.release("closed")
