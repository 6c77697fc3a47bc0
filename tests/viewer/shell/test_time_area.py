"""The time area: one transport, and the lanes of the active pane."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support import widgets
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer

from splatview_viewer.core.events import Key
from splatview_viewer.core.view import TABS
from splatview_viewer.shell.time_area import chosen_lane, lanes_of


@pytest.fixture
def viewer(open_viewer: Callable[..., Viewer], tmp_path: Path) -> Viewer:
    """Return a viewer of a scene and a picture; the scene is shown."""
    scene = write_ply(tmp_path / "scene.ply", ply_columns(truth(200)))
    picture = tmp_path / "other.png"
    Image.fromarray(np.zeros((40, 60, 3), np.uint8)).save(picture)
    app = open_viewer((940, 720), files=(scene, picture))
    app.until(app.loaded)
    app.user.select(str(scene))
    app.until(app.loaded)
    return app


def drawn(viewer: Viewer) -> dict[str, Any]:
    """Return the places of everything that is drawn now."""
    widgets.drawn.clear()
    viewer.user.mark()
    viewer.do()
    return dict(widgets.drawn)


def test_what_has_no_lanes_says_what_would_be_there(
    viewer: Viewer, tmp_path: Path
) -> None:
    viewer.user.select(str(tmp_path / "other.png"))
    viewer.until(viewer.loaded)
    lanes = lanes_of(viewer.user)
    assert [lane.name for lane in lanes] == ["Training", "Path"]
    for lane in lanes:
        assert "appear here" in lane.empty_text
        assert lane.reason
    viewer.click("Key")
    viewer.click("time play")
    assert not any(lane.playing for lane in lanes)


def test_key_sets_a_keyframe_and_chooses_its_lane(viewer: Viewer) -> None:
    assert chosen_lane(viewer.user).name == "Training"
    viewer.click("Key")
    lane = chosen_lane(viewer.user)
    assert lane.name == "Path"
    assert not lane.empty_text
    viewer.do(Key("p"))
    assert "two keyframes" in viewer.state.toasts[-1].text
    viewer.click("Key")
    viewer.do(Key("p"))
    assert lane.playing
    viewer.do(Key("p"))
    assert not lane.playing
    viewer.click("time back")
    assert lane.caption.startswith("0.0 /")
    viewer.click("time on")
    assert lane.caption.startswith("2.0 /")


def test_key_k_chooses_the_lane_of_the_path(viewer: Viewer) -> None:
    viewer.click("lane Training")
    viewer.do(Key("k"))
    assert chosen_lane(viewer.user).name == "Path"


def test_time_area_folds_and_its_handle_opens_it(viewer: Viewer) -> None:
    open_height = viewer.user.interface.zones.time.height
    viewer.do(Key("t"))
    names = drawn(viewer)
    assert 0 < viewer.user.interface.zones.time.height < open_height
    assert "time play" in names
    assert "time on" not in names
    viewer.click("time handle")
    assert viewer.user.interface.zones.time.height == open_height
    viewer.click("time handle")
    assert viewer.user.interface.zones.time.height < open_height


def test_nothing_of_the_time_area_moves_between_tabs_and_panes(viewer: Viewer) -> None:
    names = ("time back", "time play", "time on", "lane Training", "lane Path", "Key")
    drawn_rects = []
    for tab in TABS:
        viewer.user.choose_tab(tab)
        drawn_rects.append([drawn(viewer)[name] for name in names])
    viewer.click("Key")
    viewer.user.layout.add(None)
    drawn_rects.append([drawn(viewer)[name] for name in names])
    assert all(rects == drawn_rects[0] for rects in drawn_rects)


@pytest.mark.parametrize("size", [(320, 240), (360, 800), (700, 400), (3840, 2160)])
@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_time_area_is_drawn_within_its_zone(
    viewer: Viewer, size: tuple[int, int], scale: float
) -> None:
    viewer.user.view.view.path.circle_scene()  # type: ignore[union-attr]
    viewer.screen.resize(*size, scale)
    viewer.do()
    names = drawn(viewer)
    zone = viewer.user.interface.zones.time
    assert not viewer.user.interface.faults.reason("time area")
    for name in ("time back", "time play", "time on", "Key", "Path track"):
        if name in names:
            rect = names[name]
            assert zone.x <= rect.x
            assert rect.x + rect.width <= zone.x + zone.width + 1
            assert zone.y <= rect.y
            assert rect.y + rect.height <= zone.y + zone.height + 1
