"""The events of the trace, and the segments of the allocator with their blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.kinds.snapshot.analysis.details import segments_at, summary
from splatview_viewer.kinds.snapshot.model import ACTIONS, address_text, pool_text, stream_text
from splatview_viewer.kinds.snapshot.panes import _pane
from splatview_viewer.kinds.snapshot.panes._pane import Cell, Column, Grid, Rows, tooltip
from splatview_viewer.ui import theme
from splatview_viewer.ui.format import count_text, exact_size_text, size_text

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.snapshot.analysis.details import SegmentsAt
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.model import Trace
    from splatview_viewer.kinds.snapshot.state import Look

_SHOW = {"all": "All", "alloc": "Allocations", "free": "Frees", "segment": "Segments", "mark": "OOM and marks"}
_ACTIONS = {"alloc": ("alloc",), "free": ("free_requested", "free_completed", "free"),
            "segment": ("segment_alloc", "segment_free", "segment_map", "segment_unmap"),
            "mark": ("snapshot", "oom", "annotate", "user_defined", "other")}
_COLORS: dict[str, ImVec4] = {"alloc": theme.ALIVE, "oom": theme.FAULT, "snapshot": _pane.HIT,
                              "annotate": _pane.HIT, "user_defined": _pane.HIT,
                              **dict.fromkeys(_ACTIONS["segment"], theme.ACCENT)}
_WORDS = {name: name.replace("_", " ") for name in ACTIONS}
_NUMBERS = (Column("Event", 5.2, True, "Its number in the trace", False),
            Column("Time, s", 6.2, True, "Seconds since the first event", False, gives=1),
            Column("Action", 8.4, sorts=False), Column("Size", 5.6, True, "As requested", False),
            Column("Live then", 5.8, True, "All that is live after this event", False, gives=2),
            Column("Address", 8.6, sorts=False, gives=3))
_STREAM, _POOL, _WHERE = (Column("Stream", 7, sorts=False, gives=5), Column("Pool", 8, sorts=False, gives=4),
                          Column("Where", 0, sorts=False))


class EventsPane(_pane.Pane):
    """A list of all events, of one kind, or of what is lit in the timeline."""

    name = "events"

    def __init__(self) -> None:
        super().__init__()
        self.show = "all"
        """One of all, alloc, free, segment, mark."""
        self.lit_only = False
        self._grid = Grid()
        self._moment: int | None = None
        self._rows_of: object = None

    def fill(self, content: Content, look: Look, rect: Rect, scale: float) -> bool:
        trace = content.trace(look)
        before = self.show, self.lit_only
        self.show = _pane.chips("events", self.show, _SHOW)
        if look.mask is not None:
            imgui.same_line(0, 12 * scale)
            if _pane.chip("Of what is lit", self.lit_only):
                self.lit_only = not self.lit_only
        changed = before != (self.show, self.lit_only)
        mask = look.mask if self.lit_only else None
        which: Sequence[int] | np.ndarray = range(len(trace.events))
        if self.show != "all" or mask is not None:
            key = ("events", look.device, self.show, look.lit_number if mask is not None else None)
            show = self.show
            found = content.ask(key, lambda: events_of(trace, show, mask), slot=("events", id(self)))
            if found is None:
                _pane.trouble(content, key)
                return changed
            which = found
        _pane.right(f"{len(which):,} events")
        rows_of = None if isinstance(which, range) else which
        if self._moment != look.moment or self._rows_of is not rows_of:
            if look.moment is not None:
                self._grid.reveal(look.moment - 1 if isinstance(which, range) else
                                  int(np.searchsorted(which, look.moment - 1)))
            self._moment, self._rows_of = look.moment, rows_of
        return self._list(content, look, which, rect, scale) or changed

    def _list(self, content: Content, look: Look, which: Sequence[int] | np.ndarray, rect: Rect,
              scale: float) -> bool:
        trace, snapshot = content.trace(look), content.snapshot
        e, base = trace.events, _pane.first_time(trace.events)
        bands = content.bands(look.device)
        where = _pane.places(content)
        at = None if look.moment is None else look.moment - 1
        streams, pools = len(snapshot.streams) > 1, len(snapshot.pools) > 1
        columns = (*_NUMBERS, *([_STREAM] if streams else []), *([_POOL] if pools else []), _WHERE)

        def cells(row: int) -> list[Cell | str]:
            i = int(which[row])
            action = ACTIONS[e.action[i]]
            time, size = int(e.time_us[i]), int(e.size[i])
            color = _COLORS.get(action, theme.DIM)
            pool = snapshot.pools[e.pool[i]] if e.pool[i] >= 0 else None
            return [Cell(f"{i:,}", theme.DIM), Cell(f"{(time - base) / 1e6:.6f}" if time else "", theme.DIM),
                    Cell(_WORDS[action], color), size_text(size) if size else "",
                    Cell(size_text(int(bands.live[i + 1])) if bands is not None else "", theme.DIM),
                    Cell(address_text(int(e.addr[i])) if e.addr[i] and action != "oom" else "", theme.DIM),
                    *([Cell(stream_text(snapshot.streams[e.stream[i]]), theme.DIM)] if streams else []),
                    *([Cell("" if pool in (None, (0, 0)) else pool_text(pool), theme.DIM)] if pools else []),
                    self._words(content, trace, i, action, where(int(e.stack[i])))]

        def tints(row: int) -> ImVec4 | None:
            i = int(which[row])
            if look.selected is not None and int(e.allocation[i]) == look.selected:
                return _tint(theme.ACCENT)
            return _tint(theme.FAULT) if ACTIONS[e.action[i]] == "oom" else None

        touch = self._grid.draw("events", columns, Rows(
            len(which), cells, lambda row: int(which[row]) == at, words="No such events", tints=tints,
            tip=lambda row: self._tip(content, trace, int(which[row]))), scale)
        _pane.hover(look, rect, None if touch.over is None else int(e.allocation[int(which[touch.over])]))
        if touch.row is not None:
            i = int(which[touch.row])
            (_pane.zoom if touch.double else _pane.go)(content, look, i + 1)
            self._moment = look.moment
            look.select(int(e.allocation[i]))
        return touch.any

    def _words(self, content: Content, trace: Trace, event: int, action: str, where: str) -> str:
        e, texts = trace.events, content.snapshot.texts
        if action == "oom":
            return f"asked in vain; the device had {size_text(int(e.addr[event]))} free. {where}"
        said = [t for t in (texts[int(e.metadata[event])], texts[int(e.context[event])]) if t]
        return " \u00b7 ".join([*([where] if where and e.stack[event] >= 0 else []), *said])

    def _tip(self, content: Content, trace: Trace, event: int) -> str:
        frames = content.snapshot.stacks.of(int(trace.events.stack[event]))
        if not len(frames) or imgui.get_mouse_pos().x < imgui.get_window_pos().x + imgui.get_window_width() * 0.6:
            return ""
        return _pane.stack_tip(content, int(trace.events.stack[event]))


def _tint(color: ImVec4) -> ImVec4:
    """A colour so thin that words on it can be read."""
    return type(color)(color.x, color.y, color.z, 0.10)


def events_of(trace: Trace, show: str, mask: np.ndarray | None) -> np.ndarray:
    """int32: the events of a kind (all, alloc, free, segment, mark); with a mask, bool (A,), those of its
    allocations."""
    keep = np.ones(len(ACTIONS), bool) if show == "all" else np.isin(ACTIONS, _ACTIONS[show])
    found = keep[trace.events.action]
    if mask is not None:
        of = trace.events.allocation
        found &= (of >= 0) & np.append(mask, False)[of]
    return np.flatnonzero(found).astype(np.int32)


INACTIVE, ACTIVE, PENDING = range(3)
_STATES = ("free", "in use", "freed, waiting for another stream")
_ORDERS = {"size": "Size", "address": "Address", "free": "Free inside"}
_WIDTHS = {"scale": "To scale", "full": "Full width"}
_FREE = ImVec4(0.165, 0.175, 0.195, 1.0)
_DARK = ImVec4(0.235, 0.255, 0.285, 1.0)
"""Blocks in use that are not lit while others are."""


class _Part(NamedTuple):
    """A piece of a segment's bar."""

    x0: float
    x1: float
    color: int
    block: int
    """-1: several blocks that are narrower than a pixel."""


class SegmentsPane(_pane.Pane):
    """A row for each segment, as long as it is large, with its blocks."""

    name = "segments"

    def __init__(self) -> None:
        super().__init__()
        self.order = "size"
        """One of size, address, free."""
        self.width = "scale"
        """scale: as long as they are large; full: each as wide as the pane, to look inside."""
        self._grid = Grid()
        self._parts_of: tuple[Hashable, ...] = ()
        self._parts: dict[int, list[_Part]] = {}
        self._over: int | None = None
        """The block under the pointer."""

    def fill(self, content: Content, look: Look, rect: Rect, scale: float) -> bool:
        moment, trace, snapshot = content.moment(look), content.trace(look), content.snapshot
        if moment is None:
            _pane.centered("Looking for the peak\u2026")
            return False
        changed = _pane.moment_line(content, look, moment)
        key = ("segments", look.device, moment)
        found = content.ask(key, lambda: segments_at(snapshot, trace, moment), slot=("segments", id(self)))
        at = self.latest(content, look, key, found)
        if at is None:
            return changed
        orders, widths = self.order, self.width
        wide = sum(_pane.button_width(t) + 2 for t in (*_ORDERS.values(), *_WIDTHS.values())) + 14 * scale
        _pane.on_the_right(wide)
        self.order = _pane.chips("order", self.order, _ORDERS)
        imgui.same_line(0, 14 * scale)
        self.width = _pane.chips("width", self.width, _WIDTHS)
        _summary(at, scale)
        return self._list(content, look, at, rect, scale) or changed or (orders, widths) != (self.order, self.width)

    def _list(self, content: Content, look: Look, at: SegmentsAt, rect: Rect, scale: float) -> bool:
        snapshot, free = content.snapshot, at.free_of_segment()
        order = np.argsort({"size": -at.size, "address": at.addr, "free": -free}[self.order], kind="stable")
        colors = content.colors(look.device, look.settings.color_by)
        largest = max(int(at.size.max(initial=1)), 1)
        self._over = None
        pools = len(snapshot.pools) > 1

        def cells(row: int) -> list[Cell | str]:
            i = int(order[row])

            def paint(draw: imgui.ImDrawList, x0: float, x1: float, y: float, height: float) -> None:
                whole = x1 - x0
                if self.width == "scale":
                    whole = max(whole * int(at.size[i]) / largest, 2.0)
                self._bar(draw, at, i, (x0, y, whole, height), look, colors, scale)

            return [Cell(address_text(int(at.addr[i])), theme.DIM), size_text(int(at.size[i])),
                    Cell(size_text(int(free[i])) if free[i] else "", theme.DIM),
                    *([Cell("" if at.pool[i] == 0 else pool_text(snapshot.pools[at.pool[i]] if at.pool[i] > 0
                                                                 else None), theme.DIM)] if pools else []),
                    Cell("", paint=paint)]

        columns = (Column("Segment", 8.6, sorts=False), Column("Size", 5.6, True, sorts=False),
                   Column("Free", 5.6, True, "Bytes of its blocks that are free", False, gives=1),
                   *([Column("Pool", 8, sorts=False, gives=2)] if pools else []), Column("Blocks", 0, sorts=False))
        key = (at, self.width, None if colors is None else id(colors), look.lit_number, imgui.get_window_width())
        if key != self._parts_of:
            self._parts_of, self._parts = key, {}
        touch = self._grid.draw("segments", columns, Rows(
            len(at), cells, words="Nothing was reserved then", tip=lambda _: ""), scale)
        over = self._over if touch.over is not None else None
        _pane.hover(look, rect, None if over is None else int(at.block_allocation[over]))
        if over is not None:
            self._touch(content, look, at, over, clicked=touch.row is not None, scale=scale)
        return touch.any

    def _touch(self, content: Content, look: Look, at: SegmentsAt, block: int, *, clicked: bool, scale: float) -> None:
        allocation, state = int(at.block_allocation[block]), int(at.block_state[block])
        lines = [f"{exact_size_text(int(at.block_size[block]))}, {_STATES[min(state, 2)]}",
                 address_text(int(at.block_addr[block]))]
        if allocation >= 0:
            lines.append(summary(content.snapshot, content.trace(look), allocation))
        tooltip("\n".join(lines), scale)
        if clicked:
            look.select(allocation)

    def _bar(self, draw: imgui.ImDrawList, at: SegmentsAt, segment: int, place: tuple[float, float, float, float],
             look: Look, colors: object, scale: float) -> None:
        """Draw one segment, and see which of its blocks lies under the pointer."""
        x, y, width, height = place
        if segment not in self._parts:
            self._parts[segment] = _parts(at, segment, width, colors, look.mask)
        parts = self._parts[segment]
        mouse = imgui.get_mouse_pos()
        here = x <= mouse.x < x + width and y - 2 * scale <= mouse.y < y + height + 2 * scale
        for part in parts:
            a, b = ImVec2(x + part.x0, y), ImVec2(x + max(part.x1 - (1 if part.x1 - part.x0 > 3 else 0),
                                                          part.x0 + 1), y + height)
            draw.add_rect_filled(a, b, part.color)
            chosen = part.block >= 0 and int(at.block_allocation[part.block])
            if here and part.x0 <= mouse.x - x < part.x1:
                self._over = part.block if part.block >= 0 else _block_at(at, segment, (mouse.x - x) / width)
                draw.add_rect_filled(a, b, theme.u32(ImVec4(1, 1, 1, 0.18)))
            if part.block >= 0 and look.selected is not None and chosen == look.selected:
                draw.add_rect(a, b, theme.u32(theme.TEXT), thickness=1.5 * scale)


def _block_at(at: SegmentsAt, segment: int, share: float) -> int:
    """The block at a share of a segment's length."""
    first, last = int(at.block_start[segment]), int(at.block_start[segment + 1])
    addr = int(at.addr[segment]) + int(share * int(at.size[segment]))
    return min(max(first + int(np.searchsorted(at.block_addr[first:last], addr, "right")) - 1, first), last - 1)


def _parts(at: SegmentsAt, segment: int, width: float, colors: object, mask: np.ndarray | None) -> list[_Part]:
    """Return the drawn parts of a segment that is so many pixels wide: each block of a pixel or more, and for the
    smaller ones the mean of what lies in a pixel."""
    first, last = int(at.block_start[segment]), int(at.block_start[segment + 1])
    factor = width / max(int(at.size[segment]), 1)
    x0 = (at.block_addr[first:last] - at.addr[segment]) * factor
    wide = at.block_size[first:last] * factor
    rgb = _colors(at.block_state[first:last], at.block_allocation[first:last], colors, mask)
    out = []
    big = np.flatnonzero(wide >= 1)
    for i, a, b, (red, green, blue) in zip(big.tolist(), x0[big].tolist(), (x0 + wide)[big].tolist(),
                                           rgb[big].tolist(), strict=True):
        out.append(_Part(a, b, _u32(red, green, blue), first + i))
    small = np.flatnonzero(wide < 1)
    if len(small):
        pixel = np.minimum((x0[small] + wide[small] / 2).astype(np.intp), max(int(width) - 1, 0))
        weight = np.bincount(pixel, wide[small])
        some = np.flatnonzero(weight)
        mean = np.stack([np.bincount(pixel, wide[small] * rgb[small, c])[some] / weight[some] for c in range(3)], 1)
        for p, (red, green, blue) in zip(some.tolist(), mean.tolist(), strict=True):
            out.append(_Part(p, p + 1, _u32(red, green, blue), -1))
    return out


def _colors(state: np.ndarray, allocation: np.ndarray, colors: object, mask: np.ndarray | None) -> np.ndarray:
    """float (b, 3), 0 to 255: each block's colour; of blocks in use as in the timeline."""
    out = np.empty((len(state), 3))
    out[:] = _rgb(_FREE)
    used = (state == ACTIVE) & (allocation >= 0)
    out[state == ACTIVE] = _rgb(_pane.USED)
    if colors is not None:
        classes, palette = getattr(colors, "classes"), getattr(colors, "palette")  # noqa: B009
        out[used] = palette[classes[allocation[used]]]
    if mask is not None:
        dark = used.copy()
        dark[used] = ~mask[allocation[used]]
        out[dark] = _rgb(_DARK)
    out[state == PENDING] = _rgb(_pane.WAITING)
    return out


def _rgb(color: ImVec4) -> tuple[float, float, float]:
    return color.x * 255, color.y * 255, color.z * 255


def _u32(red: float, green: float, blue: float) -> int:
    return int(red) | int(green) << 8 | int(blue) << 16 | 0xFF000000


def _summary(at: SegmentsAt, scale: float) -> None:
    """One bar for all that is reserved, and its parts in words."""
    reserved = max(at.reserved, 1)
    parts = [(at.active, _pane.USED, "in use"), (at.pending, _pane.WAITING, "waiting for another stream"),
             (at.free, _FREE, "free")]
    height = 8 * scale
    width = _pane.parts_bar([(size, color) for size, color, _ in parts], reserved, height, scale)
    imgui.dummy(ImVec2(width, height))
    words = [f"{size_text(at.reserved)} reserved in {count_text(len(at), 'segment')}",
             *(f"{size_text(size)} {what}" for size, _, what in parts if size or what == "in use")]
    if at.free:
        words.append(f"largest free block {size_text(at.largest_free)} of {at.free_blocks:,}")
        words.append(f"fragmentation {at.fragmentation:.0%}")
    _pane.colored(_pane.fitted("  \u00b7  ".join(words), width), theme.DIM)
