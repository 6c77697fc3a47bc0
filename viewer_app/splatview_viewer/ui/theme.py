"""Style of the panel: colours, dark or light, spacing and the font.

It is quiet, so that the picture stands out.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import imgui_bundle
from imgui_bundle import ImVec2, ImVec4, imgui

if TYPE_CHECKING:
    from collections.abc import Iterator

FONT_SIZE = 15.0
"""Size of the normal font, in points."""
FONT_FILE = (
    Path(imgui_bundle.__file__).parent / "assets/fonts/Roboto/Roboto-Regular.ttf"
)
"""The font of all text: Latin, Greek and Cyrillic letters."""

_DARK = {
    "TEXT": (0.87, 0.88, 0.90),
    "DIM": (0.56, 0.59, 0.63),
    "ACCENT": (0.42, 0.67, 0.96),
    "ALIVE": (0.36, 0.78, 0.52),
    "ENDED": (0.42, 0.44, 0.48),
    "FAULT": (0.96, 0.52, 0.46),
    "PANEL": (0.105, 0.112, 0.125),
    "BAR": (0.085, 0.090, 0.102),
    "LINE": (0.19, 0.20, 0.22),
    "FIELD": (0.165, 0.175, 0.195),
    "FIELD_OVER": (0.21, 0.225, 0.25),
    "FIELD_DOWN": (0.245, 0.265, 0.295),
    "SELECTED": (0.19, 0.27, 0.37),
    "OVER": (0.17, 0.20, 0.25),
    "POPUP": (0.13, 0.14, 0.155),
}
_LIGHT = {
    "TEXT": (0.11, 0.12, 0.14),
    "DIM": (0.38, 0.40, 0.44),
    "ACCENT": (0.10, 0.42, 0.80),
    "ALIVE": (0.10, 0.55, 0.28),
    "ENDED": (0.55, 0.57, 0.60),
    "FAULT": (0.76, 0.17, 0.12),
    "PANEL": (0.955, 0.96, 0.967),
    "BAR": (0.915, 0.922, 0.932),
    "LINE": (0.82, 0.83, 0.85),
    "FIELD": (0.885, 0.893, 0.907),
    "FIELD_OVER": (0.845, 0.857, 0.877),
    "FIELD_DOWN": (0.80, 0.815, 0.84),
    "SELECTED": (0.80, 0.875, 0.965),
    "OVER": (0.87, 0.905, 0.95),
    "POPUP": (0.985, 0.987, 0.99),
}
TEXT = ImVec4(0, 0, 0, 1)
DIM = TEXT
ACCENT = TEXT
ALIVE = TEXT
ENDED = TEXT
FAULT = TEXT
PANEL = TEXT
BAR = TEXT
LINE = ImVec4(0, 0, 0, 1)
FIELD = LINE
FIELD_OVER = LINE
FIELD_DOWN = LINE
SELECTED = LINE
OVER = LINE
POPUP = LINE
"""The colours of the panel, which `use` sets: read them while drawing."""
INK = ImVec4(*_DARK["TEXT"], 1.0)
MARK = ImVec4(*_DARK["ACCENT"], 1.0)
LIVE = ImVec4(*_DARK["ALIVE"], 1.0)
SHADE = ImVec4(*_DARK["BAR"], 1.0)
"""Colours of lines over pictures, the same beside a light panel and a dark one: plain,
marked, live, around."""
_CLEAR = ImVec4(0, 0, 0, 0)
_light: bool | None = None


def use(light: bool) -> bool:
    """Make the theme light or dark from now on; return True if that changes it.

    Every screen may have its own, so this is called before each frame. What surrounds
    pictures stays dark: they look the same.
    """
    global _light
    if light is _light:
        return False
    _light = light
    colors = _LIGHT if light else _DARK
    for name, color in colors.items():
        globals()[name] = ImVec4(*color, 1.0)
    return True


use(False)


def apply(scale: float) -> None:
    """Style the current imgui context for a screen of `scale` pixels per point.

    It is called between frames.
    """
    style = imgui.Style()
    if _light:
        imgui.style_colors_light(style)
    else:
        imgui.style_colors_dark(style)
    for index, color in _imgui_colors().items():
        style.set_color_(index, color)
    _set_sizes(style)
    style.scale_all_sizes(scale)
    style.font_size_base = FONT_SIZE
    style.font_scale_dpi = scale
    target = imgui.get_style()
    for name in dir(style):
        value = getattr(style, name)
        if not name.startswith("_") and not callable(value):
            setattr(target, name, value)
    for i in range(imgui.Col_.count):
        target.set_color_(i, style.color_(i))


def _imgui_colors() -> dict[imgui.Col_, ImVec4]:
    """Return imgui's colours in the theme in use."""
    c = imgui.Col_
    return {
        c.text: TEXT,
        c.text_disabled: DIM,
        c.window_bg: PANEL,
        c.popup_bg: POPUP,
        c.border: LINE,
        c.separator: LINE,
        c.frame_bg: FIELD,
        c.frame_bg_hovered: FIELD_OVER,
        c.frame_bg_active: FIELD_DOWN,
        c.button: FIELD,
        c.button_hovered: FIELD_OVER,
        c.button_active: FIELD_DOWN,
        c.header: SELECTED,
        c.header_hovered: OVER,
        c.header_active: SELECTED,
        c.slider_grab: ImVec4(ACCENT.x, ACCENT.y, ACCENT.z, 0.5),
        c.slider_grab_active: ACCENT,
        c.check_mark: ACCENT,
        c.scrollbar_bg: _CLEAR,
        c.scrollbar_grab: FIELD_DOWN,
        c.plot_histogram: ACCENT,
        c.nav_cursor: ACCENT,
        c.text_selected_bg: SELECTED,
    }


def _set_sizes(style: imgui.Style) -> None:
    """Set distances and roundings, in points."""
    style.window_padding = ImVec2(14, 12)
    style.frame_padding = ImVec2(8, 4)
    style.item_spacing = ImVec2(8, 6)
    style.item_inner_spacing = ImVec2(6, 4)
    style.frame_rounding = 4
    style.grab_rounding = 3
    style.popup_rounding = 5
    style.selectable_rounding = 4
    style.scrollbar_rounding = 6
    style.scrollbar_size = 10
    style.grab_min_size = 5
    style.window_border_size = 0
    style.window_rounding = 0
    style.disabled_alpha = 0.5


def load_font() -> None:
    """Add the font of all text to a new imgui context.

    imgui rasterises it at every size that is drawn.
    """
    fonts = imgui.get_io().fonts
    if FONT_FILE.is_file():
        fonts.add_font_from_file_ttf(str(FONT_FILE), FONT_SIZE)
    else:
        fonts.add_font_default()


@contextmanager
def font_size(points: float) -> Iterator[None]:
    """Draw text at another size inside an imgui frame."""
    imgui.push_font(None, points)
    try:
        yield
    finally:
        imgui.pop_font()


def scale() -> float:
    """Return pixels per point, by the font in use inside an imgui frame."""
    return imgui.get_font_size() / FONT_SIZE


def u32(color: ImVec4, alpha: float = 1.0) -> int:
    """Return a colour for imgui's draw lists."""
    return imgui.color_convert_float4_to_u32(
        (color.x, color.y, color.z, color.w * alpha)
    )
