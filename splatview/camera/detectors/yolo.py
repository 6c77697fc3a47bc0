"""The outputs of networks that Ultralytics exports: one table of boxes, and for masks a stack of prototypes.

YOLOv8, 9, 11, 12      (1, 4 + C + R, N): x y w h of the centre, C scores, and R more numbers
end to end: 10, 26,    (1, N, 6 + R): x0 y0 x1 y1, score, class, and R more numbers; overlapping boxes are gone
  and all with nms=True

The R numbers are K keypoints (-pose) or the weights of P prototypes (-seg), else R is 0.
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
_MOST_PIXELS = 1e7
"""Maximum absolute coordinate of a box, pixels."""


@dataclass(frozen=True)
class Layout:
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
                rows = table[table[:, 4] >= threshold].astype(np.float32, copy=False)
            else:  # most boxes are empty: one pass over the numbers in their order finds the others
                scores = table[4 : self.width - self.more]
                full = table[:, scores.max(axis=0) >= threshold].T.astype(
                    np.float32, copy=False
                )
                scores, half = full[:, 4 : self.width - self.more], full[:, 2:4] / 2
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
        rows = rows[sound]
        rows[:, 6:] = np.nan_to_num(rows[:, 6:], posinf=0.0, neginf=0.0)
        return rows


def layout_of(
    names: Sequence[str],
    outputs: Sequence[np.ndarray],
    metadata: Mapping[str, str],
    classes: int,
) -> Layout:
    """Return the layout of a network's outputs for one picture. `classes`: how many it has, 0 for unknown.

    Raises DetectorError.
    """
    described = (
        ", ".join(
            f"{n} {o.dtype} {o.shape}" for n, o in zip(names, outputs, strict=True)
        )
        or "nothing"
    )

    def only(ndim: int) -> int | None:
        found = [
            i
            for i, o in enumerate(outputs)
            if o.ndim == ndim and o.shape[0] == 1 and o.dtype.kind == "f"
        ]
        return found[0] if len(found) == 1 else None

    table, prototypes = only(3), only(4)
    if table is not None:
        match = re.fullmatch(
            r"\[(\d{1,4}), ([23])\]", metadata.get("kpt_shape", "")
        )  # "[17, 3]"
        points = (int(match[1]), int(match[2])) if match else (0, 0)
        more = points[0] * points[1] or (
            outputs[prototypes].shape[1] if prototypes is not None else 0
        )
        _, down, across = outputs[table].shape
        chosen = across == 6 + more and down != 4 + classes + more
        if metadata.get("end2end") == "True" or re.search(
            r"'nms': True", metadata.get("args", "")[:4096]
        ):
            chosen = (
                across == 6 + more
            )  # also with as many boxes as the other layout has rows
        width = across if chosen else down
        if chosen or (
            down - 4 - more == classes if classes else 0 < down - 4 - more < across
        ):
            return Layout(table, width, chosen, points, prototypes, more)
    raise DetectorError(
        f"the network gives {described}{f' for {classes} classes' if classes else ''}; legal are "
        "Ultralytics' exports, (1, 4 + classes, N) or, end to end, (1, N, 6). For others give a "
        "function, module:function"
    )


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
