"""A camera path: keyframes in time, and a smooth way through them.

Positions and fields of view follow cubic Hermite curves; their velocities at a key are those of the parabola through it
and its neighbours, as in a Catmull-Rom spline for keys that are not evenly spaced. Orientations follow the curve of
the same sort on the sphere of unit quaternions: Shoemake, "Animating rotation with quaternion curves" (1985), with
control points from the angular velocities at the keys. Both go through every key without a jolt.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.core.errors import CameraError
from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.cameras import Camera, field_of_view, focal_length

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.geometry.cameras import CameraModel

SECONDS = 2.0
"""Between two keyframes, unless something else is said."""
MOST_KEYS = 1000
"""Keyframes that are set by hand, drawn and remembered."""
MOST_FRAMES = 108_000
"""Keyframes of a path that was written as pictures, and pictures in a file of a path:
an hour of 30 a second."""
MOST_PICTURES = 1_000_000
"""Pictures of a film, which are numbered by six digits."""
MOST_FOV = 179.0
MOST_FISHEYE_FOV = 13140.0
"""Degrees from top to bottom of the picture. An equidistant one may show more than a whole turn: nerfstudio makes focal
lengths so short."""


def most_fov(model: CameraModel) -> float:
    """Return the largest field of view of a keyframe."""
    return MOST_FISHEYE_FOV if model == "fisheye" else MOST_FOV


@dataclass(frozen=True, eq=False, slots=True)
class Keyframe:
    """One keyframe: where the camera is at that time. Equal to itself alone."""

    position: np.ndarray
    """(3,) world."""
    rotation: np.ndarray
    """(4,) unit quaternion w x y z of the camera's axes (OpenCV: x right, y down, z forward) in the world."""
    fov: float
    """Vertical, degrees."""
    seconds: float = SECONDS
    """Seconds to the next key; of a loop's last one, to the first."""

    @classmethod
    def of(
        cls, camera: Camera, distance: float = 1.0, seconds: float = SECONDS
    ) -> Keyframe:
        """Pose of a camera. `distance`: at which an orthographic one shows what a perspective one with this field of
        view would show.
        """
        focal = float(camera.K[1, 1]) * (distance if camera.model == "ortho" else 1.0)
        fov = field_of_view(focal, camera.height, camera.model)
        return cls(
            camera.position,
            rotations.quaternion(camera.viewmat[:3, :3].T),
            min(max(fov, 0.1), most_fov(camera.model)),
            seconds,
        )


@dataclass
class CameraPath:
    """Keyframes in their order."""

    keys: list[Keyframe] = field(default_factory=list)
    loop: bool = False
    """True if the way leads from the last key back to the first."""
    smooth: bool = True
    """True if it is curved; otherwise it leads straight from key to key."""
    model: CameraModel = "pinhole"
    held: bool = False
    """True if the last key is shown for its seconds, as each picture of a film is."""
    _times: tuple[list[Keyframe], bool, list[float]] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    """The keys, whether it was a loop, and the times that came of them."""

    @property
    def times(self) -> list[float]:
        """When each key is reached, in seconds; of a loop, the first once more at the end. Not to be changed."""
        known = self._times
        # Comparing the keys takes a hundredth of adding up the times of many.
        if known is not None and known[1] == self.loop and known[0] == self.keys:
            return known[2]
        closed = self.loop and len(self.keys) > 1
        steps = [key.seconds for key in self.keys[: None if closed else -1]]
        times = list(accumulate(steps, initial=0.0))
        self._times = list(self.keys), self.loop, times
        return times

    @property
    def duration(self) -> float:
        """Seconds; 0 with fewer than two keys, unless the last one is held."""
        return self.times[-1] + sum(
            key.seconds for key in self.keys[-1:] if self.held and not self.loop
        )

    def stretch(self, duration: float) -> None:
        """Have all of it take so many seconds."""
        if self.duration > 0 and duration > 0:
            factor = duration / self.duration
            self.keys = [
                replace(key, seconds=key.seconds * factor) for key in self.keys
            ]

    def at(self, seconds: float, width: int, height: int, near: float = 0.01) -> Camera:
        """The camera at a time, which is kept within the path.

        Raises CameraError when there is no key.
        """
        if not self.keys:
            raise CameraError("path: there is no keyframe; add one where the camera is")
        if len(self.keys) == 1:
            return self._camera(
                self.keys[0].position,
                self.keys[0].rotation,
                self.keys[0].fov,
                width,
                height,
                near,
            )
        times = self.times
        seconds = min(max(seconds, 0.0), times[-1])
        i = min(bisect_right(times, seconds) - 1, len(times) - 2)
        span = times[i + 1] - times[i]
        # times are sums: at a key 0 or 1, not near it
        if span > 0:
            t = round((seconds - times[i]) / span, 10)
        else:
            t = 0.0
        a = self.keys[i]
        b = self.keys[(i + 1) % len(self.keys)]
        if not self.smooth:
            return self._camera(
                a.position + (b.position - a.position) * t,
                rotations.slerp(a.rotation, b.rotation, t),
                a.fov + (b.fov - a.fov) * t,
                width,
                height,
                near,
            )
        # Hermite's cubic, and for rotations a Bezier curve by de Casteljau's scheme, with slerp for straight lines.
        t2 = t * t
        t3 = t * t * t
        begin, end = (np.append(key.position, math.log(key.fov)) for key in (a, b))
        place = (
            (2 * t3 - 3 * t2 + 1) * begin
            + (t3 - 2 * t2 + t) * span * self._slope(i, _way)
            + (3 * t2 - 2 * t3) * end
            + (t3 - t2) * span * self._slope(i + 1, _way)
        )
        last = b.rotation if a.rotation @ b.rotation >= 0 else -b.rotation
        q = [
            a.rotation,
            rotations.multiply(
                a.rotation, rotations.exp(self._slope(i, _turn) * span / 3)
            ),
            rotations.multiply(
                last, rotations.exp(-self._slope(i + 1, _turn) * span / 3)
            ),
            last,
        ]
        while len(q) > 1:
            q = [rotations.slerp(first, second, t) for first, second in pairwise(q)]
        fov = min(math.exp(place[3]), most_fov(self.model))
        return self._camera(place[:3], q[0], fov, width, height, near)

    def frames(self, fps: float) -> int:
        """Number of pictures of its film."""
        return max(round(self.duration * fps), 1) if self.keys else 0

    def _camera(
        self,
        position: np.ndarray,
        rotation: np.ndarray,
        fov: float,
        width: int,
        height: int,
        near: float,
    ) -> Camera:
        viewmat = np.eye(4)
        viewmat[:3, :3] = rotations.matrix(rotation).T
        viewmat[:3, 3] = -viewmat[:3, :3] @ position
        focal = focal_length(fov, height, self.model)
        K = np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1.0]])
        return Camera(viewmat, K, width, height, self.model, near)

    def _slope(
        self, i: int, way: Callable[[Keyframe, Keyframe], np.ndarray]
    ) -> np.ndarray:
        """How fast something changes at the key that is reached at `times[i]`, a second: the slope of the parabola
        through it and its neighbours there; at an end, that to the one there is. `way`: its change between keys.
        """
        n = len(self.keys)
        sides = []
        for before in (i - 1, i):
            if self.loop or 0 <= before < n - 1:
                a = self.keys[before % n]
                b = self.keys[(before + 1) % n]
                if a.seconds > 0:
                    sides.append((way(a, b) / a.seconds, a.seconds))
        if len(sides) < 2:
            return sides[0][0] if sides else 0 * way(self.keys[i % n], self.keys[i % n])
        (left, before_s), (right, after_s) = sides
        return (left * after_s + right * before_s) / (before_s + after_s)


def _way(a: Keyframe, b: Keyframe) -> np.ndarray:
    """(4,) of position and the logarithm of the field of view."""
    return np.append(b.position - a.position, math.log(b.fov / a.fov))


def _turn(a: Keyframe, b: Keyframe) -> np.ndarray:
    """(3,) in the axes of a."""
    return rotations.log(rotations.between(a.rotation, b.rotation))


def positions(path: CameraPath, count: int) -> np.ndarray:
    """(count, 3) places along a path, evenly in time."""
    return np.stack(
        [path.at(t, 16, 16).position for t in np.linspace(0, path.duration, count)]
    )


def turntable(
    camera: Camera,
    target: np.ndarray,
    up: np.ndarray,
    seconds: float = 8.0,
    keys: int = 8,
) -> CameraPath:
    """Once around a point, beginning at `camera`, which goes on looking as it does: for who has no path yet."""
    axis = np.asarray(up, np.float64) / np.linalg.norm(up)
    arm = camera.position - target
    base = camera.viewmat[:3, :3].T
    made = []
    for i in range(keys):
        turn = rotations.matrix(rotations.exp(axis * (2 * math.pi * i / keys)))
        key = Keyframe.of(camera, float(np.linalg.norm(arm)), seconds / keys)
        made.append(
            replace(
                key,
                position=target + turn @ arm,
                rotation=rotations.quaternion(turn @ base),
            )
        )
    return CameraPath(made, loop=True, model=camera.model)
