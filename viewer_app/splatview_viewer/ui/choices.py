"""Choices: segments, grids, fields and boxes with a tick."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.ui import icons, lettering, theme
from splatview_viewer.ui.controls import (
    UNDERLINE,
    Item,
    draw_text,
    fill,
    ground_of,
    item,
    tip,
    write_around,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T")

_CHOICE_ROUNDING = 4.0
"""Points of the corners of one of several fields."""
_GRID_SIZE = 14.5
"""Points of the letters in a grid of fields."""
_BELOW_GRID = 2.0
"""Points below a grid, beside the gap between rows."""


def segments(
    name: str,
    value: T,
    options: Mapping[T, str],
    tips: Sequence[str] = (),
    *,
    width: float = 0.0,
    reasons: Sequence[str] = (),
) -> T:
    """Draw a choice of few, beside each other in one field; return the value now.

    Args:
        name: for imgui.
        value: before this frame.
        options: maps each value to its name.
        tips: of the options.
        width: pixels; what is left of the line without.
        reasons: why each option cannot be chosen, "" for one that can; empty: all can.
    """
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    total = width or imgui.get_content_region_avail().x
    height = theme.ROW_HEIGHT * scale
    imgui.get_window_draw_list().add_rect_filled(
        corner,
        ImVec2(corner.x + total, corner.y + height),
        theme.u32(theme.FIELD),
        theme.FIELD_ROUNDING * scale,
    )
    pad = 2 * scale
    texts = tuple(options.values())
    widths = _segment_widths(texts, total - pad * (len(options) + 1), scale)
    lefts = accumulate((width + pad for width in widths), initial=corner.x + pad)
    for index, (option, left) in enumerate(zip(options, lefts, strict=False)):
        text = texts[index]
        segment_width = widths[index]
        imgui.set_cursor_screen_pos(ImVec2(left, corner.y + pad))
        reason = reasons[index] if reasons else ""
        if choosable(
            text,
            name,
            option == value,
            segment_width,
            height - 2 * pad,
            enabled=not reason,
        ):
            value = option
        if reason:
            tip(f"{text}: {reason}")
        elif tips:
            tip(tips[index])
    imgui.set_cursor_screen_pos(corner)
    imgui.dummy(ImVec2(total, height))
    return value


@lru_cache(256)
def _segment_widths(texts: tuple[str, ...], total: float, scale: float) -> list[float]:
    """Return the pixels of each of several segments with these texts.

    They are as wide as each other, unless a text needs more than its share.
    """
    equal_width = total / max(len(texts), 1)
    with theme.bold(theme.FONT_SIZE):
        needs = [lettering.measure(text).x + 6 * scale for text in texts]
    rest = total - sum(needs)
    if rest < 0 or max(needs, default=0) <= equal_width:
        return [equal_width] * len(texts)
    return [need + rest / len(texts) for need in needs]


def grid(
    name: str,
    value: T,
    options: Mapping[T, str],
    columns: int = 4,
    tips: Mapping[T, str] | None = None,
) -> T:
    """Draw a choice of many in rows of equal fields; return the value now."""
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    total = imgui.get_content_region_avail().x
    gap = 4 * scale
    field_width = (total - gap * (columns - 1)) / columns
    height = theme.ROW_HEIGHT * scale
    for index, (option, text) in enumerate(options.items()):
        row, column = divmod(index, columns)
        x = corner.x + column * (field_width + gap)
        y = corner.y + row * (height + gap)
        imgui.set_cursor_screen_pos(ImVec2(x, y))
        is_pressed = choosable(
            text,
            name,
            option == value,
            field_width,
            height,
            ground=theme.FIELD,
            size=_GRID_SIZE,
        )
        if is_pressed:
            value = option
        if tips and option in tips:
            tip(tips[option])
    rows = -(-len(options) // columns)
    imgui.set_cursor_screen_pos(corner)
    imgui.dummy(ImVec2(total, rows * height + (rows - 1) * gap + _BELOW_GRID * scale))
    return value


def choosable(
    text: str,
    name: str,
    is_chosen: bool,
    width: float,
    height: float,
    ground: ImVec4 = theme.CLEAR,
    size: float = 0.0,
    *,
    enabled: bool = True,
) -> bool:
    """Draw one of several fields of which one is chosen; return True if pressed.

    Args:
        text: on it, also its name for imgui together with `name`.
        name: of all of them.
        is_chosen: True for the one that is.
        width: pixels.
        height: pixels.
        ground: its colour while it rests and is not chosen.
        size: points of its text, less where that does not fit; 0: that of most text.
        enabled: False for one that cannot be chosen.
    """
    size = size or theme.FONT_SIZE
    target = item(f"{text}##{name}", width, height, enabled=enabled)
    if is_chosen:
        _fill_chosen(target)
        with theme.bold(_fitting_size(text, size, width)):
            draw_text(target, text, theme.ON_CHOSEN)
    else:
        fill(target, ground_of(target, ground), _CHOICE_ROUNDING)
        if not enabled:
            ink = theme.FAINT
        elif ground.w == 0:
            ink = theme.DIM
        else:
            ink = theme.TEXT
        with theme.font_size(_fitting_size(text, size, width)):
            draw_text(target, text, ink)
    return target.pressed


def _fill_chosen(target: Item) -> None:
    """Draw the ground of what is chosen, with a line along its lower edge.

    The line follows the corners, and says that this is not colour alone.
    """
    fill(target, theme.ACCENT, _CHOICE_ROUNDING)
    above = ImVec2(target.high.x, target.high.y - UNDERLINE * theme.scale())
    imgui.get_window_draw_list().add_rect_filled(
        target.low,
        above,
        theme.u32(theme.CHOSEN_GROUND),
        _CHOICE_ROUNDING * theme.scale(),
    )


def _fitting_size(text: str, size: float, width: float) -> float:
    """Return the points of letters in which a text fits into `width` pixels."""
    with theme.font_size(size):
        text_width = lettering.measure(text).x
    room = max(width - 4 * theme.scale(), 1.0)
    if text_width <= room:
        return size
    return max(size * room / text_width, theme.AXES_SIZE)


def toggle(text: str, on: bool, hint: str = "") -> bool:
    """Draw a field with a tick that is on or off; return its state now."""
    scale = theme.scale()
    width = lettering.measure(text).x + 32 * scale
    target = item(text, width, theme.ROW_HEIGHT * scale)
    draw = imgui.get_window_draw_list()
    if on:
        ground = theme.CHOSEN_GROUND
        ink = theme.ON_CHOSEN
    else:
        ground = ground_of(target, theme.FIELD)
        ink = theme.DIM
    fill(target, ground)
    if on:
        icons.draw(draw, "check", (target.x + 13 * scale, target.middle[1]), ink, 11)
    write_around(text, target.x + 23 * scale, target.middle[1], ink)
    tip(hint)
    return on != target.pressed


def check_box(name: str, on: bool, *, enabled: bool = True) -> bool:
    """Draw a box to tick in a row of the panel; return its state now."""
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    side = 18 * scale
    drop = (theme.ROW_HEIGHT * scale - side) / 2
    imgui.set_cursor_screen_pos(ImVec2(corner.x, corner.y + drop))
    target = item(name, side, side, enabled=enabled)
    fill(target, ground_of(target, theme.FIELD), 4)
    if on:
        icons.draw(
            imgui.get_window_draw_list(),
            "check",
            target.middle,
            theme.ACCENT if enabled else theme.FAINT,
            icons.CARET_SIZE,
        )
    return on != (target.pressed and enabled)
