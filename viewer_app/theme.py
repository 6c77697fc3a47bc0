"""How the panel looks: colours, spacing and the font. Dark and quiet, so that the picture is what one sees."""

from __future__ import annotations

from pathlib import Path

import imgui_bundle
from imgui_bundle import ImVec2, ImVec4, imgui

from viewer_app import imgui_compat

FONT_SIZE = 15.0
"""In points."""

TEXT = ImVec4(0.87, 0.88, 0.90, 1.0)
DIM = ImVec4(0.56, 0.59, 0.63, 1.0)
ACCENT = ImVec4(0.42, 0.67, 0.96, 1.0)
ALIVE = ImVec4(0.36, 0.78, 0.52, 1.0)
GONE = ImVec4(0.42, 0.44, 0.48, 1.0)
FAULT = ImVec4(0.96, 0.52, 0.46, 1.0)
PANEL = ImVec4(0.105, 0.112, 0.125, 1.0)
BAR = ImVec4(0.085, 0.090, 0.102, 1.0)
_LINE = ImVec4(0.19, 0.20, 0.22, 1.0)
_FIELD = ImVec4(0.165, 0.175, 0.195, 1.0)
_FIELD_OVER = ImVec4(0.21, 0.225, 0.25, 1.0)
_FIELD_DOWN = ImVec4(0.245, 0.265, 0.295, 1.0)
_CHOSEN = ImVec4(0.19, 0.27, 0.37, 1.0)
_CLEAR = ImVec4(0, 0, 0, 0)


def apply(scale: float) -> None:
    """Style the current imgui context, font included, for a screen of `scale` pixels per point. Between frames."""
    style = imgui.Style()
    imgui.style_colors_dark(style)
    c = imgui.Col_
    for which, color in {
        c.text: TEXT, c.text_disabled: DIM, c.window_bg: PANEL, c.popup_bg: ImVec4(0.13, 0.14, 0.155, 1.0),
        c.border: _LINE, c.separator: _LINE, c.frame_bg: _FIELD, c.frame_bg_hovered: _FIELD_OVER,
        c.frame_bg_active: _FIELD_DOWN, c.button: _FIELD, c.button_hovered: _FIELD_OVER,
        c.button_active: _FIELD_DOWN, c.header: _CHOSEN, c.header_hovered: ImVec4(0.17, 0.20, 0.25, 1.0),
        c.header_active: _CHOSEN, c.slider_grab: ImVec4(0.42, 0.67, 0.96, 0.75), c.slider_grab_active: ACCENT,
        c.check_mark: ACCENT,
        c.scrollbar_bg: _CLEAR, c.scrollbar_grab: _FIELD_DOWN, c.plot_histogram: ACCENT,
        imgui_compat.NAV_COLOR: ACCENT, c.text_selected_bg: _CHOSEN,
    }.items():
        style.set_color_(which, color)
    style.window_padding = ImVec2(14, 12)
    style.frame_padding = ImVec2(8, 4)
    style.item_spacing = ImVec2(8, 6)
    style.item_inner_spacing = ImVec2(6, 4)
    style.frame_rounding = 4
    style.grab_rounding = 3
    style.popup_rounding = 5
    imgui_compat.set_selectable_rounding(style, 4)
    style.scrollbar_rounding = 6
    style.scrollbar_size = 10
    style.grab_min_size = 5
    style.window_border_size = 0
    style.window_rounding = 0
    style.disabled_alpha = 0.5
    style.scale_all_sizes(scale)
    imgui_compat.set_font(style, _font_file(), FONT_SIZE, scale)
    _assign(imgui.get_style(), style)


def _assign(target: imgui.Style, source: imgui.Style) -> None:
    for name in dir(source):
        value = getattr(source, name)
        if not name.startswith("_") and not callable(value):
            setattr(target, name, value)
    for i in range(imgui.Col_.count):
        target.set_color_(i, source.color_(i))


def _font_file() -> Path | None:
    """Roboto, which comes with imgui-bundle."""
    file = Path(imgui_bundle.__file__).parent / "assets" / "fonts" / "Roboto" / "Roboto-Regular.ttf"
    return file if file.is_file() else None


def u32(color: ImVec4, alpha: float = 1.0) -> int:
    """A colour for imgui's draw lists."""
    return imgui.color_convert_float4_to_u32((color.x, color.y, color.z, color.w * alpha))
