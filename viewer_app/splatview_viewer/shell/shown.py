"""What the panel has to say about the view that is open."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from splatview_viewer.kinds.gaussians.tool import in_order
from splatview_viewer.shell.strips import Strips, strips_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.core.old_view import View
    from splatview_viewer.core.settings import Entry
    from splatview_viewer.core.view import KeyHelp, Section
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.workspace.catalogue import Catalogue, Slot


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
    """What publishers say that is wrong with what is shown."""
    strips: Strips | None = None
    """Small plots of the stream's run."""
    rect: Rect | None = None
    """Where it was drawn; None: all of the picture."""
    number: int = -1
    """Which pane it is, from 0 on."""
    head: Rect | None = None
    """Its strip with its name, if there are several panes."""
    boards: Sequence[Rect] = ()
    """Where imgui's windows lie over its picture."""
    entry: Entry | None = None
    """What is shown; only for panes beside the active one."""


def describe(catalogue: Catalogue, slot: Slot | None, view: View | None, panel_open: bool) -> Shown:
    """What is said of the view that shows an entry. Faults of the view are the entry's."""
    if slot is None or view is None or slot.entry.fault:
        return Shown(empty=True)

    def over(rect: Rect, scale: float) -> bool:
        with catalogue.guard(slot):
            return view.over(rect, scale)
        return False

    troubles = catalogue.overlays.troubles(slot)
    if not panel_open:
        return Shown(keys=view.keys, over=over, empty=view.empty, troubles=troubles)

    def guarded(draw: Callable[[], bool | None]) -> Callable[[], bool]:
        def drawn() -> bool:
            with catalogue.guard(slot):
                return bool(draw())
            return False

        return drawn

    from splatview_viewer.workspace.shards.panel import sections as shard_sections

    beside = [*shard_sections(catalogue, slot, view),
              *(section for feature in catalogue.features for section in feature.sections(slot, view))]
    sections = in_order([*view.sections, *beside])
    sections = [replace(section, draw=guarded(section.draw)) for section in sections]
    return Shown(guarded(view.panel), sections, view.keys, over, view.details, [*view.extras, *slot.source.notes],
                 view.readout, [slot.source.path, *view.path], view.empty, troubles, strips_of(catalogue, slot))
