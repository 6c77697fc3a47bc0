"""Texts of the rows of the list of streams: facts, tips, letters of comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_ipc.system.terminal import printable
from splatview_viewer import kinds
from splatview_viewer.core.quantities import publishing_text
from splatview_viewer.core.screen import Caption

if TYPE_CHECKING:
    from splatview_viewer.core.settings import Entry
    from splatview_viewer.shell.user import User


def fact_of(user: User, entry: Entry) -> str:
    """Return the one fact that a row tells of its entry."""
    if entry.progress is not None:
        return f"{entry.progress:.0%}"
    if entry.fault or entry.fault_of_source:
        return ""
    kind = kinds.about(entry.kind)
    if not entry.alive and entry.step is not None and not kind.strip:
        return f"step {entry.step:,.12g}"
    if entry.count is not None:
        return f"{entry.count:,}"
    slot = user.catalogue.slots.get(entry.key)
    view = None
    if slot is not None:
        view = slot.view
    if view is not None and not view.empty and view.kind == entry.kind:
        fact = kind.fact(view.content)
        if fact:
            return fact
    if entry.is_file or not entry.alive:
        return ""
    return publishing_text(entry.rate_hz)


def tip_of(entry: Entry) -> str:
    """Return what a row says once the pointer rests on it."""
    fault = entry.fault or entry.fault_of_source
    if fault:
        return f"{printable(entry.name)} cannot be shown: {fault}"
    if entry.is_file:
        return f"{printable(entry.key)}\n{entry.kind or 'being read'}"
    state = "its run has ended"
    if entry.alive:
        state = "publishing"
    return f"{entry.kind}, version {entry.version:,}, {state}"


def letters_of(user: User) -> dict[str, str]:
    """Return the letters of the entries that are compared, by their keys."""
    if len(user.layout) < 2:
        return _letters_of_view(user)
    letters = {}
    for viewport in user.layout:
        for feature in user.catalogue.features:
            badge = feature.note(viewport).badge
            if badge and viewport.key is not None:
                letters[viewport.key] = badge
    return letters


def _letters_of_view(user: User) -> dict[str, str]:
    """Return the letters of the entries that the only pane compares in one picture."""
    view = user.view
    if view is None or view.empty:
        return {}
    letters = {}
    for letter, data in view.view.compared().items():
        for slot in user.catalogue.slots.values():
            if slot.content is data:
                letters[slot.entry.key] = letter
    return letters


def caption_of(entry: Entry | None, typing: bool) -> Caption:
    """Return the title of the window or tab that shows this entry."""
    if entry is None:
        return Caption(typing=typing)
    title = f"{printable(entry.name)} \u00b7 {printable(entry.group)} \u2013 splatview"
    # That its run ended is said by a card over the picture.
    return Caption(title, "", typing)
