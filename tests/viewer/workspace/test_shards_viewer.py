"""A scene that several processes publish in parts, in the viewer: one entry, one
picture, and what is said of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any, TypeAlias

import pytest
from support.frames import cloud
from support.viewer import Viewer

from splatview.adapters import recognise
from splatview_ipc.publisher.publisher import Publisher
from splatview_viewer.app.loop import step
from splatview_viewer.recording.recording import RecordOptions

Start: TypeAlias = "Callable[..., Training]"


class Training:
    """Ranks that publish one after the other."""

    def __init__(self, counts: list[int], world: int | None = None) -> None:
        """`counts`: Gaussians of each rank, in order; `world`: how many ranks they say
        that there are.
        """
        self.world = len(counts) if world is None else world
        self.runs: dict[int, Publisher] = {}
        for rank, n in enumerate(counts):
            self.publish(rank, n)

    def publish(self, rank: int, n: int) -> None:
        """Publish so many Gaussians; a rank that has ended begins anew."""
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
    """`training([300, 200])`: ranks that have published so many Gaussians each."""
    with ExitStack() as started:
        yield lambda counts, world=None: started.enter_context(
            closing(Training(counts, world))
        )


def entries(viewer: Viewer) -> list[str]:
    return [e.name for e in viewer.state.entries]


def slot(viewer: Viewer) -> Any:
    return viewer.user.shown


def count(viewer: Viewer) -> int:
    """Gaussians in what is shown."""
    step(viewer)
    view: Any = viewer.user.view
    if view is not None and view.content.summary is not None:
        return view.content.summary.count
    return -1


def trouble(viewer: Viewer) -> str:
    step(viewer)
    return "; ".join(viewer.catalogue.links.troubles(slot(viewer)))


def test_what_is_missing_is_said(viewer: Viewer, training: Start) -> None:
    ranks = training([300, 200], world=4)
    viewer.until(lambda: count(viewer) == 500)
    assert entries(viewer) == ["gaussians \u00b7 4 shards"]
    assert trouble(viewer) == "2 of 4 shards; ranks 2, 3 not found"
    ranks.end(1)
    viewer.until(
        lambda: trouble(viewer) == "1 of 4 shards; rank 1 ended, ranks 2, 3 not found"
    )
    assert count(viewer) == 500  # its last part is seen
    assert slot(viewer).entry.alive
    ranks.publish(0, 301)
    viewer.until(lambda: count(viewer) == 501)
    assert slot(viewer).source.notes[:2] == [
        "shards ranks 0, 1: versions 1 to 2",
        "Gaussians by rank: 301, 200",
    ]
    ranks.publish(1, 50)
    viewer.until(lambda: count(viewer) == 351)
    assert trouble(viewer) == "2 of 4 shards; ranks 2, 3 not found"


def test_when_all_have_ended_the_last_picture_stays_and_a_restart_continues(
    viewer: Viewer, training: Start
) -> None:
    ranks = training([300, 200])
    viewer.until(lambda: count(viewer) == 500)
    assert (entries(viewer), trouble(viewer)) == (
        ["gaussians \u00b7 2 shards"],
        "",
    )  # one entry and one picture
    assert viewer.picture().max() > 60
    view = slot(viewer).view
    ranks.close()
    viewer.until(lambda: not slot(viewer).entry.alive)
    assert count(viewer) == 500
    viewer.until(lambda: trouble(viewer) == "")
    training([30, 20]).publish(0, 30)
    viewer.until(lambda: count(viewer) == 50)
    assert slot(viewer).view is view
    assert entries(viewer) == ["gaussians \u00b7 2 shards"]


def test_trainings_that_cannot_be_told_apart_are_not_mixed(
    viewer: Viewer, training: Start
) -> None:
    first = training([300, 200])
    viewer.until(lambda: count(viewer) == 500)
    second = training([30, 20])
    viewer.until(
        lambda: (
            sorted(n for n in entries(viewer) if "rank" in n)
            == [f"gaussians \u00b7 rank {i} of 2" for i in (0, 0, 1, 1)]
        )
    )
    assert any("Set SPLATVIEW_GROUP" in text for text in viewer.state.notices)
    assert count(viewer) == 500  # what was seen stays, as that of a run that ended
    first.close()
    viewer.until(lambda: count(viewer) == 50)  # the other goes on in its place
    second.publish(0, 31)
    viewer.until(lambda: count(viewer) == 51)


def test_a_run_that_was_asked_for_is_shown_and_recorded_alone(
    training: Start, open_viewer: Callable[..., Viewer]
) -> None:
    ranks = training([30, 20])
    for wanted, expected in (("train", 50), (ranks.runs[1].run_id, 20)):
        app = open_viewer(
            (300, 200), run=wanted, panel=False, record=RecordOptions(every=1)
        )
        app.until(lambda app=app, expected=expected: count(app) == expected)
        app.until(lambda app=app: len(slot(app).source.tape.recording) >= 1)
        assert slot(app).source.tape.recording.snapshots[0].count == expected
        app.close()
