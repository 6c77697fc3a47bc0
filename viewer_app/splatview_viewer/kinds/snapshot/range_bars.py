"""The bars of annotated ranges in the plot of the timeline."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.snapshot.analysis.annotations import annotated_ranges
from splatview_viewer.ui import plots, theme
from splatview_viewer.ui.widgets import fitted

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.kinds.snapshot.world import PlotWorld

_MAX_DEPTH = 3
"""Rows of ranges in ranges that are drawn."""
_MAX_RANGES = 150
"""Ranges in one picture: the widest are drawn."""
_TINTS = (
    ImVec4(0.42, 0.67, 0.96, 1.0),
    ImVec4(0.55, 0.78, 0.62, 1.0),
    ImVec4(0.80, 0.66, 0.92, 1.0),
)
"""Colours of the rows of ranges."""


def draw_range_bars(
    draw: imgui.ImDrawList, view: SnapshotView, world: PlotWorld, plot: plots.Plot
) -> float:
    """Draw a bar for each annotated range, with its name if that fits.

    Returns the height of all bars in pixels.
    """
    snapshot = view.content.snapshot
    trace = view.trace
    ranges = view.content.request(
        ("ranges", view.device), partial(annotated_ranges, snapshot, trace)
    )
    if ranges is None or not ranges.names:
        return 0.0
    scale = plot.scale
    if world.axis.unit == "events":
        limits = ranges.moments
    else:
        limits = ranges.times - world.axis.origin_us
    left, right = _range_ends(plot, limits)
    widths = right - left
    visible = np.flatnonzero(widths >= 2 * scale)
    by_width = visible[np.argsort(-widths[visible], kind="stable")]
    bar_height = imgui.get_text_line_height() + 4 * scale
    total_height = 0.0
    for i in by_width[:_MAX_RANGES].tolist():
        depth = ranges.depth[i]
        if depth >= _MAX_DEPTH:
            continue
        top = depth * (bar_height + scale)
        total_height = max(total_height, top + bar_height)
        x0 = float(left[i])
        x1 = max(float(right[i]) - scale, x0 + 1)
        corner = ImVec2(x0, plot.rect.y + top)
        size = ImVec2(x1 - x0, bar_height)
        _draw_range(draw, corner, size, scale, _TINTS[depth], ranges.names[i])
    return total_height


def _range_ends(plot: plots.Plot, limits: np.ndarray) -> np.ndarray:
    """Return the left and right ends of ranges in pixels, cut to the plot, (2, N).

    Args:
        limits: their ends on the time axis, (2, N).
    """
    x0, x1 = plot.x
    left = plot.rect.x
    right = left + plot.rect.width
    x_per_pixel = (x1 - x0) / plot.rect.width
    pixels = left + (limits - x0) / x_per_pixel
    return np.clip(pixels, left, right)


def _draw_range(
    draw: imgui.ImDrawList,
    corner: ImVec2,
    size: ImVec2,
    scale: float,
    tint: ImVec4,
    name: str,
) -> None:
    """Draw the bar of one annotated range, with its name if that fits."""
    right = corner.x + size.x
    bottom = corner.y + size.y
    ground = theme.u32(tint, 0.20)
    edge = theme.u32(tint, 0.75)
    draw.add_rect_filled(corner, ImVec2(right, bottom), ground)
    draw.add_rect_filled(corner, ImVec2(right, corner.y + 2 * scale), edge)
    if size.x > 28 * scale:
        text_corner = ImVec2(corner.x + 5 * scale, corner.y + 2.5 * scale)
        text = fitted(name, size.x - 8 * scale)
        draw.add_text(text_corner, theme.u32(theme.TEXT), text)
