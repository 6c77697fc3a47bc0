"""Small plots of a run in the panel, beside what is shown of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from splatview_viewer.kinds.memory import plot as memory
from splatview_viewer.kinds.memory.view import MemoryData
from splatview_viewer.kinds.scalars import plots as scalars
from splatview_viewer.kinds.scalars.view import ScalarsData
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def strips_of(catalogue: Catalogue, slot: Slot) -> Strips:
    """The strips beside an entry: its run's losses, otherwise what was logged first; the number of Gaussians where it
    changes; memory."""
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
