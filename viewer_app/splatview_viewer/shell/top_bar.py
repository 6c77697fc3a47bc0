"""The bar at the top: menu, run, its state, commands, latency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.ui import controls, theme
from splatview_viewer.ui.widgets import board

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.shell.user import User


def draw(user: User, rect: Rect, scale: float) -> None:
    """Draw the top bar in its rectangle."""
    with board("top bar", rect, (8 * scale, 0), theme.BAR) as opened:
        if not opened:
            return
        top = rect.y + (rect.height - theme.BUTTON_HEIGHT * scale) / 2
        imgui.set_cursor_screen_pos(ImVec2(rect.x + 8 * scale, top))
        _draw_run_buttons(user)


def _draw_run_buttons(user: User) -> None:
    entry = user.state.selected_entry
    paused = entry.paused if entry is not None else None
    reason = None if paused is not None else "Nothing runs"
    height = theme.BUTTON_HEIGHT
    text = "Resume" if paused else "Pause"
    icon = "play" if paused else "pause"
    if controls.button(text, icon, width=92, height=height, reason=reason):
        user.do(user.pause, not paused)
    imgui.same_line(0, 8 * theme.scale())
    step_reason = None if paused else "Pause first"
    if controls.button("Step", "step", width=70, height=height, reason=step_reason):
        user.do(user.pause, "step")
