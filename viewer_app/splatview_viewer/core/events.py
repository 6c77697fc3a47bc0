"""Input events: the same from a window, a browser or a test.

Positions are in framebuffer pixels from the top left corner; (0, 0) is the outer corner of the first pixel,
so its centre lies at (0.5, 0.5). A page sends its events as JSON: limits hold for those that are decoded.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable  # noqa: TC003  (msgspec resolves annotations at run time)
from pathlib import Path  # noqa: TC003
from typing import Annotated, Any, Generic, Literal, TypeVar, get_type_hints

import msgspec
from msgspec import Meta

Button = Literal["left", "right", "middle"]
Mod = Literal["shift", "ctrl", "alt", "super"]
Mods = frozenset[Mod]
"""Modifier keys held down."""

_Position = Annotated[
    float, Meta(ge=-65536, le=65536)
]  # a drag goes on outside the picture
_Notches = Annotated[float, Meta(ge=-20, le=20)]
_Factor = Annotated[float, Meta(ge=0.1, le=10)]
_Turn = Annotated[float, Meta(ge=-7, le=7)]
_Side = Annotated[int, Meta(ge=16, le=8192)]
_Scale = Annotated[float, Meta(ge=0.25, le=8)]

NO_MODS: Mods = frozenset()

KEYS: tuple[str, ...] = (
    *"abcdefghijklmnopqrstuvwxyz",
    *"0123456789",
    *(f"f{i}" for i in range(1, 13)),
    "tab",
    "left",
    "right",
    "up",
    "down",
    "page_up",
    "page_down",
    "home",
    "end",
    "insert",
    "delete",
    "backspace",
    "space",
    "enter",
    "escape",
    "minus",
    "equal",
    "comma",
    "period",
    "slash",
    "shift",
    "ctrl",
    "alt",
    "super",
)
"""Every name that `Key.name` can have; a screen leaves other keys out."""
_NAMES = frozenset(KEYS)


class _Event(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="t", forbid_unknown_fields=True
):
    """Base of all events. `t` names the kind of a decoded one."""

    at: Annotated[float, Meta(ge=0, le=1e15)] = 0.0
    """Milliseconds by the clock of the page that sent it; 0: unknown."""


class PointerMove(_Event, frozen=True, tag="move"):
    x: _Position
    y: _Position
    mods: Mods = NO_MODS


class PointerLeave(_Event, frozen=True, tag="leave"):
    """The pointer is no longer over the picture."""


class PointerPress(_Event, frozen=True, tag="press"):
    x: _Position
    y: _Position
    button: Button = "left"
    mods: Mods = NO_MODS
    clicks: Annotated[int, Meta(ge=1, le=2)] = 1
    """2 for the second press of a double click."""
    touch: bool = False
    """True for a finger."""


class PointerRelease(_Event, frozen=True, tag="release"):
    x: _Position
    y: _Position
    button: Button = "left"
    mods: Mods = NO_MODS


class Wheel(_Event, frozen=True, tag="wheel"):
    """The wheel turned by `dy` notches (up, away from the user, is positive) and `dx` to the right."""

    x: _Position
    y: _Position
    dy: _Notches
    dx: _Notches = 0.0
    mods: Mods = NO_MODS


class Pinch(_Event, frozen=True, tag="pinch"):
    """Two fingers: what lies under their middle, now at (x, y), was moved by (dx, dy), grew by `factor` and turned by
    `turn` radians, clockwise.
    """

    x: _Position
    y: _Position
    factor: _Factor
    dx: _Position = 0.0
    dy: _Position = 0.0
    turn: _Turn = 0.0


class Key(_Event, frozen=True, tag="key"):
    name: str
    """One of KEYS."""
    pressed: bool = True
    mods: Mods = NO_MODS
    repeat: bool = False

    def __post_init__(self) -> None:
        if self.name not in _NAMES:
            raise ValueError(
                f"unknown key {self.name[:20]!r}: expected one of events.KEYS"
            )


class Text(_Event, frozen=True, tag="text"):
    """Characters as typed, after the keyboard layout and dead keys."""

    text: Annotated[str, Meta(min_length=1, max_length=10000)]


class Resize(_Event, frozen=True, tag="resize"):
    width: _Side
    height: _Side
    scale: _Scale = 1.0


class Expose(_Event, frozen=True, tag="expose"):
    """The picture was lost or covered: draw it again."""


class Close(_Event, frozen=True, tag="close"):
    """The screen was asked to close."""


class FileDrop(_Event, frozen=True, tag="files"):
    paths: tuple[str, ...]
    done: Callable[[Path], None] | None = None
    """To be called with each path once its file is not needed any more: a page's are only lent. From any thread."""


class Screenshot(_Event, frozen=True, tag="screenshot"):
    """The user wants to keep what is shown, without the panel."""


PageEvent = (
    PointerMove
    | PointerLeave
    | PointerPress
    | PointerRelease
    | Wheel
    | Pinch
    | Key
    | Text
    | Resize
    | Screenshot
)
"""The events that a page sends."""
Event = PageEvent | Expose | Close | FileDrop

T = TypeVar("T")

Limits = tuple[tuple[str, float, float], ...]
"""Names of an event's numbers, each with the least and the greatest value."""


def _limits_of(kind: type[Event]) -> Limits:
    """Return the limits that the annotations of a kind of event give its numbers."""
    limits = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        for meta in getattr(hint, "__metadata__", ()):
            if isinstance(meta, Meta) and meta.ge is not None and meta.le is not None:
                limits.append((name, meta.ge, meta.le))
    return tuple(limits)


_LIMITS: dict[type[Any], Limits] = {
    kind: _limits_of(kind) for kind in (*PageEvent.__args__, Expose, Close, FileDrop)
}


def bounded(event: Event) -> Event | None:
    """Return an event with each number within the limits that hold for pages.

    Views calculate with these numbers, whichever screen they come from. Returns None
    for an event with a number that is not finite: nothing is known of what was meant.
    """
    changes: dict[str, float] = {}
    for name, least, most in _LIMITS[type(event)]:
        number = getattr(event, name)
        if least <= number <= most:
            continue
        if not math.isfinite(number):
            return None
        changes[name] = type(number)(min(max(number, least), most))
    return msgspec.structs.replace(event, **changes) if changes else event


class Inbox(Generic[T]):
    """A bounded queue from any thread to the one that draws, whose sleep it ends."""

    def __init__(
        self, supersedes: Callable[[T, T], bool] | None = None, most: int = 4096
    ) -> None:
        """`supersedes(new, last)`: whether an item replaces the one that waits before it. `most`: items that wait."""
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._woken = False
        self._supersedes = supersedes
        self._most = most

    def put(self, *items: T) -> bool:
        """Add items; return False at the first for which there is no room."""
        with self._changed:
            for item in items:
                if (
                    self._supersedes is not None
                    and self._items
                    and self._supersedes(item, self._items[-1])
                ):
                    self._items[-1] = item
                elif len(self._items) < self._most:
                    self._items.append(item)
                else:
                    return False
            self._changed.notify()
        return True

    def wake(self) -> None:
        """End a `take` that sleeps, or the next one."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def take(self, timeout: float) -> list[T]:
        """Return all items, oldest first. Sleeps at most `timeout` seconds for the first one, or until `wake`."""
        with self._changed:
            if timeout > 0:
                self._changed.wait_for(
                    lambda: bool(self._items) or self._woken, timeout
                )
            self._woken = False
            items = list(self._items)
            self._items.clear()
        return items


class ClickCounter:
    """Tells double clicks: presses of one button within 0.4 s and 6 points of each other."""

    def __init__(self) -> None:
        self._last: tuple[float, float, float, str, int] = (-1e9, 0.0, 0.0, "", 0)

    def count(
        self, time: float, x: float, y: float, button: str, scale: float = 1.0
    ) -> int:
        """1 for a first press at `time` (seconds), 2 for the second one of a double click."""
        then, px, py, before, clicks = self._last
        again = (
            button == before
            and time - then < 0.4
            and max(abs(x - px), abs(y - py)) <= 6 * scale
            and clicks == 1
        )
        self._last = (time, x, y, button, 2 if again else 1)
        return self._last[-1]
