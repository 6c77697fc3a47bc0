"""The legend of a colour map over a picture of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.screen import Rect
from splatview_viewer.scene import color_maps
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH = 226.0
"""Points."""
_BAR_HEIGHT = 8.0
"""Points that the colours are high."""
_PADDING = (12.0, 8.0)
"""Points around the colours and labels."""
_MARGIN = 12.0
"""Points to the picture's edges."""
_MIN_PICTURE_WIDTH = 280.0
"""Points of a picture's width below which the legend is left out."""


def draw_legend(
    title: str, map_name: str, labels: Sequence[str], rect: Rect, scale: float
) -> None:
    """Draw the legend in the lower right corner of a picture that has room for it.

    It lies over pictures, so its colours are the same in dark and light.

    Args:
        title: what the numbers are.
        map_name: name of the colour map.
        labels: of its left, its middle and its right.
        rect: the picture's rectangle on the screen.
        scale: pixels per point.
    """
    place = place_legend(rect, scale)
    if place is None:
        return
    x = place.x
    y = place.y
    draw = imgui.get_background_draw_list()
    with theme.font_size(theme.SMALL_SIZE):
        line = imgui.get_text_line_height()
        pad_x = _PADDING[0] * scale
        pad_y = _PADDING[1] * scale
        width = place.width
        corner = ImVec2(x + width, y + place.height)
        draw.add_rect_filled(ImVec2(x, y), corner, theme.u32(theme.CARD), 6 * scale)
        left = round(x + pad_x)
        right = round(x + width - pad_x)
        top = round(y + pad_y + line + 5 * scale)
        draw.add_text(ImVec2(left, round(y + pad_y)), theme.u32(theme.INK), title)
        _draw_colors(draw, map_name, left, right, top, top + _BAR_HEIGHT * scale)
        label_y = round(top + (_BAR_HEIGHT + 4) * scale)
        color = theme.u32(theme.INK_DIM)
        for label, label_x in zip(
            labels, _label_places(labels, left, right), strict=True
        ):
            draw.add_text(ImVec2(round(label_x), label_y), color, label)


def place_legend(rect: Rect, scale: float) -> Rect | None:
    """Return where the legend of a picture lies; None where there is no room."""
    if rect.width < _MIN_PICTURE_WIDTH * scale:
        return None
    width = round(_WIDTH * scale)
    height = round((2 * theme.SMALL_SIZE + _BAR_HEIGHT + 9 + 2 * _PADDING[1]) * scale)
    x = round(rect.x + rect.width - width - _MARGIN * scale)
    y = round(rect.y + rect.height - height - _MARGIN * scale)
    if x < rect.x or y < rect.y:
        return None
    return Rect(x, y, width, height)


def _label_places(labels: Sequence[str], left: float, right: float) -> list[float]:
    """Return the pixels x of three labels between the ends of a bar.

    The second is in the middle, unless it would touch another one there.
    """
    first, second, third = (imgui.calc_text_size(label).x for label in labels)
    middle = (left + right - second) / 2
    between = (left + first + right - third - second) / 2
    gap = imgui.get_text_line_height()
    if middle + second + gap > right - third or middle < left + first + gap:
        middle = between
    return [left, middle, right - third]


def draw_difference_legend(gain: float, rect: Rect, scale: float) -> None:
    """Draw the legend of a difference of two pictures, amplified by a factor."""
    ends = [f"{share / gain:.3g}" for share in (0.5, 1.0)]
    draw_legend(
        f"Mean difference of colour, shown \u00d7 {gain:.3g}",
        "inferno",
        ["0", ends[0], f"{ends[1]} and more"],
        rect,
        scale,
    )


def _draw_colors(
    draw: imgui.ImDrawList,
    map_name: str,
    left: float,
    right: float,
    top: float,
    bottom: float,
) -> None:
    table = color_maps.table(map_name).tolist()
    colors = [theme.u32(ImVec4(r, g, b, 1)) for r, g, b in table]
    edges = np.linspace(left, right, len(colors)).tolist()
    for i in range(len(colors) - 1):
        draw.add_rect_filled_multi_color(
            ImVec2(edges[i], top),
            ImVec2(edges[i + 1], bottom),
            colors[i],
            colors[i + 1],
            colors[i + 1],
            colors[i],
        )
