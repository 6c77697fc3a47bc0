"""Draws the plot of the timeline with axes and marks, and the minimap."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from imgui_bundle import ImVec2, ImVec4, imgui, implot

from splatview_viewer.core import quantities
from splatview_viewer.core.quantities import size_text
from splatview_viewer.core.screen import Rect
from splatview_viewer.kinds.snapshot.captions import (
    device_caption,
    missing_caption,
    status_caption,
)
from splatview_viewer.kinds.snapshot.lane import draw_outline, move_window, outline_of
from splatview_viewer.kinds.snapshot.range_bars import draw_range_bars
from splatview_viewer.kinds.snapshot.state import PLOTS
from splatview_viewer.kinds.snapshot.world import MIN_WINDOW, MIN_WINDOW_BYTES
from splatview_viewer.snapshot.analysis.details import life, summary
from splatview_viewer.ui import controls, plot_axes, plots, theme
from splatview_viewer.ui.boards import board
from splatview_viewer.ui.text_cards import card
from splatview_viewer.ui.widgets import faint, fitted, lines_of, pointer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_viewer.kinds.snapshot.state import Range
    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.kinds.snapshot.world import PlotWorld

_MAX_CARD_WIDTH = 420.0
"""Points of a line on the card beside the pointer."""
_FONT_SIZE = 13.0
"""Points: the size of the labels of axes."""
_CLICK_DISTANCE = 4.0
"""Points that the pointer may move between press and release of a click."""
_MAX_NOTE_LINES = 4
"""Lines of what is missing, or lit, over a narrow plot."""


class PlotNote(NamedTuple):
    """Labels of a timeline that is compared with another, beside its bands."""

    badge: str
    """"A" or "B"."""
    color: ImVec4
    """Of the run."""
    line: int | None
    """The moment at the line that goes through both."""
    has_labels: bool
    """The labels of the time axis are below it."""


def draw_plot(view: SnapshotView, rect: Rect, note: PlotNote | None = None) -> Rect:
    """Draw the timeline, and react to what the user does in it.

    Args:
        view: whose timeline it is.
        rect: with the axes, in pixels.
        note: of one of two that are compared.

    Returns:
        The area within the axes.
    """
    scale = view.scale
    world = view.world()
    pad = (min(8 * scale, rect.width // 20), min(8 * scale, rect.height // 20))
    name = f"snapshot plot {id(view)}"
    with board(name, rect, pad, theme.CLEAR), theme.font_size(_FONT_SIZE):
        if world is None:
            center = (rect.x + rect.width / 2, rect.y + rect.height / 2)
            card(
                imgui.get_window_draw_list(),
                center,
                [(status_caption(view), theme.TEXT)],
                (0.5, 0.5),
                bounds=rect,
            )
            return rect
        available = imgui.get_content_region_avail()
        has_labels = note is None or note.has_labels
        x_axis, y_axis = _axes(view, world, available, has_labels=has_labels)
        size = (max(available.x, 1), max(available.y, 1))
        with (
            _thin_grid(),
            plots.plot("timeline", size, x_axis, y_axis, ground=theme.PLOT) as plot,
        ):
            if plot is None:
                return rect
            view.paint(world, plot.rect)
            _point(view, world, plot)
            if not plot.small:
                _draw_over(view, world, plot, note)
    if plot.reset:
        # The first of the two clicks has chosen an allocation.
        view.state = replace(view.state.without_window(), selected=None)
    else:
        x = plot.x if plot.moved else None
        y = plot.y if plot.raised else None
        view.state = world.with_window(view.state, x, y)
    if plot.hovered and _is_clicked(scale):
        state = view.state
        event_index = state.pointed_moment
        if event_index is None:
            event_index = state.moment
        view.change(selected=state.hovered, moment=event_index)
    return plot.rect


@contextmanager
def _thin_grid() -> Iterator[None]:
    """Have the grid, which lies over the bands, let them shine through."""
    implot.push_style_color(implot.Col_.axis_grid.value, faint(theme.TEXT, 0.09))
    try:
        yield
    finally:
        implot.pop_style_color()


def _axes(
    view: SnapshotView, world: PlotWorld, available: ImVec2, *, has_labels: bool
) -> tuple[plot_axes.Axis, plot_axes.Axis]:
    """Return the axes of the plot. available: pixels of the plot with its labels."""
    scale = view.scale
    io = imgui.get_io()
    axis = world.axis
    x, y = world.window(view.state)
    x_tick_count = max(int(available.x / (85 * scale)), 2)
    ticks = world.x_ticks(x, x_tick_count)
    # A longer label at the right edge would be cut.
    margin = 12 * scale
    pixels_per_x = available.x / (x[1] - x[0])
    complete_ticks = []
    for value, label in ticks:
        space_right = (x[1] - value) * pixels_per_x + margin
        if space_right >= imgui.calc_text_size(label).x / 2:
            complete_ticks.append((value, label if has_labels else ""))
    x_axis = plot_axes.Axis(
        x,
        ticks=complete_ticks,
        limit=world.extent,
        min_extent=MIN_WINDOW[axis.unit],
        locked=io.key_ctrl,
        grid_above=True,
    )
    y_axis = byte_axis(world, y, available.y / scale, locked=io.key_shift)
    return x_axis, y_axis


def byte_axis(
    world: PlotWorld, span: Range, points: float, *, locked: bool = False
) -> plot_axes.Axis:
    """Return the axis of bytes.

    Args:
        world: of the plot.
        span: what is visible of it.
        points: of height.
        locked: it is not moved.
    """
    return plot_axes.Axis(
        span,
        ticks=quantities.byte_ticks(*span, max(int(points / 45), 2)),
        limit=world.full,
        min_extent=MIN_WINDOW_BYTES,
        locked=locked,
        grid_above=True,
    )


def _is_clicked(scale: float) -> bool:
    """Return whether a single click ends now, and was no drag."""
    io = imgui.get_io()
    if not imgui.is_mouse_released(imgui.MouseButton_.left):
        return False
    if io.mouse_drag_max_distance_sqr[0] > (_CLICK_DISTANCE * scale) ** 2:
        return False
    return io.mouse_clicked_last_count[0] == 1


def _point(view: SnapshotView, world: PlotWorld, plot: plots.Plot) -> None:
    """Write the moment and the allocation under the pointer into the state."""
    if view.host.exact:
        return
    if not plot.hovered or imgui.is_mouse_dragging(imgui.MouseButton_.left):
        if view.state.pointed_moment is not None:
            view.change(pointed_moment=None, hovered=None)
        return
    x, y = plot.pointer
    event_index = None
    hovered = None
    painting = view.picture.current
    if painting is not None:
        event_index, hovered = painting.pixel_at(x, y)
    if event_index is None:
        event_index = world.axis.moment(x)
    view.change(pointed_moment=event_index, hovered=hovered)
    view.pointer = x, y


def _draw_over(
    view: SnapshotView, world: PlotWorld, plot: plots.Plot, note: PlotNote | None
) -> None:
    """Draw ranges, marks, the legend, texts, and what is under the pointer."""
    scale = view.scale
    r = plot.rect
    left = r.x + 6 * scale
    right = r.x + r.width - 6 * scale
    bottom = r.y + r.height - 6 * scale
    with plot.drawing() as draw:
        top = r.y + draw_range_bars(draw, view, world, plot)
        _draw_marks(draw, view, world, plot, note)
        if note is None:
            _draw_legend(draw, view, r, top)
        if note is not None:
            _draw_note(draw, view, world, plot, note)
            top += 34 * scale
        text = missing_caption(view)
        # The panel names the stack that is lit in both of two timelines.
        is_in_panel = note is not None and view.host.around == "desktop"
        if view.state.highlight is not None and not is_in_panel:
            text = f"Lit: {view.state.highlight.label}   (Esc: everything again)"
        if text:
            corner = (r.x + 10 * scale, top + 8 * scale)
            lines = [text]
            if imgui.calc_text_size(text).x > r.width - 40 * scale:
                lines = lines_of(text, r.width - 40 * scale, _MAX_NOTE_LINES)
            card(draw, corner, [(line, theme.TEXT) for line in lines], bounds=r)
        device = device_caption(view)
        if device:
            line = (device, theme.DIM)
            card(draw, (left, bottom), [line], (0, 1))
        status = status_caption(view)
        if status:
            line = (status, theme.DIM)
            card(draw, (right, bottom), [line], (1, 1))
    _draw_pointer(view, world, plot)


def _draw_note(
    draw: imgui.ImDrawList,
    view: SnapshotView,
    world: PlotWorld,
    plot: plots.Plot,
    note: PlotNote,
) -> None:
    """Draw whose timeline it is, the most that was reserved, and what is at the line."""
    scale = plot.scale
    r = plot.rect
    bands = world.bands
    right = r.x + r.width
    reserved = bands.most_reserved
    y = plot.to_pixel(plot.x[0], reserved)[1]
    if reserved and r.y <= y <= r.y + r.height:
        _draw_dashes(draw, (r.x, right), y, scale)
        text = f"reserved {size_text(reserved)}"
        width = imgui.calc_text_size(text).x
        line_height = imgui.get_text_line_height()
        text_top = y - line_height - 2 * scale
        top = text_top if text_top > r.y else y + 2 * scale
        corner = ImVec2(right - width - 6 * scale, top)
        draw.add_text(corner, theme.u32(theme.DIM), text)
    line_point: tuple[float, float, int] | None = None
    if note.line is not None and note.line < len(bands.live):
        x = world.axis.x_of(note.line)
        plot.upright(x, theme.TEXT, 1.3)
        live = int(bands.live[note.line])
        px, py = plot.to_pixel(x, live)
        draw.add_circle_filled(ImVec2(px, py), 5 * scale, theme.u32(theme.PLOT), 16)
        draw.add_circle_filled(ImVec2(px, py), 4 * scale, theme.u32(note.color), 16)
        line_point = px, py, live
    title = _draw_title(draw, view, r, note, bands.most_live)
    if line_point is not None:
        px, py, live = line_point
        below_title = r
        if px < title.x + title.width:
            top = title.y + title.height
            below_title = Rect(r.x, top, r.width, r.y + r.height - top)
        with theme.bold(theme.SMALL_SIZE):
            line = (size_text(live), theme.TEXT)
            card(draw, (px + 9 * scale, py), [line], (0, 0.5), bounds=below_title)


def _draw_dashes(
    draw: imgui.ImDrawList, ends: tuple[float, float], y: float, scale: float
) -> None:
    """Draw a dashed line at a pixel y."""
    x, right = ends
    color = theme.u32(theme.TEXT, 0.6)
    while x < right:
        end = min(x + 4 * scale, right)
        draw.add_line(ImVec2(x, y), ImVec2(end, y), color, scale)
        x += 8 * scale


def _draw_title(
    draw: imgui.ImDrawList, view: SnapshotView, r: Rect, note: PlotNote, highest: int
) -> Rect:
    """Draw whose timeline it is, on a card in the upper left corner; return its place."""
    scale = view.scale
    name = fitted(view.content.snapshot.name, r.width * 0.4)
    fact = f"highest {size_text(highest)}"
    with theme.bold(theme.FONT_SIZE):
        name_width = imgui.calc_text_size(name).x
    with theme.font_size(theme.FONT_SIZE):
        fact_width = imgui.calc_text_size(fact).x
        line_height = imgui.get_text_line_height()
    low = ImVec2(r.x + 12 * scale, r.y + 6 * scale)
    height = 28 * scale
    width = name_width + fact_width + 52 * scale
    high = ImVec2(low.x + width, low.y + height)
    draw.add_rect_filled(low, high, theme.u32(theme.BAR, 0.86), 6 * scale)
    controls.badge(note.badge, note.color, (low.x + 6 * scale, low.y + 5 * scale))
    y = round(low.y + (height - line_height) / 2)
    x = low.x + 33 * scale
    with theme.bold(theme.FONT_SIZE):
        draw.add_text(ImVec2(x, y), theme.u32(theme.TEXT), name)
    with theme.font_size(theme.FONT_SIZE):
        x += name_width + 9 * scale
        draw.add_text(ImVec2(x, y), theme.u32(theme.DIM), fact)
    return Rect(round(low.x), round(low.y), round(width), round(height))


def _draw_legend(
    draw: imgui.ImDrawList, view: SnapshotView, plot_rect: Rect, top: float
) -> None:
    """Draw the meaning of the colours, if there is space. top: y below the ranges."""
    scale = view.scale
    colors = view.content.colors(view.device, view.state.color_by)
    if view.tab not in PLOTS or not view.state.legend:
        return
    if colors is None or not colors.legend:
        return
    if plot_rect.width < 420 * scale or plot_rect.height < 130 * scale:
        return
    line_height = _FONT_SIZE * 1.45 * scale
    max_lines = max(int((plot_rect.height * 0.5 - 12 * scale) / line_height), 1)
    lines = []
    for text, color_class in colors.legend[: min(max_lines, 8)]:
        red, green, blue = (colors.palette[color_class] / 255).tolist()
        swatch = ImVec4(red, green, blue, 1)
        lines.append((fitted(text, 250 * scale), theme.DIM, swatch))
    corner = (plot_rect.x + plot_rect.width - 8 * scale, top + 8 * scale)
    card(draw, corner, lines, (1, 0), ground=faint(theme.BAR, 0.8), pad=0.7)


def _draw_marks(
    draw: imgui.ImDrawList,
    view: SnapshotView,
    world: PlotWorld,
    plot: plots.Plot,
    note: PlotNote | None,
) -> None:
    """Draw out of memory errors, the marked and chosen moments, and a lifetime.

    The lifetime is that of the selected allocation.
    """
    state = view.state
    scale = plot.scale
    r = plot.rect
    bottom = r.y + r.height
    mark_a, mark_b = state.marks

    def screen_x(event_index: int) -> float:
        return plot.to_pixel(world.axis.x_of(event_index))[0]

    def draw_line(
        event_index: int, color: ImVec4, text: str, y: float, anchor: float
    ) -> None:
        plot.upright(world.axis.x_of(event_index), color, 1.5)
        x = screen_x(event_index)
        if r.x - 1 <= x <= r.x + r.width + 1:
            card(draw, (x, y), [(text, color)], (0.5, anchor), bounds=r, pad=0.36)

    for event_index in view.content.ooms(view.device) or ():
        draw_line(event_index, theme.FAULT, "out of memory", r.y + 2 * scale, 0)
    if mark_a is not None and mark_b is not None:
        draw.add_rect_filled(
            ImVec2(screen_x(mark_a), r.y),
            ImVec2(screen_x(mark_b), bottom),
            theme.u32(theme.WAITS, 0.07),
        )
    for event_index, name in ((mark_a, "A"), (mark_b, "B")):
        if event_index is not None:
            draw_line(event_index, theme.WAITS, name, bottom - 3 * scale, 1)
    if state.moment is not None and note is None:
        x = screen_x(state.moment)
        size = 5 * scale
        left_corner = ImVec2(x - size, r.y)
        right_corner = ImVec2(x + size, r.y)
        tip = ImVec2(x, r.y + 1.3 * size)
        color = theme.u32(theme.TEXT)
        plot.upright(world.axis.x_of(state.moment), theme.TEXT)
        draw.add_triangle_filled(left_corner, right_corner, tip, color)
    if state.selected is not None:
        allocations = view.trace.allocations
        start = int(allocations.start[state.selected]) + 1
        end = int(allocations.end[state.selected]) + 1
        left = screen_x(start)
        right = max(screen_x(end), left + 2 * scale)
        draw.add_rect_filled(
            ImVec2(left, bottom - 3 * scale),
            ImVec2(right, bottom),
            theme.u32(theme.TEXT),
        )


def _draw_pointer(view: SnapshotView, world: PlotWorld, plot: plots.Plot) -> None:
    """Draw the crosshair, its labels on both axes, and a card about what is there."""
    event_index = view.state.pointed_moment
    if event_index is None or not plot.hovered or view.host.exact:
        return
    r = plot.rect
    scale = plot.scale
    draw = imgui.get_window_draw_list()
    x, y = pointer()
    bottom = r.y + r.height
    color = theme.u32(theme.TEXT, 0.3)
    right = r.x + r.width
    draw.add_line(ImVec2(x, r.y), ImVec2(x, bottom), color, scale)
    draw.add_line(ImVec2(r.x, y), ImVec2(right, y), color, scale)
    label = world.x_text(event_index)
    card(draw, (x, bottom + 3 * scale), [(label, theme.TEXT)], (0.5, 0))
    y_label = world.y_text(plot.pointer[1])
    if y_label:
        left = round(imgui.get_window_pos().x)
        bounds = Rect(left, r.y, r.width, r.height)
        corner = (r.x - 3 * scale, y)
        card(draw, corner, [(y_label, theme.TEXT)], (1, 0.5), bounds=bounds)
    lines = _pointer_lines(view, world, event_index)
    if lines:
        plot.set_card(lines)


def _pointer_lines(
    view: SnapshotView, world: PlotWorld, event_index: int
) -> list[tuple[str, ImVec4]]:
    """Return the lines of the card beside the pointer."""
    lines: list[tuple[str, ImVec4]] = []
    hovered = view.state.hovered
    if hovered is not None:
        max_width = _MAX_CARD_WIDTH * view.scale
        site = summary(view.content.snapshot, view.trace, hovered).partition("  ")[2]
        lived = f"lived {life(view.trace, hovered)['Lived']}"
        size = int(view.trace.allocations.size[hovered])
        lines += [
            (size_text(size), theme.TEXT),
            (fitted(site, max_width), theme.DIM),
            (fitted(lived, max_width), theme.DIM),
        ]
    if view.state.tab != "addresses":
        live = size_text(int(world.bands.live[event_index]))
        reserved = size_text(int(world.bands.reserved[event_index]))
        # The first line of a card is bright.
        color = theme.TEXT
        if lines:
            color = theme.DIM
        lines.append((f"{live} live of {reserved} reserved", color))
    return lines


# -- the minimap -----------------------------------------------------------------------


def draw_minimap(view: SnapshotView, rect: Rect) -> None:
    """Draw the complete timeline, and the window that the plot shows.

    The window moves with the pointer while the button is held.
    """
    world = view.world()
    if world is None:
        return
    outline = outline_of(view, world, rect.width)
    if outline is None:
        return
    with board(f"snapshot minimap {id(view)}", rect, color=theme.FIELD):
        draw_outline(view, world, outline, rect)
        _drag_window(view, world, rect)


def _drag_window(view: SnapshotView, world: PlotWorld, rect: Rect) -> None:
    """Move the window to the pointer while the button is held on the minimap."""
    is_pressed = imgui.is_mouse_clicked(imgui.MouseButton_.left)
    if imgui.is_window_hovered() and is_pressed:
        view.pane_memory["minimap held"] = True
    if not imgui.is_mouse_down(imgui.MouseButton_.left):
        view.pane_memory.pop("minimap held", None)
    if "minimap held" in view.pane_memory:
        move_window(view, world, rect)
