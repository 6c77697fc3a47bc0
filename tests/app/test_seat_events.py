"""Who gets what a user does: keys that go up in another pane, the list of keys, screens that change their scale; and
what a kept picture has on it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from support.comparison_cases import exactly
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer

from splatview.viewer_app.app import AppOptions
from splatview.viewer_app.events import Key, PointerMove, PointerPress, PointerRelease, Text
from splatview.viewer_app.interface.panel import Asked
from splatview.viewer_app.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 900, 620


@pytest.fixture
def viewer(tmp_path: Path, runtime_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Viewer]:
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
    viewer.turn()
    assert first.tools["navigate"].flying._held == {"w"}
    viewer.screen.push(Key("tab", mods=frozenset({"shift"})), Key("w", pressed=False))
    viewer.turn()
    assert panes.active is panes.all[1]
    assert not first.tools["navigate"].flying._held
    viewer.do()


def test_what_closes_the_list_of_keys_does_nothing_else(viewer: Viewer) -> None:
    inspect = view(viewer).tools["inspect"]
    inspect.choose(3)
    before = view(viewer).camera()
    for away in (Key("escape"), PointerPress(600, 200), Text("?")):
        viewer.do(Text("?"))
        assert viewer.state.help
        viewer.do(away, PointerMove(650, 260), PointerRelease(650, 260))
        assert not viewer.state.help
        assert inspect.index == 3
        np.testing.assert_array_equal(view(viewer).camera().viewmat, before.viewmat)
    viewer.do(Key("escape"))
    assert inspect.index is None


def test_a_press_in_the_panel_closes_the_list_and_is_taken(viewer: Viewer) -> None:
    viewer.do(Text("?"))
    for event in (PointerMove(60, 77), PointerPress(60, 77), PointerRelease(60, 77)):  # the second entry
        viewer.do(event)
    assert not viewer.state.help
    assert viewer.state.selected == second(viewer)


@pytest.mark.parametrize(("key", "mods"), [("h", {"ctrl"}), ("h", {"super"}), ("tab", {"alt"})])
def test_shortcuts_of_the_system_do_not_hide_the_panel(viewer: Viewer, key: str, mods: set[str]) -> None:
    viewer.do(Key(key, mods=frozenset(mods)))
    assert viewer.state.panel_open
    viewer.do(Key(key))
    assert not viewer.state.panel_open


def test_what_lies_over_a_picture_follows_the_scale_of_the_screen(viewer: Viewer) -> None:
    tool = view(viewer).tools["path"]
    for _ in range(2):
        tool.add()
    viewer.seat.mark()
    viewer.do()
    (bar,) = [b for b in view(viewer).boards(view(viewer).rect) if b.width == view(viewer).rect.width]
    width, height = SIZE
    viewer.screen.resize(2 * width, 2 * height, 2.0)  # to a monitor that is twice as fine
    viewer.seat.mark(3)
    viewer.do()
    (larger,) = [b for b in view(viewer).boards(view(viewer).rect) if b.width == view(viewer).rect.width]
    assert larger.height == 2 * bar.height
    assert view(viewer).desk.scale == 2.0


def test_a_kept_picture_has_no_mark_on_it(viewer: Viewer, tmp_path: Path) -> None:
    viewer.do(Key("s", mods=frozenset({"ctrl"})))
    before = kept(tmp_path)
    seen = viewer.picture()
    view(viewer).tools["inspect"].choose(3)
    viewer.seat.mark()
    viewer.do()
    assert (viewer.picture() != seen).any()
    viewer.do(Key("s", mods=frozenset({"ctrl"})))
    np.testing.assert_array_equal(kept(tmp_path), before)
    viewer.do()
    assert view(viewer).settings.selection.marked == (3,)


@pytest.mark.exhaustive
def test_a_kept_picture_of_two_has_none_of_what_only_helps_to_look(viewer: Viewer, tmp_path: Path) -> None:
    viewer.seat._obey(Asked(compare=("pair", second(viewer))))
    pair = view(viewer)
    viewer.until(lambda: len(pair.views) == 2)
    pair.settings.how = "blend"
    for side in pair.views:
        side.settings.coarse_ms, side.settings.reproject = math.inf, False
    viewer.state.panel_open = False
    viewer.seat.mark(3)
    viewer.do()
    seen = viewer.pixels()
    viewer.do(Key("s", mods=frozenset({"ctrl"})))
    picture = kept(tmp_path)
    corner = slice(SIZE[1] - 120, None), slice(0, 120)  # of the axes
    assert (seen[corner] != picture[corner]).any()
    for side in pair.views:
        side.desk.memo.put("axes", False)
    viewer.seat.mark(3)
    viewer.do()
    np.testing.assert_array_equal(viewer.pixels()[corner], picture[corner])
    assert not any(side.desk.exact for side in pair.views)


def test_a_film_has_no_mark_on_it(viewer: Viewer) -> None:
    from splatview.viewer_app.paths.film import Camerawork

    scene = view(viewer)
    tool = scene.tools["path"]
    tool.add()
    tool.add()
    film = replace(tool.film, width=480, height=360)
    pictures = []
    for chosen in (None, 3):
        scene.tools["inspect"].choose(chosen)
        work = Camerawork(scene.ctx, scene, film.width, film.height)
        pictures.append(work.picture(film, 0.0))
        work.close()
    np.testing.assert_array_equal(pictures[0], pictures[1])
