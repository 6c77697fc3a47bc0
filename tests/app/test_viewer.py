"""The viewer's loop and panel, driven by events as a user would, on a screen that nobody sees."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from support.repetitions import exhaustive
from support.viewer import PICTURE, SIZE, Viewer
from support.wait import PATIENCE

from splatview.viewer_app.app import App, AppOptions
from splatview.viewer_app.controls import Rect
from splatview.viewer_app.events import (
    Close,
    FileDrop,
    Key,
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
    Resize,
    Text,
    Wheel,
)
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.views.image import ImageView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def test_it_begins_with_a_hint(viewer: Viewer) -> None:
    assert viewer.state.entries == []
    pixels = viewer.pixels()
    assert pixels[:, :280].std() > 1  # the panel has words
    middle = pixels[200:300, 400:800]
    assert (middle.max() - middle.min()) > 100  # so has the picture
    assert "splatview.publish(tensor)" in viewer.state.hint


def test_an_idle_viewer_draws_nothing_and_sleeps(viewer: Viewer, picture_file: Path) -> None:
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    end = time.monotonic() + 1.6
    while time.monotonic() < end:  # the lively second after something happened
        viewer.turn()
    draws = viewer.draws

    def share() -> float:
        begin, cpu = time.monotonic(), time.process_time()
        while time.monotonic() < begin + 2:
            viewer.turn()
        return (time.process_time() - cpu) / (time.monotonic() - begin)

    assert any(share() < 0.1 for _ in range(5)), "of a core; what else runs here may take some, but not each time"
    assert viewer.draws == draws


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
    assert viewer.image._rect.width == SIZE[0]
    viewer.do(Key(key), Key(key, pressed=False))
    viewer.do(PointerMove(600, 200), PointerLeave())
    np.testing.assert_array_equal(viewer.picture(), before[:494, 280:])


def test_a_click_in_the_list_shows_that_entry(viewer: Viewer, picture_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.png"
    Image.new("RGB", (620, 494), (10, 200, 30)).save(other)
    viewer.catalogue.open_file(picture_file)
    viewer.catalogue.open_file(other)
    viewer.until(viewer.loaded)
    assert viewer.state.selected == str(picture_file)
    viewer.do(PointerMove(90, 77))  # the second line
    viewer.do(PointerPress(90, 77), PointerRelease(90, 77))
    viewer.do(PointerLeave())  # or the entry's tooltip comes to lie over the picture
    viewer.until(lambda: viewer.loaded() and viewer.seat.shown.view is not None)  # type: ignore[union-attr]
    assert viewer.state.selected == str(other)
    assert (viewer.picture() == (10, 200, 30)).all()
    viewer.do(PointerMove(90, 46), PointerPress(90, 46), PointerRelease(90, 46), PointerLeave())
    assert viewer.state.selected == str(picture_file)
    np.testing.assert_array_equal(viewer.picture(), np.asarray(Image.open(picture_file)))


def test_events_go_to_the_picture_or_to_the_panel(viewer: Viewer, picture_file: Path) -> None:
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    viewer.do(Wheel(100, 300, 2))  # over the panel
    assert viewer.image.pan_zoom.fitted
    viewer.do(Wheel(500, 300, 2))
    zoom = viewer.image.zoom
    assert zoom == pytest.approx(1.2**2)
    viewer.do(PointerMove(500, 300), PointerPress(500, 300))
    viewer.do(PointerMove(300, 300), PointerMove(100, 300))  # the drag goes on over the panel
    center = viewer.image.pan_zoom.center
    viewer.do(PointerRelease(100, 300))
    viewer.do(PointerMove(400, 300))
    assert viewer.image.pan_zoom.center == center
    viewer.do(PointerMove(100, 300), PointerPress(100, 400))
    viewer.do(PointerMove(500, 300), PointerRelease(500, 300))  # a drag that began in the panel is the panel's
    assert viewer.image.pan_zoom.center == center


def test_the_readout_is_gone_over_the_panel(viewer: Viewer, picture_file: Path) -> None:
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    viewer.do(PointerMove(280 + 7, 3))
    assert viewer.image.readout.startswith("(7, 3)")
    viewer.do(PointerMove(100, 200))
    assert viewer.image.readout == ""


def test_controls_of_the_panel_change_the_view(viewer: Viewer, picture_file: Path) -> None:
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    for y in range(112, 160, 6):  # below the fold, where the row of zoom buttons lies: the second one is 1:1
        viewer.image.pan_zoom.set_zoom(3.0, PICTURE)
        viewer.do(PointerMove(156, y))
        viewer.do(PointerPress(156, y), PointerRelease(156, y))
        if viewer.image.zoom == 1.0:
            return
    raise AssertionError("no button changed the zoom")


def test_text_can_be_typed_into_a_control(viewer: Viewer, tmp_path: Path) -> None:
    np.save(tmp_path / "hdr.npy", np.random.default_rng(0).random((20, 30, 3)).astype(np.float32))
    viewer.catalogue.open_file(tmp_path / "hdr.npy")
    viewer.until(viewer.loaded)
    ctrl = frozenset({"ctrl"})
    for y in range(142, 172, 6):  # the row below the zoom
        viewer.do(PointerMove(180, y))
        viewer.do(Key("ctrl", mods=ctrl), PointerPress(180, y, mods=ctrl))
        viewer.do(PointerRelease(180, y), Key("ctrl", pressed=False))
        if viewer.image.settings.exposure == 0.0:
            viewer.screen.push(Key("a", mods=ctrl), Key("a", pressed=False), Text("2"), Text("h"))
            for _ in range(8):
                viewer.turn()
            viewer.screen.push(Key("enter"), Key("enter", pressed=False))
            for _ in range(8):
                viewer.turn()
        if viewer.image.settings.exposure == 2.0:
            assert viewer.state.panel_open  # an H that is typed hides nothing
            return
    raise AssertionError("the exposure could not be typed")


def test_a_dropped_file_is_shown(viewer: Viewer, picture_file: Path) -> None:
    viewer.do(FileDrop((str(picture_file),)))
    viewer.until(viewer.loaded)
    assert viewer.state.selected == str(picture_file)
    np.testing.assert_array_equal(viewer.picture(), np.asarray(Image.open(picture_file)))


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


@pytest.mark.parametrize("where", ["draw", exhaustive("tick"), exhaustive("handle"), exhaustive("panel"), "update"])
def test_a_fault_in_a_view_is_shown_and_logged_once(viewer: Viewer, picture_file: Path, where: str,
                                                    monkeypatch: pytest.MonkeyPatch,
                                                    caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("the shader is cross")

    if where == "update":
        monkeypatch.setattr(ImageView, "update", fail)
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    monkeypatch.setattr(ImageView, where, fail)
    for x in (300, 310, 320):
        viewer.do(PointerMove(x, 100), Resize(*SIZE))
    assert viewer.state.shown is not None
    assert viewer.state.shown.fault == "the shader is cross"
    assert caplog.text.count("the shader is cross") == 1
    assert (viewer.picture() != np.asarray(Image.open(picture_file))).any()
    draws = viewer.draws
    for _ in range(20):
        viewer.turn()
    assert viewer.draws == draws  # a fault does not keep the viewer busy
    monkeypatch.undo()
    if where != "update":
        viewer.do(PointerMove(90, 46), PointerPress(90, 46), PointerRelease(90, 46))  # a click tries again
        viewer.do(PointerMove(500, 300), PointerLeave())
        assert viewer.state.shown.fault == ""
        np.testing.assert_array_equal(viewer.picture(), np.asarray(Image.open(picture_file)))


def test_a_resize_is_followed(viewer: Viewer, picture_file: Path) -> None:
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    viewer.do(Resize(1200, 700))
    assert viewer.pixels().shape == (700, 1200, 3)
    assert viewer.seat.layout() == Rect(280, 0, 920, 674)
    viewer.do(Resize(40, 30))  # absurdly small: nothing breaks
    viewer.do(Resize(1600, 1000, 2.0))
    assert viewer.seat.layout() == Rect(560, 0, 1040, 948)  # twice the pixels per point


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


def test_a_closed_screen_ends_the_loop() -> None:
    viewer = Viewer(OffscreenScreen(*SIZE))
    viewer.screen.push(Close())
    viewer.serve()
    assert viewer.screen.closed
    viewer.close()


@pytest.mark.parametrize("viewer", [AppOptions(panel=False)], indirect=True)
def test_without_a_panel_the_picture_is_all(viewer: Viewer, picture_file: Path) -> None:
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    viewer.do(Resize(620, 494))
    np.testing.assert_array_equal(viewer.pixels(), np.asarray(Image.open(picture_file)))


def test_a_file_can_be_closed(viewer: Viewer, picture_file: Path) -> None:
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    viewer.catalogue.forget(str(picture_file))
    viewer.do()
    assert viewer.state.entries == []
    assert viewer.state.selected is None


def test_a_scene_shows_its_controls(viewer: Viewer, data_dir: Path) -> None:
    viewer.catalogue.open_file(data_dir / "playbot")
    viewer.until(viewer.loaded)
    viewer.do()
    assert viewer.state.shown is not None
    assert viewer.state.shown.kind == "gaussians"
    assert viewer.picture().max() > 150
    before = viewer.picture()
    viewer.do(PointerMove(600, 250), PointerPress(600, 250))
    viewer.do(PointerMove(660, 260), PointerRelease(660, 260))
    assert np.abs(viewer.picture() - before).mean() > 1
