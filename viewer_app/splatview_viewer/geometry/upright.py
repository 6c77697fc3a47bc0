"""Which way is up: from cameras that somebody held upright, or from the ground that a scene stands on. Plain maths."""

from __future__ import annotations

import numpy as np

_SAMPLE, _FEW = 20_000, 1500
"""Points that are looked at, and those of them by which planes are judged."""
_TRIES = 250
_LEAST = 500
"""Points of which something can be said."""
_THICK = 0.015
"""A ground is so thick, in radii of the scene."""
_GROUND = 0.12
"""The least share of the points that a ground holds."""
_LEVEL = 0.08
"""Cameras whose horizons spread less than this around one direction say nothing of the other."""


def up_of_cameras(viewmats: np.ndarray) -> np.ndarray | None:
    """The direction (3,), of length 1, that was upward when these cameras were held level.

    Where they look in different directions it is the one that all their horizons are square to, however much they look
    down; otherwise the mean of what is up in their pictures. None where that is no direction either.

    Args:
        viewmats: (N, 4, 4) world to camera, OpenCV axes.
    """
    viewmats = np.asarray(viewmats, np.float64).reshape(-1, 4, 4)
    rotations = viewmats[np.isfinite(viewmats).all(axis=(1, 2)), :3, :3]
    if not len(rotations):
        return None
    mean = -rotations[:, 1].mean(axis=0)
    length = float(np.linalg.norm(mean))
    rights = rotations[:, 0]
    values, axes = np.linalg.eigh(rights.T @ rights / len(rights))
    up = axes[:, 0]
    # Cameras that are rolled by chance spread in all directions; then the mean is better.
    if values[1] > _LEVEL and values[0] < 0.2 * values[1] and abs(up @ mean) > 0.1:
        return up * np.sign(up @ mean)
    return mean / length if length > 0.1 else None


def up_of_scene(points: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray | None:
    """The direction (3,), of length 1, that is square to the ground of a scene, away from it; None where no plane holds
    enough of the points to be one.

    Args:
        points: (N, 3) centres of Gaussians.
        weights: (N,) opacities; those of 0 do not count.
    """
    points = np.asarray(points)
    keep = (np.abs(points) < 1e18).all(axis=1)
    if weights is not None:
        keep &= np.asarray(weights) > 0
    points = points[keep]
    points = points[:: max(len(points) // _SAMPLE, 1)].astype(np.float64)
    if len(points) < _LEAST:
        return None
    middle = np.median(points, axis=0)
    radius = float(np.percentile(np.linalg.norm(points - middle, axis=1), 80))
    if radius <= 0:
        return None
    points = (points - middle) / radius
    points = points[np.linalg.norm(points, axis=1) < 2.5]
    random = np.random.default_rng(0)
    few = points[random.choice(len(points), min(len(points), _FEW), replace=False)]
    a, b, c = few[random.integers(len(few), size=(_TRIES, 3))].transpose(1, 0, 2)
    normals = np.cross(b - a, c - a)
    lengths = np.linalg.norm(normals, axis=1)
    normals, a = normals[lengths > 1e-3] / lengths[lengths > 1e-3, None], a[lengths > 1e-3]
    best = _ground(few, normals, (normals * a).sum(axis=1))
    if best is None:
        return None
    normal, offset = best
    for thick in (2 * _THICK, _THICK):
        flat = points[np.abs(points @ normal - offset) < thick]
        center = flat.mean(axis=0)
        axis = np.linalg.svd(flat - center, full_matrices=False)[2][2]
        normal = axis * np.sign(axis @ normal)
        offset = float(normal @ center)
    return normal


def _ground(points: np.ndarray, normals: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, float] | None:
    """Which of these planes holds most of the points, with its normal away from it; None if none holds enough, or as
    much lies below it as above it: nothing stands on it."""
    heights = points @ normals.T - offsets
    above, below = (heights >= _THICK).sum(axis=0), (heights <= -_THICK).sum(axis=0)
    most, least = np.maximum(above, below), np.minimum(above, below)
    inside = 1 - (most + least) / len(points)
    share = np.where(least <= 0.25 * most, inside * (1 - least / np.maximum(most, 1)), 0.0)
    if not len(share) or share.max() <= _GROUND:
        return None
    best = int(np.argmax(share))
    sign = 1.0 if above[best] >= below[best] else -1.0
    return sign * normals[best], sign * float(offsets[best])


def snapped(up: np.ndarray) -> np.ndarray:
    """Return the axis within 4 degrees of a direction of length 1, or the direction itself."""
    axis = int(np.argmax(np.abs(up)))
    if abs(up[axis]) < np.cos(np.radians(4.0)):
        return up
    return np.sign(up[axis]) * np.eye(3)[axis] + 0.0  # no -0
