"""The controls of a phone while the view looks through a training camera.

Its sheet has the ways to compare and a strip of photographs; the picture has all the
rest.
"""

from __future__ import annotations

from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.view import Visit
from splatview_viewer.scene_view.frustums_panel import COMPARISONS
from splatview_viewer.ui import choices, controls, theme

if TYPE_CHECKING:
    from splatview_viewer.geometry.training_cameras import CameraSet
    from splatview_viewer.scene_view.frustums import Frustums

_PHOTOS = 5
"""Photographs in the strip; the one that is looked through is in the middle."""
_PHOTO_HEIGHT = 50.0
_PHOTO_GAP = 6.0
_PARTS_GAP = 12.0


def visit_of(tool: Frustums) -> Visit | None:
    """Return what a phone shows; None while no camera is looked through."""
    cameras = tool.cameras
    index = tool.through.index
    if cameras is None or index is None:
        return None
    name = PurePath(cameras.path(index)).name
    phrases = [name, tool.through.meter.text]
    return Visit(
        title=f"Camera {index}",
        beside=f"of {len(cameras):,}",
        words=" \u00b7 ".join(fact for fact in phrases if fact),
        draw=partial(_draw, tool, cameras, index),
        step=tool.step,
        leave=tool.leave,
    )


def _draw(tool: Frustums, cameras: CameraSet, index: int) -> bool:
    """Draw ways to compare, photographs and buttons; True to draw the picture again."""
    previous = (tool.state, tool.through.index)
    comparison = choices.segments("how", tool.state.comparison, COMPARISONS)
    tool.change(comparison=comparison)
    scale = theme.scale()
    _leave_gap(scale)
    _draw_photos(tool, cameras, index)
    _leave_gap(scale)
    width = imgui.get_content_region_avail().x / scale - 2 * _PHOTO_GAP
    content = tool.content
    reason = None
    if content is None or content.current is None:
        reason = "the training names no camera that it is at"
    text = "Following" if tool.is_following else "Follow"
    pressed = controls.button(
        text, "follow", name="Follow", width=0.28 * width, height=44, reason=reason
    )
    if pressed:
        tool.follow(not tool.is_following)
    imgui.same_line(0, _PHOTO_GAP * scale)
    _draw_order(tool, 0.29 * width)
    imgui.same_line(0, _PHOTO_GAP * scale)
    if controls.button("Back to my view", "undo", width=0.43 * width, height=44):
        tool.leave()
    return previous != (tool.state, tool.through.index)


def _draw_order(tool: Frustums, width: float) -> None:
    """Draw the button that goes through the photographs from the worst one on."""
    survey = tool.survey
    text = "By number" if survey.is_by_psnr else "Worst first"
    if survey.is_running:
        text = survey.count_words
    reason = tool.reason_no_worst()
    if not controls.button(text, name="Order", width=width, height=44, reason=reason):
        return
    if survey.is_by_psnr:
        tool.order_by_psnr(False)
    else:
        tool.go_to_worst()


def _leave_gap(scale: float) -> None:
    """Leave room between two parts of the sheet."""
    y = imgui.get_cursor_pos_y() + (_PARTS_GAP - theme.ROW_GAP) * scale
    imgui.set_cursor_pos_y(y)


def _draw_photos(tool: Frustums, cameras: CameraSet, index: int) -> None:
    """Draw the photographs around a camera; a tap looks through another one."""
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    gap = _PHOTO_GAP * scale
    count = min(_PHOTOS, len(cameras))
    width = (imgui.get_content_region_avail().x - gap * (count - 1)) / count
    height = _PHOTO_HEIGHT * scale
    order = tool.survey.order(cameras)
    first = min(max(order.index(index) - count // 2, 0), len(cameras) - count)
    for column in range(count):
        x = corner.x + column * (width + gap)
        imgui.set_cursor_screen_pos(ImVec2(x, corner.y))
        photo_index = order[first + column]
        is_chosen = photo_index == index
        _draw_photo(tool, photo_index, (width, height), is_chosen=is_chosen)
    imgui.set_cursor_screen_pos(corner)
    imgui.dummy(ImVec2(width * count + gap * (count - 1), height))


def _draw_photo(
    tool: Frustums, index: int, size: tuple[float, float], *, is_chosen: bool
) -> None:
    """Draw the photograph of one camera at imgui's cursor."""
    scale = theme.scale()
    item = controls.item(f"photo {index}", *size)
    draw = imgui.get_window_draw_list()
    rounding = theme.FIELD_ROUNDING * scale
    content = tool.content
    thumbnail = None
    if content is not None:
        thumbnail = content.drawing.thumbnail(index)
    if thumbnail is None:
        draw.add_rect_filled(item.low, item.high, theme.u32(theme.FIELD), rounding)
    else:
        draw.add_image_rounded(
            imgui.ImTextureRef(thumbnail.texture),
            item.low,
            item.high,
            ImVec2(*thumbnail.low),
            ImVec2(*thumbnail.high),
            imgui.color_convert_float4_to_u32((1, 1, 1, 1 if is_chosen else 0.75)),
            rounding,
        )
    if is_chosen:
        draw.add_rect(item.low, item.high, theme.u32(theme.ACCENT), rounding, 2 * scale)
    with theme.font_size(theme.AXES_SIZE):
        text_y = item.y + item.height - imgui.get_text_line_height() - 2 * scale
        corner = ImVec2(round(item.x + 5 * scale), round(text_y))
        text = str(index)
        if index in tool.survey.psnrs:
            text = f"{index}  {tool.survey.psnrs[index]:.1f} dB"
        draw.add_text(ImVec2(corner.x + 1, corner.y + 1), theme.u32(theme.SHADE), text)
        draw.add_text(corner, theme.u32(theme.INK), text)
    if item.pressed and not is_chosen:
        tool.choose(index)
