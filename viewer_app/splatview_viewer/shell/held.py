"""Keys and buttons that are down on a screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.core import events as ev

if TYPE_CHECKING:
    from splatview_viewer.core.events import Event


class Held:
    """Keys and buttons that are down on a screen, and where its pointer is."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.buttons: set[ev.Button] = set()
        self.pointer = 0.0, 0.0

    def note(self, event: Event) -> None:
        """Take in an event of the screen."""
        match event:
            case ev.Key(pressed=True):
                self.keys.add(event.name)
            case ev.Key():
                self.keys.discard(event.name)
            case ev.PointerPress():
                self.buttons.add(event.button)
            case ev.PointerRelease():
                self.buttons.discard(event.button)
        if isinstance(event, (ev.PointerMove, ev.PointerPress, ev.PointerRelease)):
            self.pointer = event.x, event.y

    def clear(self) -> None:
        self.keys.clear()
        self.buttons.clear()

    def releases(self) -> list[Event]:
        """Return the events that end all of it; the pointer is nowhere then."""
        x, y = self.pointer
        buttons = [ev.PointerRelease(x, y, button) for button in sorted(self.buttons)]
        keys = [ev.Key(name, pressed=False) for name in sorted(self.keys)]
        return [*buttons, *keys, ev.PointerLeave()]
