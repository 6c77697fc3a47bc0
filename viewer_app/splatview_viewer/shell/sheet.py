"""The sheet of a phone, which is held upright: handle, tabs, and what they show.

It is dragged by its head, the handle and the tabs, and settles lowered, half or full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import TABS
from splatview_viewer.shell import sections
from splatview_viewer.shell.stream_list import draw_list
from splatview_viewer.ui import controls, theme
from splatview_viewer.ui.boards import board
from splatview_viewer.ui.widgets import gap, pointer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.core.view import Info, Section, Visit
    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.zones import Zones

STREAMS = "Streams"
"""The first tab, which lists the streams."""
LOWERED = 0.0
HALF = 0.5
FULL = 0.92
STOPS = (LOWERED, HALF, FULL)
"""Shares of the screen's height below the top bar where the sheet settles."""
_MIN_DRAG = 6.0
"""Points from which a press on the head moves the sheet."""
_FAR = 0.12
"""Share of the height by which a drag counts as longer, so that it need not go all the
way."""
_MARGIN = 16.0
"""Points at the left and right of what the tabs show."""
_HANDLE = (44.0, 4.0)


class SheetDrag:
    """A drag of the sheet by its head."""

    def __init__(self) -> None:
        self._start: tuple[float, float] | None = None
        """The pointer's pixel y and the sheet's share at the press."""
        self.is_moved = False
        """True once the pointer has moved the sheet, until after its release."""

    def handle(self, user: User, zones: Zones, scale: float) -> None:
        """Follow the pointer; once in each frame, before the sheet is drawn."""
        height = max(zones.panel.y + zones.panel.height - zones.top.height, 1)
        if imgui.is_mouse_clicked(imgui.MouseButton_.left):
            self.is_moved = False
            self._start = None
            y = pointer().y
            is_free = not imgui.is_popup_open("", imgui.PopupFlags_.any_popup)
            if is_free and head_of(zones).contains(pointer().x, y):
                self._start = (y, zones.panel.height / height)
        if self._start is None:
            return
        start_y, share = self._start
        moved = start_y - pointer().y
        if imgui.is_mouse_down(imgui.MouseButton_.left):
            self.is_moved |= abs(moved) > _MIN_DRAG * scale
            if self.is_moved:
                target_share = min(max(share + moved / height, LOWERED), FULL)
                if target_share != user.interface.state.dragged_sheet:
                    user.do(user.drag_sheet, target_share)
            return
        self._start = None
        if self.is_moved:
            user.do(user.settle_sheet, settled(share, share + moved / height))


def settled(start: float, end: float) -> float:
    """Return where a sheet settles that was dragged from one share to another."""
    aimed = end
    if end != start:
        if end > start:
            aimed += _FAR
        else:
            aimed -= _FAR
    return min(STOPS, key=lambda stop: abs(stop - aimed))


def head_of(zones: Zones) -> Rect:
    """Return the part of a sheet that it is dragged by."""
    if zones.form != "phone":
        return Rect(0, 0, 0, 0)
    height = zones.panel.height - zones.sections.height
    return Rect(zones.panel.x, zones.panel.y, zones.panel.width, height)


def draw_sheet(
    user: User,
    shown_sections: Sequence[Section],
    info: Info,
    visit: Visit | None,
    draw_part: Callable[..., bool],
) -> bool:
    """Draw the sheet; return True to draw the picture again.

    Args:
        user: whose it is.
        shown_sections: the sections of the chosen tab.
        info: of what is shown.
        visit: what is in place of the tabs; None: they are there.
        draw_part: draws one part of it, and shows its fault in its place.
    """
    interface = user.interface
    zones = interface.zones
    scale = user.screen.state.scale
    drag = interface.sheet
    drag.handle(user, zones, scale)
    panel = zones.panel
    handle = Rect(panel.x, panel.y, panel.width, zones.tabs.y - panel.y)
    with board("sheet", handle) as opened:
        if opened and _draw_handle(handle, scale) and not drag.is_moved:
            user.do(user.toggle_panel)
    if not zones.tabs.height:
        return False
    if visit is not None:
        bottom = Rect(panel.x, zones.tabs.y, panel.width, panel.height - handle.height)
        with board("visit", bottom, (_MARGIN * scale, 10 * scale)) as opened:
            return opened and draw_part("ways to compare", visit.draw)
    with board("tabs", zones.tabs) as opened:
        if opened:
            draw_part("tabs", _draw_tabs, user, zones.tabs.height / scale)
    name = interface.state.tab
    if interface.state.on_streams:
        name = STREAMS
    pad = (_MARGIN * scale, 8 * scale)
    with board(f"sections {name}", zones.sections, pad, scroll=True) as opened:
        if not opened:
            return False
        if interface.state.on_streams:
            draw_part("list of streams", draw_list, user)
            gap(8 * scale)
            draw_part("curves of the run", user.interface.sparklines.draw, user)
            return False
        return draw_part(
            "sections", sections.draw_sections, user, shown_sections, info, draw_part
        )


def _draw_handle(rect: Rect, scale: float) -> bool:
    """Draw the handle at the upper edge; return True if it was tapped."""
    imgui.set_cursor_screen_pos(ImVec2(rect.x, rect.y))
    target = controls.item("sheet handle", rect.width, rect.height)
    draw = imgui.get_window_draw_list()
    right = ImVec2(rect.x + rect.width, rect.y)
    draw.add_line(ImVec2(rect.x, rect.y), right, theme.u32(theme.LINE))
    width = _HANDLE[0] * scale
    x = rect.x + (rect.width - width) / 2
    bottom = rect.y + rect.height
    top = bottom - _HANDLE[1] * scale
    # In the lower half of a sheet's edge, above its tabs.
    shift = (rect.height - _HANDLE[1] * scale) / 4
    draw.add_rect_filled(
        ImVec2(x, top - shift),
        ImVec2(x + width, bottom - shift),
        theme.u32(theme.TEXT if target.is_held else theme.FAINT),
        2 * scale,
    )
    return target.pressed


def _draw_tabs(user: User, height: float) -> None:
    """Draw the tabs, the list of streams first; a tap chooses one."""
    interface = user.interface
    state = interface.state
    names = [STREAMS, *TABS.values()]
    chosen_name = TABS[state.tab]
    if state.on_streams:
        chosen_name = STREAMS
    pressed = controls.tabs(names, chosen_name, height)
    if pressed == chosen_name or interface.sheet.is_moved:
        return
    if pressed == STREAMS:
        user.do(user.show_streams)
        return
    tab = next(tab for tab, name in TABS.items() if name == pressed)
    user.do(user.choose_tab, tab)
