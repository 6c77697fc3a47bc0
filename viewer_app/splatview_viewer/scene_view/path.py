"""Camera paths: keyframes set where the camera is, edited on a timeline, played, filmed picture by picture while the
loop goes on. The panel's part "Path".
"""

from __future__ import annotations

import json
import time
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_ipc.system.files import output_file
from splatview_viewer.core.errors import CameraError, ViewerError, words_of
from splatview_viewer.core.events import Key as KeyEvent
from splatview_viewer.core.format import round_seconds
from splatview_viewer.core.host import Host
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.core.screen import Rect
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
from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.cameras import focal_length, project
from splatview_viewer.geometry.path import (
    MOST_KEYS,
    CameraPath,
    Keyframe,
    positions,
    turntable,
)
from splatview_viewer.scene_view.tool import Tool, draw_line
from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import moderngl
    from imgui_bundle import ImVec2Like

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.settings import Color
    from splatview_viewer.formats.camera_paths import Writer
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.kinds.gaussians.view import GaussianView

    Draw = Callable[[moderngl.Framebuffer, Color], None]

HEIGHT = 46.0
"""Points that the timeline takes."""
_FLIGHT = 0.35
"""Seconds on the way to a keyframe that was chosen."""
_STEPS = 24
"""Points of the line between two keys."""
_MOST_POINTS = 2000
"""Points of the line of a whole path."""
_SIZE = 0.06
"""Size of the small cameras, against the way from one to the next."""
SIZES = {
    (1280, 720): "1280 x 720",
    (1920, 1080): "1920 x 1080",
    (2560, 1440): "2560 x 1440",
    (3840, 2160): "3840 x 2160",
    (1080, 1080): "1080 x 1080",
    (1080, 1920): "1080 x 1920",
}
RATES = {24.0: "24 fps", 25.0: "25 fps", 30.0: "30 fps", 50.0: "50 fps", 60.0: "60 fps"}
_AHEAD = 5
_AHEAD_BYTES = 256 << 20
"""Pictures that wait to be written, with the one that is being written, and their bytes; one at least."""
_ABORT_S = 5.0
"""Seconds to wait until what is unfinished has been taken away, by a disk that may hang."""
_TURN = 0.012
"""Seconds that one turn of the loop is given to, if a picture does not take longer."""


class PathTool(Tool):
    """One path for each view, remembered by the name of what it shows."""

    name: ClassVar[str] = "path"
    keys: ClassVar[Sequence[KeyHelp]] = (
        KeyHelp("Camera path", "K", "Set a keyframe here"),
        KeyHelp("Camera path", "P", "Play, and stop"),
        KeyHelp("Camera path", "Delete", "Remove the chosen keyframe"),
    )

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self.film = Film(CameraPath())
        self.time = 0.0
        """Place of the playhead, seconds."""
        self.chosen: int | None = None
        """The keyframe that is edited."""
        self.shown = False
        """The timeline is open."""
        self.transparent = False
        self.as_frames = False
        """Films are folders of PNGs."""
        self.filming: Filming | None = None
        self.playing = False
        self._playing_since: float | None = None
        self._dragged: int | None = None
        """The keyframe that the pointer moves on the timeline."""
        self._name = ""
        """The name under which the path is remembered."""
        self._kept = self._made

    @property
    def path(self) -> CameraPath:
        return self.film.path

    @property
    def _made(self) -> tuple[object, ...]:
        """All that is remembered; keys are equal to themselves alone."""
        film = self.film
        path = self.film.path
        return (*path.keys, path.loop, path.smooth, film.width, film.height, film.fps)

    @property
    def _seen(self) -> tuple[object, ...]:
        """All that its lines over the picture and the timeline show."""
        return (*self._made, self.time, self.chosen, self.shown, self.playing)

    # -- what can be done ------------------------------------------------------------------------------------

    def add(self) -> None:
        """Set a keyframe where the camera is: behind the one that is chosen, or at the end."""
        camera = self.view.camera()
        if camera is None:
            return
        keys = self.path.keys
        if len(keys) >= MOST_KEYS:
            self.view.host.say(f"{MOST_KEYS} keyframes are the most")
            return
        at = len(keys) if self.chosen is None else self.chosen + 1
        keys.insert(at, Keyframe.of(camera, self.view.orbit.distance))
        self.path.held = False
        if not keys[1:]:
            self.path.model = camera.model
        self._choose(at)
        self.shown = True

    def replace(self) -> None:
        """Move the chosen keyframe to where the camera is."""
        camera = self.view.camera()
        if camera is not None and self.chosen is not None:
            key = self.path.keys[self.chosen]
            self.path.keys[self.chosen] = Keyframe.of(
                camera, self.view.orbit.distance, key.seconds
            )
            self._choose(self.chosen)

    def remove(self) -> None:
        """Take the chosen keyframe out; its time goes to the one before."""
        if self.chosen is None:
            return
        keys = self.path.keys
        gone = keys.pop(self.chosen)
        if 0 < self.chosen < len(keys):
            before = keys[self.chosen - 1]
            keys[self.chosen - 1] = replace(
                before, seconds=before.seconds + gone.seconds
            )
        self._choose(min(self.chosen, len(keys) - 1) if keys else None)

    def around(self) -> None:
        """A path once around the middle of the scene, from where the camera is."""
        camera = self.view.camera()
        sight = self.view.data.look()
        if camera is not None and sight is not None:
            self._use(
                replace(
                    self.film, path=turntable(camera, sight.middle, self.view.orbit.up)
                )
            )

    def move_key(self, i: int, seconds: float) -> None:
        """Have a keyframe reached at another time, between its neighbours."""
        keys = self.path.keys
        times = self.path.times
        if not 0 < i < len(times):
            return
        seconds = max(seconds, times[i - 1] + 0.05)
        if i < len(times) - 1:
            seconds = min(seconds, times[i + 1] - 0.05)
            keys[i] = replace(keys[i], seconds=times[i + 1] - seconds)
        keys[i - 1] = replace(keys[i - 1], seconds=seconds - times[i - 1])

    def choose(self, i: int) -> None:
        """Edit a keyframe: the camera goes there."""
        self.stop()
        self._choose(i)
        self.view.fly_to(self._camera, _FLIGHT)

    def seek(self, seconds: float) -> None:
        """Put the playhead there; the camera goes along."""
        self.time = min(max(seconds, 0.0), self.path.duration)
        if self.path.keys:
            self.view.use_camera(self._camera)

    @property
    def _camera(self) -> Camera:
        """The camera where the playhead is; there is a keyframe."""
        return self.path.at(
            self.time, self.view.rect.width, self.view.rect.height, self.view.orbit.near
        )

    def play(self) -> None:
        """From where the playhead stands; from the beginning at the end."""
        if len(self.path.keys) < 2:
            self.view.host.say("A path needs two keyframes: press K at two places")
            return
        if self.time >= self.path.duration - 1e-6:
            self.time = 0.0
        self.playing = True
        self._playing_since = None
        self.shown = True

    def stop(self) -> None:
        self.playing = False

    def save(self) -> None:
        """Into the current folder, as nerfstudio's viewer writes paths."""
        path = output_path(f"{_stem(self.view.host.name)}-path", ".json")
        try:
            text = write_path(self.film).encode()
            with output_file(path, numbered=True) as out:
                out.file.write(text)
        except (OSError, CameraError) as e:
            self.view.host.say(f"The path is not saved: {e}")
            return
        self.view.host.say(f"Saved {out.path}")
        self.view.host.hand_over(out.path)

    def dropped(self, file: Path) -> bool:
        """As `View.dropped`. What holds no path is told."""
        if file.suffix.lower() != ".json":
            return False
        try:
            self._use(read_path(file))
        except CameraError as e:
            self.view.host.say(str(e))
            return False
        self.view.host.say(f"{len(self.path.keys)} keyframes from {file.name}")
        return True

    def _use(self, film: Film) -> None:
        self.film = film
        self.time = 0.0
        self.chosen = None
        self.shown = True

    def _choose(self, chosen: int | None) -> None:
        """Edit this keyframe from now on, with the playhead there."""
        self.chosen = chosen
        times = self.path.times
        self.time = times[min(chosen or 0, len(times) - 1)]

    def record(self) -> None:
        """Begin to film it."""
        if self.filming is not None or not self.path.keys:
            return
        self.stop()
        film = replace(self.film, path=replace(self.path, keys=list(self.path.keys)))
        out = output_path(_stem(self.view.host.name), "" if self.as_frames else ".mp4")
        transparent = self.transparent and self.as_frames
        try:
            check_length(film)
            writer = make_writer(
                out, film.width, film.height, film.fps, transparent, numbered=True
            )
        except ViewerError as e:
            self.view.host.say(str(e))
            return
        camerawork = Camerawork(self.view.data.ctx, self.view, film.width, film.height)
        self.filming = Filming(
            camerawork, film, writer, transparent=transparent, wake=self.view.host.wake
        )

    def cancel(self) -> None:
        """Give up the film."""
        if self.filming is not None:
            self.close()
            self.view.host.say("The film was given up")

    # -- the protocol ----------------------------------------------------------------------------------------

    def handle(self, event: Event, rect: Rect) -> bool | None:
        if (
            not isinstance(event, KeyEvent)
            or not event.pressed
            or event.mods
            or event.repeat
        ):
            return None
        if event.name == "k":
            self.add()
        elif event.name == "p":
            self.stop() if self.playing else self.play()
        elif event.name == "delete" and self.chosen is not None and self.shown:
            self.remove()
        else:
            return None
        return True

    def tick(self, now: float) -> bool:
        host = self.view.host
        name = host.identity or host.name
        again = False
        if (
            name and name != self._name
        ):  # known at last: take what is remembered under it
            self._name, kept = name, host.recall("path")
            if kept is not None and not self.path.keys:
                with suppress(CameraError):  # whatever wrote it
                    self.film = parse_path(json.dumps(kept))
            self._kept = self._made
        elif name and self._dragged is None and self._kept != self._made:
            self._kept = self._made
            is_drawn = 0 < len(self.path.keys) <= MOST_KEYS
            values = path_values(self.film, frames=False) if is_drawn else None
            host.remember("path", values)
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
        return again

    def work(self) -> bool:
        """Go on with the film. True when it has come further."""
        filming = self.filming
        if filming is None:
            return False
        drawn = filming.drawn
        filming.turn()
        if filming.ended:
            self.close()
            self.view.host.say(
                filming.fault or f"Saved {filming.out}, {filming.drawn} pictures"
            )
            if not filming.fault:
                self.view.host.hand_over(filming.out)
        return filming.ended or filming.drawn != drawn

    def over(self, rect: Rect, scale: float) -> bool:
        camera = self.view.camera(rect)
        if self.shown and not self.playing and camera is not None and self.path.keys:
            draw_path(self.path, camera, rect, scale, self.chosen, self.time)
        return False

    def bar_height(self) -> float:
        return HEIGHT if self.shown and self.path.keys else 0.0

    def bar(self, rect: Rect, scale: float) -> bool:
        before = self._seen
        with ui.board(f"path {id(self)}", rect, (10 * scale, 8 * scale)) as opened:
            if opened:
                button = ImVec2(56 * scale, 0)
                if imgui.button("Stop##path" if self.playing else "Play##path", button):
                    self.stop() if self.playing else self.play()
                imgui.set_item_tooltip("P")
                imgui.same_line()
                if imgui.button("Key##path", button):
                    self.add()
                imgui.set_item_tooltip("Set a keyframe where the camera is (K)")
                imgui.same_line()
                self._timeline(rect, scale)
        return before != self._seen

    def _timeline(self, rect: Rect, scale: float) -> None:
        """The line with its keys."""
        path = self.path
        left = imgui.get_cursor_screen_pos()
        width = rect.x + rect.width - left.x - 16 * scale
        height = rect.height - 16 * scale
        if width < 40 * scale:
            return
        duration = max(path.duration, 1e-6)
        imgui.invisible_button("line", ImVec2(width, max(height, 1)))
        mouse = ui.pointer()
        held = imgui.is_item_active()
        begin = left.x + 8 * scale
        span = max(width - 16 * scale, 1.0)

        def at(seconds: float) -> float:
            return begin + span * seconds / duration

        times = path.times
        seconds = (mouse.x - begin) / span * duration
        if imgui.is_item_activated():
            near = min(range(len(times)), key=lambda i: abs(at(times[i]) - mouse.x))
            self._dragged = near if abs(at(times[near]) - mouse.x) < 7 * scale else None
            self.stop()
            if self._dragged is not None:
                self.choose(self._dragged % len(path.keys))
        elif (
            held
            and self._dragged is not None
            and imgui.is_mouse_dragging(imgui.MouseButton_.left, 3 * scale)
        ):
            self.move_key(self._dragged, seconds)
        if held and self._dragged is None:
            self.seek(seconds)
        elif not held:
            self._dragged = None

        draw = imgui.get_window_draw_list()
        draw.add_rect_filled(
            left,
            ImVec2(left.x + width, left.y + height),
            theme.u32(theme.FIELD),
            4 * scale,
        )
        step = round_seconds(max(60 * scale * duration / span, 0.1))
        for i in range(min(int(duration / step + 1e-6) + 1, 100)):
            x = at(i * step)
            text = f"{i * step:g} s"
            draw.add_line(
                ImVec2(x, left.y + height * 0.7),
                ImVec2(x, left.y + height),
                theme.u32(theme.GONE),
                scale,
            )
            room = imgui.calc_text_size(text).x
            if x + 3 * scale + room <= left.x + width:
                beside = x + 3 * scale
            else:
                beside = x - 3 * scale - room
            draw.add_text(
                ImVec2(
                    round(beside), round(left.y + height - imgui.get_text_line_height())
                ),
                theme.u32(theme.GONE),
                text,
            )
        middle = left.y + height * 0.36
        r = 5 * scale
        # Of more there are several in each pixel.
        marked = times if len(times) <= MOST_KEYS + 1 else []
        for i, x in enumerate(map(at, marked)):
            chosen = self.chosen is not None and i % len(path.keys) == self.chosen
            corners = (
                ImVec2(x, middle - r),
                ImVec2(x + r, middle),
                ImVec2(x, middle + r),
                ImVec2(x - r, middle),
            )
            draw.add_quad_filled(
                *corners, theme.u32(theme.TEXT if chosen else theme.ACCENT)
            )
        x = at(min(self.time, duration))
        draw.add_line(
            ImVec2(x, left.y),
            ImVec2(x, left.y + height),
            theme.u32(theme.TEXT),
            1.5 * scale,
        )

    def sections(self) -> Sequence[Section]:
        return [
            Section(
                "Path", self._panel, tip="A way for the camera, to be played and filmed"
            )
        ]

    def _panel(self) -> bool:
        before = self._seen
        pressed = ui.buttons(
            "Keyframe",
            ["Add", "Around"],
            [
                "Set one where the camera is (K)",
                "A path once around the scene, from here",
            ],
        )
        if pressed == 0:
            self.add()
        elif pressed == 1:
            self.around()
        elif self.chosen is not None:
            key = self.path.keys[self.chosen]
            count = len(self.path.keys)
            edit = ui.buttons(
                f"{self.chosen + 1} of {count}",
                ["Set here", "Remove"],
                ["Move it to where the camera is", "Take it out (Delete)"],
            )
            fov = ui.slider(
                "Field of view",
                "Vertical angle of this keyframe's picture",
                key.fov,
                (5.0, 120.0),
                "%.0f deg",
            )
            if edit == 0:
                self.replace()
            elif edit == 1:
                self.remove()
            elif fov != key.fov:
                self.path.keys[self.chosen] = replace(key, fov=fov)
        path = self.path
        if not path.keys:
            ui.wrapped(
                "K sets a keyframe where the camera is. A path of nerfstudio's viewer can be dropped here.",
                theme.DIM,
            )
        else:
            path.loop = ui.check(
                "Loop", "The path goes back to its first keyframe", path.loop
            )
            path.smooth = ui.check(
                "Smooth",
                "A curve through the keyframes; off: straight lines",
                path.smooth,
            )
            if path.duration > 0:
                seconds = ui.slider(
                    "Duration",
                    "Seconds from the first keyframe to the last",
                    path.duration,
                    (0.5, 60.0),
                    "%.1f s",
                )
                if seconds != path.duration:
                    path.stretch(seconds)
            self.shown = ui.check(
                "Timeline",
                "The path's times at the lower edge of the picture",
                self.shown,
            )
            if (
                ui.buttons(
                    "File",
                    ["Save"],
                    ["Into the current folder, as nerfstudio's viewer writes paths"],
                )
                == 0
            ):
                self.save()
            self._film_panel()
        return before != self._seen or self.filming is not None

    def _film_panel(self) -> None:
        film = self.film
        filming = self.filming
        if filming is not None:
            ui.row("Video")
            imgui.progress_bar(
                filming.drawn / filming.total,
                ImVec2(-1, 0),
                f"{filming.drawn} of {filming.total}",
            )
            if ui.buttons("", ["Cancel"]) == 0:
                self.cancel()
            return
        size = film.width, film.height
        width, height = ui.choice(
            "Resolution",
            "Width and height of the video, in pixels",
            size,
            SIZES if size in SIZES else {size: f"{size[0]} x {size[1]}", **SIZES},
        )
        rates = RATES if film.fps in RATES else {film.fps: f"{film.fps:g} fps", **RATES}
        self.film = replace(
            film,
            width=width,
            height=height,
            fps=ui.choice(
                "Frame rate", "Pictures of the video in a second", film.fps, rates
            ),
        )
        self.as_frames = ui.choice(
            "Format",
            "One video, or a folder of numbered pictures",
            self.as_frames,
            {False: "mp4", True: "PNGs"},
        )
        if self.as_frames:
            self.transparent = ui.check(
                "Transparent",
                "Pictures with an alpha channel in place of a background",
                self.transparent,
            )
        if (
            ui.buttons(
                "Video",
                ["Render"],
                ["Into the current folder of the viewer; drawing goes on meanwhile"],
            )
            == 0
        ):
            self.record()

    def close(self) -> None:
        if self.filming is not None:
            self.filming.close()
            self.filming = None


def _stem(name: str) -> str:
    return Path(name).stem or "scene"


def draw_path(
    path: CameraPath,
    camera: Camera,
    rect: Rect,
    scale: float,
    chosen: int | None,
    time: float,
) -> None:
    """Over the picture that `camera` shows in `rect`."""
    draw = imgui.get_background_draw_list()
    has_cameras = len(path.keys) <= MOST_KEYS
    if has_cameras:
        line = _line(tuple(path.keys), path.loop, path.smooth)
    else:
        line = _thinned(path.keys)
    at = _on_screen(line, camera, rect)
    seen = np.asarray(np.isfinite(at).all(axis=1))
    for part in np.split(np.arange(len(at)), np.flatnonzero(np.diff(seen)) + 1):
        if len(part) > 1 and seen[part[0]]:
            draw_line(at[part] - [rect.x, rect.y], rect, scale, theme.MARK, 0.9)
    if len(line) > 1:
        step = np.linalg.norm(np.diff(line, axis=0), axis=1).sum() / max(
            len(path.keys), 1
        )
    else:
        step = 1.0
    for i, key in enumerate(path.keys if has_cameras else ()):
        half = 0.5 / focal_length(min(key.fov, 120.0), 1)
        pyramid = np.array(
            [
                [0, 0, 0],
                [-1.4 * half, -half, 1],
                [1.4 * half, -half, 1],
                [1.4 * half, half, 1],
                [-1.4 * half, half, 1],
            ]
        ) * (float(step) * _SIZE or 0.05)
        at = _on_screen(
            pyramid @ rotations.matrix(key.rotation).T + key.position, camera, rect
        )
        if np.isfinite(at).all():
            corners: list[ImVec2Like] = [ImVec2(*p) for p in at[1:].tolist()]
            color = theme.u32(theme.INK if i == chosen else theme.MARK)
            width = (2.2 if i == chosen else 1.2) * scale
            draw.add_polyline(corners, color, width, imgui.ImDrawFlags_.closed.value)
            for corner in corners:
                draw.add_line(ImVec2(*at[0]), corner, color, width)
    if path.keys:
        here = _on_screen(path.at(time, 16, 16).position[None], camera, rect)[0]
        if np.isfinite(here).all():
            draw.add_circle_filled(ImVec2(*here), 4.5 * scale, theme.u32(theme.INK), 20)
            draw.add_circle(
                ImVec2(*here), 4.5 * scale, theme.u32(theme.SHADE), 20, 1.2 * scale
            )


def _on_screen(points: np.ndarray, camera: Camera, rect: Rect) -> np.ndarray:
    """(N, 2) pixels of the screen where points (N, 3) of the world are seen; NaN behind the camera."""
    return project(camera, points) * [
        rect.width / camera.width,
        rect.height / camera.height,
    ] + [rect.x, rect.y]


def _thinned(keys: Sequence[Keyframe]) -> np.ndarray:
    """Return (N, 3) places of a path of very many keys, which lie close together."""
    return np.stack([key.position for key in keys[:: -(-len(keys) // _MOST_POINTS)]])


@lru_cache(maxsize=8)
def _line(keys: tuple[Keyframe, ...], loop: bool, smooth: bool) -> np.ndarray:
    path = CameraPath(list(keys), loop, smooth)
    if len(keys) > 1:
        return positions(
            path, min(_STEPS * max(len(keys) - 1 + loop, 1), _MOST_POINTS) + 1
        )
    if keys:
        return np.stack([key.position for key in keys])
    return np.zeros((0, 3))


class Camerawork:
    """Draws single pictures of a scene with the settings of a view, but none of what its tools draw over it."""

    def __init__(
        self, ctx: moderngl.Context, view: GaussianView, width: int, height: int
    ) -> None:
        """view: shows the scene, in the way in which pictures show it, but for the camera."""
        self._view = type(view)(view.data, view.state)
        self._view.host = Host(exact="scene")
        for tool in self._view.tools.values():
            tool.close()
        self._view.tools.clear()
        self._background = view.background
        self.size = width, height
        self._ctx = ctx

    def picture(
        self, film: Film, seconds: float, transparent: bool = False
    ) -> np.ndarray:
        """(H, W, 3) uint8, top row first; transparent: (H, W, 4), colours not multiplied by alpha."""
        self._view.look_with(film.path.at(seconds, *self.size))
        if transparent:
            return see_through(self._ctx, self.size, self._draw)
        return _drawn(self._ctx, self.size, self._draw, self._background)[0]

    def _draw(self, framebuffer: moderngl.Framebuffer, background: Color) -> None:
        self._view.change(background=background)
        self._view.draw(framebuffer, Rect(0, 0, *self.size))

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self._view.release("closed")


def see_through(ctx: moderngl.Context, size: tuple[int, int], draw: Draw) -> np.ndarray:
    """(H, W, 4) uint8, top row first, colours not multiplied by alpha: what `draw` lays over any background.

    Drawn over black and over white: what the second shows more is what is seen through.
    """
    black, white = _drawn(ctx, size, draw, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), dtype="f4")
    alpha = np.clip(1 - (white - black).mean(axis=2, keepdims=True), 0, 1)
    color = np.divide(black, alpha, out=np.zeros_like(black), where=alpha > 1e-6)
    return (np.concatenate([np.clip(color, 0, 1), alpha], axis=2) * 255 + 0.5).astype(
        np.uint8
    )


def _drawn(
    ctx: moderngl.Context,
    size: tuple[int, int],
    draw: Draw,
    *backgrounds: Color,
    dtype: Literal["f1", "f4"] = "f1",
) -> list[np.ndarray]:
    """(H, W, 3) uint8, or float32 of "f4", top row first: what `draw` lays over each of the backgrounds."""
    pictures = []
    with ExitStack() as held:
        texture = ctx.texture(size, 4, dtype=dtype)
        held.callback(texture.release)
        framebuffer = ctx.framebuffer([texture])
        held.callback(framebuffer.release)
        held.callback(ctx.fbo.use)
        for background in backgrounds:
            draw(framebuffer, background)
            data = framebuffer.read(components=3, alignment=1, dtype=dtype)
            values = np.frombuffer(data, {"f1": np.uint8, "f4": np.float32}[dtype])
            pictures.append(values.reshape(size[1], size[0], 3)[::-1])
    return pictures


class Filming:
    """One film in the making: `turn` in each turn of the loop, `close` at the end, in any case. A job writes each
    picture.
    """

    def __init__(
        self,
        camerawork: Camerawork,
        film: Film,
        writer: Writer,
        *,
        transparent: bool = False,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """`wake` ends the loop's sleep, from any thread."""
        self.film = film
        self.total = film.path.frames(film.fps)
        self.drawn = 0
        self.ended = False
        """Everything is written, or given up."""
        self.fault = ""
        """Why it was given up; "" without a reason."""
        self._writer = writer
        self._camerawork = camerawork
        self._transparent = transparent
        channels = 4 if transparent else 3
        picture_bytes = film.width * film.height * channels
        self._ahead = max(min(_AHEAD, _AHEAD_BYTES // max(picture_bytes, 1)), 1)
        self._jobs = Jobs("film", wake)
        self._written: deque[Job[None]] = deque()
        """Jobs that have not ended, the oldest first; behind the last picture the one that completes the film."""
        self._complete = False
        """The last one is among them."""

    @property
    def out(self) -> Path:
        """The film's file or folder; its number is known at the end."""
        return self._writer.out

    def turn(self, seconds: float = _TURN) -> None:
        """Draw a picture, and more as long as there is time; nothing while the jobs are behind."""
        begin = time.perf_counter()
        while not self.ended:
            while self._written and self._written[0].done:
                job = self._written.popleft()
                if job.error is not None:
                    self._give_up(words_of(job.error))
                    return
            if self._complete:
                self.ended = not self._written
                return
            if len(self._written) >= self._ahead:
                return
            if self.drawn == self.total:
                self._written.append(self._jobs.submit(lambda _: self._writer.close()))
                self._complete = True
                continue
            try:
                picture = self._camerawork.picture(
                    self.film, self.drawn / self.film.fps, self._transparent
                )
                self._write(picture)
            except Exception as e:  # without an end it would never be closed
                self._give_up(words_of(e))
                return
            if time.perf_counter() - begin >= seconds:
                return

    def _write(self, picture: np.ndarray) -> None:
        """Have a job write the next picture."""
        job = self._jobs.submit(lambda _: self._writer.add(picture))
        self._written.append(job)
        self.drawn += 1

    def wait(self, timeout: float) -> None:
        """Sleep until there is room for a picture, or the film has ended, or for so many seconds."""
        if self._written and (self._complete or len(self._written) >= self._ahead):
            self._written[0].wait(timeout)

    def _give_up(self, fault: str = "") -> None:
        """End it unfinished: an mp4 is not written, PNGs that are written stay.

        What was written goes behind the picture that is being written: this does not wait for a disk.
        """
        self.fault = fault
        self.ended = True
        self._jobs.close()
        self._written.clear()
        self._jobs.submit(lambda _: self._writer.abort())

    def close(self) -> None:
        """Give back everything; give up what is unfinished. Idempotent."""
        if not self.ended:
            self._give_up()
        self._jobs.wait(_ABORT_S)
        self._camerawork.close()
