"""Ways to see the Gaussians: colours, depth and others. The panel's part "View"."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.view import Section
from splatview_viewer.kinds.gaussians.state import SHOWS, Show
from splatview_viewer.scene import color_maps
from splatview_viewer.scene_view.tool import Tool
from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.gaussians.view import GaussianView

_SCALES = 0.05, 3.0
_POINTS = 1.0, 12.0
_LEGEND = 190.0
_BAR = 8.0
_PAD = 9.0
_MARGIN = 12.0
"""Points: the legend's width, the height of its colours, the room around it, and to the picture's edges."""
_LEAST = 280.0
"""Points of the picture's width below which the legend is left out."""


class LookTool(Tool["GaussianView"]):
    """Changes the view's state."""

    name: ClassVar[str] = "look"
    view: GaussianView

    def _panel(self) -> None:
        """Draw the controls."""
        view = self.view
        s = self.view.state
        titles: dict[Show, str] = {key: facts.title for key, facts in SHOWS.items()}
        show: Show = ui.choice("Show", SHOWS[s.show].tip, s.show, titles)
        s = replace(s, show=show)
        facts = SHOWS[show]
        if facts.is_mapped:
            s = replace(
                s,
                color_map=ui.choice(
                    "Colour map",
                    "Colours that stand for numbers",
                    s.color_map,
                    color_maps.NAMES,
                ),
            )
        if s.show == "depth":
            by_hand = ui.choice(
                "Range",
                "The depths at both ends of the colour map",
                s.depth_range is not None,
                {False: "Automatic", True: "By hand"},
            )
            low, high = s.depth_range or view.picture.depth.range
            if by_hand:
                ui.row("From, to")
                high = max(high, low + 1e-3)
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
                imgui.set_item_tooltip(
                    "Depth at both ends of the colours. Drag, or Ctrl + click to type a number."
                )
            s = replace(s, depth_range=(low, max(high, low)) if by_hand else None)
        if facts.by_density:
            tip = "Antialiased: small Gaussians keep their opacity (Mip-Splatting)"
            modes = {
                "scene": "As trained",
                "classic": "Classic",
                "antialiased": "Antialiased",
            }
            s = replace(s, mode=ui.choice("Rasterize", tip, s.mode, modes))
        stored = view.data.facts.stored_sh_degree if view.data.facts is not None else 0
        if stored and facts.has_own_colors:
            degrees: dict[int | None, str] = {None: "As trained"} | {
                d: f"Up to {d}" for d in range(stored + 1)
            }
            s = replace(
                s,
                sh_degree=ui.choice(
                    "SH degree",
                    "Spherical harmonics: colour by direction",
                    s.sh_degree,
                    degrees,
                ),
            )
        if s.show == "points":
            s = replace(
                s,
                point_px=ui.slider(
                    "Point size",
                    "Diameter of a point on the screen",
                    s.point_px,
                    _POINTS,
                    "%.1f points",
                    reset=3.0,
                ),
            )
        else:
            s = replace(
                s,
                scale=ui.slider(
                    "Scale",
                    "Factor on the size of all Gaussians",
                    s.scale,
                    _SCALES,
                    "%.2f \u00d7",
                    reset=1.0,
                ),
            )
        if s.show != "alpha":
            color = ui.color("Background", "Colour behind the scene", view.background)
            if (
                max(abs(a - b) for a, b in zip(color, view.background, strict=True))
                > 1e-4
            ):
                s = replace(s, background=color)
        if view.data.renderer.wants_gpu:
            tip = (
                "While the camera moves and the GPU has no time for a new picture, the last one is moved along.\n"
                "Once the camera rests, and in screenshots, the scene itself is drawn."
            )
            s = replace(s, smooth=ui.check("Smooth motion", tip, s.smooth))
        view.state = s

    def sections(self) -> Sequence[Section]:
        return [Section("", self._panel)]

    def over(self, rect: Rect, scale: float) -> bool:
        view = self.view
        if (
            SHOWS[view.state.show].is_mapped
            and view.picture.source is not None
            and rect.width >= _LEAST * scale
        ):
            low, high = view.depth_range
            if high > low:
                values = low, (low + high) / 2, high
                if view.state.show == "depth":
                    labels = _numbers(*values)
                elif high - low >= 10:
                    labels = [f"{round(v):,}" for v in values]
                else:
                    labels = [f"{v:g}" for v in values]
                _legend(
                    SHOWS[view.state.show].legend,
                    view.state.color_map,
                    labels,
                    view.tools.above_bars(rect),
                    scale,
                )
        return False

    def details(self) -> Sequence[str]:
        view = self.view
        low, high = view.depth_range
        if view.state.show == "depth" and high > 0:
            return [f"depth {low:.3g} to {high:.3g}"]
        return []


def _legend(
    title: str, name: str, words: Sequence[str], rect: Rect, scale: float
) -> None:
    """The colour map of this name in the lower right corner, with what its left, its middle and its right are. Over
    pictures, so the same in dark and light.
    """
    draw = imgui.get_background_draw_list()
    with theme.font_size(12.0):
        line = imgui.get_text_line_height()
        pad = _PAD * scale
        width = _LEGEND * scale
        height = 2 * line + (_BAR + 6) * scale + 2 * pad
        x = rect.x + rect.width - width - _MARGIN * scale
        y = rect.y + rect.height - height - _MARGIN * scale
        if y < rect.y:
            return
        draw.add_rect_filled(
            ImVec2(x, y),
            ImVec2(x + width, y + height),
            theme.u32(ImVec4(0.06, 0.065, 0.075, 0.82)),
            6 * scale,
        )
        left = round(x + pad)
        right = round(x + width - pad)
        top = round(y + pad + line + 3 * scale)
        bright = theme.u32(ImVec4(0.9, 0.91, 0.93, 1))
        dim = theme.u32(ImVec4(0.7, 0.72, 0.75, 1))
        draw.add_text(ImVec2(left, round(y + pad - 1 * scale)), bright, title)
        colors = [
            theme.u32(ImVec4(r, g, b, 1)) for r, g, b in color_maps.table(name).tolist()
        ]
        edges = np.linspace(left, right, len(colors)).tolist()
        for i in range(len(colors) - 1):
            draw.add_rect_filled_multi_color(
                ImVec2(edges[i], top),
                ImVec2(edges[i + 1], top + _BAR * scale),
                colors[i],
                colors[i + 1],
                colors[i + 1],
                colors[i],
            )
        below = round(top + (_BAR + 3) * scale)
        for word, share in zip(words, (0.0, 0.5, 1.0), strict=True):
            draw.add_text(
                ImVec2(
                    round(left + share * (right - left - imgui.calc_text_size(word).x)),
                    below,
                ),
                dim,
                word,
            )


def _numbers(*values: float) -> list[str]:
    """Return numbers with as many decimals as tell them apart."""
    span = max(values) - min(values)
    if span <= 0 or max(map(abs, values)) >= 1e6 or span < 1e-4:
        return [f"{v:.3g}" for v in values]
    decimals = min(max(2 - math.floor(math.log10(span)), 0), 6)
    words = [f"{v:,.{decimals}f}" for v in values]
    while decimals and all(word.endswith("0") for word in words):
        decimals = decimals - 1
        words = [word[:-1] for word in words]
    return [word.rstrip(".") for word in words]
