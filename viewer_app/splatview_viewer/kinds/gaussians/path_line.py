"""A camera path as it lies in the scene: a line, its key frames as small cameras, where the playhead is."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.cameras import focal_length, project
from splatview_viewer.geometry.path import CameraPath, positions
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from imgui_bundle import ImVec2Like

    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.geometry.path import Key

_STEPS = 24
"""Points of the line between two keys."""
_SIZE = 0.06
"""Of the small cameras, against the way from one to the next."""


def draw_path(path: CameraPath, camera: Camera, rect: Rect, scale: float, chosen: int | None, time: float) -> None:
    """Over the picture that `camera` shows in `rect`."""
    draw = imgui.get_background_draw_list()
    line = _line(tuple(path.keys), path.loop, path.smooth)
    at = _on_screen(line, camera, rect)
    seen = np.asarray(np.isfinite(at).all(axis=1))
    for part in np.split(np.arange(len(at)), np.flatnonzero(np.diff(seen)) + 1):
        if len(part) > 1 and seen[part[0]]:
            points: list[ImVec2Like] = [ImVec2(*p) for p in at[part].tolist()]
            draw.add_polyline(points, theme.u32(theme.SHADE, 0.5), 3.5 * scale, 0)
            draw.add_polyline(points, theme.u32(theme.MARK, 0.9), 1.5 * scale, 0)
    step = np.linalg.norm(np.diff(line, axis=0), axis=1).sum() / max(len(path.keys), 1) if len(line) > 1 else 1.0
    for i, key in enumerate(path.keys):
        _small_camera(key, camera, rect, scale, float(step) * _SIZE or 0.05, i == chosen)
    if path.keys:
        here = _on_screen(path.at(time, 16, 16).position[None], camera, rect)[0]
        if np.isfinite(here).all():
            draw.add_circle_filled(ImVec2(*here), 4.5 * scale, theme.u32(theme.INK), 20)
            draw.add_circle(ImVec2(*here), 4.5 * scale, theme.u32(theme.SHADE), 20, 1.2 * scale)


def _small_camera(key: Key, camera: Camera, rect: Rect, scale: float, size: float, chosen: bool) -> None:
    half = 0.5 / focal_length(min(key.fov, 120.0), 1)
    corners = np.array([[0, 0, 0], [-1.4 * half, -half, 1], [1.4 * half, -half, 1], [1.4 * half, half, 1],
                        [-1.4 * half, half, 1]]) * size
    at = _on_screen(corners @ rotations.matrix(key.rotation).T + key.position, camera, rect)
    if not np.isfinite(at).all():
        return
    color = theme.u32(theme.INK if chosen else theme.MARK)
    draw, width = imgui.get_background_draw_list(), (2.2 if chosen else 1.2) * scale
    for i in range(4):
        draw.add_line(ImVec2(*at[0]), ImVec2(*at[1 + i]), color, width)
        draw.add_line(ImVec2(*at[1 + i]), ImVec2(*at[1 + (i + 1) % 4]), color, width)


def _on_screen(points: np.ndarray, camera: Camera, rect: Rect) -> np.ndarray:
    """(N, 2) pixels of the screen where points (N, 3) of the world are seen; NaN behind the camera."""
    return project(camera, points) * [rect.width / camera.width, rect.height / camera.height] + [rect.x, rect.y]


@lru_cache(maxsize=8)
def _line(keys: tuple[Key, ...], loop: bool, smooth: bool) -> np.ndarray:
    path = CameraPath(list(keys), loop, smooth)
    return positions(path, min(_STEPS * max(len(keys) - 1 + loop, 1), 2000) + 1) if len(keys) > 1 else (
        np.stack([key.position for key in keys]) if keys else np.zeros((0, 3)))
