"""The curves that are drawn in each plot: of one run, or of several together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from imgui_bundle import ImVec4

from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from splatview_viewer.kinds.scalars.curves import Curve, Origin
    from splatview_viewer.kinds.scalars.view import ScalarsData, ScalarsView

_FIRST_DASHED = 4
"""Index of the first run that is dashed, as colours come to look alike."""
_ON_DARK = (
    (0.45, 0.69, 0.98),
    (0.96, 0.69, 0.37),
    (0.46, 0.82, 0.57),
    (0.96, 0.55, 0.56),
    (0.74, 0.63, 0.97),
    (0.38, 0.80, 0.82),
    (0.91, 0.80, 0.42),
    (0.89, 0.60, 0.83),
)
_ON_LIGHT = (
    (0.10, 0.42, 0.80),
    (0.78, 0.40, 0.03),
    (0.09, 0.52, 0.25),
    (0.77, 0.18, 0.22),
    (0.43, 0.29, 0.76),
    (0.03, 0.49, 0.52),
    (0.54, 0.43, 0.02),
    (0.65, 0.22, 0.55),
)


def color_of(index: int) -> ImVec4:
    """Return the colour of a plot's curve, by its index, for the theme in use."""
    colors = _ON_LIGHT if theme.PANEL.x > 0.5 else _ON_DARK
    return ImVec4(*colors[index % len(colors)], 1.0)


@dataclass(frozen=True, eq=False)
class PlottedRun:
    """A run whose curves are drawn together with those of others."""

    name: str
    color: int
    """Index for `theme.run_color`."""
    data: ScalarsData


class DrawnCurve(NamedTuple):
    """A curve in a plot."""

    curve: Curve
    label: str
    color: ImVec4
    origin: Origin
    """Unit of the horizontal axis."""
    weight: float
    """Of the smoothing."""
    is_dashed: bool = False


def curves_of_one(view: ScalarsView) -> dict[str, list[DrawnCurve]]:
    """Return the curves of a view's own run, by the titles of their plots."""
    plots = {}
    for title, curves in view.data.plots.items():
        plots[title] = [
            DrawnCurve(
                curve,
                curve.short_name,
                color_of(i),
                view.origin,
                view.weight(curve, view.data),
            )
            for i, curve in enumerate(curves)
        ]
    return plots


def curves_of_runs(view: ScalarsView) -> dict[str, list[DrawnCurve]]:
    """Return the curves of several runs: a plot for each name, a colour for each run."""
    plots: dict[str, list[DrawnCurve]] = {}
    for run in view.runs:
        if not run.data.curves.all:
            continue
        color = theme.run_color(run.color)
        origin = view.origin_of(run.data)
        for title, curves in run.data.plots.items():
            for curve in curves:
                is_logged = curve in run.data.curves.all
                name = curve.name if is_logged else title
                drawn_curve = DrawnCurve(
                    curve,
                    run.name,
                    color,
                    origin,
                    view.weight(curve, run.data),
                    run.color >= _FIRST_DASHED,
                )
                plots.setdefault(name, []).append(drawn_curve)
    return plots
