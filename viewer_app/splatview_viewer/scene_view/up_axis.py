"""Finds which direction of a scene is up, by its file, its cameras or its ground."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.geometry.upward import snap_to_axis, up_of_cameras, up_of_scene

if TYPE_CHECKING:
    from splatview_viewer.scene_view.protocol import SceneView

_SAME_DIRECTION = 0.9976
"""Cosine of 4 degrees. Directions that differ by less count as the same."""


class UpAxis:
    """The direction upward of a view, which is found until the user chooses one."""

    def __init__(self, view: SceneView) -> None:
        self._view = view
        self._viewmats: np.ndarray | None = None
        """World to camera, (N, 4, 4), of the cameras that the scene is trained with."""

    @property
    def _up_of_file(self) -> tuple[float, float, float] | None:
        """The direction that the scene's file says is up; None if it says none."""
        summary = self._view.data.summary
        return None if summary is None else summary.up

    @property
    def direction(self) -> np.ndarray:
        """The direction upward now, (3,) in the world: found, or chosen by the user."""
        return self._view.rig.orbit.up

    def use_cameras(self, viewmats: np.ndarray) -> None:
        """Find what is up by the published cameras of the scene.

        Only the first cameras count, and only if neither the user nor the scene's file
        says what is up. A view that the user has not moved yet is turned upright.

        Args:
            viewmats: world to camera, (N, 4, 4).
        """
        is_first = self._viewmats is None
        self._viewmats = viewmats
        rig = self._view.rig
        place = self._view.state.place
        is_decided = place.up_by == "user" or self._up_of_file is not None
        if not is_first or is_decided:
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
        """Return what is up (3,) when the scene is shown for the first time."""
        rig = self._view.rig
        origin = self._view.state.place.up_by
        # What the file says replaces a direction that was found by the cameras.
        is_found_again = origin == "found" and self._up_of_file is not None
        if not origin or is_found_again:
            detected = self.detect()
            if detected is not None:
                rig.orbit.up = detected
                rig.put_place(up_by="found")
        return rig.orbit.up

    def detect(self) -> np.ndarray | None:
        """Return what is up (3,) by the scene's file, else by its cameras or its ground.

        Returns None if none of them tells.
        """
        if self._up_of_file is not None:
            return np.array(self._up_of_file, np.float64)
        up = None if self._viewmats is None else up_of_cameras(self._viewmats)
        sample = self._view.data.current_sample()
        if up is None and sample is not None:
            up = up_of_scene(sample.means, sample.weights)
        return None if up is None else snap_to_axis(up)

    def set_by_user(self, up: np.ndarray) -> None:
        """Use the direction (3,) that the user chose, and turn the camera upright."""
        rig = self._view.rig
        rig.motion.take_over()
        rig.orbit.set_up(up)
        rig.apply_orbit(up_by="user")
