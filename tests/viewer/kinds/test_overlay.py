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
from splatview_ipc.subscriber.remote_stream import RemoteStream
from splatview_viewer.app.still import Still, StillOptions
from splatview_viewer.core.events import PointerMove
from splatview_viewer.core.screen import Rect
from splatview_viewer.kinds.image.overlay import PALETTE, PLAIN_COLOR
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.surface import Surface

W = 200
H = 120
GREY = 90
"""Level of all pixels of the image below the overlay."""
TIME_NS = 10**18
"""Time of the image and of results."""
COLORS = [color.astype(int) for color in PALETTE]
"""Colours of classes, RGB."""
MASK_FILL = 0.4
"""Opacity of a mask's inside."""
MASK_EDGE = 0.97
"""Opacity of a mask's outermost pixels."""


def grey_frame() -> StreamFrame:
    frame = image_frame(torch.full((H, W, 3), GREY, dtype=torch.uint8))
    frame.time_ns = TIME_NS
    return frame


@pytest.fixture
def view(screen: OffscreenScreen) -> Iterator[Any]:
    """A view of a grey image, each pixel of which is one of the screen."""
    screen.resize(W, H)
    image = image_view(screen)
    change_state(image, background=(0.0, 0.0, 0.0))
    image.update(grey_frame())
    yield image
    image.close()


def add_results(view: Any, **annotations: Any) -> None:
    """Have a view take results of a detector for its image."""
    frame = overlay_frame(time_ns=TIME_NS, **annotations)
    assert view.content.layers.take("detector", frame)


def label_at(view: Any, x: int, y: int) -> str:
    """Return the text of the box under a pixel, as the status line would show it."""
    return view.content.layers.box_text_at(x, y, view.view.state)


def has_color(pixels: np.ndarray, color: np.ndarray) -> np.ndarray:
    """Return which pixels (..., 3) have a colour, but for rounding."""
    return np.all(np.abs(pixels - color) <= 2, axis=-1)


def blend(color: np.ndarray, opacity: float) -> np.ndarray:
    """Return a colour over the grey image."""
    return (1 - opacity) * GREY + opacity * color


def test_box_lies_at_its_pixels(view: Any, screen: OffscreenScreen) -> None:
    add_results(view, boxes=[[40, 20, 100, 80]], classes=[0])
    pixels = overlay_pixels(view, screen)
    # The line is two pixels wide, one on either side of the box's edge.
    is_line = np.zeros((H, W), bool)
    is_line[19:81, 39:101] = True
    is_line[21:79, 41:99] = False
    np.testing.assert_array_equal(has_color(pixels, COLORS[0]), is_line)
    above_line = pixels[18, 60]
    far_above = pixels[15, 60]
    inside = pixels[50, 60]
    # The line has a darker rim.
    assert above_line.max() < GREY
    assert far_above.max() == GREY
    assert inside.max() == GREY


def _midpoints(corners: list[list[int]]) -> list[tuple[int, int]]:
    """Return the middle of each side of a polygon."""
    next_corners = corners[1:] + corners[:1]
    return [
        ((x0 + x1) // 2, (y0 + y1) // 2)
        for (x0, y0), (x1, y1) in zip(corners, next_corners, strict=True)
    ]


ROTATED_BOX = [[100, 20], [140, 60], [120, 80], [80, 40]]
"""Corners of a box whose upright bounds are x 80 to 140, y 20 to 80."""


def test_rotated_box_is_drawn_along_its_corners(
    view: Any, screen: OffscreenScreen
) -> None:
    add_results(view, boxes=[ROTATED_BOX], classes=[0])
    is_line = has_color(overlay_pixels(view, screen), COLORS[0])
    for x, y in _midpoints(ROTATED_BOX):
        assert is_line[y - 1 : y + 1, x - 1 : x + 1].any()
    # Nothing is drawn at corners of the bounds, above left and below right.
    assert not is_line[19:36, 79:82].any()
    assert not is_line[65:81, 138:142].any()


def test_rotated_box_is_named_only_inside(view: Any, screen: OffscreenScreen) -> None:
    add_results(view, boxes=[ROTATED_BOX], classes=[0], scores=[0.9])
    overlay_pixels(view, screen)
    assert label_at(view, 110, 50) == "0 0.90"
    # Within the bounds, but beside the box.
    assert label_at(view, 85, 75) == ""


def test_rotated_box_under_the_threshold_is_not_drawn(
    view: Any, screen: OffscreenScreen
) -> None:
    add_results(
        view, boxes=[ROTATED_BOX, ROTATED_BOX], classes=[0, 1], scores=[0.9, 0.2]
    )
    change_state(view, threshold=0.5)
    pixels = overlay_pixels(view, screen)
    assert has_color(pixels, COLORS[0]).any()
    assert not has_color(pixels, COLORS[1]).any()


def test_masks_are_transparent_and_have_an_edge(
    view: Any, screen: OffscreenScreen
) -> None:
    mask = torch.zeros(1, H, W, dtype=torch.uint8)
    mask[0, 30:70, 50:120] = 1
    # A hole.
    mask[0, 45:55, 70:90] = 0
    add_results(view, boxes=[[50, 30, 120, 70]], masks=mask, classes=[1])
    pixels = overlay_pixels(view, screen)
    inside = pixels[38, 60]
    in_the_hole = pixels[50, 80]
    above_the_hole = pixels[44, 70:90]
    outside = pixels[100, 20]
    np.testing.assert_allclose(inside, blend(COLORS[1], MASK_FILL), atol=3)
    np.testing.assert_array_equal(in_the_hole, (GREY,) * 3)
    np.testing.assert_array_equal(outside, (GREY,) * 3)
    is_edge = has_color(above_the_hole, blend(COLORS[1], MASK_EDGE))
    assert is_edge.mean() > 0.8


def test_points_bones_and_lines_are_drawn(view: Any, screen: OffscreenScreen) -> None:
    # The third point's confidence is 0: it cannot be seen.
    add_results(
        view,
        points=[[[30, 30, 1], [90, 30, 0.4], [60, 90, 0]]],
        skeleton=[[0, 1], [1, 2]],
        point_classes=[2],
        lines=[[[130, 20], [130, 100], [180, 100]]],
        line_classes=[3],
    )
    pixels = overlay_pixels(view, screen)
    is_bone = has_color(pixels, COLORS[2])
    is_line = has_color(pixels, COLORS[3])
    # A bone joins the first two points.
    assert is_bone[30, 28:92].all()
    # A dot is thicker than a bone, and no bone leads to the third point.
    assert is_bone[28:32, 29:31].all()
    assert not is_bone[40:].any()
    # The line goes down, then to the right.
    assert is_line[25:100, 129:131].any(1).all()
    assert is_line[99:101, 135:175].any(0).all()


def test_scores_under_the_threshold_are_not_drawn(
    view: Any, screen: OffscreenScreen
) -> None:
    # Below the threshold, above it, and without a score.
    add_results(
        view,
        boxes=[[10, 10, 40, 40], [60, 10, 90, 40], [110, 10, 140, 40]],
        scores=[0.2, 0.8, float("nan")],
        classes=[0, 1, 2],
        masks=torch.ones(3, H, W),
        points=[[[x, 70, 1]] for x in (25, 75, 125)],
    )
    change_state(view, threshold=0.5)
    pixels = overlay_pixels(view, screen)
    assert not has_color(pixels, COLORS[0]).any()
    second_point = pixels[70, 75]
    third_box_line = pixels[25, 110]
    assert has_color(second_point, COLORS[1])
    assert has_color(third_box_line, COLORS[2])
    assert label_at(view, 25, 25) == ""
    assert label_at(view, 75, 25) == "1 0.80"


def test_result_under_the_pointer_is_named(view: Any, screen: OffscreenScreen) -> None:
    overlay_pixels(view, screen)
    view.handle(PointerMove(50, 50), Rect(0, 0, W, H))
    assert view.info.readout == "(50, 50)   90  90  90"
    add_results(
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


def test_still_picture_gets_the_overlay_that_the_window_shows(
    view: Any, screen: OffscreenScreen
) -> None:
    annotations: dict[str, Any] = {
        "boxes": [[40, 40, 100, 80]],
        "labels": ["cat"],
        "classes": [0],
    }
    add_results(view, **annotations)
    with closing(Surface()) as panel:
        view.draw(screen.framebuffer, Rect(0, 0, *screen.size))
        panel.draw_over(screen.framebuffer, view.draw_ui, 1.0)
        expected = screen.pixels()[..., :3].astype(int)
    # Below this row the window shows the age of the result, which a picture leaves out.
    age_row = 90
    not_an_overlay = image_frame(torch.zeros(2, 2))
    still_image = Still(screen, "image", "shot", "--camera")
    assert still_image.prepare(grey_frame(), StillOptions()) == (W, H)
    # The overlay belongs to one picture alone, each time.
    for _ in range(2):
        still_image.draw((W, H), [overlay_frame(**annotations), not_an_overlay])
        pixels = screen.pixels()[..., :3]
        np.testing.assert_array_equal(pixels[:age_row], expected[:age_row])
        still_image.draw((W, H))
        assert (screen.pixels()[..., :3] == GREY).all()
    still_image.close()


# -- the viewer ------------------------------------------------------------------------


def publish_picture(**meta: Any) -> None:
    picture = torch.full((120, 160, 3), GREY, dtype=torch.uint8)
    splatview.publish(picture, "camera", meta=meta)


def annotate_box(x: int, class_id: int) -> None:
    """Publish one box, at `x`, as the result for the picture."""
    splatview.annotate(
        "camera",
        boxes=[[x, 20, x + 40, 60]],
        classes=[class_id],
        names=["cat", "dog", "cow"],
        by="tester",
    )


@pytest.fixture
def viewer(open_viewer: Callable[..., Viewer]) -> Viewer:
    return open_viewer((1040, 562))


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
    has_class_color = [has_color(pixels, color).sum() > 50 for color in COLORS[:2]]
    return has_class_color == [class_id == 0, class_id == 1]


def overlay_stream(viewer: Viewer) -> RemoteStream:
    """Return the only stream of results."""
    streams = viewer.catalogue.subscriber.streams
    (overlay,) = (stream for stream in streams if stream.kind == "overlay")
    return overlay


def test_newer_result_is_drawn_without_a_new_picture(viewer: Viewer) -> None:
    publish_picture()
    annotate_box(30, class_id=0)
    viewer.until(partial(shows_box, viewer, 30, class_id=0))
    # The text beside the box is drawn anew with each picture.
    assert viewer.image.writes_about_picture()
    annotate_box(70, class_id=1)
    viewer.until(partial(shows_box, viewer, 70, class_id=1))
    assert viewer.image.data.layers.version == 1


def test_results_are_no_entry_of_the_list(viewer: Viewer) -> None:
    publish_picture()
    annotate_box(30, class_id=0)
    viewer.until(partial(shows_box, viewer, 30, class_id=0))
    entries = [(entry.name, entry.kind) for entry in viewer.state.entries]
    assert entries == [("camera", "image")]


def test_results_are_read_only_while_their_picture_is_shown(
    viewer: Viewer, tmp_path: Path
) -> None:
    publish_picture()
    annotate_box(70, class_id=1)
    viewer.until(partial(shows_box, viewer, 70, class_id=1))
    overlay = overlay_stream(viewer)
    camera = viewer.state.selected
    other_picture = tmp_path / "other.png"
    Image.new("RGB", (8, 6)).save(other_picture)
    viewer.user.drop([str(other_picture)])
    viewer.until(lambda: not overlay.opened)
    viewer.user.select(camera)

    def is_open_and_drawn() -> bool:
        return overlay.opened and shows_box(viewer, 70, class_id=1)

    viewer.until(is_open_and_drawn)


def test_annotating_with_nothing_removes_the_result(viewer: Viewer) -> None:
    publish_picture()
    annotate_box(30, class_id=0)
    viewer.until(partial(shows_box, viewer, 30, class_id=0))
    splatview.annotate("camera")
    viewer.until(lambda: viewer.image.data.layers.all[0].result.is_empty)


def test_trouble_is_written_over_the_picture(viewer: Viewer) -> None:
    publish_picture()
    viewer.until(viewer.loaded)
    top_rows = 26
    without_trouble = viewer.picture()[:top_rows]
    splatview.annotate("camera", trouble="No model today")

    def shows(*troubles: str) -> bool:
        """Return whether these troubles stand in the upper part of the picture."""
        assert viewer.user.shown is not None
        if viewer.catalogue.links.troubles(viewer.user.shown) != [*troubles]:
            return False
        is_written = (viewer.picture()[:top_rows] != without_trouble).any()
        return bool(is_written) == bool(troubles)

    viewer.until(partial(shows, "No model today"))
    publish_picture(trouble="The network is gone")
    viewer.until(partial(shows, "The network is gone", "No model today"))
    publish_picture()
    splatview.annotate("camera")
    viewer.until(shows)


# -- what is read of a frame -----------------------------------------------------------


def test_result_keeps_its_values_when_the_frame_is_overwritten() -> None:
    frame = overlay_frame(
        boxes=[[1, 2, 3, 4]],
        points=[[[1, 2, 3]]],
        lines=[[[0, 0], [1, 1]]],
        masks=torch.ones(1, 48, 64, dtype=torch.uint8),
    )
    result = result_of(frame)
    for tensor in frame.tensors.values():
        tensor.array[...] = 0  # type: ignore[union-attr]
    assert result.boxes.tolist() == [[1, 2, 3, 4]]
    # A point is visible or not, whatever its confidence.
    assert result.points.tolist() == [[[1, 2, 1]]]
    assert result.lines.tolist() == [[0, 0, 1, 1]]
    assert result.masks[0].inside.all()


def test_boxes_get_texts_and_colors_from_labels_scores_and_classes() -> None:
    result = result_of(
        overlay_frame(
            boxes=[[1, 2, 3, 4], [9, 9, 5, 6], [0, 0, 1, 1]],
            labels=["cat", "a\nb", ""],
            scores=[0.876, float("nan"), 0.5],
            classes=[0, len(PALETTE) + 1, -1],
        )
    )
    # The corners of a box may come in any order.
    assert result.boxes.tolist() == [[1, 2, 3, 4], [5, 6, 9, 9], [0, 0, 1, 1]]
    assert [result.box_text(box) for box in range(3)] == ["cat 0.88", "a b", "0.50"]
    # Classes beyond the palette start it again; no class has no colour of its own.
    expected = [PALETTE[0].tolist(), PALETTE[1].tolist(), PLAIN_COLOR.tolist()]
    assert result.colors[:, :3].tolist() == expected


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
