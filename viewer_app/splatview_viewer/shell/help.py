"""The list of keys, drawn over the picture when `?` is typed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.view import KeyHelp
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.geometry.controls import Rect

KEYS = (
    KeyHelp("Viewer", "H, Tab", "Show or hide the panel"),
    KeyHelp("Viewer", "Space", "Pause the run, and have it go on"),
    KeyHelp("Viewer", "Ctrl + S", "Keep the picture; with Shift transparent"),
    KeyHelp("Viewer", "Shift + Tab", "The next pane"),
    KeyHelp("Viewer", "?", "This list"),
)
_SIZES = theme.FONT_SIZE, 13.5, 12.0, 10.5, 9.0
"""Points of the letters: the largest in which all of it fits into the picture."""
_PAD, _GAP, _BETWEEN, _MARGIN = 22.0, 18.0, 36.0, 12.0
"""Points around the list, from keys to words, between columns, and to the picture's edges."""
_FIRST = "Camera", "Picture"
_PACE, _TITLE = 1.4, 0.6
"""Heights of a line, and above a group's title, in heights of the letters."""


@dataclass(frozen=True)
class _Column:
    groups: tuple[tuple[str, tuple[KeyHelp, ...]], ...]
    keys: float
    """Width in pixels of the widest keys."""
    does: float
    """The same of the words."""
    lines: float
    """Height in lines."""


def draw_help(picture: Rect, scale: float, lines: Sequence[KeyHelp]) -> None:
    """Draw the list in the middle of the picture, group by group, in as few columns as fit into it; over all of the
    screen where the picture is too small."""
    groups, screen = _grouped(lines), imgui.get_io().display_size
    whole = (0.0, 0.0, float(screen.x), float(screen.y))
    tries = [((float(picture.x), float(picture.y), float(picture.width), float(picture.height)), size)
             for size in _SIZES[:2]] + [(whole, size) for size in _SIZES]
    best, least = None, float("inf")
    for place, size in tries:
        with theme.font_size(size):
            for count in range(1, min(len(groups), 4) + 1):
                columns = _columns(groups, count)
                width, height = _extent(columns, scale)
                over = max(width / (place[2] - 2 * _MARGIN * scale), height / (place[3] - 2 * _MARGIN * scale))
                if over < least - 1e-6:
                    best, least = (columns, (width, height), place, size), over
                if over <= 1:
                    break
        if least <= 1:
            break
    if best is not None:
        columns, extent, place, size = best
        with theme.font_size(size):
            _draw(columns, extent, place, scale)


def _grouped(lines: Sequence[KeyHelp]) -> list[tuple[str, tuple[KeyHelp, ...]]]:
    """Those of one group together, whoever names them; first what most people look for, then groups as they come."""
    found: dict[str, list[KeyHelp]] = {name: [] for name in _FIRST}
    for line in lines:
        found.setdefault(line.group, []).append(line)
    return [(name, tuple(those)) for name, those in found.items() if those]


def _columns(groups: Sequence[tuple[str, tuple[KeyHelp, ...]]], count: int) -> list[_Column]:
    """The groups in their order, cut into columns so that the highest is as low as can be."""
    heights = [len(those) + 1 + _TITLE for _, those in groups]

    def cut(most: float) -> list[list[int]]:
        out: list[list[int]] = [[]]
        for i, height in enumerate(heights):
            if out[-1] and sum(heights[k] for k in out[-1]) + height > most:
                out.append([])
            out[-1].append(i)
        return out

    ends = sorted({sum(heights[i:j]) for i in range(len(heights)) for j in range(i + 1, len(heights) + 1)})
    parts = next((found for most in ends if len(found := cut(most + 1e-6)) <= count), cut(sum(heights) + 1))
    out = []
    for part in parts:
        chosen = tuple(groups[i] for i in part)
        every = [line for _, those in chosen for line in those]
        out.append(_Column(chosen, max(imgui.calc_text_size(line.keys).x for line in every),
                           max(imgui.calc_text_size(line.does).x for line in every),
                           sum(heights[i] for i in part) - _TITLE))
    return out


def _extent(columns: Sequence[_Column], scale: float) -> tuple[float, float]:
    """Width and height in pixels."""
    width = sum(c.keys + _GAP * scale + c.does for c in columns) + _BETWEEN * scale * (len(columns) - 1)
    height = max((c.lines for c in columns), default=0.0) * imgui.get_text_line_height() * _PACE
    return width + 2 * _PAD * scale, height + 2 * _PAD * scale


def _draw(columns: Sequence[_Column], extent: tuple[float, float],
          place: tuple[float, float, float, float], scale: float) -> None:
    draw, pace = imgui.get_foreground_draw_list(), imgui.get_text_line_height() * _PACE
    (width, height), pad = extent, _PAD * scale
    x = place[0] + max((place[2] - width) / 2, 0)
    top = place[1] + max((place[3] - height) / 2, 0)
    draw.add_rect_filled(ImVec2(x, top), ImVec2(x + width, top + height), theme.u32(theme.BAR, 0.96), 8 * scale)
    title, text, dim = theme.u32(theme.ACCENT), theme.u32(theme.TEXT), theme.u32(theme.DIM)
    x += pad
    for column in columns:
        y = top + pad
        for name, found in column.groups:
            draw.add_text(ImVec2(round(x), round(y)), title, name)
            y += pace
            for line in found:
                draw.add_text(ImVec2(round(x), round(y)), text, line.keys)
                draw.add_text(ImVec2(round(x + column.keys + _GAP * scale), round(y)), dim, line.does)
                y += pace
            y += _TITLE * pace
        x += column.keys + _GAP * scale + column.does + _BETWEEN * scale
