"""Words over the picture: a hint, progress, a fault, that the run is gone; and the line under it: the value
under the pointer, and how the picture came to the screen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.settings import ENDED
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import card, faint, lines_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imgui_bundle import ImVec4

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.settings import State
    from splatview_viewer.core.view import Info
    from splatview_viewer.shell.viewport import Viewport

_MOST_TROUBLES = 4
_MOST_LINES, _WIDEST = 6, 46
"""Lines of one text at most, and their width in sizes of the letters."""
_BAR = 90
"""Points: what is higher is no bar at the lower edge."""


def draw_overlay(state: State, viewport: Viewport, scale: float) -> None:
    """Draw words over the picture of a viewport: a hint, progress, a fault, that the run is gone, and what its
    publisher reports as wrong."""
    entry, picture, found = viewport.entry, viewport.rect, viewport.working()
    if entry is None:
        if state.hint:
            _message(picture, scale, state.hint.split("\n"), theme.DIM)
        return
    fault = entry.fault or entry.fault_of_source
    if entry.progress is not None:
        _progress(scale, picture, f"Loading {entry.name}", entry.progress)
    elif fault:
        _message(picture, scale, [f"{entry.name} cannot be shown", fault], theme.FAULT)
    elif found is None or found[1].empty:
        words = "Waiting for its next frame" if entry.alive else "The run ended before it was seen"
        _message(picture, scale, [entry.name, words], theme.DIM)
    else:
        ended = [ENDED] if not entry.alive and not state.says_trouble else []
        lines = [(text, theme.TEXT) for text in ended]
        for text in viewport.user.catalogue.links.troubles(found[0])[:_MOST_TROUBLES]:
            lines += [(line, theme.FAULT) for line in lines_of(text, _room(picture, scale), 3)]
        if lines:
            card(imgui.get_background_draw_list(), (picture.x + picture.width / 2, picture.y + 8 * scale), lines,
                 (0.5, 0), pad=0.65)


def draw_toasts(state: State, picture: Rect, scale: float, boards: Sequence[Rect] = ()) -> None:
    """Draw short messages at the lower edge of the picture: above the windows `boards` there."""
    bottom, middle = picture.y + picture.height, picture.x + picture.width / 2
    for board in sorted(boards, key=lambda b: -b.y):  # one bar lies on the other
        if board.height < _BAR * scale and board.y + board.height >= bottom - 1 and (
                board.x <= middle < board.x + board.width):
            bottom = min(bottom, board.y)
    y = bottom - 16 * scale
    for _, text in reversed(state.toasts):
        lines = "\n".join(lines_of(text, _room(picture, scale), _MOST_LINES))
        y = card(imgui.get_foreground_draw_list(), (middle, y), [(lines, theme.TEXT)], (0.5, 1), within=picture,
                 ground=faint(theme.BAR, 0.92), pad=0.65).y - 4 * scale


def _message(picture: Rect, scale: float, texts: Sequence[str], color: ImVec4) -> None:
    lines = [(line, color if i else theme.TEXT) for i, text in enumerate(texts)
             for line in lines_of(text, _room(picture, scale), _MOST_LINES)]
    draw = imgui.get_background_draw_list()
    draw.push_clip_rect(ImVec2(picture.x, picture.y), ImVec2(picture.x + picture.width, picture.y + picture.height))
    card(draw, (picture.x + picture.width / 2, picture.y + picture.height / 2), lines, (0.5, 0.5), pad=1.2)
    draw.pop_clip_rect()


def _room(picture: Rect, scale: float) -> float:
    """Pixels of width for text."""
    return min(picture.width - 40 * scale, _WIDEST * imgui.get_font_size())


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


def draw_status(state: State, info: Info, picture: Rect, size: tuple[int, int], scale: float) -> None:
    """Below `picture`, on a screen of `size` pixels. What does not fit is left to the details."""
    top = picture.y + picture.height
    draw = imgui.get_background_draw_list()
    draw.add_rect_filled(ImVec2(picture.x, top), ImVec2(*size), theme.u32(theme.BAR))
    line, pad = imgui.get_text_line_height(), 12 * scale
    y = round(top + (size[1] - top - line) / 2)
    x = picture.x + pad
    if info.readout:
        draw.add_text(ImVec2(x, y), theme.u32(theme.TEXT), info.readout)
        x += imgui.calc_text_size(info.readout).x + 2 * pad
    phrases, width = status_phrases(state, info), math.inf
    text = ""
    while phrases and width > size[0] - pad - x:
        text = " \u00b7 ".join(phrases)
        width = imgui.calc_text_size(text).x
        phrases.pop()
    if width <= size[0] - pad - x:
        draw.add_text(ImVec2(round(size[0] - pad - width), y), theme.u32(theme.DIM), text)


def status_phrases(state: State, info: Info) -> list[str]:
    """Return the parts of the status line, most important first."""
    t = state.said
    phrases = list(info.details)
    if t.fps >= 2:
        phrases.append(f"{t.fps:.0f} pictures/s")
    if t.gpu_share is not None:
        phrases.append(f"GPU share {t.gpu_share:.0%} of {t.gpu_budget:.0%}")
    if t.gpu_memory is not None:
        used, total = t.gpu_memory
        phrases.append(f"GPU memory {used / 2**30:.1f} of {total / 2**30:.0f} GB")
    stages = [f"{name} {ms:.1f}" for name, ms in t.stages.items() if ms >= 0.05]
    if stages:
        phrases.append(" + ".join(stages) + " ms")
    return [*phrases, *info.path, *([state.screen] if state.screen else [])]


def latency_phrases(state: State) -> list[str]:
    """Return the time that a version takes to the screen."""
    ms = state.said.latency_ms
    alive = state.shown is not None and state.shown.alive and not state.shown.is_file
    return [] if ms is None or not alive else [f"{ms:.1f} ms from publish to the screen"]
