"""What one sees and presses of a training's cameras: names over the picture, the bar below it, the panel's part."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.geometry.cameras import project
from splatview_viewer.kinds.gaussians.frustums_through import HOWS
from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.widgets import tag

if TYPE_CHECKING:
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.gaussians.frustums import Frustums
    from splatview_viewer.render.cameras.content import CamerasContent

_TIPS = {"render": "Only what is rendered", "photo": "The photograph over it",
         "wipe": "The photograph right of a line that you drag", "side": "Both, side by side",
         "error": "How far they are apart: black is equal"}
_WIDE, _MEDIUM = 760.0, 430.0
"""Points of width from which all is in the bar, and from which all but words is."""


def name(tool: Frustums, content: CamerasContent, number: int, rect: Rect, scale: float) -> None:
    """What the camera under the pointer is called, beside it."""
    camera, cameras = tool.view.camera(rect), content.cameras
    assert cameras is not None
    if camera is None:
        return
    points = project(camera, cameras.outline(number, tool.depth))
    if np.isfinite(points).all():
        (x, _), (_, y) = points.min(0), points.max(0)
        tag(cameras.called(number), rect.x + x, rect.y + y + 6 * scale, rect)


def over(tool: Frustums, content: CamerasContent, rect: Rect, scale: float) -> None:
    """What stands over the picture while one looks through a camera."""
    through = tool.through
    if through.photo(content) is None:
        if through.how != "render":
            text = content.photos.trouble(through.index or 0) or "The photograph is on its way"
            place = through.place(rect)
            tag(text, place.x + 12 * scale, place.y + 12 * scale, rect)
        return
    if through.how == "wipe":
        through.divider.over(through.place(rect), scale, ("Render", "Photo"))
    elif through.how == "side":
        place = through.sides(rect)
        for text, x in (("Render", place.x), ("Photo", place.x + place.width / 2)):
            tag(text, x + 12 * scale, place.y + 12 * scale, rect)


def bar(tool: Frustums, content: CamerasContent, rect: Rect, scale: float) -> bool:
    """The strip below the picture while one looks through a camera. True when a picture has to follow."""
    with ui.board(f"cameras {id(tool)}", rect, (10 * scale, 0), theme.BAR) as opened:
        return opened and _bar(tool, content, rect, scale)


def _bar(tool: Frustums, content: CamerasContent, rect: Rect, scale: float) -> bool:
    through, changed = tool.through, False
    wide, medium = rect.width >= _WIDE * scale, rect.width >= _MEDIUM * scale
    gap = 6 * scale
    imgui.set_cursor_pos_y((rect.height - imgui.get_frame_height()) / 2)
    for label, by, tip in (("<", -1, "The camera before (Page up)"), (">", 1, "The camera after (Page down)")):
        if imgui.button(label, ImVec2(26 * scale, 0)):
            tool.step(by)
            changed = True
        imgui.set_item_tooltip(tip)
        imgui.same_line(0, gap)
    slides = through.how in ("photo", "error")
    if (wide or (medium and not slides)) and content.cameras is not None and through.index is not None:
        imgui.align_text_to_frame_padding()
        called = content.cameras.called(through.index)
        room = (220 if wide else 110) * scale
        while len(called) > 4 and imgui.calc_text_size(called).x > room:
            called = called[:-4] + "..."
        imgui.text(called)
        imgui.same_line(0, 2 * gap)
    imgui.set_next_item_width(112 * scale)
    before = through.how
    keys = list(HOWS)
    _, index = imgui.combo("##how", keys.index(through.how), list(HOWS.values()))
    through.how = keys[index]
    imgui.set_item_tooltip(_TIPS[through.how])
    changed |= through.how != before
    words = _psnr(through.psnr)
    leave = imgui.calc_text_size("Leave").x + 2 * imgui.get_style().frame_padding.x
    right = rect.width - 10 * scale - leave
    words_at = right - imgui.calc_text_size(words).x - 3 * gap
    if medium and slides:
        imgui.same_line(0, gap)
        imgui.set_next_item_width(110 * scale)
        changed |= _amount(tool)
        words = words if imgui.get_item_rect_max().x - rect.x + gap < words_at else ""  # nothing over the slider
    if words and medium:
        imgui.same_line(words_at)
        imgui.align_text_to_frame_padding()
        imgui.text(words)
        imgui.set_item_tooltip("Peak signal-to-noise ratio of the whole photograph and what is rendered at its size")
    imgui.same_line(right)
    if imgui.button("Leave"):
        tool.leave()
        changed = True
    imgui.set_item_tooltip("Back to where you were (Escape)")
    return changed


def _amount(tool: Frustums) -> bool:
    """A slider for what the chosen way to look has to be told."""
    through = tool.through
    if through.how == "photo":
        edited, value = imgui.slider_float("##opacity", through.opacity * 100, 0.0, 100.0, "Opacity %.0f%%")
        through.opacity = value / 100 if edited else through.opacity
    else:
        edited, value = imgui.slider_float("##gain", through.gain, 1.0, 32.0, "Error %.1f \u00d7",
                                           imgui.SliderFlags_.logarithmic)
        through.gain = value if edited else through.gain
    return edited


def _psnr(value: float | None) -> str:
    if value is None:
        return ""
    return "Equal" if math.isinf(value) else f"PSNR {value:.2f} dB"


def panel(tool: Frustums, content: CamerasContent) -> bool:
    """The panel's part; True when a picture has to follow."""
    through, cameras = tool.through, content.cameras
    assert cameras is not None
    before = tool.shown, tool.pictures, tool.size, tool.following
    tool.shown = ui.check("Show", tool.shown)
    if tool.shown:
        if cameras.photos or any(cameras.paths):
            tool.pictures = ui.check("Photos", tool.pictures)
        tool.size = ui.slider("Size", tool.size, (0.1, 10.0), "%.2f", reset=1.0)
    if content.current is not None:
        following = ui.check("Follow", tool.following)
        imgui.set_item_tooltip(f"Look through the camera that is trained with, now {content.current}")
        if following != tool.following:
            tool.follow(following)
    changed = before != (tool.shown, tool.pictures, tool.size, tool.following)
    ui.row("Look through")
    edited, value = imgui.input_int("##camera", tool.last, 1, 10, imgui.InputTextFlags_.enter_returns_true)
    imgui.set_item_tooltip(f"The number of a camera, 0 to {len(cameras) - 1}, and Enter")
    if edited and value != through.index and 0 <= value < len(cameras):
        tool.following = False
        tool.enter(value)
        changed = True
    if through.index is None or tool.view.rect.width >= _MEDIUM * tool.view.desk.scale:
        return changed
    how = through.how  # for which the bar has no room
    through.how = ui.choice("Compare", through.how, HOWS)
    changed |= how != through.how
    if through.how == "photo":
        opacity = ui.slider("Opacity", through.opacity, (0.0, 1.0), "%.2f", reset=1.0)
        changed |= opacity != through.opacity
        through.opacity = opacity
    elif through.how == "error":
        gain = ui.slider("Error", through.gain, (1.0, 32.0), "%.1f \u00d7", reset=4.0)
        changed |= gain != through.gain
        through.gain = gain
    if words := _psnr(through.psnr):
        ui.row("PSNR")
        imgui.text(words.removeprefix("PSNR "))
    return changed
