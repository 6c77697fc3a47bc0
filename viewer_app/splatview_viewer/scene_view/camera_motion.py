"""Movements of a scene's camera that take time: flights, held keys, a found pivot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.geometry.flying import Flying
from splatview_viewer.geometry.orbit import SECONDS, Flight
from splatview_viewer.scene_view.questions import PointPicker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.events import Key
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.orbit import Orbit
    from splatview_viewer.scene_view.protocol import PickedPoint, SceneView

_LEVEL_ROLL = 1e-3
"""Radians of roll that cannot be seen."""
_MAX_FRAMING_FOV = 150.0
"""Largest field of view with which a scene is framed, in degrees."""


@dataclass(slots=True)
class _CameraFlight:
    """A flight of the camera that is under way."""

    flight: Flight
    end_camera: Camera | None
    """The camera at its end, if it has to be exactly that."""
    last_rotation: np.ndarray
    """The rotation that the flight gave the orbit last, known by its identity: another
    object means that the camera was put elsewhere."""


class CameraMotion:
    """Moves the camera of a view as time goes on, until the user takes over."""

    def __init__(self, view: SceneView) -> None:
        self._view = view
        self.flying = Flying()
        """The keys that are held."""
        self._flight: _CameraFlight | None = None
        self._picker = PointPicker(view, "pick")

    @property
    def is_under_way(self) -> bool:
        """True while the camera moves by itself: a flight, or a key that is held."""
        return self._flight is not None or self.flying.moving

    def fly(
        self, end: Orbit, seconds: float = SECONDS, camera: Camera | None = None
    ) -> None:
        """Fly to where another orbit looks from.

        Args:
            camera: the camera at the end, if it has to be exactly that.
        """
        self.take_over()
        rig = self._view.rig
        flight = Flight(rig.orbit.copy(), end, seconds)
        self._flight = _CameraFlight(flight, camera, rig.orbit.rotation)
        rig.apply_orbit()

    def fly_to_whole_scene(self, *, upright: bool = False) -> None:
        """Fly to where the whole scene is seen in the present direction.

        Args:
            upright: take a roll out instead; without a roll, look as at first sight.
        """
        rig = self._view.rig
        sample = self._view.data.current_sample()
        if not rig.is_framed or sample is None or not len(sample.means):
            rig.frame_scene()
            return
        end = rig.copy_orbit()
        if upright and abs(end.tilt) > _LEVEL_ROLL:
            end.roll(-end.tilt)
            self.fly(end)
            return
        model = end.model
        width = rig.rect.width
        height = rig.rect.height
        if upright:
            camera = sample.camera(width, height, end.up)
        else:
            fov = min(end.fov, _MAX_FRAMING_FOV)
            camera = sample.camera_along(end.rotation, fov, width, height)
        end.look_from(camera, sample.middle)
        end.model = model
        self.fly(end)

    def fly_along(self, forward: np.ndarray) -> None:
        """Fly to where the pivot is seen in this direction (3,)."""
        end = self._view.rig.copy_orbit()
        end.look_along(forward)
        self.fly(end)

    def stop(self) -> None:
        """Stay here, whatever was under way: the user takes the camera."""
        self._view.rig.put_place(by_hand=True)
        self.interrupt()
        self.flying.stop()

    def take_over(self) -> None:
        """Stop, before a tool changes the orbit for the user."""
        self.stop()
        self._view.rig.continue_from_here()

    def interrupt(self) -> None:
        """End a flight, and forget the search for a pivot."""
        self._flight = None
        self._picker.forget()

    def press_key(self, key: Key) -> bool:
        """Take a key; return True for one that moves the camera."""
        if not self.flying.key(key):
            return False
        if key.pressed:
            self.interrupt()
        return True

    def orbit_around(self, x: float, y: float, rect: Rect) -> None:
        """Find what lies under a pixel of the screen, and orbit around it then."""
        self._picker.search(x, y, rect)

    def tick(self, now: float) -> bool:
        """Advance to `now`; return whether to draw the picture again."""
        hits = self._picker.take()
        if hits is not None:
            self._fly_to_pivot(hits)
        needs_redraw = False
        if self._flight is not None:
            needs_redraw = self._advance_flight(self._flight, now)
        if self.flying.moving:
            needs_redraw |= self._advance_keys(now)
            needs_redraw |= self.flying.moving
        return needs_redraw

    def _fly_to_pivot(self, hits: Sequence[PickedPoint]) -> None:
        """Fly to the pivot that was found, if there is one."""
        if not hits:
            self._view.host.notify("There is nothing to orbit around")
            return
        end = self._view.rig.copy_orbit()
        end.center(hits[0].point)
        self.fly(end)

    def _advance_flight(self, active: _CameraFlight, now: float) -> bool:
        rig = self._view.rig
        was_moved = rig.orbit.rotation is not active.last_rotation
        if was_moved or not rig.is_framed:
            self._flight = None
            return False
        position = active.flight.orbit_at(now)
        if position is None:
            self._flight = None
            if active.end_camera is not None:
                rig.use_camera(active.end_camera, active.flight.end.target)
                return True
            position = active.flight.end
        rig.orbit.place = position.place
        active.last_rotation = rig.orbit.rotation
        rig.apply_orbit()
        return True

    def _advance_keys(self, now: float) -> bool:
        step = self.flying.step(now)
        if step is None:
            return False
        rig = self._view.rig
        if self._view.data.summary is None or not rig.is_framed or not step.any():
            return True
        rig.continue_from_here()
        orbit = rig.orbit
        up = orbit.rotation @ (orbit.up / np.linalg.norm(orbit.up))
        orbit.move((step[:3] + up * step[3]) * orbit.distance)
        roll = float(step[4])
        if roll:
            orbit.roll(roll)
        rig.apply_orbit(by_hand=True)
        return True

    def close(self) -> None:
        """Forget the search for a pivot. Idempotent."""
        self._picker.forget()
