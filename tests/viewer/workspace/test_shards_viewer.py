"""A scene that several processes publish in parts is one entry and one picture.

The viewer tells which ranks are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, TypeAlias

import pytest
from support.frames import cloud
from support.viewer import Viewer

from splatview.adapters import recognise
from splatview_ipc.publisher.publisher import Publisher
from splatview_viewer.app.loop import step
from splatview_viewer.recording.options import RecordOptions

Start: TypeAlias = "Callable[..., Training]"


class Training:
    """Ranks that publish one after the other."""

    def __init__(self, counts: list[int], world: int | None = None) -> None:
        """Publish a part of each rank.

        Args:
            counts: Gaussians of each rank, in order.
            world: number of ranks that they announce; by default those of `counts`.
        """
        self.world = world if world is not None else len(counts)
        self.runs: dict[int, Publisher] = {}
        for rank, n in enumerate(counts):
            self.publish(rank, n)

    def publish(self, rank: int, n: int) -> None:
        """Publish this many Gaussians; a rank that has ended starts again."""
        run = self.runs.get(rank)
        if run is None:
            run = Publisher("train")
            self.runs[rank] = run
        value = cloud(n, rank)
        layout = recognise(value)
        stream = run.stream("gaussians", layout.kind)
        if stream.shard[0] is None:
            stream.shard = (rank, self.world), "0" * 16
            run.wake()
        stream.describe(layout)
        published = layout.match(value, {})
        assert published is not None
        stream.publish(published)

    def end(self, rank: int) -> None:
        self.runs.pop(rank).close()

    def close(self) -> None:
        for rank in list(self.runs):
            self.end(rank)


@pytest.fixture
def viewer(open_viewer: Callable[..., Viewer]) -> Viewer:
    return open_viewer((400, 260), panel=False)


@pytest.fixture
def training() -> Iterator[Start]:
    """Return `training([300, 200])`: ranks that published this many Gaussians each."""
    with ExitStack() as trainings:

        def start(counts: list[int], world: int | None = None) -> Training:
            return trainings.enter_context(closing(Training(counts, world)))

        yield start


def entries(viewer: Viewer) -> list[str]:
    return [e.name for e in viewer.state.entries]


def shown_slot(viewer: Viewer) -> Any:
    return viewer.user.shown


def gaussian_count(viewer: Viewer) -> int:
    """Return the number of Gaussians in the shown scene, -1 without one."""
    step(viewer)
    view: Any = viewer.user.view
    if view is not None and view.content.summary is not None:
        return view.content.summary.count
    return -1


def until_count(viewer: Viewer, expected: int) -> None:
    """Take turns until the shown scene has this number of Gaussians."""

    def has_count() -> bool:
        return gaussian_count(viewer) == expected

    viewer.until(has_count)


def troubles(viewer: Viewer) -> str:
    step(viewer)
    return "; ".join(viewer.catalogue.links.troubles(shown_slot(viewer)))


def until_troubles(viewer: Viewer, expected: str) -> None:
    """Take turns until the shown scene has this text of its troubles."""

    def has_troubles() -> bool:
        return troubles(viewer) == expected

    viewer.until(has_troubles)


def has_recorded(viewer: Viewer) -> bool:
    return len(shown_slot(viewer).source.tape.recording) >= 1


def test_missing_ranks_are_reported(viewer: Viewer, training: Start) -> None:
    ranks = training([300, 200], world=4)
    until_count(viewer, 500)
    assert entries(viewer) == ["gaussians \u00b7 4 shards"]
    assert troubles(viewer) == "2 of 4 shards; ranks 2, 3 not found"
    ranks.end(1)
    until_troubles(viewer, "1 of 4 shards; rank 1 ended, ranks 2, 3 not found")
    # The last part of the rank stays in the picture.
    assert gaussian_count(viewer) == 500
    assert shown_slot(viewer).entry.alive
    ranks.publish(0, 301)
    until_count(viewer, 501)
    assert shown_slot(viewer).source.notes[:2] == [
        "shards ranks 0, 1: versions 1 to 2",
        "Gaussians by rank: 301, 200",
    ]
    ranks.publish(1, 50)
    until_count(viewer, 351)
    assert troubles(viewer) == "2 of 4 shards; ranks 2, 3 not found"


def test_last_picture_stays_until_a_restart_continues_it(
    viewer: Viewer, training: Start
) -> None:
    ranks = training([300, 200])
    until_count(viewer, 500)
    # There is one entry and one picture.
    assert entries(viewer) == ["gaussians \u00b7 2 shards"]
    assert troubles(viewer) == ""
    assert viewer.picture().max() > 60
    view = shown_slot(viewer).view
    ranks.close()

    def has_ended() -> bool:
        return not shown_slot(viewer).entry.alive

    viewer.until(has_ended)
    assert gaussian_count(viewer) == 500
    until_troubles(viewer, "")
    training([30, 20]).publish(0, 30)
    until_count(viewer, 50)
    assert shown_slot(viewer).view is view
    assert entries(viewer) == ["gaussians \u00b7 2 shards"]


def test_trainings_of_one_name_are_not_mixed(viewer: Viewer, training: Start) -> None:
    first = training([300, 200])
    until_count(viewer, 500)
    second = training([30, 20])

    def has_entry_of_each_rank() -> bool:
        names = sorted(name for name in entries(viewer) if "rank" in name)
        return names == [f"gaussians \u00b7 rank {i} of 2" for i in (0, 0, 1, 1)]

    viewer.until(has_entry_of_each_rank)
    assert any("Set SPLATVIEW_GROUP" in text for text in viewer.state.notices)
    # The shown scene stays, as that of a run that ended.
    assert gaussian_count(viewer) == 500
    first.close()
    # The second run continues in its place.
    until_count(viewer, 50)
    second.publish(0, 31)
    until_count(viewer, 51)


def test_requested_run_is_shown_and_recorded_alone(
    training: Start, open_viewer: Callable[..., Viewer]
) -> None:
    ranks = training([30, 20])
    for run, expected in (("train", 50), (ranks.runs[1].run_id, 20)):
        record = RecordOptions(every=1)
        app = open_viewer((300, 200), run=run, panel=False, record=record)
        until_count(app, expected)
        app.until(partial(has_recorded, app))
        assert shown_slot(app).source.tape.recording.snapshots[0].count == expected
        app.close()
