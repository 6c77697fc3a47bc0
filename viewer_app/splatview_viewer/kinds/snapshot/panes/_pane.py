"""What the panes are made of: a window that fills a rectangle, quiet words, chips to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import board, colored
from splatview_viewer.ui.widgets import fitted as fitted
from splatview_viewer.ui.widgets import wrapped as wrapped

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from splatview_viewer.geometry.controls import Rect

T = TypeVar("T")
GROUND = ImVec4(0.090, 0.096, 0.108, 1.0)
"""Under tables and graphs; a little darker than the panel."""
STRIPE = ImVec4(1.0, 1.0, 1.0, 0.018)
LINE = ImVec4(0.19, 0.20, 0.22, 1.0)
OVER = ImVec4(1.0, 1.0, 1.0, 0.06)
CHOSEN = ImVec4(0.19, 0.27, 0.37, 1.0)
HIT = ImVec4(0.98, 0.78, 0.32, 1.0)
"""What a search found."""
GROWN = ImVec4(0.95, 0.58, 0.42, 1.0)
SHRUNK = ImVec4(0.40, 0.75, 0.58, 1.0)


def pane(owner: object, name: str, rect: Rect, scale: float, *, scroll: bool = False,
         ground: ImVec4 = GROUND) -> AbstractContextManager[bool]:
    """A window exactly over a rectangle of the framebuffer. `owner`: whose it is; windows of two owners are two, though
    they are called the same. `scroll`: what is drawn in it may be longer than it is."""
    return board(f"snapshot {name} {id(owner)}", rect, (12 * scale, 9 * scale), ground, scroll=scroll)


def centered(text: str, color: ImVec4 = theme.DIM) -> None:
    """Words in the middle of what is left of the window, where there is nothing to show."""
    left = imgui.get_content_region_avail()
    corner = imgui.get_cursor_screen_pos()
    draw = imgui.get_window_draw_list()
    lines = text.split("\n")
    height = imgui.get_text_line_height() * 1.35
    y = corner.y + max((left.y - height * len(lines)) / 2, 0)
    for line in lines:
        width = imgui.calc_text_size(line).x
        draw.add_text(ImVec2(round(corner.x + max((left.x - width) / 2, 0)), round(y)), theme.u32(color), line)
        y += height


def gap(points: float, scale: float) -> None:
    imgui.dummy(ImVec2(0, points * scale))


def chips(label: str, value: T, options: Mapping[T, str], tips: Mapping[T, str] | None = None) -> T:
    """A line of words of which one is chosen; the value after this turn. What does not fit goes to the next line."""
    for i, (key, text) in enumerate(options.items()):
        if i:
            beside(button_width(text), 2)
        if chip(f"{text}##{label}", key == value):
            value = key
        if tips and key in tips:
            imgui.set_item_tooltip(tips[key])
    return value


def chip(text: str, on: bool) -> bool:
    """A flat button that is lit while `on`."""
    clear = imgui.get_color_u32(ImVec4(0, 0, 0, 0))
    imgui.push_style_color(imgui.Col_.button, imgui.get_color_u32(CHOSEN) if on else clear)
    imgui.push_style_color(imgui.Col_.text, imgui.get_color_u32(theme.TEXT if on else theme.DIM))
    pressed = imgui.button(text)
    imgui.pop_style_color(2)
    return pressed


def label(text: str) -> None:
    """A dim word before what follows on the same line."""
    imgui.align_text_to_frame_padding()
    colored(text, theme.DIM)
    imgui.same_line()


def beside(width: float, space: float) -> None:
    """The next item, so many pixels wide, goes on the same line after some space, if there is room for it."""
    right = imgui.get_window_pos().x + imgui.get_window_width() - imgui.get_style().window_padding.x
    if imgui.get_item_rect_max().x + space + width <= right:
        imgui.same_line(0, space)


def on_the_right(width: float) -> None:
    """The next item, so many pixels wide, ends where the window's line ends; if there is no room for it, it goes to the
    next one."""
    imgui.same_line()
    left = imgui.get_content_region_avail().x - width
    if left >= 0:
        imgui.set_cursor_pos_x(imgui.get_cursor_pos_x() + left)
    else:
        imgui.new_line()


def button_width(text: str) -> float:
    return imgui.calc_text_size(text).x + 2 * imgui.get_style().frame_padding.x
