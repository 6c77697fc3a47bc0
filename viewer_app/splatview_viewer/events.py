"""What a person does, as plain data: the same from a window, a browser or a test.

Positions are in framebuffer pixels from the top left corner; (0, 0) is the outer corner of the first pixel,
so its centre lies at (0.5, 0.5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Button = Literal["left", "right", "middle"]
Mods = frozenset[str]
"""Modifier keys held down: any of "shift", "ctrl", "alt", "super"."""

NO_MODS: Mods = frozenset()

KEYS: tuple[str, ...] = (
    *"abcdefghijklmnopqrstuvwxyz", *"0123456789", *(f"f{i}" for i in range(1, 13)),
    "tab", "left", "right", "up", "down", "page_up", "page_down", "home", "end", "insert", "delete",
    "backspace", "space", "enter", "escape", "minus", "equal", "comma", "period", "slash",
    "shift", "ctrl", "alt", "super",
)
"""Every name that `Key.name` can have; a screen leaves other keys out."""


@dataclass(frozen=True)
class PointerMove:
    x: float
    y: float
    mods: Mods = NO_MODS


@dataclass(frozen=True)
class PointerLeave:
    """The pointer is no longer over the picture."""


@dataclass(frozen=True)
class PointerPress:
    x: float
    y: float
    button: Button = "left"
    mods: Mods = NO_MODS
    clicks: int = 1
    """2 for the second press of a double click."""
    touch: bool = False
    """Whether it is a finger."""


@dataclass(frozen=True)
class PointerRelease:
    x: float
    y: float
    button: Button = "left"
    mods: Mods = NO_MODS


@dataclass(frozen=True)
class Wheel:
    """The wheel turned by `dy` notches (up, away from the user, is positive) and `dx` to the right."""

    x: float
    y: float
    dy: float
    dx: float = 0.0
    mods: Mods = NO_MODS


@dataclass(frozen=True)
class Pinch:
    """Two fingers: what lies under their middle, now at (x, y), was moved by (dx, dy), grew by `factor` and turned by
    `turn` radians, clockwise."""

    x: float
    y: float
    factor: float
    dx: float = 0.0
    dy: float = 0.0
    turn: float = 0.0


@dataclass(frozen=True)
class Key:
    name: str
    pressed: bool = True
    mods: Mods = NO_MODS
    repeat: bool = False


@dataclass(frozen=True)
class Text:
    """Characters as typed, after the keyboard layout and dead keys."""

    text: str


@dataclass(frozen=True)
class Resize:
    width: int
    height: int
    scale: float = 1.0


@dataclass(frozen=True)
class Expose:
    """What was shown is lost or was covered: draw the picture again."""


@dataclass(frozen=True)
class Close:
    """The screen was asked to close."""


@dataclass(frozen=True)
class FileDrop:
    paths: tuple[str, ...]
    done: Callable[[Path], None] | None = None
    """To be called with each path once its file is not needed any more: a page's are only lent. From any thread."""


@dataclass(frozen=True)
class Screenshot:
    """The user wants to keep what is shown, without the panel."""


Event = (
    PointerMove | PointerLeave | PointerPress | PointerRelease | Wheel | Pinch | Key | Text | Resize | Expose
    | Close | FileDrop | Screenshot
)


class ClickCounter:
    """Tells double clicks: presses of one button within 0.4 s and 6 points of each other."""

    def __init__(self) -> None:
        self._last: tuple[float, float, float, str, int] = (-1e9, 0.0, 0.0, "", 0)

    def count(self, time: float, x: float, y: float, button: str, scale: float = 1.0) -> int:
        """1 for a first press at `time` (seconds), 2 for the second one of a double click."""
        then, px, py, before, clicks = self._last
        again = (button == before and time - then < 0.4
                 and max(abs(x - px), abs(y - py)) <= 6 * scale and clicks == 1)
        clicks = 2 if again else 1
        self._last = (time, x, y, button, clicks)
        return clicks
