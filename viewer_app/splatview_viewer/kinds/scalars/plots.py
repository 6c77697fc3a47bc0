"""The plots of a stream of kind scalars, and the small ones in the panel.

All are drawn inside an imgui frame.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.core.quantities import count_ticks, log_ticks, value_text
from splatview_viewer.kinds.scalars.columns import (
    HorizontalAxis,
    pixel_columns,
    vertical_limits,
)
from splatview_viewer.kinds.scalars.cursor import draw_cursor
from splatview_viewer.ui import plot_axes, plots, theme
from splatview_viewer.ui.widgets import faint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.quantities import Tick
    from splatview_viewer.kinds.scalars.columns import PixelColumns
    from splatview_viewer.kinds.scalars.runs import DrawnCurve
    from splatview_viewer.kinds.scalars.view import ScalarsView

_WIDTH = 430.0
_MIN_HEIGHT = 170.0
_MAX_HEIGHT = 360.0
"""Points: the width of a plot where there is room for several, and its height."""
_STILL_DISTANCE = 3.0
"""Pixels by which the pointer of a click moves at most."""
_TICK_WIDTH = 80.0
"""Points from a label of an axis to the next at least."""
_TICK_HEIGHT = 36.0
"""The same for a vertical axis."""
_FLAT = 0.2
"""Share of a plot's height below which a box that is drawn in it is flat."""
_DASH = 10.0
"""Points from dash to dash."""


def draw_plots(view: ScalarsView, scale: float) -> None:
    """Draw all plots into the open window, and move the view's axes as the user does."""
    groups = view.drawn()
    has_titles = len(groups) > 1 or not view.state.curve
    grid = _grid_of(len(groups), scale, has_titles)
    window = view.window()
    # The pointer of the last picture marks its place in all plots, also in those that
    # are drawn before the one that it is in.
    pointer = view.pointer
    view.pointer = None
    spacing = ImVec2(grid.gap, imgui.get_style().item_spacing.y)
    imgui.push_style_var(imgui.StyleVar_.item_spacing, spacing)
    for i, (title, drawn) in enumerate(groups.items()):
        if i % grid.columns:
            imgui.same_line()
        imgui.begin_group()
        if has_titles:
            _draw_title(title, drawn, grid.width)
        if imgui.is_rect_visible(ImVec2(grid.width, grid.height)):
            _draw_plot(view, title, drawn, (grid.width, grid.height), window, pointer)
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


def _grid_of(count: int, scale: float, has_titles: bool) -> _Grid:
    """Return the grid in which this many plots fill the open window."""
    available = imgui.get_content_region_avail()
    gap_x = 18 * scale
    gap_y = 12 * scale
    max_columns = round(available.x / (_WIDTH * scale))
    columns = max(1, min(max_columns, math.ceil(count**0.5)))
    rows = max(ceil_div(count, columns), 1)
    title_height = 0.0
    if has_titles:
        title_height = imgui.get_text_line_height_with_spacing()
    height = (available.y - (gap_y + title_height) * rows) / rows
    max_height = max(_MAX_HEIGHT * scale, available.y * 0.6)
    return _Grid(
        columns=columns,
        width=(available.x - gap_x * (columns - 1)) / columns,
        height=min(max(height, _MIN_HEIGHT * scale), max_height),
        gap=gap_x,
    )


def _draw_title(title: str, drawn: Sequence[DrawnCurve], width: float) -> None:
    """Draw a plot's title, its newest value, and how many values are not finite."""
    if len(drawn) == 1:
        value = value_text(drawn[0].curve.newest_value)
    else:
        value = ""
    broken = int(sum(drawn_curve.curve["broken"].sum() for drawn_curve in drawn))
    fault = f"{broken:,} not finite" if broken else ""
    plots.head(title, value, width, fault)


def _draw_plot(
    view: ScalarsView,
    title: str,
    drawn: Sequence[DrawnCurve],
    size: tuple[float, float],
    window: tuple[float, float],
    pointer: float | None,
) -> None:
    """Draw one plot, and take over how the user moved it.

    Args:
        view: whose plot it is.
        title: of the plot.
        drawn: its curves.
        size: pixels.
        window: the range of the horizontal axis.
        pointer: where it was on the horizontal axis in the last picture, whichever plot
            it was in.
    """
    state = view.state
    axis = HorizontalAxis(*window, max(int(size[0]), 8))
    curve_columns = [pixel_columns(d.curve, axis, d.weight, d.origin) for d in drawn]
    all_parts = [part for of_curve in curve_columns for part in of_curve]
    span = state.heights.get(title)
    if span is None:
        span = vertical_limits(all_parts, axis, state.log_up)
    x = _x_axis(view, window, size[0])
    if state.log_up:
        y = plot_axes.Axis(span, "log", log_ticks(*span))
    else:
        y = plot_axes.Axis(span, ticks=_large_ticks(span, size[1]))
    legend = None
    if len(drawn) > 1 and state.legend:
        legend = _legend_of(all_parts, span)
    with (
        theme.font_size(theme.AXES_SIZE),
        plots.plot(
            title, size, x, y, legend=legend, ground=theme.PLOT, drag_zooms=True
        ) as plot,
    ):
        if plot is None:
            return
        for drawn_curve, of_curve in zip(drawn, curve_columns, strict=True):
            label = f"##{drawn_curve.curve.name}"
            if len(drawn) > 1:
                # A legend leaves out what follows "##".
                label = re.sub("#(?=#)", "# ", drawn_curve.label)
            for part in of_curve:
                _draw_part(plot, label, drawn_curve, part, state.log_up)
        if any(len(part.broken) for part in all_parts):
            broken = np.concatenate([part.broken for part in all_parts])
            plot.ticks(broken, theme.FAULT)
        step_x = _place_of_step(view)
        if step_x is not None and window[0] <= step_x <= window[1]:
            plot.upright(step_x, faint(theme.TEXT, 0.45), 1.5)
        if plot.hovered:
            view.pointer = plot.pointer[0]
            pointer = plot.pointer[0]
        if pointer is not None and window[0] <= pointer <= window[1]:
            draw_cursor(plot, drawn, pointer, log_up=state.log_up, legend=legend)
    _follow_user(view, title, plot, span)


def _place_of_step(view: ScalarsView) -> float | None:
    """Return where the step that is shown of the scene lies on the horizontal axis."""
    curves = view.data.curves
    if view.at_step is None or not curves.all:
        return None
    if view.state.across == "step":
        return view.at_step
    clock = curves.clock
    row = int(abs(clock["step"] - view.at_step).argmin())
    return float(clock.axis_values(view.origin)[row])


def _large_ticks(span: tuple[float, float], height: float) -> Sequence[Tick]:
    """Return the labels of a vertical axis of large numbers; none for ImPlot's."""
    low, high = span
    if high < 1000 or high - low < 10:
        return ()
    return count_ticks(
        low, high, max(round(height / (_TICK_HEIGHT * theme.scale())), 2)
    )


def _legend_of(
    parts: Sequence[PixelColumns], span: tuple[float, float]
) -> plots.Legend:
    """Return where a legend covers less of the curves: on the left if they rise."""
    middle = (span[0] + span[1]) / 2
    firsts = [part.smooth[0] for part in parts if len(part.smooth)]
    lasts = [part.smooth[-1] for part in parts if len(part.smooth)]
    if lasts and max(firsts) < middle < max(lasts):
        return "left list"
    return "list"


def _x_axis(
    view: ScalarsView, window: tuple[float, float], width: float
) -> plot_axes.Axis:
    """Return the horizontal axis, with labels in steps, time, or the time of day."""
    if view.state.across == "clock":
        return plot_axes.Axis(window, "time")
    if view.state.across != "time":
        count = max(round(width / (_TICK_WIDTH * theme.scale())), 2)
        if window[1] - window[0] > 4:
            ticks = count_ticks(*window, count)
        else:
            ticks = ()
        return plot_axes.Axis(window, ticks=ticks)
    seconds, unit = view.unit
    if seconds > 1:
        return plot_axes.Axis(window, format=f"%g {unit[:3].rstrip('su')}")
    return plot_axes.Axis(window, format="%g s")


def _follow_user(
    view: ScalarsView, title: str, plot: plots.Plot, span: tuple[float, float]
) -> None:
    """Keep in the view's state how the user moved a plot's axes.

    span: the range of the vertical axis before.
    """
    heights = view.state.heights
    if plot.reset:
        other_heights = {name: span for name, span in heights.items() if name != title}
        view.state = replace(view.state, window=None, heights=other_heights)
        return
    left = imgui.MouseButton_.left
    if plot.hovered and imgui.is_mouse_clicked(left):
        view.pressed_plot = title
    if imgui.is_mouse_released(left) and view.pressed_plot == title:
        view.pressed_plot = ""
        drag = imgui.get_mouse_drag_delta(left, _STILL_DISTANCE)
        if plot.hovered and drag.x == 0 and drag.y == 0:
            view.ask_for_step(plot.pointer[0])
    if plot.moved:
        view.state = replace(view.state, window=plot.x)
    # A flat box zooms along the axis alone.
    is_high = plot.is_over_y or _share_of(plot.y, span, view.state.log_up) > _FLAT
    if plot.raised and is_high:
        view.state = replace(view.state, heights={**heights, title: plot.y})


def _share_of(
    limits: tuple[float, float], span: tuple[float, float], is_log: bool
) -> float:
    """Return the share that a part has of a vertical axis."""
    if is_log and min(*limits, *span) > 0:
        return math.log(limits[1] / limits[0]) / math.log(span[1] / span[0])
    return (limits[1] - limits[0]) / max(span[1] - span[0], 1e-300)


def _draw_part(
    plot: plots.Plot,
    label: str,
    drawn_curve: DrawnCurve,
    columns: PixelColumns,
    is_log: bool,
) -> None:
    """Draw the values, faint where there is a smoothed curve, and that over them."""
    if not len(columns.x):
        return
    value = columns.value
    smooth = columns.smooth
    low = columns.low
    high = columns.high
    if is_log:
        # A logarithmic axis has no place for what is not over 0.
        floor = max(plot.y[0], 1e-300)
        value = np.where(value > 0, value, np.nan)
        smooth = np.where(smooth > 0, smooth, np.nan)
        low = np.maximum(low, floor)
        high = np.maximum(high, floor)
    if (columns.high > columns.low).any():
        plot.shade(label, columns.x, low, high, faint(drawn_curve.color, 0.20))
    x = columns.x
    line = value
    if drawn_curve.weight > 0:
        plot.line(label, columns.x, value, faint(drawn_curve.color, 0.38), 1.0)
        line = smooth
    if drawn_curve.is_dashed:
        x, line = _dashed(plot, x, line)
    plot.line(label, x, line, drawn_curve.color, 2.0 if drawn_curve.weight > 0 else 1.6)


def _dashed(
    plot: plots.Plot, x: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return a curve with gaps, a point for each pixel."""
    pixels = np.arange(max(plot.rect.width, 2))
    pixel_x = np.linspace(plot.x[0], plot.x[1], len(pixels))
    inside = (pixel_x >= x[0]) & (pixel_x <= x[-1])
    values = np.interp(pixel_x, x, y)
    period = _DASH * plot.scale
    values[pixels % period > 0.6 * period] = np.nan
    return pixel_x[inside], values[inside]
