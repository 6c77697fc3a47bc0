"""Draws the bar over the plot: tabs and search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.quantities import size_text
from splatview_viewer.kinds.snapshot.state import TABS
from splatview_viewer.snapshot.analysis.search import SEARCH_HELP
from splatview_viewer.ui import controls, icons, lettering, theme
from splatview_viewer.ui.boards import board
from splatview_viewer.ui.text_field import text_field
from splatview_viewer.ui.widgets import pick

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.snapshot.analysis.search import Hits

_MARGIN = 8
"""Points from the edges to what is in the bar."""
_TAB_PAD = 13
"""Points on both sides of the name of a tab."""
_LIST_WIDTH = 130
"""Points of the list of tabs, where there is no room for a row of them."""
_SEARCH_WIDTH = 240
"""Points: the width of the search field."""
_MIN_SEARCH_WIDTH = 120
"""Points: its width where there is little space."""
_KEY_SIDE = 18
"""Points of the field with the key of the search."""


def draw_bar(view: SnapshotView, rect: Rect) -> bool:
    """Draw the tabs and the search field.

    Returns True when the picture has to be drawn again though the state is the same.
    """
    scale = view.scale
    # Two views are two windows.
    name = f"snapshot bar {id(view)}"
    with board(name, rect, (_MARGIN * scale, 0), theme.PANEL):
        tabs = dict(TABS)
        if not view.content.ooms(view.device):
            del tabs["oom"]
        with theme.bold():
            widths = [
                imgui.calc_text_size(title).x + 2 * _TAB_PAD * scale
                for title in tabs.values()
            ]
        tabs_width = rect.width - (2 * _MARGIN + _MIN_SEARCH_WIDTH + 8) * scale
        left = rect.x + _MARGIN * scale
        if sum(widths) <= tabs_width:
            left += sum(widths)
            _draw_tabs(view, tabs, widths, rect)
        else:
            left += _draw_tab_list(view, tabs, rect)
        _draw_line(rect)
        width = rect.x + rect.width - left - (8 + _MARGIN) * scale
        width = min(_SEARCH_WIDTH * scale, width)
        x = rect.x + rect.width - _MARGIN * scale - width
        y = rect.y + (rect.height - imgui.get_frame_height()) / 2
        imgui.set_cursor_screen_pos(ImVec2(x, y))
        return _draw_search(view, width)


def _draw_line(rect: Rect) -> None:
    """Draw the line below the bar."""
    bottom = rect.y + rect.height - 0.5
    imgui.get_window_draw_list().add_line(
        ImVec2(rect.x, bottom),
        ImVec2(rect.x + rect.width, bottom),
        theme.u32(theme.LINE),
    )


def _draw_tabs(
    view: SnapshotView, tabs: dict[str, str], widths: list[float], rect: Rect
) -> None:
    """Draw the tabs in a row, the shown one bold over a line."""
    shown_tab = view.tab
    scale = view.scale
    draw = imgui.get_window_draw_list()
    x = rect.x + _MARGIN * scale
    for (tab, title), width in zip(tabs.items(), widths, strict=True):
        imgui.set_cursor_screen_pos(ImVec2(x, rect.y))
        tab_item = controls.item(title, width, rect.height)
        if tab_item.pressed:
            view.change(tab=tab)
        is_shown = tab == shown_tab
        if is_shown or tab_item.hovered:
            ink = theme.TEXT
        else:
            ink = theme.DIM
        with theme.bold() if is_shown else theme.font_size(theme.FONT_SIZE):
            size = imgui.calc_text_size(title)
            left = round(tab_item.middle[0] - size.x / 2)
            top = round(tab_item.middle[1] - size.y / 2)
            lettering.write(draw, left, top, theme.u32(ink), title)
        if is_shown:
            bottom = rect.y + rect.height
            draw.add_rect_filled(
                ImVec2(x + 10 * scale, bottom - 2 * scale),
                ImVec2(x + width - 10 * scale, bottom),
                theme.u32(theme.ACCENT),
            )
        x += width


def _draw_tab_list(view: SnapshotView, tabs: dict[str, str], rect: Rect) -> float:
    """Draw the tabs as a list to choose from; return its width in pixels."""
    width = min(rect.width * 0.42, _LIST_WIDTH * view.scale)
    y = rect.y + (rect.height - imgui.get_frame_height()) / 2
    imgui.set_cursor_screen_pos(ImVec2(rect.x + _MARGIN * view.scale, y))
    imgui.set_next_item_width(width)
    shown_tab = view.tab
    chosen_tab = pick("tab", "What is shown of the snapshot", shown_tab, tabs)
    if chosen_tab != shown_tab:
        view.change(tab=chosen_tab)
    return width


def _draw_search(view: SnapshotView, width: float) -> bool:
    """Draw the search field with the number of hits.

    Returns True if it gets the keyboard with the next picture.
    """
    scale = view.scale
    takes_focus = view.focus_search
    view.focus_search = False
    corner = imgui.get_cursor_screen_pos()
    height = imgui.get_frame_height()
    draw = imgui.get_window_draw_list()
    draw.add_rect_filled(
        corner,
        ImVec2(corner.x + width, corner.y + height),
        theme.u32(theme.FIELD),
        theme.FIELD_ROUNDING * scale,
    )
    middle = corner.y + height / 2
    icons.draw(draw, "find", (corner.x + 16 * scale, middle), theme.DIM, 13)
    imgui.set_cursor_screen_pos(ImVec2(corner.x + 22 * scale, corner.y))
    imgui.set_next_item_width(max(width - 22 * scale, 1))
    if takes_focus:
        imgui.set_keyboard_focus_here()
    imgui.push_style_color(imgui.Col_.frame_bg, 0)
    edited, text = text_field(
        "##search",
        "Search stacks and sizes",
        view.state.search,
        imgui.InputTextFlags_.auto_select_all.value,
    )
    imgui.pop_style_color()
    is_active = imgui.is_item_active()
    if edited:
        view.change(search=text)
    hits = view.content.hits(view.device, view.state.search)
    help_text = SEARCH_HELP.replace("; ", "\n")
    if hits is not None:
        help_text = f"Found: {' and '.join(hits.meanings)}\n\n{help_text}"
    controls.tip(help_text)
    if hits is not None:
        _draw_hit_count(view, hits, text, corner, width)
    elif not is_active and not text and width >= _SEARCH_WIDTH * scale * 0.9:
        _draw_key(corner.x + width, middle, scale)
    return takes_focus


def _draw_key(right: float, middle: float, scale: float) -> None:
    """Draw the key that goes to the search, at the right end of its field."""
    side = _KEY_SIDE * scale
    low = ImVec2(right - side - 7 * scale, middle - side / 2)
    draw = imgui.get_window_draw_list()
    high = ImVec2(low.x + side, low.y + side)
    draw.add_rect_filled(low, high, theme.u32(theme.PANEL), 3 * scale)
    with theme.font_size(theme.SMALL_SIZE):
        size = imgui.calc_text_size("/")
        corner = ImVec2(round(low.x + (side - size.x) / 2), round(middle - size.y / 2))
        draw.add_text(corner, theme.u32(theme.DIM), "/")


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
    text_width = imgui.calc_text_size(text).x + 22 * view.scale
    if text_width + imgui.calc_text_size(count).x + 30 * view.scale > width:
        count = f"{hits.count:,}"
    x = corner.x + width - imgui.calc_text_size(count).x - 8 * view.scale
    y = corner.y + imgui.get_style().frame_padding.y
    imgui.get_window_draw_list().add_text(ImVec2(x, y), color, count)
