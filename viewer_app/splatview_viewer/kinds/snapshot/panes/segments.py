"""The pane of segments: a row for each, with its blocks drawn to scale."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.quantities import count_text, exact_size_text, size_text
from splatview_viewer.kinds.snapshot.panes.parts import (
    FREE,
    USED,
    WAITING,
    draw_choice,
    draw_moment_line,
    draw_size_bar,
    latest_answer,
    size_or_blank,
)
from splatview_viewer.kinds.snapshot.panes.table import (
    Cell,
    TableColumn,
    TableRows,
    draw_table,
)
from splatview_viewer.snapshot.analysis.details import summary
from splatview_viewer.snapshot.analysis.segments import (
    ACTIVE,
    INACTIVE,
    PENDING,
    SegmentsAt,
    segments_at,
)
from splatview_viewer.snapshot.model import address_text, pool_text
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import pointer

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.view import SnapshotView

_STATES = ("free", "in use", "freed, waiting for another stream")
"""Texts of the states of blocks."""
_ORDERS = {"size": "Size", "address": "Address", "free": "Free inside"}
_DARK = ImVec4(0.235, 0.255, 0.285, 1.0)
"""Blocks in use that are not highlighted while others are."""


class _BarRect(NamedTuple):
    """The rectangle of a segment, in pixels."""

    x: float
    y: float
    width: float
    height: float


def draw_segments(view: SnapshotView) -> bool:
    """Draw a row for each segment, as long as it is large, with its blocks."""
    snapshot = view.content.snapshot
    trace = view.trace
    event_index = draw_moment_line(view)
    if event_index is None:
        return False
    latest = latest_answer(
        view,
        "segments",
        ("segments", view.device, event_index),
        lambda: segments_at(snapshot, trace, event_index),
    )
    if latest is None:
        return False
    segments: SegmentsAt = latest.answer
    order = draw_choice(view, "order", _ORDERS)
    _draw_totals(segments)
    table = _SegmentTable(view, segments, order)

    def on_click(row: int, double: bool) -> None:
        if view.state.hovered is not None:
            view.change(selected=view.state.hovered)

    return draw_table(
        view,
        "segments",
        TableRows(
            answer=segments,
            count=len(segments),
            columns=table.columns,
            cells=table.cells,
            on_click=on_click,
            tooltip=table.tooltip,
            allocation=lambda row: table.hovered_allocation(),
            empty_text="Nothing was reserved then",
        ),
    )


def _draw_totals(segments: SegmentsAt) -> None:
    """Draw how much memory is reserved, in use and free."""
    free_sizes = segments.block_size[segments.block_state == INACTIVE]
    largest = int(free_sizes.max(initial=0))
    draw_size_bar(
        {
            f"reserved in {count_text(len(segments), 'segment')}": (
                segments.reserved,
                None,
            ),
            "in use": (segments.active, USED),
            "waiting for another stream": (segments.pending, WAITING),
            "free": (segments.free, FREE),
            f"the largest free block of {len(free_sizes):,}": (largest, None),
        }
    )


class _SegmentTable:
    """The cells of the table of segments, and the block under the pointer."""

    def __init__(self, view: SnapshotView, segments: SegmentsAt, order: str) -> None:
        """Sort the segments. by: a key of the orders."""
        self._view = view
        self._snapshot = view.content.snapshot
        self._segments = segments
        is_free = segments.block_state == INACTIVE
        free_before = np.append(0, np.cumsum(np.where(is_free, segments.block_size, 0)))
        self._free_bytes = np.diff(free_before[segments.block_start])
        """Free bytes of each segment."""
        sort_keys = {
            "size": -segments.size,
            "address": segments.addr,
            "free": -self._free_bytes,
        }
        self._order = np.argsort(sort_keys[order], kind="stable")
        self._largest = max(int(segments.size.max(initial=1)), 1)
        self._colors = _block_colors(view, segments)
        self._hovered_block: int | None = None
        self._has_pools = len(self._snapshot.pools) > 1
        self.columns = [
            TableColumn("Segment", 8.6),
            TableColumn("Size", 5.6, True),
            TableColumn("Free", 5.6, True, "Bytes of its blocks that are free"),
        ]
        if self._has_pools:
            self.columns.append(TableColumn("Pool", 8))
        self.columns.append(TableColumn("Blocks"))

    def cells(self, row: int) -> list[Cell | str]:
        """Return the cells of a row."""
        segment = int(self._order[row])
        free_bytes = int(self._free_bytes[segment])
        cells: list[Cell | str] = [
            Cell(address_text(int(self._segments.addr[segment])), theme.DIM),
            size_text(int(self._segments.size[segment])),
            Cell(size_or_blank(free_bytes), theme.DIM),
        ]
        if self._has_pools:
            cells.append(self._pool_cell(segment))

        def paint(
            draw: imgui.ImDrawList, x0: float, x1: float, y: float, height: float
        ) -> None:
            share = int(self._segments.size[segment]) / self._largest
            rect = _BarRect(x0, y, max((x1 - x0) * share, 2.0), height)
            block = self._draw_blocks(draw, segment, rect)
            if self._hovered_block is None:
                self._hovered_block = block

        cells.append(Cell("", paint=paint))
        return cells

    def _pool_cell(self, segment: int) -> Cell:
        index = int(self._segments.pool[segment])
        # The default pool needs no name.
        if index == 0:
            return Cell("")
        return Cell(pool_text(self._snapshot.pool(index)), theme.DIM)

    def hovered_allocation(self) -> int | None:
        """Return the allocation of the block under the pointer, or None."""
        if self._hovered_block is None:
            return None
        allocation = int(self._segments.block_allocation[self._hovered_block])
        if allocation >= 0:
            return allocation
        return None

    def tooltip(self, row: int) -> str:
        """Return a text about the block under the pointer."""
        block = self._hovered_block
        if block is None:
            return ""
        size = exact_size_text(int(self._segments.block_size[block]))
        state = _STATES[min(int(self._segments.block_state[block]), len(_STATES) - 1)]
        lines = [
            f"{size}, {state}",
            address_text(int(self._segments.block_addr[block])),
        ]
        allocation = self.hovered_allocation()
        if allocation is not None:
            lines.append(summary(self._snapshot, self._view.trace, allocation))
        return "\n".join(lines)

    def _draw_blocks(
        self, draw: imgui.ImDrawList, segment: int, rect: _BarRect
    ) -> int | None:
        """Draw one segment, each of its pixels in the colour of the block there.

        Returns the block under the pointer, or None.
        """
        blocks = self._block_of_pixels(segment, max(int(rect.width), 1))
        mouse = pointer()
        is_over_y = rect.y - 2 <= mouse.y < rect.y + rect.height + 2
        is_over_x = rect.x <= mouse.x < rect.x + len(blocks)
        is_over = is_over_x and is_over_y and imgui.is_window_hovered()
        selected = self._view.state.selected
        hovered_block = None
        edges = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), len(blocks)]
        for start, end in pairwise(edges):
            block = int(blocks[start])
            gap = 1 if end - start > 3 else 0
            low = ImVec2(rect.x + start, rect.y)
            high = ImVec2(rect.x + end - gap, rect.y + rect.height)
            draw.add_rect_filled(low, high, int(self._colors[block]))
            if is_over and start <= mouse.x - rect.x < end:
                hovered_block = block
                draw.add_rect_filled(low, high, theme.u32(ImVec4(1, 1, 1, 0.18)))
            allocation = int(self._segments.block_allocation[block])
            if selected is not None and allocation == selected:
                thickness = 1.5 * theme.scale()
                draw.add_rect(low, high, theme.u32(theme.TEXT), thickness=thickness)
        return hovered_block

    def _block_of_pixels(self, segment: int, width: int) -> np.ndarray:
        """Return the block at the centre of each pixel of a segment, (width,)."""
        segments = self._segments
        first = int(segments.block_start[segment])
        end = int(segments.block_start[segment + 1])
        bytes_per_pixel = int(segments.size[segment]) / width
        offsets = (np.arange(width) + 0.5) * bytes_per_pixel
        addr = segments.addr[segment] + offsets.astype(np.uint64)
        index = np.searchsorted(segments.block_addr[first:end], addr, "right")
        return first + index.clip(1) - 1


def _block_colors(view: SnapshotView, segments: SegmentsAt) -> np.ndarray:
    """Return each block's colour, uint32 (b,); of blocks in use as in the timeline."""
    state = segments.block_state
    allocation = segments.block_allocation
    colors = np.full(len(state), theme.u32(FREE), np.uint32)
    colors[state == ACTIVE] = theme.u32(USED)
    colors[state == PENDING] = theme.u32(WAITING)
    used = np.flatnonzero((state == ACTIVE) & (allocation >= 0))
    timeline_colors = view.content.colors(view.device, view.state.color_by)
    if timeline_colors is not None:
        classes = timeline_colors.classes[allocation[used]]
        red, green, blue = timeline_colors.palette[classes].astype(np.uint32).T
        colors[used] = red | green << 8 | blue << 16 | 0xFF000000
    _, mask = view.content.highlight_mask(
        view.device, view.state.search, view.state.highlight
    )
    if mask is not None:
        colors[used[~mask[allocation[used]]]] = theme.u32(_DARK)
    return colors
