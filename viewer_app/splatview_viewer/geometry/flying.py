"""Keys that are held move a camera: how far it comes in how much time, however often it is asked. Plain maths."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from splatview_viewer.core.events import Key

_AXES: dict[str, tuple[int, float]] = {
    "d": (0, 1), "a": (0, -1), "right": (0, 1), "left": (0, -1), "up": (1, -1), "down": (1, 1),
    "w": (2, 1), "s": (2, -1), "e": (3, 1), "q": (3, -1), "c": (4, 1), "z": (4, -1),
}
"""What each key adds to: right, down and forward along the camera's axes, upward in the world, roll clockwise."""
_RATES = np.array([0.6, 0.6, 0.8, 0.6, 1.0])
"""Per second: the first four in distances to what is looked at, the last in radians."""
FAST, SLOW = 4.0, 0.25
SPEEDS = 0.05, 50.0
"""Least and most that the wheel makes of the speed."""
_NOTCH = 1.15
_SOFT = 0.07
"""Seconds in which a speed comes within a third of another one: neither a jerk nor a glide."""
_STILL = 2e-3
_LONGEST = 0.5
"""Seconds that a step counts at most: nobody expects to be far away after the machine was busy."""
_LOST = 1.0
"""Seconds without being asked after which keys of which nothing was heard count as let go."""


@dataclass
class Flying:
    """Which keys are held, and how fast the camera goes by now."""

    speed: float = 1.0
    """Set by hand; times what the scene suggests."""
    _held: set[str] = field(default_factory=set)
    _factor: float = 1.0
    _velocity: np.ndarray = field(default_factory=lambda: np.zeros(5))
    _then: float | None = None
    _heard: bool = False

    @property
    def moving(self) -> bool:
        """Whether the camera goes somewhere, or is about to."""
        return bool(self._held) or bool(self._velocity.any())

    def key(self, event: Key) -> bool:
        """Take a key; whether it is one that moves."""
        self._factor = FAST if _down(event, "shift") else SLOW if _down(event, "alt") else 1.0
        if event.name not in _AXES:
            return False
        if not event.pressed:
            was = event.name in self._held
            self._held.discard(event.name)
            return was
        if {"ctrl", "super"} & event.mods:  # a shortcut, whose release may never come
            return False
        self._held.add(event.name)
        self._heard = True
        return True

    def faster(self, notches: float) -> None:
        """Change the speed by so many notches of the wheel."""
        self.speed = min(max(self.speed * _NOTCH ** min(max(notches, -20.0), 20.0), SPEEDS[0]), SPEEDS[1])

    def step(self, now: float) -> np.ndarray | None:
        """How far the camera came since the last call (5,): right, down, forward, upward in the world, all in distances
        to what is looked at, and roll clockwise in radians. None while it rests.

        `now` in seconds. Speeds approach what the keys say exponentially, and that is integrated exactly: the path
        does not depend on how often this is called.
        """
        then, self._then = self._then, now
        heard, self._heard = self._heard, False
        if then is None:
            then = now
        if now - then > _LOST and not heard:  # nobody looked meanwhile, so nobody saw the keys go up
            self.let_go()
            self._velocity = np.zeros(5)
        dt = min(max(now - then, 0.0), _LONGEST)
        if not self.moving:
            self._then = None
            return None
        wanted = np.zeros(5)
        for name in self._held:
            axis, sign = _AXES[name]
            wanted[axis] += sign
        wanted = np.clip(wanted, -1, 1) * _RATES
        wanted[:4] *= self.speed * self._factor
        lag, fade = self._velocity - wanted, math.exp(-dt / _SOFT)
        moved = wanted * dt + lag * _SOFT * (1 - fade)
        self._velocity = wanted + lag * fade
        if not self._held and np.abs(self._velocity).max() < _STILL * max(self.speed, 1e-3):
            moved = moved + self._velocity * _SOFT  # what would be left of the way
            self._velocity, self._then = np.zeros(5), None  # the next key counts from when it is pressed
        return moved

    def let_go(self) -> None:
        """No key is held any longer."""
        self._held.clear()
        self._factor = 1.0

    def stop(self) -> None:
        """Stand still at once."""
        self.let_go()
        self._velocity, self._then = np.zeros(5), None


def _down(event: Key, modifier: str) -> bool:
    """Whether a modifier is held once this event is over; screens differ in whether it counts for its own key."""
    return event.pressed if event.name == modifier else modifier in event.mods
