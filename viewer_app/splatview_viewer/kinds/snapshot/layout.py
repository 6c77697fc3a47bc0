"""Where things lie in the view's rectangle, and which part of the world its plot shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from splatview_viewer.geometry.controls import Rect
from splatview_viewer.kinds.snapshot.state import PLOTS

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.state import Range

BAR = 40
"""Points: the height of the bar with the tabs and the search."""
GUTTER, FOOT, RIGHT, TOP = 70, 26, 14, 12
"""Points beside the plot: for the words of its axes, and for air."""
MINIMAP, GAP = 44, 8
DETAILS = 350
ONE_ROW = 940
"""Points of width from which the bar has room for every tab by name."""
_BARE = 200, 150
"""Points below which there is the plot and nothing else."""
_TALL = 400
"""Points from which the timeline is seen above a table."""
_ROOMY = 300
"""Points above a table from which the minimap has room beside the timeline."""
_WIDE = 760
"""Points of width from which details lie beside the plot, not under it."""


@dataclass(frozen=True)
class Layout:
    """Rectangles in pixels of the framebuffer; None: not there. They do not overlap."""

    plot: Rect | None = None
    """Without its axes."""
    bar: Rect | None = None
    minimap: Rect | None = None
    pane: Rect | None = None
    """The table or other of the tab."""
    details: Rect | None = None

    @property
    def boards(self) -> list[Rect]:
        """Those that are imgui's windows."""
        return [r for r in (self.bar, self.pane, self.details) if r is not None]


def lay_out(rect: Rect, scale: float | None, tab: str, *, details: bool) -> Layout:
    """`scale`: pixels per point; None: nobody draws words. `details`: whether an allocation's are to be seen."""
    if scale is None or rect.width < _BARE[0] * scale or rect.height < _BARE[1] * scale:
        return Layout(plot=rect)

    def px(points: float) -> int:
        return round(points * scale)

    x, y, width, height = rect.x, rect.y, rect.width, rect.height
    high = px(BAR)
    bar = Rect(x, y, width, high)
    y, height = y + high, height - high
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
    if tab == "about":
        return Layout(bar=bar, pane=Rect(x, y, width, height), details=side)
    if tab not in PLOTS:
        above = max(height * 36 // 100, px(190)) if height >= _TALL * scale else px(MINIMAP + 2 * GAP)
        pane = Rect(x, y + above, width, height - above)
        height = above
    left, right = x + px(GUTTER), x + width - px(RIGHT)
    across = max(right - left, 1)
    minimap = None
    if height >= px(MINIMAP + 2 * GAP) and (pane is None or not px(150) < height < px(_ROOMY)):
        minimap = Rect(left, y + height - px(MINIMAP + GAP), across, px(MINIMAP))
        height -= px(MINIMAP + 2 * GAP)
    rest = height - px(TOP + FOOT)
    plot = Rect(left, y + px(TOP), across, rest) if rest >= px(24) else None
    return Layout(plot, bar, minimap, pane, side)


@dataclass(frozen=True)
class Window:
    """What a plot in `rect` shows of the world: x in units of the time axis, y in bytes from the bottom up."""

    rect: Rect
    x0: float
    x1: float
    y0: float
    y1: float

    @property
    def step(self) -> float:
        """The world's width of a pixel."""
        return (self.x1 - self.x0) / self.rect.width

    @property
    def per_pixel(self) -> float:
        """Bytes in the height of a pixel."""
        return (self.y1 - self.y0) / self.rect.height

    def x_at(self, px: float) -> float:
        return self.x0 + (px - self.rect.x) * self.step

    def y_at(self, py: float) -> float:
        return self.y0 + (self.rect.y + self.rect.height - py) * self.per_pixel

    def px(self, x: float) -> float:
        return self.rect.x + (x - self.x0) / self.step

    def py(self, y: float) -> float:
        return self.rect.y + self.rect.height - (y - self.y0) / self.per_pixel


def held(wanted: Range, full: Range, least: float) -> Range | None:
    """`wanted` moved and narrowed so that it lies in `full` and is at least `least` wide; None when it is all.

    Rounded a little: zooming in and out again comes back to the same numbers.
    """
    low, high = full
    span = high - low
    width = max(wanted[1] - wanted[0], min(least, span))
    if width >= span * (1 - 1e-9):
        return None
    middle = (wanted[0] + wanted[1]) / 2
    quantum = span / (1 << 40)
    width = max(round(width / quantum), 1) * quantum
    begin = min(max(middle - width / 2, low), high - width)
    begin = low + round((begin - low) / quantum) * quantum
    return begin, begin + width
