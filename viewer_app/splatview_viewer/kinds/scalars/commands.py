"""Commands of the plots of a run."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from splatview_viewer.core.command import Command
from splatview_viewer.geometry.pan_zoom import moved_range
from splatview_viewer.kinds.axis_commands import axis_commands

if TYPE_CHECKING:
    from splatview_viewer.kinds.scalars.view import AxisQuantity, ScalarsView

AXIS_NAMES: dict[AxisQuantity, str] = {
    "step": "Steps",
    "time": "Time",
    "clock": "Clock",
}
"""The horizontal axes and their names."""


def _see_all(view: ScalarsView) -> None:
    view.state = view.state.fitted()


def _switch_scale(view: ScalarsView) -> None:
    view.state = replace(view.state, log_up=not view.state.log_up, heights={})


def _choose_axis(axis: AxisQuantity, view: ScalarsView) -> None:
    view.state = replace(view.state, across=axis, window=None)


def _smooth(weight: float, view: ScalarsView) -> None:
    view.state = replace(view.state, smoothing=weight)


def _move(view: ScalarsView, *, right: int = 0, closer: int = 0) -> None:
    window = moved_range(view.window(), right=right, closer=closer)
    view.state = replace(view.state, window=window)


COMMANDS: tuple[Command[ScalarsView], ...] = (
    Command("plots.fit", "See all of the curves", _see_all, ("F", "Home"), icon="fit"),
    *axis_commands("plots", _move),
    Command(
        "plots.log",
        "Vertical axes: linear or logarithmic",
        _switch_scale,
        ("L",),
        icon="scalars",
    ),
    *(
        Command(
            f"plots.across.{across}",
            f"Across: {name.lower()}",
            partial(_choose_axis, across),
            icon="scalars",
        )
        for across, name in AXIS_NAMES.items()
    ),
    Command("plots.raw", "Smoothing: none", partial(_smooth, 0.0), icon="sliders"),
    Command("plots.smooth", "Smoothing: 0.6", partial(_smooth, 0.6), icon="sliders"),
)
