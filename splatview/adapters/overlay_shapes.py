"""Points, polylines and notes of an overlay, from what callers give to tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview.adapters.value_texts import short_repr, type_text
from splatview.adapters.values import floats, integers, texts

if TYPE_CHECKING:
    Tensors = dict[str, torch.Tensor]

COCO_SKELETON = (
    (15, 13),
    (13, 11),
    (16, 14),
    (14, 12),
    (11, 12),
    (5, 11),
    (6, 12),
    (5, 6),
    (5, 7),
    (6, 8),
    (7, 9),
    (8, 10),
    (1, 2),
    (0, 1),
    (0, 2),
    (1, 3),
    (2, 4),
    (3, 5),
    (4, 6),
)
"""Pairs of COCO's 17 points of a person that are joined."""
_COCO_POINTS = 17


def point_tensors(value: Any, skeleton: Any, classes: Any) -> Tensors:
    """Return "points" (M, K, 3), with "skeleton" and "point_classes" if they are given."""
    if value is None:
        if skeleton is not None:
            raise ValueError("skeleton without points")
        if classes is not None:
            raise ValueError("point_classes without points")
        return {}
    points = floats(value, "points", empty=(0, 0, 3))
    if points.ndim == 2:
        points = points[None]
    if points.ndim != 3 or points.shape[2] not in (2, 3):
        raise ValueError(
            f"points have shape {tuple(points.shape)}; expected (K, 2|3) or "
            "(M, K, 2|3): x, y and, if you like, a confidence or visibility, over 0: seen"
        )
    if points.shape[2] == 2:
        points = torch.nn.functional.pad(points, (0, 1), value=1.0)
    tensors = {"points": points}
    if skeleton is not None and len(points):
        tensors["skeleton"] = _skeleton(skeleton, points.shape[1])
    if classes is not None:
        tensors["point_classes"] = _flat_integers(classes, "point_classes")
    return tensors


def _skeleton(value: Any, group_size: int) -> torch.Tensor:
    """Return pairs of points that are joined, (P, 2), from 0 to group_size - 1."""
    if isinstance(value, str):
        if value != "coco" or group_size != _COCO_POINTS:
            raise ValueError(
                f"skeleton is {short_repr(value)}, for groups of {group_size} points; "
                f"expected 'coco', for {_COCO_POINTS}, or pairs of point numbers"
            )
        value = COCO_SKELETON
    pairs = integers(value, "skeleton", 0, empty=(0, 2))
    if pairs.device.type == "cpu" and pairs.numel():
        last_point = int(pairs.max())
        if last_point >= group_size:
            raise ValueError(
                f"skeleton names point {last_point}; expected 0 to {group_size - 1}"
            )
    return pairs


def line_tensors(value: Any, classes: Any) -> Tensors:
    """Return "lines" (V, 2) with "line_ends" (L,), and "line_classes" if given."""
    if value is None:
        if classes is not None:
            raise ValueError("line_classes without lines")
        return {}
    lines = _polylines(value)
    for i, line in enumerate(lines):
        is_polyline = line.ndim == 2 and line.shape[1] == 2
        if not is_polyline or line.device != lines[0].device:
            raise ValueError(
                f"lines[{i}] has shape {tuple(line.shape)} on {line.device}; expected "
                "(V, 2), all on one device"
            )
    ends = np.cumsum([len(line) for line in lines])
    tensors = {
        "lines": torch.cat(lines) if lines else torch.empty(0, 2),
        "line_ends": torch.tensor(ends, dtype=torch.int32),
    }
    if classes is not None:
        tensors["line_classes"] = _flat_integers(classes, "line_classes")
    return tensors


def _polylines(value: Any) -> list[torch.Tensor]:
    """Return polylines one by one, of an array, a list of them, or one as a list."""
    if isinstance(value, (list, tuple)) and len(value) and not _is_point(value[0]):
        return [floats(line, f"lines[{i}]") for i, line in enumerate(value)]
    batch = floats(value, "lines", empty=(0, 0, 2))
    if batch.ndim == 2:
        batch = batch[None]
    if batch.ndim != 3:
        raise ValueError(
            f"lines have shape {tuple(batch.shape)}; expected (V, 2), (L, V, 2) or "
            "lists of (V, 2)"
        )
    return list(batch)


def _is_point(value: Any) -> bool:
    """Return whether a value is a point as a list of numbers."""
    if not isinstance(value, (list, tuple)) or not value:
        return False
    return not hasattr(value[0], "__len__")


def note_tensors(value: Any) -> Tensors:
    """Return "notes_at" (T, 2) in pixels, with the texts of "notes"."""
    if value is None:
        return {}
    if isinstance(value, str):
        value = [(0.0, 0.0, value)]
    if not isinstance(value, (list, tuple)):
        raise TypeError(
            f"notes is {type_text(value)}, not a text or a list of (x, y, text)"
        )
    positions: list[tuple[float, float]] = []
    notes: list[Any] = []
    for i, note in enumerate(value):
        try:
            x, y, text = note
            positions.append((float(x), float(y)))
        except (TypeError, ValueError):
            raise ValueError(
                f"notes[{i}] is {short_repr(note)}, not (x, y, text)"
            ) from None
        notes.append(text)
    return {
        "notes_at": torch.tensor(positions, dtype=torch.float32).reshape(-1, 2),
        "notes": texts(notes, "notes"),
    }


def _flat_integers(value: Any, name: str) -> torch.Tensor:
    """Return (N,) int32 of N numbers, which may also be (N, 1) or one number."""
    classes = integers(value, name)
    if classes.ndim == 2 and classes.shape[1] == 1:
        return classes[:, 0]
    if classes.ndim == 0:
        return classes.reshape(1)
    return classes
