"""Where a scene is seen from: orbiting, panning, zooming, framing. The panel's part "Camera"."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from viewer_app.events import Key, PointerPress
from viewer_app.views._gaussians.tool import Tool
from viewer_app.views.base import KeyHelp, Section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from viewer_app.controls import Rect
    from viewer_app.events import Event

UPS: dict[str, tuple[float, float, float]] = {
    "-y": (0, -1, 0), "+y": (0, 1, 0), "+z": (0, 0, 1), "-z": (0, 0, -1), "+x": (1, 0, 0), "-x": (-1, 0, 0),
}


class Navigate(Tool):
    """Moves the view's camera."""

    name: ClassVar[str] = "navigate"
    keys: ClassVar[Sequence[KeyHelp]] = (
        KeyHelp("Camera", "Drag", "Orbit"),
        KeyHelp("Camera", "Right drag, Shift + drag", "Move"),
        KeyHelp("Camera", "Wheel, pinch", "Nearer, farther"),
        KeyHelp("Camera", "F", "See the whole scene"),
    )

    def handle(self, event: Event, rect: Rect) -> bool | None:
        view = self.view
        if isinstance(event, Key):
            if event.name == "f" and event.pressed and not event.mods:
                view.frame()
                return True
            return None
        if isinstance(event, PointerPress) and event.clicks == 2:
            return None
        view.go_on_from_here(event)
        if not view.orbit.handle(event, rect):
            return None
        view.moved()
        return True

    def sections(self) -> Sequence[Section]:
        return [Section("Camera", self._panel, opened=True)]

    def _panel(self) -> bool:
        from imgui_bundle import imgui

        from viewer_app import widgets as ui

        view = self.view
        orbit, before = view.orbit, (view.orbit.model, view.orbit.fov)
        pressed = ui.buttons("Camera", ["Frame", "Copy"], [
            "Look at the whole scene (F)",
            "Copy the camera to the clipboard, as splatview shot --camera takes it",
        ])
        if pressed == 0:
            view.frame()
        elif pressed == 1 and (camera := view.camera()) is not None:
            imgui.set_clipboard_text(camera.to_json())
        orbit.model = ui.choice("Projection", orbit.model, {"pinhole": "Perspective", "ortho": "Orthographic",
                                                            "fisheye": "Fisheye"})
        orbit.fov = ui.slider("Field of view", orbit.fov, (5.0, 120.0), "%.0f deg", reset=50.0)
        up = min(UPS, key=lambda name: -float(np.dot(UPS[name], orbit.up)))
        chosen = ui.choice("Up", up, {name: name for name in UPS})
        if chosen != up:
            orbit.set_up(np.array(UPS[chosen]))
        changed = chosen != up or before != (orbit.model, orbit.fov)
        if changed:
            view.moved()
        return changed or pressed == 0
