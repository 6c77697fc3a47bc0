"""Post-mortem: why an allocation failed, and who held the memory then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.kinds.snapshot.analysis import post_mortem
from splatview_viewer.kinds.snapshot.panes import _pane
from splatview_viewer.kinds.snapshot.panes._grid import Cell, Column, Grid, Rows
from splatview_viewer.ui import theme
from splatview_viewer.ui.format import count_text, size_text

if TYPE_CHECKING:
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.snapshot.analysis import Oom
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.state import Look

_WORDS = {"fragmentation": "Fragmented", "elsewhere": "Free elsewhere", "pending": "Waiting for a stream",
          "limit": "A limit", "full": "Full"}
_COLUMNS = (Column("Who held it", 0, sorts=False), Column("Bytes", 7.5, True, sorts=False),
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
        if look.moment != oom.moment:
            imgui.same_line(0, 10 * scale)
            if imgui.small_button("Go there"):
                _pane.go(content, look, oom.moment)
                changed = True
        _pane.wrapped(oom.verdict, theme.TEXT)
        where = self.places.ready(content)(oom.stack)
        if where and oom.stack >= 0:
            _pane.wrapped(f"Asked by {where}")
        _pane.gap(2, scale)
        _capacity(oom, scale)
        return self._holders(content, look, oom, scale) or changed

    def _holders(self, content: Content, look: Look, oom: Oom, scale: float) -> bool:
        rows, total = oom.holders, max(oom.live, 1)
        most = max((row.bytes for row in rows), default=1) or 1

        def cells(i: int) -> list[Cell | str]:
            row = rows[i]
            return [row.label, Cell(size_text(row.bytes), bar=row.bytes / most), f"{row.bytes / total:.1%}",
                    f"{row.count:,}", Cell(size_text(row.largest), theme.DIM)]

        touch = self._grid.draw("holders", _COLUMNS, Rows(
            len(rows), cells, lambda i: self.lamp.on == ("holder", look.device, oom.event, rows[i].key),
            lambda i: _pane.stack_tip(content, rows[i].key), words="Nothing was live then"), scale)
        if touch.row is not None:
            row = rows[touch.row]
            self.lamp.toggle(look, ("holder", look.device, oom.event, row.key), lambda: row.allocations,
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
