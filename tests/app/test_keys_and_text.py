"""Keys and text that are for a field of the panel are not for the picture, but a key that goes up is let go of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer

from splatview.viewer_app.app import AppOptions
from splatview.viewer_app.events import Key, PointerMove, PointerPress, PointerRelease, Text
from splatview.viewer_app.interface.panel import Asked
from splatview.viewer_app.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 640, 620
CTRL = frozenset({"ctrl"})


@pytest.fixture
def viewer(tmp_path: Path, runtime_dir: Path) -> Iterator[Viewer]:
    """With two scenes, of which the first is seen."""
    files = tuple(write_ply(tmp_path / f"{name}.ply", ply_columns(truth(200, seed=ord(name)))) for name in "ab")
    app = Viewer(OffscreenScreen(*SIZE), AppOptions(files=files, max_fps=500))
    app.do()
    app.until(app.loaded)
    app.seat.select(app.state.entries[0].key)
    app.until(app.loaded)
    yield app
    app.close()


def held(view: Any) -> set[str]:
    return view.tools["navigate"].flying._held


def open_field(viewer: Viewer) -> None:
    """Click a slider with Ctrl, so that a number can be typed: the scene's size, wherever that lies."""
    for y in range(120, SIZE[1] - 60, 12):  # below the list of scenes, where a click with Ctrl opens another pane
        viewer.do(PointerMove(180, y))
        viewer.do(Key("ctrl", mods=CTRL), PointerPress(180, y, mods=CTRL))
        viewer.do(PointerRelease(180, y, mods=CTRL), Key("ctrl", pressed=False))
        if viewer.seat.panel is not None and viewer.seat.panel.typing:
            return
        viewer.do(Key("escape"), Key("escape", pressed=False))
    raise AssertionError("no field can be opened")


def test_what_is_typed_into_a_field_moves_nothing(viewer: Viewer) -> None:
    open_field(viewer)
    view: Any = viewer.seat.view
    before = view.camera()
    other = before.to_json().replace(str(before.width), str(before.width - 1))
    viewer.do(Text(other), Key("w"), Key("f"), Key("f", pressed=False))
    assert not held(view)
    assert not view.tools["navigate"].under_way
    np.testing.assert_array_equal(view.camera().viewmat, before.viewmat)
    viewer.do(Key("w", pressed=False), Key("enter"), Key("enter", pressed=False))
    assert viewer.seat.panel is not None
    assert not viewer.seat.panel.typing
    viewer.screen.push(Text(other))  # nobody types now: a camera that was pasted
    viewer.turn()
    assert view.tools["navigate"].under_way
    viewer.until(lambda: not view.tools["navigate"].under_way)


def test_a_key_goes_up_though_a_field_is_open(viewer: Viewer) -> None:
    view: Any = viewer.seat.view
    pane = viewer.seat.panes.active
    viewer.screen.push(Key("w"))
    viewer.turn()
    assert held(view) == {"w"}
    assert not pane.take(Key("w", repeat=True), ours=True)
    assert not pane.take(Key("d"), ours=True)
    assert held(view) == {"w"}
    pane.take(Key("w", pressed=False), ours=True)
    assert not held(view)
    viewer.until(lambda: not view.moving)


def test_a_key_goes_up_on_both_sides_of_two_in_one_picture(viewer: Viewer) -> None:
    viewer.seat._obey(Asked(compare=("pair", viewer.state.entries[1].key)))
    pair: Any = viewer.seat.view
    viewer.until(lambda: len(pair.views) == 2)
    first, second = pair.views
    viewer.screen.push(Key("w"))
    viewer.turn()
    begin = first.camera().viewmat
    while np.array_equal(first.camera().viewmat, begin):  # it leads by now
        viewer.turn()
    assert held(first) == {"w"}
    area = viewer.seat.layout()
    at = area.x + area.width - 60, area.y + area.height / 2
    for event in (PointerMove(*at), PointerPress(*at), PointerRelease(*at), Key("w", pressed=False)):
        viewer.seat.take(event)
    assert not held(first)
    assert not held(second)
    viewer.until(lambda: not pair.moving)
