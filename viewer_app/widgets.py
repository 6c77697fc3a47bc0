"""The few controls that the panel is made of: a dim label on the left, the control on the right."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from imgui_bundle import ImVec2, imgui

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imgui_bundle import ImVec4

    from viewer_app.state import Color

T = TypeVar("T")
LABEL_WIDTH = 6.2
"""In units of the font's height."""


def colored(text: str, color: ImVec4) -> None:
    imgui.push_style_color(imgui.Col_.text, imgui.get_color_u32(color))
    imgui.text_unformatted(text)
    imgui.pop_style_color()


def wrapped(text: str, color: ImVec4) -> None:
    """A text in as many lines as it needs."""
    imgui.push_text_wrap_pos(0.0)
    colored(text, color)
    imgui.pop_text_wrap_pos()


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


def slider(label: str, value: float, limits: tuple[float, float], fmt: str, *, reset: float | None = None) -> float:
    """The value after this turn; a right click sets it to `reset`."""
    row(label)
    edited, new = imgui.slider_float(f"##{label}", value, *limits, fmt, imgui.SliderFlags_.always_clamp)
    value = new if edited else value
    if reset is not None:
        imgui.set_item_tooltip("Right click: back to the default. Ctrl + click: type a number.")
        if imgui.is_item_clicked(imgui.MouseButton_.right):
            value = reset
    return value


def check(label: str, value: bool) -> bool:
    """The value after this turn, in a box to tick."""
    row(label)
    return imgui.checkbox(f"##{label}", value)[1]


def choice(label: str, value: T, options: Mapping[T, str]) -> T:
    """The value after this turn, one of `options` (value: what it is called)."""
    row(label)
    keys = list(options)
    index = keys.index(value) if value in options else 0
    _, index = imgui.combo(f"##{label}", index, list(options.values()))
    return keys[index]


def color(label: str, value: Color) -> Color:
    """RGB in [0, 1] after this turn."""
    row(label)
    edited, new = imgui.color_edit3(f"##{label}", list(value), imgui.ColorEditFlags_.no_options.value)
    if not edited:
        return value  # not what came back, which was rounded to 32 bits
    r, g, b = list(new)[:3]
    return r, g, b


def buttons(label: str, names: Sequence[str], tips: Sequence[str] = ()) -> int | None:
    """A row of buttons of equal width; the one that was pressed. `tips` appear when the pointer rests on one."""
    row(label)
    gap = imgui.get_style().item_inner_spacing.x
    width = (imgui.get_content_region_avail().x - gap * (len(names) - 1)) / len(names)
    pressed = None
    for i, name in enumerate(names):
        if i:
            imgui.same_line(0, gap)
        if imgui.button(f"{name}##{label}", ImVec2(width, 0)):
            pressed = i
        if tips:
            imgui.set_item_tooltip(tips[i])
    return pressed
