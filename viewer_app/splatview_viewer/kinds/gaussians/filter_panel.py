"""The panel's part "Filter": histograms in which ranges are drawn, counts, saving."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.scene.statistics import QUANTITIES
from splatview_viewer.ui import plots, theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from splatview_viewer.kinds.gaussians.filter import Filter
    from splatview_viewer.scene.statistics import Quantity, Statistics

_HEIGHT = 44
"""Points that a histogram is high."""
_MIN_WIDTH = 8
_MAX_BARS = 64
_GRAB = 6
"""Points from the end of a range within which a press moves that end."""
_MIN_DRAG = 3
"""Points from which a press on a histogram draws a range."""


class _Label(NamedTuple):
    """Texts about a quantity."""

    title: str
    number_format: str
    tip: str


_LABELS = {
    "opacity": _Label("Opacity", "%.3f", "How opaque a Gaussian is at its middle"),
    "scale": _Label(
        "Size",
        "%.3g",
        "The largest of a Gaussian's three standard deviations, world units",
    ),
    "sh_energy": _Label(
        "SH energy",
        "%.3g",
        "How much a Gaussian's colour depends on the view:\n"
        "the sum of squares of its coefficients above degree 0",
    ),
}


@dataclass(frozen=True, slots=True)
class _BinAxis:
    """The horizontal axis of a histogram on the screen, counted in bins."""

    left: float
    """Left edge, in pixels of the screen."""
    width: float
    """Width in pixels."""
    first: int
    """The first bin that is shown."""
    last: int
    """The bin after the last one that is shown."""
    scale: float
    """Pixels per point."""

    @property
    def bins_per_pixel(self) -> float:
        return (self.last - self.first) / self.width

    def to_bins(self, x: float) -> float:
        return self.first + (x - self.left) * self.bins_per_pixel

    def clip(self, position: float) -> float:
        return min(max(position, self.first), self.last)


class _Drag(NamedTuple):
    """A range that is drawn."""

    quantity_name: str
    fixed_end: float
    """The end that stays, counted in bins."""


class RangeBrush:
    """Draws ranges of values with the pointer, in the histograms of a tool."""

    def __init__(self, tool: Filter) -> None:
        self._tool = tool
        self._drag: _Drag | None = None

    def handle(self, quantity: Quantity, axis: _BinAxis) -> None:
        """Take the pointer over the histogram that was submitted to imgui last."""
        tool = self._tool
        if imgui.is_item_clicked(imgui.MouseButton_.right):
            tool.reset(quantity)
            return
        position = axis.clip(axis.to_bins(ui.pointer().x))
        if imgui.is_item_activated():
            end = self._fixed_end(quantity, axis, position)
            self._drag = _Drag(quantity.name, end)
            return
        if self._drag is None or self._drag.quantity_name != quantity.name:
            return
        if not imgui.is_item_active():
            self._drag = None
            return
        start = self._drag.fixed_end
        # So far the press is a click.
        if abs(position - start) < _MIN_DRAG * axis.scale * axis.bins_per_pixel:
            return
        low = min(position, start)
        high = max(position, start)
        # The ends of the histogram stand for no limit.
        low_limit = 0.0
        high_limit = _no_limit(quantity)
        if low > axis.first:
            low_limit = quantity.edge(low)
        if high < axis.last:
            high_limit = quantity.edge(high)
        if (low_limit, high_limit) != tool.limits(quantity):
            tool.limit(quantity, low_limit, high_limit)

    def _fixed_end(self, quantity: Quantity, axis: _BinAxis, position: float) -> float:
        """Return the end that stays after a press: the opposite of the pressed one."""
        low, high = (quantity.position(v) for v in self._tool.limits(quantity))
        max_distance = _GRAB * axis.scale * axis.bins_per_pixel
        if abs(position - low) < max_distance:
            return high
        if abs(position - high) < max_distance:
            return low
        return position


def draw_panel(tool: Filter) -> None:
    """Draw the panel's part."""
    tool.is_open = True
    summary = tool.view.data.summary
    statistics = tool.statistics
    has_harmonics = summary is not None and summary.drawn_sh_degree > 0
    for quantity in QUANTITIES:
        if quantity.name != "sh_energy" or has_harmonics:
            _draw_quantity(tool, quantity, statistics)
    if statistics is not None:
        ui.row("Shown")
        imgui.text_unformatted(f"{statistics.selected:,} of {statistics.total:,}")
    if tool.is_active:
        tip = "Nothing is hidden any more, be it by its numbers or by where it lies"
        if ui.buttons("", ["Show all"], [tip]) == 0:
            tool.reset()
    if tool.progress is not None:
        ui.row("Saving")
        imgui.progress_bar(tool.progress, ImVec2(-1, 0))
        return
    pressed = ui.buttons(
        "Save as .ply",
        ["Shown", "All"],
        [
            "Write the Gaussians that are shown to a file\n"
            "in the folder where the viewer runs",
            "Write all Gaussians of this scene to a file\n"
            "in the folder where the viewer runs",
        ],
    )
    if pressed is not None:
        tool.save(only_shown=pressed == 0)


def _draw_quantity(
    tool: Filter, quantity: Quantity, statistics: Statistics | None
) -> None:
    """Draw a histogram with the numbers of its range."""
    label = _LABELS[quantity.name]
    used = (0, quantity.bins)
    if statistics is not None:
        used = statistics.occupied_bins(quantity)
    imgui.align_text_to_frame_padding()
    ui.dim(label.title)
    imgui.set_item_tooltip(label.tip)
    _draw_limits(tool, quantity, used, label.number_format)
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    size = ImVec2(imgui.get_content_region_avail().x, _HEIGHT * scale)
    if size.x < _MIN_WIDTH * scale:
        return
    axis = _BinAxis(corner.x, size.x, *used, scale)
    imgui.invisible_button(f"##histogram {quantity.name}", size)
    tool.brush.handle(quantity, axis)
    is_hovered = imgui.is_item_hovered(imgui.HoveredFlags_.for_tooltip.value)
    has_tooltip = is_hovered and not imgui.is_item_active()
    end = imgui.get_cursor_screen_pos()
    imgui.set_cursor_screen_pos(corner)
    _draw_histogram(tool, quantity, axis, size)
    imgui.set_cursor_screen_pos(end)
    if statistics is not None and has_tooltip:
        _draw_tooltip(quantity, statistics, axis)
    imgui.dummy(ImVec2(0, 2 * scale))


def _draw_histogram(
    tool: Filter, quantity: Quantity, axis: _BinAxis, size: ImVec2
) -> None:
    bins = (axis.first, axis.last)
    name = f"histogram {quantity.name}"
    with plots.bare(name, (size.x, size.y), bins, (0.0, 1.0)) as plot:
        if plot is None:
            return
        if tool.statistics is not None:
            _draw_bars(plot, tool.statistics, quantity, axis)
        low, high = tool.limits(quantity)
        low_position = axis.clip(quantity.position(low))
        high_position = axis.clip(quantity.position(high))
        if low_position != axis.first:
            plot.fade(low_position, axis.first)
            plot.upright(low_position, theme.TEXT, 1.5)
        if high_position != axis.last:
            plot.fade(high_position, axis.last)
            plot.upright(high_position, theme.TEXT, 1.5)


def _draw_bars(
    plot: plots.Plot, statistics: Statistics, quantity: Quantity, axis: _BinAxis
) -> None:
    """Draw the counts: all in grey, the chosen ones over them."""
    count = min(_MAX_BARS, axis.last - axis.first)
    edges = np.linspace(axis.first, axis.last, count + 1).round().astype(int)
    # Square roots let few be seen beside many.
    all_heights, shown_heights = (
        np.sqrt(np.add.reduceat(counts[: axis.last], edges[:-1]))
        for counts in statistics.counts[quantity.name]
    )
    top = 1.08 * (float(all_heights.max(initial=0.0)) or 1.0)
    plot.bars("##all", edges, all_heights / top, theme.ENDED)
    plot.bars("##chosen", edges, shown_heights / top, theme.ACCENT)


def _draw_tooltip(quantity: Quantity, statistics: Statistics, axis: _BinAxis) -> None:
    """Tell how many Gaussians lie in the bar under the pointer."""
    position = axis.to_bins(ui.pointer().x)
    half_bar = (axis.last - axis.first) / _MAX_BARS / 2
    low = position - half_bar
    high = position + half_bar
    bins = slice(max(int(low), 0), max(int(high), int(low) + 1))
    counts, _ = statistics.counts[quantity.name]
    imgui.set_tooltip(
        f"{counts[bins].sum():,} from {quantity.edge(low):.3g} to "
        f"{quantity.edge(high):.3g}\nDrag to choose a range. Right click: all\n"
        "Heights are square roots"
    )


def _draw_limits(
    tool: Filter, quantity: Quantity, used: tuple[int, int], number_format: str
) -> None:
    """Draw the least and the most in two fields to drag or to type into."""
    low, high = tool.limits(quantity)
    first, last = 0.0, 1.0
    flags = imgui.SliderFlags_.always_clamp.value
    if quantity.log:
        first, last = map(quantity.edge, used)
        flags |= imgui.SliderFlags_.logarithmic.value
    imgui.same_line(ui.LABEL_WIDTH * imgui.get_font_size())
    imgui.set_next_item_width(-1)
    is_edited, new_low, new_high = imgui.drag_float_range2(
        f"##{quantity.name}",
        low,
        min(high, last),
        (last - first) / 300,
        0.0,
        last,
        number_format,
        number_format,
        flags,
    )
    imgui.set_item_tooltip(
        "The least and the most that is shown. Drag, or Ctrl + click to type"
    )
    if not is_edited:
        return
    if new_low <= first:
        new_low = 0.0
    if new_high >= last:
        new_high = _no_limit(quantity)
    tool.limit(quantity, new_low, new_high)


def _no_limit(quantity: Quantity) -> float:
    """Return the upper limit that leaves out none."""
    return math.inf if quantity.log else 1.0
