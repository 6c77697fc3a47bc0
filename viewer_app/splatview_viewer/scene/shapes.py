"""The geometry of cropping: boxes and spheres in a picture, and what dragging their handles makes of them. Plain maths,
no graphics.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.selection import Box, Sphere
from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.cameras import point_at, seen_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.selection import Vector
    from splatview_viewer.geometry.cameras import Camera

FACES = tuple((axis, side) for axis in range(3) for side in (-1, 1))
"""Face of a box: axis and end."""
_SIDES = np.array(
    [[side if i == axis else 0 for i in range(3)] for axis, side in FACES], np.float64
)
_CORNERS = np.array(
    [(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float64
)
_EDGES = np.array(
    [
        (
            i,
            i | bit,
            *(
                2 * axis + ((i >> (2 - axis)) & 1)
                for axis in range(3)
                if 4 >> axis != bit
            ),
        )
        for bit in (4, 2, 1)
        for i in range(8)
        if not i & bit
    ]
)
"""(12, 4): two corners, and the two faces that meet there."""
_LEAST = 1e-4
"""Shortest edge by dragging, as a share of the longest."""
_BENT = 24
"""Pieces of a straight edge in the picture of a fisheye camera."""
_FLAT = 1e-6


def axes_of(degrees: Any) -> tuple[Vector, Vector, Vector]:
    """The axes of a box that was turned around x, then y, then z of the world, by so many degrees each."""
    x, y, z = (tuple(axis) for axis in rotations.by_angles(degrees).T.tolist())
    return x, y, z


def angles_of(box: Box) -> Vector:
    """The inverse, within -180 to 180, -90 to 90 and -180 to 180 degrees."""
    (xx, xy, xz), (_, _, yz), (_, _, zz) = box.axes
    x = math.atan2(yz, zz)
    y = math.asin(min(max(-xz, -1.0), 1.0))
    z = math.atan2(xy, xx)
    return (
        math.degrees(x) + 0.0,
        math.degrees(y) + 0.0,
        math.degrees(z) + 0.0,
    )  # never -0


def fitted(means: np.ndarray, weights: np.ndarray | None = None) -> tuple[Box, Sphere]:
    """A box and a sphere around nearly all of these centres (N, 3): floaters, a hundredth on each side, do not count,
    nor those with a weight of 0.
    """
    keep = np.isfinite(means).all(axis=1)
    if weights is not None:
        keep &= np.asarray(weights) > 0
    points = np.asarray(means, np.float64)[keep]
    if not len(points):
        return Box(), Sphere()
    low, high = np.percentile(points, (1, 99), axis=0)
    center = (low + high) / 2
    half = (high - low) / 2 * 1.05
    half = np.maximum(half, max(float(half.max()) * 0.01, 1e-6))
    radius = float(np.percentile(np.linalg.norm(points - center, axis=1), 99)) * 1.05
    x, y, z = center.tolist()
    a, b, c = half.tolist()
    return Box((x, y, z), (a, b, c)), Sphere((x, y, z), max(radius, 1e-6))


def face_centers(box: Box) -> np.ndarray:
    """(6, 3), in the order of `FACES`."""
    return np.array(box.center) + _SIDES @ (
        np.array(box.half)[:, None] * np.array(box.axes)
    )


def edges(box: Box, camera: Camera) -> list[tuple[np.ndarray, bool]]:
    """Its twelve edges as they are seen: each (M, 2) pixels from the picture's corner, and whether it belongs to a side
    that faces the camera. What lies behind the camera is left out.
    """
    spans = np.array(box.half)[:, None] * np.array(box.axes)
    corners = np.array(box.center) + _CORNERS @ spans
    normals = _SIDES @ np.array(box.axes)
    faces: Any
    if camera.model == "ortho":
        faces = normals @ camera.viewmat[2, :3] < 0
    else:
        faces = (
            normals * (np.array(box.center) + _SIDES @ spans - camera.position)
        ).sum(axis=1) < 0
    fronts = faces[_EDGES[:, 2:]].any(axis=1).tolist()
    p = corners @ camera.viewmat[:3, :3].T + camera.viewmat[:3, 3]
    a = p[_EDGES[:, 0]]
    b = p[_EDGES[:, 1]]
    near = max(camera.near, 1e-6)
    behind = (a[:, 2] < near) & (b[:, 2] < near)
    with np.errstate(
        all="ignore"
    ):  # of those that are parallel to the picture, which are not cut
        at = a + (b - a) * ((near - a[:, 2]) / (b[:, 2] - a[:, 2]))[:, None]
    a = np.where(a[:, 2:] < near, at, a)
    b = np.where(b[:, 2:] < near, at, b)
    a[behind] = b[behind] = (0.0, 0.0, 1.0)
    share = np.linspace(0, 1, _BENT + 1 if camera.model == "fisheye" else 2)[:, None]
    lines = seen_at(
        camera, (a[:, None] + (b - a)[:, None] * share).reshape(-1, 3)
    ).reshape(len(a), len(share), 2)
    return [
        (line, front)
        for line, front, hidden in zip(lines, fronts, behind, strict=True)
        if not hidden
    ]


def silhouette(sphere: Sphere, camera: Camera) -> np.ndarray | None:
    """(M, 2) pixels: a sphere's outline; None where the camera is inside, or it lies behind."""
    center = camera.viewmat[:3, :3] @ np.array(sphere.center) + camera.viewmat[:3, 3]
    far = float(np.linalg.norm(center))
    turn = np.linspace(0, 2 * math.pi, 72, endpoint=False)
    if camera.model == "ortho":
        sight = np.array([0.0, 0.0, 1.0])
        middle = center
        radius = sphere.radius
    else:
        if far <= sphere.radius:
            return None
        sight = center / far
        share = (
            1 - (sphere.radius / far) ** 2
        )  # where its tangents from the camera touch it
        middle = center * share
        radius = sphere.radius * math.sqrt(share)
    right = np.cross(sight, [0.0, 1.0, 0.0] if abs(sight[1]) < 0.9 else [1.0, 0.0, 0.0])
    right /= np.linalg.norm(right)
    p = middle + radius * (
        np.cos(turn)[:, None] * right + np.sin(turn)[:, None] * np.cross(sight, right)
    )
    return seen_at(camera, p) if p[:, 2].min() >= max(camera.near, 1e-6) else None


# -- dragging ----------------------------------------------------------------------------------------------------


def ray(camera: Camera, x: float, y: float) -> tuple[np.ndarray, np.ndarray]:
    """Ray through a pixel: origin and direction, (3,) each, world axes."""
    begin = point_at(camera, x, y, 0.0)
    end = point_at(camera, x, y, 1.0)
    direction = end - begin
    return begin, direction / np.linalg.norm(direction)


def along(
    camera: Camera,
    at: Sequence[float] | np.ndarray,
    point: np.ndarray,
    axis: np.ndarray,
) -> float | None:
    """Distance along a line through `point` where the ray through a pixel is nearest; None where it is seen end on."""
    begin, direction = ray(camera, *at)
    across = float(direction @ axis)
    rest = 1 - across * across
    if rest < _FLAT:
        return None
    to = begin - point
    return float((to @ axis - across * (to @ direction)) / rest)


def beside(
    camera: Camera, at: Sequence[float] | np.ndarray, point: np.ndarray
) -> np.ndarray | None:
    """(3,) what is seen at a pixel, as far away as `point` is."""
    begin, direction = ray(camera, *at)
    forward = camera.viewmat[2, :3]
    step = float(direction @ forward)
    if step < _FLAT:
        return None
    return begin + direction * (float((point - begin) @ forward) / step)


def distance(
    camera: Camera, at: Sequence[float] | np.ndarray, point: np.ndarray
) -> float:
    """Distance at which the ray through a pixel passes `point`, world units: the radius of a sphere there whose edge is
    seen at the pixel.
    """
    begin, direction = ray(camera, *at)
    off = point - begin
    return float(np.linalg.norm(off - (off @ direction) * direction))


def with_face(box: Box, face: tuple[int, int], by: float) -> Box:
    """A box whose face is moved outward by so much; the opposite one stays where it is."""
    axis, side = face
    least = _LEAST * max(box.half)
    half = list(box.half)
    half[axis] = max(half[axis] + by / 2, least)
    center = np.array(box.center) + side * (half[axis] - box.half[axis]) * np.array(
        box.axes[axis]
    )
    x, y, z = center.tolist()
    return replace(box, half=(half[0], half[1], half[2]), center=(x, y, z))
