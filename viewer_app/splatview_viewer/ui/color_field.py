"""A row of the panel for a colour: a swatch, its digits, and a board to choose it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.ui import controls, theme, widgets
from splatview_viewer.ui.drags import drag_all

if TYPE_CHECKING:
    from splatview_viewer.core.settings import Color

_PICKER_FLAGS = (
    imgui.ColorEditFlags_.no_options
    | imgui.ColorEditFlags_.no_side_preview
    | imgui.ColorEditFlags_.no_label
    | imgui.ColorEditFlags_.display_hex
).value


def draw_color(label: str, tip: str, value: Color) -> Color:
    """Draw a field for a colour; return RGB in [0, 1] after this frame.

    A press opens a board to choose and to type it.
    """
    widgets.row(label)
    scale = theme.scale()
    width = imgui.get_content_region_avail().x
    field = controls.item(f"##{label}", width, theme.ROW_HEIGHT * scale)
    controls.tip(tip)
    draw = imgui.get_window_draw_list()
    ground = theme.HOVER if field.hovered else theme.FIELD
    rounding = theme.FIELD_ROUNDING * scale
    draw.add_rect_filled(field.low, field.high, theme.u32(ground), rounding)
    low = ImVec2(field.x + 10 * scale, field.middle[1] - 8 * scale)
    draw_swatch(draw, low, value, 16 * scale)
    with theme.code():
        y = round(field.middle[1] - imgui.get_text_line_height() / 2)
        x = round(low.x + 25 * scale)
        draw.add_text(ImVec2(x, y), theme.u32(theme.TEXT), hex_digits(value))
    name = f"{label} board"
    if field.pressed:
        imgui.open_popup(name)
    if not imgui.begin_popup(name):
        return value
    imgui.set_next_item_width(220 * scale)
    edited, new = imgui.color_picker3(f"##{name}", list(value), _PICKER_FLAGS)
    # The board itself takes no arrows.
    channels = [255 * channel for channel in new]
    is_moved, channels = drag_all(f"{name} channel", channels, 1.0, "%.0f")
    imgui.end_popup()
    if is_moved:
        edited = True
        new = [channel / 255 for channel in channels]
    if not edited:
        # What imgui returned was rounded to 32 bits.
        return value
    # Numbers that were typed may be out of range.
    r, g, b = (min(max(channel, 0.0), 1.0) for channel in list(new)[:3])
    return r, g, b


def hex_digits(value: Color) -> str:
    """Return a colour's name as pages and drawing programs have it: "#0E0F11"."""
    # Halves are rounded up, as the board to choose a colour does.
    return "#" + "".join(f"{int(255 * channel + 0.5):02X}" for channel in value)


def draw_swatch(draw: imgui.ImDrawList, low: ImVec2, value: Color, side: float) -> None:
    """Draw a square of a colour, its upper left corner and its side in pixels."""
    high = ImVec2(low.x + side, low.y + side)
    rounding = 3 * theme.scale()
    draw.add_rect_filled(low, high, theme.u32(ImVec4(*value, 1)), rounding)
    draw.add_rect(low, high, theme.u32(theme.FAINT), rounding)
