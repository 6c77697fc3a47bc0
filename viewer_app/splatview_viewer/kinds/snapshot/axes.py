"""Words and lines around a plot: its axes, marks, annotated ranges, the card beside the pointer, minimap and bar."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.screen import Rect
from splatview_viewer.kinds.snapshot.analysis.details import marks
from splatview_viewer.kinds.snapshot.analysis.frames import frame_text
from splatview_viewer.kinds.snapshot.analysis.search import HELP
from splatview_viewer.kinds.snapshot.panes.parts import chip
from splatview_viewer.kinds.snapshot.state import TABS
from splatview_viewer.kinds.snapshot.timeline.index import Envelope
from splatview_viewer.kinds.snapshot.world import GUTTER, RESERVED
from splatview_viewer.ui import format, theme
from splatview_viewer.ui.format import age_text, size_text
from splatview_viewer.ui.plots import bare
from splatview_viewer.ui.widgets import board, card, faint, fitted, hover_card

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.kinds.snapshot.world import Layout, Window, World

_WIDEST = 420.0
"""Points of a line on the card beside the pointer."""
_SMALL = 13.0
"""Points: the size of an axis's words."""
_GRID = ImVec4(1.0, 1.0, 1.0, 0.055)
_FRAME = ImVec4(1.0, 1.0, 1.0, 0.10)
_HAIR = ImVec4(1.0, 1.0, 1.0, 0.28)
_CARD = ImVec4(0.125, 0.134, 0.152, 0.97)
_MARKED = ImVec4(0.98, 0.78, 0.32, 1.0)
_CHOSEN = ImVec4(0.87, 0.88, 0.90, 0.75)
_SPAN = ImVec4(0.97, 0.98, 1.0, 0.9)
_LIVE = ImVec4(0.31, 0.41, 0.54, 1.0)


class Pen:
    """Draws over one plot, behind imgui's windows, in pixels, in the small font."""

    def __init__(self, rect: Rect, scale: float) -> None:
        self.rect, self.scale = rect, scale
        self.draw = imgui.get_background_draw_list()
        self.size = imgui.get_text_line_height()
        self.left, self.right = rect.x, rect.x + rect.width
        self.top, self.bottom = rect.y, rect.y + rect.height

    def write(self, x: float, y: float, text: str, color: ImVec4 = theme.DIM, align: float = 0.0) -> None:
        """`align`: 0, 0.5 or 1, for words that begin at x, have it in their middle or end there. y: their top."""
        at = ImVec2(round(x - align * imgui.calc_text_size(text).x), round(y))
        self.draw.add_text(at, theme.u32(color), text)

    def fill(self, x0: float, y0: float, x1: float, y1: float, color: ImVec4) -> None:
        self.draw.add_rect_filled(ImVec2(round(x0), round(y0)), ImVec2(round(x1), round(y1)), theme.u32(color))

    def upright(self, x: float, color: ImVec4, width: float = 1.0) -> None:
        """A sharp line from edge to edge, `width` points wide."""
        w = max(round(width * self.scale), 1)
        self.fill(round(x) - w // 2, self.top, round(x) - w // 2 + w, self.bottom, color)

    def level(self, y: float, color: ImVec4) -> None:
        w = max(round(self.scale), 1)
        self.fill(self.left, round(y) - w // 2, self.right, round(y) - w // 2 + w, color)

    def tag(self, x: float, y: float, text: str, *, color: ImVec4 = theme.TEXT, beyond: float = 0.0,
            align: float = 0.5) -> None:
        """Words on a small card at (x, y), its upper edge, within the plot or so many pixels beside it."""
        within = Rect(round(self.left - beyond), round(y), round(self.right - self.left + 1.2 * beyond),
                      round(10 * self.size))
        card(self.draw, (x, y), [(text, color)], (align, 0), within=within, ground=_CARD, pad=0.36)


def draw_over(view: SnapshotView, layout: Layout, said: str, done: float) -> None:
    """Axes, legend, marks, what is under the pointer, and `said`: words instead of a picture, and how much of the work
    is done, 0 to 1."""
    plot, scale = layout.plot, view.scale
    if plot is None or plot.width < 80 * scale or plot.height < 40 * scale:
        return
    with theme.font_size(_SMALL):
        pen, world = Pen(plot, scale), view.world()
        if world is not None:
            window = world.window(view.state, plot)
            _draw_axes(pen, view, world, window)
            above = _draw_annotations(pen, view, world, window)
            _draw_marks(pen, view, world, window)
            if layout.pane is None and view.state.style.legend:
                _draw_legend(pen, view, above)
            if view.state.lit is not None:
                pen.tag(pen.left + 10 * scale, pen.top + above + 8 * scale,
                        f"Lit: {view.state.lit.words}   (Esc: everything again)", align=0)
            _draw_pointer(pen, view, world, window)
            if said:
                pen.tag(pen.right - 6 * scale, pen.bottom - pen.size - 12 * scale, said, color=theme.DIM, align=1)
    if said and world is None:
        middle, y = plot.x + plot.width / 2, plot.y + plot.height / 2
        pen.write(middle, y - 1.2 * imgui.get_text_line_height(), said, theme.TEXT, align=0.5)
        left, width = middle - min(110 * scale, plot.width * 0.3), min(220 * scale, plot.width * 0.6)
        for part, color in ((1.0, theme.BAR), (max(done, 0.03), theme.ACCENT)):
            pen.fill(left, y + 12 * scale, left + width * part, y + 16 * scale, color)


def _draw_axes(pen: Pen, view: SnapshotView, world: World, window: Window) -> None:
    scale, r = pen.scale, window.rect
    for at, text in format.byte_ticks(window.y0, window.y1, max(int(r.height / (38 * scale)), 2)):
        y = window.py(at)
        pen.level(y, _GRID)
        pen.write(r.x - 8 * scale, y - pen.size / 2 - scale, text, align=1.0)
    end, count = 0.0, max(int(r.width / (85 * scale)), 2)
    ticks = (format.count_ticks(window.x0, window.x1, count) if world.axis.unit == "events" else
             format.time_ticks(window.x0, window.x1, world.axis.origin_us, count))
    for at, text in ticks:
        x, half = window.px(at), imgui.calc_text_size(text).x / 2
        pen.upright(x, _GRID)
        if max(r.x - 30 * scale, end) <= x - half and x + half <= pen.right + 12 * scale:
            pen.write(x, pen.bottom + 6 * scale, text, align=0.5)
            end = x + half + 10 * scale
    pen.level(pen.bottom, _FRAME)
    pen.upright(r.x, _FRAME)
    for layer in world.layers if len(world.layers) > 1 else ():
        bottom, top = window.py(layer.base), window.py(layer.base + layer.height)
        if bottom >= pen.top and top <= pen.bottom:
            if bottom <= pen.bottom:
                pen.level(bottom, _FRAME)
            pen.tag(r.x + 10 * scale, min(max(top + 6 * scale, pen.top + 6 * scale), pen.bottom - 24 * scale),
                    layer.name, color=theme.DIM, align=0)


def _draw_marks(pen: Pen, view: SnapshotView, world: World, window: Window) -> None:
    """The moments that were chosen and marked, out of memory errors, and how long the selected allocation lives."""
    state, scale = view.state, pen.scale
    a, b = state.marks

    def at(moment: int) -> float:
        return window.px(world.axis.x_of(moment))

    def line(moment: int, color: ImVec4, text: str, y: float) -> None:
        if pen.left - 1 <= at(moment) <= pen.right + 1:
            pen.upright(at(moment), color, 1.5)
            pen.tag(at(moment), y, text, color=color)

    for moment in view.content.ooms(view.device) or ():
        line(moment, theme.FAULT, "out of memory", pen.top + 2 * scale)
    if a is not None and b is not None:
        pen.fill(max(at(a), pen.left), pen.top, min(max(at(b), pen.left), pen.right), pen.bottom, faint(_MARKED, 0.07))
    for moment, name in ((a, "A"), (b, "B")):
        if moment is not None:
            line(moment, _MARKED, name, pen.bottom - pen.size - 9 * scale)
    if state.moment is not None and pen.left - 1 <= (x := at(state.moment)) <= pen.right + 1:
        pen.upright(x, _CHOSEN)
        s = 5 * scale
        pen.draw.add_triangle_filled(ImVec2(x - s, pen.top), ImVec2(x + s, pen.top), ImVec2(x, pen.top + 1.3 * s),
                                     theme.u32(_CHOSEN))
    if state.selected is not None:
        allocations = view.trace.allocations
        x0, x1 = (at(int(column[state.selected]) + 1) for column in (allocations.start, allocations.end))
        if x1 >= pen.left and x0 <= pen.right:
            x0 = max(x0, pen.left)
            pen.fill(x0, pen.bottom - scale, max(min(x1, pen.right), x0 + 2 * scale), pen.bottom + 2 * scale, _SPAN)


def _draw_pointer(pen: Pen, view: SnapshotView, world: World, window: Window) -> None:
    """The cross hair, what it points at on both axes, and a card with what lies there."""
    at, moment, hovered, scale = view.hands.at, view.state.pointed, view.state.hovered, pen.scale
    if at is None or moment is None or not window.rect.contains(*at):
        return
    pen.upright(at[0], _HAIR)
    pen.level(at[1], _FRAME)
    clock = world.axis.unit == "time" and world.axis.timed
    pen.tag(at[0], pen.bottom + 3 * scale,
            format.clock_text(world.axis.time_us(moment)) if clock else f"{moment:,}", beyond=40 * scale)
    if text := world.text(window.y_at(at[1])):
        pen.tag(pen.left - 4 * scale, at[1] - pen.size / 2 - 3 * scale, text, beyond=GUTTER * scale, align=1)
    lines: list[tuple[str, ImVec4]] = []
    if hovered is not None:
        lines += [(size_text(int(view.trace.allocations.size[hovered])), theme.TEXT),
                  *((line, theme.DIM) for line in about(view, hovered))]
    if view.state.tab != "addresses":
        curve = view.content.reserved(view.device) if view.state.style.reserved else None
        more = f" of {size_text(int(curve[moment]))} reserved" if curve is not None else ""
        lines.append((f"{size_text(int(world.bands.live[moment]))} live{more}", theme.DIM if lines else theme.TEXT))
    if lines:
        hover_card(pen.draw, ImVec2(*at), [(fitted(text, _WIDEST * scale), color) for text, color in lines],
                   window.rect)


def about(view: SnapshotView, allocation: int) -> list[str]:
    """Describe an allocation beside its size: the user's frame, and its lifetime."""
    snapshot, trace, site = view.content.snapshot, view.trace, view.content.sites()
    a, stack = trace.allocations, int(trace.allocations.stack[allocation])
    out = [] if site is None or stack < 0 else [frame_text(snapshot, int(site[stack]))]
    start, end, last = int(a.start[allocation]), int(a.end[allocation]), len(trace.events)
    axis = view.content.axis(view.device, "time")
    if start < 0 and end >= last:
        return [*out, "live throughout the trace"]
    lived = f"{end - start:,} events"
    if axis is not None and axis.timed:
        lived = age_text(axis.time_us(min(end, last - 1) + 1) - axis.time_us(max(start, 0) + 1))
    if start < 0:
        return [*out, f"from before the trace, {lived} until it was freed"]
    return [*out, f"lived {lived}" if end < last else f"{lived} old when the trace ended"]


def _draw_legend(pen: Pen, view: SnapshotView, above: float) -> None:
    """Draw the meaning of the colours in the corner of the plot, below what is `above` pixels high there."""
    found, scale = view.content.colors(view.device, view.state.style.color_by), pen.scale
    if found is None or not found.legend or pen.rect.width < 420 * scale or pen.rect.height < 130 * scale:
        return
    most = max(int((pen.rect.height * 0.5 - 12 * scale) / (_SMALL * 1.45 * scale)), 1)
    lines = [(fitted(text, 250 * scale), theme.DIM, ImVec4(*np.append(found.palette[number] / 255, 1).tolist()))
             for text, number in found.legend[:min(most, 8)]]
    card(pen.draw, (pen.right - 8 * scale, pen.top + above + 8 * scale), lines, (1, 0), ground=faint(theme.BAR, 0.8),
         pad=0.7)


_ROWS = 3
"""Ranges in ranges that are seen."""
_MOST = 150
"""Bars of one picture: the widest are drawn."""
_TINTS = (ImVec4(0.42, 0.67, 0.96, 1.0), ImVec4(0.55, 0.78, 0.62, 1.0), ImVec4(0.80, 0.66, 0.92, 1.0))


class Ranges(NamedTuple):
    """R annotated ranges."""

    names: list[str]
    begin: np.ndarray
    end: np.ndarray
    """float64 (R,): on the time axis."""
    depth: list[int]
    """How many others each lies in."""


def ranges_of(view: SnapshotView, world: World) -> Ranges | None:
    """The ranges that were annotated, on the axis that is shown."""
    snapshot, trace, axis = view.content.snapshot, view.trace, world.axis

    def work() -> Ranges:
        found = [m for m in marks(snapshot, trace) if m.depth < _ROWS]
        places = [(m.first, m.last) if axis.unit == "events" else
                  (m.first_us - axis.origin_us, m.last_us - axis.origin_us) for m in found]
        both = np.array(places, np.float64).reshape(-1, 2)
        return Ranges([m.name for m in found], both[:, 0], both[:, 1], [m.depth for m in found])

    return view.content.ask(("ranges", view.device, axis.unit), work)


def _draw_annotations(pen: Pen, view: SnapshotView, world: World, window: Window) -> float:
    """A bar for each range, with its name where there is room. Returns how many pixels high they are together."""
    ranges = ranges_of(view, world)
    if ranges is None or not ranges.names:
        return 0.0
    high, lowest, scale = pen.size + 4 * pen.scale, 0.0, pen.scale
    x0, x1 = (np.clip(pen.left + (end - window.x0) / window.step, pen.left, pen.right)
              for end in (ranges.begin, ranges.end))
    wide = np.flatnonzero(x1 - x0 >= 2 * scale)
    for k in wide[np.argsort((x0 - x1)[wide], kind="stable")[:_MOST]].tolist():
        left, right, tint = round(float(x0[k])), float(x1[k]), _TINTS[ranges.depth[k]]
        y, end = round(pen.top + ranges.depth[k] * (high + scale)), max(round(right - scale), round(left) + 1)
        lowest = max(lowest, y + high - pen.top)
        pen.fill(left, y, end, y + high, faint(tint, 0.20))
        pen.fill(left, y, end, y + max(round(2 * scale), 1), faint(tint, 0.75))
        if right - left > 28 * scale:
            pen.write(left + 5 * scale, y + 2.5 * scale, fitted(ranges.names[k], end - left - 8 * scale), theme.TEXT)
    return lowest


def draw_minimap(view: SnapshotView, rect: Rect) -> None:
    """The whole timeline, low: live bytes before reserved ones, and the window that the plot shows."""
    style, content, device = view.state.style, view.content, view.device
    axis, bands = content.axis(device, style.unit), content.bands(device)
    curve = content.reserved(device) if style.reserved else None
    if axis is None or bands is None or (curve is None and style.reserved):
        return

    def work() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        edges = axis.edges(*axis.extent, rect.width)
        live = bands.envelope(edges)[1].astype(np.float64)
        reserved = Envelope(curve)(edges)[1].astype(np.float64) if curve is not None else 0 * live
        return tuple(np.repeat(values, 2) for values in (np.arange(len(live) + 1), live, reserved))  # type: ignore

    found = content.ask(("minimap", device, style.unit, rect.width, curve is not None), work, newest=True,
                        lane="layout")
    if found is None:
        return
    x, live, reserved = found
    top = max(float(live.max(initial=0)), float(reserved.max(initial=0)), 1.0) * 1.06
    with (board(f"snapshot minimap {id(view)}", rect, color=ImVec4(0.075, 0.081, 0.093, 1)),
          bare("minimap", (rect.width, rect.height), (0, rect.width), (0, top)) as plot):
        if plot is None:
            return
        for values, color in ((reserved, ImVec4(*RESERVED, 1)), (live, _LIVE)):
            plot.shade("##bytes", x[1:-1].astype(np.float64), 0 * values, values, color)
        if view.state.x is not None:
            low, high = axis.extent
            x0, x1 = ((end - low) * rect.width / (high - low) for end in view.state.x)
            plot.fade(0, x0)
            plot.fade(x1, rect.width)
            with plot.drawing() as draw:
                draw.add_rect(ImVec2(rect.x + x0 - 1, rect.y), ImVec2(max(rect.x + x1, rect.x + x0 + 1) + 1,
                                                                      rect.y + rect.height), theme.u32(theme.MARK))


# -- the bar over the plot: what to look at, and what to look for ------------------------------------------------------

_ONE_ROW = 940
"""Points of width from which the bar has room for every tab by name."""
_SEARCH, _LEAST = 230, 140
"""Points: the width of the search field, and where there is little room."""
_CORNER = 236
"""Points at the right end that are left free where there is room: a browser's page has its buttons there."""


def draw_bar(view: SnapshotView, rect: Rect) -> bool:
    """Draw in an imgui frame; True when the picture has to be drawn again though the state is the same."""
    scale, tab = view.scale, view.tab
    with board(f"snapshot bar {id(view)}", rect, (10 * scale, 6 * scale), theme.BAR):  # two views are two windows
        names = {key: name for key, name in TABS.items() if key != "oom" or view.content.ooms(view.device)}
        if rect.width >= _ONE_ROW * scale:
            for key, name in names.items():
                if chip(name, key == tab):
                    view.see(tab=key)
                imgui.same_line(0, 2 * scale)
        else:
            keys = list(names)
            imgui.set_next_item_width(min(rect.width * 0.42, 180 * scale))
            chosen = keys[imgui.combo("##tab", keys.index(tab) if tab in keys else 0, list(names.values()))[1]]
            if chosen != tab:
                view.see(tab=chosen)
            imgui.same_line()
        room = rect.x + rect.width - 12 * scale - imgui.get_cursor_screen_pos().x
        return _search(view, min(max(room - _CORNER * scale, _LEAST * scale), _SEARCH * scale, room))


def _search(view: SnapshotView, width: float) -> bool:
    imgui.set_next_item_width(width)
    focus, view.focus = view.focus, False
    if focus:
        imgui.set_keyboard_focus_here()
    corner = imgui.get_cursor_screen_pos()
    edited, text = imgui.input_text_with_hint("##search", "Search:  /", view.state.search,
                                              imgui.InputTextFlags_.auto_select_all)
    if edited:
        view.see(search=text)
    found = view.content.hits(view.device, view.state.search)
    if imgui.is_item_hovered():
        lines = HELP.replace("; ", "\n")
        imgui.set_tooltip(lines if found is None else f"Found: {' and '.join(found.words)}\n\n{lines}")
    if found is not None:
        words = f"{found.count:,}  {size_text(found.bytes)}" if found.count else "nothing"
        if imgui.calc_text_size(text).x + imgui.calc_text_size(words).x + 30 * view.scale > width:
            words = f"{found.count:,}"
        at = ImVec2(corner.x + width - imgui.calc_text_size(words).x - 8 * view.scale,
                    corner.y + imgui.get_style().frame_padding.y)
        imgui.get_window_draw_list().add_text(at, theme.u32(theme.DIM if found.count else theme.FAULT), words)
    return focus  # imgui gives the focus with the next picture
