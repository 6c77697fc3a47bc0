"""The memory of runs beside the scenes that cause it: whose is open when, and the full snapshots that come of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipc.taken import find, last_words
from viewer_app.sources import StreamSource

if TYPE_CHECKING:
    from pathlib import Path

    from viewer_app.catalogue import Catalogue, Slot
    from viewer_app.memory_strip import Strip
    from viewer_app.pane import Pane

PERIOD = 0.5
"""Seconds between two looks at memory that is seen only in the panel."""
_DYING = 60.0
"""Seconds before a run's end within which it ran out of memory because of which it ended."""


class Companions:
    """Which streams of memory are open though nobody has selected them."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.slots: list[Slot] = []
        self._catalogue = catalogue
        self._ended: set[str] = set()
        """Runs that were asked for their last words."""

    def of(self, slot: Slot | None) -> Slot | None:
        """The memory of the run whose stream an entry shows, if that shows something else."""
        if slot is None or not isinstance(slot.source, StreamSource) or slot.entry.kind == "memory":
            return None
        run = slot.source.stream.run
        return next((s for s in self._catalogue.slots.values() if s.entry.kind == "memory"
                     and isinstance(s.source, StreamSource) and s.source.stream.run is run), None)

    def seen_by(self, pane: Pane, slot: Slot) -> bool:
        """Whether the panel tells of this entry, beside what it shows."""
        return slot in self.slots and pane.has_panel and self.of(self._catalogue.shown(pane)) is slot

    def strip(self, slot: Slot) -> Strip | None:
        """What the panel shows of the memory beside an entry."""
        beside = self.of(slot)
        if beside is None or beside.entry.fault:
            return None
        content = getattr(beside.view, "content", None)
        if content is None or content.history is None:
            return None
        from viewer_app.memory_strip import Strip

        return Strip(beside.entry.key, content.history, content.about)

    def update(self) -> None:
        """Open what is seen from now on, let go of what is not, and open the full snapshots that somebody waits for."""
        catalogue = self._catalogue
        memories = [s for s in catalogue.slots.values() if s.entry.kind == "memory"]
        if not memories:
            self.slots.clear()
            return
        found = {id(s): s for pane in catalogue.panes if pane.has_panel
                 if (s := self.of(catalogue.shown(pane))) is not None}
        before, self.slots = self.slots, list(found.values())
        for slot in self.slots:
            if slot not in before:
                slot.source.open()
        for slot in before:
            if slot not in self.slots:
                catalogue.let_go(slot)
        for slot in memories:
            if isinstance(slot.source, StreamSource):
                self._snapshots(slot, slot.source)

    def _snapshots(self, slot: Slot, source: StreamSource) -> None:
        catalogue = self._catalogue
        for pane, view in list(slot.views.items()):
            view.content.ask = source.stream.request_snapshot  # type: ignore[attr-defined]
            name, view.opening = view.opening, ""  # type: ignore[attr-defined]
            if name and (path := find(name)) is not None and pane is not None:
                self._open(path, pane)
        run = source.stream.run
        if not run.alive and run.id not in self._ended:
            self._ended.add(run.id)
            path = last_words(run.id, run.ended_at - _DYING)
            if path is not None:
                panes = [pane for pane in catalogue.panes if catalogue.shown(pane) is slot]
                for pane in panes or [None]:
                    self._open(path, pane)

    def _open(self, path: Path, pane: Pane | None) -> None:
        """Open a snapshot for a pane; None: only list it."""
        catalogue = self._catalogue
        if str(path) not in catalogue.slots:
            catalogue.open_file(path, pane)
        elif pane is not None:
            pane.select(str(path))
