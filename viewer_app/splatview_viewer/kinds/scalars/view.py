"""Shows numbers over the course of a training: a plot for each, with one horizontal
axis for all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from splatview_viewer.core.events import Key
from splatview_viewer.core.view import Info, KeyHelp, Section, frame_of, meta_phrases
from splatview_viewer.kinds.scalars.curves import Curve, Curves, Origin, read_frame
from splatview_viewer.kinds.scalars.plots import draw_plots
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.plots import PlotView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.view import Value

_MOST_SMOOTH = 0.999


@dataclass
class ScalarsData:
    """The newest curves of a stream."""

    curves: Curves = field(default_factory=Curves)
    beside: Mapping[str, Sequence[Curve]] = field(default_factory=dict)
    """Curves to plot that were not logged, by the plot's title."""

    @property
    def plots(self) -> dict[str, Sequence[Curve]]:
        """The curves of each plot, by its title."""
        groups = self.curves.groups
        rate = self.curves.rate
        more = {**self.beside, **({} if rate is None else {"steps/s": [rate]})}
        return {
            **groups,
            **{title: curves for title, curves in more.items() if title not in groups},
        }


@dataclass(frozen=True)
class ScalarsState:
    """The part of the plots that is seen, and how."""

    across: Literal["step", "time", "clock"] = "step"
    """Unit of the horizontal axis: steps, time since the beginning, or the time of day.
    """
    smoothing: float = 0.6
    """Weight of the earlier values in a smoothed one, 0 to less than 1."""
    log_up: bool = False
    """The vertical axes are logarithmic."""
    window: tuple[float, float] | None = None
    """Range of the horizontal axis, in its own units; None: all."""
    heights: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Ranges of vertical axes that the user has moved, by the plot's title."""

    def fitted(self) -> ScalarsState:
        """Return the state that shows all there is, and what comes."""
        return replace(self, window=None, heights={})


class ScalarsView(PlotView[ScalarsData, ScalarsState]):
    """A plot for each curve, with one horizontal axis for all."""

    kind: ClassVar[str] = "scalars"
    keys = (
        KeyHelp("Plots", "Wheel, pinch", "Zoom along the axis"),
        KeyHelp("Plots", "Drag", "Move along the axis"),
        KeyHelp("Plots", "Right drag", "Zoom into a box"),
        KeyHelp("Plots", "F, double click", "See all of it"),
        KeyHelp("Plots", "L", "Logarithmic, or not"),
        KeyHelp("Plots", "Click in a legend", "Show or hide a curve"),
    )

    def take(self, link: str, value: Value) -> bool:
        frame = frame_of(self.kind, value)
        found = read_frame(frame.tensors, frame.meta)
        if frame.intact():
            self.data.curves = found
        return self.data.curves is found

    # -- what is seen ------------------------------------------------------------------

    @property
    def origin(self) -> Origin:
        """The horizontal axis, as for `Curve.across`."""
        if self.state.across == "step":
            return "step"
        if self.state.across == "clock":
            return "time"
        return (self.data.curves.begin, self.unit[0])

    def weight(self, curve: Curve) -> float:
        """Smoothing of a curve: 0 for those that were not logged."""
        return self.state.smoothing if curve in self.data.curves.all else 0.0

    @property
    def unit(self) -> tuple[float, str]:
        """Seconds of a unit of the time since the beginning, and its name."""
        span = self.data.curves.end - self.data.curves.begin
        return next(
            (
                (s, name)
                for s, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))
                if span > 2 * s
            ),
            (1.0, "seconds"),
        )

    def window(self) -> tuple[float, float]:
        """Range of the horizontal axis."""
        if self.state.window is not None:
            return self.state.window
        xs = [
            curve.across(self.origin)
            for curves in self.data.plots.values()
            for curve in curves
        ]
        low = min(float(x.min()) for x in xs)
        high = max(float(x.max()) for x in xs)
        room = 0.01 * (high - low)
        return (low - room, high + room) if high > low else (low - 0.5, low + 0.5)

    def plot(self, scale: float) -> None:
        draw_plots(self, scale)

    # -- controls ----------------------------------------------------------------------

    def handle(self, event: Event, rect: Rect) -> bool:
        if (
            isinstance(event, Key)
            and event.pressed
            and not event.mods & {"ctrl", "alt", "super"}
        ):
            if event.name in ("f", "home"):
                self.state = self.state.fitted()
            if event.name == "l" and not event.repeat:
                self.state = replace(
                    self.state, log_up=not self.state.log_up, heights={}
                )
        return False

    def panel(self) -> Sequence[Section]:
        return (Section("", self._controls),)

    def _controls(self) -> None:
        s = self.state
        before = s
        s = replace(
            s,
            across=ui.choice(
                "Horizontal",
                "The horizontal axis: training steps, or time",
                s.across,
                {"step": "Steps", "time": "Time since start", "clock": "By the clock"},
            ),
            smoothing=ui.slider(
                "Smoothing",
                "Weight of the past in the smoothed curve, as in TensorBoard; 0 draws "
                "the values alone",
                s.smoothing,
                (0.0, _MOST_SMOOTH),
                "%.3g",
                reset=0.6,
            ),
            log_up=ui.choice(
                "Vertical",
                "The scale of values; a logarithmic one leaves out what is not above "
                "zero",
                s.log_up,
                {False: "Linear", True: "Logarithmic"},
            ),
        )
        if s.across != before.across:
            s = replace(s, window=None)
        if s.log_up != before.log_up:
            s = replace(s, heights={})
        if s != s.fitted() and ui.buttons("Zoom", ["See all"], ["Key F"]) is not None:
            s = s.fitted()
        self.state = s

    # -- words -------------------------------------------------------------------------

    def info(self) -> Info:
        curves = self.data.curves
        out = [f"step {curves.step:,.12g}"]
        if curves.rate is not None:
            out.append(f"{curves.rate.last:.3g} steps/s")
        out.append(f"{len(curves.all)} scalars" if len(curves.all) > 1 else "1 scalar")
        out.append(f"{sum(curve.samples for curve in curves.all):,} values")
        if curves.trouble:
            out.append(curves.trouble)
        kept = sum(len(curve) for curve in curves.all)
        readout = ""
        if self.pointer is not None:
            row = int(np.argmin(abs(curves.clock.across(self.origin) - self.pointer)))
            stamp = time.strftime(
                "%H:%M:%S", time.localtime(float(curves.clock["time"][row]))
            )
            readout = f"step {curves.clock['step'][row]:,.12g}   {stamp}"
        return Info(
            [*out, *meta_phrases(curves.others, ())],
            (),
            readout,
            [f"{kept:,} points"],
            self.timings,
        )
