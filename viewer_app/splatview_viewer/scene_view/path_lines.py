"""A camera path over the picture: its line, its keyframes, and the playhead."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.cameras import focal_length, project
from splatview_viewer.geometry.path import (
    MAX_KEYS,
    CameraPath,
    Keyframe,
    positions,
)
from splatview_viewer.scene_view.lines import draw_line
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imgui_bundle import ImVec2Like

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.geometry.cameras import Camera

_POINTS_BETWEEN_KEYS = 24
_MAX_POINTS = 2000
"""Points of the line of a whole path."""
_PYRAMID_SIZE = 0.14
"""Size of the small cameras, against the way from one to the next."""
_DEFAULT_PYRAMID_SIZE = 0.05
_MAX_PYRAMID_FOV = 120.0
_NUMBER_SIZE = 14.0
"""Points of the numbers of keyframes."""


def draw_path(
    path: CameraPath,
    camera: Camera,
    rect: Rect,
    scale: float,
    chosen_key: int | None,
    time: float,
) -> None:
    """Draw a path over the picture that `camera` shows in `rect`.

    Args:
        path: the path, which has keyframes.
        camera: the camera of the picture.
        rect: the picture's rectangle on the screen.
        scale: pixels per point.
        chosen_key: the keyframe that is edited, which stands out.
        time: the time of the playhead, in seconds.
    """
    # Of more keyframes there are several in each pixel.
    are_keys_drawn = len(path.keys) <= MAX_KEYS
    if are_keys_drawn:
        line = _curve(tuple(path.keys), path.loop, path.smooth)
    else:
        line = _thinned_line(path.keys)
    _draw_visible_line(line, camera, rect, scale)
    if are_keys_drawn:
        size = _pyramid_size(line, len(path.keys))
        for index, key in enumerate(path.keys):
            is_chosen = index == chosen_key
            tip = _draw_key(key, size, camera, rect, scale, is_chosen=is_chosen)
            if tip is not None:
                _draw_number(index + 1, tip, scale, is_chosen=is_chosen)
    _draw_playhead(path, time, camera, rect, scale)


@lru_cache(maxsize=8)
def _curve(keys: tuple[Keyframe, ...], loop: bool, smooth: bool) -> np.ndarray:
    """Return points (N, 3) along a path."""
    if not keys:
        return np.zeros((0, 3))
    if len(keys) == 1:
        return keys[0].position[None]
    path = CameraPath(list(keys), loop, smooth)
    segment_count = max(len(keys) - 1 + loop, 1)
    return positions(path, min(_POINTS_BETWEEN_KEYS * segment_count, _MAX_POINTS) + 1)


def _thinned_line(keys: Sequence[Keyframe]) -> np.ndarray:
    """Return points (N, 3) of a path of very many keyframes."""
    step = ceil_div(len(keys), _MAX_POINTS)
    return np.stack([key.position for key in keys[::step]])


def _draw_visible_line(
    line: np.ndarray, camera: Camera, rect: Rect, scale: float
) -> None:
    """Draw the segments of a line (N, 3) that lie in front of the camera."""
    points = _to_screen(line, camera, rect)
    is_visible = np.asarray(np.isfinite(points).all(axis=1))
    breaks = np.flatnonzero(np.diff(is_visible)) + 1
    for segment in np.split(np.arange(len(points)), breaks):
        if len(segment) > 1 and is_visible[segment[0]]:
            corners = points[segment] - [rect.x, rect.y]
            draw_line(corners, rect, scale, theme.MARK, 0.9)


def _pyramid_size(line: np.ndarray, key_count: int) -> float:
    """Return the size of the small cameras, in world units."""
    if len(line) <= 1:
        return _PYRAMID_SIZE
    length = np.linalg.norm(np.diff(line, axis=0), axis=1).sum()
    return float(length / max(key_count, 1)) * _PYRAMID_SIZE or _DEFAULT_PYRAMID_SIZE


def _draw_key(
    key: Keyframe,
    size: float,
    camera: Camera,
    rect: Rect,
    scale: float,
    *,
    is_chosen: bool,
) -> ImVec2 | None:
    """Draw a small camera, as a pyramid with the tip where the keyframe is.

    Returns the tip's pixel; None where it is not seen.
    """
    y = 0.5 / focal_length(min(key.fov, _MAX_PYRAMID_FOV), 1)
    x = 1.4 * y
    pyramid = np.array([[0, 0, 0], [-x, -y, 1], [x, -y, 1], [x, y, 1], [-x, y, 1]])
    to_world = rotations.matrix(key.rotation).T
    points = _to_screen(size * pyramid @ to_world + key.position, camera, rect)
    if not np.isfinite(points).all():
        return None
    tip = ImVec2(*points[0].tolist())
    corners: list[ImVec2Like] = [ImVec2(*point) for point in points[1:].tolist()]
    color = theme.u32(theme.INK if is_chosen else theme.MARK)
    width = (2.2 if is_chosen else 1.4) * scale
    draw = imgui.get_background_draw_list()
    draw.add_polyline(corners, color, width, imgui.ImDrawFlags_.closed.value)
    for corner in corners:
        draw.add_line(tip, corner, color, width)
    return tip


def _draw_number(
    key_number: int, tip: ImVec2, scale: float, *, is_chosen: bool
) -> None:
    """Write the number of a keyframe below its place."""
    draw = imgui.get_background_draw_list()
    text = str(key_number)
    with theme.bold(_NUMBER_SIZE):
        width = imgui.calc_text_size(text).x
        x = round(tip.x - width / 2)
        y = round(tip.y + 6 * scale)
        color = theme.INK if is_chosen else theme.MARK
        shade = theme.u32(theme.SHADE, 0.8)
        draw.add_text(ImVec2(x + scale, y + scale), shade, text)
        draw.add_text(ImVec2(x, y), theme.u32(color), text)


def _draw_playhead(
    path: CameraPath, time: float, camera: Camera, rect: Rect, scale: float
) -> None:
    """Draw a dot where the path is at a time, in seconds."""
    if not path.keys:
        return
    position = path.camera_at(time, 16, 16).position
    (point,) = _to_screen(position[None], camera, rect)
    if not np.isfinite(point).all():
        return
    draw = imgui.get_background_draw_list()
    middle = ImVec2(*point.tolist())
    radius = 6 * scale
    draw.add_circle_filled(middle, radius, theme.u32(theme.INK), 24)
    draw.add_circle(middle, radius, theme.u32(theme.SHADE), 24, 2 * scale)


def _to_screen(points: np.ndarray, camera: Camera, rect: Rect) -> np.ndarray:
    """Return pixels (N, 2) of the screen where points (N, 3) of the world are seen.

    They are NaN behind the camera.
    """
    stretch = [rect.width / camera.width, rect.height / camera.height]
    return project(camera, points) * stretch + [rect.x, rect.y]
