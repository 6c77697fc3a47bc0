"""The numbers of a scene's camera, to be read and typed: a fold of the panel's part "Camera"."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import imgui

from splatview_viewer.core.errors import CameraError
from splatview_viewer.geometry.cameras import FAR, look_at
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from splatview_viewer.scene_view.navigate import Navigate

_LIMITS = 1e-3, 1e4
"""Limits of near and far on their sliders, world units; less beside a small scene."""
_SAME_DEGREES = 1e-3
"""A roll that a slider shows alike."""


def draw(navigate: Navigate) -> None:
    """Draw the fold."""
    opened = imgui.tree_node("Numbers")
    imgui.set_item_tooltip("Position, roll, near and far: to be read and typed")
    if not opened:
        return
    _draw_place(navigate)
    _draw_roll(navigate)
    _draw_range(navigate)
    imgui.tree_pop()


def put_camera(
    navigate: Navigate, position: np.ndarray, target: np.ndarray, up: np.ndarray
) -> None:
    """Have the camera look from a position (3,) at a target (3,). Raises CameraError where that is no camera."""
    viewmat = look_at(position, target, up)
    navigate.begin()
    orbit = navigate.view.orbit
    orbit.rotation = viewmat[:3, :3]
    orbit.target = target
    orbit.distance = float(np.linalg.norm(target - position))
    orbit.up = up / np.linalg.norm(up)
    navigate.view.moved(by_hand=True)


def _draw_place(navigate: Navigate) -> None:
    orbit = navigate.view.orbit
    decimals = min(max(2 - math.floor(math.log10(orbit.distance)), 0), 8)
    rows = {
        "Position": (orbit.position, decimals),
        "Looks at": (orbit.target, decimals),
        "Up": (orbit.up, 2),
    }
    is_edited = False
    typed: list[np.ndarray] = []
    for label, (value, digits) in rows.items():
        ui.row(label)
        changed, numbers = ui.vector(label, value.tolist(), f"%.{digits}f")
        is_edited |= changed
        typed.append(np.array(numbers, np.float64))
    if not is_edited:
        return
    try:
        put_camera(navigate, *typed)
    except CameraError:
        return  # not yet what the user is typing


def _draw_roll(navigate: Navigate) -> None:
    orbit = navigate.view.orbit
    before = math.degrees(orbit.tilt)
    roll = ui.slider(
        "Roll",
        "Turn of the camera around its line of sight",
        before,
        (-180.0, 180.0),
        "%.0f deg",
        reset=0.0,
    )
    if abs(roll - before) > _SAME_DEGREES:
        navigate.begin()
        orbit.roll(math.radians(roll - before))
        navigate.view.moved(by_hand=True)


def _draw_range(navigate: Navigate) -> None:
    orbit = navigate.view.orbit
    least = min(_LIMITS[0], 1e-3 * orbit.distance)
    most = _LIMITS[1]
    seen_near = orbit.near
    seen_far = min(orbit.far, most)
    near = ui.slider(
        "Near",
        "Gaussians nearer to the camera are not drawn, world units",
        seen_near,
        (least, most),
        "%.3g",
        reset=least,
        log=True,
    )
    far = ui.slider(
        "Far",
        "Gaussians farther from the camera are not drawn, world units",
        seen_far,
        (least, most),
        "none" if seen_far == most else "%.3g",
        reset=most,
        log=True,
    )
    is_changed = abs(near - seen_near) > 1e-9 * near or far != seen_far
    if not is_changed or near >= far:
        return
    navigate.begin()
    orbit.near = near
    if far != seen_far:
        orbit.far = far if far < most else FAR
    navigate.view.moved()
