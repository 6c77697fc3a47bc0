"""The flame graph: boxes of calls, which are zoomed into and highlighted by clicks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.quantities import size_text
from splatview_viewer.kinds.snapshot.panes.parts import (
    HIT,
    draw_tooltip,
    latest_answer,
)
from splatview_viewer.snapshot.analysis.flame import (
    FlameGraph,
    frame_colors,
    lay_out,
    node_label,
    node_text,
)
from splatview_viewer.snapshot.analysis.frames import USER, frame_kinds
from splatview_viewer.snapshot.analysis.search import frames_with
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import fitted, pointer

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.kinds.snapshot.answers import Key
    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.snapshot.analysis.flame import PlacedNode

_MIN_BOX_PIXELS = 1.0
"""Width below which a node is not drawn."""
_MAX_CALLERS = 3
"""Rows for the callers of the node that is zoomed into."""
_INK = theme.u32(ImVec4(0.05, 0.055, 0.065, 1.0))
_PALE = theme.u32(theme.INK)
_ROOT = theme.u32(ImVec4(0.22, 0.24, 0.275, 1.0))
_HIT_COLOR = theme.u32(HIT)
_DIMMED = theme.u32(ImVec4(0.20, 0.215, 0.24, 1.0))
_HOVER = theme.u32(ImVec4(1.0, 1.0, 1.0, 0.22))


class _Box(NamedTuple):
    """A box of the graph; x in pixels from the left edge of the graph."""

    x0: float
    x1: float
    node: int
    color: int
    has_pale_text: bool
    text: str


@dataclass(slots=True)
class FlameState:
    """The flame graph of a view, from one picture to the next."""

    graph: FlameGraph | None = None
    zoom: int = 0
    """The node that fills the width."""
    top: float = 0.0
    """The row at the top, scrolled by the wheel."""
    drawn_for: Any = None
    """What `rows` depends on."""
    rows: list[list[_Box]] = field(default_factory=list)
    """Boxes by depth."""


@dataclass(slots=True)
class _FrameColors:
    """The look of frames, by their ids."""

    colors: np.ndarray
    """uint32 (F,)"""
    has_pale_text: np.ndarray
    """bool (F,)"""


class _Area(NamedTuple):
    """The rectangle of the graph, in pixels."""

    corner: ImVec2
    width: float
    height: float
    row_height: int

    @property
    def row_count(self) -> float:
        """Rows that fit."""
        return self.height / self.row_height


def draw_flame(
    view: SnapshotView, key: Key, work: Callable[[], FlameGraph], height: float
) -> bool:
    """Draw a flame graph as wide as the window.

    Args:
        key: key of the graph's answer.
        work: computes the graph.
        height: pixels.

    Returns:
        True when the picture has to be drawn again.
    """
    snapshot = view.content.snapshot
    top = imgui.get_cursor_pos_y()
    tones = view.content.request(
        ("shades",), lambda: shades(snapshot.stacks.file, frame_kinds(snapshot) == USER)
    )
    hits = _request_hits(view)
    latest = latest_answer(view, "flame", key, work, "Counting\u2026")
    if latest is None or tones is None:
        imgui.set_cursor_pos_y(top + height)
        imgui.dummy(ImVec2(0, 0))
        return False
    graph: FlameGraph = latest.answer
    state: FlameState = view.pane_memory.setdefault("flame", FlameState())
    if state.graph is not graph:
        state = FlameState(graph)
        view.pane_memory["flame"] = state
    previous = (state.zoom, state.top)
    area = _Area(
        corner=imgui.get_cursor_screen_pos(),
        width=imgui.get_content_region_avail().x,
        height=height,
        row_height=round(imgui.get_text_line_height() + 5 * view.scale),
    )
    buttons = imgui.ButtonFlags_
    imgui.invisible_button(
        "##flame",
        ImVec2(max(area.width, 1), height),
        buttons.mouse_button_left.value | buttons.mouse_button_right.value,
    )
    is_hovered = imgui.is_item_hovered()
    drawn_for = (state.zoom, round(area.width), view.scale, id(hits))
    if state.drawn_for != drawn_for:
        state.drawn_for = drawn_for
        state.rows = _visible_boxes(
            graph, _frame_colors(tones, hits), state.zoom, area.width
        )
    if is_hovered:
        state.top -= 2 * imgui.get_io().mouse_wheel
    state.top = min(max(state.top, 0.0), max(len(state.rows) - area.row_count, 0.0))
    if is_hovered:
        hovered_box = _box_under_pointer(state, area)
    else:
        hovered_box = None
    _paint_boxes(state, area, hovered_box)
    if hovered_box is not None:
        draw_tooltip(_tooltip(graph, hovered_box.node))
        if imgui.is_mouse_clicked(imgui.MouseButton_.left):
            _zoom_into(view, state, graph, latest.key, hovered_box.node)
    if is_hovered and imgui.is_mouse_clicked(imgui.MouseButton_.right) and state.zoom:
        state.zoom = int(graph.parent[state.zoom])
    return (state.zoom, state.top) != previous


def _request_hits(view: SnapshotView) -> np.ndarray | None:
    """Return the frames that any word of the search finds, bool (F,).

    None without a search, or until they are known.
    """
    snapshot = view.content.snapshot
    search = view.state.search
    if not search:
        return None
    return view.content.request(
        ("frames found", search),
        lambda: np.logical_or.reduce(
            [frames_with(snapshot, search_word) for search_word in search.split()]
        ),
        newest=True,
    )


def _frame_colors(tones: np.ndarray, hits: np.ndarray | None) -> _FrameColors:
    """Return the look of frames: with hits these are bright, and the others dimmed."""
    if hits is None or not np.any(hits):
        return _FrameColors(tones, np.zeros(len(tones), bool))
    is_dimmed = ~hits
    if not is_dimmed.any():
        return _FrameColors(tones, is_dimmed)
    colors = np.where(is_dimmed, _DIMMED, np.uint32(_HIT_COLOR))
    return _FrameColors(colors, is_dimmed)


def _zoom_into(
    view: SnapshotView, state: FlameState, graph: FlameGraph, key: Key, node: int
) -> None:
    """Zoom into a node, and highlight its allocations; all of them for node 0."""
    state.zoom = node
    view.change(highlight=None)
    if node:
        label = f"{graph.text(node)}, {size_text(int(graph.width[node]))}"
        view.toggle_highlight(key, node, graph.allocations(node), label)


def _tooltip(graph: FlameGraph, node: int) -> str:
    """Return the tooltip of a node."""
    text = node_text(graph, node)
    if node == 0:
        return f"{text}\nClick: zoom. Right click: back."
    return text


# -- boxes -----------------------------------------------------------------------------


def _visible_boxes(
    graph: FlameGraph, colors: _FrameColors, zoom: int, width: float
) -> list[list[_Box]]:
    """Return the boxes that are wide enough to be drawn, by depth.

    First the nearest callers of the node that is zoomed into, each as wide as the graph.
    """
    rows = lay_out(graph, width, _MIN_BOX_PIXELS, zoom=zoom, max_callers=_MAX_CALLERS)
    return [[_make_box(graph, colors, placed) for placed in row] for row in rows]


def _make_box(graph: FlameGraph, colors: _FrameColors, placed: PlacedNode) -> _Box:
    """Return the box of a node."""
    scale = theme.scale()
    node, x0, x1 = placed
    text = node_label(graph, node)
    text_width = x1 - x0 - 10 * scale
    if text_width > 18 * scale:
        text = fitted(text, text_width)
    else:
        text = ""
    frame = int(graph.frame[node])
    if frame < 0:
        # Node 0, or allocations without a stack.
        return _Box(x0, x1, node, _ROOT, True, text)
    has_pale_text = bool(colors.has_pale_text[frame])
    return _Box(x0, x1, node, int(colors.colors[frame]), has_pale_text, text)


def _box_under_pointer(state: FlameState, area: _Area) -> _Box | None:
    """Return the box under the pointer, which is over the graph."""
    mouse = pointer()
    row = int(state.top + (mouse.y - area.corner.y) // area.row_height)
    if not 0 <= row < len(state.rows):
        return None
    x = mouse.x - area.corner.x
    return next((box for box in state.rows[row] if box.x0 <= x < box.x1), None)


def _paint_boxes(state: FlameState, area: _Area, hovered_box: _Box | None) -> None:
    """Paint the rows that are in the area."""
    draw = imgui.get_window_draw_list()
    corner = area.corner
    end = ImVec2(corner.x + area.width, corner.y + area.height)
    draw.push_clip_rect(corner, end, True)
    first_row = int(state.top)
    end_row = min(int(state.top + area.row_count) + 1, len(state.rows))
    for row in range(first_row, end_row):
        y = round(corner.y + (row - state.top) * area.row_height)
        for box in state.rows[row]:
            row_corner = ImVec2(corner.x, y)
            _paint_box(draw, box, row_corner, area.row_height - 1.0, box is hovered_box)
    draw.pop_clip_rect()


def _paint_box(
    draw: imgui.ImDrawList, box: _Box, corner: ImVec2, height: float, is_hovered: bool
) -> None:
    """Paint a box with its text. corner: of the row."""
    low = ImVec2(corner.x + box.x0, corner.y)
    right = corner.x + max(box.x1 - 1, box.x0 + 0.7)
    high = ImVec2(right, corner.y + height)
    if box.x1 - box.x0 > 6:
        rounding = 2 * theme.scale()
    else:
        rounding = 0.0
    draw.add_rect_filled(low, high, box.color, rounding)
    if is_hovered:
        draw.add_rect_filled(low, high, _HOVER, rounding)
    if not box.text:
        return
    x = round(corner.x + box.x0 + 5 * theme.scale())
    y = round(corner.y + (height - imgui.get_text_line_height()) / 2)
    draw.add_text(ImVec2(x, y), _PALE if box.has_pale_text else _INK, box.text)


def shades(files: np.ndarray, user: np.ndarray) -> np.ndarray:
    """Return a colour for each frame, uint32 (F,), as draw lists take colours.

    Args:
        files: index of each frame's file, int (F,).
        user: frames of the user's code, bool (F,).
    """
    bytes_rgb = (frame_colors(files, user) * 255 + 0.5).astype(np.uint32)
    opaque = np.uint32(0xFF000000)
    return opaque | bytes_rgb[:, 2] << 16 | bytes_rgb[:, 1] << 8 | bytes_rgb[:, 0]
