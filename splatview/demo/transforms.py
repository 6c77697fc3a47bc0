"""Read nerfstudio's `transforms.json`, of which Blender's NeRF sets are one.

docs.nerf.studio/quickstart/data_conventions.html
"""

from __future__ import annotations

import json
import math
from collections import ChainMap
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

from splatview.demo import DemoError
from splatview.demo.files import open_picture, read_bytes
from splatview.demo.pictures import LeftOutViews, PictureFinder, ViewError
from splatview.demo.point_cloud import read_points
from splatview.demo.views import DatasetView, UnreadCapture
from splatview_ipc.system.pictures import stored_size

_JSON_GROWTH = 40
"""Bytes of Python objects for each byte of JSON, at most."""
_REQUIRED = {"file_path", "transform_matrix"}
_NUMBER_ERRORS = (ValueError, KeyError, TypeError, OverflowError)
"""Errors for numbers of a frame that are none."""


def read_transforms(path: Path) -> UnreadCapture:
    """Read a transforms.json. Raises DemoError."""
    left_out = LeftOutViews()
    try:
        # `json` finds out itself about a byte order mark, and UTF-16.
        content = _without_nulls(json.loads(read_bytes(path, _JSON_GROWTH)))
        frames = _usable_frames(content)
        left_out.nameless = len(content["frames"]) - len(frames)
        views = _read_views(path, content, frames, left_out)
    except (*_NUMBER_ERRORS, AttributeError, RecursionError) as error:
        raise DemoError(
            f"{path}: {type(error).__name__}: {error!s:.200}; expected a list of frames, "
            "each with file_path and a 4x4 transform_matrix, and fl_x or camera_angle_x, "
            "there or for all frames"
        ) from None
    points = np.zeros((0, 3), np.float32)
    colors = np.zeros((0, 3), np.uint8)
    if content.get("ply_file_path"):
        name = str(content["ply_file_path"])
        points_path = path.parent / name
        if not points_path.exists():
            points_path = path.parent / name.replace("\\", "/")
        points, colors = read_points(points_path)
    return UnreadCapture(views, points, colors, left_out)


def _without_nulls(values: dict[str, Any]) -> dict[str, Any]:
    """Return an object of JSON without its nulls, which are as good as left out."""
    return {name: value for name, value in values.items() if value is not None}


def _usable_frames(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the frames with a picture and a pose, by the names of their pictures."""
    frames = []
    for entry in content["frames"]:
        if not isinstance(entry, dict):
            continue
        frame = _without_nulls(entry)
        if frame.keys() >= _REQUIRED and isinstance(frame["file_path"], str):
            frames.append(frame)
    if not frames:
        raise ValueError("no frame has a picture and a pose")
    frames.sort(key=lambda frame: frame["file_path"])
    return frames


def _read_views(
    path: Path,
    content: dict[str, Any],
    frames: list[dict[str, Any]],
    left_out: LeftOutViews,
) -> list[DatasetView]:
    """Return the views of frames; one that cannot be used is added to `left_out`.

    Raises the first error of a camera if no view is left.
    """
    finder = PictureFinder(path.parent)
    views = []
    first_error: Exception | None = None
    for frame in frames:
        # Values for all frames are not copied.
        values = ChainMap(frame, content)
        name = PurePosixPath(frame["file_path"].replace("\\", "/")).name
        try:
            views.append(_read_view(path, values, finder))
        except ViewError as error:
            left_out.add(name, error)
        except _NUMBER_ERRORS as error:
            fault = f"the camera of {name}: {type(error).__name__}: {error!s:.200}"
            left_out.add(name, ViewError(fault))
            first_error = first_error or error
    if first_error is not None and not views and not left_out.missing:
        raise first_error
    return views


def _read_view(
    path: Path, values: ChainMap[str, Any], finder: PictureFinder
) -> DatasetView:
    """Return the view of one frame.

    Raises:
        ViewError: the picture is missing.
        DemoError: the camera is of an unknown model.
        ValueError, KeyError, TypeError, OverflowError: numbers are none, or not legal.
    """
    model = values.get("camera_model", "OPENCV")
    if model not in ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE"):
        raise DemoError(
            f"{path}: camera_model {model!r:.60} is not 'OPENCV', 'PINHOLE' or "
            "'SIMPLE_PINHOLE'"
        )
    picture = finder.find(values["file_path"])
    pose = np.array(values["transform_matrix"], np.float64)
    # OpenGL's camera looks along -z with y up.
    camera_to_world = np.vstack([pose[:3], [0, 0, 0, 1]]) * [1, -1, -1, 1]
    viewmat = np.linalg.inv(camera_to_world)
    if "w" in values and "h" in values:
        width = int(values["w"])
        height = int(values["h"])
    else:
        with open_picture(picture.path) as opened:
            width, height = (side * picture.reduced_by for side in stored_size(opened))
    fx, fy = _focal_lengths(values, width, height)
    if width <= 0 or height <= 0 or not (fx > 0 and fy > 0):
        raise ValueError(
            f"size {width}x{height} and focal lengths {fx}, {fy} must be positive"
        )
    cx = float(values.get("cx", width / 2))
    cy = float(values.get("cy", height / 2))
    return DatasetView(
        viewmat=torch.from_numpy(viewmat).float(),
        K=torch.tensor([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]),
        width=width,
        height=height,
        path=picture.path,
        distorted=any(values.get(k) for k in ("k1", "k2", "k3", "p1", "p2")),
    )


def _focal_lengths(
    values: ChainMap[str, Any], width: int, height: int
) -> tuple[float, float]:
    """Return the focal lengths in pixels.

    Those of instant-ngp's files are told by the angles of both sides.
    """
    fx = _focal_length(values, "x", width)
    has_own_fy = "fl_y" in values or "camera_angle_y" in values
    fy = _focal_length(values, "y", height) if has_own_fy else fx
    return fx, fy


def _focal_length(values: ChainMap[str, Any], axis: str, side: int) -> float:
    """Return the focal length along an axis in pixels; `side`: pixels along it."""
    if f"fl_{axis}" in values:
        return float(values[f"fl_{axis}"])
    angle = float(values[f"camera_angle_{axis}"])
    return side / 2 / math.tan(angle / 2)
