"""The list of streams in the panel: runs with their streams, files, and their menus.

Rows never change their order while runs come and go. Only those in sight are drawn: a
list may have thousands.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from imgui_bundle import ImVec2, imgui

from splatview_ipc.system.terminal import printable
from splatview_viewer.shell.empty_list import draw_empty
from splatview_viewer.shell.menu import (
    draw_menu,
    draw_ring,
    is_menu_key_pressed,
    open_menu,
)
from splatview_viewer.shell.runs import group_words, hue_color, state_of
from splatview_viewer.shell.stream_menus import (
    entry_menu,
    fold,
    head_menu,
    take_out,
    why_not_taken_out,
)
from splatview_viewer.shell.stream_texts import fact_of, letters_of, tip_of
from splatview_viewer.ui import controls, icons, lettering, theme
from splatview_viewer.ui.sides import draw_badge
from splatview_viewer.ui.widgets import fitted
from splatview_viewer.ui.words import write, write_right

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imgui_bundle import ImVec4

    from splatview_viewer.core.settings import Entry
    from splatview_viewer.shell.menu import MenuRow
    from splatview_viewer.shell.run_state import RunState
    from splatview_viewer.shell.runs import RunGroup
    from splatview_viewer.shell.user import User


class _Sizes(NamedTuple):
    """Sizes of rows, in points."""

    head: float
    row: float
    margin: float
    """At both sides of a row."""
    more: float
    """Of the place of the button for a menu."""


_DESK = _Sizes(30.0, theme.ROW_HEIGHT, 8.0, 22.0)
_PHONE = _Sizes(44.0, 44.0, 0.0, 40.0)
_MENU = "menu of a row"
_LEAST_FOLDER = 24.0
"""Points below which the folders of a name are left out of its row."""
_AHEAD = 2
"""Rows beyond those in sight that are placed, so that arrows reach them."""


@dataclass(frozen=True, eq=False)
class Row:
    """A row of the list: the head of a group, or an entry."""

    group: RunGroup
    entry: Entry | None = None
    """None: it is the head."""
    is_pinned: bool = False

    @property
    def name(self) -> str:
        """Return its name for imgui, unlike all others."""
        if self.entry is None:
            return f"head {id(self.group.lead)}"
        if self.is_pinned:
            return f"pinned {id(self.entry)}"
        return f"row {id(self.entry)}"

    @property
    def item_name(self) -> str:
        """Return the name of its item, which tells pinned rows apart."""
        key = self.group.key
        if self.entry is not None:
            key = self.entry.key
        if self.is_pinned:
            return f"##pinned {printable(key)}"
        return f"##{printable(key)}"

    @property
    def folder(self) -> str:
        """Return the folders in its entry's name, with the "/" behind them."""
        if self.entry is None:
            return ""
        folder, slash, _ = self.entry.name.rpartition("/")
        return folder + slash

    @property
    def text(self) -> str:
        """Return what is written in it, behind the folders."""
        if self.entry is None:
            return self.group.title
        name = self.entry.name.rpartition("/")[2]
        if self.is_pinned:
            return f"{name}  \u00b7  {self.group.title}"
        return name

    def height(self, sizes: _Sizes) -> float:
        """Return its points."""
        if self.entry is None:
            return sizes.head
        return sizes.row


class Rows:
    """The rows of one user's list, made anew when the list or a choice has changed."""

    def __init__(self) -> None:
        self.all: Sequence[Row] = ()
        self.tops: Sequence[float] = (0.0,)
        """Points from the top of the list to each row, and to the end."""
        self._sources: tuple[object, ...] = ()
        self._revealed: str | None = None
        """The key of the entry that was chosen last."""

    def update(self, user: User) -> None:
        """Take in what has changed."""
        state = user.interface.state
        groups = user.interface.groups.update(user)
        changes = user.catalogue.list_changes
        sizes = _sizes(user)
        sources = (changes, tuple(state.pinned), frozenset(state.folded_runs), sizes)
        if sources == self._sources:
            return
        self._sources = sources
        self.all = _rows_of(groups, state.pinned, state.folded_runs)
        self.tops = [0.0, *accumulate(row.height(sizes) for row in self.all)]

    def reveal(self, key: str | None, top: float, height: float) -> float:
        """Return where the list is to begin so that an entry chosen anew is in sight.

        Args:
            key: of the chosen entry.
            top: where the list begins now, in points.
            height: points in sight.
        """
        if key == self._revealed:
            return top
        self._revealed = key
        for index, row in enumerate(self.all):
            if row.entry is None or row.entry.key != key:
                continue
            lowest_top = self.tops[index + 1] - height
            return min(max(top, lowest_top), self.tops[index])
        return top

    def in_sight(self, top: float, height: float) -> range:
        """Return the numbers of the rows between two places of the list, in points."""
        first = bisect_right(self.tops, top) - 1 - _AHEAD
        last = bisect_right(self.tops, top + height) + _AHEAD
        return range(max(first, 0), min(last, len(self.all)))


def _rows_of(
    groups: Sequence[RunGroup], pinned: Sequence[str], folded: set[str]
) -> list[Row]:
    """Return all rows, pinned entries first in their own order."""
    rows = []
    if pinned:
        by_pin: dict[str, tuple[RunGroup, Entry]] = {}
        for group in groups:
            by_pin.update((e.lasting_name, (group, e)) for e in group.entries)
        members = [by_pin[pin] for pin in pinned if pin in by_pin]
        rows += [Row(group, entry, is_pinned=True) for group, entry in members]
    for group in groups:
        rows.append(Row(group))
        if group.key not in folded:
            rows += [Row(group, entry) for entry in group.entries]
    return rows


def _sizes(user: User) -> _Sizes:
    if user.interface.zones.form == "phone":
        return _PHONE
    return _DESK


def draw_list(user: User) -> None:
    """Draw the rows that are in sight, and the menu that is open."""
    if not user.state.entries:
        draw_empty(user)
        return
    state = user.interface.state
    selected = user.state.selected_entry
    if selected is not None:
        state.last_shown[selected.group] = selected.key
    rows = user.interface.rows
    rows.update(user)
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    scrolled = imgui.get_window_pos().y - corner.y
    height = imgui.get_window_height()
    width = imgui.get_content_region_avail().x
    letters = letters_of(user)
    top = rows.reveal(user.state.selected, scrolled / scale, height / scale)
    # Nothing moves under the pointer.
    if top != scrolled / scale and not imgui.is_window_hovered():
        imgui.set_scroll_y(imgui.get_scroll_y() + top * scale - scrolled)
        user.mark_interface()
    for index in rows.in_sight(scrolled / scale, height / scale):
        row = rows.all[index]
        y = corner.y + round(rows.tops[index] * scale)
        imgui.set_cursor_screen_pos(ImVec2(corner.x, y))
        # Names do not tell entries apart: imgui cuts them at "###", and bytes that are
        # no text are written out.
        imgui.push_id(row.name)
        if row.entry is None:
            _draw_head(user, row.group, width, letters)
        else:
            _draw_entry(user, row, row.entry, width, letters)
        imgui.pop_id()
    imgui.set_cursor_screen_pos(corner)
    imgui.dummy(ImVec2(width, rows.tops[-1] * scale))


# -- rows ------------------------------------------------------------------------------


def _draw_head(
    user: User, group: RunGroup, width: float, letters: dict[str, str]
) -> None:
    """Draw the head of a run, or of the files; a press folds and unfolds it."""
    scale = theme.scale()
    sizes = _sizes(user)
    imgui.set_next_item_allow_overlap()
    item = controls.item(f"##{printable(group.key)}", width, sizes.head * scale)
    opens_menu = _asks_for_menu()
    is_folded = group.key in user.interface.state.folded_runs
    state = state_of(group)
    if item.pressed:
        user.do(fold, user, group.key)
    middle = item.middle[1]
    right = item.x + item.width - sizes.margin * scale
    is_over = _is_pointed(item)
    side = sizes.more * scale
    opens_menu |= _draw_more(right - side, middle, side, is_lit=True)
    draw = imgui.get_window_draw_list()
    x = item.x + (sizes.margin + 4) * scale
    caret = "down"
    if is_folded:
        caret = "right"
    icons.draw(draw, caret, (x + 6 * scale, middle), _ink(is_over), icons.CARET_SIZE)
    x += 20 * scale
    hidden = [letters[entry.key] for entry in group.entries if entry.key in letters]
    if is_folded and hidden:
        draw_badge(hidden[0], x, middle)
        x += 26 * scale
    else:
        _draw_group_sign(group, state, x, middle)
        x += 16 * scale
    right -= side + 8 * scale
    with theme.font_size(theme.SMALL_SIZE):
        text = group_words(user, group, state)
        right = write_right(text, right, middle, hue_color(state))
    with theme.bold():
        ink = _ink(state.mode == "training")
        write(group.title, x, middle, ink, right - x - 8 * scale)
    _draw_row_menu(user, item, partial(head_menu, user, group), opens_menu)


def _ink(is_lit: bool) -> ImVec4:
    """Return the colour of letters: dim where they are not lit."""
    if is_lit:
        return theme.TEXT
    return theme.DIM


def _draw_group_sign(group: RunGroup, state: RunState, x: float, middle: float) -> None:
    """Draw the dot of a run's state, or the icon of what is no run, from a pixel x on."""
    scale = theme.scale()
    draw = imgui.get_window_draw_list()
    center = (x + 4 * scale, middle)
    if group.is_run:
        color = theme.u32(hue_color(state))
        draw.add_circle_filled(ImVec2(*center), 4 * scale, color, 16)
    elif group.key == "Files":
        icons.draw(draw, "file", center, theme.DIM, icons.CARET_SIZE)
    else:
        icons.draw(draw, "together", center, theme.DIM, icons.CARET_SIZE)


def _draw_entry(
    user: User, row: Row, entry: Entry, width: float, letters: dict[str, str]
) -> None:
    """Draw the row of an entry, its tip and its menu."""
    scale = theme.scale()
    sizes = _sizes(user)
    corner = imgui.get_cursor_screen_pos()
    x = corner.x + sizes.margin * scale
    imgui.set_cursor_screen_pos(ImVec2(x, corner.y))
    imgui.set_next_item_allow_overlap()
    width -= 2 * sizes.margin * scale
    item = controls.item(row.item_name, width, sizes.row * scale)
    if item.pressed:
        _show(user, entry)
    opens_menu = _asks_for_menu()
    is_focused = bool(imgui.is_item_focused())
    if is_focused:
        _take_delete_key(user, entry)
    if item.hovered:
        controls.tip(tip_of(entry))
    is_chosen = entry.key == user.state.selected
    is_over = _is_pointed(item)
    ink = _draw_ground(item, is_chosen, is_over)
    middle = item.middle[1]
    right = item.x + item.width - 4 * scale
    is_lit = is_over or is_chosen or is_focused
    side = sizes.more * scale
    opens_menu |= _draw_more(right - side, middle, side, is_lit, ink)
    right -= side + 10 * scale
    sign_ink = theme.FAINT
    fact_ink = theme.DIM
    if is_chosen:
        sign_ink = ink
        fact_ink = ink
    x = _draw_sign(item, entry, letters.get(entry.key, ""), sign_ink)
    with theme.font_size(theme.SMALL_SIZE):
        fact = fact_of(user, entry)
        right = write_right(fact, right, middle, fact_ink) - 10 * scale
    if row.folder:
        folder_width = right - x - lettering.measure(row.text).x
        # Of the two, the name within the folder is the one that is not cut.
        if folder_width > _LEAST_FOLDER * scale:
            folder = fitted(row.folder, folder_width, tail=True)
            x = write(folder, x, middle, fact_ink)
    write(row.text, x, middle, ink, right - x)
    if entry.progress is not None:
        _draw_progress(item, entry.progress)
    _draw_row_menu(user, item, partial(entry_menu, user, entry), opens_menu)


def _take_delete_key(user: User, entry: Entry) -> None:
    """Take an entry out of the list if the Delete key is pressed, and it can be."""
    is_pressed = imgui.is_key_pressed(imgui.Key.delete, False)
    if is_pressed and why_not_taken_out(entry) is None:
        user.do(take_out, user, [entry.key])


def _show(user: User, entry: Entry) -> None:
    """Show an entry that was pressed; with Ctrl or Shift beside what is shown."""
    io = imgui.get_io()
    if io.key_ctrl or io.key_shift:
        user.do(user.show_beside, entry.key)
    else:
        user.do(user.choose, entry.key)


def _draw_ground(item: controls.Item, is_chosen: bool, is_over: bool) -> ImVec4:
    """Draw what lies under a row; return the colour of its letters."""
    color = theme.FIELD
    ink = theme.TEXT
    if is_chosen:
        color = theme.CHOSEN_GROUND
        ink = theme.ON_CHOSEN
    elif item.is_held:
        color = theme.DOWN
    if is_chosen or is_over:
        draw = imgui.get_window_draw_list()
        rounding = theme.FIELD_ROUNDING * theme.scale()
        draw.add_rect_filled(item.low, item.high, theme.u32(color), rounding)
    return ink


def _draw_sign(item: controls.Item, entry: Entry, letter: str, ink: ImVec4) -> float:
    """Draw the icon of a row, or its letter; return the pixel x where its name begins."""
    scale = theme.scale()
    x = item.x + 10 * scale
    if letter:
        draw_badge(letter, x - scale, item.middle[1])
    else:
        icon = icons.of_kind(entry.kind)
        color = ink
        if entry.fault or entry.fault_of_source:
            icon = "warning"
            color = theme.FAULT
        center = (x + 8 * scale, item.middle[1])
        icons.draw(imgui.get_window_draw_list(), icon, center, color, icons.SIZE)
    return x + 26 * scale


def _draw_more(
    x: float, middle: float, side: float, is_lit: bool, ink: ImVec4 | None = None
) -> bool:
    """Draw the button for a row's menu, if it is lit; return True if it was pressed."""
    scale = theme.scale()
    if not is_lit:
        return False
    imgui.set_cursor_screen_pos(ImVec2(x, middle - side / 2))
    imgui.push_item_flag(imgui.ItemFlags_.no_nav.value, True)
    item = controls.item("##more", side, side)
    imgui.pop_item_flag()
    draw = imgui.get_window_draw_list()
    if item.hovered or item.is_held:
        color = theme.HOVER
        if item.is_held:
            color = theme.DOWN
        draw.add_rect_filled(item.low, item.high, theme.u32(color), 4 * scale)
    icons.draw(draw, "more", item.middle, ink or theme.DIM, icons.SIZE)
    return item.pressed


def _draw_progress(item: controls.Item, progress: float) -> None:
    """Draw a line below a row that loads."""
    scale = theme.scale()
    bottom = item.y + item.height
    draw = imgui.get_window_draw_list()
    for share, color in ((1.0, theme.LINE), (max(progress, 0.02), theme.ACCENT)):
        low = ImVec2(item.x, bottom - 2 * scale)
        high = ImVec2(item.x + item.width * share, bottom)
        draw.add_rect_filled(low, high, theme.u32(color), scale)


def _is_pointed(item: controls.Item) -> bool:
    """Return whether the pointer is over a row, also over its button."""
    if not imgui.is_window_hovered(
        imgui.HoveredFlags_.allow_when_blocked_by_active_item
    ):
        return False
    return bool(imgui.is_mouse_hovering_rect(item.low, item.high))


def _draw_row_menu(
    user: User,
    item: controls.Item,
    rows: Callable[[], Sequence[MenuRow | None]],
    is_asked_for: bool,
) -> None:
    """Draw the menu of a row while it is open.

    Args:
        user: whose list it is.
        item: the row.
        rows: returns those of the menu.
        is_asked_for: True to open it now.
    """
    if is_asked_for:
        open_menu(_MENU)
    if imgui.is_popup_open(_MENU):
        draw_ring(item)
        draw_menu(_MENU, rows(), _menu_corner(user, item))


def _menu_corner(user: User, item: controls.Item) -> tuple[float, float]:
    """Return where the menu of a row opens: beside the panel, which stays readable."""
    panel = user.interface.zones.panel
    scale = theme.scale()
    return panel.x + panel.width + 6 * scale, item.y - 6 * scale


def _asks_for_menu() -> bool:
    """Return whether the last item's menu is asked for, by a right click or by key."""
    right = imgui.MouseButton_.right
    is_clicked = imgui.is_item_hovered() and imgui.is_mouse_released(right)
    return is_clicked or is_menu_key_pressed()
