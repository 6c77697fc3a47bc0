"""The view of memory snapshots: answers of threads, layout, what it paints, what hands do; the whole."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.memory_data import small_snapshot
from support.snapshot_cases import User
from support.wait import PATIENCE, clock, turns, wait_until

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import Key, Mods, PointerLeave, PointerMove, PointerPress, PointerRelease, Text, Wheel
from splatview_viewer.core.screen import Rect
from splatview_viewer.gpu.work import GpuWork
from splatview_viewer.kinds.snapshot import world
from splatview_viewer.kinds.snapshot.analysis.search import search
from splatview_viewer.kinds.snapshot.axes import ranges_of
from splatview_viewer.kinds.snapshot.content import Content
from splatview_viewer.kinds.snapshot.model import Annotation
from splatview_viewer.kinds.snapshot.painting import Painting, paint
from splatview_viewer.kinds.snapshot.state import TABS, SnapshotState, Style
from splatview_viewer.kinds.snapshot.timeline.bands import Addresses, Bands
from splatview_viewer.kinds.snapshot.view import SnapshotData, SnapshotView
from splatview_viewer.kinds.snapshot.world import lay_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_viewer.kinds.snapshot.model import Snapshot
    from splatview_viewer.kinds.snapshot.world import Window
    from splatview_viewer.screens.offscreen import OffscreenScreen

pytestmark = pytest.mark.usefixtures("timeline_kernels")

RECT = Rect(0, 0, 180, 120)


def opened(screen: OffscreenScreen, snapshot: Snapshot, **state: Any) -> SnapshotView:
    screen.resize(RECT.width, RECT.height, 1.0)
    view = SnapshotView(SnapshotData(screen.ctx, GpuWork(screen.ctx)), SnapshotState(**state))
    view.take("", snapshot)
    return view


@pytest.fixture
def view(screen: OffscreenScreen) -> Iterator[SnapshotView]:
    v = opened(screen, small_snapshot(0))
    seen(v, screen)
    yield v
    v.release("last")


def seen(view: SnapshotView, screen: OffscreenScreen) -> np.ndarray:
    """(H, W, 3) int: what the view draws when it is complete."""
    for _ in turns("the picture is complete"):
        view.draw(screen.framebuffer, RECT)
        if view.complete:
            break
        view.wait(PATIENCE)
    return screen.pixels()[..., :3].astype(int)


def window(view: SnapshotView) -> Window:
    found = view.world()
    assert found is not None
    return found.window(view.state, RECT)


def painting(view: SnapshotView, before: Painting | None = None) -> Painting:
    """What the view shows, painted from the beginning or from what was."""
    found = world.picture_of(view.content, view.device, view.state, window(view), 1)
    assert found is not None
    return paint(*found, before)


@pytest.mark.parametrize(("tab", "of"), [("timeline", Bands), ("addresses", Addresses)])
def test_each_pixel_is_the_allocation_that_is_there(view: SnapshotView, screen: OffscreenScreen, tab: str,
                                                    of: type[Bands | Addresses]) -> None:
    view.see(tab=tab)
    seen(view, screen)
    made, w, laid_out = painting(view), window(view), of(small_snapshot(0).traces[0])
    for x in range(0, RECT.width, 7):
        for y in range(0, RECT.height, 5):
            assert made.canvas.ids[x, y] == laid_out.pick(int(made.moments[x]), int(w.y_at(y + 0.5)))


def test_the_picture_is_what_was_painted(view: SnapshotView, screen: OffscreenScreen) -> None:
    made = painting(view)
    rows = made.rows.view(np.uint8).reshape(RECT.height, RECT.width, 4)[::-1, :, :3]
    np.testing.assert_array_equal(seen(view, screen), rows)
    np.testing.assert_array_equal(rows, made.canvas.rgba.transpose(1, 0, 2)[..., :3])


@pytest.mark.parametrize("lanes", [False, True])
def test_columns_that_are_taken_over_are_as_if_painted_anew(screen: OffscreenScreen, lanes: bool) -> None:
    view = opened(screen, small_snapshot(2, 4000, pools=2), style=Style(lanes=lanes))
    seen(view, screen)
    view.handle(Wheel(90, 60, 6), RECT)
    before = painting(view)
    assert before.painted == RECT.width
    view.handle(PointerPress(90, 60), RECT)
    for x in (70, 75, 140):
        view.handle(PointerMove(x, 60), RECT)
        made, anew = painting(view, before), painting(view)
        assert made.painted < anew.painted == RECT.width
        np.testing.assert_array_equal(made.rows, anew.rows)
        np.testing.assert_array_equal(made.canvas.ids, anew.canvas.ids)
        before = made
    view.release("last")


def test_lanes_lie_one_above_the_other(screen: OffscreenScreen) -> None:
    snapshot = small_snapshot(3, 600, pools=3)
    view = opened(screen, snapshot, style=Style(lanes=True))
    seen(view, screen)
    found, pools = view.world(), snapshot.traces[0].allocations.pool
    assert found is not None
    lanes = found.layers
    assert [lane.name for lane in lanes] == ["default pool", "private pool (0, 1)", "private pool (0, 2)"]
    made, w = painting(view), window(view)
    for y in range(RECT.height):
        at = w.y_at(y + 0.5)
        here = made.canvas.ids[:, y]
        lane = next((k for k, lane in enumerate(lanes) if lane.base <= at < lane.base + lane.height), None)
        assert set(pools[here[here >= 0]].tolist()) <= ({lane} if lane is not None else set())
    assert (made.rows >> 24 == 255).all()
    view.release("last")


def test_what_is_selected_is_lifted_and_nothing_else(view: SnapshotView, screen: OffscreenScreen) -> None:
    before, made = seen(view, screen), painting(view)
    there, counts = np.unique(made.canvas.ids[made.canvas.ids >= 0], return_counts=True)
    chosen = int(there[counts.argmax()])
    for name in ("selected", "hovered"):
        view.see(**{name: chosen})
        after = seen(view, screen)
        changed = (after != before).any(axis=-1)
        np.testing.assert_array_equal(changed, made.canvas.ids.T == chosen)
        view.see(**{name: None})
    np.testing.assert_array_equal(seen(view, screen), before)


def test_nothing_is_painted_while_nothing_changes(view: SnapshotView, screen: OffscreenScreen,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    seen(view, screen)
    made: list[Painting] = []
    monkeypatch.setattr("splatview_viewer.kinds.snapshot.plot.paint", lambda *a: made.append(paint(*a)) or made[-1])
    for k in range(5):
        assert not view.tick(clock())
        view.handle(PointerMove(20 + 20 * k, 100), RECT)
        seen(view, screen)
    assert not made
    view.handle(Wheel(90, 60, 1), RECT)
    seen(view, screen)
    assert len(made) == 1


def test_a_snapshot_without_anything_is_refused(view: SnapshotView) -> None:
    before = view.info()
    with pytest.raises(ViewerError, match="no events and no segments"):
        view.take("", replace(small_snapshot(0), traces=()))
    assert view.info() == before


def test_the_wheel_keeps_what_is_under_the_pointer(view: SnapshotView) -> None:
    for dy in (1, 2, 3, -1, 4):
        before = window(view)
        at = before.x_at(100), before.y_at(70)
        view.handle(Wheel(100, 70, dy), RECT)
        after = window(view)
        assert (after.x_at(100), after.y_at(70)) == pytest.approx(at, rel=1e-6)
        assert after.step == pytest.approx(before.step / 1.2**dy)
    shift: Mods = frozenset({"shift"})
    ctrl: Mods = frozenset({"ctrl"})
    for mods, x, y in ((shift, True, False), (ctrl, False, True)):
        before = window(view)
        view.handle(Wheel(100, 70, 1, mods=mods), RECT)
        assert (window(view).step != before.step, window(view).per_pixel != before.per_pixel) == (x, y)


def test_a_drag_takes_the_picture_along_and_is_no_click(view: SnapshotView) -> None:
    view.handle(Wheel(100, 70, 4), RECT)
    before = window(view)
    at = before.x_at(100), before.y_at(70)
    view.handle(PointerPress(100, 70), RECT)
    for x, y in ((102, 71), (90, 60), (80, 66)):
        view.handle(PointerMove(x, y), RECT)
    assert view.wants.moving
    view.handle(PointerRelease(80, 66), RECT)
    assert not view.wants.moving
    assert (window(view).x_at(80), window(view).y_at(66)) == pytest.approx(at, rel=1e-3)
    assert view.state.selected is None


def test_a_click_selects_what_lies_there(view: SnapshotView, screen: OffscreenScreen) -> None:
    made = painting(view)
    for x, y in ((20, 110), (100, 100), (170, 115), (100, 2)):
        view.handle(PointerMove(x + 0.5, y + 0.5), RECT)
        view.handle(PointerPress(x + 0.5, y + 0.5), RECT)
        view.handle(PointerRelease(x + 0.5, y + 0.5), RECT)
        found = int(made.canvas.ids[x, y])
        assert view.state.selected == (found if found >= 0 else None)
        assert view.state.moment == made.moments[x]
        assert view.info().readout.startswith(f"{made.moments[x]:,} ")
    view.handle(PointerLeave(), RECT)
    assert view.state.hovered is view.state.pointed is None
    assert view.info().readout == ""


def test_keys(view: SnapshotView) -> None:
    def press(name: str, **how: Any) -> SnapshotState:
        view.handle(Key(name, **how), RECT)
        return view.state

    press("e")
    first = window(view)
    press("d")
    assert window(view).x0 > first.x0
    press("a")
    assert window(view).x0 == pytest.approx(first.x0)
    press("w")
    assert window(view).y0 > first.y0
    press("home")
    assert window(view).x0 == 0
    press("q")
    assert press("f") == SnapshotState()
    for moment, marks in ((70, (70, None)), (20, (20, 70)), (30, (30, None))):
        view.go(moment)
        assert press("m").marks == marks
    assert press("2").tab == "addresses"
    before = view.state
    assert press("x") == press("f", mods=frozenset({"ctrl"})) == press("e", pressed=False) == before
    assert press("escape").marks == (None, None)
    assert press("escape").moment is None


@pytest.fixture
def content() -> Iterator[Content]:
    made = Content(small_snapshot(0))
    yield made
    made.close()


def test_an_answer_comes_later_and_stays(content: Content) -> None:
    calls = []
    assert content.ask(("key",), lambda: calls.append(1) or 42, words="Counting") is None
    assert content.misses == 1
    assert content.wait(PATIENCE)
    assert content.changes >= 2
    assert [content.ask(("key",), lambda: 0) for _ in range(3)] == [42] * 3
    assert (content.peek(("key",)), content.misses, calls) == (42, 1, [1])
    content.forget(("key",))
    assert content.peek(("key",)) is None


def test_what_fails_is_said_once_and_not_tried_again(content: Content, caplog: pytest.LogCaptureFixture) -> None:
    def expected() -> int:
        raise ViewerError("no such thing")

    def unexpected() -> int:
        raise ZeroDivisionError("oh")

    for function, words in ((expected, "no such thing"), (unexpected, "ZeroDivisionError: oh")):
        content.ask((function,), function)
        assert content.wait(PATIENCE)
        before = content.misses, content.changes
        assert content.ask((function,), function) is None
        assert content.fault((function,)) == words
        assert (content.misses, content.changes) == before
    assert [r.levelname for r in caplog.records] == ["ERROR"]


def test_of_a_slot_only_the_newest_question_is_worked_on(content: Content) -> None:
    begun, go, done = threading.Event(), threading.Event(), []
    content.ask(("s", "first"), lambda: begun.set() or go.wait(PATIENCE), newest=True)
    assert begun.wait(PATIENCE)
    for k in range(20):
        content.ask(("s", k), lambda k=k: done.append(k) or k, newest=True)
    content.ask(("other",), lambda: done.append("other") or 1)
    go.set()
    assert content.wait(PATIENCE)
    assert done == [19, "other"]
    for k in range(100, 120):
        content.ask(("s", k), lambda k=k: k, newest=True)
        assert content.wait(PATIENCE)
    assert [k for k in range(100, 120) if content.peek(("s", k))] == list(range(114, 120))
    assert content.peek(("other",)) == 1


def test_a_long_question_stops_no_other_lane_and_none_outlives_its_content(content: Content) -> None:
    go, began = threading.Event(), threading.Event()
    content.ask(("long",), lambda _: (began.set(), go.wait(PATIENCE)), lane="query", words="A long question")
    assert began.wait(PATIENCE)
    content.ask(("short",), lambda: 1)
    assert content.peek(("long",)) is None  # without waiting
    wait_until(lambda: content.peek(("short",)) == 1)
    assert content.working == "A long question"
    content.ask(("never",), lambda _: 1, lane="query")
    content.close()
    content.close()
    go.set()
    assert content.wait(PATIENCE)
    assert content.peek(("long",)) is content.peek(("never",)) is None
    assert content.ask(("after",), lambda: 1) is None
    assert content.wait(0)


def test_nothing_overlaps() -> None:
    for scale, details, tab in itertools.product((1.0, 2.0), (False, True), TABS):
        for width, height in ((1000, 694), (390, 514), (260, 180), (64, 48), (1, 1)):
            rect = Rect(11, 7, round(width * scale), round(height * scale))
            found = lay_out(rect, scale, tab, details=details)
            parts = [r for r in (found.plot, found.bar, found.minimap, found.pane, found.details) if r is not None]
            cover = np.zeros((rect.height + 20, rect.width + 20), np.int8)
            for r in parts:
                assert r.width > 0 and r.height > 0
                cover[r.y: r.y + r.height, r.x: r.x + r.width] += 1
            assert cover.max() == 1, (tab, details, width, height)
            cover[rect.y: rect.y + rect.height, rect.x: rect.x + rect.width] = 0
            assert not cover.any(), (tab, details, width, height)
            if width >= 390 and height >= 500:
                assert found.details is not None or not details
                assert (found.pane is not None) == (tab not in ("timeline", "addresses"))
                assert found.plot is not None or tab == "about" or details


@pytest.fixture
def user(screen: OffscreenScreen) -> Iterator[User]:
    made = User(screen, small_snapshot(0, 400))
    yield made
    made.close()


def test_search_lights_what_it_finds(user: User) -> None:
    user.do(Key("slash"))
    user.draw()
    assert user.panel.typing
    user.do(Text("step_3"))
    pixels = user.settle()
    snapshot = small_snapshot(0, 400)
    want = search(snapshot, snapshot.traces[0], "step_3").mask
    assert 0 < want.sum() < len(want)
    assert user.lit == np.flatnonzero(want).tolist()
    user.do(Key("escape"))
    user.view.see(search="")
    assert (user.settle() != pixels).any()
    assert user.lit is None


def test_annotations_marks_and_lanes_are_drawn(screen: OffscreenScreen) -> None:
    base = small_snapshot(0, 200, pools=2)
    times = base.traces[0].events.time_us
    ends = tuple(Annotation("step", stage, 0, int(times[at])) for stage, at in (("START", 50), ("END", 150)))
    made = User(screen, replace(base, annotations=ends))
    found = ranges_of(made.view, made.view.world())  # type: ignore[arg-type]
    assert found is not None and found.names == ["step"]
    assert (found.begin[0], found.end[0]) == pytest.approx((51, 151), abs=2)
    pictures = [made.settle()]
    for changes in ({"marks": (90, None)}, {"moment": 120}, {"style": Style(lanes=True)},
                    {"style": Style("time", lanes=True)}):
        made.view.see(**changes)
        pictures.append(made.settle())
    assert all((one != other).any() for one, other in pairwise(pictures))
    made.do(PointerMove(400, 300))
    assert made.view.info().readout
    made.close()


def test_the_size_of_a_screen_may_be_anything(screen: OffscreenScreen) -> None:
    made = User(screen, small_snapshot(0, 200), (390, 600), selected=2)
    for tab in TABS:
        made.view.see(tab=tab)
        made.settle()
    for size in ((64, 48), (700, 300)):
        screen.resize(*size, 1.0)
        made.rect = Rect(0, 0, *size)
        made.settle()
    made.close()


def test_another_snapshot_takes_the_place_of_one(user: User) -> None:
    user.view.see(selected=2, moment=100, tab="events", style=Style("time"))
    other = SnapshotView(user.view.data, user.state)
    user.view.take("", small_snapshot(1, 60))
    other.tick(0.0)
    assert user.state == other.state == SnapshotState(Style("time"), tab="events")
    other.release("closed")
