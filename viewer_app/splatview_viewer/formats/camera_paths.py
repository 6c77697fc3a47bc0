"""Camera paths in nerfstudio's form.

`ns-render camera-path` reads such files. Format: nerfstudio/viewer/render_panel.py
(`_write_json`) and nerfstudio/cameras/camera_paths.py (`get_path_from_json`), version
1.1. Matrices are camera to world, row by row, in OpenGL axes (x right, y up, z
backward); fields of view are vertical, in degrees, and mean the focal length of a
perspective camera, whatever the type is. The first viewer wrote the matrices of
keyframes as text, column by column (three.js), and how long the whole takes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.errors import CameraError, FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats.common import check_json
from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.cameras import field_of_view, focal_length
from splatview_viewer.geometry.path import (
    MAX_FRAMES,
    MAX_KEYS,
    MAX_PICTURES,
    SECONDS,
    CameraPath,
    Keyframe,
)
from splatview_viewer.geometry.poses import FAR, read_pose

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from splatview_viewer.geometry.cameras import CameraModel

FILE_LIMIT = 64 << 20
"""Bytes of a file; two hours of pictures take 60 MB."""
MIN_FOV = 0.09
"""Degrees of a field of view that are read, at least: written ones are rounded."""
MAX_FOV = 179.4
"""Degrees of a field of view that are read, at most."""
_MODELS: dict[str, CameraModel] = {"perspective": "pinhole", "fisheye": "fisheye"}
_FLIP = np.diag([1.0, -1.0, -1.0])
"""Between OpenGL's axes of a camera and OpenCV's."""


@dataclass(frozen=True)
class Film:
    """A path, and how it is to be filmed."""

    path: CameraPath
    width: int = 1920
    height: int = 1080
    fps: float = 30.0


def write_path(film: Film) -> str:
    """Return the JSON text of a film's path.

    Raises CameraError for a film of too many pictures.
    """
    check_length(film, MAX_FRAMES, "a file of its path")
    return json.dumps(path_values(film))


def check_length(
    film: Film, max_pictures: int = MAX_PICTURES, subject: str = "a film"
) -> None:
    """Raise CameraError for a film of more than `max_pictures` pictures.

    `subject` names the film in the message.
    """
    count = film.path.frame_count(film.fps)
    if count > max_pictures:
        raise CameraError(
            f"path: {film.path.duration:,.0f} s at {film.fps:g} pictures a second are "
            f"{count:,} pictures; {subject} may have {max_pictures:,}. Make it "
            "shorter, or have fewer a second"
        )


def path_values(film: Film, *, frames: bool = True) -> dict[str, Any]:
    """Return the values of a path's JSON text.

    Args:
        frames: with one camera for each picture of the film as well.
    """
    path = film.path
    keys = [*path.keys]
    default_fov = 50.0
    if keys:
        default_fov = _written_fov(film, keys[0].fov)
    # The last key is repeated where its seconds count.
    if path.keys and path.holds_last and not path.loop:
        keys.append(path.keys[-1])
    camera_type = "perspective"
    if path.model == "fisheye":
        camera_type = "fisheye"
    pictures: list[dict[str, Any]] = []
    if frames:
        pictures = _picture_values(film)
    return {
        "default_fov": default_fov,
        "default_transition_sec": SECONDS,
        "keyframes": [_keyframe_values(film, key) for key in keys],
        "camera_type": camera_type,
        "render_height": film.height,
        "render_width": film.width,
        "fps": film.fps,
        "seconds": path.duration,
        "is_cycle": path.loop,
        "smoothness_value": float(not path.smooth),
        "camera_path": pictures,
    }


def _keyframe_values(film: Film, key: Keyframe) -> dict[str, Any]:
    return {
        "matrix": _written_pose(rotations.matrix(key.rotation), key.position),
        "fov": _written_fov(film, key.fov),
        "aspect": film.width / film.height,
        "override_transition_enabled": True,
        "override_transition_sec": key.seconds,
    }


def _picture_values(film: Film) -> list[dict[str, Any]]:
    """Return the camera of each picture of a film."""
    pictures: list[dict[str, Any]] = []
    for i in range(film.path.frame_count(film.fps)):
        camera = film.path.camera_at(i / film.fps, film.width, film.height)
        rotation = camera.viewmat[:3, :3].T
        pictures.append(
            {
                "camera_to_world": _written_pose(rotation, camera.position),
                "fov": field_of_view(float(camera.K[1, 1]), film.height),
                "aspect": film.width / film.height,
            }
        )
    return pictures


def _written_pose(rotation: np.ndarray, position: np.ndarray) -> list[float]:
    """Return a camera to world matrix in OpenGL axes, row by row."""
    matrix = np.eye(4)
    matrix[:3, :3] = rotation @ _FLIP
    matrix[:3, 3] = position
    return matrix.ravel().tolist()


def _written_fov(film: Film, fov: float) -> float:
    """Return the field of view of a perspective camera of the same focal length."""
    focal = focal_length(fov, film.height, film.path.model)
    return field_of_view(focal, film.height)


def read_path(file: Path) -> Film:
    """Read the path in a file.

    Raises CameraError, which names the file.
    """
    try:
        with open_regular(file) as f:
            text = f.read(FILE_LIMIT + 1)
    except OSError as e:
        raise CameraError(f"path: {file} cannot be read: {e.strerror or e}") from None
    if len(text) > FILE_LIMIT:
        raise CameraError(
            f"path: {file} has more than {FILE_LIMIT >> 20} MB; a camera path has less"
        )
    try:
        return parse_path(text)
    except CameraError as e:
        raise CameraError(f"{file}: {e}") from None


def parse_path(text: str | bytes) -> Film:
    """Parse the path in a JSON text: its keyframes, or else its frames one by one.

    Raises CameraError for anything else.
    """
    try:
        check_json(len(text), "the numbers of a camera path")
        return _film(json.loads(text))
    except FileError as e:
        raise CameraError(f"path: {e}") from None
    except (
        ValueError,
        TypeError,
        KeyError,
        OverflowError,
        RecursionError,
        ArithmeticError,
    ) as e:
        raise CameraError(
            f"path: no JSON, or not as nerfstudio writes it ({type(e).__name__}: "
            f"{e!s:.200})"
        ) from e


def _film(values: Any) -> Film:
    """Return the film of a JSON text's values. Raises CameraError."""
    keys = _list_in(values, "keyframes")
    frames = _list_in(values, "camera_path")
    if not keys and not frames:
        raise CameraError(
            'path: neither "keyframes" nor "camera_path" is there, as nerfstudio '
            "writes them"
        )
    kind = str(values.get("camera_type", "perspective")).lower()
    if kind not in _MODELS:
        raise CameraError(
            f"path: camera_type is {kind!r:.40}; expected {', '.join(_MODELS)}"
        )
    model = _MODELS[kind]
    width = int(_read_float(values, "render_width", 1920, 1, 16384))
    height = int(_read_float(values, "render_height", 1080, 1, 16384))
    fps = _read_float(values, "fps", 30.0, 0.01, 1000)
    if keys:
        path = _path_of_keys(keys, values, model)
    else:
        # The transition is checked though pictures without keyframes do not need it.
        _transition_of(values)
        picture_keys = _frames(frames, values, 1 / fps, model)
        path = CameraPath(picture_keys, False, False, model, holds_last=True)
    return Film(path, width, height, fps)


def _list_in(values: Any, name: str) -> list[Any]:
    """Return a list of a JSON text's mapping; [] where it has none."""
    if not isinstance(values, dict):
        return []
    items = values.get(name)
    if isinstance(items, list):
        return items
    return []


def _transition_of(values: dict[str, Any]) -> float:
    """Return the seconds between keyframes that name none themselves."""
    return _read_float(values, "default_transition_sec", SECONDS, 0.001, 3600)


def _path_of_keys(
    keys: Sequence[Any], values: dict[str, Any], model: CameraModel
) -> CameraPath:
    """Return the path through keyframes. `values`: of the whole JSON text."""
    transition = _transition_of(values)
    if len(keys) > MAX_KEYS:
        raise CameraError(f"path: {len(keys)} keyframes; {MAX_KEYS} are the most")
    keyframes = [_key(key, values, transition, model) for key in keys]
    loop = values.get("is_cycle") is True
    path = CameraPath(keyframes, loop, model=model)
    path.smooth = _read_float(values, "smoothness_value", 0.0, -1e9, 1e9) < 1.0
    # The first viewer names the length of the whole alone.
    has_transitions = any("override_transition_sec" in key for key in keys)
    if "default_transition_sec" not in values and not has_transitions:
        default = path.duration or transition
        path.stretch(_read_float(values, "seconds", default, 0.001, 1e6))
    return path


def _frames(
    frames: Sequence[Any],
    values: dict[str, Any],
    transition: float,
    model: CameraModel,
) -> list[Keyframe]:
    """Return a key for each picture of a path, all matrices at once.

    Args:
        frames: the entries of "camera_path".
        values: the values of the whole JSON text.
        transition: seconds between pictures that name none themselves.
        model: the model of the camera.
    """
    if len(frames) > MAX_FRAMES:
        raise CameraError(
            f"path: {len(frames)} pictures without keyframes; {MAX_FRAMES} are the "
            "most. Write the path with its keyframes, or in parts"
        )
    matrices = _matrices(frames)
    if matrices is None:
        # One by one: that reads other forms, and names the first one that is invalid.
        name = "camera_to_world"
        return [_key(frame, values, transition, model, name) for frame in frames]
    keys: list[Keyframe] = []
    positions = matrices[:, :3, 3].copy()
    quaternions = rotations.quaternions(matrices[:, :3, :3] @ _FLIP)
    for frame, position, rotation in zip(frames, positions, quaternions, strict=True):
        seconds = _seconds(frame, transition)
        fov = _fov(frame, values, model)
        keys.append(Keyframe(position, rotation, fov, seconds))
    return keys


def _matrices(frames: Sequence[Any]) -> np.ndarray | None:
    """Return the matrices (N, 4, 4) of pictures; None unless all have this form."""
    try:
        rows = [frame["camera_to_world"] for frame in frames]
        matrices = np.asarray(rows, np.float64).reshape(len(frames), 4, 4)
    except (TypeError, ValueError, KeyError, OverflowError):
        return None
    is_near = (np.abs(matrices) < FAR).all(axis=(1, 2))
    is_by_rows = ~matrices[:, 3, :3].any(axis=1)
    is_valid = is_near & is_by_rows & rotations.are_rotations(matrices[:, :3, :3])
    if not is_valid.all():
        return None
    return matrices


def _key(
    key: Any,
    values: dict[str, Any],
    transition: float,
    model: CameraModel,
    name: str = "matrix",
) -> Keyframe:
    """Return a keyframe, or a picture whose matrix is called `name`.

    Raises CameraError. Other arguments as `_frames`.
    """
    if not isinstance(key, dict):
        raise CameraError(f"path: {key!r:.60} is no keyframe")
    matrix = read_pose(key.get(name), f'path: "{name}"')
    rotation = rotations.quaternion(matrix[:3, :3] @ _FLIP)
    seconds = _seconds(key, transition)
    fov = _fov(key, values, model)
    return Keyframe(matrix[:3, 3].copy(), rotation, fov, seconds)


def _seconds(key: dict[str, Any], transition: float) -> float:
    """Return the seconds from a keyframe to the next."""
    if key.get("override_transition_enabled") is not True:
        return transition
    return _read_float(key, "override_transition_sec", transition, 0.001, 3600)


def _fov(key: dict[str, Any], values: dict[str, Any], model: CameraModel) -> float:
    """Return the field of view of a keyframe, in degrees; the path's if it has none."""
    default = _read_float(values, "default_fov", 50.0, MIN_FOV, MAX_FOV)
    fov = _read_float(key, "fov", default, MIN_FOV, MAX_FOV)
    if model == "fisheye":
        return _fisheye_fov(fov)
    return fov


def _fisheye_fov(fov: float) -> float:
    """Return the angle that an equidistant camera shows for a field of view in a file.

    nerfstudio takes the focal length of a perspective camera for every type: half the
    height by the tangent of half the angle.
    """
    return field_of_view(focal_length(fov, 2), 2, "fisheye")


def _read_float(
    values: dict[str, Any], name: str, default: float, low: float, high: float
) -> float:
    """Return a number of a JSON text.

    Raises CameraError unless it is in [low, high].
    """
    value = values.get(name)
    if value is None:
        value = default
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:
        raise CameraError(
            f'path: "{name}" is {value!r:.40}, not a number from {low:g} to {high:g}'
        )
    return float(value)
