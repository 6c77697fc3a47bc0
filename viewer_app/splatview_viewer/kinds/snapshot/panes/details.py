"""Everything about the selected allocation: a section of the panel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.quantities import count_text, size_text
from splatview_viewer.kinds.snapshot.panes.parts import (
    draw_centered,
    draw_tooltip,
    latest_answer,
)
from splatview_viewer.snapshot.analysis import frames as kinds
from splatview_viewer.snapshot.analysis.details import describe
from splatview_viewer.ui import controls, theme
from splatview_viewer.ui.widgets import buttons, colored, fitted, gap, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.snapshot.analysis.details import Details, FrameLine


def draw_allocation(view: SnapshotView) -> None:
    """Draw the section of the panel about the chosen allocation."""
    if view.state.selected is None:
        wrapped("Click an allocation in the timeline to see whose it is.", theme.FAINT)
        return
    draw_details(view)


def allocation_state(view: SnapshotView) -> str:
    """Return a few words on the chosen allocation for the head of its section."""
    selected = view.state.selected
    if selected is None or selected >= len(view.trace.allocations):
        return "none"
    return size_text(int(view.trace.allocations.size[selected]))


def draw_details(view: SnapshotView) -> None:
    """Draw the properties and stacks of the selected allocation, and actions on it."""
    allocation = view.state.selected
    device = view.device
    if allocation is None or allocation >= len(view.trace.allocations):
        draw_centered("Click an allocation")
        return
    snapshot = view.content.snapshot
    trace = view.trace
    event_index = view.state.moment
    latest = latest_answer(
        view,
        "details",
        ("details", device, allocation, event_index),
        lambda: describe(snapshot, trace, allocation, event_index),
        "",
    )
    if latest is None or latest.answer.allocation != allocation:
        return
    details: Details = latest.answer
    _draw_title(view, details)
    values_x = imgui.get_cursor_pos_x() + theme.LABEL_WIDTH * view.scale
    for name, value in details.rows:
        colored(name, theme.DIM)
        imgui.same_line(values_x)
        wrapped(value, theme.TEXT)
    _draw_actions(view, details)
    if details.user_frames:
        _draw_heading("Your code")
        for frame in details.user_frames:
            draw_frame(frame)
    _draw_stack(details)
    if details.freed_frames:
        _draw_heading("Freed by")
        for frame in details.freed_frames:
            if frame.kind != kinds.MACHINERY:
                draw_frame(frame)


def _draw_heading(text: str) -> None:
    """Draw the title of a list of frames."""
    gap(4 * theme.scale())
    with theme.bold():
        colored(text, theme.TEXT)


def _draw_title(view: SnapshotView, details: Details) -> None:
    """Draw the stack of the allocation in its colour, its size, and a close button."""
    scale = view.scale
    size, _, site = details.title.partition("  ")
    x = imgui.get_cursor_pos_x()
    width = imgui.get_content_region_avail().x
    side = 24 * scale
    draw_swatch(view, details.allocation)
    with theme.bold():
        size_width = imgui.calc_text_size(size).x
        name_width = width - size_width - side - 34 * scale
        colored(fitted(site or "no stack", name_width), theme.TEXT)
        imgui.same_line(x + width - side - size_width - 6 * scale)
        colored(size, theme.TEXT)
    imgui.same_line(x + width - side)
    y = imgui.get_cursor_pos_y()
    imgui.set_cursor_pos_y(y - (side - imgui.get_text_line_height()) / 2)
    if controls.icon_button("close", "no allocation", side=24, hint="None (Escape)"):
        view.change(selected=None)


def draw_swatch(view: SnapshotView, allocation: int | None) -> None:
    """Draw a square in the colour of an allocation, and go on beside it."""
    scale = view.scale
    colors = view.content.colors(view.device, view.state.color_by)
    corner = imgui.get_cursor_screen_pos()
    y = corner.y + (imgui.get_text_line_height() - 11 * scale) / 2
    if colors is not None and allocation is not None:
        red, green, blue = colors.palette[colors.classes[allocation]].tolist()
        imgui.get_window_draw_list().add_rect_filled(
            ImVec2(corner.x, y),
            ImVec2(corner.x + 11 * scale, y + 11 * scale),
            theme.u32(ImVec4(red / 255, green / 255, blue / 255, 1)),
            3 * scale,
        )
    imgui.dummy(ImVec2(11 * scale, 1))
    imgui.same_line(0, 8 * scale)


def _draw_actions(view: SnapshotView, details: Details) -> None:
    """Draw buttons that move the timeline, highlight the stack and copy the details."""
    gap(2 * view.scale)
    allocations = view.trace.allocations
    allocation = details.allocation
    end = int(allocations.end[allocation])
    is_freed = end < len(view.trace.events)
    pressed = buttons(
        "",
        ["Begin", "End"],
        [
            "Move the timeline to where it was allocated",
            "Move the timeline to the last moment that it was live",
        ],
        reasons=[None, None if is_freed else "it is live until the end"],
    )
    if pressed == 0:
        view.choose_moment(int(allocations.start[allocation]) + 1)
    elif pressed == 1:
        view.choose_moment(end)
    stack = int(allocations.stack[allocation])
    pressed = buttons(
        "",
        ["Same stack", "Copy"],
        [
            "Light all allocations of this stack in the timeline",
            "All that stands here, as text",
        ],
        ["find", "copy"],
        [None if stack >= 0 else "its stack is not known", None],
    )
    if pressed == 0:
        site = details.title.partition("  ")[2]
        ids = np.flatnonzero(allocations.stack == stack)
        key = ("stack", view.device)
        view.toggle_highlight(key, stack, ids, f"all of {site or 'this stack'}")
    elif pressed == 1:
        imgui.set_clipboard_text(details.text())


def _draw_stack(details: Details) -> None:
    """Draw the frames of the stack that tell something."""
    if not details.frames:
        wrapped(
            "The snapshot does not say where it was allocated: it was made before "
            "recording began, or without stacks."
        )
        return
    _draw_heading("Stack")
    draw_frames(details.frames)


def draw_frames(frames: Sequence[FrameLine]) -> None:
    """Draw the frames of a stack that tell something, and how many more there are."""
    telling = [frame for frame in frames if frame.kind != kinds.MACHINERY]
    telling = telling or list(frames)
    for frame in telling:
        draw_frame(frame)
    hidden_count = len(frames) - len(telling)
    if hidden_count:
        frames_text = count_text(hidden_count, "frame")
        text = f"{frames_text} of machinery more; Copy has them"
        colored(text, theme.FAINT)


def draw_frame(frame: FrameLine) -> None:
    """Draw a frame on one line: its function, and at the right its place in code."""
    is_python = frame.file not in ("", "??")
    location = ""
    tooltip = frame.name
    if is_python:
        location = f"{kinds.short_file(frame.file)}:{frame.line}"
        tooltip = f"{frame.name}\n{frame.file}:{frame.line}"
    with theme.code(theme.SMALL_SIZE):
        location_width = imgui.calc_text_size(location).x
    available_width = imgui.get_content_region_avail().x - location_width
    location_x = imgui.get_cursor_pos_x() + available_width
    name_width = available_width - imgui.get_style().item_spacing.x
    name = fitted(kinds.short_name(frame.name), name_width) or "??"
    if frame.kind == kinds.USER:
        colored(name, theme.RUN_B)
    else:
        colored(name, theme.TEXT if is_python else theme.DIM)
    is_hovered = imgui.is_item_hovered()
    if location:
        imgui.same_line(location_x)
        with theme.code(theme.SMALL_SIZE):
            colored(location, theme.DIM)
    if is_hovered or imgui.is_item_hovered():
        draw_tooltip(tooltip)
