"""Networks with one output for each of boxes, classes and scores: SSD, and torchvision's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview.camera.detectors.found import Found, Traits

if TYPE_CHECKING:
    from collections.abc import Sequence


_TORCHVISION = Traits(resizes=True, first=1, gaps=True)


@dataclass(frozen=True)
class Named:
    """Boxes, classes and scores, which the network itself has chosen. Each number is an output's place."""

    kind: str
    boxes: int
    classes: int
    scores: int
    count: int | None = None
    """How many of the boxes are meant: TensorFlow's SSD."""
    masks: int | None = None
    """(N, 1, h, w), over 0.5: inside; they cover the whole input."""
    points: int | None = None
    """(N, K, 3)."""
    rows_first: bool = False
    """Boxes are y0 x0 y1 x1."""
    parts: bool = False
    """Boxes are parts of the input's sides, not pixels."""
    traits: Traits = _TORCHVISION

    def decode(self, outputs: Sequence[np.ndarray], threshold: float, across: int, down: int) -> Found:
        boxes, classes, scores = (_one(outputs[i], ndim)
                                  for i, ndim in ((self.boxes, 2), (self.classes, 1), (self.scores, 1)))
        n = len(boxes)
        if boxes.shape != (n, 4) or classes.shape != (n,) or scores.shape != (n,):
            raise ValueError(f"the network gave boxes of shape {boxes.shape}, classes of {classes.shape} and scores of "
                             f"{scores.shape}; legal are (N, 4), (N,) and (N,)")
        if self.count is not None:
            count = outputs[self.count].reshape(-1)
            n = int(np.clip(np.nan_to_num(count[0]), 0, n)) if len(count) else n
        boxes = boxes[:n].astype(np.float32)
        if self.rows_first:
            boxes = boxes[:, [1, 0, 3, 2]]
        if self.parts:
            boxes = boxes * np.array([across, down, across, down], np.float32)
        found = Found(boxes, scores[:n].astype(np.float32), classes[:n])
        if self.points is not None:
            points = _one(outputs[self.points], 3)[:n]
            if points.shape[0] == n and points.shape[2] == 3:
                found.points = points.astype(np.float32)
        if self.masks is not None:
            masks = _one(outputs[self.masks], 4)[:n]
            if masks.shape[:2] == (n, 1):
                found.masks = masks[:, 0]
        return found.sound(threshold)


def _one(output: np.ndarray, ndim: int) -> np.ndarray:
    """Without the batch of one that it may have."""
    return output[0] if output.ndim == ndim + 1 and output.shape[0] == 1 else output
