"""The strip of tools over a scene: what a press on the picture does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import widgets
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer

from splatview_viewer.core.events import Key, PointerMove, PointerPress, PointerRelease


@pytest.fixture
def viewer(open_viewer: Callable[..., Viewer], tmp_path: Path) -> Viewer:
    scene = write_ply(tmp_path / "scene.ply", ply_columns(truth(3000)))
    app = open_viewer((940, 720), files=(scene,))
    app.until(app.loaded)
    return app


def tools(viewer: Viewer) -> Any:
    view: Any = viewer.user.view
    return view.view.tools


def middle(viewer: Viewer) -> tuple[float, float]:
    rect = viewer.user.layout.active.rect
    return rect.x + rect.width / 2, rect.y + rect.height / 2


def click_picture(viewer: Viewer) -> None:
    x, y = middle(viewer)
    viewer.do(PointerMove(x, y), PointerPress(x, y), PointerRelease(x, y))


def test_click_inspects_while_that_tool_is_chosen(viewer: Viewer) -> None:
    inspect = tools(viewer)["inspect"]

    def is_inspected() -> bool:
        return inspect.index is not None

    click_picture(viewer)
    assert not is_inspected()
    viewer.click("tool inspect")
    click_picture(viewer)
    viewer.until(is_inspected)
    viewer.do(Key("escape"))
    assert not is_inspected()
    # The key of a chosen tool goes back to moving the camera.
    viewer.do(Key("i"))
    click_picture(viewer)
    assert tools(viewer).chosen == "navigate"
    assert not is_inspected()


def test_tool_that_crops_has_handles(viewer: Viewer) -> None:
    crop = tools(viewer)["crop"]
    assert crop.shape is None
    viewer.do(Key("x"))
    assert crop.shape is not None
    assert crop.has_handles
    viewer.click("tool navigate")
    assert not crop.has_handles
    assert crop.shape is not None


def test_press_on_the_strip_moves_nothing(viewer: Viewer) -> None:
    view: Any = viewer.user.view
    rotation = view.view.rig.orbit.rotation.copy()
    x, y = viewer.find("tool crop")
    viewer.do(PointerMove(x, y), PointerPress(x, y), PointerMove(x + 200, y + 80))
    viewer.do(PointerRelease(x + 200, y + 80))
    np.testing.assert_array_equal(view.view.rig.orbit.rotation, rotation)
    assert tools(viewer).chosen == "navigate"


def test_pictures_with_nothing_around_have_no_strip(
    open_viewer: Callable[..., Viewer], tmp_path: Path
) -> None:
    scene = write_ply(tmp_path / "bare.ply", ply_columns(truth(200)))
    viewer = open_viewer((940, 720), files=(scene,), panel=False)
    viewer.until(viewer.loaded)
    widgets.drawn.clear()
    viewer.user.mark()
    viewer.do()
    assert not [name for name in widgets.drawn if name.startswith("tool ")]
