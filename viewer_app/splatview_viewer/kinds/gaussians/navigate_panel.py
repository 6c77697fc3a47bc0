"""The panel's part "Camera": buttons, the lens, what is up, bookmarks, numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.errors import CameraError
from splatview_viewer.geometry.cameras import DEFAULT_FOV, FAR, look_at
from splatview_viewer.scene.scene import UPS
from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import CameraModel
    from splatview_viewer.kinds.gaussians.navigate import Navigate

_MODELS: dict[CameraModel, str] = {"pinhole": "Perspective", "ortho": "Orthographic", "fisheye": "Fisheye"}
_TIP = "Right click: back to the default. Ctrl + click: type a number."
_LIMITS = 1e-3, 1e4
"""Of near and far on their sliders, world units; less beside a small scene."""


def panel(navigate: Navigate) -> bool:
    """Draw it; True when the picture changes."""
    changed = _buttons(navigate) | _lens(navigate) | _up(navigate) | _bookmarks(navigate)
    navigate.numbers = _fold("Numbers", navigate.numbers, "Position, near and far, and so on: to be read and typed")
    if navigate.numbers:
        changed |= _numbers(navigate) | _axes(navigate)
    return changed


def _fold(label: str, opened: bool, tip: str) -> bool:
    """A quiet line that opens and closes what follows; whether it is open from now on."""
    left, line = imgui.get_cursor_screen_pos(), imgui.get_text_line_height()
    pressed, _ = imgui.selectable(f"##fold {label}", False, 0, ImVec2(0, line))
    imgui.set_item_tooltip(tip)
    opened ^= pressed
    color, r = theme.u32(theme.DIM), 0.22 * line
    x, y = left.x + 0.35 * line, left.y + line / 2
    a, b, c = ((-r, -r / 2), (r, -r / 2), (0, r)) if opened else ((-r / 2, -r), (r, 0), (-r / 2, r))
    draw = imgui.get_window_draw_list()
    draw.add_triangle_filled(ImVec2(x + a[0], y + a[1]), ImVec2(x + b[0], y + b[1]), ImVec2(x + c[0], y + c[1]), color)
    draw.add_text(ImVec2(round(left.x + 0.9 * line), left.y), color, label)
    return opened


def _axes(navigate: Navigate) -> bool:
    """Whether the axes of the world are seen in the corner; remembered."""
    before = navigate.gizmo.shown
    if (shown := ui.check("Show axes", before)) != before:
        navigate.gizmo.shown = shown
    return shown != before


def _buttons(navigate: Navigate) -> bool:
    how = ui.choice("Drag", navigate.looks, {False: "Orbits", True: "Looks around (fly)"})
    imgui.set_item_tooltip("What dragging does (O). W A S D, Q and E fly either way.")
    navigate.looks = how
    pressed = ui.buttons("Camera", ["Frame", "Copy", "Paste"], [
        "Look at the whole scene (F)",
        "Copy the camera to the clipboard, as splatview shot --camera takes it (Ctrl + C over the picture)",
        "Go to a camera on the clipboard, in this form or nerfstudio's (Ctrl + V over the picture)",
    ])
    if pressed == 0:
        navigate.frame()
    elif pressed == 1:
        navigate.copy()
    elif pressed == 2:
        if text := navigate.view.desk.pasted():
            navigate.paste(text)
        else:
            navigate.view.desk.say("Press Ctrl + V over the picture to paste a camera")
    return pressed is not None


def _lens(navigate: Navigate) -> bool:
    orbit = navigate.view.orbit
    before = orbit.model, orbit.fov
    model: CameraModel = ui.choice("Projection", orbit.model, _MODELS)
    fov = ui.slider("Field of view", orbit.fov, (5.0, 120.0 if model != "fisheye" else 170.0), "%.0f deg",
                    reset=DEFAULT_FOV)
    if (model, fov) == before:
        return False
    _begin(navigate)
    orbit.model, orbit.fov = model, fov
    navigate.view.moved()
    return True


def _up(navigate: Navigate) -> bool:
    up = navigate.view.orbit.up / np.linalg.norm(navigate.view.orbit.up)
    now = next((name for name, axis in UPS.items() if float(np.dot(axis, up)) > 1 - 1e-6), "own")
    options = {"own": "As detected"} if now == "own" else {}
    chosen = ui.choice("Up", now, options | {name: name for name in UPS} | {"detect": "Detect"})
    if chosen == now:
        return False
    found = navigate.detected_up() if chosen == "detect" else np.array(UPS[chosen], np.float64)
    if found is None:
        navigate.view.desk.say("Neither cameras nor a ground say what is up")
        return False
    navigate.set_up(found)
    return True


def _bookmarks(navigate: Navigate) -> bool:
    """Small buttons by number: a click goes there."""
    ui.row("Bookmarks")
    bookmarks, changed = navigate.bookmarks, False
    style, end = imgui.get_style(), imgui.get_cursor_screen_pos().x + imgui.get_content_region_avail().x
    left = imgui.get_cursor_pos_x()
    side = imgui.get_frame_height()
    for number in [*bookmarks.numbers, None]:
        if number is None:
            pressed = imgui.button("+##keep", ImVec2(side, 0))
            imgui.set_item_tooltip("Keep this camera as a bookmark (Shift + 1 to 9)")
            if pressed:
                navigate.keep()
            break
        if imgui.button(f"{number}##bookmark", ImVec2(side if number < 10 else 1.3 * side, 0)):
            changed |= navigate.visit(number)
        imgui.set_item_tooltip("Click: go there" + (f" ({number})" if number < 10 else "")
                               + ". Right click: replace or delete.")
        if imgui.begin_popup_context_item(f"bookmark {number}"):
            if imgui.menu_item("Replace by this camera", "", False)[0]:
                navigate.keep(number)
            if imgui.menu_item("Delete", "", False)[0]:
                bookmarks.delete(number)
            imgui.end_popup()
        imgui.same_line(0, style.item_inner_spacing.x)
        if imgui.get_cursor_screen_pos().x + 1.3 * side > end:
            imgui.new_line()
            imgui.set_cursor_pos_x(left)
    return changed


def _numbers(navigate: Navigate) -> bool:
    """Where the camera is, to be read and typed."""
    view = navigate.view
    orbit = view.orbit
    changed = False
    position, target = orbit.position, orbit.target
    digits = min(max(2 - math.floor(math.log10(orbit.distance)), 0), 8)
    moved, place = _vector("Position", position, digits)
    aimed, aim = _vector("Looks at", target, digits)
    turned, up = _vector("Up##numbers", orbit.up, 2)
    if moved or aimed or turned:
        try:
            viewmat = look_at(place, aim, up)
        except CameraError:
            return False  # not yet what somebody is typing
        _begin(navigate)
        orbit.rotation = viewmat[:3, :3]
        orbit.target, orbit.distance = aim, float(np.linalg.norm(aim - place))
        orbit.up = up / np.linalg.norm(up)
        view.moved()
        changed = True
    tilt = ui.slider("Roll", math.degrees(orbit.tilt), (-180.0, 180.0), "%.0f deg", reset=0.0)
    if abs(tilt - math.degrees(orbit.tilt)) > 1e-3:
        _begin(navigate)
        orbit.roll(math.radians(tilt) - orbit.tilt)
        view.moved()
        changed = True
    least = min(_LIMITS[0], 1e-3 * orbit.distance)
    near = _distance("Near", orbit.near, least, least)
    far = _distance("Far", min(orbit.far, _LIMITS[1]), FAR, least)
    if abs(near - orbit.near) > 1e-9 * near and near < orbit.far:
        _begin(navigate)
        orbit.near = near
        view.moved()
        changed = True
    if far != min(orbit.far, _LIMITS[1]) and far > orbit.near:
        _begin(navigate)
        orbit.far = far if far < _LIMITS[1] else FAR
        view.moved()
        changed = True
    return changed


def _vector(label: str, value: np.ndarray, digits: int) -> tuple[bool, np.ndarray]:
    """Three numbers with so many digits after the point; whether somebody has typed."""
    ui.row(label.split("##")[0])
    edited, new = ui.vector(label, value.tolist(), f"%.{digits}f")
    return edited, np.array(new)


def _distance(label: str, value: float, reset: float, least: float) -> float:
    """A distance from the camera, on a scale of powers of ten."""
    ui.row(label)
    fmt = "none" if label == "Far" and value >= _LIMITS[1] else "%.3g"
    edited, new = imgui.slider_float(f"##{label}", value, least, _LIMITS[1], fmt,
                                     imgui.SliderFlags_.logarithmic | imgui.SliderFlags_.always_clamp)
    imgui.set_item_tooltip(f"What is {'nearer' if label == 'Near' else 'farther'} than this is not drawn. {_TIP}")
    if imgui.is_item_clicked(imgui.MouseButton_.right):
        return reset
    return new if edited else value


def _begin(navigate: Navigate) -> None:
    """The user takes the camera."""
    navigate.stop()
    navigate.view.go_on_from_here()
