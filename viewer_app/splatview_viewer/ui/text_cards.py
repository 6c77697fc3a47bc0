"""Cards of text over a picture, sized by the font in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.screen import Rect
from splatview_viewer.ui import lettering, theme
from splatview_viewer.ui.widgets import faint

if TYPE_CHECKING:
    from collections.abc import Sequence

    Line = tuple[str, ImVec4] | tuple[str, ImVec4, ImVec4]

_LINE_PITCH = 1.2
"""From one line to the next, in heights of the letters."""


def card(
    draw: imgui.ImDrawList,
    point: tuple[float, float],
    lines: Sequence[Line],
    anchor: tuple[float, float] = (0, 0),
    *,
    bounds: Rect | None = None,
    ground: ImVec4 | None = None,
    pad: float = 0.45,
) -> Rect:
    """Draw lines of text on a rounded card, sized by the font in use.

    Args:
        draw: imgui's list.
        point: in pixels.
        lines: text and colour of each; a second colour is that of a square before all
            lines, of a legend.
        anchor: the point of the card that is put at `point`, (0, 0) its upper left
            corner, (1, 1) its lower right. Lines are centred where its x is 0.5.
        bounds: what the card stays in, as far as it fits.
        ground: the card's colour; the bars' without.
        pad: around the text, in heights of the letters; half as much above and below.

    Returns:
        The card's rectangle.
    """
    line_height = imgui.get_text_line_height()
    line_gap = (_LINE_PITCH - 1) * line_height
    sizes = [lettering.measure(text) for text, *_ in lines]
    side = pad * line_height
    has_squares = any(len(line) > 2 for line in lines)
    if has_squares:
        indent = 1.1 * line_height
    else:
        indent = 0.0
    text_width = max((size.x for size in sizes), default=0.0) + indent
    text_height = sum(size.y for size in sizes) + (len(lines) - 1) * line_gap
    width = text_width + 2 * side
    height = text_height + side
    x, y = _card_corner(point, (width, height), anchor, bounds)
    card_rect = Rect(round(x), round(y), round(width), round(height))
    draw.add_rect_filled(
        ImVec2(card_rect.x, card_rect.y),
        ImVec2(card_rect.x + card_rect.width, card_rect.y + card_rect.height),
        theme.u32(ground or faint(theme.BAR, 0.85)),
        0.3 * line_height,
    )
    left = x + side
    y = card_rect.y + side / 2
    for (text, color, *squares), size in zip(lines, sizes, strict=True):
        for square in squares:
            draw.add_rect_filled(
                ImVec2(round(left), round(y + 0.15 * line_height)),
                ImVec2(round(left + 0.7 * line_height), round(y + 0.85 * line_height)),
                theme.u32(square),
                0.15 * line_height,
            )
        start = left + indent
        if anchor[0] == 0.5:
            start += (text_width - indent - size.x) / 2
        lettering.write(draw, round(start), round(y), theme.u32(color), text)
        y += size.y + line_gap
    return card_rect


def _card_corner(
    point: tuple[float, float],
    size: tuple[float, float],
    anchor: tuple[float, float],
    bounds: Rect | None,
) -> tuple[float, float]:
    """Return the upper left corner of a card, as `card` puts it."""
    width, height = size
    x = point[0] - anchor[0] * width
    y = point[1] - anchor[1] * height
    if bounds is not None:
        x = max(min(x, bounds.x + bounds.width - width), bounds.x)
        y = max(min(y, bounds.y + bounds.height - height), bounds.y)
    return x, y


def tag(text: str, x: float, y: float, bounds: Rect) -> None:
    """Write on a card over the picture, its upper left corner at a pixel."""
    card(imgui.get_background_draw_list(), (x, y), [(text, theme.TEXT)], bounds=bounds)


def hover_card(
    draw: imgui.ImDrawList, point: ImVec2, lines: Sequence[Line], bounds: Rect
) -> None:
    """Draw a card on the right of a pixel, or on its left where it does not fit."""
    gap = imgui.get_text_line_height()
    width = max((imgui.calc_text_size(text).x for text, *_ in lines), default=0.0)
    is_left = point.x + width + 2.5 * gap > bounds.x + bounds.width
    if is_left:
        x = point.x - gap
    else:
        x = point.x + gap
    card(
        draw,
        (x, point.y),
        lines,
        (float(is_left), 0.5),
        bounds=bounds,
        ground=faint(theme.POPUP, 0.96),
        pad=0.75,
    )
