"""The line under the picture: the value under the pointer, and how this picture came to the screen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from splatview_viewer.core.settings import State
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.shell.shown import Shown


def draw_status(state: State, shown: Shown, picture: Rect, size: tuple[int, int], scale: float) -> None:
    """Below `picture`, on a screen of `size` pixels. What does not fit is left to the details."""
    top = picture.y + picture.height
    draw = imgui.get_background_draw_list()
    draw.add_rect_filled(ImVec2(picture.x, top), ImVec2(*size), theme.u32(theme.BAR))
    line, pad = imgui.get_text_line_height(), 12 * scale
    y = round(top + (size[1] - top - line) / 2)
    x = picture.x + pad
    if shown.readout:
        draw.add_text(ImVec2(x, y), theme.u32(theme.TEXT), shown.readout)
        x += imgui.calc_text_size(shown.readout).x + 2 * pad
    phrases, width = status_phrases(state, shown), math.inf
    text = ""
    while phrases and width > size[0] - pad - x:
        text = " \u00b7 ".join(phrases)
        width = imgui.calc_text_size(text).x
        phrases.pop()
    if width <= size[0] - pad - x:
        draw.add_text(ImVec2(round(size[0] - pad - width), y), theme.u32(theme.DIM), text)


def status_phrases(state: State, shown: Shown) -> list[str]:
    """Return the parts of the status line, most important first."""
    t = state.said
    phrases = list(shown.details)
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
    return [*phrases, *shown.path, *([state.screen] if state.screen else [])]


def latency_phrases(state: State) -> list[str]:
    """Return the time that a version takes to the screen."""
    ms = state.said.latency_ms
    alive = state.shown is not None and state.shown.alive and not state.shown.is_file
    return [] if ms is None or not alive else [f"{ms:.1f} ms from publish to the screen"]
