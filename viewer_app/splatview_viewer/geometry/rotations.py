"""Rotations in three dimensions, as matrices and as unit quaternions w x y z. Plain maths, float64."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


def is_rotation(m: np.ndarray) -> bool:
    """True for a matrix (3, 3) that only turns, up to 1e-3."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.allclose(m @ m.T, np.eye(3), atol=1e-3) and np.linalg.det(m) > 0)


def quaternion(m: np.ndarray) -> np.ndarray:
    """(4,) of a rotation matrix (3, 3), by its largest component (Shepperd 1978)."""
    t = np.trace(m)
    squares = np.array([t, m[0, 0], m[1, 1], m[2, 2]])
    i = int(np.argmax(squares))
    if i == 0:
        q = np.array([1 + t, m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]])
    else:
        i -= 1
        j = (i + 1) % 3
        k = (i + 2) % 3
        q = np.zeros(4)
        q[0] = m[k, j] - m[j, k]
        q[1 + i] = 1 + m[i, i] - m[j, j] - m[k, k]
        q[1 + j] = m[j, i] + m[i, j]
        q[1 + k] = m[k, i] + m[i, k]
    return q / np.linalg.norm(q)


def are_rotations(m: np.ndarray) -> np.ndarray:
    """Return for each matrix (N, 3, 3) whether it only turns, as `is_rotation` does."""
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.abs(m @ np.swapaxes(m, 1, 2) - np.eye(3)).max(axis=(1, 2))
        return (off <= 1e-3) & (np.linalg.det(m) > 0)


def quaternions(m: np.ndarray) -> np.ndarray:
    """(N, 4) of rotation matrices (N, 3, 3), as `quaternion`."""
    rows = np.moveaxis(np.asarray(m, np.float64), 0, -1)
    t = rows[0, 0] + rows[1, 1] + rows[2, 2]
    largest = np.argmax([t, rows[0, 0], rows[1, 1], rows[2, 2]], axis=0)
    # Row i of `products`: 4 q_i q, worked out without a division.
    products = np.empty((4, 4, len(t)))
    products[0, 0] = 1 + t
    for i in range(3):
        j = (i + 1) % 3
        k = (i + 2) % 3
        products[1 + i, 1 + i] = 1 + rows[i, i] - rows[j, j] - rows[k, k]
        products[0, 1 + i] = products[1 + i, 0] = rows[k, j] - rows[j, k]
        products[1 + i, 1 + j] = products[1 + j, 1 + i] = rows[j, i] + rows[i, j]
    q = products[largest, :, np.arange(len(t))]
    return q / np.linalg.norm(q, axis=1, keepdims=True)


def matrix(q: np.ndarray) -> np.ndarray:
    """(..., 3, 3) of quaternions (..., 4) of any length but 0."""
    q = np.asarray(q, np.float64)
    w, x, y, z = np.moveaxis(q / np.linalg.norm(q, axis=-1, keepdims=True), -1, 0)
    made = np.stack(
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
    return made.reshape(*q.shape[:-1], 3, 3)


def by_angles(degrees: Sequence[float]) -> np.ndarray:
    """(3, 3) of turns around x, then y, then z."""
    out = np.eye(3)
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
        out = step @ out
    return out


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The quaternion that turns by b and then by a."""
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


def exp(turn: np.ndarray) -> np.ndarray:
    """The quaternion of a turn: (3,) axis times angle."""
    angle = float(np.linalg.norm(turn))
    half = np.sinc(angle / 2 / math.pi) / 2
    return np.concatenate([[math.cos(angle / 2)], turn * half])


def log(q: np.ndarray) -> np.ndarray:
    """The inverse of `exp`, for w >= 0."""
    length = float(np.linalg.norm(q[1:]))
    if length < 1e-12:
        return 2.0 * q[1:]
    return q[1:] * (2 * math.atan2(length, q[0]) / length)


def between(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The shorter turn that leads from a to b, in a's axes."""
    q = multiply(a * np.array([1.0, -1, -1, -1]), b)
    return q if q[0] >= 0 else -q


def slerp(a: np.ndarray, b: np.ndarray, t: float) -> np.ndarray:
    """Interpolate from a to b by `t`, around one axis."""
    return multiply(a, exp(log(between(a, b)) * t))
