"""The zone in place of a phone's top bar and tabs while a view is elsewhere.

That is while it looks through a training camera.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.ui import controls, lettering, theme
from splatview_viewer.ui.boards import board
from splatview_viewer.ui.widgets import fitted

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.view import Visit

_BUTTON = 44.0


def draw_bar(visit: Visit, rect: Rect, scale: float) -> bool:
    """Draw the top bar; return True to draw the picture again."""
    with board("top bar", rect, color=theme.BAR) as opened:
        if not opened:
            return False
        side = min(_BUTTON * scale, rect.height)
        y = rect.y + (rect.height - side) / 2
        imgui.set_cursor_screen_pos(ImVec2(rect.x + 4 * scale, y))
        points = side / scale
        leaves = controls.icon_button("close", "leave camera", side=points)
        right = rect.x + rect.width - 4 * scale - 2 * side
        direction = 0
        for icon, step in (("back", -1), ("step", 1)):
            x = right
            if step > 0:
                x += side
            imgui.set_cursor_screen_pos(ImVec2(x, y))
            if controls.icon_button(icon, f"camera {icon}", side=points):
                direction = step
        _draw_words(visit, rect, (rect.x + 8 * scale + side, right), scale)
        if leaves:
            visit.leave()
        elif direction:
            visit.step(direction)
        return leaves or bool(direction)


def _draw_words(
    visit: Visit, rect: Rect, ends: tuple[float, float], scale: float
) -> None:
    """Write the title, and facts below it, between two pixels x."""
    draw = imgui.get_window_draw_list()
    left, right = ends
    middle = rect.y + rect.height / 2
    with theme.bold():
        top = round(middle - imgui.get_text_line_height())
        lettering.write(draw, round(left), top, theme.u32(theme.TEXT), visit.title)
        x = left + lettering.measure(visit.title).x + 5 * scale
    lettering.write(draw, round(x), top, theme.u32(theme.DIM), visit.beside)
    with theme.font_size(theme.SMALL_SIZE):
        text = fitted(visit.words, right - left)
        text_top = round(middle + 2 * scale)
        lettering.write(draw, round(left), text_top, theme.u32(theme.DIM), text)
