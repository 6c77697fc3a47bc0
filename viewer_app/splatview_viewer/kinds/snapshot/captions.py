"""Texts over the plot, and beside it: the device, what is done, what is lacking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.core.quantities import count_text, size_text
from splatview_viewer.core.readings import Reading, Readings
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


def event_text(moment: int) -> str:
    """Return a moment for users, by the event before it."""
    if moment <= 0:
        return "before the first event"
    return f"after event {moment - 1:,}"


def readings_of(view: SnapshotView) -> Readings | None:
    """Return the live bytes under the pointer, otherwise at the chosen line.

    None until they are known.
    """
    partner = view.two_runs.partner
    if partner is not None:
        return _compared_readings(view, partner)
    bands = view.bands
    event_index = view.state.pointed_moment
    title = "At the pointer"
    if event_index is None:
        event_index = view.moment
        title = "At the line" if view.state.moment is not None else "At the peak"
    if bands is None or event_index is None or event_index >= len(bands.live):
        return None
    values = (
        Reading("live", size_text(int(bands.live[event_index]))),
        Reading("reserved", size_text(int(bands.reserved[event_index]))),
    )
    return Readings(title, event_text(event_index), values)


def _compared_readings(view: SnapshotView, partner: SnapshotView) -> Readings | None:
    """Return the live bytes of A and of B; None until they are known."""
    runs = view.two_runs
    event_indices = runs.pointed(partner)
    title = "At the pointer"
    if event_indices is None:
        event_indices = runs.line(partner)
        title = "At the line"
    if event_indices is None:
        return None
    values = []
    places = []
    for badge, side in zip("AB", runs.sides(partner), strict=True):
        bands = side.bands
        event_index = event_indices[0] if side is view else event_indices[1]
        if bands is None or event_index >= len(bands.live):
            return None
        values.append(Reading("live", size_text(int(bands.live[event_index])), badge))
        places.append(event_index)
    return Readings(title, event_text(places[0]), values)
