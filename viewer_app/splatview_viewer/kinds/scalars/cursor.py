"""The line at the pointer over plots, and the card with the values of all curves there."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

from imgui_bundle import ImVec2, imgui, implot

from splatview_viewer.core.quantities import value_text
from splatview_viewer.kinds.scalars.columns import smoothed
from splatview_viewer.ui import lettering, theme
from splatview_viewer.ui.widgets import fitted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imgui_bundle import ImVec4

    from splatview_viewer.kinds.scalars.curves import Curve, Origin
    from splatview_viewer.kinds.scalars.runs import DrawnCurve
    from splatview_viewer.ui.plots import Plot

_PAD = 12.0
_LINE = 20.0
"""Points around the card's text, and from line to line."""
_GAP = 14.0
"""Points from the cursor to the card."""
_SWATCH = 14.0
_COLUMN_GAP = 24.0
_MAX_NAME = 180.0
_MAX_ROWS = 12


class _Row(NamedTuple):
    """A line of the card."""

    name: str
    value: str
    color: ImVec4


def draw_cursor(
    plot: Plot,
    drawn: Sequence[DrawnCurve],
    pointer: float,
    *,
    log_up: bool,
    legend: object,
) -> None:
    """Draw a line at a place on the axis, dots on the curves, and their values.

    The card is drawn only in the plot that the pointer is in, below its legend.

    Args:
        plot: the plot.
        drawn: its curves.
        pointer: the place on the horizontal axis.
        log_up: the vertical axis is logarithmic.
        legend: None for a plot without one.
    """
    plot.upright(pointer, theme.TEXT, 1.5)
    rows = []
    title = ""
    for drawn_curve in drawn:
        row = row_at(drawn_curve.curve, drawn_curve.origin, pointer)
        if row is None or (len(drawn) > 1 and not _covers(drawn_curve, plot, pointer)):
            continue
        if not title:
            title = _title_of(drawn_curve.curve, row)
        value = float(drawn_curve.curve["value"][row])
        smooth = float(smoothed(drawn_curve.curve, drawn_curve.weight)[row])
        height = smooth if math.isfinite(smooth) else value
        name = drawn_curve.label if len(drawn) > 1 else ""
        text = value_text(height if drawn_curve.weight > 0 else value)
        if drawn_curve.weight > 0 and len(drawn) == 1:
            text = f"{text}   ({value_text(value)})"
        rows.append(_Row(name, text, drawn_curve.color))
        if math.isfinite(height) and (height > 0 or not log_up):
            x = drawn_curve.curve.axis_values(drawn_curve.origin)
            plot.dot(float(x[row]), height, drawn_curve.color)
    if plot.hovered and rows:
        top = 0.0
        if legend is not None:
            line = imgui.get_text_line_height()
            top = len(drawn) * (line + 4 * plot.scale) + 8 * plot.scale
        corner = (plot.to_pixel_x(pointer), plot.rect.y + top)
        _draw_card(plot, corner, title, rows[:_MAX_ROWS])


def _covers(drawn_curve: DrawnCurve, plot: Plot, pointer: float) -> bool:
    """Return whether a curve is drawn about a place on the axis."""
    x = drawn_curve.curve.axis_values(drawn_curve.origin)
    margin = 0.01 * (plot.x[1] - plot.x[0])
    return float(x.min()) - margin <= pointer <= float(x.max()) + margin


def _title_of(curve: Curve, row: int) -> str:
    """Return the step of a row, and the time of day."""
    stamp = time.strftime("%H:%M:%S", time.localtime(float(curve["time"][row])))
    return f"Step {curve['step'][row]:,.12g}   {stamp}"


def row_at(curve: Curve, origin: Origin, pointer: float) -> int | None:
    """Return the row nearest to a place on the axis, of the newest run that covers it."""
    x = curve.axis_values(origin)
    covering = [run for run in curve.runs if x[run][0] <= pointer <= x[run][-1]]
    if not covering and len(curve.runs) == 1:
        covering = curve.runs
    if not covering:
        return None
    run = covering[-1]
    return run.start + int(abs(x[run] - pointer).argmin())


def _draw_card(
    plot: Plot, corner: tuple[float, float], title: str, rows: Sequence[_Row]
) -> None:
    """Draw the card beside the cursor, below a pixel y, within the plot."""
    column, top = corner
    scale = plot.scale
    with theme.font_size(theme.SMALL_SIZE):
        names = [fitted(row.name, _MAX_NAME * scale) for row in rows]
        name_width = max(lettering.measure(name).x for name in names)
        with theme.bold(theme.SMALL_SIZE):
            value_width = max(lettering.measure(row.value).x for row in rows)
            title_width = lettering.measure(title).x
        indent = (_SWATCH + 8) * scale
        gap = _COLUMN_GAP * scale if name_width else 0.0
        inner = max(indent + name_width + gap + value_width, title_width)
        width = inner + 2 * _PAD * scale
        height = (len(rows) + 1) * _LINE * scale + 1.4 * _PAD * scale
        rect = plot.rect
        x = column + _GAP * scale
        if x + width > rect.x + rect.width:
            x = column - _GAP * scale - width
        x = round(max(x, rect.x))
        y = round(top + _GAP * scale)
        draw = implot.get_plot_draw_list()
        high = ImVec2(x + width, y + height)
        draw.add_rect_filled(
            ImVec2(x, y), high, theme.u32(theme.POPUP, 0.94), 6 * scale
        )
        left = x + _PAD * scale
        right = x + width - _PAD * scale
        y += round(0.7 * _PAD * scale)
        with theme.bold(theme.SMALL_SIZE):
            lettering.write(draw, round(left), y, theme.u32(theme.TEXT), title)
        for name, row in zip(names, rows, strict=True):
            y += round(_LINE * scale)
            _draw_row(draw, (left, right, y), name, row, scale)


def _draw_row(
    draw: imgui.ImDrawList,
    place: tuple[float, float, float],
    name: str,
    row: _Row,
    scale: float,
) -> None:
    """Draw a line of the card: its left and right end, and its upper edge."""
    left, right, y = place
    middle = y + 8 * scale
    draw.add_rect_filled(
        ImVec2(left, middle - 1.5 * scale),
        ImVec2(left + _SWATCH * scale, middle + 1.5 * scale),
        theme.u32(row.color),
        scale,
    )
    x = round(left + (_SWATCH + 8) * scale)
    lettering.write(draw, x, y, theme.u32(theme.DIM), name)
    with theme.bold(theme.SMALL_SIZE):
        x = round(right - lettering.measure(row.value).x)
        lettering.write(draw, x, y, theme.u32(theme.TEXT), row.value)
