"""A camera path: keyframes in time, and a smooth way through them.

Positions and fields of view follow cubic Hermite curves; their velocities at a key are
those of the parabola through it and its neighbours, as in a Catmull-Rom spline for keys
that are not evenly spaced. Orientations follow the curve of the same sort on the sphere
of unit quaternions: Shoemake, "Animating rotation with quaternion curves" (1985), with
control points from the angular velocities at the keys. Both go through every key without
a jolt.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_viewer.core.errors import CameraError
from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.cameras import (
    Camera,
    centered_intrinsics,
    field_of_view,
    focal_length,
    world_to_camera,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.geometry.cameras import CameraModel

    Difference = Callable[["Keyframe", "Keyframe"], np.ndarray]

SECONDS = 2.0
"""Seconds between two keyframes by default."""
MAX_KEYS = 1000
"""Keyframes that are set by hand, drawn and remembered."""
MAX_FRAMES = 108_000
"""Keyframes of a path that was written as pictures, and pictures in a file of a path:
an hour of 30 a second."""
MAX_PICTURES = 1_000_000
"""Pictures of a film, which are numbered by six digits."""
MIN_FOV = 0.1
MAX_FOV = 179.0
MAX_FISHEYE_FOV = 13140.0
"""Degrees from top to bottom of the picture. An equidistant one may show more than a
whole turn: nerfstudio makes focal lengths so short."""


def max_fov(model: CameraModel) -> float:
    """Return the largest field of view of a keyframe, degrees."""
    if model == "fisheye":
        return MAX_FISHEYE_FOV
    return MAX_FOV


@dataclass(frozen=True, eq=False, slots=True)
class Keyframe:
    """One keyframe: the camera's pose at that time. Equal to itself alone."""

    position: np.ndarray
    """Position (3,) in the world."""
    rotation: np.ndarray
    """(4,) unit quaternion w x y z of the camera's axes (OpenCV: x right, y down, z
    forward) in the world."""
    fov: float
    """Vertical field of view, in degrees."""
    seconds: float = SECONDS
    """Seconds to the next key; of a loop's last one, to the first."""

    @classmethod
    def of(
        cls, camera: Camera, distance: float = 1.0, seconds: float = SECONDS
    ) -> Keyframe:
        """Make the keyframe of a camera's pose.

        Args:
            camera: the camera.
            distance: the depth at which an orthographic camera shows what a perspective
                one with the keyframe's field of view would show.
            seconds: seconds to the next key.
        """
        focal = float(camera.K[1, 1])
        if camera.model == "ortho":
            focal *= distance
        fov = field_of_view(focal, camera.height, camera.model)
        return cls(
            camera.position,
            rotations.quaternion(camera.viewmat[:3, :3].T),
            min(max(fov, MIN_FOV), max_fov(camera.model)),
            seconds,
        )


class _KeyTimes(NamedTuple):
    """The times of keys, and the keys that they were worked out from."""

    keys: list[Keyframe]
    loop: bool
    times: list[float]


class _Segment(NamedTuple):
    """The way between two neighbouring keys."""

    key_index: int
    """Index of the key where it starts."""
    first: Keyframe
    second: Keyframe
    seconds: float
    """Time from `first` to `second`."""
    share: float
    """Share of that time that has passed, 0 to 1."""


@dataclass
class CameraPath:
    """Keyframes in their order."""

    keys: list[Keyframe] = field(default_factory=list)
    loop: bool = False
    """True if the way leads from the last key back to the first."""
    smooth: bool = True
    """True if it is curved; otherwise it leads straight from key to key."""
    model: CameraModel = "pinhole"
    holds_last: bool = False
    """True if the last key is shown for its seconds, as each picture of a film is."""
    _key_times: _KeyTimes | None = field(
        default=None, init=False, repr=False, compare=False
    )

    @property
    def times(self) -> list[float]:
        """Seconds at which each key is reached. Not to be changed.

        Of a loop, the first key is there once more at the end.
        """
        key_times = self._key_times
        # Comparing the keys takes a hundredth of adding up the times of many.
        if key_times is not None and (key_times.loop, key_times.keys) == (
            self.loop,
            self.keys,
        ):
            return key_times.times
        is_closed = self.loop and len(self.keys) > 1
        steps = [key.seconds for key in self.keys]
        if not is_closed:
            del steps[-1:]
        times = list(accumulate(steps, initial=0.0))
        self._key_times = _KeyTimes(list(self.keys), self.loop, times)
        return times

    @property
    def duration(self) -> float:
        """Seconds; 0 with fewer than two keys, unless the last one is held."""
        duration = self.times[-1]
        if self.keys and self.holds_last and not self.loop:
            duration += self.keys[-1].seconds
        return duration

    def stretch(self, duration: float) -> None:
        """Have the whole path take `duration` seconds."""
        if self.duration <= 0 or duration <= 0:
            return
        factor = duration / self.duration
        self.keys = [replace(key, seconds=key.seconds * factor) for key in self.keys]

    def frame_count(self, fps: float) -> int:
        """Return the number of pictures of the path's film."""
        if not self.keys:
            return 0
        return max(round(self.duration * fps), 1)

    def camera_at(
        self, seconds: float, width: int, height: int, near: float = 0.01
    ) -> Camera:
        """Return the camera at a time, which is kept within the path.

        Raises:
            CameraError: there is no key.
        """
        if not self.keys:
            raise CameraError("path: there is no keyframe; add one where the camera is")
        if len(self.keys) == 1:
            pose = self.keys[0]
        elif self.smooth:
            pose = self._smooth_pose(self._segment(seconds))
        else:
            pose = _straight_pose(self._segment(seconds))
        rotation = rotations.matrix(pose.rotation).T
        viewmat = world_to_camera(rotation, pose.position)
        focal = focal_length(pose.fov, height, self.model)
        K = centered_intrinsics(focal, width, height)
        return Camera(viewmat, K, width, height, self.model, near)

    def _segment(self, seconds: float) -> _Segment:
        """Return the way between two keys on which the camera is at a time."""
        times = self.times
        seconds = min(max(seconds, 0.0), times[-1])
        index = min(bisect_right(times, seconds) - 1, len(times) - 2)
        span = times[index + 1] - times[index]
        share = 0.0
        if span > 0:
            # Times are sums: rounding makes it 0 or 1 at a key, and not nearly so.
            share = round((seconds - times[index]) / span, 10)
        first = self.keys[index]
        second = self.keys[(index + 1) % len(self.keys)]
        return _Segment(index, first, second, span, share)

    def _smooth_pose(self, segment: _Segment) -> Keyframe:
        """Return the pose on Hermite's cubic, and for rotations on a Bezier curve."""
        position, log_fov = self._hermite(segment)
        fov = min(math.exp(log_fov), max_fov(self.model))
        return Keyframe(position, self._bezier(segment), fov)

    def _hermite(self, segment: _Segment) -> tuple[np.ndarray, float]:
        """Return the position (3,) and the logarithm of the field of view."""
        index, first, second, span, t = segment
        start = np.append(first.position, math.log(first.fov))
        end = np.append(second.position, math.log(second.fov))
        start_slope = self._slope(index, _translation)
        end_slope = self._slope(index + 1, _translation)
        t2 = t * t
        t3 = t * t * t
        values = (2 * t3 - 3 * t2 + 1) * start
        values = values + (t3 - 2 * t2 + t) * span * start_slope
        values = values + (3 * t2 - 2 * t3) * end
        values = values + (t3 - t2) * span * end_slope
        return values[:3], float(values[3])

    def _bezier(self, segment: _Segment) -> np.ndarray:
        """Return the rotation (4,) by De Casteljau's scheme, with slerp for lines."""
        index, first, second, span, t = segment
        start = first.rotation
        end = second.rotation
        if start @ end < 0:
            end = -end
        start_velocity = self._slope(index, _rotation)
        end_velocity = self._slope(index + 1, _rotation)
        leaving = rotations.exp(start_velocity * span / 3)
        arriving = rotations.exp(-end_velocity * span / 3)
        after_start = rotations.multiply(start, leaving)
        before_end = rotations.multiply(end, arriving)
        controls = [start, after_start, before_end, end]
        while len(controls) > 1:
            controls = [rotations.slerp(a, b, t) for a, b in pairwise(controls)]
        return controls[0]

    def _slope(self, index: int, difference: Difference) -> np.ndarray:
        """Return the change a second at the key that is reached at `times[index]`.

        It is the slope there of the parabola through the key and its neighbours; at an
        end, the slope to the one neighbour there is.

        Args:
            index: the index of the key; one more than the last of a loop is its first.
            difference: what changes, from one key to another.
        """
        count = len(self.keys)
        slopes: list[np.ndarray] = []
        spans: list[float] = []
        for left in (index - 1, index):
            if not (self.loop or 0 <= left < count - 1):
                continue
            first = self.keys[left % count]
            second = self.keys[(left + 1) % count]
            if first.seconds > 0:
                slopes.append(difference(first, second) / first.seconds)
                spans.append(first.seconds)
        if not slopes:
            key = self.keys[index % count]
            return 0 * difference(key, key)
        if len(slopes) == 1:
            return slopes[0]
        left_span, right_span = spans
        left_slope, right_slope = slopes
        weighted = left_slope * right_span + right_slope * left_span
        return weighted / (left_span + right_span)


def _straight_pose(segment: _Segment) -> Keyframe:
    """Return the pose on a straight line between two keys."""
    first = segment.first
    second = segment.second
    t = segment.share
    shift = second.position - first.position
    position = first.position + shift * t
    rotation = rotations.slerp(first.rotation, second.rotation, t)
    fov = first.fov + (second.fov - first.fov) * t
    return Keyframe(position, rotation, fov)


def _translation(a: Keyframe, b: Keyframe) -> np.ndarray:
    """Return the change of position and of the field of view's logarithm, (4,)."""
    return np.append(b.position - a.position, math.log(b.fov / a.fov))


def _rotation(a: Keyframe, b: Keyframe) -> np.ndarray:
    """Return the rotation from `a` to `b`, axis times angle in the axes of `a`, (3,)."""
    return rotations.log(rotations.shortest_rotation(a.rotation, b.rotation))


def positions(path: CameraPath, count: int) -> np.ndarray:
    """Return `count` positions along a path, evenly in time, (count, 3)."""
    times = np.linspace(0, path.duration, count)
    return np.stack([path.camera_at(t, 16, 16).position for t in times])


def turntable(
    camera: Camera,
    target: np.ndarray,
    up: np.ndarray,
    seconds: float = 8.0,
    keys: int = 8,
) -> CameraPath:
    """Return a path once around a point, for users who have none yet.

    Args:
        camera: where the path starts; it goes on looking at the point as it does.
        target: the point, (3,).
        up: the axis, (3,).
        seconds: duration of the path.
        keys: number of keyframes.
    """
    axis = np.asarray(up, np.float64) / np.linalg.norm(up)
    arm = camera.position - target
    orientation = camera.viewmat[:3, :3].T
    first = Keyframe.of(camera, float(np.linalg.norm(arm)), seconds / keys)
    keyframes = []
    for i in range(keys):
        angle = 2 * math.pi * i / keys
        rotation = rotations.matrix(rotations.exp(axis * angle))
        key = replace(
            first,
            position=target + rotation @ arm,
            rotation=rotations.quaternion(rotation @ orientation),
        )
        keyframes.append(key)
    return CameraPath(keyframes, loop=True, model=camera.model)
