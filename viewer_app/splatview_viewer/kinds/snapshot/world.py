"""The layout of the view's parts, and what a tab's plot is of: its axes, and the layers of its bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.core.screen import Rect
from splatview_viewer.kinds.snapshot.model import pool_text
from splatview_viewer.kinds.snapshot.painting import Layer, Material, Sheet
from splatview_viewer.kinds.snapshot.state import BACKGROUND, PLOTS
from splatview_viewer.kinds.snapshot.timeline.bands import Bands, Paint
from splatview_viewer.kinds.snapshot.timeline.index import reserved
from splatview_viewer.ui.format import size_text

if TYPE_CHECKING:
    from splatview_viewer.core.settings import Color
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.state import Range, SnapshotState
    from splatview_viewer.kinds.snapshot.timeline.index import Axis

BAR = 40
"""Points: the height of the bar with the tabs and the search."""
MINIMAP, GAP = 44, 8
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
class Layout:
    """Rectangles in pixels of the framebuffer; None: not there. They do not overlap."""

    plot: Rect | None = None
    """With its axes."""
    bar: Rect | None = None
    minimap: Rect | None = None
    pane: Rect | None = None
    """The table or other of the tab."""
    details: Rect | None = None


def lay_out(rect: Rect, scale: float, tab: str, *, details: bool) -> Layout:
    """`scale`: pixels per point. `details`: an allocation's are to be seen."""
    if rect.width < _BARE[0] * scale or rect.height < _BARE[1] * scale:
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
    minimap = None
    if height >= px(MINIMAP + 2 * GAP) and (pane is None or not px(150) < height < px(_ROOMY)):
        minimap = Rect(x + px(GAP), y + height - px(MINIMAP + GAP), max(width - 2 * px(GAP), 1), px(MINIMAP))
        height -= px(MINIMAP + 2 * GAP)
    return Layout(Rect(x, y, width, height) if height >= px(62) else None, bar, minimap, pane, side)


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


LEAST = {"events": 6.0, "time": 20.0}
"""The narrowest window of the time axis: moments, microseconds."""
LEAST_BYTES = 256.0
_AIR = 1.04
_LANE_GAP = 0.025
"""Share of all bytes between two lanes."""
RESERVED: Color = (0.098, 0.108, 0.127)
_EDGE: Color = (0.30, 0.335, 0.40)
"""Bytes that are reserved and not live, and the line where they end."""
_DIM: Color = (0.155, 0.166, 0.188)
_HELD: Color = (0.125, 0.137, 0.160)
"""Reserved memory that holds nothing, in the address space."""


@dataclass(frozen=True, eq=False)
class World:
    """The axes and layers of a plot."""

    axis: Axis
    bands: Bands
    layers: tuple[Layer, ...]
    """From the bottom up."""
    full: Range
    """All of the bytes axis."""

    def window(self, state: SnapshotState) -> tuple[Range, Range]:
        """The part that the plot shows: of the time axis, and of the bytes axis."""
        return state.x or self.axis.extent, (state.places if state.tab == "addresses" else state.y) or self.full

    def showing(self, state: SnapshotState, x: Range | None, y: Range | None = None) -> SnapshotState:
        """The state in which these ranges are seen, as far as they exist; None: as they are."""
        changes: dict[str, Range | None] = {}
        if x is not None:
            changes["x"] = held(x, self.axis.extent, LEAST[state.style.unit])
        if y is not None:
            changes["places" if state.tab == "addresses" else "y"] = held(y, self.full, LEAST_BYTES)
        return replace(state, **changes)  # type: ignore[arg-type]

    def pick(self, moment: int, y: float) -> int | None:
        """The allocation at a moment and a place of the bytes axis."""
        for layer in self.layers:
            if layer.base <= y < layer.base + layer.height:
                found = int(layer.painter.pick(moment, int(y - layer.base)))
                return found if found >= 0 else None
        return None

    def text(self, y: float) -> str:
        """A place of the bytes axis in words: an address, or bytes from the bottom of its lane."""
        if not isinstance(self.layers[0].painter, Bands):
            address = self.layers[0].painter.address(int(y)) if y >= 0 else None
            return f"{address:x}" if address is not None else ""
        layer = next((layer for layer in self.layers if layer.base <= y <= layer.base + layer.height), None)
        return size_text(int(max(y - layer.base, 0))) if layer is not None else size_text(0)


def kind_of(state: SnapshotState) -> str:
    """Return the kind of plot: "bands", "lanes" or "addresses"."""
    return "addresses" if state.tab == "addresses" else "lanes" if state.style.lanes else "bands"


def world_of(content: Content, device: int, state: SnapshotState) -> World | None:
    """Return what the plot is of; None until that is known."""
    kind, with_reserved = kind_of(state), state.style.reserved
    axis, bands = content.axis(device, state.style.unit), content.bands(device)
    curve = content.reserved(device) if with_reserved else None
    if axis is None or bands is None or (curve is None and with_reserved):
        return None
    if kind == "addresses":
        addresses = content.addresses(device)
        return None if addresses is None else World(
            axis, bands, (Layer(addresses),), (0.0, max(float(addresses.height), LEAST_BYTES)))
    if kind == "lanes":
        lanes = _lanes(content, device)
        if lanes is None:
            return None
        shown = lanes if with_reserved else tuple(replace(lane, reserved=None) for lane in lanes)
        return World(axis, bands, shown, (0.0, max((lane.base + lane.height for lane in lanes), default=1.0) * 1.01))
    top = content.ask(("top", device, with_reserved), lambda: float(
        max(bands.live.max(initial=0), 0 if curve is None else curve.max(initial=0), LEAST_BYTES)), lane="layout")
    return None if top is None else World(axis, bands, (Layer(bands, reserved=curve),), (0.0, top * _AIR))


def _lanes(content: Content, device: int) -> tuple[Layer, ...] | None:
    """The memory pools of a device from the bottom up, the default one lowest."""
    trace, names = content.snapshot.traces[device], content.snapshot.pools

    def work() -> tuple[Layer, ...]:
        pools = {*np.unique(trace.allocations.pool).tolist(), *np.unique(trace.spans.pool).tolist()}
        lanes = [(pool, Bands(trace, trace.allocations.pool == pool), reserved(trace, pool))
                 for pool in sorted(pools, key=lambda p: (p < 0, p))]  # unknown ones last
        heights = [float(max(bands.live.max(), curve.max(), 1)) for _, bands, curve in lanes]
        gap, base, out = sum(heights) * _LANE_GAP, 0.0, []
        for (pool, bands, curve), height in zip(lanes, heights, strict=True):
            out.append(Layer(bands, base, height, curve, pool_text(names[pool] if pool >= 0 else None)))
            base += height + gap
        return tuple(out)

    return content.ask(("lanes", device), work, lane="layout", words="Laying out the memory pools")


def picture_of(content: Content, device: int, state: SnapshotState, world: World, rect: Rect,
               line: int) -> tuple[Sheet, Material] | None:
    """The picture that fits a rectangle pixel by pixel, and what it is painted from; line: pixels. None until that is
    known."""
    style, (x, y) = state.style, world.window(state)
    colors = content.colors(device, style.color_by)
    if colors is None:
        return None
    lit, mask = content.mask(device, state.search, state.lit)
    key = ("paint", device, style.color_by, lit)
    paint = content.ask(key, lambda: Paint(colors.classes, colors.palette, mask, _bytes(BACKGROUND), _bytes(_HELD),
                                           _bytes(_DIM)), newest=True, lane="layout", words="Colouring")
    if paint is None:
        return None
    sheet = Sheet((id(content), device, kind_of(state), style.unit), (key, style.reserved, line), x[0],
                  (x[1] - x[0]) / rect.width, rect.width, y[0], (y[1] - y[0]) / rect.height, rect.height)
    return sheet, Material(world.axis, world.bands, world.layers, paint, _bytes(RESERVED), _bytes(_EDGE), line)


def _bytes(color: Color) -> tuple[int, int, int]:
    r, g, b = (round(c * 255) for c in color)
    return r, g, b
