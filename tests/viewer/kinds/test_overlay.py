"""Overlays of images, pixel by pixel, and the viewer over streams with results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.annotate_cases import overlay_frame, overlay_pixels, result_of
from support.frames import image_frame
from support.view_cases import change_state, image_view
from support.viewer import Viewer

import splatview
from splatview_ipc.control.frame import StreamFrame
from splatview_viewer.app.still import Still, StillOptions
from splatview_viewer.core.events import PointerMove
from splatview_viewer.core.screen import Rect
from splatview_viewer.kinds.image.overlay import PALETTE, PLAIN
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.panel import Panel

W = 200
H = 120
GREY = 90


def grey(version: int = 1, time_ns: int = 10**18) -> StreamFrame:
    frame = image_frame(torch.full((H, W, 3), GREY, dtype=torch.uint8), version=version)
    frame.time_ns = time_ns
    return frame


@pytest.fixture
def view(screen: OffscreenScreen) -> Iterator[Any]:
    screen.resize(W, H)
    image = image_view(screen)
    change_state(image, background=(0.0, 0.0, 0.0))
    image.update(grey())
    yield image
    image.close()


def put(view: Any, key: object = "a", **results: Any) -> None:
    frame = overlay_frame(**{"time_ns": 10**18, **results})
    assert view.content.layers.take(key, frame)


def of_color(pixels: np.ndarray, color: np.ndarray) -> np.ndarray:
    return np.all(np.abs(pixels - color.astype(int)) <= 2, axis=-1)


def test_box_lies_at_its_pixels(view: Any, screen: OffscreenScreen) -> None:
    put(view, boxes=[[40, 20, 100, 80]], classes=[0])
    pixels = overlay_pixels(view, screen)
    expected = np.zeros((H, W), bool)
    expected[19:81, 39:101] = True
    # The edge is of two pixels, one on either side, and has a darker rim.
    expected[21:79, 41:99] = False
    np.testing.assert_array_equal(of_color(pixels, PALETTE[0]), expected)
    assert pixels[18, 60].max() < GREY
    assert pixels[15, 60].max() == GREY
    assert pixels[50, 60].max() == GREY


def test_rotated_boxes_are_drawn_by_their_corners(
    view: Any, screen: OffscreenScreen
) -> None:
    """Check also that they are named only inside, and hidden below the threshold."""
    corners = [[100, 20], [140, 60], [120, 80], [80, 40]]
    put(view, boxes=[corners, corners], classes=[0, 1], scores=[0.9, 0.2])
    change_state(view, threshold=0.5)
    pixels = overlay_pixels(view, screen)
    side = of_color(pixels, PALETTE[0])
    assert not of_color(pixels, PALETTE[1]).any()
    next_corners = corners[1:] + corners[:1]
    for (x0, y0), (x1, y1) in zip(corners, next_corners, strict=True):
        x = (3 * x0 + x1) // 4
        y = (3 * y0 + y1) // 4
        assert side[y - 1 : y + 1, x - 1 : x + 1].any()
    assert not side[19:36, 79:82].any()
    assert not side[65:81, 138:142].any()
    assert view.content.layers.box_text_at(110, 50, view.view.state) == "0 0.90"
    assert view.content.layers.box_text_at(85, 75, view.view.state) == ""


def test_masks_are_transparent_and_have_an_edge(
    view: Any, screen: OffscreenScreen
) -> None:
    mask = torch.zeros(1, H, W, dtype=torch.uint8)
    mask[0, 30:70, 50:120] = 1
    mask[0, 45:55, 70:90] = 0
    put(view, boxes=[[50, 30, 120, 70]], masks=mask, classes=[1], colors=None)
    pixels = overlay_pixels(view, screen)
    inside = 0.6 * GREY + 0.4 * PALETTE[1].astype(int)
    np.testing.assert_allclose(pixels[38, 60], inside, atol=3)
    # The mask has a hole.
    np.testing.assert_array_equal(pixels[50, 80], (GREY,) * 3)
    edge = of_color(pixels[44, 70:90], 0.03 * GREY + 0.97 * PALETTE[1])
    assert edge.mean() > 0.8
    np.testing.assert_array_equal(pixels[100, 20], (GREY,) * 3)


def test_points_bones_and_lines_are_drawn(view: Any, screen: OffscreenScreen) -> None:
    put(
        view,
        points=[[[30, 30, 1], [90, 30, 0.4], [60, 90, 0]]],
        skeleton=[[0, 1], [1, 2]],
        point_classes=[2],
        lines=[[[130, 20], [130, 100], [180, 100]]],
        line_classes=[3],
    )
    pixels = overlay_pixels(view, screen)
    bone = of_color(pixels, PALETTE[2])
    line = of_color(pixels, PALETTE[3])
    assert bone[30, 28:92].all()
    # A dot is thicker than a bone, and no bone leads to an invisible point.
    assert bone[28:32, 29:31].all()
    assert not bone[40:].any()
    assert line[25:100, 129:131].any(1).all()
    assert line[99:101, 135:175].any(0).all()


def test_scores_under_the_threshold_are_not_drawn(
    view: Any, screen: OffscreenScreen
) -> None:
    boxes = [[10, 10, 40, 40], [60, 10, 90, 40], [110, 10, 140, 40]]
    put(
        view,
        boxes=boxes,
        scores=[0.2, 0.8, float("nan")],
        classes=[0, 1, 2],
        masks=torch.ones(3, H, W),
        points=[[[x, 70, 1]] for x in (25, 75, 125)],
    )
    change_state(view, threshold=0.5)
    pixels = overlay_pixels(view, screen)
    assert not of_color(pixels, PALETTE[0]).any()
    assert of_color(pixels, PALETTE[1])[70, 75]
    assert of_color(pixels, PALETTE[2])[25, 110]
    assert view.content.layers.box_text_at(25, 25, view.view.state) == ""
    assert view.content.layers.box_text_at(75, 25, view.view.state) == "1 0.80"


def test_result_under_the_pointer_is_named(view: Any, screen: OffscreenScreen) -> None:
    overlay_pixels(view, screen)
    view.handle(PointerMove(50, 50), Rect(0, 0, W, H))
    assert view.info.readout == "(50, 50)   90  90  90"
    put(
        view,
        boxes=[[40, 20, 150, 110], [45, 45, 60, 60]],
        labels=["room", "cat"],
        scores=[0.9, 0.5],
    )
    assert view.info.readout == "(50, 50)   90  90  90   cat 0.50"
    view.handle(PointerMove(100, 90), Rect(0, 0, W, H))
    assert view.info.readout.endswith("room 0.90")
    view.handle(PointerMove(10, 10), Rect(0, 0, W, H))
    assert view.info.readout == "(10, 10)   90  90  90"


def test_single_picture_gets_its_overlay(view: Any, screen: OffscreenScreen) -> None:
    frame = overlay_frame(boxes=[[40, 40, 100, 80]], labels=["cat"], classes=[0])
    put(view, boxes=[[40, 40, 100, 80]], labels=["cat"], classes=[0])
    with closing(Panel()) as panel:
        view.draw(screen.framebuffer, Rect(0, 0, *screen.size))
        panel.draw_over(screen.framebuffer, view.draw_ui, 1.0)
        expected = screen.pixels()[..., :3].astype(int)
    still = Still(screen, "image", "shot", "--camera")
    assert still.prepare(grey(), StillOptions()) == (W, H)
    for _ in range(2):
        still.draw((W, H), [frame, image_frame(torch.zeros(2, 2))])
        np.testing.assert_array_equal(screen.pixels()[:90, :, :3], expected[:90])
        still.draw((W, H))
        assert (screen.pixels()[..., :3] == GREY).all()
    still.close()


# -- the viewer ----------------------------------------------------------------


def camera(**meta: Any) -> None:
    splatview.publish(
        torch.full((120, 160, 3), GREY, dtype=torch.uint8), "camera", meta=meta
    )


def detect(x: int, class_id: int) -> None:
    splatview.annotate(
        "camera",
        boxes=[[x, 20, x + 40, 60]],
        classes=[class_id],
        names=["cat", "dog", "cow"],
        by="tester",
    )


@pytest.fixture
def viewer(open_viewer: Callable[..., Viewer]) -> Viewer:
    return open_viewer((700, 400))


def shows_box(viewer: Viewer, x: int, class_id: int) -> bool:
    """Return whether the picture has the box at `x` in the colour of its class alone."""
    slot = viewer.user.shown
    if slot is None or slot.view is None:
        return False
    layers = viewer.image.data.layers.all
    boxes = [layer.result.boxes.tolist() for layer in layers]
    if boxes != [[[x, 20, x + 40, 60]]]:
        return False
    pixels = viewer.picture()
    has_color = [of_color(pixels, color).sum() > 50 for color in PALETTE[:2]]
    return has_color == [class_id == 0, class_id == 1]


def test_results_are_drawn_over_their_stream_while_it_is_shown(
    viewer: Viewer, tmp_path: Path
) -> None:
    camera()
    detect(30, 0)
    viewer.until(partial(shows_box, viewer, 30, 0))
    # No other picture comes for the second result.
    detect(70, 1)
    viewer.until(partial(shows_box, viewer, 70, 1))
    assert viewer.image.data.layers.version == 1
    # Results are no entry of the list.
    entries = [(entry.name, entry.kind) for entry in viewer.state.entries]
    assert entries == [("camera", "image")]
    (overlay,) = (s for s in viewer.catalogue.subscriber.streams if s.kind == "overlay")
    selected = viewer.state.selected
    Image.new("RGB", (8, 6)).save(tmp_path / "other.png")
    viewer.user.drop([str(tmp_path / "other.png")])
    viewer.until(lambda: not overlay.opened)
    viewer.user.select(selected)

    def is_open_and_drawn() -> bool:
        return overlay.opened and shows_box(viewer, 70, 1)

    viewer.until(is_open_and_drawn)
    splatview.annotate("camera")
    viewer.until(lambda: viewer.image.data.layers.all[0].result.is_empty)


def test_trouble_is_written_over_the_picture(viewer: Viewer) -> None:
    camera()
    viewer.until(viewer.loaded)
    without_trouble = viewer.picture()
    splatview.annotate("camera", trouble="No model today")

    def shows(*troubles: str) -> bool:
        """Return whether these troubles stand in the upper part of the picture."""
        assert viewer.user.shown is not None
        if viewer.catalogue.links.troubles(viewer.user.shown) != [*troubles]:
            return False
        is_written = (viewer.picture()[:26] != without_trouble[:26]).any()
        return bool(is_written) == bool(troubles)

    viewer.until(partial(shows, "No model today"))
    camera(trouble="The network is gone")
    viewer.until(partial(shows, "The network is gone", "No model today"))
    camera()
    splatview.annotate("camera")
    viewer.until(shows)


# -- what is read of a frame ---------------------------------------------------


def test_boxes_are_copied_with_labels_and_colors() -> None:
    frame = overlay_frame(
        7,
        123,
        boxes=[[1, 2, 3, 4], [9, 9, 5, 6], [0, 0, 1, 1]],
        labels=["cat", "a\nb", ""],
        scores=[0.876, float("nan"), 0.5],
        classes=[0, 21, -1],
        points=[[[1, 2, 3]]],
        lines=[[[0, 0], [1, 1]]],
        masks=torch.ones(3, 48, 64, dtype=torch.uint8),
    )
    result = result_of(frame)
    for tensor in frame.tensors.values():
        tensor.array[...] = 0  # type: ignore[union-attr]
    assert result.points.tolist() == [[[1, 2, 1]]]
    assert result.lines.tolist() == [[0, 0, 1, 1]]
    assert result.masks[0].inside.all()
    assert result.boxes.tolist() == [[1, 2, 3, 4], [5, 6, 9, 9], [0, 0, 1, 1]]
    assert [result.box_text(n) for n in range(3)] == ["cat 0.88", "a b", "0.50"]
    assert result.colors[:, :3].tolist() == [
        PALETTE[0].tolist(),
        PALETTE[1].tolist(),
        PLAIN.tolist(),
    ]


def test_results_without_a_position_are_left_out() -> None:
    inf = float("inf")
    nan = float("nan")
    result = result_of(
        overlay_frame(
            boxes=[[nan, 0, 1, 1], [0, 0, inf, 1], [0, 0, 1e30, 1], [1, 1, 2, 2]],
            points=[
                [[1, 1, 1], [nan, 1, 1], [2, 2, 0]],
                [[1, inf, 1], [5, 5, nan], [6, 6, 0.1]],
            ],
            lines=[[[0, 0], [nan, 0], [1, 1], [2, 2]]],
            notes=[(nan, 0, "gone"), (1, 2, "here")],
        )
    )
    assert result.drawn.tolist() == [False, False, False, True]
    assert result.points[..., 2].tolist() == [[1, 0, 0], [0, 0, 1]]
    assert result.lines.tolist() == [[1, 1, 2, 2]]
    assert result.notes == [(1, 2, "here")]
