"""Facts about the snapshot, and everything about the allocation that was clicked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.kinds.snapshot.analysis import frames as kinds
from splatview_viewer.kinds.snapshot.analysis.details import describe
from splatview_viewer.kinds.snapshot.model import pool_text, stream_text
from splatview_viewer.kinds.snapshot.panes import _pane
from splatview_viewer.kinds.snapshot.panes._pane import tooltip
from splatview_viewer.ui import theme
from splatview_viewer.ui.format import age_text, count_text, exact_size_text, size_text
from splatview_viewer.ui.widgets import gap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.snapshot.analysis.details import Details, FrameLine
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace
    from splatview_viewer.kinds.snapshot.state import Look

_WIDE_LABEL = 13.0
_HANDS = (
    ("Wheel", "zooms both axes at the pointer; with Shift time alone, with Ctrl bytes alone"),
    ("Drag, WASD, arrows", "move the window; so does the small map below"),
    ("Q, E, + and -", "zoom; F or a double click fits"),
    ("Click", "selects an allocation and a moment; Escape clears"),
    ("/", "searches: functions, files, addresses, sizes"),
    ("M", "marks two moments, for Compare"),
)


class AboutPane(_pane.Pane):
    """Words and numbers; nothing to be done."""

    name = "about"
    scroll = True

    def fill(self, content: Content, look: Look, rect: Rect, scale: float) -> bool:
        snapshot = content.snapshot
        for note in snapshot.notes:
            _pane.wrapped(note[:1].upper() + note[1:], _pane.HIT)
        if snapshot.notes:
            gap(4 * scale)
        _section("Snapshot", snapshot_facts(snapshot), scale)
        for trace in snapshot.traces:
            _section(f"Device {trace.device}", trace_facts(snapshot, trace), scale)
        if snapshot.settings:
            _section("Settings of the allocator", settings_facts(snapshot.settings), scale)
        _section("Hands", _HANDS, scale)
        return False


def snapshot_facts(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Facts about the file."""
    s = snapshot.stacks
    out = [("File", snapshot.name)]
    if snapshot.file_bytes:
        out.append(("Size", exact_size_text(snapshot.file_bytes)))
    out.append(("Stacks", f"{count_text(len(s), 'stack')} of {count_text(len(s.file), 'frame')}"))
    out.append(("Streams", ", ".join(map(stream_text, snapshot.streams[:12])) or "none"))
    out.append(("Pools", ", ".join(map(pool_text, snapshot.pools[:12])) or "none"))
    if snapshot.annotations:
        names = {a.name: None for a in snapshot.annotations}
        out.append(("Annotations", f"{len(snapshot.annotations):,}: {', '.join(list(names)[:6])}"))
    return out


def trace_facts(snapshot: Snapshot, trace: Trace) -> list[tuple[str, str]]:
    """Facts about one device."""
    a, s = trace.allocations, trace.segments
    before, after = int((a.start < 0).sum()), int((a.end >= len(trace.events)).sum())
    out = [("Events", f"{len(trace.events):,}"),
           ("Allocations", f"{len(a):,}; {before:,} live before the trace, {after:,} live at its end")]
    first = _pane.first_time(trace.events)
    if first:
        last = int(trace.events.time_us[-1])
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(first / 1e6))
        out.append(("Recorded", f"from {began} for {age_text(max(last - first, 0))}"))
    if len(s):
        out.append(("At the end", f"{size_text(int(s.total.sum()))} reserved in {count_text(len(s), 'segment')}, "
                                  f"{size_text(int(s.allocated.sum()))} allocated, "
                                  f"{size_text(int(s.requested.sum()))} of it requested, "
                                  f"{size_text(int(s.active.sum()))} active"))
        if s.expandable.any():
            out.append(("Expandable", f"{int(s.expandable.sum()):,} of the segments"))
    return out


def settings_facts(settings: dict[str, Any], before: str = "") -> list[tuple[str, str]]:
    """The settings, one in a row; what is nested has dots in its name, and what is nothing is left out."""
    out: list[tuple[str, str]] = []
    for name, value in settings.items():
        if isinstance(value, dict):
            inner = {k: v for k, v in value.items() if v not in (0, "", None)}
            out += settings_facts(inner, f"{before}{name}.") if inner else [(before + name, "none")]
        elif isinstance(value, bool):
            out.append((before + name, "yes" if value else "no"))
        elif value in ("", None):
            out.append((before + name, "not set"))
        elif value == -1:
            out.append((before + name, "no limit"))
        else:
            out.append((before + name, str(value)))
    return out


def _section(title: str, facts: Iterable[tuple[str, str]], scale: float) -> None:
    _pane.colored(title, theme.ACCENT)
    for what, value in facts:
        label = _WIDE_LABEL * imgui.get_font_size()
        _pane.colored(_pane.fitted(what, label - 8 * scale), theme.DIM)
        if imgui.is_item_hovered() and imgui.calc_text_size(what).x > label - 8 * scale:
            imgui.set_tooltip(what)
        imgui.same_line(label + imgui.get_style().window_padding.x)
        _pane.wrapped(value, theme.TEXT)
    gap(6 * scale)


_LABEL = 5.4
"""Width of what is said before a value, in units of the font's height."""


class DetailsPane(_pane.Pane):
    """Fields, the user's own frames, the whole stack; what can be copied, and where it can be seen."""

    name = "details"
    scroll = True
    ground = theme.PANEL

    def __init__(self) -> None:
        super().__init__()
        self.whole = False
        """Whether the frames that tell nothing are shown too."""

    def fill(self, content: Content, look: Look, rect: Rect, scale: float) -> bool:
        if look.selected is None or look.selected >= len(content.trace(look).allocations):
            _pane.centered("Click an allocation")
            return False
        draw = imgui.get_window_draw_list()
        draw.push_clip_rect(ImVec2(rect.x, rect.y), ImVec2(rect.x + rect.width, rect.y + rect.height))
        draw.add_line(ImVec2(rect.x, rect.y), ImVec2(rect.x, rect.y + rect.height), theme.u32(_pane.LINE))
        draw.pop_clip_rect()
        return self._draw(content, look, look.selected, scale)

    def _draw(self, content: Content, look: Look, allocation: int, scale: float) -> bool:
        snapshot, trace, moment = content.snapshot, content.trace(look), look.moment
        key = ("details", look.device, allocation, moment)
        found = content.ask(key, lambda: describe(snapshot, trace, allocation, moment), slot=("details", id(self)))
        if self._shown_of != (look.device, allocation):
            imgui.set_scroll_y(0)
        details = self.latest(content, look, key, found, allocation, "")
        if details is None:
            return False
        changed = self._head(content, look, details, scale)
        for what, value in details.rows:
            _field(what, value)
        if details.user_frames:
            _heading("Your code", scale)
            for line in details.user_frames:
                _frame(line, scale)
        if details.frames:
            told = [f for f in details.frames if self.whole or f.kind != kinds.MACHINERY] or details.frames
            _heading("Stack", scale)
            for line in told:
                _brief(line, scale)
            changed |= self._more(len(details.frames) - len(told))
        elif not details.user_frames:
            gap(4 * scale)
            _pane.wrapped("The snapshot does not say where it was allocated: it was made before recording began, or "
                          "without stacks.")
        if details.freed_frames:
            _heading("Freed by", scale)
            for line in details.freed_frames:
                if self.whole or line.kind != kinds.MACHINERY:
                    _brief(line, scale)
        return changed

    def _head(self, content: Content, look: Look, details: Details, scale: float) -> bool:
        trace, number = content.trace(look), details.allocation
        a = trace.allocations
        size, _, place = details.title.partition("  ")
        imgui.align_text_to_frame_padding()
        _pane.colored(size, theme.TEXT)
        imgui.same_line(0, 10 * scale)
        width = imgui.get_content_region_avail().x - imgui.get_frame_height() - 4 * scale
        _pane.colored(_pane.fitted(place, width), theme.DIM)
        imgui.same_line()
        imgui.set_cursor_pos_x(imgui.get_window_width() - imgui.get_frame_height() - 10 * scale)
        if _close(scale):
            look.select(None)
            return True
        changed = False
        start, end, stack = int(a.start[number]), int(a.end[number]), int(a.stack[number])
        if imgui.button("Copy"):
            imgui.set_clipboard_text(details.text())
        imgui.set_item_tooltip("All that stands here, as text")
        imgui.same_line(0, 4 * scale)
        if imgui.button("Begin"):
            _pane.go(content, look, start + 1)
            changed = True
        imgui.set_item_tooltip("Move the timeline to where it was allocated")
        if end < len(trace.events):
            imgui.same_line(0, 4 * scale)
            if imgui.button("End"):
                _pane.go(content, look, end)
                changed = True
            imgui.set_item_tooltip("Move the timeline to the last moment that it was live")
        if stack >= 0:
            imgui.same_line(0, 4 * scale)
            on = self.lamp.on == ("stack", stack) and look.lit is not None
            if _pane.chip("Same stack", on):
                self.lamp.toggle(look, ("stack", stack), lambda: np.flatnonzero(a.stack == stack),
                                  f"all of {place or 'this stack'}")
                changed = True
            imgui.set_item_tooltip("Light all allocations of this stack in the timeline")
        gap(2 * scale)
        return changed

    def _more(self, hidden: int) -> bool:
        if not hidden and not self.whole:
            return False
        words = "Fewer frames" if self.whole else f"{hidden} frames of machinery more"
        if imgui.small_button(words):
            self.whole = not self.whole
            return True
        return False


def _field(what: str, value: str) -> None:
    _pane.colored(what, theme.DIM)
    imgui.same_line(_LABEL * imgui.get_font_size() + imgui.get_style().window_padding.x)
    _pane.wrapped(value, theme.TEXT)


def _heading(text: str, scale: float) -> None:
    gap(5 * scale)
    _pane.colored(text, theme.ACCENT)


def _frame(line: FrameLine, scale: float) -> None:
    """A frame of the user's: the function, and below it the whole path."""
    width = imgui.get_content_region_avail().x
    imgui.push_style_var(imgui.StyleVar_.item_spacing, ImVec2(8 * scale, 1 * scale))
    _pane.colored(_pane.fitted(line.name, width), theme.TEXT)
    imgui.pop_style_var()
    place = f"{line.file}:{line.line}"
    _pane.colored(_pane.fitted(place, width, tail=True), theme.DIM)
    if imgui.is_item_hovered():
        tooltip(place, scale)


def _brief(line: FrameLine, scale: float) -> None:
    """Any frame, on one line."""
    python = line.file not in ("", "??")
    place = f"{kinds.short_file(line.file)}:{line.line}" if python else ""
    width = imgui.get_content_region_avail().x
    beside = imgui.calc_text_size(place).x + 10 * scale if place else 0
    color = _pane.GROWN if line.user else theme.TEXT if python else theme.DIM
    imgui.push_style_var(imgui.StyleVar_.item_spacing, ImVec2(8 * scale, 2 * scale))
    imgui.begin_group()
    _pane.colored(_pane.fitted(kinds.short_name(line.name), width - beside) or "??", color)
    if place:
        _pane.on_the_right(imgui.calc_text_size(place).x)
        _pane.colored(place, theme.DIM)
    imgui.end_group()
    imgui.pop_style_var()
    if imgui.is_item_hovered():
        tooltip(f"{line.name}\n{line.file}:{line.line}" if python else line.name, scale)


def _close(scale: float) -> bool:
    """A button with a cross."""
    side = imgui.get_frame_height()
    corner = imgui.get_cursor_screen_pos()
    pressed = imgui.invisible_button("##close", ImVec2(side, side))
    color = theme.u32(theme.TEXT if imgui.is_item_hovered() else theme.DIM)
    imgui.set_item_tooltip("Close (Escape)")
    draw, r = imgui.get_window_draw_list(), 4.5 * scale
    x, y = corner.x + side / 2, corner.y + side / 2
    draw.add_line(ImVec2(x - r, y - r), ImVec2(x + r, y + r), color, 1.5 * scale)
    draw.add_line(ImVec2(x - r, y + r), ImVec2(x + r, y - r), color, 1.5 * scale)
    return pressed
