"""The part of the viewer that gets an event: panes, fields of the panel, the list of keys; marks on kept pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from support.comparison_cases import exactly
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer

from splatview_viewer.app.loop import AppOptions, step
from splatview_viewer.core.events import Key, Mod, Mods, PointerMove, PointerPress, PointerRelease, Text
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.finger import REACH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.widgets import Widgets

SIZE = 560, 420
CTRL: Mods = frozenset({"ctrl"})


@pytest.fixture
def viewer(widgets: Widgets, tmp_path: Path, runtime_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Viewer]:
    """With two scenes, of which the first is seen."""
    monkeypatch.chdir(tmp_path)
    files = tuple(write_ply(tmp_path / f"{name}.ply", ply_columns(truth(200, seed=ord(name)))) for name in "ab")
    app = Viewer(OffscreenScreen(*SIZE), AppOptions(files=files, max_fps=500))
    for entry in app.state.entries:
        exactly(entry)
    app.do()
    app.until(app.loaded)
    app.seat.select(app.state.entries[0].key)
    app.until(app.loaded)
    yield app
    error = app.screen.ctx.error
    app.close()
    assert error == "GL_NO_ERROR"


def view(viewer: Viewer) -> Any:
    return viewer.seat.view


def second(viewer: Viewer) -> str:
    return viewer.state.entries[1].key


def kept(folder: Path) -> np.ndarray:
    """The newest picture, in int."""
    files = sorted(folder.glob("*.png"), key=lambda file: file.stat().st_mtime_ns)
    return np.asarray(Image.open(files[-1])).astype(int)


def test_a_key_that_goes_up_in_another_pane_goes_up(viewer: Viewer) -> None:
    first = view(viewer)
    panes = viewer.seat.panes
    panes.add(second(viewer))
    panes.activate(panes.all[0])
    viewer.until(lambda: all(pane.view is not None for pane in panes))
    viewer.screen.push(Key("w"))
    step(viewer)
    step(viewer)
    assert first.moving
    viewer.screen.push(Key("tab", mods=frozenset({"shift"})), Key("w", pressed=False))
    step(viewer)
    assert panes.active is panes.all[1]
    viewer.until(lambda: not first.moving)


def test_what_is_typed_into_a_field_moves_nothing(widgets: Widgets, viewer: Viewer) -> None:
    x, y = widgets.at("Size")
    viewer.do(PointerMove(x, y))
    viewer.do(Key("ctrl", mods=CTRL), PointerPress(x, y, mods=CTRL))  # so that a number can be typed into the slider
    viewer.do(PointerRelease(x, y, mods=CTRL), Key("ctrl", pressed=False))
    assert viewer.seat.panel is not None
    assert viewer.seat.panel.typing
    view: Any = viewer.seat.view
    before = view.camera()
    other = before.to_json().replace(str(before.width), str(before.width - 1))
    viewer.do(Text(other), Key("w"), Key("f"), Key("f", pressed=False))
    assert not view.moving
    assert not view.tools["navigate"].under_way
    np.testing.assert_array_equal(view.camera().viewmat, before.viewmat)
    viewer.do(Key("w", pressed=False), Key("enter"), Key("enter", pressed=False))
    assert not viewer.seat.panel.typing
    viewer.screen.push(Text(other))  # a camera that was pasted
    step(viewer)
    assert view.tools["navigate"].under_way


def test_a_key_goes_up_though_a_field_is_open(viewer: Viewer) -> None:
    view: Any = viewer.seat.view
    pane = viewer.seat.panes.active
    viewer.screen.push(Key("w"))
    step(viewer)
    step(viewer)
    assert view.moving
    assert not pane.take(Key("d"), ours=True)
    pane.take(Key("w", pressed=False), ours=True)
    viewer.until(lambda: not view.moving)


def test_a_finger_taps_scrolls_and_holds_sliders(widgets: Widgets, viewer: Viewer) -> None:
    x, y = widgets.at(second(viewer))
    viewer.do(PointerPress(x, y, touch=True), PointerMove(x + 3, y - 3), PointerRelease(x + 3, y - 3))
    assert viewer.state.selected == second(viewer)
    viewer.until(viewer.loaded)
    x, y = widgets.at("Size")
    viewer.do(PointerPress(x, y, touch=True), *(PointerMove(x, y - n) for n in range(0, 101, 10)),
              PointerRelease(x, y - 100))
    assert widgets.at("Size")[1] == pytest.approx(y - 100, abs=REACH)
    assert view(viewer).settings.scale == 1.0
    x, y = widgets.at("Size")
    viewer.do(PointerPress(x, y, touch=True), PointerMove(x + REACH, y + 1), PointerMove(x + 40, y + 60),
              PointerRelease(x + 40, y + 60))  # sideways; from then on it may go anywhere
    assert view(viewer).settings.scale > 1.0
    assert widgets.at("Size")[1] == y


@pytest.mark.parametrize(("key", "mods"), [("h", {"ctrl"}), ("h", {"super"}), ("tab", {"alt"})])
def test_shortcuts_of_the_system_do_not_hide_the_panel(viewer: Viewer, key: str, mods: set[Mod]) -> None:
    viewer.do(Key(key, mods=frozenset(mods)))
    assert viewer.state.panel_open
    viewer.do(Key(key))
    assert not viewer.state.panel_open


def test_a_kept_picture_has_no_mark_on_it(viewer: Viewer, tmp_path: Path) -> None:
    viewer.do(Key("s", mods=CTRL))
    before = kept(tmp_path)
    seen = viewer.picture()
    view(viewer).tools["inspect"].choose(3)
    viewer.seat.mark()
    viewer.do()
    assert (viewer.picture() != seen).any()
    viewer.do(Key("s", mods=CTRL))
    np.testing.assert_array_equal(kept(tmp_path), before)
    viewer.do()
    assert view(viewer).settings.selection.marked == (3,)
