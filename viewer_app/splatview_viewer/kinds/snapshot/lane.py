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
from splatview_viewer.ui.widgets import faint, pointer

if TYPE_CHECKING:
    from imgui_bundle import ImVec4

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
    has_transport = False
    empty_text = ""
    button: LaneButton | None = None
    playing = False
    reason: str | None = "a snapshot of memory is not played"

    def __init__(self, view: SnapshotView) -> None:
        self._view = view
        self._color: ImVec4 | None = None
        """Of the run, of one of two; None: of one alone."""
        self._line: int | None = None
        """The moment of a line through two lanes."""

    @property
    def caption(self) -> str:
        return f"{len(self._view.trace.events):,} events"

    def play(self, on: bool) -> None:
        """Do nothing: it is all there at once."""

    def step(self, count: int) -> None:
        """Do nothing."""

    def draw_track(self, rect: Rect, scale: float) -> bool:
        view = self._view
        previous = view.state
        track = Track(rect, scale)
        world = view.world()
        if world is not None:
            is_held = track.take_pointer(f"{self.name} track")
            steps = track.take_arrows()
            if steps:
                self._shift_window(world, steps)
            self._take_pointer(world, rect, is_held=is_held)
        with track.drawing() as draw:
            if world is None:
                outline = None
            else:
                outline = outline_of(view, world, rect.width)
            if world is None or outline is None:
                track.write(draw, "Counting")
                return False
            imgui.set_cursor_screen_pos(ImVec2(rect.x, rect.y))
            draw_outline(view, world, outline, rect, self._color)
            if self._line is not None:
                share = world.axis.x_of(self._line) - world.extent[0]
                share /= world.extent[1] - world.extent[0]
                x = round(rect.x + share * rect.width)
                low = ImVec2(x - scale, rect.y)
                high = ImVec2(x + scale, rect.y + rect.height)
                draw.add_rect_filled(low, high, theme.u32(theme.TEXT))
        return view.state != previous

    def _shift_window(self, world: PlotWorld, steps: int) -> None:
        """Move the window by hundredths of all there is."""
        view = self._view
        low, high = world.extent
        begin, end = view.state.x or (low, high)
        shift = steps * (high - low) / 100
        shift = min(max(shift, low - begin), high - end)
        view.state = world.with_window(view.state, (begin + shift, end + shift))

    def _take_pointer(self, world: PlotWorld, rect: Rect, *, is_held: bool) -> None:
        """Move the window to the pointer, and change its width by the wheel."""
        view = self._view
        if is_held:
            move_window(view, world, rect)
        wheel = imgui.get_io().mouse_wheel
        if not wheel or not imgui.is_item_hovered():
            return
        low, high = world.extent
        center = low + (pointer().x - rect.x) / max(rect.width, 1) * (high - low)
        window = zoom_range(view.state.x or (low, high), center, _ZOOM**wheel)
        view.state = world.with_window(view.state, window)


class ComparedLane(OverviewLane):
    """The overview of A or of B, of two snapshots that are compared."""

    def __init__(self, view: SnapshotView, side: SnapshotView) -> None:
        """Describe it.

        Args:
            view: the user's.
            side: the view of the lane's snapshot, `view` or its partner.
        """
        super().__init__(side)
        self._owner = view
        badge = view.two_runs.badge_of(side)
        self.icon = badge
        self.name = "Before" if badge == "A" else "After"
        self._color = faint(theme.run_color("AB".index(badge)), 0.5)

    def draw_track(self, rect: Rect, scale: float) -> bool:
        owner = self._owner
        side = self._view
        partner = owner.two_runs.partner
        if partner is None:
            return False
        line = owner.two_runs.line(partner)
        if line is None:
            self._line = None
        else:
            self._line = line[side is not owner]
        previous = side.state
        changed = super().draw_track(rect, scale)
        if side is partner and side.state != previous:
            owner.two_runs.take_back(partner, previous)
        return changed


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
        ("minimap", view.device, view.state.unit, columns, world.extent, view.measure),
        partial(_outline, world, columns),
        newest=True,
        lane="layout",
    )


def _outline(world: PlotWorld, columns: int) -> Outline:
    """Return the outline of the timeline, with two points for each column of pixels."""
    axis = world.axis
    bands = world.bands
    edges = axis.edges(*world.extent, columns)
    live = _values_at(bands.live, edges)
    reserved = _values_at(bands.reserved, edges)
    x = np.linspace(*world.extent, columns + 1)
    return Outline(
        x=np.repeat(x, 2)[1:-1],
        live=np.repeat(live.astype(np.float64), 2),
        reserved=np.repeat(reserved.astype(np.float64), 2),
    )


def _values_at(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the greatest value in each column of pixels; 0 beyond the trace."""
    indices = peaks(values, edges)
    return np.where(indices >= 0, values[indices], 0)


def draw_outline(
    view: SnapshotView,
    world: PlotWorld,
    outline: Outline,
    rect: Rect,
    color: ImVec4 | None = None,
) -> None:
    """Draw the outline at imgui's cursor, and the window in it.

    color: of the bytes; the theme's without.
    """
    extent = world.extent
    size = (rect.width, rect.height)
    with plots.bare(f"minimap {id(view)}", size, extent, (0, outline.top)) as plot:
        if plot is None:
            return
        zeros = np.zeros_like(outline.x)
        plot.shade("##bytes", outline.x, zeros, outline.reserved, theme.HOVER)
        plot.shade("##bytes", outline.x, zeros, outline.live, color or theme.FILL)
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
    low, high = world.extent
    extent = high - low
    x0, x1 = view.state.x or (low, low + extent * _FIRST_WINDOW)
    half = (x1 - x0) / 2
    share = (pointer().x - rect.x) / max(rect.width, 1)
    center = low + share * extent
    view.state = world.with_window(view.state, (center - half, center + half))
