"""The settings of the panel's sections, for those who search for one.

A section is code that draws, so its settings are known once it was drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.core.view import TABS, Tab

if TYPE_CHECKING:
    from collections.abc import Iterable

    from splatview_viewer.shell.viewport import Viewport


class KnownSection(NamedTuple):
    """A section of the panel, and the labels of the settings that are known in it."""

    tab: Tab
    title: str
    labels: tuple[str, ...]


class Goal(NamedTuple):
    """A setting that the panel has to show and focus."""

    section: str
    label: str
    """"" for the section itself."""


class KnownSettings:
    """The labels of settings by kind and section."""

    def __init__(self) -> None:
        self._labels: dict[tuple[str, str], dict[str, None]] = {}
        self.goal: Goal | None = None
        """What a user chose to see next."""

    def note(self, kind: str, section: str, labels: Iterable[str]) -> None:
        """Learn the labels of a section that was drawn."""
        known = self._labels.setdefault((kind, section), {})
        known.update(dict.fromkeys(labels))

    def known(self, viewport: Viewport) -> list[KnownSection]:
        """Return the sections of all tabs about a viewport."""
        entry = viewport.entry
        if entry is None:
            return []
        found = []
        for tab in TABS:
            sections, _ = viewport.describe(tab)
            for section in sections:
                labels = self._labels.get((entry.kind, section.title), {})
                found.append(KnownSection(tab, section.title, tuple(labels)))
        return found
