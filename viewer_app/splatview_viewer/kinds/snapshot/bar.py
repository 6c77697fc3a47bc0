"""Draws the bar over the plot: tabs and search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.quantities import size_text
from splatview_viewer.kinds.snapshot.panes.parts import chip
from splatview_viewer.kinds.snapshot.state import TABS
from splatview_viewer.snapshot.analysis.search import SEARCH_HELP
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import board

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.snapshot.analysis.search import Hits

_MIN_TABS_WIDTH = 940
"""Points of width from which the bar has a button for every tab."""
_SEARCH_WIDTH = 230
"""Points: the width of the search field."""
_MIN_SEARCH_WIDTH = 140
"""Points: its width where there is little space."""
_CORNER_WIDTH = 236
"""Points at the right end that are left free where there is space: a browser's page has its
buttons there."""


def draw_bar(view: SnapshotView, rect: Rect) -> bool:
    """Draw the tabs and the search field.

    Returns True when the picture has to be drawn again though the state is the same.
    """
    scale = view.scale
    # Two views are two windows.
    name = f"snapshot bar {id(view)}"
    with board(name, rect, (10 * scale, 6 * scale), theme.BAR):
        tabs = dict(TABS)
        if not view.content.ooms(view.device):
            del tabs["oom"]
        if rect.width >= _MIN_TABS_WIDTH * scale:
            _draw_tab_buttons(view, tabs)
        else:
            _draw_tab_list(view, tabs, min(rect.width * 0.42, 180 * scale))
        right = rect.x + rect.width - 12 * scale
        available_width = right - imgui.get_cursor_screen_pos().x
        width = available_width - _CORNER_WIDTH * scale
        width = max(width, _MIN_SEARCH_WIDTH * scale)
        width = min(width, _SEARCH_WIDTH * scale, available_width)
        return _draw_search(view, width)


def _draw_tab_buttons(view: SnapshotView, tabs: dict[str, str]) -> None:
    """Draw a button for each tab."""
    shown_tab = view.tab
    for tab, title in tabs.items():
        if chip(title, tab == shown_tab):
            view.change(tab=tab)
        imgui.same_line(0, 2 * view.scale)


def _draw_tab_list(view: SnapshotView, tabs: dict[str, str], width: float) -> None:
    """Draw the tabs as a list to choose from."""
    keys = list(tabs)
    shown_tab = view.tab
    shown_index = keys.index(shown_tab) if shown_tab in keys else 0
    imgui.set_next_item_width(width)
    _, index = imgui.combo("##tab", shown_index, list(tabs.values()))
    if keys[index] != shown_tab:
        view.change(tab=keys[index])
    imgui.same_line()


def _draw_search(view: SnapshotView, width: float) -> bool:
    """Draw the search field with the number of hits.

    Returns True if it gets the keyboard with the next picture.
    """
    imgui.set_next_item_width(width)
    takes_focus = view.focus_search
    view.focus_search = False
    if takes_focus:
        imgui.set_keyboard_focus_here()
    corner = imgui.get_cursor_screen_pos()
    edited, text = imgui.input_text_with_hint(
        "##search",
        "Search:  /",
        view.state.search,
        imgui.InputTextFlags_.auto_select_all,
    )
    if edited:
        view.change(search=text)
    hits = view.content.hits(view.device, view.state.search)
    if imgui.is_item_hovered():
        help_text = SEARCH_HELP.replace("; ", "\n")
        if hits is not None:
            help_text = f"Found: {' and '.join(hits.meanings)}\n\n{help_text}"
        imgui.set_tooltip(help_text)
    if hits is not None:
        _draw_hit_count(view, hits, text, corner, width)
    return takes_focus


def _draw_hit_count(
    view: SnapshotView, hits: Hits, text: str, corner: ImVec2, width: float
) -> None:
    """Draw the number of hits at the right end of the search field.

    Args:
        text: in the field; where it leaves little space, the count is short.
    """
    count = "nothing"
    color = theme.u32(theme.FAULT)
    if hits.count:
        count = f"{hits.count:,}  {size_text(hits.bytes)}"
        color = theme.u32(theme.DIM)
    text_width = imgui.calc_text_size(text).x
    if text_width + imgui.calc_text_size(count).x + 30 * view.scale > width:
        count = f"{hits.count:,}"
    x = corner.x + width - imgui.calc_text_size(count).x - 8 * view.scale
    y = corner.y + imgui.get_style().frame_padding.y
    imgui.get_window_draw_list().add_text(ImVec2(x, y), color, count)
