"""Small curves of the run of what is shown: loss, Gaussians, memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from splatview_viewer.kinds.memory import plot as memory
from splatview_viewer.kinds.memory.view import MemoryData
from splatview_viewer.kinds.scalars import plots as scalars
from splatview_viewer.kinds.scalars.view import ScalarsData
from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.memory.live import MemoryHistory
    from splatview_viewer.kinds.scalars.curves import Curve
    from splatview_viewer.shell.user import User
    from splatview_viewer.workspace.catalogue import Catalogue
    from splatview_viewer.workspace.slot import Slot

_MOST_SCALARS = 2
"""Of a run without a loss, plotted in the panel."""


def draw_sparklines(user: User, rect: Rect) -> None:
    """Draw the curves into the window that is open; a click shows the large plot."""
    working = user.layout.active.working()
    if working is None:
        ui.wrapped(
            "Loss and the number of Gaussians stand here while a run trains.",
            theme.FAINT,
        )
        return
    key = strips_of(user.catalogue, working[0]).draw(theme.scale())
    if key:
        user.do(user.choose, key)


@dataclass(frozen=True)
class Strips:
    """The plots of one run.

    Keys are those of the entries that show more, "" where there is none.
    """

    head: str = ""
    """A line over the curves."""
    curves: Sequence[tuple[str, Curve]] = ()
    """With their titles."""
    key: str = ""
    memory: MemoryHistory | None = None
    memory_key: str = ""

    def draw(self, scale: float) -> str:
        """Draw them one under the other into the window that is open; return the key of
        the one that was clicked.
        """
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
    """The strips beside an entry: its run's losses, otherwise what was logged first;
    the number of Gaussians where it changes; memory.
    """
    head = ""
    key = ""
    curves = list[tuple[str, "Curve"]]()
    history = None
    memory_key = ""
    for beside in catalogue.links.plots(slot):
        if beside.view is None or beside.view.empty or beside.entry.fault:
            continue
        content = beside.view.content
        if isinstance(content, MemoryData):
            history = content.history
            memory_key = beside.entry.key
        if isinstance(content, ScalarsData):
            key = beside.entry.key
            logged = content.curves
            if logged.all:
                if logged.rate is not None:
                    rate = f" \u00b7 {logged.rate.newest_value:.3g} steps/s"
                else:
                    rate = ""
                head = f"Step {logged.step:,.12g}{rate}"
            losses = [c for c in logged.all if "loss" in c.name.lower()][:1]
            curves = [
                (c.name, c)
                for c in losses or [c for c in logged.all if len(c) > 1][:_MOST_SCALARS]
            ]
    count = catalogue.counts.curves.get(id(slot.source.stream))
    if count is not None:
        curves.append(("Gaussians", count))
    return Strips(head, curves, key, history, memory_key)
