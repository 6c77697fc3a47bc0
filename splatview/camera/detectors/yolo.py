"""Networks of the YOLO family: one table, a row or a column for each box.

YOLOv5, v7             x y w h, objectness, C scores, P weights of masks
YOLOv8, 9, 11, 12      x y w h, C scores, then P weights of masks, or K points
YOLOv10, 26, end to end  x0 y0 x1 y1, score, class, then P weights of masks, or K points
YOLOv7, end to end     picture, x0 y0 x1 y1, class, score
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview.camera.detectors.found import Found, Traits, corners

if TYPE_CHECKING:
    from collections.abc import Sequence


_MANY, _CHOSEN = Traits(overlapping=True), Traits()


@dataclass(frozen=True)
class Yolo:
    """Boxes that are chosen from."""

    kind: str
    table: int
    """Which of the outputs."""
    columns: bool
    """Whether each box is a column, not a row."""
    width: int
    """Numbers for each box."""
    objectness: bool
    classes: int
    points: tuple[int, int] = (0, 0)
    """How many, and numbers for each: 2 or 3."""
    prototypes: int | None = None
    """Which of the outputs has them, (1, P, h, w)."""
    traits: Traits = _MANY

    def decode(self, outputs: Sequence[np.ndarray], threshold: float, across: int, down: int) -> Found:
        table = _table(outputs[self.table], self.columns, self.width)
        begin = 5 if self.objectness else 4
        end = begin + self.classes
        # Most boxes are empty: which are not is told by one pass over the numbers as they lie.
        with np.errstate(invalid="ignore"):
            most = table[:, 4] if self.objectness else table[:, begin:end].max(axis=1)
            rows = table[most >= threshold].astype(np.float32, copy=False)
        found = rows[:, begin:end]
        classes = np.nan_to_num(found, nan=-1.0).argmax(axis=1)
        scores = found[np.arange(len(rows)), classes]
        if self.objectness:
            scores = scores * rows[:, 4]
        return _rest(Found(corners(rows[:, :4]), scores, classes), rows[:, end:], self.points,
                     self.prototypes is not None, threshold)


@dataclass(frozen=True)
class YoloEndToEnd:
    """Boxes that the network itself has chosen."""

    kind: str
    table: int
    columns: bool
    width: int
    points: tuple[int, int] = (0, 0)
    prototypes: int | None = None
    picture: bool = False
    """Whether the first number says which picture of the batch, and the class stands before the score."""
    traits: Traits = _CHOSEN

    def decode(self, outputs: Sequence[np.ndarray], threshold: float, across: int, down: int) -> Found:
        rows = _table(outputs[self.table], self.columns, self.width)
        if self.picture:
            rows = rows[rows[:, 0] == 0][:, [1, 2, 3, 4, 6, 5]]
        with np.errstate(invalid="ignore"):
            rows = rows[rows[:, 4] >= threshold].astype(np.float32, copy=False)
        return _rest(Found(rows[:, :4], rows[:, 4], rows[:, 5]), rows[:, 6:], self.points,
                     self.prototypes is not None, threshold)


def _table(output: np.ndarray, columns: bool, width: int) -> np.ndarray:
    """(N, width): each box's numbers. A view."""
    table = output[0] if output.ndim == 3 and output.shape[0] == 1 else output
    if table.ndim != 2 or table.shape[0 if columns else 1] != width or table.dtype.kind != "f":
        raise ValueError(f"the network gave {output.dtype} of shape {output.shape}; it had {width} numbers for each "
                         f"box, {'in columns' if columns else 'in rows'}, when it was tried")
    return table.T if columns else table


def _rest(found: Found, rest: np.ndarray, points: tuple[int, int], weights: bool, threshold: float) -> Found:
    """With what follows the scores in each row."""
    if points[0]:
        found.points = rest[:, :points[0] * points[1]].reshape(len(rest), *points)
    elif weights:
        found.weights = rest
    return found.sound(threshold)
