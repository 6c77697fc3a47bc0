"""Camera paths: keyframes that are set, edited on a timeline, played and filmed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from splatview_viewer.core.view import KeyHelp
from splatview_viewer.formats.camera_paths import Film
from splatview_viewer.geometry.path import MAX_KEYS, CameraPath, Keyframe, turntable
from splatview_viewer.scene_view.film_maker import FilmMaker
from splatview_viewer.scene_view.path_lines import draw_path
from splatview_viewer.scene_view.path_panel import sections_of
from splatview_viewer.scene_view.path_storage import PathStorage
from splatview_viewer.scene_view.protocol import SceneView
from splatview_viewer.scene_view.timeline import Timeline
from splatview_viewer.scene_view.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.lane import Lane
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.view import Section
    from splatview_viewer.geometry.cameras import Camera

_FLIGHT_S = 0.35
"""Seconds on the way to a keyframe that was chosen."""
_MIN_KEY_DISTANCE = 0.05
"""Seconds between two keyframes that are moved on the timeline."""


@dataclass(frozen=True)
class PathState:
    """The parts of a path that undo brings back."""

    keyframes: tuple[Keyframe, ...]
    loop: bool
    smooth: bool
    holds_last: bool


class PathTool(Tool[SceneView]):
    """Edits, plays and films one path for each view.

    The path is remembered by the name of what the view shows.
    """

    name: ClassVar[str] = "path"
    keys: ClassVar[Sequence[KeyHelp]] = (
        KeyHelp("Camera path", "K", "Set a keyframe here"),
        KeyHelp("Camera path", "Delete", "Remove the chosen keyframe"),
    )

    def __init__(self, view: SceneView) -> None:
        super().__init__(view)
        self.film = Film(CameraPath())
        self.time = 0.0
        """Position of the playhead, seconds."""
        self.chosen_key: int | None = None
        """The keyframe that is edited."""
        self.is_open = False
        """True while the path is seen in the picture, whatever the panel shows."""
        self.is_edited = False
        """True while the panel's section is seen, and the path in the picture with it."""
        self.is_playing = False
        self._playing_since: float | None = None
        """Time of the loop at which the playhead was at the path's start."""
        self.timeline = Timeline(self)
        self.storage = PathStorage(self)
        self.film_maker = FilmMaker(self)

    @property
    def path(self) -> CameraPath:
        return self.film.path

    @property
    def edited_state(self) -> tuple[object, ...]:
        """All that is remembered; keyframes are equal to themselves alone."""
        film = self.film
        path = film.path
        return (*path.keys, path.loop, path.smooth, film.width, film.height, film.fps)

    @property
    def displayed_state(self) -> tuple[object, ...]:
        """All that the lines over the picture and the lane show."""
        return (
            *self.edited_state,
            self.time,
            self.chosen_key,
            self.is_open,
            self.is_playing,
        )

    # -- undo ----------------------------------------------------------------------

    @property
    def state(self) -> PathState:
        """The parts that undo brings back, as they are now."""
        path = self.path
        return PathState(tuple(path.keys), path.loop, path.smooth, path.holds_last)

    def undoable_state(self) -> PathState:
        """Return what undo brings back: the same as `state`."""
        return self.state

    def restore(self, state: PathState) -> None:
        """Take the keyframes and settings of an earlier state."""
        self.stop()
        path = replace(
            self.path,
            keys=list(state.keyframes),
            loop=state.loop,
            smooth=state.smooth,
            holds_last=state.holds_last,
        )
        self.film = replace(self.film, path=path)
        if self.chosen_key is not None and self.chosen_key >= len(path.keys):
            self.chosen_key = None
        self.time = min(self.time, path.duration)

    # -- editing -------------------------------------------------------------------

    def add_key(self) -> None:
        """Set a keyframe where the camera is.

        It comes after the chosen one, or at the end.
        """
        camera = self.view.rig.camera()
        if camera is None:
            return
        keys = self.path.keys
        if len(keys) >= MAX_KEYS:
            self.view.host.notify(f"{MAX_KEYS} keyframes are the most")
            return
        if self.chosen_key is None:
            index = len(keys)
        else:
            index = self.chosen_key + 1
        keys.insert(index, Keyframe.of(camera, self.view.rig.orbit.distance))
        self.path.holds_last = False
        if len(keys) == 1:
            self.path.model = camera.model
        self._choose(index)
        self.is_open = True

    def replace_key(self) -> None:
        """Move the chosen keyframe to where the camera is."""
        camera = self.view.rig.camera()
        if camera is None or self.chosen_key is None:
            return
        keys = self.path.keys
        distance = self.view.rig.orbit.distance
        keys[self.chosen_key] = Keyframe.of(
            camera, distance, keys[self.chosen_key].seconds
        )
        self._choose(self.chosen_key)

    def remove_key(self) -> None:
        """Take the chosen keyframe out; its time goes to the one before."""
        if self.chosen_key is None:
            return
        keys = self.path.keys
        removed = keys.pop(self.chosen_key)
        self.view.host.offer_undo(f"Keyframe {self.chosen_key + 1} removed")
        if 0 < self.chosen_key < len(keys):
            previous = keys[self.chosen_key - 1]
            seconds = previous.seconds + removed.seconds
            keys[self.chosen_key - 1] = replace(previous, seconds=seconds)
        if keys:
            self._choose(min(self.chosen_key, len(keys) - 1))
        else:
            self._choose(None)

    def circle_scene(self) -> None:
        """Take a path once around the middle of the scene, from where the camera is."""
        camera = self.view.rig.camera()
        sample = self.view.data.current_sample()
        if camera is not None and sample is not None:
            path = turntable(camera, sample.middle, self.view.rig.up_axis.direction)
            self.use(replace(self.film, path=path))

    def move_key(self, index: int, seconds: float) -> None:
        """Have a keyframe reached at another time, between its neighbours.

        Args:
            index: in `CameraPath.times`, which ends a loop with the first keyframe.
        """
        keys = self.path.keys
        times = self.path.times
        if not 0 < index < len(times):
            return
        seconds = max(seconds, times[index - 1] + _MIN_KEY_DISTANCE)
        if index < len(times) - 1:
            seconds = min(seconds, times[index + 1] - _MIN_KEY_DISTANCE)
            keys[index] = replace(keys[index], seconds=times[index + 1] - seconds)
        previous = keys[index - 1]
        keys[index - 1] = replace(previous, seconds=seconds - times[index - 1])

    def choose(self, index: int) -> None:
        """Choose a keyframe to edit: the camera goes there."""
        self.stop()
        self.is_open = True
        self._choose(index)
        self.view.rig.fly_to(self._camera_of_playhead(), _FLIGHT_S)

    def _choose(self, index: int | None) -> None:
        """Choose this keyframe to edit, and put the playhead there."""
        self.chosen_key = index
        times = self.path.times
        self.time = times[min(index or 0, len(times) - 1)]

    def use(self, film: Film) -> None:
        """Change to another path."""
        self.film = film
        self.time = 0.0
        self.chosen_key = None
        self.is_open = True

    # -- playing -------------------------------------------------------------------

    def seek(self, seconds: float) -> None:
        """Move the playhead there; the camera goes along."""
        self.time = min(max(seconds, 0.0), self.path.duration)
        if self.path.keys:
            self.view.rig.use_camera(self._camera_of_playhead())

    def _camera_of_playhead(self) -> Camera:
        """Return the camera where the playhead is; there is a keyframe."""
        rig = self.view.rig
        return self.path.camera_at(
            self.time, rig.rect.width, rig.rect.height, rig.orbit.near
        )

    def play(self) -> None:
        """Play from where the playhead is; at the end, from the beginning."""
        if len(self.path.keys) < 2:
            self.view.host.notify("A path needs two keyframes: press K at two places")
            return
        if self.time >= self.path.duration - 1e-6:
            self.time = 0.0
        self.is_playing = True
        self._playing_since = None
        self.is_open = True

    def stop(self) -> None:
        self.is_playing = False

    def toggle_playing(self) -> None:
        """Play, or stop."""
        if self.is_playing:
            self.stop()
        else:
            self.play()

    def _play_on(self, now: float) -> None:
        """Move the playhead to where it is at `now`."""
        if self._playing_since is None:
            self._playing_since = now - self.time
        self.time = now - self._playing_since
        if self.time >= self.path.duration:
            if self.path.loop:
                self.time %= max(self.path.duration, 1e-6)
                self._playing_since = now - self.time
            else:
                self.stop()
        self.seek(self.time)
        self.view.mark_moving()

    # -- the methods of tools ------------------------------------------------------

    def tick(self, now: float) -> bool:
        self.storage.remember()
        if not self.is_playing:
            return False
        self._play_on(now)
        return True

    def draw_over(self, rect: Rect, scale: float) -> bool:
        is_asked = self.is_open or self.is_edited
        # The panel's section, which is drawn later, sets this again.
        self.is_edited = False
        if not is_asked or self.is_playing or not self.path.keys:
            return False
        camera = self.view.rig.seen_camera(rect)
        if camera is not None:
            draw_path(self.path, camera, rect, scale, self.chosen_key, self.time)
        return False

    def lane(self) -> Lane | None:
        return self.timeline

    def sections(self) -> Sequence[Section]:
        return sections_of(self)

    def close(self) -> None:
        self.film_maker.close()
