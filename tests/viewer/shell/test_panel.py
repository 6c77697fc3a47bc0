"""The viewer's loop and panel, driven by events as a user would, on a screen in memory."""

from __future__ import annotations

from pathlib import Path
from signal import SIGTERM
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.viewer import PICTURE, SIZE, Viewer
from support.wait import clock, wait_until

from splatview_viewer.app.loop import run, step
from splatview_viewer.core.events import (
    Close,
    Key,
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.pan_zoom import FITTED
from splatview_viewer.kinds.image.view import ImageView
from splatview_viewer.screens.offscreen import OffscreenScreen


@pytest.fixture
def picture_file(tmp_path: Path) -> Path:
    """620 by 494 pixels, no two rows or columns alike: fills the room that the panel
    leaves.
    """
    y, x = np.mgrid[0:494, 0:620]
    array = np.stack([x * 255 // 619, y * 255 // 493, (x + y) % 256], -1).astype(
        np.uint8
    )
    path = tmp_path / "picture.png"
    Image.fromarray(array).save(path)
    return path


@pytest.fixture
def showing(viewer: Viewer, picture_file: Path) -> Viewer:
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    return viewer


def exact(viewer: Viewer, file: Path) -> None:
    np.testing.assert_array_equal(viewer.picture(), np.asarray(Image.open(file)))


def test_a_picture_fills_the_room_beside_the_panel_which_can_be_hidden(
    showing: Viewer, picture_file: Path
) -> None:
    viewer = showing
    assert viewer.user.layout.active.rect == PICTURE
    exact(viewer, picture_file)
    before = viewer.pixels()
    viewer.do(Key("h"), Key("h", pressed=False))
    assert viewer.user.layout.active.rect == Rect(0, 0, *SIZE)
    assert (viewer.pixels()[:, :260] != before[:, :260]).any()
    viewer.do(Key("tab"), Key("tab", pressed=False), PointerLeave())
    np.testing.assert_array_equal(
        viewer.pixels()[: PICTURE.height], before[: PICTURE.height]
    )  # times stand below


def test_a_click_in_the_list_shows_that_entry(
    showing: Viewer, picture_file: Path, tmp_path: Path
) -> None:
    viewer = showing
    other = tmp_path / "other.png"
    Image.new("RGB", (620, 494), (10, 200, 30)).save(other)
    viewer.catalogue.open_file(other)
    viewer.until(viewer.loaded)
    assert viewer.state.selected == str(picture_file)
    for file in (other, picture_file):
        viewer.click(str(file))
        viewer.until(lambda: viewer.loaded() and viewer.user.shown.view is not None)  # type: ignore[union-attr]
        assert viewer.state.selected == str(file)
        exact(viewer, file)


def test_events_go_to_the_picture_or_to_the_panel(showing: Viewer) -> None:
    viewer = showing
    viewer.do(Wheel(100, 300, 2))  # over the panel
    assert viewer.image.state.place == FITTED
    viewer.do(Wheel(500, 300, 2))
    zoom = viewer.image.zoom
    assert zoom == pytest.approx(1.2**2)
    viewer.do(PointerMove(500, 300), PointerPress(500, 300))
    viewer.do(
        PointerMove(300, 300), PointerMove(100, 300)
    )  # the drag goes on over the panel
    center = viewer.image.state.place.center
    viewer.do(PointerRelease(100, 300))
    viewer.do(PointerMove(400, 300))
    assert viewer.image.state.place.center == center
    viewer.do(PointerMove(100, 300), PointerPress(100, 400))
    viewer.do(
        PointerMove(500, 300), PointerRelease(500, 300)
    )  # a drag that began in the panel is the panel's
    assert viewer.image.state.place.center == center


def test_a_damaged_file_is_told_and_nothing_else_suffers(
    viewer: Viewer, picture_file: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.ply"
    bad.write_bytes(b"ply\nformat binary_little_endian 1.0\nelement vertex 5\n")
    viewer.catalogue.open_file(bad)
    viewer.catalogue.open_file(tmp_path / "missing.png")
    viewer.until(lambda: all(e.progress is None for e in viewer.state.entries))
    assert [bool(e.fault_of_source) for e in viewer.state.entries] == [True, True]
    assert "no such file" in viewer.state.entries[1].fault_of_source
    viewer.do()
    assert viewer.picture().std() > 1  # the message
    viewer.catalogue.open_file(picture_file, viewer.user.layout.active)
    viewer.until(viewer.loaded)
    exact(viewer, picture_file)


def test_a_fault_in_a_view_is_shown_and_logged_once(
    viewer: Viewer,
    picture_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("the shader is cross")

    monkeypatch.setattr(ImageView, "draw", fail)
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    for x in range(3):
        viewer.do(PointerMove(PICTURE.x + x, 100))
    assert viewer.state.selected_entry is not None
    assert viewer.state.selected_entry.fault == "the shader is cross"
    assert caplog.text.count("the shader is cross") == 1
    assert not viewer.user.dirty
    monkeypatch.undo()
    viewer.click(str(picture_file))  # a click tries again
    assert viewer.state.selected_entry.fault == ""
    exact(viewer, picture_file)


def test_the_loop_ends_when_the_screen_is_closed_or_it_is_told_to() -> None:
    for end, asked in (
        (lambda viewer: viewer.screen.push(Close()), ()),
        (Viewer.stop, ()),
        (bool, [SIGTERM]),
    ):
        viewer = Viewer(OffscreenScreen(*SIZE))
        end(viewer)
        run(viewer, asked)
        assert viewer.screen.state.closed
        viewer.close()


def test_a_viewer_at_rest_draws_nothing(showing: Viewer) -> None:
    viewer = showing
    viewer.state.panel_open = False  # it shows the rate of the pictures drawn before

    def rests() -> bool:
        drawn = viewer.user.pace.drawn_at
        step(viewer)
        return viewer.user.pace.drawn_at == drawn

    viewer.until(rests)


@pytest.mark.parametrize("viewer", [{"max_fps": 20}], indirect=True)
def test_max_fps_is_kept(viewer: Viewer) -> None:
    wait_until(lambda: viewer.user.may_draw(clock()) <= clock())
    now = clock()
    viewer.user.draw(now)
    viewer.user.present(now)
    viewer.user.mark()
    assert not viewer.user.due(now)
    assert now + 0.5 / 20 <= viewer.user.may_draw(now) <= now + 1 / 20
    assert viewer.user.due(now + 1 / 20)
