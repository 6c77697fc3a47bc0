"""The layout of the view's parts, and the axes and layers of its plot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from splatview_viewer.core.quantities import (
    clock_text,
    count_ticks,
    duration_text,
    duration_ticks,
    size_text,
    time_ticks,
)
from splatview_viewer.core.screen import Rect
from splatview_viewer.kinds.snapshot.state import PLOTS
from splatview_viewer.kinds.snapshot.two_runs import NOT_SHARED, SharedAxes
from splatview_viewer.snapshot.timeline.bands import Bands

if TYPE_CHECKING:
    from splatview_viewer.core.quantities import Tick
    from splatview_viewer.kinds.snapshot.state import Range, SnapshotState
    from splatview_viewer.snapshot.timeline.bands import Addresses, TimelineAxis

BAR = 38
"""Height of the bar with the tabs and the search, in points; so are the following."""
MINIMAP = 44
GAP = 8
DETAILS = 350
"""Width of the details beside the plot."""
_MIN_WIDTH = 200
"""Width below which there is the plot and nothing else."""
_MIN_HEIGHT = 150
"""Height below which there is the plot and nothing else."""
_MIN_TIMELINE_HEIGHT = 400
"""Height from which the timeline is visible above a table."""
_MIN_MINIMAP_HEIGHT = 300
"""Height above a table from which the minimap fits below the timeline."""
_MIN_WIDE = 760
"""Width from which details are beside the plot, not under it."""
_MIN_PLOT_HEIGHT = 62


@dataclass(frozen=True)
class PaneLayout:
    """Rectangles in pixels of the framebuffer; None: not there. They do not overlap."""

    plot: Rect | None = None
    """With its axes."""
    bar: Rect | None = None
    minimap: Rect | None = None
    pane: Rect | None = None
    """The pane of the tab."""
    details: Rect | None = None


def lay_out(
    rect: Rect, scale: float, tab: str, *, details: bool, overview: bool = True
) -> PaneLayout:
    """Return the rectangles of the view's parts.

    Args:
        rect: the view.
        scale: pixels per point.
        tab: one of TABS.
        details: an allocation is selected.
        overview: the minimap is here, and not in the time area.
    """
    if rect.width < _MIN_WIDTH * scale or rect.height < _MIN_HEIGHT * scale:
        return PaneLayout(plot=rect)

    def px(points: float) -> int:
        return round(points * scale)

    x = rect.x
    y = rect.y + px(BAR)
    width = rect.width
    height = rect.height - px(BAR)
    bar = Rect(x, rect.y, width, px(BAR))
    details_rect = None
    if details and width >= _MIN_WIDE * scale:
        details_width = min(px(DETAILS), width * 45 // 100)
        width -= details_width
        details_rect = Rect(x + width, y, details_width, height)
    elif details:
        details_height = height // 2
        height -= details_height
        details_rect = Rect(x, y + height, width, details_height)
    pane = None
    if tab not in PLOTS:
        if overview:
            plot_height = px(MINIMAP + 2 * GAP)
        else:
            plot_height = 0
        if height >= _MIN_TIMELINE_HEIGHT * scale:
            plot_height = max(height * 36 // 100, px(190))
        pane = Rect(x, y + plot_height, width, height - plot_height)
        height = plot_height
    minimap = None
    has_height = overview and height >= px(MINIMAP + 2 * GAP)
    is_low_plot = px(150) < height < px(_MIN_MINIMAP_HEIGHT)
    if has_height and (pane is None or not is_low_plot):
        minimap = Rect(
            x + px(GAP),
            y + height - px(MINIMAP + GAP),
            max(width - 2 * px(GAP), 1),
            px(MINIMAP),
        )
        height -= px(MINIMAP + 2 * GAP)
    plot = None
    if height >= px(_MIN_PLOT_HEIGHT):
        plot = Rect(x, y, width, height)
    return PaneLayout(plot, bar, minimap, pane, details_rect)


_MIN_GROWTH_HEIGHT = 110
"""Height of the table of what grew, at least."""
_GROWTH_HEIGHT = 188
"""Height of the table of what grew below two timelines."""


@dataclass(frozen=True)
class ComparedLayout:
    """Rectangles of a comparison, as in `PaneLayout`."""

    bar: Rect
    plots: tuple[Rect, ...]
    """Of A above and B below; of one plot alone."""
    table: Rect


def lay_out_compared(rect: Rect, scale: float, *, count: int) -> ComparedLayout | None:
    """Return the rectangles of a comparison; None where there is no room for it.

    count: the number of plots.
    """
    bar_height = round(BAR * scale)
    height = rect.height - bar_height
    table_height = round(min(max(height * 0.24, _GROWTH_HEIGHT * scale), height * 0.45))
    if count < 2:
        table_height = round(height * 0.5)
    is_small = rect.width < 2 * _MIN_WIDTH * scale
    if is_small or table_height < _MIN_GROWTH_HEIGHT * scale:
        return None
    y = rect.y + bar_height
    plots = []
    for side_index in range(count):
        end = rect.y + bar_height + (height - table_height) * (side_index + 1) // count
        plots.append(Rect(rect.x, y, rect.width, end - y))
        y = end
    return ComparedLayout(
        Rect(rect.x, rect.y, rect.width, bar_height),
        tuple(plots),
        Rect(rect.x, y, rect.width, table_height),
    )


def zoom_range(span: Range, center: float, factor: float) -> Range:
    """Return a range after zooming in by a factor, where `center` keeps its place."""
    return center - (center - span[0]) / factor, center + (span[1] - center) / factor


def clamp_range(span: Range, full: Range, min_width: float) -> Range | None:
    """Return a range moved and resized to lie in `full`; None when it is all of it.

    Args:
        min_width: the range is at least as wide.
    """
    low, high = full
    width = max(span[1] - span[0], min(min_width, high - low))
    if width >= (high - low) * (1 - 1e-9):
        return None
    centered = (span[0] + span[1] - width) / 2
    start = min(max(centered, low), high - width)
    return start, start + width


MIN_WINDOW = {"events": 6.0, "time": 20.0}
"""The narrowest window of the time axis: moments, microseconds."""
MIN_WINDOW_BYTES = 256.0
_HEADROOM = 1.04
"""Height of the timeline's axis, as a multiple of the bytes at the peak."""


@dataclass(frozen=True, eq=False)
class PlotWorld:
    """The axes of a plot, and what it is painted from."""

    axis: TimelineAxis
    bands: Bands
    painter: Bands | Addresses
    """The layers of the tab: `bands`, or the address space."""
    shared: SharedAxes = NOT_SHARED
    """What it has in common with another plot."""

    @property
    def extent(self) -> Range:
        """The complete time axis."""
        return self.shared.extent or self.axis.extent

    @property
    def full(self) -> Range:
        """The complete bytes axis."""
        height = max(self.shared.height or self.painter.height, MIN_WINDOW_BYTES)
        if self.painter is self.bands:
            height *= _HEADROOM
        return 0.0, height

    def window(self, state: SnapshotState) -> tuple[Range, Range]:
        """Return the visible ranges of the time axis and of the bytes axis."""
        y = state.y
        if state.tab == "addresses":
            y = state.address_window
        return state.x or self.extent, y or self.full

    def with_window(
        self, state: SnapshotState, x: Range | None, y: Range | None = None
    ) -> SnapshotState:
        """Return the state in which these ranges are visible, as far as they exist.

        None: the range stays.
        """
        if x is not None:
            x = clamp_range(x, self.extent, MIN_WINDOW[state.unit])
            state = replace(state, x=x)
        if y is None:
            return state
        y = clamp_range(y, self.full, MIN_WINDOW_BYTES)
        if state.tab == "addresses":
            return replace(state, address_window=y)
        return replace(state, y=y)

    def x_ticks(self, window: Range, count: int) -> list[Tick]:
        """Return at most about `count` labels of the time axis in a window."""
        if self.axis.unit == "events":
            return count_ticks(*window, count)
        if self.shared.zero is not None:
            return duration_ticks(*window, self.shared.zero, count)
        return time_ticks(*window, self.axis.origin_us, count)

    def x_text(self, event_index: int) -> str:
        """Return a label of the time axis: a moment, or its time."""
        if self.axis.unit == "events" or not self.axis.has_times:
            return f"{event_index:,}"
        if self.shared.zero is not None:
            return duration_text(self.axis.x_of(event_index) - self.shared.zero)
        return clock_text(self.axis.time_us(event_index))

    def y_text(self, y: float) -> str:
        """Return a label of the bytes axis: bytes, or an address."""
        if isinstance(self.painter, Bands):
            return size_text(int(max(y, 0)))
        if y < 0:
            return ""
        address = self.painter.address(int(y))
        if address is None:
            return ""
        return f"{address:x}"
