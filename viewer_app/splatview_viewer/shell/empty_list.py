"""Help in place of the list of streams while there is no run and no file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.ui import controls, theme

if TYPE_CHECKING:
    from splatview_viewer.shell.user import User


def draw_empty(user: User) -> None:
    """Say that there is no run yet, and offer to open a file."""
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    imgui.set_cursor_screen_pos(ImVec2(corner.x + 12 * scale, corner.y + 10 * scale))
    imgui.begin_group()
    with theme.bold():
        imgui.text_unformatted("No run yet")
    width = imgui.get_content_region_avail().x - 24 * scale
    imgui.push_text_wrap_pos(imgui.get_cursor_pos_x() + width)
    imgui.push_style_color(imgui.Col_.text, theme.u32(theme.DIM))
    imgui.text_unformatted(
        "Runs appear here when a script publishes. Start the viewer before the script "
        "starts or while it runs."
    )
    imgui.pop_style_color()
    imgui.dummy(ImVec2(0, 4 * scale))
    if controls.button("Open a file", "open", height=30, look="primary"):
        user.do(user.interface.footer.open_files, user)
    imgui.dummy(ImVec2(0, 4 * scale))
    imgui.push_style_color(imgui.Col_.text, theme.u32(theme.FAINT))
    with theme.font_size(theme.SMALL_SIZE):
        imgui.text_unformatted(
            "Or drop a scene, a picture or a memory snapshot anywhere."
        )
        imgui.pop_text_wrap_pos()
        imgui.text_unformatted("No script at hand?")
        imgui.same_line(0, 4 * scale)
        imgui.push_style_color(imgui.Col_.text, theme.u32(theme.TEXT))
        with theme.code(theme.SMALL_SIZE):
            imgui.text_unformatted("splatview demo")
        imgui.pop_style_color()
        imgui.same_line(0, 4 * scale)
        imgui.text_unformatted("trains a small scene.")
    imgui.pop_style_color()
    imgui.end_group()
