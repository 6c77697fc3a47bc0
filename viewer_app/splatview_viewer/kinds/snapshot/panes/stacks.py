"""Who holds the memory: a flame graph of calls, and a table by stack, file, line, function, size or category."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
from imgui_bundle import imgui

from splatview_viewer.kinds.snapshot.analysis import Tables, flame, frames_with, user_frames
from splatview_viewer.kinds.snapshot.panes import _flame, _pane
from splatview_viewer.kinds.snapshot.panes._grid import Cell, Column, Grid, Rows
from splatview_viewer.ui import theme
from splatview_viewer.ui.format import count_text, exact_size_text, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.snapshot.analysis import By, FlameGraph, Table
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace
    from splatview_viewer.kinds.snapshot.state import Look

_OF = {"moment": "Live then", "all": "Ever allocated", "found": "Found"}
_OF_TIPS = {"moment": "What is live at the chosen moment", "all": "All allocations, whenever they were live",
            "found": "What the search found"}
_BY = {"stack": "Stack", "line": "Line", "function": "Function", "file": "File", "size": "Size", "category": "Category",
       "pool": "Pool", "stream": "Stream"}
_ORDER = ("", "bytes", "bytes", "count", "largest")
"""What each column of the table sorts by."""


class StacksPane(_pane.Pane):
    """A flame graph above, a table below."""

    name = "stacks"

    def __init__(self) -> None:
        super().__init__()
        self.of = "moment"
        """One of moment, all, found."""
        self.by = "stack"
        """One of stack, line, function, file, size, category, pool, stream."""
        self._flame = _flame.Flame()
        self._grid = Grid()
        self._sorted = 1
        self._order: tuple[object, int, np.ndarray] | None = None
        self._graph: FlameGraph | None = None
        self._table: Table | None = None
        self._device = 0
        self._look: tuple[tuple[object, ...], _flame.Look] | None = None
        self._hits: tuple[np.ndarray | None, int] = (None, 0)

    def fill(self, content: Content, look: Look, rect: Rect, scale: float) -> bool:
        before = self.of
        if self.of == "found" and look.hits is None:
            self.of = "moment"
        self.of = _pane.chips("of", self.of, {k: v for k, v in _OF.items() if k != "found" or look.hits is not None},
                              _OF_TIPS)
        changed = before != self.of
        moment = content.moment(look)
        if self.of == "moment" and moment is not None:
            imgui.same_line(0, 16 * scale)
            changed |= _pane.moment_line(content, look, moment)
        if moment is None and self.of == "moment":
            _pane.centered("Looking for the peak\u2026")
            return changed
        which, ids = self._which(content, look, moment or 0)
        high = max((rect.height - 4 * imgui.get_frame_height()) * 0.52, 60 * scale)
        changed |= self._draw_flame(content, look, which, ids, (high, scale))
        return self._draw_table(content, look, which, ids, scale) or changed

    def _which(self, content: Content, look: Look,
               moment: int) -> tuple[tuple[Hashable, ...], Callable[[], np.ndarray | None]]:
        """What the pane is of: a key, and how to get the allocations."""
        trace = content.trace(look)
        if self.of == "all":
            return (look.device, "all"), lambda: None
        if self.of == "found":
            hits = look.hits
            if hits is not self._hits[0]:
                self._hits = hits, self._hits[1] + 1
            return (look.device, "found", id(self), self._hits[1]), lambda: hits
        return (look.device, "moment", moment), lambda: _pane.live_at(trace, moment)

    # -- the flame graph ---------------------------------------------------------------------------------------------

    def _draw_flame(self, content: Content, look: Look, which: tuple[Hashable, ...],
                    ids: Callable[[], np.ndarray | None], sizes: tuple[float, float]) -> bool:
        high, scale = sizes
        snapshot, trace, key = content.snapshot, content.trace(look), ("flame", *which)
        graph = content.ask(key, lambda: _graph(snapshot, trace, ids()), slot=("flame", id(self)))
        self._graph = graph if graph is not None else self._graph
        shades = content.ask(("shades",), lambda: _flame.shades(snapshot.stacks.file, user_frames(snapshot)))
        hit = None
        if look.search:
            search, frames = look.search, ("frames found", look.search)
            hit = content.ask(frames, lambda: _found(snapshot, search), slot=("frames found", id(self)))
            hit = None if hit is None or not hit.any() else hit
        if self._graph is None or shades is None or self._graph.trace is not trace:
            top = imgui.get_cursor_pos_y()
            if content.fault(key):
                _pane.trouble(content, key)
            else:
                _pane.colored("Counting\u2026", theme.DIM)
            imgui.set_cursor_pos_y(top + high)
            return False
        clicked, moved = self._flame.draw(self._graph, self._style(self._graph, shades, hit), scale, high)
        if clicked is not None:
            drawn = self._graph
            if clicked == 0:
                self.lamp.out(look)
            else:
                self.lamp.ask(("node", *which, clicked), lambda: drawn.allocations(clicked),
                               f"{drawn.text(clicked)}, {size_text(int(drawn.width[clicked]))}")
        return moved or clicked is not None

    def _style(self, graph: FlameGraph, shades: np.ndarray, hit: np.ndarray | None) -> _flame.Look:
        key = (graph, id(shades), id(hit))
        if self._look is None or self._look[0] != key:
            self._look = key, _flame.Look(lambda node: _label(graph, node), lambda node: _about(graph, node), shades,
                                          hit)
        return self._look[1]

    # -- the table ---------------------------------------------------------------------------------------------------

    def _draw_table(self, content: Content, look: Look, which: tuple[Hashable, ...],
                    ids: Callable[[], np.ndarray | None], scale: float) -> bool:
        _pane.gap(2, scale)
        _pane.label("By")
        before = self.by
        snapshot = content.snapshot
        few = {"pool": len(snapshot.pools) < 2, "stream": len(snapshot.streams) < 2}
        self.by = _pane.chips("by", self.by, {k: v for k, v in _BY.items() if not few.get(k)})
        by, trace = cast("By", self.by), content.trace(look)
        key = ("table", *which, by)
        table = content.ask(key, lambda: Tables(snapshot).group(trace, ids(), by), slot=("table", id(self)))
        old = self._table is None or self._table.by != by or self._device != look.device
        if table is None and (old or content.fault(key)):
            _pane.trouble(content, key, "Counting\u2026")
            return before != self.by
        self._table, self._device = table if table is not None else self._table, look.device
        table = self._table
        assert table is not None
        _pane.on_the_right(imgui.calc_text_size(f"{len(table):,} rows, {size_text(table.total)}").x)
        imgui.align_text_to_frame_padding()
        _pane.colored(f"{len(table):,} rows, {size_text(table.total)}", theme.DIM)
        return self._list(content, look, table, key, scale) or before != self.by

    def _list(self, content: Content, look: Look, table: Table, key: tuple[Hashable, ...], scale: float) -> bool:
        self.places.ready(content)
        order = self._ordered(table)
        total, most = max(table.total, 1), max(int(table.bytes.max(initial=1)), 1)
        columns = (Column(_BY[table.by], 0, sorts=False), Column("Bytes", 7.5, True),
                   Column("Share", 4.6, True, gives=1), Column("Blocks", 5.2, True, "How many allocations", gives=2),
                   Column("Largest", 6.2, True, gives=3))

        def cells(index: int) -> list[Cell | str]:
            row = table[int(order[index])]
            return [row.label, Cell(size_text(row.bytes), bar=row.bytes / most), f"{row.bytes / total:.1%}",
                    f"{row.count:,}", Cell(size_text(row.largest), theme.DIM)]

        touch = self._grid.draw("table", columns, Rows(
            len(table), cells, tip=lambda i: _pane.stack_tip(content, int(table.key[order[i]])) if (
                table.by == "stack") else "",
            chosen=lambda i: self.lamp.on == ("row", *key, int(table.key[order[i]])),
            sorted_by=self._sorted, words="Nothing is live then" if self.of == "moment" else "Nothing"), scale)
        if touch.title is not None:
            self._sorted = touch.title
            self._grid.top = 0
        if touch.row is not None:
            row = table[int(order[touch.row])]
            self.lamp.toggle(look, ("row", *key, row.key), lambda: row.allocations,
                              f"{row.label}, {size_text(row.bytes)}")
        return touch.any

    def _ordered(self, table: Table) -> np.ndarray:
        """The rows' numbers in the order that is wanted."""
        if self._order is None or self._order[0] is not table or self._order[1] != self._sorted:
            by = {"count": table.count_of, "largest": table.largest}.get(_ORDER[self._sorted])
            order = np.arange(len(table)) if by is None else np.argsort(-by, kind="stable")
            self._order = table, self._sorted, order
        return self._order[2]


def _graph(snapshot: Snapshot, trace: Trace, ids: np.ndarray | None) -> FlameGraph:
    return flame(snapshot, trace, ids)


def _found(snapshot: Snapshot, text: str) -> np.ndarray:
    """bool (F,): frames that any word of a search names."""
    found = np.zeros(len(snapshot.stacks.file), bool)
    for word in text.replace('"', " ").split():
        found |= frames_with(snapshot, word)
    return found


def _label(graph: FlameGraph, node: int) -> str:
    """A function and its line, and how much it holds."""
    size = size_text(int(graph.width[node]))
    if node == 0:
        return f"All: {size} in {count_text(int(graph.count[0]), 'block')}"
    name, _, place = graph.text(node).partition("  ")
    return f"{name}   {size}   {place}"


def _about(graph: FlameGraph, node: int) -> str:
    width, total = int(graph.width[node]), max(int(graph.width[0]), 1)
    held = f"{exact_size_text(width)} in {count_text(int(graph.count[node]), 'block')}, {width / total:.1%} of all"
    if graph.frame[node] == -1:
        return f"{held}\nClick: zoom. Right click: back."
    if graph.frame[node] < 0:
        return f"What has no stack\n{held}"
    frame = graph.snapshot.frame(int(graph.frame[node]))
    place = f"{frame.file}:{frame.line}" if frame.file not in ("", "??") else "C++"
    return f"{frame.name}\n{place}\n{held}"
