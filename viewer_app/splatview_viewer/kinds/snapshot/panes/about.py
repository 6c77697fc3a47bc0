"""What the snapshot is: counts, settings of the allocator, what should be known."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from imgui_bundle import imgui

from splatview_viewer.kinds.snapshot.model import pool_text, stream_text
from splatview_viewer.kinds.snapshot.panes import _pane
from splatview_viewer.ui import theme
from splatview_viewer.ui.format import age_text, count_text, exact_size_text, size_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace
    from splatview_viewer.kinds.snapshot.state import Look

_LABEL = 13.0
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
            _pane.gap(4, scale)
        _section("Snapshot", snapshot_facts(snapshot), scale)
        for trace in snapshot.traces:
            _section(f"Device {trace.device}", trace_facts(snapshot, trace), scale)
        if snapshot.settings:
            _section("Settings of the allocator", settings_facts(snapshot.settings), scale)
        _section("Hands", _HANDS, scale)
        return False


def snapshot_facts(snapshot: Snapshot) -> list[tuple[str, str]]:
    """What is said of the file."""
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
    """What is said of one device."""
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
        label = _LABEL * imgui.get_font_size()
        _pane.colored(_pane.fitted(what, label - 8 * scale), theme.DIM)
        if imgui.is_item_hovered() and imgui.calc_text_size(what).x > label - 8 * scale:
            imgui.set_tooltip(what)
        imgui.same_line(label + imgui.get_style().window_padding.x)
        _pane.wrapped(value, theme.TEXT)
    _pane.gap(6, scale)
