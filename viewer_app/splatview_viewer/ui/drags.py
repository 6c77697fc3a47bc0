"""Fields for numbers that are dragged, typed, or moved by the arrows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_viewer.ui import focus

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


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
        low, high = limits
        moved = value + steps * step
        if low < high:
            return min(max(moved, low), high)
        return moved
    if is_edited:
        return edited
    # What came back otherwise was rounded to 32 bits.
    return value


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
