"""The list of keys on a phone: one column, which a finger scrolls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.screen import Rect
from splatview_viewer.shell.key_list import caps_of, group_lines
from splatview_viewer.shell.palette import cap_width, draw_cap
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import wrapped

if TYPE_CHECKING:
    from splatview_viewer.core.view import KeyHelp
    from splatview_viewer.shell.user import User

_POPUP = "keys of a phone"
_LETTERS = 17.0
_MARGIN = 8.0
"""Points to the screen's edges, and around what is written."""
_PAD = 16.0
_CAP_ROW = 28.0
_GAP = 10.0
"""Points below a line, and twice below a group."""


class KeySheet:
    """Shows the list of keys as a popup while `State.help` is set."""

    def __init__(self) -> None:
        self._is_open = False

    def draw(self, user: User) -> None:
        """Draw the list while it is open; a tap closes it, as on a desk."""
        if user.state.help and not self._is_open:
            self._is_open = True
            imgui.open_popup(_POPUP)
        if not self._is_open:
            return
        scale = theme.scale()
        screen = imgui.get_io().display_size
        margin = _MARGIN * scale
        pad = ImVec2(_PAD * scale, _PAD * scale)
        imgui.set_next_window_pos(ImVec2(margin, margin))
        imgui.push_style_var(imgui.StyleVar_.window_padding, pad)
        if imgui.begin_popup(_POPUP):
            width = screen.x - 2 * (margin + pad.x)
            height = screen.y - 2 * (margin + pad.y)
            self._draw_list(user, ImVec2(width, height))
            is_tapped = imgui.is_mouse_clicked(0) and not imgui.is_any_item_active()
            if is_tapped or not user.state.help:
                imgui.close_current_popup()
            imgui.end_popup()
        imgui.pop_style_var()
        if not imgui.is_popup_open(_POPUP):
            self._is_open = False
            user.state.help = False

    def _draw_list(self, user: User, size: ImVec2) -> None:
        """Draw all groups in a part of the popup that scrolls."""
        corner = imgui.get_cursor_screen_pos()
        list_rect = Rect(round(corner.x), round(corner.y), round(size.x), round(size.y))
        user.interface.surface.input.lists = [list_rect]
        if imgui.begin_child("lines", size):
            for group in group_lines(user):
                with theme.bold(_LETTERS):
                    imgui.text_unformatted(group.name)
                for line in group.lines:
                    _draw_line(line)
                imgui.dummy(ImVec2(1, _GAP * theme.scale()))
        imgui.end_child()


def _draw_line(line: KeyHelp) -> None:
    """Draw what keys do, and the keys below it."""
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    right = corner.x + imgui.get_content_region_avail().x
    with theme.font_size(_LETTERS):
        wrapped(line.does, theme.DIM)
        corner = imgui.get_cursor_screen_pos()
        x = corner.x
        middle = corner.y + _CAP_ROW / 2 * scale
        for cap in caps_of(line):
            if x > corner.x and x + cap_width(cap) > right:
                x = corner.x
                middle += _CAP_ROW * scale
            x = draw_cap(cap, x, middle, theme.TEXT) + 6 * scale
    end = middle + (_CAP_ROW / 2 + _GAP) * scale
    imgui.dummy(ImVec2(1, end - corner.y))
