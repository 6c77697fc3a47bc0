"""The sheet of a phone follows a finger, and shows one tab."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import widgets
from support.frames import SIZE, cloud, photographs, ring
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer

import splatview
from splatview_viewer.core.events import (
    Key,
    Pinch,
    PointerMove,
    PointerPress,
    PointerRelease,
)


@pytest.fixture
def viewer(open_viewer: Callable[..., Viewer], tmp_path: Path) -> Viewer:
    scene = write_ply(tmp_path / "scene.ply", ply_columns(truth(300)))
    app = open_viewer((390, 844), files=(scene,))
    app.until(app.loaded)
    return app


def sheet_height(viewer: Viewer) -> int:
    viewer.user.mark()
    viewer.do()
    return viewer.user.interface.zones.panel.height


def drag(viewer: Viewer, name: str, dy: float, *, touch: bool) -> None:
    """Drag a control of the sheet's head up (less than 0) or down."""
    x, y = viewer.find(name)
    if not touch:
        viewer.do(PointerMove(x, y))
    # At once: a finger that rests is the right button.
    viewer.do(PointerPress(x, y, touch=touch), PointerMove(x, y + dy * 0.1))
    for fraction in (0.4, 0.7, 1.0):
        viewer.do(PointerMove(x, y + dy * fraction))
    viewer.do(PointerRelease(x, y + dy))


@pytest.mark.parametrize("touch", [False, True])
def test_sheet_is_dragged_by_its_handle_and_its_tabs(
    viewer: Viewer, touch: bool
) -> None:
    assert sheet_height(viewer) == 12
    drag(viewer, "sheet handle", -400, touch=touch)
    half = sheet_height(viewer)
    assert half > 350
    tab = viewer.user.interface.state.tab
    drag(viewer, "Film", -300, touch=touch)
    assert sheet_height(viewer) > half
    # It was a drag, and no tap on the tab.
    assert viewer.user.interface.state.tab == tab
    drag(viewer, "Film", 700, touch=touch)
    assert sheet_height(viewer) == 12


def test_tabs_of_a_phone_begin_with_the_streams(viewer: Viewer) -> None:
    viewer.do(Key("h"))
    assert sheet_height(viewer) > 350
    viewer.click("Streams")
    widgets.drawn.clear()
    sheet_height(viewer)
    assert "Show" not in widgets.drawn
    viewer.click("Look")
    widgets.drawn.clear()
    sheet_height(viewer)
    assert "Show" in widgets.drawn
    assert viewer.user.interface.state.tab == "look"


def test_rows_are_as_high_as_fingers_need(viewer: Viewer) -> None:
    viewer.do(Key("h"))
    viewer.find("Show")
    assert widgets.drawn["Show"].height >= 40
    assert widgets.drawn["Colour"].height >= 40
    for name in ("tool fit", "tool inspect", "tool picture", "time play"):
        assert widgets.drawn[name].height >= 44
    viewer.screen.resize(1200, 800)
    viewer.find("Show")
    assert widgets.drawn["Colour"].height == 28


def test_finger_on_the_time_strip_moves_no_camera(viewer: Viewer) -> None:
    view: Any = viewer.user.view
    rotation = view.view.rig.orbit.rotation.copy()
    time = viewer.user.interface.zones.time
    x = time.x + time.width / 2
    y = time.y + time.height / 2
    viewer.do(PointerPress(x, y, touch=True), PointerMove(x - 90, y - 60))
    viewer.do(PointerRelease(x - 90, y - 60))
    np.testing.assert_array_equal(view.view.rig.orbit.rotation, rotation)


def test_finger_pans_a_photograph_and_never_leaves_its_camera(
    open_viewer: Callable[..., Viewer],
) -> None:
    viewer = open_viewer((390, 844))
    views, Ks = ring(8)
    splatview.publish_cameras(views, Ks, *SIZE, photographs(8))
    scene = cloud()
    scene["sh0"] = scene["sh0"][:, None]
    splatview.publish(scene, "splats")

    def frustums() -> Any:
        view: Any = viewer.user.view
        tools = getattr(getattr(view, "view", None), "tools", {})
        return tools.get("frustums")

    def has_cameras() -> bool:
        return frustums() is not None and frustums().cameras is not None

    def is_there() -> bool:
        return frustums().through.is_there

    viewer.until(has_cameras)
    viewer.do()
    frustums().enter(3)
    viewer.until(is_there)
    frustums().change(comparison="wipe")
    widgets.drawn.clear()
    sheet = sheet_height(viewer)
    # Five ways and a strip of photographs are all that the sheet has.
    assert {"Wipe", "Error", "photo 3", "Follow"} <= set(widgets.drawn)
    assert "Look" not in widgets.drawn
    assert sheet < 250
    rect = viewer.user.layout.active.rect
    x = rect.x + 40
    y = rect.y + rect.height // 2
    through = frustums().through
    photo_rect = through.photo_rect(rect)
    for factor in (1.0, 2.0):
        viewer.do(Pinch(x, y, factor=factor))
        viewer.do(PointerPress(x, y, touch=True), PointerMove(x + 60, y + 10))
        viewer.do(PointerRelease(x + 60, y + 10))
        viewer.until(is_there)
        assert through.index == 3
    assert through.photo_rect(rect).width == pytest.approx(2 * photo_rect.width, abs=2)
    viewer.click("photo 4")
    viewer.until(is_there)
    assert through.index == 4
    viewer.click("leave camera")
    assert through.index is None
    assert sheet_height(viewer) > sheet


def test_long_press_of_a_finger_is_a_right_click(viewer: Viewer) -> None:
    viewer.do(Key("h"))
    x, y = viewer.find("Scale")
    view: Any = viewer.user.view
    view.view.change(scale=2.0)
    viewer.do()
    viewer.screen.push(PointerPress(x, y, touch=True))

    def is_reset() -> bool:
        return view.view.state.scale == 1.0

    # A right click on a slider brings its default back.
    viewer.until(is_reset)
    viewer.do(PointerMove(x + 60, y), PointerRelease(x + 60, y))
    assert is_reset()
    # A tap is none.
    view.view.change(scale=2.0)
    viewer.do()
    viewer.do(PointerPress(x, y, touch=True), PointerRelease(x, y))
    assert not is_reset()
