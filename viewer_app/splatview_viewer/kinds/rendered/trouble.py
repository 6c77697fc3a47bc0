"""Writes over a picture why a function cannot draw it."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_viewer.ui import lettering, theme
from splatview_viewer.ui.text_cards import card

if TYPE_CHECKING:
    from imgui_bundle import ImVec4

    from splatview_viewer.core.screen import Rect

_INSET = 12.0
"""Points between the picture's edges and the text."""
_LINE_PITCH = 1.2
"""Height of a line as `text_cards.card` places it, in heights of the letters."""
_MIN_COLUMNS = 20


def draw_trouble(function: str, fault_text: str, rect: Rect, scale: float) -> None:
    """Write why a function cannot draw over its picture in `rect`, with imgui.

    Long lines are wrapped. Where there is no room for all, the last lines are written:
    the end of a traceback says what happened.
    """
    title = f"{function or 'The function'} cannot draw this"
    _draw_card(title, theme.FAULT, fault_text, rect, scale)


def draw_wait(function: str, seconds: int, rect: Rect, scale: float) -> None:
    """Write that a function has not drawn a picture for some seconds, with imgui."""
    name = function or "the function"
    title = f"Waiting for a picture by {name}, {seconds} s"
    _draw_card(title, theme.DIM, "", rect, scale)


def _draw_card(title: str, color: ImVec4, text: str, rect: Rect, scale: float) -> None:
    """Draw a card with the last lines of a text for which there is room."""
    inset = _INSET * scale
    letter_width = max(lettering.measure("n").x, 1.0)
    columns = int((rect.width - 4 * inset) / letter_width)
    columns = max(columns, _MIN_COLUMNS)
    height = _LINE_PITCH * imgui.get_text_line_height()
    most_lines = max(int((rect.height - 4 * inset) / height) - 1, 1)
    title_lines = wrapped_lines(title, columns)
    lines = wrapped_lines(text, columns)[-most_lines:]
    card(
        imgui.get_background_draw_list(),
        (rect.x + inset, rect.y + inset),
        [
            *((line, color) for line in title_lines),
            *((line, theme.TEXT) for line in lines),
        ],
        bounds=rect,
        pad=0.9,
    )


def wrapped_lines(text: str, columns: int) -> list[str]:
    """Return the lines of a text, those longer than some columns on several lines."""
    lines: list[str] = []
    for line in text.expandtabs(4).splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        wrapped = textwrap.wrap(
            line,
            columns,
            subsequent_indent=indent[: columns // 2],
        )
        lines += wrapped or [""]
    return lines
