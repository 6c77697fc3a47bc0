"""The loop and the panel, driven by events as a user would, on a screen in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from support.viewer import PICTURE, SIZE, Viewer
from support.wait import clock, wait_until

from splatview_viewer.app.loop import AppOptions, run
from splatview_viewer.core.events import Close, Key, PointerMove, PointerPress, PointerRelease, Resize, Wheel
from splatview_viewer.geometry.controls import Rect
from splatview_viewer.kinds.image.view import ImageView
from splatview_viewer.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    from pathlib import Path

    from support.widgets import Widgets


def test_it_begins_with_a_hint(viewer: Viewer) -> None:
    assert viewer.state.entries == []
    assert viewer.pixels()[:, :PICTURE.x].std() > 1  # the panel has words
    assert np.ptp(viewer.picture()) > 100  # so has the picture
    assert "splatview.publish(tensor)" in viewer.state.hint


def test_a_picture_fills_the_room_beside_the_panel(viewer: Viewer, picture_file: Path) -> None:
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    assert viewer.seat.layout() == PICTURE
    np.testing.assert_array_equal(viewer.picture(), np.asarray(Image.open(picture_file)))


@pytest.mark.parametrize("key", ["h", "tab"])
def test_the_panel_can_be_hidden(viewer: Viewer, picture_file: Path, key: str) -> None:
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    before = viewer.pixels()
    viewer.do(Key(key), Key(key, pressed=False))
    assert viewer.seat.layout() == Rect(0, 0, *SIZE)
    assert (viewer.pixels()[:, :260] != before[:, :260]).any()
    viewer.do(Key(key), Key(key, pressed=False))
    np.testing.assert_array_equal(viewer.picture(), before[:494, 280:])


def test_a_click_in_the_list_shows_that_entry(widgets: Widgets, viewer: Viewer, picture_file: Path,
                                              tmp_path: Path) -> None:
    other = tmp_path / "other.png"
    Image.new("RGB", (620, 494), (10, 200, 30)).save(other)
    viewer.catalogue.open_file(picture_file)
    viewer.catalogue.open_file(other)
    viewer.until(viewer.loaded)
    assert viewer.state.selected == str(picture_file)
    viewer.do(*widgets.click(str(other)))
    viewer.until(viewer.loaded)
    assert viewer.state.selected == str(other)
    assert (viewer.picture() == (10, 200, 30)).all()
    viewer.do(*widgets.click(str(picture_file)))
    assert viewer.state.selected == str(picture_file)
    np.testing.assert_array_equal(viewer.picture(), np.asarray(Image.open(picture_file)))


def test_events_go_to_the_picture_or_to_the_panel(widgets: Widgets, viewer: Viewer, picture_file: Path) -> None:
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    panel, spot = widgets.at(str(picture_file)), viewer.spot()
    viewer.do(Wheel(*panel, 2))
    assert viewer.image.pan_zoom.fitted
    viewer.do(Wheel(*spot, 2))
    assert viewer.image.zoom == pytest.approx(1.2**2)
    viewer.do(PointerMove(*spot), PointerPress(*spot), PointerMove(*viewer.spot(0.2)), PointerMove(*panel))
    center = viewer.image.pan_zoom.center  # the drag went on over the panel
    viewer.do(PointerRelease(*panel), PointerMove(*spot))
    assert viewer.image.pan_zoom.center == center
    viewer.do(PointerMove(*panel), PointerPress(*panel), PointerMove(*spot), PointerRelease(*spot))
    assert viewer.image.pan_zoom.center == center  # a drag that began in the panel is the panel's


def test_a_damaged_file_is_told_and_nothing_else_suffers(viewer: Viewer, picture_file: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.ply"
    bad.write_bytes(b"ply\nformat binary_little_endian 1.0\nelement vertex 5\n")
    viewer.catalogue.open_file(bad)
    viewer.catalogue.open_file(tmp_path / "missing.png")
    viewer.until(lambda: all(e.progress is None for e in viewer.state.entries))
    assert [bool(e.fault_of_source) for e in viewer.state.entries] == [True, True]
    assert "no such file" in viewer.state.entries[1].fault_of_source
    viewer.do()
    assert viewer.picture().std() > 1  # the message
    viewer.catalogue.open_file(picture_file, viewer.seat.panes.active)
    viewer.until(viewer.loaded)
    np.testing.assert_array_equal(viewer.picture(), np.asarray(Image.open(picture_file)))


def test_the_panel_follows_the_scale(viewer: Viewer, picture_file: Path) -> None:
    """On a screen of twice the pixels per point all is where it was, words too, and of the same size."""
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    width, height = SIZE
    before = viewer.pixels()[:, :280]
    viewer.do(Resize(2 * width, 2 * height, 2.0))
    twice = viewer.pixels()[:, :560].reshape(height, 2, 280, 2, 3).mean((1, 3))
    assert np.corrcoef(before.ravel(), twice.ravel())[0, 1] > 0.8  # with words of half the size: 0.35
    viewer.do(Resize(width, height, 1.0))
    np.testing.assert_array_equal(viewer.pixels()[:, :280], before)


@pytest.mark.parametrize("where", ["draw", "update"])
def test_a_fault_in_a_view_is_shown_and_logged_once(widgets: Widgets, viewer: Viewer, picture_file: Path, where: str,
                                                    caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("the shader is cross")

    patch = pytest.MonkeyPatch()
    patch.setattr(ImageView, where, fail)
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    for right in (0.1, 0.2, 0.3):
        viewer.do(PointerMove(*viewer.spot(right)), Resize(*SIZE))
    assert viewer.state.shown is not None
    assert viewer.state.shown.fault == "the shader is cross"
    assert caplog.text.count("the shader is cross") == 1
    assert (viewer.picture() != np.asarray(Image.open(picture_file))).any()
    assert not viewer.seat.dirty  # a fault does not keep the viewer busy
    patch.undo()
    if where == "draw":
        viewer.do(*widgets.click(str(picture_file)))  # tries again
        assert viewer.state.shown.fault == ""
        np.testing.assert_array_equal(viewer.picture(), np.asarray(Image.open(picture_file)))


def test_the_loop_ends_when_the_screen_is_closed_or_it_is_told_to() -> None:
    for end in (lambda viewer: viewer.screen.push(Close()), Viewer.stop):
        viewer = Viewer(OffscreenScreen(*SIZE))
        end(viewer)
        run(viewer)
        assert viewer.screen.state.closed
        viewer.close()


# -- pace -------------------------------------------------------------------------------------------------------------


def test_a_viewer_at_rest_draws_nothing(viewer: Viewer, picture_file: Path) -> None:
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    viewer.state.panel_open = False  # it shows the rate of the pictures drawn before
    viewer.until(viewer.settled)
    viewer.until(lambda: not viewer.drew)


@pytest.mark.parametrize("viewer", [AppOptions(max_fps=20)], indirect=True)
def test_max_fps_is_kept(viewer: Viewer) -> None:
    wait_until(lambda: viewer.seat.may_draw(clock()) <= clock())
    now = clock()
    viewer.seat.draw(now)
    viewer.seat.present(now)
    viewer.seat.mark()
    assert not viewer.seat.due(now)
    assert now + 0.5 / 20 <= viewer.seat.may_draw(now) <= now + 1 / 20
    assert viewer.seat.due(now + 1 / 20)
