"""The list of keys, drawn over the picture when `?` is typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import KeyHelp
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import colored

if TYPE_CHECKING:
    from collections.abc import Sequence

KEYS = (
    KeyHelp("Viewer", "H, Tab", "Show or hide the panel"),
    KeyHelp("Viewer", "Space", "Pause the run, and have it go on"),
    KeyHelp("Viewer", "Ctrl + S", "Keep the picture; with Shift transparent"),
    KeyHelp("Viewer", "Shift + Tab", "The next pane"),
    KeyHelp("Viewer", "?", "This list"),
)
_PAD, _GAP, _BETWEEN = 22.0, 18.0, 36.0
"""Points around the list, from keys to words, and between columns."""
_FIRST = "Camera", "Picture"
_PACE = 1.4
"""Heights of a line, in heights of the letters."""
_Column = list[tuple[str, str]]
"""Lines of keys and what they do; a group begins with its name alone, after an empty line."""


def draw_help(picture: Rect, scale: float, lines: Sequence[KeyHelp]) -> None:
    """Draw the list in the middle of the picture, group by group, in as few columns as fit into it; over all of the
    screen, in smaller letters, where the picture is too small."""
    screen = imgui.get_io().display_size
    tries = []
    for place in (picture, Rect(0, 0, round(screen.x), round(screen.y))):
        for columns in (_columns(lines, count) for count in range(1, 5)):
            wide, high = _extent(columns, scale)
            tries.append((min(1.0, 0.92 * place.width / wide, 0.92 * place.height / high), place, columns))
    part, place, columns = max(tries, key=lambda t: t[0])  # the first of equal ones
    with theme.font_size(theme.FONT_SIZE * max(part, 0.2)):
        _draw(columns, place, scale * part)


def _columns(lines: Sequence[KeyHelp], count: int) -> list[_Column]:
    """The groups, first those that most people look for, in so many columns of about the same height."""
    groups: dict[str, _Column] = {name: [] for name in _FIRST}
    for line in lines:
        groups.setdefault(line.group, []).append((line.keys, line.does))
    parts = [[(name, ""), *found, ("", "")] for name, found in groups.items() if found]
    out, high = [_Column()], max(sum(map(len, parts)) / count, max(map(len, parts)))
    for part in parts:
        if len(out) < count and len(out[-1]) + len(part) / 2 > high:
            out.append([])
        out[-1] += part
    return [column[:-1] for column in out]


def _extent(columns: Sequence[_Column], scale: float) -> tuple[float, float]:
    """Width and height in pixels."""
    width = sum(imgui.calc_text_size("\n".join(cells)).x for column in columns for cells in zip(*column, strict=True))
    gaps = _GAP * len(columns) + _BETWEEN * (len(columns) - 1) + 2 * _PAD
    high = max(map(len, columns)) * imgui.get_text_line_height() * _PACE
    return width + gaps * scale, high + 2 * _PAD * scale


def _draw(columns: Sequence[_Column], place: Rect, scale: float) -> None:
    line = imgui.get_text_line_height()
    imgui.set_next_window_pos(ImVec2(place.x + place.width / 2, place.y + place.height / 2), pivot=ImVec2(0.5, 0.5))
    imgui.push_style_color(imgui.Col_.window_bg, theme.u32(theme.BAR, 0.96))
    for var, value in ((imgui.StyleVar_.window_padding, ImVec2(_PAD * scale, _PAD * scale)),
                       (imgui.StyleVar_.cell_padding, ImVec2(0, 0)),
                       (imgui.StyleVar_.item_spacing, ImVec2(0, (_PACE - 1) * line))):
        imgui.push_style_var(var, value)
    imgui.push_style_var(imgui.StyleVar_.window_rounding, 8 * scale)
    flags = imgui.WindowFlags_
    imgui.begin("##help", None, (flags.no_decoration | flags.always_auto_resize | flags.no_inputs
                                 | flags.no_saved_settings | flags.no_focus_on_appearing).value)
    if imgui.begin_table("keys", 2 * len(columns), imgui.TableFlags_.sizing_fixed_fit.value):
        for i, column in enumerate(columns):
            for cells, color, gap in zip(zip(*column, strict=True), (theme.TEXT, theme.DIM),
                                         (_GAP, _BETWEEN if i + 1 < len(columns) else 0), strict=True):
                imgui.table_next_column()
                for text, (_, does) in zip(cells, column, strict=True):
                    colored(text, color if does else theme.ACCENT)
                imgui.dummy(ImVec2(imgui.calc_text_size("\n".join(cells)).x + gap * scale, 0))
        imgui.end_table()
    imgui.end()
    imgui.pop_style_var(4)
    imgui.pop_style_color()
