"""From pointer and wheel to a view: panning and zooming a picture, orbiting a scene. Plain maths, no graphics."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from viewer_app.cameras import DEFAULT_FOV, Camera, CameraModel, field_of_view, focal_length
from viewer_app.events import (
    Event,
    Key,
    Pinch,
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)

ZOOM_STEP = 1.2
"""Factor of one notch of the wheel."""
_PINCH = 8.0
"""How much one event of two fingers can magnify."""


@dataclass(frozen=True)
class Rect:
    """A part of the framebuffer in pixels, from the top left corner."""

    x: int
    y: int
    width: int
    height: int

    def contains(self, x: float, y: float) -> bool:
        return self.x <= x < self.x + self.width and self.y <= y < self.y + self.height

    def viewport(self, framebuffer_height: int) -> tuple[int, int, int, int]:
        """The same part for OpenGL, which counts rows from the bottom."""
        return self.x, framebuffer_height - self.y - self.height, self.width, self.height


@dataclass
class PanZoom:
    """How a picture of `size` pixels lies in a rectangle: fitted, or zoomed and moved by hand."""

    size: tuple[int, int] = (1, 1)
    """(width, height) of the picture."""
    fitted: bool = True
    zoom: float = 1.0
    """Screen pixels per picture pixel when not fitted."""
    center: tuple[float, float] = (0.5, 0.5)
    """The picture's point in the middle of the rectangle when not fitted, in picture pixels."""
    _seen_in: tuple[int, int] | None = field(default=None, repr=False)
    """The size of the rectangle that `zoom` is for, of which every other one shows all: somebody else's; None: of the
    rectangle at hand."""
    _grab: tuple[float, float] | None = field(default=None, repr=False)

    def placed(self, rect: Rect) -> tuple[float, float, float]:
        """(x, y, zoom): where the picture's top left corner lies on the screen, and its magnification."""
        width, height = self.size
        if self.fitted:
            zoom = min(rect.width / width, rect.height / height)
            center = width / 2, height / 2
        else:
            zoom, center = self.zoom, self.center
            if self._seen_in is not None:
                zoom *= min(rect.width / self._seen_in[0], rect.height / self._seen_in[1])
        return rect.x + rect.width / 2 - center[0] * zoom, rect.y + rect.height / 2 - center[1] * zoom, zoom

    def to_picture(self, x: float, y: float, rect: Rect) -> tuple[float, float]:
        """The picture's point under a point of the screen, in picture pixels; may lie outside the picture."""
        left, top, zoom = self.placed(rect)
        return (x - left) / zoom, (y - top) / zoom

    def set_zoom(self, zoom: float, rect: Rect, at: tuple[float, float] | None = None) -> None:
        """Magnify by `zoom` around a point of the screen (default: the middle), which stays where it is."""
        middle = rect.x + rect.width / 2, rect.y + rect.height / 2
        x, y = at or middle
        px, py = self.to_picture(x, y, rect)
        longest = max(self.size)
        self.zoom = min(max(zoom, 8 / longest), 256.0)
        self.fitted, self._seen_in = False, None
        self.center = px - (x - middle[0]) / self.zoom, py - (y - middle[1]) / self.zoom
        self._keep_near(rect)

    def fit(self) -> None:
        self.fitted = True

    def move(self, dx: float, dy: float, rect: Rect) -> None:
        """The picture follows a drag of (dx, dy) pixels of the screen."""
        _, _, zoom = self.placed(rect)
        cx, cy = self.to_picture(rect.x + rect.width / 2, rect.y + rect.height / 2, rect)
        self.fitted, self._seen_in, self.zoom, self.center = False, None, zoom, (cx - dx / zoom, cy - dy / zoom)
        self._keep_near(rect)

    def look_like(self, other: PanZoom, rect: Rect) -> None:
        """Show what another one shows in `rect`, all of it, in whatever rectangle, until somebody moves this one."""
        self.fitted, self.zoom, self.center = other.fitted, other.zoom, other.center
        self._seen_in = other._seen_in or (rect.width, rect.height)

    def resize_picture(self, width: int, height: int) -> None:
        """The picture has another size now; a fitted one stays fitted."""
        if (width, height) != self.size and not self.fitted:
            sx, sy = width / self.size[0], height / self.size[1]
            self.center = self.center[0] * sx, self.center[1] * sy
            self.zoom /= max(sx, sy)
        self.size = width, height

    def _keep_near(self, rect: Rect) -> None:
        """The picture's middle third can leave the rectangle, the whole picture cannot."""
        clamped = []
        for c, extent, room in zip(self.center, self.size, (rect.width, rect.height), strict=True):
            slack = max(room / 2 / self.zoom - 24 / self.zoom, 0)
            clamped.append(min(max(c, -slack), extent + slack))
        self.center = clamped[0], clamped[1]

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
                self.set_zoom(self.placed(rect)[2] * _limited(event.factor), rect, (event.x, event.y))
                return True
            case Key(name="f", pressed=True):
                self.fit()
                return True
            case Key(name="1", pressed=True):
                self.set_zoom(1.0, rect)
                return True
        return False


@dataclass
class Orbit:
    """A camera that turns around a target, in OpenCV axes.

    Left drag orbits around `up`, right or middle drag (or Shift and left) pans so that the point under the pointer
    at the target's depth follows it, the wheel moves towards that point. Two fingers do both.
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
    _grab: tuple[float, float, Literal["orbit", "pan"]] | None = field(default=None, repr=False)
    _last: tuple[tuple[object, ...], Camera] | None = field(default=None, repr=False, compare=False)
    """The camera made last, by all that it depends on."""

    @property
    def dragging(self) -> bool:
        return self._grab is not None

    def take(self, camera: Camera, target: np.ndarray) -> None:
        """Look from `camera`; orbit around the point nearest to `target` on its line of sight."""
        self.rotation = camera.viewmat[:3, :3].copy()
        depth = float((self.rotation @ target + camera.viewmat[:3, 3])[2])
        self.distance = depth if depth > 1e-6 else max(float(np.linalg.norm(target - camera.position)), 1e-3)
        self.target = camera.position + self.rotation[2] * self.distance
        focal = float(camera.K[1, 1]) * (self.distance if camera.model == "ortho" else 1)
        self.fov = field_of_view(focal, camera.height, camera.model)
        self.fov = min(max(self.fov, 1.0), 170.0)
        self.near = camera.near
        self.model = camera.model

    def camera(self, width: int, height: int) -> Camera:
        """The camera for a picture of this size; the vertical field of view does not depend on it. While nothing moves
        it is the same object: its arrays are not to be changed."""
        wanted = (self.rotation.tobytes(), self.target.tobytes(), self.distance, self.fov, self.model, self.near, width,
                  height)
        if self._last is not None and self._last[0] == wanted:
            return self._last[1]
        focal = focal_length(self.fov, height, self.model)
        if self.model == "ortho":
            focal /= self.distance
        viewmat = np.eye(4)
        viewmat[:3, :3] = self.rotation
        viewmat[:3, 3] = -self.rotation @ (self.target - self.rotation[2] * self.distance)
        K = np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1.0]])
        camera = Camera(viewmat, K, width, height, self.model, self.near)
        self._last = wanted, camera
        return camera

    def set_up(self, up: np.ndarray) -> None:
        """Another axis points upward; the camera turns upright around the target."""
        self.up = np.asarray(up, np.float64)
        forward = self.rotation[2]
        right = np.cross(forward, self.up)
        if np.linalg.norm(right) < 1e-3:  # looking along the new axis: step aside
            forward = forward + 0.5 * np.eye(3)[int(np.argmin(np.abs(self.up)))]
            forward /= np.linalg.norm(forward)
            right = np.cross(forward, self.up)
        right /= np.linalg.norm(right)
        self.rotation = np.stack([right, np.cross(forward, right), forward])

    def orbit(self, yaw: float, pitch: float) -> None:
        """Turn around the target, in radians: by `yaw` its near side goes to the right, by `pitch` the camera up.

        The camera stops short of looking along `up`, where left and right would swap.
        """
        axis = self.up / np.linalg.norm(self.up)
        rotation = self.rotation @ _rotation(axis, -yaw).T
        elevation = math.asin(float(np.clip(-rotation[2] @ axis, -1, 1)))  # of the camera above the target
        limit = math.radians(89)
        pitch = min(max(elevation + pitch, min(-limit, elevation)), max(limit, elevation)) - elevation
        rotation = _rotation(np.array([1.0, 0.0, 0.0]), pitch) @ rotation
        u, _, vt = np.linalg.svd(rotation)  # keeps thousands of small turns a rotation
        self.rotation = u @ vt

    def pan(self, dx: float, dy: float, height: int) -> None:
        """Move with the target so that the scene follows a drag of (dx, dy) pixels in a picture so high."""
        unit = self.distance / focal_length(self.fov, height, self.model)
        self.target = self.target - self.rotation.T @ np.array([dx * unit, dy * unit, 0.0])

    def dolly(self, factor: float, x: float, y: float, rect: Rect) -> None:
        """Come nearer by `factor` (< 1) towards the point under the pixel (x, y) at the target's depth."""
        unit = self.distance / focal_length(self.fov, rect.height, self.model)
        offset = np.array([(x - rect.x - rect.width / 2) * unit, (y - rect.y - rect.height / 2) * unit, 0.0])
        distance = min(max(self.distance * factor, 1e-6), 1e9)
        factor = distance / self.distance
        self.target = self.target + self.rotation.T @ offset * (1 - factor)
        self.distance = distance

    def handle(self, event: Event, rect: Rect) -> bool:
        """Take a user's event; True when the camera moved (or a drag ended)."""
        match event:
            case PointerPress():
                pan = event.button != "left" or "shift" in event.mods
                self._grab = event.x, event.y, "pan" if pan else "orbit"
            case PointerRelease():
                was, self._grab = self._grab, None
                return was is not None
            case PointerMove() if self._grab is not None:
                dx, dy, how = event.x - self._grab[0], event.y - self._grab[1], self._grab[2]
                self._grab = event.x, event.y, how
                if how == "pan":
                    self.pan(dx, dy, rect.height)
                else:
                    turn = math.pi / max(rect.height, 1)  # a drag over the height of the picture is half a turn
                    self.orbit(dx * turn, dy * turn)
                return bool(dx or dy)
            case Wheel():
                self.dolly(0.88 ** max(min(event.dy, 8.0), -8.0), event.x, event.y, rect)
                return event.dy != 0
            case Pinch():
                self._grab = None  # of the finger that came first
                self.pan(event.dx, event.dy, rect.height)
                self.dolly(1 / _limited(event.factor), event.x, event.y, rect)
                return bool(event.dx or event.dy or event.factor != 1)
        return False

    def look_like(self, other: Orbit) -> None:
        """Look from where another one does."""
        # Never changed in place, so the arrays may be shared.
        self.rotation, self.target, self.distance, self.up = other.rotation, other.target, other.distance, other.up
        self.fov, self.model, self.near = other.fov, other.model, other.near

    def copy(self) -> Orbit:
        return replace(self, rotation=self.rotation.copy(), target=self.target.copy(), up=self.up.copy())


def _limited(factor: float) -> float:
    """Of two fingers: neither endless nor nothing."""
    return min(max(factor, 1 / _PINCH), _PINCH)


def _rotation(axis: np.ndarray, angle: float) -> np.ndarray:
    """(3, 3) right-handed rotation around a unit axis (Rodrigues' formula)."""
    x, y, z = axis
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + math.sin(angle) * k + (1 - math.cos(angle)) * (k @ k)
