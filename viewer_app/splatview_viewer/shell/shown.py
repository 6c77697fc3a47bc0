"""The contents of the panel: a description of the view that is open, and small plots of its run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from splatview_viewer.kinds.gaussians.tool import in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.core.old_view import View
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.settings import Entry
    from splatview_viewer.core.view import KeyHelp, Section
    from splatview_viewer.kinds.memory.live import History
    from splatview_viewer.kinds.scalars.curves import Curve
    from splatview_viewer.workspace.catalogue import Catalogue, Slot


_MOST = 2
"""Scalars of a run without a loss."""


@dataclass(frozen=True)
class Strips:
    """The plots of one run. Keys are those of the entries that show more, "" where there is none."""

    head: str = ""
    """A line over the curves."""
    curves: Sequence[tuple[str, Curve]] = ()
    """With their titles."""
    key: str = ""
    memory: History | None = None
    memory_key: str = ""

    def draw(self, scale: float) -> str:
        """Draw them one under the other into the window that is open; return the key of the one that was clicked."""
        from splatview_viewer.kinds.memory import plot as memory
        from splatview_viewer.kinds.scalars import plots as scalars
        from splatview_viewer.ui import widgets as ui

        clicked = ""
        if self.head:
            ui.dim(self.head)
        for title, curve in self.curves:
            if scalars.draw_strip(curve, title, self.key):
                clicked = self.key
        if self.memory is not None:
            ui.gap(4 * scale)
            if memory.draw_strip(self.memory, self.memory_key):
                clicked = self.memory_key
        return clicked


@dataclass
class Shown:
    """Nothing, as long as nothing is set."""

    controls: Callable[[], bool] | None = None
    """Draws the view's own controls."""
    sections: Sequence[Section] = ()
    """More parts of the panel."""
    keys: Sequence[KeyHelp] = ()
    over: Callable[[Rect, float], bool] | None = None
    """Draws what the view writes over its picture (`View.over`)."""
    details: list[str] = field(default_factory=list)
    extras: list[str] = field(default_factory=list)
    readout: str = ""
    path: list[str] = field(default_factory=list)
    empty: bool = True
    troubles: list[str] = field(default_factory=list)
    """The publishers' reports of what is wrong with what is shown."""
    strips: Strips | None = None
    """Small plots of the stream's run."""
    rect: Rect | None = None
    """The rectangle in which it was drawn; None: all of the picture."""
    number: int = -1
    """Which pane it is, from 0 on."""
    head: Rect | None = None
    """Its strip with its name, if there are several panes."""
    boards: Sequence[Rect] = ()
    """The rectangles of imgui's windows over its picture."""
    entry: Entry | None = None
    """The entry; only for panes beside the active one."""


def describe(catalogue: Catalogue, slot: Slot | None, view: View | None, panel_open: bool) -> Shown:
    """Return the description of the view that shows an entry. Faults of the view become the entry's."""
    if slot is None or view is None or slot.entry.fault:
        return Shown(empty=True)

    def over(rect: Rect, scale: float) -> bool:
        with catalogue.guard(slot):
            return view.over(rect, scale)
        return False

    troubles = catalogue.links.troubles(slot)
    if not panel_open:
        return Shown(keys=view.keys, over=over, empty=view.empty, troubles=troubles)

    def guarded(draw: Callable[[], bool | None]) -> Callable[[], bool]:
        def drawn() -> bool:
            with catalogue.guard(slot):
                return bool(draw())
            return False

        return drawn

    from splatview_viewer.workspace.shards_panel import sections as shard_sections

    beside = [*shard_sections(catalogue, slot, view),
              *(section for feature in catalogue.features for section in feature.sections(slot, view))]
    sections = in_order([*view.sections, *beside])
    sections = [replace(section, draw=guarded(section.draw)) for section in sections]
    return Shown(guarded(view.panel), sections, view.keys, over, view.details, [*view.extras, *slot.source.notes],
                 view.readout, [slot.source.path, *view.path], view.empty, troubles, strips_of(catalogue, slot))


def strips_of(catalogue: Catalogue, slot: Slot) -> Strips:
    """The strips beside an entry: its run's losses, otherwise what was logged first; the number of Gaussians where it
    changes; memory."""
    from splatview_viewer.kinds.memory.view import MemoryData
    from splatview_viewer.kinds.scalars.view import ScalarsData

    head, key, curves = "", "", list[tuple[str, "Curve"]]()
    history, memory_key = None, ""
    for beside in catalogue.links.plots(slot):
        if beside.view is None or beside.view.empty or beside.entry.fault:
            continue
        content = getattr(beside.view, "content", None)
        if isinstance(content, MemoryData):
            history, memory_key = content.history, beside.entry.key
        if isinstance(content, ScalarsData):
            key = beside.entry.key
            logged = content.curves
            if logged.all:
                rate = f" \u00b7 {logged.rate.last:.3g} steps/s" if logged.rate is not None else ""
                head = f"Step {logged.step:,.12g}{rate}"
            losses = [c for c in logged.all if "loss" in c.name.lower()][:1]
            curves = [(c.name, c) for c in losses or [c for c in logged.all if len(c) > 1][:_MOST]]
    count = catalogue.counts.curves.get(id(slot.source.stream))
    if count is not None:
        curves.append(("Gaussians", count))
    return Strips(head, curves, key, history, memory_key)
