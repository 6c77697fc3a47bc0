"""Shows the numbers of a training: a plot for each group, all on one time axis."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from splatview_viewer.core.view import Info, KeyHelp, Section, frame_of, meta_phrases
from splatview_viewer.kinds.scalars.commands import AXIS_NAMES, COMMANDS
from splatview_viewer.kinds.scalars.curves import Curve, Curves, Origin, read_frame
from splatview_viewer.kinds.scalars.plots import draw_plots
from splatview_viewer.kinds.scalars.runs import curves_of_one, curves_of_runs
from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.plot_view import PlotView

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imgui_bundle import ImVec4

    from splatview_viewer.core.command import Command
    from splatview_viewer.core.view import Value
    from splatview_viewer.kinds.scalars.runs import DrawnCurve, PlottedRun

_MAX_SMOOTHING = 0.999
_TIME_UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))
"""Seconds of units of time, and their names; the largest that fits twice is used."""


@dataclass
class ScalarsData:
    """The newest curves of a stream."""

    curves: Curves = field(default_factory=Curves)
    beside: Mapping[str, Sequence[Curve]] = field(default_factory=dict)
    """Curves to plot that were not logged, by the plot's title."""

    @property
    def plots(self) -> dict[str, Sequence[Curve]]:
        """The curves of each plot, by its title; logged ones first."""
        plots: dict[str, Sequence[Curve]] = {**self.curves.groups}
        extra = dict(self.beside)
        if self.curves.rate is not None:
            extra["steps/s"] = [self.curves.rate]
        for title, curves in extra.items():
            plots.setdefault(title, curves)
        return plots


AxisQuantity = Literal["step", "time", "clock"]
"""What the horizontal axis counts: steps, seconds, or the time of day."""


@dataclass(frozen=True)
class ScalarsState:
    """The visible part of the plots, and how it is drawn."""

    across: AxisQuantity = "step"
    """Unit of the horizontal axis: steps, time since the beginning, or the time of day.
    """
    smoothing: float = 0.6
    """Weight of the earlier values in a smoothed one, 0 to less than 1."""
    log_up: bool = False
    """The vertical axes are logarithmic."""
    window: tuple[float, float] | None = None
    """Range of the horizontal axis, in its own units; None for all."""
    heights: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Ranges of vertical axes that the user has moved, by the plot's title."""
    curve: str = ""
    """Title of the only plot that is shown; "" for all."""
    legend: bool = True
    """Plots of several curves name them."""

    def fitted(self) -> ScalarsState:
        """Return the state that shows all there is, and what comes."""
        return replace(self, window=None, heights={})


class ScalarsView(PlotView[ScalarsData, ScalarsState]):
    """A plot for each curve, with one horizontal axis for all."""

    kind: ClassVar[str] = "scalars"
    keys = (
        KeyHelp("Plots", "Click", "Go to that step"),
        KeyHelp("Plots", "Wheel, pinch", "Zoom along the axis"),
        KeyHelp("Plots", "Drag", "Zoom into a box, or along the axis"),
        KeyHelp("Plots", "Right drag", "Move along the axis"),
        KeyHelp("Plots", "F, double click", "See all of it"),
        KeyHelp("Plots", "L", "Logarithmic, or not"),
        KeyHelp("Plots", "Click in a legend", "Show or hide a curve"),
    )

    def __init__(self, data: ScalarsData, state: ScalarsState) -> None:
        super().__init__(data, state)
        self.runs: Sequence[PlottedRun] = ()
        """The runs that are drawn together, its own among them; with fewer than two, only
        its own is drawn. Its caller sets them."""
        self.at_step: float | None = None
        """The step that is shown of the run's scene, which its caller sets."""
        self.pressed_plot = ""
        """The title of the plot in which the button of the pointer went down."""
        self.go_to: Callable[[float], None] | None = None
        """Shows a step of the run's scene; set by its caller."""

    def take(self, link: str, value: Value) -> bool:
        frame = frame_of(self.kind, value)
        curves = read_frame(frame.tensors, frame.meta)
        if not frame.intact():
            return False
        self.data.curves = curves
        return True

    # -- what is seen ------------------------------------------------------------------

    @property
    def has_several_runs(self) -> bool:
        """True if the curves of several runs are drawn together."""
        return sum(bool(run.data.curves.all) for run in self.runs) > 1

    def _all_plots(self) -> dict[str, list[DrawnCurve]]:
        if self.has_several_runs:
            return curves_of_runs(self)
        return curves_of_one(self)

    @property
    def titles(self) -> list[str]:
        """The titles of all plots that there are."""
        return list(self._all_plots())

    def drawn(self) -> dict[str, list[DrawnCurve]]:
        """Return the curves of each plot that is shown, by its title."""
        plots = self._all_plots()
        if self.state.curve in plots:
            return {self.state.curve: plots[self.state.curve]}
        return plots

    @property
    def origin(self) -> Origin:
        """The horizontal axis of its own run, as for `Curve.axis_values`."""
        return self.origin_of(self.data)

    def origin_of(self, data: ScalarsData) -> Origin:
        """Return the horizontal axis of a run, as for `Curve.axis_values`."""
        if self.state.across == "step":
            return "step"
        if self.state.across == "clock":
            return "time"
        return (data.curves.started_at, self.unit[0])

    def weight(self, curve: Curve, data: ScalarsData) -> float:
        """Return the smoothing of a curve: 0 for those that were not logged."""
        if curve in data.curves.all:
            return self.state.smoothing
        return 0.0

    @property
    def unit(self) -> tuple[float, str]:
        """Seconds of a unit of the time since the beginning, and its name."""
        drawn = [run.data for run in self.runs if run.data.curves.all] or [self.data]
        span = max(d.curves.ended_at - d.curves.started_at for d in drawn)
        for seconds, name in _TIME_UNITS:
            if span > 2 * seconds:
                return seconds, name
        return 1.0, "seconds"

    def window(self) -> tuple[float, float]:
        """Return the range of the horizontal axis."""
        if self.state.window is not None:
            return self.state.window
        low = math.inf
        high = -math.inf
        for curves in self.drawn().values():
            for curve in curves:
                x = curve.curve.axis_values(curve.origin)
                low = min(low, float(x.min()))
                high = max(high, float(x.max()))
        if high <= low:
            return low - 0.5, low + 0.5
        margin = 0.01 * (high - low)
        return low - margin, high + margin

    def ask_for_step(self, place: float) -> None:
        """Show the step at a place on the horizontal axis, of the run's scene."""
        if self.go_to is None:
            return
        clock = self.data.curves.clock
        row = int(abs(clock.axis_values(self.origin) - place).argmin())
        if self.state.across == "step":
            step = place
        else:
            step = float(clock["step"][row])
        self.go_to(step)

    @property
    def ground(self) -> ImVec4:
        return theme.PLOT

    def plot(self, scale: float) -> None:
        draw_plots(self, scale)

    # -- controls ----------------------------------------------------------------------

    def commands(self) -> Sequence[Command[Any]]:
        return COMMANDS

    def panel(self) -> Sequence[Section]:
        tip = "How the curves are drawn"
        return (Section("Plots", self.draw_controls, opened=True, tip=tip),)

    def draw_controls(self) -> None:
        """Draw the axes, the smoothing and what else decides how curves look."""
        previous = self.state
        axis: AxisQuantity = ui.segments(
            "Across",
            "The horizontal axis: steps, the time since the beginning of each run, or "
            "the time of day",
            previous.across,
            AXIS_NAMES,
        )
        s = replace(
            previous,
            across=axis,
            log_up=ui.segments(
                "Up",
                "The scale of values; a logarithmic one leaves out what is not above "
                "zero",
                previous.log_up,
                {False: "Linear", True: "Logarithmic"},
            ),
            smoothing=ui.slider(
                "Smoothing",
                "Weight of the past in the smoothed curve, as in TensorBoard; 0 draws "
                "the values alone",
                previous.smoothing,
                (0.0, _MAX_SMOOTHING),
                "%.3g",
                reset=0.6,
            ),
            legend=ui.check(
                "Legend", "Plots of several curves name them", previous.legend
            ),
        )
        if s.across != previous.across:
            s = replace(s, window=None)
        if s.log_up != previous.log_up:
            s = replace(s, heights={})
        if s != s.fitted():
            reason = None
        else:
            reason = "all of it is seen"
        tips = ["All there is, and what comes (F)"]
        if ui.buttons("Zoom", ["See all"], tips, reasons=[reason]) is not None:
            s = s.fitted()
        self.state = s

    def draw_curve_choice(self) -> None:
        """Draw the choice of the plot that is shown alone."""
        options = {"": "All", **{title: title for title in self.titles}}
        tip = "The plot that has all the room, or all plots"
        curve = ui.choice("Curve", tip, self.state.curve, options)
        self.state = replace(self.state, curve=curve)

    # -- words -------------------------------------------------------------------------

    def info(self) -> Info:
        curves = self.data.curves
        phrases = [f"step {curves.step:,.12g}"]
        if curves.rate is not None:
            phrases.append(f"{curves.rate.newest_value:.3g} steps/s")
        count = len(curves.all)
        phrases.append("1 scalar" if count == 1 else f"{count} scalars")
        phrases.append(f"{sum(curve.samples for curve in curves.all):,} values")
        if curves.trouble:
            phrases.append(curves.trouble)
        phrases += meta_phrases(curves.metadata, ())
        points = sum(len(curve) for curve in curves.all)
        run_count = len({one.label for d in self.drawn().values() for one in d})
        return Info(
            phrases,
            (),
            self._readout(),
            [f"{points:,} points"],
            title=self.state.curve.capitalize() if len(self.drawn()) == 1 else "",
            subtitle=f"{run_count} runs" if self.has_several_runs else "",
            facts=[f"smoothed {self.state.smoothing:.2g}"],
        )

    def _readout(self) -> str:
        """Return the step and the time of day below the pointer; "" where it is not."""
        if self.pointer is None:
            return ""
        clock = self.data.curves.clock
        row = int(np.argmin(abs(clock.axis_values(self.origin) - self.pointer)))
        stamp = time.strftime("%H:%M:%S", time.localtime(float(clock["time"][row])))
        return f"step {clock['step'][row]:,.12g}   {stamp}"
