"""A small plot in the panel: the memory of the run whose scene is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.kinds.memory import plot
from splatview_viewer.kinds.snapshot.labels import size_text
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from splatview_viewer.core.settings import Color
    from splatview_viewer.kinds.memory.live import About, History

SPAN = 120.0
"""Seconds that are seen."""
_HEIGHT = 46.0
"""Points."""


@dataclass
class Strip:
    """What the strip shows, and the entry that shows more."""

    key: str
    history: History
    about: About

    def draw(self, scale: float) -> bool:
        """Draw it into the window that is open, as wide as there is room. True when it was clicked."""
        history = self.history
        line = imgui.get_text_line_height()
        corner, width = imgui.get_cursor_screen_pos(), max(int(imgui.get_content_region_avail().x), 8)
        height = round(_HEIGHT * scale)
        clicked = imgui.invisible_button(f"memory##{self.key}", ImVec2(width, height + 1.3 * line))
        imgui.set_item_tooltip("The memory of this run. Click to see more")
        draw = imgui.get_window_draw_list()
        name = "allocated" if history.on_gpu else "host"
        left, right = ("Memory" if history.on_gpu else "Host memory"), size_text(int(history.now(name)))
        if history.on_gpu:
            right += f" of {size_text(int(history.now('reserved')))}"
        draw.add_text(corner, theme.u32(theme.DIM), left)
        draw.add_text(ImVec2(corner.x + width - imgui.calc_text_size(right).x, corner.y), theme.u32(theme.TEXT), right)
        top, base = corner.y + 1.3 * line, corner.y + 1.3 * line + height
        draw.add_rect_filled(ImVec2(corner.x, top), ImVec2(corner.x + width, base),
                             theme.u32(theme.BAR), 3 * scale)
        self._areas(draw, (corner.x, base), width, height, scale)
        if imgui.is_item_hovered():
            draw.add_rect(ImVec2(corner.x, top), ImVec2(corner.x + width, base), theme.u32(theme.ACCENT, 0.6),
                          3 * scale)
        return bool(clicked)

    def _areas(self, draw: imgui.ImDrawList, corner: tuple[float, float], width: int, height: int,
               scale: float) -> None:
        history = self.history
        end = history.end
        begin = max(end - SPAN, min(history.begin, end - 10.0))
        columns = history.columns(begin, end, width)
        bands: list[tuple[list[float], Color]] = (
            [(columns.reserved.tolist(), plot.RESERVED_LINE), (columns.peak.tolist(), plot.PEAK),
             (columns.low.tolist(), plot.ALLOCATED)] if history.on_gpu else [(columns.host.tolist(), plot.HOST)])
        top = 1.1 * max(max(bands[0][0]), max(bands[min(1, len(bands) - 1)][0]), 1.0)
        x0, base = corner
        for i, (values, color) in enumerate(bands):
            fill = theme.u32(ImVec4(*color, 1.0), 0.35 if i == 0 else 1.0)
            for x in range(columns.first, columns.last):
                y = base - values[x] / top * height
                draw.add_rect_filled(ImVec2(x0 + x, y), ImVec2(x0 + x + 1, base), fill)
        for name, color in (("retries", ImVec4(0.95, 0.76, 0.38, 1.0)), ("ooms", theme.FAULT)):
            for t in history.raised(name)[-50:]:
                if t >= begin:
                    x = x0 + (t - begin) / (end - begin) * width
                    draw.add_line(ImVec2(x, base - height), ImVec2(x, base), theme.u32(color), 1.5 * scale)
