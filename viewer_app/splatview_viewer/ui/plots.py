"""Plots on ImPlot, inside an imgui frame: with axes to zoom and drag, or bare, as small
as a line of the panel.

A panel owns one context of ImPlot's beside its context of imgui's (`shell/panel.py`),
so users share no state.
"""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui, implot

from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import Data, State, View
from splatview_viewer.geometry.pan_zoom import ZOOM_STEP
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import board, card, faint, hover_card, pointer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import moderngl

    from splatview_viewer.core.format import Tick
    from splatview_viewer.ui.widgets import Line

    Range = tuple[float, float]

_FAR = 1e6
"""Pixels from the corner of the screen beyond which nothing is drawn."""
STRIP_HEIGHT = 34.0
"""Points of a small plot in the panel."""
_X = implot.ImAxis_.x1.value
_X2 = implot.ImAxis_.x2.value
_Y = implot.ImAxis_.y1.value
_ENDS = {which: (implot.BoxedValue(), implot.BoxedValue()) for which in (_X, _X2, _Y)}
"""Both ends of each axis of the plot that is being drawn, shared with ImPlot.

They live as long as the program: ImPlot writes through its pointers at the end of a
plot also for an axis that only an earlier frame set up, and for a plot whose drawing
raised."""
_LEAST = 160.0, 110.0
"""Points of a plot that has room for axes."""
_PAN = 0.1
"""Share of the axis that a step of a horizontal wheel moves it."""


@dataclass(frozen=True)
class Axis:
    """One axis of a plot: what it covers, and its labels."""

    span: Range
    scale: Literal["linear", "log", "time"] = "linear"
    ticks: Sequence[Tick] = ()
    """Places of the labels; empty: ImPlot's."""
    format: str = ""
    """Format of ImPlot's labels, as printf has it."""
    locked: bool = False
    """True if the user cannot move it."""
    limit: Range | None = None
    """Range that the user cannot leave; a vertical axis with one is moved and zoomed
    along with the horizontal one."""
    min_extent: float = 0.0
    """Least extent that the user can see at once; for an axis with a limit."""
    grid_above: bool = False
    """True if its grid is drawn over what is in the plot."""


@dataclass
class Plot:
    """A plot that is being drawn, and after that what the user did in it."""

    x: Range
    y: Range
    hovered: bool = False
    is_over_y: bool = False
    """True if the pointer is on the vertical axis."""
    pointer: Range = (0.0, 0.0)
    """The place under the pointer while `hovered`, in units of the axes."""
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
    """True if there is no room for axes and words."""
    scale: float = 1.0

    def line(
        self,
        label: str,
        x: np.ndarray,
        y: np.ndarray,
        color: ImVec4,
        width: float = 1.5,
    ) -> None:
        """`width` in points. What begins with ## is not in the legend."""
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
        implot.plot_dummy(
            label,
            implot.Spec(line_color=ImVec4(0, 0, 0, 0), fill_color=ImVec4(0, 0, 0, 0)),
        )

    def to_pixel(self, x: float, y: float | None = None) -> tuple[float, float]:
        """The pixel of a point, at most _FAR away; without `y` at the lower edge."""
        found = implot.plot_to_pixels(x, self.y[0] if y is None else y)
        return _near(found.x), _near(found.y)

    @contextmanager
    def drawing(self) -> Iterator[imgui.ImDrawList]:
        """A list of what is drawn over the curves, within the axes."""
        implot.push_plot_clip_rect()
        try:
            yield implot.get_plot_draw_list()
        finally:
            implot.pop_plot_clip_rect()

    def upright(self, x: float, color: ImVec4, width: float = 1.0) -> None:
        """A vertical line from edge to edge."""
        with self.drawing() as draw:
            px = round(self.to_pixel(x)[0])
            draw.add_line(
                ImVec2(px, self.rect.y),
                ImVec2(px, self.rect.y + self.rect.height),
                theme.u32(color),
                width * self.scale,
            )

    def fade(self, x0: float, x1: float) -> None:
        """Dim what is between two places."""
        with self.drawing() as draw:
            bottom = self.rect.y + self.rect.height
            left, right = sorted((self.to_pixel(x0)[0], self.to_pixel(x1)[0]))
            draw.add_rect_filled(
                ImVec2(left, self.rect.y),
                ImVec2(right, bottom),
                theme.u32(theme.PANEL, 0.45),
            )

    def ticks(self, x: np.ndarray, color: ImVec4) -> None:
        """Short marks along the upper edge, at most one a pixel."""
        found = np.unique([round(self.to_pixel(value)[0]) for value in x.tolist()])
        with self.drawing() as draw:
            for px in found.tolist():
                draw.add_rect_filled(
                    ImVec2(px - self.scale, self.rect.y),
                    ImVec2(px + self.scale, self.rect.y + 6 * self.scale),
                    theme.u32(color),
                )

    def dot(self, x: float, y: float, color: ImVec4) -> None:
        with self.drawing() as draw:
            draw.add_circle_filled(
                ImVec2(*self.to_pixel(x, y)), 3.5 * self.scale, theme.u32(color), 12
            )

    def text_card(self, at: tuple[float, float], text: str, color: ImVec4) -> Rect:
        """Write on a card beside a pixel: on its right, or where there is no room on
        its left.
        """
        gap = 5 * self.scale
        draw = implot.get_plot_draw_list()
        left = (
            at[0] + 2 * gap + imgui.calc_text_size(text).x
            > self.rect.x + self.rect.width
        )
        return card(
            draw,
            (at[0] - gap if left else at[0] + gap, at[1]),
            [(text, color)],
            (float(left), 0.5),
            within=self.rect,
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
    legend: Literal["list", "row"] | None = None,
    ground: ImVec4 | None = None,
) -> Iterator[Plot | None]:
    """Draw a plot of this size in pixels at imgui's cursor; None where it is not seen.

    second: labels of a second horizontal axis, below the first, that goes along with
    it. legend: a list on the right or a row on the left, whose entries the user clicks
    to hide a curve. ground: the colour behind the curves.
    """
    flags = (
        implot.Flags_.no_title | implot.Flags_.no_mouse_text | implot.Flags_.no_menus
    ).value
    small = size[0] < _LEAST[0] * theme.scale() or size[1] < _LEAST[1] * theme.scale()
    flags |= implot.Flags_.no_legend.value if legend is None or small else 0
    wheel = (
        imgui.get_io().mouse_wheel
    )  # ImPlot asks only which way it turned: out it adds the rate r to what is seen,
    factor = ZOOM_STEP ** min(abs(wheel), 10.0) + 1e-6  # in it takes away r / (1 + 2 r)
    if wheel > 0:
        implot.get_input_map().zoom_rate = (factor - 1) / (2 - factor)
    else:
        implot.get_input_map().zoom_rate = factor - 1
    implot.get_input_map().override_mod = 0  # Ctrl is for the caller
    with _ground(ground or theme.BAR):
        if not implot.begin_plot(f"##{_id(name)}", _at_least_a_pixel(size), flags):
            yield None
            return
        found = Plot(x.span, y.span, small=small, scale=theme.scale())
        for which, axis in ((_X, x), (_Y, y)):
            _setup(which, axis, implot.AxisFlags_.no_decorations.value if small else 0)
            _link(which, axis.span)
        second_ticks = None if small else second_ticks
        if second_ticks is not None:
            marks = Axis(x.span, ticks=second_ticks)
            _setup(_X2, marks, implot.AxisFlags_.no_grid_lines.value)
            _link(_X2, x.span)
        if legend is not None:
            _setup_legend(legend)
        with _inside(found):  # sets the plot up, and draws its ground
            found.is_over_y = implot.is_axis_hovered(_Y)
            yield found
            boxed = imgui.is_mouse_released(imgui.MouseButton_.right)
    if found.card:
        hover_card(imgui.get_window_draw_list(), pointer(), found.card, found.rect)
    if (found.hovered or found.is_over_y) and imgui.is_mouse_double_clicked(
        imgui.MouseButton_.left
    ):
        found.reset = True
        return
    left, right = _linked_range(_X)
    # A drag in the plot moves both horizontal axes, one on an axis that axis alone.
    if second_ticks is not None and not _differ((left, right), x.span):
        left, right = _linked_range(_X2)
    low, high = _linked_range(_Y)
    aside = imgui.get_io().mouse_wheel_h
    if found.hovered and aside and not x.locked:
        left, right = (end - _PAN * aside * (right - left) for end in (left, right))
    found.moved = left < right and _differ((left, right), x.span)
    found.raised = (
        (boxed or found.is_over_y or y.limit is not None)
        and low < high
        and _differ((low, high), y.span)
    )
    found.x = (left, right)
    found.y = (low, high)


@contextmanager
def _ground(color: ImVec4) -> Iterator[None]:
    """Have plots drawn on a ground of this colour."""
    implot.push_style_color(implot.Col_.plot_bg.value, color)
    try:
        yield
    finally:
        implot.pop_style_color()


def _setup_legend(legend: Literal["list", "row"]) -> None:
    """Put the legend of a plot on the right as a list, or on the left as a row."""
    row = legend == "row"
    place = implot.Location_.north_west if row else implot.Location_.north_east
    flags = implot.LegendFlags_.horizontal.value if row else 0
    implot.setup_legend(place.value, flags)


@contextmanager
def bare(
    name: str, size: tuple[float, float], x: Range, y: Range
) -> Iterator[Plot | None]:
    """Draw a plot without axes at imgui's cursor, which takes nothing that the pointer
    does.
    """
    flags = implot.Flags_.canvas_only.value | implot.Flags_.no_inputs.value
    implot.push_style_var(implot.StyleVar_.plot_padding.value, ImVec2(0, 0))
    try:
        if not implot.begin_plot(f"##{_id(name)}", _at_least_a_pixel(size), flags):
            yield None
            return
        for which, span in ((_X, x), (_Y, y)):
            implot.setup_axis(which, None, implot.AxisFlags_.no_decorations.value)
            implot.setup_axis_limits(which, *span, imgui.Cond_.always.value)
        found = Plot(x, y, scale=theme.scale())
        with _inside(found):
            yield found
    finally:
        implot.pop_style_var()


@contextmanager
def strip(
    name: str, title: str, value: str, x: Range, y: Range, *, tip: str = ""
) -> Iterator[tuple[Plot | None, bool]]:
    """Draw a small plot across the window, below its title and newest value.

    True: it was clicked; `tip`: of one to click.
    """
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    width = max(imgui.get_content_region_avail().x, 8.0)
    clicked = imgui.invisible_button(
        _id(name),
        ImVec2(width, 1.3 * imgui.get_text_line_height() + STRIP_HEIGHT * scale),
    )
    if tip:
        imgui.set_item_tooltip(tip)
    hovered = bool(tip) and imgui.is_item_hovered()
    end = imgui.get_cursor_screen_pos()
    imgui.set_cursor_screen_pos(corner)
    head(title, value, width)
    imgui.set_cursor_screen_pos(
        ImVec2(corner.x, corner.y + 1.3 * imgui.get_text_line_height())
    )
    with bare(name, (width, STRIP_HEIGHT * scale), x, y) as found:
        yield found, clicked and bool(tip)
        if found is not None and hovered:
            r = found.rect
            implot.get_plot_draw_list().add_rect(
                ImVec2(r.x, r.y),
                ImVec2(r.x + r.width, r.y + r.height),
                theme.u32(theme.ACCENT, 0.6),
            )
    imgui.set_cursor_screen_pos(ImVec2(end.x, end.y - imgui.get_style().item_spacing.y))
    imgui.dummy(ImVec2(0, 0))


def head(left: str, right: str, width: float, fault: str = "") -> None:
    """Write a plot's title at the left of a line of this width, at its right the newest
    value, before it a fault.
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
    draw.push_clip_rect(
        corner, ImVec2(max(end, corner.x + 1), corner.y + 1.3 * line), True
    )
    draw.add_text(corner, theme.u32(theme.DIM), left)
    draw.pop_clip_rect()
    imgui.dummy(ImVec2(width, line))


def apply(scale: float) -> None:
    """Style the current context of ImPlot's as the theme in use. Between frames."""
    style = implot.get_style()
    c = implot.Col_
    style.use_local_time = True
    style.use24_hour_clock = True
    style.use_iso8601 = True
    style.plot_padding = style.label_padding = ImVec2(4 * scale, 4 * scale)
    style.legend_padding = style.legend_inner_padding = ImVec2(6 * scale, 4 * scale)
    style.plot_border_size = 0
    style.major_grid_size = style.minor_grid_size = ImVec2(scale, scale)
    style.minor_alpha = 0.35
    style.major_tick_len = style.minor_tick_len = ImVec2(0, 0)
    style.plot_min_size = ImVec2(1, 1)
    clear = ImVec4(0, 0, 0, 0)
    for which, color in (
        (c.frame_bg, clear),
        (c.plot_bg, theme.BAR),
        (c.plot_border, clear),
        (c.legend_bg, faint(theme.PANEL, 0.85)),
        (c.legend_border, clear),
        (c.legend_text, theme.TEXT),
        (c.axis_text, theme.DIM),
        (c.axis_grid, faint(theme.TEXT, 0.09)),
        (c.axis_bg, clear),
        (c.axis_bg_hovered, faint(theme.TEXT, 0.06)),
        (c.axis_bg_active, faint(theme.TEXT, 0.1)),
        (c.selection, theme.ACCENT),
        (c.inlay_text, theme.TEXT),
    ):
        style.set_color_(which.value, color)


@contextmanager
def _inside(found: Plot) -> Iterator[None]:
    """Between ImPlot's setup of a plot and its end."""
    corner = implot.get_plot_pos()
    size = implot.get_plot_size()
    width = max(round(size.x), 1)
    height = max(round(size.y), 1)
    found.rect = Rect(round(corner.x), round(corner.y), width, height)
    found.hovered = implot.is_plot_hovered()
    if found.hovered:
        at = implot.get_plot_mouse_pos()
        found.pointer = at.x, at.y
    try:
        yield
    finally:
        implot.end_plot()


def _setup(which: int, axis: Axis, flags: int = 0) -> None:
    flags |= (implot.AxisFlags_.lock.value if axis.locked else 0) | (
        implot.AxisFlags_.foreground.value if axis.grid_above else 0
    )
    implot.setup_axis(which, None, flags | implot.AxisFlags_.no_highlight.value)
    if axis.limit is not None:
        implot.setup_axis_limits_constraints(which, *axis.limit)
        implot.setup_axis_zoom_constraints(
            which, axis.min_extent, axis.limit[1] - axis.limit[0]
        )
    if axis.scale != "linear":
        implot.setup_axis_scale(
            which,
            (implot.Scale_.log10 if axis.scale == "log" else implot.Scale_.time).value,
        )
    if axis.format:
        implot.setup_axis_format(which, axis.format)
    if axis.ticks:
        implot.setup_axis_ticks(
            which, [at for at, _ in axis.ticks], [text for _, text in axis.ticks], False
        )


def _id(name: str) -> str:
    """Return what tells a plot of this name from all others: imgui passes over what is
    before "###", and runs name their curves.
    """
    return name.replace("\\", "\\\\").replace("#", "\\#")


def _at_least_a_pixel(size: tuple[float, float]) -> ImVec2:
    """Return a size that ImPlot takes as it is: it has other meanings for 0 and less."""
    return ImVec2(max(size[0], 1.0), max(size[1], 1.0))


def _link(which: int, span: Range) -> None:
    """Show a range on an axis, and have ImPlot tell what the user makes of it."""
    begin, end = _ENDS[which]
    begin.value = span[0]
    end.value = span[1]
    implot.setup_axis_links(which, begin, end)


def _linked_range(which: int) -> Range:
    """Return the range of an axis of the plot that was drawn last."""
    begin, end = _ENDS[which]
    return begin.value, end.value


def _near(pixel: float) -> float:
    """Return a pixel that can be drawn at, for one that may be infinite or none."""
    return min(max(pixel, -_FAR), _FAR) if math.isfinite(pixel) else -_FAR


def _differ(one: Range, other: Range) -> bool:
    near = 1e-9 * max(abs(other[1] - other[0]), 1e-300)
    return abs(one[0] - other[0]) > near or abs(one[1] - other[1]) > near


class PlotView(View[Data, State]):
    """A view whose whole picture is drawn with imgui.

    A subclass fills in `take` and `plot`.
    """

    pointer: float | None = None
    """The place of the pointer on the horizontal axis."""
    timings: Mapping[str, float] = {}
    """Timings of the last picture, as in `Info`."""

    def plot(self, scale: float) -> None:
        """Draw into imgui's window that is open; set `state` and `pointer` to what the
        user chose there.
        """
        raise NotImplementedError

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        framebuffer.use()
        framebuffer.clear(
            theme.PANEL.x,
            theme.PANEL.y,
            theme.PANEL.z,
            1.0,
            viewport=rect.viewport(framebuffer.height),
        )

    def ui(self, rect: Rect, scale: float) -> bool:
        before = self.pointer
        begin = time.perf_counter()
        pad = min(14 * scale, rect.width // 20), min(12 * scale, rect.height // 20)
        with board(f"plots {id(self)}", rect, pad, scroll=True):
            self.plot(scale)
        self.timings = {"plot": (time.perf_counter() - begin) * 1e3}
        return before != self.pointer

    def covered(self, rect: Rect) -> Sequence[Rect]:
        return (rect,)

    def release(self, occasion: Literal["idle", "away", "closed", "last"]) -> None:
        self.pointer = None
