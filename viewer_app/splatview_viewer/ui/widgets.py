"""The rows of the panel: labels, sliders, choices and buttons, and texts."""

from __future__ import annotations

import math
from contextlib import contextmanager
from functools import lru_cache
from textwrap import wrap
from typing import TYPE_CHECKING, TypeVar

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.ui import (
    choices,
    controls,
    drags,
    focus,
    icons,
    lettering,
    theme,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

T = TypeVar("T")
_FLOAT_MIN = 1e-30
"""Imgui fills what is left of a line, down to the last pixel, for such a width below 0."""


def colored(text: str, color: ImVec4, width: float = math.inf) -> None:
    """Write a text in a colour, in lines of at most so many pixels."""
    imgui.push_style_color(imgui.Col_.text, theme.u32(color))
    lettering.show(text, width)
    imgui.pop_style_color()


def wrapped(text: str, color: ImVec4 | None = None) -> None:
    """Write a text in as many lines as it needs; dim without a colour."""
    width = imgui.get_content_region_avail().x
    colored(text, color or theme.DIM, max(width, 1.0))


fitted = lettering.fitted


def lines_of(text: str, width: float, max_lines: int) -> list[str]:
    """Wrap a text into lines of about `width` pixels, at most `max_lines`."""
    letters = int(width / (0.48 * imgui.get_font_size()))
    return list(_wrapped_lines(text, max(letters, 12), max_lines))


@lru_cache(256)
def _wrapped_lines(text: str, letters: int, max_lines: int) -> tuple[str, ...]:
    return tuple(wrap(text, letters, max_lines=max_lines, placeholder=" …"))


def pointer() -> ImVec2:
    """Return the pointer's pixel, or its last one while it is nowhere: always finite."""
    if imgui.is_mouse_pos_valid():
        return imgui.get_mouse_pos()
    return imgui.get_current_context().mouse_last_valid_pos


def gap(pixels: float) -> None:
    imgui.dummy(ImVec2(0, pixels))


_noted_rows: list[str] | None = None
"""The labels of the rows that are drawn; None: nothing asks for them."""
_sought_row = ""
"""The label of the row that is to have the focus; "" for none."""


@contextmanager
def noting_rows() -> Iterator[list[str]]:
    """Yield a list that gets the labels of the rows that are drawn inside."""
    global _noted_rows
    previous = _noted_rows
    labels: list[str] = []
    _noted_rows = labels
    try:
        yield labels
    finally:
        _noted_rows = previous


def seek_row(label: str) -> None:
    """Scroll to the next row of this label, and give its control the focus."""
    global _sought_row
    _sought_row = label


def sought_row() -> str:
    """Return the label of the row that is to have the focus; "" for none."""
    return _sought_row


def note_rows(labels: Sequence[str]) -> None:
    """Note the labels of rows, also of those that are not drawn now."""
    if _noted_rows is not None:
        _noted_rows.extend(labels)


_label_indent = 0.0
"""Points by which the labels of rows are further to the right."""


@contextmanager
def indented_labels(points: float) -> Iterator[None]:
    """Put the labels of the rows that are drawn inside further to the right."""
    global _label_indent
    previous = _label_indent
    _label_indent = points
    try:
        yield
    finally:
        _label_indent = previous


def row(label: str) -> None:
    """Start a row; the next item fills what is left of it."""
    note_rows((label,))
    is_sought = bool(_sought_row) and label == _sought_row
    start = imgui.get_cursor_pos_x()
    imgui.align_text_to_frame_padding()
    label_width = theme.LABEL_WIDTH * theme.scale()
    if _label_indent:
        imgui.set_cursor_pos_x(start + _label_indent * theme.scale())
    label_text = fitted(label, label_width - (4 + _label_indent) * theme.scale())
    if label_text.isascii():
        dim(label_text)
    else:
        _write_in_row(label_text)
    imgui.same_line(start + label_width)
    imgui.set_next_item_width(-_FLOAT_MIN)
    if is_sought:
        seek_row("")
        imgui.set_scroll_here_y(0.3)
        controls.focus_next()


def _write_in_row(text: str) -> None:
    """Write a text in any script around the middle of a row."""
    corner = imgui.get_cursor_screen_pos()
    imgui.dummy(ImVec2(lettering.measure(text).x, theme.ROW_HEIGHT * theme.scale()))
    middle = corner.y + theme.ROW_HEIGHT * theme.scale() / 2
    controls.write_around(text, corner.x, middle, theme.DIM)


def dim(text: str) -> None:
    imgui.text_disabled(text)


def slider(
    label: str,
    tip: str,
    value: float,
    limits: tuple[float, float],
    fmt: str,
    *,
    reset: float | None = None,
    log: bool = False,
    step: float = 0.0,
) -> float:
    """Draw a slider; return the value after this frame.

    A dot stands before the label of a value that is not the default.

    Args:
        label: on the left.
        tip: shown beside the panel.
        value: before this frame.
        limits: the least and the greatest value.
        fmt: as printf has it, or a word for the value.
        reset: the default, which a right click or Backspace sets; None for nothing.
        log: True for a scale of powers of ten.
        step: the least change by a press of an arrow.
    """
    corner = imgui.get_cursor_screen_pos()
    row(label)
    if reset is not None and abs(value - reset) > 1e-6 * max(abs(reset), 1.0):
        _draw_changed_dot(corner)
    flags = imgui.SliderFlags_.always_clamp.value
    if log:
        flags |= imgui.SliderFlags_.logarithmic.value
    _draw_slider_fill(value, limits, log)
    for color in (imgui.Col_.frame_bg, imgui.Col_.slider_grab):
        imgui.push_style_color(color, theme.CLEAR)
    imgui.push_style_color(imgui.Col_.frame_bg_hovered, faint(theme.TEXT, 0.06))
    imgui.push_style_color(imgui.Col_.frame_bg_active, faint(theme.TEXT, 0.10))
    imgui.push_style_color(imgui.Col_.slider_grab_active, theme.CLEAR)
    imgui.push_style_var(imgui.StyleVar_.grab_min_size, 1.0)
    focus.keep_tab_from_typing(f"##{label}")
    hidden = " "
    if _is_being_typed(label):
        if "%" in fmt:
            hidden = fmt
        else:
            hidden = "%.3g"
    edited, new = imgui.slider_float(f"##{label}", value, *limits, hidden, flags)
    imgui.pop_style_var()
    imgui.pop_style_color(5)
    if not _is_being_typed(label):
        text = fmt
        if "%" in fmt:
            text = fmt % (new if edited else value)
        _draw_slider_text(text)
    controls.tip(_slider_tip(tip, reset))
    if reset is not None and _asks_for_default():
        return reset
    moved = _moved_by_keys(value, limits, log, step)
    if moved is not None:
        return moved
    if edited:
        low, high = limits
        return min(max(drags.edited_number(new), low), high)
    return value


def _slider_tip(tip: str, reset: float | None) -> str:
    """Return the tip of a slider, with the ways to change it."""
    typing = "Ctrl + click or Enter: type a number."
    if reset is None:
        return f"{tip}\n{typing}"
    return f"{tip}\nRight click: back to the default. {typing}"


def _is_being_typed(label: str) -> bool:
    """Return whether the number of a slider is typed."""
    return imgui.internal.temp_input_is_active(imgui.get_id(f"##{label}"))


def _asks_for_default() -> bool:
    """Return whether the user wants the last item to have its default value."""
    if imgui.is_item_clicked(imgui.MouseButton_.right):
        return True
    is_chosen = imgui.is_item_focused() and not imgui.is_item_active()
    return is_chosen and imgui.is_key_pressed(imgui.Key.backspace)


def _moved_by_keys(
    value: float, limits: tuple[float, float], log: bool, step: float
) -> float | None:
    """Return the value that the arrows give the last item, a slider; None without.

    They move it by a hundredth of its range, with Shift by a tenth.
    """
    steps = focus.arrow_steps()
    if not steps:
        return None
    share = steps * 0.01
    low, high = limits
    if log and low > 0 and value > 0:
        return min(max(value * (high / low) ** share, low), high)
    change = max(abs(share) * (high - low), step)
    return min(max(value + math.copysign(change, steps), low), high)


def _draw_changed_dot(corner: ImVec2) -> None:
    """Draw the dot before the label of a value that is not the default."""
    scale = theme.scale()
    center = ImVec2(corner.x - 6 * scale, corner.y + theme.ROW_HEIGHT * scale / 2)
    draw = imgui.get_window_draw_list()
    draw.add_circle_filled(center, 2 * scale, theme.u32(theme.ACCENT), 12)


def _draw_slider_fill(value: float, limits: tuple[float, float], log: bool) -> None:
    """Draw the ground of a slider, filled up to its value, and its grab."""
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    width = imgui.get_content_region_avail().x
    height = imgui.get_frame_height()
    low, high = limits
    share = (value - low) / ((high - low) or 1.0)
    if log and low > 0 and value > 0:
        share = math.log(value / low) / math.log(high / low)
    if math.isfinite(share):
        share = min(max(share, 0.0), 1.0)
    else:
        share = 0.0
    draw = imgui.get_window_draw_list()
    rounding = theme.FIELD_ROUNDING * scale
    bottom = corner.y + height
    right = ImVec2(corner.x + width, bottom)
    draw.add_rect_filled(corner, right, theme.u32(theme.FIELD), rounding)
    grab = corner.x + share * (width - 3 * scale)
    end = ImVec2(grab + 3 * scale, bottom)
    draw.add_rect_filled(corner, end, theme.u32(theme.FILL), rounding)
    draw.add_rect_filled(ImVec2(grab, corner.y), end, theme.u32(theme.ACCENT))


def _draw_slider_text(text: str) -> None:
    """Write the number of the last slider at its right."""
    low = imgui.get_item_rect_min()
    high = imgui.get_item_rect_max()
    x = high.x - imgui.calc_text_size(text).x - 10 * theme.scale()
    y = (low.y + high.y - imgui.get_text_line_height()) / 2
    draw = imgui.get_window_draw_list()
    draw.add_text(ImVec2(round(x), round(y)), theme.u32(theme.TEXT), text)


def vector(label: str, values: Sequence[float], fmt: str) -> tuple[bool, list[float]]:
    """Draw fields for float64 numbers in what is left of a row.

    Returns:
        True if they were edited, and the numbers after this frame.
    """
    new = list(values)
    for index in drags.columns(len(new)):
        name = f"##{label} {index}"
        edited, typed = imgui.input_double(name, values[index] + 0.0, format=fmt)
        if edited:
            new[index] = typed
    return new != list(values), new


def check(
    label: str,
    tip: str,
    value: bool,
    caption: str = "",
    *,
    reason: str | None = None,
) -> bool:
    """Draw a box to tick, and words behind it; return the value after this frame.

    Args:
        label: on the left.
        tip: shown beside the panel.
        value: before this frame.
        caption: the words.
        reason: why it cannot be ticked now; None: it can.
    """
    row(label)
    ticked = choices.check_box(f"{caption}##{label}", value, enabled=reason is None)
    controls.tip(reason or tip)
    if caption:
        low = imgui.get_item_rect_min()
        high = imgui.get_item_rect_max()
        y = (low.y + high.y - imgui.get_text_line_height()) / 2
        corner = ImVec2(high.x + 8 * theme.scale(), round(y))
        draw = imgui.get_window_draw_list()
        draw.add_text(corner, theme.u32(theme.DIM), caption)
    return ticked


def choice(label: str, tip: str, value: T, options: Mapping[T, str]) -> T:
    """Draw a list to choose from; return the value after this frame.

    `options` maps each value to its name.
    """
    row(label)
    return pick(label, tip, value, options)


def segments(
    label: str,
    tip: str,
    value: T,
    options: Mapping[T, str],
    reasons: Sequence[str] = (),
) -> T:
    """Draw a choice of few in a row; return the value after this frame.

    reasons: why each option cannot be chosen, "" for one that can; empty: all can.
    """
    row(label)
    tips = [tip] * len(options)
    return choices.segments(label, value, options, tips, reasons=reasons)


def pick(label: str, tip: str, value: T, options: Mapping[T, str]) -> T:
    """Draw a list to choose from over the next item's width; return the value now.

    Args:
        label: for imgui.
        tip: shown beside the panel.
        value: before this frame.
        options: maps each value to its name.
    """
    keys = list(options)
    if value in options:
        index = keys.index(value)
    else:
        index = 0
    names = list(options.values())
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    width = imgui.calc_item_width()
    preview = names[index] if names else ""
    flags = imgui.ComboFlags_.no_arrow_button.value
    is_open = imgui.begin_combo(f"##{label}", "", flags)
    if is_open:
        index = _draw_options(names, index)
        imgui.end_combo()
    else:
        controls.tip(tip)
    draw = imgui.get_window_draw_list()
    pad = imgui.get_style().frame_padding
    text = fitted(preview, width - 36 * scale)
    ink = imgui.get_color_u32(imgui.Col_.text)
    lettering.write(draw, round(corner.x + pad.x), corner.y + pad.y, ink, text)
    center = (corner.x + width - 16 * scale, corner.y + imgui.get_frame_height() / 2)
    icons.draw(draw, "down", center, theme.DIM, icons.CARET_SIZE)
    if keys:
        return keys[index]
    return value


def _draw_options(names: Sequence[str], index: int) -> int:
    """Draw the rows of an open list; return the number of the chosen one now."""
    most = imgui.get_io().display_size.x - 48 * theme.scale()
    width = max((lettering.measure(name).x for name in names), default=0.0)
    width = max(min(width, most), imgui.get_content_region_avail().x)
    ink = imgui.get_color_u32(imgui.Col_.text)
    for position, name in enumerate(names):
        corner = imgui.get_cursor_screen_pos()
        # Texts of files may have what means something in a name for imgui.
        imgui.push_id(position)
        size = ImVec2(width, 0)
        is_pressed, _ = imgui.selectable(f"##{name}", position == index, 0, size)
        imgui.pop_id()
        if is_pressed:
            index = position
        if position == index and imgui.is_window_appearing():
            imgui.set_item_default_focus()
        draw = imgui.get_window_draw_list()
        lettering.write(draw, corner.x, corner.y, ink, fitted(name, width))
    return index


def value_range(
    tip: str, value: tuple[float, float] | None, automatic: tuple[float, float]
) -> tuple[float, float] | None:
    """Draw the choice of a range; return it, or None where it is automatic.

    Args:
        tip: what is at both ends.
        value: before this frame.
        automatic: the range that None stands for.
    """
    names = {False: "Automatic", True: "By hand"}
    if not segments("Range", tip, value is not None, names):
        return None
    low, high = value or automatic
    high = max(high, low + 1e-3)
    row("From, to")
    _, low, high = imgui.drag_float_range2(
        "##range",
        low,
        high,
        max(high - low, 1e-4) / 200,
        0.0,
        1e9,
        "%.3g",
        "%.3g",
        imgui.SliderFlags_.always_clamp.value,
    )
    controls.tip(f"{tip}. Drag, or Ctrl + click to type a number.")
    return (low, max(high, low))


def buttons(
    label: str,
    names: Sequence[str],
    tips: Sequence[str] = (),
    icon_names: Sequence[str] = (),
    reasons: Sequence[str | None] = (),
) -> int | None:
    """Draw a row of buttons of equal width; return the index of the pressed one.

    Args:
        label: on the left; "" for buttons over the whole width.
        names: of the buttons.
        tips: of the buttons.
        icon_names: of the buttons, "" for none.
        reasons: why each cannot be pressed now; None: it can.
    """
    if label:
        row(label)
    gap = theme.ROW_GAP * theme.scale()
    available_width = imgui.get_content_region_avail().x
    width = (available_width - gap * (len(names) - 1)) / len(names) / theme.scale()
    pressed = None
    for index, name in enumerate(names):
        if index:
            imgui.same_line(0, gap)
        icon = icon_names[index] if icon_names else ""
        hint = tips[index] if tips else ""
        reason = reasons[index] if reasons else None
        is_pressed = controls.button(
            name,
            icon,
            name=f"{name}##{label}",
            width=width,
            reason=reason,
            hint=hint,
        )
        if is_pressed:
            pressed = index
    return pressed


def faint(color: ImVec4, alpha: float) -> ImVec4:
    """Return the same colour, more transparent."""
    return ImVec4(color.x, color.y, color.z, color.w * alpha)
