"""A flame graph: who called whom, from the top down, as wide as the bytes that it holds.

However many nodes there are, only those that are at least a pixel wide are drawn, and what is to be drawn is worked
out once for each width and zoom, not for each picture.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.kinds.snapshot.panes import _pane
from splatview_viewer.kinds.snapshot.panes._grid import tooltip
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.kinds.snapshot.analysis import FlameGraph

_THINNEST = 1.0
"""Pixels of width below which a node is not drawn."""
_CRUMBS = 3
"""Rows for the callers of the node that is zoomed into."""


@dataclass(frozen=True)
class Look:
    """How nodes look and what is said of them."""

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

    def draw(self, graph: FlameGraph, look: Look, scale: float, height: float) -> tuple[int | None, bool]:
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

    @property
    def drawn(self) -> list[list[tuple[int, float]]]:
        """What is drawn in each row: nodes and their widths in pixels."""
        return [[(box.node, box.x1 - box.x0) for box in boxes] for boxes in self._rows]

    def _at(self, x: float, row: int) -> _Box | None:
        if not 0 <= row < len(self._rows):
            return None
        boxes = self._rows[row]
        i = bisect_right(boxes, x, key=lambda b: b.x0) - 1
        return boxes[i] if i >= 0 and x < boxes[i].x1 else None


def _rows(graph: FlameGraph, look: Look, zoom: int, width: float, scale: float) -> list[list[_Box]]:
    """What is drawn, by depth; of the callers of the node that is zoomed into, the nearest."""
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


def _box(look: Look, node: int, frame: int, x0: float, x1: float, scale: float) -> _Box:
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
