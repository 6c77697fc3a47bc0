"""COLMAP's sparse models, binary: cameras, poses, points.

Layout: https://colmap.github.io/format.html. Poses are world-to-camera in OpenCV axes already.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from gsplat.utils import normalized_quat_to_rotmat

from splatview.demo import DemoError
from splatview.demo.files import read_bytes
from splatview.demo.views import View

if TYPE_CHECKING:
    from pathlib import Path

_MODELS = (("SIMPLE_PINHOLE", 3), ("PINHOLE", 4), ("SIMPLE_RADIAL", 4), ("RADIAL", 5), ("OPENCV", 8),
           ("OPENCV_FISHEYE", 8), ("FULL_OPENCV", 12), ("FOV", 5), ("SIMPLE_RADIAL_FISHEYE", 4), ("RADIAL_FISHEYE", 5),
           ("THIN_PRISM_FISHEYE", 12))
"""(name, parameters), by number."""
_ONE_FOCAL = ("SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL")
_TWO_FOCALS = ("PINHOLE", "OPENCV", "FULL_OPENCV")
_GROWTH = 12
"""Memory for each byte of a model."""


def read_model(sparse: Path, pictures: Path) -> tuple[list[View], np.ndarray, np.ndarray]:
    """Read the model in a folder with cameras.bin, images.bin and points3D.bin.

    Returns views by name, without pictures, points (N, 3) float32 and colours (N, 3) uint8. Raises DemoError.
    """
    path = sparse / "cameras.bin"
    try:
        cameras = _cameras(read_bytes(path, _GROWTH))
        path = sparse / "images.bin"
        views = _images(read_bytes(path, _GROWTH), cameras, pictures)
        path = sparse / "points3D.bin"
        points, colors = _points(read_bytes(path, _GROWTH))
    except (struct.error, ValueError) as e:
        raise DemoError(f"{path}: damaged or cut short ({e!s:.200})") from None
    return sorted(views, key=lambda view: view.path), points, colors


def _count(data: bytes, least: int) -> int:
    """The number of entries, each of at least so many bytes."""
    (n,) = struct.unpack_from("<Q", data)
    if n * least > len(data):
        raise ValueError(f"announces {n} entries in {len(data)} bytes")
    return n


def _cameras(data: bytes) -> dict[int, View]:
    """Return the cameras by their numbers, at the origin of the world."""
    at, found = 8, {}
    for _ in range(_count(data, 48)):
        key, number, width, height = struct.unpack_from("<iiQQ", data, at)
        if not 0 <= number < len(_MODELS):
            raise ValueError(f"camera model {number} is not 0 to {len(_MODELS) - 1}")
        model, n = _MODELS[number]
        values = struct.unpack_from(f"<{n}d", data, at + 24)
        at += 24 + 8 * n
        if model in _ONE_FOCAL:
            fx, fy, cx, cy, *lens = values[0], *values
        elif model in _TWO_FOCALS:
            fx, fy, cx, cy, *lens = values
        else:
            raise DemoError(f"COLMAP camera model {model} is not one of {', '.join(_ONE_FOCAL + _TWO_FOCALS)}; "
                            "run `colmap image_undistorter` and use its output")
        if width <= 0 or height <= 0 or not (fx > 0 and fy > 0):
            raise ValueError(f"camera of {width}x{height} pixels with focal lengths {fx}, {fy}: all must be positive")
        K = torch.tensor([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
        found[key] = View(torch.eye(4), K, width, height, distorted=any(abs(k) > 1e-6 for k in lens))
    return found


def _images(data: bytes, cameras: dict[int, View], pictures: Path) -> list[View]:
    at, found = 8, []
    for _ in range(_count(data, 73)):
        _, *pose, camera = struct.unpack_from("<i7di", data, at)
        end = data.index(b"\0", at + 64)
        name = data[at + 64 : end].decode("utf-8")
        (observed,) = struct.unpack_from("<Q", data, end + 1)
        at = end + 9 + 24 * observed
        if camera not in cameras:
            raise ValueError(f"camera {camera} is not in cameras.bin")
        quaternion = torch.tensor(pose[:4], dtype=torch.float64)
        if not quaternion.norm() > 0:
            raise ValueError(f"quaternion {pose[:4]} is not a rotation")
        viewmat = torch.eye(4)
        viewmat[:3, :3] = normalized_quat_to_rotmat(quaternion / quaternion.norm())
        viewmat[:3, 3] = torch.tensor(pose[4:])
        found.append(replace(cameras[camera], viewmat=viewmat, path=pictures / name))
    return found


def _points(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    at, n = 8, _count(data, 51)
    points, colors = np.zeros((n, 3), np.float32), np.zeros((n, 3), np.uint8)
    for i in range(n):
        x, y, z, r, g, b, _, track = struct.unpack_from("<3d3BdQ", data, at + 8)
        points[i], colors[i] = (x, y, z), (r, g, b)
        at += 51 + 8 * track
    return points, colors
