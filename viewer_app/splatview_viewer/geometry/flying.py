"""Keys that are held, and the camera's motion that comes of them. Plain maths."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from splatview_viewer.core.events import Key

FLIGHT_KEYS: dict[str, tuple[int, float]] = {
    "d": (0, 1),
    "a": (0, -1),
    "right": (0, 1),
    "left": (0, -1),
    "up": (1, -1),
    "down": (1, 1),
    "w": (2, 1),
    "s": (2, -1),
    "e": (3, 1),
    "q": (3, -1),
    "c": (4, 1),
    "z": (4, -1),
}
"""Motion of each key: right, down and forward along the camera's axes, upward in the
world, roll clockwise."""
_RATES = np.array([0.6, 0.6, 0.8, 0.6, 1.0])
"""Rates a second: the first four in distances to the target, the last in radians."""
FAST = 4.0
SLOW = 0.25
SPEEDS = 0.05, 50.0
"""The least and the largest speed that the wheel sets."""
_SPEED_STEP = 1.15
"""Factor of the speed for one notch of the wheel."""
_MAX_NOTCHES = 20.0
_RESPONSE_S = 0.07
"""Seconds in which a speed comes within a third of another one: neither a jerk nor a
glide."""
_MIN_SPEED = 2e-3
"""Speed at which the camera stops."""
_MAX_STEP_S = 0.5
"""Seconds that a step counts at most: a busy machine must not carry the camera far
away."""
_KEYS_LOST_S = 1.0
"""Seconds without a call after which keys count as released, if no key event came."""


@dataclass
class Flying:
    """The keys that are held, and how fast the camera goes by now."""

    speed: float = 1.0
    """Set by hand; times what the scene suggests."""
    _held_keys: set[str] = field(default_factory=set)
    _factor: float = 1.0
    _velocity: np.ndarray = field(default_factory=lambda: np.zeros(5))
    _stepped_at: float | None = None
    _has_new_key: bool = False

    @property
    def moving(self) -> bool:
        """True if the camera moves, or is about to."""
        return bool(self._held_keys) or any(self._velocity.tolist())

    def key(self, event: Key) -> bool:
        """Handle a key; return True if it is one that moves the camera."""
        if _is_down(event, "shift"):
            self._factor = FAST
        elif _is_down(event, "alt"):
            self._factor = SLOW
        else:
            self._factor = 1.0
        if event.name not in FLIGHT_KEYS:
            return False
        if not event.pressed:
            is_release = event.name in self._held_keys
            self._held_keys.discard(event.name)
            return is_release
        if {"ctrl", "super"} & event.mods:
            # The release of a shortcut may never come.
            return False
        self._held_keys.add(event.name)
        self._has_new_key = True
        return True

    def faster(self, notches: float) -> None:
        """Set the speed higher by notches of the wheel."""
        notches = min(max(notches, -_MAX_NOTCHES), _MAX_NOTCHES)
        slowest, fastest = SPEEDS
        self.speed = min(max(self.speed * _SPEED_STEP**notches, slowest), fastest)

    def step(self, now: float) -> np.ndarray | None:
        """Return the motion of the camera since the last call, (5,); None while it rests.

        Right, down, forward, upward in the world, all in distances to the target, and
        roll clockwise in radians.

        Speeds approach what the keys say exponentially, and that is integrated exactly:
        the path does not depend on how often this is called.

        Args:
            now: seconds.
        """
        elapsed = 0.0
        if self._stepped_at is not None:
            elapsed = now - self._stepped_at
        has_new_key = self._has_new_key
        self._stepped_at = now
        self._has_new_key = False
        if elapsed > _KEYS_LOST_S and not has_new_key:
            # The loop did not turn meanwhile, so that the release of a key may be lost.
            self.let_go()
            self._velocity = np.zeros(5)
        if not self.moving:
            self._stepped_at = None
            return None
        return self._move(min(max(elapsed, 0.0), _MAX_STEP_S))

    def _move(self, seconds: float) -> np.ndarray:
        """Return the motion over some time, and update the velocity."""
        aim = self._wanted_velocity()
        lag = self._velocity - aim
        decay = math.exp(-seconds / _RESPONSE_S)
        motion = aim * seconds + lag * _RESPONSE_S * (1 - decay)
        self._velocity = aim + lag * decay
        slowest = _MIN_SPEED * max(self.speed, 1e-3)
        if not self._held_keys and np.abs(self._velocity).max() < slowest:
            # The rest of the way at once. The next key counts from when it is pressed.
            motion = motion + self._velocity * _RESPONSE_S
            self._velocity = np.zeros(5)
            self._stepped_at = None
        return motion

    def _wanted_velocity(self) -> np.ndarray:
        """Return the velocity that the keys ask for, (5,)."""
        directions = np.zeros(5)
        for name in self._held_keys:
            axis, sign = FLIGHT_KEYS[name]
            directions[axis] += sign
        velocity = np.clip(directions, -1, 1) * _RATES
        velocity[:4] *= self.speed * self._factor
        return velocity

    def let_go(self) -> None:
        """Release the keys that are held."""
        self._held_keys.clear()
        self._factor = 1.0

    def stop(self) -> None:
        """Stop at once."""
        self.let_go()
        self._velocity = np.zeros(5)
        self._stepped_at = None


def _is_down(event: Key, modifier: str) -> bool:
    """Return True if a modifier is held after this event.

    Screens differ in whether it counts for its own key.
    """
    if event.name == modifier:
        return event.pressed
    return modifier in event.mods
