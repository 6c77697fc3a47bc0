"""The controls of the panel, and what lies over a picture: cards, and hints about how
numbers are shown.
"""

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
_BOARD = (
    imgui.WindowFlags_.no_decoration
    | imgui.WindowFlags_.no_move
    | imgui.WindowFlags_.no_saved_settings
    | imgui.WindowFlags_.no_bring_to_front_on_focus
    | imgui.WindowFlags_.no_scroll_with_mouse
    | imgui.WindowFlags_.no_nav
    | imgui.WindowFlags_.no_focus_on_appearing
).value
_SCROLLS = (
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
    """A window exactly over a part of the framebuffer; False if nothing of it is seen.

    `name`: for imgui, unlike all others. `pad`: pixels around what is in it. `scroll`:
    that may be longer.
    """
    imgui.set_next_window_pos(ImVec2(rect.x, rect.y))
    imgui.set_next_window_size(ImVec2(max(rect.width, 1), max(rect.height, 1)))
    imgui.push_style_var(imgui.StyleVar_.window_padding, ImVec2(*pad))
    imgui.push_style_var(imgui.StyleVar_.window_min_size, ImVec2(1, 1))
    imgui.push_style_color(
        imgui.Col_.window_bg, imgui.get_color_u32(color or theme.PANEL)
    )
    opened = imgui.begin(f"##{name}", None, _BOARD & ~_SCROLLS if scroll else _BOARD)[0]
    imgui.pop_style_color()
    imgui.pop_style_var(2)
    try:
        yield opened
    finally:
        imgui.end()


def colored(text: str, color: ImVec4) -> None:
    imgui.push_style_color(imgui.Col_.text, imgui.get_color_u32(color))
    imgui.text_unformatted(text)
    imgui.pop_style_color()


def wrapped(text: str, color: ImVec4 | None = None) -> None:
    """A text in as many lines as it needs; dim without a colour."""
    imgui.push_text_wrap_pos(0.0)
    colored(text, color or theme.DIM)
    imgui.pop_text_wrap_pos()


def fitted(text: str, width: float, *, tail: bool = False) -> str:
    """As much of a text as has room in `width` pixels, with dots at its end or (`tail`)
    its beginning.
    """
    # No more than a letter a pixel: texts of files can have millions, and measuring
    # looks at each.
    most = max(int(width), 0) + 2
    if len(text) > most:
        text = text[-most:] if tail else text[:most]
    elif lettering.measure(text).x <= width:
        return text
    return _cut(text, width, tail, imgui.get_font_size())


@lru_cache(1024)
def _cut(text: str, width: float, tail: bool, _size: float) -> str:
    """`_size`: of the letters, on which the result depends as well."""

    def piece(count: int) -> str:
        return "…" + text[len(text) - count :] if tail else text[:count].rstrip() + "…"

    low = 0
    high = len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high)
            if lettering.measure(piece(middle)).x <= width
            else (low, middle - 1)
        )
    return piece(low) if low else ""


def lines_of(text: str, width: float, max_lines: int) -> list[str]:
    """A text in lines of about `width` pixels, `most` of them at most."""
    return wrap(
        text,
        max(int(width / (0.48 * imgui.get_font_size())), 12),
        max_lines=max_lines,
        placeholder=" …",
    )


def pointer() -> ImVec2:
    """Return where the pointer is, or was last while it is nowhere: always finite."""
    if imgui.is_mouse_pos_valid():
        return imgui.get_mouse_pos()
    return imgui.get_current_context().mouse_last_valid_pos


def gap(pixels: float) -> None:
    imgui.dummy(ImVec2(0, pixels))


def row(label: str) -> None:
    """Begin a row; the next item fills what is left of it."""
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
    """The value after this turn; a right click sets it to `reset`.

    tip: shown under the pointer. log: on a scale of powers of ten.
    """
    row(label)
    flags = (
        imgui.SliderFlags_.always_clamp.value
        | log * imgui.SliderFlags_.logarithmic.value
    )
    edited, new = imgui.slider_float(f"##{label}", value, *limits, fmt, flags)
    value = new if edited else value
    if reset is None:
        more = ""
    else:
        more = "\nRight click: back to the default. Ctrl + click: type a number."
    imgui.set_item_tooltip(tip + more)
    if reset is not None and imgui.is_item_clicked(imgui.MouseButton_.right):
        return reset
    return value


def vector(label: str, values: Sequence[float], fmt: str) -> tuple[bool, list[float]]:
    """Return whether float64 numbers were edited in the rest of a row, and the numbers
    after this turn.
    """
    gap = imgui.get_style().item_inner_spacing.x
    new = list(values)
    width = (imgui.get_content_region_avail().x - gap * (len(new) - 1)) / len(new)
    for i, value in enumerate(values):
        if i:
            imgui.same_line(0, gap)
        imgui.set_next_item_width(width)
        edited, typed = imgui.input_double(f"##{label} {i}", value + 0.0, format=fmt)
        new[i] = typed if edited else value
    return new != list(values), new


def check(label: str, tip: str, value: bool) -> bool:
    """The value after this turn, in a box to tick."""
    row(label)
    ticked = imgui.checkbox(f"##{label}", value)[1]
    imgui.set_item_tooltip(tip)
    return ticked


def choice(label: str, tip: str, value: T, options: Mapping[T, str]) -> T:
    """The value after this turn, one of `options` (value: what it is called)."""
    row(label)
    keys = list(options)
    index = keys.index(value) if value in options else 0
    _, index = imgui.combo(f"##{label}", index, list(options.values()))
    imgui.set_item_tooltip(tip)
    return keys[index]


def color(label: str, tip: str, value: Color) -> Color:
    """RGB in [0, 1] after this turn."""
    row(label)
    edited, new = imgui.color_edit3(
        f"##{label}", list(value), imgui.ColorEditFlags_.no_options.value
    )
    imgui.set_item_tooltip(tip)
    if not edited:
        return value  # not what came back, which was rounded to 32 bits
    r, g, b = (min(max(part, 0.0), 1.0) for part in list(new)[:3])  # may be typed
    return r, g, b


def _entry_size() -> ImVec2:
    width = imgui.get_content_region_avail().x
    return ImVec2(width, imgui.get_text_line_height() + 10 * theme.scale())


def is_entry_visible() -> bool:
    """Return whether the next `entry` is to be drawn.

    One that is scrolled out of sight leaves its room: a list may have thousands.
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
    """A line of a list: a dot, a name cut to the room that there is, words on the
    right. True: it was clicked.
    """
    scale = theme.scale()
    line = imgui.get_text_line_height()
    at = imgui.get_cursor_screen_pos()
    size = _entry_size()
    width = size.x
    height = size.y
    pad = 8 * scale
    pressed, _ = imgui.selectable(f"##{key}", is_selected, 0, size)
    draw = imgui.get_window_draw_list()
    middle = at.y + height / 2
    draw.add_circle_filled(
        ImVec2(at.x + pad + 3 * scale, middle), 3.5 * scale, theme.u32(dot), 16
    )
    start = at.x + pad + 16 * scale
    end = at.x + width - pad - imgui.calc_text_size(right).x
    lettering.write(
        draw,
        start,
        middle - line / 2,
        theme.u32(theme.DIM if dim_name else theme.TEXT),
        fitted(name, end - 6 * scale - start),
    )
    draw.add_text(ImVec2(end, middle - line / 2), theme.u32(theme.DIM), right)
    return bool(pressed)


def buttons(label: str, names: Sequence[str], tips: Sequence[str] = ()) -> int | None:
    """A row of buttons of equal width; the one that was pressed.

    `tips` appear when the pointer rests on one.
    """
    row(label)
    gap = imgui.get_style().item_inner_spacing.x
    width = (imgui.get_content_region_avail().x - 1 - gap * (len(names) - 1)) / len(
        names
    )  # as far as other controls
    widest = max(imgui.calc_text_size(name).x for name in names)
    padding = imgui.get_style().frame_padding
    imgui.push_style_var(
        imgui.StyleVar_.frame_padding,
        ImVec2(min(padding.x, max((width - widest) / 2, 0)), padding.y),
    )
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
    """Style."""
    text: str
    button: str


class Hints:
    """Shows a hint to users, each over their picture, and logs it once."""

    def __init__(self) -> None:
        self.hint: Hint | None = None
        self._places: dict[Rect, Rect] = {}
        """Place in each picture."""
        self._told: set[Any] = set()
        self._closed: set[Any] = set()

    def draw(self, rect: Rect, scale: float, name: str) -> bool:
        """Draw inside an imgui frame at the lower edge of a stream's picture; True when
        the button was pressed.
        """
        hint = self.hint
        if hint is None or hint.choice in self._closed:
            self._places.clear()
            return False
        if hint.choice not in self._told:
            self._told.add(hint.choice)
            log.warning(
                '%s: %s; press "%s" over the picture', name, hint.text, hint.button
            )
        style = imgui.get_style()
        side = round(imgui.get_frame_height())
        pad = round(6 * scale)
        rest = (
            imgui.calc_text_size(hint.button).x
            + side
            + 2 * (style.frame_padding.x + style.item_spacing.x + pad)
        )
        text = fitted(hint.text, rect.width - rest)
        width = min(round(imgui.calc_text_size(text).x + rest + 1), rect.width)
        height = side + pad
        place = Rect(
            rect.x + (rect.width - width) // 2,
            rect.y + rect.height - height,
            width,
            height,
        )
        with board(
            f"hint {id(self)} {rect.x} {rect.y}", place, (pad, pad / 2), theme.BAR
        ):
            imgui.align_text_to_frame_padding()
            colored(text, theme.TEXT)
            imgui.same_line()
            pressed = imgui.button(hint.button)
            imgui.same_line()
            if imgui.button("\u00d7", ImVec2(side, 0)):
                self._closed.add(hint.choice)
        self._places[rect] = place
        return pressed

    def covered(self, rect: Rect) -> list[Rect]:
        """As `View.covered`."""
        return [self._places[rect]] if rect in self._places else []


_PACE = 1.2
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
    """Draw lines of text on a rounded card, sized by the font in use, and return its
    rectangle.

    at: a point in pixels. lines: text and colour; a second colour is that of a square
    before all lines, of a legend. anchor: the point of the card that is put there, (0,
    0) its upper left corner, (1, 1) its lower right; lines are centred where its x is
    0.5. within: where the card stays, as far as it has room. ground: its colour, the
    bars' without. pad: around the text, in heights of the letters, half as much above
    and below.
    """
    line = imgui.get_text_line_height()
    sizes = [lettering.measure(text) for text, *_ in lines]
    side = pad * line
    indent = 1.1 * line if any(len(parts) > 2 for parts in lines) else 0.0
    width = max((size.x for size in sizes), default=0.0) + indent
    w = width + 2 * side
    h = sum(size.y for size in sizes) + (len(lines) - 1) * (_PACE - 1) * line + side
    x = point[0] - anchor[0] * w
    y = point[1] - anchor[1] * h
    if within is not None:
        x = max(min(x, within.x + within.width - w), within.x)
        y = max(min(y, within.y + within.height - h), within.y)
    place = Rect(round(x), round(y), round(w), round(h))
    draw.add_rect_filled(
        ImVec2(place.x, place.y),
        ImVec2(place.x + place.width, place.y + place.height),
        theme.u32(ground or faint(theme.BAR, 0.85)),
        0.3 * line,
    )
    y = place.y + side / 2
    for (text, color, *squares), size in zip(lines, sizes, strict=True):
        for square in squares:
            draw.add_rect_filled(
                ImVec2(round(x + side), round(y + 0.15 * line)),
                ImVec2(round(x + side + 0.7 * line), round(y + 0.85 * line)),
                theme.u32(square),
                0.15 * line,
            )
        start = indent + ((width - indent - size.x) / 2 if anchor[0] == 0.5 else 0.0)
        lettering.write(draw, round(x + side + start), round(y), theme.u32(color), text)
        y += size.y + (_PACE - 1) * line
    return place


def tag(text: str, x: float, y: float, within: Rect) -> None:
    """Write on a card over the picture, its upper left corner at a pixel."""
    card(imgui.get_background_draw_list(), (x, y), [(text, theme.TEXT)], within=within)


def hover_card(
    draw: imgui.ImDrawList, point: ImVec2, lines: Sequence[Line], within: Rect
) -> None:
    """Draw a card beside the pointer, on its left where there is no room on its right."""
    away = imgui.get_text_line_height()
    width = max((imgui.calc_text_size(text).x for text, *_ in lines), default=0.0)
    left = point.x + width + 2.5 * away > within.x + within.width
    card(
        draw,
        (point.x - away if left else point.x + away, point.y),
        lines,
        (float(left), 0.5),
        within=within,
        ground=faint(theme.POPUP, 0.96),
        pad=0.75,
    )


def faint(color: ImVec4, alpha: float) -> ImVec4:
    """The same colour, more transparent."""
    return ImVec4(color.x, color.y, color.z, color.w * alpha)


def fold(title: str, opened: bool = False, tip: str = "") -> bool:
    """A line that opens and closes what follows, whether it is open; `opened`: at
    first.
    """
    imgui.push_style_color(imgui.Col_.header, theme.BAR)
    here = imgui.collapsing_header(
        title, imgui.TreeNodeFlags_.default_open.value if opened else 0
    )
    imgui.pop_style_color()
    if tip:
        imgui.set_item_tooltip(tip)
    return here
