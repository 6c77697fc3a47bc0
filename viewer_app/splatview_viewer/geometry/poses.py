"""Poses of cameras as other programs write them.

They lead from camera to world, in OpenGL's axes (x right, y up, z backward).
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from splatview_viewer.core.errors import CameraError
from splatview_viewer.geometry import rotations

FAR = 1e30
"""No camera is so far from the middle of the world: positions between two of them could
not be worked out."""
LONGEST_TEXT = 4096
"""Characters of a matrix that is written as a text."""


def read_pose(values: Any, name: str) -> np.ndarray:
    """Read the matrix (4, 4) float64 that a value of JSON describes.

    The value is sixteen numbers, or the twelve of the upper rows, flat or nested, also as
    a text. nerfstudio writes them by rows; its first viewer wrote texts by columns, as
    three.js does. The place of the translation tells which, if it is not 0. The rotation
    is brought to length 1.

    Args:
        values: the value.
        name: the value's name in errors, such as 'path: "matrix"'.

    Raises:
        CameraError: the value is no such matrix.
    """
    pose = _read_matrix(values, name)
    # Scenes are scaled to fit, and their poses with them.
    with np.errstate(all="ignore"):
        lengths = np.linalg.norm(pose[:3, :3], axis=0)
    if ((lengths > 1e-6) & (lengths < 1e6)).all():
        pose[:3, :3] /= lengths
    is_near = (np.abs(pose) < FAR).all()
    if not (is_near and rotations.is_rotation(pose[:3, :3])):
        raise CameraError(
            f"{name} holds no rotation: {pose[:3, :3].tolist()!s:.100}; its upper left "
            "3x3 is one, and all numbers are finite"
        )
    return pose


def _read_matrix(values: Any, name: str) -> np.ndarray:
    """Return sixteen or twelve numbers as a matrix (4, 4) that ends in 0 0 0 1."""
    try:
        entries = np.ravel(np.asarray(_parse_text(values), np.float64))
    except (TypeError, ValueError, OverflowError, RecursionError):
        entries = np.zeros(0)
    if entries.size not in (12, 16):
        raise CameraError(f"{name} is {values!r:.60}, not 16 numbers, nor 12")
    pose = np.eye(4)
    pose[: entries.size // 4] = entries.reshape(-1, 4)
    has_last_row = bool(pose[3, :3].any())
    has_last_column = bool(pose[:3, 3].any())
    is_by_columns = isinstance(values, str) and entries.size == 16
    if has_last_row != has_last_column:
        is_by_columns = has_last_row
    if is_by_columns:
        pose = pose.T
    pose[3] = 0, 0, 0, 1
    return pose


def _parse_text(values: Any) -> Any:
    """Return the numbers of a text; other values as they are.

    Raises:
        ValueError: the text is too long, or holds something else.
        RecursionError: the text is JSON of too many levels.
    """
    if not isinstance(values, str):
        return values
    if len(values) > LONGEST_TEXT:
        raise ValueError("the text is too long for a matrix")
    if values.lstrip().startswith("["):
        return json.loads(values)
    numerals = re.split(r"[\s,;]+", values.strip())
    return list(map(float, numerals))
