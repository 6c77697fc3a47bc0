"""The timeline of a camera path: a line with its keyframes and the playhead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.quantities import round_seconds
from splatview_viewer.geometry.path import MAX_KEYS
from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.scene_view.path import PathTool

_PADDING = 8.0
"""Points from the ends of the line to the ends of its field."""
_MIN_WIDTH = 40.0
"""Points below which there is no timeline."""
_KEY_REACH = 7.0
"""Points around a keyframe within which the pointer has it."""
_MIN_DRAG = 3.0
"""Points from which a press on a keyframe moves it."""
_TICK_DISTANCE = 60.0
_MAX_TICKS = 100
_KEY_HALF = 5.0
"""Points from the middle of a keyframe's square to its corners."""


@dataclass(slots=True)
class _TimeAxis:
    """The timeline's field on the screen, in pixels, and its times."""

    left: float
    top: float
    width: float
    height: float
    duration: float
    """Seconds, over 0."""
    scale: float
    """Pixels per point."""

    @property
    def start_x(self) -> float:
        return self.left + _PADDING * self.scale

    @property
    def span(self) -> float:
        """Pixels from the first time to the last."""
        return max(self.width - 2 * _PADDING * self.scale, 1.0)

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def to_x(self, seconds: float) -> float:
        return self.start_x + self.span * seconds / self.duration

    def to_seconds(self, x: float) -> float:
        return (x - self.start_x) / self.span * self.duration


class Timeline:
    """Edits the times of a path's keyframes, and moves the playhead."""

    def __init__(self, tool: PathTool) -> None:
        self._tool = tool
        self._dragged: int | None = None
        """The index in `CameraPath.times` that the pointer moves."""

    @property
    def is_dragging(self) -> bool:
        """True while the pointer moves a keyframe."""
        return self._dragged is not None

    def draw(self, rect: Rect, scale: float) -> None:
        """Draw the timeline at imgui's cursor, up to the right edge of `rect`."""
        corner = imgui.get_cursor_screen_pos()
        width = rect.x + rect.width - corner.x - 2 * _PADDING * scale
        height = rect.height - 2 * _PADDING * scale
        if width < _MIN_WIDTH * scale:
            return
        duration = max(self._tool.path.duration, 1e-6)
        axis = _TimeAxis(corner.x, corner.y, width, height, duration, scale)
        imgui.invisible_button("line", ImVec2(width, max(height, 1)))
        self._handle_pointer(axis)
        draw = imgui.get_window_draw_list()
        _draw_ticks(draw, axis)
        self._draw_keys(draw, axis)
        x = axis.to_x(min(self._tool.time, duration))
        top = ImVec2(x, axis.top)
        bottom = ImVec2(x, axis.bottom)
        draw.add_line(top, bottom, theme.u32(theme.TEXT), 1.5 * scale)

    def _handle_pointer(self, axis: _TimeAxis) -> None:
        """Choose and move keyframes, or the playhead, with the pointer."""
        pointer_x = ui.pointer().x
        seconds = axis.to_seconds(pointer_x)
        is_held = imgui.is_item_active()
        if imgui.is_item_activated():
            self._dragged = self._key_at(pointer_x, axis)
            self._tool.stop()
            if self._dragged is not None:
                self._tool.choose(self._dragged % len(self._tool.path.keys))
        elif is_held and self._dragged is not None:
            button = imgui.MouseButton_.left
            if imgui.is_mouse_dragging(button, _MIN_DRAG * axis.scale):
                self._tool.move_key(self._dragged, seconds)
        if not is_held:
            self._dragged = None
        elif self._dragged is None:
            self._tool.seek(seconds)

    def _key_at(self, x: float, axis: _TimeAxis) -> int | None:
        """Return the index of the keyframe under a column of the screen."""
        distances = [abs(axis.to_x(time) - x) for time in self._tool.path.times]
        nearest = min(distances)
        if nearest >= _KEY_REACH * axis.scale:
            return None
        return distances.index(nearest)

    def _draw_keys(self, draw: imgui.ImDrawList, axis: _TimeAxis) -> None:
        path = self._tool.path
        # Of more keyframes there are several in each pixel.
        if len(path.times) > MAX_KEYS + 1:
            return
        middle = axis.top + axis.height * 0.36
        half = _KEY_HALF * axis.scale
        chosen_key = self._tool.chosen_key
        for index, time in enumerate(path.times):
            x = axis.to_x(time)
            is_chosen = chosen_key is not None and index % len(path.keys) == chosen_key
            color = theme.u32(theme.TEXT if is_chosen else theme.ACCENT)
            draw.add_quad_filled(
                ImVec2(x, middle - half),
                ImVec2(x + half, middle),
                ImVec2(x, middle + half),
                ImVec2(x - half, middle),
                color,
            )


def _draw_ticks(draw: imgui.ImDrawList, axis: _TimeAxis) -> None:
    """Draw the field with round times."""
    scale = axis.scale
    right = axis.left + axis.width
    color = theme.u32(theme.FAINT)
    draw.add_rect_filled(
        ImVec2(axis.left, axis.top),
        ImVec2(right, axis.bottom),
        theme.u32(theme.FIELD),
        4 * scale,
    )
    seconds_apart = _TICK_DISTANCE * scale * axis.duration / axis.span
    step = round_seconds(max(seconds_apart, 0.1))
    count = min(int(axis.duration / step + 1e-6) + 1, _MAX_TICKS)
    text_y = round(axis.bottom - imgui.get_text_line_height())
    for index in range(count):
        x = axis.to_x(index * step)
        text = f"{index * step:g} s"
        top = ImVec2(x, axis.top + axis.height * 0.7)
        draw.add_line(top, ImVec2(x, axis.bottom), color, scale)
        text_x = x + 3 * scale
        text_width = imgui.calc_text_size(text).x
        if text_x + text_width > right:
            text_x = x - 3 * scale - text_width
        draw.add_text(ImVec2(round(text_x), text_y), color, text)
