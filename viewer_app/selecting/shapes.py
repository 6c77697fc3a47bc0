"""The geometry of cropping: boxes and spheres in a picture, and what dragging their handles makes of them. Plain maths,
no graphics."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from viewer_app.selecting.pick import point_at
from viewer_app.selecting.selection import Box, Sphere

if TYPE_CHECKING:
    from viewer_app.cameras import Camera
    from viewer_app.selecting.selection import Vector

FACES = tuple((axis, side) for axis in range(3) for side in (-1, 1))
"""Of a box: which axis, and which end of it."""
_LEAST = 1e-4
"""Of the longest edge: no other becomes shorter by dragging."""
_BENT = 24
"""Pieces of a straight edge in the picture of a fisheye camera."""
_FLAT = 1e-6


def axes_of(degrees: Any) -> tuple[Vector, Vector, Vector]:
    """The axes of a box that was turned around x, then y, then z of the world, by so many degrees each."""
    (sx, cx), (sy, cy), (sz, cz) = ((math.sin(a), math.cos(a)) for a in np.radians(np.asarray(degrees, np.float64)))
    return ((cz * cy, sz * cy, -sy), (cz * sy * sx - sz * cx, sz * sy * sx + cz * cx, cy * sx),
            (cz * sy * cx + sz * sx, sz * sy * cx - cz * sx, cy * cx))


def angles_of(box: Box) -> Vector:
    """The inverse, within -180 to 180, -90 to 90 and -180 to 180 degrees."""
    (xx, xy, xz), (_, _, yz), (_, _, zz) = box.axes
    x, y, z = math.atan2(yz, zz), math.asin(min(max(-xz, -1.0), 1.0)), math.atan2(xy, xx)
    return math.degrees(x) + 0.0, math.degrees(y) + 0.0, math.degrees(z) + 0.0  # never -0


def fitted(means: np.ndarray, weights: np.ndarray | None = None) -> tuple[Box, Sphere]:
    """A box and a sphere around nearly all of these centres (N, 3): floaters, a hundredth on each side, do not count,
    nor those with a weight of 0."""
    keep = np.isfinite(means).all(axis=1)
    if weights is not None:
        keep &= np.asarray(weights) > 0
    points = np.asarray(means, np.float64)[keep]
    if not len(points):
        return Box(), Sphere()
    low, high = np.percentile(points, (1, 99), axis=0)
    center, half = (low + high) / 2, (high - low) / 2 * 1.05
    half = np.maximum(half, max(float(half.max()) * 0.01, 1e-6))
    radius = float(np.percentile(np.linalg.norm(points - center, axis=1), 99)) * 1.05
    x, y, z = center.tolist()
    a, b, c = half.tolist()
    return Box((x, y, z), (a, b, c)), Sphere((x, y, z), max(radius, 1e-6))


def face_centers(box: Box) -> np.ndarray:
    """(6, 3), in the order of `FACES`."""
    return np.array([np.array(box.center) + side * box.half[axis] * np.array(box.axes[axis]) for axis, side in FACES])


def edges(box: Box, camera: Camera) -> list[tuple[np.ndarray, bool]]:
    """Its twelve edges as they are seen: each (M, 2) pixels from the picture's corner, and whether it belongs to a side
    that faces the camera. What lies behind the camera is left out."""
    center, half, axes = (np.array(v, np.float64) for v in (box.center, box.half, box.axes))
    position = camera.position
    seen = {(axis, side): _faces(center + side * half[axis] * axes[axis], side * axes[axis], position, camera)
            for axis, side in FACES}
    out = []
    for axis in range(3):
        others = [i for i in range(3) if i != axis]
        for s in (-1, 1):
            for t in (-1, 1):
                middle = center + s * half[others[0]] * axes[others[0]] + t * half[others[1]] * axes[others[1]]
                line = path(camera, middle - half[axis] * axes[axis], middle + half[axis] * axes[axis])
                if line is not None:
                    out.append((line, seen[others[0], s] or seen[others[1], t]))
    return out


def _faces(point: np.ndarray, normal: np.ndarray, position: np.ndarray, camera: Camera) -> bool:
    sight = camera.viewmat[2, :3] if camera.model == "ortho" else point - position
    return float(normal @ sight) < 0


def path(camera: Camera, begin: np.ndarray, end: np.ndarray) -> np.ndarray | None:
    """(M, 2) pixels: a straight piece of the world in the picture; None where it lies behind the camera."""
    a, b = (camera.viewmat[:3, :3] @ p + camera.viewmat[:3, 3] for p in (begin, end))
    near = max(camera.near, 1e-6)
    if a[2] < near and b[2] < near:
        return None
    if a[2] < near:
        a = b + (a - b) * (b[2] - near) / (b[2] - a[2])
    elif b[2] < near:
        b = a + (b - a) * (a[2] - near) / (a[2] - b[2])
    share = np.linspace(0, 1, _BENT + 1 if camera.model == "fisheye" else 2)[:, None]
    return seen_at(camera, a + (b - a) * share)


def seen_at(camera: Camera, p: np.ndarray) -> np.ndarray:
    """(M, 2) pixels: where points (M, 3) in camera axes, in front of the camera, come to lie in the picture."""
    if camera.model == "ortho":
        uv = p[:, :2]
    elif camera.model == "pinhole":
        uv = p[:, :2] / p[:, 2:]
    else:
        length = np.maximum(np.hypot(p[:, 0], p[:, 1]), 1e-12)
        uv = p[:, :2] * (np.arctan2(length, p[:, 2]) / length)[:, None]
    return uv * [camera.K[0, 0], camera.K[1, 1]] + camera.K[:2, 2]


def place(camera: Camera, point: Any) -> tuple[float, float] | None:
    """Where a point of the world is seen, pixels from the picture's corner; None behind the camera."""
    p = camera.viewmat[:3, :3] @ np.asarray(point, np.float64) + camera.viewmat[:3, 3]
    if p[2] < max(camera.near, 1e-6):
        return None
    x, y = seen_at(camera, p[None])[0].tolist()
    return x, y


def silhouette(sphere: Sphere, camera: Camera) -> np.ndarray | None:
    """(M, 2) pixels: a sphere's outline; None where the camera is inside, or it lies behind."""
    center = camera.viewmat[:3, :3] @ np.array(sphere.center) + camera.viewmat[:3, 3]
    far = float(np.linalg.norm(center))
    turn = np.linspace(0, 2 * math.pi, 72, endpoint=False)
    if camera.model == "ortho":
        sight, middle, radius = np.array([0.0, 0.0, 1.0]), center, sphere.radius
    else:
        if far <= sphere.radius:
            return None
        sight = center / far
        share = 1 - (sphere.radius / far) ** 2  # where its tangents from the camera touch it
        middle, radius = center * share, sphere.radius * math.sqrt(share)
    right = np.cross(sight, [0.0, 1.0, 0.0] if abs(sight[1]) < 0.9 else [1.0, 0.0, 0.0])
    right /= np.linalg.norm(right)
    p = middle + radius * (np.cos(turn)[:, None] * right + np.sin(turn)[:, None] * np.cross(sight, right))
    return seen_at(camera, p) if p[:, 2].min() >= max(camera.near, 1e-6) else None


# -- dragging ----------------------------------------------------------------------------------------------------


def ray(camera: Camera, x: float, y: float) -> tuple[np.ndarray, np.ndarray]:
    """Where the line of sight through a pixel begins, and its direction, (3,) each, world axes."""
    begin, end = point_at(camera, x, y, 0.0), point_at(camera, x, y, 1.0)
    direction = end - begin
    return begin, direction / np.linalg.norm(direction)


def along(camera: Camera, at: tuple[float, float], point: np.ndarray, axis: np.ndarray) -> float | None:
    """How far along a line through `point` one is nearest to what is seen at a pixel; None where it is seen end on."""
    begin, direction = ray(camera, *at)
    across = float(direction @ axis)
    if (rest := 1 - across * across) < _FLAT:
        return None
    to = begin - point
    return float((to @ axis - across * (to @ direction)) / rest)


def beside(camera: Camera, at: tuple[float, float], point: np.ndarray) -> np.ndarray | None:
    """(3,) what is seen at a pixel, as far away as `point` is."""
    begin, direction = ray(camera, *at)
    forward = camera.viewmat[2, :3]
    step = float(direction @ forward)
    return None if step < _FLAT else begin + direction * (float((point - begin) @ forward) / step)


def distance(camera: Camera, at: tuple[float, float], point: np.ndarray) -> float:
    """How far the line of sight through a pixel passes `point`, world units: the radius of a sphere there whose edge is
    seen at the pixel."""
    begin, direction = ray(camera, *at)
    off = point - begin
    return float(np.linalg.norm(off - (off @ direction) * direction))


def with_face(box: Box, face: tuple[int, int], by: float) -> Box:
    """A box whose face is moved outward by so much; the opposite one stays where it is."""
    axis, side = face
    least = _LEAST * max(box.half)
    half = list(box.half)
    half[axis] = max(half[axis] + by / 2, least)
    center = np.array(box.center) + side * (half[axis] - box.half[axis]) * np.array(box.axes[axis])
    x, y, z = center.tolist()
    return replace(box, half=(half[0], half[1], half[2]), center=(x, y, z))
