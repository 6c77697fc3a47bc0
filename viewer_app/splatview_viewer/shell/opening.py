"""Files that are being opened: one that cannot be read takes nothing's place.

A second file of a kind whose files are compared joins the one that is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.viewport import Viewport


class Refusal(NamedTuple):
    """The message of a file that cannot be read."""

    name: str
    reason: str
    path: str


class _Opening(NamedTuple):
    """A file on its way into a viewport."""

    viewport: Viewport
    key: str
    """Of the file."""
    previous_key: str | None
    """The key of what the viewport showed before; None: nothing."""


class _Pairing(NamedTuple):
    """A file on its way beside the one that a viewport shows."""

    viewport: Viewport
    key: str
    """Of the file that is shown."""
    second_key: str
    """Of the file that is compared with it."""


class Openings:
    """Brings back what a viewport showed, where the file after it cannot be read.

    It also has a second file be compared with the first, once both are read.
    """

    def __init__(self, user: User) -> None:
        self._user = user
        self._all: list[_Opening] = []
        self._pairings: list[_Pairing] = []

    def add(self, viewport: Viewport, key: str, previous_key: str | None) -> None:
        """Note that a file took the place of what a viewport showed.

        Args:
            viewport: shows the file.
            key: of the file.
            previous_key: the key of what stood there; None: nothing.
        """
        for opening in self._all:
            if (opening.viewport, opening.key) == (viewport, previous_key):
                # That file has not been read yet: what stood before both counts.
                previous_key = opening.previous_key
        if previous_key != key:
            self._all.append(_Opening(viewport, key, previous_key))

    def pair(self, viewport: Viewport, key: str, second_key: str) -> None:
        """Have two files be compared in a viewport once both are read.

        Args:
            viewport: shows the first file.
            key: of the first file.
            second_key: of the second file.
        """
        viewport.refusal = None
        self._pairings.append(_Pairing(viewport, key, second_key))

    def is_pairing(self, viewport: Viewport) -> bool:
        """Return whether a second file is on its way into a viewport."""
        return any(pairing.viewport is viewport for pairing in self._pairings)

    def watch(self) -> None:
        """Look which files are read by now, once in each turn of the loop."""
        if self._pairings:
            self._pairings = [p for p in self._pairings if self._is_apart(p)]
        if self._all:
            self._all = [opening for opening in self._all if self._is_open(opening)]

    def _is_open(self, opening: _Opening) -> bool:
        """Return whether a file is still being read; bring back what it hid if not."""
        slots = self._user.catalogue.slots
        viewport = opening.viewport
        if opening.key not in slots or viewport.key != opening.key:
            return False
        entry = slots[opening.key].entry
        if entry.progress is not None:
            return True
        reason = entry.fault_of_source
        if not reason:
            return viewport.view is None
        if opening.previous_key in slots:
            viewport.select(opening.previous_key)
            viewport.refusal = Refusal(entry.name, reason, entry.key)
            self._user.mark()
        self._user.history.forget_entry(opening.key)
        return False

    def _is_apart(self, pairing: _Pairing) -> bool:
        """Return whether two files are still being read; compare them if not."""
        slots = self._user.catalogue.slots
        viewport = pairing.viewport
        if pairing.second_key not in slots or viewport.key != pairing.key:
            return False
        slot = slots[pairing.second_key]
        reason = slot.entry.fault_of_source or slot.entry.fault
        if reason:
            viewport.refusal = Refusal(slot.entry.name, reason, slot.entry.key)
            self._user.mark()
            return False
        first = slots[pairing.key].entry
        if first.fault_of_source or first.fault:
            return False
        view = viewport.view
        is_read = view is not None and not view.empty
        if view is None or not is_read or slot.view is None or slot.view.empty:
            return True
        view.view.compare_with(slot.content)
        self._user.choose_tab("compare")
        return False
