"""The parts of the view of memory snapshots (answers of threads, layout, ticks), and the whole as a user has it."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.memory_data import small_snapshot
from support.wait import PATIENCE, turns, wait_until

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import Key, PointerMove, PointerPress, PointerRelease, Text
from splatview_viewer.core.settings import State
from splatview_viewer.geometry.controls import Rect
from splatview_viewer.kinds.snapshot.analysis.search import search
from splatview_viewer.kinds.snapshot.axes import ranges_of
from splatview_viewer.kinds.snapshot.content import Content
from splatview_viewer.kinds.snapshot.model import Annotation
from splatview_viewer.kinds.snapshot.state import TABS
from splatview_viewer.kinds.snapshot.view import SnapshotView
from splatview_viewer.kinds.snapshot.world import Layout, lay_out
from splatview_viewer.shell.panel import Panel
from splatview_viewer.shell.shown import Shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_viewer.core.events import Event
    from splatview_viewer.kinds.snapshot.model import Snapshot
    from splatview_viewer.screens.offscreen import OffscreenScreen

pytestmark = pytest.mark.usefixtures("timeline_kernels")


# -- answers


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
                assert r.width > 0
                assert r.height > 0
                cover[r.y: r.y + r.height, r.x: r.x + r.width] += 1
            assert cover.max() == 1, (tab, details, width, height)
            cover[rect.y: rect.y + rect.height, rect.x: rect.x + rect.width] = 0
            assert not cover.any(), (tab, details, width, height)
            if width >= 390 and height >= 500:
                assert found.details is not None or not details
                assert (found.pane is not None) == (tab not in ("timeline", "addresses"))
                assert found.plot is not None or tab == "about" or details


# -- the whole


class User:
    """Looks at a snapshot on a screen of its own size, with a panel."""

    def __init__(self, screen: OffscreenScreen, snapshot: Snapshot, size: tuple[int, int] = (1200, 760)) -> None:
        screen.resize(*size, 1.0)
        self.screen, self.view, self.panel = screen, SnapshotView(screen.ctx), Panel(1.0)
        self.view.update(snapshot)
        self.rect = Rect(0, 0, *size)
        self.settle()

    def draw(self) -> bool:
        view = self.view
        view.draw(self.screen.framebuffer, self.rect)
        shown = Shown(view.panel, view.sections, view.keys, view.over, view.details, view.extras, view.readout,
                      view.path, view.empty)
        return self.panel.draw(self.screen.framebuffer, State(panel_open=False), shown, 1.0).changed

    def settle(self) -> np.ndarray:
        """(H, W, 3): the picture when nothing is missing in it any more."""
        again = 3
        for _ in turns("the view is complete", rest=False):
            again = 3 if self.draw() else again - 1
            if not self.view.complete:
                self.view.wait(PATIENCE)
                again = 3
            if not again:
                break
        return self.screen.pixels()[..., :3].astype(int)

    def layout(self, *, details: bool = False) -> Layout:
        return lay_out(self.rect, 1.0, self.view.look.tab, details=details)

    def do(self, *events: Event) -> None:
        for event in events:
            ours, _ = self.panel.handle(event, self.rect, str, self.view.boards(self.rect))
            if not ours:
                self.view.handle(event, self.rect)
            self.draw()
            self.draw()

    def click(self, x: float, y: float) -> None:
        self.do(PointerMove(x, y), PointerPress(x, y), PointerRelease(x, y))

    def close(self) -> None:
        self.panel.close()
        self.view.close()


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
