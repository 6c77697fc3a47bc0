"""Read the outputs of networks that Ultralytics exports.

They are one table of boxes, and for masks a stack of prototypes:

YOLOv8, 9, 11, 12      (1, 4 + C + R, N): x y w h of the centre, C scores, and R more
end to end: 10, 26,    (1, N, 6 + R): x0 y0 x1 y1, score, class, and R more;
  and all with nms=True   overlapping boxes are gone

The R numbers are K keypoints (-pose), the weights of P prototypes (-seg), or an angle
(-obb), else R is 0. Rotated boxes are always x y w h of the centre.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import cv2
import numpy as np

from splatview.camera.detectors import DetectorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAX_COMPARED = 4096
"""Maximum number of boxes that are compared with one another: those with the highest
scores."""
_MAX_ROTATED = 1024
"""The same of rotated boxes, each pair of which takes some microseconds."""
_MAX_COORDINATE = 1e7
"""Maximum absolute coordinate of a box, pixels."""


@dataclass(frozen=True)
class OutputLayout:
    """The positions of boxes, scores and the rest in the outputs of one network."""

    table: int
    """Index of the output with the boxes."""
    width: int
    """Numbers of each box."""
    is_end_to_end: bool
    """The network itself removes overlapping boxes."""
    keypoints: tuple[int, int] = (0, 0)
    """Number of keypoints of each box, and numbers of each: x y, or x y confidence."""
    prototypes: int | None = None
    """Index of the output with the prototypes, (1, P, h, w)."""
    extras: int = 0
    """R, the numbers after scores and class."""
    classes: int = 0
    """Number of classes, by the shape of the table; 0 for unknown, end to end."""
    is_rotated: bool = False
    """The last number of each box is its angle in radians, from x to y."""

    def rows(self, outputs: Sequence[np.ndarray], threshold: float) -> np.ndarray:
        """Return the boxes with at least a threshold as score.

        Values that are not finite and boxes without extent are left out.

        Returns:
            (N, 6 + R), float32, x0 y0 x1 y1, score, class, rest.

        Raises:
            ValueError: the shape is not that of the network's first outputs.
        """
        output = outputs[self.table]
        axis = 2 if self.is_end_to_end else 1
        is_table = output.ndim == 3 and output.shape[0] == 1
        if not is_table or output.shape[axis] != self.width:
            raise ValueError(
                f"the network returned {output.shape}; it had {self.width} numbers for "
                "each box when it was tried"
            )
        with np.errstate(invalid="ignore", over="ignore"):
            if self.is_end_to_end:
                rows = self._end_to_end_rows(output[0], threshold)
            else:
                rows = self._scored_rows(output[0], threshold)
            rows = rows[_is_valid(rows)].copy()
        rows[:, 6:] = np.nan_to_num(rows[:, 6:], posinf=0.0, neginf=0.0)
        return rows

    def _end_to_end_rows(self, table: np.ndarray, threshold: float) -> np.ndarray:
        """Return the rows of a table (N, 6 + R)."""
        rows = table[table[:, 4] >= threshold].astype(np.float32)
        if self.is_rotated:
            half = rows[:, 2:4] / 2
            rows[:, 2:4] = rows[:, :2] + half
            rows[:, :2] -= half
        return rows

    def _scored_rows(self, table: np.ndarray, threshold: float) -> np.ndarray:
        """Return the rows of a table (4 + C + R, N), each with its best class."""
        # Most boxes are empty: one pass over the numbers in their order finds the
        # others.
        scores_end = self.width - self.extras
        has_score = table[4:scores_end].max(axis=0) >= threshold
        boxes = table[:, has_score].T.astype(np.float32, copy=False)
        scores = boxes[:, 4:scores_end]
        class_ids = scores.argmax(axis=1)[:, None]
        half = boxes[:, 2:4] / 2
        columns = [
            boxes[:, :2] - half,
            boxes[:, :2] + half,
            np.take_along_axis(scores, class_ids, axis=1),
            class_ids,
            boxes[:, scores_end:],
        ]
        return np.concatenate(columns, axis=1, dtype=np.float32)


def _is_valid(rows: np.ndarray) -> np.ndarray:
    """Return which rows are finite boxes with an extent and a class, (N,) bool."""
    is_finite = np.isfinite(rows[:, :6]).all(axis=1)
    is_near = (np.abs(rows[:, :4]) < _MAX_COORDINATE).all(axis=1)
    has_extent = (rows[:, 2:4] > rows[:, :2]).all(axis=1)
    has_class = (rows[:, 5] >= 0) & (rows[:, 5] < 2**24)
    return is_finite & is_near & has_extent & has_class


def layout_of(
    names: Sequence[str],
    outputs: Sequence[np.ndarray],
    metadata: Mapping[str, str],
    classes: int,
) -> OutputLayout:
    """Return the layout of a network's outputs for one picture.

    Args:
        names: the names of the outputs.
        outputs: for one picture.
        metadata: the metadata of the network.
        classes: how many the metadata names, 0 for none; the shape of the table counts
            where they disagree.

    Raises:
        DetectorError: the outputs are of another form.
    """
    layout = _find_layout(outputs, metadata, classes)
    if layout is not None:
        return layout
    listed = []
    for name, output in zip(names, outputs, strict=True):
        listed.append(f"{name} {output.dtype} {output.shape}")
    of_classes = f" for {classes} classes" if classes else ""
    raise DetectorError(
        f"the network gives {', '.join(listed) or 'nothing'}{of_classes}; expected "
        "Ultralytics' exports, (1, 4 + classes, N) or, end to end, (1, N, 6), with "
        "kpt_shape in the metadata of those with keypoints. For others give a function, "
        "module:function"
    )


def _find_layout(
    outputs: Sequence[np.ndarray], metadata: Mapping[str, str], classes: int
) -> OutputLayout | None:
    """Return the layout of outputs as for `layout_of`; None for another form."""
    table = _only_output(outputs, ndim=3)
    prototypes = _only_output(outputs, ndim=4)
    if table is None:
        return None
    task = metadata.get("task")
    is_rotated = task == "obb"
    keypoints = _keypoints_in(metadata)
    if task == "pose" and not keypoints[0]:
        return None
    extras = keypoints[0] * keypoints[1]
    if not extras and prototypes is not None:
        extras = outputs[prototypes].shape[1]
    if not extras and is_rotated:
        extras = 1
    _, row_count, column_count = outputs[table].shape
    class_rows = row_count - 4 - extras
    is_end_to_end = column_count == 6 + extras
    # A table of the other layout may have as many boxes as this one has numbers.
    if not _removes_overlaps(metadata) and class_rows == classes:
        is_end_to_end = False
    is_scored = class_rows > 0 and (class_rows == classes or class_rows < column_count)
    if not is_end_to_end and not is_scored:
        return None
    return OutputLayout(
        table=table,
        width=column_count if is_end_to_end else row_count,
        is_end_to_end=is_end_to_end,
        keypoints=keypoints,
        prototypes=prototypes,
        extras=extras,
        classes=0 if is_end_to_end else class_rows,
        is_rotated=is_rotated,
    )


def _only_output(outputs: Sequence[np.ndarray], ndim: int) -> int | None:
    """Return the index of the one output of this many dimensions, for one picture.

    None for none or several.
    """
    indices = []
    for index, output in enumerate(outputs):
        is_single = output.ndim == ndim and output.shape[0] == 1
        if is_single and output.dtype.kind == "f":
            indices.append(index)
    return indices[0] if len(indices) == 1 else None


def _keypoints_in(metadata: Mapping[str, str]) -> tuple[int, int]:
    """Return the number of keypoints and the numbers of each, such as "[17, 3]".

    (0, 0) for none.
    """
    text = metadata.get("kpt_shape", "")[:100]
    match = re.fullmatch(r"\s*[\[(]\s*(\d{1,4})\s*,\s*([23])\s*[\])]\s*", text)
    if match is None:
        return 0, 0
    return int(match[1]), int(match[2])


def _removes_overlaps(metadata: Mapping[str, str]) -> bool:
    """Return whether the network itself removes overlapping boxes, by its metadata."""
    has_nms = re.search(r"'nms': True", metadata.get("args", "")[:4096])
    return metadata.get("end2end") == "True" or has_nms is not None


def rotated_corners(rows: np.ndarray) -> np.ndarray:
    """Return the corners (N, 4, 2) of rotated boxes, in order around each.

    The last number of a row is the angle.
    """
    centre = (rows[:, :2] + rows[:, 2:4]) / 2
    extent = rows[:, 2:4] - rows[:, :2]
    cos = np.cos(rows[:, -1:])
    sin = np.sin(rows[:, -1:])
    half_width = np.concatenate([cos, sin], axis=1) * extent[:, :1] / 2
    half_height = np.concatenate([-sin, cos], axis=1) * extent[:, 1:] / 2
    signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
    corners = [centre + x * half_width + y * half_height for x, y in signs]
    return np.stack(corners, axis=1)


def highest_scores(rows: np.ndarray, limit: int) -> np.ndarray:
    """Return at most `limit` rows, those with the highest scores, the highest first.

    Args:
        rows: as of `OutputLayout.rows`.
    """
    return rows[np.argsort(-rows[:, 4], kind="stable")[:limit]]


def without_overlaps(rows: np.ndarray, overlap: float, limit: int) -> np.ndarray:
    """Return the best rows after non-maximum suppression, class by class.

    Args:
        rows: as of `OutputLayout.rows`.
        overlap: a box goes if its intersection over union with a remaining one of its
            class and a higher score exceeds this.
        limit: maximum number of rows.
    """
    rows = highest_scores(rows, _MAX_COMPARED)
    boxes = rows[:, :4].astype(np.float64)
    boxes[:, 2:] -= boxes[:, :2]
    indices = cv2.dnn.NMSBoxesBatched(
        boxes.tolist(),
        rows[:, 4].tolist(),
        rows[:, 5].astype(np.int32).tolist(),
        0.0,
        overlap,
    )
    return rows[np.asarray(indices, np.intp)[:limit]]


def without_rotated_overlaps(
    rows: np.ndarray, overlap: float, limit: int
) -> np.ndarray:
    """Return the best rows as `without_overlaps` does, of rotated boxes.

    The last number of a row is the angle.
    """
    rows = highest_scores(rows, _MAX_ROTATED)
    selected = []
    for class_id in np.unique(rows[:, 5]):
        of_class = np.flatnonzero(rows[:, 5] == class_id)
        boxes = []
        for x0, y0, x1, y1, *_, angle in rows[of_class].tolist():
            centre = (x0 + x1) / 2, (y0 + y1) / 2
            boxes.append((centre, (x1 - x0, y1 - y0), float(np.degrees(angle))))
        scores = rows[of_class, 4].tolist()
        indices = cv2.dnn.NMSBoxesRotated(boxes, scores, 0.0, overlap)
        selected.append(of_class[np.asarray(indices, np.intp).reshape(-1)])
    if not selected:
        return rows
    # The rows are in the order of their scores.
    return rows[np.sort(np.concatenate(selected))[:limit]]
