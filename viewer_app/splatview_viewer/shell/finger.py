"""A finger on the interface, which is not a pointer: it scrolls, taps, drags, or rests."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from imgui_bundle import imgui

from splatview_viewer.core import events as ev
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from splatview_viewer.core.events import Event

REACH = 8.0
"""Points that a finger moves until it is clear what it does."""
LONG_PRESS_S = 0.5
"""Seconds after which a finger that rests is the right button."""
_RING_AFTER_S = 0.15
"""Seconds after which a ring shows how long it has rested."""
_NOTCH = {"x": 2.0, "y": 5.0}
"""Heights of a letter by which imgui scrolls for a notch of a wheel."""
_SCROLLS_SIDEWAYS = imgui.WindowFlags_.horizontal_scrollbar.value
BUTTONS = {"left": 0, "right": 1, "middle": 2}
"""The numbers of imgui's buttons."""


def hover(x: float, y: float) -> None:
    """Have imgui see the pointer at a pixel for a frame before it is pressed.

    A finger does not hover before; imgui has to know what is below. It takes a press
    behind a wheel in the next frame.
    """
    io = imgui.get_io()
    io.add_mouse_pos_event(x, y)
    io.add_mouse_wheel_event(1e-30, 0.0)


class Finger:
    """Gives imgui what a finger on the panel means.

    It scrolls when it goes up or down, also sideways what is wider than its place, and
    is the left button when it taps or goes sideways elsewhere. A press is held back
    until that is clear.
    """

    def __init__(self) -> None:
        self._from: tuple[float, float] | None = None
        """The place of the press; None once the finger is the left button, or is up."""
        self._drags = False
        """It is the left button in whichever direction it goes."""
        self._last = (0.0, 0.0)
        self._scroll_axis: Literal["", "x", "y"] = ""
        """The direction in which it scrolls; "" while it does not."""
        self._pressed_at = math.inf
        """Time at which it came down, seconds; infinite until `wait` was asked."""
        self._share = 0.0
        """How much of a long press is over, once a ring shows it."""
        self._is_spent = False
        """It was a long press: the rest of it does nothing."""

    @property
    def is_waiting(self) -> bool:
        """True while it is down, and not clear yet what it does."""
        is_clear = self._scroll_axis != "" or self._is_spent
        return self._from is not None and not is_clear

    def wait(self, now: float, held_buttons: set[str]) -> bool:
        """Take a long press as the right button; return whether to draw again.

        Args:
            now: `time.monotonic()`.
            held_buttons: the buttons that the panel has.
        """
        if self._from is None or not self.is_waiting:
            return False
        if self._pressed_at == math.inf:
            self._pressed_at = now
        if now - self._pressed_at < LONG_PRESS_S:
            if now - self._pressed_at >= _RING_AFTER_S:
                self._share = (now - self._pressed_at) / LONG_PRESS_S
            return self._share > 0
        x, y = self._from
        hover(x, y)
        io = imgui.get_io()
        io.add_mouse_button_event(BUTTONS["right"], True)
        io.add_mouse_button_event(BUTTONS["right"], False)
        self._is_spent = True
        held_buttons.discard("left")
        return True

    @property
    def ring(self) -> tuple[float, float, float] | None:
        """x, y and the share of a long press that is over; None for no ring."""
        if self._from is None or not self.is_waiting or not self._share:
            return None
        return *self._from, self._share

    def _press(self, event: ev.PointerPress, drags: bool) -> None:
        """Note where a finger begins, whose meaning is not known yet."""
        self._from = (event.x, event.y)
        self._last = (event.x, event.y)
        self._scroll_axis = ""
        self._drags = drags
        self._pressed_at = math.inf
        self._share = 0.0
        self._is_spent = False

    def handle(
        self,
        event: Event,
        held_buttons: set[str],
        scale: float,
        on_panel: bool,
        drags: bool = False,
    ) -> bool:
        """Give imgui what an event of a finger means; return whether it is one.

        Args:
            event: any event of a pointer.
            held_buttons: the buttons that the panel has.
            scale: pixels per point.
            on_panel: a press is on something that a finger may scroll.
            drags: a press is on something that a finger drags in every direction.
        """
        if isinstance(event, ev.PointerPress) and event.touch and on_panel:
            self._press(event, drags)
            imgui.get_io().add_mouse_pos_event(event.x, event.y)
            held_buttons.add("left")
            return True
        if self._from is None:
            return False
        if isinstance(event, ev.PointerRelease) and event.button == "left":
            self._release(self._from)
            held_buttons.discard("left")
            return True
        if not isinstance(event, ev.PointerMove):
            return False
        if not self._is_spent:
            self._move(event, self._from, scale)
        return True

    def _release(self, start: tuple[float, float]) -> None:
        """Take the end of a finger at its start, which is a tap if it did nothing."""
        if self._scroll_axis == "" and not self._is_spent:
            hover(*start)
            io = imgui.get_io()
            io.add_mouse_button_event(BUTTONS["left"], True)
            io.add_mouse_button_event(BUTTONS["left"], False)
        self._from = None

    def _move(
        self, event: ev.PointerMove, start: tuple[float, float], scale: float
    ) -> None:
        """Scroll, or press the left button, once it is clear which is meant."""
        reach = REACH * scale
        dx = abs(event.x - start[0])
        dy = abs(event.y - start[1])
        if self._scroll_axis == "" and not self._drags:
            if dy >= max(reach, dx):
                self._scroll_axis = "y"
            elif dx >= reach and _scrolls_sideways(*start):
                self._scroll_axis = "x"
        if self._scroll_axis:
            self._scroll(event, scale)
        elif dx >= reach or (self._drags and dy >= reach):
            # Sideways it drags a slider.
            hover(*start)
            io = imgui.get_io()
            io.add_mouse_button_event(BUTTONS["left"], True)
            io.add_mouse_pos_event(event.x, event.y)
            self._from = None

    def _scroll(self, event: ev.PointerMove, scale: float) -> None:
        """Scroll by what the finger has moved since the last event."""
        last_x, last_y = self._last
        self._last = (event.x, event.y)
        letter = theme.FONT_SIZE * scale
        io = imgui.get_io()
        if self._scroll_axis == "x":
            io.add_mouse_wheel_event((event.x - last_x) / (_NOTCH["x"] * letter), 0.0)
        else:
            io.add_mouse_wheel_event(0.0, (event.y - last_y) / (_NOTCH["y"] * letter))


def _scrolls_sideways(x: float, y: float) -> bool:
    """Return whether what lies at a pixel is wider than its place.

    Its last frame tells: imgui may not have had one since the finger came down.
    """
    for window in reversed(list(imgui.get_current_context().windows)):
        takes_pointer = not window.flags & imgui.WindowFlags_.no_mouse_inputs
        is_seen = window.active and not window.hidden
        if is_seen and takes_pointer and window.outer_rect_clipped.contains((x, y)):
            return bool(window.flags & _SCROLLS_SIDEWAYS and window.scroll_max.x > 0)
    return False
