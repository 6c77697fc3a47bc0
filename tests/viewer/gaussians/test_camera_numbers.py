"""The camera's numbers in the panel: typed positions, and the roll."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import scene_files as w
from support import widgets
from support.viewer import Viewer

from splatview_viewer.core.events import (
    Key,
    PointerMove,
    PointerPress,
    PointerRelease,
    Text,
)
from splatview_viewer.geometry.cameras import look_at


@pytest.fixture
def showing(open_viewer: Callable[..., Viewer], tmp_path: Path) -> Viewer:
    """Return a viewer of a scene, whose panel shows the fold of numbers."""
    viewer = open_viewer((920, 1400))
    columns = w.ply_columns(w.truth(20, 0))
    viewer.catalogue.open_file(w.write_ply(tmp_path / "a.ply", columns))
    viewer.until(viewer.loaded)
    viewer.click("Numbers")
    return viewer


def enter(viewer: Viewer, field: str, text: str) -> None:
    """Type a number into a field, as a user does."""
    viewer.click(field, clicks=2)
    viewer.do(Text(text))
    viewer.do(Key("enter"), Key("enter", False))


def test_typed_numbers_put_the_camera(showing: Viewer) -> None:
    view: Any = showing.user.view
    start = view.view.rig.camera()
    target = view.view.rig.orbit.target.copy()
    enter(showing, "Position 0", "7.5")
    enter(showing, "Looks at 1", "-1.25")
    position = np.array([7.5, *start.position[1:]])
    target[1] = -1.25
    camera = view.view.rig.camera()
    np.testing.assert_allclose(camera.position, position, atol=1e-9)
    expected = look_at(position, target, view.view.rig.orbit.up)
    np.testing.assert_allclose(camera.viewmat, expected, atol=1e-9)


def test_position_at_the_target_is_refused(showing: Viewer) -> None:
    view: Any = showing.user.view
    target = view.view.rig.orbit.target.copy()
    for i, coordinate in enumerate(target):
        enter(showing, f"Position {i}", repr(float(coordinate)))
    camera = view.view.rig.camera()
    assert np.isfinite(camera.viewmat).all()
    assert np.linalg.norm(camera.position - target) > 1e-3


def test_roll_turns_the_picture_around_its_middle(showing: Viewer) -> None:
    view: Any = showing.user.view
    start = view.view.rig.camera()
    x, y = showing.find("Roll")
    # The slider goes from -180 to 180 degrees; a press at three quarters is 90.
    quarter = widgets.drawn["Roll"].width // 4
    for event in (
        PointerMove(x + quarter, y),
        PointerPress(x + quarter, y),
        PointerRelease(x + quarter, y),
    ):
        showing.do(event)
    end = view.view.rig.camera()
    np.testing.assert_allclose(end.position, start.position, atol=1e-9)
    assert np.degrees(view.view.rig.orbit.tilt) == pytest.approx(90, abs=10)
    assert abs(end.viewmat[2, :3] @ start.viewmat[2, :3]) == pytest.approx(1)
