"""Words at exact places of the window that is drawn, on one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_viewer.ui import lettering, theme
from splatview_viewer.ui.widgets import fitted

if TYPE_CHECKING:
    from imgui_bundle import ImVec4


def write(
    text: str,
    x: float,
    middle: float,
    color: ImVec4,
    max_width: float | None = None,
) -> float:
    """Write a text in the font in use; return the pixel x where it ends.

    Args:
        text: cut where it is wider than `max_width`, if that is given.
        x: pixel of its left end.
        middle: pixel y of its middle.
        color: of its letters.
        max_width: pixels.
    """
    if max_width is not None:
        text = fitted(text, max_width)
    _write_at(text, x, middle, color)
    return x + lettering.measure(text).x


def write_right(text: str, right: float, middle: float, color: ImVec4) -> float:
    """Write a text that ends at a pixel x; return the pixel x where it begins."""
    x = right - lettering.measure(text).x
    _write_at(text, x, middle, color)
    return x


def _write_at(text: str, x: float, middle: float, color: ImVec4) -> None:
    y = round(middle - imgui.get_text_line_height() / 2)
    draw = imgui.get_window_draw_list()
    lettering.write(draw, round(x), y, theme.u32(color), text)
