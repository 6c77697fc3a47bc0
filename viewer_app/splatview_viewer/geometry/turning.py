"""Turns of a camera around the axis that points upward.

Plain maths. A camera is its rotation (3, 3), world to camera, in OpenCV axes; `up` is (3,),
of any length. Three numbers at a time go without NumPy, which is slow on few: each move
of the mouse needs several.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

_POLE = math.radians(89)
"""Elevation at which a turn stops."""
_Z = (0.0, 0.0, 1.0)


def tilt(rotation: np.ndarray, up: np.ndarray) -> float:
    """Return the radians by which a camera is rolled, clockwise as its user sees it.

    0 where it looks along `up`.
    """
    right, _, ahead = rotation.tolist()
    level = _level_axis(ahead, up.tolist())
    if level is None:
        return 0.0
    down = _cross(ahead, level)
    return math.atan2(_dot(right, down), _dot(right, level))


def rolled(rotation: np.ndarray, angle: float) -> np.ndarray:
    """Return a camera rolled by radians, clockwise as its user sees it."""
    return _orthonormal(axis_rotation(_Z, -angle) @ rotation)


def turned(
    rotation: np.ndarray, up: np.ndarray, yaw: float, pitch: float
) -> np.ndarray:
    """Return a camera turned around a point ahead, in radians.

    The camera stops short of looking along `up`, where left and right would swap. A roll
    stays.

    Args:
        rotation: the camera.
        up: the axis of `yaw`.
        yaw: angle by which the near side of what is ahead goes to the right.
        pitch: angle by which the camera goes up.
    """
    upward = _unit(up.tolist())
    right, _, ahead = rotation.tolist()
    right = _spun(right, upward, -yaw)
    ahead = _spun(ahead, upward, -yaw)
    # Elevation of the camera above the point ahead.
    sine = -_dot(ahead, upward)
    elevation = math.asin(min(max(sine, -1.0), 1.0))
    lowest = min(-_POLE, elevation)
    highest = max(_POLE, elevation)
    pitch = min(max(elevation + pitch, lowest), highest) - elevation
    level = _level_axis(ahead, upward) or right
    return _facing(_spun(ahead, level, -pitch), _spun(right, level, -pitch))


def upright(rotation: np.ndarray, up: np.ndarray, forward: np.ndarray) -> np.ndarray:
    """Return the upright camera that looks in a direction (3,).

    Along `up`, it is turned so that what `rotation` looks at stays above or below the
    middle.
    """
    forward = forward / np.linalg.norm(forward)
    up = up / np.linalg.norm(up)
    if abs(forward @ up) > 0.999:
        up = _upright_along(rotation, up, forward)
    ahead = forward.tolist()
    return _facing(ahead, _cross(ahead, up.tolist()))


def _upright_along(
    rotation: np.ndarray, up: np.ndarray, forward: np.ndarray
) -> np.ndarray:
    """Return the direction upward in the picture of a camera that looks along `up`.

    What is ahead of the camera now stays above or below the middle.
    """
    cosine = float(rotation[2] @ up)
    if abs(cosine) < 0.999:
        ahead = rotation[2] - cosine * up
    else:
        ahead = rotation[1] * np.sign(cosine)
    return -np.sign(forward @ up) * ahead


def axis_rotation(axis: Sequence[float], angle: float) -> np.ndarray:
    """Return the right-handed rotation (3, 3) around a unit axis (Rodrigues)."""
    x, y, z = axis
    c = math.cos(angle)
    s = math.sin(angle)
    t = 1 - c
    xy = t * x * y
    xz = t * x * z
    yz = t * y * z
    x_row = [c + t * x * x, xy - s * z, xz + s * y]
    y_row = [xy + s * z, c + t * y * y, yz - s * x]
    z_row = [xz - s * y, yz + s * x, c + t * z * z]
    return np.array([x_row, y_row, z_row])


def _facing(ahead: Sequence[float], right: tuple[float, float, float]) -> np.ndarray:
    """Return the camera that looks straight ahead, with `right` to its right."""
    ahead = _unit(ahead)
    down = _unit(_cross(ahead, right))
    # The rows are at right angles after thousands of small turns as well.
    return np.array([_cross(down, ahead), down, ahead])


def _level_axis(
    ahead: Sequence[float], upward: Sequence[float]
) -> tuple[float, float, float] | None:
    """Return the unit vector to the right of a camera that is upright.

    None where it looks along `upward`.
    """
    level = _cross(ahead, upward)
    if math.hypot(*level) < 1e-6 * math.hypot(*upward):
        return None
    return _unit(level)


def _spun(
    vector: Sequence[float], axis: Sequence[float], angle: float
) -> tuple[float, float, float]:
    """Return a vector turned around a unit axis, right-handed (Rodrigues)."""
    cosine = math.cos(angle)
    sine = math.sin(angle)
    kept_length = (1 - cosine) * _dot(axis, vector)
    x, y, z = _cross(axis, vector)
    return (
        cosine * vector[0] + sine * x + kept_length * axis[0],
        cosine * vector[1] + sine * y + kept_length * axis[1],
        cosine * vector[2] + sine * z + kept_length * axis[2],
    )


def _unit(vector: Sequence[float]) -> tuple[float, float, float]:
    """Return a vector of three at length 1."""
    x, y, z = vector
    length = math.hypot(x, y, z)
    return x / length, y / length, z / length


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the dot product of two vectors of three."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _cross(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """Return the cross product of two vectors of three."""
    ax, ay, az = a
    bx, by, bz = b
    return ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx


def _orthonormal(rotation: np.ndarray) -> np.ndarray:
    """Return a matrix that is nearly a rotation, nearer to one (a step of Newton's).

    It keeps thousands of small turns one.
    """
    return 1.5 * rotation - 0.5 * rotation @ rotation.T @ rotation
