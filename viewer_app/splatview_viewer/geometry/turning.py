"""Turns of a camera around the axis that points upward.

Plain maths. A camera is its rotation (3, 3), world to camera, in OpenCV axes; `up` is (3,),
of any length.
"""

from __future__ import annotations

import math

import numpy as np

_POLE = math.radians(89)
"""Elevation at which a turn stops."""
_X = np.array([1.0, 0.0, 0.0])
_Z = np.array([0.0, 0.0, 1.0])


def tilt(rotation: np.ndarray, up: np.ndarray) -> float:
    """Return the radians by which a camera is rolled, clockwise as its user sees it.

    0 where it looks along `up`.
    """
    ahead = rotation[2]
    right = rotation[0]
    level = _cross(ahead, up)
    if _length(level) < 1e-6 * _length(up):
        return 0.0
    down = _cross(ahead, level)
    return math.atan2(float(right @ down), float(right @ level))


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
    axis = up / _length(up)
    roll = tilt(rotation, up)
    rotation = rotation @ axis_rotation(axis, -yaw).T
    # Elevation of the camera above the point ahead.
    sine = float(-rotation[2] @ axis)
    elevation = math.asin(min(max(sine, -1.0), 1.0))
    lowest = min(-_POLE, elevation)
    highest = max(_POLE, elevation)
    pitch = min(max(elevation + pitch, lowest), highest) - elevation
    rotation = axis_rotation(_X, pitch) @ axis_rotation(_Z, roll) @ rotation
    return _orthonormal(axis_rotation(_Z, -roll) @ rotation)


def upright(rotation: np.ndarray, up: np.ndarray, forward: np.ndarray) -> np.ndarray:
    """Return the upright camera that looks in a direction (3,).

    Along `up`, it is turned so that what `rotation` looks at stays above or below the
    middle.
    """
    forward = forward / np.linalg.norm(forward)
    up = up / np.linalg.norm(up)
    if abs(forward @ up) > 0.999:
        up = _upright_along(rotation, up, forward)
    right = _cross(forward, up)
    right /= np.linalg.norm(right)
    down = _cross(forward, right)
    return np.stack([right, down, forward])


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


def axis_rotation(axis: np.ndarray, angle: float) -> np.ndarray:
    """Return the right-handed rotation (3, 3) around a unit axis (Rodrigues).

    Without NumPy, which is slow on three numbers: a frame needs several.
    """
    x, y, z = axis.tolist()
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


def _length(vector: np.ndarray) -> float:
    """Return the length of a vector (3,), faster than NumPy."""
    return math.hypot(*vector.tolist())


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the cross product of two vectors (3,), in a twentieth of NumPy's time.

    Each move of the mouse needs several.
    """
    ax, ay, az = a.tolist()
    bx, by, bz = b.tolist()
    x = ay * bz - az * by
    y = az * bx - ax * bz
    z = ax * by - ay * bx
    return np.array([x, y, z])


def _orthonormal(rotation: np.ndarray) -> np.ndarray:
    """Return a matrix that is nearly a rotation, nearer to one (a step of Newton's).

    It keeps thousands of small turns one.
    """
    return 1.5 * rotation - 0.5 * rotation @ rotation.T @ rotation
