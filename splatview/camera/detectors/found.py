"""What a network's numbers say was found, before boxes that overlap are left out."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from splatview.camera.detectors.nms import MOST_CANDIDATES, surest

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass
class Found:
    """N things, in pixels of the network's input."""

    boxes: np.ndarray
    """(N, 4) x0 y0 x1 y1."""
    scores: np.ndarray
    classes: np.ndarray
    points: np.ndarray | None = None
    """(N, K, 2 or 3) x y confidence."""
    weights: np.ndarray | None = None
    """(N, P): how much of each of P prototypes makes up the mask of each."""
    masks: np.ndarray | None = None
    """(N, h, w), over 0: inside; they cover the whole input."""

    def __len__(self) -> int:
        return len(self.boxes)

    def taken(self, which: np.ndarray) -> Found:
        """Those at these places, or where a mask is true."""
        chosen: Any = (None if (value := getattr(self, f.name)) is None else value[which] for f in fields(self))
        return Found(*chosen)

    def sound(self, threshold: float) -> Found:
        """Those with finite numbers, a box of some size, and a score of the threshold or more; the surest of them."""
        with np.errstate(invalid="ignore", over="ignore"):
            good = (self.scores >= threshold) & np.isfinite(self.scores) & np.isfinite(self.boxes).all(axis=1)
            good &= (self.boxes[:, 2:] > self.boxes[:, :2]).all(axis=1) & (np.abs(self.boxes) < 1e7).all(axis=1)
            classes = self.classes
            if classes.dtype.kind == "f":
                good &= np.isfinite(classes)
        good &= (classes >= 0) & (classes < 2**31)
        found = self.taken(good)
        found = found.taken(surest(found.scores, MOST_CANDIDATES))
        found.classes = found.classes.astype(np.int32)
        if found.points is not None:
            found.points = np.nan_to_num(found.points, nan=0.0, posinf=0.0, neginf=0.0)
        return found


@dataclass(frozen=True)
class Traits:
    """What a kind of network is like."""

    overlapping: bool = False
    """Many boxes may stand for one thing: the surest is to be chosen."""
    stretched: bool = False
    """It expects the picture over its whole input, out of proportion."""
    resizes: bool = False
    """If it takes pictures of any size, it makes them fit itself."""
    first: int = 0
    """The lowest number that it gives to a class."""
    gaps: bool = False
    """COCO's classes have the numbers of the data set, with gaps between them."""


class Decoder(Protocol):
    """Reads the outputs of one kind of network."""

    @property
    def kind(self) -> str:
        """What this kind is called, one of `recognise.KINDS`."""
        ...

    @property
    def traits(self) -> Traits:
        ...

    def decode(self, outputs: Sequence[np.ndarray], threshold: float, across: int, down: int) -> Found:
        """`outputs` in the network's own order, for an input of `across` x `down` pixels. Raises ValueError."""
        ...


def corners(boxes: np.ndarray) -> np.ndarray:
    """(N, 4) x0 y0 x1 y1 of the middle's x y, width and height."""
    half = boxes[:, 2:] / 2
    return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
