"""State of one user's view of a memory snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy as np

    from splatview_viewer.snapshot.analysis.colors import ColorBy
    from splatview_viewer.snapshot.timeline.bands import Measure

Range = tuple[float, float]

TABS = {
    "timeline": "Timeline",
    "addresses": "Addresses",
    "segments": "Segments",
    "events": "Events",
    "stacks": "Stacks",
    "leaks": "Leaks",
    "oom": "OOM",
    "sql": "SQL",
}
"""The tabs, and their titles."""
PLOTS = ("timeline", "addresses")
"""Tabs that have a plot alone. In the others the timeline is above a pane."""
COLORS: dict[ColorBy, str] = {
    "stack": "Stack",
    "category": "What it is",
    "size": "Size",
    "stream": "Stream",
    "pool": "Memory pool",
}


MEASURES: dict[Measure, str] = {
    "requested": "Requested",
    "rounded": "Rounded",
    "active": "Active",
}
"""The bytes that bands can show."""


@dataclass(frozen=True)
class Highlight:
    """A row of an answer whose allocations are highlighted in the timeline."""

    key: tuple[Hashable, ...]
    """The answer's key (`Content.request`)."""
    row: int
    label: str
    """"SQL, 12 allocations", "forward  model.py:54, 12.0 GiB"."""
    mask: np.ndarray = field(compare=False, repr=False)
    """bool (A,)"""


@dataclass(frozen=True)
class SnapshotState:
    """One user's view. Moments, events and allocations are those of the shown device."""

    unit: Literal["events", "time"] = "events"
    """The unit of the time axis: events, or time."""
    color_by: ColorBy = "stack"
    measure: Measure = "requested"
    """The bytes that bands show."""
    legend: bool = True
    """The meaning of the colours is written over the plot."""
    device: int | None = None
    """Index into `MemorySnapshot.traces`; None: the busiest device."""
    tab: str = ""
    """One of TABS; "": the failed allocations if there are any, otherwise the timeline."""
    x: Range | None = None
    """The visible range of the time axis, in its unit; None for all."""
    y: Range | None = None
    """The visible range of the bytes axis of the timeline; None for all."""
    address_window: Range | None = None
    """The visible range of the address space, in bytes of `Addresses`; None for all."""
    moment: int | None = None
    """The chosen moment, of which panes are; None: the peak."""
    marks: tuple[int | None, int | None] = (None, None)
    """The two moments that are compared."""
    selected: int | None = None
    """The allocation whose details are shown."""
    hovered: int | None = None
    """The allocation under the pointer, in the plot or a pane."""
    pointed_moment: int | None = None
    """The moment under the pointer; None where it is not over the plot."""
    search: str = ""
    highlight: Highlight | None = None
    choices: tuple[tuple[str, str], ...] = ()
    """Values chosen in panes, by name."""
    shows: Literal["alone", "both", "growth"] = "alone"
    """Whether the timeline is compared: two timelines, or how one outgrew the other."""
    other: str = ""
    """The name of the snapshot that it is compared with; "": the first other one."""
    swapped: bool = False
    """The snapshot itself is B, and the other one A."""
    line_up: Literal["start", "peak", "mark"] = "start"
    """The moments of two snapshots that are at the same x."""
    tied_time: bool = True
    """Two timelines show the same time."""
    tied_bytes: bool = True
    """Two timelines show the same bytes."""
    partner: SnapshotState | None = None
    """What is chosen in the timeline of the other snapshot."""

    def choice(self, name: str, default: str) -> str:
        """Return the value chosen in a pane."""
        return dict(self.choices).get(name, default)

    def with_choice(self, name: str, value: str) -> SnapshotState:
        """Return the state after a choice in a pane."""
        choices = {**dict(self.choices), name: value}
        return replace(self, choices=tuple(sorted(choices.items())))

    def with_mark(self, event_index: int) -> SnapshotState:
        """Return the state after a moment was marked to be compared.

        The first one is marked, then the second, then the first again.
        """
        a, b = self.marks
        if a is None or b is not None:
            return replace(self, marks=(event_index, None))
        return replace(self, marks=(min(a, event_index), max(a, event_index)))

    def without_window(self) -> SnapshotState:
        """Return the state in which all is visible."""
        if self.tab == "addresses":
            return replace(self, x=None, address_window=None)
        return replace(self, x=None, y=None)

    def after_escape(self) -> SnapshotState:
        """Return the state after Escape, which takes back one thing at a time."""
        if self.selected is not None:
            return replace(self, selected=None)
        if self.partner is not None and self.partner.selected is not None:
            return replace(self, partner=replace(self.partner, selected=None))
        if self.highlight is not None:
            partner = self.partner and replace(self.partner, highlight=None)
            return replace(self, highlight=None, partner=partner)
        if self.search:
            return replace(self, search="")
        if self.marks[0] is not None:
            return replace(self, marks=(None, None))
        return replace(self, moment=None)

    def for_device(self, device: int | None = None) -> SnapshotState:
        """Return the state for another device or snapshot: tab and choices stay."""
        return SnapshotState(
            unit=self.unit,
            color_by=self.color_by,
            measure=self.measure,
            legend=self.legend,
            device=device,
            tab=self.tab,
            choices=self.choices,
            shows=self.shows,
            other=self.other,
            swapped=self.swapped,
            line_up=self.line_up,
            tied_time=self.tied_time,
            tied_bytes=self.tied_bytes,
        )
