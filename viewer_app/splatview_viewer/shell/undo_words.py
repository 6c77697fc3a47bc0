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


def differences(before: Any, after: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields in which two states differ, of the first and of the second."""
    old: dict[str, Any] = {}
    new: dict[str, Any] = {}
    if type(before) is not type(after):
        return old, new
    for each in fields(after):
        first = getattr(before, each.name)
        second = getattr(after, each.name)
        if first is not second and first != second:
            old[each.name] = first
            new[each.name] = second
    return old, new


def words_of(changes: Iterable[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    """Return the name of changes of states, each by its fields before and after."""
    names = set[str]()
    for before, after in changes:
        for name in after:
            names.update(_words_of_field(name, before[name], after[name]))
    for words in _MAIN_WORDS:
        if words in names:
            return words
    if len(names) == 1:
        return names.pop()
    return "settings"


def _words_of_field(name: str, before: Any, after: Any) -> Iterator[str]:
    """Yield the names of the change of one field."""
    if name != "selection" or not is_dataclass(after):
        yield _WORDS.get(name, "setting")
        return
    _, changed = differences(before, after)
    for part in changed:
        yield _SELECTION_WORDS.get(part, "selection")
