"""The viewer beside trainers that publish their memory: the strip in the panel, full snapshots, runs that die of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.memory_on_cpu import TRAINER
from support.programs import ROOT
from support.viewer import Viewer
from support.wait import PATIENCE

from splatview.ipc import taken
from splatview.viewer_app.app import AppOptions
from splatview.viewer_app.events import Key, PointerMove, PointerPress, PointerRelease
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.views._memory_plot import ALLOCATED
from splatview.viewer_app.views.memory import MemoryView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.programs import Programs

    from splatview.viewer_app.catalogue import Slot


@pytest.fixture
def viewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Viewer]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    app = Viewer(OffscreenScreen(560, 520), AppOptions(max_fps=500))
    yield app
    app.close()


@pytest.fixture
def trainer(viewer: Viewer, programs: Programs) -> Callable[..., Any]:
    def start(*args: str) -> Any:
        path = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
        return programs.code(TRAINER, *args, PYTHONPATH=os.pathsep.join(filter(None, path)))

    return start


def slot(viewer: Viewer, name: str) -> Slot | None:
    return next((s for s in viewer.catalogue.slots.values() if s.entry.name == name), None)


def memory(viewer: Viewer) -> MemoryView:
    found = slot(viewer, "memory")
    assert found is not None
    assert isinstance(found.view, MemoryView)
    return found.view


def shows(viewer: Viewer, name: str) -> bool:
    return viewer.seat.shown is not None and viewer.seat.shown.entry.name == name


def has_strip(viewer: Viewer) -> bool:
    return viewer.seat.shown is not None and viewer.catalogue.companions.strip(viewer.seat.shown) is not None


def readers(viewer: Viewer) -> bool:
    """Whether the memory's stream is open."""
    found: Any = slot(viewer, "memory")
    return found.source.stream._opened


def test_the_memory_lies_beside_the_scene_that_causes_it(viewer: Viewer, trainer: Callable[..., Any]) -> None:
    trainer()
    viewer.until(lambda: shows(viewer, "render") and has_strip(viewer))  # the scene is shown first, not the memory
    strip = viewer.catalogue.companions.strip(viewer.seat.shown)  # type: ignore[arg-type]
    assert strip is not None
    newest = strip.parts[0].history.end  # type: ignore[union-attr]
    viewer.until(lambda: viewer.catalogue.companions.strip(viewer.seat.shown).parts[0].history.end > newest + 1)  # type: ignore
    viewer.do(Key("h"), Key("h", pressed=False))  # without the panel nobody sees it
    viewer.until(lambda: not readers(viewer))
    assert has_strip(viewer)
    viewer.do(Key("h"), Key("h", pressed=False))
    viewer.until(lambda: readers(viewer))
    viewer.seat.select(slot(viewer, "memory").entry.key)  # type: ignore[union-attr]
    viewer.until(lambda: viewer.catalogue.companions.slots == [])
    assert readers(viewer)
    assert not has_strip(viewer)
    viewer.seat.select(slot(viewer, "render").entry.key)  # type: ignore[union-attr]
    viewer.until(lambda: has_strip(viewer) and viewer.catalogue.companions.slots != [])
    assert readers(viewer)


@pytest.mark.exhaustive  # quick: a click on the strip of plots
def test_a_click_on_the_strip_shows_more(viewer: Viewer, trainer: Callable[..., Any]) -> None:
    trainer()
    viewer.until(lambda: shows(viewer, "render") and has_strip(viewer))
    color = np.array(ALLOCATED) * 255

    def blue() -> np.ndarray:  # what is allocated
        return np.all(abs(viewer.pixels()[:, :280] - color) < 1.5, axis=-1)

    viewer.until(lambda: blue().sum() > 300)
    y, x = (int(v.mean()) for v in blue().nonzero())
    viewer.do(PointerMove(x, y))
    viewer.do(PointerPress(x, y), PointerRelease(x, y))
    viewer.until(lambda: shows(viewer, "memory"))
    viewer.until(lambda: not memory(viewer).empty)
    assert viewer.seat.view is memory(viewer)


def test_a_snapshot_that_was_asked_for_opens_by_itself(viewer: Viewer, trainer: Callable[..., Any]) -> None:
    trainer()
    viewer.until(lambda: slot(viewer, "memory") is not None)
    viewer.seat.select(slot(viewer, "memory").entry.key)  # type: ignore[union-attr]
    viewer.until(lambda: slot(viewer, "memory").view is not None and memory(viewer).content.ask is not None)  # type: ignore
    view = viewer.seat.view
    assert isinstance(view, MemoryView)
    view.ask()
    viewer.until(lambda: viewer.seat.shown is not None and viewer.seat.shown.entry.is_file)
    assert view.content.about.snapshots == 1
    assert viewer.seat.state.selected == str(view.content.about.file)
    viewer.until(viewer.loaded)
    shown = viewer.seat.shown
    assert shown is not None
    assert shown.entry.kind == "snapshot"
    assert not shown.entry.fault


def test_a_run_that_dies_of_it_leaves_its_last_words(viewer: Viewer, trainer: Callable[..., Any]) -> None:
    process = trainer("dies")
    viewer.until(lambda: slot(viewer, "memory") is not None)
    viewer.seat.select(slot(viewer, "memory").entry.key)  # type: ignore[union-attr]
    viewer.until(lambda: slot(viewer, "memory").view is not None and memory(viewer).content.history is not None)  # type: ignore
    assert process.wait(PATIENCE) == 1  # then the viewer finds the end and the last version at once
    viewer.until(lambda: viewer.seat.shown is not None and viewer.seat.shown.entry.is_file)
    name = viewer.seat.shown.entry.name  # type: ignore[union-attr]
    assert name.endswith("-1-oom.pickle")
    assert viewer.seat.state.selected == str(taken.find(name))
    count = len(viewer.state.entries)
    viewer.catalogue.forget(str(taken.find(name)))
    for _ in range(20):
        viewer.turn()
    assert len(viewer.state.entries) == count - 1  # it is opened once only
    assert memory(viewer).content.history is not None
    assert memory(viewer).content.history.now("ooms") == 1  # type: ignore[union-attr]


@pytest.mark.exhaustive
def test_who_looks_at_a_scene_keeps_it_when_the_run_dies(viewer: Viewer, trainer: Callable[..., Any]) -> None:
    trainer("dies")
    viewer.until(lambda: shows(viewer, "render"))
    viewer.until(lambda: any(e.is_file for e in viewer.state.entries))
    assert shows(viewer, "render")
