"""The layout of the view's parts; what a tab's plot is of: how far it reaches, what it is painted from, and how."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.core.screen import Rect
from splatview_viewer.kinds.snapshot.model import pool_text
from splatview_viewer.kinds.snapshot.painting import Layer, Material, Sheet
from splatview_viewer.kinds.snapshot.plot import EDGE, RESERVED
from splatview_viewer.kinds.snapshot.state import PLOTS
from splatview_viewer.kinds.snapshot.timeline.bands import Bands, Paint
from splatview_viewer.kinds.snapshot.timeline.index import reserved

if TYPE_CHECKING:
    from collections.abc import Hashable

    from splatview_viewer.core.settings import Color
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.state import Look, Range

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
    """`scale`: pixels per point; None: no words are drawn. `details`: whether an allocation's are to be seen."""
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
    """Part of the world that a plot in `rect` shows: x in units of the time axis, y in bytes from the bottom up."""

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


LEAST = {"events": 6.0, "time": 20.0}
"""The narrowest window of the time axis: moments, microseconds."""
LEAST_BYTES = 256.0
_AIR = 1.04
_GAP = 0.025
"""Of all bytes, between two lanes."""
_DIM: Color = (0.155, 0.166, 0.188)
_HELD: Color = (0.125, 0.137, 0.160)
"""Reserved memory that holds nothing, in the address space."""


@dataclass(frozen=True)
class LaneAt:
    """A memory pool's lane: its bytes lie from `base` up to `base + height` of the world's."""

    name: str
    base: float
    height: float
    layer: Layer


def kind_of(look: Look) -> str:
    """Return the kind of plot: "bands", "lanes" or "addresses"."""
    if look.tab == "addresses":
        return "addresses"
    return "lanes" if look.settings.lanes else "bands"


def lanes_at(content: Content, device: int) -> list[LaneAt] | None:
    """The lanes of a device from the bottom up, the default pool lowest."""
    trace, names = content.snapshot.traces[device], content.snapshot.pools

    def work() -> list[LaneAt]:
        pools = {*np.unique(trace.allocations.pool).tolist(), *np.unique(trace.spans.pool).tolist()}
        lanes = [(pool, Bands(trace, trace.allocations.pool == pool), reserved(trace, pool))
                 for pool in sorted(pools, key=lambda p: (p < 0, p))]  # unknown ones last
        heights = [float(max(bands.live.max(), curve.max(), 1)) for _, bands, curve in lanes]
        gap, base, out = sum(heights) * _GAP, 0.0, []
        for (pool, bands, curve), height in zip(lanes, heights, strict=True):
            name = pool_text(names[pool] if pool >= 0 else None)
            out.append(LaneAt(name, base, height, Layer(bands, base, height, curve)))
            base += height + gap
        return out

    return content.ask(("lanes", device), work, lane="layout", words="Laying out the memory pools")


def full_y(content: Content, look: Look) -> Range | None:
    """All of the bytes axis; None until it is known."""
    kind, device = kind_of(look), look.device
    if kind == "addresses":
        addresses = content.addresses(device)
        return None if addresses is None else (0.0, max(float(addresses.height), LEAST_BYTES))
    if kind == "lanes":
        lanes = lanes_at(content, device)
        return None if lanes is None else (0.0, max((lane.base + lane.height for lane in lanes), default=1.0) * 1.01)
    bands = content.bands(device)
    curve = content.reserved(device) if look.settings.reserved else None
    if bands is None or (curve is None and look.settings.reserved):
        return None
    top = content.ask(("top", device, curve is not None), lambda: float(
        max(bands.live.max(initial=0), 0 if curve is None else curve.max(initial=0), LEAST_BYTES)), lane="layout")
    return None if top is None else (0.0, top * _AIR)


def needs(look: Look) -> list[Hashable]:
    """The questions without whose answers nothing can be painted."""
    device, kind = look.device, kind_of(look)
    keys: list[Hashable] = [("bands", device), ("axis", device, look.settings.unit),
                            ("colors", device, look.settings.color_by)]
    if look.settings.reserved:
        keys.append(("reserved", device))
    if kind == "bands":
        keys.append(("top", device, look.settings.reserved))
    if kind == "addresses":
        keys.append(("addresses", device))
    return [*keys, ("lanes", device)] if kind == "lanes" else keys


def window_of(content: Content, look: Look, rect: Rect) -> Window | None:
    """Return the part that the plot in `rect` shows; None until it is known."""
    axis = content.axis(look.device, look.settings.unit)
    full = full_y(content, look)
    if axis is None or full is None:
        return None
    x, y = look.x or axis.extent, look.chosen_y or full
    return Window(rect, x[0], max(x[1], x[0] + 1e-9), y[0], max(y[1], y[0] + 1e-9))


def paint_of(content: Content, look: Look) -> tuple[Hashable, Paint] | None:
    """Return the paint, and a key that tells it from others."""
    device, settings = look.device, look.settings
    colors = content.colors(device, settings.color_by)
    if colors is None:
        return None
    ground, hits, lit = settings.background, look.hits, look.lit
    key = ("paint", device, settings.color_by, ground,
           look.lit_number if hits is not None or lit is not None else None)

    def work() -> Paint:
        mask = hits if lit is None else lit if hits is None else hits & lit
        return Paint(colors.classes, colors.palette, mask, _bytes(ground), _bytes(_HELD), _bytes(_DIM))

    paint = content.ask(key, work, slot="paint", lane="layout", words="Colouring")
    return None if paint is None else (key, paint)


def material_of(content: Content, look: Look, line: int) -> tuple[Hashable, Hashable, Material] | None:
    """(the world, its colours, what it is painted from); None while something is missing. line: pixels."""
    device, unit, kind, with_reserved = look.device, look.settings.unit, kind_of(look), look.settings.reserved
    axis, bands = content.axis(device, unit), content.bands(device)
    paint = paint_of(content, look)
    if axis is None or bands is None or paint is None:
        return None
    if kind == "lanes":
        lanes = lanes_at(content, device)
        layers = None if lanes is None else tuple(
            lane.layer if with_reserved else replace(lane.layer, reserved=None) for lane in lanes)
    elif kind == "addresses":
        addresses = content.addresses(device)
        layers = None if addresses is None else (Layer(addresses),)
    else:
        curve = content.reserved(device) if with_reserved else None
        layers = (Layer(bands, reserved=curve),) if curve is not None or not with_reserved else None
    if layers is None:
        return None
    material = Material(axis, bands, layers, paint[1], _bytes(RESERVED), _bytes(EDGE), line)
    return (id(content), device, kind, unit), (paint[0], with_reserved, line), material


def sheet_of(world: Hashable, colors: Hashable, window: Window) -> Sheet:
    """The picture that fits a window pixel by pixel."""
    r = window.rect
    return Sheet(world, colors, window.x0, window.step, r.width, window.y0, window.per_pixel, r.height)


def pick(content: Content, look: Look, moment: int, y: float) -> int:
    """The allocation at a moment and a place of the bytes axis; -1: none."""
    kind, device = kind_of(look), look.device
    if kind == "addresses":
        addresses = content.addresses(device)
        return -1 if addresses is None or y < 0 else int(addresses.pick(moment, int(y)))
    if kind == "lanes":
        for lane in lanes_at(content, device) or ():
            if lane.base <= y < lane.base + lane.height:
                return int(lane.layer.painter.pick(moment, int(y - lane.base)))
        return -1
    bands = content.bands(device)
    return -1 if bands is None or y < 0 else int(bands.pick(moment, int(y)))


def _bytes(color: Color) -> tuple[int, int, int]:
    r, g, b = (round(c * 255) for c in color)
    return r, g, b
