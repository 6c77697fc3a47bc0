"""Cameras: a pose and intrinsics, projections, and the camera that frames a scene.

World-to-camera matrices in OpenCV axes throughout (x right, y down, z forward), as
gsplat's `viewmats`. `camera_text` reads and writes cameras as JSON.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from splatview_viewer.core.errors import CameraError

CameraModel = Literal["pinhole", "ortho", "fisheye"]
MODELS: tuple[CameraModel, ...] = get_args(CameraModel)

DEFAULT_FOV = 50.0
"""Vertical field of view in degrees of a camera that names none."""
DEFAULT_UP = (0.0, -1.0, 0.0)
"""Up in a world that follows OpenCV axes, where y points down."""
NEAR = 0.01
FAR = 1e10
"""gsplat's own limits of depths that are drawn, in world units along the line of
sight."""
_FLOATER_RATIO = 1.6
"""A scene has floaters if its farthest point is this many times as far from the middle as
the 92nd percentile."""


@dataclass(frozen=True, eq=False)
class Camera:
    """One view of the world, `width` by `height` pixels. Equal to cameras that see the same."""

    viewmat: np.ndarray
    """(4, 4) float64, world to camera."""
    K: np.ndarray
    """(3, 3) float64 in pixels: [[fx, 0, cx], [0, fy, cy], [0, 0, 1]]. Pixel centres lie
    at +0.5. For model "ortho", fx and fy are pixels per world unit; for "fisheye"
    (equidistant: the distance from the principal point grows with the angle from the line
    of sight) pixels per radian."""
    width: int
    height: int
    model: CameraModel = "pinhole"
    near: float = NEAR
    """Gaussians whose centre is nearer than this (camera z, world units) are not drawn."""
    far: float = FAR

    @property
    def key(self) -> tuple[object, ...]:
        """A value that is equal for cameras that see the same."""
        return (
            self.viewmat.tobytes(),
            self.K.tobytes(),
            self.width,
            self.height,
            self.model,
            self.near,
            self.far,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Camera) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def position(self) -> np.ndarray:
        """The camera's centre in the world, (3,)."""
        rotation = self.viewmat[:3, :3]
        return -rotation.T @ self.viewmat[:3, 3]

    @property
    def focal_lengths(self) -> np.ndarray:
        """fx and fy of K, (2,)."""
        return np.diag(self.K)[:2]

    def to_local(self, points: np.ndarray) -> np.ndarray:
        """Move points (..., 3) of the world into the camera's axes."""
        rotation = self.viewmat[:3, :3]
        translation = self.viewmat[:3, 3]
        return points @ rotation.T + translation

    def slope_limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the slopes to which a pinhole camera's Jacobian is clamped, (2,) and (2,).

        They are the lowest and highest x/z and y/z beside the picture, as in gsplat
        (persp_proj): three tenths of half the picture beyond its edges.
        """
        focal = self.focal_lengths
        center = self.K[:2, 2]
        size = np.array([self.width, self.height], np.float64)
        margin = 0.3 * 0.5 * size / focal
        lowest = -(center / focal + margin)
        highest = (size - center) / focal + margin
        return lowest, highest

    def resized(self, width: int, height: int) -> Camera:
        """Return the same view at another size, with the same vertical field of view.

        The sides show more or less.
        """
        return self._scaled(width, height, height / self.height)

    def fitted(self, width: int, height: int) -> Camera:
        """Return the same view at another size, which shows all that this one shows.

        Where `resized` would cut the sides off, there is more above and below.
        """
        factor = min(width / self.width, height / self.height)
        return self._scaled(width, height, factor)

    def _scaled(self, width: int, height: int, factor: float) -> Camera:
        """Return this view at another size, magnified by `factor` around the middle."""
        if (self.width, self.height) == (width, height):
            return self
        previous_middle = np.array([self.width, self.height]) / 2
        middle = np.array([width, height]) / 2
        offset = self.K[:2, 2] - previous_middle
        K = self.K.copy()
        K[:2, :2] *= factor
        K[:2, 2] = offset * factor + middle
        return replace(self, K=K, width=width, height=height)

    def to_json(self) -> str:
        """Return the form that `camera_text.camera_from_json` reads."""
        fields: dict[str, object] = {
            "viewmat": self.viewmat.tolist(),
            "K": self.K.tolist(),
            "width": self.width,
            "height": self.height,
        }
        if self.model != "pinhole":
            fields["model"] = self.model
        if self.near != NEAR:
            fields["near"] = self.near
        if self.far != FAR:
            fields["far"] = self.far
        return json.dumps(fields)


def look_at(position: Any, target: Any, up: Any = DEFAULT_UP) -> np.ndarray:
    """Return the world-to-camera matrix (4, 4) of a camera that looks at `target`.

    When the line of sight is parallel to `up`, another direction is taken for it.

    Args:
        position: the camera's centre, (3,).
        target: the point in the middle of the picture, (3,).
        up: the direction that points upward in the picture, (3,).

    Raises:
        CameraError: the points are the same or not finite, or `up` is no direction.
    """
    position = np.asarray(position, np.float64)
    target = np.asarray(target, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        forward = target - position
        length = np.linalg.norm(forward)
    if not np.isfinite(length) or length == 0:
        raise CameraError(
            f"camera: position {position.tolist()} and look_at {target.tolist()} must be "
            "two finite, different points"
        )
    up = _unit_vector(np.asarray(up, np.float64))
    forward = forward / length
    right = np.cross(forward, up)
    if np.linalg.norm(right) < 1e-9:
        axis = np.eye(3)[int(np.argmin(np.abs(forward)))]
        right = np.cross(forward, axis)
    right = right / np.linalg.norm(right)
    down = np.cross(forward, right)
    return world_to_camera(np.stack([right, down, forward]), position)


def world_to_camera(rotation: np.ndarray, position: np.ndarray) -> np.ndarray:
    """Return the matrix (4, 4) of a camera at a position.

    Args:
        rotation: from world to camera, (3, 3).
    """
    viewmat = np.zeros((4, 4))
    viewmat[:3, :3] = rotation
    viewmat[:3, 3] = -rotation @ position
    viewmat[3, 3] = 1.0
    return viewmat


def _unit_vector(up: np.ndarray) -> np.ndarray:
    """Return `up` at length 1. Raises CameraError if it is no direction."""
    largest = np.abs(up).max(initial=0.0)
    if up.shape != (3,) or not np.isfinite(largest) or largest == 0:
        raise CameraError(
            f"camera: up is {up.tolist()}; a direction of three finite numbers, not all "
            "0, is needed"
        )
    # Dividing by the largest first keeps squares from overflowing and from vanishing.
    up = up / largest
    return up / np.linalg.norm(up)


# -- intrinsics ---------------------------------------------------------------------------


def focal_length(fov: float, height: int, model: CameraModel = "pinhole") -> float:
    """Return the focal length, K's fy, of a picture that shows `fov` degrees vertically.

    Args:
        height: the height of the picture, in pixels.
    """
    half = math.radians(fov) / 2
    if model == "fisheye":
        return height / 2 / half
    return height / 2 / math.tan(half)


def field_of_view(focal: float, height: int, model: CameraModel = "pinhole") -> float:
    """Return the vertical field of view in degrees: the inverse of `focal_length`."""
    half = height / 2 / focal
    if model == "fisheye":
        return math.degrees(2 * half)
    return math.degrees(2 * math.atan(half))


def intrinsics(
    fov: float, width: int, height: int, model: CameraModel = "pinhole"
) -> np.ndarray:
    """Return K (3, 3) for square pixels and the principal point in the middle.

    For "ortho" it is the pinhole camera's; divide the focal lengths by a distance.

    Args:
        fov: vertical field of view in degrees.
        width: the width of the picture, in pixels.
        height: the height of the picture, in pixels.
        model: the camera's model.

    Raises:
        CameraError: `fov` is not from 0.1 to 179.5 degrees.
    """
    if not 0.1 <= fov < 179.5:
        raise CameraError(
            f"camera: fov is {fov}, not an angle from 0.1 to 179.5 degrees"
        )
    focal = focal_length(fov, height, model)
    return centered_intrinsics(focal, width, height)


def centered_intrinsics(focal: float, width: float, height: float) -> np.ndarray:
    """Return K (3, 3) of a focal length, with the principal point in the middle."""
    return np.array(
        [[focal, 0.0, width / 2], [0.0, focal, height / 2], [0.0, 0.0, 1.0]]
    )


# -- projections --------------------------------------------------------------------------


def to_pixels(camera: Camera, points: np.ndarray) -> np.ndarray:
    """Compute the pixels (..., 2) of points (..., 3) in front of a camera, in its axes."""
    sideways = points[..., :2]
    depth = points[..., 2:]
    if camera.model == "ortho":
        slopes = sideways
    elif camera.model == "pinhole":
        slopes = sideways / depth
    else:
        length = np.hypot(points[..., :1], points[..., 1:2])
        length = np.maximum(length, 1e-12)
        angle = np.arctan2(length, depth)
        slopes = sideways * (angle / length)
    principal_point = camera.K[:2, 2]
    return slopes * camera.focal_lengths + principal_point


def unproject(camera: Camera, x: float, y: float, depth: float) -> np.ndarray:
    """Return the point of the world that is seen at a pixel at a depth, (3,) float64.

    Near and beyond the edge of a half sphere, which only fisheye cameras see, depth says
    little.

    Args:
        camera: the camera that sees the point.
        x: pixels from the picture's left edge.
        y: pixels from its top edge.
        depth: camera z of the point, world units.
    """
    fx, fy = camera.focal_lengths
    cx, cy = camera.K[:2, 2]
    u = (x - cx) / fx
    v = (y - cy) / fy
    # What a slope of 1 is in world units.
    scale = depth
    if camera.model == "ortho":
        scale = 1.0
    elif camera.model == "fisheye":
        angle = math.hypot(u, v)
        if angle > 1e-9:
            scale = math.tan(min(angle, 1.5)) / angle * depth
    local = np.array([u * scale, v * scale, depth])
    rotation = camera.viewmat[:3, :3]
    translation = camera.viewmat[:3, 3]
    return rotation.T @ (local - translation)


def project(camera: Camera, points: np.ndarray) -> np.ndarray:
    """Compute the pixels (..., 2) at which a camera sees points (..., 3) of the world.

    They are NaN for points behind the camera, or nearer than it sees.
    """
    local = camera.to_local(points)
    is_visible = local[..., 2:] > camera.near
    with np.errstate(all="ignore"):
        pixels = to_pixels(camera, local)
    return np.where(is_visible, pixels, np.nan)


# -- framing ------------------------------------------------------------------------------


def frame_points(
    points: np.ndarray,
    width: int,
    height: int,
    *,
    weights: np.ndarray | None = None,
    up: Any = DEFAULT_UP,
) -> Camera:
    """Return the camera from which a scene is seen whole at first sight.

    Robust against floaters, see `bounds`: without floaters every point is in view. Points
    that are not finite are ignored; with none left the unit ball at the origin is framed.

    Args:
        points: centres of Gaussians, (N, 3).
        width: the width of the picture, in pixels.
        height: the height of the picture, in pixels.
        weights: (N,); Gaussians with a weight of 0 do not count.
        up: the direction that points upward in the picture, (3,).

    Raises:
        CameraError: `up` is no direction, or the size not positive.
    """
    if width <= 0 or height <= 0:
        raise CameraError(
            f"camera: a size of {width}x{height} pixels; both must be positive"
        )
    up = _unit_vector(np.asarray(up, np.float64))
    axis = np.array([0.0, 0.0, -1.0])
    if abs(up[2]) >= 0.9:
        axis = np.array([0.0, -1.0, 0.0])
    rotation = look_at(axis + 0.25 * up, np.zeros(3), up)[:3, :3]
    center, radius = bounds(points, weights)
    return frame_ball(center, radius, rotation, DEFAULT_FOV, width, height)


def frame_ball(
    center: np.ndarray,
    radius: float,
    rotation: np.ndarray,
    fov: float,
    width: int,
    height: int,
) -> Camera:
    """Return the camera that just shows all of a ball.

    Args:
        center: the ball's centre, (3,).
        radius: the ball's radius.
        rotation: the camera's world-to-camera rotation, (3, 3).
        fov: its vertical field of view in degrees.
        width: the width of the picture, in pixels.
        height: the height of the picture, in pixels.
    """
    half_vertical = math.radians(fov) / 2
    half_width = math.tan(half_vertical) * width / height
    half_horizontal = math.atan(half_width)
    distance = radius / math.sin(min(half_vertical, half_horizontal))
    viewmat = np.eye(4)
    viewmat[:3, :3] = rotation
    viewmat[:3, 3] = [0, 0, distance] - rotation @ center
    K = intrinsics(fov, width, height)
    return Camera(viewmat, K, width, height, near=min(NEAR, distance * NEAR))


def bounds(
    points: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, float]:
    """Return a robust centre (3,) and radius (> 0) of points (N, 3): floaters count little.

    The centre is the median. The radius reaches the farthest point if that lies within
    1.6 times the 92nd percentile of distances, as in any evenly filled box; otherwise
    there are floaters, and it is that percentile. Points with a weight of 0 do not count.
    """
    points = np.asarray(points)
    # Neither NaN nor so far away that a square overflows.
    is_counted = (np.abs(points) < 1e38).all(axis=1)
    if weights is not None:
        is_counted &= np.asarray(weights) > 0
    points = points[is_counted]
    count = len(points)
    if count == 0:
        return np.zeros(3), 1.0
    if count > 200_000:
        # A sample is plenty, and takes less than a few milliseconds.
        points = points[:: count // 100_000]
    # A radius below this share of the coordinates is rounding.
    precision = 1e-6
    if points.dtype == np.float64:
        precision = 1e-14
    points = points.astype(np.float64)
    center = np.median(points, axis=0)
    distances = np.linalg.norm(points - center, axis=1)
    radius = float(np.percentile(distances, 92))
    farthest = float(distances.max())
    if farthest <= _FLOATER_RATIO * radius:
        radius = farthest
    offset = max(float(np.abs(center).max()), 1e-3)
    smallest_radius = max(precision * offset, 1e-6)
    return center, max(radius, smallest_radius)
