"""Holders of the memory: a flame graph of calls, and a table by stack, file, line, function, size or category."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.format import count_text, exact_size_text, size_text
from splatview_viewer.kinds.snapshot.panes.table import (
    HIT,
    draw_choice,
    draw_label,
    draw_moment_line,
    draw_table,
    draw_tooltip,
    group_rows,
    latest_answer,
    right_aligned_texts,
)
from splatview_viewer.snapshot.analysis.flame import FlameGraph, flame_graph
from splatview_viewer.snapshot.analysis.frames import USER, frame_kinds
from splatview_viewer.snapshot.analysis.search import frames_with
from splatview_viewer.snapshot.analysis.tables import GROUPINGS, group_allocations
from splatview_viewer.snapshot.model import live_mask
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import fitted, pointer

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.kinds.snapshot.content import Key
    from splatview_viewer.kinds.snapshot.view import SnapshotView

_OF = {"moment": "Live then", "all": "Ever allocated", "found": "Found"}


def draw_stacks(view: SnapshotView) -> bool:
    """Draw a flame graph above, a table below; True when the picture has to be drawn again."""
    search = view.state.search.strip()
    snapshot = view.content.snapshot
    trace = view.trace
    of = draw_choice(
        view, "of", {k: v for k, v in _OF.items() if k != "found" or search}
    )
    whose: int | str | None = None
    if of == "moment":
        imgui.same_line(0, 16 * view.scale)
        whose = draw_moment_line(view)
        if whose is None:
            return False
    found = view.content.hits(view.device, search) if of == "found" else None
    if of == "found":
        if found is None:
            return False
        whose = search

    def members() -> np.ndarray | None:
        """bool (A,); None: all."""
        if found is not None:
            return found.mask
        if isinstance(whose, int):
            return live_mask(trace, whose)
        return None

    high = max(
        imgui.get_content_region_avail().y * 0.52 - imgui.get_frame_height(),
        60 * view.scale,
    )
    again = _draw_flame(
        view,
        ("flame", view.device, whose),
        lambda: flame_graph(snapshot, trace, members()),
        high,
    )
    draw_label("By")
    by = draw_choice(view, "by", GROUPINGS)
    shown = latest_answer(
        view,
        "table",
        ("group", view.device, whose, by),
        lambda: group_allocations(snapshot, trace, members(), by),
        "Counting\u2026",
    )
    if shown is None:
        return again
    right_aligned_texts(
        (f"{len(shown.answer):,} rows, {size_text(shown.answer.total)}", theme.DIM)
    )
    words = "Nothing is live then" if of == "moment" else "Nothing"
    return (
        draw_table(
            view,
            "table",
            group_rows(
                view, shown.key, shown.answer, GROUPINGS[shown.answer.by], words
            ),
        )
        or again
    )


# -- the flame graph ---------------------------------------------------------------------------------------------------

_THINNEST = 1.0
"""Pixels of width below which a node is not drawn."""
_CRUMBS = 3
"""Rows for the callers of the node that is zoomed into."""


class _Box(NamedTuple):
    x0: float
    x1: float
    node: int
    color: int
    pale: bool
    text: str


def _draw_flame(
    view: SnapshotView, key: Key, work: Callable[[], FlameGraph], height: float
) -> bool:
    """Draw it as wide as the window, so many pixels high; True when the picture has to be drawn again."""
    snapshot = view.content.snapshot
    search = view.state.search
    top = imgui.get_cursor_pos_y()
    tones = view.content.request(
        ("shades",), lambda: shades(snapshot.stacks.file, frame_kinds(snapshot) == USER)
    )
    if not search:
        hit = None
    else:
        hit = view.content.request(
            ("frames found", search),
            lambda: np.logical_or.reduce(
                [frames_with(snapshot, word) for word in search.split()]
            ),
            newest=True,
        )
    shown = latest_answer(view, "flame", key, work, "Counting\u2026")
    if shown is None or tones is None:
        imgui.set_cursor_pos_y(top + height)
        imgui.dummy(ImVec2(0, 0))
        return False
    graph = shown.answer
    line = imgui.get_text_line_height()
    scale = view.scale
    flame: dict[str, Any] = view.pane_memory.setdefault("flame", {})
    if flame.get("graph") is not graph:
        flame |= {"graph": graph, "zoom": 0, "top": 0.0, "of": None}
    corner = imgui.get_cursor_screen_pos()
    width = imgui.get_content_region_avail().x
    step = round(line + 5 * scale)
    imgui.invisible_button(
        "##flame",
        ImVec2(max(width, 1), height),
        imgui.ButtonFlags_.mouse_button_left.value
        | imgui.ButtonFlags_.mouse_button_right.value,
    )
    hovered = imgui.is_item_hovered()
    mouse = pointer()
    before = (flame["zoom"], flame["top"])
    drawn = (flame["zoom"], round(width), scale, id(hit))
    if flame["of"] != drawn:
        pale = ~hit if hit is not None and np.any(hit) else np.zeros(len(tones), bool)
        colors = np.where(pale, _DIMMED, tones if not pale.any() else np.uint32(_LIT))
        flame["of"], flame["rows"] = (
            drawn,
            _rows(graph, colors, pale, flame["zoom"], width),
        )
    rows: list[list[_Box]] = flame["rows"]
    if hovered:
        flame["top"] -= 2 * imgui.get_io().mouse_wheel
    first = min(max(flame["top"], 0.0), max(len(rows) - height / step, 0.0))
    flame["top"] = first
    row = int(first + (mouse.y - corner.y) // step) if hovered else -1
    if not 0 <= row < len(rows):
        over = None
    else:
        over = next(
            (box for box in rows[row] if box.x0 <= mouse.x - corner.x < box.x1), None
        )
    draw = imgui.get_window_draw_list()
    draw.push_clip_rect(corner, ImVec2(corner.x + width, corner.y + height), True)
    for row in range(int(first), min(int(first + height / step) + 1, len(rows))):
        _draw_row(
            draw,
            rows[row],
            (corner.x, round(corner.y + (row - first) * step), step - 1.0),
            over,
        )
    draw.pop_clip_rect()
    if over is not None:
        draw_tooltip(_about(graph, over.node))
        if imgui.is_mouse_clicked(imgui.MouseButton_.left):
            flame["zoom"] = over.node
            view.change(highlight=None)
            if over.node:
                view.toggle_highlight(
                    shown.key,
                    over.node,
                    graph.allocations(over.node),
                    f"{graph.text(over.node)}, {size_text(int(graph.width[over.node]))}",
                )
    if hovered and imgui.is_mouse_clicked(imgui.MouseButton_.right) and flame["zoom"]:
        flame["zoom"] = int(graph.parent[flame["zoom"]])
    return (flame["zoom"], flame["top"]) != before


def _about(graph: FlameGraph, node: int) -> str:
    width = int(graph.width[node])
    total = max(int(graph.width[0]), 1)
    held = f"{exact_size_text(width)} in {count_text(int(graph.count[node]), 'block')}, {width / total:.1%} of all"
    if graph.frame[node] == -1:
        return f"{held}\nClick: zoom. Right click: back."
    if graph.frame[node] < 0:
        return f"What has no stack\n{held}"
    frame = graph.snapshot.frame(int(graph.frame[node]))
    place = f"{frame.file}:{frame.line}" if frame.file not in ("", "??") else "C++"
    return f"{frame.name}\n{place}\n{held}"


def _rows(
    graph: FlameGraph, colors: np.ndarray, pale: np.ndarray, zoom: int, width: float
) -> list[list[_Box]]:
    """Return the drawn boxes by depth; of the callers of the node that is zoomed into, the nearest.

    colors: uint32 (F,), of each frame. pale: bool (F,), whether its letters are.
    """
    low = int(graph.x[zoom])
    whole = max(int(graph.width[zoom]), 1)
    factor = width / whole
    scale = theme.scale()

    def box(node: int, x0: float, x1: float) -> _Box:
        room = x1 - x0 - 10 * scale
        name, _, where = graph.text(node).partition("  ")
        size = size_text(int(graph.width[node]))
        if node:
            text = f"{name}   {size}   {where}"
        else:
            text = f"All: {size} in {count_text(int(graph.count[0]), 'block')}"
        text = fitted(text, room) if room > 18 * scale else ""
        frame = int(graph.frame[node])  # less than 0: all of it, or what has no stack
        return _Box(
            x0,
            x1,
            node,
            int(colors[frame]) if frame >= 0 else _ROOT,
            frame < 0 or bool(pale[frame]),
            text,
        )

    path = [zoom]
    while len(path) <= _CRUMBS and path[0]:
        path.insert(0, int(graph.parent[path[0]]))
    rows = [[box(node, 0.0, width)] for node in path]
    for first, last in pairwise(graph.level[int(graph.depth[zoom]) + 1 :].tolist()):
        x = graph.x[first:last]
        wide = graph.width[first:last]
        seen = (
            (x < low + whole) & (x + wide > low) & (wide >= max(_THINNEST / factor, 1))
        )
        nodes = first + np.flatnonzero(seen)
        if not len(nodes):
            break
        x0 = (graph.x[nodes] - low) * factor
        x1 = x0 + graph.width[nodes] * factor
        rows.append(
            [
                box(*place)
                for place in zip(nodes.tolist(), x0.tolist(), x1.tolist(), strict=True)
            ]
        )
    return rows


def _draw_row(
    draw: imgui.ImDrawList,
    boxes: list[_Box],
    place: tuple[float, float, float],
    over: _Box | None,
) -> None:
    (x, y, height), scale = place, theme.scale()
    text_y = round(y + (height - imgui.get_text_line_height()) / 2)
    for box in boxes:
        a = ImVec2(x + box.x0, y)
        b = ImVec2(x + max(box.x1 - 1, box.x0 + 0.7), y + height)
        for color in (box.color, *([_LIGHT] if box is over else [])):
            draw.add_rect_filled(a, b, color, 2 * scale if box.x1 - box.x0 > 6 else 0.0)
        if box.text:
            draw.add_text(
                ImVec2(round(x + box.x0 + 5 * scale), text_y),
                _PALE if box.pale else _INK,
                box.text,
            )


def shades(files: np.ndarray, user: np.ndarray) -> np.ndarray:
    """A colour for each frame: warm for the user's own code, cool and quiet for libraries; alike within a file.

    files: int (F,), the number of each frame's file; user: bool (F,). Returns uint32 (F,), as draw lists take colours.
    """
    place = (
        files.astype(np.uint64) * np.uint64(2654435761) >> np.uint64(7)
    ) % np.uint64(len(_WARM))
    warm, cool = (
        np.array([theme.u32(ImVec4(*c, 1.0)) for c in tones], np.uint32)
        for tones in (_WARM, _COOL)
    )
    return np.where(user, warm[place], cool[place])


_WARM = (
    (0.93, 0.66, 0.38),
    (0.90, 0.58, 0.40),
    (0.94, 0.73, 0.43),
    (0.87, 0.62, 0.48),
    (0.91, 0.69, 0.52),
)
_COOL = (
    (0.42, 0.51, 0.63),
    (0.46, 0.55, 0.65),
    (0.39, 0.50, 0.58),
    (0.48, 0.53, 0.66),
    (0.43, 0.56, 0.61),
)
_INK, _PALE, _ROOT, _LIT, _DIMMED, _LIGHT = (
    theme.u32(color)
    for color in (
        ImVec4(0.05, 0.055, 0.065, 1.0),
        theme.INK,
        ImVec4(0.22, 0.24, 0.275, 1.0),
        HIT,
        ImVec4(0.20, 0.215, 0.24, 1.0),
        ImVec4(1.0, 1.0, 1.0, 0.22),
    )
)
