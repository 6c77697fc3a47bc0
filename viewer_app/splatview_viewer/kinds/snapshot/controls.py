"""The sections of the panel about a memory snapshot."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from splatview_viewer.core.view import Section
from splatview_viewer.kinds.snapshot.compare_panel import compare_sections
from splatview_viewer.kinds.snapshot.panes.details import (
    allocation_state,
    draw_allocation,
)
from splatview_viewer.kinds.snapshot.state import COLORS, MEASURES, SnapshotState
from splatview_viewer.snapshot.model import device_text
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.kinds.snapshot.view import SnapshotView

_UNITS = {"events": "Events", "time": "Clock"}


def sections_of(view: SnapshotView) -> Sequence[Section]:
    """Return the sections of the panel for a snapshot."""
    return (
        _look_section(view),
        Section(
            "Chosen allocation",
            partial(draw_allocation, _view_with_selection(view)),
            opened=True,
            tip="Size, address, lifetime and stack of the allocation that was clicked",
            tab="data",
            state=allocation_state(_view_with_selection(view)),
        ),
        *compare_sections(view),
        *_look_of_compared(view),
    )


def _view_with_selection(view: SnapshotView) -> SnapshotView:
    """Return the view whose allocation is chosen, of those that are compared."""
    partner = view.two_runs.partner
    if partner is None or view.state.selected is not None:
        return view
    if partner.state.selected is None:
        return view
    return partner


def _look_of_compared(view: SnapshotView) -> Sequence[Section]:
    """Return the section about the bands as the tab Compare has it, closed."""
    if view.state.shows == "alone":
        return ()
    return (replace(_look_section(view), tab="compare", opened=False),)


def _look_section(view: SnapshotView) -> Section:
    """Return the section about how the bands look."""
    color_name = COLORS[view.state.color_by].lower()
    axis = "time" if view.state.unit == "time" else "event"
    return Section(
        "Look of the bands",
        partial(_draw_look, view),
        opened=True,
        tip="Which memory is shown, in which colours, along which axis",
        state=f"by {color_name}, by {axis}",
        reset=partial(_reset_look, view),
    )


def _reset_look(view: SnapshotView) -> None:
    """Show the bands as at first, of the same device."""
    default = SnapshotState()
    view.change(
        color_by=default.color_by,
        measure=default.measure,
        unit=default.unit,
        legend=default.legend,
        x=view.state.x if view.state.unit == default.unit else None,
    )


def _draw_look(view: SnapshotView) -> None:
    """Draw the controls of the bands, and change the state as the user does."""
    _choose_device(view)
    state = view.state
    color_by: Any = ui.choice(
        "Colour",
        "The property of an allocation that its colour stands for",
        state.color_by,
        COLORS,
    )
    shown_measure: Any = view.measure
    measure = ui.segments(
        "Bytes",
        "Requested: bytes that were asked for, until the program asked to free them. "
        "Rounded: the blocks that the allocator took. Active: requested bytes until the "
        "free was completed, with those that wait for another stream",
        shown_measure,
        MEASURES,
        [view.content.why_not_measured(view.device, name) for name in MEASURES],
    )
    unit = _choose_unit(view, state.unit)
    legend = ui.check("Legend", "The list of colours over the timeline", state.legend)
    x = state.x if unit == state.unit else None
    if measure != shown_measure:
        view.change(measure=measure, y=None)
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
    chosen_unit: Any = ui.segments(
        "Axis",
        "Events at equal distances, or by the time at which they happened",
        unit,
        _UNITS,
    )
    return chosen_unit
