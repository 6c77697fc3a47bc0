"""Leak suspects: what was allocated long ago and is still there, what grows first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_viewer.kinds.snapshot.analysis import leaks
from splatview_viewer.kinds.snapshot.panes import _pane
from splatview_viewer.kinds.snapshot.panes._grid import Cell, Column, Grid, Rows
from splatview_viewer.ui import theme
from splatview_viewer.ui.format import age_text, count_text, size_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.snapshot.analysis import Suspect
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.state import Look

_COLUMNS = (Column("Allocated by", 0, sorts=False), Column("Still there", 6.4, True, "Bytes", False),
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
        self.places.ready(content)
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
        touch = self._grid.draw("suspects", _COLUMNS, Rows(
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
