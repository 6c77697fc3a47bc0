"""Plots on ImPlot, inside an imgui frame.

They have axes to zoom and drag, or are bare, as small as a line of the panel.

A panel owns one context of ImPlot's beside its context of imgui's (`shell/surface.py`),
so users share no state.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui, implot

from splatview_viewer.core.screen import Rect
from splatview_viewer.ui import lettering, theme
from splatview_viewer.ui.plot_axes import (
    X2,
    Axis,
    X,
    Y,
    differ,
    link_axis,
    linked_range,
    set_buttons,
    set_up_axis,
    set_wheel_rate,
)
from splatview_viewer.ui.text_cards import card, hover_card
from splatview_viewer.ui.widgets import faint, pointer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from splatview_viewer.core.quantities import Tick
    from splatview_viewer.ui.plot_axes import Range
    from splatview_viewer.ui.text_cards import Line

Legend = Literal["list", "left list", "row"]
"""A list in the upper right or the upper left corner, or a row in the latter."""

_MAX_PIXEL = 1e6
"""Pixels from the corner of the screen beyond which nothing is drawn."""
_MIN_SIZE = (160.0, 110.0)
"""Points of a plot that has space for axes."""
_PAN_SHARE = 0.1
"""Share of the axis that a step of a horizontal wheel moves it."""


@dataclass
class Plot:
    """A plot that is being drawn, and after that what the user did in it."""

    x: Range
    y: Range
    hovered: bool = False
    is_over_y: bool = False
    """True if the pointer is on the vertical axis."""
    pointer: Range = (0.0, 0.0)
    """The point under the pointer while `hovered`, in units of the axes."""
    reset: bool = False
    """True if the user asked to see all, by a double click."""
    moved: bool = False
    """True if the user moved the horizontal axis, whose range now is `x`."""
    raised: bool = False
    """The same of the vertical axis."""
    rect: Rect = field(default_factory=lambda: Rect(0, 0, 1, 1))
    """The area of the plot within its axes, in pixels."""
    card: Sequence[Line] = ()
    """The lines beside the pointer."""
    small: bool = False
    """True if there is no space for axes and text."""
    scale: float = 1.0

    def line(
        self,
        label: str,
        x: np.ndarray,
        y: np.ndarray,
        color: ImVec4,
        width: float = 1.5,
    ) -> None:
        """Draw a curve, `width` points wide.

        A label that starts with ## is not in the legend.
        """
        implot.plot_line(
            label, x, y, implot.Spec(line_color=color, line_weight=width * self.scale)
        )

    def shade(
        self,
        label: str,
        x: np.ndarray,
        low: np.ndarray,
        high: np.ndarray,
        color: ImVec4,
    ) -> None:
        """Fill the area between two curves."""
        implot.plot_shaded(label, x, low, high, implot.Spec(fill_color=color))

    def bars(
        self, label: str, edges: np.ndarray, heights: np.ndarray, color: ImVec4
    ) -> None:
        """Fill a histogram of N bars between N + 1 edges."""
        x = np.repeat(edges.astype(np.float64), 2)[1:-1]
        y = np.repeat(heights.astype(np.float64), 2)
        implot.plot_shaded(label, x, 0 * y, y, implot.Spec(fill_color=color))

    def legend_line(self, label: str) -> None:
        """Write a line into the legend."""
        clear = implot.Spec(line_color=theme.CLEAR, fill_color=theme.CLEAR)
        implot.plot_dummy(label, clear)

    def to_pixel(self, x: float, y: float | None = None) -> tuple[float, float]:
        """Return the pixel of a point, at most _MAX_PIXEL away.

        Without `y` it is at the lower edge.
        """
        if y is None:
            y, _ = self.y
        pixel = implot.plot_to_pixels(x, y)
        return _drawable_pixel(pixel.x), _drawable_pixel(pixel.y)

    def to_pixel_x(self, x: float) -> float:
        """Return the column of a point, at most _MAX_PIXEL away."""
        column, _ = self.to_pixel(x)
        return column

    @contextmanager
    def drawing(self) -> Iterator[imgui.ImDrawList]:
        """Open imgui's list of what is drawn over the curves, within the axes."""
        implot.push_plot_clip_rect()
        try:
            yield implot.get_plot_draw_list()
        finally:
            implot.pop_plot_clip_rect()

    def upright(self, x: float, color: ImVec4, width: float = 1.0) -> None:
        """Draw a vertical line from edge to edge."""
        with self.drawing() as draw:
            px = round(self.to_pixel_x(x))
            draw.add_line(
                ImVec2(px, self.rect.y),
                ImVec2(px, self.rect.y + self.rect.height),
                theme.u32(color),
                width * self.scale,
            )

    def fade(self, x0: float, x1: float) -> None:
        """Dim what is between two values of the horizontal axis."""
        with self.drawing() as draw:
            bottom = self.rect.y + self.rect.height
            left, right = sorted((self.to_pixel_x(x0), self.to_pixel_x(x1)))
            draw.add_rect_filled(
                ImVec2(left, self.rect.y),
                ImVec2(right, bottom),
                theme.u32(theme.PANEL, 0.45),
            )

    def ticks(self, x: np.ndarray, color: ImVec4) -> None:
        """Draw short marks along the upper edge, at most one a pixel."""
        columns = np.unique([round(self.to_pixel_x(value)) for value in x.tolist()])
        with self.drawing() as draw:
            for px in columns.tolist():
                draw.add_rect_filled(
                    ImVec2(px - self.scale, self.rect.y),
                    ImVec2(px + self.scale, self.rect.y + 6 * self.scale),
                    theme.u32(color),
                )

    def dot(self, x: float, y: float, color: ImVec4) -> None:
        """Draw a dot at a point, with a line around it that tells it from curves."""
        with self.drawing() as draw:
            center = ImVec2(*self.to_pixel(x, y))
            ring = theme.u32(theme.PLOT)
            draw.add_circle_filled(center, 5 * self.scale, ring, 16)
            draw.add_circle_filled(center, 3.5 * self.scale, theme.u32(color), 12)

    def text_card(self, pixel: tuple[float, float], text: str, color: ImVec4) -> Rect:
        """Write on a card on the right of a pixel, or where it does not fit on its left.

        Returns:
            The card's rectangle.
        """
        gap = 5 * self.scale
        x, y = pixel
        text_end = x + 2 * gap + imgui.calc_text_size(text).x
        is_left = text_end > self.rect.x + self.rect.width
        sign = -1 if is_left else 1
        return card(
            implot.get_plot_draw_list(),
            (x + sign * gap, y),
            [(text, color)],
            (float(is_left), 0.5),
            bounds=self.rect,
            pad=0.25,
        )

    def set_card(self, lines: Sequence[Line]) -> None:
        """Have a card drawn beside the pointer, over all that is in the plot."""
        self.card = lines


@contextmanager
def plot(
    name: str,
    size: tuple[float, float],
    x: Axis,
    y: Axis,
    *,
    second_ticks: Sequence[Tick] | None = None,
    legend: Legend | None = None,
    ground: ImVec4 | None = None,
    drag_zooms: bool = False,
) -> Iterator[Plot | None]:
    """Draw a plot at imgui's cursor.

    Args:
        name: unlike those of all other plots.
        size: pixels.
        x: the horizontal axis.
        y: the vertical axis.
        second_ticks: labels of a second horizontal axis, below the first, that goes
            along with it.
        legend: where it lies; the user clicks its entries to hide a curve.
        ground: the colour behind the curves.
        drag_zooms: a drag draws a box to zoom into, and one with the right button moves
            the axes; otherwise it is the other way round.

    Yields:
        The plot, to draw curves into; None where it cannot be seen.
    """
    min_width, min_height = _MIN_SIZE
    width, height = size
    scale = theme.scale()
    small = width < min_width * scale or height < min_height * scale
    if small or not second_ticks:
        # An axis without ticks of its own would get those of its numbers.
        second_ticks = None
    set_wheel_rate(imgui.get_io().mouse_wheel)
    # Ctrl is for the caller.
    implot.get_input_map().override_mod = 0
    select = set_buttons(drag_zooms)
    flags = _plot_flags(has_legend=legend is not None and not small)
    with _ground(ground or theme.BAR):
        if not implot.begin_plot(f"##{_id(name)}", _at_least_a_pixel(size), flags):
            yield None
            return
        new_plot = Plot(x.span, y.span, small=small, scale=scale)
        axis_flags = 0
        if small:
            axis_flags = implot.AxisFlags_.no_decorations.value
        for axis_id, axis in ((X, x), (Y, y)):
            set_up_axis(axis_id, axis, axis_flags)
            link_axis(axis_id, axis.span)
        if second_ticks is not None:
            second_axis = Axis(x.span, ticks=second_ticks)
            set_up_axis(X2, second_axis, implot.AxisFlags_.no_grid_lines.value)
            link_axis(X2, x.span)
        if legend is not None:
            _setup_legend(legend)
        # This sets the plot up, and draws its ground.
        with _inside(new_plot):
            new_plot.is_over_y = implot.is_axis_hovered(Y)
            yield new_plot
            boxed = imgui.is_mouse_released(select)
    if new_plot.card:
        draw = imgui.get_window_draw_list()
        hover_card(draw, pointer(), new_plot.card, new_plot.rect)
    _read_input(new_plot, x, y, has_second=second_ticks is not None, boxed=boxed)


def _plot_flags(*, has_legend: bool) -> int:
    flags = implot.Flags_.no_title | implot.Flags_.no_mouse_text
    flags |= implot.Flags_.no_menus
    if not has_legend:
        flags |= implot.Flags_.no_legend
    return flags.value


def _read_input(
    drawn_plot: Plot, x: Axis, y: Axis, *, has_second: bool, boxed: bool
) -> None:
    """Read what the user did in a plot that was drawn.

    `boxed` is True if the user may have drawn a box to zoom into.
    """
    is_over = drawn_plot.hovered or drawn_plot.is_over_y
    if is_over and imgui.is_mouse_double_clicked(imgui.MouseButton_.left):
        drawn_plot.reset = True
        return
    left, right = linked_range(X)
    # A drag in the plot moves both horizontal axes, one on an axis that axis alone.
    if has_second and not differ((left, right), x.span):
        left, right = linked_range(X2)
    low, high = linked_range(Y)
    wheel_x = imgui.get_io().mouse_wheel_h
    if drawn_plot.hovered and wheel_x and not x.locked:
        shift = _PAN_SHARE * wheel_x * (right - left)
        left -= shift
        right -= shift
    drawn_plot.moved = left < right and differ((left, right), x.span)
    may_raise = boxed or drawn_plot.is_over_y or y.limit is not None
    is_raised = low < high and differ((low, high), y.span)
    drawn_plot.raised = may_raise and is_raised
    drawn_plot.x = (left, right)
    drawn_plot.y = (low, high)


@contextmanager
def _ground(color: ImVec4) -> Iterator[None]:
    """Have plots drawn on a ground of this colour."""
    implot.push_style_color(implot.Col_.plot_bg.value, color)
    try:
        yield
    finally:
        implot.pop_style_color()


def _setup_legend(legend: Legend) -> None:
    """Put the legend of a plot into one of its upper corners."""
    location = implot.Location_.north_west
    if legend == "list":
        location = implot.Location_.north_east
    flags = 0
    if legend == "row":
        flags = implot.LegendFlags_.horizontal.value
    implot.setup_legend(location.value, flags)


@contextmanager
def bare(
    name: str, size: tuple[float, float], x: Range, y: Range
) -> Iterator[Plot | None]:
    """Draw a plot without axes at imgui's cursor, which handles no input.

    Yields:
        The plot, to draw curves into; None where it cannot be seen.
    """
    flags = implot.Flags_.canvas_only.value | implot.Flags_.no_inputs.value
    implot.push_style_var(implot.StyleVar_.plot_padding.value, ImVec2(0, 0))
    try:
        if not implot.begin_plot(f"##{_id(name)}", _at_least_a_pixel(size), flags):
            yield None
            return
        for axis_id, span in ((X, x), (Y, y)):
            implot.setup_axis(axis_id, None, implot.AxisFlags_.no_decorations.value)
            implot.setup_axis_limits(axis_id, *span, imgui.Cond_.always.value)
        new_plot = Plot(x, y, scale=theme.scale())
        with _inside(new_plot):
            yield new_plot
    finally:
        implot.pop_style_var()


def head(left: str, right: str, width: float, fault: str = "") -> None:
    """Write a line above a plot.

    Args:
        left: the plot's title.
        right: its newest value.
        width: pixels of the line.
        fault: written before the value.
    """
    corner = imgui.get_cursor_screen_pos()
    draw = imgui.get_window_draw_list()
    line = imgui.get_text_line_height()
    end = corner.x + width
    for text, color in ((right, theme.TEXT), (fault, theme.FAULT)):
        if text:
            end -= imgui.calc_text_size(text).x
            draw.add_text(ImVec2(end, corner.y), theme.u32(color), text)
            end -= 0.8 * line
    title = lettering.fitted(left, max(end - corner.x, 1))
    lettering.write(draw, corner.x, corner.y, theme.u32(theme.DIM), title)
    imgui.dummy(ImVec2(width, line))


def apply(scale: float) -> None:
    """Style the current context of ImPlot's as the theme in use, between frames."""
    style = implot.get_style()
    c = implot.Col_
    style.use_local_time = True
    style.use24_hour_clock = True
    style.use_iso8601 = True
    style.plot_padding = ImVec2(4 * scale, 4 * scale)
    style.label_padding = ImVec2(4 * scale, 4 * scale)
    style.legend_padding = ImVec2(6 * scale, 4 * scale)
    style.legend_inner_padding = ImVec2(6 * scale, 4 * scale)
    style.plot_border_size = 0
    style.major_grid_size = ImVec2(scale, scale)
    style.minor_grid_size = ImVec2(scale, scale)
    style.minor_alpha = 0.35
    style.major_tick_len = ImVec2(0, 0)
    style.minor_tick_len = ImVec2(0, 0)
    style.plot_min_size = ImVec2(1, 1)
    for index, color in (
        (c.frame_bg, theme.CLEAR),
        (c.plot_bg, theme.BAR),
        (c.plot_border, theme.CLEAR),
        (c.legend_bg, faint(theme.PANEL, 0.85)),
        (c.legend_border, theme.CLEAR),
        (c.legend_text, theme.TEXT),
        (c.axis_text, theme.DIM),
        (c.axis_grid, theme.GRID),
        (c.axis_bg, theme.CLEAR),
        (c.axis_bg_hovered, faint(theme.TEXT, 0.06)),
        (c.axis_bg_active, faint(theme.TEXT, 0.1)),
        (c.selection, theme.ACCENT),
        (c.inlay_text, theme.TEXT),
    ):
        style.set_color_(index.value, color)


@contextmanager
def _inside(new_plot: Plot) -> Iterator[None]:
    """Set a plot up as ImPlot has laid it, and end it afterwards."""
    corner = implot.get_plot_pos()
    size = implot.get_plot_size()
    width = max(round(size.x), 1)
    height = max(round(size.y), 1)
    new_plot.rect = Rect(round(corner.x), round(corner.y), width, height)
    new_plot.hovered = implot.is_plot_hovered()
    if new_plot.hovered:
        point = implot.get_plot_mouse_pos()
        new_plot.pointer = (point.x, point.y)
    try:
        yield
    finally:
        implot.end_plot()


def _id(name: str) -> str:
    """Return an id that tells a plot of this name from all others.

    imgui passes over what is before "###", and runs name their curves.
    """
    return name.replace("\\", "\\\\").replace("#", "\\#")


def _at_least_a_pixel(size: tuple[float, float]) -> ImVec2:
    """Return a size that ImPlot takes as it is: it has other meanings for 0 and less."""
    return ImVec2(max(size[0], 1.0), max(size[1], 1.0))


def _drawable_pixel(pixel: float) -> float:
    """Return a pixel that can be drawn at, for one that may be infinite or NaN."""
    if not math.isfinite(pixel):
        return -_MAX_PIXEL
    return min(max(pixel, -_MAX_PIXEL), _MAX_PIXEL)
