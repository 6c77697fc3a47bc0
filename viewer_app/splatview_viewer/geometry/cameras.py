"""Cameras: a pose and intrinsics, how they are written as JSON, and the camera that frames a scene.

World-to-camera matrices in OpenCV axes throughout (x right, y down, z forward), as gsplat's `viewmats`.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from splatview_viewer.core.errors import CameraError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.poses import read_pose

CameraModel = Literal["pinhole", "ortho", "fisheye"]
MODELS: tuple[CameraModel, ...] = get_args(CameraModel)

DEFAULT_FOV = 50.0
"""Vertical field of view in degrees of a camera that names none."""
DEFAULT_UP = (0.0, -1.0, 0.0)
"""Up in a world that follows OpenCV axes, where y points down."""
NEAR = 0.01
FAR = 1e10
"""gsplat's own limits of what is drawn, in world units along the line of sight."""
FILE_LIMIT = 16 << 20
"""Bytes of a camera file, which may be that of all cameras of a data set."""
TEXT_LIMIT = 1 << 20
"""Characters of a text that is pasted."""
FISHEYES = ("OPENCV_FISHEYE", "FISHEYE")
"""Models of a transforms.json that are equidistant; PINHOLE and OPENCV and the like are drawn without distortion."""
_FLIP = np.diag([1.0, -1.0, -1.0, 1.0])
"""From OpenGL's camera axes, which nerfstudio uses (y up, z backward), to OpenCV's."""


@dataclass(frozen=True, eq=False)
class Camera:
    """One view of the world, `width` by `height` pixels. Equal to cameras that see the same."""

    viewmat: np.ndarray
    """(4, 4) float64, world to camera."""
    K: np.ndarray
    """(3, 3) float64 in pixels: [[fx, 0, cx], [0, fy, cy], [0, 0, 1]]. Pixel centres lie at +0.5.
    For model "ortho", fx and fy are pixels per world unit; for "fisheye" (equidistant: the distance from the
    principal point grows with the angle from the line of sight) pixels per radian."""
    width: int
    height: int
    model: CameraModel = "pinhole"
    near: float = NEAR
    """Gaussians whose centre is nearer than this (camera z, world units) are not drawn."""
    far: float = FAR

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for cameras that see the same."""
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
        """(3,) the camera's centre in the world."""
        rotation = self.viewmat[:3, :3]
        return -rotation.T @ self.viewmat[:3, 3]

    def slope_limits(self) -> tuple[np.ndarray, np.ndarray]:
        """(2,) and (2,): x/z and y/z to which a pinhole camera's Jacobian is clamped beside the picture, as gsplat does
        (persp_proj: three tenths of half the picture beyond its edges).
        """
        focal = np.array([self.K[0, 0], self.K[1, 1]])
        center = self.K[:2, 2]
        size = np.array([self.width, self.height], np.float64)
        margin = 0.3 * 0.5 * size / focal
        return -(center / focal + margin), (size - center) / focal + margin

    def resized(self, width: int, height: int) -> Camera:
        """The same view at another size: the vertical field of view stays, the sides show more or less."""
        return self._scaled(width, height, height / self.height)

    def fitted(self, width: int, height: int) -> Camera:
        """The same view at another size, with all that was seen: where `resized` would cut the sides off, there is more
        above and below.
        """
        return self._scaled(
            width, height, min(width / self.width, height / self.height)
        )

    def _scaled(self, width: int, height: int, s: float) -> Camera:
        if (self.width, self.height) == (width, height):
            return self
        K = self.K.copy()
        K[:2, :2] *= s
        K[0, 2] = (self.K[0, 2] - self.width / 2) * s + width / 2
        K[1, 2] = (self.K[1, 2] - self.height / 2) * s + height / 2
        return replace(self, K=K, width=width, height=height)

    def to_json(self) -> str:
        """The form that `camera_from_json` reads back."""
        d = {
            "viewmat": self.viewmat.tolist(),
            "K": self.K.tolist(),
            "width": self.width,
            "height": self.height,
        }
        defaults = {"model": "pinhole", "near": NEAR, "far": FAR}
        return json.dumps(
            d
            | {
                k: getattr(self, k)
                for k, v in defaults.items()
                if getattr(self, k) != v
            }
        )


def look_at(position: Any, target: Any, up: Any = DEFAULT_UP) -> np.ndarray:
    """World-to-camera matrix (4, 4) of a camera at `position` that looks at `target`, `up` upward in the picture.

    When the line of sight is parallel to `up`, another direction is taken for it.

    Raises:
        CameraError: the points are the same or not finite, or `up` is no direction.
    """
    position, target, up = (np.asarray(v, np.float64) for v in (position, target, up))
    with np.errstate(over="ignore", invalid="ignore"):
        forward = target - position
        length = np.linalg.norm(forward)
    if not np.isfinite(length) or length == 0:
        raise CameraError(
            f"camera: position {position.tolist()} and look_at {target.tolist()} must be two finite, "
            "different points"
        )
    up = _unit(up)
    forward = forward / length
    right = np.cross(forward, up)
    if np.linalg.norm(right) < 1e-9:
        axis = np.eye(3)[int(np.argmin(np.abs(forward)))]
        right = np.cross(forward, axis)
    right = right / np.linalg.norm(right)
    down = np.cross(forward, right)
    viewmat = np.eye(4)
    viewmat[:3, :3] = np.stack([right, down, forward])
    viewmat[:3, 3] = -viewmat[:3, :3] @ position
    return viewmat


def focal_length(fov: float, height: int, model: CameraModel = "pinhole") -> float:
    """The focal length, K's fy, with which a picture `height` pixels high shows `fov` degrees from top to bottom."""
    half = math.radians(fov) / 2
    return height / 2 / (half if model == "fisheye" else math.tan(half))


def field_of_view(focal: float, height: int, model: CameraModel = "pinhole") -> float:
    """The inverse of `focal_length`: degrees."""
    half = height / 2 / focal
    return math.degrees(2 * (half if model == "fisheye" else math.atan(half)))


def intrinsics(
    fov: float, width: int, height: int, model: CameraModel = "pinhole"
) -> np.ndarray:
    """K (3, 3) for square pixels, the principal point in the middle, `fov` the vertical angle in degrees.

    For "ortho" it is the pinhole camera's; divide the focal lengths by a distance.
    """
    if not 0.1 <= fov < 179.5:
        raise CameraError(
            f"camera: fov is {fov}, not an angle from 0.1 to 179.5 degrees"
        )
    f = focal_length(fov, height, model)
    return np.array([[f, 0, width / 2], [0, f, height / 2], [0, 0, 1.0]])


def seen_at(camera: Camera, p: np.ndarray) -> np.ndarray:
    """(..., 2) pixels: where points (..., 3) in camera axes, in front of the camera, come to lie in its picture."""
    if camera.model == "ortho":
        uv = p[..., :2]
    elif camera.model == "pinhole":
        uv = p[..., :2] / p[..., 2:]
    else:
        length = np.maximum(np.hypot(p[..., :1], p[..., 1:2]), 1e-12)
        uv = p[..., :2] * (np.arctan2(length, p[..., 2:]) / length)
    return uv * [camera.K[0, 0], camera.K[1, 1]] + camera.K[:2, 2]


def point_at(camera: Camera, x: float, y: float, depth: float) -> np.ndarray:
    """(3,) float64, world coordinates: what a picture shows at (x, y) pixels from its top left corner, `depth` away
    in camera z. Near and beyond the edge of a half sphere, which only fisheye cameras see, depth says little.
    """
    u = (x - camera.K[0, 2]) / camera.K[0, 0]
    v = (y - camera.K[1, 2]) / camera.K[1, 1]
    if camera.model == "ortho":
        p = np.array([u, v, depth])
    else:
        if camera.model == "fisheye":
            angle = math.hypot(u, v)
            stretch = math.tan(min(angle, 1.5)) / angle if angle > 1e-9 else 1.0
            u = u * stretch
            v = v * stretch
        p = np.array([u * depth, v * depth, depth])
    return camera.viewmat[:3, :3].T @ (p - camera.viewmat[:3, 3])


def project(camera: Camera, points: np.ndarray) -> np.ndarray:
    """(..., 2) pixels: where points (..., 3) of the world come to lie in a camera's picture; NaN for what lies behind
    it, or nearer than it sees.
    """
    p = points @ camera.viewmat[:3, :3].T + camera.viewmat[:3, 3]
    with np.errstate(all="ignore"):
        at = seen_at(camera, p)
    return np.where(p[..., 2:] > camera.near, at, np.nan)


def camera_from_json(source: str, width: int, height: int) -> Camera:
    """A camera from a JSON text or the name of a file that holds it, fitted to `width` by `height`.

    The forms are {"viewmat": 4x4, "K": 3x3} with optional "width", "height" that K was made for (the picture's own
    size is assumed otherwise), or {"position": [x,y,z], "look_at": [x,y,z], "up": [x,y,z], "fov": degrees} with
    optional up and fov. Both take an optional "model": "pinhole" | "ortho" | "fisheye", "near", "far". With "ortho"
    the second form shows as much as a pinhole camera shows at the distance of look_at; with "fisheye" (equidistant)
    fov is the angle from the top to the bottom of the picture as well.

    And those of other programs, one camera or a whole file, of which the first camera is taken: of a nerfstudio camera
    path ({"camera_to_world": matrix, "fov": vertical degrees}), of a transforms.json ({"transform_matrix": matrix} with
    "fl_x", "camera_angle_x" and so on in the frame or beside the frames), both camera to world in OpenGL axes, and of
    the cameras.json that inria's trainer writes. Lens distortion is not drawn.

    Raises:
        CameraError: the text, or what the file holds, describes no camera.
    """
    if re.match(r"\s*(\{|\[\s*\{)", source):
        return camera_from_text(source, width, height)
    try:
        with open_regular(source) as f:
            text = f.read(FILE_LIMIT).decode()
    except (OSError, ValueError) as e:
        raise CameraError(
            f"camera: {source[:80]!r} is neither a JSON object nor a readable file "
            f"({getattr(e, 'strerror', None) or e})"
        ) from None
    return _camera_of(text, width, height)


def camera_from_text(text: str, width: int, height: int) -> Camera:
    """As `camera_from_json`, but no file names."""
    if len(text) > TEXT_LIMIT:
        raise CameraError(
            f"camera: a text of {len(text):,} characters is no camera; {TEXT_LIMIT:,} are the most"
        )
    return _camera_of(text, width, height)


def _camera_of(text: str, width: int, height: int) -> Camera:
    text = text.removeprefix("\ufeff").strip()
    if not text.startswith(("{", "[")):
        if text:
            seen = f", not {text.split(chr(10))[0][:40]!r}"
        else:
            seen = "; there is no text to paste"
        raise CameraError(f"camera: a JSON object is needed{seen}")
    try:
        d = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise CameraError(f"camera: not JSON: {e}") from None
    if isinstance(d, list):
        d = d[0] if d and isinstance(d[0], dict) else {}
    for frames in ("camera_path", "frames"):
        first = d.get(frames)
        if isinstance(first, list) and first and isinstance(first[0], dict):
            # What all frames have in common stands beside them.
            d = {**d, **first[0]}
    d = {key: value for key, value in d.items() if value is not None}
    if "camera_to_world" in d:
        return _camera_of_path(d, width, height)
    if "transform_matrix" in d:
        return _camera_of_frame(d, width, height)
    if "rotation" in d:
        return _camera_of_inria(d, width, height)
    known = {
        "viewmat",
        "K",
        "width",
        "height",
        "position",
        "look_at",
        "up",
        "fov",
        "model",
        "near",
        "far",
    }
    unknown = set(d) - known
    if unknown:
        raise CameraError(
            f"camera: unknown key {sorted(unknown)[0]!r}; legal are {', '.join(sorted(known))}"
        )
    model = d.get("model", "pinhole")
    if model not in MODELS:
        raise CameraError(
            f"camera: model is {model!r}, not 'pinhole', 'ortho' or 'fisheye'"
        )
    near = float(_numbers(d, "near", NEAR))
    far = float(_numbers(d, "far", FAR))
    if not 0 < near < far:
        raise CameraError(
            f"camera: near {near} and far {far} must satisfy 0 < near < far"
        )
    if "viewmat" in d or "K" in d:
        mixed = {"position", "look_at", "up", "fov"} & set(d)
        if mixed:
            raise CameraError(
                f'camera: "{min(mixed)}" does not go with "viewmat" and "K"; give one form or the other'
            )
        viewmat = _numbers(d, "viewmat", None, 4, 4)
        K = _numbers(d, "K", None, 3, 3)
        if not rotations.is_rotation(viewmat[:3, :3]):
            raise CameraError("camera: the upper left 3x3 of viewmat is not a rotation")
        if not np.array_equal(viewmat[3], [0, 0, 0, 1]):
            raise CameraError(
                f"camera: the last row of viewmat is {viewmat[3].tolist()}, not [0, 0, 0, 1]"
            )
        if not np.array_equal(K[[0, 1, 2, 2, 2], [1, 0, 0, 1, 2]], [0, 0, 0, 0, 1]):
            raise CameraError(
                f"camera: K is {K.tolist()}, not of the form [[fx, 0, cx], [0, fy, cy], [0, 0, 1]]"
            )
        if K[0, 0] <= 0 or K[1, 1] <= 0:
            raise CameraError(
                f"camera: K has focal lengths {K[0, 0]}, {K[1, 1]}; both must be positive"
            )
        size = [
            float(_numbers(d, key, value))
            for key, value in (("width", width), ("height", height))
        ]
        if not all(0 < v < 1 << 20 and v == int(v) for v in size) or ("width" in d) != (
            "height" in d
        ):
            raise CameraError(
                f"camera: a size of {size[0]:g}x{size[1]:g} pixels; two whole numbers are needed"
            )
        own = Camera(viewmat, K, int(size[0]), int(size[1]), model, near, far)
        return own.resized(width, height)
    if "position" not in d or "look_at" not in d:
        raise CameraError(
            'camera: needs "viewmat" and "K", or "position" and "look_at"; '
            f"got {', '.join(sorted(d)) or 'nothing'}"
        )
    target = _numbers(d, "look_at", None, 3)
    viewmat = look_at(
        _numbers(d, "position", None, 3), target, _numbers(d, "up", DEFAULT_UP, 3)
    )
    K = intrinsics(float(_numbers(d, "fov", DEFAULT_FOV)), width, height, model)
    if model == "ortho":
        K[[0, 1], [0, 1]] /= viewmat[2, :3] @ target + viewmat[2, 3]
    return Camera(viewmat, K, width, height, model, near, far)


def _camera_of_path(d: dict[str, Any], width: int, height: int) -> Camera:
    """Return a camera of a path of nerfstudio's, which makes the focal length of a perspective camera for all types."""
    kind = str(d.get("camera_type", "perspective")).lower()
    if kind not in ("perspective", "fisheye"):
        raise CameraError(
            f"camera: camera_type is {kind!r:.40}; legal are perspective, fisheye"
        )
    pose = read_pose(d["camera_to_world"], "camera: camera_to_world")
    K = intrinsics(float(_numbers(d, "fov", DEFAULT_FOV)), width, height)
    model: CameraModel = "fisheye" if kind == "fisheye" else "pinhole"
    return Camera(np.linalg.inv(pose @ _FLIP), K, width, height, model)


def _camera_of_frame(d: dict[str, Any], width: int, height: int) -> Camera:
    """Return a frame of a transforms.json: focal lengths in pixels of its own size, or angles of view in radians."""
    pose = read_pose(d["transform_matrix"], "camera: transform_matrix")
    # Pictures of which nothing is known are square, as those of NeRF's synthetic scenes are.
    own_height = float(_numbers(d, "h", height))
    own_width = float(_numbers(d, "w", own_height))
    model: CameraModel = "pinhole"
    if str(d.get("camera_model")).upper() in FISHEYES:
        model = "fisheye"
    fx = _focal_of_frame(d, "fl_x", "camera_angle_x", own_width)
    fy = _focal_of_frame(d, "fl_y", "camera_angle_y", own_height)
    fx, fy = fx or fy, fy or fx
    if fx is None or fy is None:
        fx = focal_length(DEFAULT_FOV, round(own_height), model)
        fy = fx
    cx = float(_numbers(d, "cx", own_width / 2))
    cy = float(_numbers(d, "cy", own_height / 2))
    K = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
    return _own_camera(
        np.linalg.inv(pose @ _FLIP), K, (own_width, own_height), model
    ).resized(width, height)


def _focal_of_frame(
    d: dict[str, Any], focal: str, angle: str, size: float
) -> float | None:
    """Return a focal length in pixels, by itself or by the angle of so many pixels; None where neither is there."""
    if focal in d:
        return float(_numbers(d, focal, None))
    if angle not in d:
        return None
    radians = float(_numbers(d, angle, None))
    if not 0 < radians < math.pi:
        raise CameraError(f"camera: {angle} is {radians}, not an angle from 0 to pi")
    return size / 2 / math.tan(radians / 2)


def _camera_of_inria(d: dict[str, Any], width: int, height: int) -> Camera:
    """Return a camera of a cameras.json: its rotation is camera to world, in OpenCV axes."""
    rotation = _numbers(d, "rotation", None, 3, 3)
    position = _numbers(d, "position", None, 3)
    if not rotations.is_rotation(rotation):
        raise CameraError("camera: rotation is not a rotation")
    size = float(_numbers(d, "width", width)), float(_numbers(d, "height", height))
    fx = float(_numbers(d, "fx", None))
    fy = float(_numbers(d, "fy", None))
    K = np.array([[fx, 0, size[0] / 2], [0, fy, size[1] / 2], [0, 0, 1]])
    viewmat = np.eye(4)
    viewmat[:3, :3] = rotation.T
    viewmat[:3, 3] = -rotation.T @ position
    return _own_camera(viewmat, K, size, "pinhole").resized(width, height)


def _own_camera(
    viewmat: np.ndarray, K: np.ndarray, size: tuple[float, float], model: CameraModel
) -> Camera:
    """Return a camera of its own size. Raises CameraError for a size or focal lengths that are none."""
    if not all(0 < v < 1 << 20 and v == int(v) for v in size):
        raise CameraError(
            f"camera: a size of {size[0]:g}x{size[1]:g} pixels; two whole numbers are needed"
        )
    if K[0, 0] <= 0 or K[1, 1] <= 0:
        raise CameraError(
            f"camera: focal lengths {K[0, 0]:g}, {K[1, 1]:g}; both must be positive"
        )
    return Camera(viewmat, K, int(size[0]), int(size[1]), model)


def _numbers(d: dict[str, Any], key: str, default: Any, *shape: int) -> np.ndarray:
    """Finite float64 of this shape, or of `default` where the key is missing."""
    value = d.get(key, default)
    try:
        found = np.array(value, np.float64)
    except (ValueError, TypeError, OverflowError):
        found = np.full(shape, np.nan)
    size = "x".join(map(str, shape))
    if found.shape != shape or not np.isfinite(found).all():
        wanted = (
            "a finite number",
            f"{size} finite numbers",
            f"a finite {size} matrix",
        )[len(shape)]
        raise CameraError(
            f"camera: {key} is {value!r:.100}, not {wanted}"
            if key in d
            else f'camera: "{key}" is missing'
        )
    return found


def frame_points(
    points: np.ndarray,
    width: int,
    height: int,
    *,
    weights: np.ndarray | None = None,
    up: Any = DEFAULT_UP,
) -> Camera:
    """The camera from which a scene with these centres (N, 3) is seen whole at first sight.

    Robust against floaters, see `bounds`: without floaters every point is in view. Points that are not finite are
    ignored; with none left the unit ball at the origin is framed. Gaussians with a weight of 0 do not count.

    Raises:
        CameraError: `up` is no direction, or the size not positive.
    """
    if width <= 0 or height <= 0:
        raise CameraError(
            f"camera: a size of {width}x{height} pixels; both must be positive"
        )
    up = _unit(np.asarray(up, np.float64))
    if abs(up[2]) < 0.9:
        axis = np.array([0.0, 0.0, -1.0])
    else:
        axis = np.array([0.0, -1.0, 0.0])
    rotation = look_at(axis + 0.25 * up, np.zeros(3), up)[:3, :3]
    return frame_ball(*bounds(points, weights), rotation, DEFAULT_FOV, width, height)


def frame_ball(
    center: np.ndarray,
    radius: float,
    rotation: np.ndarray,
    fov: float,
    width: int,
    height: int,
) -> Camera:
    """The camera with this world to camera `rotation` (3, 3) and vertical angle `fov` (degrees) that just shows all of
    a ball.
    """
    half = math.radians(fov) / 2
    half = min(half, math.atan(math.tan(half) * width / height))
    distance = radius / math.sin(half)
    viewmat = np.eye(4)
    viewmat[:3, :3] = rotation
    viewmat[:3, 3] = [0, 0, distance] - rotation @ center
    return Camera(
        viewmat,
        intrinsics(fov, width, height),
        width,
        height,
        near=min(NEAR, distance * NEAR),
    )


def bounds(
    points: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, float]:
    """A robust centre (3,) and radius (> 0) of points (N, 3): floaters count little.

    The centre is the median. The radius reaches the farthest point if that lies within 1.6 times the 92nd percentile
    of distances, as in any evenly filled box; otherwise there are floaters, and it is that percentile.
    """
    points = np.asarray(points)
    keep = (np.abs(points) < 1e38).all(
        axis=1
    )  # neither NaN nor so far that a square overflows
    if weights is not None:
        keep &= np.asarray(weights) > 0
    points = points[keep]
    if len(points) == 0:
        return np.zeros(3), 1.0
    if (
        len(points) > 200_000
    ):  # a sample is plenty, and keeps this under a few milliseconds
        points = points[:: len(points) // 100_000]
    wide = points.dtype == np.float64
    points = points.astype(np.float64)
    center = np.median(points, axis=0)
    distances = np.linalg.norm(points - center, axis=1)
    radius = float(np.percentile(distances, 92))
    farthest = float(distances.max())
    if farthest <= 1.6 * radius:
        radius = farthest
    least = 1e-14 if wide else 1e-6  # of where they are: what is smaller is rounding
    return center, max(radius, least * max(float(np.abs(center).max()), 1e-3), 1e-6)


def _unit(up: np.ndarray) -> np.ndarray:
    """`up` at length 1."""
    largest = np.abs(up).max(initial=0.0)
    if up.shape != (3,) or not np.isfinite(largest) or largest == 0:
        raise CameraError(
            f"camera: up is {up.tolist()}; a direction of three finite numbers, not all 0, is needed"
        )
    up = up / largest  # first, so that no square overflows or vanishes
    return up / np.linalg.norm(up)
