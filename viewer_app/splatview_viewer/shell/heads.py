"""The strips above panes, and the tabs: names, which one is active, and a button to close each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.shell.panes import Panes
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import board, fitted

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.settings import PaneHead, State
    from splatview_viewer.shell.seat import Seat

_TAB = 180
"""Points that a tab is wide at most."""
_TIP = "Double click: this one alone, and back. Right click: how they lie. Ctrl + Tab: the next one."


def draw_heads(state: State, strips: list[tuple[int, Rect]], user: Seat, scale: float) -> None:
    """`strips`: of those panes that are seen, their number and where the strip lies, in pixels."""
    for number, strip in strips:
        if state.tabs:
            width = min(strip.width // max(len(state.panes), 1), round(_TAB * scale))
            parts = [(head, strip.x + i * width, width) for i, head in enumerate(state.panes)]
        else:
            parts = [(state.panes[number], strip.x, strip.width)]
        with board(f"head {number}", strip) as opened:
            for head, x, width in parts if opened else ():
                _head(head, state, (x, strip.y, width, strip.height), user, scale)


def _head(head: PaneHead, state: State, place: tuple[float, float, float, float], user: Seat, scale: float) -> None:
    x, y, width, height = place
    cross = min(height, width / 2)
    imgui.set_cursor_screen_pos(ImVec2(x, y))
    pressed = imgui.invisible_button(f"name {head.number}", ImVec2(max(width - cross, 1), height))
    over = imgui.is_item_hovered()
    if over and imgui.is_mouse_double_clicked(imgui.MouseButton_.left):
        user.do(user.on_pane, Panes.maximise, head.number)
    elif pressed:
        user.do(user.on_pane, Panes.activate, head.number)
    imgui.set_item_tooltip(f"{head.name}, {head.group}\n{_TIP}" if head.group else _TIP)
    if imgui.begin_popup_context_item(f"arrange {head.number}"):
        _menu(state, head, user)
        imgui.end_popup()
    imgui.set_cursor_screen_pos(ImVec2(x + width - cross, y))
    if imgui.invisible_button(f"close {head.number}", ImVec2(max(cross, 1), height)):
        user.do(user.on_pane, Panes.remove, head.number)
    closing = imgui.is_item_hovered()
    imgui.set_item_tooltip("Close this pane; its stream stays in the list")
    draw, line = imgui.get_window_draw_list(), imgui.get_text_line_height()
    fill = theme.FIELD_DOWN if over else theme.FIELD if head.active else theme.BAR
    draw.add_rect_filled(ImVec2(x, y), ImVec2(x + width, y + height), theme.u32(fill))
    if head.active:
        draw.add_rect_filled(ImVec2(x, y + height - 2 * scale), ImVec2(x + width, y + height), theme.u32(theme.ACCENT))
    pad = 8 * scale
    room, text_y = width - cross - pad, round(y + (height - line) / 2)
    color = theme.TEXT if head.active else theme.DIM
    draw.add_text(ImVec2(round(x + pad), text_y), theme.u32(color), fitted(head.name, room))
    at = imgui.calc_text_size(head.name + "  ").x
    if head.group and at + imgui.calc_text_size(head.group).x <= room:  # the name goes before where it comes from
        draw.add_text(ImVec2(round(x + pad + at), text_y), theme.u32(theme.GONE), head.group)
    r, cx, cy = 3.5 * scale, x + width - cross / 2, y + height / 2
    ink = theme.u32(theme.TEXT if closing else theme.DIM)
    draw.add_line(ImVec2(cx - r, cy - r), ImVec2(cx + r, cy + r), ink, 1.3 * scale)
    draw.add_line(ImVec2(cx - r, cy + r), ImVec2(cx + r, cy - r), ink, 1.3 * scale)


def _menu(state: State, head: PaneHead, user: Seat) -> None:
    if imgui.menu_item("All panes" if state.maximised else "This one alone", "Double click", False)[0]:
        user.do(user.on_pane, Panes.maximise, head.number)
    if imgui.menu_item("Side by side", "", not state.tabs)[0]:
        user.do(user.panes.arrange, "grid")
    if imgui.menu_item("Tabs", "", state.tabs)[0]:
        user.do(user.panes.arrange, "tabs")
    if imgui.menu_item("Close", "", False)[0]:
        user.do(user.on_pane, Panes.remove, head.number)
