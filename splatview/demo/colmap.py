"""Read COLMAP's binary models (https://colmap.github.io/format.html)."""

from __future__ import annotations

import math
import os
import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from gsplat.utils import normalized_quat_to_rotmat

from splatview.demo import DemoError
from splatview.demo.files import read_bytes
from splatview.demo.pictures import LeftOutViews, PictureFinder, ViewError
from splatview.demo.views import DatasetView, UnreadCapture

if TYPE_CHECKING:
    from pathlib import Path

_CAMERA_MODELS = {
    0: ("SIMPLE_PINHOLE", 3),
    1: ("PINHOLE", 4),
    2: ("SIMPLE_RADIAL", 4),
    3: ("RADIAL", 5),
    4: ("OPENCV", 8),
    6: ("FULL_OPENCV", 12),
}
"""COLMAP's camera models that are a pinhole and a lens: name and number of
parameters."""
_ONE_FOCAL = ("SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL")
_GROWTH = 12
"""Memory for each byte of a model."""
_MIN_CAMERA_BYTES = 48
_MIN_IMAGE_BYTES = 73
_MIN_POINT_BYTES = 51
_POINT2D_BYTES = 24
_TRACK_BYTES = 8
_MIN_DISTORTION = 1e-6


def best_model(root: Path) -> tuple[Path | None, list[str]]:
    """Return the folder of the model that has the most images.

    Looked at are the models that COLMAP numbered below a folder, or the folder itself.

    Returns:
        The folder, None for none; and notes of the choice.
    """
    numbered = []
    if root.is_dir():
        folders = [entry for entry in root.iterdir() if entry.name.isdecimal()]
        folders.sort(key=lambda folder: int(folder.name))
        numbered = [folder for folder in folders if (folder / "cameras.bin").exists()]
    if not numbered:
        return (root if (root / "cameras.bin").exists() else None), []
    best_folder = max(numbered, key=_image_count)
    if len(numbered) == 1:
        return best_folder, []
    note = (
        f"{len(numbered)} models in {root.name}: {root.name}/{best_folder.name} is used, which "
        "has the most images"
    )
    return best_folder, [note]


def _image_count(sparse: Path) -> int:
    """Return the number of images that a model announces; 0 for one without a file."""
    try:
        with (sparse / "images.bin").open("rb") as file:
            return int.from_bytes(file.read(8), "little")
    except OSError:
        return 0


def read_model(sparse: Path, source: Path) -> UnreadCapture:
    """Read a model of a data set.

    Its poses are world-to-camera in OpenCV axes already.

    Args:
        sparse: folder with cameras.bin, images.bin and points3D.bin.
        source: folder of the data set, with the pictures.

    Raises:
        DemoError: a file is missing, damaged or of an unknown camera model.
    """
    path = sparse / "cameras.bin"
    try:
        cameras = _read_cameras(read_bytes(path, _GROWTH))
        path = sparse / "images.bin"
        named_views = _read_images(read_bytes(path, _GROWTH), cameras)
        path = sparse / "points3D.bin"
        points, colors = _read_points(read_bytes(path, _GROWTH))
    except (struct.error, ValueError) as error:
        raise DemoError(f"{path}: damaged or cut short ({error!s:.200})") from None
    named_views.sort(key=lambda pair: pair[0])
    finder = PictureFinder(source)
    left_out = LeftOutViews()
    views = []
    for name, view in named_views:
        try:
            if isinstance(view, ViewError):
                raise view
            views.append(replace(view, path=finder.find(f"images/{name}").path))
        except ViewError as error:
            left_out.add(name, error)
    return UnreadCapture(views, points, colors, left_out)


def _read_cameras(data: bytes) -> dict[int, DatasetView]:
    """Return the cameras of a cameras.bin by their ids, at the origin of the world."""
    offset = 8
    cameras = {}
    for _ in range(_entry_count(data, _MIN_CAMERA_BYTES)):
        camera_id, model_id, width, height = struct.unpack_from("<iiQQ", data, offset)
        if model_id not in _CAMERA_MODELS:
            legal = ", ".join(name for name, _ in _CAMERA_MODELS.values())
            raise DemoError(
                f"COLMAP camera model {model_id} is not one of {legal}; run `colmap "
                "image_undistorter` and use its output"
            )
        model, parameter_count = _CAMERA_MODELS[model_id]
        parameters = struct.unpack_from(f"<{parameter_count}d", data, offset + 24)
        offset += 24 + 8 * parameter_count
        if model in _ONE_FOCAL:
            fx, cx, cy, *lens = parameters
            fy = fx
        else:
            fx, fy, cx, cy, *lens = parameters
        if width <= 0 or height <= 0 or not (fx > 0 and fy > 0):
            raise ValueError(
                f"camera of {width}x{height} pixels with focal lengths {fx}, {fy}: all "
                "must be positive"
            )
        cameras[camera_id] = DatasetView(
            viewmat=torch.eye(4),
            K=torch.tensor([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]),
            width=width,
            height=height,
            distorted=any(abs(k) > _MIN_DISTORTION for k in lens),
        )
    return cameras


def _read_images(
    data: bytes, cameras: dict[int, DatasetView]
) -> list[tuple[str, DatasetView | ViewError]]:
    """Return the names of the pictures in an images.bin, with their views.

    In place of a view that cannot be used stands the reason.
    """
    offset = 8
    views: list[tuple[str, DatasetView | ViewError]] = []
    for _ in range(_entry_count(data, _MIN_IMAGE_BYTES)):
        _, *pose, camera_id = struct.unpack_from("<i7di", data, offset)
        name_end = data.index(b"\0", offset + 64)
        # COLMAP writes names as the file system has them.
        name = os.fsdecode(data[offset + 64 : name_end])
        (point_count,) = struct.unpack_from("<Q", data, name_end + 1)
        offset = name_end + 9 + _POINT2D_BYTES * point_count
        if camera_id in cameras:
            views.append((name, _view_at(pose, name, cameras[camera_id])))
        else:
            fault = f"{name}: its camera {camera_id} is not in cameras.bin"
            views.append((name, ViewError(fault)))
    return views


def _view_at(
    pose: list[float], name: str, camera: DatasetView
) -> DatasetView | ViewError:
    """Return the view of a camera at a pose, or the reason why there is none.

    Args:
        pose: quaternion w x y z of the rotation from world to camera, then translation.
        name: the name of the picture.
        camera: at the origin of the world.
    """
    quaternion = torch.tensor(pose[:4], dtype=torch.float64)
    if not 0 < quaternion.norm() < math.inf:
        return ViewError(f"{name}: its quaternion {pose[:4]} is not a rotation")
    viewmat = torch.eye(4)
    viewmat[:3, :3] = normalized_quat_to_rotmat(quaternion / quaternion.norm())
    viewmat[:3, 3] = torch.tensor(pose[4:])
    return replace(camera, viewmat=viewmat)


def _read_points(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return the points (N, 3) of a points3D.bin, and colours (N, 3) of 0 to 255."""
    offset = 8
    count = _entry_count(data, _MIN_POINT_BYTES)
    points = np.zeros((count, 3), np.float32)
    colors = np.zeros((count, 3), np.uint8)
    for index in range(count):
        x, y, z, r, g, b, _, track = struct.unpack_from("<3d3BdQ", data, offset + 8)
        points[index] = x, y, z
        colors[index] = r, g, b
        offset += _MIN_POINT_BYTES + _TRACK_BYTES * track
    return points, colors


def _entry_count(data: bytes, min_bytes: int) -> int:
    """Return the number of entries of a file, each of at least this many bytes."""
    (count,) = struct.unpack_from("<Q", data)
    if count * min_bytes > len(data):
        raise ValueError(f"announces {count} entries in {len(data)} bytes")
    return count
