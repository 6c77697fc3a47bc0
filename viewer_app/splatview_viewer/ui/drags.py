"""Fields for numbers that are dragged, typed, or moved by the arrows."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_viewer.ui import focus

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_DIGITS = 7
"""Digits of a number, which are as many as 32 bits have."""


def is_typing() -> bool:
    """Return whether something is typed into the last item."""
    return imgui.is_item_active() and imgui.get_io().want_text_input


def edited_number(edited: float) -> float:
    """Return the number of the last item, which its user has dragged or typed.

    edited: the number as imgui returns it, which is of 32 bits.
    """
    text_state = imgui.get_current_context().input_text_state
    if not imgui.is_item_active() and text_state.id_ == imgui.get_item_id():
        # What was typed counts once the field is left.
        with suppress(ValueError):
            return float(text_state.get_text())
    return float(f"{edited:.{_DIGITS}g}")


def drag(
    name: str,
    value: float,
    step: float,
    fmt: str,
    limits: tuple[float, float] = (0.0, 0.0),
    flags: int = 0,
) -> float:
    """Draw a field for a number; return the number after this frame.

    Args:
        name: for imgui.
        value: before this frame.
        step: what a pixel of dragging, or a press of an arrow, changes.
        fmt: as printf has it.
        limits: the least and the greatest value; two equal ones for none.
        flags: of imgui's sliders.
    """
    focus.keep_tab_from_typing(name)
    is_edited, edited = imgui.drag_float(name, value, step, *limits, fmt, flags)
    steps = focus.arrow_steps()
    if steps:
        moved = value + steps * step
    elif is_edited:
        moved = edited_number(edited)
    else:
        # What came back was rounded to 32 bits.
        return value
    low, high = limits
    if low < high:
        return min(max(moved, low), high)
    return moved


def drag_all(
    label: str, values: Sequence[float], step: float, fmt: str
) -> tuple[bool, list[float]]:
    """Draw a field for each of some numbers in what is left of a row.

    Returns:
        True if one was edited, and the numbers after this frame.
    """
    imgui.begin_group()
    new = [
        drag(f"##{label} {index}", values[index], step, fmt)
        for index in columns(len(values))
    ]
    imgui.end_group()
    return new != list(values), new


def columns(count: int) -> Iterator[int]:
    """Divide what is left of a row evenly; yield each column's index before its field.

    A field that is drawn next has the column's width.
    """
    gap = imgui.get_style().item_inner_spacing.x
    free_width = imgui.get_content_region_avail().x - gap * (count - 1)
    for index in range(count):
        if index:
            imgui.same_line(0, gap)
        imgui.set_next_item_width(free_width / count)
        yield index
