"""The panel's part "Camera": drag, projection, what is up, bookmarks, numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.geometry.cameras import DEFAULT_FOV
from splatview_viewer.scene.scene import UPS
from splatview_viewer.scene_view import camera_numbers
from splatview_viewer.ui import controls
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import CameraModel
    from splatview_viewer.scene_view.bookmarks import Bookmarks
    from splatview_viewer.scene_view.camera_rig import CameraRig
    from splatview_viewer.scene_view.navigate import Navigate
    from splatview_viewer.scene_view.protocol import SceneView

_MODELS: dict[CameraModel, str] = {
    "pinhole": "Perspective",
    "ortho": "Orthographic",
    "fisheye": "Fisheye",
}
_BOOKMARKS_A_ROW = 6


def draw_camera_panel(navigate: Navigate) -> None:
    """Draw the panel's part."""
    view = navigate.view
    navigate.drag_looks = ui.choice(
        "Drag",
        "What dragging does (O). W A S D, Q and E fly either way.",
        navigate.drag_looks,
        {False: "Orbits", True: "Looks around (fly)"},
    )
    _draw_buttons(navigate)
    _draw_lens(view.rig)
    _draw_up(view)
    _draw_bookmarks(navigate.bookmarks)
    camera_numbers.draw(view.rig)


def _draw_buttons(navigate: Navigate) -> None:
    host = navigate.view.host
    pressed = ui.buttons(
        "Camera",
        ["Frame", "Copy", "Paste"],
        [
            "Look at the whole scene (F)",
            "Copy the camera to the clipboard, as splatview shot --camera takes it "
            "(Ctrl + C over the picture)",
            "Go to a camera on the clipboard, in this form or nerfstudio's "
            "(Ctrl + V over the picture)",
        ],
    )
    if pressed == 0:
        navigate.view.rig.motion.fly_to_whole_scene()
    elif pressed == 1:
        navigate.copy_camera()
    elif pressed == 2:
        text = host.pasted()
        if text:
            navigate.paste_camera(text)
        else:
            host.notify("Press Ctrl + V over the picture to paste a camera")


def _draw_lens(rig: CameraRig) -> None:
    """Draw the camera model and the field of view."""
    orbit = rig.orbit
    model: CameraModel = ui.choice(
        "Projection", "The camera model of the picture", orbit.model, _MODELS
    )
    max_fov = 170.0 if model == "fisheye" else 120.0
    fov = ui.slider(
        "Field of view",
        "Vertical angle of the picture",
        orbit.fov,
        (5.0, max_fov),
        "%.0f deg",
        reset=DEFAULT_FOV,
    )
    if (model, fov) == (orbit.model, orbit.fov):
        return
    rig.motion.take_over()
    orbit.model = model
    orbit.fov = fov
    rig.apply_orbit()


def _draw_up(view: SceneView) -> None:
    """Draw the choice of the axis that points upwards."""
    orbit = view.rig.orbit
    current = _axis_name(orbit.up / np.linalg.norm(orbit.up))
    options = {"own": "As detected"} if current == "own" else {}
    options |= {name: name for name in UPS}
    options["detect"] = "Detect"
    choice = ui.choice("Up", "The world's axis that points upwards", current, options)
    if choice == current:
        return
    if choice == "detect":
        up = view.rig.up_axis.detect()
    else:
        up = np.array(UPS[choice], np.float64)
    if up is None:
        view.host.notify("Neither cameras nor a ground say what is up")
    else:
        view.rig.up_axis.set_by_user(up)


def _axis_name(up: np.ndarray) -> str:
    """Return the name in `UPS` of a unit vector (3,), or "own" where it is no axis."""
    for name, axis in UPS.items():
        if float(np.dot(axis, up)) > 1 - 1e-6:
            return name
    return "own"


def _draw_bookmarks(bookmarks: Bookmarks) -> None:
    """Draw small buttons by number: a click goes there."""
    ui.row("Bookmarks")
    left = imgui.get_cursor_pos_x()
    side = imgui.get_frame_height()
    for i, digit in enumerate(bookmarks.by_digit):
        if i and i % _BOOKMARKS_A_ROW == 0:
            imgui.new_line()
            imgui.set_cursor_pos_x(left)
        if imgui.button(f"{digit}##bookmark", ImVec2(side, 0)):
            bookmarks.visit(digit)
        controls.tip(
            f"Click: go there ({digit}). Right click: delete. Shift + {digit}: replace."
        )
        if imgui.is_item_clicked(imgui.MouseButton_.right):
            bookmarks.delete(digit)
        imgui.same_line(0, imgui.get_style().item_inner_spacing.x)
    if imgui.button("+##keep", ImVec2(side, 0)):
        bookmarks.add()
    controls.tip("Keep this camera as a bookmark (Shift + 1 to 9)")
