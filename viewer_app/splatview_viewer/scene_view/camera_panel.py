"""The panel's sections "Camera" and "Near and far": drag, lens, up, bookmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.geometry.cameras import DEFAULT_FOV
from splatview_viewer.scene_view import camera_numbers
from splatview_viewer.ui import controls, theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import CameraModel
    from splatview_viewer.scene_view.bookmarks import Bookmarks
    from splatview_viewer.scene_view.camera_rig import CameraRig
    from splatview_viewer.scene_view.navigate import Navigate

MODELS: dict[CameraModel, str] = {
    "pinhole": "Perspective",
    "ortho": "Orthographic",
    "fisheye": "Fisheye",
}
"""The camera models and their names."""
_BOOKMARKS_A_ROW = 6
_BOOKMARK_GAP = 4.0
"""Points between two bookmarks."""


def draw_camera_panel(navigate: Navigate) -> None:
    """Draw the section "Camera"."""
    rig = navigate.view.rig
    navigate.drag_looks = ui.segments(
        "Drag",
        "What dragging does (O). W A S D, Q and E fly either way.",
        navigate.drag_looks,
        {False: "Orbits", True: "Flies"},
    )
    _draw_lens(rig)
    _draw_up(rig)
    _draw_bookmarks(navigate.bookmarks)
    _draw_buttons(navigate)
    camera_numbers.draw(rig)


def _draw_buttons(navigate: Navigate) -> None:
    pressed = ui.buttons(
        "Clipboard",
        ["Copy", "Paste"],
        [
            "Copy the camera, as splatview shot --camera takes it "
            "(Ctrl + C over the picture)",
            "Go to a camera on the clipboard, in this form or nerfstudio's "
            "(Ctrl + V over the picture)",
        ],
        ["copy", "paste"],
    )
    if pressed == 0:
        navigate.copy_camera()
    elif pressed == 1:
        navigate.paste_from_clipboard()


def _draw_lens(rig: CameraRig) -> None:
    """Draw the camera model and the field of view."""
    orbit = rig.orbit
    model: CameraModel = ui.choice(
        "Projection", "The camera model of the picture", orbit.model, MODELS
    )
    max_fov = 170.0 if model == "fisheye" else 120.0
    fov = ui.slider(
        "Field of view",
        "Vertical angle of the picture",
        orbit.fov,
        (5.0, max_fov),
        "%.0f°",
        reset=DEFAULT_FOV,
    )
    if (model, fov) != (orbit.model, orbit.fov):
        rig.set_lens(model, fov)


def _draw_up(rig: CameraRig) -> None:
    """Draw what points upwards and who says it; choose another direction."""
    up_axis = rig.up_axis
    options = {"": up_axis.words}
    options |= {name: name.replace("-", "\u2212") for name in up_axis.other_axes()}
    options["detect"] = "Detect"
    choice = ui.choice("Up", "The world's direction that points upwards", "", options)
    if choice == "detect":
        up_axis.detect_again()
    elif choice:
        up_axis.choose(choice)


def _draw_bookmarks(bookmarks: Bookmarks) -> None:
    """Draw small buttons by number: a click goes there, a right click opens a menu."""
    ui.row("Bookmarks")
    start = imgui.get_cursor_screen_pos()
    step = (theme.ROW_HEIGHT + _BOOKMARK_GAP) * theme.scale()
    saved = bookmarks.by_digit
    for cell, digit in enumerate([*saved, None]):
        line, column = divmod(cell, _BOOKMARKS_A_ROW)
        corner = ImVec2(start.x + column * step, start.y + line * step)
        imgui.set_cursor_screen_pos(corner)
        if digit is None:
            _draw_keep(bookmarks, len(saved))
        else:
            _draw_bookmark(bookmarks, digit)


def _draw_bookmark(bookmarks: Bookmarks, digit: int) -> None:
    side = theme.ROW_HEIGHT
    is_pressed = controls.button(
        str(digit),
        name=f"{digit}##bookmark",
        width=side,
        hint=f"Go there ({digit}). Right click: replace, delete.",
    )
    if is_pressed:
        bookmarks.visit(digit)
    menu = f"bookmark {digit}"
    if imgui.is_item_clicked(imgui.MouseButton_.right):
        imgui.open_popup(menu)
    if not imgui.begin_popup(menu):
        return
    if imgui.menu_item(f"Go there##{digit}", str(digit), False)[0]:
        bookmarks.visit(digit)
    if imgui.menu_item(f"Replace##{digit}", f"Shift {digit}", False)[0]:
        bookmarks.add(digit)
    if imgui.menu_item(f"Delete##{digit}", "", False)[0]:
        bookmarks.delete(digit)
    imgui.end_popup()


def _draw_keep(bookmarks: Bookmarks, count: int) -> None:
    """Draw the button that keeps the camera as a bookmark."""
    reason = None
    if count:
        reason = bookmarks.reason_full
    is_pressed = controls.button(
        "",
        "plus",
        name="keep",
        width=theme.ROW_HEIGHT,
        reason=reason,
        hint="Keep this camera as a bookmark (Shift + 1 to 9)",
    )
    if is_pressed:
        bookmarks.add()
