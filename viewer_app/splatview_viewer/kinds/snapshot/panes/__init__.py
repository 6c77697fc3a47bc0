"""The panes: what stands below the timeline in each tab, and the details of what was clicked."""

from __future__ import annotations

from splatview_viewer.kinds.snapshot.panes.facts import AboutPane, DetailsPane
from splatview_viewer.kinds.snapshot.panes.findings import ComparePane, LeaksPane, OomPane
from splatview_viewer.kinds.snapshot.panes.lists import EventsPane, SegmentsPane
from splatview_viewer.kinds.snapshot.panes.sql import SqlPane
from splatview_viewer.kinds.snapshot.panes.stacks import StacksPane

PANES = {pane.name: pane for pane in (AboutPane, ComparePane, DetailsPane, EventsPane, LeaksPane, OomPane, SegmentsPane,
                                      SqlPane, StacksPane)}
