"""State of one user's view of a memory snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy as np

    from splatview_viewer.snapshot.analysis.colors import ColorBy

Range = tuple[float, float]

TABS = {
    "timeline": "Timeline",
    "addresses": "Addresses",
    "segments": "Segments",
    "events": "Events",
    "stacks": "Stacks",
    "compare": "Compare",
    "leaks": "Leaks",
    "oom": "OOM",
    "sql": "SQL",
}
"""The tabs, and their titles."""
PLOTS = ("timeline", "addresses")
"""The tabs that are a plot alone. Above the others lies the timeline, lower."""
COLORS: dict[ColorBy, str] = {
    "stack": "Stack",
    "category": "What it is",
    "size": "Size",
    "stream": "Stream",
    "pool": "Memory pool",
}


@dataclass(frozen=True)
class Highlight:
    """A row of an answer whose allocations are seen among the rest."""

    key: tuple[Hashable, ...]
    """The answer's key (`Content.ask`)."""
    row: int
    label: str
    """"SQL", "a stack of 12.0 GiB"."""
    mask: np.ndarray = field(compare=False, repr=False)
    """bool (A,)"""


@dataclass(frozen=True)
class SnapshotState:
    """One user's view. Moments, events and allocations (ids) are those of the device that is shown."""

    unit: Literal["events", "time"] = "events"
    """The time axis counts events, or time as the clock goes."""
    color_by: ColorBy = "stack"
    legend: bool = True
    """The meaning of the colours is written over the plot."""
    device: int | None = None
    """A place in `Snapshot.traces`; None: the busiest."""
    tab: str = ""
    """One of TABS; "": the failed allocations if there are any, otherwise the timeline."""
    x: Range | None = None
    """The seen part of the time axis, in its unit: moments, or microseconds since the epoch. None: all."""
    y: Range | None = None
    """The seen part of the bytes axis of the timeline. None: all."""
    address_window: Range | None = None
    """The seen part of the address space, in bytes of `Addresses`. None: all."""
    moment: int | None = None
    """The chosen moment, of which panes tell; None: the peak."""
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

    def choice(self, name: str, default: str) -> str:
        """Return the value chosen in a pane."""
        return dict(self.choices).get(name, default)

    def with_choice(self, name: str, value: str) -> SnapshotState:
        """The state after a choice in a pane."""
        return replace(
            self, choices=tuple(sorted({**dict(self.choices), name: value}.items()))
        )

    def with_mark(self, moment: int) -> SnapshotState:
        """The state after a moment was marked to be compared: the first, then the second, then the first anew."""
        a, b = self.marks
        return replace(
            self,
            marks=(moment, None)
            if a is None or b is not None
            else (min(a, moment), max(a, moment)),
        )

    def without_window(self) -> SnapshotState:
        """The state in which all is seen."""
        return replace(
            self, x=None, **{"address_window" if self.tab == "addresses" else "y": None}
        )

    def after_escape(self) -> SnapshotState:
        """The state after Escape: it takes back one thing at a time."""
        for held, changes in (
            (self.selected, {"selected": None}),
            (self.highlight, {"highlight": None}),
            (self.search or None, {"search": ""}),
            (self.marks[0], {"marks": (None, None)}),
        ):
            if held is not None:
                return replace(self, **changes)
        return replace(self, moment=None)

    def for_device(self, device: int | None = None) -> SnapshotState:
        """The state for another device or snapshot: its look, tab and choices stay."""
        return SnapshotState(
            self.unit,
            self.color_by,
            self.legend,
            device,
            self.tab,
            choices=self.choices,
        )
