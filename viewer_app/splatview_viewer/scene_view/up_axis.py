"""Finds which direction of a scene is up, by its file, its cameras or its ground."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_viewer.geometry.upward import snap_to_axis, up_of_cameras, up_of_scene
from splatview_viewer.scene.scene import UPS

if TYPE_CHECKING:
    from splatview_viewer.scene_view.protocol import SceneView
    from splatview_viewer.scene_view.state import UpSource

_SAME_DIRECTION = 0.9976
"""Cosine of 4 degrees. Directions that differ by less count as the same."""
_NEAR_CUSTOM = 0.82
"""Cosine of 35 degrees, within which a ground is believed if files of a kind have a
customary direction upward."""
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


@lru_cache(16)
def _axis_name_of(x: float, y: float, z: float) -> str:
    """Return the name in `UPS` of a direction; "" where it is no axis."""
    up = np.array([x, y, z])
    unit = up / np.linalg.norm(up)
    for name, axis in UPS.items():
        if float(np.dot(axis, unit)) > 1 - 1e-6:
            return name
    return ""


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
        if summary is None:
            return None
        return summary.up

    @property
    def direction(self) -> np.ndarray:
        """The direction upward now, (3,) in the world: found, or chosen by the user."""
        return self._view.rig.orbit.up

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
        x, y, z = self._view.rig.orbit.up.tolist()
        return _axis_name_of(x, y, z)

    def other_axes(self) -> list[str]:
        """Return the names in `UPS` of the directions that are not upward now."""
        current = self.axis_name
        return [name for name in UPS if name != current]

    # -- finding it ----------------------------------------------------------------

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
        rig.put_place(up_by="cameras")
        if is_turned and not (place.by_hand or rig.is_fixed):
            rig.frame_scene()

    def choose_first(self) -> np.ndarray:
        """Return what is up (3,) when the scene is shown for the first time."""
        rig = self._view.rig
        source = self._view.state.place.up_by
        # What the file says replaces a direction that was found otherwise.
        is_doubtful = source in ("cameras", "custom", "ground")
        is_found_again = is_doubtful and self._up_of_file is not None
        if not source or is_found_again:
            found_up = self._remembered() or self.detect()
            if found_up is not None:
                rig.orbit.up = found_up.direction
                rig.put_place(up_by=found_up.source)
        return rig.orbit.up

    def detect(self) -> FoundUp | None:
        """Return what is up by the scene's file, else by its cameras, custom or ground.

        Returns None if none of them tells.
        """
        if self._up_of_file is not None:
            return FoundUp(np.array(self._up_of_file, np.float64), "file")
        if self._viewmats is None:
            up = None
        else:
            up = up_of_cameras(self._viewmats)
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
        found_up = self.detect()
        if found_up is None:
            self._view.host.notify("Neither cameras nor a ground say what is up")
            return
        self.set_by_user(found_up.direction)
        self._view.rig.put_place(up_by=found_up.source)

    def set_by_user(self, up: np.ndarray) -> None:
        """Use the direction (3,) that the user chose, and turn the camera upright."""
        rig = self._view.rig
        rig.motion.take_over()
        rig.orbit.set_up(up)
        rig.apply_orbit(up_by="user")
