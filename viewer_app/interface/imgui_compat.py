"""What differs between the two generations of Dear ImGui that the panel runs on; no other module asks which it is.

Python 3.11 and later have imgui-bundle 1.93 (Dear ImGui 1.93). The last one with wheels for Python 3.10 is 1.5.2
(Dear ImGui 1.90.9), and building a newer one from source needs more than an ordinary machine has. Everything else
that the panel calls is the same in both. This module goes when Python 3.10 goes: keep the branches for `_MODERN`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from imgui_bundle import imgui

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from imgui_bundle import ImVec2, ImVec4

_MODERN = hasattr(imgui.Style, "font_scale_dpi")
"""Dear ImGui 1.92 and later rasterise glyphs when they are first drawn, at the size they are drawn in."""

_GLYPHS = [0x20, 0x24F, 0x370, 0x52F, 0x1E00, 0x1EFF, 0x2010, 0x205E, 0x2070, 0x209F, 0x20A0, 0x20BF, 0x2100, 0x2122, 0]
"""First and last of each range of characters that the older one rasterises beforehand, and a 0 at the end: Latin,
Greek, Cyrillic, punctuation, raised and lowered figures, currencies, letter-like signs. About all that Roboto has."""

NAV_COLOR: int = imgui.Col_.nav_cursor if _MODERN else getattr(imgui.Col_, "nav_highlight")  # noqa: B009
"""Index of the colour around the item that the keyboard acts on."""


MODIFIERS: dict[str, imgui.Key] = {
    name: getattr(imgui.Key, f"mod_{name}" if _MODERN else f"im_gui_mod_{name}")
    for name in ("ctrl", "shift", "alt", "super")
}
"""The keys that say which modifiers are held, by the names of `splatview.viewer_app.events`."""


def set_selectable_rounding(style: imgui.Style, radius: float) -> None:
    """Round the corners of list items; the older one always draws them square."""
    if _MODERN:
        style.selectable_rounding = radius


@contextmanager
def font_size(size: float) -> Iterator[None]:
    """Letters of another size (points) inside an imgui frame; the older one has only one size."""
    if not _MODERN:
        yield
        return
    imgui.push_font(None, size)
    try:
        yield
    finally:
        imgui.pop_font()


def set_font(style: imgui.Style, file: Path | None, size: float, scale: float) -> None:
    """Make `file` (imgui's own font if None) the only font: `size` points on a screen of `scale` pixels per point.

    Between two frames, on the current imgui context. May be called again for another scale.
    """
    fonts = imgui.get_io().fonts
    if _MODERN:
        style.font_size_base = size
        style.font_scale_dpi = scale
        if fonts.fonts:
            return
        if file is None:
            fonts.add_font_default()
        else:
            fonts.add_font_from_file_ttf(str(file), size)
        return
    fonts.clear()
    if file is None:
        config = imgui.ImFontConfig()
        config.size_pixels = round(13 * scale)  # made for 13 pixels
        fonts.add_font_default(config)
    else:
        ranges: dict[str, Any] = {"glyph_ranges_as_int_list": _GLYPHS}
        fonts.add_font_from_file_ttf(str(file), round(size * scale), None, **ranges)
    if imgui.get_io().backend_renderer_name:
        imgui.backends.opengl3_destroy_device_objects()  # the next frame makes them anew, with the new glyphs


def plot_line(label: str, xs: np.ndarray, ys: np.ndarray, color: ImVec4, weight: float) -> None:
    """A line of a plot of ImPlot's, `weight` pixels thick; arrays are (N,) float64."""
    from imgui_bundle import implot

    if _MODERN:
        implot.plot_line(label, xs, ys, implot.Spec(line_color=color, line_weight=weight))
        return
    old: Any = implot
    old.push_style_color(old.Col_.line.value, color)
    old.push_style_var(old.StyleVar_.line_weight.value, weight)
    implot.plot_line(label, xs, ys)
    old.pop_style_var()
    old.pop_style_color()


def plot_band(label: str, xs: np.ndarray, low: np.ndarray, high: np.ndarray, color: ImVec4) -> None:
    """The area between two lines of a plot of ImPlot's; arrays are (N,) float64."""
    from imgui_bundle import implot

    if _MODERN:
        implot.plot_shaded(label, xs, low, high, implot.Spec(fill_color=color))
        return
    old: Any = implot
    old.push_style_color(old.Col_.fill.value, color)
    implot.plot_shaded(label, xs, low, high)
    old.pop_style_color()


def polyline(draw: imgui.ImDrawList, points: Sequence[ImVec2], color: int, thickness: float, *,
             closed: bool = False) -> None:
    """A line through points, in pixels; `closed`: back to the first."""
    flags = imgui.ImDrawFlags_.closed.value if closed else 0
    if _MODERN:
        draw.add_polyline([*points], color, thickness, flags)
    else:
        old: Any = draw
        old.add_polyline(points, color, flags, thickness)
