"""The list that the loop keeps up, and what moves of the pointer leave of that."""

from __future__ import annotations

import pytest
from support.viewer import Viewer
from support.wait import clock

from splatview_viewer.core.events import Event, PointerMove, PointerPress
from splatview_viewer.core.settings import Entry
from splatview_viewer.workspace.slot import Slot
from splatview_viewer.workspace.sources import ValueSource


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
