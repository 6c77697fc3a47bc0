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
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.state import Look

_SEARCH, _LEAST = 230, 140
"""Points: the width of the search field, and where there is little room."""
_CORNER = 236
"""Points at the right end that are left free where there is room: a browser's page has its buttons there."""


class Bar:
    """One user's bar."""

    def __init__(self) -> None:
        self._searched: tuple[int, int, str] | None = None
        """(snapshot, device, text) of the hits that the look has."""

    def draw(self, content: Content, look: Look, rect: Rect, scale: float) -> bool:
        """Draw in an imgui frame; True when something changed."""
        with board(f"snapshot bar {id(self)}", rect, (10 * scale, 6 * scale), theme.BAR):  # two views are two windows
            tab = look.tab
            names = {key: name for key, name in TABS.items() if key != "oom" or ooms(content, look.device)}
            if rect.width >= ONE_ROW * scale:
                begin = self._tabs(look, names, rect, scale) + 12 * scale
                imgui.set_cursor_screen_pos(ImVec2(begin, rect.y + (rect.height - imgui.get_frame_height()) / 2))
            else:
                self._tab_list(look, names, rect, scale)
                begin = imgui.get_cursor_screen_pos().x
            room = rect.x + rect.width - 12 * scale - begin
            width = min(max(room - _CORNER * scale, _LEAST * scale), _SEARCH * scale, room)
            changed = self._search(content, look, width, scale)
            return changed or look.tab != tab

    def _tabs(self, look: Look, names: dict[str, str], rect: Rect, scale: float) -> float:
        """Where they end."""
        draw = imgui.get_window_draw_list()
        pad, gap = 9 * scale, 1 * scale
        need = sum(imgui.calc_text_size(name).x + 2 * pad + gap for name in names.values())
        room = rect.width - (_LEAST + 34) * scale
        if need > room:
            pad = max(pad - (need - room) / (2 * len(names)), 3 * scale)
        x, line = rect.x + 6 * scale, imgui.get_text_line_height()
        for key, name in names.items():
            width = imgui.calc_text_size(name).x + 2 * pad
            imgui.set_cursor_screen_pos(ImVec2(x, rect.y))
            if imgui.invisible_button(f"tab {key}", ImVec2(width, rect.height)):
                look.tab = key
            chosen, over = look.tab == key, imgui.is_item_hovered()
            color = theme.TEXT if chosen or over else theme.DIM
            if key == "oom":
                color = theme.FAULT
            draw.add_text(ImVec2(round(x + pad), round(rect.y + (rect.height - line) / 2)), theme.u32(color), name)
            if chosen:
                bottom = rect.y + rect.height
                draw.add_rect_filled(ImVec2(round(x + pad), bottom - round(2 * scale)),
                                     ImVec2(round(x + width - pad), bottom), theme.u32(theme.ACCENT))
            x += width + gap
        line_color = imgui.get_color_u32(imgui.Col_.separator)
        draw.add_rect_filled(ImVec2(rect.x, rect.y + rect.height - 1), ImVec2(rect.x + rect.width,
                                                                           rect.y + rect.height), line_color)
        return x

    def _tab_list(self, look: Look, names: dict[str, str], rect: Rect, scale: float) -> None:
        """On a narrow screen."""
        keys = list(names)
        imgui.set_next_item_width(min(rect.width * 0.42, 180 * scale))
        picked = imgui.combo("##tab", keys.index(look.tab) if look.tab in keys else 0, list(names.values()))[1]
        look.tab = keys[picked]
        imgui.same_line()

    def _search(self, content: Content, look: Look, width: float, scale: float) -> bool:
        imgui.set_next_item_width(width)
        focus = look.wants_focus == "search"
        if focus:
            imgui.set_keyboard_focus_here()
            look.wants_focus = ""
        corner, width = imgui.get_cursor_screen_pos(), imgui.calc_item_width()
        edited, text = imgui.input_text_with_hint("##search", "Search:  /", look.search,
                                                  imgui.InputTextFlags_.auto_select_all)
        self._help(content, look)
        if edited:
            look.search = text
        self._say(content, look, corner, width, scale)
        return self._find(content, look) or edited or focus  # imgui gives the focus with the next picture

    def _help(self, content: Content, look: Look) -> None:
        if not imgui.is_item_hovered():
            return
        lines = HELP.replace("; ", "\n")
        found = content.peek(_key(look)) if look.search.strip() else None
        if found is not None:
            lines = "\n".join(["Found: " + " and ".join(found.words), "", lines])
        imgui.set_tooltip(lines)

    def _find(self, content: Content, look: Look) -> bool:
        """Have it searched for; True when the hits came."""
        text, device = look.search.strip(), look.device
        wanted = id(content), device, text
        if wanted == self._searched:
            return False
        if not text:
            self._searched = wanted
            if look.hits is None:
                return False
            look.find(None)
            return True
        snapshot = content.snapshot

        found = content.ask(_key(look), lambda: search(snapshot, snapshot.traces[device], text), slot="search")
        if found is None:
            return False
        self._searched = wanted
        look.find(found.mask)  # type: ignore[attr-defined]
        return True

    def _say(self, content: Content, look: Look, corner: ImVec2, width: float, scale: float) -> None:
        """How much was found, at the field's end."""
        found = content.peek(_key(look)) if look.search.strip() else None
        if found is None:
            return
        words = f"{found.count:,}  {size_text(found.bytes)}" if found.count else "nothing"
        if imgui.calc_text_size(look.search).x + imgui.calc_text_size(words).x + 30 * scale > width:
            words = f"{found.count:,}"
        at = ImVec2(corner.x + width - imgui.calc_text_size(words).x - 8 * scale,
                    corner.y + (imgui.get_frame_height() - imgui.get_text_line_height()) / 2)
        imgui.get_window_draw_list().add_text(at, theme.u32(theme.DIM if found.count else theme.FAULT), words)


def _key(look: Look) -> tuple[str, int, str]:
    return "search", look.device, look.search.strip()
