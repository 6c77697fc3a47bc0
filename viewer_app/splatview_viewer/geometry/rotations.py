"""Rotations in three dimensions, as matrices and as unit quaternions w x y z.

Plain maths in float64. The `angle * axis` vectors of `exp` and `log` are (3,), radians.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


def is_rotation(m: np.ndarray) -> bool:
    """Return True if a matrix (3, 3) is a rotation, up to 1e-3."""
    with np.errstate(over="ignore", invalid="ignore"):
        is_orthonormal = np.allclose(m @ m.T, np.eye(3), atol=1e-3)
        return bool(is_orthonormal and np.linalg.det(m) > 0)


def are_rotations(m: np.ndarray) -> np.ndarray:
    """Return (N,) bool for matrices (N, 3, 3): the ones that are rotations, up to 1e-3."""
    with np.errstate(over="ignore", invalid="ignore"):
        residuals = m @ np.swapaxes(m, 1, 2) - np.eye(3)
        is_orthonormal = np.abs(residuals).max(axis=(1, 2)) <= 1e-3
        return is_orthonormal & (np.linalg.det(m) > 0)


def quaternion(m: np.ndarray) -> np.ndarray:
    """Return the quaternion (4,) of a rotation matrix (3, 3).

    By its largest component (Shepperd 1978).
    """
    t = np.trace(m)
    squares = np.array([t, m[0, 0], m[1, 1], m[2, 2]])
    largest = int(np.argmax(squares))
    if largest == 0:
        q = np.array([1 + t, m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]])
        return q / np.linalg.norm(q)
    i = largest - 1
    j = (i + 1) % 3
    k = (i + 2) % 3
    q = np.zeros(4)
    q[0] = m[k, j] - m[j, k]
    q[1 + i] = 1 + m[i, i] - m[j, j] - m[k, k]
    q[1 + j] = m[j, i] + m[i, j]
    q[1 + k] = m[k, i] + m[i, k]
    return q / np.linalg.norm(q)


def quaternions(m: np.ndarray) -> np.ndarray:
    """Return the quaternions (N, 4) of rotation matrices (N, 3, 3), as `quaternion`."""
    rows = np.moveaxis(np.asarray(m, np.float64), 0, -1)
    t = rows[0, 0] + rows[1, 1] + rows[2, 2]
    largest = np.argmax([t, rows[0, 0], rows[1, 1], rows[2, 2]], axis=0)
    # Row i of `products`: 4 q_i q, worked out without a division.
    products = np.empty((4, 4, len(t)))
    products[0, 0] = 1 + t
    for i in range(3):
        j = (i + 1) % 3
        k = (i + 2) % 3
        difference = rows[k, j] - rows[j, k]
        total = rows[j, i] + rows[i, j]
        products[1 + i, 1 + i] = 1 + rows[i, i] - rows[j, j] - rows[k, k]
        products[0, 1 + i] = difference
        products[1 + i, 0] = difference
        products[1 + i, 1 + j] = total
        products[1 + j, 1 + i] = total
    q = products[largest, :, np.arange(len(t))]
    return q / np.linalg.norm(q, axis=1, keepdims=True)


def matrix(q: np.ndarray) -> np.ndarray:
    """Return the matrices (..., 3, 3) of quaternions (..., 4) of any length but 0."""
    q = np.asarray(q, np.float64)
    w, x, y, z = np.moveaxis(q / np.linalg.norm(q, axis=-1, keepdims=True), -1, 0)
    entries = np.stack(
        [
            1 - 2 * (y * y + z * z),
            2 * (x * y - w * z),
            2 * (x * z + w * y),
            2 * (x * y + w * z),
            1 - 2 * (x * x + z * z),
            2 * (y * z - w * x),
            2 * (x * z - w * y),
            2 * (y * z + w * x),
            1 - 2 * (x * x + y * y),
        ],
        axis=-1,
    )
    return entries.reshape(*q.shape[:-1], 3, 3)


def by_angles(degrees: Sequence[float]) -> np.ndarray:
    """Return the matrix (3, 3) of rotations around x, then y, then z, by degrees."""
    rotation = np.eye(3)
    for axis, angle in enumerate(degrees):
        a = (axis + 1) % 3
        b = (axis + 2) % 3
        c = math.cos(math.radians(angle))
        s = math.sin(math.radians(angle))
        step = np.eye(3)
        step[a, a] = c
        step[a, b] = -s
        step[b, a] = s
        step[b, b] = c
        rotation = step @ rotation
    return rotation


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the quaternion that rotates by `b` and then by `a`."""
    w, x, y, z = a.tolist()
    s, t, u, v = b.tolist()
    return np.array(
        [
            w * s - x * t - y * u - z * v,
            w * t + s * x + y * v - z * u,
            w * u + s * y + z * t - x * v,
            w * v + s * z + x * u - y * t,
        ]
    )


def exp(rotation: np.ndarray) -> np.ndarray:
    """Return the quaternion of a rotation (3,), its axis times its angle."""
    angle = float(np.linalg.norm(rotation))
    half = np.sinc(angle / 2 / math.pi) / 2
    return np.concatenate([[math.cos(angle / 2)], rotation * half])


def log(q: np.ndarray) -> np.ndarray:
    """Return axis times angle (3,) of a quaternion with w >= 0: the inverse of `exp`."""
    length = float(np.linalg.norm(q[1:]))
    if length < 1e-12:
        return 2.0 * q[1:]
    return q[1:] * (2 * math.atan2(length, q[0]) / length)


def between(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the quaternion of the shorter rotation from `a` to `b`, in the axes of `a`."""
    q = multiply(a * np.array([1.0, -1, -1, -1]), b)
    if q[0] < 0:
        return -q
    return q


def slerp(a: np.ndarray, b: np.ndarray, t: float) -> np.ndarray:
    """Interpolate from quaternion `a` to `b` by `t` in [0, 1], around one axis."""
    return multiply(a, exp(log(between(a, b)) * t))
