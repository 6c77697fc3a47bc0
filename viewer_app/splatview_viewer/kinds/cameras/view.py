"""Shows the cameras of a training by themselves: their frustums with their photographs; a click opens one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from imgui_bundle import imgui

from splatview_viewer.core.events import (
    Key,
    Pinch,
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import Info, KeyHelp, Section, View, meta_phrases
from splatview_viewer.geometry.cameras import frame_points
from splatview_viewer.geometry.controls import FITTED, Orbit, OrbitPlace, PanZoom, Place
from splatview_viewer.geometry.training_cameras import snapped, up_of_cameras
from splatview_viewer.render.cameras.content import CamerasContent, PhotoTexture
from splatview_viewer.render.cameras.drawing import FrustumStyle, camera_at, named

if TYPE_CHECKING:
    from collections.abc import Sequence

    import moderngl

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.view import Value
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.training_cameras import CameraSet

_STILL = 4.0
"""Points that the pointer may move during a click."""


@dataclass(frozen=True)
class CamerasPlace:
    """The part that is seen."""

    orbit: OrbitPlace | None = None
    """The user's camera; None: all cameras are in view."""
    opened: int | None = None
    """The camera whose photograph fills the picture."""
    photo: Place = FITTED
    """The part of that photograph."""
    hovered: int | None = None
    """The camera under the pointer, which is marked."""
    seen_in: tuple[int, int] | None = None
    """Size of the rectangle that `orbit` is for, of which any other one shows all; None: the one at hand."""

    def seen_from(self, rect: Rect) -> CamerasPlace:
        """Return the place of which other rectangles show all that is seen in `rect`."""
        return replace(
            self,
            seen_in=self.seen_in or (rect.width, rect.height),
            photo=self.photo.seen_from(rect),
        )


@dataclass(frozen=True)
class CamerasState:
    """All that decides the picture beside the cameras."""

    place: CamerasPlace = CamerasPlace()
    size: float = 1.0
    """Factor of the frustums' size, which fits their distances."""
    background: tuple[float, float, float] = (0.062, 0.067, 0.078)
    """RGB in [0, 1]."""


class CamerasView(View[CamerasContent, CamerasState]):
    """One user's view of the cameras: their frustums, or the photograph that was opened."""

    kind: ClassVar[str] = "cameras"
    keys: Sequence[KeyHelp] = (
        KeyHelp("Cameras", "Click", "Open the photograph"),
        KeyHelp("Cameras", "Escape", "Close it"),
        KeyHelp("Cameras", "Page up, Page down", "The one before, after"),
        KeyHelp("Cameras", "Drag, wheel", "Turn, move"),
        KeyHelp("Cameras", "F", "See all cameras"),
    )

    def __init__(self, data: CamerasContent, state: CamerasState) -> None:
        super().__init__(data, state)
        data.join(self)
        self._drawn = data.changes
        """The version of the data that was drawn last, or for which drawing was asked."""
        self._orbit = Orbit()
        self._hand = PanZoom()
        self._photo = PhotoTexture(data.ctx)
        self._press: tuple[float, float] | None = None
        """Begin of a click."""

    def wake(self) -> None:
        """Have the loop turn soon. From any thread."""
        self.host.wake()

    def take(self, link: str, value: Value) -> bool:
        taken = self.data.update(value)
        if taken:
            self._drawn = self.data.changes  # the caller draws it
        return taken

    def tick(self, now: float) -> bool:
        self.data.small = True
        self.data.tick(now)
        before = self._drawn
        self._drawn = self.data.changes
        return before != self._drawn

    def release(self, how: Literal["idle", "away", "closed", "last"]) -> None:
        if how != "idle":
            self._photo.close()
        if how in ("closed", "last"):
            self.data.leave(self)

    # -- what is seen --------------------------------------------------------------------------------------------

    @property
    def _cameras(self) -> CameraSet:
        cameras = self.data.cameras
        assert cameras is not None
        return cameras

    def _there(self, number: int | None) -> int | None:
        """Return the number of a camera; None for one that is gone."""
        return number if number is not None and number < len(self._cameras) else None

    @property
    def opened(self) -> int | None:
        """The camera whose photograph is seen."""
        return self._there(self.state.place.opened)

    @property
    def hovered(self) -> int | None:
        """The camera under the pointer."""
        return self._there(self.state.place.hovered)

    def _put(self, **changes: Any) -> None:
        """Change fields of the place."""
        self.state = replace(self.state, place=replace(self.state.place, **changes))

    @property
    def _depth(self) -> float:
        return 0.5 * self._cameras.spacing * self.state.size

    def _look(self, rect: Rect) -> Camera:
        """Return the user's camera for the rectangle, and have `_orbit` be there."""
        place = self.state.place
        size = (rect.width, rect.height)
        if place.orbit is not None:
            self._orbit.place = place.orbit
            if place.seen_in is None:
                return self._orbit.camera(*size)
            return self._orbit.camera(*place.seen_in).fitted(*size)
        cameras = self._cameras
        fine = self._cameras.fine
        if not fine.any():
            return self._orbit.camera(*size)
        up = up_of_cameras(cameras.viewmats[fine])
        self._orbit.up = Orbit().up if up is None else snapped(up)
        ends = cameras.positions[fine] + cameras.viewmats[fine, 2, :3] * self._depth
        camera = frame_points(
            np.concatenate([cameras.positions[fine], ends]), *size, up=self._orbit.up
        )
        self._orbit.take(camera, ends.mean(0))
        return self._orbit.camera(*size)

    def _zoomed(self) -> PanZoom:
        """Return the hand that places the opened photograph as the state has it."""
        photo = None if self.opened is None else self.data.photos.whole(self.opened)
        self._hand.size = (1, 1) if photo is None else (photo.shape[1], photo.shape[0])
        self._hand.place = self.state.place.photo
        return self._hand

    # -- events --------------------------------------------------------------------------------------------------

    def open(self, number: int | None) -> None:
        """Have this photograph fill the picture; None: none."""
        self._put(opened=number, photo=FITTED)

    def handle(self, event: Event, rect: Rect) -> bool:
        if isinstance(event, Key):
            self._key(event, rect)
        elif self.opened is not None:
            self._move_photo(event, rect)
        else:
            self._point(event, rect)
        return False  # another state is drawn in any case

    def _move_photo(self, event: Event, rect: Rect) -> None:
        hand = self._zoomed()
        hand.handle(event, rect)
        self._put(photo=hand.place)

    def _point(self, event: Event, rect: Rect) -> None:
        match event:
            case PointerMove():
                if (
                    self._press is not None
                    and math.dist(self._press, (event.x, event.y))
                    > _STILL * self.host.scale
                ):
                    self._press = None
                if self._orbit.dragging:
                    self._turn(event, rect)
                else:
                    self._hover(event.x, event.y, rect)
            case PointerLeave():
                self._put(hovered=None)
            case PointerPress():
                self._hover(event.x, event.y, rect)
                if event.button == "left" and not event.mods:
                    self._press = (event.x, event.y)
                else:
                    self._press = None
                self._turn(event, rect)
            case PointerRelease():
                pressed = self._press
                self._press = None
                self._orbit.let_go()
                if pressed is not None and self.hovered is not None:
                    self.open(self.hovered)
            case Wheel() | Pinch():
                self._press = None
                self._turn(event, rect)

    def _turn(self, event: Event, rect: Rect) -> None:
        """Move the user's camera by hand, from where it is."""
        camera = self._look(rect)
        if self.state.place.seen_in is not None:
            self._orbit.take(camera, self._orbit.target)
        if self._orbit.handle(event, rect):
            self._put(orbit=self._orbit.place, seen_in=None)

    def _key(self, event: Key, rect: Rect) -> None:
        if not event.pressed or event.mods:
            return
        number = self.opened
        down = {"page_down": 1, "page_up": -1}.get(event.name, 0)
        if number is not None:
            if event.name == "escape":
                self.open(None)
            elif down:
                self.open((number + down) % len(self._cameras))
            else:
                self._move_photo(event, rect)
        elif event.name == "f":
            self._put(orbit=None)
        elif down:
            self.open(0 if down > 0 else len(self._cameras) - 1)

    def _hover(self, x: float, y: float, rect: Rect) -> None:
        found = None
        if rect.contains(x, y):
            found = camera_at(
                self._cameras,
                self._look(rect),
                self._depth,
                x - rect.x,
                y - rect.y,
                8 * self.host.scale,
            )
        self._put(hovered=found)

    # -- pictures ------------------------------------------------------------------------------------------------

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        self._drawn = self.data.changes
        framebuffer.use()
        framebuffer.clear(
            *self.state.background, 1.0, viewport=rect.viewport(framebuffer.height)
        )
        if self.opened is not None:
            photo = self.data.photos.whole(self.opened)
            if photo is not None:
                hand = self._zoomed()
                self._photo.take(photo)
                (x, y, zoom), (width, height) = hand.placed(rect), hand.size
                place = Rect(
                    round(x),
                    round(y),
                    max(round(width * zoom), 1),
                    max(round(height * zoom), 1),
                )
                self._photo.draw(framebuffer, place, rect, self.state.background)
            return
        look = FrustumStyle(
            self._depth,
            1.5 * self.host.scale,
            self.hovered,
            self.data.current,
            opacity=1.0,
            background=self.state.background,
        )
        self.data.drawing.draw(framebuffer, rect, self._look(rect), look)

    def ui(self, rect: Rect, scale: float) -> bool:
        from splatview_viewer.ui.widgets import tag

        photos = self.data.photos
        number = self.opened
        gap = 12 * scale
        if number is not None:
            tag(self._cameras.called(number), rect.x + gap, rect.y + gap, rect)
            if photos.whole(number) is None:
                words = photos.trouble(number) or "The photograph is on its way"
                tag(
                    words,
                    rect.x + gap,
                    rect.y + gap + 1.9 * imgui.get_text_line_height(),
                    rect,
                )
        elif self.hovered is not None:
            named(self._cameras, self.hovered, self._look(rect), self._depth, rect)
        return False

    # -- words ---------------------------------------------------------------------------------------------------

    def panel(self) -> Sequence[Section]:
        return (Section("", self._controls),)

    def _controls(self) -> None:
        from splatview_viewer.ui import theme
        from splatview_viewer.ui import widgets as ui

        for text in self.data.hints.texts:
            ui.wrapped(text, theme.FAULT)
        if ui.buttons("Cameras", ["See all"], ["All cameras (F)"]) is not None:
            self._put(orbit=None, opened=None)
        self.state = replace(
            self.state,
            size=ui.slider(
                "Size",
                "Size of the frustums",
                self.state.size,
                (0.1, 10.0),
                "%.2f",
                reset=1.0,
            ),
            background=ui.color(
                "Background", "Colour behind the cameras", self.state.background
            ),
        )

    def info(self) -> Info:
        cameras = self._cameras
        wrong = len(cameras) - int(cameras.fine.sum())
        sizes = cameras.distinct_sizes
        out = [f"{len(cameras):,} cameras"]
        out += (
            [f"{w} x {h}" for w, h in sizes]
            if len(sizes) == 1
            else [f"{len(sizes)} sizes"]
            if sizes
            else []
        )
        if wrong:
            out.append(f"{wrong:,} of them are none: their matrices are no poses")
        out += self.data.hints.texts
        number = self.hovered
        readout = ""
        if number is not None and cameras.fine[number]:
            x, y, z = cameras.positions[number].round(6) + 0.0
            readout = f"{cameras.called(number)}   at {x:.3g}, {y:.3g}, {z:.3g}"
        return Info(
            [*out, *meta_phrases(self.data.meta, ("photos", "trouble"))],
            (),
            readout,
            ["cameras uploaded"],
            {"draw": self.data.work.ms.get("frustums", 0.0)},
        )
