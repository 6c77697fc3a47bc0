"""The list of streams in the panel: runs with their streams, files, and their menus.

Rows never change their order while runs come and go. Only those in sight are drawn: a
list may have thousands.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from imgui_bundle import ImVec2, imgui

from splatview_ipc.system.terminal import printable
from splatview_viewer import kinds
from splatview_viewer.core.screen import Caption
from splatview_viewer.shell.menu import (
    draw_menu,
    draw_ring,
    is_menu_key_pressed,
    open_menu,
)
from splatview_viewer.shell.runs import group_words, hue_color, rate_text, state_of
from splatview_viewer.shell.stream_menus import (
    entry_menu,
    fold,
    head_menu,
    take_out,
    why_not_taken_out,
)
from splatview_viewer.ui import controls, icons, theme
from splatview_viewer.ui.words import write, write_right

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imgui_bundle import ImVec4

    from splatview_viewer.core.settings import Entry
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
_AHEAD = 2
"""Rows beyond those in sight that are placed, so that arrows reach them."""
_LEAST_HZ = 0.05
"""Publishes a second below which a stream's rate is not told."""


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
        return f"{'pinned' if self.is_pinned else 'row'} {id(self.entry)}"

    def height(self, sizes: _Sizes) -> float:
        """Return its points."""
        return sizes.head if self.entry is None else sizes.row


class Rows:
    """The rows of one user's list, made anew when the list or a choice has changed."""

    def __init__(self) -> None:
        self.all: Sequence[Row] = ()
        self.tops: Sequence[float] = (0.0,)
        """Points from the top of the list to each row, and to the end."""
        self._made_of: tuple[object, ...] = ()
        self._revealed: str | None = None
        """The key of the entry that was chosen last."""

    def update(self, user: User) -> None:
        """Take in what has changed."""
        state = user.interface.state
        groups = user.interface.groups.update(user)
        changes = user.catalogue.list_changes
        sizes = _sizes(user)
        made_of = (changes, tuple(state.pinned), frozenset(state.folded_runs), sizes)
        if made_of == self._made_of:
            return
        self._made_of = made_of
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
        for number, row in enumerate(self.all):
            if row.entry is None or row.entry.key != key:
                continue
            least = self.tops[number + 1] - height
            return min(max(top, least), self.tops[number])
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
        by_pin = {e.lasting_name: (group, e) for group in groups for e in group.entries}
        found = [by_pin[pin] for pin in pinned if pin in by_pin]
        rows += [Row(group, entry, is_pinned=True) for group, entry in found]
    for group in groups:
        rows.append(Row(group))
        if group.key not in folded:
            rows += [Row(group, entry) for entry in group.entries]
    return rows


def _sizes(user: User) -> _Sizes:
    return _PHONE if user.interface.zones.form == "phone" else _DESK


def draw_list(user: User) -> None:
    """Draw the rows that are in sight, and the menu that is open."""
    if not user.state.entries:
        _draw_empty(user)
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
    begin = rows.reveal(user.state.selected, scrolled / scale, height / scale)
    # Nothing moves under the pointer.
    if begin != scrolled / scale and not imgui.is_window_hovered():
        imgui.set_scroll_y(imgui.get_scroll_y() + begin * scale - scrolled)
        user.mark_interface()
    for number in rows.in_sight(scrolled / scale, height / scale):
        row = rows.all[number]
        y = corner.y + round(rows.tops[number] * scale)
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


def _draw_empty(user: User) -> None:
    """Say that there is no run yet, and offer to open a file."""
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    imgui.set_cursor_screen_pos(ImVec2(corner.x + 12 * scale, corner.y + 10 * scale))
    imgui.begin_group()
    with theme.bold():
        imgui.text_unformatted("No run yet")
    width = imgui.get_content_region_avail().x - 24 * scale
    imgui.push_text_wrap_pos(imgui.get_cursor_pos_x() + width)
    imgui.push_style_color(imgui.Col_.text, theme.u32(theme.DIM))
    imgui.text_unformatted(
        "Runs appear here when a script publishes, before or after this viewer was "
        "started."
    )
    imgui.pop_style_color()
    imgui.dummy(ImVec2(0, 4 * scale))
    if controls.button("Open a file", "open", height=30, look="primary"):
        user.do(user.interface.footer.open_files, user)
    imgui.dummy(ImVec2(0, 4 * scale))
    imgui.push_style_color(imgui.Col_.text, theme.u32(theme.FAINT))
    with theme.font_size(theme.SMALL_SIZE):
        imgui.text_unformatted(
            "Or drop a scene, a picture or a memory snapshot anywhere."
        )
        imgui.pop_text_wrap_pos()
        imgui.text_unformatted("No script at hand?")
        imgui.same_line(0, 4 * scale)
        imgui.push_style_color(imgui.Col_.text, theme.u32(theme.TEXT))
        with theme.code(theme.SMALL_SIZE):
            imgui.text_unformatted("splatview demo")
        imgui.pop_style_color()
        imgui.same_line(0, 4 * scale)
        imgui.text_unformatted("trains a small scene.")
    imgui.pop_style_color()
    imgui.end_group()


# -- rows ------------------------------------------------------------------------------


def _draw_head(
    user: User, group: RunGroup, width: float, letters: dict[str, str]
) -> None:
    """Draw the head of a run, or of the files; a press folds and unfolds it."""
    scale = theme.scale()
    sizes = _sizes(user)
    imgui.set_next_item_allow_overlap()
    of = controls.item(f"##{printable(group.key)}", width, sizes.head * scale)
    opens_menu = _asks_for_menu()
    is_folded = group.key in user.interface.state.folded_runs
    state = state_of(group)
    if of.pressed:
        user.do(fold, user, group.key)
    middle = of.middle[1]
    right = of.x + of.width - sizes.margin * scale
    is_over = _is_pointed(of)
    more = sizes.more * scale
    opens_menu |= _draw_more(right - more, middle, more, is_lit=True)
    draw = imgui.get_window_draw_list()
    x = of.x + (sizes.margin + 4) * scale
    caret = "right" if is_folded else "down"
    ink = theme.TEXT if is_over else theme.DIM
    icons.draw(draw, caret, (x + 6 * scale, middle), ink, icons.CARET_SIZE)
    x += 20 * scale
    hidden = [letters[entry.key] for entry in group.entries if entry.key in letters]
    if is_folded and hidden:
        _draw_badge(hidden[0], x, middle)
        x += 26 * scale
    elif group.is_run:
        dot = ImVec2(x + 4 * scale, middle)
        draw.add_circle_filled(dot, 4 * scale, theme.u32(hue_color(state)), 16)
        x += 16 * scale
    else:
        icon = "file" if group.key == "Files" else "together"
        icons.draw(draw, icon, (x + 4 * scale, middle), theme.DIM, icons.CARET_SIZE)
        x += 16 * scale
    is_training = state.mode == "training"
    right -= more + 8 * scale
    with theme.font_size(theme.SMALL_SIZE):
        color = theme.FAINT if state.hue == "faint" else hue_color(state)
        words = group_words(user, group, state)
        right = write_right(words, right, middle, color)
    with theme.bold():
        ink = theme.TEXT if is_training else theme.DIM
        write(group.title, x, middle, ink, right - x - 8 * scale)
    if opens_menu:
        open_menu(_MENU)
    if imgui.is_popup_open(_MENU):
        draw_ring(of)
        draw_menu(_MENU, head_menu(user, group), _beside(user, of))


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
    # The names of drawn items tell pinned rows apart.
    pin = "pinned " if row.is_pinned else ""
    name = f"##{pin}{printable(entry.key)}"
    of = controls.item(name, width, sizes.row * scale)
    if of.pressed:
        held = imgui.get_io()
        beside = held.key_ctrl or held.key_shift
        user.do(user.show_beside if beside else user.choose, entry.key)
    opens_menu = _asks_for_menu()
    is_focused = bool(imgui.is_item_focused())
    asks_to_go = is_focused and imgui.is_key_pressed(imgui.Key.delete, False)
    if asks_to_go and why_not_taken_out(entry) is None:
        user.do(take_out, user, [entry.key])
    controls.tip(_tip(entry))
    is_chosen = entry.key == user.state.selected
    is_over = _is_pointed(of)
    ink = _draw_ground(of, is_chosen, is_over)
    middle = of.middle[1]
    right = of.x + of.width - 4 * scale
    is_lit = is_over or is_chosen or is_focused
    more = sizes.more * scale
    opens_menu |= _draw_more(right - more, middle, more, is_lit, ink)
    right -= more + 10 * scale
    sign_ink = ink if is_chosen else theme.FAINT
    x = _draw_sign(of, entry, letters.get(entry.key, ""), sign_ink)
    with theme.font_size(theme.SMALL_SIZE):
        fact = fact_of(user, entry)
        color = ink if is_chosen else theme.DIM
        right = write_right(fact, right, middle, color) - 10 * scale
    text = f"{entry.name}  \u00b7  {row.group.title}" if row.is_pinned else entry.name
    write(text, x, middle, ink, right - x)
    if entry.progress is not None:
        _draw_progress(of, entry.progress)
    if opens_menu:
        open_menu(_MENU)
    if imgui.is_popup_open(_MENU):
        draw_ring(of)
        draw_menu(_MENU, entry_menu(user, entry), _beside(user, of))


def _draw_ground(of: controls.Item, is_chosen: bool, is_over: bool) -> ImVec4:
    """Draw what lies under a row; return the colour of its letters."""
    color = theme.CHOSEN_GROUND
    if not is_chosen:
        color = theme.DOWN if of.is_held else theme.FIELD
    if is_chosen or is_over:
        draw = imgui.get_window_draw_list()
        rounding = theme.FIELD_ROUNDING * theme.scale()
        draw.add_rect_filled(of.low, of.high, theme.u32(color), rounding)
    return theme.ON_CHOSEN if is_chosen else theme.TEXT


def _draw_sign(of: controls.Item, entry: Entry, letter: str, ink: ImVec4) -> float:
    """Draw the icon of a row, or its letter; return the pixel x where its name begins."""
    scale = theme.scale()
    x = of.x + 10 * scale
    if letter:
        _draw_badge(letter, x - scale, of.middle[1])
    else:
        has_fault = bool(entry.fault or entry.fault_of_source)
        icon = "warning" if has_fault else icons.of_kind(entry.kind)
        color = theme.FAULT if has_fault else ink
        center = (x + 8 * scale, of.middle[1])
        icons.draw(imgui.get_window_draw_list(), icon, center, color, icons.SIZE)
    return x + 26 * scale


def _draw_badge(letter: str, x: float, middle: float) -> None:
    color = theme.run_color("AB".index(letter))
    controls.badge(letter, color, (x, middle - 9 * theme.scale()))


def _draw_more(
    x: float, middle: float, side: float, is_lit: bool, ink: ImVec4 | None = None
) -> bool:
    """Draw the button for a row's menu, if it is lit; return True if it was pressed."""
    scale = theme.scale()
    if not is_lit:
        return False
    imgui.set_cursor_screen_pos(ImVec2(x, middle - side / 2))
    imgui.push_item_flag(imgui.ItemFlags_.no_nav.value, True)
    of = controls.item("##more", side, side)
    imgui.pop_item_flag()
    draw = imgui.get_window_draw_list()
    if of.hovered or of.is_held:
        color = theme.DOWN if of.is_held else theme.HOVER
        draw.add_rect_filled(of.low, of.high, theme.u32(color), 4 * scale)
    icons.draw(draw, "more", of.middle, ink or theme.DIM, icons.SIZE)
    return of.pressed


def _draw_progress(of: controls.Item, progress: float) -> None:
    """Draw a line below a row that loads."""
    scale = theme.scale()
    bottom = of.y + of.height
    draw = imgui.get_window_draw_list()
    for share, color in ((1.0, theme.LINE), (max(progress, 0.02), theme.ACCENT)):
        low = ImVec2(of.x, bottom - 2 * scale)
        high = ImVec2(of.x + of.width * share, bottom)
        draw.add_rect_filled(low, high, theme.u32(color), scale)


def _is_pointed(of: controls.Item) -> bool:
    """Return whether the pointer is over a row, also over its button."""
    if not imgui.is_window_hovered(
        imgui.HoveredFlags_.allow_when_blocked_by_active_item
    ):
        return False
    return bool(imgui.is_mouse_hovering_rect(of.low, of.high))


def _beside(user: User, of: controls.Item) -> tuple[float, float]:
    """Return where the menu of a row opens: beside the panel, which stays readable."""
    panel = user.interface.zones.panel
    scale = theme.scale()
    return panel.x + panel.width + 6 * scale, of.y - 6 * scale


def _asks_for_menu() -> bool:
    """Return whether the last item's menu is asked for, by a right click or by key."""
    right = imgui.MouseButton_.right
    is_clicked = imgui.is_item_hovered() and imgui.is_mouse_released(right)
    return is_clicked or is_menu_key_pressed()


# -- what rows say ---------------------------------------------------------------------


def fact_of(user: User, entry: Entry) -> str:
    """Return the one fact that a row tells of its entry."""
    if entry.progress is not None:
        return f"{entry.progress:.0%}"
    if entry.fault or entry.fault_of_source:
        return ""
    kind = kinds.about(entry.kind)
    if not entry.alive and entry.step is not None and not kind.strip:
        return f"step {entry.step:,.12g}"
    if entry.count is not None:
        return f"{entry.count:,}"
    slot = user.catalogue.slots.get(entry.key)
    view = None if slot is None else slot.view
    if view is not None and not view.empty and view.kind == entry.kind:
        fact = kind.fact(view.content)
        if fact:
            return fact
    if entry.is_file or not entry.alive:
        return ""
    return f"{rate_text(entry.rate_hz)} /s" if entry.rate_hz >= _LEAST_HZ else ""


def _tip(entry: Entry) -> str:
    """Return what a row says once the pointer rests on it."""
    fault = entry.fault or entry.fault_of_source
    if fault:
        return f"{printable(entry.name)} cannot be shown: {fault}"
    if entry.is_file:
        return f"{printable(entry.key)}\n{entry.kind or 'being read'}"
    alive = "publishing" if entry.alive else "its run has ended"
    return f"{entry.kind}, version {entry.version:,}, {alive}"


def letters_of(user: User) -> dict[str, str]:
    """Return the letters of the entries that are compared, by their keys."""
    if len(user.layout) < 2:
        return _letters_of_view(user)
    letters = {}
    for viewport in user.layout:
        for feature in user.catalogue.features:
            badge = feature.note(viewport).badge
            if badge and viewport.key is not None:
                letters[viewport.key] = badge
    return letters


def _letters_of_view(user: User) -> dict[str, str]:
    """Return the letters of the entries that the only pane compares in one picture."""
    view = user.view
    if view is None or view.empty:
        return {}
    letters = {}
    for letter, data in view.view.compared().items():
        for slot in user.catalogue.slots.values():
            if slot.content is data:
                letters[slot.entry.key] = letter
    return letters


def caption_of(entry: Entry | None, typing: bool) -> Caption:
    """Return the title of the window or tab that shows this entry."""
    if entry is None:
        return Caption(typing=typing)
    title = f"{printable(entry.name)} \u00b7 {printable(entry.group)} \u2013 splatview"
    # That its run ended is said by a card over the picture.
    return Caption(title, "", typing)
