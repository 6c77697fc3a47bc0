"""From one camera to another in a moment, on a way that the eye can follow. Plain maths."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from splatview_viewer.geometry.rotations import matrix, quaternion, slerp

if TYPE_CHECKING:
    from splatview_viewer.geometry.orbit import Orbit

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
        rotation = matrix(slerp(quaternion(a.rotation), quaternion(b.rotation), t))
        return replace(
            b, rotation=rotation, target=a.target + (b.target - a.target) * t,
            distance=math.exp(math.log(a.distance) * (1 - t) + math.log(b.distance) * t),
            fov=a.fov + (b.fov - a.fov) * t, near=min(a.near, b.near), far=max(a.far, b.far), looks=a.looks)
