"""What runs say of themselves beside the scenes they are about, their memory and what they log: whose is open when, and
the full snapshots of memory that come of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_ipc.control.memory_snapshots import find, newest_oom_snapshot
from splatview_viewer.kinds.scalars.counts import Counts, on_steps_of
from splatview_viewer.workspace.shards.grouping import belongs
from splatview_viewer.workspace.sources import StreamSource

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_viewer.shell.memory_strip import Strip
    from splatview_viewer.shell.pane import Pane
    from splatview_viewer.shell.strips import CurveStrip, Strips
    from splatview_viewer.workspace.catalogue import Catalogue, Slot

PERIOD = 0.5
"""Seconds between two looks at what is seen only in the panel."""
KINDS = ("scalars", "memory")
"""The kinds of streams that go with others of their run, in the order in which the panel has them."""
_DYING = 60.0
"""Seconds before a run's end within which it ran out of memory because of which it ended."""


class Companions:
    """Which streams of these kinds are open though nobody has selected them."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.slots: list[Slot] = []
        self._catalogue = catalogue
        self._ended: set[str] = set()
        """Runs that were asked for their last words."""
        self._counts = Counts()
        self._counted = 0

    def of(self, slot: Slot | None) -> list[Slot]:
        """What goes with the stream that an entry shows: one of each kind at most; nothing, if that is such itself."""
        if slot is None or not isinstance(slot.source, StreamSource) or slot.entry.kind in KINDS:
            return []
        run = slot.source.stream.run
        found = {s.entry.kind: s for s in reversed(self._catalogue.slots.values()) if s.entry.kind in KINDS
                 and isinstance(s.source, StreamSource) and belongs(s.source.stream.run, run)}
        return [found[kind] for kind in KINDS if kind in found]

    def seen_by(self, pane: Pane, slot: Slot) -> bool:
        """Whether the panel tells of this entry, beside what it shows."""
        return slot in self.slots and pane.has_panel and slot in self.of(self._catalogue.shown(pane))

    def strip(self, slot: Slot) -> Strips | None:
        """What the panel shows of a run beside an entry."""
        from splatview_viewer.shell.strips import Strips

        found = {s.entry.kind: s for s in self.of(slot) if not s.entry.fault}
        parts = [part for part in (self._curves(slot, found.get("scalars")), _memory(found.get("memory")))
                 if part is not None]
        return Strips(parts) if parts else None

    def _curves(self, slot: Slot, beside: Slot | None) -> CurveStrip | None:
        from splatview_viewer.shell.strips import strip_of

        content = None if beside is None else getattr(beside.view, "content", None)
        count = self._counts.of(slot.source.stream) if isinstance(slot.source, StreamSource) else None
        key = beside.entry.key if beside is not None and content is not None else ""
        return strip_of(content.curves if content is not None else None, count, key)

    def _count(self, now: float) -> None:
        """Take down how many Gaussians there are, and have it plotted beside what their runs log."""
        catalogue = self._catalogue
        self._counts.look([*catalogue.subscriber.streams, *catalogue.shards.streams], now)
        if self._counts.changes == self._counted:
            return
        self._counted = self._counts.changes
        catalogue.rate_changes += 1
        for slot in catalogue.slots.values():
            content = getattr(slot.view, "content", None)
            if slot.entry.kind != "scalars" or content is None or not isinstance(slot.source, StreamSource):
                continue
            streams = slot.source.stream.run.streams.values()
            curves = [c for s in streams if s.kind == "gaussians" and (c := self._counts.of(s)) is not None]
            if curves and content.curves.all:
                content.show_beside({"Gaussians": [on_steps_of(c, content.curves.clock) for c in curves]})

    def update(self, now: float) -> None:
        """Open what is seen from now on, let go of what is not, and open the full snapshots that somebody waits for."""
        catalogue = self._catalogue
        self._count(now)
        if not self.slots and not any(s.entry.kind in KINDS for s in catalogue.slots.values()):
            return
        found = {id(s): s for pane in catalogue.panes if pane.has_panel for s in self.of(catalogue.shown(pane))}
        before, self.slots = self.slots, list(found.values())
        for slot in self.slots:
            if slot not in before:
                slot.source.open()
        for slot in before:
            if slot not in self.slots:
                catalogue.let_go(slot)
        for slot in list(catalogue.slots.values()):
            if slot.entry.kind == "memory" and isinstance(slot.source, StreamSource):
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
            path = newest_oom_snapshot(run.id, run.ended_at - _DYING)
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


def _memory(slot: Slot | None) -> Strip | None:
    content = None if slot is None else getattr(slot.view, "content", None)
    if slot is None or content is None or content.history is None:
        return None
    from splatview_viewer.shell.memory_strip import Strip

    return Strip(slot.entry.key, content.history, content.about)
