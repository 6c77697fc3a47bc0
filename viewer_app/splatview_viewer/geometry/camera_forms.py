"""Cameras as others write them down, for what a user pastes."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from splatview_viewer.core.errors import CameraError
from splatview_viewer.geometry.cameras import (
    DEFAULT_FOV,
    FILE_LIMIT,
    Camera,
    camera_from_json,
    field_of_view,
    intrinsics,
)
from splatview_viewer.geometry.rotations import is_rotation

_FLIP = np.diag([1.0, -1.0, -1.0, 1.0])
"""From OpenGL's camera axes, which nerfstudio uses (y up, z backward), to OpenCV's."""


def camera_from_text(text: str, width: int, height: int) -> Camera:
    """The camera that a text describes, for a picture of `width` by `height` pixels.

    Takes what `camera_from_json` takes, but no file names, and nerfstudio's forms, whose poses are camera to world in
    OpenGL axes: {"camera_to_world": 4x4 or 3x4, or its 12 or 16 numbers by rows, "fov": vertical degrees} of a camera
    path, or a whole path, of which it takes the first camera; {"transform_matrix": 4x4} with the intrinsics of a
    transforms.json beside it ("fl_y" and "h", or "camera_angle_x" and "w" and "h").

    Raises:
        CameraError: the text describes no camera.
    """
    if len(text) > FILE_LIMIT:
        raise CameraError(f"camera: a text of {len(text):,} characters is no camera; {FILE_LIMIT:,} are the most")
    text = text.strip()
    if not text.startswith("{"):
        seen = f", not {text.split(chr(10))[0][:40]!r}" if text else "; there is no text to paste"
        raise CameraError(f"camera: a JSON object is needed{seen}")
    try:
        d = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise CameraError(f"camera: not JSON: {e}") from None
    path = d.get("camera_path")
    if isinstance(path, list) and path and isinstance(path[0], dict):
        d = path[0]
    if "camera_to_world" in d:
        return _pose(d["camera_to_world"], "camera_to_world", _angle(d.get("fov", DEFAULT_FOV), "fov"), width, height)
    if "transform_matrix" in d:
        return _pose(d["transform_matrix"], "transform_matrix", _fov(d), width, height)
    return camera_from_json(text, width, height)


def _pose(value: Any, key: str, fov: float, width: int, height: int) -> Camera:
    try:
        m = np.array(value, np.float64)
        m = m.reshape(-1, 4)
    except (ValueError, TypeError, OverflowError):
        m = np.empty((0, 0))
    if m.shape not in ((3, 4), (4, 4)) or not np.isfinite(m).all():
        raise CameraError(f"camera: {key} is no 4x4 matrix of finite numbers")
    pose = np.eye(4)
    pose[:3] = m[:3]
    lengths = np.linalg.norm(pose[:3, :3], axis=0)
    if not ((lengths > 1e-6) & (lengths < 1e6)).all():
        raise CameraError(f"camera: the upper left 3x3 of {key} is not a rotation")
    pose[:3, :3] /= lengths  # scenes are scaled to fit, and their poses with them
    if not is_rotation(pose[:3, :3]):
        raise CameraError(f"camera: the upper left 3x3 of {key} is not a rotation")
    return Camera(np.linalg.inv(pose @ _FLIP), intrinsics(fov, width, height), width, height)


def _fov(d: dict[str, Any]) -> float:
    """Degrees from top to bottom, of a transforms.json or one of its frames."""
    if "camera_angle_y" in d:
        return math.degrees(_angle(d["camera_angle_y"], "camera_angle_y", math.pi))
    if "fl_y" in d and "h" in d:
        return field_of_view(_angle(d["fl_y"], "fl_y", math.inf), round(_angle(d["h"], "h", 1 << 20)))
    if "camera_angle_x" in d:
        half = math.tan(_angle(d["camera_angle_x"], "camera_angle_x", math.pi) / 2)
        aspect = _angle(d["h"], "h", 1 << 20) / _angle(d["w"], "w", 1 << 20) if "w" in d and "h" in d else 1.0
        return math.degrees(2 * math.atan(half * aspect))
    return DEFAULT_FOV


def _angle(value: Any, key: str, most: float = 180.0) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < most:
        raise CameraError(f"camera: {key} is {value!r}, not a number over 0 and below {most:g}")
    try:
        return float(value)
    except OverflowError:  # a whole number beyond any of these
        raise CameraError(f"camera: {key} is {value!r:.40}..., which is too large") from None
