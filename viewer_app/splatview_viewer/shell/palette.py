"""The palette: a field to search, and all commands, streams and settings below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.screen import Rect
from splatview_viewer.shell import palette_items
from splatview_viewer.shell.menu import draw_chosen, draw_icon, draw_words
from splatview_viewer.shell.palette_items import NOT_NOW, Match, PaletteItem
from splatview_viewer.ui import controls, icons, lettering, theme
from splatview_viewer.ui.text_field import text_field
from splatview_viewer.ui.words import write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.shell.user import User

_POPUP = "palette"
_WIDTH = 600.0
_TOP = 110.0
_PAD = 8.0
_FIELD_HEIGHT = 38.0
_GROUP_HEIGHT = 30.0
_FOOT_HEIGHT = 34.0
_MOST_ROWS_HEIGHT = 420.0
"""Points of the list at most; what is longer scrolls."""
_DIM = 0.45
"""Opacity of the black over what is behind the palette."""
_KEY_CAPS = (("\u2191 \u2193", "choose"), ("Enter", "do it"), ("Esc", "close"))
_NO_NAV = imgui.WindowFlags_.no_nav_inputs.value
_MOST_LETTERS = 200


def _row_height() -> float:
    """Return the points of a row."""
    return theme.ROW_HEIGHT + 4


def _rows_height(matches: Sequence[Match]) -> float:
    """Return the pixels of all rows and heads of groups."""
    groups = {match.item.shown_group for match in matches}
    points = len(matches) * _row_height() + len(groups) * _GROUP_HEIGHT
    return max(points, _row_height()) * theme.scale()


class Palette:
    """The search of one user, its matches, and the chosen one of them."""

    def __init__(self) -> None:
        self.query = ""
        self.index = 0
        """The chosen one of `matches`."""
        self.matches: list[Match] = []
        self.total = 0
        """Things that could be found."""
        self._opens = False
        """True until it is drawn for the first time."""
        self._is_open = False
        self._must_focus = False
        self._must_scroll = False
        self._items: list[PaletteItem] = []
        self._found_query: str | None = None
        """What `matches` are of."""
        self._had_focus = False

    @property
    def is_open(self) -> bool:
        return self._is_open or self._opens

    def open(self) -> None:
        """Open it in the next picture, with nothing typed."""
        if self.is_open:
            return
        self._opens = True
        self._must_focus = True
        self.query = ""
        self.index = 0
        self._found_query = None

    def close(self) -> None:
        """Close it in the next picture."""
        self._opens = False
        self._is_open = False

    # -- finding -------------------------------------------------------------------

    def refresh(self, user: User) -> None:
        """Find what is typed, once for each text."""
        if self._found_query == self.query:
            return
        if self._found_query is None:
            user.interface.settings.learn(user.layout.active)
            self._items = palette_items.all_items(user)
        self._found_query = self.query
        found_commands = user.layout.active.find_commands(self.query)
        more_items = palette_items.view_items(user, found_commands)
        self.matches = palette_items.find([*self._items, *more_items], self.query)
        self.total = len(self._items) + len(more_items)
        self.index = 0
        self._must_scroll = True

    def move(self, count: int) -> None:
        """Choose one further down, or up; the ends are reached, not passed."""
        if self.matches:
            self.index = min(max(self.index + count, 0), len(self.matches) - 1)
            self._must_scroll = True

    # -- drawing -------------------------------------------------------------------

    def draw(self, user: User) -> None:
        """Draw it while it is open, over everything else."""
        if self._opens:
            self._opens = False
            self._is_open = True
            self._had_focus = imgui.get_current_context().nav_cursor_visible
            imgui.open_popup(_POPUP)
        if not imgui.is_popup_open(_POPUP):
            self._is_open = False
            return
        self.refresh(user)
        scale = theme.scale()
        size = imgui.get_io().display_size
        width = min(_WIDTH * scale, size.x - 16 * scale)
        top = min(_TOP * scale, size.y * 0.11)
        free_height = size.y - top - (_FIELD_HEIGHT + _FOOT_HEIGHT + 4 * _PAD) * scale
        rows_height = min(
            _rows_height(self.matches), _MOST_ROWS_HEIGHT * scale, free_height
        )
        height = rows_height + (_FIELD_HEIGHT + _FOOT_HEIGHT + 2 * _PAD) * scale
        imgui.set_next_window_pos(ImVec2(round((size.x - width) / 2), round(top)))
        imgui.set_next_window_size(ImVec2(round(width), round(height)))
        pad = ImVec2(_PAD * scale, _PAD * scale)
        imgui.push_style_var(imgui.StyleVar_.window_padding, pad)
        imgui.push_style_var(imgui.StyleVar_.item_spacing, ImVec2(0, 0))
        if imgui.begin_popup(_POPUP, _NO_NAV | imgui.WindowFlags_.no_scrollbar.value):
            _dim_behind()
            self._draw_field()
            self.refresh(user)
            chosen_item = self._draw_rows(user, rows_height)
            self._draw_foot()
            self._take_keys(chosen_item)
            if not self._is_open:
                imgui.close_current_popup()
                imgui.set_nav_cursor_visible(self._had_focus)
            imgui.end_popup()
        imgui.pop_style_var(2)

    def _draw_field(self) -> None:
        """Draw the field, which has the keyboard."""
        scale = theme.scale()
        corner = imgui.get_cursor_screen_pos()
        width = imgui.get_content_region_avail().x
        height = _FIELD_HEIGHT * scale
        far = ImVec2(corner.x + width, corner.y + height)
        draw = imgui.get_window_draw_list()
        rounding = theme.FIELD_ROUNDING * scale
        draw.add_rect_filled(corner, far, theme.u32(theme.FIELD), rounding)
        draw.add_rect(corner, far, theme.u32(theme.ACCENT), rounding, 1.5 * scale)
        center = (corner.x + 17 * scale, corner.y + height / 2)
        icons.draw(draw, "find", center, theme.DIM, icons.SIZE)
        if self._must_focus:
            self._must_focus = False
            imgui.set_keyboard_focus_here()
        with theme.font_size(theme.TITLE_SIZE):
            inset = (height - imgui.get_text_line_height()) / 2
            imgui.set_cursor_screen_pos(ImVec2(corner.x + 31 * scale, corner.y))
            imgui.set_next_item_width(width - 40 * scale)
            imgui.push_style_var(imgui.StyleVar_.frame_padding, ImVec2(0, inset))
            for color in _FIELD_COLORS:
                imgui.push_style_color(color, theme.CLEAR)
            _, text = text_field(
                "##palette search", "Find a command, a stream, a setting", self.query
            )
            imgui.pop_style_color(len(_FIELD_COLORS))
            imgui.pop_style_var()
        self.query = text[:_MOST_LETTERS]
        imgui.set_cursor_screen_pos(ImVec2(corner.x, far.y))

    def _draw_rows(self, user: User, height: float) -> bool:
        """Draw the rows that can be seen; return True if one was clicked."""
        scale = theme.scale()
        clicked = False
        flags = imgui.WindowFlags_.no_nav_inputs.value
        corner = imgui.get_cursor_screen_pos()
        width = imgui.get_content_region_avail().x
        list_rect = Rect(round(corner.x), round(corner.y), round(width), round(height))
        user.interface.surface.input.lists = [list_rect]
        if imgui.begin_child("rows", ImVec2(0, height), 0, flags):
            if not self.matches:
                _draw_group("Nothing is found")
            top = imgui.get_scroll_y()
            start = imgui.get_cursor_pos_y()
            y = 0.0
            group = ""
            for index, match in enumerate(self.matches):
                if match.item.shown_group != group:
                    group = match.item.shown_group
                    if top - _GROUP_HEIGHT * scale <= y <= top + height:
                        imgui.set_cursor_pos_y(start + y)
                        _draw_group(group)
                    y += _GROUP_HEIGHT * scale
                if index == self.index and self._must_scroll:
                    self._scroll_to(index, y, height)
                if top - _row_height() * scale <= y <= top + height:
                    imgui.set_cursor_pos_y(start + y)
                    clicked |= self._draw_row(index, match)
                y += _row_height() * scale
            imgui.set_cursor_pos_y(start + y)
            imgui.dummy(ImVec2(1, 0))
        imgui.end_child()
        self._must_scroll = False
        return clicked

    def _scroll_to(self, index: int, y: float, height: float) -> None:
        """Scroll so that the chosen row at a pixel y of the list is seen."""
        scale = theme.scale()
        row = _row_height() * scale
        top = imgui.get_scroll_y()
        if index == 0:
            imgui.set_scroll_y(0)
        elif y < top:
            imgui.set_scroll_y(max(y - _GROUP_HEIGHT * scale, 0))
        elif y + row > top + height:
            imgui.set_scroll_y(y + row - height)

    def _draw_row(self, index: int, match: Match) -> bool:
        """Draw a row; return True if it was clicked."""
        item = match.item
        enabled = item.reason is None
        imgui.push_id(index)
        width = imgui.get_content_region_avail().x
        height = _row_height() * theme.scale()
        row_item = controls.item(
            f"{item.title}##palette", width, height, enabled=enabled
        )
        imgui.pop_id()
        moved = imgui.get_io().mouse_delta
        if row_item.hovered and (moved.x or moved.y):
            self.index = index
        ink = theme.TEXT if enabled else theme.FAINT
        dim = theme.DIM if enabled else theme.FAINT
        if index == self.index:
            draw_chosen(row_item, ring=True)
            ink = theme.ON_CHOSEN
            dim = theme.ON_CHOSEN
        if item.keys and enabled:
            right = _draw_cap_at_right(row_item, item.keys, dim)
        else:
            right = draw_words(row_item, item.reason or item.side_text, dim)
        x = draw_icon(row_item, item.icon, dim)
        _write_title(match, x, right, row_item.middle[1], ink)
        if row_item.pressed:
            self.index = index
        return row_item.pressed and enabled

    def _draw_foot(self) -> None:
        """Draw what the keys do, and how many are found."""
        scale = theme.scale()
        corner = imgui.get_cursor_screen_pos()
        width = imgui.get_content_region_avail().x
        y = corner.y + _PAD * scale
        draw = imgui.get_window_draw_list()
        right = ImVec2(corner.x + width - 2 * scale, y)
        draw.add_line(ImVec2(corner.x + 2 * scale, y), right, theme.u32(theme.LINE))
        middle = y + (_FOOT_HEIGHT - _PAD) * scale / 2 + 4 * scale
        x = corner.x + 10 * scale
        caps = list(_KEY_CAPS)
        chosen_item = self.chosen_item()
        if chosen_item is not None and chosen_item.run_beside is not None:
            caps.insert(2, ("Ctrl Enter", "beside"))
        with theme.font_size(theme.SMALL_SIZE):
            count = f"{len(self.matches):,} of {self.total:,}"
            start = corner.x + width - 10 * scale - lettering.measure(count).x
            write(count, start, middle, theme.DIM)
            for cap, does in caps:
                extent = lettering.measure(cap + does).x + 36 * scale
                if x + extent > start:
                    return
                x = draw_cap(cap, x, middle, theme.DIM) + 8 * scale
                x = write(does, x, middle, theme.DIM) + 16 * scale

    def chosen_item(self) -> PaletteItem | None:
        """Return what Enter would do."""
        if self.index < len(self.matches):
            return self.matches[self.index].item
        return None

    def _take_keys(self, is_clicked: bool) -> None:
        """Move by keys; do what is chosen, and close."""
        page = int(_MOST_ROWS_HEIGHT / _row_height()) - 2
        key = imgui.Key
        steps = ((key.up_arrow, -1), (key.down_arrow, 1))
        pages = ((key.page_up, -page), (key.page_down, page))
        for code, count in (*steps, *pages):
            if imgui.is_key_pressed(code):
                self.move(count)
        io = imgui.get_io()
        if imgui.is_key_pressed(key.escape, False):
            self.close()
        if io.key_ctrl and imgui.is_key_pressed(key.k, False):
            self.close()
        is_entered = imgui.is_key_pressed(key.enter, False)
        chosen_item = self.chosen_item()
        if (
            not (is_entered or is_clicked)
            or chosen_item is None
            or chosen_item.reason is not None
        ):
            return
        self.close()
        if io.key_ctrl and chosen_item.run_beside is not None:
            chosen_item.run_beside()
        else:
            chosen_item.run()


_FIELD_COLORS = (
    imgui.Col_.frame_bg,
    imgui.Col_.frame_bg_hovered,
    imgui.Col_.frame_bg_active,
    imgui.Col_.nav_cursor,
)


def _dim_behind() -> None:
    """Darken the screen behind the popup, and draw its ground once more."""
    scale = theme.scale()
    draw = imgui.get_window_draw_list()
    size = imgui.get_io().display_size
    low = imgui.get_window_pos()
    high = ImVec2(low.x + imgui.get_window_width(), low.y + imgui.get_window_height())
    rounding = theme.POPUP_ROUNDING * scale
    draw.push_clip_rect_full_screen()
    draw.add_rect_filled(ImVec2(0, 0), size, theme.u32(ImVec4(0, 0, 0, _DIM)))
    draw.add_rect_filled(low, high, theme.u32(theme.POPUP), rounding)
    draw.add_rect(low, high, theme.u32(theme.LINE), rounding, max(scale, 1.0))
    draw.pop_clip_rect()


def _draw_group(name: str) -> None:
    """Write the head of a group."""
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    imgui.dummy(ImVec2(1, _GROUP_HEIGHT * scale))
    with theme.font_size(theme.SMALL_SIZE):
        write(name, corner.x + 10 * scale, corner.y + 18 * scale, theme.DIM)


def _write_title(
    match: Match, x: float, right: float, middle: float, ink: ImVec4
) -> None:
    """Write a title with its matched letters bold, cut at a pixel x."""
    title = match.item.title
    is_bold = match.item.shown_group != NOT_NOW
    is_wide = lettering.measure(title).x > right - x
    if not match.bold or not is_bold or is_wide or not lettering.is_plain(title):
        write(title, x, middle, ink, right - x)
        return
    draw = imgui.get_window_draw_list()
    draw.push_clip_rect(ImVec2(x, middle - 100), ImVec2(right, middle + 100), True)
    done = 0
    for start, end in (*match.bold, (len(title), len(title))):
        x = write(title[done:start], x, middle, ink)
        with theme.bold(theme.FONT_SIZE):
            x = write(title[start:end], x, middle, ink)
        done = end
    draw.pop_clip_rect()


def cap_width(keys: str) -> float:
    """Return the pixels across a cap with the name of keys, in the font in use."""
    return lettering.measure(keys).x + 12 * theme.scale()


def draw_cap(keys: str, x: float, middle: float, ink: ImVec4) -> float:
    """Draw the name of keys on a cap, in the font in use; return where it ends."""
    scale = theme.scale()
    width = cap_width(keys)
    half = imgui.get_text_line_height() / 2 + scale
    low = ImVec2(round(x), round(middle - half))
    high = ImVec2(round(x + width), round(middle + half))
    draw = imgui.get_window_draw_list()
    draw.add_rect_filled(low, high, theme.u32(theme.FIELD), 3 * scale)
    write(keys, round(x + 6 * scale), middle, ink)
    return x + width


def _draw_cap_at_right(row_item: controls.Item, keys: str, ink: ImVec4) -> float:
    """Draw keys at the right of a row; return where the title has to end."""
    scale = theme.scale()
    with theme.font_size(theme.SMALL_SIZE):
        width = cap_width(keys)
        x = row_item.x + row_item.width - 10 * scale - width
        if ink is theme.ON_CHOSEN:
            write(keys, round(x + 6 * scale), row_item.middle[1], ink)
        else:
            draw_cap(keys, x, row_item.middle[1], ink)
    return x - 10 * scale
