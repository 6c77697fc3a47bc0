"""The axes of plots on ImPlot, and what a user's drags and wheel do to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from imgui_bundle import imgui, implot

from splatview_viewer.geometry.pan_zoom import ZOOM_STEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.quantities import Tick

    Range = tuple[float, float]

X = implot.ImAxis_.x1.value
X2 = implot.ImAxis_.x2.value
Y = implot.ImAxis_.y1.value
_ENDS = {axis_id: (implot.BoxedValue(), implot.BoxedValue()) for axis_id in (X, X2, Y)}
"""Both ends of each axis of the plot that is being drawn, shared with ImPlot.

They live as long as the program: ImPlot writes through its pointers at the end of a
plot also for an axis that only an earlier frame set up, and for a plot whose drawing
raised."""


@dataclass(frozen=True)
class Axis:
    """One axis of a plot: what it covers, and its labels."""

    span: Range
    scale: Literal["linear", "log", "time"] = "linear"
    ticks: Sequence[Tick] = ()
    """Values and texts of the labels; empty: ImPlot's."""
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


def set_buttons(drag_zooms: bool) -> imgui.MouseButton_:
    """Set what drags do in the next plot; return the button that draws boxes."""
    if drag_zooms:
        pan = imgui.MouseButton_.right
        select = imgui.MouseButton_.left
    else:
        pan = imgui.MouseButton_.left
        select = imgui.MouseButton_.right
    buttons = implot.get_input_map()
    buttons.pan = pan.value
    buttons.select = select.value
    buttons.select_cancel = pan.value
    return select


def set_wheel_rate(wheel: float) -> None:
    """Set how far ImPlot zooms by a turn of the wheel.

    ImPlot asks only for its direction: out it adds the rate r to what can be seen, in
    it takes away r / (1 + 2 r).
    """
    factor = ZOOM_STEP ** min(abs(wheel), 10.0) + 1e-6
    rate = factor - 1
    if wheel > 0:
        rate /= 2 - factor
    implot.get_input_map().zoom_rate = rate


def set_up_axis(axis_id: int, axis: Axis, flags: int = 0) -> None:
    """Set up an axis of the plot that was begun."""
    flags |= implot.AxisFlags_.no_highlight.value
    if axis.locked:
        flags |= implot.AxisFlags_.lock.value
    if axis.grid_above:
        flags |= implot.AxisFlags_.foreground.value
    implot.setup_axis(axis_id, None, flags)
    if axis.limit is not None:
        low, high = axis.limit
        implot.setup_axis_limits_constraints(axis_id, low, high)
        implot.setup_axis_zoom_constraints(axis_id, axis.min_extent, high - low)
    if axis.scale == "log":
        implot.setup_axis_scale(axis_id, implot.Scale_.log10.value)
    elif axis.scale == "time":
        implot.setup_axis_scale(axis_id, implot.Scale_.time.value)
    if axis.format:
        implot.setup_axis_format(axis_id, axis.format)
    if axis.ticks:
        values = [value for value, _ in axis.ticks]
        texts = [text for _, text in axis.ticks]
        implot.setup_axis_ticks(axis_id, values, texts, False)


def link_axis(axis_id: int, span: Range) -> None:
    """Show a range on an axis, and have ImPlot write what the user makes of it."""
    low, high = _ENDS[axis_id]
    low.value, high.value = span
    implot.setup_axis_links(axis_id, low, high)


def linked_range(axis_id: int) -> Range:
    """Return the range of an axis of the plot that was drawn last."""
    low, high = _ENDS[axis_id]
    return low.value, high.value


def differ(a: Range, b: Range) -> bool:
    """Return True if two ranges differ by more than rounding."""
    a_low, a_high = a
    b_low, b_high = b
    tolerance = 1e-9 * max(abs(b_high - b_low), 1e-300)
    return abs(a_low - b_low) > tolerance or abs(a_high - b_high) > tolerance
