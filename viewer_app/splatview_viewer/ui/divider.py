"""The line between two pictures, which a user drags."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from splatview_viewer.core.events import (
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
)
from splatview_viewer.core.screen import Rect

if TYPE_CHECKING:
    from imgui_bundle import imgui

    from splatview_viewer.core.events import Event

_REACH_POINTS = 7.0
"""Points to either side of the line within which it can be dragged."""
_TOUCH_REACH = 22.0
"""The same for a finger."""
EDGED_POINTS = 4.0
"""Width of the line with its dark edges."""
MIN_SHARE = 0.02
"""Share of the width that stays on either side, so that the line can be dragged again.
"""
_KNOB_RADIUS = 14.0
"""Points: the circle that shows that the line can be dragged."""
_TOUCH_KNOB_RADIUS = 16.0
_TOUCH_KNOB_HEIGHT = 102.0
"""Points from the lower edge to the circle for a finger, which hides nothing there."""


class Divider:
    """An upright line over a picture.

    It has its position; its owner draws the pictures on both sides.
    """

    def __init__(self) -> None:
        self.position = 0.5
        """Position: 0 at the left edge of the picture, 1 at the right one."""
        self.is_hovered = False
        """True if the pointer is on the line."""
        self._drag_offset: float | None = None
        """Pixels from the line to the pointer, while the line is dragged."""

    def x(self, rect: Rect) -> int:
        """Return the line's column on the screen: the first one right of it."""
        return rect.x + round(self.position * rect.width)

    def handle(self, event: Event, rect: Rect, scale: float = 1.0) -> bool | None:
        """Handle a user's event.

        Args:
            event: any.
            rect: the picture's, in pixels.
            scale: pixels per point.

        Returns:
            True if the picture has to be drawn again; None if the event is not for the
            line.
        """
        match event:
            case PointerPress(button="left"):
                return self._press(event, rect, scale)
            case PointerMove() if self._drag_offset is not None:
                return self._drag_to(event.x - self._drag_offset, rect)
            case PointerMove():
                was_hovered = self.is_hovered
                self.is_hovered = self._is_near(event.x, event.y, rect, scale)
                if self.is_hovered != was_hovered:
                    return True
            case PointerRelease() if self._drag_offset is not None:
                self._drag_offset = None
                self.is_hovered = self._is_near(event.x, event.y, rect, scale)
                return True
            case PointerLeave() if self.is_hovered and self._drag_offset is None:
                self.is_hovered = False
                return True
        return None

    def _press(self, press: PointerPress, rect: Rect, scale: float) -> bool | None:
        """Start to drag the line, or centre it by a double click."""
        # A finger is less exact than a pointer.
        reach_px = scale
        if press.touch:
            reach_px *= _TOUCH_REACH / _REACH_POINTS
        if not self._is_near(press.x, press.y, rect, reach_px):
            return None
        if press.clicks == 2:
            self.position = 0.5
            self._drag_offset = None
            return True
        self._drag_offset = press.x - self.x(rect)
        self.is_hovered = True
        return True

    def _drag_to(self, x: float, rect: Rect) -> bool:
        """Put the line at a column of the screen; return True if that moved it."""
        previous = self.position
        position = (x - rect.x) / max(rect.width, 1)
        self.position = min(max(position, MIN_SHARE), 1 - MIN_SHARE)
        return self.position != previous

    def _is_near(self, x: float, y: float, rect: Rect, scale: float) -> bool:
        return rect.contains(x, y) and abs(x - self.x(rect)) <= _REACH_POINTS * scale

    def grip(self, rect: Rect, scale: float) -> Rect:
        """Return where a pointer, or a finger, can take hold of the line.

        Args:
            rect: the picture's, in pixels.
            scale: pixels per point.
        """
        reach = math.ceil(_TOUCH_REACH * scale)
        return Rect(self.x(rect) - reach, rect.y, 2 * reach + 1, rect.height)

    def draw(
        self,
        rect: Rect,
        scale: float,
        names: tuple[str, str] = ("", ""),
        *,
        touch: bool = False,
    ) -> None:
        """Draw the line with imgui, and at the upper edge the names of both sides.

        Args:
            rect: the picture's, in pixels.
            scale: pixels per point.
            names: of what is on the left and on the right.
            touch: True where a finger drags it: the names are in the corners.
        """
        from imgui_bundle import ImVec2, imgui

        from splatview_viewer.ui import icons, theme

        draw = imgui.get_background_draw_list()
        x = float(self.x(rect))
        bottom = rect.y + rect.height
        ink = theme.INK
        if self.is_hovered:
            ink = theme.MARK
        color = theme.u32(ink)
        width = max(2 * scale, 1.0)
        draw.push_clip_rect(
            ImVec2(rect.x, rect.y), ImVec2(rect.x + rect.width, bottom), True
        )
        top_end = ImVec2(x, rect.y)
        bottom_end = ImVec2(x, bottom)
        draw.add_line(
            top_end, bottom_end, theme.u32(theme.SHADE, 0.7), EDGED_POINTS * scale
        )
        draw.add_line(top_end, bottom_end, color, width)
        middle = rect.y + rect.height / 2
        radius = _KNOB_RADIUS * scale
        if touch:
            middle = max(middle, bottom - _TOUCH_KNOB_HEIGHT * scale)
            radius = _TOUCH_KNOB_RADIUS * scale
        draw.add_circle_filled(ImVec2(x, middle), radius, color, 32)
        icons.draw(draw, "swap", (x, middle), theme.SHADE, icons.SIZE)
        with theme.font_size(theme.SMALL_SIZE):
            _draw_names(draw, x, rect, scale, names, touch)
        draw.pop_clip_rect()


def _draw_names(
    draw: imgui.ImDrawList,
    x: float,
    rect: Rect,
    scale: float,
    names: tuple[str, str],
    in_corners: bool,
) -> None:
    """Write the names beside a line at `x`, where there is enough width."""
    from imgui_bundle import imgui

    from splatview_viewer.ui import theme
    from splatview_viewer.ui.text_cards import card
    from splatview_viewer.ui.widgets import faint

    gap = 12 * scale
    left_width = x - rect.x
    widths = (left_width, rect.width - left_width)
    for text, sign, width in zip(names, (-1, 1), widths, strict=True):
        if text and imgui.calc_text_size(text).x <= width - 2 * gap:
            anchor = float(sign < 0)
            name_x = x + sign * gap
            if in_corners:
                name_x = rect.x + gap
                anchor = float(sign > 0)
                if sign > 0:
                    name_x = rect.x + rect.width - gap
            ground = faint(theme.CARD, 0.95)
            lines = [(text, theme.INK)]
            card(draw, (name_x, rect.y + gap), lines, (anchor, 0), ground=ground)
