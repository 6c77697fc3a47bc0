"""The geometry of cropping: boxes and spheres in a picture, and dragging their handles.

Plain maths, no graphics.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_viewer.core.selection import Box, Sphere
from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.cameras import to_pixels, unproject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.selection import Vector
    from splatview_viewer.geometry.cameras import Camera

    Pixel = Sequence[float] | np.ndarray
    """(2,) from the picture's top left corner."""

FACES = ((0, -1), (0, 1), (1, -1), (1, 1), (2, -1), (2, 1))
"""Face of a box: axis and end."""


def _face_normals() -> np.ndarray:
    """Return the normals of a box's faces along its own axes, (6, 3)."""
    normals = np.zeros((len(FACES), 3))
    for index, (axis, side) in enumerate(FACES):
        normals[index, axis] = side
    return normals


def _edge_indices() -> np.ndarray:
    """Return two corners and the two faces that meet there, for each edge, (12, 4).

    The bits of a corner's index say at which end of the axes x, y, z it lies.
    """
    edges = []
    for edge_axis in range(3):
        edge_bit = 4 >> edge_axis
        side_axes = [axis for axis in range(3) if axis != edge_axis]
        for corner in range(8):
            if corner & edge_bit:
                continue
            faces = [2 * axis + ((corner >> (2 - axis)) & 1) for axis in side_axes]
            edges.append((corner, corner | edge_bit, *faces))
    return np.array(edges)


_NORMALS = _face_normals()
_CORNERS = np.array(list(product((-1, 1), repeat=3)), np.float64)
_EDGES = _edge_indices()
_MIN_EDGE = 1e-4
"""Shortest edge by dragging, as a share of the longest."""
_FISHEYE_PIECES = 24
"""Pieces of a straight edge in the picture of a fisheye camera."""
_SILHOUETTE_POINTS = 72
_PARALLEL = 1e-6
"""Sine, squared, of an angle that counts as none."""


def axes_of(degrees: Any) -> tuple[Vector, Vector, Vector]:
    """Return the axes of a box that is turned around x, then y, then z of the world."""
    x, y, z = (tuple(axis) for axis in rotations.by_angles(degrees).T.tolist())
    return x, y, z


def angles_of(box: Box) -> Vector:
    """Return the angles of a box's axes in degrees: the inverse of `axes_of`.

    They are within -180 to 180, -90 to 90 and -180 to 180.
    """
    (xx, xy, xz), (_, _, yz), (_, _, zz) = box.axes
    x = math.atan2(yz, zz)
    y = math.asin(min(max(-xz, -1.0), 1.0))
    z = math.atan2(xy, xx)
    # Adding 0 turns -0 into 0.
    x_degrees = math.degrees(x) + 0.0
    y_degrees = math.degrees(y) + 0.0
    z_degrees = math.degrees(z) + 0.0
    return x_degrees, y_degrees, z_degrees


def fit_shapes(points: np.ndarray, *, without_far: bool = False) -> tuple[Box, Sphere]:
    """Return a box and a sphere around all finite points (N, 3), or nearly all.

    without_far: leave out the farthest hundredth: on each side of the box, and by the
        distance from the middle.
    """
    points = np.asarray(points, np.float64)
    points = points[np.isfinite(points).all(axis=1)]
    if not len(points):
        return Box(), Sphere()
    share = 0.01 if without_far else 0.0
    low, high = np.quantile(points, (share, 1 - share), axis=0)
    center = (low + high) / 2
    half = (high - low) / 2 * _MARGIN
    shortest = max(float(half.max()) * 0.01, 1e-6)
    half = np.maximum(half, shortest)
    distances = np.linalg.norm(points - center, axis=1)
    radius = float(np.quantile(distances, 1 - share)) * _MARGIN
    x, y, z = center.tolist()
    a, b, c = half.tolist()
    return Box((x, y, z), (a, b, c)), Sphere((x, y, z), max(radius, 1e-6))


_MARGIN = 1.02
"""Size of a fitted shape, in those of what it holds."""


def face_centers(box: Box) -> np.ndarray:
    """Return the centres of a box's faces, (6, 3), in the order of `FACES`."""
    return np.array(box.center) + _NORMALS @ _half_edges(box)


def _half_edges(box: Box) -> np.ndarray:
    """Return the ways from a box's centre to its faces along its axes, (3, 3)."""
    lengths = np.array(box.half)
    return lengths[:, None] * np.array(box.axes)


class Edge(NamedTuple):
    """An edge of a box in a picture."""

    line: np.ndarray
    """(M, 2) pixels from the picture's top left corner."""
    is_front: bool
    """True if it belongs to a side that faces the camera."""


def edges(box: Box, camera: Camera) -> list[Edge]:
    """Return a box's twelve edges as they are seen, without those behind the camera."""
    corners = np.array(box.center) + _CORNERS @ _half_edges(box)
    faces_camera = _faces_camera(box, camera)
    is_front: Any = faces_camera[_EDGES[:, 2:]].any(axis=1)
    local = camera.to_local(corners)
    start = local[_EDGES[:, 0]]
    end = local[_EDGES[:, 1]]
    near = max(camera.near, 1e-6)
    is_hidden = (start[:, 2] < near) & (end[:, 2] < near)
    start, end = _cut_lines(start, end, near)
    # These are left out below: any points in front of the camera will do.
    start[is_hidden] = (0.0, 0.0, 1.0)
    end[is_hidden] = (0.0, 0.0, 1.0)
    pieces = 1
    if camera.model == "fisheye":
        pieces = _FISHEYE_PIECES
    shares = np.linspace(0, 1, pieces + 1)[:, None]
    ways = end - start
    points = start[:, None] + ways[:, None] * shares
    lines = to_pixels(camera, points)
    edges = []
    for line, front, hidden in zip(lines, is_front, is_hidden, strict=True):
        if not hidden:
            edges.append(Edge(line, bool(front)))
    return edges


def _cut_lines(
    start: np.ndarray, end: np.ndarray, near: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends (N, 3) of lines in camera axes, cut at the depth `near`."""
    start_depth = start[:, 2]
    end_depth = end[:, 2]
    # Lines that are parallel to the picture are not cut.
    with np.errstate(all="ignore"):
        share = (near - start_depth) / (end_depth - start_depth)
        cut = start + (end - start) * share[:, None]
    cut_start = np.where(start[:, 2:] < near, cut, start)
    cut_end = np.where(end[:, 2:] < near, cut, end)
    return cut_start, cut_end


def _faces_camera(box: Box, camera: Camera) -> np.ndarray:
    """Return (6,) bool: the faces of a box whose outer side the camera sees."""
    normals = _NORMALS @ np.array(box.axes)
    if camera.model == "ortho":
        forward = camera.viewmat[2, :3]
        return np.asarray(normals @ forward < 0)
    rays = face_centers(box) - camera.position
    cosines = (normals * rays).sum(axis=1)
    return np.asarray(cosines < 0)


def silhouette(sphere: Sphere, camera: Camera) -> np.ndarray | None:
    """Return a sphere's outline, (M, 2) pixels.

    None where the camera is inside, or the sphere lies behind.
    """
    center = camera.to_local(np.array(sphere.center))
    if camera.model == "ortho":
        direction = np.array([0.0, 0.0, 1.0])
        radius = sphere.radius
    else:
        distance = float(np.linalg.norm(center))
        if distance <= sphere.radius:
            return None
        direction = center / distance
        # Tangents from the camera touch the sphere in a circle that is a little nearer.
        share = 1 - (sphere.radius / distance) ** 2
        center = center * share
        radius = sphere.radius * math.sqrt(share)
    points = center + radius * _unit_circle(direction)
    if points[:, 2].min() < max(camera.near, 1e-6):
        return None
    return to_pixels(camera, points)


def _unit_circle(direction: np.ndarray) -> np.ndarray:
    """Return points (M, 3) of a circle around the origin, square to a direction (3,)."""
    sideways = [0.0, 1.0, 0.0]
    if abs(direction[1]) >= 0.9:
        sideways = [1.0, 0.0, 0.0]
    right = np.cross(direction, sideways)
    right /= np.linalg.norm(right)
    down = np.cross(direction, right)
    angles = np.linspace(0, 2 * math.pi, _SILHOUETTE_POINTS, endpoint=False)[:, None]
    return np.cos(angles) * right + np.sin(angles) * down


# -- dragging -----------------------------------------------------------------------------


class Ray(NamedTuple):
    """A line of sight, world axes."""

    origin: np.ndarray
    direction: np.ndarray
    """(3,) of length 1."""


def ray(camera: Camera, x: float, y: float) -> Ray:
    """Return the ray through a pixel."""
    origin = unproject(camera, x, y, 0.0)
    direction = unproject(camera, x, y, 1.0) - origin
    return Ray(origin, direction / np.linalg.norm(direction))


def axis_distance(
    camera: Camera, pixel: Pixel, point: np.ndarray, axis: np.ndarray
) -> float | None:
    """Return the distance along a line where the ray through a pixel is nearest.

    None where the line is seen end on.

    Args:
        camera: the camera that sees the line.
        pixel: the pixel.
        point: a point of the line, (3,), from which distances are counted.
        axis: the line's direction, (3,), of length 1.
    """
    origin, direction = ray(camera, *pixel)
    cosine = float(direction @ axis)
    sine_squared = 1 - cosine * cosine
    if sine_squared < _PARALLEL:
        return None
    offset = origin - point
    along_axis = offset @ axis
    along_ray = offset @ direction
    return float((along_axis - cosine * along_ray) / sine_squared)


def point_at_depth(
    camera: Camera, pixel: Pixel, point: np.ndarray
) -> np.ndarray | None:
    """Return the point (3,) that is seen at a pixel, as far away as `point` is."""
    origin, direction = ray(camera, *pixel)
    forward = camera.viewmat[2, :3]
    depth_per_step = float(direction @ forward)
    if depth_per_step < _PARALLEL:
        return None
    depth = float((point - origin) @ forward)
    return origin + direction * (depth / depth_per_step)


def ray_distance(camera: Camera, pixel: Pixel, point: np.ndarray) -> float:
    """Return the distance at which the ray through a pixel passes a point, world units.

    It is the radius of a sphere there whose edge is seen at the pixel.
    """
    origin, direction = ray(camera, *pixel)
    offset = point - origin
    along_ray = (offset @ direction) * direction
    return float(np.linalg.norm(offset - along_ray))


def with_face(box: Box, face: tuple[int, int], distance: float) -> Box:
    """Return a box whose face is moved outward; the opposite one stays in its place.

    Args:
        box: the box before.
        face: one of `FACES`.
        distance: world units.
    """
    axis, side = face
    half = list(box.half)
    shortest = _MIN_EDGE * max(box.half)
    half[axis] = max(half[axis] + distance / 2, shortest)
    step = side * (half[axis] - box.half[axis])
    center = np.array(box.center) + step * np.array(box.axes[axis])
    x, y, z = center.tolist()
    a, b, c = half
    return replace(box, half=(a, b, c), center=(x, y, z))
