"""Everything about the allocation that was clicked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.kinds.snapshot.panes.table import (
    GROWN,
    chip,
    draw_centered,
    draw_tooltip,
    latest_answer,
)
from splatview_viewer.snapshot.analysis import frames as kinds
from splatview_viewer.snapshot.analysis.details import describe
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import colored, fitted, gap, wrapped

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.snapshot.analysis.details import Details, FrameLine


def _heading(text: str) -> None:
    gap(4 * theme.scale())
    colored(text, theme.ACCENT)


def draw_details(view: SnapshotView) -> None:
    """Draw fields, the user's own frames, the whole stack; what can be copied, and where it can be seen."""
    allocation = view.state.selected
    device = view.device
    if allocation is None or allocation >= len(view.trace.allocations):
        draw_centered("Click an allocation")
        return
    if view.pane_memory.get("details of") != (device, allocation):
        view.pane_memory["details of"] = device, allocation
        imgui.set_scroll_y(0)
    snapshot = view.content.snapshot
    trace = view.trace
    moment = view.state.moment
    found = latest_answer(
        view,
        "details",
        ("details", device, allocation, moment),
        lambda: describe(snapshot, trace, allocation, moment),
        "",
    )
    if found is None or found.answer.allocation != allocation:
        return
    details: Details = found.answer
    _head(view, details)
    for what, value in details.rows:
        colored(what, theme.DIM)
        imgui.same_line(
            5.4 * imgui.get_font_size() + imgui.get_style().window_padding.x
        )
        wrapped(value, theme.TEXT)
    if details.user_frames:
        _heading("Your code")
        for line in details.user_frames:
            width = imgui.get_content_region_avail().x
            place = f"{line.file}:{line.line}"
            colored(fitted(line.name, width), theme.TEXT)
            colored(fitted(place, width, tail=True), theme.DIM)
            if imgui.is_item_hovered():
                draw_tooltip(place)
    told = [f for f in details.frames if f.kind != kinds.MACHINERY] or details.frames
    if details.frames:
        _heading("Stack")
        for line in told:
            _brief(line)
        hidden = len(details.frames) - len(told)
        if hidden:
            colored(f"{hidden} frames of machinery more; Copy has them", theme.DIM)
    else:
        wrapped(
            "The snapshot does not say where it was allocated: it was made before recording began, or without "
            "stacks."
        )
    if details.freed_frames:
        _heading("Freed by")
        for line in details.freed_frames:
            if line.kind != kinds.MACHINERY:
                _brief(line)


def _head(view: SnapshotView, details: Details) -> None:
    a = view.trace.allocations
    number = details.allocation
    scale = view.scale
    size, _, place = details.title.partition("  ")
    imgui.align_text_to_frame_padding()
    colored(size, theme.TEXT)
    imgui.same_line(0, 10 * scale)
    side = imgui.get_frame_height()
    colored(
        fitted(place, imgui.get_content_region_avail().x - side - 4 * scale), theme.DIM
    )
    imgui.same_line(imgui.get_window_width() - side - 10 * scale)
    if imgui.button("\u00d7", ImVec2(side, 0)):
        view.change(selected=None)
    imgui.set_item_tooltip("Close (Escape)")
    buttons = {
        "Copy": (
            "All that stands here, as text",
            lambda: imgui.set_clipboard_text(details.text()),
        ),
        "Begin": (
            "Move the timeline to where it was allocated",
            lambda: view.choose_moment(int(a.start[number]) + 1),
        ),
        "End": (
            "Move the timeline to the last moment that it was live",
            lambda: (
                view.choose_moment(int(a.end[number]))
                if a.end[number] < len(view.trace.events)
                else None
            ),
        ),
    }
    for name, (tip, act) in buttons.items():
        if imgui.button(name):
            act()
        imgui.set_item_tooltip(tip)
        imgui.same_line(0, 4 * scale)
    stack = int(a.stack[number])
    key = ("stack", view.device)
    if chip("Same stack", view.is_highlighted(key, stack)) and stack >= 0:
        view.toggle_highlight(
            key,
            stack,
            np.flatnonzero(a.stack == stack),
            f"all of {place or 'this stack'}",
        )
    imgui.set_item_tooltip("Light all allocations of this stack in the timeline")


def _brief(line: FrameLine) -> None:
    """Any frame, on one line."""
    python = line.file not in ("", "??")
    place = f"{kinds.short_file(line.file)}:{line.line}" if python else ""
    room = imgui.get_content_region_avail().x - imgui.calc_text_size(place).x
    at = imgui.get_cursor_pos_x() + room
    colored(
        fitted(kinds.short_name(line.name), room - imgui.get_style().item_spacing.x)
        or "??",
        GROWN if line.kind == kinds.USER else theme.TEXT if python else theme.DIM,
    )
    hovered = imgui.is_item_hovered()
    if place:
        imgui.same_line(at)
        colored(place, theme.DIM)
    if hovered or imgui.is_item_hovered():
        draw_tooltip(f"{line.name}\n{line.file}:{line.line}" if python else line.name)
