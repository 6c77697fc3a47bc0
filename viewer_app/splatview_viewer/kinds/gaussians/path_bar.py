"""The timeline of a camera path: key frames to drag, a playhead, and buttons, in a strip under the picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.ui import theme
from splatview_viewer.ui.format import round_seconds
from splatview_viewer.ui.widgets import board

if TYPE_CHECKING:
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.gaussians.path import PathTool


class PathBar:
    """Draws it and takes what the user does there."""

    def __init__(self, tool: PathTool) -> None:
        self._tool = tool
        self._dragged: int | None = None

    def draw(self, rect: Rect, scale: float) -> bool:
        """True when a picture has to follow."""
        tool = self._tool
        again = False
        with board(f"path {id(tool)}", rect, (10 * scale, 8 * scale)) as opened:
            if not opened:
                return False
            button = ImVec2(56 * scale, 0)
            if imgui.button("Stop##path" if tool.playing else "Play##path", button):
                tool.stop() if tool.playing else tool.play()
                again = True
            imgui.set_item_tooltip("P")
            imgui.same_line()
            if imgui.button("Key##path", button):
                tool.add()
                again = True
            imgui.set_item_tooltip("Set a key frame where the camera is (K)")
            imgui.same_line()
            again |= self._line(rect, scale)
        return again

    def _line(self, rect: Rect, scale: float) -> bool:
        """The line with its keys."""
        tool, path = self._tool, self._tool.path
        left = imgui.get_cursor_screen_pos()
        width = rect.x + rect.width - left.x - 16 * scale
        if width < 40 * scale:
            return False
        height = rect.height - 16 * scale
        duration = max(path.duration, 1e-6)
        imgui.invisible_button("line", ImVec2(width, max(height, 1)))
        mouse, pressed, held = imgui.get_mouse_pos(), imgui.is_item_activated(), imgui.is_item_active()
        pad = 8 * scale
        begin, span = left.x + pad, max(width - 2 * pad, 1.0)

        def at(seconds: float) -> float:
            return begin + span * seconds / duration

        times = path.times
        again = False
        if pressed:
            near = min(range(len(times)), key=lambda i: abs(at(times[i]) - mouse.x), default=None)
            self._dragged = near if near is not None and abs(at(times[near]) - mouse.x) < 7 * scale else None
            if self._dragged is not None:
                tool.choose(self._dragged % len(path.keys))
                again = True
            tool.stop()
        elif held and self._dragged is not None and imgui.is_mouse_dragging(imgui.MouseButton_.left, 3 * scale):
            tool.move_key(self._dragged, (mouse.x - begin) / span * duration)
            again = True
        if imgui.is_item_deactivated() and self._dragged is not None:
            tool.keep()
        if held and self._dragged is None:
            tool.seek((mouse.x - begin) / span * duration)
            again = True
        self._paint(left, (begin, span, duration), (width, height), scale)
        return again

    def _paint(self, left: ImVec2, line: tuple[float, float, float], size: tuple[float, float], scale: float) -> None:
        tool = self._tool
        begin, span, duration = line
        draw, (width, height) = imgui.get_window_draw_list(), size
        draw.add_rect_filled(left, ImVec2(left.x + width, left.y + height), theme.u32(theme.FIELD), 4 * scale)
        step = round_seconds(max(60 * scale * duration / span, 0.1))
        for i in range(min(int(duration / step + 1e-6) + 1, 100)):
            x = begin + span * i * step / duration
            draw.add_line(ImVec2(x, left.y + height * 0.7), ImVec2(x, left.y + height), theme.u32(theme.GONE), scale)
            text = f"{i * step:g} s"
            beside = x + 3 * scale
            if beside + (room := imgui.calc_text_size(text).x) > left.x + width:
                beside = x - 3 * scale - room
            draw.add_text(ImVec2(round(beside), round(left.y + height - imgui.get_text_line_height())),
                          theme.u32(theme.GONE), text)
        middle, r = left.y + height * 0.36, 5 * scale
        for i, seconds in enumerate(tool.path.times):
            x = begin + span * seconds / duration
            chosen = tool.chosen is not None and i % len(tool.path.keys) == tool.chosen
            corners = ImVec2(x, middle - r), ImVec2(x + r, middle), ImVec2(x, middle + r), ImVec2(x - r, middle)
            draw.add_quad_filled(*corners, theme.u32(theme.TEXT if chosen else theme.ACCENT))
        x = begin + span * min(tool.time / duration, 1.0)
        draw.add_line(ImVec2(x, left.y), ImVec2(x, left.y + height), theme.u32(theme.TEXT), 1.5 * scale)
