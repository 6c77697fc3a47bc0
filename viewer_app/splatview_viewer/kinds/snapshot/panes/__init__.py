"""The panes: what stands below the timeline in each tab, and the details of what was clicked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.kinds.snapshot.panes.lists import COMPARE, EVENTS, LEAKS, OOM, SEGMENTS
from splatview_viewer.kinds.snapshot.panes.sql import draw_sql
from splatview_viewer.kinds.snapshot.panes.stacks import draw_stacks
from splatview_viewer.kinds.snapshot.panes.table import QueryPane
from splatview_viewer.kinds.snapshot.panes.texts import draw_about, draw_details
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import board

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.snapshot.view import SnapshotView

PANES = {"about": draw_about, "compare": COMPARE, "details": draw_details, "events": EVENTS, "leaks": LEAKS,
         "oom": OOM, "segments": SEGMENTS, "sql": draw_sql, "stacks": draw_stacks}


def draw_pane(view: SnapshotView, name: str, rect: Rect) -> bool:
    """Draw a pane exactly over a rectangle; True when the picture has to be drawn again though the state is the
    same."""
    pane, scale = PANES[name], view.scale
    ground = theme.PANEL if name == "details" else theme.BAR
    with board(f"snapshot {name} {id(view)}", rect, (12 * scale, 9 * scale), ground,
               scroll=name in ("about", "details")):
        return pane.draw(view, name) if isinstance(pane, QueryPane) else bool(pane(view))
