"""The line between two pictures, which one drags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.core.events import (
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
)

if TYPE_CHECKING:
    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Rect

_REACH = 7.0
"""Points to either side of the line that take hold of it."""
MIN_SHARE = 0.02
"""Share of the width that stays on either side, so that the line can be taken again."""
_KNOB = 11.0
"""Points: the radius of what shows that the line can be dragged."""


class Divider:
    """An upright line over a picture.

    Holds its position; its owner lays the pictures.
    """

    def __init__(self) -> None:
        self.position = 0.5
        """Position: 0 at the left edge of the picture, 1 at the right one."""
        self.is_hovered = False
        """True if the pointer is on it."""
        self._offset: float | None = None
        """Pixels from the line at which it was taken, while it is dragged."""

    def x(self, rect: Rect) -> int:
        """Its column on the screen: the first one right of it."""
        return rect.x + round(self.position * rect.width)

    def handle(self, event: Event, rect: Rect, scale: float = 1.0) -> bool | None:
        """Take a user's event.

        None: it is not for the line; otherwise whether the picture has to be drawn
        again. `scale`: pixels per point.
        """
        match event:
            case PointerPress(button="left") if self._near(
                event.x, event.y, rect, scale
            ):
                if event.clicks == 2:
                    self.position = 0.5
                    self._offset = None
                    return True
                self._offset = event.x - self.x(rect)
                self.is_hovered = True
                return True
            case PointerMove() if self._offset is not None:
                at = (event.x - self._offset - rect.x) / max(rect.width, 1)
                before = self.position
                self.position = min(max(at, MIN_SHARE), 1 - MIN_SHARE)
                return self.position != before
            case PointerMove():
                before = self.is_hovered
                self.is_hovered = self._near(event.x, event.y, rect, scale)
                return True if before != self.is_hovered else None
            case PointerRelease() if self._offset is not None:
                self._offset = None
                self.is_hovered = self._near(event.x, event.y, rect, scale)
                return True
            case PointerLeave() if self.is_hovered and self._offset is None:
                self.is_hovered = False
                return True
        return None

    def _near(self, x: float, y: float, rect: Rect, scale: float) -> bool:
        return rect.contains(x, y) and abs(x - self.x(rect)) <= _REACH * scale

    def draw(self, rect: Rect, scale: float, names: tuple[str, str] = ("", "")) -> None:
        """Draw it with imgui, and at the upper edge what is on either side."""
        from imgui_bundle import ImVec2, imgui

        from splatview_viewer.ui import theme
        from splatview_viewer.ui.widgets import card

        draw = imgui.get_background_draw_list()
        x = float(self.x(rect))
        middle = rect.y + rect.height / 2
        radius = _KNOB * scale
        draw.push_clip_rect(
            ImVec2(rect.x, rect.y),
            ImVec2(rect.x + rect.width, rect.y + rect.height),
            True,
        )
        color = theme.u32(theme.ACCENT if self.is_hovered else theme.TEXT)
        draw.add_line(
            ImVec2(x, rect.y),
            ImVec2(x, rect.y + rect.height),
            theme.u32(theme.BAR, 0.9),
            4 * scale,
        )
        draw.add_line(
            ImVec2(x, rect.y),
            ImVec2(x, rect.y + rect.height),
            color,
            max(1.5 * scale, 1.0),
        )
        draw.add_circle_filled(
            ImVec2(x, middle), radius, theme.u32(theme.BAR, 0.92), 32
        )
        draw.add_circle(ImVec2(x, middle), radius, color, 32, max(1.5 * scale, 1.0))
        inner = 2.5 * scale
        outer = 6.5 * scale
        height = 4 * scale
        for sign in (-1, 1):
            draw.add_triangle_filled(
                ImVec2(x + sign * outer, middle),
                ImVec2(x + sign * inner, middle - height),
                ImVec2(x + sign * inner, middle + height),
                color,
            )
        gap = 12 * scale
        for text, sign in zip(names, (-1, 1), strict=True):
            if not text:
                continue
            room = x - rect.x if sign < 0 else rect.x + rect.width - x
            if imgui.calc_text_size(text).x <= room - 2 * gap:
                card(
                    draw,
                    (x + sign * gap, rect.y + gap),
                    [(text, theme.TEXT)],
                    (float(sign < 0), 0),
                )
        draw.pop_clip_rect()
