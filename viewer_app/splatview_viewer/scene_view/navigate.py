"""The camera of a scene: orbiting, flying, framing, bookmarks. The panel's part "Camera"."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.errors import CameraError
from splatview_viewer.core.events import (
    Key,
    Pinch,
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
    Text,
    Wheel,
)
from splatview_viewer.core.view import KeyHelp, Section
from splatview_viewer.geometry.cameras import DEFAULT_FOV, camera_from_text
from splatview_viewer.geometry.controls import SECONDS, Flight, Flying
from splatview_viewer.geometry.training_cameras import (
    snapped,
    up_of_cameras,
    up_of_scene,
)
from splatview_viewer.scene.scene import UPS
from splatview_viewer.scene_view import camera_numbers
from splatview_viewer.scene_view.tool import Picker, Tool
from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.geometry.cameras import Camera, CameraModel
    from splatview_viewer.geometry.controls import Orbit
    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.scene_view.frustums import Frustums

_LEVEL = 1e-3
"""Radians of roll that cannot be seen."""
_SETTLED = 0.15
"""Seconds after which a wheel rests."""
_SAME = 0.9976
"""Cosine of an angle, 4 degrees, by which two directions upward may differ."""
_MODELS: dict[CameraModel, str] = {
    "pinhole": "Perspective",
    "ortho": "Orthographic",
    "fisheye": "Fisheye",
}
_RADIUS = 34.0
_DOT = 8.5
_MARGIN = 14.0
"""Points: from the middle to the dots, of a dot, and to the picture's edges."""
_LEAST = 260.0
"""Points of the picture's shorter side below which it is left out."""
_COLORS = (
    ImVec4(0.90, 0.36, 0.38, 1),
    ImVec4(0.45, 0.72, 0.30, 1),
    ImVec4(0.30, 0.56, 0.93, 1),
)
"""Colours of x, y and z; over pictures, so the same in dark and light."""
_AXES = tuple((axis, sign) for axis in range(3) for sign in (1, -1))
_ENDS = np.array([np.eye(3)[axis] * sign for axis, sign in _AXES]).T
_DARK = ImVec4(0.05, 0.05, 0.06, 1)
_WHITE = ImVec4(1, 1, 1, 1)
"""Colours of the letters on them, and of the ring around the one under the pointer."""


class Navigate(Tool):
    """Moves the view's camera."""

    name: ClassVar[str] = "navigate"
    keys: ClassVar[Sequence[KeyHelp]] = (
        KeyHelp("Camera", "Drag", "Orbit; look around when flying"),
        KeyHelp("Camera", "Right drag, Shift + drag", "Move"),
        KeyHelp("Camera", "Wheel, pinch", "Nearer, farther; speed when flying"),
        KeyHelp("Camera", "Double click", "Orbit around what is there"),
        KeyHelp("Camera", "W A S D, Q E", "Fly ahead and sideways, down and up"),
        KeyHelp("Camera", "Shift, Alt", "Fast, slow"),
        KeyHelp("Camera", "Arrow keys", "Move"),
        KeyHelp("Camera", "Z, C, Ctrl + drag", "Roll"),
        KeyHelp("Camera", "O", "Orbit or fly"),
        KeyHelp("Camera", "F", "See the whole scene"),
        KeyHelp("Camera", "R", "Upright; once more: as at first"),
        KeyHelp("Camera", "1 to 9", "Go to a bookmark"),
        KeyHelp("Camera", "Shift + 1 to 9", "Keep a bookmark"),
        KeyHelp("Camera", "Ctrl + C, Ctrl + V", "Copy the camera, paste one"),
    )

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self.flying = Flying()
        self.looks = False
        """A drag looks around (flying)."""
        self._copying = False
        """The camera is to be copied to the clipboard inside the next imgui frame."""
        self._flight: tuple[Flight, Camera | None] | None = None
        """The way, and the camera at its end if it has to be exactly that."""
        self._there: np.ndarray | None = None
        """The rotation that it gave the orbit last. Another one: the camera was put elsewhere."""
        self._picker = Picker(view, "pick")
        self.gizmo = Gizmo(self)
        self._viewmats: np.ndarray | None = None
        self._outside = False
        self._told_speed: float | None = math.inf
        """When to say how fast it flies by now: once the wheel rests; None: to be set by the next `tick`."""

    # -- what others may ask -----------------------------------------------------------------------------------

    def fly_to(
        self, camera: Camera, seconds: float = SECONDS, pivot: np.ndarray | None = None
    ) -> None:
        """As `GaussianView.fly_to`."""
        view = self.view
        pivot = view.orbit.target if pivot is None else pivot
        if seconds <= 0 or not view.framed or view.data.facts is None:
            self.stop()
            view.use_camera(camera, pivot)
            return
        end = view.orbit.copy()
        end.take(camera, pivot)
        self.go(end, seconds, camera)

    def go(
        self, end: Orbit, seconds: float = SECONDS, camera: Camera | None = None
    ) -> None:
        """Fly to where another orbit looks from, to exactly `camera` if there is one."""
        self.begin()
        self._flight = Flight(self.view.orbit.copy(), end, seconds), camera
        self._there = self.view.orbit.rotation
        self.view.moved()

    def stop(self) -> None:
        """Stay here, whatever was under way: the user takes the camera."""
        self.view.place(by_hand=True)
        self._flight = None
        self.flying.stop()
        self._picker.forget()

    def begin(self) -> None:
        """The user takes the camera, to change what `orbit` says."""
        self.stop()
        self.view.go_on_from_here()

    @property
    def under_way(self) -> bool:
        """True while the camera moves by itself: a flight, or a key that is held."""
        return self._flight is not None or self.flying.moving

    def cameras(self, viewmats: np.ndarray) -> None:
        """Take the published cameras of the scene, (N, 4, 4) world to camera: they say what is up, unless the user
        or the scene's file has said so. A scene that is seen as at first is turned upright.
        """
        before = self._viewmats
        self._viewmats = viewmats
        view = self.view
        place = self.view.state.place
        if (
            before is not None
            or place.up_by == "user"
            or self._file_up is not None
            or (up := up_of_cameras(viewmats)) is None
        ):
            return
        turned = float(snapped(up) @ view.orbit.up) < _SAME
        if turned:
            view.orbit.up = snapped(up)
        view.place(up_by="found")
        if turned and not (place.by_hand or view.fixed):
            view.frame()

    def first_up(self) -> np.ndarray:
        """(3,) what is up when the scene is seen for the first time: as its file says, or cameras, or the ground it
        stands on, else as it was.
        """
        view = self.view
        by = self.view.state.place.up_by
        undecided = not by or (by == "found" and self._file_up is not None)
        if undecided and (up := self.detected_up()) is not None:
            view.orbit.up = up
            view.place(up_by="found")
        return view.orbit.up

    def detected_up(self) -> np.ndarray | None:
        """(3,) what is up by the scene's file, else the published cameras, else the ground; None where none says."""
        if self._file_up is not None:
            return np.array(self._file_up, np.float64)
        up = None if self._viewmats is None else up_of_cameras(self._viewmats)
        sight = self.view.data.look()
        if up is None and sight is not None:
            up = up_of_scene(sight.means, sight.weights)
        return None if up is None else snapped(up)

    @property
    def _file_up(self) -> tuple[float, float, float] | None:
        facts = self.view.data.facts
        return None if facts is None else facts.up

    def set_up(self, up: np.ndarray) -> None:
        """The user says what is up."""
        self.begin()
        self.view.orbit.set_up(up)
        self.view.moved(up_by="user")

    # -- what buttons and keys do --------------------------------------------------------------------------------

    def frame(self, *, anew: bool = False) -> None:
        """See the whole scene in the direction in which one looks. anew: upright; if it is that already, as at first
        sight.
        """
        view = self.view
        sight = self.view.data.look()
        if not view.framed or sight is None or not len(sight.means):
            view.frame()
            return
        end = self._here()
        size = (view.rect.width, view.rect.height)
        if anew and abs(end.tilt) > _LEVEL:
            end.level()
        else:
            model = end.model
            if anew:
                camera = sight.camera(*size, end.up)
            else:
                camera = sight.seen_along(end.rotation, min(end.fov, 150.0), *size)
            end.take(camera, sight.middle)
            end.model = model
        self.go(end)

    def look_along(self, forward: np.ndarray) -> None:
        """Look in this direction (3,) at what is orbited around."""
        end = self._here()
        end.look_along(forward)
        self.go(end)

    def copy(self) -> None:
        """Put the camera on the clipboard. Inside an imgui frame."""
        camera = self.view.camera()
        if camera is not None:
            imgui.set_clipboard_text(camera.to_json())
            self.view.host.say("Camera copied")

    def paste(self, text: str) -> None:
        """Go to the camera that a text describes, or say why it does not."""
        rect = self.view.rect
        try:
            camera = camera_from_text(text, rect.width, rect.height)
        except CameraError as e:
            self.view.host.say(str(e)[:160])
            return
        self.fly_to(camera)

    @property
    def bookmarks(self) -> dict[int, dict[str, Any]]:
        """Cameras to come back to and what was orbited around, by numbers from 1 to 9, ascending. They are remembered
        of the file, or of the stream of this name.
        """
        kept = self.view.host.recall("bookmarks")
        if isinstance(kept, dict):
            return {n: kept[str(n)] for n in range(1, 10) if str(n) in kept}
        return {}

    def _remember(self, bookmarks: dict[int, dict[str, Any]]) -> None:
        values = {str(n): b for n, b in bookmarks.items()}
        self.view.host.remember("bookmarks", values or None)

    def keep(self, number: int | None = None) -> None:
        """Keep this camera as a bookmark, in the place of that of the same number, or as the first that is free."""
        kept = self.bookmarks
        number = number or next((n for n in range(1, 10) if n not in kept), None)
        if number is None:
            self.view.host.say("There are nine bookmarks: delete one first")
        elif (camera := self.view.camera()) is not None:
            made = {
                "camera": json.loads(camera.to_json()),
                "pivot": self.view.orbit.target.tolist(),
            }
            self._remember({**kept, number: made})
            self.view.host.say(f"Kept as bookmark {number}")

    def visit(self, number: int) -> bool:
        """Go to a bookmark; False if there is none that can be read."""
        rect = self.view.rect
        try:
            kept = self.bookmarks[number]
            camera = camera_from_text(
                json.dumps(kept["camera"]), rect.width, rect.height
            )
            self.fly_to(camera, pivot=np.array(kept["pivot"], np.float64).reshape(3))
        except (CameraError, KeyError, TypeError, ValueError):
            return False
        return True

    def forget(self, number: int) -> None:
        """Delete a bookmark."""
        self._remember({n: kept for n, kept in self.bookmarks.items() if n != number})

    # -- the protocol of tools -----------------------------------------------------------------------------------

    def handle(self, event: Event, rect: Rect) -> bool | None:
        view = self.view
        view.orbit.looks = self.looks
        if isinstance(event, Key):
            return self._key(event)
        if isinstance(event, Text):
            # A paste, where that is no key: pages say only what was pasted.
            if len(event.text) > 8 and event.text.lstrip().startswith("{"):
                self.paste(event.text)
                return True
            return None
        outside = self._outside
        self._outside = isinstance(event, PointerLeave)
        if self._outside:
            if (
                not outside
            ):  # what is held from now on may be let go unheard; repeats say it is not
                self.flying.let_go()
            return None
        taken = self.gizmo.handle(event, rect)
        if taken is not None:
            return taken
        if isinstance(event, (PointerPress, Wheel, Pinch)):
            self._flight = None
            self._picker.forget()
            view.go_on_from_here()
        if (
            isinstance(event, PointerPress)
            and event.clicks == 2
            and event.button == "left"
        ):
            view.orbit.let_go()
            self._picker.ask(event.x, event.y, rect)
            return True
        if (
            isinstance(event, Wheel)
            and self.looks
            and abs(event.dy) >= abs(event.dx)
            and not event.mods
        ):
            self.flying.faster(event.dy)
            self._told_speed = None
            return True
        if not view.orbit.handle(event, rect):
            return None
        view.moved(by_hand=True)
        return True

    def _key(self, event: Key) -> bool | None:
        view = self.view
        if self.flying.key(event):
            if event.pressed:
                self._flight = None
                self._picker.forget()
            return False  # `tick` moves the camera
        if not event.pressed or event.repeat or view.data.facts is None:
            return None
        if event.mods == {"ctrl"} and event.name in ("c", "v"):
            if event.name == "c":
                self._copying = True
            else:
                self.paste(view.host.pasted())
            return True
        if event.name.isdigit() and event.name != "0":
            if event.mods in ({"shift"}, {"ctrl"}):
                self.keep(int(event.name))
                return True
            return (self.visit(int(event.name)) or None) if not event.mods else None
        if event.mods:
            return None
        if event.name in ("f", "r"):
            self.frame(anew=event.name == "r")
        elif event.name == "o":
            self.looks = not self.looks
            view.host.say(
                "Fly: drag looks around"
                if self.looks
                else "Orbit: drag turns the scene"
            )
        else:
            return None
        return True

    def tick(self, now: float) -> bool:
        view = self.view
        again = False
        picked = self._picker.take()
        if picked is not None:
            if picked:
                end = self._here()
                end.center(picked[0].point)
                self.go(end)
            else:
                view.host.say("There is nothing to orbit around")
        if self._told_speed is None:
            self._told_speed = now + _SETTLED
        if now >= self._told_speed:
            self._told_speed = math.inf
            view.host.say(f"Speed {self.flying.speed:.2g}x")
        if self._flight is not None and (
            view.orbit.rotation is not self._there or not view.framed
        ):
            self._flight = None  # the camera was put elsewhere
        if self._flight is not None:
            flight, camera = self._flight
            there = flight.at(now)
            if there is None:
                self._flight = None
            if there is None and camera is not None:
                view.use_camera(camera, flight.end.target)
            else:
                view.orbit.place = (there or flight.end).place
                self._there = view.orbit.rotation
                view.moved()
            again = True
        step = self.flying.step(now) if self.flying.moving else None
        if (
            step is not None
            and view.data.facts is not None
            and view.framed
            and step.any()
        ):
            view.go_on_from_here()
            orbit = view.orbit
            up = orbit.rotation @ (orbit.up / np.linalg.norm(orbit.up))
            orbit.move((step[:3] + up * step[3]) * orbit.distance)
            if step[4]:
                orbit.roll(float(step[4]))
            view.moved(by_hand=True)
        return again or step is not None or self.flying.moving

    def draw(self, framebuffer: object, rect: Rect) -> None:
        if self.under_way:
            self.view.host.wake()  # the next turn comes when the next picture is due

    def over(self, rect: Rect, scale: float) -> bool:
        if self.flying.moving and imgui.get_io().want_text_input:
            self.flying.let_go()  # keys are for the text now, also those that go up
        if self._copying:
            self._copying = False
            self.copy()
        return self.gizmo.draw(rect, scale)

    def sections(self) -> Sequence[Section]:
        return [Section("Camera", lambda: panel(self), opened=True)]

    def close(self) -> None:
        self._picker.forget()

    # -- on the way ----------------------------------------------------------------------------------------------

    def _here(self) -> Orbit:
        """Return a copy of the camera's orbit, to be changed."""
        self.view.go_on_from_here()
        return self.view.orbit.copy()


class Gizmo:
    """The axes of the world in the lower left corner of the picture; a click looks along one."""

    def __init__(self, navigate: Navigate) -> None:
        self._navigate = navigate
        self._over: int | None = None
        """The index in `_AXES` of the one under the pointer."""
        self._pressed = False

    def _middle(self, rect: Rect) -> tuple[float, float, float] | None:
        """(x, y, pixels per point); None where there is no room, or nothing to be seen."""
        scale = self._navigate.view.host.scale
        small = min(rect.width, rect.height) < _LEAST * scale
        frustums: Frustums = self._navigate.view.tools["frustums"]  # type: ignore[assignment]
        if (
            frustums.through.index is not None
        ):  # a photograph lies there, and it is known from where one looks
            return None
        if small or self._navigate.view.data.facts is None:
            return None
        reach = (_RADIUS + _DOT + _MARGIN) * scale
        return (
            rect.x + reach,
            rect.y + rect.height - self._navigate.view.bars_height - reach,
            scale,
        )

    def _dots(self, middle: tuple[float, float, float]) -> np.ndarray:
        """(6, 3) x and y in pixels and depth, those of `_AXES`."""
        x, y, scale = middle
        dots = (self._navigate.view.orbit.rotation @ _ENDS).T
        return dots * [_RADIUS * scale, _RADIUS * scale, 1] + [x, y, 0]

    def _hit(self, x: float, y: float, rect: Rect) -> int | None:
        middle = self._middle(rect)
        if (
            middle is None
            or max(abs(x - middle[0]), abs(y - middle[1]))
            > (_RADIUS + _DOT) * middle[2]
        ):
            return None
        dots = self._dots(middle)
        near = [
            i
            for i in np.argsort(dots[:, 2])
            if np.hypot(*(dots[i, :2] - (x, y))) < (_DOT + 2) * middle[2]
        ]
        return int(near[0]) if near else None

    def handle(self, event: Event, rect: Rect) -> bool | None:
        """As `Tool.handle`: takes presses on a dot."""
        if isinstance(event, PointerMove) and not self._navigate.view.orbit.dragging:
            before = self._over
            self._over = self._hit(event.x, event.y, rect)
            return True if before != self._over else None
        if (
            isinstance(event, PointerPress)
            and event.button == "left"
            and not event.mods
        ):
            hit = self._hit(event.x, event.y, rect)
            if hit is not None:
                axis, sign = _AXES[hit]
                self._pressed = True
                self._navigate.look_along(
                    -sign * np.eye(3)[axis]
                )  # from there, towards the middle
                return True
        if isinstance(event, PointerRelease) and self._pressed:
            self._pressed = False
            return False
        return None

    def draw(self, rect: Rect, scale: float) -> bool:
        """Draw it with imgui."""
        middle = self._middle(rect)
        if (
            middle is None or self._navigate.view.host.exact
        ):  # pictures to keep are of the scene alone
            return False
        draw = imgui.get_background_draw_list()
        dots = self._dots(middle).tolist()
        at = ImVec2(middle[0], middle[1])
        size = _DOT * scale
        if self._over is not None:
            draw.add_circle_filled(
                at, (_RADIUS + _DOT + 4) * scale, theme.u32(theme.BAR, 0.5), 48
            )
        with theme.font_size(11.0):
            for i in sorted(range(len(dots)), key=lambda i: -dots[i][2]):
                (axis, sign), (x, y, depth) = _AXES[i], dots[i]
                near = 0.72 - 0.28 * depth
                color = _COLORS[axis]
                to = ImVec2(x, y)
                if sign > 0:
                    draw.add_line(at, to, theme.u32(color, near), 2.0 * scale)
                    draw.add_circle_filled(to, size, theme.u32(color, near), 20)
                    room = imgui.calc_text_size("XYZ"[axis])
                    draw.add_text(
                        ImVec2(round(x - room.x / 2), round(y - room.y / 2)),
                        theme.u32(_DARK, 0.95),
                        "XYZ"[axis],
                    )
                else:
                    draw.add_circle_filled(
                        to, size * 0.72, theme.u32(color, 0.35 * near), 20
                    )
                    draw.add_circle(
                        to, size * 0.72, theme.u32(color, 0.9 * near), 20, 1.2 * scale
                    )
                if i == self._over:
                    draw.add_circle(
                        to, size + 2 * scale, theme.u32(_WHITE, 0.9), 24, 1.5 * scale
                    )
        return False


def panel(navigate: Navigate) -> None:
    """Draw the panel's part."""
    view = navigate.view
    orbit = navigate.view.orbit
    navigate.looks = ui.choice(
        "Drag",
        "What dragging does (O). W A S D, Q and E fly either way.",
        navigate.looks,
        {False: "Orbits", True: "Looks around (fly)"},
    )
    pressed = ui.buttons(
        "Camera",
        ["Frame", "Copy", "Paste"],
        [
            "Look at the whole scene (F)",
            "Copy the camera to the clipboard, as splatview shot --camera takes it (Ctrl + C over the picture)",
            "Go to a camera on the clipboard, in this form or nerfstudio's (Ctrl + V over the picture)",
        ],
    )
    if pressed == 0:
        navigate.frame()
    elif pressed == 1:
        navigate.copy()
    elif pressed == 2:
        text = view.host.pasted()
        if text:
            navigate.paste(text)
        else:
            view.host.say("Press Ctrl + V over the picture to paste a camera")
    model: CameraModel = ui.choice(
        "Projection", "The camera model of the picture", orbit.model, _MODELS
    )
    fov = ui.slider(
        "Field of view",
        "Vertical angle of the picture",
        orbit.fov,
        (5.0, 120.0 if model != "fisheye" else 170.0),
        "%.0f deg",
        reset=DEFAULT_FOV,
    )
    if (model, fov) != (orbit.model, orbit.fov):
        navigate.begin()
        orbit.model = model
        orbit.fov = fov
        view.moved()
    up = orbit.up / np.linalg.norm(orbit.up)
    now = next(
        (name for name, axis in UPS.items() if float(np.dot(axis, up)) > 1 - 1e-6),
        "own",
    )
    options = {"own": "As detected"} if now == "own" else {}
    chosen = ui.choice(
        "Up",
        "The world's axis that points upwards",
        now,
        options | {name: name for name in UPS} | {"detect": "Detect"},
    )
    if chosen != now:
        if chosen == "detect":
            found = navigate.detected_up()
        else:
            found = np.array(UPS[chosen], np.float64)
        if found is None:
            view.host.say("Neither cameras nor a ground say what is up")
        else:
            navigate.set_up(found)
    _bookmarks(navigate)
    camera_numbers.draw(navigate)


def _bookmarks(navigate: Navigate) -> None:
    """Small buttons by number: a click goes there."""
    ui.row("Bookmarks")
    left = imgui.get_cursor_pos_x()
    side = imgui.get_frame_height()
    for i, number in enumerate(navigate.bookmarks):
        if i and not i % 6:
            imgui.new_line()
            imgui.set_cursor_pos_x(left)
        if imgui.button(f"{number}##bookmark", ImVec2(side, 0)):
            navigate.visit(number)
        imgui.set_item_tooltip(
            f"Click: go there ({number}). Right click: delete. Shift + {number}: replace."
        )
        if imgui.is_item_clicked(imgui.MouseButton_.right):
            navigate.forget(number)
        imgui.same_line(0, imgui.get_style().item_inner_spacing.x)
    if imgui.button("+##keep", ImVec2(side, 0)):
        navigate.keep()
    imgui.set_item_tooltip("Keep this camera as a bookmark (Shift + 1 to 9)")
