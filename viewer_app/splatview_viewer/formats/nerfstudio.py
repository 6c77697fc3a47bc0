"""Camera paths as nerfstudio's viewer writes them and `ns-render camera-path` reads them.

Format: nerfstudio/viewer/render_panel.py (`_write_json`) and nerfstudio/cameras/camera_paths.py (`get_path_from_json`),
version 1.1. Matrices are camera to world, row by row, in OpenGL axes (x right, y up, z backward); fields of view are
vertical, in degrees. The older viewer wrote the matrices of key frames as text, column by column (three.js).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.errors import CameraError, FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats import check_json
from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.cameras import field_of_view
from splatview_viewer.geometry.path import MOST_KEYS, SECONDS, CameraPath, Key

if TYPE_CHECKING:
    from pathlib import Path

FILE_LIMIT = 64 << 20
"""Bytes of a file; an hour of pictures takes 30 MB."""
MOST_FRAMES = 250_000
"""Two hours of pictures; a file of FILE_LIMIT, written as nerfstudio writes it, holds so many."""
_FAR = 1e30
"""No camera lies so far from the middle of the world: what lies between two of them could not be worked out."""
_MODELS = {"perspective": "pinhole", "fisheye": "fisheye"}
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
    """The JSON text."""
    path = film.path

    def pose(rotation: np.ndarray, position: np.ndarray) -> list[float]:
        matrix = np.eye(4)
        matrix[:3, :3], matrix[:3, 3] = rotation @ _FLIP, position
        return matrix.ravel().tolist()

    aspect = film.width / film.height
    frames = []
    for i in range(path.frames(film.fps)):
        camera = path.at(i / film.fps, film.width, film.height)
        fov = field_of_view(float(camera.K[1, 1]), film.height, path.model)
        frames.append({"camera_to_world": pose(camera.viewmat[:3, :3].T, camera.position), "fov": fov,
                       "aspect": aspect})
    return json.dumps({
        "default_fov": path.keys[0].fov if path.keys else 50.0,
        "default_transition_sec": SECONDS,
        "keyframes": [{"matrix": pose(rotations.matrix(key.rotation), key.position), "fov": key.fov, "aspect": aspect,
                       "override_transition_enabled": True, "override_transition_sec": key.seconds}
                      for key in path.keys + path.keys[-1:] * (path.held and not path.loop)],
        "camera_type": "fisheye" if path.model == "fisheye" else "perspective",
        "render_height": film.height, "render_width": film.width, "fps": film.fps, "seconds": path.duration,
        "is_cycle": path.loop, "smoothness_value": 0.0 if path.smooth else 1.0,
        "camera_path": frames,
    })


def read_path(file: Path) -> Film:
    """What a file holds. Raises CameraError, which names the file, when that is no camera path."""
    try:
        with open_regular(file) as f:
            text = f.read(FILE_LIMIT + 1)
    except OSError as e:
        raise CameraError(f"path: {file} cannot be read: {e.strerror or e}") from None
    if len(text) > FILE_LIMIT:
        raise CameraError(f"path: {file} has more than {FILE_LIMIT >> 20} MB; a camera path has less")
    try:
        return parse_path(text)
    except CameraError as e:
        raise CameraError(f"{file}: {e}") from None


def parse_path(text: str | bytes) -> Film:
    """The path in a JSON text; that of its key frames, if it has any, otherwise that of its frames, one by one.

    Raises CameraError for anything else.
    """
    try:
        check_json(len(text), "the numbers of a camera path")
        d = json.loads(text)
    except FileError as e:
        raise CameraError(f"path: {e}") from None
    except (ValueError, RecursionError) as e:
        raise CameraError(f"path: this is no JSON: {e!s:.200}") from None
    try:
        return _film(d)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, ArithmeticError) as e:
        raise CameraError(f"path: damaged, or not as nerfstudio writes it ({type(e).__name__}: {e!s:.200})") from e


def _film(d: Any) -> Film:
    if not isinstance(d, dict) or not (isinstance(d.get("keyframes"), list) or isinstance(d.get("camera_path"), list)):
        raise CameraError('path: neither "keyframes" nor "camera_path" is there, as nerfstudio writes them')
    kind = d.get("camera_type", "perspective")
    kind = kind.lower() if isinstance(kind, str) else ""
    if kind not in _MODELS:
        raise CameraError(f"path: camera_type is {kind!r:.40}; legal are {', '.join(_MODELS)}")
    width, height = (int(_number(d, name, default, 1, 16384)) for name, default in
                     (("render_width", 1920), ("render_height", 1080)))
    fps = _number(d, "fps", 30.0, 0.01, 1000)
    between = _number(d, "default_transition_sec", SECONDS, 0.001, 3600)
    loop = d.get("is_cycle") is True
    keys, frames = _listed(d, "keyframes"), _listed(d, "camera_path")
    if keys:
        if len(keys) > MOST_KEYS:
            raise CameraError(f"path: {len(keys)} key frames; {MOST_KEYS} are the most")
        path = CameraPath([_key(k, d, between) for k in keys], loop, model=_MODELS[kind])  # type: ignore[arg-type]
        path.smooth = _number(d, "smoothness_value", 0.0, -1e9, 1e9) < 1.0
        if not any("override_transition_sec" in k for k in keys):  # the older viewer says the whole alone
            path.stretch(_number(d, "seconds", path.duration or between, 0.001, 1e6))
        return Film(path, width, height, fps)
    if not 0 < len(frames) <= MOST_FRAMES:
        raise CameraError(f"path: {len(frames)} frames; legal are 1 to {MOST_FRAMES:,}")
    made = [_key(frame, d, 1 / fps, "camera_to_world") for frame in frames]
    return Film(CameraPath(made, False, False, _MODELS[kind], held=True), width, height, fps)  # type: ignore[arg-type]


def _listed(d: dict[str, Any], name: str) -> list[Any]:
    value = d.get(name)
    return value if isinstance(value, list) else []


def _key(d: Any, whole: dict[str, Any], between: float, name: str = "matrix") -> Key:
    if not isinstance(d, dict):
        raise CameraError(f"path: {d!r:.60} is no key frame")
    values, columns = d.get(name), False
    if isinstance(values, str):  # the older viewer's
        columns = True
        try:
            values = json.loads(values)
        except (ValueError, RecursionError):
            values = None
    try:
        matrix = np.asarray(values, np.float64).reshape(4, 4)
    except (TypeError, ValueError, OverflowError):
        raise CameraError(f'path: "{name}" is {values!r:.60}, not 16 numbers') from None
    if columns:
        matrix = matrix.T
    rotation = matrix[:3, :3]
    if not ((np.abs(matrix) < _FAR).all() and rotations.is_rotation(rotation)):
        raise CameraError(f'path: "{name}" holds no rotation: {rotation.tolist()!s:.100}')
    seconds = between
    if d.get("override_transition_enabled") is True:
        seconds = _number(d, "override_transition_sec", between, 0.001, 3600)
    fov = _number(d, "fov", _number(whole, "default_fov", 50.0, 0.1, 179.0), 0.1, 179.0)
    return Key(matrix[:3, 3].copy(), rotations.quaternion(rotation @ _FLIP), fov, seconds)


def _number(d: dict[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = d.get(name, default)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise CameraError(f'path: "{name}" is {value!r:.40}, not a number from {low:g} to {high:g}')
    return float(value)
