"""What is written over the picture: a hint, progress, a fault, that the run is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.settings import ENDED
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import lines_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imgui_bundle import ImVec4

    from splatview_viewer.core.settings import Entry, State
    from splatview_viewer.geometry.controls import Rect


_MOST_TROUBLES = 4
_MOST_LINES, _WIDEST = 6, 46
"""Of one text: lines, and their width in sizes of the letters."""
_BAR = 90
"""Points: what is higher is no bar at the lower edge."""


def draw_overlay(state: State, entry: Entry | None, picture: Rect, *, empty: bool, scale: float,
                 troubles: Sequence[str] = ()) -> None:
    """Words over the picture of an entry: a hint, progress, a fault, that the run is gone, and what its publisher says
    is wrong."""
    if entry is None:
        if state.hint:
            _message(scale, picture, state.hint.split("\n"), theme.DIM)
        return
    fault = entry.fault or entry.fault_of_source
    if entry.progress is not None:
        _progress(scale, picture, f"Loading {entry.name}", entry.progress)
    elif fault:
        _message(scale, picture, [f"{entry.name} cannot be shown", fault], theme.FAULT)
    elif empty:
        words = "Waiting for its next frame" if entry.alive else "The run ended before it was seen"
        _message(scale, picture, [entry.name, words], theme.DIM)
    else:
        ended = [ENDED] if not entry.alive and not state.says_trouble else []
        lines = [(text, theme.TEXT) for text in ended]
        room = min(picture.width - 40 * scale, _WIDEST * imgui.get_font_size())
        for text in list(troubles)[:_MOST_TROUBLES]:
            lines += [(line, theme.FAULT) for line in lines_of(text, room, 3)]
        if lines:
            _tag(scale, picture, lines)


def draw_toasts(state: State, picture: Rect, scale: float, boards: Sequence[Rect] = ()) -> None:
    """What the user is told for a few seconds, at the lower edge of the picture: above `boards`, which lie there."""
    draw, pace, pad = imgui.get_foreground_draw_list(), imgui.get_text_line_height(), 10 * scale
    bottom, middle = picture.y + picture.height, picture.x + picture.width / 2
    for board in sorted(boards, key=lambda b: -b.y):  # one bar lies on the other
        if board.height < _BAR * scale and board.y + board.height >= bottom - 1 and (
                board.x <= middle < board.x + board.width):
            bottom = min(bottom, board.y)
    room = min(picture.width - 4 * pad, _WIDEST * imgui.get_font_size())
    y = bottom - 14 * scale
    for _, text in reversed(state.toasts):
        lines = lines_of(text, room, _MOST_LINES)
        width = max((imgui.calc_text_size(line).x for line in lines), default=0.0)
        x = max(middle - width / 2, picture.x + pad)
        y -= pace * len(lines) + pad
        draw.add_rect_filled(ImVec2(x - pad, y - pad / 2), ImVec2(x + width + pad, y + pace * len(lines) + pad / 2),
                             theme.u32(theme.BAR, 0.92), 6 * scale)
        for i, line in enumerate(lines):
            draw.add_text(ImVec2(round(x), round(y + i * pace)), theme.u32(theme.TEXT), line)
        y -= 0.4 * pad


def _message(scale: float, picture: Rect, texts: list[str], color: ImVec4) -> None:
    draw = imgui.get_background_draw_list()
    pad = ImVec2(18 * scale, 12 * scale)
    room = min(picture.width - 3 * pad.x, _WIDEST * imgui.get_font_size())
    parts = [lines_of(text, room, _MOST_LINES) for text in texts]
    lines, first = [line for part in parts for line in part], len(parts[0])
    pace = imgui.get_text_line_height() * 1.5
    y = picture.y + picture.height / 2 - pace * len(lines) / 2
    widest = max((imgui.calc_text_size(t).x for t in lines), default=0.0)
    middle = picture.x + picture.width / 2
    draw.push_clip_rect(ImVec2(picture.x, picture.y), ImVec2(picture.x + picture.width, picture.y + picture.height))
    draw.add_rect_filled(ImVec2(middle - widest / 2 - pad.x, y - pad.y),
                         ImVec2(middle + widest / 2 + pad.x, y + pace * len(lines) + pad.y - pace / 4),
                         theme.u32(theme.BAR, 0.82), 8 * scale)
    for i, text in enumerate(lines):
        tint = theme.TEXT if i < first else color
        x = middle - imgui.calc_text_size(text).x / 2
        draw.add_text(ImVec2(round(x), round(y + i * pace)), theme.u32(tint), text)
    draw.pop_clip_rect()


def _progress(scale: float, picture: Rect, text: str, fraction: float) -> None:
    draw = imgui.get_background_draw_list()
    middle = picture.x + picture.width / 2, picture.y + picture.height / 2
    width, height = min(280 * scale, picture.width * 0.7), 4 * scale
    left = middle[0] - width / 2
    size = imgui.calc_text_size(text)
    draw.add_text(ImVec2(middle[0] - size.x / 2, middle[1] - size.y - 12 * scale), theme.u32(theme.TEXT), text)
    for part, color in ((1.0, theme.PANEL), (max(fraction, 0.02), theme.ACCENT)):
        draw.add_rect_filled(ImVec2(left, middle[1]), ImVec2(left + width * part, middle[1] + height),
                             theme.u32(color), height / 2)


def _tag(scale: float, picture: Rect, lines: Sequence[tuple[str, ImVec4]]) -> None:
    draw = imgui.get_background_draw_list()
    width, pace, pad = max(imgui.calc_text_size(t).x for t, _ in lines), imgui.get_text_line_height(), 10 * scale
    middle, y = picture.x + picture.width / 2, picture.y + 12 * scale
    draw.add_rect_filled(ImVec2(middle - width / 2 - pad, y - pad / 2),
                         ImVec2(middle + width / 2 + pad, y + pace * len(lines) + pad / 2),
                         theme.u32(theme.BAR, 0.82), 6 * scale)
    for i, (text, color) in enumerate(lines):
        x = middle - imgui.calc_text_size(text).x / 2
        draw.add_text(ImVec2(round(x), round(y + i * pace)), theme.u32(color), text)
