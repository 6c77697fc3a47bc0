"""The panes: the area below the timeline in each tab, and details of an allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.kinds.snapshot.panes.details import draw_details
from splatview_viewer.kinds.snapshot.panes.events import draw_events
from splatview_viewer.kinds.snapshot.panes.growth import (
    draw_leaks,
    draw_oom,
)
from splatview_viewer.kinds.snapshot.panes.segments import draw_segments
from splatview_viewer.kinds.snapshot.panes.sql import draw_sql
from splatview_viewer.kinds.snapshot.panes.stacks import draw_stacks
from splatview_viewer.ui import theme
from splatview_viewer.ui.boards import board

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.snapshot.view import SnapshotView

PANES = {
    "details": draw_details,
    "events": draw_events,
    "leaks": draw_leaks,
    "oom": draw_oom,
    "segments": draw_segments,
    "sql": draw_sql,
    "stacks": draw_stacks,
}


def draw_pane(view: SnapshotView, name: str, rect: Rect) -> bool:
    """Draw a pane over a rectangle.

    Returns True when the picture has to be drawn again though the state is the same.
    """
    scale = view.scale
    is_details = name == "details"
    with board(
        f"snapshot {name} {id(view)}",
        rect,
        (12 * scale, 9 * scale),
        theme.PANEL,
        scroll=is_details,
    ):
        return bool(PANES[name](view))
