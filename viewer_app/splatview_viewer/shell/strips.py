"""Small plots in the panel, of what goes with the stream that is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from imgui_bundle import ImVec2, imgui

from splatview_viewer.kinds.scalars.columns import Axis, columns, limits
from splatview_viewer.kinds.scalars.smooth import smoothed
from splatview_viewer.kinds.scalars.words import value_text
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.kinds.scalars.curves import Curve, Curves
    from splatview_viewer.shell.memory_strip import Strip

_HEIGHT = 34.0
"""Points."""
_SMOOTHING = 0.8
_MOST = 2
"""Scalars that are seen."""


class _Part(Protocol):
    key: str

    def draw(self, scale: float) -> bool: ...


class Strips:
    """Several, one under the other."""

    def __init__(self, parts: Sequence[Strip | CurveStrip]) -> None:
        self.parts = parts
        self.key = ""
        """The entry that shows more of what was clicked."""

    def draw(self, scale: float) -> bool:
        """Draw them into the window that is open, as wide as there is room. True when one was clicked."""
        clicked = False
        parts: Sequence[_Part] = self.parts
        for i, part in enumerate(parts):
            if i:
                imgui.dummy(ImVec2(0, 4 * scale))
            if part.draw(scale):
                self.key, clicked = part.key, True
        return clicked


@dataclass
class CurveStrip:
    """Curves of a run, and the entry that shows more ("": there is none)."""

    key: str
    curves: Sequence[Curve]
    head: str
    """What is said over them."""

    def draw(self, scale: float) -> bool:
        """As `Strips.draw`."""
        line, clicked = imgui.get_text_line_height(), False
        draw, width = imgui.get_window_draw_list(), max(int(imgui.get_content_region_avail().x), 8)
        if self.head:
            draw.add_text(imgui.get_cursor_screen_pos(), theme.u32(theme.DIM), self.head)
            imgui.dummy(ImVec2(width, line))
        for i, curve in enumerate(self.curves):
            corner, height = imgui.get_cursor_screen_pos(), round(_HEIGHT * scale)
            pressed = imgui.invisible_button(f"{curve.name}##{i} {self.key}", ImVec2(width, 1.3 * line + height))
            if self.key:
                imgui.set_item_tooltip("Click to see more")
                clicked |= bool(pressed)
            right = value_text(curve.last)
            draw.add_text(corner, theme.u32(theme.DIM), curve.name)
            draw.add_text(ImVec2(corner.x + width - imgui.calc_text_size(right).x, corner.y),
                          theme.u32(theme.TEXT), right)
            top = corner.y + 1.3 * line
            low, high = ImVec2(corner.x, top), ImVec2(corner.x + width, top + height)
            draw.add_rect_filled(low, high, theme.u32(theme.BAR), 3 * scale)
            draw.push_clip_rect(low, high, True)
            for points in _points(curve, width, height):
                draw.add_polyline([ImVec2(corner.x + x, top + y) for x, y in points],
                                  theme.u32(theme.ACCENT), 1.4 * scale, 0)
            draw.pop_clip_rect()
            if self.key and imgui.is_item_hovered():
                draw.add_rect(low, high, theme.u32(theme.ACCENT, 0.6), 3 * scale)
        return clicked


def strip_of(curves: Curves | None, count: Curve | None, key: str) -> CurveStrip | None:
    """What is seen of a run beside its scene: its losses, otherwise what was logged first, and its Gaussians."""
    chosen: list[Curve] = []
    head = ""
    if curves is not None and curves.all:
        losses = [c for c in curves.all if "loss" in c.name.lower()]
        chosen = [*losses, *(c for c in curves.all if c not in losses and len(c) > 1)][:1 if losses else _MOST]
        rate = f" \u00b7 {curves.rate.last:.3g} steps/s" if curves.rate is not None else ""
        head = f"Step {curves.step:,.12g}{rate}"
    if count is not None:
        chosen.append(_called(count, "Gaussians"))
    return CurveStrip(key, chosen, head) if chosen else None


def _called(curve: Curve, name: str) -> Curve:
    found = _renamed.get(id(curve))
    if found is None or found[0] is not curve:
        if len(_renamed) > _KEPT:
            _renamed.clear()
        found = _renamed[id(curve)] = curve, type(curve)(name, curve.rows)
    return found[1]


def _points(curve: Curve, width: int, height: int) -> list[list[tuple[float, float]]]:
    """Lines through a strip of this size, remembered."""
    key = id(curve), width, height
    found = _lines.get(key)
    if found is None or found[0] is not curve:
        if len(_lines) > _KEPT:
            _lines.clear()
        found = _lines[key] = curve, _lines_of(curve, width, height)
    return found[1]


def _lines_of(curve: Curve, width: int, height: int) -> list[list[tuple[float, float]]]:
    time = curve["time"]
    begin, end = float(time[0]), max(float(time[-1]), float(time[0]) + 1e-3)
    axis = Axis(begin, end, width)
    parts = columns(curve, time, smoothed(curve, _SMOOTHING if len(curve) > width else 0.0), axis)
    low, high = limits(parts, axis, False, False)
    out = []
    for part in parts:
        xs = (part.x - begin) / (end - begin) * width
        ys = (high - part.smooth.clip(low - (high - low), high + (high - low))) / (high - low) * height
        out.append(list(zip(xs.tolist(), ys.tolist(), strict=True)))
    return [line for line in out if len(line) > 1]


_KEPT = 64
_lines: dict[tuple[int, int, int], tuple[Curve, list[list[tuple[float, float]]]]] = {}
_renamed: dict[int, tuple[Curve, Curve]] = {}
