"""Files that are being opened: one that cannot be read takes nothing's place."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.viewport import Viewport


class Refusal(NamedTuple):
    """What a user is told of a file that cannot be read."""

    name: str
    reason: str


class _Opening(NamedTuple):
    """A file on its way into a viewport."""

    viewport: Viewport
    key: str
    """Of the file."""
    before: str | None
    """The key of what the viewport showed before; None: nothing."""


class Openings:
    """Brings back what a viewport showed, where the file after it cannot be read."""

    def __init__(self, user: User) -> None:
        self._user = user
        self._all: list[_Opening] = []

    def add(self, viewport: Viewport, key: str, before: str | None) -> None:
        """Note that a file took the place of what a viewport showed.

        Args:
            viewport: shows the file.
            key: of the file.
            before: the key of what stood there; None: nothing.
        """
        viewport.refusal = None
        for opening in self._all:
            if (opening.viewport, opening.key) == (viewport, before):
                # That file has not been read yet: what stood before both counts.
                before = opening.before
        if before != key:
            self._all.append(_Opening(viewport, key, before))

    def watch(self) -> None:
        """Look which files are read by now, once in each turn of the loop."""
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
        if opening.before in slots:
            viewport.refusal = Refusal(entry.name, reason)
            viewport.select(opening.before)
            self._user.mark()
        self._user.history.forget_entry(opening.key)
        return False
