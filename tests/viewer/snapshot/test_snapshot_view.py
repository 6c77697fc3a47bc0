"""The view of memory snapshots: answers of threads, layout, what it paints, what hands do; the whole."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.memory_data import small_snapshot
from support.snapshot_cases import User
from support.view_cases import shown
from support.wait import PATIENCE, clock, wait_until

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import Key, Mods, PointerLeave, PointerMove, PointerPress, PointerRelease, Text, Wheel
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.settings import SnapshotSettings
from splatview_viewer.kinds.snapshot import world
from splatview_viewer.kinds.snapshot.analysis.search import search
from splatview_viewer.kinds.snapshot.axes import ranges_of
from splatview_viewer.kinds.snapshot.content import Content
from splatview_viewer.kinds.snapshot.model import Annotation
from splatview_viewer.kinds.snapshot.painting import Painting, paint
from splatview_viewer.kinds.snapshot.state import TABS
from splatview_viewer.kinds.snapshot.timeline.bands import Addresses, Bands
from splatview_viewer.kinds.snapshot.view import SnapshotView
from splatview_viewer.kinds.snapshot.world import lay_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_viewer.kinds.snapshot.world import Window
    from splatview_viewer.screens.offscreen import OffscreenScreen

pytestmark = pytest.mark.usefixtures("timeline_kernels")

RECT = Rect(0, 0, 180, 120)


@pytest.fixture
def view(screen: OffscreenScreen) -> Iterator[SnapshotView]:
    screen.resize(RECT.width, RECT.height, 1.0)
    v = SnapshotView(screen.ctx)
    v.update(small_snapshot(0))
    shown(v, screen)
    yield v
    v.close()


def window(view: SnapshotView) -> Window:
    content = view.shared.content
    assert content is not None
    found = world.window_of(content, view.look, RECT)
    assert found is not None
    return found


def painting(view: SnapshotView, before: Painting | None = None) -> Painting:
    """What the view shows, painted from the beginning or from what was."""
    content = view.shared.content
    assert content is not None
    found = world.material_of(content, view.look, 1)
    assert found is not None
    return paint(world.sheet_of(found[0], found[1], window(view)), found[2], before)


@pytest.mark.parametrize(("tab", "of"), [("timeline", Bands), ("addresses", Addresses)])
def test_each_pixel_is_the_allocation_that_is_there(view: SnapshotView, screen: OffscreenScreen, tab: str,
                                                    of: type[Bands | Addresses]) -> None:
    view.look.tab = tab
    shown(view, screen)
    made, w, laid_out = painting(view), window(view), of(small_snapshot(0).traces[0])
    for x in range(0, RECT.width, 7):
        for y in range(0, RECT.height, 5):
            assert made.canvas.ids[x, y] == laid_out.pick(int(made.moments[x]), int(w.y_at(y + 0.5)))


def test_the_picture_is_what_was_painted(view: SnapshotView, screen: OffscreenScreen) -> None:
    made = painting(view)
    rows = made.rows.view(np.uint8).reshape(RECT.height, RECT.width, 4)[::-1, :, :3]
    np.testing.assert_array_equal(shown(view, screen), rows)
    np.testing.assert_array_equal(rows, made.canvas.rgba.transpose(1, 0, 2)[..., :3])


@pytest.mark.parametrize("lanes", [False, True])
def test_columns_that_are_taken_over_are_as_if_painted_anew(screen: OffscreenScreen, lanes: bool) -> None:
    screen.resize(RECT.width, RECT.height, 1.0)
    view = SnapshotView(screen.ctx, SnapshotSettings(lanes=lanes))
    view.update(small_snapshot(2, 4000, pools=2))
    shown(view, screen)
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
    view.close()


def test_lanes_lie_one_above_the_other(screen: OffscreenScreen) -> None:
    screen.resize(RECT.width, RECT.height, 1.0)
    view = SnapshotView(screen.ctx, SnapshotSettings(lanes=True))
    snapshot = small_snapshot(3, 600, pools=3)
    view.update(snapshot)
    shown(view, screen)
    content, pools = view.shared.content, snapshot.traces[0].allocations.pool
    assert content is not None
    lanes = world.lanes_at(content, 0)
    assert lanes is not None
    assert [lane.name for lane in lanes] == ["default pool", "private pool (0, 1)", "private pool (0, 2)"]
    made, w = painting(view), window(view)
    for y in range(RECT.height):
        at = w.y_at(y + 0.5)
        here = made.canvas.ids[:, y]
        lane = next((k for k, lane in enumerate(lanes) if lane.base <= at < lane.base + lane.height), None)
        assert set(pools[here[here >= 0]].tolist()) <= ({lane} if lane is not None else set())
    assert (made.rows >> 24 == 255).all()
    view.close()


def test_what_is_selected_is_lifted_and_nothing_else(view: SnapshotView, screen: OffscreenScreen) -> None:
    before, made = shown(view, screen), painting(view)
    there, counts = np.unique(made.canvas.ids[made.canvas.ids >= 0], return_counts=True)
    chosen = int(there[counts.argmax()])
    for name in ("selected", "hovered"):
        setattr(view.look, name, chosen)
        after = shown(view, screen)
        changed = (after != before).any(axis=-1)
        np.testing.assert_array_equal(changed, made.canvas.ids.T == chosen)
        setattr(view.look, name, None)
    np.testing.assert_array_equal(shown(view, screen), before)


def test_nothing_is_painted_while_nothing_changes(view: SnapshotView, screen: OffscreenScreen,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    shown(view, screen)
    made: list[Painting] = []
    monkeypatch.setattr("splatview_viewer.kinds.snapshot.plot.paint", lambda *a: made.append(paint(*a)) or made[-1])
    for k in range(5):
        assert not view.tick(clock())
        view.handle(PointerMove(20 + 20 * k, 100), RECT)
        shown(view, screen)
    assert not made
    view.handle(Wheel(90, 60, 1), RECT)
    shown(view, screen)
    assert len(made) == 1


def test_a_snapshot_without_anything_is_refused(view: SnapshotView) -> None:
    before = view.details
    with pytest.raises(ViewerError, match="no events and no segments"):
        view.update(replace(small_snapshot(0), traces=()))
    assert view.details == before != []


def test_the_wheel_keeps_what_is_under_the_pointer(view: SnapshotView) -> None:
    for dy in (1, 2, 3, -1, 4):
        before = window(view)
        at = before.x_at(100), before.y_at(70)
        assert view.handle(Wheel(100, 70, dy), RECT)
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
    assert view.moving
    view.handle(PointerRelease(80, 66), RECT)
    assert not view.moving
    assert (window(view).x_at(80), window(view).y_at(66)) == pytest.approx(at, rel=1e-3)
    assert view.look.selected is None


def test_a_click_selects_what_lies_there(view: SnapshotView, screen: OffscreenScreen) -> None:
    made = painting(view)
    for x, y in ((20, 110), (100, 100), (170, 115), (100, 2)):
        view.handle(PointerMove(x + 0.5, y + 0.5), RECT)
        view.handle(PointerPress(x + 0.5, y + 0.5), RECT)
        view.handle(PointerRelease(x + 0.5, y + 0.5), RECT)
        found = int(made.canvas.ids[x, y])
        assert view.look.selected == (found if found >= 0 else None)
        assert view.look.moment == made.moments[x]
        assert view.readout.startswith(f"{made.moments[x]:,} ")
    view.handle(PointerLeave(), RECT)
    assert view.look.hovered is view.look.pointed is None
    assert view.readout == ""


def test_keys(view: SnapshotView) -> None:
    def press(name: str) -> None:
        assert view.handle(Key(name), RECT)

    press("e")
    first = window(view)
    press("d")
    assert window(view).x0 > first.x0
    press("a")
    assert window(view).x0 == pytest.approx(first.x0)
    press("w")
    assert window(view).y0 > first.y0
    press("q")
    press("f")
    assert view.look.x is view.look.y is None
    press("slash")
    assert view.look.wants_focus == "search"
    for moment, marks in ((70, (70, None)), (20, (20, 70)), (30, (30, None))):
        view.look.go(moment)
        press("m")
        assert (view.look.moment_a, view.look.moment_b) == marks
    press("2")
    assert view.look.tab == "addresses"
    assert not view.handle(Key("x"), RECT)
    assert not view.handle(Key("f", mods=frozenset({"ctrl"})), RECT)
    assert not view.handle(Key("e", pressed=False), RECT)


@pytest.fixture
def content() -> Iterator[Content]:
    made = Content(small_snapshot(0))
    yield made
    made.close()


def test_an_answer_comes_later_and_stays(content: Content) -> None:
    calls = []
    assert content.ask("key", lambda: calls.append(1) or 42, words="Counting") is None
    assert content.misses == 1
    assert content.wait(PATIENCE)
    assert content.changes >= 2
    assert [content.ask("key", lambda: 0) for _ in range(3)] == [42] * 3
    assert (content.peek("key"), content.misses, calls) == (42, 1, [1])
    content.forget("key")
    assert content.peek("key") is None


def test_what_fails_is_said_once_and_not_tried_again(content: Content, caplog: pytest.LogCaptureFixture) -> None:
    def expected() -> int:
        raise ViewerError("no such thing")

    def unexpected() -> int:
        raise ZeroDivisionError("oh")

    for function, words in ((expected, "no such thing"), (unexpected, "ZeroDivisionError: oh")):
        content.ask(function, function)
        assert content.wait(PATIENCE)
        before = content.misses, content.changes
        assert content.ask(function, function) is None
        assert content.fault(function) == words
        assert (content.misses, content.changes) == before
    assert [r.levelname for r in caplog.records] == ["ERROR"]


def test_of_a_slot_only_the_newest_question_is_worked_on(content: Content) -> None:
    begun, go, done = threading.Event(), threading.Event(), []
    content.ask("first", lambda: begun.set() or go.wait(PATIENCE), slot="s")
    assert begun.wait(PATIENCE)
    for k in range(20):
        content.ask(k, lambda k=k: done.append(k) or k, slot="s")
    content.ask("other", lambda: done.append("other") or 1)
    go.set()
    assert content.wait(PATIENCE)
    assert done == [19, "other"]
    for k in range(100, 120):
        content.ask(k, lambda k=k: k, slot="s")
        assert content.wait(PATIENCE)
    assert [k for k in range(100, 120) if content.peek(k)] == list(range(114, 120))
    assert content.peek("other") == 1


def test_a_long_question_stops_no_other_lane_and_none_outlives_its_content(content: Content) -> None:
    go, began = threading.Event(), threading.Event()
    content.ask("long", lambda _: (began.set(), go.wait(PATIENCE)), lane="query", words="A long question")
    assert began.wait(PATIENCE)
    content.ask("short", lambda: 1)
    assert content.peek("long") is None  # without waiting
    wait_until(lambda: content.peek("short") == 1)
    assert content.working == "A long question"
    content.ask("never", lambda _: 1, lane="query")
    content.close()
    content.close()
    go.set()
    assert content.wait(PATIENCE)
    assert content.peek("long") is content.peek("never") is None
    assert content.ask("after", lambda: 1) is None
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
    look, snapshot = user.view.look, small_snapshot(0, 400)
    want = search(snapshot, snapshot.traces[0], "step_3").mask
    assert 0 < want.sum() < len(want)
    assert look.hits is not None
    np.testing.assert_array_equal(look.hits, want)
    user.do(Key("escape"))
    look.search = ""
    assert (user.settle() != pixels).any()
    assert look.hits is None


def test_annotations_marks_and_lanes_are_drawn(screen: OffscreenScreen) -> None:
    base = small_snapshot(0, 200, pools=2)
    times = base.traces[0].events.time_us
    ends = tuple(Annotation("step", stage, 0, int(times[at])) for stage, at in (("START", 50), ("END", 150)))
    made = User(screen, replace(base, annotations=ends))
    found = ranges_of(made.view.shared.content, made.view.look)  # type: ignore[arg-type]
    assert found is not None and found.names == ["step"]
    assert (found.begin[0], found.end[0]) == pytest.approx((51, 151), abs=2)
    pictures = [made.settle()]
    for change in (lambda look: look.mark(90), lambda look: look.go(120),
                   lambda look: setattr(look.settings, "lanes", True),
                   lambda look: setattr(look.settings, "unit", "time")):
        change(made.view.look)
        pictures.append(made.settle())
    assert all((one != other).any() for one, other in pairwise(pictures))
    made.do(PointerMove(400, 300))
    assert made.view.readout
    made.close()


def test_the_size_of_a_screen_may_be_anything(screen: OffscreenScreen) -> None:
    made = User(screen, small_snapshot(0, 200), (390, 600))
    for tab in TABS:
        made.view.look.tab = tab
        made.view.look.select(2)
        made.settle()
    for size in ((64, 48), (700, 300)):
        screen.resize(*size, 1.0)
        made.rect = Rect(0, 0, *size)
        made.settle()
    made.close()
