"""The bar over the plot: what to look at, and what to look for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.kinds.snapshot.analysis.search import HELP, search
from splatview_viewer.kinds.snapshot.axes import ooms
from splatview_viewer.kinds.snapshot.state import TABS
from splatview_viewer.kinds.snapshot.world import ONE_ROW
from splatview_viewer.ui import theme
from splatview_viewer.ui.format import size_text
from splatview_viewer.ui.widgets import board

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.snapshot.analysis.search import Hits
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.state import Look

_SEARCH, _LEAST = 230, 140
"""Points: the width of the search field, and where there is little room."""
_CORNER = 236
"""Points at the right end that are left free where there is room: a browser's page has its buttons there."""


def draw_bar(content: Content, look: Look, rect: Rect, scale: float) -> bool:
    """Draw in an imgui frame; True when something changed."""
    with board(f"snapshot bar {id(look)}", rect, (10 * scale, 6 * scale), theme.BAR):  # two views are two windows
        tab = look.tab
        names = {key: name for key, name in TABS.items() if key != "oom" or ooms(content, look.device)}
        if rect.width >= ONE_ROW * scale:
            begin = _tabs(look, names, rect, scale) + 12 * scale
            imgui.set_cursor_screen_pos(ImVec2(begin, rect.y + (rect.height - imgui.get_frame_height()) / 2))
        else:
            keys = list(names)
            imgui.set_next_item_width(min(rect.width * 0.42, 180 * scale))
            look.tab = keys[imgui.combo("##tab", keys.index(tab) if tab in keys else 0, list(names.values()))[1]]
            imgui.same_line()
            begin = imgui.get_cursor_screen_pos().x
        room = rect.x + rect.width - 12 * scale - begin
        width = min(max(room - _CORNER * scale, _LEAST * scale), _SEARCH * scale, room)
        changed = _search(content, look, width, scale)
        return changed or look.tab != tab


def _tabs(look: Look, names: dict[str, str], rect: Rect, scale: float) -> float:
    """Draw the tabs by name. Returns where they end."""
    draw = imgui.get_window_draw_list()
    pad, gap = 9 * scale, 1 * scale
    need = sum(imgui.calc_text_size(name).x + 2 * pad + gap for name in names.values())
    room = rect.width - (_LEAST + 34) * scale
    if need > room:
        pad = max(pad - (need - room) / (2 * len(names)), 3 * scale)
    x, line, bottom = rect.x + 6 * scale, imgui.get_text_line_height(), rect.y + rect.height
    for key, name in names.items():
        width = imgui.calc_text_size(name).x + 2 * pad
        imgui.set_cursor_screen_pos(ImVec2(x, rect.y))
        if imgui.invisible_button(f"tab {key}", ImVec2(width, rect.height)):
            look.tab = key
        chosen = look.tab == key
        color = theme.FAULT if key == "oom" else theme.TEXT if chosen or imgui.is_item_hovered() else theme.DIM
        draw.add_text(ImVec2(round(x + pad), round(rect.y + (rect.height - line) / 2)), theme.u32(color), name)
        if chosen:
            draw.add_rect_filled(ImVec2(round(x + pad), bottom - round(2 * scale)),
                                 ImVec2(round(x + width - pad), bottom), theme.u32(theme.ACCENT))
        x += width + gap
    draw.add_rect_filled(ImVec2(rect.x, bottom - 1), ImVec2(rect.x + rect.width, bottom),
                         imgui.get_color_u32(imgui.Col_.separator))
    return x


def _search(content: Content, look: Look, width: float, scale: float) -> bool:
    imgui.set_next_item_width(width)
    focus = look.wants_focus == "search"
    if focus:
        imgui.set_keyboard_focus_here()
        look.wants_focus = ""
    corner, width = imgui.get_cursor_screen_pos(), imgui.calc_item_width()
    edited, text = imgui.input_text_with_hint("##search", "Search:  /", look.search,
                                              imgui.InputTextFlags_.auto_select_all)
    if edited:
        look.search = text
    text, device, snapshot, found = look.search.strip(), look.device, content.snapshot, None
    if text:
        found = content.ask(("search", device, text), lambda: search(snapshot, snapshot.traces[device], text),
                            slot="search")
    if imgui.is_item_hovered():
        lines = HELP.replace("; ", "\n")
        imgui.set_tooltip(lines if found is None else f"Found: {' and '.join(found.words)}\n\n{lines}")
    came = False
    if found is not None or not text:
        mask = found.mask if found is not None else None
        came = look.hits is not mask
        if came:
            look.find(mask)
    if found is not None:
        _say(found, look.search, corner, width, scale)
    return came or edited or focus  # imgui gives the focus with the next picture


def _say(found: Hits, text: str, corner: ImVec2, width: float, scale: float) -> None:
    """Write the number of hits at the field's end."""
    words = f"{found.count:,}  {size_text(found.bytes)}" if found.count else "nothing"
    if imgui.calc_text_size(text).x + imgui.calc_text_size(words).x + 30 * scale > width:
        words = f"{found.count:,}"
    at = ImVec2(corner.x + width - imgui.calc_text_size(words).x - 8 * scale,
                corner.y + (imgui.get_frame_height() - imgui.get_text_line_height()) / 2)
    imgui.get_window_draw_list().add_text(at, theme.u32(theme.DIM if found.count else theme.FAULT), words)
