"""The settings of the panel's sections, for those who search for one.

A section is code that draws, so its settings are known once it was drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.view import TABS, Section, Tab
from splatview_viewer.shell.zones import PANEL_WIDTH
from splatview_viewer.ui import theme
from splatview_viewer.ui.boards import SHOWING_FLAGS
from splatview_viewer.ui.widgets import noting_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from splatview_viewer.core.settings import Entry
    from splatview_viewer.shell.viewport import Viewport

_FAR = 20000.0
"""Pixels outside of every screen."""
_MAX_SECTIONS = 256


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


class _SectionKey(NamedTuple):
    """Names the sections that have the same settings."""

    kind: str
    """The kind of the entry that is shown."""
    title: str
    run: str
    """"" for a section that is alike beside all entries of its kind."""


class KnownSettings:
    """The labels of settings by kind and section."""

    def __init__(self) -> None:
        self._labels: dict[_SectionKey, dict[str, None]] = {}
        self.goal: Goal | None = None
        """What a user chose to see next."""

    def take_goal(self, section: str) -> Goal | None:
        """Return the goal, once, if it is this section or in it."""
        goal = self.goal
        if goal is None or goal.section != section:
            return None
        self.goal = None
        return goal

    def learn(self, viewport: Viewport) -> None:
        """Draw the sections that were never open outside of the screen.

        Within a frame, outside of all windows.
        """
        entry = viewport.entry
        if entry is None:
            return
        unknown = []
        for tab in TABS:
            for section in viewport.describe(tab)[0]:
                if _key_of(entry, section) not in self._labels:
                    unknown.append(section)
        if not unknown:
            return
        imgui.set_next_window_pos(ImVec2(-_FAR, -_FAR))
        imgui.set_next_window_size(ImVec2(PANEL_WIDTH * theme.scale(), _FAR / 2))
        imgui.begin("##settings that are learnt", None, SHOWING_FLAGS)
        for section in unknown:
            with noting_rows() as labels:
                section.draw()
            self.note(entry, section, labels)
        imgui.end()

    def note(self, entry: Entry, section: Section, labels: Iterable[str]) -> None:
        """Learn the labels of a section that was drawn beside an entry."""
        key = _key_of(entry, section)
        if section.run:
            # All of its settings are noted each time.
            self._labels.pop(key, None)
        self._labels.setdefault(key, {}).update(dict.fromkeys(labels))
        if len(self._labels) > _MAX_SECTIONS:
            del self._labels[next(iter(self._labels))]

    def list_sections(self, viewport: Viewport) -> list[KnownSection]:
        """Return the sections of all tabs about a viewport."""
        entry = viewport.entry
        if entry is None:
            return []
        sections_of_tabs = []
        for tab in TABS:
            sections, _ = viewport.describe(tab)
            for section in sections:
                labels = self._labels.get(_key_of(entry, section), {})
                sections_of_tabs.append(KnownSection(tab, section.title, tuple(labels)))
        return sections_of_tabs


def _key_of(entry: Entry, section: Section) -> _SectionKey:
    return _SectionKey(entry.kind, section.title, section.run)
