"""Names of what undo takes back: "camera", "crop", "layout"."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_WORDS = {
    "place": "camera",
    "chosen": "selection",
    "show": "way to see",
    "training": "training cameras",
    "background": "background",
    "placement": "placement",
    "scenes": "scenes in one picture",
    "keyframes": "keyframes",
}
"""Names of fields of states, for users; others are called a setting."""
_SELECTION_WORDS = {
    "box": "crop",
    "sphere": "crop",
    "cylinder": "crop",
    "hidden": "what is hidden",
    "opacity": "filter",
    "scale": "filter",
    "sh_energy": "filter",
}
"""Names of fields of a `Selection`; others are called the selection."""
_MAIN_WORDS = ("scenes in one picture", "crop", "what is hidden", "filter", "selection")
"""Names that stand for a whole change: the first of them that it has."""


def differences(
    old_state: Any, new_state: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields in which two states differ, of the first and of the second."""
    old: dict[str, Any] = {}
    new: dict[str, Any] = {}
    if type(old_state) is not type(new_state):
        return old, new
    for state_field in fields(new_state):
        first = getattr(old_state, state_field.name)
        second = getattr(new_state, state_field.name)
        if first is not second and first != second:
            old[state_field.name] = first
            new[state_field.name] = second
    return old, new


def words_of(changes: Iterable[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    """Return the name of changes of states, each by its fields before and after."""
    names = set[str]()
    for old_values, new_values in changes:
        for name in new_values:
            names.update(_words_of_field(name, old_values[name], new_values[name]))
    for main_name in _MAIN_WORDS:
        if main_name in names:
            return main_name
    if len(names) == 1:
        return names.pop()
    return "settings"


def _words_of_field(name: str, old_state: Any, new_state: Any) -> Iterator[str]:
    """Yield the names of the change of one field."""
    if name != "selection" or not is_dataclass(new_state):
        yield _WORDS.get(name, "setting")
        return
    _, changed = differences(old_state, new_state)
    for field_name in changed:
        yield _SELECTION_WORDS.get(field_name, "selection")
