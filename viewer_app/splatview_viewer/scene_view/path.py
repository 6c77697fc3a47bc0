"""Camera paths: keyframes that are set, edited on a timeline, played and filmed."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from imgui_bundle import ImVec2, imgui

from splatview_ipc.system.files import output_file
from splatview_viewer.core.errors import CameraError, ViewerError
from splatview_viewer.core.events import Key as KeyEvent
from splatview_viewer.core.view import KeyHelp, Section
from splatview_viewer.formats.camera_paths import (
    Film,
    check_length,
    make_writer,
    parse_path,
    path_values,
    read_path,
    write_path,
)
from splatview_viewer.formats.pictures import output_path
from splatview_viewer.geometry.path import MOST_KEYS, CameraPath, Keyframe, turntable
from splatview_viewer.scene_view.film import Camerawork, Filming
from splatview_viewer.scene_view.path_lines import draw_path
from splatview_viewer.scene_view.path_panel import draw_panel
from splatview_viewer.scene_view.protocol import SceneView
from splatview_viewer.scene_view.timeline import Timeline
from splatview_viewer.scene_view.tool import Tool
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.geometry.cameras import Camera

HEIGHT = 46.0
"""Points that the timeline takes."""
_FLIGHT_S = 0.35
"""Seconds on the way to a keyframe that was chosen."""
_MIN_KEY_DISTANCE = 0.05
"""Seconds between two keyframes that are moved on the timeline."""


class PathTool(Tool[SceneView]):
    """Edits, plays and films one path for each view.

    The path is remembered by the name of what the view shows.
    """

    name: ClassVar[str] = "path"
    keys: ClassVar[Sequence[KeyHelp]] = (
        KeyHelp("Camera path", "K", "Set a keyframe here"),
        KeyHelp("Camera path", "P", "Play, and stop"),
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
        """The timeline is seen."""
        self.transparent = False
        self.as_frames = False
        """Films are folders of PNGs."""
        self.filming: Filming | None = None
        self.is_playing = False
        self.timeline = Timeline(self)
        self._playing_since: float | None = None
        self._saved_name = ""
        """The name under which the path is remembered."""
        self._saved = self._edited

    @property
    def path(self) -> CameraPath:
        return self.film.path

    @property
    def _edited(self) -> tuple[object, ...]:
        """All that is remembered; keyframes are equal to themselves alone."""
        film = self.film
        path = film.path
        return (*path.keys, path.loop, path.smooth, film.width, film.height, film.fps)

    @property
    def displayed_state(self) -> tuple[object, ...]:
        """All that the lines over the picture and the timeline show."""
        return (
            *self._edited,
            self.time,
            self.chosen_key,
            self.is_open,
            self.is_playing,
        )

    # -- editing -------------------------------------------------------------------

    def add_key(self) -> None:
        """Set a keyframe where the camera is.

        It comes behind the chosen one, or at the end.
        """
        camera = self.view.rig.camera()
        if camera is None:
            return
        keys = self.path.keys
        if len(keys) >= MOST_KEYS:
            self.view.host.say(f"{MOST_KEYS} keyframes are the most")
            return
        index = len(keys) if self.chosen_key is None else self.chosen_key + 1
        keys.insert(index, Keyframe.of(camera, self.view.rig.orbit.distance))
        self.path.held = False
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
        if 0 < self.chosen_key < len(keys):
            previous = keys[self.chosen_key - 1]
            seconds = previous.seconds + removed.seconds
            keys[self.chosen_key - 1] = replace(previous, seconds=seconds)
        self._choose(min(self.chosen_key, len(keys) - 1) if keys else None)

    def circle_scene(self) -> None:
        """Take a path once around the middle of the scene, from where the camera is."""
        camera = self.view.rig.camera()
        sample = self.view.data.current_sample()
        if camera is not None and sample is not None:
            path = turntable(camera, sample.middle, self.view.rig.orbit.up)
            self._use(replace(self.film, path=path))

    def move_key(self, index: int, seconds: float) -> None:
        """Have a keyframe reached at another time, between its neighbours.

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
        """Edit a keyframe: the camera goes there."""
        self.stop()
        self._choose(index)
        self.view.rig.fly_to(self._camera_of_playhead(), _FLIGHT_S)

    def _choose(self, index: int | None) -> None:
        """Edit this keyframe from now on, with the playhead there."""
        self.chosen_key = index
        times = self.path.times
        self.time = times[min(index or 0, len(times) - 1)]

    def _use(self, film: Film) -> None:
        """Edit another path."""
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
        return self.path.at(self.time, rig.rect.width, rig.rect.height, rig.orbit.near)

    def play(self) -> None:
        """Play from where the playhead is; at the end, from the beginning."""
        if len(self.path.keys) < 2:
            self.view.host.say("A path needs two keyframes: press K at two places")
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

    # -- files ---------------------------------------------------------------------

    def save(self) -> None:
        """Save the path in the current folder, as nerfstudio's viewer writes paths."""
        host = self.view.host
        path = output_path(f"{_stem(host.name)}-path", ".json")
        try:
            text = write_path(self.film).encode()
            with output_file(path, numbered=True) as out:
                out.file.write(text)
        except (OSError, CameraError) as error:
            host.say(f"The path is not saved: {error}")
            return
        host.say(f"Saved {out.path}")
        host.hand_over(out.path)

    def take_file(self, file: Path) -> bool:
        """Read a path from a file that was dropped over the picture.

        Returns False for a file of something else, which is to be opened by itself.
        """
        if file.suffix.lower() != ".json":
            return False
        try:
            self._use(read_path(file))
        except CameraError as error:
            self.view.host.say(str(error))
            return False
        self.view.host.say(f"{len(self.path.keys)} keyframes from {file.name}")
        return True

    def _remember(self) -> None:
        """Remember an edited path, or recall one when the scene's name is known."""
        host = self.view.host
        name = host.identity or host.name
        if not name:
            return
        if name != self._saved_name:
            self._saved_name = name
            values = host.recall("path")
            if values is not None and not self.path.keys:
                # Any program may have written the memo.
                with suppress(CameraError):
                    self.film = parse_path(json.dumps(values))
            self._saved = self._edited
        elif not self.timeline.is_dragging and self._saved != self._edited:
            self._saved = self._edited
            is_saved = 0 < len(self.path.keys) <= MOST_KEYS
            values = path_values(self.film, frames=False) if is_saved else None
            host.remember("path", values)

    # -- filming -------------------------------------------------------------------

    def start_film(self) -> None:
        """Start to render the path into a file."""
        if self.filming is not None or not self.path.keys:
            return
        self.stop()
        view = self.view
        film = replace(self.film, path=replace(self.path, keys=list(self.path.keys)))
        out = output_path(_stem(view.host.name), "" if self.as_frames else ".mp4")
        transparent = self.transparent and self.as_frames
        try:
            check_length(film)
            writer = make_writer(
                out, film.width, film.height, film.fps, transparent, numbered=True
            )
        except ViewerError as error:
            view.host.say(str(error))
            return
        camerawork = Camerawork(view.data.ctx, view, film.width, film.height)
        self.filming = Filming(
            camerawork, film, writer, transparent=transparent, wake=view.host.wake
        )

    def cancel_film(self) -> None:
        """Give up the film."""
        if self.filming is not None:
            self.close()
            self.view.host.say("The film was given up")

    def work(self) -> bool:
        """Advance the film. Returns True when it has come further."""
        filming = self.filming
        if filming is None:
            return False
        drawn = filming.drawn
        filming.advance()
        if filming.is_ended:
            self.close()
            host = self.view.host
            host.say(filming.fault or f"Saved {filming.out}, {filming.drawn} pictures")
            if not filming.fault:
                host.hand_over(filming.out)
        return filming.is_ended or filming.drawn != drawn

    # -- the methods of tools ------------------------------------------------------

    def handle(self, event: Event, rect: Rect) -> bool | None:
        if not isinstance(event, KeyEvent):
            return None
        if not event.pressed or event.mods or event.repeat:
            return None
        match event.name:
            case "k":
                self.add_key()
            case "p":
                self.toggle_playing()
            case "delete" if self.chosen_key is not None and self.is_open:
                self.remove_key()
            case _:
                return None
        return True

    def tick(self, now: float) -> bool:
        self._remember()
        if not self.is_playing:
            return False
        self._play_on(now)
        return True

    def draw_over(self, rect: Rect, scale: float) -> bool:
        camera = self.view.rig.camera(rect)
        is_drawn = self.is_open and not self.is_playing and self.path.keys
        if is_drawn and camera is not None:
            draw_path(self.path, camera, rect, scale, self.chosen_key, self.time)
        return False

    def bar_height(self) -> float:
        return HEIGHT if self.is_open and self.path.keys else 0.0

    def bar(self, rect: Rect, scale: float) -> bool:
        previous = self.displayed_state
        padding = (10 * scale, 8 * scale)
        with ui.board(f"path {id(self)}", rect, padding) as is_open:
            if is_open:
                self._draw_buttons(scale)
                self.timeline.draw(rect, scale)
        return previous != self.displayed_state

    def _draw_buttons(self, scale: float) -> None:
        size = ImVec2(56 * scale, 0)
        if imgui.button("Stop##path" if self.is_playing else "Play##path", size):
            self.toggle_playing()
        imgui.set_item_tooltip("P")
        imgui.same_line()
        if imgui.button("Key##path", size):
            self.add_key()
        imgui.set_item_tooltip("Set a keyframe where the camera is (K)")
        imgui.same_line()

    def sections(self) -> Sequence[Section]:
        tip = "A way for the camera, to be played and filmed"
        return [Section("Path", lambda: draw_panel(self), tip=tip)]

    def close(self) -> None:
        if self.filming is not None:
            self.filming.close()
            self.filming = None


def _stem(name: str) -> str:
    """Return the start of a file's name, for what is called `name`."""
    return Path(name).stem or "scene"
