"""What grew: from one moment to another, or from another open snapshot to this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
from imgui_bundle import imgui

from splatview_viewer.kinds.snapshot.analysis import compare
from splatview_viewer.kinds.snapshot.panes import _pane
from splatview_viewer.kinds.snapshot.panes._grid import Cell, Column, Grid, Rows
from splatview_viewer.ui import theme
from splatview_viewer.ui.format import change_text, size_text

if TYPE_CHECKING:
    from collections.abc import Hashable

    from imgui_bundle import ImVec4

    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.snapshot.analysis import By, Change, Comparison
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
        self._shown: Comparison | None = None
        self._shown_for: Hashable = None

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
        if found is None and (self._shown is None or self._shown_for != (look.device, by) or content.fault(key)):
            _pane.trouble(content, key, "Comparing\u2026")
            return changed
        if found is not None:
            self._shown, self._shown_for = found, (look.device, by)
        assert self._shown is not None
        return self._list(look, self._shown, key, scale) or changed

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
            return cast("Change", found[count - 1 - row if self.shrunk_first else row])

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
            self.lamp.toggle(look, (*key, c.rows), lambda: _ids(c, both=both), f"{c.label}, {change_text(c.change)}")
        return touch.any


def _ids(change: Change, *, both: bool) -> np.ndarray:
    """int32: the allocations of this snapshot."""
    before, after = change.allocations
    return np.union1d(before, after) if both else after


def _color(change: int) -> ImVec4:
    return _pane.GROWN if change > 0 else _pane.SHRUNK if change < 0 else theme.DIM
