"""The plots of a stream of kind scalars, and the small ones in the panel, inside an
imgui frame.
"""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.format import log_ticks, value_text
from splatview_viewer.ui import plots, theme
from splatview_viewer.ui.widgets import faint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.kinds.scalars.curves import Curve, Origin
    from splatview_viewer.kinds.scalars.view import ScalarsView
    from splatview_viewer.ui.widgets import Line

_WIDE = 430.0
_LOW = 170.0
_HIGH = 360.0
"""Points: the width of a plot where there is room for several, and the least and the
most height."""
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


def color_of(number: int) -> ImVec4:
    """The colour of a plot's curve of this number, for the theme in use."""
    colors = _ON_LIGHT if theme.PANEL.x > 0.5 else _ON_DARK
    return ImVec4(*colors[number % len(colors)], 1.0)


def draw_plots(view: ScalarsView, scale: float) -> None:
    """Draw all plots into the window that is open, and move the view's axes as the user
    does.
    """
    shown = view.data.plots
    room = imgui.get_content_region_avail()
    gap = ImVec2(18 * scale, 12 * scale)
    across = max(1, min(round(room.x / (_WIDE * scale)), math.ceil(len(shown) ** 0.5)))
    rows = -(-len(shown) // across)
    width = (room.x - gap.x * (across - 1)) / across
    title = imgui.get_text_line_height_with_spacing()
    height = min(
        max((room.y - (gap.y + title) * rows) / rows, _LOW * scale),
        max(_HIGH * scale, room.y * 0.6),
    )
    window = view.window()
    pointer = view.pointer
    view.pointer = None
    imgui.push_style_var(
        imgui.StyleVar_.item_spacing, ImVec2(gap.x, imgui.get_style().item_spacing.y)
    )
    for i, (name, curves) in enumerate(shown.items()):
        if i % across:
            imgui.same_line()
        imgui.begin_group()
        broken = int(sum(curve["broken"].sum() for curve in curves))
        plots.head(
            name,
            value_text(curves[0].last) if len(curves) == 1 else "",
            width,
            f"{broken:,} not finite" if broken else "",
        )
        if imgui.is_rect_visible(ImVec2(width, height)):
            _plot(view, name, curves, (width, height), window, pointer)
        else:
            imgui.dummy(ImVec2(width, height))
        imgui.end_group()
    imgui.pop_style_var()


def _plot(
    view: ScalarsView,
    name: str,
    curves: Sequence[Curve],
    size: tuple[float, float],
    window: tuple[float, float],
    pointer: float | None,
) -> None:
    """`pointer`: where it was on the horizontal axis in the last picture, whichever
    plot it was in.
    """
    s = view.state
    axis = HorizontalAxis(*window, max(int(size[0]), 8))
    drawn = [
        (curve, columns(curve, axis, view.weight(curve), view.origin))
        for curve in curves
    ]
    span = s.heights.get(name) or limits(
        [c for _, cs in drawn for c in cs], axis, s.log_up
    )
    unit, short = view.unit
    if s.across != "time":
        fmt = ""
    elif unit > 1:
        fmt = f"%g {short[:3].rstrip('su')}"
    else:
        fmt = "%g s"
    x = plots.Axis(window, "time" if s.across == "clock" else "linear", format=fmt)
    y = plots.Axis(span, "log", log_ticks(*span)) if s.log_up else plots.Axis(span)
    with plots.plot(
        name, size, x, y, legend="list" if len(curves) > 1 else None
    ) as plot:
        if plot is None:
            return
        for i, (curve, parts) in enumerate(drawn):
            label = f"##{curve.name}"
            if len(curves) > 1:
                # A legend leaves out what follows "##".
                label = re.sub("#(?=#)", "# ", curve.short)
            _curve(plot, label, parts, color_of(i), view.weight(curve) > 0, s.log_up)
        if any(len(part.broken) for _, parts in drawn for part in parts):
            plot.ticks(
                np.concatenate([part.broken for _, parts in drawn for part in parts]),
                theme.FAULT,
            )
        if plot.hovered:
            view.pointer = plot.pointer[0]
        at = view.pointer if plot.hovered else pointer
        if at is not None and window[0] <= at <= window[1]:
            lines = _mark(view, plot, curves, at)
            if plot.hovered and lines:
                plot.tell(lines)
    if plot.reset:
        heights = {
            title: span for title, span in view.state.heights.items() if title != name
        }
        view.state = replace(view.state, window=None, heights=heights)
        return
    if plot.moved:
        view.state = replace(view.state, window=plot.x)
    if plot.raised:
        view.state = replace(view.state, heights={**view.state.heights, name: plot.y})


def _curve(
    plot: plots.Plot,
    label: str,
    parts: Sequence[PixelColumns],
    color: ImVec4,
    raw: bool,
    log: bool,
) -> None:
    """The values, faint where they are smoothed (`raw`), and over them the smoothed
    curve.
    """
    floor = max(plot.y[0], 1e-300)
    for part in parts:
        if not len(part.x):
            continue
        value = part.value
        smooth = part.smooth
        if log:  # a logarithmic axis has no place for what is not over 0
            value, smooth = (np.where(v > 0, v, np.nan) for v in (value, smooth))
        if (part.high > part.low).any():
            low, high = (
                np.maximum(v, floor) if log else v for v in (part.low, part.high)
            )
            plot.shade(label, part.x, low, high, faint(color, 0.20))
        plot.line(
            label,
            part.x,
            value,
            faint(color, 0.38) if raw else color,
            1.0 if raw else 1.6,
        )
        if raw:
            plot.line(label, part.x, smooth, color, 1.8)


def _mark(
    view: ScalarsView, plot: plots.Plot, curves: Sequence[Curve], at: float
) -> list[Line]:
    """A line at the pointer through all plots, and a dot on each curve; the numbers
    there.
    """
    plot.upright(at, faint(theme.TEXT, 0.3))
    lines: list[Line] = []
    for i, curve in enumerate(curves):
        x = curve.across(view.origin)
        weight = view.weight(curve)
        there = [
            run
            for run in curve.runs
            if x[run][0] <= at <= x[run][-1] or len(curve.runs) == 1
        ]
        if not there:
            continue
        row = there[-1].start + int(abs(x[there[-1]] - at).argmin())
        if not lines:
            stamp = time.strftime("%H:%M:%S", time.localtime(float(curve["time"][row])))
            lines.append((f"step {curve['step'][row]:,.12g}   {stamp}", theme.DIM))
        value = float(curve["value"][row])
        smooth = float(smoothed(curve, weight)[row])
        if weight > 0:
            text = f"{value_text(smooth)}   ({value_text(value)})"
        else:
            text = value_text(value)
        lines.append(
            (text if len(curves) == 1 else f"{curve.short}  {text}", color_of(i))
        )
        shown = smooth if math.isfinite(smooth) else value
        if math.isfinite(shown) and (shown > 0 or not view.state.log_up):
            plot.dot(float(x[row]), shown, color_of(i))
    return lines


def draw_strip(curve: Curve, title: str, key: str) -> bool:
    """Draw a curve over time across the panel; True when it was clicked.

    `key`: of the entry that shows more, or "".
    """
    times = curve["time"]
    axis = HorizontalAxis(
        float(times[0]), max(float(times[-1]), float(times[0]) + 1e-3), 256
    )
    parts = columns(
        curve, axis, _STRIP_SMOOTHING if len(curve) > axis.width else 0.0, "time"
    )
    with plots.strip(
        f"{title} {key}",
        title,
        value_text(curve.last),
        (axis.begin, axis.end),
        limits(parts, axis, False),
        tip="Click to see more" if key else "",
    ) as (plot, clicked):
        if plot is not None:
            for part in parts:
                plot.line("##curve", part.x, part.smooth, theme.ACCENT, 1.4)
    return clicked


# -- smoothing -------------------------------------------------------------------------


@lru_cache(80)  # a stream has at most 64 curves
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
    good = curve.finite
    decay = np.where(good, np.power(weight, curve["count"]), 1.0)
    fresh = np.where(good, values, 0.0) * (1.0 - decay)
    pairs = zip(decay.tolist(), fresh.tolist(), strict=True)
    sums = np.array(
        [*accumulate(pairs, lambda y, pair: pair[0] * y + pair[1], initial=0.0)][1:]
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(good.cumsum() > 0, sums / (1.0 - decay.cumprod()), np.nan)


# -- columns of pixels -----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PixelColumns:
    """Drawn points of a part of a curve: at most some three points for each column of
    pixels. (M,) float64 each.
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
    """Pixels."""


@lru_cache(80)  # a stream has at most 64 curves
def columns(
    curve: Curve, axis: HorizontalAxis, weight: float, origin: Origin
) -> Sequence[PixelColumns]:
    """Columns of a curve in a plot: a `Columns` for each part that is seen within which
    its rows go to the right.

    weight: as for `smoothed`. origin: as for `Curve.across`.
    """
    x = curve.across(origin)
    smooth = smoothed(curve, weight)
    out = []
    for run in [slice(0, len(x))] if (np.diff(x) >= 0).all() else curve.runs:
        low = max(
            int(np.searchsorted(x[run], axis.begin)) - 1, 0
        )  # the lines go on over the edges
        high = min(
            int(np.searchsorted(x[run], axis.end, "right")) + 1, run.stop - run.start
        )
        if low < high:
            out.append(
                _columns_of(
                    curve, slice(run.start + low, run.start + high), x, smooth, axis
                )
            )
    return out


def _columns_of(
    curve: Curve, part: slice, x: np.ndarray, smooth: np.ndarray, axis: HorizontalAxis
) -> PixelColumns:
    xs = x[part]
    rows = curve.rows[part]
    good = curve.finite[part]
    width = max(axis.width, 1)
    broken = xs[rows[:, 6] > 0]
    if len(xs) <= 2 * width:
        return PixelColumns(
            xs[good],
            rows[good, 2],
            smooth[part][good],
            rows[good, 3],
            rows[good, 4],
            broken,
        )
    edges = np.linspace(axis.begin, axis.end, width + 1)
    cuts = np.unique(np.concatenate([[0], np.searchsorted(xs, edges), [len(xs)]]))
    starts = cuts[:-1]
    n = np.add.reduceat(good.astype(np.float64), starts)
    there = n > 0

    def mean(values: np.ndarray) -> np.ndarray:
        return np.add.reduceat(np.where(good, values, 0.0), starts)[there] / n[there]

    ends = np.append(starts[1:], len(xs)) - 1
    middle = 0.5 * (xs[starts] + xs[ends])[there]
    low = np.fmin.reduceat(rows[:, 3], starts)[there]
    high = np.fmax.reduceat(rows[:, 4], starts)[there]
    if len(broken) > width:
        broken = broken[
            np.unique(np.searchsorted(broken, edges).clip(0, len(broken) - 1))
        ]
    return PixelColumns(middle, mean(rows[:, 2]), mean(smooth[part]), low, high, broken)


def limits(
    parts: Sequence[PixelColumns], axis: HorizontalAxis, log: bool
) -> tuple[float, float]:
    """The vertical limits of a plot that shows these: of the smoothed curves and of
    most of what is behind them. log: the vertical axis is logarithmic, only for values
    over 0.
    """
    found = []
    for part in parts:
        seen = (part.x >= axis.begin) & (part.x <= axis.end)
        if not seen.any():
            continue
        raw = part.value[seen]
        most = raw[raw > 0] if log else raw
        values = np.concatenate(
            [
                part.smooth[seen],
                raw[-1:],
                np.percentile(most, (2, 98)) if len(most) else most,
            ]
        )
        found.append(values[np.isfinite(values) & ((values > 0) | (not log))])
    values = np.concatenate(found) if found else np.empty(0)
    if not len(values):
        return (0.1, 10.0) if log else (0.0, 1.0)
    low = float(values.min())
    high = float(values.max())
    if log:
        room = max((math.log(high) - math.log(low)) * 0.06, 0.05)
        return low * math.exp(-room), high * math.exp(room)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return low - room, high + room
