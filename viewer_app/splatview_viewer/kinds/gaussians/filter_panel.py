"""The sections "Filter", histograms in which ranges are drawn, and "Save the scene"."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.formats.writers import WRITERS
from splatview_viewer.kinds.gaussians.scene_page import PAGE_SUFFIX
from splatview_viewer.scene.statistics import QUANTITIES
from splatview_viewer.ui import controls, focus, theme
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.drags import drag
from splatview_viewer.ui.progress import draw_progress

if TYPE_CHECKING:
    from splatview_viewer.kinds.gaussians.filter import Filter
    from splatview_viewer.scene.statistics import Quantity, Statistics

_HEIGHT = 46
"""Points that a histogram is high."""
_FIELD_WIDTH = 58
"""Points of the field of a limit."""
_FIELD_GAP = 6
_FIELD_PADDING = 4
_KNOB = 5
"""Points of the radius of a handle's knob."""
_MIN_WIDTH = 8
_MAX_BARS = 64
_GRAB = 6
"""Points from the end of a range within which a press moves that end."""
_STOPS = 100
"""Presses of an arrow by which a handle goes through its histogram."""
_NEARLY_ZERO = 1e-5
_FORMATS = {writer.suffix: writer.suffix for writer in WRITERS}
_FORMATS[PAGE_SUFFIX] = PAGE_SUFFIX
_MIN_DRAG = 3
"""Points from which a press on a histogram draws a range."""


class _Label(NamedTuple):
    """Texts about a quantity."""

    title: str
    number_format: str
    tip: str


_LABELS = {
    "opacity": _Label("Opacity", "%.2f", "How opaque a Gaussian is at its middle"),
    "scale": _Label(
        "Size",
        "%.2g",
        "The largest of a Gaussian's three standard deviations, world units",
    ),
    "sh_energy": _Label(
        "SH energy",
        "%.2g",
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

    def to_pixel(self, position: float) -> float:
        """Return the pixel of a position counted in bins."""
        return self.left + (position - self.first) / self.bins_per_pixel

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
        _limit(tool, quantity, axis, (position, start))

    def _fixed_end(self, quantity: Quantity, axis: _BinAxis, position: float) -> float:
        """Return the end that stays after a press: the opposite of the pressed one."""
        low, high = (quantity.position(v) for v in self._tool.limits(quantity))
        max_distance = _GRAB * axis.scale * axis.bins_per_pixel
        if abs(position - low) < max_distance:
            return high
        if abs(position - high) < max_distance:
            return low
        return position


def _limit(
    tool: Filter, quantity: Quantity, axis: _BinAxis, ends: tuple[float, float]
) -> None:
    """Show what lies between two places of a histogram; its ends stand for no limit."""
    low_limit = 0.0
    high_limit = _no_limit(quantity)
    if min(ends) > axis.first:
        low_limit = quantity.edge(min(ends))
    if max(ends) < axis.last:
        high_limit = quantity.edge(max(ends))
    if (low_limit, high_limit) != tool.limits(quantity):
        tool.limit(quantity, low_limit, high_limit)


def _take_arrows(
    tool: Filter, quantity: Quantity, axis: _BinAxis, corner: ImVec2, height: float
) -> None:
    """Place both handles for the keyboard, whose arrows move them.

    The histogram, which comes after them, has the pointer.
    """
    ends = [axis.clip(quantity.position(v)) for v in tool.limits(quantity)]
    half = _KNOB * axis.scale
    for index, name in enumerate(("least", "most")):
        x = axis.to_pixel(ends[index])
        left = min(max(x - half, axis.left), axis.left + axis.width - 2 * half)
        imgui.set_cursor_screen_pos(ImVec2(left, corner.y))
        imgui.set_next_item_allow_overlap()
        imgui.invisible_button(
            f"##handle {quantity.name} {name}",
            ImVec2(2 * half, height),
            imgui.ButtonFlags_.enable_nav.value,
        )
        steps = focus.arrow_steps()
        if not steps:
            continue
        moved = axis.clip(ends[index] + steps * (axis.last - axis.first) / _STOPS)
        if index == 0:
            ends[index] = min(moved, ends[1])
        else:
            ends[index] = max(moved, ends[0])
        _limit(tool, quantity, axis, (ends[0], ends[1]))
    imgui.set_cursor_screen_pos(corner)


def state_words(tool: Filter) -> str:
    """Return how many Gaussians are shown, in a few words."""
    statistics = tool.known_statistics
    if statistics is not None:
        return f"{statistics.selected:,} of {statistics.total:,}"
    if tool.is_active:
        return "some hidden"
    return "all shown"


def draw_panel(tool: Filter) -> None:
    """Draw the section "Filter"."""
    tool.is_open = True
    summary = tool.view.data.summary
    has_harmonics = summary is not None and summary.drawn_sh_degree > 0
    for quantity in QUANTITIES:
        if quantity.name != "sh_energy" or has_harmonics:
            _draw_quantity(tool, quantity, tool.statistics)
    reason = None if tool.is_active else "all are shown"
    tip = "Nothing is hidden any more, be it by its numbers or by where it lies"
    text = "Show all"
    statistics = tool.known_statistics
    if statistics is not None and statistics.selected < statistics.total:
        text = f"Show the {statistics.total - statistics.selected:,} hidden"
    is_pressed = controls.button(
        text, "eye", name="Show all", width=-1, reason=reason, hint=tip
    )
    if is_pressed:
        tool.reset()


def draw_save(tool: Filter) -> None:
    """Draw the section "Save the scene"."""
    if tool.progress is not None:
        draw_progress(tool.progress, f"Writing, {tool.progress:.0%}")
        return
    tool.save_suffix = ui.choice(
        "Format",
        "The file that is written, and what other programs read;\n"
        ".html is a page that shows the scene, with the camera path",
        tool.save_suffix,
        _FORMATS,
    )
    pressed = ui.buttons(
        "Save",
        ["Shown", "All"],
        [
            "Write the Gaussians that are shown to a file\n"
            "in the folder where the viewer runs",
            "Write all Gaussians of this scene to a file\n"
            "in the folder where the viewer runs",
        ],
        ["eye", "save"],
        [tool.why_not_saved] * 2,
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
    scale = theme.scale()
    padding = ImVec2(4 * scale, _FIELD_PADDING * scale)
    imgui.push_style_var(imgui.StyleVar_.frame_padding, padding)
    imgui.align_text_to_frame_padding()
    ui.dim(label.title)
    controls.tip(label.tip)
    _draw_limits(tool, quantity, used, label.number_format)
    imgui.pop_style_var()
    corner = imgui.get_cursor_screen_pos()
    size = ImVec2(imgui.get_content_region_avail().x, _HEIGHT * scale)
    if size.x < _MIN_WIDTH * scale:
        return
    axis = _BinAxis(corner.x, size.x, *used, scale)
    _take_arrows(tool, quantity, axis, corner, size.y)
    imgui.invisible_button(f"##histogram {quantity.name}", size)
    tool.brush.handle(quantity, axis)
    is_hovered = imgui.is_item_hovered(imgui.HoveredFlags_.for_tooltip.value)
    has_tooltip = is_hovered and not imgui.is_item_active()
    draw = imgui.get_window_draw_list()
    high = ImVec2(corner.x + size.x, corner.y + size.y)
    draw.add_rect_filled(corner, high, theme.u32(theme.PLOT), 4 * scale)
    if statistics is not None:
        _draw_bars(tool, statistics, quantity, axis, (corner.y, high.y))
        if has_tooltip:
            _draw_tooltip(quantity, statistics, axis)
    _draw_handles(tool, quantity, axis, (corner.y, high.y))
    imgui.set_cursor_pos_y(imgui.get_cursor_pos_y() + 3 * scale)


def _draw_bars(
    tool: Filter,
    statistics: Statistics,
    quantity: Quantity,
    axis: _BinAxis,
    span: tuple[float, float],
) -> None:
    """Draw the counts: all in grey, those that are shown over them in the accent.

    span: the pixels of the histogram's upper and lower edge.
    """
    count = min(_MAX_BARS, axis.last - axis.first)
    edges = np.linspace(axis.first, axis.last, count + 1).round().astype(int)
    # Square roots let few be seen beside many.
    all_heights, shown_heights = (
        np.sqrt(np.add.reduceat(counts[: axis.last], edges[:-1]))
        for counts in statistics.counts[quantity.name]
    )
    top, bottom = span
    highest = float(all_heights.max(initial=0.0)) or 1.0
    factor = (bottom - top - 5 * axis.scale) / highest
    xs = (axis.left + (edges - axis.first) / axis.bins_per_pixel).tolist()
    draw = imgui.get_window_draw_list()
    seam = min(axis.scale, (xs[-1] - xs[0]) / count / 3)
    grey = theme.u32(theme.FAINT, 0.45)
    accent = theme.u32(theme.ACCENT)
    columns = zip(
        xs[:-1], xs[1:], all_heights * factor, shown_heights * factor, strict=True
    )
    for left, right, full_height, shown_height in columns:
        if full_height > shown_height:
            high = ImVec2(right - seam, bottom - shown_height)
            draw.add_rect_filled(ImVec2(left, bottom - full_height), high, grey)
        if shown_height > 0:
            high = ImVec2(right - seam, bottom)
            draw.add_rect_filled(ImVec2(left, bottom - shown_height), high, accent)


def _draw_handles(
    tool: Filter, quantity: Quantity, axis: _BinAxis, span: tuple[float, float]
) -> None:
    """Draw the ends of the range, where they limit anything, and shade the rest."""
    low, high = tool.limits(quantity)
    top, bottom = span
    draw = imgui.get_window_draw_list()
    shade = theme.u32(theme.PLOT, 0.55)
    ends = (
        (axis.clip(quantity.position(low)), axis.first),
        (axis.clip(quantity.position(high)), axis.last),
    )
    for position, no_limit in ends:
        if position == no_limit:
            continue
        x = axis.to_pixel(position)
        outer = axis.to_pixel(no_limit)
        left = ImVec2(min(x, outer), top)
        draw.add_rect_filled(left, ImVec2(max(x, outer), bottom), shade)
        line = axis.scale
        color = theme.u32(theme.TEXT)
        draw.add_rect_filled(ImVec2(x - line, top), ImVec2(x + line, bottom), color)
        middle = ImVec2(x, (top + bottom) / 2)
        draw.add_circle_filled(middle, _KNOB * axis.scale, color, 20)


def _draw_tooltip(quantity: Quantity, statistics: Statistics, axis: _BinAxis) -> None:
    """Tell how many Gaussians lie in the bar under the pointer."""
    position = axis.to_bins(ui.pointer().x)
    half_bar = (axis.last - axis.first) / _MAX_BARS / 2
    low = position - half_bar
    high = position + half_bar
    bins = slice(max(int(low), 0), max(int(high), int(low) + 1))
    counts, _ = statistics.counts[quantity.name]
    text = (
        f"{counts[bins].sum():,} from {quantity.edge(low):.3g} to "
        f"{quantity.edge(high):.3g}\nDrag to choose a range. Right click: all\n"
        "Heights are square roots"
    )
    controls.tell(text, ui.pointer().x)


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
    scale = theme.scale()
    gap = _FIELD_GAP * scale
    width = 2 * (_FIELD_WIDTH * scale + gap) + imgui.calc_text_size("to").x
    imgui.same_line()
    right = imgui.get_cursor_pos_x() + imgui.get_content_region_avail().x
    imgui.set_cursor_pos_x(right - width)
    limits = (max(low, first), min(high, last))
    new_limits = list(limits)
    for index, name in enumerate(("least", "most")):
        if index:
            imgui.same_line(0, gap)
            ui.dim("to")
            imgui.same_line(0, gap)
        imgui.set_next_item_width(_FIELD_WIDTH * scale)
        new_limits[index] = drag(
            f"##{quantity.name} {name}",
            limits[index],
            (last - first) / 300,
            number_format if limits[index] > _NEARLY_ZERO else "0",
            (first, last),
            flags,
        )
        controls.tip(f"The {name} that is shown. Drag, or Ctrl + click to type")
    if tuple(new_limits) == limits:
        return
    new_low, new_high = new_limits
    if new_low <= first:
        new_low = 0.0
    if new_high >= last:
        new_high = _no_limit(quantity)
    tool.limit(quantity, new_low, new_high)


def _no_limit(quantity: Quantity) -> float:
    """Return the upper limit that leaves out none."""
    if quantity.log:
        return math.inf
    return 1.0
