"""Writes over a picture why a function cannot draw it."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_viewer.ui import lettering, theme
from splatview_viewer.ui.text_cards import card

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect

_INSET = 12.0
"""Points between the picture's edges and the text."""
_LINE_PITCH = 1.2
"""Height of a line as `text_cards.card` places it, in heights of the letters."""
_MIN_COLUMNS = 20


def draw_trouble(function: str, fault_text: str, rect: Rect, scale: float) -> None:
    """Write the trouble of a function over its picture in `rect`, with imgui.

    Long lines are wrapped. Where there is no room for all, the last lines are written:
    the end of a traceback says what happened.
    """
    inset = _INSET * scale
    letter_width = max(lettering.measure("n").x, 1.0)
    columns = int((rect.width - 4 * inset) / letter_width)
    columns = max(columns, _MIN_COLUMNS)
    height = _LINE_PITCH * imgui.get_text_line_height()
    most_lines = max(int((rect.height - 4 * inset) / height) - 1, 1)
    lines = wrapped_lines(fault_text, columns)[-most_lines:]
    title = f"{function or 'The function'} cannot draw this"
    card(
        imgui.get_background_draw_list(),
        (rect.x + inset, rect.y + inset),
        [(title, theme.FAULT), *((line, theme.TEXT) for line in lines)],
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
            drop_whitespace=False,
        )
        lines += wrapped or [""]
    return lines
