"""Menus: popups of rows, each with an icon, a title and its key.

All menus of the interface are drawn here: that of the top bar, of streams, of strips.

    if controls.icon_button("more", "menu of the pane"):
        open_menu("pane")
    open_on_item("pane")  # a right click or the Menu key on the last item
    draw_menu("pane", rows)

`open_menu` and `draw_menu` are called in the same window, with the same IDs pushed. A
menu owns keyboard and pointer while it is open, the press that closes it does nothing
else, and its first row has the focus when a key opened it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.shell.commands import named
from splatview_viewer.ui import controls, icons, lettering, theme
from splatview_viewer.ui.widgets import fitted
from splatview_viewer.ui.words import write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imgui_bundle import ImVec4

    from splatview_viewer.core.command import Command
    from splatview_viewer.shell.user import User

_PAD = 6.0
"""Points around the rows, the border included."""
_RULE_HEIGHT = 11.0
_ROW_PAD = 10.0
_ICON_WIDTH = 16.0
_GAP = 10.0
_KEYS_GAP = 24.0
_LEAST_WIDTH = 240.0
_MOST_WIDTH = 440.0
_TIP_WIDTH = 270.0
_RING = 1.5
"""Points of the line around the focused row."""


@dataclass(frozen=True)
class MenuRow:
    """A row of a menu."""

    title: str
    """As an action: "Show beside". It names the row for imgui: no two are alike."""
    run: Callable[[], object]
    """Does it; called while drawing, so it goes through `user.do`."""
    icon: str = ""
    """One of `ui.icons`."""
    keys: str = ""
    """Its shortcut, at the right: "Ctrl Enter". A phone has none."""
    reason: str | None = None
    """Why it cannot be done now, at the right of the row; None: it can."""
    tip: str = ""
    """Explains it on a card beside the menu."""
    fact: str = ""
    """A fact in the place of its shortcut."""

    @property
    def side_text(self) -> str:
        """Text at the right of the row."""
        if self.reason or self.fact:
            return self.reason or self.fact
        if theme.is_touch():
            return ""
        return self.keys


RULE = None
"""Stands in a list of rows for a line between two groups."""


def command_row(user: User, command: Command[User], title: str = "") -> MenuRow:
    """Return the row of one of the viewer's own commands.

    title: in place of the command's own.
    """

    def run() -> None:
        user.do(command.run, user)

    return MenuRow(
        title or command.title,
        run,
        command.icon,
        command.main_keys,
        command.reason(user),
    )


def open_menu(name: str) -> None:
    """Open a menu; `draw_menu` of the same name draws it from this frame on."""
    imgui.open_popup(name)


def open_on_item(name: str) -> None:
    """Open a menu if the last item was clicked on the right, or has the Menu key."""
    flags = imgui.HoveredFlags_.allow_when_blocked_by_popup.value
    is_clicked = imgui.is_item_hovered(flags) and imgui.is_mouse_released(
        imgui.MouseButton_.right
    )
    if is_clicked or is_menu_key_pressed():
        open_menu(name)


def is_menu_key_pressed() -> bool:
    """Return True if the last item has the focus and its menu was asked for by key."""
    if not imgui.is_item_focused():
        return False
    has_shift = imgui.get_io().key_shift
    return imgui.is_key_pressed(imgui.Key.menu, False) or (
        has_shift and imgui.is_key_pressed(imgui.Key.f10, False)
    )


def draw_menu(
    name: str,
    rows: Sequence[MenuRow | None],
    corner: tuple[float, float] | None = None,
) -> bool:
    """Draw a menu while it is open, and run the row that was chosen.

    Args:
        name: for imgui.
        rows: from above; `RULE` for a line.
        corner: the pixel of its upper left corner, moved so that all of it is on the
            screen; without, it opens at the pointer, or at the focused control.

    Returns:
        True while it is open.
    """
    if not imgui.is_popup_open(name):
        return False
    scale = theme.scale()
    screen = imgui.get_io().display_size.x
    width = min(_menu_width(rows) * scale, screen - 8 * scale)
    if corner is not None:
        imgui.set_next_window_pos(_corner_on_screen(rows, width, corner))
    pad = ImVec2(_PAD * scale, _PAD * scale)
    imgui.push_style_var(imgui.StyleVar_.window_padding, pad)
    imgui.push_style_var(imgui.StyleVar_.item_spacing, ImVec2(0, 0))
    is_open = imgui.begin_popup(name)
    chosen_row: MenuRow | None = None
    if is_open:
        imgui.dummy(ImVec2(width - 2 * _PAD * scale, 0))
        context = imgui.get_current_context()
        is_first = context.nav_cursor_visible
        if imgui.is_window_appearing() and not is_first:
            # The first arrow then goes to the first row, not to the second.
            context.nav_init_request = False
        for row in rows:
            if row is None:
                _draw_rule(width - 2 * _PAD * scale)
                continue
            if _draw_row(row, width - 2 * _PAD * scale):
                chosen_row = row
            if is_first and row.reason is None:
                is_first = False
                imgui.set_item_default_focus()
        if chosen_row is not None:
            imgui.close_current_popup()
        imgui.end_popup()
    imgui.pop_style_var(2)
    if chosen_row is not None:
        chosen_row.run()
    return bool(is_open)


def _menu_width(rows: Sequence[MenuRow | None]) -> float:
    """Return the points that the widest row of a menu needs."""
    widest = 0.0
    for row in rows:
        if row is None:
            continue
        width = lettering.measure(row.title).x
        with theme.font_size(theme.SMALL_SIZE):
            if row.side_text:
                width += lettering.measure(row.side_text).x + _KEYS_GAP * theme.scale()
        widest = max(widest, width)
    points = widest / theme.scale() + 2 * (_ROW_PAD + _PAD) + _ICON_WIDTH + _GAP
    return min(max(points, _LEAST_WIDTH), _MOST_WIDTH)


def _corner_on_screen(
    rows: Sequence[MenuRow | None], width: float, corner: tuple[float, float]
) -> ImVec2:
    """Return the pixel of a menu's corner, so that all of it is on the screen."""
    scale = theme.scale()
    rules = rows.count(RULE)
    rows_height = (len(rows) - rules) * theme.ROW_HEIGHT
    height = (rows_height + rules * _RULE_HEIGHT + 2 * _PAD) * scale
    size = imgui.get_io().display_size
    gap = 4 * scale
    x = max(min(corner[0], size.x - width - gap), gap)
    y = max(min(corner[1], size.y - height - gap), gap)
    return ImVec2(round(x), round(y))


def _draw_rule(width: float) -> None:
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    y = round(corner.y + _RULE_HEIGHT * scale / 2)
    left = ImVec2(corner.x + 4 * scale, y)
    right = ImVec2(corner.x + width - 4 * scale, y)
    imgui.get_window_draw_list().add_line(left, right, theme.u32(theme.LINE))
    imgui.dummy(ImVec2(width, _RULE_HEIGHT * scale))


def _draw_row(row: MenuRow, width: float) -> bool:
    """Draw a row; return True if it was chosen."""
    enabled = row.reason is None
    height = theme.ROW_HEIGHT * theme.scale()
    item = controls.item(f"{row.title}##menu", width, height, enabled=enabled)
    is_focused = imgui.is_item_focused() and imgui.get_io().nav_visible
    ink = theme.FAINT
    ink_dim = theme.FAINT
    if enabled:
        ink = theme.TEXT
        ink_dim = theme.DIM
    if enabled and (is_focused or item.hovered):
        draw_chosen(item, ring=bool(is_focused))
        ink = theme.ON_CHOSEN
        ink_dim = theme.ON_CHOSEN
    right = draw_words(item, row.side_text, ink_dim)
    x = draw_icon(item, row.icon, ink_dim)
    write(row.title, x, item.middle[1], ink, right - x)
    if row.tip and (is_focused or imgui.is_item_hovered(_TIP_FLAGS)):
        _draw_tip(row, item)
    return item.pressed and enabled


_TIP_FLAGS = imgui.HoveredFlags_.for_tooltip.value


def draw_chosen(item: controls.Item, *, ring: bool) -> None:
    """Draw the ground of the row that Enter or a click would choose."""
    scale = theme.scale()
    draw = imgui.get_window_draw_list()
    draw.add_rect_filled(item.low, item.high, theme.u32(theme.CHOSEN_GROUND), 4 * scale)
    if ring:
        draw_ring(item)


def draw_ring(item: controls.Item) -> None:
    """Draw the line around the row that is chosen, or whose menu is open."""
    scale = theme.scale()
    half = _RING * scale / 2
    imgui.get_window_draw_list().add_rect(
        ImVec2(item.x + half, item.y + half),
        ImVec2(item.x + item.width - half, item.y + item.height - half),
        theme.u32(theme.ACCENT),
        4 * scale,
        _RING * scale,
    )


def draw_icon(item: controls.Item, icon: str, color: ImVec4) -> float:
    """Draw the icon of a row; return the pixel x where its title begins."""
    scale = theme.scale()
    x = item.x + _ROW_PAD * scale
    if icon:
        center = (x + _ICON_WIDTH * scale / 2, item.middle[1])
        icons.draw(imgui.get_window_draw_list(), icon, center, color, icons.TEXT_SIZE)
    return x + (_ICON_WIDTH + _GAP) * scale


def draw_words(item: controls.Item, text: str, color: ImVec4) -> float:
    """Write at the right of a row; return the pixel x where its title has to end."""
    scale = theme.scale()
    right = item.x + item.width - _ROW_PAD * scale
    if not text:
        return right
    with theme.font_size(theme.SMALL_SIZE):
        text = fitted(text, item.width * 0.6)
        x = round(right - lettering.measure(text).x)
        y = round(item.middle[1] - imgui.get_text_line_height() / 2)
        draw = imgui.get_window_draw_list()
        lettering.write(draw, x, y, theme.u32(color), text)
    return x - _GAP * scale


def _draw_tip(row: MenuRow, item: controls.Item) -> None:
    """Draw the card beside a menu that explains a row."""
    scale = theme.scale()
    low = imgui.get_window_pos()
    x = low.x + imgui.get_window_width() + 8 * scale
    if x + _TIP_WIDTH * scale > imgui.get_io().display_size.x:
        x = max(low.x - (_TIP_WIDTH + 8) * scale, 0)
    imgui.set_next_window_pos(ImVec2(round(x), round(item.y)))
    imgui.push_style_var(imgui.StyleVar_.window_padding, ImVec2(11 * scale, 8 * scale))
    imgui.push_style_var(imgui.StyleVar_.window_rounding, theme.POPUP_ROUNDING * scale)
    if imgui.begin_tooltip():
        imgui.push_text_wrap_pos((_TIP_WIDTH - 22) * scale)
        with theme.bold(theme.FONT_SIZE):
            imgui.text_unformatted(row.title)
        imgui.push_style_color(imgui.Col_.text, theme.u32(theme.DIM))
        imgui.text_unformatted(row.tip)
        imgui.pop_style_color()
        imgui.pop_text_wrap_pos()
        imgui.end_tooltip()
    imgui.pop_style_var(2)


def draw_main_menu(user: User, corner: tuple[float, float] | None = None) -> bool:
    """Draw the menu of the whole viewer while it is open: `open_menu(MAIN_MENU)`.

    Returns True while it is open.
    """
    if not imgui.is_popup_open(MAIN_MENU):
        return False
    titles = _titles_now(user)
    rows: list[MenuRow | None] = []
    for group in _MAIN_GROUPS:
        if rows:
            rows.append(RULE)
        rows += [command_row(user, named(name), titles.get(name, "")) for name in group]
    return draw_menu(MAIN_MENU, rows, corner)


def _titles_now(user: User) -> dict[str, str]:
    """Return what commands that switch something would do now, by their names."""
    titles = {
        "panel.toggle": "Show the panel",
        "time.fold": "Fold the time area",
        "theme.switch": "Light colours",
        "units.switch": "Memory in GB",
        "pane.alone": "This pane alone",
    }
    if user.has_panel:
        titles["panel.toggle"] = "Hide the panel"
    if user.interface.state.time_folded:
        titles["time.fold"] = "Open the time area"
    if user.state.light:
        titles["theme.switch"] = "Dark colours"
    if user.interface.state.decimal_bytes:
        titles["units.switch"] = "Memory in GiB"
    if user.layout.maximised:
        titles["pane.alone"] = "All panes again"
    return titles


MAIN_MENU = "main menu"
_MAIN_GROUPS = (
    ("file.open", "picture.save", "picture.save_transparent"),
    ("pane.beside", "pane.alone", "pane.close"),
    ("panel.toggle", "time.fold", "screen.full", "theme.switch", "units.switch"),
    ("performance.show", "keys.list", "about.show"),
)
"""Names of commands of the main menu."""
