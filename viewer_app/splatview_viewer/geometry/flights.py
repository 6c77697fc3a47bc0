"""From one camera to another in a moment, on a way that the eye can follow. Plain maths."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from splatview_viewer.geometry.orbit import Orbit, turned

SECONDS = 0.4
"""How long a flight takes if nobody says otherwise."""


@dataclass
class Flight:
    """The way from `begin` to `end`."""

    begin: Orbit
    end: Orbit
    seconds: float
    _start: float | None = None

    def at(self, now: float) -> Orbit | None:
        """Where the camera is at `now` (seconds; the first call begins the flight); None once it has arrived."""
        if self._start is None:
            self._start = now
        share = (now - self._start) / self.seconds if self.seconds > 0 else 1.0
        return None if share >= 1 else self.between(max(share, 0.0))

    def between(self, share: float) -> Orbit:
        """The camera after this share of the time, 0 to 1: slow at both ends."""
        t = share * share * (3 - 2 * share)
        a, b = self.begin, self.end
        return replace(
            b, rotation=_between(a.rotation, b.rotation, t), target=a.target + (b.target - a.target) * t,
            distance=math.exp(math.log(a.distance) * (1 - t) + math.log(b.distance) * t),
            fov=a.fov + (b.fov - a.fov) * t, near=min(a.near, b.near), far=max(a.far, b.far), looks=a.looks)


def _between(a: np.ndarray, b: np.ndarray, t: float) -> np.ndarray:
    """The rotation that is `t` of the way from one to another, around one axis."""
    by = b @ a.T
    axis = np.array([by[2, 1] - by[1, 2], by[0, 2] - by[2, 0], by[1, 0] - by[0, 1]])
    angle = math.atan2(float(np.linalg.norm(axis)), float(np.trace(by)) - 1)
    if angle < 1e-9:
        return b
    if math.pi - angle < 1e-4:  # half a turn: the axis is what it leaves alone
        axis = np.linalg.svd(by - np.eye(3))[2][-1]
    return turned(axis / np.linalg.norm(axis), angle * t) @ a
