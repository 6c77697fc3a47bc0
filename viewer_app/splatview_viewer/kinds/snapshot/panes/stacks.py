"""Holders of the memory: a flame graph of calls, and a table by stack, file, line, function, size or category."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.kinds.snapshot.analysis.flame import flame
from splatview_viewer.kinds.snapshot.analysis.frames import USER, frame_kinds
from splatview_viewer.kinds.snapshot.analysis.search import frames_with
from splatview_viewer.kinds.snapshot.analysis.tables import group
from splatview_viewer.kinds.snapshot.model import live_ids
from splatview_viewer.kinds.snapshot.panes import _pane
from splatview_viewer.kinds.snapshot.panes._pane import Cell, Column, Grid, Rows, tooltip
from splatview_viewer.ui import theme
from splatview_viewer.ui.format import count_text, exact_size_text, size_text
from splatview_viewer.ui.widgets import gap

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.snapshot.analysis.flame import FlameGraph
    from splatview_viewer.kinds.snapshot.analysis.tables import By, Table
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.model import Snapshot
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
        self._flame = Flame()
        self._grid = Grid()
        self._sorted = 1
        self._order: tuple[object, int, np.ndarray] | None = None
        self._graph: FlameGraph | None = None
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
        """Return the subject of the pane: a key, and how to get the allocations."""
        trace = content.trace(look)
        if self.of == "all":
            return (look.device, "all"), lambda: None
        if self.of == "found":
            hits = look.hits
            if hits is not self._hits[0]:
                self._hits = hits, self._hits[1] + 1
            return (look.device, "found", id(self), self._hits[1]), lambda: hits
        return (look.device, "moment", moment), lambda: live_ids(trace, moment)

    # -- the flame graph ---------------------------------------------------------------------------------------------

    def _draw_flame(self, content: Content, look: Look, which: tuple[Hashable, ...],
                    ids: Callable[[], np.ndarray | None], sizes: tuple[float, float]) -> bool:
        high, scale = sizes
        snapshot, trace, key = content.snapshot, content.trace(look), ("flame", *which)
        graph = content.ask(key, lambda: flame(snapshot, trace, ids()), slot=("flame", id(self)))
        self._graph = graph if graph is not None else self._graph
        tones = content.ask(("shades",), lambda: shades(snapshot.stacks.file, frame_kinds(snapshot) == USER))
        hit = None
        if look.search:
            search, frames = look.search, ("frames found", look.search)
            hit = content.ask(frames, lambda: _found(snapshot, search), slot=("frames found", id(self)))
            hit = None if hit is None or not hit.any() else hit
        if self._graph is None or tones is None or self._graph.trace is not trace:
            top = imgui.get_cursor_pos_y()
            if content.fault(key):
                _pane.trouble(content, key)
            else:
                _pane.colored("Counting\u2026", theme.DIM)
            imgui.set_cursor_pos_y(top + high)
            return False
        drawn = self._graph
        style = Style(lambda node: _label(drawn, node), lambda node: _about(drawn, node), tones, hit)
        clicked, moved = self._flame.draw(drawn, style, scale, high)
        if clicked is not None:
            if clicked == 0:
                self.lamp.out(look)
            else:
                self.lamp.ask(look, ("node", *which, clicked), lambda: drawn.allocations(clicked),
                               f"{drawn.text(clicked)}, {size_text(int(drawn.width[clicked]))}")
        return moved or clicked is not None

    # -- the table ---------------------------------------------------------------------------------------------------

    def _draw_table(self, content: Content, look: Look, which: tuple[Hashable, ...],
                    ids: Callable[[], np.ndarray | None], scale: float) -> bool:
        gap(2 * scale)
        _pane.label("By")
        before = self.by
        snapshot = content.snapshot
        few = {"pool": len(snapshot.pools) < 2, "stream": len(snapshot.streams) < 2}
        self.by = _pane.chips("by", self.by, {k: v for k, v in _BY.items() if not few.get(k)})
        by, trace = cast("By", self.by), content.trace(look)
        key = ("table", *which, by)
        table = content.ask(key, lambda: group(snapshot, trace, ids(), by), slot=("table", id(self)))
        table = self.latest(content, look, key, table, by, "Counting\u2026")
        if table is None:
            return before != self.by
        _pane.right(f"{len(table):,} rows, {size_text(table.total)}")
        return self._list(content, look, table, key, scale) or before != self.by

    def _list(self, content: Content, look: Look, table: Table, key: tuple[Hashable, ...], scale: float) -> bool:
        _pane.places(content)
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
            self.lamp.toggle(look, ("row", *key, row.key), lambda: table.allocations(row.key),
                              f"{row.label}, {size_text(row.bytes)}")
        return touch.any

    def _ordered(self, table: Table) -> np.ndarray:
        """The rows' numbers in the order that is wanted."""
        if self._order is None or self._order[0] is not table or self._order[1] != self._sorted:
            by = {"count": table.count_of, "largest": table.largest}.get(_ORDER[self._sorted])
            order = np.arange(len(table)) if by is None else np.argsort(-by, kind="stable")
            self._order = table, self._sorted, order
        return self._order[2]


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


_THINNEST = 1.0
"""Pixels of width below which a node is not drawn."""
_CRUMBS = 3
"""Rows for the callers of the node that is zoomed into."""


@dataclass(frozen=True)
class Style:
    """Colours and words of nodes."""

    label: Callable[[int], str]
    """What a node is called, in a word or two."""
    about: Callable[[int], str]
    """What is told of it when the pointer rests on it."""
    shade: np.ndarray
    """uint32 (F,): the colour of each frame, as draw lists take it."""
    hit: np.ndarray | None = None
    """bool (F,): frames that a search found; all others are dimmed."""


class _Box(NamedTuple):
    x0: float
    x1: float
    node: int
    color: int
    text: str
    hit: bool


@dataclass
class Flame:
    """One flame graph's zoom and scroll."""

    zoom: int = 0
    """The node that is as wide as the graph; 0 is the root."""
    top: float = 0.0
    place: tuple[float, float, float] = (0.0, 0.0, 1.0)
    """Where it was drawn last: x and y of its upper left corner in pixels, and the height of a row."""
    _of: object = field(default=None, repr=False)
    _key: tuple[object, ...] = field(default=(), repr=False)
    _rows: list[list[_Box]] = field(default_factory=list, repr=False)

    def draw(self, graph: FlameGraph, look: Style, scale: float, height: float) -> tuple[int | None, bool]:
        """Draw it as wide as the window, so many pixels high. Returns the node that was clicked, if any, and whether
        another picture is needed."""
        if self._of is not graph:
            self._of, self.zoom, self.top = graph, 0, 0.0
        corner = imgui.get_cursor_screen_pos()
        width = max(imgui.get_content_region_avail().x, 1.0)
        line = imgui.get_text_line_height()
        step = round(line + 5 * scale)
        imgui.invisible_button("##flame", ImVec2(width, max(height, 1)), imgui.ButtonFlags_.mouse_button_left
                               | imgui.ButtonFlags_.mouse_button_right)
        self.place = corner.x, corner.y, step
        hovered = imgui.is_item_hovered()
        key = (self.zoom, round(width), scale, id(look.shade), id(look.hit))
        if key != self._key or not self._rows:
            self._key = key
            self._rows = _rows(graph, look, self.zoom, width, scale)
        moved = False
        most = max(len(self._rows) - height / step, 0.0)
        if hovered and (wheel := imgui.get_io().mouse_wheel):
            before, self.top = self.top, self.top - 2 * wheel
            moved = self.top != before
        self.top = min(max(self.top, 0.0), most)
        mouse = imgui.get_mouse_pos()
        over = self._at(mouse.x - corner.x, int(self.top + (mouse.y - corner.y) / step)) if hovered else None
        draw = imgui.get_window_draw_list()
        draw.push_clip_rect(corner, ImVec2(corner.x + width, corner.y + height), True)
        first = int(self.top)
        for row in range(first, min(int(self.top + height / step) + 1, len(self._rows))):
            y = round(corner.y + (row - self.top) * step)
            _row(draw, self._rows[row], (corner.x, y, step - 1.0, line), look.hit is not None, over, scale)
        if most:
            thumb = max(height * height / (step * len(self._rows)), 20 * scale)
            y = corner.y + (height - thumb) * self.top / most
            right = corner.x + width - 1 * scale
            draw.add_rect_filled(ImVec2(right - 4 * scale, y), ImVec2(right, y + thumb), theme.u32(theme.TEXT, 0.45),
                                 2 * scale)
        draw.pop_clip_rect()
        clicked = None
        if over is not None:
            tooltip(look.about(over.node), scale)
            if imgui.is_mouse_clicked(0):
                clicked = over.node
                self.zoom, moved = over.node, True
        if hovered and imgui.is_mouse_clicked(1) and self.zoom:
            self.zoom, moved = int(graph.parent[self.zoom]), True
        return clicked, moved

    def middle(self, node: int) -> tuple[float, float] | None:
        """The middle of a node in pixels, as it was drawn last; None where it is not seen."""
        x, y, step = self.place
        for row, boxes in enumerate(self._rows):
            for box in boxes:
                if box.node == node:
                    return x + (box.x0 + box.x1) / 2, y + (row - self.top + 0.5) * step
        return None

    def _at(self, x: float, row: int) -> _Box | None:
        if not 0 <= row < len(self._rows):
            return None
        boxes = self._rows[row]
        i = bisect_right(boxes, x, key=lambda b: b.x0) - 1
        return boxes[i] if i >= 0 and x < boxes[i].x1 else None


def _rows(graph: FlameGraph, look: Style, zoom: int, width: float, scale: float) -> list[list[_Box]]:
    """Return the drawn boxes by depth; of the callers of the node that is zoomed into, the nearest."""
    low, whole = int(graph.x[zoom]), max(int(graph.width[zoom]), 1)
    factor = width / whole
    depth = int(graph.depth[zoom])
    crumbs = graph.path(zoom)[:-1][-_CRUMBS:]
    rows = [[_box(look, node, int(graph.frame[node]), 0.0, width, scale)] for node in [*crumbs, zoom]]
    for d in range(depth + 1, graph.depths):
        nodes = graph.visible(d, low, low + whole, max(_THINNEST / factor, 1))
        if not len(nodes):
            break
        x0 = (graph.x[nodes] - low) * factor
        rows.append([_box(look, *values, scale) for values in zip(
            nodes.tolist(), graph.frame[nodes].tolist(), x0.tolist(), (x0 + graph.width[nodes] * factor).tolist(),
            strict=True)])
    return rows


def _box(look: Style, node: int, frame: int, x0: float, x1: float, scale: float) -> _Box:
    """frame: -1 for all of it, -2 for what has no stack."""
    room = x1 - x0 - 10 * scale
    text = _pane.fitted(look.label(node), room) if room > 18 * scale else ""
    hit = look.hit is not None and frame >= 0 and bool(look.hit[frame])
    return _Box(x0, x1, node, int(look.shade[frame]) if frame >= 0 else _ROOT, text, hit)


def _row(draw: imgui.ImDrawList, boxes: list[_Box], place: tuple[float, float, float, float], searched: bool,
         over: _Box | None, scale: float) -> None:
    x, y, height, line = place
    text_y = round(y + (height - line) / 2)
    for box in boxes:
        a, b = ImVec2(x + box.x0, y), ImVec2(x + max(box.x1 - 1, box.x0 + 0.7), y + height)
        color = box.color if not searched or box.node == 0 else _LIT if box.hit else _DIMMED
        draw.add_rect_filled(a, b, color, 2 * scale if box.x1 - box.x0 > 6 else 0.0)
        if box is over:
            draw.add_rect_filled(a, b, _LIGHT, 2 * scale)
        if box.text:
            pale = box.color == _ROOT or (searched and not box.hit)
            draw.add_text(ImVec2(round(x + box.x0 + 5 * scale), text_y), _PALE if pale else _INK, box.text)


def shades(files: np.ndarray, user: np.ndarray) -> np.ndarray:
    """A colour for each frame: warm for the user's own code, cool and quiet for libraries; alike within a file.

    files: int (F,), the number of each frame's file; user: bool (F,). Returns uint32 (F,), as draw lists take colours.
    """
    place = (files.astype(np.uint64) * np.uint64(2654435761) >> np.uint64(7)) % np.uint64(len(_WARM))
    warm, cool = (np.array([theme.u32(ImVec4(*c, 1.0)) for c in tones], np.uint32) for tones in (_WARM, _COOL))
    return np.where(user, warm[place], cool[place])


_WARM = ((0.93, 0.66, 0.38), (0.90, 0.58, 0.40), (0.94, 0.73, 0.43), (0.87, 0.62, 0.48), (0.91, 0.69, 0.52))
_COOL = ((0.42, 0.51, 0.63), (0.46, 0.55, 0.65), (0.39, 0.50, 0.58), (0.48, 0.53, 0.66), (0.43, 0.56, 0.61))
_INK = theme.u32(ImVec4(0.05, 0.055, 0.065, 1.0))
_PALE = theme.u32(theme.TEXT)
_ROOT = theme.u32(ImVec4(0.22, 0.24, 0.275, 1.0))
_LIT = theme.u32(_pane.HIT)
_DIMMED = theme.u32(ImVec4(0.20, 0.215, 0.24, 1.0))
_LIGHT = theme.u32(ImVec4(1.0, 1.0, 1.0, 0.22))
