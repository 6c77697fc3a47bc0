"""Keys that come before the field that a press or Enter opens is there.

imgui opens a field some frames after what asks for it. What is typed meanwhile is for the
field, and would move the camera or go to a bookmark otherwise.
"""

from __future__ import annotations

from splatview_viewer.core import events as ev

_FRAMES = 3
"""Frames without another event after which no field opens any more."""
_MOST_EVENTS = 200
_MODIFIERS = frozenset(["ctrl", "shift", "alt", "super"])


class EarlyKeys:
    """Holds keys and text back for a few frames."""

    def __init__(self) -> None:
        self._frames_left = 0
        self._held_events: list[ev.Key | ev.Text] = []

    @property
    def holds_any(self) -> bool:
        """True while something typed waits for frames."""
        return bool(self._held_events)

    def expect_field(self) -> None:
        """Hold back what is typed from now on: a field may open."""
        self._frames_left = _FRAMES

    def hold(self, event: ev.Key | ev.Text) -> bool:
        """Hold an event back; return False for one that need not wait."""
        is_modifier = isinstance(event, ev.Key) and event.name in _MODIFIERS
        if not self._frames_left or is_modifier:
            return False
        if isinstance(event, ev.Key) and not event.pressed and not self._held_events:
            # It went down before.
            return False
        if len(self._held_events) < _MOST_EVENTS:
            self._held_events.append(event)
        return True

    def count_frame(self, *, is_typing: bool) -> list[ev.Key | ev.Text]:
        """Return what was held back, once a field is there or none comes any more."""
        if not self._frames_left:
            return []
        self._frames_left -= 1
        if is_typing:
            self._frames_left = 0
        if self._frames_left:
            return []
        events = self._held_events
        self._held_events = []
        return events

    def clear(self) -> None:
        """Forget all of it."""
        self._frames_left = 0
        self._held_events = []
