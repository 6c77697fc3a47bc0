"""COLMAP's sparse models, binary or text: cameras, poses, points.

Layout: https://colmap.github.io/format.html. Poses are world-to-camera in OpenCV axes already.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview.demo.bounds import read_bytes
from splatview.demo.errors import DemoError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_GROWTH = 12
"""Memory for each byte of a model: lines of text become lists of words and numbers."""
_MODELS = ((0, "SIMPLE_PINHOLE", 3), (1, "PINHOLE", 4), (2, "SIMPLE_RADIAL", 4), (3, "RADIAL", 5), (4, "OPENCV", 8),
           (5, "OPENCV_FISHEYE", 8), (6, "FULL_OPENCV", 12), (7, "FOV", 5), (8, "SIMPLE_RADIAL_FISHEYE", 4),
           (9, "RADIAL_FISHEYE", 5), (10, "THIN_PRISM_FISHEYE", 12))
"""(number, name, parameters)."""
_ONE_FOCAL = ("SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL")
_TWO_FOCALS = ("PINHOLE", "OPENCV", "FULL_OPENCV")


@dataclass(frozen=True)
class Camera:
    width: int
    height: int
    K: np.ndarray
    """(3, 3)."""
    distorted: bool
    """Has lens distortion that K does not describe."""


@dataclass(frozen=True)
class Model:
    names: list[str]
    """File names of the pictures."""
    viewmats: np.ndarray
    """(C, 4, 4)."""
    cameras: list[Camera]
    """One per picture."""
    points: np.ndarray
    """(N, 3) float32."""
    colors: np.ndarray
    """(N, 3) uint8."""


def read_model(folder: Path) -> Model:
    """The model in a folder with cameras, images and points3D, .bin or .txt. Raises DemoError."""
    readers: dict[str, type[_Binary] | type[_Text]] = {".bin": _Binary, ".txt": _Text}
    names = ("cameras", "images", "points3D")
    ending = next((e for e in readers if all((folder / (name + e)).is_file() for name in names)), None)
    if ending is None:
        raise DemoError(f"{folder}: needs cameras, images and points3D, each as .bin or each as .txt")
    reader, paths = readers[ending], [folder / (name + ending) for name in names]
    where = paths[0]
    try:
        cameras = {key: _camera(*rest) for key, rest in reader.cameras(where)}
        where = paths[1]
        images = sorted(reader.images(where), key=lambda image: image[3])
        where = paths[2]
        points, colors = reader.points(where)
    except OSError as e:
        raise DemoError(f"{where}: {e.strerror}") from None
    except (struct.error, ValueError, IndexError, OverflowError) as e:
        raise DemoError(f"{where}: damaged or cut short ({e!s:.200})") from None
    if missing := {camera for _, _, camera, _ in images} - set(cameras):
        raise DemoError(f"{paths[1]}: camera {min(missing)!s:.40} is not in {paths[0].name}")
    return Model([image[3] for image in images], np.array([_viewmat(q, t) for q, t, _, _ in images]).reshape(-1, 4, 4),
                 [cameras[camera] for _, _, camera, _ in images], points, colors)


def _camera(model: str, width: int, height: int, values: tuple[float, ...]) -> Camera:
    if model in _ONE_FOCAL:
        fx, (cx, cy), lens = values[0], values[1:3], values[3:]
        fy = fx
    elif model in _TWO_FOCALS:
        (fx, fy, cx, cy), lens = values[:4], values[4:]
    else:
        raise DemoError(f"COLMAP camera model {model:.40} is not one of {', '.join(_ONE_FOCAL + _TWO_FOCALS)}; "
                        "run `colmap image_undistorter` and use its output")
    if width <= 0 or height <= 0 or not (fx > 0 and fy > 0):
        raise DemoError(f"COLMAP camera of {width!s:.40}x{height!s:.40} pixels with focal lengths {fx}, {fy}: all must "
                        "be positive")
    return Camera(width, height, np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]]), any(abs(k) > 1e-6 for k in lens))


def _viewmat(quaternion: tuple[float, ...], translation: tuple[float, ...]) -> np.ndarray:
    """From a unit quaternion w x y z and a translation."""
    length = float(np.linalg.norm(quaternion))
    if not length > 0:
        raise DemoError(f"COLMAP image with quaternion {quaternion}: not a rotation")
    w, x, y, z = np.asarray(quaternion) / length
    viewmat = np.eye(4)
    viewmat[:3, :3] = [[1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                       [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                       [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]]
    viewmat[:3, 3] = translation
    return viewmat


_Lens = tuple[str, int, int, tuple[float, ...]]
"""Model, width, height, parameters."""


class _Binary:
    @staticmethod
    def cameras(path: Path) -> Iterator[tuple[int, _Lens]]:
        data, at = read_bytes(path, _GROWTH), 8
        by_number = {number: (name, n) for number, name, n in _MODELS}
        for _ in range(_count(data)):
            key, number, width, height = struct.unpack_from("<iiQQ", data, at)
            if number not in by_number:
                raise ValueError(f"camera model {number} is not 0 to {len(_MODELS) - 1}")
            name, n = by_number[number]
            yield key, (name, width, height, struct.unpack_from(f"<{n}d", data, at + 24))
            at += 24 + 8 * n

    @staticmethod
    def images(path: Path) -> Iterator[tuple[tuple[float, ...], tuple[float, ...], int, str]]:
        data, at = read_bytes(path, _GROWTH), 8
        for _ in range(_count(data)):
            _, *pose, camera = struct.unpack_from("<i7di", data, at)
            end = data.index(b"\0", at + 64)
            name = data[at + 64 : end].decode("utf-8")
            (observed,) = struct.unpack_from("<Q", data, end + 1)
            at = end + 9 + 24 * observed
            yield tuple(pose[:4]), tuple(pose[4:]), camera, name

    @staticmethod
    def points(path: Path) -> tuple[np.ndarray, np.ndarray]:
        data, at = read_bytes(path, _GROWTH), 8
        n = _count(data)
        if n * 51 > len(data):
            raise ValueError(f"{n} points do not fit {len(data)} bytes")
        points, colors = np.zeros((n, 3), np.float32), np.zeros((n, 3), np.uint8)
        for i in range(n):
            x, y, z, r, g, b, _, track = struct.unpack_from("<3d3BdQ", data, at + 8)
            points[i], colors[i] = (x, y, z), (r, g, b)
            at += 51 + 8 * track
        return points, colors


class _Text:
    @staticmethod
    def cameras(path: Path) -> Iterator[tuple[int, _Lens]]:
        needed = {name: n for _, name, n in _MODELS}
        for words in map(str.split, _lines(path)):
            if words:
                values = tuple(map(float, words[4:]))
                if len(values) != needed.get(words[1], len(values)):
                    raise ValueError(f"{words[1]} has {needed[words[1]]} parameters, not {len(values)}")
                yield int(words[0]), (words[1], int(words[2]), int(words[3]), values)

    @staticmethod
    def images(path: Path) -> Iterator[tuple[tuple[float, ...], tuple[float, ...], int, str]]:
        for line in _lines(path)[::2]:  # every second line lists observations, and may be empty
            words = line.split(maxsplit=9)
            if words:
                yield tuple(map(float, words[1:5])), tuple(map(float, words[5:8])), int(words[8]), words[9]

    @staticmethod
    def points(path: Path) -> tuple[np.ndarray, np.ndarray]:
        rows = np.array([line.split()[1:7] for line in _lines(path) if line], np.float64).reshape(-1, 6)
        return rows[:, :3].astype(np.float32), rows[:, 3:].astype(np.uint8)


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in read_bytes(path, _GROWTH).decode("utf-8").splitlines() if not line.startswith("#")]


def _count(data: bytes) -> int:
    (n,) = struct.unpack_from("<Q", data)
    if n > len(data):
        raise ValueError(f"announces {n} entries in {len(data)} bytes")
    return n
