"""Simple motion: boxes of two results that belong together, and where they are between results."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from splatview_viewer.kinds.image.overlay.result import Result

_MOST = 1000
"""Boxes of one result beyond which none is followed."""
_ALIKE = 0.15
"""Overlap (intersection over union) from which two boxes may be the same thing."""
_LONGEST = 1.0
"""Seconds for which a box goes on without a new result; and no longer than `_AHEAD` times what lay between the last
two results."""
_AHEAD = 2.0
_LAG = 0.08
"""Seconds in which two thirds of the way to where a new result wants a box are gone, so that it does not jump."""
_SETTLED = 6 * _LAG


def matched(before: Result, now: Result) -> np.ndarray:
    """(N,) for each box of `now` the number of the box of `before` that is the same thing, -1: none. The pairs that
    overlap most go first; boxes of two classes are never the same."""
    out = np.full(len(now.boxes), -1)
    if not 0 < len(before.boxes) <= _MOST or not 0 < len(now.boxes) <= _MOST:
        return out
    a, b = before.boxes * _ratio(before, now), now.boxes
    low, high = np.maximum(a[None, :, :2], b[:, None, :2]), np.minimum(a[None, :, 2:], b[:, None, 2:])
    common = (high - low).clip(0).prod(-1)
    union = _area(a)[None] + _area(b)[:, None] - common
    share = common / np.maximum(union, 1e-9)
    share[(now.classes[:, None] != before.classes[None]) | ~before.drawn[None] | ~now.drawn[:, None]] = 0
    rows, columns = np.nonzero(share >= _ALIKE)
    taken: set[int] = set()
    for i in np.argsort(-share[rows, columns], kind="stable").tolist():
        row, column = int(rows[i]), int(columns[i])
        if out[row] < 0 and column not in taken:
            out[row] = column
            taken.add(column)
    return out


class Motion:
    """Motion of the newest result's boxes. `shown`, `times`: of pictures, seconds since the epoch; `now`: of the
    viewer's own clock."""

    def __init__(self) -> None:
        self._velocity = np.zeros((0, 2), np.float32)
        """(N, 2) pixels per second."""
        self._time = self._bound = 0.0
        self._lag = np.zeros((0, 2), np.float32)
        """(N, 2) pixels from where the boxes belong to where they were seen when the result came."""
        self._came = 0.0

    def take(self, before: Result | None, now: Result, times: tuple[float, float], clock: tuple[float, float]) -> None:
        """A new result. `times`: of the pictures that the two were computed on, 0: not known; `clock`: of the picture
        that is shown, and the viewer's own."""
        (then, time), (shown, came) = times, clock
        count, between = len(now.boxes), time - then
        velocity, lag = np.zeros((count, 2), np.float32), np.zeros((count, 2), np.float32)
        known, seen = np.empty(0, np.int64), np.empty((0, 2), np.float32)
        if before is not None and then and between > 1e-3:
            partner, ratio = matched(before, now), _ratio(before, now)
            known = np.flatnonzero(partner >= 0)
            partner = partner[known]
            was = _middle(before.boxes)[partner] * ratio[:2]
            velocity[known] = (_middle(now.boxes)[known] - was) / between
            seen = was + self.shift(before, shown, came)[partner] * ratio[:2]
        self._velocity, self._lag, self._came = velocity, lag, came
        self._time, self._bound = time, min(_AHEAD * max(between, 0.0), _LONGEST) if then else 0.0
        if len(known):
            error = seen - (_middle(now.boxes) + self.shift(now, shown, came))[known]
            small = (np.abs(error) < now.boxes[known, 2:] - now.boxes[known, :2]).all(1)  # else it was followed wrongly
            lag[known[small]] = error[small]

    def shift(self, result: Result, shown: float, now: float) -> np.ndarray:
        """(N, 2) float32: how far the boxes of the newest result have moved in a picture of this time."""
        if not self._time or len(self._velocity) != len(result.boxes):
            return np.zeros((len(result.boxes), 2), np.float32)
        ahead = min(max(shown - self._time, 0.0), self._bound)
        left = math.exp(-max(now - self._came, 0.0) / _LAG) if self.settling(now) else 0.0
        return self._velocity * np.float32(ahead) + self._lag * np.float32(left)

    def settling(self, now: float) -> bool:
        """True if boxes are still on their way to the newest result's places."""
        return now - self._came < _SETTLED and bool(self._lag.any())


def _ratio(before: Result, now: Result) -> np.ndarray:
    """(4,): from the pixels of one result's picture to those of the other's."""
    return np.array((now.size[0] / before.size[0], now.size[1] / before.size[1]) * 2, np.float32)


def _middle(boxes: np.ndarray) -> np.ndarray:
    return (boxes[:, :2] + boxes[:, 2:]) / 2


def _area(boxes: np.ndarray) -> np.ndarray:
    return (boxes[:, 2:] - boxes[:, :2]).prod(-1)
