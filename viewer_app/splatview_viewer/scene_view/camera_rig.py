"""The camera of one user's view of a scene: placed, orbited, framed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.orbit import SECONDS, Orbit
from splatview_viewer.scene_view.camera_motion import CameraMotion
from splatview_viewer.scene_view.up_axis import UpAxis

if TYPE_CHECKING:
    from splatview_viewer.core.handed import HandedPlace
    from splatview_viewer.geometry.cameras import Camera, CameraModel
    from splatview_viewer.scene_view.protocol import SceneView


class CameraRig:
    """Moves the camera that is in the view's state (`CameraPlace`)."""

    def __init__(self, view: SceneView) -> None:
        self._view = view
        self.rect = Rect(0, 0, 1, 1)
        """The rectangle in which the view was drawn last."""
        self._orbit = Orbit()
        self._orbit_place = view.state.place.orbit
        """The place of `_orbit`, unless a tool is moving it."""
        self._orbit.place = self._orbit_place
        self.up_axis = UpAxis(view)
        self.motion = CameraMotion(view)

    # -- the place -----------------------------------------------------------------

    @property
    def orbit(self) -> Orbit:
        """The camera of the state, to be moved; `apply_orbit` puts it back."""
        place = self._view.state.place.orbit
        # Another place came from a view that is followed.
        if self._orbit_place is not place and self._orbit_place != place:
            self._orbit.place = place
            self._orbit_place = place
            self._view.mark_moving()
        return self._orbit

    def apply_orbit(self, **fields: Any) -> None:
        """Look from where `orbit` is now, and change other fields of the place."""
        is_framed = self._view.data.summary is not None
        self.put_place(exact_camera=None, seen_in=None, framed=is_framed, **fields)
        self._view.mark_moving()

    def put_place(self, **fields: Any) -> None:
        """Put the place of `orbit` and other fields of the place into the state."""
        self._orbit_place = self.orbit.place
        camera_place = replace(
            self._view.state.place, orbit=self._orbit_place, **fields
        )
        self._view.change(place=camera_place)

    @property
    def is_framed(self) -> bool:
        """False while the next picture chooses the camera."""
        return self._view.state.place.framed

    @property
    def is_fixed(self) -> bool:
        """True while exactly a given camera is used, which was not moved yet."""
        return self._view.state.place.exact_camera is not None

    # -- going elsewhere -----------------------------------------------------------

    def use_camera(self, camera: Camera, pivot: np.ndarray | None = None) -> None:
        """Draw with exactly this camera until the user moves it.

        Args:
            camera: the camera.
            pivot: (3,) what to orbit around afterwards, as far as it lies on the line
                of sight; None for the middle of the scene.
        """
        sample = self._view.data.sample
        if pivot is None:
            if sample is not None:
                pivot = sample.center
            else:
                pivot = np.zeros(3)
        if sample is not None:
            camera = sample.near_of(camera)
        self.orbit.look_from(camera, pivot)
        self.put_place(exact_camera=camera, seen_in=None, framed=True)

    def fly_to(
        self, camera: Camera, seconds: float = SECONDS, pivot: np.ndarray | None = None
    ) -> None:
        """Go to exactly this camera on a way that the eye can follow.

        The loop goes on meanwhile, and the user may interrupt the flight.

        Args:
            camera: the camera at the end.
            seconds: duration; 0: at once.
            pivot: as in `use_camera`; None: what is orbited around now.
        """
        if pivot is None:
            pivot = self.orbit.target
        if seconds <= 0 or not self.is_framed or self._view.data.summary is None:
            self.motion.stop()
            self.use_camera(camera, pivot)
            return
        end = self.orbit.copy()
        end.look_from(camera, pivot)
        self.motion.fly(end, seconds, camera)

    def set_lens(self, model: CameraModel, fov: float) -> None:
        """Draw with another camera model and vertical field of view, in degrees."""
        self.motion.take_over()
        self.orbit.model = model
        self.orbit.fov = fov
        self.apply_orbit()

    def reset_to(self, camera: Camera | None) -> None:
        """Draw with exactly this camera; None: see the whole scene, as at first."""
        if camera is not None:
            self.put_place(exact_camera=camera, seen_in=None, framed=True)
            return
        # The direction upward is searched at first sight alone, and stays.
        self.orbit.place = Orbit(up=self.orbit.up).place
        self.frame_scene()

    def frame_scene(self) -> None:
        """Show the whole scene in the next picture, as at first."""
        self.put_place(framed=False, exact_camera=None, seen_in=None)

    def copy_orbit(self) -> Orbit:
        """Return a copy of the camera's orbit, to be changed."""
        self.continue_from_here()
        return self.orbit.copy()

    def continue_from_here(self) -> None:
        """Prepare to move the camera of a view that was followed until now."""
        if self._view.state.place.seen_in is None:
            return
        if self._view.data.summary is not None:
            self.orbit.look_from(self.camera_of_scene(self.rect), self.orbit.target)
        self.put_place(exact_camera=None, seen_in=None)

    def take_place(self, place: HandedPlace) -> None:
        """Look from where the user's hand has moved the camera on another machine."""
        self.motion.interrupt()
        self.continue_from_here()
        orbit = self.orbit
        orbit.let_go()
        orbit.rotation = np.array(place.rotation).reshape(3, 3)
        orbit.target = np.array(place.target)
        orbit.distance = place.distance
        self.apply_orbit(by_hand=True)

    # -- the camera ----------------------------------------------------------------

    def camera(self, rect: Rect | None = None) -> Camera | None:
        """Return the camera with which the scene is drawn; None without a scene.

        Args:
            rect: the rectangle to draw into; None for the one that was drawn into last.
        """
        if self._view.data.summary is None:
            return None
        return self.camera_of_scene(rect or self.rect)

    def drawn_camera(self, rect: Rect) -> Camera | None:
        """Return the camera of the picture that was drawn last.

        What is drawn into its layer has the same one. None without a scene.
        """
        return self._in_size(self._view.drawn_camera, rect)

    def seen_camera(self, rect: Rect) -> Camera | None:
        """Return the camera of the picture that is seen; None without a scene.

        Lines of imgui over it are drawn with this one.
        """
        self._view.has_lines = True
        if self._view.host.exact:
            return self.drawn_camera(rect)
        return self._in_size(self._view.seen_camera, rect)

    def _in_size(self, camera: Camera | None, rect: Rect) -> Camera | None:
        """Return a camera for `rect`; the present one for None."""
        if camera is None or self._view.data.summary is None:
            return self.camera(rect)
        return camera.resized(rect.width, rect.height)

    def camera_of_scene(self, rect: Rect) -> Camera:
        """Return the camera that draws into `rect`; there is a scene."""
        size = (rect.width, rect.height)
        if not self._view.state.place.framed:
            self._choose_first_camera(size)
        camera_place = self._view.state.place
        seen_in = camera_place.seen_in or size
        if camera_place.exact_camera is not None:
            camera = camera_place.exact_camera.resized(*seen_in)
        else:
            camera = self.orbit.camera(*seen_in)
        if seen_in != size:
            camera = camera.fitted(*size)
        sample = self._view.data.sample
        if sample is None:
            return camera
        return sample.near_of(camera)

    def _choose_first_camera(self, size: tuple[int, int]) -> None:
        """Have the orbit see the whole scene, in a picture of this size."""
        summary = self._view.data.summary
        if summary is None or not summary.count:
            return
        sample = self._view.data.current_sample()
        if sample is None:
            return
        camera = sample.camera(*size, self.up_axis.choose_first())
        model = self.orbit.model
        self.orbit.look_from(camera, sample.middle)
        self.orbit.model = model
        self.put_place(framed=True)
