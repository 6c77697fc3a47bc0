"""Panes of findings: growth between two moments, leaks, failed allocations."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.kinds.snapshot.analysis.tables import compare, leaks, post_mortem
from splatview_viewer.kinds.snapshot.panes import _pane
from splatview_viewer.kinds.snapshot.panes._pane import Cell, Column, Grid, Rows
from splatview_viewer.ui import theme
from splatview_viewer.ui.format import age_text, change_text, count_text, size_text
from splatview_viewer.ui.widgets import gap

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.snapshot.analysis.tables import By, Change, Comparison, Oom, Suspect
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace
    from splatview_viewer.kinds.snapshot.state import Look

_BY = {"stack": "Stack", "line": "Line", "function": "Function", "file": "File", "size": "Size", "category": "Category"}
_WHEN = {"peak": "its peak", "end": "its end"}


class ComparePane(_pane.Pane):
    """Two moments beside each other."""

    name = "compare"

    def __init__(self) -> None:
        super().__init__()
        self.by = "stack"
        """One of stack, line, function, file, size, category."""
        self.other: Content | None = None
        """Another snapshot, which this one is compared with; None: two moments of this one."""
        self.when = "peak"
        """Which moment of the other one: peak, end."""
        self.shrunk_first = False
        self._grid = Grid()

    def fill(self, content: Content, look: Look, rect: Rect, scale: float) -> bool:
        before = self.by, self.other, self.when, look.moment_a, look.moment_b
        others = content.others()
        if self.other is not None and self.other not in others:
            self.other = None
        now = content.moment(look)
        if now is None:
            _pane.centered("Looking for the peak\u2026")
            return False
        if others:
            self._against(others, scale)
        sides = self._moments(content, look, now, scale) if self.other is None else self._snapshots(content, look, now)
        if sides is None:
            return before != (self.by, self.other, self.when, look.moment_a, look.moment_b)
        key, (side_a, side_b) = sides
        _pane.label("By")
        self.by = _pane.chips("compare", self.by, _BY)
        by = cast("By", self.by)
        changed = before != (self.by, self.other, self.when, look.moment_a, look.moment_b)
        key = ("compare", *key, by)
        found = content.ask(key, lambda: compare(side_a, side_b, by), slot=("compare", id(self)))
        found = self.latest(content, look, key, found, by, "Comparing\u2026")
        return changed if found is None else self._list(look, found, key, scale) or changed

    # -- what is compared --------------------------------------------------------------------------------------------

    def _against(self, others: list[Content], scale: float) -> None:
        _pane.label("With")
        imgui.set_next_item_width(imgui.get_font_size() * 18)
        names = ["two moments of this one", *(o.snapshot.name for o in others)]
        chosen = others.index(self.other) + 1 if self.other in others else 0
        _, chosen = imgui.combo("##with", chosen, names)
        self.other = others[chosen - 1] if chosen else None
        if self.other is not None:
            imgui.same_line()
            self.when = _pane.chips("when", self.when, _WHEN)
        imgui.same_line(0, 14 * scale)

    def _moments(self, content: Content, look: Look, now: int, scale: float) -> tuple[
            tuple[Hashable, ...], tuple[tuple[Snapshot, Trace, int], tuple[Snapshot, Trace, int]]] | None:
        a = 0 if look.moment_a is None else look.moment_a
        b = now if look.moment_b is None else look.moment_b
        for name, moment, color in (("A", a, _pane.SHRUNK), ("B", b, _pane.GROWN)):
            words = _pane.moment_text(content, look, moment)
            if name == "B":
                _pane.beside(imgui.calc_text_size(words).x + 13 * imgui.get_font_size(), 20 * scale)
            imgui.align_text_to_frame_padding()
            _pane.colored(name, color)
            imgui.same_line(0, 6 * scale)
            _pane.colored(words, theme.TEXT)
            if look.moment is not None and look.moment != moment:
                imgui.same_line(0, 8 * scale)
                if imgui.small_button(f"Set to here##{name}"):
                    look.moment_a, look.moment_b = (now, b) if name == "A" else (a, now)
                imgui.set_item_tooltip("The moment that is chosen in the timeline. M marks one as well.")
            if look.moment != moment:
                imgui.same_line(0, 8 * scale)
                if imgui.small_button(f"Show##{name}"):
                    _pane.go(content, look, moment)
        snapshot, trace = content.snapshot, content.trace(look)
        return (look.device, a, b), ((snapshot, trace, a), (snapshot, trace, b))

    def _snapshots(self, content: Content, look: Look, now: int) -> tuple[
            tuple[Hashable, ...], tuple[tuple[Snapshot, Trace, int], tuple[Snapshot, Trace, int]]] | None:
        assert self.other is not None
        trace, other = content.trace(look), self.other.snapshot
        place = next((i for i, t in enumerate(other.traces) if t.device == trace.device), None)
        if place is None:
            imgui.new_line()
            _pane.wrapped(f"{other.name} has no device {trace.device}", theme.FAULT)
            return None
        moment = len(other.traces[place].events) if self.when == "end" else self.other.peak(place)
        imgui.align_text_to_frame_padding()
        _pane.colored(f"B {_pane.moment_text(content, look, now)}", theme.TEXT)
        if moment is None:
            _pane.centered("Looking for its peak\u2026")
            return None
        return (look.device, now, id(self.other), moment), ((other, other.traces[place], moment),
                                                            (content.snapshot, trace, now))

    # -- the table ---------------------------------------------------------------------------------------------------

    def _list(self, look: Look, found: Comparison, key: tuple[Hashable, ...], scale: float) -> bool:
        total = found.after - found.before
        words = f"from {size_text(found.before)} to {size_text(found.after)}"
        change = change_text(total) if total else "no change"
        _pane.on_the_right(imgui.calc_text_size(words).x + imgui.calc_text_size(change).x + 10 * scale)
        imgui.align_text_to_frame_padding()
        _pane.colored(words, theme.DIM)
        imgui.same_line(0, 10 * scale)
        _pane.colored(change, _color(total))
        count = len(found)
        most = max(int(np.abs(found.changes).max(initial=1)), 1)
        columns = (Column(_BY[str(key[-1])], 0, sorts=False),
                   Column("Change", 8, True, "Click: what grew first, or what shrank first"),
                   Column("Before", 6.2, True, sorts=False, gives=1), Column("After", 6.2, True, sorts=False, gives=2),
                   Column("Blocks before", 6.8, True, sorts=False, gives=4),
                   Column("Blocks after", 6.4, True, sorts=False, gives=3))

        def of(row: int) -> Change:
            return found[count - 1 - row if self.shrunk_first else row]

        def cells(row: int) -> list[Cell | str]:
            c = of(row)
            return [c.label, Cell(change_text(c.change) if c.change else "0", _color(c.change),
                                  abs(c.change) / most if c.change else None),
                    Cell(size_text(c.before) if c.before else "", theme.DIM), size_text(c.after) if c.after else "",
                    Cell(f"{c.count_before:,}" if c.count_before else "", theme.DIM),
                    f"{c.count_after:,}" if c.count_after else ""]

        touch = self._grid.draw("compare", columns, Rows(
            count, cells, lambda row: self.lamp.on == (*key, of(row).rows), sorted_by=1,
            descending=not self.shrunk_first, words="Nothing is live at either moment"), scale)
        if touch.title is not None:
            self.shrunk_first = not self.shrunk_first
        if touch.row is not None:
            c, both = of(touch.row), self.other is None

            def ids() -> np.ndarray:
                before, after = found.allocations(c)
                return np.union1d(before, after) if both else after

            self.lamp.toggle(look, (*key, c.rows), ids, f"{c.label}, {change_text(c.change)}")
        return touch.any


def _color(change: int) -> ImVec4:
    return _pane.GROWN if change > 0 else _pane.SHRUNK if change < 0 else theme.DIM


_SUSPECTS = (Column("Allocated by", 0, sorts=False), Column("Still there", 6.4, True, "Bytes", False),
            Column("Blocks", 4.8, True, sorts=False, gives=2),
            Column("Oldest", 6, True, "How long the oldest of them is held", False, gives=1),
            Column("Left behind over the trace", 12, tip="How many of those made in each part of the trace are still "
                   "there", sorts=False, gives=3),
            Column("Live over the trace", 12, tip="Bytes of this stack that were live", sorts=False, gives=4))


class LeaksPane(_pane.Pane):
    """A list of suspects, and why each is one."""

    name = "leaks"

    def __init__(self) -> None:
        super().__init__()
        self.chosen: int | None = None
        """The row whose verdict is shown."""
        self._grid = Grid()

    def fill(self, content: Content, look: Look, rect: Rect, scale: float) -> bool:
        snapshot, trace, key = content.snapshot, content.trace(look), ("leaks", look.device)
        suspects = content.ask(key, lambda: leaks(snapshot, trace), words="Looking for leaks")
        _pane.places(content)
        if suspects is None:
            _pane.trouble(content, key, "Looking for what is never given back\u2026")
            return False
        if not suspects:
            _pane.centered("No suspects\nNothing that was allocated in the trace, but for what was made last, "
                           "was still there at its end")
            return False
        return self._list(content, look, suspects, scale)

    def _list(self, content: Content, look: Look, suspects: Sequence[Suspect], scale: float) -> bool:
        growing = [s for s in suspects if s.growing]
        words = (f"{count_text(len(growing), 'stack')} left {size_text(sum(s.bytes for s in growing))} behind, more "
                 "and more over the trace" if growing else "Nothing grows steadily")
        others = len(suspects) - len(growing)
        imgui.align_text_to_frame_padding()
        _pane.colored(words, theme.FAULT if growing else theme.ALIVE)
        if others:
            imgui.same_line()
            _pane.colored(f"\u00b7  {count_text(others, 'stack')} made something late and kept it", theme.DIM)
        bright, quiet = theme.u32(theme.FAULT), theme.u32(theme.GONE)

        def cells(row: int) -> list[Cell | str]:
            s = suspects[row]
            kept, live = max(int(s.kept.max(initial=1)), 1), max(int(s.live.max(initial=1)), 1)
            color = theme.FAULT if s.growing else theme.DIM
            return [Cell(s.label, dot=bright if s.growing else quiet), size_text(s.bytes), f"{s.count:,}",
                    Cell(age_text(s.age_us) if s.age_us else f"event {s.oldest:,}", theme.DIM),
                    Cell("", color, spark=[k / kept for k in s.kept.tolist()]),
                    Cell("", theme.ACCENT, spark=[v / live for v in s.live.tolist()])]

        chosen = self.chosen if self.chosen is not None and self.chosen < len(suspects) else None
        line = imgui.get_text_line_height_with_spacing()
        below = line * 2.3 if chosen is not None else 0
        touch = self._grid.draw("suspects", _SUSPECTS, Rows(
            len(suspects), cells, lambda row: row == chosen,
            lambda row: f"{suspects[row].verdict}\n\n{_pane.stack_tip(content, suspects[row].stack)}".strip()), scale,
            max(imgui.get_content_region_avail().y - below, line * 3))
        if chosen is not None:
            self._verdict(content, look, suspects[chosen])
        if touch.row is not None:
            s = suspects[touch.row]
            self.lamp.toggle(look, ("suspect", look.device, touch.row), lambda: s.ids,
                              f"suspect {s.label}, {size_text(s.bytes)}")
            self.chosen = touch.row
        return touch.any

    def _verdict(self, content: Content, look: Look, suspect: Suspect) -> None:
        if imgui.button("To the oldest"):
            _pane.go(content, look, suspect.oldest + 1)
            look.select(int(suspect.ids[content.trace(look).allocations.start[suspect.ids].argmin()]))
        imgui.same_line()
        imgui.align_text_to_frame_padding()
        _pane.wrapped(suspect.verdict, theme.TEXT)


_WORDS = {"fragmentation": "Fragmented", "elsewhere": "Free elsewhere", "pending": "Waiting for a stream",
          "limit": "A limit", "full": "Full"}
_HOLDERS = (Column("Who held it", 0, sorts=False), Column("Bytes", 7.5, True, sorts=False),
            Column("Share", 4.6, True, sorts=False, gives=1), Column("Blocks", 5.2, True, sorts=False, gives=2),
            Column("Largest", 6.2, True, sorts=False, gives=3))
_CACHED = ImVec4(0.36, 0.62, 0.52, 1.0)
_DRIVER = ImVec4(0.165, 0.175, 0.195, 1.0)


class OomPane(_pane.Pane):
    """One failed allocation: what was asked, what there was, who held it."""

    name = "oom"

    def __init__(self) -> None:
        super().__init__()
        self.chosen = -1
        """Which of them, as Python counts."""
        self._grid = Grid()

    def fill(self, content: Content, look: Look, rect: Rect, scale: float) -> bool:
        snapshot, trace, key = content.snapshot, content.trace(look), ("oom", look.device)
        found = content.ask(key, lambda: post_mortem(snapshot, trace), words="Looking at what failed")
        if found is None:
            _pane.trouble(content, key)
            return False
        if not found:
            _pane.centered("Memory never ran out in this trace")
            return False
        return self._draw(content, look, found, scale)

    def _draw(self, content: Content, look: Look, found: list[Oom], scale: float) -> bool:
        count = len(found)
        chosen = self.chosen % count if -count <= self.chosen < count else count - 1
        changed = False
        if count > 1:
            options = {i: f"Event {o.event:,}" for i, o in enumerate(found)}
            if count > 6:
                imgui.set_next_item_width(imgui.get_font_size() * 11)
                _, new = imgui.combo("##oom", chosen, list(options.values()))
            else:
                new = _pane.chips("oom", chosen, options)
            changed, self.chosen, chosen = new != chosen, new, new
            imgui.same_line(0, 12 * scale)
        oom = found[chosen]
        words = f"{size_text(oom.asked)} was asked for at event {oom.event:,}"
        imgui.align_text_to_frame_padding()
        _pane.colored(words, theme.TEXT)
        imgui.same_line(0, 10 * scale)
        _pane.colored(_WORDS.get(oom.kind, oom.kind), theme.FAULT)
        if look.moment != oom.event:
            imgui.same_line(0, 10 * scale)
            if imgui.small_button("Go there"):
                _pane.go(content, look, oom.event)
                changed = True
        _pane.wrapped(oom.verdict, theme.TEXT)
        where = _pane.places(content)(oom.stack)
        if where and oom.stack >= 0:
            _pane.wrapped(f"Asked by {where}")
        gap(2 * scale)
        _capacity(oom, scale)
        return self._holders(content, look, oom, scale) or changed

    def _holders(self, content: Content, look: Look, oom: Oom, scale: float) -> bool:
        rows, total, trace = oom.holders, max(oom.live, 1), content.trace(look)
        most = max((row.bytes for row in rows), default=1) or 1

        def cells(i: int) -> list[Cell | str]:
            row = rows[i]
            return [row.label, Cell(size_text(row.bytes), bar=row.bytes / most), f"{row.bytes / total:.1%}",
                    f"{row.count:,}", Cell(size_text(row.largest), theme.DIM)]

        touch = self._grid.draw("holders", _HOLDERS, Rows(
            len(rows), cells, lambda i: self.lamp.on == ("holder", look.device, oom.event, rows[i].key),
            lambda i: _pane.stack_tip(content, rows[i].key), words="Nothing was live then"), scale)
        if touch.row is not None:
            row = rows[touch.row]
            self.lamp.toggle(look, ("holder", look.device, oom.event, row.key), lambda: oom.allocations(trace, row),
                              f"{row.label}, {size_text(row.bytes)}")
        return touch.any


def _capacity(oom: Oom, scale: float) -> None:
    """One bar for all that the device had, and what would have had to fit."""
    parts = [(oom.active, _pane.USED, "in use"), (oom.pending, _pane.WAITING, "waiting for another stream"),
             (oom.cached, _CACHED, f"free in {count_text(oom.free_blocks, 'block')}, "
                                   f"the largest {size_text(oom.largest_free)}"),
             (oom.device_free, _DRIVER, "left to the driver")]
    whole = max(sum(size for size, _, _ in parts), oom.asked, 1)
    corner, height = imgui.get_cursor_screen_pos(), 12 * scale
    width = _pane.parts_bar([(size, color) for size, color, _ in parts], whole, height, scale)
    draw = imgui.get_window_draw_list()
    asked = max(width * oom.asked / whole, 2)
    y = corner.y + height + 2 * scale
    draw.add_rect_filled(ImVec2(corner.x + width - asked, y), ImVec2(corner.x + width, y + 4 * scale),
                         theme.u32(theme.FAULT), 2 * scale)
    imgui.dummy(ImVec2(width, height + 8 * scale))
    for i, (size, color, what) in enumerate([*parts, (oom.asked, theme.FAULT, "asked for")]):
        if not size and i in (1, 2):
            continue
        words = f"{size_text(size)} {what}"
        if i:
            _pane.beside(imgui.calc_text_size(words).x + 14 * scale, 14 * scale)
        swatch(color, scale)
        _pane.colored(words, theme.DIM)


def swatch(color: ImVec4, scale: float) -> None:
    """A small square of a colour; what follows stands beside it."""
    corner, line = imgui.get_cursor_screen_pos(), imgui.get_text_line_height()
    r = 4 * scale
    y = corner.y + line / 2
    imgui.get_window_draw_list().add_rect_filled(ImVec2(corner.x, y - r), ImVec2(corner.x + 2 * r, y + r),
                                                 theme.u32(color), 2 * scale)
    imgui.dummy(ImVec2(2 * r, line))
    imgui.same_line(0, 6 * scale)
