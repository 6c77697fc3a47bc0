"""The memory of a running trainer in the viewer: what a history tells, its plot, its strip, and what a run leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from support.frames import memory_frame, memory_samples
from support.memory_on_cpu import GIB, Allocator
from support.programs import Programs
from support.trainers import Trainer
from support.viewer import Viewer
from support.wait import PATIENCE

import splatview
from splatview.api import memory_recording
from splatview_ipc.control import memory_snapshots
from splatview_ipc.kinds.memory import MEMORY_COLUMNS
from splatview_viewer.app.loop import AppOptions
from splatview_viewer.core.events import Key
from splatview_viewer.core.screen import Rect
from splatview_viewer.kinds.memory.live import MemoryHistory
from splatview_viewer.kinds.memory.view import MemoryData, MemoryState, MemoryView
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.stream_list import Strips, strips_of
from splatview_viewer.workspace.slot import Slot

PLACE = {name: i for i, name in enumerate(MEMORY_COLUMNS)}
RECT = Rect(0, 0, 400, 240)


def made(n: int = 500, seed: int = 0) -> np.ndarray:
    """(n, 13): rows at uneven times, of random sizes."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(1e9, 9e9, (n, len(MEMORY_COLUMNS)))
    rows[:, 0] = 1.7e9 + np.cumsum(rng.uniform(0.01, 0.4, n))
    rows[:, 1] = np.arange(n)
    return rows


def test_columns_tell_the_extremes_of_what_they_cover() -> None:
    rows = made()
    rows[137, PLACE["peak"]] = 1e12
    h = MemoryHistory(rows)
    time = rows[:, 0]
    for begin, span, width in (
        (0, 100, 60),
        (30, 2.5, 40),
        (-20, 400, 50),
        (99, 0.01, 20),
        (500, 10, 5),
        (-50, 10, 5),
    ):
        columns = h.columns(1.7e9 + begin, 1.7e9 + begin + span, width)
        edges = np.linspace(1.7e9 + begin, 1.7e9 + begin + span, width + 1)
        there = [
            x for x in range(width) if edges[x] <= time[-1] and edges[x + 1] >= time[0]
        ]
        np.testing.assert_allclose(
            columns.x, [(edges[x] + edges[x + 1]) / 2 for x in there]
        )
        for i, x in enumerate(there):
            # a row is about the time from the row before to its own
            covered = [
                k
                for k in range(len(rows))
                if time[k] >= edges[x] and (k == 0 or time[k - 1] < edges[x + 1])
            ]
            assert columns.peak[i] == rows[covered, PLACE["peak"]].max()
            assert columns.low[i] == rows[covered, PLACE["low"]].min()
            assert columns.host[i] == rows[covered, PLACE["host"]].max()


@pytest.fixture(name="view")
def view_fixture() -> MemoryView:
    v = MemoryView(MemoryData(), MemoryState())
    v.take("", memory_frame())
    return v


def test_the_newest_stays_in_sight_until_the_user_moves_away(view: MemoryView) -> None:
    begin, end = view.window()
    view.see(begin + 15, end)
    assert view.state.right is None  # zoomed, and still at the newest
    view.take("", memory_frame(memory_samples(300)))
    assert view.window() == pytest.approx((end + 10 - (end - begin - 15), end + 10))
    begin, end = view.window()
    view.see(begin - 2, end - 2)
    held = view.window()
    view.take("", memory_frame(memory_samples(400)))
    assert view.window() == held
    view.handle(Key("f"), RECT)
    assert view.state.right is view.state.span is None


@pytest.fixture
def viewer() -> Iterator[Viewer]:
    app = Viewer(OffscreenScreen(560, 520), AppOptions(max_fps=500))
    yield app
    app.close()


STEP = """
splatview.publish(torch.full((40, 60, 3), 77, dtype=torch.uint8), "render")
splatview.publish_memory(hz=50)
allocator.allocate(GIB)
"""


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A step of a trainer in this process."""
    memory_recording.observe.cache_clear()
    allocator = Allocator().install(
        lambda *given: monkeypatch.setattr(*given, raising=False)
    )
    return lambda: exec(
        STEP,
        {"splatview": splatview, "torch": torch, "GIB": GIB, "allocator": allocator},
    )


def until(
    viewer: Viewer, step: Callable[[], Any], condition: Callable[[], Any]
) -> None:
    """Train until a condition holds."""
    viewer.until(lambda: (step(), condition())[1])


def slot(viewer: Viewer, name: str) -> Slot | None:
    return next(
        (s for s in viewer.catalogue.slots.values() if s.entry.name == name), None
    )


def select(viewer: Viewer, name: str) -> None:
    found = slot(viewer, name)
    assert found is not None
    viewer.user.select(found.entry.key)


def shows(viewer: Viewer, name: str) -> bool:
    return viewer.user.shown is not None and viewer.user.shown.entry.name == name


def beside(viewer: Viewer) -> Strips:
    assert viewer.user.shown is not None
    return strips_of(viewer.catalogue, viewer.user.shown)


def test_the_memory_is_plotted_beside_the_scene_that_causes_it(
    viewer: Viewer, train: Callable[[], None]
) -> None:
    until(
        viewer, train, lambda: shows(viewer, "render") and beside(viewer).memory
    )  # the scene is shown first
    newest = beside(viewer).memory
    until(viewer, train, lambda: beside(viewer).memory is not newest)
    select(viewer, "memory")
    viewer.until(lambda: viewer.catalogue.watched() == [viewer.user.shown])
    assert beside(viewer).memory is None
    select(viewer, "render")
    until(
        viewer,
        train,
        lambda: beside(viewer).memory and len(viewer.catalogue.watched()) > 1,
    )


@pytest.mark.usefixtures("timeline_kernels")
def test_a_snapshot_that_was_asked_for_opens_by_itself(
    viewer: Viewer, train: Callable[[], None], here: list[Any]
) -> None:
    until(viewer, train, lambda: slot(viewer, "memory"))
    select(viewer, "memory")
    until(
        viewer,
        train,
        lambda: (
            (view := viewer.shows(MemoryView)) is not None and view.data.ask is not None
        ),
    )
    view = viewer.shows(MemoryView)
    assert view is not None
    view.ask()
    until(
        viewer,
        train,
        lambda: viewer.user.shown is not None and viewer.user.shown.entry.is_file,
    )
    assert view.data.about.snapshots == 1
    assert viewer.user.state.selected == str(view.data.about.snapshot_path)
    viewer.until(viewer.loaded)
    assert viewer.user.shown is not None
    assert (viewer.user.shown.entry.kind, viewer.user.shown.entry.fault) == (
        "snapshot",
        "",
    )


def test_a_run_that_dies_of_it_leaves_a_snapshot_and_its_last_samples(
    viewer: Viewer, programs: Programs, here: list[Any]
) -> None:
    trainer = Trainer(programs)
    trainer.do(
        "from support.memory_on_cpu import GIB, Allocator\nallocator = Allocator().install(setattr)\nanswer = 0"
    )
    until(
        viewer, lambda: trainer.do(STEP + "answer = 0"), lambda: slot(viewer, "memory")
    )
    select(viewer, "memory")
    until(
        viewer,
        lambda: trainer.do(STEP + "answer = 0"),
        lambda: viewer.shows(MemoryView),
    )
    view: Any = viewer.shows(MemoryView)
    trainer.start("allocator.fail()\nsys.stdin.close()")
    trainer.process.wait(
        PATIENCE
    )  # the viewer finds the end and the last version at once
    viewer.until(
        lambda: viewer.user.shown is not None and viewer.user.shown.entry.is_file
    )
    name = viewer.user.shown.entry.name  # type: ignore[union-attr]
    assert name.endswith("-1-oom.pickle")
    assert viewer.user.state.selected == str(memory_snapshots.find_snapshot(name))
    count = len(viewer.state.entries)
    viewer.catalogue.forget(str(memory_snapshots.find_snapshot(name)))
    viewer.do()
    assert len(viewer.state.entries) == count - 1  # it is opened once only
    viewer.until(lambda: view.data.history.newest("ooms") == 1)
