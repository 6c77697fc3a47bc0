"""A viewer in which nothing happens draws nothing, whatever is open in it: no tool marks pictures for ever."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from patience import PATIENCE
from repetitions import exhaustive
from scene_files import ply_columns, truth, write_ply
from test_training_cameras_viewer import TRAINER
from test_viewer import Viewer

from splatview.viewer_app.app import AppOptions
from splatview.viewer_app.events import Key, PointerMove
from splatview.viewer_app.interface.panel import Asked
from splatview.viewer_app.recorder.options import RecordOptions
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.seat import Seat
from splatview.viewer_app.selecting.statistics import QUANTITIES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from programs import Processes

SIZE = 720, 2200
"""High enough for all of the panel."""
STILL = 2.5
"""Seconds: more than rates of streams, tooltips and what waits for the hand to rest take, which come once."""


@pytest.fixture
def viewer(runtime_dir: Path) -> Iterator[Viewer]:
    app = Viewer(OffscreenScreen(*SIZE), AppOptions(max_fps=500, record=RecordOptions(every=1)))
    yield app
    error = app.screen.ctx.error
    app.close()
    assert error == "GL_NO_ERROR"


@pytest.fixture
def training(viewer: Viewer, processes: Processes) -> Any:
    """The view of a scene whose cameras, photographs and snapshots have come. Its training waits by now."""
    process = processes.code(TRAINER, "memory")
    viewer.until(lambda: viewer.seat.view is not None and viewer.seat.view.kind == "gaussians")
    view: Any = viewer.seat.view
    tools = view.tools
    viewer.until(lambda: tools["frustums"].content is not None)
    viewer.until(lambda: tools["frustums"].content.drawing._flags[:, 0].all())
    for number in (3, 4):
        loads = view.content.loads
        assert process.stdin is not None
        print(number, file=process.stdin, flush=True)  # one more version, trained with another camera
        viewer.until(lambda loads=loads: view.content.loads > loads)
    viewer.until(lambda: tools["history"].player is not None)
    return view


def comes_to_rest(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns until nothing was drawn for a while."""
    marks: Counter[str] = Counter()
    mark = Seat.mark

    def marking(self: Seat, pictures: int = 1) -> None:
        import traceback

        marks[" < ".join(f"{f.name} in {f.filename.rpartition('/')[2]}:{f.lineno}"
                         for f in traceback.extract_stack(limit=4)[-2::-1])] += 1
        mark(self, pictures)

    with monkeypatch.context() as patch:
        patch.setattr(Seat, "mark", marking)
        end, draws, since = time.monotonic() + PATIENCE, -1, 0.0
        while time.monotonic() < since + STILL or viewer.draws != draws or viewer.seat.dirty:
            if viewer.draws != draws:
                draws, since = viewer.draws, time.monotonic()
            viewer.turn()
            assert time.monotonic() < end, f"it draws and draws: {marks.most_common(4)}"


def use_all(viewer: Viewer, view: Any) -> None:
    """Have every tool in use, and all parts of the panel open."""
    assert viewer.seat.panel is not None
    for section in view.sections:
        viewer.seat.panel._folds[section.title] = True
    tools = view.tools
    tools["crop"].set(tools["crop"].fitted()[0])
    tools["inspect"].choose(3)
    tools["navigate"].keep(1)
    for _ in range(2):
        tools["path"].add()
        view.orbit.orbit(0.3, 0.0)
        view.moved()
    tools["path"].shown = True
    tools["filter"].limit(QUANTITIES[0], 0.1, 1.0)
    viewer.seat.mark()


@pytest.mark.parametrize("show", ["color", exhaustive("depth")])
def test_a_scene_with_all_its_tools_and_an_open_panel_comes_to_rest(viewer: Viewer, training: Any, show: str,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    view = training
    view.settings.show = show
    use_all(viewer, view)
    comes_to_rest(viewer, monkeypatch)
    assert [tool.name for tool in view.tools.values() if tool.bar_height()] == ["history", "path"]
    viewer.screen.push(PointerMove(560, 300))  # over the picture
    comes_to_rest(viewer, monkeypatch)
    viewer.screen.push(Key("w"), Key("w", pressed=False))  # what flies comes to a stop
    comes_to_rest(viewer, monkeypatch)
    view.tools["frustums"].enter(2)
    viewer.until(lambda: view.tools["frustums"].through.psnr is not None)
    comes_to_rest(viewer, monkeypatch)
    before = viewer.pixels()
    viewer.seat.mark()
    viewer.do()
    assert (viewer.pixels() == before).mean() > 0.99  # all of what there is to see is there already


@pytest.mark.exhaustive  # the cameras of a scene and all its tools come to rest above
def test_cameras_beside_a_scene_that_is_compared_come_to_rest(viewer: Viewer, training: Any, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_ply(tmp_path / "other.ply", ply_columns(truth(200)))
    viewer.catalogue.open_file(file)
    viewer.until(viewer.loaded)
    keys = {entry.kind: entry.key for entry in viewer.state.entries if not entry.is_file}
    panes = viewer.seat.panes
    panes.add(keys["cameras"])
    panes.add(keys["gaussians"])
    viewer.until(lambda: all(pane.view is not None for pane in panes))
    viewer.seat._obey(Asked(compare=("pair", str(file))))
    pair: Any = panes.active.view
    viewer.until(lambda: len(pair.views) == 2)
    pair.settings.how = "difference"
    viewer.seat.mark()
    comes_to_rest(viewer, monkeypatch)
    assert [pane.view.kind for pane in panes if pane.view is not None] == ["gaussians", "cameras", "pair"]
    cameras: Any = panes.all[1].view
    cameras.open(2)
    viewer.seat.mark()
    comes_to_rest(viewer, monkeypatch)
    assert cameras.content.photos.whole(2) is not None
