"""Commands of the plots of a run."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from splatview_viewer.core.command import Command
from splatview_viewer.geometry.pan_zoom import moved_range

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


def _move(right: int, view: ScalarsView) -> None:
    view.state = replace(view.state, window=moved_range(view.window(), right=right))


def _zoom(closer: int, view: ScalarsView) -> None:
    view.state = replace(view.state, window=moved_range(view.window(), closer=closer))


def _move_commands() -> list[Command[ScalarsView]]:
    """Return the commands that move the horizontal axis."""
    moves = (
        ("left", "Move along the axis: left", "Left", partial(_move, -1)),
        ("right", "Move along the axis: right", "Right", partial(_move, 1)),
        ("closer", "Zoom into the middle", "=", partial(_zoom, 1)),
        ("farther", "Zoom out", "-", partial(_zoom, -1)),
    )
    commands: list[Command[ScalarsView]] = []
    for name, title, key, run in moves:
        full_name = f"plots.{name}"
        command = Command(full_name, title, run, (key,), icon="scalars", repeats=True)
        commands.append(command)
    return commands


COMMANDS: tuple[Command[ScalarsView], ...] = (
    Command("plots.fit", "See all of the curves", _see_all, ("F", "Home"), icon="fit"),
    *_move_commands(),
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
