"""The trace, event by event. A click moves the timeline there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import imgui

from splatview_viewer.kinds.snapshot.model import ACTIONS, address_text, pool_text, stream_text
from splatview_viewer.kinds.snapshot.panes import _pane
from splatview_viewer.kinds.snapshot.panes._grid import Cell, Column, Grid, Rows
from splatview_viewer.ui import theme
from splatview_viewer.ui.format import size_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imgui_bundle import ImVec4

    from splatview_viewer.geometry.controls import Rect
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
        _pane.on_the_right(imgui.calc_text_size(f"{len(which):,} events").x)
        imgui.align_text_to_frame_padding()
        _pane.colored(f"{len(which):,} events", theme.DIM)
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
        where = self.places.ready(content)
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
