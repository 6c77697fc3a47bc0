"""What runs say of themselves beside the scenes they are about, their memory and what they log: whose is open when, and
the full snapshots of memory that come of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_ipc.control.memory_snapshots import find, newest_oom_snapshot
from splatview_viewer.kinds import STRIPS
from splatview_viewer.workspace.counts import Counts, on_steps_of
from splatview_viewer.workspace.shards.grouping import belongs
from splatview_viewer.workspace.sources import StreamSource

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_viewer.kinds.scalars.curves import Curve
    from splatview_viewer.workspace.catalogue import Catalogue, Slot
    from splatview_viewer.workspace.counts import Counted
    from splatview_viewer.workspace.viewport import Viewport

PERIOD = 0.5
"""Seconds between two looks at what is seen only in the panel."""
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
        if slot is None or not isinstance(slot.source, StreamSource) or slot.entry.kind in STRIPS:
            return []
        run = slot.source.stream.run
        found = {s.entry.kind: s for s in reversed(self._catalogue.slots.values()) if s.entry.kind in STRIPS
                 and isinstance(s.source, StreamSource) and belongs(s.source.stream.run, run)}
        return [found[kind] for kind in STRIPS if kind in found]

    def seen_by(self, pane: Viewport, slot: Slot) -> bool:
        """Whether the panel tells of this entry, beside what it shows."""
        return slot in self.slots and pane.has_panel and slot in self.of(self._catalogue.shown(pane))

    def count_of(self, stream: Counted) -> Curve | None:
        """The number of Gaussians of a scene over time, if that ever changed."""
        return self._counts.of(stream)

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
        if not self.slots and not any(s.entry.kind in STRIPS for s in catalogue.slots.values()):
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

    def _open(self, path: Path, pane: Viewport | None) -> None:
        """Open a snapshot for a pane; None: only list it."""
        catalogue = self._catalogue
        if str(path) not in catalogue.slots:
            catalogue.open_file(path, pane)
        elif pane is not None:
            pane.select(str(path))
