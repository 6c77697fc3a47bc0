"""State of one user's view of a memory snapshot: plain data that hands, panes and the panel's controls change."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_viewer.core.settings import SnapshotSettings
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    import numpy as np

    from splatview_viewer.kinds.snapshot.analysis.colors import ColorBy
    from splatview_viewer.kinds.snapshot.content import Content

Range = tuple[float, float]
_numbers = itertools.count(1)

TABS = {"timeline": "Timeline", "addresses": "Addresses", "segments": "Segments", "events": "Events",
        "stacks": "Stacks", "compare": "Compare", "leaks": "Leaks", "oom": "OOM", "sql": "SQL", "about": "About"}
"""What can be looked at, and what it is called."""
PLOTS = ("timeline", "addresses")
"""The tabs that are a plot alone. Above the others lies the timeline, lower."""


@dataclass
class Look:
    """One user's look. Moments, events and allocations (ids) are those of the device that is shown."""

    settings: SnapshotSettings = field(default_factory=SnapshotSettings)
    """`unit` of the time axis, `color_by`, `reserved`, `lanes`, `background`."""
    device: int = 0
    """A place in `Snapshot.traces`."""
    tab: str = "timeline"
    """One of TABS."""
    x: Range | None = None
    """What is seen of the time axis, in its unit: moments, or microseconds since the epoch. None: all."""
    y: Range | None = None
    """What is seen of the bytes axis of the timeline. None: from 0 to a little over the peak of what is seen."""
    places: Range | None = None
    """What is seen of the address space, in bytes of `Addresses`. None: all."""
    moment: int | None = None
    """The moment that was chosen: panes tell what was then. None: none was; they take the peak (`Content.moment`)."""
    moment_a: int | None = None
    moment_b: int | None = None
    """The two moments that are compared."""
    selected: int | None = None
    """The allocation whose details are shown."""
    hovered: int | None = None
    """The allocation under the pointer, in the plot or a pane."""
    pointed: int | None = None
    """The moment under the pointer; None where it is not over the plot."""
    search: str = ""
    """What was typed into the search field."""
    hits: np.ndarray | None = None
    """bool (A,): what the search found; None: nothing is searched for."""
    lit: np.ndarray | None = None
    """bool (A,): what a pane wants to be seen among the rest (SQL's rows, a stack's allocations); None: nothing."""
    lit_by: str = ""
    """Who wants that, in words: "SQL", "a stack of 12.0 GiB"."""
    lit_number: int = 0
    """Another one for all that `hits` and `lit` ever were, in any look."""
    wants_focus: str = ""
    """"search": the keyboard goes to that field with the next picture."""

    @property
    def chosen_y(self) -> Range | None:
        """The range that the user chose of the plot's bytes axis."""
        return self.places if self.tab == "addresses" else self.y

    @property
    def mask(self) -> np.ndarray | None:
        """bool (A,): what is lit, by search and pane together; None: everything."""
        if self.hits is None or self.lit is None:
            return self.lit if self.hits is None else self.hits
        return self.hits & self.lit

    def light(self, mask: np.ndarray | None, words: str = "") -> None:
        """Let these allocations, bool (A,), be seen among the rest; None: no longer."""
        self.lit, self.lit_by = mask, words if mask is not None else ""
        self.lit_number = next(_numbers)

    def find(self, mask: np.ndarray | None) -> None:
        """Show the hits of a search, bool (A,)."""
        self.hits = mask
        self.lit_number = next(_numbers)

    def select(self, allocation: int | None) -> None:
        """Show an allocation's details; None or -1: nobody's."""
        self.selected = None if allocation is None or allocation < 0 else int(allocation)

    def go(self, moment: int) -> None:
        """Choose a moment. The plot shows where it is; see `Content.reveal` to bring it into sight."""
        self.moment = int(moment)

    def mark(self, moment: int) -> None:
        """Mark a moment to compare: the first, then the second, then the first anew."""
        if self.moment_a is None or self.moment_b is not None:
            self.moment_a, self.moment_b = int(moment), None
        else:
            self.moment_b = int(moment)
            if self.moment_b < self.moment_a:
                self.moment_a, self.moment_b = self.moment_b, self.moment_a

    def fit(self) -> None:
        """See all."""
        if self.tab == "addresses":
            self.places = None
        else:
            self.y = None
        self.x = None

    def clear(self) -> None:
        """Nothing is selected, searched for, lit or marked; one thing at a time, as Escape does it."""
        if self.selected is not None:
            self.selected = None
        elif self.lit is not None:
            self.light(None)
        elif self.search or self.hits is not None:
            self.search = ""
            self.find(None)
        elif self.moment_a is not None:
            self.moment_a = self.moment_b = None
        else:
            self.moment = None

    def show_device(self, device: int) -> None:
        """Look at another device of the snapshot: ids and moments of the one before mean nothing there."""
        if device != self.device:
            self.forget()
            self.device = device

    def forget(self) -> None:
        """Another snapshot or device: everything that was chosen in the one before is gone; settings and tab stay."""
        self.device = 0
        self.x = self.y = self.places = None
        self.moment = self.moment_a = self.moment_b = None
        self.selected = self.hovered = self.pointed = None
        self.search, self.hits, self.lit, self.lit_by = "", None, None, ""
        self.lit_number = next(_numbers)

    def look_like(self, other: Look) -> None:
        """Be what another one is, for somebody who follows."""
        vars(self).update({**vars(other), "settings": self.settings, "wants_focus": self.wants_focus})
        self.settings.take(other.settings)


_COLORS: dict[ColorBy, str] = {"stack": "Stack", "category": "What it is", "size": "Size", "age": "Lifetime",
                               "stream": "Stream", "pool": "Memory pool"}


def draw_controls(content: Content, look: Look) -> None:
    """Inside a window of imgui's that is open."""
    s, snapshot = look.settings, content.snapshot
    if len(snapshot.traces) > 1:
        names = {k: f"GPU {t.device}" if t.device >= 0 else "host" for k, t in enumerate(snapshot.traces)}
        look.show_device(ui.choice("Device", look.device, names))
    s.color_by = ui.choice("Colour", s.color_by, _COLORS)
    axis = content.axis(look.device, "time")
    if axis is not None and axis.timed:
        s.unit = ui.choice("Axis", s.unit, {"events": "Events", "time": "Clock"})
    elif axis is not None:
        s.unit = "events"
    ui.row("Reserved")
    s.reserved = imgui.checkbox("##reserved", s.reserved)[1]
    imgui.set_item_tooltip("What the allocator has from the driver, behind what is in use")
    if len(snapshot.pools) > 1:
        ui.row("Pools")
        s.lanes = imgui.checkbox("##lanes", s.lanes)[1]
        imgui.set_item_tooltip("Each memory pool in a lane of its own: the default one, those of CUDA graphs")
    ui.row("Legend")
    s.legend = imgui.checkbox("##legend", s.legend)[1]
