"""Panes of findings: growth between two moments, leaks, failed allocations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.kinds.snapshot.panes.parts import (
    FREE,
    GROWN,
    SHRUNK,
    USED,
    WAITING,
    Shown,
    beside,
    centered,
    choose,
    label,
    moment_text,
    on_the_right,
    parts_bar,
    places,
    stack_tip,
)
from splatview_viewer.kinds.snapshot.panes.table import Cell, Column, QueryPane, Rows
from splatview_viewer.ui import theme
from splatview_viewer.ui.format import age_text, change_text, count_text, size_text
from splatview_viewer.ui.widgets import colored, gap, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.kinds.snapshot.analysis.tables import Oom, Suspect
    from splatview_viewer.kinds.snapshot.content import Content, Key
    from splatview_viewer.kinds.snapshot.view import SnapshotView

_BY = {"stack": "Stack", "line": "Line", "function": "Function", "file": "File", "size": "Size", "category": "Category"}
_WHEN = {"peak": "its peak", "end": "its end"}


def _compare_key(view: SnapshotView) -> Key | None:
    """Two moments of this snapshot, or one of another and one of this."""
    now, scale, others = view.moment, view.scale, view.content.others()
    if now is None:
        centered("Looking for the peak\u2026")
        return None
    other = _against(view, others) if others else None
    key: Key
    if other is None:
        a, b = (here if mark is None else mark for here, mark in zip((0, now), view.state.marks, strict=True))
        key = "compare", view.device, a, b
        _side(view, "A", a, SHRUNK, lambda moment: (moment, b))
        beside(imgui.calc_text_size(moment_text(view, b)).x + 13 * imgui.get_font_size(), 20 * scale)
        _side(view, "B", b, GROWN, lambda moment: (a, moment))
    else:
        device = view.trace.device
        if not any(trace.device == device for trace in other.snapshot.traces):
            wrapped(f"{other.snapshot.name} has no device {device}", theme.FAULT)
            return None
        key = "compare", view.device, f"{choose(view, 'when', _WHEN)} {other.snapshot.name}", now
        imgui.same_line(0, 14 * scale)
        colored(f"B {moment_text(view, now)}", theme.TEXT)
    label("By")
    return (*key, choose(view, "compare by", _BY))


def _against(view: SnapshotView, others: list[Content]) -> Content | None:
    label("With")
    imgui.set_next_item_width(imgui.get_font_size() * 18)
    names = ["", *(other.snapshot.name for other in others)]
    chosen = view.state.choice("with", "")
    before = names.index(chosen) if chosen in names else 0
    _, number = imgui.combo("##with", before, ["two moments of this one", *names[1:]])
    if number != before:
        view.state = view.state.choosing("with", names[number])
    imgui.same_line()
    return others[number - 1] if number else None


def _side(view: SnapshotView, name: str, moment: int, color: ImVec4, marks: Callable[[int], tuple[int, int]]) -> None:
    chosen, space = view.state.moment, 8 * view.scale
    imgui.align_text_to_frame_padding()
    colored(name, color)
    imgui.same_line(0, space)
    colored(moment_text(view, moment), theme.TEXT)
    if chosen is not None and chosen != moment:
        imgui.same_line(0, space)
        if imgui.small_button(f"Set to here##{name}"):
            view.see(marks=marks(chosen))
        imgui.set_item_tooltip("The moment that is chosen in the timeline. M marks one as well.")
    if chosen != moment:
        imgui.same_line(0, space)
        if imgui.small_button(f"Show##{name}"):
            view.go(moment)


def _compare(view: SnapshotView, shown: Shown) -> Rows:
    key, found = shown
    total: int = found.after - found.before
    on_the_right((f"from {size_text(found.before)} to {size_text(found.after)}", theme.DIM),
                 (change_text(total) if total else "no change", _color(total)))
    most = max(int(np.abs(found.changes).max(initial=1)), 1)

    def cells(row: int) -> list[Cell | str]:
        c = found[row]
        return [c.label, Cell(change_text(c.change) if c.change else "0", _color(c.change),
                              abs(c.change) / most if c.change else None),
                Cell(size_text(c.before) if c.before else "", theme.DIM), size_text(c.after) if c.after else "",
                Cell(f"{c.count_before:,}" if c.count_before else "", theme.DIM),
                f"{c.count_after:,}" if c.count_after else ""]

    def click(row: int, double: bool) -> None:
        view.light(key, row, f"{found[row].label}, {change_text(found[row].change)}")

    columns = (Column(_BY[str(key[-1])]),
               Column("Change", 8, True, "Click: what grew first, or what shrank first", sorts=True),
               Column("Before", 6.2, True, gives=1), Column("After", 6.2, True, gives=2),
               Column("Blocks before", 6.8, True, gives=4), Column("Blocks after", 6.4, True, gives=3))
    return Rows(found, len(found), columns, cells, click, lambda row: view.is_lit(key, row),
                sort=lambda column: found.changes.tolist(), words="Nothing is live at either moment")


def _color(change: int) -> ImVec4:
    return GROWN if change > 0 else SHRUNK if change < 0 else theme.DIM


COMPARE = QueryPane(_compare_key, _compare, "Comparing\u2026")

_SUSPECTS = (Column("Allocated by"), Column("Still there", 6.4, True, "Bytes"),
             Column("Blocks", 4.8, True, gives=2),
             Column("Oldest", 6, True, "How long the oldest of them is held", gives=1),
             Column("Left behind over the trace", 12, gives=3,
                    tip="How many of those made in each part of the trace are still there"),
             Column("Live over the trace", 12, tip="Bytes of this stack that were live", gives=4))


def _leaks(view: SnapshotView, shown: Shown) -> Rows:
    """A list of suspects, and why each is one."""
    key, suspects = shown
    growing = [s for s in suspects if s.growing]
    places(view)
    if suspects:
        words = (f"{count_text(len(growing), 'stack')} left {size_text(sum(s.bytes for s in growing))} behind, more "
                 "and more over the trace" if growing else "Nothing grows steadily")
        colored(words, theme.FAULT if growing else theme.ALIVE)
        if others := len(suspects) - len(growing):
            imgui.same_line()
            colored(f"\u00b7  {count_text(others, 'stack')} made something late and kept it", theme.DIM)
    lit = view.state.lit
    chosen = lit.row if lit is not None and lit.key == key else None
    if chosen is not None:
        _verdict(view, suspects[chosen])

    def cells(row: int) -> list[Cell | str]:
        s = suspects[row]
        return [Cell(s.label, dot=theme.FAULT if s.growing else theme.GONE), size_text(s.bytes), f"{s.count:,}",
                Cell(age_text(s.age_us) if s.age_us else f"event {s.oldest:,}", theme.DIM),
                *(Cell("", color, spark=(values / max(int(values.max(initial=1)), 1)).tolist())
                  for values, color in ((s.kept, theme.FAULT if s.growing else theme.DIM), (s.live, theme.ACCENT)))]

    return Rows(suspects, len(suspects), _SUSPECTS, cells,
                lambda row, double: view.light(key, row, f"suspect {suspects[row].label}, "
                                                         f"{size_text(suspects[row].bytes)}"),
                lambda row: row == chosen,
                lambda row: f"{suspects[row].verdict}\n\n{stack_tip(view, suspects[row].stack)}".strip(),
                words="No suspects\nNothing that was allocated in the trace, but for what was made last, "
                      "was still there at its end")


def _verdict(view: SnapshotView, suspect: Suspect) -> None:
    if imgui.button("To the oldest"):
        view.go(suspect.oldest + 1)
        view.see(selected=int(suspect.ids[view.trace.allocations.start[suspect.ids].argmin()]))
    imgui.same_line()
    imgui.align_text_to_frame_padding()
    wrapped(suspect.verdict, theme.TEXT)


LEAKS = QueryPane(lambda view: ("leaks", view.device), _leaks, "Looking for what is never given back\u2026")

_WORDS = {"fragmentation": "Fragmented", "elsewhere": "Free elsewhere", "pending": "Waiting for a stream",
          "limit": "A limit", "full": "Full"}
_HOLDERS = (Column("Who held it"), Column("Bytes", 7.5, True), Column("Share", 4.6, True, gives=1),
            Column("Blocks", 5.2, True, gives=2), Column("Largest", 6.2, True, gives=3))
_CACHED = ImVec4(0.36, 0.62, 0.52, 1.0)


def _oom_key(view: SnapshotView) -> Key | None:
    """One failed allocation; the last one at first."""
    events = view.content.ooms(view.device)
    if not events:
        centered("Memory never ran out in this trace" if events is not None else "Working it out\u2026")
        return None
    chosen = int(view.state.choice("oom", "-1"))
    chosen = chosen % len(events) if chosen < len(events) else len(events) - 1
    if len(events) > 1:
        imgui.set_next_item_width(imgui.get_font_size() * 11)
        _, number = imgui.combo("##oom", chosen, [f"Event {event:,}" for event in events])
        if number != chosen:
            view.state = view.state.choosing("oom", str(number))
        imgui.same_line(0, 12 * view.scale)
    return ("oom", view.device, chosen)


def _oom(view: SnapshotView, shown: Shown) -> Rows:
    """A failed allocation: the request, the free memory, the holders."""
    key, oom = shown
    imgui.align_text_to_frame_padding()
    colored(f"{size_text(oom.asked)} was asked for at event {oom.event:,}", theme.TEXT)
    imgui.same_line(0, 10 * view.scale)
    colored(_WORDS[oom.kind], theme.FAULT)
    if view.state.moment != oom.event:
        imgui.same_line(0, 10 * view.scale)
        if imgui.small_button("Go there"):
            view.go(oom.event)
    wrapped(oom.verdict, theme.TEXT)
    if (where := places(view)(oom.stack)) and oom.stack >= 0:
        wrapped(f"Asked by {where}")
    _capacity(oom)
    rows, total = oom.holders, max(oom.live, 1)
    most = max((row.bytes for row in rows), default=1) or 1

    def cells(i: int) -> list[Cell | str]:
        row = rows[i]
        return [row.label, Cell(size_text(row.bytes), bar=row.bytes / most), f"{row.bytes / total:.1%}",
                f"{row.count:,}", Cell(size_text(row.largest), theme.DIM)]

    return Rows(oom, len(rows), _HOLDERS, cells,
                lambda i, double: view.light(key, i, f"{rows[i].label}, {size_text(rows[i].bytes)}"),
                lambda i: view.is_lit(key, i), lambda i: stack_tip(view, rows[i].key), words="Nothing was live then")


OOM = QueryPane(_oom_key, _oom)


def _capacity(oom: Oom) -> None:
    """One bar for all that the device had, and what would have had to fit."""
    parts = [(oom.active, USED, "in use"), (oom.pending, WAITING, "waiting for another stream"),
             (oom.cached, _CACHED, f"free in {count_text(oom.free_blocks, 'block')}, "
                                   f"the largest {size_text(oom.largest_free)}"),
             (oom.device_free, FREE, "left to the driver")]
    whole, scale = max(sum(size for size, _, _ in parts), oom.asked, 1), theme.scale()
    gap(2 * scale)
    width = parts_bar([(size, color) for size, color, _ in parts], whole, 12 * scale)
    low, high = imgui.get_item_rect_min(), imgui.get_item_rect_max()
    imgui.get_window_draw_list().add_rect_filled(
        ImVec2(low.x + width - max(width * oom.asked / whole, 2), high.y + 2 * scale),
        ImVec2(low.x + width, high.y + 6 * scale), theme.u32(theme.FAULT), 2 * scale)
    gap(4 * scale)
    seen = [part for part in parts if part[0] or part[2] not in (parts[1][2], parts[2][2])]
    for i, (size, color, what) in enumerate([*seen, (oom.asked, theme.FAULT, "asked for")]):
        words = f"{size_text(size)} {what}"
        if i:
            beside(imgui.calc_text_size(words).x + 14 * scale, 14 * scale)
        corner, side = imgui.get_cursor_screen_pos(), imgui.get_text_line_height()
        imgui.get_window_draw_list().add_rect_filled(
            ImVec2(corner.x, corner.y + 0.25 * side), ImVec2(corner.x + 0.5 * side, corner.y + 0.75 * side),
            theme.u32(color), 2 * scale)
        imgui.dummy(ImVec2(0.5 * side, side))
        imgui.same_line(0, 6 * scale)
        colored(words, theme.DIM)
