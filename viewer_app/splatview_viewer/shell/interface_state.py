"""A user's choices of the interface: plain data, remembered for the next time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from splatview_viewer.core.view import TABS, Tab
from splatview_viewer.shell.zones import PANEL_WIDTH, PANEL_WIDTHS, Wishes

if TYPE_CHECKING:
    from splatview_viewer.core.host import Memo

VISIT_HEIGHT = 236.0
"""Points of a phone's sheet while it shows a `Visit`."""
_MEMO_KEY = "interface"
_MAX_PINNED = 200
_MAX_SPARKS = 3
_MAX_PLOTTED = 200


@dataclass
class InterfaceState:
    """The choices of one user."""

    tab: Tab = "look"
    panel_open: bool = True
    panel_width: float = PANEL_WIDTH
    """Points."""
    time_folded: bool = False
    sheet: float = 0.5
    """The share of a phone's height that its sheet has while it is raised."""
    dragged_sheet: float | None = None
    """The share while the user drags it."""
    on_streams: bool = False
    """True while a phone's sheet lists the streams, in place of a tab."""
    pinned: list[str] = field(default_factory=list)
    """Lasting names of the streams at the top of the list, in their order."""
    plotted: dict[str, bool] = field(default_factory=dict)
    """Whether the curves of a run are drawn beside others', by their lasting names, in
    the order in which that was chosen."""
    sparks: list[str] = field(default_factory=list)
    """Titles of the small curves that were chosen; empty: the first ones."""
    folded_runs: set[str] = field(default_factory=set)
    """Names of the runs whose streams are not listed; not remembered."""
    last_shown: dict[str, str] = field(default_factory=dict)
    """The key of the entry that was shown last of each run; not remembered."""
    visits: bool = False
    """True while a phone shows a `Visit`."""
    bare: bool = False
    """True for pictures with nothing around or over them."""
    hides_all: bool = False
    """True where the key that hides the panel hides all that is around the pictures."""
    decimal_bytes: bool = False
    """True to tell memory in GB, False in GiB."""
    lane: str = ""
    """The name of the chosen lane of the time area; "" for the first."""

    def wishes(self) -> Wishes:
        """Return what the places of the zones depend on."""
        if self.bare:
            return Wishes(panel=False, time="none", top=False)
        is_dragged = self.dragged_sheet is not None
        return Wishes(
            panel=self.panel_open or is_dragged,
            panel_width=self.panel_width,
            time=self._time_wish(),
            sheet_points=VISIT_HEIGHT if self.visits and not is_dragged else 0.0,
            sheet=self.sheet if self.dragged_sheet is None else self.dragged_sheet,
        )

    def _time_wish(self) -> Literal["open", "folded", "none"]:
        """Return how much of the time area is seen."""
        if self.visits:
            return "none"
        if self.time_folded:
            return "folded"
        return "open"

    def recall(self, memo: Memo) -> None:
        """Take what is remembered; what makes no sense is left out."""
        values = memo.get(_MEMO_KEY)
        if not isinstance(values, dict):
            return
        if values.get("tab") in TABS:
            self.tab = values["tab"]
        self.panel_width = _finite(values.get("panel_width"), PANEL_WIDTHS, PANEL_WIDTH)
        self.time_folded = values.get("time_folded") is True
        self.decimal_bytes = values.get("decimal_bytes") is True
        self.pinned = _texts(values.get("pinned"), _MAX_PINNED)
        self.sparks = _texts(values.get("sparks"), _MAX_SPARKS)
        self.plotted = _choices(values.get("plotted"), _MAX_PLOTTED)

    def remember(self, memo: Memo) -> None:
        """Keep the choices for the next time."""
        values: dict[str, Any] = {
            "tab": self.tab,
            "panel_width": self.panel_width,
            "time_folded": self.time_folded,
            "decimal_bytes": self.decimal_bytes,
            "pinned": self.pinned[:_MAX_PINNED],
            "sparks": self.sparks[:_MAX_SPARKS],
            "plotted": dict(list(self.plotted.items())[-_MAX_PLOTTED:]),
        }
        memo.put(_MEMO_KEY, values)


def _finite(value: Any, limits: tuple[float, float], default: float) -> float:
    """Return a number within limits; the default for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return default
    if not limits[0] <= value <= limits[1]:
        return default
    return float(value)


def _texts(value: Any, highest: int) -> list[str]:
    """Return the first texts of a list; none for anything else."""
    if not isinstance(value, list):
        return []
    return [text for text in value if isinstance(text, str)][:highest]


def _choices(value: Any, highest: int) -> dict[str, bool]:
    """Return the last choices of a dictionary; none for anything else."""
    if not isinstance(value, dict):
        return {}
    choices = {}
    for name, is_chosen in value.items():
        if isinstance(name, str) and isinstance(is_chosen, bool):
            choices[name] = is_chosen
    return dict(list(choices.items())[-highest:])
