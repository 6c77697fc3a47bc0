"""The legend that says which number each colour of a picture stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.scene import color_maps
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.screen import Rect

_WIDTH = 190.0
"""Width of the legend, in points."""
_BAR_HEIGHT = 8.0
"""Height of the bar of colours, in points."""
_PADDING = 9.0
"""Space around the bar and the texts, in points."""
_MARGIN = 12.0
"""Distance from the picture's edges, in points."""
_MIN_PICTURE_WIDTH = 280.0
"""Width of a picture, in points, below which the legend is left out."""
_BACKGROUND_COLOR = ImVec4(0.06, 0.065, 0.075, 0.82)
_TITLE_COLOR = ImVec4(0.9, 0.91, 0.93, 1)
_LABEL_COLOR = ImVec4(0.7, 0.72, 0.75, 1)


def draw_legend(
    title: str, map_name: str, labels: Sequence[str], rect: Rect, scale: float
) -> None:
    """Draw the legend in the lower right corner of a picture that has room for it.

    Its own colours are the same in the dark and the light theme, because it lies over
    pictures.

    Args:
        title: name of the quantity.
        map_name: name of the colour map.
        labels: texts below the left end, the middle and the right end of the bar.
        rect: the picture's rectangle on the screen.
        scale: pixels per point.
    """
    if rect.width < _MIN_PICTURE_WIDTH * scale:
        return
    draw_list = imgui.get_background_draw_list()
    with theme.font_size(12.0):
        line_height = imgui.get_text_line_height()
        padding = _PADDING * scale
        bar_height = _BAR_HEIGHT * scale
        width = _WIDTH * scale
        height = 2 * line_height + bar_height + 6 * scale + 2 * padding
        x = rect.x + rect.width - width - _MARGIN * scale
        y = rect.y + rect.height - height - _MARGIN * scale
        if y < rect.y:
            return
        draw_list.add_rect_filled(
            ImVec2(x, y),
            ImVec2(x + width, y + height),
            theme.u32(_BACKGROUND_COLOR),
            6 * scale,
        )
        left = round(x + padding)
        right = round(x + width - padding)
        title_y = round(y + padding - 1 * scale)
        draw_list.add_text(ImVec2(left, title_y), theme.u32(_TITLE_COLOR), title)
        bar_top = round(y + padding + line_height + 3 * scale)
        _draw_bar(draw_list, map_name, left, right, bar_top, bar_top + bar_height)
        label_y = round(bar_top + bar_height + 3 * scale)
        _draw_labels(draw_list, labels, left, right, label_y)


def _draw_bar(
    draw_list: imgui.ImDrawList,
    map_name: str,
    left: float,
    right: float,
    top: float,
    bottom: float,
) -> None:
    """Draw all colours of a map from left to right."""
    colors = [
        theme.u32(ImVec4(r, g, b, 1)) for r, g, b in color_maps.table(map_name).tolist()
    ]
    edges = np.linspace(left, right, len(colors)).tolist()
    for i in range(len(colors) - 1):
        draw_list.add_rect_filled_multi_color(
            ImVec2(edges[i], top),
            ImVec2(edges[i + 1], bottom),
            colors[i],
            colors[i + 1],
            colors[i + 1],
            colors[i],
        )


def _draw_labels(
    draw_list: imgui.ImDrawList,
    labels: Sequence[str],
    left: int,
    right: int,
    y: int,
) -> None:
    """Draw three texts in a row: at the left, in the middle and at the right."""
    color = theme.u32(_LABEL_COLOR)
    for label, share in zip(labels, (0.0, 0.5, 1.0), strict=True):
        free_width = right - left - imgui.calc_text_size(label).x
        position = ImVec2(round(left + share * free_width), y)
        draw_list.add_text(position, color, label)
