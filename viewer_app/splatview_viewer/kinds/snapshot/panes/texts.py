"""Facts about the snapshot, and everything about the allocation that was clicked."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.kinds.snapshot.analysis import frames as kinds
from splatview_viewer.kinds.snapshot.analysis.details import describe
from splatview_viewer.kinds.snapshot.model import pool_text, stream_text
from splatview_viewer.kinds.snapshot.panes.table import (
    GROWN,
    HIT,
    centered,
    chip,
    latest,
    tooltip,
)
from splatview_viewer.ui import theme
from splatview_viewer.ui.format import age_text, count_text, exact_size_text, size_text
from splatview_viewer.ui.widgets import colored, fitted, gap, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from splatview_viewer.kinds.snapshot.analysis.details import Details, FrameLine
    from splatview_viewer.kinds.snapshot.model import Snapshot
    from splatview_viewer.kinds.snapshot.view import SnapshotView


def draw_about(view: SnapshotView) -> None:
    """Draw words and numbers."""
    snapshot = view.content.snapshot
    for note in snapshot.notes:
        wrapped(note[:1].upper() + note[1:], HIT)
    for title, rows in view.content.ask(("facts",), lambda: facts(snapshot)) or ():
        if rows:
            _heading(title)
            _fields(rows, 13.0)


def facts(snapshot: Snapshot) -> list[tuple[str, list[tuple[str, str]]]]:
    """Facts about the file, its devices and the allocator's settings: titles, and rows of what and its value."""
    stacks, names = snapshot.stacks, dict.fromkeys(a.name for a in snapshot.annotations)
    first = {"File": snapshot.name, "Size": exact_size_text(snapshot.file_bytes) if snapshot.file_bytes else "",
             "Stacks": f"{count_text(len(stacks), 'stack')} of {count_text(len(stacks.file), 'frame')}",
             "Streams": ", ".join(map(stream_text, snapshot.streams[:12])) or "none",
             "Pools": ", ".join(map(pool_text, snapshot.pools[:12])) or "none",
             "Annotations": f"{len(snapshot.annotations):,}: {', '.join(list(names)[:6])}" if names else ""}
    out = [("Snapshot", [(what, value) for what, value in first.items() if value])]
    for trace in snapshot.traces:
        a, s, told = trace.allocations, trace.segments, trace.events.time_us[trace.events.time_us > 0]
        before, after = int((a.start < 0).sum()), int((a.end >= len(trace.events)).sum())
        rows = [("Events", f"{len(trace.events):,}"),
                ("Allocations", f"{len(a):,}; {before:,} live before the trace, {after:,} live at its end")]
        if len(told):
            began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(told[0] / 1e6))
            rows.append(("Recorded", f"from {began} for {age_text(max(int(told[-1] - told[0]), 0))}"))
        if len(s):
            total, allocated, requested, active = (
                size_text(int(column.sum())) for column in (s.total, s.allocated, s.requested, s.active))
            rows.append(("At the end", f"{total} reserved in {count_text(len(s), 'segment')}, {allocated} allocated, "
                                       f"{requested} of it requested, {active} active"))
        out.append((f"Device {trace.device}", rows))
    settings = [(name, json.dumps(value)) for name, value in snapshot.settings.items()]
    return [*out, ("Settings of the allocator", settings)]


def _fields(facts: Iterable[tuple[str, str]], width: float) -> None:
    """width: of what is said before a value, in units of the font's height."""
    room = width * imgui.get_font_size()
    for what, value in facts:
        colored(fitted(what, room - 8 * theme.scale()), theme.DIM)
        if imgui.is_item_hovered() and imgui.calc_text_size(what).x > room - 8 * theme.scale():
            imgui.set_tooltip(what)
        imgui.same_line(room + imgui.get_style().window_padding.x)
        wrapped(value, theme.TEXT)


def _heading(text: str) -> None:
    gap(4 * theme.scale())
    colored(text, theme.ACCENT)


def draw_details(view: SnapshotView) -> None:
    """Draw fields, the user's own frames, the whole stack; what can be copied, and where it can be seen."""
    allocation, device = view.state.selected, view.device
    if allocation is None or allocation >= len(view.trace.allocations):
        centered("Click an allocation")
        return
    if view.memory.get("details of") != (device, allocation):
        view.memory["details of"] = device, allocation
        imgui.set_scroll_y(0)
    snapshot, trace, moment = view.content.snapshot, view.trace, view.state.moment
    found = latest(view, "details", ("details", device, allocation, moment),
                   lambda: describe(snapshot, trace, allocation, moment), "")
    if found is None or found.answer.allocation != allocation:
        return
    details: Details = found.answer
    _head(view, details)
    _fields(details.rows, 5.4)
    if details.user_frames:
        _heading("Your code")
        for line in details.user_frames:
            width, place = imgui.get_content_region_avail().x, f"{line.file}:{line.line}"
            colored(fitted(line.name, width), theme.TEXT)
            colored(fitted(place, width, tail=True), theme.DIM)
            if imgui.is_item_hovered():
                tooltip(place)
    whole = view.memory.get("whole stack", False)
    told = [f for f in details.frames if whole or f.kind != kinds.MACHINERY] or details.frames
    if details.frames:
        _heading("Stack")
        for line in told:
            _brief(line)
        hidden = len(details.frames) - len(told)
        if (hidden or whole) and imgui.small_button(
                "Fewer frames" if whole else f"{hidden} frames of machinery more"):
            view.memory["whole stack"] = not whole
    elif not details.user_frames:
        wrapped("The snapshot does not say where it was allocated: it was made before recording began, or without "
                "stacks.")
    if details.freed_frames:
        _heading("Freed by")
        for line in details.freed_frames:
            if whole or line.kind != kinds.MACHINERY:
                _brief(line)


def _head(view: SnapshotView, details: Details) -> None:
    a, number, scale = view.trace.allocations, details.allocation, view.scale
    size, _, place = details.title.partition("  ")
    imgui.align_text_to_frame_padding()
    colored(size, theme.TEXT)
    imgui.same_line(0, 10 * scale)
    side = imgui.get_frame_height()
    colored(fitted(place, imgui.get_content_region_avail().x - side - 4 * scale), theme.DIM)
    imgui.same_line(imgui.get_window_width() - side - 10 * scale)
    if imgui.button("\u00d7", ImVec2(side, 0)):
        view.see(selected=None)
    imgui.set_item_tooltip("Close (Escape)")
    buttons = {"Copy": ("All that stands here, as text", lambda: imgui.set_clipboard_text(details.text())),
               "Begin": ("Move the timeline to where it was allocated", lambda: view.go(int(a.start[number]) + 1)),
               "End": ("Move the timeline to the last moment that it was live",
                       lambda: view.go(int(a.end[number])) if a.end[number] < len(view.trace.events) else None)}
    for name, (tip, act) in buttons.items():
        if imgui.button(name):
            act()
        imgui.set_item_tooltip(tip)
        imgui.same_line(0, 4 * scale)
    stack, key = int(a.stack[number]), ("stack", view.device)
    if chip("Same stack", view.is_lit(key, stack)) and stack >= 0:
        view.light(key, stack, np.flatnonzero(a.stack == stack), f"all of {place or 'this stack'}")
    imgui.set_item_tooltip("Light all allocations of this stack in the timeline")


def _brief(line: FrameLine) -> None:
    """Any frame, on one line."""
    python = line.file not in ("", "??")
    place = f"{kinds.short_file(line.file)}:{line.line}" if python else ""
    room = imgui.get_content_region_avail().x - imgui.calc_text_size(place).x
    at = imgui.get_cursor_pos_x() + room
    colored(fitted(kinds.short_name(line.name), room - imgui.get_style().item_spacing.x) or "??",
            GROWN if line.kind == kinds.USER else theme.TEXT if python else theme.DIM)
    hovered = imgui.is_item_hovered()
    if place:
        imgui.same_line(at)
        colored(place, theme.DIM)
    if hovered or imgui.is_item_hovered():
        tooltip(f"{line.name}\n{line.file}:{line.line}" if python else line.name)
