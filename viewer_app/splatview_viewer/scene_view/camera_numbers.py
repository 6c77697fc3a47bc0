"""The numbers of a scene's camera, and the section "Near and far"."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.core.errors import CameraError
from splatview_viewer.geometry.cameras import FAR, look_at
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.folds import draw_small_fold

if TYPE_CHECKING:
    from splatview_viewer.geometry.orbit import Orbit
    from splatview_viewer.scene_view.camera_rig import CameraRig

_MIN_NEAR = 1e-3
"""World units; less beside a small scene."""
_MAX_FAR = 1e4
"""World units at the end of the sliders, which stands for no limit."""
_SAME_DEGREES = 1e-3
"""A roll that a slider shows alike."""


def draw(rig: CameraRig) -> None:
    """Draw the fold."""
    if not draw_small_fold("Numbers", "Position and roll: to be read and typed"):
        return
    _draw_position(rig)
    _draw_roll(rig)


def put_camera(
    rig: CameraRig, position: np.ndarray, target: np.ndarray, up: np.ndarray
) -> None:
    """Have the camera look from a position (3,) at a target (3,).

    Raises CameraError where that is no camera.
    """
    viewmat = look_at(position, target, up)
    rig.motion.take_over()
    orbit = rig.orbit
    orbit.rotation = viewmat[:3, :3]
    orbit.target = target
    orbit.distance = float(np.linalg.norm(target - position))
    orbit.up = up / np.linalg.norm(up)
    rig.apply_orbit(by_hand=True)


def _draw_position(rig: CameraRig) -> None:
    orbit = rig.orbit
    decimals = min(max(2 - math.floor(math.log10(orbit.distance)), 0), 8)
    rows = {
        "Position": (orbit.position, decimals),
        "Looks at": (orbit.target, decimals),
        "Up": (orbit.up, 2),
    }
    is_edited = False
    vectors: list[np.ndarray] = []
    for label, (value, digits) in rows.items():
        ui.row(label)
        is_changed, components = ui.vector(label, value.tolist(), f"%.{digits}f")
        is_edited |= is_changed
        vectors.append(np.array(components, np.float64))
    if not is_edited:
        return
    try:
        put_camera(rig, *vectors)
    except CameraError:
        # The user has not typed the end of it yet.
        return


def _draw_roll(rig: CameraRig) -> None:
    orbit = rig.orbit
    degrees = math.degrees(orbit.tilt)
    roll = ui.slider(
        "Roll",
        "Turn of the camera around its line of sight",
        degrees,
        (-180.0, 180.0),
        "%.0f°",
        reset=0.0,
    )
    if abs(roll - degrees) > _SAME_DEGREES:
        rig.motion.take_over()
        orbit.roll(math.radians(roll - degrees))
        rig.apply_orbit(by_hand=True)


def range_words(orbit: Orbit) -> str:
    """Return how near and how far the scene is drawn, in a few words."""
    limits: list[str] = []
    if orbit.near > _least_near(orbit) * (1 + 1e-6):
        limits.append(f"from {orbit.near:.3g}")
    if orbit.far < _MAX_FAR:
        limits.append(f"to {orbit.far:.3g}")
    return " ".join(limits) or "all"


def _least_near(orbit: Orbit) -> float:
    return min(_MIN_NEAR, 1e-3 * orbit.distance)


def draw_range(rig: CameraRig) -> None:
    """Draw the sliders of the planes near and far."""
    orbit = rig.orbit
    min_near = _least_near(orbit)
    shown_far = min(orbit.far, _MAX_FAR)
    far_format = "%.3g"
    if shown_far == _MAX_FAR:
        far_format = "no limit"
    near = ui.slider(
        "Near",
        "Gaussians nearer to the camera are not drawn, world units",
        orbit.near,
        (min_near, _MAX_FAR),
        "%.3g",
        reset=min_near,
        log=True,
    )
    far = ui.slider(
        "Far",
        "Gaussians farther from the camera are not drawn, world units",
        shown_far,
        (min_near, _MAX_FAR),
        far_format,
        reset=_MAX_FAR,
        log=True,
    )
    is_changed = abs(near - orbit.near) > 1e-9 * near or far != shown_far
    if is_changed and near < far:
        _set_range(rig, orbit, near, far, is_far_changed=far != shown_far)


def reset_range(rig: CameraRig) -> None:
    """Draw the scene from the least distance on, without a limit."""
    orbit = rig.orbit
    _set_range(rig, orbit, _least_near(orbit), _MAX_FAR, is_far_changed=True)


def _set_range(
    rig: CameraRig, orbit: Orbit, near: float, far: float, *, is_far_changed: bool
) -> None:
    rig.motion.take_over()
    orbit.near = near
    if is_far_changed:
        orbit.far = far if far < _MAX_FAR else FAR
    rig.apply_orbit()
