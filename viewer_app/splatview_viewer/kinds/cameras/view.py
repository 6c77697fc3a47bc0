"""Shows the cameras of a training by themselves: their frustums with their photographs.

A click opens one photograph.
"""

from __future__ import annotations

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
from splatview_viewer.core.screen import Rect, clear_rect
from splatview_viewer.core.settings import BACKDROP
from splatview_viewer.core.view import Info, KeyHelp, Section, View, meta_phrases
from splatview_viewer.geometry.cameras import frame_points
from splatview_viewer.geometry.orbit import Orbit, OrbitPlace
from splatview_viewer.geometry.pan_zoom import FITTED, PanZoom, Place
from splatview_viewer.geometry.upward import snap_to_axis, up_of_cameras
from splatview_viewer.kinds.cameras.commands import COMMANDS, photo_commands
from splatview_viewer.render.cameras.content import CamerasContent
from splatview_viewer.render.cameras.drawing import (
    FrustumStyle,
    camera_at,
    draw_name_tag,
)
from splatview_viewer.render.cameras.photos import PhotoTexture
from splatview_viewer.scene_view.clicks import ClickGesture

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import moderngl

    from splatview_viewer.core.command import Command
    from splatview_viewer.core.events import Event
    from splatview_viewer.core.view import Value
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.training_cameras import CameraSet

_HOVER_REACH = 8
"""Points around a camera's centre that count as the camera."""
_LINE_WIDTH = 1.5
"""Width of lines, in points."""


@dataclass(frozen=True)
class CamerasPlace:
    """The visible part."""

    orbit: OrbitPlace | None = None
    """The user's camera; None if all cameras are in view."""
    opened: int | None = None
    """The camera whose photograph fills the picture."""
    photo: Place = FITTED
    """The part of that photograph."""
    hovered: int | None = None
    """The camera under the pointer, which is marked."""
    seen_in: tuple[int, int] | None = None
    """Size of the rectangle that `orbit` is for. Other rectangles show all that is seen
    in it. None: `orbit` is for any rectangle."""

    def seen_from(self, rect: Rect) -> CamerasPlace:
        """Return a place with which other rectangles show all that `rect` shows."""
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
    background: tuple[float, float, float] = BACKDROP
    """RGB in [0, 1]."""


class CamerasView(View[CamerasContent, CamerasState]):
    """One user's view of the cameras: their frustums, or the opened photograph."""

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
        self._drawn_changes = data.changes
        """The version of the data that was drawn last, or is about to be drawn."""
        self._orbit = Orbit()
        self._pan_zoom = PanZoom()
        self._rect = Rect(0, 0, 1, 1)
        """Where it was drawn last."""
        self._photo = PhotoTexture(data.ctx)
        self._click = ClickGesture()

    def wake(self) -> None:
        """Have the loop turn soon. From any thread."""
        self.host.wake()

    def undoable_state(self) -> CamerasState:
        camera_place = replace(self.state.place, hovered=None)
        return replace(self.state, place=camera_place)

    def take(self, link: str, value: Value) -> bool:
        is_taken = self.data.update(value)
        if is_taken:
            # The caller draws it.
            self._drawn_changes = self.data.changes
        return is_taken

    def tick(self, now: float) -> bool:
        self.data.wants_thumbnails = True
        self.data.tick(now)
        previous = self._drawn_changes
        self._drawn_changes = self.data.changes
        return previous != self._drawn_changes

    def release(self, occasion: Literal["idle", "away", "closed", "last"]) -> None:
        if occasion != "idle":
            self._photo.close()
        if occasion in ("closed", "last"):
            self.data.leave(self)

    # -- the state -----------------------------------------------------------------

    @property
    def _cameras(self) -> CameraSet:
        cameras = self.data.cameras
        assert cameras is not None
        return cameras

    def _existing(self, index: int | None) -> int | None:
        """Return the index of a camera; None for one that is gone."""
        if index is None or index >= len(self._cameras):
            return None
        return index

    @property
    def opened(self) -> int | None:
        """The camera whose photograph is seen."""
        return self._existing(self.state.place.opened)

    @property
    def hovered(self) -> int | None:
        """The camera under the pointer."""
        return self._existing(self.state.place.hovered)

    def _change_place(self, **fields: Any) -> None:
        """Change fields of the place."""
        self.state = replace(self.state, place=replace(self.state.place, **fields))

    @property
    def _depth(self) -> float:
        """Depth of the frustums, world units."""
        return 0.5 * self._cameras.spacing * self.state.size

    # -- the camera ----------------------------------------------------------------

    def _camera(self, rect: Rect) -> Camera:
        """Return the user's camera for a rectangle, and bring `_orbit` there."""
        camera_place = self.state.place
        size = (rect.width, rect.height)
        if camera_place.orbit is None:
            self._frame_all(size)
            return self._orbit.camera(*size)
        self._orbit.place = camera_place.orbit
        if camera_place.seen_in is None:
            return self._orbit.camera(*size)
        return self._orbit.camera(*camera_place.seen_in).fitted(*size)

    def _frame_all(self, size: tuple[int, int]) -> None:
        """Bring `_orbit` to where all cameras are seen in a picture of this size."""
        cameras = self._cameras
        is_valid = cameras.is_valid
        if not is_valid.any():
            return
        viewmats = cameras.viewmats[is_valid]
        positions = cameras.positions[is_valid]
        up = up_of_cameras(viewmats)
        if up is None:
            self._orbit.up = Orbit().up
        else:
            self._orbit.up = snap_to_axis(up)
        ends = positions + viewmats[:, 2, :3] * self._depth
        points = np.concatenate([positions, ends])
        camera = frame_points(points, *size, up=self._orbit.up)
        self._orbit.look_from(camera, ends.mean(0))

    def _photo_pan_zoom(self) -> PanZoom:
        """Return what places the opened photograph, as the state has it."""
        if self.opened is None:
            photo = None
        else:
            photo = self.data.photos.photo(self.opened)
        self._pan_zoom.size = (1, 1)
        if photo is not None:
            self._pan_zoom.size = (photo.shape[1], photo.shape[0])
        self._pan_zoom.place = self.state.place.photo
        return self._pan_zoom

    # -- events --------------------------------------------------------------------

    def open(self, index: int | None) -> None:
        """Have the photograph of a camera fill the picture; None: of none."""
        self._change_place(opened=index, photo=FITTED)

    def open_next(self, step: int) -> None:
        """Open the photograph of the next camera (1), or of the one before (-1)."""
        count = len(self._cameras)
        if not count:
            return
        if self.opened is None:
            self.open(0 if step > 0 else count - 1)
        else:
            self.open((self.opened + step) % count)

    def see_all(self) -> None:
        """See all cameras; with an open photograph, all of it."""
        if self.opened is None:
            self._change_place(orbit=None)
        else:
            self._change_place(photo=FITTED)

    def magnify_photo(self) -> None:
        """See the open photograph pixel by pixel."""
        pan_zoom = self._photo_pan_zoom()
        pan_zoom.set_zoom(1.0, self._rect)
        self._change_place(photo=pan_zoom.place)

    def commands(self) -> Sequence[Command[Any]]:
        return COMMANDS

    def find_commands(self, text: str) -> Sequence[Command[Any]]:
        return photo_commands(self, text)

    def handle(self, event: Event, rect: Rect) -> bool:
        if isinstance(event, Key):
            self._handle_key(event)
        elif self.opened is not None:
            self._move_photo(event, rect)
        else:
            self._handle_pointer(event, rect)
        # Another state is drawn in any case.
        return False

    def _move_photo(self, event: Event, rect: Rect) -> None:
        pan_zoom = self._photo_pan_zoom()
        pan_zoom.handle(event, rect)
        self._change_place(photo=pan_zoom.place)

    def _handle_pointer(self, event: Event, rect: Rect) -> None:
        match event:
            case PointerMove():
                self._click.move(event.x, event.y, self.host.scale)
                if self._orbit.dragging:
                    self._move_camera(event, rect)
                else:
                    self._hover(event.x, event.y, rect)
            case PointerLeave():
                self._change_place(hovered=None)
            case PointerPress():
                self._hover(event.x, event.y, rect)
                if event.button == "left" and not event.mods:
                    self._click.press(event.x, event.y)
                else:
                    self._click.cancel()
                self._move_camera(event, rect)
            case PointerRelease():
                is_click = self._click.release()
                self._orbit.let_go()
                if is_click and self.hovered is not None:
                    self.open(self.hovered)
            case Wheel() | Pinch():
                self._click.cancel()
                self._move_camera(event, rect)

    def _move_camera(self, event: Event, rect: Rect) -> None:
        """Move the user's camera by hand, from where it is."""
        camera = self._camera(rect)
        if self.state.place.seen_in is not None:
            self._orbit.look_from(camera, self._orbit.target)
        if self._orbit.handle(event, rect):
            self._change_place(orbit=self._orbit.place, seen_in=None)

    def _handle_key(self, event: Key) -> None:
        is_escape = event.name == "escape" and event.pressed and not event.mods
        if is_escape and self.opened is not None:
            self.open(None)

    def _hover(self, x: float, y: float, rect: Rect) -> None:
        hovered = None
        if rect.contains(x, y):
            hovered = camera_at(
                self._cameras,
                self._camera(rect),
                self._depth,
                x - rect.x,
                y - rect.y,
                _HOVER_REACH * self.host.scale,
            )
        self._change_place(hovered=hovered)

    # -- pictures ------------------------------------------------------------------

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        self._rect = rect
        self._drawn_changes = self.data.changes
        clear_rect(framebuffer, rect, self.state.background)
        if self.opened is not None:
            self._draw_photo(framebuffer, rect, self.opened)
            return
        style = FrustumStyle(
            depth=self._depth,
            width=_LINE_WIDTH * self.host.scale,
            marked=self.hovered,
            current=self.data.current,
            opacity=1.0,
            background=self.state.background,
        )
        self.data.drawing.draw(framebuffer, rect, self._camera(rect), style)

    def _draw_photo(
        self, framebuffer: moderngl.Framebuffer, rect: Rect, index: int
    ) -> None:
        """Draw the photograph of a camera where the user has placed it."""
        photo = self.data.photos.photo(index)
        if photo is None:
            return
        pan_zoom = self._photo_pan_zoom()
        self._photo.take(photo)
        x, y, zoom = pan_zoom.placed(rect)
        width, height = pan_zoom.size
        photo_rect = Rect(
            round(x),
            round(y),
            max(round(width * zoom), 1),
            max(round(height * zoom), 1),
        )
        self._photo.draw(framebuffer, photo_rect, rect, self.state.background)

    def ui(self, rect: Rect, scale: float) -> bool:
        if self.opened is not None:
            self._write_photo_name(rect, scale, self.opened)
        elif self.hovered is not None:
            draw_name_tag(
                self._cameras, self.hovered, self._camera(rect), self._depth, rect
            )
        return False

    def _write_photo_name(self, rect: Rect, scale: float, index: int) -> None:
        """Write the name of a camera, and why its photograph is not seen."""
        from splatview_viewer.ui.text_cards import tag

        photos = self.data.photos
        x = rect.x + 12 * scale
        y = rect.y + 12 * scale
        tag(self._cameras.label(index), x, y, rect)
        if photos.photo(index) is None:
            text = photos.problem(index) or "The photograph is on its way"
            tag(text, x, y + 1.9 * imgui.get_text_line_height(), rect)

    # -- panel and status line -----------------------------------------------------

    def panel(self) -> Sequence[Section]:
        count = len(self._cameras)
        return (
            Section(
                "Show",
                self._draw_controls,
                opened=True,
                tip="How large the cameras are drawn, and on what",
                state=f"{count:,} cameras",
                reset=self._reset,
            ),
        )

    def _reset(self) -> None:
        """Draw the cameras as at first, seen from where they are seen."""
        self.state = CamerasState(place=self.state.place)

    def _draw_controls(self) -> None:
        from splatview_viewer.ui import theme
        from splatview_viewer.ui import widgets as ui
        from splatview_viewer.ui.color_field import draw_color

        for text in self.data.hints.texts:
            ui.wrapped(text, theme.FAULT)
        if ui.buttons("", ["See all"], ["All cameras (F)"], ["fit"]) is not None:
            self._change_place(orbit=None, opened=None)
        size = ui.slider(
            "Size",
            "Size of the frustums",
            self.state.size,
            (0.1, 10.0),
            "%.2f",
            reset=1.0,
        )
        background = draw_color(
            "Background", "Colour behind the cameras", self.state.background
        )
        ui.wrapped(
            "To find the photograph that differs most from the scene, show the scene "
            "and open Training cameras.",
            theme.DIM,
        )
        self.state = replace(self.state, size=size, background=background)

    def info(self) -> Info:
        cameras = self._cameras
        invalid_count = len(cameras) - int(cameras.is_valid.sum())
        sizes = cameras.distinct_sizes
        phrases = [f"{len(cameras):,} cameras"]
        if len(sizes) == 1:
            ((width, height),) = sizes
            phrases.append(f"{width} x {height}")
        elif sizes:
            phrases.append(f"{len(sizes)} sizes")
        if invalid_count:
            phrases.append(
                f"{invalid_count:,} of them are none: their matrices are no poses"
            )
        phrases += self.data.hints.texts
        phrases += meta_phrases(self.data.meta, ("photos", "trouble"))
        return Info(
            details=phrases,
            readout=self._readout(),
            path=["cameras uploaded"],
        )

    @property
    def timings(self) -> Mapping[str, float]:
        return {"draw": self.data.work.ms.get("frustums", 0.0)}

    def _readout(self) -> str:
        """Return the name and the position of the camera under the pointer."""
        index = self.hovered
        cameras = self._cameras
        if index is None or not cameras.is_valid[index]:
            return ""
        # Adding 0 makes -0 positive.
        x, y, z = cameras.positions[index].round(6) + 0.0
        return f"{cameras.label(index)}   at {x:.3g}, {y:.3g}, {z:.3g}"
