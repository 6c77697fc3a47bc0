"""Draws two timelines, one above the other, and what grew from one to the other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.quantities import size_text
from splatview_viewer.kinds.snapshot import world
from splatview_viewer.kinds.snapshot.axes import PlotNote, byte_axis, draw_plot
from splatview_viewer.kinds.snapshot.bar import draw_bar
from splatview_viewer.kinds.snapshot.panes.compare import draw_grown
from splatview_viewer.snapshot.timeline.bands import peaks
from splatview_viewer.ui import plot_axes, plots, theme
from splatview_viewer.ui.boards import board
from splatview_viewer.ui.text_cards import card
from splatview_viewer.ui.widgets import faint

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.snapshot.state import Range
    from splatview_viewer.kinds.snapshot.view import SnapshotView

_AXES_SIZE = 13.0
"""Points of the letters of axes."""


def draw_comparison(view: SnapshotView, rect: Rect) -> tuple[bool, bool]:
    """Draw the view as a comparison.

    Returns whether it was drawn, for which there may be no room, and whether the picture
    has to be drawn again though the state is the same.
    """
    partner = view.two_runs.partner
    is_growth = view.state.shows == "growth"
    if partner is not None and not is_growth:
        count = 2
    else:
        count = 1
    layout = world.lay_out_compared(rect, view.scale, count=count)
    if layout is None:
        return False, False
    needs_redraw = draw_bar(view, layout.bar)
    if partner is None:
        view.shared = world.SharedAxes()
        draw_plot(view, layout.plots[0])
    else:
        view.two_runs.prepare(partner)
        if is_growth:
            view.picture.release()
            partner.picture.release()
            _draw_growth(view, partner, layout.plots[0])
        else:
            _draw_both(view, partner, layout.plots)
    name = f"snapshot compare {id(view)}"
    pad = (12 * view.scale, 4 * view.scale)
    with board(name, layout.table, pad, theme.PANEL):
        draw = imgui.get_window_draw_list()
        right = ImVec2(layout.table.x + layout.table.width, layout.table.y)
        corner = ImVec2(layout.table.x, layout.table.y)
        draw.add_line(corner, right, theme.u32(theme.LINE))
        needs_redraw |= draw_grown(view)
    return True, needs_redraw


def _draw_both(
    view: SnapshotView, partner: SnapshotView, rects: tuple[Rect, ...]
) -> None:
    """Draw A's timeline above B's, and take what the user does in them."""
    runs = view.two_runs
    line = runs.pointed(partner) or runs.line(partner)
    side_moments: dict[int, int] = {}
    if line is not None:
        side_moments = {id(view): line[0], id(partner): line[1]}
    for side_index, side in enumerate(runs.sides(partner)):
        note = PlotNote(
            badge="AB"[side_index],
            color=theme.run_color(side_index),
            line=side_moments.get(id(side)),
            has_labels=side_index == 1,
        )
        previous = side.state
        draw_plot(side, rects[side_index], note)
        if side is partner:
            runs.take_back(partner, previous)
        elif side.state.selected != previous.selected:
            runs.let_choose(partner)
            view.change(partner=partner.state)


# -- growth ----------------------------------------------------------------------------


class _Curves(NamedTuple):
    """Live bytes of A and of B over x, with two points for each column of pixels.

    NaN: the trace has not begun, or has ended.
    """

    x: np.ndarray
    first: np.ndarray
    second: np.ndarray


def _draw_growth(view: SnapshotView, partner: SnapshotView, rect: Rect) -> None:
    """Draw the live bytes of A and of B over each other, and what is between them."""
    plot_world = view.world()
    other_world = partner.world()
    shift = view.two_runs.shift(partner)
    scale = view.scale
    pad = (8 * scale, 8 * scale)
    name = f"snapshot growth {id(view)}"
    with board(name, rect, pad, theme.PLOT), theme.font_size(_AXES_SIZE):
        if plot_world is None or other_world is None or shift is None:
            return
        available = imgui.get_content_region_avail()
        window, height = plot_world.window(view.state)
        curves = _curves(view, partner, window, round(available.x))
        tick_count = max(int(available.x / (85 * scale)), 2)
        x_axis = plot_axes.Axis(
            window,
            ticks=plot_world.x_ticks(window, tick_count),
            limit=plot_world.extent,
            min_extent=world.MIN_WINDOW[plot_world.axis.unit],
        )
        y_axis = byte_axis(plot_world, height, available.y / scale)
        size = (max(available.x, 1), max(available.y, 1))
        with plots.plot("growth", size, x_axis, y_axis, ground=theme.PLOT) as plot:
            if plot is None:
                return
            if curves is not None:
                _draw_curves(plot, curves)
                _write_growth(view, partner, plot)
    if plot.reset:
        view.change(x=None, y=None)
    else:
        x = plot.x if plot.moved else None
        y = plot.y if plot.raised else None
        view.state = plot_world.with_window(view.state, x, y)
    if plot.hovered and imgui.is_mouse_released(imgui.MouseButton_.left):
        io = imgui.get_io()
        if io.mouse_drag_max_distance_sqr[0] <= (4 * scale) ** 2:
            view.change(moment=plot_world.axis.moment(plot.pointer[0]))


def _draw_curves(plot: plots.Plot, curves: _Curves) -> None:
    """Draw both curves, and the ground between them where B has more."""
    # Where one of them has ended nothing is filled.
    first = np.nan_to_num(curves.first)
    is_known = np.isfinite(curves.first) & np.isfinite(curves.second)
    second = np.where(is_known, curves.second, first)
    grown = faint(theme.run_color(1), 0.35)
    plot.shade("##grown", curves.x, first, np.maximum(first, second), grown)
    shrunk = faint(theme.SUCCESS, 0.25)
    plot.shade("##shrunk", curves.x, np.minimum(first, second), first, shrunk)
    for curve_index, values in enumerate((curves.first, curves.second)):
        plot.line(
            f"##{curve_index}", curves.x, values, theme.run_color(curve_index), 1.5
        )


def _write_growth(view: SnapshotView, partner: SnapshotView, plot: plots.Plot) -> None:
    """Write how much more B holds at the line, and draw the line."""
    line = view.two_runs.line(partner)
    plot_world = view.world()
    if line is None or plot_world is None:
        return
    x = plot_world.axis.x_of(line[0])
    plot.upright(x, theme.TEXT, 1.3)
    texts = []
    for side_index, side in enumerate(view.two_runs.sides(partner)):
        bands = side.bands
        if bands is None:
            return
        live = int(bands.live[line[0 if side is view else 1]])
        texts.append(
            (f"{'AB'[side_index]}  {size_text(live)}", theme.run_color(side_index))
        )
    with plot.drawing() as draw:
        pixel = plot.to_pixel(x)[0]
        corner = (pixel + 8 * plot.scale, plot.rect.y + 8 * plot.scale)
        card(draw, corner, texts, bounds=plot.rect)


def _curves(
    view: SnapshotView, partner: SnapshotView, window: Range, columns: int
) -> _Curves | None:
    """Return the curves in a window; those before until they are worked out."""
    shift = view.two_runs.shift(partner)
    worlds = view.world(), partner.world()
    if shift is None or worlds[0] is None or worlds[1] is None:
        return None
    is_swapped = view.two_runs.is_swapped
    key = (
        "growth",
        view.device,
        id(partner.content),
        window,
        columns,
        shift,
        view.measure,
        partner.measure,
    )
    curves = view.content.request(
        (*key, is_swapped),
        partial(
            _work_out_curves, (worlds[0], worlds[1]), window, columns, shift, is_swapped
        ),
        newest=True,
        lane="layout",
    )
    if curves is not None:
        view.pane_memory["growth curves"] = curves
    return view.pane_memory.get("growth curves")


def _work_out_curves(
    worlds: tuple[world.PlotWorld, world.PlotWorld],
    window: Range,
    columns: int,
    shift: float,
    is_swapped: bool,
) -> _Curves:
    """Return the most live bytes in each column of pixels, of A and of B."""
    curves = []
    for plot_world, time_shift in zip(worlds, (0.0, shift), strict=True):
        edges = plot_world.axis.edges(
            window[0] + time_shift, window[1] + time_shift, columns
        )
        peak_moments = peaks(plot_world.bands.live, edges)
        live = np.where(peak_moments >= 0, plot_world.bands.live[peak_moments], np.nan)
        curves.append(np.repeat(live.astype(np.float64), 2))
    x = np.repeat(np.linspace(*window, columns + 1), 2)[1:-1]
    if is_swapped:
        first, second = reversed(curves)
    else:
        first, second = curves
    return _Curves(x, first, second)
