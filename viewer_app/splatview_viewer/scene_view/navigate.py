"""Moving the camera of a scene by hand: orbiting, flying, framing, bookmarks."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from imgui_bundle import imgui

from splatview_viewer.core.errors import CameraError
from splatview_viewer.core.events import (
    Key,
    Pinch,
    PointerLeave,
    PointerPress,
    Text,
    Wheel,
)
from splatview_viewer.core.view import KeyHelp, Section
from splatview_viewer.geometry.camera_text import camera_from_text
from splatview_viewer.scene_view import camera_numbers
from splatview_viewer.scene_view.bookmarks import Bookmarks
from splatview_viewer.scene_view.camera_panel import draw_camera_panel
from splatview_viewer.scene_view.gizmo import Gizmo
from splatview_viewer.scene_view.protocol import SceneView
from splatview_viewer.scene_view.tool import ORBIT, Tool, ToolButton

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Rect

_WHEEL_REST_S = 0.15
"""Seconds after which a wheel rests."""
_MIN_PASTE = 8
"""Characters of typed text from which it may be a pasted camera."""
_MAX_MESSAGE = 160


class Navigate(Tool[SceneView]):
    """Moves the view's camera."""

    name: ClassVar[str] = ORBIT
    button: ClassVar[ToolButton | None] = ToolButton(
        "orbit", "Move the camera", "", "Drag, right drag and wheel move it"
    )
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

    def __init__(self, view: SceneView) -> None:
        super().__init__(view)
        self.drag_looks = False
        """A drag looks around (flying)."""
        self.bookmarks = Bookmarks(view)
        self.gizmo = Gizmo(view)
        self._must_copy = False
        """The camera is to be copied to the clipboard inside the next imgui frame."""
        self._is_outside = False
        """The pointer has left the picture."""
        self._speed_changed = False
        """The wheel has changed the speed since the last `tick`."""
        self._tell_speed_at = math.inf
        """Time at which the wheel rests, and the new speed is shown."""

    # -- the clipboard -------------------------------------------------------------

    def copy_later(self) -> None:
        """Put the camera on the clipboard with the next picture."""
        self._must_copy = True

    def copy_camera(self) -> None:
        """Put the camera on the clipboard. Inside an imgui frame."""
        camera = self.view.rig.camera()
        if camera is not None:
            imgui.set_clipboard_text(camera.to_json())
            self.view.host.notify("Camera copied")

    def paste_from_clipboard(self) -> None:
        """Fly to the camera on the clipboard, or say how it gets there."""
        text = self.view.host.pasted()
        if text:
            self.paste_camera(text)
        else:
            self.view.host.notify("Press Ctrl + V over the picture to paste a camera")

    def paste_camera(self, text: str) -> None:
        """Fly to the camera that a text describes, or say why it describes none."""
        rect = self.view.rig.rect
        try:
            camera = camera_from_text(text, rect.width, rect.height)
        except CameraError as error:
            self.view.host.notify(str(error)[:_MAX_MESSAGE])
            return
        self.view.rig.fly_to(camera)

    # -- events --------------------------------------------------------------------

    def handle(self, event: Event, rect: Rect) -> bool | None:
        self.view.rig.orbit.looks_around = self.drag_looks
        if isinstance(event, Key):
            return self._handle_key(event)
        if isinstance(event, Text):
            return self._handle_text(event.text)
        if isinstance(event, PointerLeave):
            # Releases are not heard from now on; repeats say that a key is still held.
            if not self._is_outside:
                self.view.rig.motion.flying.let_go()
            self._is_outside = True
            return None
        self._is_outside = False
        needs_redraw = self.gizmo.handle(event, rect)
        if needs_redraw is not None:
            return needs_redraw
        return self._handle_pointer(event, rect)

    def _handle_text(self, text: str) -> bool | None:
        """Take a paste where that is no key: pages send only the pasted text."""
        if len(text) <= _MIN_PASTE or not text.lstrip().startswith("{"):
            return None
        self.paste_camera(text)
        return True

    def _handle_pointer(self, event: Event, rect: Rect) -> bool | None:
        rig = self.view.rig
        if isinstance(event, (PointerPress, Wheel, Pinch)):
            rig.motion.interrupt()
            rig.continue_from_here()
        if (
            isinstance(event, PointerPress)
            and event.clicks == 2
            and event.button == "left"
        ):
            rig.orbit.let_go()
            rig.motion.orbit_around(event.x, event.y, rect)
            return True
        if isinstance(event, Wheel) and self.drag_looks:
            is_upright = abs(event.dy) >= abs(event.dx)
            if is_upright and not event.mods:
                rig.motion.flying.faster(event.dy)
                self._speed_changed = True
                return True
        if not rig.orbit.handle(event, rect):
            return None
        rig.apply_orbit(by_hand=True)
        return True

    def _handle_key(self, event: Key) -> bool | None:
        if self.view.rig.motion.press_key(event):
            # The picture follows when `tick` moves the camera.
            return False
        return None

    def switch_drag(self) -> None:
        """Have a drag look around, or orbit again."""
        self.drag_looks = not self.drag_looks
        if self.drag_looks:
            self.view.host.notify("Fly: drag looks around")
        else:
            self.view.host.notify("Orbit: drag turns the scene")

    # -- the other methods of tools ------------------------------------------------

    def tick(self, now: float) -> bool:
        motion = self.view.rig.motion
        needs_redraw = motion.tick(now) or self._must_copy
        if self._speed_changed:
            self._speed_changed = False
            self._tell_speed_at = now + _WHEEL_REST_S
        if now >= self._tell_speed_at:
            self._tell_speed_at = math.inf
            self.view.host.notify(f"Speed {motion.flying.speed:.2g}x")
        return needs_redraw

    def note_picture(self) -> None:
        if self.view.rig.motion.is_under_way:
            # The next turn comes when the next picture is due.
            self.view.host.wake()

    def draw_over(self, rect: Rect, scale: float) -> bool:
        flying = self.view.rig.motion.flying
        # Keys are for the text now, also those that go up.
        if flying.moving and imgui.get_io().want_text_input:
            flying.let_go()
        if self._must_copy:
            self._must_copy = False
            self.copy_camera()
        self.gizmo.draw(rect, scale)
        return False

    def sections(self) -> Sequence[Section]:
        rig = self.view.rig
        return [
            Section("Camera", partial(draw_camera_panel, self), opened=True),
            Section(
                "Near and far",
                partial(camera_numbers.draw_range, rig),
                tip="How near and how far the scene is drawn",
                state=camera_numbers.range_words(rig.orbit),
                reset=partial(camera_numbers.reset_range, rig),
            ),
        ]

    def close(self) -> None:
        self.view.rig.motion.close()
