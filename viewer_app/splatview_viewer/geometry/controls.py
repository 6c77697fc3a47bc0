"""From pointer, wheel and keys to a view: the camera of a scene moved around a point and flown to another place, keys
that are held, and a picture panned and zoomed. Plain maths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from splatview_viewer.core.events import (
    Event,
    Key,
    Pinch,
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.cameras import (
    DEFAULT_FOV,
    FAR,
    Camera,
    CameraModel,
    field_of_view,
    focal_length,
)

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect

NOTCH = 0.88
"""Factor of the distance for one notch of the wheel."""
SCROLL = 100.0
"""Pixels that a scene moves with one notch sideways, so that it follows two fingers on a trackpad."""
_PINCH = 8.0
"""Largest magnification of one event of two fingers."""
_POLE = math.radians(89)
_NEAREST = 1e-9
_FARTHEST = 1e9
_OUTSIDE = 1e12
"""World units along an axis, of the place that is looked at: squares of it are finite
in 32 bits."""

Drag = Literal["orbit", "look", "pan", "roll"]


@dataclass(frozen=True)
class OrbitPlace:
    """The camera of an `Orbit` as plain values."""

    rotation: tuple[float, ...]
    """Row by row."""
    target: tuple[float, ...]
    distance: float
    up: tuple[float, ...]
    fov: float
    model: CameraModel
    near: float
    far: float


@dataclass
class Orbit:
    """A camera that turns around a target, in OpenCV axes.

    Left drag orbits around `up` (or looks around, see `looks`), right or middle drag (or Shift and left) pans so that
    the point under the pointer at the target's depth follows it, Ctrl and left rolls. The wheel moves towards that
    point. Two fingers pan, come nearer and roll.
    """

    rotation: np.ndarray = field(default_factory=lambda: np.eye(3))
    """(3, 3) world to camera."""
    target: np.ndarray = field(default_factory=lambda: np.zeros(3))
    """(3,) the point that orbiting keeps in place."""
    distance: float = 1.0
    """From the camera to the target, world units."""
    up: np.ndarray = field(default_factory=lambda: np.array([0.0, -1.0, 0.0]))
    fov: float = DEFAULT_FOV
    """Vertical, degrees. An orthographic camera shows the same at the target's depth."""
    model: CameraModel = "pinhole"
    near: float = 0.01
    far: float = FAR
    looks: bool = False
    """True if a left drag turns the camera in place (flying) instead of around the target."""
    _grab: tuple[float, float, Drag] | None = field(default=None, repr=False)

    @property
    def dragging(self) -> bool:
        return self._grab is not None

    @property
    def position(self) -> np.ndarray:
        """(3,) where the camera stands."""
        return self.target - self.rotation[2] * self.distance

    @property
    def place(self) -> OrbitPlace:
        rotation, target, up = (
            tuple(array.ravel().tolist())
            for array in (self.rotation, self.target, self.up)
        )
        return OrbitPlace(
            rotation,
            target,
            float(self.distance),
            up,
            float(self.fov),
            self.model,
            float(self.near),
            float(self.far),
        )

    @place.setter
    def place(self, place: OrbitPlace) -> None:
        self.rotation = np.array(place.rotation).reshape(3, 3)
        self.target = np.array(place.target)
        self.distance = place.distance
        self.up = np.array(place.up)
        self.fov = place.fov
        self.model = place.model
        self.near = place.near
        self.far = place.far

    def take(self, camera: Camera, target: np.ndarray) -> None:
        """Look from `camera`; orbit around the point nearest to `target` on its line of sight."""
        self.rotation = camera.viewmat[:3, :3].copy()
        depth = float((self.rotation @ target + camera.viewmat[:3, 3])[2])
        away = float(np.linalg.norm(target - camera.position))
        self.distance = depth if depth > _NEAREST else max(away, 0.1 * camera.near)
        self.target = camera.position + self.rotation[2] * self.distance
        focal = float(camera.K[1, 1]) * (
            self.distance if camera.model == "ortho" else 1
        )
        self.fov = min(
            max(field_of_view(focal, camera.height, camera.model), 1.0), 170.0
        )
        self.near = camera.near
        self.far = camera.far
        self.model = camera.model

    def camera(self, width: int, height: int) -> Camera:
        """The camera for a picture of this size; the vertical field of view does not depend on it."""
        focal = focal_length(self.fov, height, self.model)
        if self.model == "ortho":
            focal /= self.distance
        viewmat = np.eye(4)
        viewmat[:3, :3] = self.rotation
        viewmat[:3, 3] = -self.rotation @ self.position
        K = np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1.0]])
        return Camera(viewmat, K, width, height, self.model, self.near, self.far)

    # -- up and roll -----------------------------------------------------------------------------------------

    def set_up(self, up: np.ndarray) -> None:
        """Another axis points upward; the camera turns upright around the target."""
        self.up = np.asarray(up, np.float64)
        self.look_along(self.rotation[2])

    @property
    def tilt(self) -> float:
        """Radians by which the camera is rolled, clockwise as its user sees it; 0 where it looks along `up`."""
        ahead = self.rotation[2]
        right = self.rotation[0]
        level = _cross(ahead, self.up)
        if math.hypot(*level.tolist()) < 1e-6 * math.hypot(*self.up.tolist()):
            return 0.0
        return math.atan2(float(right @ _cross(ahead, level)), float(right @ level))

    def roll(self, angle: float) -> None:
        """Turn around the line of sight by so many radians, clockwise as the user sees the camera."""
        self.rotation = _orthonormal(
            turned(np.array([0.0, 0.0, 1.0]), -angle) @ self.rotation
        )

    def level(self) -> None:
        """Take the roll out."""
        self.roll(-self.tilt)

    # -- moving ----------------------------------------------------------------------------------------------

    def orbit(self, yaw: float, pitch: float) -> None:
        """Turn around the target, in radians: by `yaw` its near side goes to the right, by `pitch` the camera up.

        The camera stops short of looking along `up`, where left and right would swap. A roll stays.
        """
        axis = self.up / math.hypot(*self.up.tolist())
        tilt = self.tilt
        z = np.array([0.0, 0.0, 1.0])
        rotation = self.rotation @ turned(axis, -yaw).T
        elevation = math.asin(
            min(max(float(-rotation[2] @ axis), -1.0), 1.0)
        )  # of the camera above the target
        pitch = (
            min(max(elevation + pitch, min(-_POLE, elevation)), max(_POLE, elevation))
            - elevation
        )
        rotation = turned(np.array([1.0, 0.0, 0.0]), pitch) @ turned(z, tilt) @ rotation
        self.rotation = _orthonormal(turned(z, -tilt) @ rotation)

    def look(self, yaw: float, pitch: float) -> None:
        """Turn where the camera stands, in radians: to the right by `yaw`, up by `pitch`. The target comes along."""
        position = self.position
        self.orbit(yaw, -pitch)
        self.target = position + self.rotation[2] * self.distance

    def pan(self, dx: float, dy: float, height: int) -> None:
        """Move with the target so that the scene follows a drag of (dx, dy) pixels in a picture so high."""
        unit = self.distance / focal_length(self.fov, height, self.model)
        self.move(np.array([-dx * unit, -dy * unit, 0.0]))

    def move(self, step: np.ndarray) -> None:
        """Move with the target by `step` (3,), world units along the camera's axes: right, down, forward. What an
        orthographic camera shows does not change as it goes forward: it magnifies instead.
        """
        right, down, forward = step
        if self.model == "ortho":
            self.distance = _between(
                self.distance * math.exp(min(max(-forward / self.distance, -5.0), 5.0))
            )
            forward = 0.0
        self._shift(np.array([right, down, forward]))

    def dolly(self, factor: float, x: float, y: float, rect: Rect) -> None:
        """Come nearer by `factor` (< 1) towards the point under the pixel (x, y) at the target's depth."""
        unit = self.distance / focal_length(self.fov, rect.height, self.model)
        offset = np.array(
            [
                (x - rect.x - rect.width / 2) * unit,
                (y - rect.y - rect.height / 2) * unit,
                0.0,
            ]
        )
        distance = _between(self.distance * factor)
        factor = distance / self.distance
        self._shift(offset * (1 - factor))
        self.distance = distance

    def _shift(self, step: np.ndarray) -> None:
        """Move the target by `step` (3,) along the camera's axes, as far as numbers go."""
        target = self.target + self.rotation.T @ step
        self.target = np.clip(target, -_OUTSIDE, _OUTSIDE)

    def look_along(self, forward: np.ndarray) -> None:
        """Turn around the target until the camera looks in this direction (3,), upright."""
        forward = forward / np.linalg.norm(forward)
        up = self.up / np.linalg.norm(self.up)
        if (
            abs(forward @ up) > 0.999
        ):  # straight down or up: what is ahead now stays above or below the middle
            seen = float(self.rotation[2] @ up)
            if abs(seen) < 0.999:
                ahead = self.rotation[2] - seen * up
            else:
                ahead = self.rotation[1] * np.sign(seen)
            up = -np.sign(forward @ up) * ahead
        right = _cross(forward, up)
        right /= np.linalg.norm(right)
        self.rotation = np.stack([right, _cross(forward, right), forward])

    def center(self, point: np.ndarray) -> None:
        """Orbit around this point (3,) from now on: it comes to the middle of the picture, as large as it was."""
        depth = float(self.rotation[2] @ (point - self.position))
        self.distance = _between(self.distance if self.model == "ortho" else depth)
        self.target = np.array(point, np.float64)

    # -- events ----------------------------------------------------------------------------------------------

    def handle(self, event: Event, rect: Rect) -> bool:
        """Take a user's event; True when the camera moved (or a drag ended)."""
        match event:
            case PointerPress():
                how: Drag = "look" if self.looks else "orbit"
                if event.button != "left" or "shift" in event.mods:
                    how = "pan"
                elif "ctrl" in event.mods:
                    how = "roll"
                self._grab = event.x, event.y, how
            case PointerRelease():
                was = self._grab
                self._grab = None
                return was is not None
            case PointerMove() if self._grab is not None:
                return self._follow(event, self._grab, rect)
            case Wheel():  # upward comes nearer; sideways, as on a trackpad, and with Shift it moves along
                dx, dy = (min(max(v, -8.0), 8.0) for v in (event.dx, event.dy))
                if "shift" in event.mods:
                    self.pan(-dx * SCROLL, dy * SCROLL, rect.height)
                elif abs(dx) > abs(dy):  # fingers never go quite straight
                    self.pan(-dx * SCROLL, 0.0, rect.height)
                else:
                    self.dolly(NOTCH**dy, event.x, event.y, rect)
                return bool(dx or dy)
            case Pinch():
                self._grab = None  # of the finger that came first
                self.pan(event.dx, event.dy, rect.height)
                self.dolly(1 / limited(event.factor), event.x, event.y, rect)
                if (
                    event.turn
                ):  # clockwise around the fingers' middle at the target's depth
                    x = event.x - rect.x - rect.width / 2
                    y = event.y - rect.y - rect.height / 2
                    c = math.cos(event.turn)
                    s = math.sin(event.turn)
                    self.roll(-event.turn)
                    self.pan(x - (c * x - s * y), y - (s * x + c * y), rect.height)
                return bool(event.dx or event.dy or event.factor != 1 or event.turn)
        return False

    def let_go(self) -> None:
        """End a drag."""
        self._grab = None

    def _follow(
        self, event: PointerMove, grab: tuple[float, float, Drag], rect: Rect
    ) -> bool:
        (x, y, how), height = grab, max(rect.height, 1)
        self._grab = event.x, event.y, how
        dx = event.x - x
        dy = event.y - y
        if how == "pan":
            self.pan(dx, dy, rect.height)
        elif how == "roll":
            middle = rect.x + rect.width / 2, rect.y + rect.height / 2
            before, now = (
                math.atan2(b - middle[1], a - middle[0])
                for a, b in ((x, y), (event.x, event.y))
            )
            self.roll(
                -math.remainder(now - before, math.tau)
            )  # the scene follows the pointer
        else:
            c = math.cos(tilt := self.tilt)
            s = math.sin(tilt)
            # as if it were upright
            across = c * dx - s * dy
            down = s * dx + c * dy
            if how == "look":
                turn = 1.5 * math.radians(self.fov) / height
                self.look(across * turn, -down * turn)
            else:
                turn = (
                    math.pi / height
                )  # a drag over the height of the picture is half a turn
                self.orbit(across * turn, down * turn)
        return bool(dx or dy)

    def copy(self) -> Orbit:
        return replace(
            self,
            rotation=self.rotation.copy(),
            target=self.target.copy(),
            up=self.up.copy(),
        )


def limited(factor: float) -> float:
    """Bound a magnification of two fingers."""
    return min(max(factor, 1 / _PINCH), _PINCH)


def _between(distance: float) -> float:
    return min(max(distance, _NEAREST), _FARTHEST)


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cross product of two vectors (3,), in a twentieth of NumPy's time: each move of the mouse needs several."""
    ax, ay, az = a.tolist()
    bx, by, bz = b.tolist()
    return np.array([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx])


def _orthonormal(rotation: np.ndarray) -> np.ndarray:
    """A matrix that is nearly a rotation, nearer to one (a step of Newton's): keeps thousands of small turns one."""
    return 1.5 * rotation - 0.5 * rotation @ rotation.T @ rotation


def turned(axis: np.ndarray, angle: float) -> np.ndarray:
    """(3, 3) right-handed rotation around a unit axis (Rodrigues). Several a frame: numpy on three numbers is slow."""
    (x, y, z), c, s = axis.tolist(), math.cos(angle), math.sin(angle)
    t = 1 - c
    return np.array(
        [
            [c + t * x * x, t * x * y - s * z, t * x * z + s * y],
            [t * x * y + s * z, c + t * y * y, t * y * z - s * x],
            [t * x * z - s * y, t * y * z + s * x, c + t * z * z],
        ]
    )


SECONDS = 0.4
"""Seconds of a flight by default."""


@dataclass
class Flight:
    """The way from `begin` to `end`."""

    begin: Orbit
    end: Orbit
    seconds: float
    _start: float | None = None

    def at(self, now: float) -> Orbit | None:
        """Pose of the camera at `now` (seconds; the first call begins the flight); None once it has arrived."""
        if self._start is None:
            self._start = now
        share = (now - self._start) / self.seconds if self.seconds > 0 else 1.0
        return None if share >= 1 else self.between(max(share, 0.0))

    def between(self, share: float) -> Orbit:
        """The camera after this share of the time, 0 to 1: slow at both ends."""
        t = share * share * (3 - 2 * share)
        a = self.begin
        b = self.end
        between = rotations.slerp(
            rotations.quaternion(a.rotation), rotations.quaternion(b.rotation), t
        )
        return replace(
            b,
            rotation=rotations.matrix(between),
            target=a.target + (b.target - a.target) * t,
            distance=math.exp(
                math.log(a.distance) * (1 - t) + math.log(b.distance) * t
            ),
            fov=a.fov + (b.fov - a.fov) * t,
            near=min(a.near, b.near),
            far=max(a.far, b.far),
            looks=a.looks,
        )


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
                zoom *= min(
                    rect.width / place.seen_in[0], rect.height / place.seen_in[1]
                )
        return (
            rect.x + rect.width / 2 - cx * width * zoom,
            rect.y + rect.height / 2 - cy * height * zoom,
            zoom,
        )

    def to_picture(self, x: float, y: float, rect: Rect) -> tuple[float, float]:
        """The picture's point under a point of the screen, in picture pixels; may lie outside the picture."""
        left, top, zoom = self.placed(rect)
        return (x - left) / zoom, (y - top) / zoom

    def set_zoom(
        self, zoom: float, rect: Rect, at: tuple[float, float] | None = None
    ) -> None:
        """Magnify by `zoom` around a point of the screen (default: the middle), which stays where it is."""
        middle = rect.x + rect.width / 2, rect.y + rect.height / 2
        x, y = at or middle
        px, py = self.to_picture(x, y, rect)
        zoom = min(max(zoom, 8 / max(self.size)), 256.0)
        self._center(
            px - (x - middle[0]) / zoom, py - (y - middle[1]) / zoom, zoom, rect
        )

    def fit(self) -> None:
        self.place = FITTED

    def move(self, dx: float, dy: float, rect: Rect) -> None:
        """The picture follows a drag of (dx, dy) pixels of the screen."""
        zoom = self.placed(rect)[2]
        cx, cy = self.to_picture(
            rect.x + rect.width / 2, rect.y + rect.height / 2, rect
        )
        self._center(cx - dx / zoom, cy - dy / zoom, zoom, rect)

    def _center(self, x: float, y: float, zoom: float, rect: Rect) -> None:
        """Bring a point of the picture to the middle. The picture's middle third can leave the rectangle, the whole
        picture cannot.
        """
        shares = []
        for c, extent, room in zip(
            (x, y), self.size, (rect.width, rect.height), strict=True
        ):
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
                dx = event.x - self._grab[0]
                dy = event.y - self._grab[1]
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
                self.set_zoom(
                    self.placed(rect)[2] * limited(event.factor),
                    rect,
                    (event.x, event.y),
                )
                return True
            case Key(name="f", pressed=True):
                self.fit()
                return True
            case Key(name="1", pressed=True):
                self.set_zoom(1.0, rect)
                return True
        return False


_KEYS: dict[str, tuple[int, float]] = {
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
"""Motion of each key: right, down and forward along the camera's axes, upward in the world, roll clockwise."""
_RATES = np.array([0.6, 0.6, 0.8, 0.6, 1.0])
"""Per second: the first four in distances to what is looked at, the last in radians."""
FAST = 4.0
SLOW = 0.25
SPEEDS = 0.05, 50.0
"""Least and most that the wheel makes of the speed."""
_FASTER = 1.15
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
        if _down(event, "shift"):
            self._factor = FAST
        elif _down(event, "alt"):
            self._factor = SLOW
        else:
            self._factor = 1.0
        if event.name not in _KEYS:
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
        self.speed = min(
            max(self.speed * _FASTER ** min(max(notches, -20.0), 20.0), SPEEDS[0]),
            SPEEDS[1],
        )

    def step(self, now: float) -> np.ndarray | None:
        """Motion of the camera since the last call (5,): right, down, forward, upward in the world, all in distances
        to what is looked at, and roll clockwise in radians. None while it rests.

        `now` in seconds. Speeds approach what the keys say exponentially, and that is integrated exactly: the path
        does not depend on how often this is called.
        """
        then = self._then
        self._then = now
        heard = self._heard
        self._heard = False
        if then is None:
            then = now
        if (
            now - then > _LOST and not heard
        ):  # no turn meanwhile, so that no release of a key was seen
            self.let_go()
            self._velocity = np.zeros(5)
        dt = min(max(now - then, 0.0), _LONGEST)
        if not self.moving:
            self._then = None
            return None
        wanted = np.zeros(5)
        for name in self._held:
            axis, sign = _KEYS[name]
            wanted[axis] += sign
        wanted = np.clip(wanted, -1, 1) * _RATES
        wanted[:4] *= self.speed * self._factor
        lag = self._velocity - wanted
        fade = math.exp(-dt / _SOFT)
        moved = wanted * dt + lag * _SOFT * (1 - fade)
        self._velocity = wanted + lag * fade
        if not self._held and np.abs(self._velocity).max() < _STILL * max(
            self.speed, 1e-3
        ):
            moved = moved + self._velocity * _SOFT  # what would be left of the way
            # the next key counts from when it is pressed
            self._velocity = np.zeros(5)
            self._then = None
        return moved

    def let_go(self) -> None:
        """No key is held any longer."""
        self._held.clear()
        self._factor = 1.0

    def stop(self) -> None:
        """Stand still at once."""
        self.let_go()
        self._velocity = np.zeros(5)
        self._then = None


def _down(event: Key, modifier: str) -> bool:
    """Return whether a modifier is held after this event; screens differ in whether it counts for its own key."""
    return event.pressed if event.name == modifier else modifier in event.mods
