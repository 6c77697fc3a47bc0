"""Texts over the plot: the device, what is being done, what the snapshot lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.core.quantities import count_text
from splatview_viewer.snapshot.model import device_text

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.view import SnapshotView


def device_caption(view: SnapshotView) -> str:
    """Return the shown device and the number of all; "" where there is only one GPU."""
    count = len(view.content.snapshot.traces)
    device = view.trace.device
    if count > 1:
        return f"{device_text(device)}, one of {count} devices"
    if device >= 0:
        return ""
    return device_text(device)


def status_caption(view: SnapshotView) -> str:
    """Return what is wrong, or being worked on; "" where all is done."""
    if view.picture.error:
        return f"It cannot be painted: {view.picture.error}"
    if view.content.layout_fault:
        return view.content.layout_fault
    task = view.content.current_work
    if not task and view.picture.current is None:
        task = "Painting"
    if not task:
        return ""
    return f"{task} \u2026"


def missing_caption(view: SnapshotView) -> str:
    """Return what the snapshot lacks for its plot; "" where it lacks nothing."""
    trace = view.trace
    if not len(trace.allocations) and not len(trace.spans):
        events = count_text(len(trace.events), "event")
        return f"Nothing was allocated or reserved in this trace ({events})"
    if view.tab == "addresses" and not len(trace.spans):
        return "The snapshot names no segments: only the addresses of allocations are known"
    return ""
