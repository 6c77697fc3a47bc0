"""The outputs of networks that Ultralytics exports: one table of boxes, and for masks a stack of prototypes.

YOLOv8, 9, 11, 12      (1, 4 + C + R, N): x y w h of the centre, C scores, and R more numbers
end to end: 10, 26,    (1, N, 6 + R): x0 y0 x1 y1, score, class, and R more numbers; overlapping boxes are gone
  and all with nms=True

The R numbers are K keypoints (-pose), the weights of P prototypes (-seg), or an angle (-obb), else R
is 0. Turned boxes are always x y w h of the centre.
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

_MOST_COMPARED = 4096
"""Maximum number of boxes that are compared with one another: those with the highest scores."""
_MOST_TURNED = 1024
"""The same of turned boxes, each pair of which takes some microseconds."""
_MOST_PIXELS = 1e7
"""Maximum absolute coordinate of a box, pixels."""


@dataclass(frozen=True)
class OutputLayout:
    """The positions of boxes, scores and the rest in the outputs of one network."""

    table: int
    """Index of the output with the boxes."""
    width: int
    """Numbers of each box."""
    chosen: bool
    """The network itself removes overlapping boxes: the layout is end to end."""
    points: tuple[int, int] = (0, 0)
    """Number of keypoints of each box, and numbers of each: x y, or x y confidence."""
    prototypes: int | None = None
    """Index of the output with the prototypes, (1, P, h, w)."""
    more: int = 0
    """R, the numbers behind scores and class."""
    classes: int = 0
    """Number of classes, by the shape of the table; 0 for unknown, end to end."""
    turned: bool = False
    """The last number of each box is its angle in radians, from x to y."""

    def rows(self, outputs: Sequence[np.ndarray], threshold: float) -> np.ndarray:
        """Return the boxes with at least `threshold`: (N, 6 + R), float32, x0 y0 x1 y1, score, class, rest.

        Values that are not finite and boxes without extent are left out. Raises ValueError for another shape than
        that of the network's first outputs.
        """
        output = outputs[self.table]
        if (
            output.ndim != 3
            or output.shape[0] != 1
            or output.shape[2 if self.chosen else 1] != self.width
        ):
            raise ValueError(
                f"the network returned {output.shape}; it had {self.width} numbers for each box when it "
                "was tried"
            )
        table = output[0]
        with np.errstate(invalid="ignore", over="ignore"):
            if self.chosen:
                rows = table[table[:, 4] >= threshold].astype(np.float32)
                if self.turned:
                    half = rows[:, 2:4] / 2
                    rows[:, 2:4] = rows[:, :2] + half
                    rows[:, :2] -= half
            else:  # most boxes are empty: one pass over the numbers in their order finds the others
                scores = table[4 : self.width - self.more]
                full = table[:, scores.max(axis=0) >= threshold].T.astype(
                    np.float32, copy=False
                )
                scores = full[:, 4 : self.width - self.more]
                half = full[:, 2:4] / 2
                best = scores.argmax(axis=1)[:, None]
                best_scores = np.take_along_axis(scores, best, axis=1)
                rows = np.concatenate(
                    [
                        full[:, :2] - half,
                        full[:, :2] + half,
                        best_scores,
                        best,
                        full[:, self.width - self.more :],
                    ],
                    axis=1,
                    dtype=np.float32,
                )
            sound = np.isfinite(rows[:, :6]).all(axis=1) & (
                np.abs(rows[:, :4]) < _MOST_PIXELS
            ).all(axis=1)
            sound &= (
                (rows[:, 2:4] > rows[:, :2]).all(axis=1)
                & (rows[:, 5] >= 0)
                & (rows[:, 5] < 2**24)
            )
        rows = rows[sound].copy()
        rows[:, 6:] = np.nan_to_num(rows[:, 6:], posinf=0.0, neginf=0.0)
        return rows


def layout_of(
    names: Sequence[str],
    outputs: Sequence[np.ndarray],
    metadata: Mapping[str, str],
    classes: int,
) -> OutputLayout:
    """Return the layout of a network's outputs for one picture.

    classes: how many the metadata names, 0 for none; the shape of the table counts where they disagree.
    Raises DetectorError.
    """
    table = _only(outputs, 3)
    prototypes = _only(outputs, 4)
    layout = None
    if table is not None:
        points = _keypoints_in(metadata)
        is_turned = metadata.get("task") == "obb"
        more = points[0] * points[1]
        if not more and prototypes is not None:
            more = outputs[prototypes].shape[1]
        if not more and is_turned:
            more = 1
        lacks_points = metadata.get("task") == "pose" and not points[0]
        _, down, across = outputs[table].shape
        shaped = down - 4 - more
        chosen = across == 6 + more and shaped != classes
        if _removes_overlaps(metadata):
            # Also with as many boxes as the other layout has rows.
            chosen = across == 6 + more
        is_table = shaped > 0 and (shaped == classes or shaped < across)
        if (chosen or is_table) and not lacks_points:
            layout = OutputLayout(
                table=table,
                width=across if chosen else down,
                chosen=chosen,
                points=points,
                prototypes=prototypes,
                more=more,
                classes=0 if chosen else shaped,
                turned=is_turned,
            )
    if layout is not None:
        return layout
    listed = []
    for name, output in zip(names, outputs, strict=True):
        listed.append(f"{name} {output.dtype} {output.shape}")
    of_classes = f" for {classes} classes" if classes else ""
    raise DetectorError(
        f"the network gives {', '.join(listed) or 'nothing'}{of_classes}; legal are Ultralytics' "
        "exports, (1, 4 + classes, N) or, end to end, (1, N, 6), with kpt_shape in the metadata of "
        "those with keypoints. For others give a function, module:function"
    )


def _only(outputs: Sequence[np.ndarray], ndim: int) -> int | None:
    """Return the index of the one output of so many dimensions, for one picture; None for none or several."""
    indices = [
        i
        for i, output in enumerate(outputs)
        if output.ndim == ndim and output.shape[0] == 1 and output.dtype.kind == "f"
    ]
    return indices[0] if len(indices) == 1 else None


def _keypoints_in(metadata: Mapping[str, str]) -> tuple[int, int]:
    """Return the number of keypoints and the numbers of each, such as "[17, 3]"; (0, 0) for none."""
    written = metadata.get("kpt_shape", "")[:100]
    match = re.fullmatch(r"\s*[\[(]\s*(\d{1,4})\s*,\s*([23])\s*[\])]\s*", written)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _removes_overlaps(metadata: Mapping[str, str]) -> bool:
    """Return whether the metadata says that the network itself removes overlapping boxes."""
    has_nms = re.search(r"'nms': True", metadata.get("args", "")[:4096])
    return metadata.get("end2end") == "True" or has_nms is not None


def turned_corners(rows: np.ndarray) -> np.ndarray:
    """Return the corners (N, 4, 2) of turned boxes, whose last number is the angle, in order around each."""
    middle = (rows[:, :2] + rows[:, 2:4]) / 2
    extent = rows[:, 2:4] - rows[:, :2]
    cos = np.cos(rows[:, -1:])
    sin = np.sin(rows[:, -1:])
    across = np.concatenate([cos, sin], axis=1) * extent[:, :1] / 2
    down = np.concatenate([-sin, cos], axis=1) * extent[:, 1:] / 2
    signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
    corners = [middle + x * across + y * down for x, y in signs]
    return np.stack(corners, axis=1)


def best(rows: np.ndarray, most: int) -> np.ndarray:
    """Return at most `most` rows (as of `Layout.rows`), those with the highest scores, the highest first."""
    return rows[np.argsort(-rows[:, 4], kind="stable")[:most]]


def without_overlaps(rows: np.ndarray, overlap: float, most: int) -> np.ndarray:
    """Return `best` of the rows that remain after non-maximum suppression, class by class.

    A box goes if its intersection over union with a remaining one of its class and a higher score exceeds `overlap`.
    """
    rows = best(rows, _MOST_COMPARED)
    boxes = rows[:, :4].astype(np.float64)
    boxes[:, 2:] -= boxes[:, :2]
    kept = cv2.dnn.NMSBoxesBatched(
        boxes.tolist(),
        rows[:, 4].tolist(),
        rows[:, 5].astype(np.int32).tolist(),
        0.0,
        overlap,
    )
    return rows[np.asarray(kept, np.intp)[:most]]


def without_turned_overlaps(rows: np.ndarray, overlap: float, most: int) -> np.ndarray:
    """Return `without_overlaps` of turned boxes, whose last number is the angle."""
    rows = best(rows, _MOST_TURNED)
    kept = []
    for class_id in np.unique(rows[:, 5]):
        of_class = np.flatnonzero(rows[:, 5] == class_id)
        boxes = []
        for x0, y0, x1, y1, *_, angle in rows[of_class].tolist():
            middle = (x0 + x1) / 2, (y0 + y1) / 2
            boxes.append((middle, (x1 - x0, y1 - y0), float(np.degrees(angle))))
        scores = rows[of_class, 4].tolist()
        chosen = cv2.dnn.NMSBoxesRotated(boxes, scores, 0.0, overlap)
        kept.append(of_class[np.asarray(chosen, np.intp).reshape(-1)])
    if not kept:
        return rows
    # The rows are in the order of their scores.
    return rows[np.sort(np.concatenate(kept))[:most]]
