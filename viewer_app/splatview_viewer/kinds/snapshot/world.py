"""The layout of the view's parts, and what a tab's plot is of: its axes, and the layers of its bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from splatview_viewer.core.format import size_text
from splatview_viewer.core.screen import Rect
from splatview_viewer.kinds.snapshot.state import PLOTS
from splatview_viewer.snapshot.timeline.bands import Bands

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.state import Range, SnapshotState
    from splatview_viewer.snapshot.timeline.bands import Addresses, TimelineAxis

BAR = 40
"""Points: the height of the bar with the tabs and the search."""
MINIMAP = 44
GAP = 8
DETAILS = 350
_BARE = 200, 150
"""Points below which there is the plot and nothing else."""
_TALL = 400
"""Points from which the timeline is seen above a table."""
_ROOMY = 300
"""Points above a table from which the minimap has room beside the timeline."""
_WIDE = 760
"""Points of width from which details lie beside the plot, not under it."""


@dataclass(frozen=True)
class PaneLayout:
    """Rectangles in pixels of the framebuffer; None: not there. They do not overlap."""

    plot: Rect | None = None
    """With its axes."""
    bar: Rect | None = None
    minimap: Rect | None = None
    pane: Rect | None = None
    """The table or other of the tab."""
    details: Rect | None = None


def lay_out(rect: Rect, scale: float, tab: str, *, details: bool) -> PaneLayout:
    """`scale`: pixels per point. `details`: an allocation's are to be seen."""
    if rect.width < _BARE[0] * scale or rect.height < _BARE[1] * scale:
        return PaneLayout(plot=rect)

    def px(points: float) -> int:
        return round(points * scale)

    x = rect.x
    y = rect.y
    width = rect.width
    height = rect.height
    high = px(BAR)
    bar = Rect(x, y, width, high)
    y = y + high
    height = height - high
    side = None
    if details and width >= _WIDE * scale:
        w = min(px(DETAILS), width * 45 // 100)
        side = Rect(x + width - w, y, w, height)
        width -= w
    elif details:
        h = height // 2
        side = Rect(x, y + height - h, width, h)
        height -= h
    pane = None
    if tab not in PLOTS:
        if height >= _TALL * scale:
            above = max(height * 36 // 100, px(190))
        else:
            above = px(MINIMAP + 2 * GAP)
        pane = Rect(x, y + above, width, height - above)
        height = above
    minimap = None
    if height >= px(MINIMAP + 2 * GAP) and (
        pane is None or not px(150) < height < px(_ROOMY)
    ):
        minimap = Rect(
            x + px(GAP),
            y + height - px(MINIMAP + GAP),
            max(width - 2 * px(GAP), 1),
            px(MINIMAP),
        )
        height -= px(MINIMAP + 2 * GAP)
    return PaneLayout(
        Rect(x, y, width, height) if height >= px(62) else None,
        bar,
        minimap,
        pane,
        side,
    )


def zoom_range(span: Range, at: float, factor: float) -> Range:
    """Return the range that is seen after zooming in by a factor at a place."""
    return at - (at - span[0]) / factor, at + (span[1] - at) / factor


def clamp_range(wanted: Range, full: Range, least: float) -> Range | None:
    """`wanted` moved and narrowed so that it lies in `full` and is at least `least` wide; None when it is all."""
    low, high = full
    width = max(wanted[1] - wanted[0], min(least, high - low))
    if width >= (high - low) * (1 - 1e-9):
        return None
    begin = min(max((wanted[0] + wanted[1] - width) / 2, low), high - width)
    return begin, begin + width


MIN_WINDOW = {"events": 6.0, "time": 20.0}
"""The narrowest window of the time axis: moments, microseconds."""
MIN_WINDOW_BYTES = 256.0
_AIR = 1.04


@dataclass(frozen=True, eq=False)
class PlotWorld:
    """The axes of a plot, and what it is painted from."""

    axis: TimelineAxis
    bands: Bands
    painter: Bands | Addresses
    """Of the tab: `bands`, or the address space."""

    @property
    def full(self) -> Range:
        """All of the bytes axis."""
        return 0.0, max(self.painter.height, MIN_WINDOW_BYTES) * (
            _AIR if self.painter is self.bands else 1.0
        )

    def window(self, state: SnapshotState) -> tuple[Range, Range]:
        """The part that the plot shows: of the time axis, and of the bytes axis."""
        return state.x or self.axis.extent, (
            state.address_window if state.tab == "addresses" else state.y
        ) or self.full

    def with_window(
        self, state: SnapshotState, x: Range | None, y: Range | None = None
    ) -> SnapshotState:
        """The state in which these ranges are seen, as far as they exist; None: as they are."""
        changes: dict[str, Range | None] = {}
        if x is not None:
            changes["x"] = clamp_range(x, self.axis.extent, MIN_WINDOW[state.unit])
        if y is not None:
            changes["address_window" if state.tab == "addresses" else "y"] = (
                clamp_range(y, self.full, MIN_WINDOW_BYTES)
            )
        return replace(state, **changes)  # type: ignore[arg-type]

    def y_text(self, y: float) -> str:
        """A place of the bytes axis in words: bytes, or an address."""
        if isinstance(self.painter, Bands):
            return size_text(int(max(y, 0)))
        address = self.painter.address(int(y)) if y >= 0 else None
        return f"{address:x}" if address is not None else ""
