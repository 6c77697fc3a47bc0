"""The panel's footer: open, save, running jobs, theme, help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.ui import controls, theme

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.shell.user import User


class Footer:
    """Draws the footer of one user's panel."""

    def open_files(self) -> None:
        """Open the list of files to choose from."""

    def draw(self, user: User, rect: Rect, scale: float) -> None:
        """Draw the footer in its rectangle."""
        _draw(user, rect, scale)


def _draw(user: User, rect: Rect, scale: float) -> None:
    top = rect.y + (rect.height - theme.BUTTON_HEIGHT * scale) / 2
    imgui.set_cursor_screen_pos(ImVec2(rect.x + 8 * scale, top))
    if controls.button(
        "Save",
        "save",
        height=theme.BUTTON_HEIGHT,
        flat=True,
        hint="The picture (Ctrl + S)",
    ):
        user.do(user.layout.active.keep_picture)
    side = theme.BUTTON_HEIGHT * scale
    right = rect.x + rect.width - 8 * scale
    imgui.set_cursor_screen_pos(ImVec2(right - 2 * side - 4 * scale, top))
    icon = "moon" if user.state.light else "sun"
    word = "Dark" if user.state.light else "Light"
    hint = f"{word} colours; pictures stay as they are"
    if controls.icon_button(icon, word, hint=hint):
        user.do(user.set_light, not user.state.light)
    imgui.set_cursor_screen_pos(ImVec2(right - side, top))
    if controls.icon_button("help", "Keys", hint="The list of keys (?)"):
        user.do(user.toggle_help)
