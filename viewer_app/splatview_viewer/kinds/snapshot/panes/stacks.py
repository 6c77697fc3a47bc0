"""The pane of stacks: a flame graph of calls, and a table of groups of allocations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_viewer.core.quantities import size_text
from splatview_viewer.kinds.snapshot.panes.flame import draw_flame
from splatview_viewer.kinds.snapshot.panes.parts import (
    draw_choice,
    draw_label,
    draw_moment_line,
    latest_answer,
    right_aligned_texts,
)
from splatview_viewer.kinds.snapshot.panes.table import draw_table, group_rows
from splatview_viewer.snapshot.analysis.flame import flame_graph
from splatview_viewer.snapshot.analysis.tables import GROUPINGS, group_allocations
from splatview_viewer.snapshot.model import live_mask
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    import numpy as np

    from splatview_viewer.kinds.snapshot.view import SnapshotView

_SCOPES = {"moment": "Live then", "all": "Ever allocated", "found": "Found"}
"""Allocations that the pane can be of."""


def draw_stacks(view: SnapshotView) -> bool:
    """Draw a flame graph above, a table below.

    Returns True when the picture has to be drawn again.
    """
    search = view.state.search.strip()
    snapshot = view.content.snapshot
    trace = view.trace
    scopes = {key: title for key, title in _SCOPES.items() if key != "found" or search}
    scope = draw_choice(view, "of", scopes)
    scope_key: int | str | None = None
    hits_mask: np.ndarray | None = None
    if scope == "moment":
        scope_key = draw_moment_line(view, is_after=True)
        if scope_key is None:
            return False
    elif scope == "found":
        hits = view.content.hits(view.device, search)
        if hits is None:
            return False
        scope_key = search
        hits_mask = hits.mask

    def members() -> np.ndarray | None:
        """Return the allocations that the pane is of, bool (A,); None for all."""
        if isinstance(scope_key, int):
            return live_mask(trace, scope_key)
        return hits_mask

    available_height = imgui.get_content_region_avail().y
    flame_height = available_height * 0.52 - imgui.get_frame_height()
    needs_redraw = draw_flame(
        view,
        ("flame", view.device, scope_key),
        lambda: flame_graph(snapshot, trace, members()),
        max(flame_height, 60 * view.scale),
    )
    draw_label("By")
    grouping = draw_choice(view, "by", GROUPINGS)
    latest = latest_answer(
        view,
        "table",
        ("group", view.device, scope_key, grouping),
        lambda: group_allocations(snapshot, trace, members(), grouping),
        "Counting\u2026",
    )
    if latest is None:
        return needs_redraw
    table = latest.answer
    right_aligned_texts(
        (f"{len(table):,} rows, {size_text(table.total)}", theme.DIM),
    )
    if scope == "moment":
        empty_text = "Nothing is live then"
    else:
        empty_text = "Nothing"
    rows = group_rows(view, latest.key, table, GROUPINGS[table.grouping], empty_text)
    return draw_table(view, "table", rows) or needs_redraw
