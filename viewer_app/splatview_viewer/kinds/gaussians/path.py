"""Camera paths: key frames set where the camera is, edited on a timeline, played, filmed. The panel's part "Path"."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from splatview_ipc.system.files import output_file
from splatview_viewer.core.errors import CameraError, ViewerError
from splatview_viewer.core.events import Key as KeyEvent
from splatview_viewer.core.view import KeyHelp, Section
from splatview_viewer.formats.nerfstudio import Film, parse_path, read_path, write_path
from splatview_viewer.formats.pictures import output_path
from splatview_viewer.geometry.path import MOST_KEYS, CameraPath, Key, turntable
from splatview_viewer.kinds.gaussians.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.gaussians.film import Filming
    from splatview_viewer.kinds.gaussians.path_bar import PathBar
    from splatview_viewer.kinds.gaussians.view import GaussianView

HEIGHT = 46.0
"""Points that the timeline takes."""
_FLIGHT = 0.35
"""Seconds on the way to a key frame that was chosen."""


class PathTool(Tool):
    """One path for each view, remembered by the name of what it shows."""

    name: ClassVar[str] = "path"
    keys: ClassVar[Sequence[KeyHelp]] = (
        KeyHelp("Camera path", "K", "Set a key frame here"),
        KeyHelp("Camera path", "P", "Play, and stop"),
        KeyHelp("Camera path", "Delete", "Remove the chosen key frame"),
    )

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self.film = Film(CameraPath())
        self.time = 0.0
        """Where the playhead stands, seconds."""
        self.chosen: int | None = None
        """The key frame that is edited."""
        self.shown = False
        """Whether the timeline is open."""
        self.transparent = False
        self.as_frames = False
        """Whether films are folders of PNGs."""
        self.filming: Filming | None = None
        self.playing = False
        self._playing_since: float | None = None
        self._bar: PathBar | None = None
        self._recalled = ""

    @property
    def path(self) -> CameraPath:
        return self.film.path

    # -- what can be done ------------------------------------------------------------------------------------

    def add(self) -> None:
        """Set a key frame where the camera is: behind the one that is chosen, or at the end."""
        camera = self.view.camera()
        if camera is None:
            return
        keys = self.path.keys
        if len(keys) >= MOST_KEYS:
            self.view.desk.say(f"{MOST_KEYS} key frames are the most")
            return
        at = len(keys) if self.chosen is None else self.chosen + 1
        keys.insert(at, Key.of(camera, self.view.orbit.distance))
        self.path.held = False
        if not keys[1:]:
            self.path.model = camera.model
        self._edited(at)
        self.shown = True

    def replace(self) -> None:
        """Move the chosen key frame to where the camera is."""
        camera = self.view.camera()
        if camera is not None and self.chosen is not None:
            key = self.path.keys[self.chosen]
            self.path.keys[self.chosen] = Key.of(camera, self.view.orbit.distance, key.seconds)
            self._edited(self.chosen)

    def remove(self) -> None:
        """Take the chosen key frame out; its time goes to the one before."""
        if self.chosen is None:
            return
        keys = self.path.keys
        gone = keys.pop(self.chosen)
        if 0 < self.chosen < len(keys):
            before = keys[self.chosen - 1]
            keys[self.chosen - 1] = replace(before, seconds=before.seconds + gone.seconds)
        self._edited(min(self.chosen, len(keys) - 1) if keys else None)

    def around(self) -> None:
        """A path once around the middle of the scene, from where the camera is."""
        camera, sight = self.view.camera(), self.view.content.sight
        if camera is not None and sight is not None:
            self.film = replace(self.film, path=turntable(camera, sight.middle, self.view.orbit.up))
            self._edited(None)
            self.shown = True

    def move_key(self, i: int, seconds: float) -> None:
        """Have a key frame reached at another time, between its neighbours; `keep` remembers it."""
        keys, times = self.path.keys, self.path.times
        if not 0 < i < len(times):
            return
        seconds = max(seconds, times[i - 1] + 0.05)
        if i < len(times) - 1:
            seconds = min(seconds, times[i + 1] - 0.05)
            keys[i] = replace(keys[i], seconds=times[i + 1] - seconds)
        keys[i - 1] = replace(keys[i - 1], seconds=seconds - times[i - 1])

    def choose(self, i: int) -> None:
        """Edit a key frame: the camera goes there."""
        self.stop()
        self.chosen = i
        times = self.path.times
        self.time = times[min(i, len(times) - 1)]
        if (camera := self._camera()) is not None:
            self.view.fly_to(camera, _FLIGHT)

    def seek(self, seconds: float) -> None:
        """Put the playhead there; the camera goes along."""
        self.time = min(max(seconds, 0.0), self.path.duration)
        if (camera := self._camera()) is not None:
            self.view.use_camera(camera)

    def play(self) -> None:
        """From where the playhead stands; from the beginning at the end."""
        if len(self.path.keys) < 2:
            self.view.desk.say("A path needs two key frames: press K at two places")
            return
        if self.time >= self.path.duration - 1e-6:
            self.time = 0.0
        self.playing, self._playing_since = True, None
        self.shown = True

    def stop(self) -> None:
        self.playing = False

    def save(self) -> None:
        """Into the current folder, as nerfstudio's viewer writes paths."""
        path = output_path(f"{_stem(self.view.desk.name)}-path", ".json")
        try:
            with output_file(path, numbered=True) as out:
                out.file.write(write_path(self.film).encode())
        except OSError as e:
            self.view.desk.say(f"The path is not saved: {e}")
            return
        self.view.desk.say(f"Saved {out.path}")
        self.view.desk.hand_over(out.path)

    def load(self, file: Path) -> bool:
        """Take a path from a file. False when it holds none, which is told."""
        try:
            film = read_path(file)
        except CameraError as e:
            self.view.desk.say(str(e))
            return False
        self._use(film, file)
        return True

    def _use(self, film: Film, file: Path) -> None:
        self.film = film
        self._edited(None)
        self.time, self.shown = 0.0, True
        self.view.desk.say(f"{len(self.path.keys)} key frames from {file.name}")

    def record(self) -> None:
        """Begin to film it."""
        from splatview_viewer.formats.path_writers import make_writer
        from splatview_viewer.kinds.gaussians.film import Camerawork, Filming

        if self.filming is not None or not self.path.keys:
            return
        self.stop()
        film = replace(self.film, path=replace(self.path, keys=list(self.path.keys)))
        out = output_path(_stem(self.view.desk.name), "" if self.as_frames else ".mp4")
        transparent = self.transparent and self.as_frames
        try:
            camerawork = Camerawork(self.view.ctx, self.view, film.width, film.height)
        except ViewerError as e:
            self.view.desk.say(str(e))
            return
        try:
            writer = make_writer(out, film.width, film.height, film.fps, transparent, numbered=True)
        except ViewerError as e:
            camerawork.close()
            self.view.desk.say(str(e))
            return
        self.filming = Filming(camerawork, film, writer, transparent=transparent, wake=self.view.desk.wake)

    def cancel(self) -> None:
        """Give up the film."""
        filming, self.filming = self.filming, None
        if filming is not None:
            filming.close()
            self.view.desk.say("The film was given up")

    # -- the protocol ----------------------------------------------------------------------------------------

    def handle(self, event: Event, rect: Rect) -> bool | None:
        if isinstance(event, KeyEvent) and event.pressed and not event.mods and not event.repeat:
            if event.name == "k":
                self.add()
                return True
            if event.name == "p":
                self.stop() if self.playing else self.play()
                return True
            if event.name == "delete" and self.chosen is not None and self.shown:
                self.remove()
                return True
        return None

    def dropped(self, file: Path, film: Film | None = None) -> bool:
        if film is not None:
            self._use(film, file)
            return True
        return file.suffix.lower() == ".json" and self.load(file)

    def tick(self, now: float) -> bool:
        self._recall()
        again = False
        if self.playing:
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
            self.view.in_motion()
            again = True
        if self.filming is not None:
            self.filming.turn()
            again = True
            if self.filming.ended:
                filming, self.filming = self.filming, None
                filming.close()
                self.view.desk.say(filming.fault or f"Saved {filming.out}, {filming.drawn} pictures")
                if not filming.fault:
                    self.view.desk.hand_over(filming.out)
        return again

    def over(self, rect: Rect, scale: float) -> bool:
        camera = self.view.camera(rect)
        if self.shown and not self.playing and camera is not None and self.path.keys:
            from splatview_viewer.kinds.gaussians.path_line import draw_path

            draw_path(self.path, camera, rect, scale, self.chosen, self.time)
        return False

    def bar_height(self) -> float:
        return HEIGHT if self.shown and self.path.keys else 0.0

    def bar(self, rect: Rect, scale: float) -> bool:
        from splatview_viewer.kinds.gaussians.path_bar import PathBar

        if self._bar is None:
            self._bar = PathBar(self)
        return self._bar.draw(rect, scale)

    def sections(self) -> Sequence[Section]:
        from splatview_viewer.kinds.gaussians.path_panel import panel

        return [Section("Path", lambda: panel(self), tip="A way for the camera, to be played and filmed")]

    def like(self, other: Tool) -> None:
        """Paths are everybody's own; the camera that is moved along one is followed anyway."""

    def close(self) -> None:
        if self.filming is not None:
            self.filming.close()
            self.filming = None

    # -- inside ----------------------------------------------------------------------------------------------

    def _camera(self) -> Camera | None:
        if not self.path.keys:
            return None
        rect = self.view.rect
        return self.path.at(self.time, rect.width, rect.height, self.view.orbit.near)

    def _edited(self, chosen: int | None) -> None:
        """The keys are others: go on with this one chosen."""
        self.chosen = chosen
        times = self.path.times
        self.time = min(self.time, self.path.duration) if chosen is None else times[min(chosen, len(times) - 1)]
        self.keep()

    def changed(self) -> None:
        """A setting of the film was changed."""
        self.time = min(self.time, self.path.duration)
        self.keep()

    def keep(self) -> None:
        """Remember the path for the next time."""
        if self.view.desk.name:
            short = replace(self.film, fps=0.01)  # without its frames
            kept = json.loads(write_path(short)) | {"fps": self.film.fps, "camera_path": []} if self.path.keys else None
            self.view.desk.memo.put(f"path/{self.view.desk.name}", kept)

    def _recall(self) -> None:
        """What was there the last time, as soon as it is known what is shown."""
        name = self.view.desk.name
        if not name or name == self._recalled:
            return
        self._recalled = name
        kept = self.view.desk.memo.get(f"path/{name}")
        if kept is not None and not self.path.keys:
            try:
                self.film = parse_path(json.dumps(kept))
            except CameraError:
                return


def _stem(name: str) -> str:
    return Path(name).stem or "scene"

