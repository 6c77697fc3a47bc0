"""Small plots in the panel of the run beside the scene that is shown: what it logs, its Gaussians, its memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from splatview_viewer.workspace.sources import StreamSource

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


def strips_of(catalogue: Catalogue, slot: Slot) -> Strips:
    """The strips beside an entry: its run's losses, otherwise what was logged first; the number of Gaussians where it
    changes; memory."""
    companions = catalogue.companions
    found = {s.entry.kind: s for s in companions.of(slot) if not s.entry.fault}
    shown = {kind: s.view for kind, s in found.items() if s.view is not None and not s.view.empty}
    scalars, memory = (getattr(shown.get(kind), "content", None) for kind in ("scalars", "memory"))
    history = None if memory is None else memory.history
    head, curves = "", list[tuple[str, "Curve"]]()
    if scalars is not None:
        logged = scalars.curves
        losses = [c for c in logged.all if "loss" in c.name.lower()]
        curves = [(c.name, c) for c in (losses[:1] or [c for c in logged.all if len(c) > 1][:_MOST])]
        rate = f" \u00b7 {logged.rate.last:.3g} steps/s" if logged.rate is not None else ""
        head = f"Step {logged.step:,.12g}{rate}"
    count = companions.count_of(slot.source.stream) if isinstance(slot.source, StreamSource) else None
    if count is not None:
        curves.append(("Gaussians", count))
    return Strips(head, curves, found["scalars"].entry.key if scalars is not None else "", history,
                  found["memory"].entry.key if history is not None else "")
