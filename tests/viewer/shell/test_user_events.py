"""Events of viewports, of fields of the panel and of keys.

Kept pictures have no marks.
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
from support.wait import polls

from splatview_viewer.app.loop import step
from splatview_viewer.core.events import (
    Key,
    Mods,
    PointerMove,
    PointerPress,
    PointerRelease,
    Text,
)
from splatview_viewer.shell.finger import REACH

SIZE = 1100, 900
CTRL: Mods = frozenset({"ctrl"})


@pytest.fixture
def viewer(
    open_viewer: Callable[..., Viewer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sharp: None,
) -> Viewer:
    """Return a viewer with two scenes, of which the first is shown."""
    monkeypatch.chdir(tmp_path)
    files = []
    for name in "ab":
        columns = ply_columns(truth(200, seed=ord(name)))
        files.append(write_ply(tmp_path / f"{name}.ply", columns))
    app = open_viewer(SIZE, files=tuple(files))
    app.do()
    app.until(app.loaded)
    app.user.select(app.state.entries[0].key)
    app.until(app.loaded)
    return app


def view(viewer: Viewer) -> Any:
    return viewer.user.view


def second(viewer: Viewer) -> str:
    return viewer.state.entries[1].key


def test_key_released_in_another_viewport_is_released(viewer: Viewer) -> None:
    first = view(viewer)
    layout = viewer.user.layout
    layout.add(second(viewer))
    layout.activate(layout.all[0])

    def have_views() -> bool:
        return all(viewport.view is not None for viewport in layout)

    viewer.until(have_views)
    viewer.screen.push(Key("w"))
    step(viewer)
    step(viewer)
    assert first.wants.moving
    viewer.screen.push(Key("tab", mods=CTRL), Key("w", pressed=False))
    step(viewer)
    assert layout.active is layout.all[1]

    def has_stopped() -> bool:
        return not first.wants.moving

    viewer.until(has_stopped)


def test_text_typed_into_a_field_moves_nothing(viewer: Viewer) -> None:
    viewer.do(
        Key("h", mods=CTRL),
        Key("h", mods=frozenset({"super"})),
        Key("tab", mods=frozenset({"alt"})),
    )
    # Shortcuts of the system do not hide the panel.
    assert viewer.user.has_panel
    # Ctrl and a click let a number be typed.
    viewer.screen.push(Key("ctrl", mods=CTRL))
    viewer.click("Scale", mods=CTRL)
    viewer.do(Key("ctrl", pressed=False))
    assert viewer.user.interface.surface.is_typing
    scene = view(viewer)
    initial = scene.view.rig.camera()
    camera_text = initial.to_json().replace(str(initial.width), str(initial.width - 1))
    viewer.do(Text(camera_text), Key("w"), Key("f"), Key("f", pressed=False))
    assert not scene.wants.moving
    assert not scene.view.rig.motion.is_under_way
    np.testing.assert_array_equal(scene.view.rig.camera().viewmat, initial.viewmat)
    viewer.do(Key("w", pressed=False), Key("enter"), Key("enter", pressed=False))
    assert not viewer.user.interface.surface.is_typing
    # Outside a field, the text is a camera that was pasted.
    viewer.screen.push(Text(camera_text))
    step(viewer)
    assert scene.view.rig.motion.is_under_way


def test_finger_taps_scrolls_and_holds_sliders(viewer: Viewer) -> None:
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
    # A finger that starts sideways may then go anywhere.
    viewer.do(
        PointerPress(x, y, touch=True),
        PointerMove(x + REACH, y + 1),
        PointerMove(x + 40, y + 60),
        PointerRelease(x + 40, y + 60),
    )
    assert view(viewer).view.state.scale > 1.0
    assert viewer.find("Scale")[1] == y


def test_kept_picture_has_no_mark_on_it(viewer: Viewer, tmp_path: Path) -> None:
    viewer.do(Key("s", mods=CTRL))
    unmarked = viewer.picture()
    view(viewer).view.tools["inspect"].choose(3)
    viewer.user.mark()
    viewer.do()
    assert (viewer.picture() != unmarked).any()
    viewer.do(Key("s", mods=CTRL))
    first, second = (np.asarray(Image.open(file)) for file in tmp_path.glob("*.png"))
    np.testing.assert_array_equal(first, second)
    assert view(viewer).view.state.selection.marked == (3,)


def test_all_that_was_typed_is_seen_in_the_next_picture(viewer: Viewer) -> None:
    """However much came since the last one: imgui itself takes a key in each frame."""
    viewer.user.open_palette()
    viewer.do()
    for letter in "fit":
        viewer.screen.push(Key(letter), Text(letter), Key(letter, pressed=False))
    drawn_at = viewer.user.pace.drawn_at
    for _ in polls("another picture"):
        viewer.step()
        if viewer.user.pace.drawn_at > drawn_at:
            break
    assert not viewer.user.interface.surface.is_behind
