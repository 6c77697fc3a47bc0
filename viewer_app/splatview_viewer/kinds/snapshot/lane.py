"""The overview of a snapshot as a lane of the time area: all of it, and the window."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.kinds.snapshot.world import zoom_range
from splatview_viewer.snapshot.timeline.bands import peaks
from splatview_viewer.ui import plots, theme
from splatview_viewer.ui.tracks import Track
from splatview_viewer.ui.widgets import pointer

if TYPE_CHECKING:
    from splatview_viewer.core.lane import LaneButton
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.snapshot.state import Range
    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.kinds.snapshot.world import PlotWorld

_FIRST_WINDOW = 1 / 8
"""Share of the axis that a first drag makes the window."""
_ZOOM = 1.25
"""Factor of the window's width for a notch of the wheel."""
_HEADROOM = 1.06


class OverviewLane:
    """Shows the whole timeline; a drag moves the window, the wheel changes it."""

    name = "Overview"
    icon = "memory"
    empty_text = ""
    button: LaneButton | None = None
    playing = False
    reason: str | None = "a snapshot of memory is not played"

    def __init__(self, view: SnapshotView) -> None:
        self._view = view

    @property
    def caption(self) -> str:
        return f"{len(self._view.trace.events):,} events"

    def play(self, on: bool) -> None:
        """Do nothing: it is all there at once."""

    def step(self, by: int) -> None:
        """Do nothing."""

    def draw_track(self, rect: Rect, scale: float) -> bool:
        view = self._view
        previous = view.state
        track = Track(rect, scale)
        world = view.world()
        if world is not None:
            is_held = track.take_pointer("Overview track")
            self._take_pointer(world, rect, is_held=is_held)
        with track.drawing() as draw:
            imgui.set_cursor_screen_pos(ImVec2(rect.x, rect.y))
            outline = None if world is None else outline_of(view, world, rect.width)
            if world is None or outline is None:
                track.write(draw, "Counting")
                return False
            draw_outline(view, world, outline, rect)
        return view.state != previous

    def _take_pointer(self, world: PlotWorld, rect: Rect, *, is_held: bool) -> None:
        """Move the window to the pointer, and change its width by the wheel."""
        view = self._view
        if is_held:
            move_window(view, world, rect)
        wheel = imgui.get_io().mouse_wheel
        if not wheel or not imgui.is_item_hovered():
            return
        low, high = world.axis.extent
        center = low + (pointer().x - rect.x) / max(rect.width, 1) * (high - low)
        window = zoom_range(view.state.x or (low, high), center, _ZOOM**wheel)
        view.state = world.with_window(view.state, window)


class Outline(NamedTuple):
    """The complete timeline as two curves of steps."""

    x: np.ndarray
    live: np.ndarray
    reserved: np.ndarray

    @property
    def top(self) -> float:
        """Upper end of the axis of bytes."""
        live = float(self.live.max(initial=0))
        return max(live, float(self.reserved.max(initial=0)), 1.0) * _HEADROOM


def outline_of(view: SnapshotView, world: PlotWorld, columns: int) -> Outline | None:
    """Return the outline in so many columns of pixels; None while it is computed."""
    return view.content.request(
        ("minimap", view.device, view.state.unit, columns),
        partial(_outline, world, columns),
        newest=True,
        lane="layout",
    )


def _outline(world: PlotWorld, columns: int) -> Outline:
    """Return the outline of the timeline, with two points for each column of pixels."""
    axis = world.axis
    bands = world.bands
    edges = axis.edges(*axis.extent, columns)
    live = bands.live[peaks(bands.live, edges)]
    reserved = bands.reserved[peaks(bands.reserved, edges)]
    x = np.linspace(*axis.extent, columns + 1)
    return Outline(
        x=np.repeat(x, 2)[1:-1],
        live=np.repeat(live.astype(np.float64), 2),
        reserved=np.repeat(reserved.astype(np.float64), 2),
    )


def draw_outline(
    view: SnapshotView, world: PlotWorld, outline: Outline, rect: Rect
) -> None:
    """Draw the outline at imgui's cursor, and the window in it."""
    extent = world.axis.extent
    size = (rect.width, rect.height)
    with plots.bare("minimap", size, extent, (0, outline.top)) as plot:
        if plot is None:
            return
        zeros = np.zeros_like(outline.x)
        plot.shade("##bytes", outline.x, zeros, outline.reserved, theme.OVER)
        plot.shade("##bytes", outline.x, zeros, outline.live, theme.FILL)
        if view.state.x is not None:
            _draw_window(plot, rect, extent, view.state.x)


def _draw_window(plot: plots.Plot, rect: Rect, extent: Range, window: Range) -> None:
    """Draw a frame around the window, and fade the rest."""
    plot.fade(extent[0], window[0])
    plot.fade(window[1], extent[1])
    with plot.drawing() as draw:
        left = plot.to_pixel(window[0])[0]
        right = plot.to_pixel(window[1])[0]
        draw.add_rect(
            ImVec2(left - 1, rect.y),
            ImVec2(max(right, left + 1) + 1, rect.y + rect.height),
            theme.u32(theme.ACCENT),
        )


def move_window(view: SnapshotView, world: PlotWorld, rect: Rect) -> None:
    """Put the middle of the window where the pointer is."""
    low, high = world.axis.extent
    extent = high - low
    x0, x1 = view.state.x or (low, low + extent * _FIRST_WINDOW)
    half = (x1 - x0) / 2
    share = (pointer().x - rect.x) / max(rect.width, 1)
    center = low + share * extent
    view.state = world.with_window(view.state, (center - half, center + half))
