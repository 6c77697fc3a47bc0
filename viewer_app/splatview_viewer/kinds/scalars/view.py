"""Shows numbers over the course of a training: a plot for each, with one horizontal axis for all."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from splatview_viewer.core.events import Key
from splatview_viewer.core.settings import ScalarsSettings
from splatview_viewer.core.view import KeyHelp, meta_phrases
from splatview_viewer.kinds.scalars.curves import Curve, Curves, Origin, read_frame
from splatview_viewer.ui.plot_view import PlotContent, PlotView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import moderngl

    from splatview_viewer.core.events import Event
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.gpu.work import GpuWork

_MOST_SMOOTH = 0.999

KEYS = (
    KeyHelp("Plots", "Wheel, pinch", "Zoom along the axis"),
    KeyHelp("Plots", "Drag", "Move along the axis"),
    KeyHelp("Plots", "Right drag", "Zoom into a box"),
    KeyHelp("Plots", "F, double click", "See all of it"),
    KeyHelp("Plots", "L", "Logarithmic, or not"),
    KeyHelp("Plots", "Click in a legend", "Show or hide a curve"),
)


class ScalarsContent(PlotContent):
    """The newest curves of a stream."""

    kind: ClassVar[str] = "scalars"

    def __init__(self) -> None:
        super().__init__()
        self.curves = Curves()
        self.beside: Mapping[str, Sequence[Curve]] = {}
        """Curves to plot that were not logged, by the plot's title."""

    def read(self, tensors: Mapping[str, Any], meta: Mapping[str, Any]) -> Curves:
        return read_frame(tensors, meta)

    def take(self, value: Curves) -> None:
        self.curves = value

    def show_beside(self, curves: Mapping[str, Sequence[Curve]]) -> None:
        """Plot these as well."""
        self.beside = curves
        self.changes += 1

    @property
    def plots(self) -> dict[str, Sequence[Curve]]:
        """The curves of each plot, by its title."""
        if not self.curves.all:
            return {}
        out: dict[str, Sequence[Curve]] = dict(self.curves.groups)
        for title, curves in self.beside.items():
            if curves and title not in out:
                out[title] = curves
        if "steps/s" not in out and (rate := self.curves.rate) is not None:
            out["steps/s"] = [rate]
        return out


@dataclass(frozen=True)
class Seen:
    """The part of the plots that is seen."""

    across: tuple[float, float] | None = None
    """What the horizontal axis covers, in its own units; None: all."""
    up: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """The same of vertical axes that the user has chosen, by the plot's title."""


class ScalarsView(PlotView[ScalarsContent, ScalarsSettings, Seen]):
    """A plot for each curve, with one horizontal axis for all."""

    kind: ClassVar[str] = "scalars"
    keys: Sequence[KeyHelp] = KEYS

    def __init__(self, ctx: moderngl.Context | None, settings: ScalarsSettings | None = None, *,
                 work: GpuWork | None = None, beside: ScalarsView | None = None) -> None:
        super().__init__(beside.content if beside is not None else ScalarsContent(), settings or ScalarsSettings(),
                         Seen())

    # -- what is seen -------------------------------------------------------------------------------------------

    @property
    def origin(self) -> Origin:
        """The horizontal axis, as for `Curve.across`."""
        if self.settings.across == "step":
            return "step"
        return "time" if self.settings.across == "clock" else (self.content.curves.begin, self.unit[0])

    def weight(self, curve: Curve) -> float:
        """How much a curve is smoothed: only what was logged is."""
        return self.settings.smoothing if curve in self.content.curves.all else 0.0

    @property
    def unit(self) -> tuple[float, str]:
        """Seconds of a unit of the time since the beginning, and its name."""
        span = self.content.curves.end - self.content.curves.begin
        return next(((s, name) for s, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))
                     if span > 2 * s), (1.0, "seconds"))

    def window(self) -> tuple[float, float]:
        """What the horizontal axis covers."""
        if self.state.across is not None:
            return self.state.across
        found = [(float(x.min()), float(x.max())) for curves in self.content.plots.values() for curve in curves
                 if len(x := curve.across(self.origin))]
        low, high = min(f[0] for f in found), max(f[1] for f in found)
        if self.settings.log_across and self.settings.across != "clock":
            positive = [float(x[x > 0].min()) for curves in self.content.plots.values() for curve in curves
                        if (x := curve.across(self.origin)).max() > 0]
            low = min(positive, default=0.1)
            return low, max(high, low * 1.01)
        room = 0.01 * (high - low)
        return (low - room, high + room) if high > low else (low - 0.5, low + 0.5)

    def fit(self, across: bool = True, up: bool = True) -> None:
        """See all there is, and what comes."""
        self.state = Seen(None if across else self.state.across, {} if up else self.state.up)

    def plot(self, scale: float) -> None:
        from splatview_viewer.kinds.scalars.plots import draw_plots

        draw_plots(self, scale)

    # -- hands ---------------------------------------------------------------------------------------------------

    def handle(self, event: Event, rect: Rect) -> bool:
        if isinstance(event, Key) and event.pressed and not event.mods & {"ctrl", "alt", "super"}:
            if event.name in ("f", "home"):
                self.fit()
                return True
            if event.name == "l" and not event.repeat:
                self.settings.log_up = not self.settings.log_up
                self.fit(across=False)
                return True
        return False

    def panel(self) -> bool:
        from imgui_bundle import imgui

        from splatview_viewer.ui import widgets as ui

        s, before = self.settings, replace(self.settings)
        s.across = ui.choice("Across", s.across, {"step": "Steps", "time": "Time since start", "clock": "By the clock"})
        s.smoothing = ui.slider("Smoothing", s.smoothing, (0.0, _MOST_SMOOTH), "%.3g", reset=0.6)
        s.log_up = ui.choice("Vertical", s.log_up, {False: "Linear", True: "Logarithmic"})
        if s.across != "clock":
            s.log_across = ui.choice("Horizontal", s.log_across, {False: "Linear", True: "Logarithmic"})
        s.outliers = ui.check("Outliers", s.outliers)
        imgui.set_item_tooltip("Whether plots are as high as the values that stand out most")
        s.columns = ui.choice("Columns", s.columns, {0: "Automatic", 1: "1", 2: "2", 3: "3", 4: "4"})
        self.fit((s.across, s.log_across) != (before.across, before.log_across),
                 (s.log_up, s.outliers) != (before.log_up, before.outliers))
        if self.state != Seen() and ui.buttons("Zoom", ["See all"], ["Key F"]) is not None:
            self.fit()
            return True
        return s != before

    # -- words ---------------------------------------------------------------------------------------------------

    @property
    def details(self) -> list[str]:
        curves = self.content.curves
        if not curves.all:
            return []
        out = [f"step {curves.step:,.12g}"]
        if curves.rate is not None:
            out.append(f"{curves.rate.last:.3g} steps/s")
        out.append(f"{len(curves.all)} scalars" if len(curves.all) > 1 else "1 scalar")
        out.append(f"{sum(curve.samples for curve in curves.all):,} values")
        if curves.trouble:
            out.append(curves.trouble)
        return [*out, *meta_phrases(curves.others, ())]

    @property
    def readout(self) -> str:
        x, curves = self.pointer, self.content.curves
        if x is None or not curves.all:
            return ""
        clock = curves.clock
        at = clock.across(self.origin)
        row = int(np.argmin(abs(at - x)))
        stamp = time.strftime("%H:%M:%S", time.localtime(float(clock["time"][row])))
        return f"step {clock['step'][row]:,.12g}   {stamp}"

    @property
    def path(self) -> list[str]:
        kept = sum(len(curve) for curve in self.content.curves.all)
        return [f"{kept:,} points"] if kept else []
