"""The list of keys, over the picture.

It is made from the tables of commands, and from what views say of the pointer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import KeyHelp
from splatview_viewer.shell.commands import COMMANDS
from splatview_viewer.shell.palette import cap_width, draw_cap
from splatview_viewer.ui import lettering, theme
from splatview_viewer.ui.boards import SHOWING_FLAGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from splatview_viewer.core.command import Command
    from splatview_viewer.shell.user import User

_ROW = 25.0
"""Points of a line, of the head of a group, and of the space below a group."""
_HEAD = 30.0
_AFTER = 12.0
_PAD = 24.0
_KEYS_GAP = 16.0
_CAP_GAP = 6.0
_COLUMN_GAP = 40.0
_MOST_COLUMNS = 4
_LEAST_SCALE = 0.5
_GROUPS = {
    "scene": "Scene",
    "camera": "Camera",
    "bookmark": "Camera",
    "training": "Training cameras",
    "history": "Training",
    "path": "Camera path",
    "tool": "Scene",
}
"""Groups of a view's commands by the first part of their names."""
_INTERFACE = (
    KeyHelp("Interface", "Tab, Shift Tab", "The next control, the one before"),
    KeyHelp("Interface", "Enter", "Press it; type the number of a slider"),
    KeyHelp(
        "Interface", "Arrows, Shift + arrows", "Move it a little, ten times as far"
    ),
    KeyHelp("Interface", "Backspace", "Its default"),
    KeyHelp("Interface", "Menu, Shift F10", "Its menu"),
    KeyHelp("Interface", "Escape", "One layer back; the full screen last"),
)
"""Keys of a control that the keyboard has chosen, which are no commands."""
_FIRST = ("Camera", "Picture", "Scene", "Plots")
"""Groups that most people look for."""


class KeyGroup(NamedTuple):
    """Lines of the list under a heading."""

    name: str
    lines: list[KeyHelp]

    @property
    def height(self) -> float:
        """Points that it takes."""
        return _HEAD + len(self.lines) * _ROW + _AFTER


def key_lines(user: User) -> list[KeyHelp]:
    """Return the lines of the list: those of the view that is shown, then the viewer's."""
    helps: Sequence[KeyHelp] = ()
    if user.view is not None:
        helps = user.view.view.keys
    commands = user.layout.active.commands()
    return [*lines_of_view(helps, commands), *viewer_lines()]


def lines_of_view(
    helps: Sequence[KeyHelp], commands: Iterable[Command[Any]]
) -> list[KeyHelp]:
    """Return what a view says of its keys, and its commands that it says nothing of."""
    lines = list(helps)
    listed_keys: set[str] = set()
    for line in lines:
        listed_keys.update(_shortcuts_of(line))
    for command in commands:
        if command.keys and command.main_keys not in listed_keys:
            topic = command.name.split(".")[0]
            group = _GROUPS.get(topic, topic.capitalize())
            lines.append(_line_of(command, group))
    return lines


def viewer_lines() -> list[KeyHelp]:
    """Return the lines that the list has whatever is shown."""
    lines = list(_INTERFACE)
    for command in COMMANDS:
        if command.keys or command.typed:
            lines.append(_line_of(command, "Viewer"))
    return lines


def _line_of(command: Command[Any], group: str) -> KeyHelp:
    shortcuts = [*command.keys, command.typed]
    keys = ", ".join(filter(None, shortcuts))
    return KeyHelp(group, keys, command.title)


def caps_of(line: KeyHelp) -> list[str]:
    """Return the keys of a line, each on a cap of its own."""
    return line.keys.replace(" + ", " ").split(", ")


def _shortcuts_of(line: KeyHelp) -> Iterable[str]:
    """Return the shortcuts that a line tells of: "Shift 1" and others of "Shift + 1 to 9"."""
    for keys in caps_of(line):
        first, to, last = keys.partition(" to ")
        if not to:
            yield keys
            continue
        modifiers = first[:-1]
        for digit in range(int(first[-1]), int(last) + 1):
            yield f"{modifiers}{digit}"


def group_lines(user: User) -> list[KeyGroup]:
    """Return the lines of the list by their groups, in the order in which they stand."""
    groups: dict[str, list[KeyHelp]] = {name: [] for name in _FIRST}
    for line in key_lines(user):
        groups.setdefault(line.group, []).append(line)
    return [KeyGroup(name, lines) for name, lines in groups.items() if lines]


def draw_key_list(user: User, picture: Rect, scale: float) -> None:
    """Draw the list of keys in the middle of the picture, as large as it fits."""
    key_groups = group_lines(user)
    screen = imgui.get_io().display_size
    try_rects = (picture, Rect(0, 0, round(screen.x), round(screen.y)))
    tries = []
    for rect in try_rects:
        tries += [_try(key_groups, count, rect, scale) for count in _COUNTS]
    # The first of equal ones: the picture, and few columns.
    best_try = max(tries, key=_Try.rank)
    _draw_columns(best_try, scale * best_try.share)


_COUNTS = range(1, _MOST_COLUMNS + 1)


class _Try(NamedTuple):
    """A way to lay the groups out."""

    share: float
    """Size of the letters, of their usual one."""
    rect: Rect
    columns: list[list[KeyGroup]]
    widths: list[tuple[float, float]]
    """Of each column, points of its keys and of their meaning."""
    width: float
    """Points of all."""
    height: float

    def rank(self) -> float:
        return self.share


def _try(key_groups: Sequence[KeyGroup], count: int, rect: Rect, scale: float) -> _Try:
    """Lay groups out in columns of about the same height."""
    column_height = max(
        _height_of(key_groups) / count,
        max((key_group.height for key_group in key_groups), default=0.0),
    )
    columns: list[list[KeyGroup]] = [[]]
    filled = 0.0
    for key_group in key_groups:
        if (
            columns[-1]
            and len(columns) < count
            and filled + key_group.height / 2 > column_height
        ):
            columns.append([])
            filled = 0.0
        columns[-1].append(key_group)
        filled += key_group.height
    widths = [_widths(column, scale) for column in columns]
    gaps = (len(columns) - 1) * _COLUMN_GAP + 2 * _PAD
    width = sum(keys + _KEYS_GAP + does for keys, does in widths) + gaps
    tallest = max(map(_height_of, columns))
    height = tallest + 2 * _PAD - _AFTER
    share = min(
        1.0,
        0.96 * rect.width / (width * scale),
        0.96 * rect.height / (height * scale),
    )
    return _Try(max(share, _LEAST_SCALE), rect, columns, widths, width, height)


def _height_of(key_groups: Sequence[KeyGroup]) -> float:
    """Return the points that groups take below each other."""
    return sum(key_group.height for key_group in key_groups)


def _widths(column: Sequence[KeyGroup], scale: float) -> tuple[float, float]:
    """Return the points of the widest keys and of the widest meaning in a column."""
    with theme.font_size(theme.SMALL_SIZE):
        lines: list[KeyHelp] = []
        for key_group in column:
            lines += key_group.lines
        keys = max(sum(_cap_widths(line, scale)) for line in lines)
        does = max(lettering.measure(line.does).x for line in lines)
    return keys / scale, does / scale


def _cap_widths(line: KeyHelp, scale: float) -> list[float]:
    caps = caps_of(line)
    return [cap_width(cap) + _CAP_GAP * scale for cap in caps]


def _draw_columns(chosen_try: _Try, scale: float) -> None:
    """Draw the popup and all lines; the pointer goes through it."""
    rect = chosen_try.rect
    width = chosen_try.width * scale
    height = chosen_try.height * scale
    x = round(rect.x + (rect.width - width) / 2)
    y = round(rect.y + (rect.height - height) / 2)
    imgui.set_next_window_pos(ImVec2(x, max(y, 0)))
    imgui.set_next_window_size(ImVec2(round(width), round(height)))
    imgui.push_style_color(imgui.Col_.window_bg, theme.u32(theme.POPUP))
    imgui.push_style_var(imgui.StyleVar_.window_rounding, theme.POPUP_ROUNDING * scale)
    imgui.push_style_var(imgui.StyleVar_.window_border_size, 1.0)
    imgui.begin("##keys", None, SHOWING_FLAGS)
    left = x + _PAD * scale
    for column, (keys, does) in zip(chosen_try.columns, chosen_try.widths, strict=True):
        top = max(y, 0) + _PAD * scale
        for key_group in column:
            top = _draw_group(
                key_group, left, top, keys * scale, scale, chosen_try.share
            )
        left += (keys + _KEYS_GAP + does + _COLUMN_GAP) * scale
    imgui.end()
    imgui.pop_style_var(2)
    imgui.pop_style_color()


def _draw_group(
    key_group: KeyGroup, x: float, y: float, keys: float, scale: float, share: float
) -> float:
    """Draw a group from a pixel on; return the pixel y below it."""
    draw = imgui.get_window_draw_list()
    with theme.bold(theme.FONT_SIZE * share):
        color = theme.u32(theme.TEXT)
        lettering.write(draw, round(x), round(y), color, key_group.name)
    y += _HEAD * scale
    with theme.font_size(theme.SMALL_SIZE * share):
        half = imgui.get_text_line_height() / 2
        for line in key_group.lines:
            middle = y + (_ROW * scale) / 2 - 4 * scale
            cap_x = x
            for cap in caps_of(line):
                cap_x = draw_cap(cap, cap_x, middle, theme.TEXT) + _CAP_GAP * scale
            start = round(x + keys + _KEYS_GAP * scale)
            ink = theme.u32(theme.DIM)
            lettering.write(draw, start, round(middle - half), ink, line.does)
            y += _ROW * scale
    return y + _AFTER * scale
