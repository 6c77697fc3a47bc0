"""The card over the picture with the numbers of the inspected Gaussian."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.screen import Rect
from splatview_viewer.ui import boards, controls, icons, lettering, theme

if TYPE_CHECKING:
    from imgui_bundle import ImVec2Like

    from splatview_viewer.kinds.gaussians.recorded_values import Course
    from splatview_viewer.render.picking import GaussianValues

_WIDTH = 262.0
"""Points, as all sizes here."""
_HEIGHT = 190.0
_MARGIN = 64.0
"""To the picture's side."""
_SMALL_MARGIN = 12.0
"""To the picture's side where it is narrow."""
_WIDE = 700.0
"""Width of a picture from which on the large margin is kept."""
_TOP = 231.0
_PAD = 14.0
_LINE = 22.0
_LABEL_WIDTH = 74.0
_CURVE_SIZE = 158.0, 26.0
_ROUNDING = 6.0
_COVER_MARGIN = 16.0
"""Around the Gaussian, which the card does not cover."""


def place_card(rect: Rect, scale: float, *, on_left: bool) -> Rect | None:
    """Return the card's place in a picture; None where there is no room."""
    width = round(_WIDTH * scale)
    height = round(_HEIGHT * scale)
    small = round(_SMALL_MARGIN * scale)
    if rect.width < width + 2 * small or rect.height < height + 2 * small:
        return None
    is_wide = rect.width >= _WIDE * scale
    margin = round(_MARGIN * scale) if is_wide else small
    if on_left:
        x = rect.x + margin
    else:
        x = rect.x + rect.width - margin - width
    lowest = rect.y + rect.height - height - small
    return Rect(x, min(rect.y + round(_TOP * scale), lowest), width, height)


def covers(card: Rect, point: tuple[float, float], scale: float) -> bool:
    """Return whether a card covers a pixel or comes close to it."""
    x, y = point
    margin = _COVER_MARGIN * scale
    is_beside = x < card.x - margin or x > card.x + card.width + margin
    is_above = y < card.y - margin or y > card.y + card.height + margin
    return not is_beside and not is_above


def draw_line(card: Rect, point: tuple[float, float], scale: float) -> None:
    """Draw the line from a pixel of the Gaussian to the card."""
    x, y = point
    is_left = x < card.x + card.width / 2
    end_x = card.x if is_left else card.x + card.width
    end = ImVec2(end_x, card.y + 70 * scale)
    distance = math.hypot(end.x - x, end.y - y)
    gap = 7 * scale
    if distance <= gap:
        return
    start_x = x + (end.x - x) / distance * gap
    start_y = y + (end.y - y) / distance * gap
    draw = imgui.get_background_draw_list()
    color = theme.u32(theme.INK, 0.55)
    draw.add_line(ImVec2(start_x, start_y), end, color, 1.2 * scale)


def draw_card(
    key: str, card: Rect, index: int, values: GaussianValues | None, course: Course
) -> bool:
    """Draw the card; return True if its button closes it.

    Args:
        key: for imgui, unlike all others.
        card: its place.
        index: of the Gaussian.
        values: its newest values; None while they are read.
        course: its values over time.
    """
    scale = theme.scale()
    imgui.push_style_var(imgui.StyleVar_.window_rounding.value, _ROUNDING * scale)
    with boards.board(key, card, color=theme.CARD) as is_open:
        imgui.pop_style_var()
        if not is_open:
            return False
        is_closed = _draw_head(card, index, scale)
        if values is not None:
            _draw_numbers(card, values, scale)
            _draw_curve(card, course, scale)
        else:
            _write("Reading", card.x + _PAD * scale, card.y + 40 * scale, theme.INK_DIM)
    return is_closed


def _draw_head(card: Rect, index: int, scale: float) -> bool:
    """Draw the title and the button; return True if that was pressed."""
    with theme.bold():
        y = card.y + 20 * scale - imgui.get_text_line_height() / 2
        _write(f"Gaussian {index:,}", card.x + _PAD * scale, y, theme.INK)
    side = 24 * scale
    corner = ImVec2(card.x + card.width - side - 8 * scale, card.y + 8 * scale)
    imgui.set_cursor_screen_pos(corner)
    button = controls.item("close inspected", side, side)
    ink = theme.INK if button.hovered else theme.INK_DIM
    icons.draw(imgui.get_window_draw_list(), "close", button.middle, ink, icons.SIZE)
    controls.tip("Choose none (Escape)")
    return button.pressed


def _draw_numbers(card: Rect, values: GaussianValues, scale: float) -> None:
    rows = {
        "Position": "  ".join(value_text(x) for x in values.mean.tolist()),
        "Size": "  ".join(f"{length:.3g}" for length in values.scale.tolist()),
        "Opacity": f"{values.opacity:.3f}",
        "Colour": "  ".join(f"{channel:.2f}" for channel in values.color),
    }
    for line, (label, text) in enumerate(rows.items()):
        y = _line_y(card, line, scale)
        _write(label, card.x + _PAD * scale, y, theme.INK_DIM)
        x = card.x + (_PAD + _LABEL_WIDTH) * scale
        if label == "Colour":
            _draw_swatch(values, ImVec2(x, y + scale), scale)
            x += 22 * scale
        _write(text, x, y, theme.INK)


def _draw_swatch(values: GaussianValues, low: ImVec2, scale: float) -> None:
    side = 14 * scale
    color = theme.u32(ImVec4(*values.color, 1.0))
    draw = imgui.get_window_draw_list()
    draw.add_rect_filled(low, ImVec2(low.x + side, low.y + side), color, 3 * scale)


def _draw_curve(card: Rect, course: Course, scale: float) -> None:
    """Draw the opacity over time."""
    top = card.y + (32 + 4 * _LINE + 4) * scale
    _write("Over time", card.x + _PAD * scale, top + 5 * scale, theme.INK_DIM)
    left = card.x + (_PAD + _LABEL_WIDTH) * scale
    width = _CURVE_SIZE[0] * scale
    height = _CURVE_SIZE[1] * scale
    draw = imgui.get_window_draw_list()
    ground = theme.u32(theme.STAGE)
    corner = ImVec2(left + width, top + height)
    draw.add_rect_filled(ImVec2(left, top), corner, ground, 3 * scale)
    opacities = [min(max(values.opacity, 0.0), 1.0) for values in course.values]
    opacities = [0.0 if math.isnan(opacity) else opacity for opacity in opacities]
    count = len(opacities)
    if count > 1:
        pad = 3 * scale
        step = (width - 2 * pad) / (count - 1)
        drop = height - 2 * pad
        points: list[ImVec2Like] = [
            ImVec2(left + pad + i * step, top + pad + (1 - opacity) * drop)
            for i, opacity in enumerate(opacities)
        ]
        draw.add_polyline(points, theme.u32(theme.MARK), 1.4 * scale, 0)
    with theme.font_size(theme.SMALL_SIZE):
        _write(_caption(course), left, top + height + 4 * scale, theme.INK_DIM)


def _caption(course: Course) -> str:
    """Return what the curve of the opacity is drawn over."""
    if course.first_step is not None:
        return f"opacity since step {course.first_step:,}"
    if course.snapshot_count:
        return f"opacity in {course.snapshot_count} snapshots"
    if len(course.values) > 1:
        return f"opacity in {len(course.values)} versions"
    return "one version so far"


def _line_y(card: Rect, line: int, scale: float) -> float:
    """Return the pixel at which the text of a line of numbers begins."""
    middle = card.y + (32 + (line + 0.5) * _LINE) * scale
    return middle - imgui.get_text_line_height() / 2


def _write(text: str, x: float, y: float, color: ImVec4) -> None:
    draw = imgui.get_window_draw_list()
    lettering.write(draw, round(x), round(y), theme.u32(color), text)


def value_text(value: float) -> str:
    """Return a coordinate with a real minus sign, short enough for the card."""
    text = f"{value:.3f}" if abs(value) < 100 else f"{value:.4g}"
    return text.replace("-", "\u2212")
