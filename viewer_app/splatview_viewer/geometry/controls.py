"""From pointer, wheel and keys to a view: panning and zooming a picture, flying through a scene. Plain maths."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.core.events import Event, Key, Pinch, PointerMove, PointerPress, PointerRelease, Wheel
from splatview_viewer.geometry.orbit import Orbit, limited

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect

__all__ = ["FITTED", "ZOOM_STEP", "Orbit", "PanZoom", "Place"]

ZOOM_STEP = 1.2
"""Factor of one notch of the wheel."""


@dataclass(frozen=True)
class Place:
    """Place of a picture in a rectangle, independent of its resolution: fitted, or zoomed and moved by hand."""

    across: float | None = None
    """Pixels of the screen that its longer side takes; None: it is fitted."""
    center: tuple[float, float] = (0.5, 0.5)
    """Its point in the middle of the rectangle, in shares of its width and height."""
    seen_in: tuple[int, int] | None = None
    """Size of the rectangle that `across` is for, of which any other one shows all; None: the one at hand."""

    def seen_from(self, rect: Rect) -> Place:
        """Return the place of which other rectangles show all that is seen in `rect`."""
        return replace(self, seen_in=self.seen_in or (rect.width, rect.height))


FITTED = Place()


@dataclass
class PanZoom:
    """Places a picture of `size` pixels, as a hand moves it."""

    size: tuple[int, int] = (1, 1)
    """(width, height) of the picture."""
    place: Place = FITTED
    _grab: tuple[float, float] | None = field(default=None, repr=False)

    def placed(self, rect: Rect) -> tuple[float, float, float]:
        """(x, y, zoom): where the picture's top left corner lies on the screen, and its magnification."""
        (width, height), place = self.size, self.place
        if place.across is None:
            zoom, (cx, cy) = min(rect.width / width, rect.height / height), (0.5, 0.5)
        else:
            zoom, (cx, cy) = place.across / max(self.size), place.center
            if place.seen_in is not None:
                zoom *= min(rect.width / place.seen_in[0], rect.height / place.seen_in[1])
        return rect.x + rect.width / 2 - cx * width * zoom, rect.y + rect.height / 2 - cy * height * zoom, zoom

    def to_picture(self, x: float, y: float, rect: Rect) -> tuple[float, float]:
        """The picture's point under a point of the screen, in picture pixels; may lie outside the picture."""
        left, top, zoom = self.placed(rect)
        return (x - left) / zoom, (y - top) / zoom

    def set_zoom(self, zoom: float, rect: Rect, at: tuple[float, float] | None = None) -> None:
        """Magnify by `zoom` around a point of the screen (default: the middle), which stays where it is."""
        middle = rect.x + rect.width / 2, rect.y + rect.height / 2
        x, y = at or middle
        px, py = self.to_picture(x, y, rect)
        zoom = min(max(zoom, 8 / max(self.size)), 256.0)
        self._center(px - (x - middle[0]) / zoom, py - (y - middle[1]) / zoom, zoom, rect)

    def fit(self) -> None:
        self.place = FITTED

    def move(self, dx: float, dy: float, rect: Rect) -> None:
        """The picture follows a drag of (dx, dy) pixels of the screen."""
        zoom = self.placed(rect)[2]
        cx, cy = self.to_picture(rect.x + rect.width / 2, rect.y + rect.height / 2, rect)
        self._center(cx - dx / zoom, cy - dy / zoom, zoom, rect)

    def _center(self, x: float, y: float, zoom: float, rect: Rect) -> None:
        """Bring a point of the picture to the middle. The picture's middle third can leave the rectangle, the whole
        picture cannot."""
        shares = []
        for c, extent, room in zip((x, y), self.size, (rect.width, rect.height), strict=True):
            slack = max(room / 2 / zoom - 24 / zoom, 0)
            shares.append(min(max(c, -slack), extent + slack) / extent)
        self.place = Place(zoom * max(self.size), (shares[0], shares[1]))

    def handle(self, event: Event, rect: Rect) -> bool:
        """Take a user's event; True when the picture lies elsewhere now.

        Wheel zooms at the pointer, two fingers at their middle, any drag pans, a double click or F fits.
        """
        match event:
            case Wheel():
                zoom = self.placed(rect)[2] * ZOOM_STEP ** max(min(event.dy, 8.0), -8.0)
                self.set_zoom(zoom, rect, (event.x, event.y))
                return event.dy != 0
            case PointerPress(clicks=2, button="left"):
                self._grab = None
                self.fit()
                return True
            case PointerPress():
                self._grab = event.x, event.y
            case PointerMove() if self._grab is not None:
                dx, dy = event.x - self._grab[0], event.y - self._grab[1]
                if not (dx or dy):
                    return False
                self._grab = event.x, event.y
                self.move(dx, dy, rect)
                return True
            case PointerRelease():
                self._grab = None
            case Pinch():
                self._grab = None  # of the finger that came first
                if not (event.dx or event.dy or event.factor != 1):
                    return False
                self.move(event.dx, event.dy, rect)
                self.set_zoom(self.placed(rect)[2] * limited(event.factor), rect, (event.x, event.y))
                return True
            case Key(name="f", pressed=True):
                self.fit()
                return True
            case Key(name="1", pressed=True):
                self.set_zoom(1.0, rect)
                return True
        return False


_AXES: dict[str, tuple[int, float]] = {
    "d": (0, 1), "a": (0, -1), "right": (0, 1), "left": (0, -1), "up": (1, -1), "down": (1, 1),
    "w": (2, 1), "s": (2, -1), "e": (3, 1), "q": (3, -1), "c": (4, 1), "z": (4, -1),
}
"""Motion of each key: right, down and forward along the camera's axes, upward in the world, roll clockwise."""
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
"""Seconds that a step counts at most: a busy machine must not carry the camera far away."""
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
        """True if the camera moves, or is about to."""
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
        """Motion of the camera since the last call (5,): right, down, forward, upward in the world, all in distances
        to what is looked at, and roll clockwise in radians. None while it rests.

        `now` in seconds. Speeds approach what the keys say exponentially, and that is integrated exactly: the path
        does not depend on how often this is called.
        """
        then, self._then = self._then, now
        heard, self._heard = self._heard, False
        if then is None:
            then = now
        if now - then > _LOST and not heard:  # no turn meanwhile, so that no release of a key was seen
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
    """Return whether a modifier is held after this event; screens differ in whether it counts for its own key."""
    return event.pressed if event.name == modifier else modifier in event.mods
