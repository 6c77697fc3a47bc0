"""What is written over the cameras of a training and their photographs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.geometry.cameras import project
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import tag

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.geometry.training_cameras import CameraSet
    from splatview_viewer.render.cameras.drawing import Grid

_LINE = 22.0
"""Points of height for a name below a photograph."""


def title(name: str, trouble: str, rect: Rect, scale: float) -> None:
    """Of the photograph that is open."""
    gap = 12 * scale
    tag(name, rect.x + gap, rect.y + gap, rect)
    if trouble:
        tag(trouble, rect.x + gap, rect.y + gap + 1.9 * imgui.get_text_line_height(), rect)


def named(cameras: CameraSet, number: int, camera: Camera, depth: float, rect: Rect) -> None:
    """What the camera under the pointer is called, below it."""
    scale = theme.scale()
    points = project(camera, cameras.outline(number, depth))
    if np.isfinite(points).all():
        (x, _), (_, y) = points.min(0), points.max(0)
        if 0 <= x < rect.width and 0 <= y < rect.height:
            tag(cameras.called(number), rect.x + x, rect.y + y + 6 * scale, rect)


def rows(cameras: CameraSet, grid: Grid, rect: Rect, marked: tuple[int | None, int | None], scale: float) -> None:
    """Frames around the photograph under the pointer and the one that is trained with; a bar that says how far down one
    is."""
    draw, count = imgui.get_background_draw_list(), len(cameras)
    draw.push_clip_rect(ImVec2(rect.x, rect.y), ImVec2(rect.x + rect.width, rect.y + rect.height), True)
    for number, color in zip(marked[::-1], (theme.ALIVE, theme.ACCENT), strict=True):
        if number is None or number >= count:
            continue
        x, y, width, height = grid.place(number)
        edge = 1.5 * scale
        draw.add_rect(ImVec2(rect.x + x - edge, rect.y + y - edge),
                      ImVec2(rect.x + x + width + edge, rect.y + y + height + edge), theme.u32(color),
                      rounding=2 * scale, thickness=2 * scale)
    hovered = marked[0]
    if hovered is not None and hovered < count:
        x, y, width, height = grid.place(hovered)
        below = y + height - (_LINE + 4) * scale
        tag(cameras.called(hovered), rect.x + x + 4 * scale, rect.y + below, rect)
    whole = grid.height(count)
    if whole > rect.height:
        share = rect.height / whole
        top = rect.y + grid.scroll / whole * rect.height
        right = rect.x + rect.width - 3 * scale
        draw.add_rect_filled(ImVec2(right - 4 * scale, top),
                             ImVec2(right, top + max(share * rect.height, 20 * scale)), theme.u32(theme.DIM, 0.8),
                             2 * scale)
    draw.pop_clip_rect()
