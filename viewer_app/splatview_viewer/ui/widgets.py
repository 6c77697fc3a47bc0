"""The controls of the panel, and what lies over a picture: cards and hints."""

from __future__ import annotations

import logging
import math
from contextlib import contextmanager
from functools import lru_cache
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.screen import Rect
from splatview_viewer.ui import controls, focus, icons, lettering, theme

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Line = tuple[str, ImVec4] | tuple[str, ImVec4, ImVec4]

T = TypeVar("T")
_CLEAR = ImVec4(0, 0, 0, 0)
_FLOAT_MIN = 1e-30
"""Imgui fills what is left of a line, down to the last pixel, for such a width below 0."""
SHOWING_FLAGS = (
    imgui.WindowFlags_.no_decoration
    | imgui.WindowFlags_.no_inputs
    | imgui.WindowFlags_.no_nav
    | imgui.WindowFlags_.no_saved_settings
    | imgui.WindowFlags_.no_focus_on_appearing
).value
"""Flags of a window that shows something and takes no input."""
_BOARD_FLAGS = (
    imgui.WindowFlags_.no_decoration
    | imgui.WindowFlags_.no_move
    | imgui.WindowFlags_.no_saved_settings
    | imgui.WindowFlags_.no_bring_to_front_on_focus
    | imgui.WindowFlags_.no_scroll_with_mouse
    | imgui.WindowFlags_.no_focus_on_appearing
).value
_NO_SCROLL_FLAGS = (
    imgui.WindowFlags_.no_scrollbar | imgui.WindowFlags_.no_scroll_with_mouse
).value
_SCROLLED_FLAGS = _BOARD_FLAGS & ~_NO_SCROLL_FLAGS
_WINDOW_PADDING = imgui.StyleVar_.window_padding
_WINDOW_MIN_SIZE = imgui.StyleVar_.window_min_size
_WINDOW_GROUND = imgui.Col_.window_bg
_LEAST_SIZE = ImVec2(1, 1)
_KEPT = (
    imgui.internal.WindowRefreshFlags_.try_to_avoid_refresh
    | imgui.internal.WindowRefreshFlags_.refresh_on_hover
    | imgui.internal.WindowRefreshFlags_.refresh_on_focus
).value


class _Board:
    """A window over a part of the framebuffer; a class, as frames have a dozen."""

    __slots__ = ("_color", "_name", "_pad", "_raised", "_rect", "_scroll", "_stays")

    def __init__(
        self,
        name: str,
        rect: Rect,
        pad: tuple[float, float],
        color: ImVec4 | None,
        scroll: bool,
        raised: bool,
        stays: bool,
    ) -> None:
        self._name = name
        self._rect = rect
        self._pad = pad
        self._color = color
        self._scroll = scroll
        self._raised = raised
        self._stays = stays

    def __enter__(self) -> bool:
        """Open the window; return False if nothing is to be drawn in it."""
        rect = self._rect
        pad_x, pad_y = self._pad
        imgui.set_next_window_pos(ImVec2(rect.x, rect.y))
        imgui.set_next_window_size(ImVec2(max(rect.width, 1), max(rect.height, 1)))
        flags = _BOARD_FLAGS
        if self._scroll:
            # A bar that appears lies in the margin, and nothing becomes narrower.
            imgui.set_next_window_content_size(ImVec2(rect.width - 2 * pad_x, 0))
            flags = _SCROLLED_FLAGS
        if self._stays and _keeps_boards:
            imgui.internal.set_next_window_refresh_policy(_KEPT)
        imgui.push_style_var(_WINDOW_PADDING, ImVec2(pad_x, pad_y))
        imgui.push_style_var(_WINDOW_MIN_SIZE, _LEAST_SIZE)
        imgui.push_style_color(_WINDOW_GROUND, theme.u32(self._color or theme.PANEL))
        is_visible, _ = imgui.begin(f"##{self._name}", None, flags)
        imgui.pop_style_color()
        imgui.pop_style_var(2)
        if self._raised and imgui.is_window_appearing():
            window = imgui.internal.get_current_window_read()
            imgui.internal.bring_window_to_display_front(window)
        focus.current().begin_board(self._name)
        return is_visible

    def __exit__(self, *exc: object) -> None:
        focus.current().end_board(self._name)
        imgui.end()


def board(
    name: str,
    rect: Rect,
    pad: tuple[float, float] = (0.0, 0.0),
    color: ImVec4 | None = None,
    *,
    scroll: bool = False,
    raised: bool = False,
    stays: bool = False,
) -> _Board:
    """Open a window exactly over a part of the framebuffer.

    Inside it is False if nothing is to be drawn: it cannot be seen, or keeps what was
    drawn in it.

    Args:
        name: for imgui, unlike all others.
        rect: the part, in pixels.
        pad: pixels around what is in it.
        color: of its ground; the panel's without.
        scroll: True if what is in it may be longer.
        raised: True to lie over all other boards, which are behind those before them.
        stays: True if it keeps what was drawn in it where frames say so.
    """
    return _Board(name, rect, pad, color, scroll, raised, stays)


_keeps_boards = False


def keep_boards(keeps: bool) -> None:
    """Have boards that stay keep what was drawn in them, or draw them anew.

    This is called before each frame. What is under the pointer or has the keyboard is
    drawn anew all the same.
    """
    global _keeps_boards
    _keeps_boards = keeps


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


def row(label: str) -> None:
    """Start a row; the next item fills what is left of it."""
    if _noted_rows is not None:
        _noted_rows.append(label)
    is_sought = bool(_sought_row) and label == _sought_row
    start = imgui.get_cursor_pos_x()
    imgui.align_text_to_frame_padding()
    label_width = theme.LABEL_WIDTH * theme.scale()
    dim(fitted(label, label_width - 4 * theme.scale()))
    imgui.same_line(start + label_width)
    imgui.set_next_item_width(-_FLOAT_MIN)
    if is_sought:
        seek_row("")
        imgui.set_scroll_here_y(0.3)
        controls.focus_next()


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
        imgui.push_style_color(color, _CLEAR)
    imgui.push_style_color(imgui.Col_.frame_bg_hovered, faint(theme.TEXT, 0.06))
    imgui.push_style_color(imgui.Col_.frame_bg_active, faint(theme.TEXT, 0.10))
    imgui.push_style_color(imgui.Col_.slider_grab_active, _CLEAR)
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
    if reset is not None:
        tip += (
            "\nRight click: back to the default. Ctrl + click or Enter: type a number."
        )
    controls.tip(tip)
    if reset is not None and _asks_for_default():
        return reset
    moved = _moved_by_keys(value, limits, log)
    if moved is not None:
        return moved
    if edited:
        return new
    return value


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
    value: float, limits: tuple[float, float], log: bool
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
    return min(max(value + share * (high - low), low), high)


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
    gap = imgui.get_style().item_inner_spacing.x
    new = list(values)
    available_width = imgui.get_content_region_avail().x
    width = (available_width - gap * (len(new) - 1)) / len(new)
    for i, value in enumerate(values):
        if i:
            imgui.same_line(0, gap)
        imgui.set_next_item_width(width)
        edited, typed = imgui.input_double(f"##{label} {i}", value + 0.0, format=fmt)
        if edited:
            new[i] = typed
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
    ticked = controls.check_box(f"{caption}##{label}", value, enabled=reason is None)
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

    reasons: why an option cannot be chosen; "" for one that can. None: all can.
    """
    row(label)
    tips = [tip] * len(options)
    return controls.segments(label, value, options, tips, reasons=reasons)


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


log = logging.getLogger("splatview")


class Hint(NamedTuple):
    """A doubt about how numbers are shown, and a button that shows them otherwise."""

    choice: Any
    """The style that the button sets."""
    text: str
    button: str


class Hints:
    """Shows a hint to users, each over their picture, and logs it once."""

    def __init__(self) -> None:
        self.hint: Hint | None = None
        self._rects: dict[Rect, Rect] = {}
        """The hint's rectangle in each picture."""
        self._logged: set[Any] = set()
        self._closed: set[Any] = set()

    def draw(self, rect: Rect, scale: float, name: str) -> bool:
        """Draw the hint at the lower edge of a stream's picture, inside an imgui frame.

        Args:
            rect: the rectangle of the picture.
            scale: pixels per point.
            name: the name of the stream, for the log.

        Returns:
            True when the button was pressed.
        """
        hint = self.hint
        if hint is None or hint.choice in self._closed:
            self._rects.clear()
            return False
        if hint.choice not in self._logged:
            self._logged.add(hint.choice)
            log.warning(
                '%s: %s; press "%s" over the picture', name, hint.text, hint.button
            )
        style = imgui.get_style()
        side = round(imgui.get_frame_height())
        pad = round(6 * scale)
        margins = 2 * (style.frame_padding.x + style.item_spacing.x + pad)
        buttons_width = imgui.calc_text_size(hint.button).x + side + margins
        text = fitted(hint.text, rect.width - buttons_width)
        text_width = imgui.calc_text_size(text).x
        width = min(round(text_width + buttons_width + 1), rect.width)
        height = side + pad
        hint_rect = Rect(
            rect.x + (rect.width - width) // 2,
            rect.y + rect.height - height,
            width,
            height,
        )
        key = f"hint {id(self)} {rect.x} {rect.y}"
        with board(key, hint_rect, (pad, pad / 2), theme.BAR):
            imgui.align_text_to_frame_padding()
            colored(text, theme.TEXT)
            imgui.same_line()
            pressed = imgui.button(hint.button)
            imgui.same_line()
            if imgui.button("\u00d7", ImVec2(side, 0)):
                self._closed.add(hint.choice)
        self._rects[rect] = hint_rect
        return pressed

    def covered(self, rect: Rect) -> list[Rect]:
        """Return the part of a picture that the hint covers, as `View.covered`."""
        if rect not in self._rects:
            return []
        return [self._rects[rect]]


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


def faint(color: ImVec4, alpha: float) -> ImVec4:
    """Return the same colour, more transparent."""
    return ImVec4(color.x, color.y, color.z, color.w * alpha)
