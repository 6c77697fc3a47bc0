"""What every detector can do, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

MOST_FOUND = 300
"""The most things that a detector of ours finds in one picture: the surest."""


def printable(text: str, most: int = 100) -> str:
    """A name from outside, fit to be shown."""
    return "".join(c if c.isprintable() else " " for c in text[:most]).strip()


class DetectorError(Exception):
    """A detector that cannot be made as it is asked for. The text is for people."""


@dataclass
class Detections:
    """What was found in one picture, as `splatview.annotate` takes it. N things, in pixels of the picture: (0, 0) is
    its upper left corner, x goes right, y down."""

    boxes: Any = None
    """(N, 4) x0 y0 x1 y1, float32."""
    scores: Any = None
    """(N,), float32."""
    classes: Any = None
    """(N,), int32, which decide the colours."""
    labels: Any = None
    """N texts."""
    points: Any = None
    """(N, K, 3) x y confidence, float32."""
    masks: Any = None
    """(N, h, w), bool: each covers the whole picture, whatever its size."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further keywords of `splatview.annotate`."""

    def keywords(self) -> dict[str, Any]:
        """The keywords of `splatview.annotate`, those that are given."""
        own = {name: getattr(self, name) for name in ("boxes", "scores", "classes", "labels", "points", "masks")}
        if isinstance(self.labels, list) and not self.labels:  # of no boxes: they would pass for numbers
            own["labels"] = None
        return {**{name: value for name, value in own.items() if value is not None}, **self.more}


class Detector(Protocol):
    """Finds things in pictures, one at a time, always in the same thread."""

    @property
    def by(self) -> str:
        """What finds, and on what it runs: "yolo11n on CPU"."""
        ...

    def detect(self, image: np.ndarray) -> Detections:
        """`image` is (H, W, 3), uint8, RGB. It may be read-only, and is valid until this returns. Any size, which may
        change from one picture to the next. May raise: the next picture is tried all the same."""
        ...

    def close(self) -> None:
        """Give everything back. Idempotent."""
        ...
