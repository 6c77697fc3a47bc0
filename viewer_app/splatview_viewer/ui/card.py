"""Words on a card that can be read over any picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.geometry.controls import Rect
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from collections.abc import Sequence

    Line = tuple[str, ImVec4] | tuple[str, ImVec4, ImVec4]

_PACE = 1.2
"""From one line to the next, in heights of the letters."""


def card(draw: imgui.ImDrawList, at: tuple[float, float], lines: Sequence[Line], anchor: tuple[float, float] = (0, 0),
         *, within: Rect | None = None, ground: ImVec4 | None = None, pad: float = 0.45) -> Rect:
    """Draw lines of text on a rounded card, sized by the font in use, and return its rectangle.

    at: a point in pixels. lines: text and colour; a second colour is that of a square before all lines, of a legend.
    anchor: the point of the card that is put there, (0, 0) its upper left corner, (1, 1) its lower right; lines are
    centred where its x is 0.5. within: where the card stays, as far as it has room. ground: its colour, the bars'
    without. pad: around the text, in heights of the letters, half as much above and below.
    """
    line, sizes = imgui.get_text_line_height(), [imgui.calc_text_size(text) for text, *_ in lines]
    side, indent = pad * line, 1.1 * line if any(len(parts) > 2 for parts in lines) else 0.0
    width = max((size.x for size in sizes), default=0.0) + indent
    w, h = width + 2 * side, sum(size.y for size in sizes) + (len(lines) - 1) * (_PACE - 1) * line + side
    x, y = at[0] - anchor[0] * w, at[1] - anchor[1] * h
    if within is not None:
        x = max(min(x, within.x + within.width - w), within.x)
        y = max(min(y, within.y + within.height - h), within.y)
    place = Rect(round(x), round(y), round(w), round(h))
    draw.add_rect_filled(ImVec2(place.x, place.y), ImVec2(place.x + place.width, place.y + place.height),
                         theme.u32(ground or faint(theme.BAR, 0.85)), 0.3 * line)
    y = place.y + side / 2
    for (text, color, *squares), size in zip(lines, sizes, strict=True):
        for square in squares:
            draw.add_rect_filled(ImVec2(round(x + side), round(y + 0.15 * line)),
                                 ImVec2(round(x + side + 0.7 * line), round(y + 0.85 * line)), theme.u32(square),
                                 0.15 * line)
        start = indent + ((width - indent - size.x) / 2 if anchor[0] == 0.5 else 0.0)
        draw.add_text(ImVec2(round(x + side + start), round(y)), theme.u32(color), text)
        y += size.y + (_PACE - 1) * line
    return place


def tag(text: str, x: float, y: float, within: Rect) -> None:
    """Write on a card over the picture, its upper left corner at a pixel."""
    card(imgui.get_background_draw_list(), (x, y), [(text, theme.TEXT)], within=within)


def hover_card(draw: imgui.ImDrawList, at: ImVec2, lines: Sequence[Line], within: Rect) -> None:
    """Draw a card beside the pointer, on its left where there is no room on its right."""
    away = imgui.get_text_line_height()
    width = max((imgui.calc_text_size(text).x for text, *_ in lines), default=0.0)
    left = at.x + width + 2.5 * away > within.x + within.width
    card(draw, (at.x - away if left else at.x + away, at.y), lines, (float(left), 0.5), within=within,
         ground=faint(theme.POPUP, 0.96), pad=0.75)


def faint(color: ImVec4, alpha: float) -> ImVec4:
    """The same colour, more transparent."""
    return ImVec4(color.x, color.y, color.z, color.w * alpha)
