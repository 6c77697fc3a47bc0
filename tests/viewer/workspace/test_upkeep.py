"""The list that the loop keeps up, and what moves of the pointer leave of that."""

from __future__ import annotations

import numpy as np
import pytest
from support.viewer import Viewer
from support.wait import clock, polls

import splatview
from splatview_viewer.core.events import Event, PointerMove, PointerPress
from splatview_viewer.core.settings import Entry
from splatview_viewer.workspace.slot import Slot
from splatview_viewer.workspace.sources import StreamSource, ValueSource


class _CountingSource(ValueSource):
    """Counts how often its entry is kept up."""

    refreshes = 0

    def refresh(self, entry: Entry, now: float) -> None:
        self.refreshes += 1


@pytest.fixture
def source(viewer: Viewer) -> _CountingSource:
    source = _CountingSource()
    viewer.catalogue.add(Slot(Entry("key", "run", "name"), source))
    viewer.do()
    source.refreshes = 0
    return source


def test_moves_of_the_pointer_leave_the_list_for_a_tenth_of_a_second(
    viewer: Viewer, source: _CountingSource
) -> None:
    start = clock()
    for step in range(100):
        viewer.tick(start + step * 0.01, [PointerMove(400 + step, 200)])
    assert 8 <= source.refreshes <= 12


def test_a_source_at_work_is_refreshed_at_each_move_of_the_pointer(
    viewer: Viewer, source: _CountingSource
) -> None:
    source.at_work = True
    start = clock()
    for step in range(100):
        viewer.tick(start + step * 0.01, [PointerMove(400 + step, 200)])
    assert source.refreshes == 100


class _FallingSource(ValueSource):
    """Tells of a rate that falls at each look, as after a training."""

    def refresh(self, entry: Entry, now: float) -> None:
        entry.rate_hz *= 0.9


def test_rate_that_falls_counts_only_while_other_words_tell_it(viewer: Viewer) -> None:
    entry = Entry("falling", "run", "falling", rate_hz=0.06)
    viewer.catalogue.add(Slot(entry, _FallingSource()))
    changes_before = viewer.catalogue.rate_changes
    start = clock()
    for second in range(40):
        viewer.tick(start + second, [])
    assert entry.rate_hz < 0.01
    # From 0.06 by 0.05 to none.
    assert viewer.catalogue.rate_changes - changes_before <= 3


@pytest.mark.parametrize(
    "events", [[], [PointerPress(400, 200)]], ids=["none", "press"]
)
def test_every_other_turn_keeps_the_list_up(
    viewer: Viewer, source: _CountingSource, events: list[Event]
) -> None:
    start = clock() + 1.0
    for step in range(10):
        viewer.tick(start + step * 0.02, [PointerMove(400, 200), *events])
        viewer.tick(start + step * 0.02 + 0.01, events)
    assert source.refreshes >= 10


def test_a_command_is_executed_amid_moves_of_the_pointer(
    viewer: Viewer, source: _CountingSource
) -> None:
    done: list[bool] = []
    viewer.tick(clock(), [PointerMove(400, 200)])
    viewer.catalogue.do(done.append, True)
    viewer.tick(clock(), [PointerMove(402, 200)])
    assert done == [True]


def test_only_the_entry_of_a_stream_that_published_is_brought_up_to_date(
    viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    refreshed: list[Entry] = []
    refresh = StreamSource.refresh

    def refresh_noted(source: StreamSource, entry: Entry, now: float) -> None:
        refreshed.append(entry)
        refresh(source, entry, now)

    picture = np.zeros((4, 4, 3), np.uint8)
    names = [f"image {index}" for index in range(12)]
    for name in names:
        splatview.publish(picture, name)
    viewer.until_listed(*names)
    viewer.until(viewer.loaded)
    entry = next(e for e in viewer.state.entries if e.name == names[5])
    monkeypatch.setattr(StreamSource, "refresh", refresh_noted)
    viewer.tick(clock())
    assert not refreshed
    ticks_before = viewer.full_ticks
    splatview.publish(picture, names[5])
    viewer.until(lambda: entry.version == 2)
    assert 0 < len(refreshed) <= viewer.full_ticks - ticks_before


def test_step_of_a_new_value_is_told_with_it(viewer: Viewer) -> None:
    picture = np.zeros((4, 4, 3), np.uint8)
    splatview.publish(picture, "image", meta={"step": 1})
    viewer.until_listed("image")
    viewer.until(viewer.loaded)
    splatview.publish(picture, "image", meta={"step": 2})
    slot = viewer.user.shown
    assert slot is not None
    for _ in polls("the second picture"):
        viewer.step()
        if slot.source.step == 2:
            break
    assert slot.entry.step == 2
