"""The panes: what stands below the timeline in each tab, and the details of what was clicked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.kinds.snapshot.panes.lists import (
    draw_compare,
    draw_events,
    draw_leaks,
    draw_oom,
    draw_segments,
)
from splatview_viewer.kinds.snapshot.panes.sql import draw_sql
from splatview_viewer.kinds.snapshot.panes.stacks import draw_stacks
from splatview_viewer.kinds.snapshot.panes.texts import draw_details
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import board

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.snapshot.view import SnapshotView

PANES = {
    "compare": draw_compare,
    "details": draw_details,
    "events": draw_events,
    "leaks": draw_leaks,
    "oom": draw_oom,
    "segments": draw_segments,
    "sql": draw_sql,
    "stacks": draw_stacks,
}


def draw_pane(view: SnapshotView, name: str, rect: Rect) -> bool:
    """Draw a pane exactly over a rectangle; True when the picture has to be drawn again though the state is the
    same.
    """
    scale = view.scale
    ground = theme.PANEL if name == "details" else theme.BAR
    with board(
        f"snapshot {name} {id(view)}",
        rect,
        (12 * scale, 9 * scale),
        ground,
        scroll=name == "details",
    ):
        return bool(PANES[name](view))
