"""The list of keys, drawn over the picture when `?` is typed."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from viewer_app import theme
from viewer_app.views.base import KeyHelp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from viewer_app.controls import Rect

KEYS = (
    KeyHelp("Viewer", "H, Tab", "Show or hide the panel"),
    KeyHelp("Viewer", "?", "This list"),
)


def draw_help(picture: Rect, scale: float, lines: Sequence[KeyHelp]) -> None:
    """Draw the list in the middle of the picture, group by group."""
    draw, pace = imgui.get_foreground_draw_list(), imgui.get_text_line_height() * 1.5
    groups = [(name, list(found)) for name, found in groupby(lines, key=lambda line: line.group)]
    keys = max(imgui.calc_text_size(line.keys).x for line in lines)
    does = max(imgui.calc_text_size(line.does).x for line in lines)
    gap, pad = 24 * scale, 22 * scale
    width = keys + gap + does + 2 * pad
    height = pace * (len(lines) + 1.5 * len(groups)) + 2 * pad - pace
    x = picture.x + (picture.width - width) / 2
    y = picture.y + max((picture.height - height) / 2, 0)
    draw.add_rect_filled(ImVec2(x, y), ImVec2(x + width, y + height), theme.u32(theme.BAR, 0.94), 8 * scale)
    y += pad
    for name, found in groups:
        draw.add_text(ImVec2(round(x + pad), round(y)), theme.u32(theme.DIM), name)
        y += pace
        for line in found:
            draw.add_text(ImVec2(round(x + pad), round(y)), theme.u32(theme.TEXT), line.keys)
            draw.add_text(ImVec2(round(x + pad + keys + gap), round(y)), theme.u32(theme.DIM), line.does)
            y += pace
        y += pace / 2
