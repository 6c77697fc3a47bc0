"""A command: something that a user can ask for, by name, key, menu or palette."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar

from splatview_viewer.core.events import KEYS, Mod

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.core.events import Key

Target = TypeVar("Target", contravariant=True)
_MODS: dict[str, Mod] = {"Ctrl": "ctrl", "Shift": "shift", "Alt": "alt"}
_KEY_WORDS = {
    ",": "comma",
    ".": "period",
    "/": "slash",
    "=": "equal",
    "-": "minus",
    "[": "left_bracket",
    "]": "right_bracket",
    "Esc": "escape",
}


def _can_always(_: object) -> None:
    """Return that nothing speaks against a command."""
    return


@dataclass(frozen=True)
class Command(Generic[Target]):
    """A command over a target: the whole viewer of a user, or one view.

    Commands are constants in tables. Palette, menus, buttons, keys and the list of keys
    are made from the tables.
    """

    name: str
    """Names it for programs: "pane.close"."""
    title: str
    """Names it for users, as an action: "Close this pane"."""
    run: Callable[[Target], object]
    """Does it."""
    keys: tuple[str, ...] = ()
    """Its shortcuts, as a user reads them: "Ctrl Shift S", "Page up", "H"."""
    typed: str = ""
    """A character that asks for it when it is typed, on whichever key it is: "?"."""
    icon: str = ""
    """One of `ui.icons`."""
    reason: Callable[[Target], str | None] = _can_always
    """Returns why it cannot be done now, in a few words; None: it can."""
    group: str = "Commands"
    """Where the palette lists it: "Commands", "Settings", "Bookmarks", "Cameras"."""
    repeats: bool = False
    """True if it is done again while its key is held."""

    @property
    def main_keys(self) -> str:
        """The shortcut that menus show of it; "" for none."""
        if self.keys:
            return self.keys[0]
        return self.typed


@dataclass(frozen=True, slots=True)
class Shortcut:
    """A key, and the modifiers that are down with it."""

    key: str
    """One of `events.KEYS`."""
    mods: frozenset[Mod]

    def matches(self, event: Key) -> bool:
        """Return whether an event is this key with just these modifiers."""
        return event.name == self.key and event.mods == self.mods


@lru_cache(1024)
def parse_shortcut(text: str) -> Shortcut:
    """Return the shortcut of a text like "Ctrl Shift Z". Raises ValueError."""
    mods = set[Mod]()
    key_text = text
    while " " in key_text and key_text.split(" ", 1)[0] in _MODS:
        mod_text, key_text = key_text.split(" ", 1)
        mods.add(_MODS[mod_text])
    key = _KEY_WORDS.get(key_text, key_text.lower().replace(" ", "_"))
    if key not in KEYS:
        raise ValueError(f"shortcut {text!r}: {key_text!r} is no key of events.KEYS")
    return Shortcut(key, frozenset(mods))


def command_of(
    commands: Sequence[Command[Target]], event: Key
) -> Command[Target] | None:
    """Return the command that a key is the shortcut of, if it is one."""
    for command in commands:
        if event.repeat and not command.repeats:
            continue
        if any(parse_shortcut(keys).matches(event) for keys in command.keys):
            return command
    return None
