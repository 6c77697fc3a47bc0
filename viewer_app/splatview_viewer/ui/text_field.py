"""Fields of one line to type in, whose letters may go from right to left."""

from __future__ import annotations

from imgui_bundle import ImVec2, imgui

from splatview_viewer.ui import lettering, theme
from splatview_viewer.ui.text_order import is_right_to_left

_LETTER_COLORS = (imgui.Col_.text, imgui.Col_.input_text_cursor)


def text_field(name: str, hint: str, text: str, flags: int = 0) -> tuple[bool, str]:
    """Draw a field as `imgui.input_text_with_hint`, and return what that returns.

    imgui can neither shape nor order letters: those of other fonts are written over
    what it draws.
    """
    if lettering.is_plain(text):
        return imgui.input_text_with_hint(name, hint, text, flags)
    padding = imgui.get_style().frame_padding
    for color in _LETTER_COLORS:
        imgui.push_style_color(color, theme.CLEAR)
    edited, typed = imgui.input_text_with_hint(name, hint, text, flags)
    imgui.pop_style_color(len(_LETTER_COLORS))
    low = imgui.get_item_rect_min()
    high = imgui.get_item_rect_max()
    left = low.x + padding.x
    right = high.x - padding.x
    draw = imgui.get_window_draw_list()
    draw.push_clip_rect(ImVec2(left - 1, low.y), ImVec2(right + 1, high.y), True)
    _write_typed(draw, text, left, right, low.y + padding.y)
    draw.pop_clip_rect()
    return edited, typed


def _write_typed(
    draw: imgui.ImDrawList, text: str, left: float, right: float, y: float
) -> None:
    """Write what was typed between two pixels, and a line where it goes on."""
    width = lettering.measure(text).x
    x = left
    caret = left
    if not is_right_to_left(text):
        # Of a long text the end is seen, where it goes on.
        x = min(left, right - width)
        caret = x + width
    lettering.write(draw, x, y, theme.u32(theme.TEXT), text)
    if not imgui.is_item_active():
        return
    end = ImVec2(caret, y + imgui.get_text_line_height())
    draw.add_line(ImVec2(caret, y), end, theme.u32(theme.TEXT), theme.scale())
