"""The camera of a scene as a hand moves it around a point, and its flight to another place.

Plain maths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from splatview_viewer.core.events import (
    Event,
    Pinch,
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.geometry import rotations, turning
from splatview_viewer.geometry.cameras import (
    DEFAULT_FOV,
    FAR,
    Camera,
    CameraModel,
    centered_intrinsics,
    field_of_view,
    focal_length,
)

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect

NOTCH = 0.88
"""Factor of the distance for one notch of the wheel."""
SCROLL = 100.0
"""Pixels that a scene moves with one notch sideways, so that it follows two fingers on a
trackpad."""
MAX_NOTCHES = 8.0
"""Notches that one event of the wheel counts at most."""
MAX_PINCH = 8.0
"""Largest magnification of one event of two fingers."""
SECONDS = 0.4
"""Seconds of a flight by default."""
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
class OrbitCamera:
    """A camera that is moved around a target, in OpenCV axes."""

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

    @property
    def position(self) -> np.ndarray:
        """The camera's centre in the world, (3,)."""
        return self.target - self.rotation[2] * self.distance

    @property
    def place(self) -> OrbitPlace:
        """The camera as plain values."""
        return OrbitPlace(
            rotation=tuple(self.rotation.ravel().tolist()),
            target=tuple(self.target.ravel().tolist()),
            distance=float(self.distance),
            up=tuple(self.up.ravel().tolist()),
            fov=float(self.fov),
            model=self.model,
            near=float(self.near),
            far=float(self.far),
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

    def look_from(self, camera: Camera, target: np.ndarray) -> None:
        """Look from `camera`; orbit around the point nearest to `target` on its line of sight."""
        self.rotation = camera.viewmat[:3, :3].copy()
        local_target = self.rotation @ target + camera.viewmat[:3, 3]
        depth = float(local_target[2])
        self.distance = depth
        if depth <= _NEAREST:
            distance = float(np.linalg.norm(target - camera.position))
            self.distance = max(distance, 0.1 * camera.near)
        self.target = camera.position + self.rotation[2] * self.distance
        focal = float(camera.K[1, 1])
        if camera.model == "ortho":
            focal *= self.distance
        fov = field_of_view(focal, camera.height, camera.model)
        self.fov = min(max(fov, 1.0), 170.0)
        self.near = camera.near
        self.far = camera.far
        self.model = camera.model

    def camera(self, width: int, height: int) -> Camera:
        """Return the camera for a picture of this size.

        The vertical field of view does not depend on the size.
        """
        focal = focal_length(self.fov, height, self.model)
        if self.model == "ortho":
            focal /= self.distance
        # The target lies straight ahead of the camera.
        right, down, forward = self.rotation.tolist()
        x, y, z = (self.rotation @ self.target).tolist()
        viewmat = np.array(
            [
                [*right, -x],
                [*down, -y],
                [*forward, self.distance - z],
                [0.0, 0.0, 0.0, 1.0],
            ]
        )
        K = centered_intrinsics(focal, width, height)
        return Camera(viewmat, K, width, height, self.model, self.near, self.far)

    # -- up and roll ----------------------------------------------------------------------

    def set_up(self, up: np.ndarray) -> None:
        """Make another axis point upward; the camera turns upright around the target."""
        self.up = np.asarray(up, np.float64)
        self.look_along(self.rotation[2])

    @property
    def tilt(self) -> float:
        """Radians by which the camera is rolled, clockwise as its user sees it.

        0 where it looks along `up`.
        """
        return turning.tilt(self.rotation, self.up)

    def roll(self, angle: float) -> None:
        """Turn around the line of sight by radians, clockwise as the user sees the camera."""
        self.rotation = turning.rolled(self.rotation, angle)

    # -- moving ---------------------------------------------------------------------------

    def orbit(self, yaw: float, pitch: float) -> None:
        """Turn around the target, in radians.

        The camera stops short of looking along `up`, where left and right would swap. A
        roll stays.

        Args:
            yaw: angle by which the target's near side goes to the right.
            pitch: angle by which the camera goes up.
        """
        self.rotation = turning.turned(self.rotation, self.up, yaw, pitch)

    def look(self, yaw: float, pitch: float) -> None:
        """Turn in place, in radians: to the right by `yaw`, up by `pitch`.

        The target comes along.
        """
        position = self.position
        self.orbit(yaw, -pitch)
        self.target = position + self.rotation[2] * self.distance

    def pan(self, dx: float, dy: float, height: int) -> None:
        """Move with the target so that the scene follows a drag of (dx, dy) pixels.

        Args:
            height: the height of the picture, in pixels.
        """
        unit = self.distance / focal_length(self.fov, height, self.model)
        self.move(np.array([-dx * unit, -dy * unit, 0.0]))

    def move(self, step: np.ndarray) -> None:
        """Move with the target by `step` (3,), world units: right, down, forward.

        What an orthographic camera shows does not change as it goes forward: it magnifies
        instead.
        """
        right, down, forward = step
        if self.model == "ortho":
            exponent = min(max(-forward / self.distance, -5.0), 5.0)
            self.distance = _clamp_distance(self.distance * math.exp(exponent))
            forward = 0.0
        step = np.array([right, down, forward])
        self.target = _moved_target(self.target, self.rotation, step)

    def dolly(self, factor: float, x: float, y: float, rect: Rect) -> None:
        """Come nearer by `factor` (< 1) towards a point at the target's depth.

        Args:
            factor: of the distance.
            x: the pixel under which the point lies.
            y: the pixel under which the point lies.
            rect: rectangle of the picture on the screen.
        """
        unit = self.distance / focal_length(self.fov, rect.height, self.model)
        center_x = rect.x + rect.width / 2
        center_y = rect.y + rect.height / 2
        right = (x - center_x) * unit
        down = (y - center_y) * unit
        distance = _clamp_distance(self.distance * factor)
        factor = distance / self.distance
        step = np.array([right, down, 0.0]) * (1 - factor)
        self.target = _moved_target(self.target, self.rotation, step)
        self.distance = distance

    def look_along(self, forward: np.ndarray) -> None:
        """Turn around the target until the camera looks in a direction (3,), upright."""
        self.rotation = turning.upright(self.rotation, self.up, forward)

    def center(self, point: np.ndarray) -> None:
        """Orbit around a point (3,) from now on.

        It comes to the middle of the picture, as large as it was.
        """
        if self.model != "ortho":
            self.distance = float(self.rotation[2] @ (point - self.position))
        self.distance = _clamp_distance(self.distance)
        self.target = np.array(point, np.float64)


class _OrbitGrab(NamedTuple):
    """A drag: the pointer's last place, and what it does."""

    x: float
    y: float
    drag: Drag


@dataclass
class Orbit(OrbitCamera):
    """An orbit camera that follows a user's events.

    Left drag orbits around `up` (or looks around, see `looks_around`), right or middle
    drag (or Shift and left) pans so that the point under the pointer at the target's
    depth follows it, Ctrl and left rolls. The wheel moves towards that point. Two fingers
    pan, come nearer and roll.
    """

    looks_around: bool = False
    """True if a left drag turns the camera in place (flying) instead of around the
    target."""
    _grab: _OrbitGrab | None = field(default=None, repr=False)

    @property
    def dragging(self) -> bool:
        """True while a button is held."""
        return self._grab is not None

    def let_go(self) -> None:
        """End a drag."""
        self._grab = None

    def copy(self) -> Orbit:
        """Return a copy that shares no array."""
        return replace(
            self,
            rotation=self.rotation.copy(),
            target=self.target.copy(),
            up=self.up.copy(),
        )

    def handle(self, event: Event, rect: Rect) -> bool:
        """Handle a user's event; return True when the camera moved (or a drag ended)."""
        match event:
            case PointerPress():
                self._grab = _OrbitGrab(event.x, event.y, self._drag_of(event))
            case PointerRelease():
                was_dragging = self.dragging
                self._grab = None
                return was_dragging
            case PointerMove() if self._grab is not None:
                return self._follow(event, self._grab, rect)
            case Wheel():
                return self._scroll(event, rect)
            case Pinch():
                return self._pinch(event, rect)
        return False

    def _drag_of(self, event: PointerPress) -> Drag:
        if event.button != "left" or "shift" in event.mods:
            return "pan"
        if "ctrl" in event.mods:
            return "roll"
        if self.looks_around:
            return "look"
        return "orbit"

    def _scroll(self, event: Wheel, rect: Rect) -> bool:
        """Come nearer upward; move along sideways, as on a trackpad, and with Shift."""
        dx = min(max(event.dx, -MAX_NOTCHES), MAX_NOTCHES)
        dy = min(max(event.dy, -MAX_NOTCHES), MAX_NOTCHES)
        if "shift" in event.mods:
            self.pan(-dx * SCROLL, dy * SCROLL, rect.height)
        elif abs(dx) > abs(dy):
            # Fingers never go quite straight: what they do downward is left out.
            self.pan(-dx * SCROLL, 0.0, rect.height)
        else:
            self.dolly(NOTCH**dy, event.x, event.y, rect)
        return bool(dx or dy)

    def _pinch(self, event: Pinch, rect: Rect) -> bool:
        # The drag is of the finger that came first.
        self._grab = None
        self.pan(event.dx, event.dy, rect.height)
        self.dolly(1 / clamp_pinch(event.factor), event.x, event.y, rect)
        if event.turn:
            # Clockwise around the fingers' middle at the target's depth.
            x = event.x - rect.x - rect.width / 2
            y = event.y - rect.y - rect.height / 2
            turned_x, turned_y = _turned(x, y, event.turn)
            self.roll(-event.turn)
            self.pan(x - turned_x, y - turned_y, rect.height)
        return bool(event.dx or event.dy or event.factor != 1 or event.turn)

    def _follow(self, event: PointerMove, grab: _OrbitGrab, rect: Rect) -> bool:
        """Move as a drag asks for."""
        height = max(rect.height, 1)
        self._grab = _OrbitGrab(event.x, event.y, grab.drag)
        dx = event.x - grab.x
        dy = event.y - grab.y
        if grab.drag == "pan":
            self.pan(dx, dy, rect.height)
        elif grab.drag == "roll":
            center_x = rect.x + rect.width / 2
            center_y = rect.y + rect.height / 2
            previous = math.atan2(grab.y - center_y, grab.x - center_x)
            angle = math.atan2(event.y - center_y, event.x - center_x)
            # The scene follows the pointer.
            self.roll(-math.remainder(angle - previous, math.tau))
        else:
            # The drag as it were if the camera was upright.
            right, down = _turned(dx, dy, self.tilt)
            if grab.drag == "look":
                angle = 1.5 * math.radians(self.fov) / height
                self.look(right * angle, -down * angle)
            else:
                # A drag over the height of the picture is half a turn.
                angle = math.pi / height
                self.orbit(right * angle, down * angle)
        return bool(dx or dy)


def _turned(x: float, y: float, angle: float) -> tuple[float, float]:
    """Return a vector on the screen turned clockwise by radians."""
    cosine = math.cos(angle)
    sine = math.sin(angle)
    return cosine * x - sine * y, sine * x + cosine * y


def clamp_pinch(factor: float) -> float:
    """Return a magnification of two fingers, kept within bounds."""
    return min(max(factor, 1 / MAX_PINCH), MAX_PINCH)


def _moved_target(
    target: np.ndarray, rotation: np.ndarray, step: np.ndarray
) -> np.ndarray:
    """Return a target moved by `step` (3,) along a camera's axes, as far as numbers go."""
    return np.clip(target + rotation.T @ step, -_OUTSIDE, _OUTSIDE)


def _clamp_distance(distance: float) -> float:
    return min(max(distance, _NEAREST), _FARTHEST)


@dataclass
class Flight:
    """The way from one camera to another."""

    start: Orbit
    end: Orbit
    seconds: float
    _started_at: float | None = None

    def orbit_at(self, now: float) -> Orbit | None:
        """Return the camera at a time; None once it has arrived.

        Args:
            now: seconds; the first call starts the flight.
        """
        if self._started_at is None:
            self._started_at = now
        if self.seconds <= 0:
            return None
        share = (now - self._started_at) / self.seconds
        if share >= 1:
            return None
        return self.interpolate(max(share, 0.0))

    def interpolate(self, share: float) -> Orbit:
        """Return the camera after a share of the time, 0 to 1: slow at both ends."""
        t = share * share * (3 - 2 * share)
        a = self.start
        b = self.end
        first = rotations.quaternion(a.rotation)
        second = rotations.quaternion(b.rotation)
        rotation = rotations.matrix(rotations.slerp(first, second, t))
        target = a.target + (b.target - a.target) * t
        log_distance = math.log(a.distance) * (1 - t) + math.log(b.distance) * t
        fov = a.fov + (b.fov - a.fov) * t
        return replace(
            b,
            rotation=rotation,
            target=target,
            distance=math.exp(log_distance),
            fov=fov,
            near=min(a.near, b.near),
            far=max(a.far, b.far),
            looks_around=a.looks_around,
        )
