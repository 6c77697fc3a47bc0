"""The loop rests: the next turn is due in the future, whatever sources do."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support.house import House
from support.viewer import Viewer
from support.wait import clock

from splatview_viewer.app.loop import App
from splatview_viewer.core.screen import ScreenState
from splatview_viewer.core.settings import Entry
from splatview_viewer.core.shown_view import ShownView
from splatview_viewer.core.view import Wants
from splatview_viewer.gpu.governor import Governor
from splatview_viewer.kinds.gaussians.view import GaussianView
from splatview_viewer.kinds.image.view import ImageView
from splatview_viewer.web.messages import Visible
from splatview_viewer.workspace.feeding import UNSEEN_PACE
from splatview_viewer.workspace.slot import Slot
from splatview_viewer.workspace.sources import ValueSource


class Announced(ValueSource):
    """Source that announces values, and feeds what `feeding` returns."""

    def __init__(self, feeding: Callable[[], bool]) -> None:
        self.feeding = feeding
        self.feed_count = 0

    def has_new_value(self) -> bool:
        return True

    def feed(self, view: ShownView) -> bool:
        self.feed_count += 1
        return self.feeding()


class PacedSource(Announced):
    """Source that notes the pace that it is told."""

    def __init__(self, feeding: Callable[[], bool]) -> None:
        super().__init__(feeding)
        self.pace = 0.0
        self.is_behind = True
        self.camera_moves = False

    def has_new_value(self) -> bool:
        return self.is_behind

    def tell_pace(self, hz: float, now: float) -> None:
        self.pace = hz

    def has_pace(self, hz: float) -> bool:
        return self.pace == hz


class OrderedSource(Announced):
    """Source that notes in which order it is refreshed and read."""

    def __init__(self) -> None:
        super().__init__(self._note_feed)
        self.is_behind = False
        self.calls: list[str] = []

    def has_new_value(self) -> bool:
        return self.is_behind

    def refresh(self, entry: Entry, now: float) -> None:
        self.calls.append("refresh")

    def _note_feed(self) -> bool:
        self.calls.append("feed")
        self.is_behind = False
        return True


def nothing() -> bool:
    return False


def damaged() -> bool:
    raise RuntimeError("its memory is gone")


class ManualClock:
    """Clock of a test, by which it turns a viewer as the loop does."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.now = clock()

    def count_turns_within(self, seconds: float) -> int:
        """Return the number of turns, each when the one before wants it."""
        end = self.now + seconds
        count = 0
        while self.now < end and count < 20_000:
            self.now = max(self.app.tick(self.now), self.now)
            count += 1
        return count


def select(viewer: Viewer, source: ValueSource, kind: str = "image") -> Slot:
    slot = Slot(Entry("announced", "a run", "announced", kind), source)
    viewer.catalogue.add(slot)
    viewer.user.select("announced")
    return slot


@pytest.mark.parametrize("feeding", [nothing, damaged])
def test_loop_rests_while_a_selected_stream_brings_no_frame(
    viewer: Viewer, feeding: Callable[[], bool]
) -> None:
    source = Announced(feeding)
    time = ManualClock(viewer)
    select(viewer, source)
    time.count_turns_within(3.0)
    previous = source.feed_count
    assert time.count_turns_within(10.0) < 200
    # The loop still looks for a frame.
    assert source.feed_count > previous


def test_a_new_value_is_taken_before_the_list_is_kept_up(viewer: Viewer) -> None:
    source = OrderedSource()
    time = ManualClock(viewer)
    select(viewer, source)
    time.count_turns_within(1.0)
    viewer.expect_news(time.now + 1)
    viewer.tick(viewer.due)
    source.calls.clear()
    source.is_behind = True
    due = viewer.tick(time.now)
    assert source.calls == ["feed"]
    while source.calls == ["feed"]:
        due = viewer.tick(due)
    assert due < time.now + 0.1


def test_loop_takes_a_late_frame_soon(viewer: Viewer) -> None:
    def comes_at_the_fourth() -> bool:
        return late.feed_count == 4

    late = Announced(comes_at_the_fourth)
    time = ManualClock(viewer)
    select(viewer, late)
    start = time.now
    while late.feed_count < 4:
        time.count_turns_within(0.001)
    assert time.now - start < 0.02


def test_loop_rests_while_views_of_a_kind_fail(
    viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("no such shader")

    monkeypatch.setattr("splatview_viewer.workspace.feeding.make_view", fail)
    slot = select(viewer, Announced(nothing))
    time = ManualClock(viewer)
    time.count_turns_within(3.0)
    assert time.count_turns_within(10.0) < 200
    assert slot.entry.fault == "no such shader"


@pytest.mark.parametrize("wants", [Wants(stale=True), Wants(busy=True)])
def test_loop_rests_while_a_view_always_wants_more(
    viewer: Viewer, monkeypatch: pytest.MonkeyPatch, wants: Wants
) -> None:
    slot = select(viewer, Announced(nothing))
    time = ManualClock(viewer)
    time.count_turns_within(1.0)
    assert slot.view is not None

    def constant_wants(_: ImageView) -> Wants:
        return wants

    monkeypatch.setattr(ImageView, "wants", property(constant_wants))
    time.count_turns_within(3.0)
    assert time.count_turns_within(10.0) < 700


def test_loop_rests_while_the_page_is_hidden() -> None:
    with House() as house:
        page = house.page()
        slot = Slot(Entry("a", "run", "a", "image"), Announced(nothing))
        house.app.catalogue.add(slot)
        house.app.users[0].select("a")
        page.send(Visible(False))

        def is_hidden() -> bool:
            return not house.app.users[0].screen.state.visible

        house.until(is_hidden)
        time = ManualClock(house.app)
        time.count_turns_within(3.0)
        assert time.count_turns_within(10.0) < 200


def test_a_source_is_told_how_many_versions_are_going_to_be_taken(
    viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pace_of_shared_gpu(_: Governor, rate_hz: float, moving: bool) -> float:
        return 10.0 if moving else math.inf

    def view_wants(_: GaussianView) -> Wants:
        return Wants(moving=source.camera_moves)

    monkeypatch.setattr(Governor, "version_pace", pace_of_shared_gpu)
    monkeypatch.setattr(GaussianView, "wants", property(view_wants))
    source = PacedSource(nothing)
    select(viewer, source, "gaussians")
    viewer.until(partial(source.has_pace, math.inf))
    source.camera_moves = True
    viewer.until(partial(source.has_pace, 10))
    # Also while all that was published is shown.
    source.is_behind = False
    source.camera_moves = False
    viewer.until(partial(source.has_pace, math.inf))
    hidden = ScreenState((64, 64), 1.0, visible=False, ready=False, closed=False)
    monkeypatch.setattr(type(viewer.screen), "state", hidden)
    viewer.until(partial(source.has_pace, UNSEEN_PACE))
