"""The geometry of cropping: its shapes in a picture, and dragging their handles.

Plain maths, no graphics.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from splatview_viewer.core.selection import Box, Cylinder, Sphere
from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.cameras import to_pixels, unproject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.selection import Axes, Shape, Vector
    from splatview_viewer.geometry.cameras import Camera

    Pixel = Sequence[float] | np.ndarray
    """(2,) from the picture's top left corner."""

FACES = ((0, -1), (0, 1), (1, -1), (1, 1), (2, -1), (2, 1))
"""Face of a box, or of the box that a cylinder fits into: axis and end."""


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


_AXIS_INDICES: tuple[Literal[0, 1, 2], ...] = (0, 1, 2)
_NORMALS = _face_normals()
_CORNERS = np.array(list(product((-1, 1), repeat=3)), np.float64)
_EDGES = _edge_indices()
_MIN_EDGE = 1e-4
"""Shortest edge by dragging, as a share of the longest."""
_FISHEYE_PIECES = 24
"""Pieces of a straight edge in the picture of a fisheye camera."""
_SILHOUETTE_POINTS = 72
"""Points of a circle in a picture."""
_MIN_LENGTH = 1e-6
"""Shortest radius or edge of what is fitted, world units."""
_MARGIN = 1.02
"""Size of a shape that is fitted, as a share of what it is fitted to."""
_PARALLEL = 1e-6
"""Sine, squared, of an angle that counts as none."""


def axes_of(degrees: Any) -> Axes:
    """Return the axes of a shape that is turned around x, then y, then z of the world."""
    return _columns(rotations.by_angles(degrees))


def _columns(matrix: np.ndarray) -> Axes:
    x, y, z = (tuple(axis) for axis in matrix.T.tolist())
    return x, y, z


def angles_of(shape: Box | Cylinder) -> Vector:
    """Return the angles of a shape's axes in degrees: the inverse of `axes_of`.

    They are within -180 to 180, -90 to 90 and -180 to 180.
    """
    (xx, xy, xz), (_, _, yz), (_, _, zz) = shape.axes
    x = math.atan2(yz, zz)
    y = math.asin(min(max(-xz, -1.0), 1.0))
    z = math.atan2(xy, xx)
    # Adding 0 turns -0 into 0.
    x_degrees = math.degrees(x) + 0.0
    y_degrees = math.degrees(y) + 0.0
    z_degrees = math.degrees(z) + 0.0
    return x_degrees, y_degrees, z_degrees


def fit(
    kind: type[Shape],
    means: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    up: np.ndarray,
    without_far: bool = True,
) -> Shape:
    """Return a shape around all finite centres (N, 3), or nearly all.

    Those with a weight of 0 do not count.

    Args:
        kind: the class of the shape.
        means: the centres.
        weights: (N,) of the centres; None if all count.
        up: the direction upward (3,), along which a cylinder stands.
        without_far: leave out floaters: the farthest hundredth on each side, and by the
            distance from the middle.
    """
    is_counted = np.isfinite(means).all(axis=1)
    if weights is not None:
        is_counted &= np.asarray(weights) > 0
    points = np.asarray(means, np.float64)[is_counted]
    share = 0.01 if without_far else 0.0
    if kind is Cylinder:
        return _fit_cylinder(points, up, share)
    if not len(points):
        return kind()
    center, half = _extent(points, share)
    x, y, z = center.tolist()
    if kind is Sphere:
        return Sphere((x, y, z), _fit_radius(points - center, share))
    shortest = max(float(half.max()) * 0.01, _MIN_LENGTH)
    a, b, c = np.maximum(half, shortest).tolist()
    return Box((x, y, z), (a, b, c))


def _fit_cylinder(points: np.ndarray, up: np.ndarray, share: float) -> Cylinder:
    """Return an upright cylinder around all points (N, 3) but a share on each side."""
    upright = upright_cylinder(up)
    if not len(points):
        return upright
    rotation = np.array(upright.axes)
    local_points = points @ rotation.T
    center, half = _extent(local_points, share)
    x, y, z = (center @ rotation).tolist()
    offsets = np.delete(local_points - center, upright.axis_index, axis=1)
    radius = _fit_radius(offsets, share)
    half_height = max(float(half[upright.axis_index]), radius * 0.01)
    radius = max(radius, half_height * 0.01)
    return replace(upright, center=(x, y, z), radius=radius, half_height=half_height)


def upright_cylinder(up: np.ndarray) -> Cylinder:
    """Return a cylinder that stands along a direction (3,) and is turned no more than that.

    It goes around the axis that is next to one of the world.
    """
    index = int(np.argmax(np.abs(up)))
    # Its ends are alike: this one needs the smaller turn.
    direction = up * np.copysign(1 / np.linalg.norm(up), up[index])
    axis = np.eye(3)[index]
    # The quaternion of the shortest rotation, not of length 1.
    quaternion = np.append(1 + direction[index], np.cross(axis, direction))
    axes = _columns(rotations.matrix(quaternion))
    return Cylinder(axes=axes, axis_index=_AXIS_INDICES[index])


def _extent(points: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Return centre and half the lengths, (3,) each, without a share on each side."""
    low, high = np.quantile(points, (share, 1 - share), axis=0)
    return (low + high) / 2, (high - low) / 2 * _MARGIN


def _fit_radius(offsets: np.ndarray, share: float) -> float:
    """Return the radius that holds all offsets (N, D) from a centre but a share."""
    distances = np.linalg.norm(offsets, axis=1)
    return max(float(np.quantile(distances, 1 - share)) * _MARGIN, _MIN_LENGTH)


def face_centers(shape: Box | Cylinder) -> np.ndarray:
    """Return the centres of a shape's faces, (6, 3), in the order of `FACES`."""
    return np.array(shape.center) + _NORMALS @ _half_edges(shape)


def _half_edges(shape: Box | Cylinder) -> np.ndarray:
    """Return the ways from a shape's centre to its faces along its axes, (3, 3)."""
    lengths = np.array(shape.half)
    return lengths[:, None] * np.array(shape.axes)


class Edge(NamedTuple):
    """An edge of a shape in a picture, or a part of one."""

    line: np.ndarray
    """(M, 2) pixels from the picture's top left corner."""
    is_front: bool
    """True if it belongs to a side that faces the camera."""


def edges(shape: Box | Cylinder, camera: Camera) -> list[Edge]:
    """Return a shape's edges as they are seen, without those behind the camera.

    Those of a cylinder are its rims, in pieces, and the outline of its side, which is not
    there for a camera that sees the side from within or not at all.
    """
    if isinstance(shape, Cylinder):
        return _cylinder_edges(shape, camera)
    corners = np.array(shape.center) + _CORNERS @ _half_edges(shape)
    faces_camera = _faces_camera(shape, camera)
    is_front: Any = faces_camera[_EDGES[:, 2:]].any(axis=1)
    return _straight_edges(
        corners[_EDGES[:, 0]], corners[_EDGES[:, 1]], is_front, camera
    )


def _straight_edges(
    start: np.ndarray, end: np.ndarray, is_front: np.ndarray, camera: Camera
) -> list[Edge]:
    """Return edges from points to points of the world, (N, 3) each, as they are seen."""
    start = camera.to_local(start)
    end = camera.to_local(end)
    near = _near(camera)
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


def _cylinder_edges(cylinder: Cylinder, camera: Camera) -> list[Edge]:
    """Return a cylinder's edges as they are seen."""
    center = np.array(cylinder.center)
    to_end = cylinder.half_height * np.array(cylinder.axes[cylinder.axis_index])
    facing = _FacingSide.from_camera(camera, cylinder)
    steps = np.linspace(0, 2 * math.pi, _SILHOUETTE_POINTS + 1)
    circle = center + _side_offsets(cylinder, steps)
    faces_camera = _faces_camera(cylinder, camera)
    middles = (steps[1:] + steps[:-1]) / 2
    is_side_front = facing.contains(middles)
    edges = []
    for sign in (-1, 1):
        is_end_front = faces_camera[FACES.index((cylinder.axis_index, sign))]
        rim = circle + sign * to_end
        edges += _rim_edges(rim, is_side_front | is_end_front, camera)
    outline = center + _side_offsets(cylinder, facing.ends())
    is_front = np.ones(len(outline), bool)
    edges += _straight_edges(outline - to_end, outline + to_end, is_front, camera)
    return edges


def _side_offsets(cylinder: Cylinder, angles: np.ndarray) -> np.ndarray:
    """Return the ways (N, 3) from a cylinder's axis to its side, at angles (N,)."""
    right, ahead = _side_axes(cylinder)
    cosines = np.cos(angles)[:, None]
    sines = np.sin(angles)[:, None]
    return cylinder.radius * (cosines * right + sines * ahead)


def _side_axes(cylinder: Cylinder) -> np.ndarray:
    """Return the axes (2, 3) at right angles to the one that a cylinder goes around."""
    right = cylinder.axes[(cylinder.axis_index + 1) % 3]
    ahead = cylinder.axes[(cylinder.axis_index + 2) % 3]
    return np.array((right, ahead))


class _FacingSide(NamedTuple):
    """The part of a cylinder's side whose outside a camera sees."""

    angle: float
    """The middle of it, as in `_side_offsets`."""
    cosine: float
    """Of the angle from there to both ends; 1 or more where the outside is not seen."""

    @classmethod
    def from_camera(cls, camera: Camera, cylinder: Cylinder) -> _FacingSide:
        """Compute what a camera sees."""
        side_axes = _side_axes(cylinder)
        if camera.model == "ortho":
            right, ahead = side_axes @ -camera.viewmat[2, :3]
            angle = math.atan2(ahead, right)
            is_end_on = math.hypot(right, ahead) < _PARALLEL
            return cls(angle, float(is_end_on))
        right, ahead = side_axes @ (camera.position - np.array(cylinder.center))
        distance = max(math.hypot(right, ahead), 1e-12)
        return cls(math.atan2(ahead, right), cylinder.radius / distance)

    def contains(self, angles: np.ndarray) -> np.ndarray:
        """Return (N,) bool: the angles (N,) that belong to it."""
        return np.cos(angles - self.angle) > self.cosine

    def ends(self) -> np.ndarray:
        """Return the angles of its ends, two or none."""
        if self.cosine >= 1:
            return np.zeros(0)
        half = math.acos(self.cosine)
        return np.array([self.angle - half, self.angle + half])


def _rim_edges(rim: np.ndarray, is_front: np.ndarray, camera: Camera) -> list[Edge]:
    """Return the parts of a closed line that are seen, each as long as it looks the same.

    Args:
        rim: points (N + 1, 3) of the world; the last is the first.
        is_front: (N,) bool, of the ways between them.
        camera: what sees them.
    """
    local = camera.to_local(rim)
    is_deep = local[:, 2] >= _near(camera)
    is_seen = is_deep[1:] & is_deep[:-1]
    sides = np.where(is_seen, 1 + is_front, 0)
    # Begun where a part begins, no part goes over the end. 0 where all look the same.
    first = int(np.argmax(sides != np.roll(sides, 1)))
    sides = np.roll(sides, -first)
    points = np.roll(local[:-1], -first, axis=0)
    points = np.concatenate([points, points[:1]])
    ends = [*np.flatnonzero(np.diff(sides)) + 1, len(sides)]
    edges = []
    start = 0
    for end in ends:
        if sides[start]:
            line = to_pixels(camera, points[start : end + 1])
            edges.append(Edge(line, bool(sides[start] == 2)))
        start = end
    return edges


def _near(camera: Camera) -> float:
    """Return the depth from which on lines are drawn."""
    return max(camera.near, 1e-6)


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


def _faces_camera(shape: Box | Cylinder, camera: Camera) -> np.ndarray:
    """Return (6,) bool: the faces of a shape whose outer side the camera sees."""
    normals = _NORMALS @ np.array(shape.axes)
    if camera.model == "ortho":
        forward = camera.viewmat[2, :3]
        return np.asarray(normals @ forward < 0)
    rays = face_centers(shape) - camera.position
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
    if points[:, 2].min() < _near(camera):
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


def with_face(
    shape: Box | Cylinder, face: tuple[int, int], distance: float
) -> Box | Cylinder:
    """Return a shape whose face is moved outward; the opposite one stays in its place.

    The side of a cylinder moves outward all around.

    Args:
        shape: the shape before.
        face: one of `FACES`.
        distance: world units.
    """
    axis, side = face
    shortest = _MIN_EDGE * max(shape.half)
    if isinstance(shape, Cylinder) and axis != shape.axis_index:
        return replace(shape, radius=max(shape.radius + distance, shortest))
    old_length = shape.half[axis]
    length = max(old_length + distance / 2, shortest)
    step = side * (length - old_length)
    center = np.array(shape.center) + step * np.array(shape.axes[axis])
    x, y, z = center.tolist()
    if isinstance(shape, Cylinder):
        return replace(shape, half_height=length, center=(x, y, z))
    half = list(shape.half)
    half[axis] = length
    a, b, c = half
    return replace(shape, half=(a, b, c), center=(x, y, z))
