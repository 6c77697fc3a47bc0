"""One quiet line under the picture: what lies under the pointer, and how this picture came to be."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.shell.phrases import status_phrases
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from splatview_viewer.core.settings import State
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.shell.shown import Shown


def draw_status(state: State, shown: Shown, picture: Rect, size: tuple[int, int], scale: float) -> None:
    """Below `picture`, on a screen of `size` pixels. What does not fit is left to the details."""
    top = picture.y + picture.height
    draw = imgui.get_background_draw_list()
    draw.add_rect_filled(ImVec2(picture.x, top), ImVec2(*size), theme.u32(theme.BAR))
    line, pad = imgui.get_text_line_height(), 12 * scale
    y = round(top + (size[1] - top - line) / 2)
    x = picture.x + pad
    if shown.readout:
        draw.add_text(ImVec2(x, y), theme.u32(theme.TEXT), shown.readout)
        x += imgui.calc_text_size(shown.readout).x + 2 * pad
    phrases, width = status_phrases(state, shown), math.inf
    text = ""
    while phrases and width > size[0] - pad - x:
        text = " \u00b7 ".join(phrases)
        width = imgui.calc_text_size(text).x
        phrases.pop()
    if width <= size[0] - pad - x:
        draw.add_text(ImVec2(round(size[0] - pad - width), y), theme.u32(theme.DIM), text)
