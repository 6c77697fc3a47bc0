"""What lies over an image, pixel by pixel, on a real OpenGL context."""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.frames import image_frame
from support.overlay_cases import frame_with, overlay_frame, seen
from support.view_cases import module_screen, screen_fixture, shown  # noqa: F401
from test_overlay_result import random_frame

from splatview.viewer_app.controls import Rect
from splatview.viewer_app.errors import ViewerError
from splatview.viewer_app.interface.panel import Panel
from splatview.viewer_app.overlays import draw_overlay_frame
from splatview.viewer_app.views._overlay.palette import PALETTE, PLAIN
from splatview.viewer_app.views.image import ImageView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview.ipc import Frame
    from splatview.viewer_app.screens.offscreen import OffscreenScreen

W, H = 200, 120
GREY = 90


def grey(version: int = 1, time_ns: int = 10**18, size: tuple[int, int] = (W, H), **meta: Any) -> Frame:
    frame = image_frame(torch.full((size[1], size[0], 3), GREY, dtype=torch.uint8), version=version, **meta)
    frame.time_ns = time_ns
    return frame


@pytest.fixture
def view(screen: OffscreenScreen) -> Iterator[ImageView]:
    screen.resize(W, H)
    v = ImageView(screen.ctx)
    v.settings.background = (0.0, 0.0, 0.0)
    v.update(grey())
    yield v
    v.close()


@pytest.fixture(scope="module")
def panel(module_screen: OffscreenScreen) -> Iterator[Panel]:  # noqa: F811
    p = Panel()
    yield p
    p.close()


def put(view: ImageView, key: object = "a", **given: Any) -> None:
    assert view.content.layers.take(key, overlay_frame(**{"time_ns": 10**18, **given}))


def of_color(pixels: np.ndarray, color: np.ndarray) -> np.ndarray:
    return np.all(np.abs(pixels - color.astype(int)) <= 2, axis=-1)


def written(view: ImageView, screen: OffscreenScreen, panel: Panel, scale: float = 1.0) -> np.ndarray:
    """With words."""
    rect = Rect(0, 0, *screen.size)
    view.draw(screen.framebuffer, rect)
    panel.draw_over(screen.framebuffer, view.over, scale)
    assert screen.ctx.error == "GL_NO_ERROR"
    return screen.pixels()[..., :3].astype(int)


def test_a_box_lies_where_it_says(view: ImageView, screen: OffscreenScreen) -> None:
    put(view, boxes=[[40, 20, 100, 80]], classes=[0])
    pixels = seen(view, screen)
    line = of_color(pixels, PALETTE[0])
    expected = np.zeros((H, W), bool)
    expected[19:81, 39:101] = True
    expected[21:79, 41:99] = False  # two pixels, on both sides of the edge
    np.testing.assert_array_equal(line, expected)
    changed = (pixels != GREY).any(-1)
    near = np.zeros((H, W), bool)
    near[17:83, 37:103] = True
    near[23:77, 43:97] = False
    assert not (changed & ~near).any()  # and a rim
    assert pixels[18, 60].max() < GREY


def test_it_follows_pan_and_zoom_and_the_lines_stay_thin(view: ImageView, screen: OffscreenScreen) -> None:
    put(view, boxes=[[40, 20, 60, 40]], classes=[0])
    view.pan_zoom.set_zoom(4.0, Rect(0, 0, W, H), (0.0, 0.0))
    line = of_color(seen(view, screen), PALETTE[0])
    ys, xs = np.nonzero(line)
    x, y, zoom = view.pan_zoom.placed(Rect(0, 0, W, H))
    assert zoom == 4
    assert (xs.min(), ys.min()) == (round(x + 40 * 4) - 1, round(y + 20 * 4) - 1)
    assert line[ys.min() + 10].sum() in (2, 4)  # two pixels for each side that is seen


def test_lines_are_as_thick_as_the_screen_is_fine(view: ImageView, screen: OffscreenScreen) -> None:
    put(view, boxes=[[40, 20, 100, 80]], classes=[0])
    view.draw(screen.framebuffer, Rect(0, 0, W, H))
    view.draw_layers(screen.framebuffer, Rect(0, 0, W, H), 2.0)
    assert of_color(screen.pixels()[..., :3].astype(int), PALETTE[0])[50].sum() == 8


def test_it_stays_in_its_part_of_the_screen(view: ImageView, screen: OffscreenScreen) -> None:
    put(view, boxes=[[-50, -50, 500, 500], [0, 0, W, H]], lines=[[[-100, 60], [400, 60]]])
    view.pan_zoom.set_zoom(3.0, Rect(0, 0, W, H))
    rect = Rect(50, 30, 100, 60)
    screen.framebuffer.clear(0.0, 1.0, 0.0, 1.0)
    view.draw(screen.framebuffer, rect)
    pixels = screen.pixels()[..., :3].astype(int)
    inside = np.zeros((H, W), bool)
    inside[30:90, 50:150] = True
    assert (pixels[~inside] == (0, 255, 0)).all()
    assert of_color(pixels, PLAIN)[inside].any()


def test_a_picture_of_another_size_than_the_results(view: ImageView, screen: OffscreenScreen) -> None:
    put(view, boxes=[[80, 40, 200, 160]], size=(2 * W, 2 * H), classes=[0])
    half = seen(view, screen)
    put(view, boxes=[[40, 20, 100, 80]], classes=[0])
    np.testing.assert_array_equal(seen(view, screen), half)
    put(view, boxes=[[40 / W, 20 / H, 100 / W, 80 / H]], size=(1, 1), classes=[0])
    np.testing.assert_array_equal(seen(view, screen), half)


def test_masks_are_seen_through_and_have_an_edge(view: ImageView, screen: OffscreenScreen) -> None:
    mask = torch.zeros(1, H, W, dtype=torch.uint8)
    mask[0, 30:70, 50:120] = 1
    mask[0, 45:55, 70:90] = 0
    put(view, boxes=[[50, 30, 120, 70]], masks=mask, classes=[1], colors=None)
    pixels = seen(view, screen)
    inside = 0.6 * GREY + 0.4 * PALETTE[1].astype(int)
    np.testing.assert_allclose(pixels[38, 60], inside, atol=3)
    np.testing.assert_array_equal(pixels[50, 80], (GREY,) * 3)  # the hole
    edge = of_color(pixels[44, 70:90], 0.03 * GREY + 0.97 * PALETTE[1])
    assert edge.mean() > 0.8
    np.testing.assert_array_equal(pixels[100, 20], (GREY,) * 3)


def test_masks_as_runs_look_the_same(view: ImageView, screen: OffscreenScreen) -> None:
    y, x = np.mgrid[0:H, 0:W]
    mask = (x - 90) ** 2 + (y - 60) ** 2 < 40**2
    put(view, masks=torch.from_numpy(mask[None]), classes=[1])
    before = seen(view, screen)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.T.ravel().astype(int), [2]])))
    put(view, masks=[{"size": [H, W], "counts": np.diff(np.concatenate([[0], edges])).tolist()}], classes=[1])
    np.testing.assert_array_equal(seen(view, screen), before)
    assert (before != GREY).any(-1).sum() > 4000


def test_many_masks_lie_beside_each_other(view: ImageView, screen: OffscreenScreen) -> None:
    masks = torch.zeros(40, H, W, dtype=torch.uint8)
    for i in range(40):
        masks[i, 4 + 14 * (i // 8): 12 + 14 * (i // 8), 4 + 20 * (i % 8): 14 + 20 * (i % 8)] = 1
    put(view, masks=masks, classes=list(range(40)))
    view.content.layers.get("a").result.drawn[:] = False  # type: ignore[union-attr]  (without their boxes)
    pixels = seen(view, screen)
    for i in range(40):
        y, x = 8 + 14 * (i // 8), 9 + 20 * (i % 8)
        np.testing.assert_allclose(pixels[y, x], 0.6 * GREY + 0.4 * PALETTE[i % 20].astype(int), atol=3)
        np.testing.assert_array_equal(pixels[y + 8, x], (GREY,) * 3)


def test_points_bones_and_lines(view: ImageView, screen: OffscreenScreen) -> None:
    put(view, points=[[[30, 30, 1], [90, 30, 0.4], [60, 90, 0]]], skeleton=[[0, 1], [1, 2]], point_classes=[2],
        lines=[[[130, 20], [130, 100], [180, 100]]], line_classes=[3])
    pixels = seen(view, screen)
    bone, line = of_color(pixels, PALETTE[2]), of_color(pixels, PALETTE[3])
    assert bone[30, 28:92].all()
    assert bone[28:32, 29:31].all()  # a dot is thicker than a bone
    assert not bone[40:].any()  # nothing leads to what was not seen
    assert line[25:100, 129:131].any(1).all()
    assert line[99:101, 135:175].any(0).all()


def test_scores_under_the_threshold_are_not_drawn(view: ImageView, screen: OffscreenScreen) -> None:
    boxes = [[10, 10, 40, 40], [60, 10, 90, 40], [110, 10, 140, 40]]
    put(view, boxes=boxes, scores=[0.2, 0.8, float("nan")], classes=[0, 1, 2], masks=torch.ones(3, H, W),
        points=[[[x, 70, 1]] for x in (25, 75, 125)])
    view.settings.threshold = 0.5
    pixels = seen(view, screen)
    assert not of_color(pixels, PALETTE[0]).any()
    assert of_color(pixels, PALETTE[1])[70, 75]
    assert of_color(pixels, PALETTE[2])[25, 110]
    assert view.content.layers.at(25, 25, view.settings) == ""
    assert view.content.layers.at(75, 25, view.settings) == "1 0.80"


def test_overlays_can_be_turned_off(view: ImageView, screen: OffscreenScreen, panel: Panel) -> None:
    plain = seen(view, screen)
    put(view, boxes=[[40, 20, 100, 80]], labels=["cat"], notes=[(10, 90, "note")])
    view.settings.overlay = False
    np.testing.assert_array_equal(written(view, screen, panel), plain)
    view.settings.overlay = True
    assert (written(view, screen, panel) != plain).any()


def test_labels_stand_above_or_inside(view: ImageView, screen: OffscreenScreen, panel: Panel) -> None:
    put(view, boxes=[[20, 50, 90, 100], [110, 2, 180, 60]], labels=["cat", "dog"], classes=[0, 1])
    without = seen(view, screen)
    pixels = written(view, screen, panel)
    changed = (pixels != without).any(-1)
    assert changed[31:48, 22:40].mean() > 0.8
    assert not changed[52:85, 20:90].any()
    assert changed[4:20, 112:132].mean() > 0.8
    assert not changed[25:60, 110:].any()
    view.settings.labels = False
    np.testing.assert_array_equal(written(view, screen, panel)[:80], without[:80])


def test_the_corner_says_how_old_it_is(view: ImageView, screen: OffscreenScreen) -> None:
    from splatview.viewer_app.views._overlay.words import corner_lines

    layers = view.content.layers
    view.update(grey(12, 10**18 + 67_000_000, camera_hz=30.0, dropped=4))
    put(view, version=10, boxes=[[1, 1, 5, 5]], by="yolo", rate_hz=24.83, work_ms=41.2)
    assert corner_lines(layers, view.settings) == [
        "camera 30.0/s \u00b7 4 dropped", "yolo \u00b7 24.8/s \u00b7 41 ms \u00b7 result 2 frames old (67 ms)"]
    assert {"camera_hz 30", "dropped 4"}.isdisjoint(view.details)
    put(view, version=12, time_ns=10**18 + 67_000_000, boxes=[[1, 1, 5, 5]])
    assert corner_lines(layers, view.settings)[1:] == ["overlay \u00b7 result of this frame"]
    put(view, version=11, time_ns=0, boxes=[[1, 1, 5, 5]], work_ms=1.25)  # a version that was never shown
    assert corner_lines(layers, view.settings)[1:] == ["overlay \u00b7 1.2 ms \u00b7 result 1 frame old"]
    put(view, version=1, time_ns=0, boxes=[[1, 1, 5, 5]])  # one that was: its time is known
    assert corner_lines(layers, view.settings)[1:] == ["overlay \u00b7 result 11 frames old (67 ms)"]
    put(view, version=900, boxes=[[1, 1, 5, 5]])  # newer than what is shown
    assert corner_lines(layers, view.settings)[1:] == ["overlay \u00b7 result of this frame"]
    put(view)
    assert corner_lines(layers, view.settings)[1:] == []
    view.settings.overlay = False
    assert len(corner_lines(layers, view.settings)) == 1


def test_nonsense_about_a_camera_is_not_repeated(view: ImageView) -> None:
    meta: dict[str, Any]
    for meta in ({"camera_hz": "fast"}, {"camera_hz": float("nan")}, {"camera_hz": 30.0, "dropped": 1.5}, {}):
        view.update(grey(**meta))
        assert view.content.layers.camera == ""


def test_old_results_fade_and_are_gone(view: ImageView, screen: OffscreenScreen) -> None:
    put(view, version=1, boxes=[[40, 20, 100, 80]], classes=[0], rate_hz=25.0)
    strength = []
    for n, seconds in enumerate((0.0, 0.9, 1.2, 1.4, 2.0)):
        view.update(grey(2 + n, 10**18 + int(seconds * 1e9)))
        strength.append(int(np.abs(seen(view, screen)[50, 40] - GREY).sum()))
    assert strength[0] == strength[1] > strength[2] > strength[3] > strength[4] == 0
    put(view, version=1, boxes=[[40, 20, 100, 80]], classes=[0], rate_hz=2.0)  # of a slow one ten results long
    assert np.abs(seen(view, screen)[50, 40] - GREY).sum() == strength[0]


def test_a_cleared_overlay_is_gone(view: ImageView, screen: OffscreenScreen) -> None:
    plain = seen(view, screen)
    put(view, boxes=[[40, 20, 100, 80]])
    assert (seen(view, screen) != plain).any()
    put(view)
    np.testing.assert_array_equal(seen(view, screen), plain)


def test_boxes_move_between_results(view: ImageView, screen: OffscreenScreen) -> None:
    mask = torch.zeros(1, H, W, dtype=torch.uint8)

    def at(x: int, y: int) -> dict[str, Any]:
        moved = mask.clone()
        moved[0, y + 5: y + 15, x + 5: x + 15] = 1
        return {"boxes": [[x, y, x + 40, y + 40]], "classes": [0], "points": [[[x + 20, y + 30, 1]]], "masks": moved}

    view.content.layers.take("a", overlay_frame(1, 10**18, motion=True, **at(20, 20)))
    view.update(grey(4, 10**18 + 100_000_000))
    view.content.layers.take("a", overlay_frame(4, 10**18 + 100_000_000, motion=True, **at(40, 30)))
    view.content.layers.get("a").motion._came = -1e9  # type: ignore[union-attr]  (long ago: it has settled)
    exact = seen(view, screen)
    view.update(grey(7, 10**18 + 200_000_000))
    moved = seen(view, screen)
    view.content.layers.clear()
    put(view, version=7, **at(60, 40))
    np.testing.assert_array_equal(moved, seen(view, screen))  # all that is the box's moves with it
    view.content.layers.clear()
    put(view, version=7, **at(40, 30))
    np.testing.assert_array_equal(exact, seen(view, screen))


def test_motion_is_the_users_choice(view: ImageView, screen: OffscreenScreen) -> None:
    for told in (True, False):
        for n, x in ((1, 20), (4, 30)):
            view.update(grey(n, 10**18 + n * 10**7))
            put(view, version=n, time_ns=10**18 + n * 10**7, boxes=[[x, 20, x + 40, 60]], motion=told)
        layer = view.content.layers.get("a")
        assert layer is not None
        for chosen, moves in ((None, told), (True, True), (False, False)):
            view.settings.motion = chosen
            assert (view.content.layers.shift(layer, view.settings) is not None) == moves
    view.settings.motion = None


def test_what_is_new_asks_to_be_drawn(view: ImageView, screen: OffscreenScreen) -> None:
    other = view.beside(type(view.settings)())
    seen(view, screen)
    seen(other, screen)
    assert not view.tick(time.monotonic())
    put(view, boxes=[[40, 20, 100, 80]])
    for v in (view, other):
        assert v.tick(time.monotonic())
        seen(v, screen)
        assert not v.tick(time.monotonic())
    other.close()


def test_what_lies_under_the_pointer_is_named(view: ImageView, screen: OffscreenScreen) -> None:
    from splatview.viewer_app.events import PointerMove

    seen(view, screen)
    view.handle(PointerMove(50, 50), Rect(0, 0, W, H))
    assert view.readout == "(50, 50)   90  90  90"
    put(view, boxes=[[40, 20, 150, 110], [45, 45, 60, 60]], labels=["room", "cat"], scores=[0.9, 0.5])
    assert view.readout == "(50, 50)   90  90  90   cat 0.50"
    view.handle(PointerMove(100, 90), Rect(0, 0, W, H))
    assert view.readout.endswith("room 0.90")
    view.handle(PointerMove(10, 10), Rect(0, 0, W, H))
    assert view.readout == "(10, 10)   90  90  90"


def test_a_single_picture_gets_its_overlay(view: ImageView, screen: OffscreenScreen, panel: Panel) -> None:
    rect = Rect(0, 0, W, H)
    frame = overlay_frame(boxes=[[40, 40, 100, 80]], labels=["cat"], classes=[0], by="who")
    put(view, boxes=[[40, 40, 100, 80]], labels=["cat"], classes=[0])
    expected = written(view, screen, panel)
    view.content.layers.clear()
    for given in (panel, None):
        view.draw(screen.framebuffer, rect)
        draw_overlay_frame(screen.framebuffer, view, rect, [frame, image_frame(torch.zeros(2, 2))], panel=given)
        np.testing.assert_array_equal(screen.pixels()[:90, :, :3], expected[:90])
        assert not view.content.layers
    assert (shown(view, screen) == GREY).all()


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_can_be_drawn(seed: int, view: ImageView, screen: OffscreenScreen, panel: Panel) -> None:
    for i in range(4):
        tensors, meta = random_frame(np.random.default_rng(1000 + 4 * seed + i))
        view.content.layers.take(i % 2, frame_with(tensors, **meta))
        view.settings.motion = bool(i % 2)
        view.pan_zoom.set_zoom(0.3 + i, Rect(0, 0, W, H))
        written(view, screen, panel)
    assert view.readout == ""


def test_other_frames_change_nothing(view: ImageView, screen: OffscreenScreen) -> None:
    put(view, boxes=[[40, 20, 100, 80]])
    before = seen(view, screen)
    with pytest.raises(ViewerError):
        view.content.layers.take("a", image_frame(torch.zeros(3, 3)))
    assert not view.content.layers.take("a", frame_with({"boxes": torch.zeros(0, 4)}, intact=False))
    np.testing.assert_array_equal(seen(view, screen), before)


def test_hundreds_of_results_leave_nothing_behind(view: ImageView, screen: OffscreenScreen) -> None:
    masks, gl = torch.ones(2, H, W, dtype=torch.uint8), ctypes.CDLL("libGL.so.1")
    kinds = gl.glIsBuffer, gl.glIsTexture, gl.glIsVertexArray

    def there() -> list[int]:
        return [sum(bool(exists(name) & 0xFF) for name in range(1, 5000)) for exists in kinds]

    def show(times: int) -> None:
        for n in range(times):
            put(view, boxes=[[1, 1, 50, 50]] * 2, masks=masks, points=[[[5, 5, 1]]])
            view.update(grey(n))
            seen(view, screen)

    show(3)
    before = there()
    show(100)
    assert min(before) > 0
    assert there() == before
    assert len(view.content.layers._times) <= 600
    view.content.layers.clear()
    assert there() < before
