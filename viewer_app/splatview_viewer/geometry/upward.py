"""The direction upward of a scene, by the cameras that saw it or by its ground."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_SAMPLE = 20_000
"""Points that are looked at."""
_JUDGES = 1500
"""Points by which planes are judged."""
_FIRST_JUDGES = 500
"""Those by which all planes that are tried are judged."""
_TRIES = 700
"""Planes that are tried."""
_CANDIDATES = 24
"""The best of them, which are fitted to the points near them."""
_MIN_POINTS = 500
"""Points of a scene that may have a ground."""
_GROUND_THICKNESS = 0.015
"""Half the thickness of a ground, in radii of the scene."""
_GROUND_SHARE = 0.12
"""The least share of the points that a ground holds."""
_HORIZON_SPREAD = 0.08
"""Cameras whose horizons spread less than this around one direction do not tell the
other."""


def up_of_cameras(viewmats: np.ndarray) -> np.ndarray | None:
    """Return the direction (3,), of length 1, that was upward for cameras held level.

    Where they look in different directions it is the one that all their horizons are
    square to, however much they look down; otherwise the mean of what is up in their
    pictures. None where that is no direction either.

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
    spreads, axes = np.linalg.eigh(rights.T @ rights / len(rights))
    up = axes[:, 0]
    # Cameras that are rolled by chance spread in all directions; then the mean is better.
    is_flat = spreads[1] > _HORIZON_SPREAD and spreads[0] < 0.2 * spreads[1]
    if is_flat and abs(up @ mean) > 0.1:
        return up * np.sign(up @ mean)
    if length > 0.1:
        return mean / length
    return None


class _Plane(NamedTuple):
    """The points p with `normal @ p == offset`."""

    normal: np.ndarray
    """(3,) of length 1, away from the ground."""
    offset: float


def up_of_scene(
    points: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray | None:
    """Return the direction (3,), of length 1, that is square to a scene's ground.

    It leads away from the ground. None where no plane holds enough of the points to be
    one.

    Args:
        points: (N, 3) centres of Gaussians.
        weights: (N,) opacities; those of 0 do not count.
    """
    points = np.asarray(points)
    is_counted = (np.abs(points) < 1e18).all(axis=1)
    if weights is not None:
        is_counted &= np.asarray(weights) > 0
    points = points[is_counted]
    points = points[:: max(len(points) // _SAMPLE, 1)].astype(np.float64)
    if len(points) < _MIN_POINTS:
        return None
    center = np.median(points, axis=0)
    radius = float(np.percentile(np.linalg.norm(points - center, axis=1), 80))
    if radius <= 0:
        return None
    points = (points - center) / radius
    points = points[np.linalg.norm(points, axis=1) < 2.5]
    ground = _find_ground(points)
    if ground is None:
        return None
    return _refine_normal(points, ground)


def _find_ground(points: np.ndarray) -> _Plane | None:
    """Return the plane that holds most of the points, with most others on one side of it.

    Planes through three random points are tried, and the best of them fitted to what
    lies near; something stands on the ground.
    """
    random = np.random.default_rng(0)
    count = min(len(points), _JUDGES)
    judges = points[random.choice(len(points), count, replace=False)]
    triples = judges[random.integers(len(judges), size=(_TRIES, 3))]
    tried = _judge(judges[:_FIRST_JUDGES], *_planes_through(triples))
    order = np.argsort(-tried.scores)[:_CANDIDATES]
    candidates = [
        _Plane(tried.normals[i], float(tried.offsets[i]))
        for i in order
        if tried.scores[i] > 0
    ]
    if not candidates:
        return None
    # A rough ground has as many points below the plane that fits it as above.
    candidates += [_fit_plane(judges, plane) for plane in candidates]
    normals = np.stack([plane.normal for plane in candidates])
    offsets = np.array([plane.offset for plane in candidates])
    judged = _judge(judges, normals, offsets)
    scores = np.where(judged.shares > _GROUND_SHARE, judged.scores, 0.0)
    index = int(np.argmax(scores))
    if scores[index] <= 0:
        return None
    return _Plane(judged.normals[index], float(judged.offsets[index]))


class _Judged(NamedTuple):
    """Planes that may be the ground, their normals towards most of the points."""

    normals: np.ndarray
    """(M, 3)."""
    offsets: np.ndarray
    """(M,)."""
    shares: np.ndarray
    """(M,) shares of the points in each plane, less where others are on both sides."""
    scores: np.ndarray
    """(M,), higher for what is more likely the ground."""


def _judge(points: np.ndarray, normals: np.ndarray, offsets: np.ndarray) -> _Judged:
    """Judge planes by points (N, 3): normals (M, 3) and offsets (M,)."""
    heights = points @ normals.T - offsets
    count_above = (heights >= _GROUND_THICKNESS).sum(axis=0)
    count_below = (heights <= -_GROUND_THICKNESS).sum(axis=0)
    larger = np.maximum(count_above, count_below)
    smaller = np.minimum(count_above, count_below)
    inside = 1 - (larger + smaller) / len(points)
    shares = inside * (1 - smaller / np.maximum(larger, 1))
    shares[smaller > 0.25 * larger] = 0.0
    signs = np.where(count_above >= count_below, 1.0, -1.0)
    # Things stand on a floor: a wall faces another one, and little hangs from a ceiling.
    scores = shares * (1 - _mean_height(heights * signs)) ** 2
    return _Judged(normals * signs[:, None], offsets * signs, shares, scores)


def _mean_height(heights: np.ndarray) -> np.ndarray:
    """Return how high points lie above planes on average, (M,).

    A height of 1 is that of nearly the highest point.

    heights: (N, M) of N points above each of M planes.
    """
    is_above = heights >= _GROUND_THICKNESS
    heights_above = np.where(is_above, heights, 0.0)
    highest = np.maximum(np.quantile(heights_above, 0.95, axis=0), 1e-9)
    sums = np.minimum(heights_above, highest).sum(axis=0)
    return sums / highest / np.maximum(is_above.sum(axis=0), 1)


def _planes_through(triples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the normals (M, 3) and offsets (M,) of planes through triples of points.

    Triples that nearly lie on a line have none.

    Args:
        triples: (N, 3, 3), a point a row.
    """
    a, b, c = triples.transpose(1, 0, 2)
    normals = np.cross(b - a, c - a)
    lengths = np.linalg.norm(normals, axis=1)
    is_plane = lengths > 1e-3
    normals = normals[is_plane] / lengths[is_plane, None]
    offsets = (normals * a[is_plane]).sum(axis=1)
    return normals, offsets


def _refine_normal(points: np.ndarray, ground: _Plane) -> np.ndarray:
    """Return the normal of the plane that fits all points near the ground."""
    return _fit_plane(points, ground).normal


def _fit_plane(points: np.ndarray, plane: _Plane) -> _Plane:
    """Return the plane that fits all points (N, 3) near another plane."""
    normal, offset = plane
    for thickness in (2 * _GROUND_THICKNESS, _GROUND_THICKNESS):
        flat = points[np.abs(points @ normal - offset) < thickness]
        if len(flat) < 3:
            break
        center = flat.mean(axis=0)
        _, _, axes = np.linalg.svd(flat - center, full_matrices=False)
        normal = axes[2] * np.sign(axes[2] @ normal)
        offset = float(normal @ center)
    return _Plane(normal, offset)


def snap_to_axis(up: np.ndarray) -> np.ndarray:
    """Return the axis within 4 degrees of a direction of length 1, else the direction."""
    axis = int(np.argmax(np.abs(up)))
    if abs(up[axis]) < np.cos(np.radians(4.0)):
        return up
    # Adding 0 turns -0 into 0.
    return np.sign(up[axis]) * np.eye(3)[axis] + 0.0
