"""The controls of the panel, and what lies over a picture: cards and hints."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import lru_cache
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.screen import Rect
from splatview_viewer.ui import lettering, theme

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from splatview_viewer.core.settings import Color

    Line = tuple[str, ImVec4] | tuple[str, ImVec4, ImVec4]

T = TypeVar("T")
LABEL_WIDTH = 6.2
"""In units of the font's height."""
_BOARD_FLAGS = (
    imgui.WindowFlags_.no_decoration
    | imgui.WindowFlags_.no_move
    | imgui.WindowFlags_.no_saved_settings
    | imgui.WindowFlags_.no_bring_to_front_on_focus
    | imgui.WindowFlags_.no_scroll_with_mouse
    | imgui.WindowFlags_.no_nav
    | imgui.WindowFlags_.no_focus_on_appearing
).value
_NO_SCROLL_FLAGS = (
    imgui.WindowFlags_.no_scrollbar | imgui.WindowFlags_.no_scroll_with_mouse
).value


@contextmanager
def board(
    name: str,
    rect: Rect,
    pad: tuple[float, float] = (0.0, 0.0),
    color: ImVec4 | None = None,
    *,
    scroll: bool = False,
) -> Iterator[bool]:
    """Open a window exactly over a part of the framebuffer.

    Args:
        name: for imgui, unlike all others.
        rect: the part, in pixels.
        pad: pixels around what is in it.
        color: of its ground; the panel's without.
        scroll: True if what is in it may be longer.

    Yields:
        False if nothing of it can be seen.
    """
    imgui.set_next_window_pos(ImVec2(rect.x, rect.y))
    imgui.set_next_window_size(ImVec2(max(rect.width, 1), max(rect.height, 1)))
    imgui.push_style_var(imgui.StyleVar_.window_padding, ImVec2(*pad))
    imgui.push_style_var(imgui.StyleVar_.window_min_size, ImVec2(1, 1))
    imgui.push_style_color(
        imgui.Col_.window_bg, imgui.get_color_u32(color or theme.PANEL)
    )
    flags = _BOARD_FLAGS
    if scroll:
        flags &= ~_NO_SCROLL_FLAGS
    is_visible, _ = imgui.begin(f"##{name}", None, flags)
    imgui.pop_style_color()
    imgui.pop_style_var(2)
    try:
        yield is_visible
    finally:
        imgui.end()


def colored(text: str, color: ImVec4) -> None:
    imgui.push_style_color(imgui.Col_.text, imgui.get_color_u32(color))
    imgui.text_unformatted(text)
    imgui.pop_style_color()


def wrapped(text: str, color: ImVec4 | None = None) -> None:
    """Write a text in as many lines as it needs; dim without a colour."""
    imgui.push_text_wrap_pos(0.0)
    colored(text, color or theme.DIM)
    imgui.pop_text_wrap_pos()


def fitted(text: str, width: float, *, tail: bool = False) -> str:
    """Return as much of a text as fits into `width` pixels.

    Dots are at its end, or with `tail` at its beginning, where it was cut.
    """
    # No more than a letter a pixel: texts of files can have millions, and measuring
    # looks at each.
    max_letters = max(int(width), 0) + 2
    if len(text) > max_letters:
        text = text[-max_letters:] if tail else text[:max_letters]
    elif lettering.measure(text).x <= width:
        return text
    return _cut(text, width, tail, imgui.get_font_size())


@lru_cache(1024)
def _cut(text: str, width: float, tail: bool, _size: float) -> str:
    """Cut a text to a width in pixels.

    The result depends on `_size`, that of the letters, as well.
    """

    def shortened(count: int) -> str:
        if tail:
            return "…" + text[len(text) - count :]
        return text[:count].rstrip() + "…"

    low = 0
    high = len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if lettering.measure(shortened(middle)).x <= width:
            low = middle
        else:
            high = middle - 1
    return shortened(low) if low else ""


def lines_of(text: str, width: float, max_lines: int) -> list[str]:
    """Wrap a text into lines of about `width` pixels, at most `max_lines`."""
    letters = int(width / (0.48 * imgui.get_font_size()))
    return wrap(text, max(letters, 12), max_lines=max_lines, placeholder=" …")


def pointer() -> ImVec2:
    """Return the pointer's pixel, or its last one while it is nowhere: always finite."""
    if imgui.is_mouse_pos_valid():
        return imgui.get_mouse_pos()
    return imgui.get_current_context().mouse_last_valid_pos


def gap(pixels: float) -> None:
    imgui.dummy(ImVec2(0, pixels))


def row(label: str) -> None:
    """Start a row; the next item fills what is left of it."""
    imgui.align_text_to_frame_padding()
    dim(label)
    imgui.same_line(LABEL_WIDTH * imgui.get_font_size())
    imgui.set_next_item_width(-1)


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

    Args:
        label: on the left.
        tip: shown under the pointer.
        value: before this frame.
        limits: the least and the greatest value.
        fmt: as printf has it.
        reset: what a right click sets the value to; None for nothing.
        log: True for a scale of powers of ten.
    """
    row(label)
    flags = imgui.SliderFlags_.always_clamp.value
    if log:
        flags |= imgui.SliderFlags_.logarithmic.value
    edited, new = imgui.slider_float(f"##{label}", value, *limits, fmt, flags)
    if reset is not None:
        tip += "\nRight click: back to the default. Ctrl + click: type a number."
    imgui.set_item_tooltip(tip)
    if reset is not None and imgui.is_item_clicked(imgui.MouseButton_.right):
        return reset
    return new if edited else value


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


def check(label: str, tip: str, value: bool) -> bool:
    """Draw a box to tick; return the value after this frame."""
    row(label)
    _, ticked = imgui.checkbox(f"##{label}", value)
    imgui.set_item_tooltip(tip)
    return ticked


def choice(label: str, tip: str, value: T, options: Mapping[T, str]) -> T:
    """Draw a list to choose from; return the value after this frame.

    `options` maps each value to its name.
    """
    row(label)
    keys = list(options)
    index = keys.index(value) if value in options else 0
    _, index = imgui.combo(f"##{label}", index, list(options.values()))
    imgui.set_item_tooltip(tip)
    return keys[index]


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
    if not choice("Range", tip, value is not None, names):
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
    imgui.set_item_tooltip(f"{tip}. Drag, or Ctrl + click to type a number.")
    return (low, max(high, low))


def color(label: str, tip: str, value: Color) -> Color:
    """Draw a field for a colour; return RGB in [0, 1] after this frame."""
    row(label)
    edited, new = imgui.color_edit3(
        f"##{label}", list(value), imgui.ColorEditFlags_.no_options.value
    )
    imgui.set_item_tooltip(tip)
    if not edited:
        # What imgui returned was rounded to 32 bits.
        return value
    # Numbers that were typed may be out of range.
    r, g, b = (min(max(channel, 0.0), 1.0) for channel in list(new)[:3])
    return r, g, b


def _entry_size() -> ImVec2:
    width = imgui.get_content_region_avail().x
    return ImVec2(width, imgui.get_text_line_height() + 10 * theme.scale())


def is_entry_visible() -> bool:
    """Return True if the next `entry` is to be drawn.

    One that is scrolled out of sight leaves its space: a list may have thousands.
    """
    size = _entry_size()
    if imgui.is_rect_visible(size):
        return True
    imgui.dummy(size)
    return False


def entry(
    key: str,
    name: str,
    right: str,
    dot: ImVec4,
    is_selected: bool,
    *,
    dim_name: bool = False,
) -> bool:
    """Draw a line of a list; return True if it was clicked.

    Args:
        key: for imgui, unlike all others.
        name: cut to the width that is left for it.
        right: text on the right.
        dot: colour of the dot before the name.
        is_selected: True if the line is marked.
        dim_name: True for a dim name.
    """
    scale = theme.scale()
    line = imgui.get_text_line_height()
    corner = imgui.get_cursor_screen_pos()
    size = _entry_size()
    width = size.x
    height = size.y
    pad = 8 * scale
    pressed, _ = imgui.selectable(f"##{key}", is_selected, 0, size)
    draw = imgui.get_window_draw_list()
    middle = corner.y + height / 2
    draw.add_circle_filled(
        ImVec2(corner.x + pad + 3 * scale, middle), 3.5 * scale, theme.u32(dot), 16
    )
    name_color = theme.DIM if dim_name else theme.TEXT
    start = corner.x + pad + 16 * scale
    end = corner.x + width - pad - imgui.calc_text_size(right).x
    lettering.write(
        draw,
        start,
        middle - line / 2,
        theme.u32(name_color),
        fitted(name, end - 6 * scale - start),
    )
    draw.add_text(ImVec2(end, middle - line / 2), theme.u32(theme.DIM), right)
    return bool(pressed)


def buttons(label: str, names: Sequence[str], tips: Sequence[str] = ()) -> int | None:
    """Draw a row of buttons of equal width; return the index of the pressed one.

    `tips` appear when the pointer rests on one.
    """
    row(label)
    gap = imgui.get_style().item_inner_spacing.x
    # This ends as far on the right as other controls.
    available_width = imgui.get_content_region_avail().x - 1
    width = (available_width - gap * (len(names) - 1)) / len(names)
    widest = max(imgui.calc_text_size(name).x for name in names)
    padding = imgui.get_style().frame_padding
    padding_x = min(padding.x, max((width - widest) / 2, 0))
    imgui.push_style_var(imgui.StyleVar_.frame_padding, ImVec2(padding_x, padding.y))
    pressed = None
    for i, name in enumerate(names):
        if i:
            imgui.same_line(0, gap)
        if imgui.button(f"{name}##{label}", ImVec2(width, 0)):
            pressed = i
        if tips:
            imgui.set_item_tooltip(tips[i])
    imgui.pop_style_var()
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
    within: Rect | None = None,
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
        within: what the card stays in, as far as it fits.
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
    indent = 1.1 * line_height if has_squares else 0.0
    text_width = max((size.x for size in sizes), default=0.0) + indent
    text_height = sum(size.y for size in sizes) + (len(lines) - 1) * line_gap
    width = text_width + 2 * side
    height = text_height + side
    x, y = _card_corner(point, (width, height), anchor, within)
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
    within: Rect | None,
) -> tuple[float, float]:
    """Return the upper left corner of a card, as `card` puts it."""
    width, height = size
    x = point[0] - anchor[0] * width
    y = point[1] - anchor[1] * height
    if within is not None:
        x = max(min(x, within.x + within.width - width), within.x)
        y = max(min(y, within.y + within.height - height), within.y)
    return x, y


def tag(text: str, x: float, y: float, within: Rect) -> None:
    """Write on a card over the picture, its upper left corner at a pixel."""
    card(imgui.get_background_draw_list(), (x, y), [(text, theme.TEXT)], within=within)


def hover_card(
    draw: imgui.ImDrawList, point: ImVec2, lines: Sequence[Line], within: Rect
) -> None:
    """Draw a card on the right of a pixel, or on its left where it does not fit."""
    gap = imgui.get_text_line_height()
    width = max((imgui.calc_text_size(text).x for text, *_ in lines), default=0.0)
    is_left = point.x + width + 2.5 * gap > within.x + within.width
    card(
        draw,
        (point.x - gap if is_left else point.x + gap, point.y),
        lines,
        (float(is_left), 0.5),
        within=within,
        ground=faint(theme.POPUP, 0.96),
        pad=0.75,
    )


def faint(color: ImVec4, alpha: float) -> ImVec4:
    """Return the same colour, more transparent."""
    return ImVec4(color.x, color.y, color.z, color.w * alpha)


def fold(title: str, opened: bool = False, tip: str = "") -> bool:
    """Draw a line that opens and closes what follows; return True while it is open.

    `opened` is its state at first.
    """
    flags = 0
    if opened:
        flags = imgui.TreeNodeFlags_.default_open.value
    imgui.push_style_color(imgui.Col_.header, theme.BAR)
    is_open = imgui.collapsing_header(title, flags)
    imgui.pop_style_color()
    if tip:
        imgui.set_item_tooltip(tip)
    return is_open
