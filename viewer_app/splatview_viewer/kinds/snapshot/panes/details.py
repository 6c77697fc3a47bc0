"""The pane of details: everything about the selected allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.kinds.snapshot.panes.parts import (
    GROWN,
    chip,
    draw_centered,
    draw_tooltip,
    latest_answer,
)
from splatview_viewer.snapshot.analysis import frames as kinds
from splatview_viewer.snapshot.analysis.details import describe
from splatview_viewer.ui import controls, theme
from splatview_viewer.ui.widgets import colored, fitted, gap, wrapped

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.snapshot.analysis.details import Details, FrameLine


def draw_details(view: SnapshotView) -> None:
    """Draw the properties and stacks of the selected allocation, and actions on it."""
    allocation = view.state.selected
    device = view.device
    if allocation is None or allocation >= len(view.trace.allocations):
        draw_centered("Click an allocation")
        return
    if view.pane_memory.get("details of") != (device, allocation):
        view.pane_memory["details of"] = (device, allocation)
        imgui.set_scroll_y(0)
    snapshot = view.content.snapshot
    trace = view.trace
    moment = view.state.moment
    latest = latest_answer(
        view,
        "details",
        ("details", device, allocation, moment),
        lambda: describe(snapshot, trace, allocation, moment),
        "",
    )
    if latest is None or latest.answer.allocation != allocation:
        return
    details: Details = latest.answer
    _draw_head(view, details)
    _draw_actions(view, details)
    values_x = 5.4 * imgui.get_font_size() + imgui.get_style().window_padding.x
    for name, value in details.rows:
        colored(name, theme.DIM)
        imgui.same_line(values_x)
        wrapped(value, theme.TEXT)
    _draw_user_frames(details)
    _draw_stack(details)
    if details.freed_frames:
        _draw_heading("Freed by")
        for frame in details.freed_frames:
            if frame.kind != kinds.MACHINERY:
                _draw_frame(frame)


def _draw_heading(text: str) -> None:
    """Draw the title of a section."""
    gap(4 * theme.scale())
    colored(text, theme.ACCENT)


def _draw_head(view: SnapshotView, details: Details) -> None:
    """Draw the size of the allocation and its stack on one line, and a close button."""
    scale = view.scale
    size, _, site = details.title.partition("  ")
    imgui.align_text_to_frame_padding()
    colored(size, theme.TEXT)
    imgui.same_line(0, 10 * scale)
    button_size = imgui.get_frame_height()
    available_width = imgui.get_content_region_avail().x - button_size - 4 * scale
    colored(fitted(site, available_width), theme.DIM)
    imgui.same_line(imgui.get_window_width() - button_size - 10 * scale)
    if imgui.button("\u00d7", ImVec2(button_size, 0)):
        view.change(selected=None)
    controls.tip("Close (Escape)")


def _draw_actions(view: SnapshotView, details: Details) -> None:
    """Draw buttons that copy the details, move the timeline and highlight the stack."""
    allocations = view.trace.allocations
    allocation = details.allocation
    if _action_button(view, "Copy", "All that stands here, as text"):
        imgui.set_clipboard_text(details.text())
    if _action_button(view, "Begin", "Move the timeline to where it was allocated"):
        view.choose_moment(int(allocations.start[allocation]) + 1)
    end_tooltip = "Move the timeline to the last moment that it was live"
    end = int(allocations.end[allocation])
    if _action_button(view, "End", end_tooltip) and end < len(view.trace.events):
        view.choose_moment(end)
    stack = int(allocations.stack[allocation])
    key = ("stack", view.device)
    if chip("Same stack", view.is_highlighted(key, stack)) and stack >= 0:
        site = details.title.partition("  ")[2]
        ids = np.flatnonzero(allocations.stack == stack)
        view.toggle_highlight(key, stack, ids, f"all of {site or 'this stack'}")
    controls.tip("Light all allocations of this stack in the timeline")


def _action_button(view: SnapshotView, name: str, tooltip: str) -> bool:
    """Draw a button in a row of buttons; return whether it was pressed."""
    pressed = imgui.button(name)
    controls.tip(tooltip)
    imgui.same_line(0, 4 * view.scale)
    return pressed


def _draw_user_frames(details: Details) -> None:
    """Draw the user's own frames, each with its file below."""
    if not details.user_frames:
        return
    _draw_heading("Your code")
    for frame in details.user_frames:
        width = imgui.get_content_region_avail().x
        location = f"{frame.file}:{frame.line}"
        colored(fitted(frame.name, width), theme.TEXT)
        colored(fitted(location, width, tail=True), theme.DIM)
        if imgui.is_item_hovered():
            draw_tooltip(location)


def _draw_stack(details: Details) -> None:
    """Draw the frames of the stack that tell something."""
    if not details.frames:
        wrapped(
            "The snapshot does not say where it was allocated: it was made before "
            "recording began, or without stacks."
        )
        return
    _draw_heading("Stack")
    telling = [frame for frame in details.frames if frame.kind != kinds.MACHINERY]
    telling = telling or details.frames
    for frame in telling:
        _draw_frame(frame)
    hidden_count = len(details.frames) - len(telling)
    if hidden_count:
        text = f"{hidden_count} frames of machinery more; Copy has them"
        colored(text, theme.DIM)


def _draw_frame(frame: FrameLine) -> None:
    """Draw a frame on one line."""
    is_python = frame.file not in ("", "??")
    location = ""
    tooltip = frame.name
    if is_python:
        location = f"{kinds.short_file(frame.file)}:{frame.line}"
        tooltip = f"{frame.name}\n{frame.file}:{frame.line}"
    location_width = imgui.calc_text_size(location).x
    available_width = imgui.get_content_region_avail().x - location_width
    location_x = imgui.get_cursor_pos_x() + available_width
    name_width = available_width - imgui.get_style().item_spacing.x
    name = fitted(kinds.short_name(frame.name), name_width) or "??"
    if frame.kind == kinds.USER:
        colored(name, GROWN)
    else:
        colored(name, theme.TEXT if is_python else theme.DIM)
    is_hovered = imgui.is_item_hovered()
    if location:
        imgui.same_line(location_x)
        colored(location, theme.DIM)
    if is_hovered or imgui.is_item_hovered():
        draw_tooltip(tooltip)
