"""The loop rests: whatever an entry's source does, the next turn is due in the future."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.house import House
from support.viewer import Viewer
from support.wait import clock

from splatview_viewer.app.loop import App
from splatview_viewer.core.settings import Entry
from splatview_viewer.core.view import ShownView, Wants
from splatview_viewer.kinds.image.view import ImageView
from splatview_viewer.web.messages import Visible
from splatview_viewer.workspace.slot import Slot
from splatview_viewer.workspace.sources import ValueSource


class Announced(ValueSource):
    """Announces values; what comes of them is `feeding`'s."""

    def __init__(self, feeding: Callable[[], bool]) -> None:
        self.feeding = feeding
        self.fed = 0

    def has_new_value(self) -> bool:
        return True

    def feed(self, view: ShownView) -> bool:
        self.fed += 1
        return self.feeding()


def nothing() -> bool:
    return False


def damaged() -> bool:
    raise RuntimeError("its memory is gone")


class Time:
    """Turns a viewer as its loop does, by a clock that only this moves."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.now = clock()

    def turns_within(self, seconds: float) -> int:
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
    time = Time(viewer)
    select(viewer, source)
    time.turns_within(3.0)
    before = source.fed
    assert time.turns_within(10.0) < 200
    assert source.fed > before  # it is still looked for


def test_loop_takes_a_late_frame_soon(viewer: Viewer) -> None:
    late = Announced(lambda: late.fed == 4)
    time = Time(viewer)
    select(viewer, late)
    begin = time.now
    while late.fed < 4:
        time.turns_within(0.001)
    assert time.now - begin < 0.02


def test_loop_rests_while_no_view_of_a_kind_can_be_made(
    viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("no such shader")

    monkeypatch.setattr("splatview_viewer.workspace.feeding.make_view", fail)
    slot = select(viewer, Announced(nothing))
    time = Time(viewer)
    time.turns_within(3.0)
    assert time.turns_within(10.0) < 200
    assert slot.entry.fault == "no such shader"


@pytest.mark.parametrize("wants", [Wants(stale=True), Wants(busy=True)])
def test_loop_rests_while_a_view_is_never_content(
    viewer: Viewer, monkeypatch: pytest.MonkeyPatch, wants: Wants
) -> None:
    slot = select(viewer, Announced(nothing))
    time = Time(viewer)
    time.turns_within(1.0)
    assert slot.view is not None
    monkeypatch.setattr(ImageView, "wants", property(lambda _: wants))
    time.turns_within(3.0)
    assert time.turns_within(10.0) < 700


def test_loop_rests_while_the_page_is_hidden() -> None:
    with House() as house:
        page = house.page()
        slot = Slot(Entry("a", "run", "a", "image"), Announced(nothing))
        house.app.catalogue.add(slot)
        house.app.users[0].select("a")
        page.send(Visible(False))
        house.until(lambda: not house.app.users[0].screen.state.visible)
        time = Time(house.app)
        time.turns_within(3.0)
        assert time.turns_within(10.0) < 200
