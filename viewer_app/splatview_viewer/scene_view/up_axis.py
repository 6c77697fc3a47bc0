"""The direction upward of a scene: by its file, cameras or ground, or the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_viewer.geometry.upward import snap_to_axis, up_of_cameras, up_of_scene
from splatview_viewer.scene.scene import UPS

if TYPE_CHECKING:
    from splatview_viewer.scene_view.protocol import SceneView
    from splatview_viewer.scene_view.state import UpSource

_SAME_DIRECTION = 0.9976
"""Cosine of an angle, 4 degrees, by which two directions upward may differ."""
_NEAR_CUSTOM = 0.82
"""Cosine of an angle, 35 degrees, within which a ground is believed where files of a
kind have a customary direction upward."""
_SOURCES: dict[UpSource, str] = {
    "": "assumed",
    "file": "named by the file",
    "cameras": "found from the cameras",
    "custom": "usual in such files",
    "ground": "found from the ground",
    "user": "set by hand",
}
"""Words for the sources of the direction upward."""


class FoundUp(NamedTuple):
    """A direction upward that something says."""

    direction: np.ndarray
    """(3,), of length 1."""
    source: UpSource


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

    # -- words ---------------------------------------------------------------------

    @property
    def words(self) -> str:
        """The direction upward and who says so: "+z, found from the cameras"."""
        name = self.axis_name
        if not name:
            up = self._view.rig.orbit.up
            name = " ".join(f"{x:.2f}" for x in up / np.linalg.norm(up))
        source = _SOURCES[self._view.state.place.up_by]
        return f"{name}, {source}".replace("-", "\u2212")

    @property
    def known(self) -> tuple[float, float, float] | None:
        """The direction upward, of length 1; None while nothing has said it."""
        if not self._view.state.place.up_by:
            return None
        up = self._view.rig.orbit.up
        x, y, z = (up / np.linalg.norm(up)).tolist()
        return x, y, z

    @property
    def axis_name(self) -> str:
        """The name in `UPS` of the direction upward; "" where it is no axis."""
        up = self._view.rig.orbit.up
        unit = up / np.linalg.norm(up)
        for name, axis in UPS.items():
            if float(np.dot(axis, unit)) > 1 - 1e-6:
                return name
        return ""

    def other_axes(self) -> list[str]:
        """Return the names in `UPS` of the directions that are not upward now."""
        current = self.axis_name
        return [name for name in UPS if name != current]

    # -- finding it ----------------------------------------------------------------

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
        rig.put_place(up_by="cameras")
        if is_turned and not (place.by_hand or rig.is_fixed):
            rig.frame_scene()

    def choose_first(self) -> np.ndarray:
        """Return the direction upward (3,) for the first sight of the scene."""
        rig = self._view.rig
        source = self._view.state.place.up_by
        may_be_better = source in ("cameras", "custom", "ground")
        if not source or (may_be_better and self._of_file is not None):
            found = self._remembered() or self.detect()
            if found is not None:
                rig.orbit.up = found.direction
                rig.put_place(up_by=found.source)
        return rig.orbit.up

    def detect(self) -> FoundUp | None:
        """Return what is up by the scene's file, else by its cameras, custom or ground.

        Returns None where none of them says it.
        """
        if self._of_file is not None:
            return FoundUp(np.array(self._of_file, np.float64), "file")
        up = None if self._viewmats is None else up_of_cameras(self._viewmats)
        if up is not None:
            return FoundUp(snap_to_axis(up), "cameras")
        sample = self._view.data.current_sample()
        ground = None
        if sample is not None:
            ground = up_of_scene(sample.means, sample.weights)
        return self._weigh(ground)

    def _weigh(self, ground: np.ndarray | None) -> FoundUp | None:
        """Return what is up by a ground's normal (3,), and the custom of such files.

        A wall or a ceiling can be the largest plane: where there is a custom, only a
        ground that agrees with it counts.
        """
        summary = self._view.data.summary
        customary = () if summary is None else summary.customary_ups
        if ground is not None:
            agrees = [float(np.dot(up, ground)) > _NEAR_CUSTOM for up in customary]
            if any(agrees) or not customary:
                return FoundUp(snap_to_axis(ground), "ground")
        if not customary:
            return None
        return FoundUp(np.array(customary[0], np.float64), "custom")

    # -- the user's choice ---------------------------------------------------------

    def _remembered(self) -> FoundUp | None:
        """Return what the user has said of this file or stream before."""
        host = self._view.host
        if not (host.identity or host.name):
            return None
        name = host.recall("up")
        if not isinstance(name, str) or name not in UPS:
            return None
        return FoundUp(np.array(UPS[name], np.float64), "user")

    def choose(self, name: str) -> None:
        """Take an axis of `UPS` as up, now and the next time."""
        self._view.host.remember("up", name)
        self.set_by_user(np.array(UPS[name], np.float64))

    def detect_again(self) -> None:
        """Find what is up, forget what the user said, and turn the camera upright."""
        self._view.host.remember("up", None)
        found = self.detect()
        if found is None:
            self._view.host.notify("Neither cameras nor a ground say what is up")
            return
        self.set_by_user(found.direction)
        self._view.rig.put_place(up_by=found.source)

    def set_by_user(self, up: np.ndarray) -> None:
        """Take what the user says is up (3,), and turn the camera upright."""
        rig = self._view.rig
        rig.motion.take_over()
        rig.orbit.set_up(up)
        rig.apply_orbit(up_by="user")
