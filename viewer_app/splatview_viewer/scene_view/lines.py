"""Lines over a picture, with imgui."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.ui import theme

if TYPE_CHECKING:
    import numpy as np
    from imgui_bundle import ImVec2Like, ImVec4

    from splatview_viewer.core.screen import Rect

_MAX_COORDINATE = 1e5
"""Pixels beyond which nothing is drawn."""


def draw_line(
    points: np.ndarray,
    rect: Rect,
    scale: float,
    color: ImVec4,
    alpha: float = 1.0,
    *,
    closed: bool = False,
) -> None:
    """Draw a line with a dark seam over the picture in `rect`.

    Args:
        points: (M, 2) pixels from the picture's corner.
    """
    draw = imgui.get_background_draw_list()
    flags = imgui.ImDrawFlags_.closed.value if closed else 0
    bounded = points.clip(-_MAX_COORDINATE, _MAX_COORDINATE).tolist()
    corners: list[ImVec2Like] = [ImVec2(x + rect.x, y + rect.y) for x, y in bounded]
    seam = theme.u32(theme.SHADE, 0.55 * alpha)
    push_clip_rect(draw, rect)
    draw.add_polyline(corners, seam, 3.5 * scale, flags)
    draw.add_polyline(corners, theme.u32(color, alpha), 1.5 * scale, flags)
    draw.pop_clip_rect()


def push_clip_rect(draw: imgui.ImDrawList, rect: Rect) -> None:
    """Keep what is drawn within a rectangle, until `pop_clip_rect`."""
    low = ImVec2(rect.x, rect.y)
    high = ImVec2(rect.x + rect.width, rect.y + rect.height)
    draw.push_clip_rect(low, high, True)
