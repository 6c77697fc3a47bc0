"""Rotations in three dimensions, as matrices and as unit quaternions w x y z.

Plain maths in float64. The `angle * axis` vectors of `exp` and `log` are (3,), radians.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


_CONJUGATE = np.array([1.0, -1.0, -1.0, -1.0])
"""Signs of a unit quaternion's components in its inverse."""


def is_rotation(m: np.ndarray) -> bool:
    """Return True if a matrix (3, 3) is a rotation, up to 1e-3.

    In plain numbers: of a single matrix, NumPy takes ten times as long.
    """
    x, y, z = m.tolist()
    residuals = [
        _dot(x, x) - 1,
        _dot(y, y) - 1,
        _dot(z, z) - 1,
        _dot(x, y),
        _dot(y, z),
        _dot(z, x),
    ]
    is_orthonormal = all(abs(residual) <= 1e-3 for residual in residuals)
    return is_orthonormal and _dot(_cross(x, y), z) > 0


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the scalar product of two vectors (3,)."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _cross(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """Return the vector product of two vectors (3,)."""
    return [
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    ]


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
    trace = np.trace(m)
    squares = np.append(trace, np.diag(m))
    largest = int(np.argmax(squares))
    sums = m + m.T
    differences = m - m.T
    q = np.zeros(4)
    if largest == 0:
        q[0] = 1 + trace
        q[1] = differences[2, 1]
        q[2] = differences[0, 2]
        q[3] = differences[1, 0]
    else:
        i = largest - 1
        j = (i + 1) % 3
        k = (i + 2) % 3
        q[0] = differences[k, j]
        q[1 + i] = 1 + m[i, i] - m[j, j] - m[k, k]
        q[1 + j] = sums[i, j]
        q[1 + k] = sums[i, k]
    return q / np.linalg.norm(q)


def quaternions(m: np.ndarray) -> np.ndarray:
    """Return the quaternions (N, 4) of rotation matrices (N, 3, 3), as `quaternion`."""
    rows = np.moveaxis(np.asarray(m, np.float64), 0, -1)
    xx = rows[0, 0]
    yy = rows[1, 1]
    zz = rows[2, 2]
    trace = xx + yy + zz
    largest = np.argmax([trace, xx, yy, zz], axis=0)
    # Row i of `products`: 4 q_i q, worked out without a division.
    products = np.empty((4, 4, len(trace)))
    products[0, 0] = 1 + trace
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
    q = products[largest, :, np.arange(len(trace))]
    return q / np.linalg.norm(q, axis=1, keepdims=True)


def matrix(q: np.ndarray) -> np.ndarray:
    """Return the matrices (..., 3, 3) of quaternions (..., 4) of any length but 0."""
    q = np.asarray(q, np.float64)
    unit = q / np.linalg.norm(q, axis=-1, keepdims=True)
    w, x, y, z = np.moveaxis(unit, -1, 0)
    xx = x * x
    yy = y * y
    zz = z * z
    xy = x * y
    xz = x * z
    yz = y * z
    wx = w * x
    wy = w * y
    wz = w * z
    rows = np.empty((*q.shape[:-1], 3, 3))
    rows[..., 0, 0] = 1 - 2 * (yy + zz)
    rows[..., 0, 1] = 2 * (xy - wz)
    rows[..., 0, 2] = 2 * (xz + wy)
    rows[..., 1, 0] = 2 * (xy + wz)
    rows[..., 1, 1] = 1 - 2 * (xx + zz)
    rows[..., 1, 2] = 2 * (yz - wx)
    rows[..., 2, 0] = 2 * (xz - wy)
    rows[..., 2, 1] = 2 * (yz + wx)
    rows[..., 2, 2] = 1 - 2 * (xx + yy)
    return rows


def by_angles(degrees: Sequence[float]) -> np.ndarray:
    """Return the matrix (3, 3) of rotations around x, then y, then z, by degrees."""
    rotation = np.eye(3)
    for axis, angle in enumerate(degrees):
        first = (axis + 1) % 3
        second = (axis + 2) % 3
        radians = math.radians(angle)
        cosine = math.cos(radians)
        sine = math.sin(radians)
        step = np.eye(3)
        step[first, first] = cosine
        step[first, second] = -sine
        step[second, first] = sine
        step[second, second] = cosine
        rotation = step @ rotation
    return rotation


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the quaternion that rotates by `b` and then by `a`."""
    aw, ax, ay, az = a.tolist()
    bw, bx, by, bz = b.tolist()
    w = aw * bw - ax * bx - ay * by - az * bz
    x = aw * bx + bw * ax + ay * bz - az * by
    y = aw * by + bw * ay + az * bx - ax * bz
    z = aw * bz + bw * az + ax * by - ay * bx
    return np.array([w, x, y, z])


def exp(rotation: np.ndarray) -> np.ndarray:
    """Return the quaternion of a rotation (3,), its axis times its angle."""
    half_angle = float(np.linalg.norm(rotation)) / 2
    w = math.cos(half_angle)
    # sin(angle / 2) / angle, also for an angle of 0.
    factor = np.sinc(half_angle / math.pi) / 2
    return np.append(w, rotation * factor)


def log(q: np.ndarray) -> np.ndarray:
    """Return axis times angle (3,) of a quaternion with w >= 0: the inverse of `exp`."""
    vector = q[1:]
    length = float(np.linalg.norm(vector))
    if length < 1e-12:
        return 2.0 * vector
    angle = 2 * math.atan2(length, q[0])
    return vector * (angle / length)


def shortest_rotation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the quaternion of the shorter rotation from `a` to `b`, in the axes of `a`."""
    inverse = a * _CONJUGATE
    q = multiply(inverse, b)
    if q[0] < 0:
        return -q
    return q


def slerp(a: np.ndarray, b: np.ndarray, t: float) -> np.ndarray:
    """Compute the rotation from `a` to `b` at `t` in [0, 1], around one axis."""
    rotation = log(shortest_rotation(a, b))
    step = exp(rotation * t)
    return multiply(a, step)
