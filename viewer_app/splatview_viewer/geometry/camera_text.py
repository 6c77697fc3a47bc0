"""Cameras from JSON: the viewer's own two forms, and those of other programs."""

from __future__ import annotations

import functools
import json
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_viewer.core.errors import CameraError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.cameras import (
    DEFAULT_FOV,
    DEFAULT_UP,
    FAR,
    MODELS,
    NEAR,
    Camera,
    CameraModel,
    focal_length,
    intrinsics,
    look_at,
    world_to_camera,
)
from splatview_viewer.geometry.poses import read_pose

if TYPE_CHECKING:
    from collections.abc import Callable

    Fields = dict[str, Any]

FILE_LIMIT = 16 << 20
"""Bytes of a camera file, which may be that of all cameras of a data set."""
TEXT_LIMIT = 1 << 20
"""Characters of a text that is pasted."""
FISHEYE_MODELS = ("OPENCV_FISHEYE", "FISHEYE")
"""Models of a transforms.json that are equidistant; PINHOLE and OPENCV and the like are
drawn without distortion."""
_FLIP = np.diag([1.0, -1.0, -1.0, 1.0])
"""From OpenGL's camera axes, which nerfstudio uses (y up, z backward), to OpenCV's."""
_LOOK_AT_KEYS = {"position", "look_at", "up", "fov"}
_OWN_KEYS = _LOOK_AT_KEYS | {"viewmat", "K", "width", "height", "model", "near", "far"}
"""Keys of the viewer's own forms."""


def camera_from_json(source: str, width: int, height: int) -> Camera:
    """Read a camera from a JSON text or a file that holds it, fitted to a picture's size.

    The forms are {"viewmat": 4x4, "K": 3x3} with optional "width", "height" that K was
    made for (the picture's own size is assumed otherwise), or {"position": [x,y,z],
    "look_at": [x,y,z], "up": [x,y,z], "fov": degrees} with optional up and fov. Both take
    an optional "model": "pinhole" | "ortho" | "fisheye", "near", "far". With "ortho" the
    second form shows as much as a pinhole camera shows at the distance of look_at; with
    "fisheye" (equidistant) fov is the angle from the top to the bottom of the picture as
    well.

    And those of other programs, one camera or a whole file, of which the first camera is
    taken: of a nerfstudio camera path ({"camera_to_world": matrix, "fov": vertical
    degrees}), of a transforms.json ({"transform_matrix": matrix} with "fl_x",
    "camera_angle_x" and so on in the frame or beside the frames), both camera to world in
    OpenGL axes, and of the cameras.json that inria's trainer writes. Lens distortion is
    not drawn.

    Args:
        source: the text, or the name of the file.
        width: the width of the picture, in pixels.
        height: the height of the picture, in pixels.

    Raises:
        CameraError: the text, or the file's content, describes no camera.
    """
    if re.match(r"\s*(\{|\[\s*\{)", source):
        return camera_from_text(source, width, height)
    try:
        with open_regular(source) as f:
            text = f.read(FILE_LIMIT).decode()
    except (OSError, ValueError) as e:
        reason = getattr(e, "strerror", None) or e
        raise CameraError(
            f"camera: {source[:80]!r} is neither a JSON object nor a readable file "
            f"({reason})"
        ) from None
    return _parse_camera(text, width, height)


@functools.lru_cache(maxsize=16)
def camera_from_text(text: str, width: int, height: int) -> Camera:
    """Read a camera as `camera_from_json` does, but from no file."""
    if len(text) > TEXT_LIMIT:
        raise CameraError(
            f"camera: a text of {len(text):,} characters is no camera; {TEXT_LIMIT:,} are "
            "the most"
        )
    return _parse_camera(text, width, height)


def _parse_camera(text: str, width: int, height: int) -> Camera:
    """Read a camera in the first form that fits."""
    fields = _first_camera(_load_json(text))
    for form in _FORMS:
        if form.key in fields:
            return form.parse(fields, width, height)
    return _parse_own(fields, width, height)


def _load_json(text: str) -> Any:
    """Return the value of a JSON text, an object or a list."""
    text = text.removeprefix("\ufeff").strip()
    if not text:
        raise CameraError("camera: a JSON object is needed; there is no text to paste")
    if not text.startswith(("{", "[")):
        first_line = text.split("\n", 1)[0]
        raise CameraError(f"camera: a JSON object is needed, not {first_line[:40]!r}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:
        raise CameraError(f"camera: not JSON: {e}") from None


def _first_camera(value: Any) -> Fields:
    """Return the fields of the first camera of a file, without those that are null."""
    fields = value
    if isinstance(value, list):
        fields = _first_object(value)
    for key in ("camera_path", "frames"):
        # Fields that all frames have in common stand beside them.
        fields = fields | _first_object(fields.get(key))
    return {key: value for key, value in fields.items() if value is not None}


def _first_object(items: Any) -> Fields:
    """Return the first item of a list if it is an object; else an empty one."""
    if isinstance(items, list) and items and isinstance(items[0], dict):
        return items[0]
    return {}


# -- forms of other programs --------------------------------------------------------------


def _parse_nerfstudio_path(fields: Fields, width: int, height: int) -> Camera:
    """Read a camera of a nerfstudio path.

    nerfstudio makes the focal length of a perspective camera for all types.
    """
    camera_type = str(fields.get("camera_type", "perspective")).lower()
    if camera_type not in ("perspective", "fisheye"):
        raise CameraError(
            f"camera: camera_type is {camera_type!r:.40}; expected perspective, fisheye"
        )
    pose = read_pose(fields["camera_to_world"], "camera: camera_to_world")
    K = intrinsics(_finite_number(fields, "fov", DEFAULT_FOV), width, height)
    model: CameraModel = "pinhole"
    if camera_type == "fisheye":
        model = "fisheye"
    return Camera(np.linalg.inv(pose @ _FLIP), K, width, height, model)


def _parse_transforms_frame(fields: Fields, width: int, height: int) -> Camera:
    """Read a frame of a transforms.json.

    It has focal lengths in pixels of its own size, or angles of view in radians.
    """
    pose = read_pose(fields["transform_matrix"], "camera: transform_matrix")
    # Pictures of which nothing is known are square, as those of NeRF's synthetic scenes.
    own_height = _finite_number(fields, "h", height)
    own_width = _finite_number(fields, "w", own_height)
    model: CameraModel = "pinhole"
    if str(fields.get("camera_model")).upper() in FISHEYE_MODELS:
        model = "fisheye"
    fx = _frame_focal(fields, "fl_x", "camera_angle_x", own_width)
    fy = _frame_focal(fields, "fl_y", "camera_angle_y", own_height)
    default = fx or fy or focal_length(DEFAULT_FOV, round(own_height), model)
    cx = _finite_number(fields, "cx", own_width / 2)
    cy = _finite_number(fields, "cy", own_height / 2)
    K = np.array([[fx or default, 0, cx], [0, fy or default, cy], [0, 0, 1]])
    viewmat = np.linalg.inv(pose @ _FLIP)
    camera = _checked_camera(viewmat, K, (own_width, own_height), model)
    return camera.resized(width, height)


def _frame_focal(
    fields: Fields, focal_key: str, angle_key: str, size: float
) -> float | None:
    """Return a focal length in pixels, by itself or by the angle of `size` pixels.

    None where neither is there.
    """
    if focal_key in fields:
        return _finite_number(fields, focal_key)
    if angle_key not in fields:
        return None
    radians = _finite_number(fields, angle_key)
    if not 0 < radians < math.pi:
        raise CameraError(
            f"camera: {angle_key} is {radians}, not an angle from 0 to pi"
        )
    return size / 2 / math.tan(radians / 2)


def _parse_inria(fields: Fields, width: int, height: int) -> Camera:
    """Read a camera of a cameras.json; its rotation is camera to world, in OpenCV axes."""
    rotation = _array(fields, "rotation", 3, 3)
    position = _array(fields, "position", 3)
    if not rotations.is_rotation(rotation):
        raise CameraError("camera: rotation is not a rotation")
    own_width = _finite_number(fields, "width", width)
    own_height = _finite_number(fields, "height", height)
    fx = _finite_number(fields, "fx")
    fy = _finite_number(fields, "fy")
    K = np.array([[fx, 0, own_width / 2], [0, fy, own_height / 2], [0, 0, 1]])
    viewmat = world_to_camera(rotation.T, position)
    camera = _checked_camera(viewmat, K, (own_width, own_height), "pinhole")
    return camera.resized(width, height)


class _Form(NamedTuple):
    """A form in which another program writes cameras."""

    key: str
    """Cameras with this key are of the form."""
    parse: Callable[[Fields, int, int], Camera]


_FORMS = (
    _Form("camera_to_world", _parse_nerfstudio_path),
    _Form("transform_matrix", _parse_transforms_frame),
    _Form("rotation", _parse_inria),
)


# -- the viewer's own forms ---------------------------------------------------------------


class _Lens(NamedTuple):
    """Values that both of the viewer's own forms may hold besides the pose."""

    model: CameraModel
    near: float
    far: float


def _parse_own(fields: Fields, width: int, height: int) -> Camera:
    """Read a camera in one of the viewer's own forms."""
    unknown = set(fields) - _OWN_KEYS
    if unknown:
        raise CameraError(
            f"camera: unknown key {min(unknown)!r}; expected "
            f"{', '.join(sorted(_OWN_KEYS))}"
        )
    lens = _parse_lens(fields)
    if "viewmat" in fields or "K" in fields:
        return _parse_matrices(fields, lens, width, height)
    if "position" in fields and "look_at" in fields:
        return _parse_look_at(fields, lens, width, height)
    raise CameraError(
        'camera: needs "viewmat" and "K", or "position" and "look_at"; '
        f"got {', '.join(sorted(fields)) or 'nothing'}"
    )


def _parse_lens(fields: Fields) -> _Lens:
    model = fields.get("model", "pinhole")
    if model not in MODELS:
        raise CameraError(
            f"camera: model is {model!r}, not 'pinhole', 'ortho' or 'fisheye'"
        )
    near = _finite_number(fields, "near", NEAR)
    far = _finite_number(fields, "far", FAR)
    if not 0 < near < far:
        raise CameraError(
            f"camera: near {near} and far {far} must satisfy 0 < near < far"
        )
    return _Lens(model, near, far)


def _parse_matrices(fields: Fields, lens: _Lens, width: int, height: int) -> Camera:
    """Read the form of "viewmat" and "K"."""
    mixed = _LOOK_AT_KEYS & set(fields)
    if mixed:
        raise CameraError(
            f'camera: "{min(mixed)}" does not go with "viewmat" and "K"; give one form or '
            "the other"
        )
    viewmat = _array(fields, "viewmat", 4, 4)
    K = _array(fields, "K", 3, 3)
    if not rotations.is_rotation(viewmat[:3, :3]):
        raise CameraError("camera: the upper left 3x3 of viewmat is not a rotation")
    if viewmat[3].tolist() != [0, 0, 0, 1]:
        raise CameraError(
            f"camera: the last row of viewmat is {viewmat[3].tolist()}, not [0, 0, 0, 1]"
        )
    (_, skew, _), (lower_skew, _, _), last_row = K.tolist()
    if [skew, lower_skew, *last_row] != [0, 0, 0, 0, 1]:
        raise CameraError(
            f"camera: K is {K.tolist()}, not of the form [[fx, 0, cx], [0, fy, cy], "
            "[0, 0, 1]]"
        )
    if K[0, 0] <= 0 or K[1, 1] <= 0:
        raise CameraError(
            f"camera: K has focal lengths {K[0, 0]}, {K[1, 1]}; both must be positive"
        )
    own_width = _finite_number(fields, "width", width)
    own_height = _finite_number(fields, "height", height)
    _check_size(own_width, own_height)
    if ("width" in fields) != ("height" in fields):
        raise _size_error(own_width, own_height)
    camera = Camera(viewmat, K, int(own_width), int(own_height), *lens)
    return camera.resized(width, height)


def _parse_look_at(fields: Fields, lens: _Lens, width: int, height: int) -> Camera:
    """Read the form of "position" and "look_at"."""
    position = _array(fields, "position", 3)
    target = _array(fields, "look_at", 3)
    up = _array(fields, "up", 3, default=DEFAULT_UP)
    viewmat = look_at(position, target, up)
    K = intrinsics(
        _finite_number(fields, "fov", DEFAULT_FOV), width, height, lens.model
    )
    if lens.model == "ortho":
        K[[0, 1], [0, 1]] /= viewmat[2, :3] @ target + viewmat[2, 3]
    return Camera(viewmat, K, width, height, *lens)


# -- values -------------------------------------------------------------------------------


def _checked_camera(
    viewmat: np.ndarray, K: np.ndarray, size: tuple[float, float], model: CameraModel
) -> Camera:
    """Return a camera of its own size.

    Raises:
        CameraError: the size, or a focal length, is not legal.
    """
    width, height = size
    _check_size(width, height)
    if K[0, 0] <= 0 or K[1, 1] <= 0:
        raise CameraError(
            f"camera: focal lengths {K[0, 0]:g}, {K[1, 1]:g}; both must be positive"
        )
    return Camera(viewmat, K, int(width), int(height), model)


def _check_size(width: float, height: float) -> None:
    """Raise CameraError unless both are whole numbers of pixels."""
    for side in (width, height):
        if not 0 < side < 1 << 20 or side != int(side):
            raise _size_error(width, height)


def _size_error(width: float, height: float) -> CameraError:
    return CameraError(
        f"camera: a size of {width:g}x{height:g} pixels; two whole numbers are needed"
    )


def _finite_number(fields: Fields, key: str, default: float | None = None) -> float:
    """Return a finite number, or `default` where the key is missing."""
    if default is not None and key not in fields:
        return float(default)
    return float(_array(fields, key, default=default))


def _array(fields: Fields, key: str, *shape: int, default: Any = None) -> np.ndarray:
    """Return finite float64 of this shape, or of `default` where the key is missing.

    Raises:
        CameraError: the key is missing, or its value is something else.
    """
    value = fields.get(key, default)
    try:
        array = np.array(value, np.float64)
    except (ValueError, TypeError, OverflowError):
        array = np.full(shape, np.nan)
    if array.shape == shape and np.isfinite(array).all():
        return array
    if key not in fields:
        raise CameraError(f'camera: "{key}" is missing')
    size = "x".join(map(str, shape))
    legal = (
        "a finite number",
        f"{size} finite numbers",
        f"a finite {size} matrix",
    )[len(shape)]
    raise CameraError(f"camera: {key} is {value!r:.100}, not {legal}")
