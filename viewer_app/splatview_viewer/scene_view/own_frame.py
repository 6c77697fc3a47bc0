"""The frame of a scene: its middle, its size and what is up in it.

Scenes of one world share their cameras as they are. A camera of a scene whose up or
scale is another one is carried over from frame to frame.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from splatview_viewer.geometry.cameras import world_to_camera

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.orbit import OrbitPlace
    from splatview_viewer.scene_view.protocol import SceneData, SceneView
    from splatview_viewer.scene_view.state import CameraPlace

_MAX_RATIO = 2.5
"""Factor up to which the sizes of two scenes of one world differ."""
_MAX_ANGLE = math.cos(math.radians(20))
"""Cosine of the angle up to which their directions upward differ."""
_MAX_DISTANCE = 0.5
"""Distance of the middles of two scenes of one world, in radii of the larger one."""
_SURE_SOURCES = ("file", "cameras", "custom")
"""What is believed of a direction upward; a ground may be a wall."""


@dataclass(frozen=True)
class SceneFrame:
    """The frame of a scene."""

    center: np.ndarray
    """(3,)"""
    radius: float
    up: np.ndarray | None
    """(3,), of length 1; None where nothing is known."""
    is_up_sure: bool
    """Whether `up` tells scenes of one world from others."""
    focus: np.ndarray
    """The point (3,) in the middle of a picture that shows all of the scene."""
    distance: float
    """The distance from which that picture is taken."""

    def is_like(self, other: SceneFrame) -> bool:
        """Return whether both frames may be of one world."""
        ratio = self.radius / other.radius
        if not 1 / _MAX_RATIO <= ratio <= _MAX_RATIO:
            return False
        distance = float(np.linalg.norm(self.center - other.center))
        if distance > _MAX_DISTANCE * max(self.radius, other.radius):
            return False
        if self.up is None or other.up is None:
            return True
        if not (self.is_up_sure and other.is_up_sure):
            return True
        return float(self.up @ other.up) >= _MAX_ANGLE


_frames: WeakKeyDictionary[SceneData, SceneFrame] = WeakKeyDictionary()
"""The frames of scenes as they were first compared: a training that goes on does not
move what is tied to it."""


def _frame_of(view: SceneView) -> SceneFrame | None:
    """Return the frame of a view's scene; None while there is none."""
    frame = _frames.get(view.data)
    if frame is not None:
        return frame
    sample = view.data.sample
    if sample is None:
        return None
    center, radius = sample.bounds
    found_up = view.rig.up_axis.detect()
    up = None
    is_up_sure = False
    if found_up is not None:
        up = found_up.direction / np.linalg.norm(found_up.direction)
        is_up_sure = found_up.source in _SURE_SOURCES
    if not (np.isfinite(center).all() and math.isfinite(radius) and radius > 0):
        return None
    middle = np.asarray(center, np.float64)
    focus, distance = sample.focus(view.rig.orbit.up if up is None else up)
    if not (np.isfinite(focus).all() and distance > 0):
        return None
    frame = SceneFrame(middle, float(radius), up, is_up_sure, focus, distance)
    _frames[view.data] = frame
    return frame


def _frames_of(
    view: SceneView, leader: SceneView
) -> tuple[SceneFrame, SceneFrame] | None:
    """Return the frames of a view and of its leader if they differ; None: they do not."""
    if view.data is leader.data:
        return None
    view_frame = _frame_of(view)
    leader_frame = _frame_of(leader)
    if view_frame is None or leader_frame is None or view_frame.is_like(leader_frame):
        return None
    return view_frame, leader_frame


def has_own_frame(view: SceneView, leader: SceneView) -> bool:
    """Return whether the up or scale of a view's scene differs from its leader's."""
    return _frames_of(view, leader) is not None


def place_from(view: SceneView, leader: SceneView) -> CameraPlace:
    """Return the place from which a view shows what its leader shows."""
    leader_place = leader.state.place
    frames = _frames_of(view, leader)
    if frames is None or not leader_place.framed:
        return leader_place
    view_frame, leader_frame = frames
    rotation = np.eye(3)
    if view_frame.up is not None and leader_frame.up is not None:
        rotation = _rotation_between(leader_frame.up, view_frame.up)
    transfer = _FrameTransfer(
        view_frame.focus,
        leader_frame.focus,
        view_frame.distance / leader_frame.distance,
        rotation,
    )
    if leader_place.exact_camera is None:
        exact = None
    else:
        exact = transfer.camera(leader_place.exact_camera)
    up_by = view.state.place.up_by
    return replace(
        leader_place,
        orbit=transfer.orbit(leader_place.orbit),
        exact_camera=exact,
        up_by=up_by,
    )


@dataclass(frozen=True)
class _FrameTransfer:
    """The way from the frame of one scene to that of another."""

    focus: np.ndarray
    other_focus: np.ndarray
    scale: float
    rotation: np.ndarray
    """(3, 3)"""

    def point(self, point: np.ndarray) -> np.ndarray:
        """Return where a point (3,) of the other scene lies in this one."""
        return self.focus + self.scale * (self.rotation @ (point - self.other_focus))

    def orbit(self, orbit_place: OrbitPlace) -> OrbitPlace:
        """Return an orbit of the other scene in this one."""
        rotation = np.array(orbit_place.rotation).reshape(3, 3) @ self.rotation.T
        target = self.point(np.array(orbit_place.target))
        up = self.rotation @ np.array(orbit_place.up)
        return replace(
            orbit_place,
            rotation=tuple(rotation.ravel().tolist()),
            target=tuple(target.tolist()),
            distance=orbit_place.distance * self.scale,
            up=tuple(up.tolist()),
        )

    def camera(self, camera: Camera) -> Camera:
        """Return a camera of the other scene in this one."""
        rotation = camera.viewmat[:3, :3] @ self.rotation.T
        position = self.point(camera.position)
        return replace(camera, viewmat=world_to_camera(rotation, position))


def _rotation_between(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the smallest rotation (3, 3) from one direction (3,) to another."""
    axis = np.cross(start, end)
    cosine = float(start @ end)
    if cosine < -1 + 1e-9:
        # Half a turn, around any axis across.
        normal = np.cross(start, np.eye(3)[int(abs(start).argmin())])
        normal /= np.linalg.norm(normal)
        return 2 * np.outer(normal, normal) - np.eye(3)
    x, y, z = axis.tolist()
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + cross + cross @ cross / (1 + cosine)
