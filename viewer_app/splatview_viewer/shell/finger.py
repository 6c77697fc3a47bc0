"""A finger on the panel: it scrolls when it goes up or down, and is the left button when it taps or goes sideways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_viewer.core.events import PointerMove, PointerPress, PointerRelease
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from splatview_viewer.core.events import Event

REACH = 8.0
"""Points that a finger goes until it is told what it does."""
_NOTCH = 5.0
"""Heights of a letter by which imgui scrolls for a notch of a wheel."""


class Finger:
    """Holds a press back until it is clear what it is."""

    def __init__(self) -> None:
        self._from: tuple[float, float] | None = None
        """The place of the press, while it is not the left button."""
        self._y = 0.0
        self._scrolls = False

    def handle(self, event: Event, held: set[str], scale: float, on_panel: bool) -> bool:
        """Give imgui what an event of a finger means, True if it is one. `held`: the buttons that the panel has."""
        if isinstance(event, PointerPress) and event.touch and on_panel:
            self._from, self._y, self._scrolls = (event.x, event.y), event.y, False
            imgui.get_io().add_mouse_pos_event(event.x, event.y)
            held.add("left")
            return True
        if self._from is None:
            return False
        if isinstance(event, PointerMove):
            self._move(event, self._from, scale)
            return True
        if isinstance(event, PointerRelease) and event.button == "left":
            if not self._scrolls:
                self._press(self._from)
                imgui.get_io().add_mouse_button_event(0, False)
            self._from = None
            held.discard("left")
            return True
        return False

    def _move(self, event: PointerMove, start: tuple[float, float], scale: float) -> None:
        dx, dy = abs(event.x - start[0]), abs(event.y - start[1])
        if not self._scrolls:
            if max(dx, dy) < REACH * scale:
                return
            if dx > dy:  # a slider
                self._press(start)
                imgui.get_io().add_mouse_pos_event(event.x, event.y)
                self._from = None
                return
            self._scrolls = True
        imgui.get_io().add_mouse_wheel_event(0.0, (event.y - self._y) / (_NOTCH * theme.FONT_SIZE * scale))
        self._y = event.y

    def _press(self, at: tuple[float, float]) -> None:
        imgui.get_io().add_mouse_pos_event(*at)
        imgui.get_io().add_mouse_button_event(0, True)
