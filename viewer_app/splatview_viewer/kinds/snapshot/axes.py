"""The plot of the timeline with its axes, marks, annotated ranges and the card beside the pointer; minimap and bar."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core import format
from splatview_viewer.core.format import size_text
from splatview_viewer.core.screen import Rect
from splatview_viewer.kinds.snapshot.panes.parts import chip
from splatview_viewer.kinds.snapshot.state import PLOTS, TABS
from splatview_viewer.kinds.snapshot.world import MIN_WINDOW, MIN_WINDOW_BYTES
from splatview_viewer.snapshot.analysis.annotations import annotated_ranges
from splatview_viewer.snapshot.analysis.details import life, summary
from splatview_viewer.snapshot.analysis.search import SEARCH_HELP
from splatview_viewer.snapshot.timeline.bands import BACKGROUND, peaks
from splatview_viewer.ui import plots, theme
from splatview_viewer.ui.widgets import board, card, faint, fitted, pointer

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.kinds.snapshot.world import PlotWorld

_WIDEST = 420.0
"""Points of a line on the card beside the pointer."""
_SMALL = 13.0
"""Points: the size of an axis's words."""
_CLICK = 4.0
"""Points that the pointer may move between press and release of a click."""
_MARKED = ImVec4(0.98, 0.78, 0.32, 1.0)
_CHOSEN = ImVec4(0.87, 0.88, 0.90, 0.75)
_SPAN = ImVec4(0.97, 0.98, 1.0, 0.9)
_LIVE = ImVec4(0.31, 0.41, 0.54, 1.0)
_RESERVED = ImVec4(0.098, 0.108, 0.127, 1.0)
_CLEAR = ImVec4(0, 0, 0, 0)
_GROUND = ImVec4(*(c / 255 for c in BACKGROUND), 1)  # type: ignore[call-arg]


def draw_plot(view: SnapshotView, rect: Rect) -> Rect:
    """Draw the timeline, and take what the user does in it. Returns the area within the axes."""
    scale = view.scale
    world = view.world()
    pad = min(8 * scale, rect.width // 20), min(8 * scale, rect.height // 20)
    with board(f"snapshot plot {id(view)}", rect, pad, _CLEAR), theme.font_size(_SMALL):
        room = imgui.get_content_region_avail()
        if world is None:
            card(
                imgui.get_window_draw_list(),
                (rect.x + rect.width / 2, rect.y + rect.height / 2),
                [(view.status_text, theme.TEXT)],
                (0.5, 0.5),
                within=rect,
            )
            return rect
        state = view.state
        io = imgui.get_io()
        axis = world.axis
        x, y = world.window(state)
        wide = max(int(room.x / (85 * scale)), 2)
        high = max(int(room.y / (45 * scale)), 2)
        if axis.unit == "events":
            ticks = format.count_ticks(*x, wide)
        else:
            ticks = format.time_ticks(*x, axis.origin_us, wide)
        beyond = 12 * scale  # a longer label at the right edge would be cut
        ticks = [
            (at, words)
            for at, words in ticks
            if (x[1] - at) / (x[1] - x[0]) * room.x + beyond
            >= imgui.calc_text_size(words).x / 2
        ]
        across = plots.Axis(
            x,
            ticks=ticks,
            limit=axis.extent,
            least=MIN_WINDOW[axis.unit],
            locked=io.key_ctrl,
            above=True,
        )
        up = plots.Axis(
            y,
            ticks=format.byte_ticks(*y, high),
            limit=world.full,
            least=MIN_WINDOW_BYTES,
            locked=io.key_shift,
            above=True,
        )
        with plots.plot(
            "timeline", (max(room.x, 1), max(room.y, 1)), across, up, ground=_GROUND
        ) as plot:
            if plot is None:
                return rect
            view.paint(world, plot.rect)
            _point(view, world, plot)
            if not plot.small:
                _draw_over(view, world, plot)
    if plot.reset:
        view.state = replace(
            view.state.without_window(), selected=None
        )  # which its first click chose
    else:
        view.state = world.with_window(
            view.state, plot.x if plot.moved else None, plot.y if plot.raised else None
        )
    dragged = io.mouse_drag_max_distance_sqr[0] > (_CLICK * scale) ** 2
    if (
        plot.hovered
        and imgui.is_mouse_released(imgui.MouseButton_.left)
        and not dragged
        and (io.mouse_clicked_last_count[0] == 1)
    ):
        state = view.state
        view.change(
            selected=state.hovered,
            moment=state.moment
            if state.pointed_moment is None
            else state.pointed_moment,
        )
    return plot.rect


def _point(view: SnapshotView, world: PlotWorld, plot: plots.Plot) -> None:
    """Note what lies under the pointer."""
    painted = view.picture.current
    state = view.state
    if view.host.exact:
        return
    if not plot.hovered or imgui.is_mouse_dragging(imgui.MouseButton_.left):
        if state.pointed_moment is not None:
            view.change(pointed_moment=None, hovered=None)
        return
    x, y = plot.pointer
    moment, hovered = painted.pixel_at(x, y) if painted is not None else (None, None)
    view.change(
        pointed_moment=world.axis.moment(x) if moment is None else moment,
        hovered=hovered,
    )
    view.pointer = x, y


def _draw_over(view: SnapshotView, world: PlotWorld, plot: plots.Plot) -> None:
    """Draw ranges, marks, the legend, and what is under the pointer."""
    scale = view.scale
    r = plot.rect
    with plot.drawing() as draw:
        above = _draw_annotations(draw, view, world, plot)
        _draw_marks(draw, view, world, plot)
        found = view.content.colors(view.device, view.state.color_by)
        if (
            view.tab in PLOTS
            and view.state.legend
            and found is not None
            and found.legend
            and r.width >= 420 * scale
            and r.height >= 130 * scale
        ):
            most = max(int((r.height * 0.5 - 12 * scale) / (_SMALL * 1.45 * scale)), 1)
            lines = [
                (
                    fitted(text, 250 * scale),
                    theme.DIM,
                    ImVec4(*np.append(found.palette[number] / 255, 1).tolist()),
                )
                for text, number in found.legend[: min(most, 8)]
            ]
            card(
                draw,
                (r.x + r.width - 8 * scale, r.y + above + 8 * scale),
                lines,
                (1, 0),
                ground=faint(theme.BAR, 0.8),
                pad=0.7,
            )
        lit = view.state.highlight
        words = view.missing_text
        if lit is not None:
            words = f"Lit: {lit.label}   (Esc: everything again)"
        if words:
            card(
                draw,
                (r.x + 10 * scale, r.y + above + 8 * scale),
                [(words, theme.TEXT)],
                within=r,
            )
        if view.device_label:
            card(
                draw,
                (r.x + 6 * scale, r.y + r.height - 6 * scale),
                [(view.device_label, theme.DIM)],
                (0, 1),
            )
        if view.status_text:
            card(
                draw,
                (r.x + r.width - 6 * scale, r.y + r.height - 6 * scale),
                [(view.status_text, theme.DIM)],
                (1, 1),
            )
    _draw_pointer(view, world, plot)


def _draw_marks(
    draw: imgui.ImDrawList, view: SnapshotView, world: PlotWorld, plot: plots.Plot
) -> None:
    """The moments that were chosen and marked, out of memory errors, and how long the selected allocation lives."""
    state = view.state
    scale = plot.scale
    r = plot.rect
    (a, b), bottom = state.marks, plot.rect.y + plot.rect.height

    def at(moment: int) -> float:
        return plot.at(world.axis.x_of(moment))[0]

    def line(moment: int, color: ImVec4, text: str, y: float, anchor: float) -> None:
        plot.upright(world.axis.x_of(moment), color, 1.5)
        if r.x - 1 <= at(moment) <= r.x + r.width + 1:
            card(
                draw,
                (at(moment), y),
                [(text, color)],
                (0.5, anchor),
                within=r,
                pad=0.36,
            )

    for moment in view.content.ooms(view.device) or ():
        line(moment, theme.FAULT, "out of memory", r.y + 2 * scale, 0)
    if a is not None and b is not None:
        draw.add_rect_filled(
            ImVec2(at(a), r.y), ImVec2(at(b), bottom), theme.u32(_MARKED, 0.07)
        )
    for moment, name in ((a, "A"), (b, "B")):
        if moment is not None:
            line(moment, _MARKED, name, bottom - 3 * scale, 1)
    if state.moment is not None:
        x = at(state.moment)
        s = 5 * scale
        plot.upright(world.axis.x_of(state.moment), _CHOSEN)
        draw.add_triangle_filled(
            ImVec2(x - s, r.y),
            ImVec2(x + s, r.y),
            ImVec2(x, r.y + 1.3 * s),
            theme.u32(_CHOSEN),
        )
    if state.selected is not None:
        allocations = view.trace.allocations
        x0, x1 = (
            at(int(column[state.selected]) + 1)
            for column in (allocations.start, allocations.end)
        )
        draw.add_rect_filled(
            ImVec2(x0, bottom - 3 * scale),
            ImVec2(max(x1, x0 + 2 * scale), bottom),
            theme.u32(_SPAN),
        )


def _draw_pointer(view: SnapshotView, world: PlotWorld, plot: plots.Plot) -> None:
    """The cross hair, what it points at on both axes, and a card with what lies there."""
    moment = view.state.pointed_moment
    hovered = view.state.hovered
    r = plot.rect
    scale = plot.scale
    if moment is None or not plot.hovered or view.host.exact:
        return
    draw, (x, y) = imgui.get_window_draw_list(), pointer()
    for a, b in (((x, r.y), (x, r.y + r.height)), ((r.x, y), (r.x + r.width, y))):
        draw.add_line(ImVec2(*a), ImVec2(*b), theme.u32(theme.INK, 0.2), scale)
    clock = world.axis.unit == "time" and world.axis.has_times
    words = format.clock_text(world.axis.time_us(moment)) if clock else f"{moment:,}"
    card(draw, (x, r.y + r.height + 3 * scale), [(words, theme.INK)], (0.5, 0))
    text = world.y_text(plot.pointer[1])
    if text:
        corner = imgui.get_window_pos()
        card(
            draw,
            (r.x - 3 * scale, y),
            [(text, theme.INK)],
            (1, 0.5),
            within=Rect(round(corner.x), r.y, r.width, r.height),
        )
    lines: list[tuple[str, ImVec4]] = []
    if hovered is not None:
        about = [
            summary(view.content.snapshot, view.trace, hovered).partition("  ")[2],
            f"lived {life(view.trace, hovered)['Lived']}",
        ]
        lines += [
            (size_text(int(view.trace.allocations.size[hovered])), theme.TEXT),
            *((fitted(line, _WIDEST * scale), theme.DIM) for line in about),
        ]
    if view.state.tab != "addresses":
        live, reserved = (
            size_text(int(values[moment]))
            for values in (world.bands.live, world.bands.reserved)
        )
        lines.append(
            (f"{live} live of {reserved} reserved", theme.DIM if lines else theme.TEXT)
        )
    if lines:
        plot.tell(lines)


_ROWS = 3
"""Ranges in ranges that are seen."""
_MOST = 150
"""Bars of one picture: the widest are drawn."""
_TINTS = (
    ImVec4(0.42, 0.67, 0.96, 1.0),
    ImVec4(0.55, 0.78, 0.62, 1.0),
    ImVec4(0.80, 0.66, 0.92, 1.0),
)


def _draw_annotations(
    draw: imgui.ImDrawList, view: SnapshotView, world: PlotWorld, plot: plots.Plot
) -> float:
    """A bar for each range, with its name where there is room. Returns how many pixels high they are together."""
    found = view.content.request(
        ("ranges", view.device),
        lambda: annotated_ranges(view.content.snapshot, view.trace),
    )
    if found is None or not found.names:
        return 0.0
    axis = world.axis
    r = plot.rect
    scale = plot.scale
    lowest = 0.0
    high = imgui.get_text_line_height() + 4 * scale
    step = (plot.x[1] - plot.x[0]) / plot.rect.width
    both = found.moments if axis.unit == "events" else found.times - axis.origin_us
    x0, x1 = np.clip(r.x + (both - plot.x[0]) / step, r.x, r.x + r.width)
    wide = np.flatnonzero(x1 - x0 >= 2 * scale)
    for k in wide[np.argsort((x0 - x1)[wide], kind="stable")[:_MOST]].tolist():
        if found.depth[k] >= _ROWS:
            continue
        left = float(x0[k])
        tint = _TINTS[found.depth[k]]
        y = r.y + found.depth[k] * (high + scale)
        end = max(float(x1[k]) - scale, left + 1)
        lowest = max(lowest, y + high - r.y)
        draw.add_rect_filled(
            ImVec2(left, y), ImVec2(end, y + high), theme.u32(tint, 0.20)
        )
        draw.add_rect_filled(
            ImVec2(left, y), ImVec2(end, y + 2 * scale), theme.u32(tint, 0.75)
        )
        if end - left > 28 * scale:
            draw.add_text(
                ImVec2(left + 5 * scale, y + 2.5 * scale),
                theme.u32(theme.INK),
                fitted(found.names[k], end - left - 8 * scale),
            )
    return lowest


def draw_minimap(view: SnapshotView, rect: Rect) -> None:
    """The whole timeline, low: live bytes before reserved ones, and the window that the plot shows, which goes where
    the user takes it.
    """
    content = view.content
    device = view.device
    world = view.world()
    columns = rect.width
    if world is None:
        return
    axis = world.axis
    bands = world.bands

    def work() -> tuple[np.ndarray, ...]:
        edges = axis.edges(*axis.extent, columns)
        most = (
            values[peaks(values, edges)].astype(np.float64)
            for values in (bands.live, bands.reserved)
        )
        x = np.linspace(*axis.extent, columns + 1)
        return np.repeat(x, 2)[1:-1], *(np.repeat(values, 2) for values in most)

    found = content.request(
        ("minimap", device, view.state.unit, columns), work, newest=True, lane="layout"
    )
    if found is None:
        return
    x, live, reserved = found
    top = max(float(live.max(initial=0)), float(reserved.max(initial=0)), 1.0) * 1.06
    with (
        board(
            f"snapshot minimap {id(view)}", rect, color=ImVec4(0.075, 0.081, 0.093, 1)
        ),
        plots.bare("minimap", (rect.width, rect.height), axis.extent, (0, top)) as plot,
    ):
        if plot is None:
            return
        for values, color in ((reserved, _RESERVED), (live, _LIVE)):
            plot.shade("##bytes", x, 0 * values, values, color)
        (low, high), seen = axis.extent, view.state.x
        if seen is not None:
            plot.fade(low, seen[0])
            plot.fade(seen[1], high)
            with plot.drawing() as draw:
                left, right = (plot.at(end)[0] for end in seen)
                draw.add_rect(
                    ImVec2(left - 1, rect.y),
                    ImVec2(max(right, left + 1) + 1, rect.y + rect.height),
                    theme.u32(theme.MARK),
                )
        x0, x1 = seen or (low, low + (high - low) / 8)
        at = low + (pointer().x - rect.x) / rect.width * (high - low)
        if imgui.is_window_hovered() and imgui.is_mouse_clicked(
            imgui.MouseButton_.left
        ):
            view.pane_memory["minimap held"] = True
        if not imgui.is_mouse_down(imgui.MouseButton_.left):
            view.pane_memory.pop("minimap held", None)
        elif "minimap held" in view.pane_memory:
            view.state = world.with_window(
                view.state, (at - (x1 - x0) / 2, at + (x1 - x0) / 2)
            )


# -- the bar over the plot: what to look at, and what to look for ------------------------------------------------------

_ONE_ROW = 940
"""Points of width from which the bar has room for every tab by name."""
_SEARCH = 230
_LEAST = 140
"""Points: the width of the search field, and where there is little room."""
_CORNER = 236
"""Points at the right end that are left free where there is room: a browser's page has its buttons there."""


def draw_bar(view: SnapshotView, rect: Rect) -> bool:
    """Draw in an imgui frame; True when the picture has to be drawn again though the state is the same."""
    scale = view.scale
    tab = view.tab
    with board(
        f"snapshot bar {id(view)}", rect, (10 * scale, 6 * scale), theme.BAR
    ):  # two views are two windows
        names = {
            key: name
            for key, name in TABS.items()
            if key != "oom" or view.content.ooms(view.device)
        }
        if rect.width >= _ONE_ROW * scale:
            for key, name in names.items():
                if chip(name, key == tab):
                    view.change(tab=key)
                imgui.same_line(0, 2 * scale)
        else:
            keys = list(names)
            imgui.set_next_item_width(min(rect.width * 0.42, 180 * scale))
            chosen = keys[
                imgui.combo(
                    "##tab", keys.index(tab) if tab in keys else 0, list(names.values())
                )[1]
            ]
            if chosen != tab:
                view.change(tab=chosen)
            imgui.same_line()
        room = rect.x + rect.width - 12 * scale - imgui.get_cursor_screen_pos().x
        return _search(
            view,
            min(max(room - _CORNER * scale, _LEAST * scale), _SEARCH * scale, room),
        )


def _search(view: SnapshotView, width: float) -> bool:
    imgui.set_next_item_width(width)
    focus = view.focus_search
    view.focus_search = False
    if focus:
        imgui.set_keyboard_focus_here()
    corner = imgui.get_cursor_screen_pos()
    edited, text = imgui.input_text_with_hint(
        "##search",
        "Search:  /",
        view.state.search,
        imgui.InputTextFlags_.auto_select_all,
    )
    if edited:
        view.change(search=text)
    found = view.content.hits(view.device, view.state.search)
    if imgui.is_item_hovered():
        lines = SEARCH_HELP.replace("; ", "\n")
        imgui.set_tooltip(
            lines
            if found is None
            else f"Found: {' and '.join(found.meanings)}\n\n{lines}"
        )
    if found is not None:
        if found.count:
            words = f"{found.count:,}  {size_text(found.bytes)}"
        else:
            words = "nothing"
        if (
            imgui.calc_text_size(text).x
            + imgui.calc_text_size(words).x
            + 30 * view.scale
            > width
        ):
            words = f"{found.count:,}"
        at = ImVec2(
            corner.x + width - imgui.calc_text_size(words).x - 8 * view.scale,
            corner.y + imgui.get_style().frame_padding.y,
        )
        imgui.get_window_draw_list().add_text(
            at, theme.u32(theme.DIM if found.count else theme.FAULT), words
        )
    return focus  # imgui gives the focus with the next picture
