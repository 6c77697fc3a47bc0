"""The plots of a stream of kind scalars, and the small ones in the panel.

All are drawn inside an imgui frame.
"""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.core.quantities import log_ticks, value_text
from splatview_viewer.ui import plots, theme
from splatview_viewer.ui.widgets import faint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.kinds.scalars.curves import Curve, Origin
    from splatview_viewer.kinds.scalars.view import ScalarsView
    from splatview_viewer.ui.widgets import Line

_WIDTH = 430.0
_MIN_HEIGHT = 170.0
_MAX_HEIGHT = 360.0
"""Points: the width of a plot where there is room for several, and its height."""
_CACHED_CURVES = 80
"""A little more than the 64 curves that a stream has at most."""
_STRIP_SMOOTHING = 0.8
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


def draw_plots(view: ScalarsView, scale: float) -> None:
    """Draw all plots into the open window, and move the view's axes as the user does."""
    groups = view.data.plots
    grid = _grid_of(len(groups), scale)
    window = view.window()
    # The pointer of the last picture marks its place in all plots, also in those that
    # are drawn before the one that it is in.
    pointer = view.pointer
    view.pointer = None
    spacing = ImVec2(grid.gap, imgui.get_style().item_spacing.y)
    imgui.push_style_var(imgui.StyleVar_.item_spacing, spacing)
    for i, (title, curves) in enumerate(groups.items()):
        if i % grid.columns:
            imgui.same_line()
        imgui.begin_group()
        _draw_title(title, curves, grid.width)
        if imgui.is_rect_visible(ImVec2(grid.width, grid.height)):
            _draw_plot(view, title, curves, (grid.width, grid.height), window, pointer)
        else:
            imgui.dummy(ImVec2(grid.width, grid.height))
        imgui.end_group()
    imgui.pop_style_var()


class _Grid(NamedTuple):
    """Plots side by side; lengths in pixels."""

    columns: int
    width: float
    height: float
    gap: float


def _grid_of(count: int, scale: float) -> _Grid:
    """Return the grid in which this many plots fill the open window."""
    available = imgui.get_content_region_avail()
    gap_x = 18 * scale
    gap_y = 12 * scale
    columns = max(1, min(round(available.x / (_WIDTH * scale)), math.ceil(count**0.5)))
    rows = ceil_div(count, columns)
    title_height = imgui.get_text_line_height_with_spacing()
    height = (available.y - (gap_y + title_height) * rows) / rows
    max_height = max(_MAX_HEIGHT * scale, available.y * 0.6)
    return _Grid(
        columns=columns,
        width=(available.x - gap_x * (columns - 1)) / columns,
        height=min(max(height, _MIN_HEIGHT * scale), max_height),
        gap=gap_x,
    )


def _draw_title(title: str, curves: Sequence[Curve], width: float) -> None:
    """Draw a plot's title, its newest value, and how many values are not finite."""
    value = value_text(curves[0].newest_value) if len(curves) == 1 else ""
    broken = int(sum(curve["broken"].sum() for curve in curves))
    fault = f"{broken:,} not finite" if broken else ""
    plots.head(title, value, width, fault)


def _draw_plot(
    view: ScalarsView,
    title: str,
    curves: Sequence[Curve],
    size: tuple[float, float],
    window: tuple[float, float],
    pointer: float | None,
) -> None:
    """Draw one plot, and take over how the user moved it.

    Args:
        size: pixels.
        window: the range of the horizontal axis.
        pointer: where it was on the horizontal axis in the last picture, whichever plot
            it was in.
    """
    state = view.state
    axis = HorizontalAxis(*window, max(int(size[0]), 8))
    drawn = []
    for curve in curves:
        parts = pixel_columns(curve, axis, view.weight(curve), view.origin)
        drawn.append((curve, parts))
    all_parts = [part for _, parts in drawn for part in parts]
    span = state.heights.get(title)
    if span is None:
        span = vertical_limits(all_parts, axis, state.log_up)
    x = _x_axis(view, window)
    y = plots.Axis(span, "log", log_ticks(*span)) if state.log_up else plots.Axis(span)
    legend = "list" if len(curves) > 1 else None
    with plots.plot(title, size, x, y, legend=legend) as plot:
        if plot is None:
            return
        for i, (curve, parts) in enumerate(drawn):
            label = f"##{curve.name}"
            if len(curves) > 1:
                # A legend leaves out what follows "##".
                label = re.sub("#(?=#)", "# ", curve.short_name)
            is_smoothed = view.weight(curve) > 0
            _draw_curve(plot, label, parts, color_of(i), is_smoothed, state.log_up)
        if any(len(part.broken) for part in all_parts):
            broken = np.concatenate([part.broken for part in all_parts])
            plot.ticks(broken, theme.FAULT)
        if plot.hovered:
            view.pointer = plot.pointer[0]
            pointer = plot.pointer[0]
        if pointer is not None and window[0] <= pointer <= window[1]:
            lines = _draw_readout(view, plot, curves, pointer)
            if plot.hovered and lines:
                plot.set_card(lines)
    _follow_user(view, title, plot)


def _x_axis(view: ScalarsView, window: tuple[float, float]) -> plots.Axis:
    """Return the horizontal axis, with labels in steps, time, or the time of day."""
    if view.state.across == "clock":
        return plots.Axis(window, "time")
    if view.state.across != "time":
        return plots.Axis(window)
    seconds, unit = view.unit
    if seconds > 1:
        return plots.Axis(window, format=f"%g {unit[:3].rstrip('su')}")
    return plots.Axis(window, format="%g s")


def _follow_user(view: ScalarsView, title: str, plot: plots.Plot) -> None:
    """Keep in the view's state how the user moved a plot's axes."""
    heights = view.state.heights
    if plot.reset:
        others = {name: span for name, span in heights.items() if name != title}
        view.state = replace(view.state, window=None, heights=others)
        return
    if plot.moved:
        view.state = replace(view.state, window=plot.x)
    if plot.raised:
        view.state = replace(view.state, heights={**heights, title: plot.y})


def _draw_curve(
    plot: plots.Plot,
    label: str,
    parts: Sequence[PixelColumns],
    color: ImVec4,
    is_smoothed: bool,
    is_log: bool,
) -> None:
    """Draw the values, faint where there is a smoothed curve, and that over them."""
    floor = max(plot.y[0], 1e-300)
    for part in parts:
        if not len(part.x):
            continue
        value = part.value
        smooth = part.smooth
        low = part.low
        high = part.high
        if is_log:
            # A logarithmic axis has no place for what is not over 0.
            value = np.where(value > 0, value, np.nan)
            smooth = np.where(smooth > 0, smooth, np.nan)
            low = np.maximum(low, floor)
            high = np.maximum(high, floor)
        if (part.high > part.low).any():
            plot.shade(label, part.x, low, high, faint(color, 0.20))
        if is_smoothed:
            plot.line(label, part.x, value, faint(color, 0.38), 1.0)
            plot.line(label, part.x, smooth, color, 1.8)
        else:
            plot.line(label, part.x, value, color, 1.6)


def _draw_readout(
    view: ScalarsView, plot: plots.Plot, curves: Sequence[Curve], pointer: float
) -> list[Line]:
    """Draw a line at the pointer and a dot on each curve; return the numbers there."""
    plot.upright(pointer, faint(theme.TEXT, 0.3))
    lines: list[Line] = []
    for i, curve in enumerate(curves):
        row = _row_at(curve, view.origin, pointer)
        if row is None:
            continue
        if not lines:
            stamp = time.strftime("%H:%M:%S", time.localtime(float(curve["time"][row])))
            lines.append((f"step {curve['step'][row]:,.12g}   {stamp}", theme.DIM))
        weight = view.weight(curve)
        value = float(curve["value"][row])
        smooth = float(smoothed(curve, weight)[row])
        text = value_text(value)
        if weight > 0:
            text = f"{value_text(smooth)}   ({text})"
        if len(curves) > 1:
            text = f"{curve.short_name}  {text}"
        lines.append((text, color_of(i)))
        height = smooth if math.isfinite(smooth) else value
        if math.isfinite(height) and (height > 0 or not view.state.log_up):
            x = curve.axis_values(view.origin)
            plot.dot(float(x[row]), height, color_of(i))
    return lines


def _row_at(curve: Curve, origin: Origin, pointer: float) -> int | None:
    """Return the row nearest to a place on the axis, of the newest run that covers it."""
    x = curve.axis_values(origin)
    covering = [run for run in curve.runs if x[run][0] <= pointer <= x[run][-1]]
    if not covering and len(curve.runs) == 1:
        covering = curve.runs
    if not covering:
        return None
    run = covering[-1]
    return run.start + int(abs(x[run] - pointer).argmin())


def draw_strip(curve: Curve, title: str, key: str) -> bool:
    """Draw a curve over time across the panel; return whether it was clicked.

    Args:
        curve: what is drawn.
        title: the text over it.
        key: the entry that shows more, or "".
    """
    times = curve["time"]
    begin = float(times[0])
    axis = HorizontalAxis(begin, max(float(times[-1]), begin + 1e-3), 256)
    weight = _STRIP_SMOOTHING if len(curve) > axis.width else 0.0
    parts = pixel_columns(curve, axis, weight, "time")
    with plots.strip(
        f"{title} {key}",
        title,
        value_text(curve.newest_value),
        (axis.begin, axis.end),
        vertical_limits(parts, axis, False),
        tip="Click to see more" if key else "",
    ) as (plot, clicked):
        if plot is not None:
            for part in parts:
                plot.line("##curve", part.x, part.smooth, theme.ACCENT, 1.4)
    return clicked


# -- smoothing -------------------------------------------------------------------------


@lru_cache(_CACHED_CURVES)
def smoothed(curve: Curve, weight: float) -> np.ndarray:
    """Return (N,) float64, not to be written: each row's average with all before it.

    A sample weighs `weight` times as much as the next, 0 (no smoothing) up to less than
    1; divided by the sum of the weights (debiased), it begins at the first value. Rows
    of several samples count as that many. What is not finite is left out: NaN before
    the first that is.
    """
    values = curve["value"]
    if weight <= 0:
        return values
    is_finite = curve.is_finite
    decay = np.where(is_finite, np.power(weight, curve["count"]), 1.0)
    fresh = np.where(is_finite, values, 0.0) * (1.0 - decay)
    sums = _decaying_sums(decay, fresh)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums / (1.0 - decay.cumprod())
    return np.where(is_finite.cumsum() > 0, means, np.nan)


def _decaying_sums(decay: np.ndarray, fresh: np.ndarray) -> np.ndarray:
    """Return y (N,), where y[i] = decay[i] * y[i - 1] + fresh[i]."""
    sums = []
    total = 0.0
    for factor, value in zip(decay.tolist(), fresh.tolist(), strict=True):
        total = factor * total + value
        sums.append(total)
    return np.array(sums)


# -- columns of pixels -----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PixelColumns:
    """Points to draw a part of a curve with, some three for each column of pixels.

    Arrays are (M,) float64.
    """

    x: np.ndarray
    value: np.ndarray
    """The mean."""
    smooth: np.ndarray
    low: np.ndarray
    high: np.ndarray
    broken: np.ndarray
    """(B,): where something was not finite."""


@dataclass(frozen=True)
class HorizontalAxis:
    """The horizontal axis of a plot."""

    begin: float
    end: float
    width: int
    """Width in pixels."""


@lru_cache(_CACHED_CURVES)
def pixel_columns(
    curve: Curve, axis: HorizontalAxis, weight: float, origin: Origin
) -> Sequence[PixelColumns]:
    """Reduce a curve to columns of pixels, apart for each part whose rows go right.

    Args:
        curve: all of it.
        axis: what is left out lies beyond it.
        weight: the smoothing, as for `smoothed`.
        origin: the unit of the axis, as for `Curve.axis_values`.
    """
    x = curve.axis_values(origin)
    smooth = smoothed(curve, weight)
    runs = curve.runs
    if (np.diff(x) >= 0).all():
        runs = [slice(0, len(x))]
    columns = []
    for run in runs:
        # One row more on either side: lines go on over the edges.
        low = max(int(np.searchsorted(x[run], axis.begin)) - 1, 0)
        high = int(np.searchsorted(x[run], axis.end, "right")) + 1
        high = min(high, run.stop - run.start)
        if low < high:
            part = slice(run.start + low, run.start + high)
            columns.append(_columns_of(curve, part, x, smooth, axis))
    return columns


def _columns_of(
    curve: Curve, part: slice, x: np.ndarray, smooth: np.ndarray, axis: HorizontalAxis
) -> PixelColumns:
    """Return the rows of a part as they are, or means and extremes where they are many."""
    xs = x[part]
    rows = curve.rows[part]
    is_finite = curve.is_finite[part]
    width = max(axis.width, 1)
    broken = xs[rows[:, 6] > 0]
    if len(xs) <= 2 * width:
        return PixelColumns(
            x=xs[is_finite],
            value=rows[is_finite, 2],
            smooth=smooth[part][is_finite],
            low=rows[is_finite, 3],
            high=rows[is_finite, 4],
            broken=broken,
        )
    edges = np.linspace(axis.begin, axis.end, width + 1)
    cuts = np.unique(np.concatenate([[0], np.searchsorted(xs, edges), [len(xs)]]))
    starts = cuts[:-1]
    ends = np.append(starts[1:], len(xs)) - 1
    finite_counts = np.add.reduceat(is_finite.astype(np.float64), starts)
    has_value = finite_counts > 0

    def mean(values: np.ndarray) -> np.ndarray:
        sums = np.add.reduceat(np.where(is_finite, values, 0.0), starts)
        return sums[has_value] / finite_counts[has_value]

    if len(broken) > width:
        nearest = np.searchsorted(broken, edges).clip(0, len(broken) - 1)
        broken = broken[np.unique(nearest)]
    return PixelColumns(
        x=0.5 * (xs[starts] + xs[ends])[has_value],
        value=mean(rows[:, 2]),
        smooth=mean(smooth[part]),
        low=np.fmin.reduceat(rows[:, 3], starts)[has_value],
        high=np.fmax.reduceat(rows[:, 4], starts)[has_value],
        broken=broken,
    )


def vertical_limits(
    parts: Sequence[PixelColumns], axis: HorizontalAxis, is_log: bool
) -> tuple[float, float]:
    """Return the range of a vertical axis that shows these parts of curves.

    It holds the smoothed curves, and all but the extremes of the values behind them.

    Args:
        parts: what is drawn.
        axis: only what lies within it counts.
        is_log: the vertical axis is logarithmic, only for values over 0.
    """
    candidates = []
    for part in parts:
        is_visible = (part.x >= axis.begin) & (part.x <= axis.end)
        if not is_visible.any():
            continue
        raw = part.value[is_visible]
        bulk = raw[raw > 0] if is_log else raw
        if len(bulk):
            bulk = np.percentile(bulk, (2, 98))
        values = np.concatenate([part.smooth[is_visible], raw[-1:], bulk])
        is_legal = np.isfinite(values)
        if is_log:
            is_legal &= values > 0
        candidates.append(values[is_legal])
    values = np.concatenate(candidates) if candidates else np.empty(0)
    if not len(values):
        return (0.1, 10.0) if is_log else (0.0, 1.0)
    low = float(values.min())
    high = float(values.max())
    if is_log:
        margin = max((math.log(high) - math.log(low)) * 0.06, 0.05)
        return low * math.exp(-margin), high * math.exp(margin)
    margin = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return low - margin, high + margin
