"""Draws a flame graph as an SVG, which every browser shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.core.quantities import count_text, size_text
from splatview_viewer.snapshot.analysis.flame import (
    flame_graph,
    frame_colors,
    lay_out,
    node_label,
    node_text,
)
from splatview_viewer.snapshot.analysis.frames import USER, frame_kinds
from splatview_viewer.snapshot.export.escaping import escaped
from splatview_viewer.snapshot.model import device_text, live_mask

if TYPE_CHECKING:
    import numpy as np

    from splatview_viewer.snapshot.analysis.flame import FlameGraph, PlacedNode
    from splatview_viewer.snapshot.model import MemorySnapshot, Trace

WIDTH = 1600
"""Units of width of the drawing."""
_MIN_WIDTH = 0.5
"""Width below which a box is left out."""
_MAX_BOXES = 20_000
"""Boxes that are drawn at most; rows below those are left out."""
_MARGIN = 12
_HEAD = 44
_ROW = 20
_LETTER = 6.6
"""Width of a letter, about."""
_ROOT_COLOR = "#384048"
_STYLE = """
svg { background: #131519; font: 12px Roboto, "Segoe UI", sans-serif; }
.title { fill: #e4e7ec; font-size: 16px; font-weight: bold; }
.dim { fill: #a3aab6; }
.dark { fill: #0d0e11; } .pale { fill: #e4e7ec; }
g:hover > rect { stroke: #e4e7ec; stroke-width: 1.5; }
text { pointer-events: none; }
@media (prefers-color-scheme: light) {
  svg { background: #ffffff; }
  .title { fill: #1a1d23; } .dim { fill: #4d5563; }
  g:hover > rect { stroke: #1a1d23; }
}
"""


def flame_svg(snapshot: MemorySnapshot, trace: Trace, event_index: int) -> str:
    """Return an SVG of the live bytes at a moment, by the stacks that allocated them.

    Boxes that are too narrow to be seen are left out, and the head says how many.
    """
    graph = flame_graph(snapshot, trace, live_mask(trace, event_index))
    rows, shown_count = _bounded(lay_out(graph, WIDTH - 2 * _MARGIN, _MIN_WIDTH))
    colors = _css_colors(snapshot)
    height = _HEAD + len(rows) * _ROW + _MARGIN
    parts = [
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}">\n'
        f"<title>{escaped(snapshot.name)}</title>\n<style>{_STYLE}</style>\n",
        _head(graph, event_index, shown_count),
    ]
    for depth, row in enumerate(rows):
        y = _HEAD + depth * _ROW
        parts += [_box(graph, placed, y, colors) for placed in row]
    parts.append("</svg>\n")
    return "".join(parts)


def _bounded(rows: list[list[PlacedNode]]) -> tuple[list[list[PlacedNode]], int]:
    """Return the rows that a drawing may have, and the number of their boxes."""
    count = 0
    for depth, row in enumerate(rows):
        if count + len(row) > _MAX_BOXES:
            return rows[:depth], count
        count += len(row)
    return rows, count


def _css_colors(snapshot: MemorySnapshot) -> list[str]:
    """Return the colour of each frame, as CSS writes it."""
    is_user = frame_kinds(snapshot) == USER
    colors: np.ndarray = frame_colors(snapshot.stacks.file, is_user)
    shades = (colors * 255).round().astype(int).tolist()
    return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in shades]


def _head(graph: FlameGraph, event_index: int, shown_count: int) -> str:
    """Return the lines over the boxes."""
    name = escaped(graph.snapshot.name)
    live = size_text(int(graph.width[0]))
    facts = (
        f"{device_text(graph.trace.device)}: {live} live after {event_index:,} of "
        f"{len(graph.trace.events):,} events, by the stacks that allocated it"
    )
    hidden_count = len(graph.parent) - shown_count
    if hidden_count:
        hidden = count_text(hidden_count, "narrower frame")
        facts += f"; {hidden} left out"
    return (
        f'<text class="title" x="{_MARGIN}" y="20">{name}</text>\n'
        f'<text class="dim" x="{_MARGIN}" y="37">{escaped(facts)}</text>\n'
    )


def _box(graph: FlameGraph, placed: PlacedNode, y: float, colors: list[str]) -> str:
    """Return one box, its text and its tip."""
    x = _MARGIN + placed.x0
    width = max(placed.x1 - placed.x0 - 1, _MIN_WIDTH)
    frame = int(graph.frame[placed.node])
    color = colors[frame] if frame >= 0 else _ROOT_COLOR
    ink = "dark" if frame >= 0 else "pale"
    text = ""
    letter_count = int((width - 8) / _LETTER)
    if letter_count >= 3:
        label = node_label(graph, placed.node)
        if len(label) > letter_count:
            label = label[: letter_count - 1] + "\u2026"
        text = (
            f'<text class="{ink}" x="{x + 4:.1f}" y="{y + 14}">{escaped(label)}</text>'
        )
    tip = escaped(node_text(graph, placed.node))
    return (
        f'<g><title>{tip}</title><rect x="{x:.2f}" y="{y}" width="{width:.2f}" '
        f'height="{_ROW - 1}" rx="2" fill="{color}"/>{text}</g>\n'
    )
