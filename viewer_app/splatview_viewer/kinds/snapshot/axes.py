"""Words and lines over the plot: axes, the cross hair, marked moments, annotated ranges, what is under the pointer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.screen import Rect
from splatview_viewer.kinds.snapshot.analysis.details import marks
from splatview_viewer.kinds.snapshot.analysis.frames import frame_text, sites
from splatview_viewer.kinds.snapshot.model import ACTIONS
from splatview_viewer.kinds.snapshot.world import GUTTER, kind_of, lanes_at, window_of
from splatview_viewer.ui import format, theme
from splatview_viewer.ui.format import age_text, size_text
from splatview_viewer.ui.widgets import card, faint, fitted, hover_card

if TYPE_CHECKING:

    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.state import Look
    from splatview_viewer.kinds.snapshot.world import Layout, Window

_WIDEST = 420.0
"""Points of a line on the card beside the pointer."""
SMALL = 13.0
"""Points: the size of an axis's words."""
_GRID = ImVec4(1.0, 1.0, 1.0, 0.055)
_FRAME = ImVec4(1.0, 1.0, 1.0, 0.10)
_HAIR = ImVec4(1.0, 1.0, 1.0, 0.28)
_CARD = ImVec4(0.125, 0.134, 0.152, 0.97)
_MARKED = ImVec4(0.98, 0.78, 0.32, 1.0)
_CHOSEN = ImVec4(0.87, 0.88, 0.90, 0.75)
_SPAN = ImVec4(0.97, 0.98, 1.0, 0.9)


class Pen:
    """Draws behind imgui's windows, in pixels."""

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.draw = imgui.get_background_draw_list()
        self.size = SMALL * scale
        self._font = imgui.get_font()
        self._ratio = self.size / imgui.get_font_size()

    def width(self, text: str) -> float:
        return imgui.calc_text_size(text).x * self._ratio * 1.03 + 1  # glyphs of a smaller size are a little wider

    def write(self, x: float, y: float, text: str, color: ImVec4 = theme.DIM, align: float = 0.0) -> None:
        """`align`: 0, 0.5 or 1, for words that begin at x, have it in their middle or end there. y: their top."""
        at = ImVec2(round(x - align * self.width(text)), round(y))
        self.draw.add_text(self._font, self.size, at, theme.u32(color), text)

    def line(self, x0: float, y0: float, x1: float, y1: float, color: ImVec4, width: float = 1.0) -> None:
        """A level or upright line, sharp: one that is `width` points wide."""
        w = max(round(width * self.scale), 1)
        if x0 == x1:
            x = round(x0) - w // 2
            self.draw.add_rect_filled(ImVec2(x, round(y0)), ImVec2(x + w, round(y1)), theme.u32(color))
        else:
            y = round(y0) - w // 2
            self.draw.add_rect_filled(ImVec2(round(x0), y), ImVec2(round(x1), y + w), theme.u32(color))

    def tag(self, x: float, y: float, text: str, limits: tuple[float, float], *, color: ImVec4 = theme.TEXT,
            ground: ImVec4 = _CARD) -> None:
        """Words on a small card, in the middle of x as far as they stay within `limits`; y: the card's top."""
        within = Rect(round(limits[0]), round(y), round(limits[1] - limits[0]), round(10 * self.size))
        with theme.font_size(SMALL):
            card(self.draw, (x, y), [(text, color)], (0.5, 0), within=within, ground=ground, pad=0.36)


def draw_axes(content: Content, look: Look, window: Window, scale: float) -> None:
    """Lines and words of both axes around the plot."""
    pen, r = Pen(scale), window.rect
    rows = max(int(r.height / (38 * scale)), 2)
    for at, text in format.byte_ticks(window.y0, window.y1, rows):
        y = window.py(at)
        pen.line(r.x, y, r.x + r.width, y, _GRID)
        pen.write(r.x - 8 * scale, y - pen.size / 2 - scale, text, align=1.0)
    below, end, count = r.y + r.height + 6 * scale, 0.0, max(int(r.width / (85 * scale)), 2)
    axis = content.axis(look.device, look.settings.unit)
    ticks = (() if axis is None else format.count_ticks(window.x0, window.x1, count) if axis.unit == "events" else
             format.time_ticks(window.x0, window.x1, axis.origin_us, count))
    for at, text in ticks:
        x = window.px(at)
        pen.line(x, r.y, x, r.y + r.height, _GRID)
        w = pen.width(text)
        if r.x - 30 * scale <= x - w / 2 and x + w / 2 <= r.x + r.width + 12 * scale and x - w / 2 > end:
            pen.write(x, below, text, align=0.5)
            end = x + w / 2 + 10 * scale
    pen.line(r.x, r.y + r.height, r.x + r.width, r.y + r.height, _FRAME)
    pen.line(r.x, r.y, r.x, r.y + r.height, _FRAME)
    if kind_of(look) == "lanes":
        _draw_lanes(pen, content, look, window)


def _draw_lanes(pen: Pen, content: Content, look: Look, window: Window) -> None:
    r, scale = window.rect, pen.scale
    for lane in lanes_at(content, look.device) or ():
        bottom, top = window.py(lane.base), window.py(lane.base + lane.height)
        if bottom < r.y or top > r.y + r.height:
            continue
        if r.y <= bottom <= r.y + r.height:
            pen.line(r.x, bottom, r.x + r.width, bottom, _FRAME)
        w = pen.width(lane.name)
        x, y = r.x + 10 * scale, min(max(top + 6 * scale, r.y + 6 * scale), r.y + r.height - 24 * scale)
        pen.tag(x + w / 2, y, lane.name, (r.x, r.x + r.width), color=theme.DIM)


def draw_marks(content: Content, look: Look, window: Window, scale: float) -> None:
    """The moments that were chosen and marked, out of memory errors, and how long the selected allocation lives."""
    axis = content.axis(look.device, look.settings.unit)
    if axis is None:
        return
    pen, r = Pen(scale), window.rect
    limits = r.x, r.x + r.width

    def at(moment: int) -> float | None:
        x = window.px(axis.x_of(moment))
        return x if limits[0] - 1 <= x <= limits[1] + 1 else None

    for moment in ooms(content, look.device):
        if (x := at(moment)) is not None:
            pen.line(x, r.y, x, r.y + r.height, theme.FAULT, 1.5)
            pen.tag(x, r.y + 2 * scale, "out of memory", limits, color=theme.FAULT)
    a, b = look.moment_a, look.moment_b
    if a is not None and b is not None:
        x0, x1 = window.px(axis.x_of(a)), window.px(axis.x_of(b))
        x0, x1 = max(x0, limits[0]), min(x1, limits[1])
        if x1 > x0:
            pen.draw.add_rect_filled(ImVec2(x0, r.y), ImVec2(x1, r.y + r.height), theme.u32(_MARKED, 0.07))
    for moment, name in ((a, "A"), (b, "B")):
        if moment is not None and (x := at(moment)) is not None:
            pen.line(x, r.y, x, r.y + r.height, _MARKED, 1.5)
            pen.tag(x, r.y + r.height - pen.size - 9 * scale, name, limits, color=_MARKED)
    if look.moment is not None and (x := at(look.moment)) is not None:
        pen.line(x, r.y, x, r.y + r.height, _CHOSEN)
        s = 5 * scale
        pen.draw.add_triangle_filled(ImVec2(x - s, r.y), ImVec2(x + s, r.y), ImVec2(x, r.y + 1.3 * s),
                                     theme.u32(_CHOSEN))
    if look.selected is not None:
        allocations = content.trace(look).allocations
        x0 = window.px(axis.x_of(int(allocations.start[look.selected]) + 1))
        x1 = window.px(axis.x_of(int(allocations.end[look.selected]) + 1))
        x0, x1 = max(x0, limits[0]), min(x1, limits[1])
        if x1 >= limits[0] and x0 <= limits[1]:
            y = r.y + r.height
            pen.draw.add_rect_filled(ImVec2(x0, y - scale), ImVec2(max(x1, x0 + 2 * scale), y + 2 * scale),
                                     theme.u32(_SPAN))


def ooms(content: Content, device: int) -> list[int]:
    """The moments at which an allocation failed."""
    def work() -> list[int]:
        return np.flatnonzero(content.snapshot.traces[device].events.action == ACTIONS.index("oom")).tolist()[:50]

    return content.ask(("ooms", device), work, lane="layout") or []


def draw_pointer(content: Content, look: Look, window: Window, at: tuple[float, float] | None,
                 scale: float) -> None:
    """The cross hair, what it points at on both axes, and a card with what lies there."""
    r = window.rect
    if at is None or not r.contains(*at) or look.pointed is None:
        return
    pen = Pen(scale)
    pen.line(at[0], r.y, at[0], r.y + r.height, _HAIR)
    pen.line(r.x, at[1], r.x + r.width, at[1], ImVec4(1, 1, 1, 0.10))
    axis = content.axis(look.device, look.settings.unit)
    moment = look.pointed
    if axis is not None:
        clock = format.clock_text(axis.time_us(moment)) if axis.timed else ""
        text = clock if look.settings.unit == "time" else f"{moment:,}"
        pen.tag(at[0], r.y + r.height + 3 * scale, text, (r.x - 40 * scale, r.x + r.width + 10 * scale))
    text = _place_text(content, look, window.y_at(at[1]))
    w = pen.width(text) + 10 * scale
    pen.tag(r.x - 4 * scale - w / 2, at[1] - pen.size / 2 - 3 * scale, text, (r.x - GUTTER * scale, r.x + r.width))
    lines: list[tuple[str, ImVec4]] = []
    if look.hovered is not None:
        lines += [(size_text(int(content.trace(look).allocations.size[look.hovered])), theme.TEXT),
                  *((line, theme.DIM) for line in about(content, look, look.hovered))]
    bands = content.bands(look.device)
    if bands is not None and kind_of(look) != "addresses":
        curve = content.reserved(look.device) if look.settings.reserved else None
        more = f" of {size_text(int(curve[moment]))} reserved" if curve is not None else ""
        lines.append((f"{size_text(int(bands.live[moment]))} live{more}", theme.DIM if lines else theme.TEXT))
    if lines:
        with theme.font_size(SMALL):
            shown = [(fitted(text, _WIDEST * scale), color) for text, color in lines]
            hover_card(pen.draw, ImVec2(*at), shown, r)


def _place_text(content: Content, look: Look, y: float) -> str:
    kind = kind_of(look)
    if kind == "addresses":
        addresses = content.addresses(look.device)
        address = addresses.address(int(y)) if addresses is not None and y >= 0 else None
        return f"{address:x}" if address is not None else ""
    if kind == "lanes":
        y = next((y - lane.base for lane in lanes_at(content, look.device) or ()
                  if lane.base <= y <= lane.base + lane.height), 0.0)
    return size_text(int(max(y, 0)))


def about(content: Content, look: Look, allocation: int) -> list[str]:
    """Describe an allocation beside its size: the user's frame, and its lifetime."""
    snapshot, trace = content.snapshot, content.trace(look)
    site = content.ask(("sites",), lambda: sites(snapshot))
    a, stack = trace.allocations, int(trace.allocations.stack[allocation])
    out = [] if site is None or stack < 0 else [frame_text(snapshot, int(site[stack]))]
    start, end, last = int(a.start[allocation]), int(a.end[allocation]), len(trace.events)
    axis = content.axis(look.device, "time")
    if start < 0 and end >= last:
        return [*out, "live throughout the trace"]
    lived = f"{end - start:,} events"
    if axis is not None and axis.timed:
        lived = age_text(axis.time_us(min(end, last - 1) + 1) - axis.time_us(max(start, 0) + 1))
    if start < 0:
        return [*out, f"from before the trace, {lived} until it was freed"]
    return [*out, f"lived {lived}" if end < last else f"{lived} old when the trace ended"]


def draw_legend(content: Content, look: Look, plot: Rect, scale: float, above: float = 0.0) -> None:
    """Draw the meaning of the colours in the corner of the plot, below what is `above` pixels high there."""
    found = content.colors(look.device, look.settings.color_by)
    if found is None or not found.legend or plot.width < 420 * scale or plot.height < 130 * scale:
        return
    most = max(int((plot.height * 0.5 - 12 * scale) / (SMALL * 1.45 * scale)), 1)
    with theme.font_size(SMALL):
        lines = [(fitted(text, 250 * scale), theme.DIM, ImVec4(*np.append(found.palette[number] / 255, 1).tolist()))
                 for text, number in found.legend[:min(most, 8)]]
        card(imgui.get_background_draw_list(), (plot.x + plot.width - 8 * scale, plot.y + above + 8 * scale), lines,
             (1, 0), ground=faint(theme.BAR, 0.8), pad=0.7)


_ROWS = 3
"""Ranges in ranges that are seen."""
_MOST = 150
"""Bars of one picture: the widest are drawn."""
_TINTS = (ImVec4(0.42, 0.67, 0.96, 1.0), ImVec4(0.55, 0.78, 0.62, 1.0), ImVec4(0.80, 0.66, 0.92, 1.0))


@dataclass(frozen=True)
class Ranges:
    """R of them."""

    names: list[str]
    begin: np.ndarray
    end: np.ndarray
    """float64 (R,): on the time axis."""
    depth: np.ndarray
    """int (R,): how many others it lies in."""


def ranges_of(content: Content, look: Look) -> Ranges | None:
    """The ranges that were annotated, on the axis that is shown."""
    device, unit = look.device, look.settings.unit
    snapshot, axis = content.snapshot, content.axis(device, unit)
    if axis is None:
        return None

    def work() -> Ranges:
        found = [m for m in marks(snapshot, snapshot.traces[device]) if m.depth < _ROWS]
        places = [(float(m.first), float(m.last)) if unit == "events" else
                  (float(m.first_us - axis.origin_us), float(m.last_us - axis.origin_us)) for m in found]
        both = np.array(places, np.float64).reshape(-1, 2)
        return Ranges([m.name for m in found], both[:, 0], both[:, 1], np.array([m.depth for m in found], np.int64))

    return content.ask(("ranges", device, unit), work)


def draw_annotations(pen: Pen, content: Content, look: Look, window: Window) -> float:
    """A bar for each range, with its name where there is room. Returns how many pixels high they are together."""
    ranges = ranges_of(content, look)
    if ranges is None or not ranges.names:
        return 0.0
    r, high, lowest = window.rect, pen.size + 4 * pen.scale, 0.0
    x0 = np.clip(r.x + (ranges.begin - window.x0) / window.step, r.x, r.x + r.width)
    x1 = np.clip(r.x + (ranges.end - window.x0) / window.step, r.x, r.x + r.width)
    wide = np.flatnonzero(x1 - x0 >= 2 * pen.scale)
    for k in wide[np.argsort((x0 - x1)[wide], kind="stable")[:_MOST]].tolist():
        left, right, row = float(x0[k]), float(x1[k]), int(ranges.depth[k])
        tint, y = _TINTS[row], round(r.y + row * (high + pen.scale))
        lowest = max(lowest, y + high - r.y)
        begin, end = ImVec2(round(left), y), ImVec2(max(round(right - pen.scale), round(left) + 1), round(y + high))
        pen.draw.add_rect_filled(begin, end, theme.u32(tint, 0.20))
        pen.draw.add_rect_filled(begin, ImVec2(end.x, y + max(round(2 * pen.scale), 1)), theme.u32(tint, 0.75))
        if right - left > 28 * pen.scale:
            pen.draw.push_clip_rect(begin, ImVec2(end.x - 3 * pen.scale, end.y), True)
            pen.write(left + 5 * pen.scale, y + 2.5 * pen.scale, ranges.names[k], theme.TEXT)
            pen.draw.pop_clip_rect()
    return lowest


def draw_over(content: Content, look: Look, layout: Layout, at: tuple[float, float] | None, scale: float,
              said: tuple[str, float]) -> None:
    """Axes, legend, marks, what is under the pointer (at `at`), and `said`: words instead of a picture, and how much of
    the work is done, 0 to 1."""
    plot = layout.plot
    if plot is None or plot.width < 80 * scale or plot.height < 40 * scale:
        return
    window = window_of(content, look, plot)
    if window is not None:
        draw_axes(content, look, window, scale)
        above = draw_annotations(Pen(scale), content, look, window)
        draw_marks(content, look, window, scale)
        if layout.pane is None and look.settings.legend:
            draw_legend(content, look, plot, scale, above)
        if look.lit is not None and look.lit_by:
            pen, text = Pen(scale), f"Lit: {look.lit_by}   (Esc: everything again)"
            pen.tag(plot.x + 10 * scale + pen.width(text) / 2, plot.y + above + 8 * scale, text,
                    (plot.x, plot.x + plot.width))
        draw_pointer(content, look, window, at, scale)
    if said[0]:
        _say(*said, plot, scale, small=window is not None and content.peek(("bands", look.device)) is not None)


def _say(text: str, done: float, plot: Rect, scale: float, *, small: bool) -> None:
    pen = Pen(scale)
    middle = plot.x + plot.width / 2
    if small:
        pen.tag(plot.x + plot.width, plot.y + plot.height - pen.size - 12 * scale, text,
                (plot.x, plot.x + plot.width - 6 * scale), color=theme.DIM)
        return
    y = plot.y + plot.height / 2
    pen.write(middle, y - pen.size, text, theme.TEXT, align=0.5)
    w, h = min(220 * scale, plot.width * 0.6), 4 * scale
    for part, color in ((1.0, theme.BAR), (max(done, 0.03), theme.ACCENT)):
        pen.draw.add_rect_filled(ImVec2(middle - w / 2, y + 12 * scale),
                                 ImVec2(middle - w / 2 + w * part, y + 12 * scale + h), theme.u32(color), h / 2)
