"""The controls of a memory snapshot in the panel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from splatview_viewer.kinds.snapshot.state import COLORS
from splatview_viewer.snapshot.model import device_text
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.view import SnapshotView


def draw_controls(view: SnapshotView) -> None:
    """Draw the controls of the panel, and change the state as the user does."""
    _choose_device(view)
    state = view.state
    color_by: Any = ui.choice(
        "Colour",
        "The property of an allocation that its colour stands for",
        state.color_by,
        COLORS,
    )
    unit = _choose_unit(view, state.unit)
    legend = ui.check("Legend", "The list of colours over the timeline", state.legend)
    x = state.x if unit == state.unit else None
    view.change(unit=unit, color_by=color_by, legend=legend, x=x)


def _choose_device(view: SnapshotView) -> None:
    """Draw the choice of the device, if there are several."""
    traces = view.content.snapshot.traces
    if len(traces) < 2:
        return
    names = {i: device_text(trace.device) for i, trace in enumerate(traces)}
    tip = "The device whose memory is shown"
    device = ui.choice("Device", tip, view.device, names)
    if device != view.device:
        view.state = view.state.for_device(device)


def _choose_unit(
    view: SnapshotView, unit: Literal["events", "time"]
) -> Literal["events", "time"]:
    """Draw the choice of the axis's unit, and return it."""
    axis = view.content.axis(view.device, "time")
    if axis is None:
        return unit
    if not axis.has_times:
        return "events"
    return ui.choice(
        "Axis",
        "Events at equal distances, or by the time at which they happened",
        unit,
        {"events": "Events", "time": "Clock"},
    )
