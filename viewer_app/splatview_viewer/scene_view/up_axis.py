"""The direction upward of a scene: by its file, cameras or ground, or the user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.geometry.upward import snap_to_axis, up_of_cameras, up_of_scene

if TYPE_CHECKING:
    from splatview_viewer.scene_view.protocol import SceneView

_SAME_DIRECTION = 0.9976
"""Cosine of an angle, 4 degrees, by which two directions upward may differ."""


class UpAxis:
    """Chooses what is up in a view, until the user says it."""

    def __init__(self, view: SceneView) -> None:
        self._view = view
        self._viewmats: np.ndarray | None = None
        """Matrices (N, 4, 4) of the cameras that the scene is trained with."""

    @property
    def _of_file(self) -> tuple[float, float, float] | None:
        summary = self._view.data.summary
        return None if summary is None else summary.up

    def use_cameras(self, viewmats: np.ndarray) -> None:
        """Take the published cameras of the scene, (N, 4, 4) world to camera.

        The first ones decide what is up, unless the user or the scene's file does.
        A scene that is seen as at first is turned upright.
        """
        is_first = self._viewmats is None
        self._viewmats = viewmats
        rig = self._view.rig
        place = self._view.state.place
        if not is_first or place.up_by == "user" or self._of_file is not None:
            return
        up = up_of_cameras(viewmats)
        if up is None:
            return
        direction = snap_to_axis(up)
        is_turned = float(direction @ rig.orbit.up) < _SAME_DIRECTION
        if is_turned:
            rig.orbit.up = direction
        rig.put_place(up_by="found")
        if is_turned and not (place.by_hand or rig.is_fixed):
            rig.frame_scene()

    def choose_first(self) -> np.ndarray:
        """Return the direction upward (3,) for the first sight of the scene."""
        rig = self._view.rig
        origin = self._view.state.place.up_by
        is_open = not origin or (origin == "found" and self._of_file is not None)
        if is_open:
            detected = self.detect()
            if detected is not None:
                rig.orbit.up = detected
                rig.put_place(up_by="found")
        return rig.orbit.up

    def detect(self) -> np.ndarray | None:
        """Return what is up (3,) by the scene's file, else its cameras or its ground.

        Returns None where none of them says it.
        """
        if self._of_file is not None:
            return np.array(self._of_file, np.float64)
        up = None if self._viewmats is None else up_of_cameras(self._viewmats)
        sample = self._view.data.current_sample()
        if up is None and sample is not None:
            up = up_of_scene(sample.means, sample.weights)
        return None if up is None else snap_to_axis(up)

    def set_by_user(self, up: np.ndarray) -> None:
        """Take what the user says is up (3,), and turn the camera upright."""
        rig = self._view.rig
        rig.motion.take_over()
        rig.orbit.set_up(up)
        rig.apply_orbit(up_by="user")
