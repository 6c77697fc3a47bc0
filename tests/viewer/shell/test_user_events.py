"""Which part of the viewer gets an event: viewports, fields of the panel, the list of
keys; marks on kept pictures.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer

from splatview_viewer.app.loop import step
from splatview_viewer.core.events import (
    Key,
    Mods,
    PointerMove,
    PointerPress,
    PointerRelease,
    Text,
)
from splatview_viewer.shell.overlay import KEYS
from splatview_viewer.shell.panel import REACH

SIZE = 560, 420
CTRL: Mods = frozenset({"ctrl"})


@pytest.fixture
def viewer(
    open_viewer: Callable[..., Viewer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sharp: None,
) -> Viewer:
    """With two scenes, of which the first is seen."""
    monkeypatch.chdir(tmp_path)
    app = open_viewer(
        SIZE,
        files=tuple(
            write_ply(tmp_path / f"{name}.ply", ply_columns(truth(200, seed=ord(name))))
            for name in "ab"
        ),
    )
    app.do()
    app.until(app.loaded)
    app.user.select(app.state.entries[0].key)
    app.until(app.loaded)
    return app


def view(viewer: Viewer) -> Any:
    return viewer.user.view


def second(viewer: Viewer) -> str:
    return viewer.state.entries[1].key


def test_a_key_that_goes_up_in_another_pane_goes_up(viewer: Viewer) -> None:
    first = view(viewer)
    layout = viewer.user.layout
    layout.add(second(viewer))
    layout.activate(layout.all[0])
    viewer.until(lambda: all(viewport.view is not None for viewport in layout))
    viewer.screen.push(Key("w"))
    step(viewer)
    step(viewer)
    assert first.wants.moving
    viewer.screen.push(Key("tab", mods=frozenset({"shift"})), Key("w", pressed=False))
    step(viewer)
    assert layout.active is layout.all[1]
    viewer.until(lambda: not first.wants.moving)


def test_no_key_does_two_things(viewer: Viewer) -> None:
    lines = [
        *(line for tool in view(viewer).view.tools.values() for line in tool.keys),
        *KEYS,
    ]
    said = [line.keys for line in lines if line.keys != "Escape"]
    assert len(said) == len(set(said))


def test_what_is_typed_into_a_field_moves_nothing(viewer: Viewer) -> None:
    viewer.do(
        Key("h", mods=CTRL),
        Key("h", mods=frozenset({"super"})),
        Key("tab", mods=frozenset({"alt"})),
    )
    assert viewer.state.panel_open  # shortcuts of the system do not hide it
    viewer.screen.push(Key("ctrl", mods=CTRL))
    viewer.click("Scale", mods=CTRL)  # so that a number can be typed
    viewer.do(Key("ctrl", pressed=False))
    assert viewer.user.panel.typing
    shown = view(viewer)
    before = shown.view.rig.camera()
    other = before.to_json().replace(str(before.width), str(before.width - 1))
    viewer.do(Text(other), Key("w"), Key("f"), Key("f", pressed=False))
    assert not shown.wants.moving
    assert not shown.view.rig.motion.is_under_way
    np.testing.assert_array_equal(shown.view.rig.camera().viewmat, before.viewmat)
    viewer.do(Key("w", pressed=False), Key("enter"), Key("enter", pressed=False))
    assert not viewer.user.panel.typing
    viewer.screen.push(Text(other))  # a camera that was pasted
    step(viewer)
    assert shown.view.rig.motion.is_under_way


def test_a_finger_taps_scrolls_and_holds_sliders(viewer: Viewer) -> None:
    x, y = viewer.find(second(viewer))
    viewer.do(
        PointerPress(x, y, touch=True),
        PointerMove(x + 3, y - 3),
        PointerRelease(x + 3, y - 3),
    )
    assert viewer.state.selected == second(viewer)
    viewer.until(viewer.loaded)
    x, y = viewer.find("Scale")
    viewer.do(
        PointerPress(x, y, touch=True),
        *(PointerMove(x, y - n) for n in range(0, 101, 10)),
        PointerRelease(x, y - 100),
    )
    assert viewer.find("Scale")[1] == pytest.approx(y - 100, abs=REACH)
    assert view(viewer).view.state.scale == 1.0
    x, y = viewer.find("Scale")
    viewer.do(
        PointerPress(x, y, touch=True),
        PointerMove(x + REACH, y + 1),
        PointerMove(x + 40, y + 60),
        PointerRelease(x + 40, y + 60),
    )  # sideways; from then on it may go anywhere
    assert view(viewer).view.state.scale > 1.0
    assert viewer.find("Scale")[1] == y


def test_a_kept_picture_has_no_mark_on_it(viewer: Viewer, tmp_path: Path) -> None:
    viewer.do(Key("s", mods=CTRL))
    seen = viewer.picture()
    view(viewer).view.tools["inspect"].choose(3)
    viewer.user.mark()
    viewer.do()
    assert (viewer.picture() != seen).any()
    viewer.do(Key("s", mods=CTRL))
    before, after = (np.asarray(Image.open(file)) for file in tmp_path.glob("*.png"))
    np.testing.assert_array_equal(after, before)
    assert view(viewer).view.state.selection.marked == (3,)
