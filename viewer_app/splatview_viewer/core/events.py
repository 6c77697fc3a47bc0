"""Input events: the same from a window, a browser or a test.

Positions are in framebuffer pixels from the top left corner; (0, 0) is the outer corner
of the first pixel, so its centre lies at (0.5, 0.5). A page sends its events as JSON:
limits hold for those that are decoded.
"""

from __future__ import annotations

import math
import threading
from collections import deque

# msgspec resolves annotations at run time.
from collections.abc import Callable  # noqa: TC003
from pathlib import Path  # noqa: TC003
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    TypeVar,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from splatview_viewer.core.handed import HandedPlace  # noqa: TC001

Button = Literal["left", "right", "middle"]
Mod = Literal["shift", "ctrl", "alt", "super"]
Mods = frozenset[Mod]
"""Modifier keys held down."""

# A drag goes on outside the picture.
_Position = Annotated[float, Meta(ge=-65536, le=65536)]
_Notches = Annotated[float, Meta(ge=-20, le=20)]
_Factor = Annotated[float, Meta(ge=0.1, le=10)]
_Angle = Annotated[float, Meta(ge=-7, le=7)]
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
    "left_bracket",
    "right_bracket",
    "menu",
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
    """The wheel was turned by `dy` notches away from the user, and `dx` to the right."""

    x: _Position
    y: _Position
    dy: _Notches
    dx: _Notches = 0.0
    mods: Mods = NO_MODS


class Pinch(_Event, frozen=True, tag="pinch"):
    """Two fingers moved: the point under their middle is now at (x, y).

    The picture was moved by (dx, dy), grew by `factor` and was turned by `turn`
    radians, clockwise.
    """

    x: _Position
    y: _Position
    factor: _Factor
    dx: _Position = 0.0
    dy: _Position = 0.0
    turn: _Angle = 0.0


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
    full: bool = False
    """It fills the user's monitor."""


class Expose(_Event, frozen=True, tag="expose"):
    """The picture was lost or covered: draw it again."""


class Close(_Event, frozen=True, tag="close"):
    """The screen was asked to close."""


class FileDrop(_Event, frozen=True, tag="files"):
    paths: tuple[str, ...]
    done: Callable[[Path], None] | None = None
    """Called with each path once its file is not needed any more, from any thread: a
    page's files are copies. None: the files are the user's own."""


class Screenshot(_Event, frozen=True, tag="screenshot"):
    """The user wants to keep what is shown, without the panel."""


class Placed(_Event, frozen=True, tag="place"):
    """A page that draws a scene by itself has moved its camera there."""

    pane: Annotated[int, Meta(ge=0, le=2**53)]
    """The number of a `Pane`."""
    number: Annotated[int, Meta(ge=1, le=2**53)]
    """Counts those of a page, of all panes."""
    place: HandedPlace


class Ranged(_Event, frozen=True, tag="range"):
    """A page that draws numbers by colours has measured what lies at both ends.

    It does so in its own picture: a moved camera costs nothing here. It tells the numbers
    once the camera rests, if they are others than before.
    """

    pane: Annotated[int, Meta(ge=0, le=2**53)]
    """The number of a `Pane`."""
    show: Annotated[str, Meta(max_length=32)]
    """What is shown, as `HandedLook.paint`."""
    low: Annotated[float, Meta(ge=0, le=1e30)]
    high: Annotated[float, Meta(ge=0, le=1e30)]
    side: Literal[0, 1] = 0
    """1: the second of two scenes in the pane."""

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low {self.low} lies above high {self.high}")


class Measured(_Event, frozen=True, tag="measured"):
    """A page that draws two scenes in one picture has measured their difference."""

    pane: Annotated[int, Meta(ge=0, le=2**53)]
    mean_square: Annotated[float, Meta(ge=0, le=1)]


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
    | Placed
    | Ranged
    | Measured
)
"""The events that a page sends."""
Event = PageEvent | Expose | Close | FileDrop

T = TypeVar("T")


class Limit(NamedTuple):
    """The range of a number of an event."""

    name: str
    low: float
    high: float


def _limits_of(kind: type[Event]) -> tuple[Limit, ...]:
    """Return the limits that the annotations of a kind of event give its numbers."""
    limits = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is not Annotated:
            continue
        for meta in hint.__metadata__:
            if isinstance(meta, Meta) and meta.ge is not None and meta.le is not None:
                limits.append(Limit(name, meta.ge, meta.le))
    return tuple(limits)


_LIMITS: dict[type[Any], tuple[Limit, ...]] = {
    kind: _limits_of(kind) for kind in (*PageEvent.__args__, Expose, Close, FileDrop)
}


def bounded(event: Event) -> Event | None:
    """Return an event with each number within the limits that hold for pages.

    Views calculate with these numbers, whichever screen they come from. None for an
    event with a number that is not finite: nothing is known of what it should be.
    """
    changes: dict[str, float] = {}
    for limit in _LIMITS[type(event)]:
        value = getattr(event, limit.name)
        if limit.low <= value <= limit.high:
            continue
        if not math.isfinite(value):
            return None
        changes[limit.name] = type(value)(min(max(value, limit.low), limit.high))
    if not changes:
        return event
    return msgspec.structs.replace(event, **changes)


class Inbox(Generic[T]):
    """A bounded queue from any thread to the one that draws, whose sleep it ends."""

    def __init__(
        self, supersedes: Callable[[T, T], bool] | None = None, capacity: int = 4096
    ) -> None:
        """Start empty.

        Args:
            supersedes: called with a new item and the one that waits before it; returns
                whether the new one replaces that.
            capacity: the most items that wait.
        """
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._woken = False
        self._supersedes = supersedes
        self._capacity = capacity

    def put(self, *items: T) -> bool:
        """Add items; return False at the first for which there is no room."""
        with self._changed:
            for item in items:
                supersedes = self._supersedes
                if supersedes and self._items and supersedes(item, self._items[-1]):
                    self._items[-1] = item
                elif len(self._items) < self._capacity:
                    self._items.append(item)
                else:
                    return False
            self._changed.notify()
        return True

    @property
    def has_items(self) -> bool:
        """True if `take` would return something."""
        return bool(self._items)

    def wake(self) -> None:
        """End a `take` that sleeps, or the next one."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def take(self, timeout: float) -> list[T]:
        """Return all items, oldest first.

        Sleeps at most `timeout` seconds for the first one, or until `wake`.
        """
        with self._changed:
            if timeout > 0:
                self._changed.wait_for(self._has_ended_sleep, timeout)
            self._woken = False
            items = list(self._items)
            self._items.clear()
        return items

    def _has_ended_sleep(self) -> bool:
        return bool(self._items) or self._woken


class _Press(NamedTuple):
    time: float
    """Time of the press, in seconds."""
    x: float
    y: float
    button: str
    clicks: int
    """2 for the second press of a double click."""


class ClickCounter:
    """Recognises double clicks.

    They are presses of one button within 0.4 s and 6 points of each other.
    """

    def __init__(self) -> None:
        self._last = _Press(time=-1e9, x=0.0, y=0.0, button="", clicks=0)

    def count(
        self, time: float, x: float, y: float, button: str, scale: float = 1.0
    ) -> int:
        """Return 1 for a first press, 2 for the second one of a double click.

        Args:
            time: seconds.
            scale: pixels per point.
        """
        last = self._last
        distance = max(abs(x - last.x), abs(y - last.y))
        is_near = time - last.time < 0.4 and distance <= 6 * scale
        is_double = is_near and button == last.button and last.clicks == 1
        clicks = 1
        if is_double:
            clicks = 2
        self._last = _Press(time, x, y, button, clicks)
        return clicks
