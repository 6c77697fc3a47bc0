"""The tracks of the time area: ground, ticks, marks, and the cursor."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.ui import focus, lettering, theme

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imgui_bundle import ImVec4

    from splatview_viewer.core.screen import Rect

_MARGIN = 0.012
"""Share of the width between an end of the track and its first or last place."""
_LAST_LABEL = 0.965
"""Place from which a tick has no text, which would end outside."""
_TICK_HEIGHT = 7.0
_HATCHING = 7.0
"""Points from one line of a hatching to the next."""
_MARK_TOP = 5.0
_MARK_HEIGHT = 9.0
_KEY_HALF = 7.0
"""Points from the middle of a keyframe's square to its corners."""
_KEY_MIDDLE = 10.5
"""Points from the track's top to the middle of a keyframe's square."""


@dataclass(frozen=True, slots=True)
class Track:
    """A track in pixels. Its places are shares: 0 at the left, 1 at the right."""

    rect: Rect
    scale: float
    """Pixels per point."""

    @property
    def span(self) -> float:
        """Pixels from the first place to the last."""
        return max(self.rect.width * (1 - 2 * _MARGIN), 1.0)

    @property
    def bottom(self) -> float:
        return self.rect.y + self.rect.height

    def to_x(self, share: float) -> float:
        """Return the pixel x of a place."""
        return self.rect.x + self.rect.width * _MARGIN + share * self.span

    def to_share(self, x: float) -> float:
        """Return the place at a pixel x."""
        return (x - self.rect.x - self.rect.width * _MARGIN) / self.span

    @contextmanager
    def drawing(self) -> Iterator[imgui.ImDrawList]:
        """Draw on the ground of the track, and nothing outside of it."""
        low = ImVec2(self.rect.x, self.rect.y)
        high = ImVec2(self.rect.x + self.rect.width, self.bottom)
        draw = imgui.get_window_draw_list()
        rounding = theme.FIELD_ROUNDING * self.scale
        draw.add_rect_filled(low, high, theme.u32(theme.FIELD), rounding)
        # Also of the window: a plot inside would leave this clip as the window's.
        imgui.push_clip_rect(low, high, True)
        try:
            yield draw
        finally:
            imgui.pop_clip_rect()

    def draw_tick(self, draw: imgui.ImDrawList, share: float, text: str) -> None:
        """Draw a tick at the lower edge with its text at the right."""
        x = round(self.to_x(share))
        draw.add_rect_filled(
            ImVec2(x, self.bottom - _TICK_HEIGHT * self.scale),
            ImVec2(x + max(round(self.scale), 1), self.bottom),
            theme.u32(theme.FAINT, 0.6),
        )
        if share >= _LAST_LABEL or not text:
            return
        with theme.font_size(theme.AXES_SIZE):
            height = imgui.get_text_line_height()
            y = round(self.bottom - height - self.scale)
            corner = ImVec2(round(x + 4 * self.scale), y)
            draw.add_text(corner, theme.u32(theme.FAINT), text)

    def draw_hatching(self, draw: imgui.ImDrawList, start: float, end: float) -> None:
        """Draw slanting lines between two places, where the track knows nothing."""
        left = self.to_x(start)
        right = self.to_x(end)
        height = self.rect.height
        distance = _HATCHING * self.scale
        color = theme.u32(theme.FAINT, 0.5)
        draw.push_clip_rect(ImVec2(left, self.rect.y), ImVec2(right, self.bottom), True)
        for index in range(int((right - left + height) / distance) + 1):
            x = left + index * distance
            draw.add_line(
                ImVec2(x - height, self.bottom),
                ImVec2(x, self.rect.y),
                color,
                self.scale,
            )
        draw.pop_clip_rect()

    def draw_mark(self, draw: imgui.ImDrawList, x: float) -> None:
        """Draw the mark of a snapshot at a pixel x."""
        top = self.rect.y + _MARK_TOP * self.scale
        draw.add_rect_filled(
            ImVec2(round(x - self.scale), top),
            ImVec2(round(x + self.scale), top + _MARK_HEIGHT * self.scale),
            theme.u32(theme.ACCENT, 0.75),
            self.scale,
        )

    def draw_key(self, draw: imgui.ImDrawList, share: float, color: ImVec4) -> None:
        """Draw the square of a keyframe, on one of its corners."""
        x = self.to_x(share)
        y = self.rect.y + _KEY_MIDDLE * self.scale
        half = _KEY_HALF * self.scale
        draw.add_quad_filled(
            ImVec2(x, y - half),
            ImVec2(x + half, y),
            ImVec2(x, y + half),
            ImVec2(x - half, y),
            theme.u32(color),
        )

    def draw_cursor(self, draw: imgui.ImDrawList, share: float) -> None:
        """Draw where the lane is now."""
        x = round(self.to_x(share) - self.scale)
        draw.add_rect_filled(
            ImVec2(x, self.rect.y),
            ImVec2(x + max(round(2 * self.scale), 1), self.bottom),
            theme.u32(theme.TEXT),
        )

    def write(self, draw: imgui.ImDrawList, text: str) -> None:
        """Write what the track says while nothing is on it."""
        y = self.rect.y + (self.rect.height - imgui.get_text_line_height()) / 2
        x = self.rect.x + 12 * self.scale
        lettering.write(draw, round(x), round(y), theme.u32(theme.FAINT), text)

    def take_pointer(self, name: str) -> bool:
        """Place the item that takes the pointer; return True while it is held.

        name: for imgui.
        """
        imgui.set_cursor_screen_pos(ImVec2(self.rect.x, self.rect.y))
        size = ImVec2(max(self.rect.width, 1), max(self.rect.height, 1))
        imgui.invisible_button(name, size, imgui.ButtonFlags_.enable_nav.value)
        return bool(imgui.is_item_active()) and imgui.is_mouse_down(
            imgui.MouseButton_.left
        )

    def take_arrows(self) -> int:
        """Return by how many stops the arrows move the lane, once its item is placed."""
        return focus.arrow_steps()
