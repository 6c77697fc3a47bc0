"""The viewer plots the memory of a running trainer, and opens the snapshots of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from support.frames import memory_frame, memory_samples
from support.memory_on_cpu import GIB, Allocator
from support.programs import Programs
from support.trainers import Trainer
from support.viewer import Viewer
from support.wait import PATIENCE_S

import splatview
from splatview.api import memory_recording
from splatview_ipc.control import memory_snapshots
from splatview_ipc.kinds.memory import MEMORY_COLUMNS
from splatview_viewer.app.loop import AppOptions
from splatview_viewer.core.command import command_of
from splatview_viewer.core.events import Key
from splatview_viewer.core.screen import Rect
from splatview_viewer.kinds.memory.live import MemoryHistory
from splatview_viewer.kinds.memory.reduction import pixel_columns
from splatview_viewer.kinds.memory.view import MemoryData, MemoryState, MemoryView
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.sparklines import MEMORY, Spark, sparks_of
from splatview_viewer.workspace.slot import Slot

COLUMN = {name: i for i, name in enumerate(MEMORY_COLUMNS)}
RECT = Rect(0, 0, 400, 240)


def random_rows(n: int = 500, seed: int = 0) -> np.ndarray:
    """Make rows (n, 13) at uneven times, of random sizes."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(1e9, 9e9, (n, len(MEMORY_COLUMNS)))
    rows[:, 0] = 1.7e9 + np.cumsum(rng.uniform(0.01, 0.4, n))
    rows[:, 1] = np.arange(n)
    return rows


def test_columns_hold_the_extremes_of_their_rows() -> None:
    rows = random_rows()
    rows[137, COLUMN["peak"]] = 1e12
    h = MemoryHistory(rows)
    time = rows[:, 0]
    for start, span, width in (
        (0, 100, 60),
        (30, 2.5, 40),
        (-20, 400, 50),
        (99, 0.01, 20),
        (500, 10, 5),
        (-50, 10, 5),
    ):
        columns = pixel_columns(h, 1.7e9 + start, 1.7e9 + start + span, width)
        edges = np.linspace(1.7e9 + start, 1.7e9 + start + span, width + 1)
        overlaps = (edges[:-1] <= time[-1]) & (edges[1:] >= time[0])
        overlapping = np.flatnonzero(overlaps).tolist()
        np.testing.assert_allclose(
            columns.x, [(edges[x] + edges[x + 1]) / 2 for x in overlapping]
        )
        for i, x in enumerate(overlapping):
            # A row covers the time from the previous row to its own.
            row_start = np.concatenate([[-np.inf], time[:-1]])
            covered = (time >= edges[x]) & (row_start < edges[x + 1])
            assert columns.peak[i] == rows[covered, COLUMN["peak"]].max()
            assert columns.low[i] == rows[covered, COLUMN["low"]].min()
            assert columns.host[i] == rows[covered, COLUMN["host"]].max()


@pytest.fixture(name="view")
def view_fixture() -> MemoryView:
    v = MemoryView(MemoryData(), MemoryState())
    v.take("", memory_frame())
    return v


def test_plot_follows_the_newest_sample_until_the_user_moves_it(
    view: MemoryView,
) -> None:
    start, end = view.visible_period()
    view.show_period(start + 15, end)
    # The plot is zoomed, and still at the newest sample.
    assert view.state.right is None
    view.take("", memory_frame(memory_samples(300)))
    assert view.visible_period() == pytest.approx(
        (end + 10 - (end - start - 15), end + 10)
    )
    start, end = view.visible_period()
    view.show_period(start - 2, end - 2)
    window = view.visible_period()
    view.take("", memory_frame(memory_samples(400)))
    assert view.visible_period() == window
    command = command_of(view.commands(), Key("f"))
    assert command is not None
    command.run(view)
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
    """Return a function that takes a step of a trainer in this process."""
    memory_recording.observe.cache_clear()

    def install(target: Any, name: str, value: Any) -> None:
        monkeypatch.setattr(target, name, value, raising=False)

    allocator = Allocator().install(install)
    names = {"splatview": splatview, "torch": torch, "GIB": GIB, "allocator": allocator}

    def take_step() -> None:
        exec(STEP, dict(names))

    return take_step


def train_until(
    viewer: Viewer, take_step: Callable[[], Any], condition: Callable[[], Any]
) -> None:
    """Take steps until a condition holds."""

    def holds_after_step() -> Any:
        take_step()
        return condition()

    viewer.until(holds_after_step)


def slot(viewer: Viewer, name: str) -> Slot | None:
    slots = viewer.catalogue.slots.values()
    return next((s for s in slots if s.entry.name == name), None)


def has_memory(viewer: Viewer) -> bool:
    return slot(viewer, "memory") is not None


def select(viewer: Viewer, name: str) -> None:
    selected = slot(viewer, name)
    assert selected is not None
    viewer.user.select(selected.entry.key)


def shows(viewer: Viewer, name: str) -> bool:
    return viewer.user.shown is not None and viewer.user.shown.entry.name == name


def shows_file(viewer: Viewer) -> bool:
    return viewer.user.shown is not None and viewer.user.shown.entry.is_file


def memory_curve(viewer: Viewer) -> Spark | None:
    """Return the small curve of memory beside the shown view."""
    assert viewer.user.shown is not None
    sparks = sparks_of(viewer.catalogue, viewer.user.shown)
    return next((spark for spark in sparks if spark.title == MEMORY), None)


def test_memory_is_plotted_beside_the_scene_that_takes_it(
    viewer: Viewer, train: Callable[[], None]
) -> None:
    def shows_scene_with_memory() -> bool:
        return shows(viewer, "render") and memory_curve(viewer) is not None

    def has_newer_memory() -> bool:
        spark = memory_curve(viewer)
        return spark is not None and len(spark.curve) > newest

    def watches_memory_alone() -> bool:
        return viewer.catalogue.watched() == [viewer.user.shown]

    def watches_scene_and_memory() -> bool:
        has_strip = memory_curve(viewer) is not None
        return has_strip and len(viewer.catalogue.watched()) > 1

    # The scene is shown first.
    train_until(viewer, train, shows_scene_with_memory)
    drawn_curve = memory_curve(viewer)
    assert drawn_curve is not None
    newest = len(drawn_curve.curve)
    train_until(viewer, train, has_newer_memory)
    select(viewer, "memory")
    viewer.until(watches_memory_alone)
    assert memory_curve(viewer) is not None
    select(viewer, "render")
    train_until(viewer, train, watches_scene_and_memory)


@pytest.mark.usefixtures("timeline_kernels")
def test_requested_snapshot_opens_by_itself(
    viewer: Viewer, train: Callable[[], None], read_in_process: list[Any]
) -> None:
    def can_ask() -> bool:
        view = viewer.shows(MemoryView)
        return view is not None and view.data.request_snapshot is not None

    train_until(viewer, train, partial(has_memory, viewer))
    select(viewer, "memory")
    train_until(viewer, train, can_ask)
    view = viewer.shows(MemoryView)
    assert view is not None
    view.request_snapshot()
    train_until(viewer, train, partial(shows_file, viewer))
    assert view.data.facts.snapshots == 1
    assert viewer.user.state.selected == str(view.data.facts.snapshot_path)
    viewer.until(viewer.loaded)
    assert viewer.user.shown is not None
    assert viewer.user.shown.entry.kind == "snapshot"
    assert viewer.user.shown.entry.fault == ""


def test_run_out_of_memory_leaves_a_snapshot_and_its_last_samples(
    viewer: Viewer, programs: Programs, read_in_process: list[Any]
) -> None:
    trainer = Trainer(programs)
    trainer.do(
        "from support.memory_on_cpu import GIB, Allocator\n"
        "allocator = Allocator().install(setattr)\n"
        "answer = 0"
    )

    def take_step() -> None:
        trainer.do(STEP + "answer = 0")

    train_until(viewer, take_step, partial(has_memory, viewer))
    select(viewer, "memory")
    train_until(viewer, take_step, partial(viewer.shows, MemoryView))
    view: Any = viewer.shows(MemoryView)
    trainer.start("allocator.fail()\nsys.stdin.close()")
    # The viewer finds the end and the last version at once.
    trainer.process.wait(PATIENCE_S)
    viewer.until(partial(shows_file, viewer))
    name = viewer.user.shown.entry.name  # type: ignore[union-attr]
    assert name.endswith("-1-oom.pickle")
    path = str(memory_snapshots.find_snapshot(name))
    assert viewer.user.state.selected == path
    count = len(viewer.state.entries)
    viewer.catalogue.forget(path)
    viewer.do()
    # A snapshot opens by itself only once.
    assert len(viewer.state.entries) == count - 1

    def has_recorded_failure() -> bool:
        return view.data.history.newest("ooms") == 1

    viewer.until(has_recorded_failure)
