"""The layout of a seat's panes: beside each other, as tabs, or one alone; it is kept for the next session. And the
strips above them, and the tabs: names, and a button to close each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.events import Pinch, PointerLeave, PointerMove, PointerPress, PointerRelease, Wheel
from splatview_viewer.core.screen import Rect
from splatview_viewer.shell.pane import Pane
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import board, fitted
from splatview_viewer.workspace.catalogue import SETTLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.shell.seat import Seat

MOST = 9
"""Panes of one seat."""
HEADER, GAP = 24, 1
"""Points: the strip above each pane, if there are several, and what lies between them."""
_WISH = 1.6
"""Width to height of a pane that one likes to look at."""
_MOST_KEPT = 50
"""Arrangements that are remembered."""
_TAB = 180
"""Points that a tab is wide at most."""
_TIP = "Double click: this one alone, and back. Right click: how they lie. Ctrl + Tab: the next one."


class Panes:
    """One pane at least. Those that are not seen are not brought."""

    def __init__(self, seat: Seat) -> None:
        self.all: list[Pane] = [Pane(seat)]
        self.mode: Literal["grid", "tabs"] = "grid"
        self.maximised = False
        """True while the active one is seen alone."""
        self._seat = seat
        self._active = 0
        self._over: Pane | None = None
        """The pane under the pointer."""
        self._there = False
        self._tried: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[Pane]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def active(self) -> Pane:
        """The one that the panel tells of, and that keys are for."""
        return self.all[self._active]

    @property
    def seen(self) -> list[Pane]:
        return [self.active] if self.maximised or self.mode == "tabs" else self.all

    # -- changes -----------------------------------------------------------------------------------------------

    def look(self, there: bool) -> None:
        """Have the entries of those that are seen brought from now on, or of none."""
        self._there = there
        self._settle()

    def activate(self, pane: Pane) -> None:
        """Have the panel tell of this one."""
        if pane is not self.active:
            self._active = self.all.index(pane)
            self._changed()

    def add(self, key: str | None) -> Pane:
        """Another pane, which is the active one; the active one, if there cannot be more."""
        if len(self.all) >= MOST:
            self._seat.say(f"{MOST} panes are the most")
            self.active.select(key)
            return self.active
        pane = Pane(self._seat)
        pane.by_itself = False
        self.all.insert(self._active + 1, pane)
        self._active += 1
        self.maximised = False
        self._changed()
        pane.select(key)
        self.keep()
        return pane

    def remove(self, pane: Pane) -> None:
        """Close one; the last one stays."""
        if len(self.all) < 2:
            return
        at = self.all.index(pane)
        self._seat.catalogue.leave(pane)
        self.all.remove(pane)
        if at < self._active or self._active == len(self.all):
            self._active -= 1
        self.maximised = self.maximised and len(self.all) > 1
        self._changed()
        self.keep()

    def maximise(self, pane: Pane) -> None:
        """See one alone, or all of them again."""
        self.maximised = not self.maximised or pane is not self.active
        self._active = self.all.index(pane)
        self._changed()

    def arrange(self, mode: Literal["grid", "tabs"]) -> None:
        self.mode, self.maximised = mode, False
        self._changed()
        self.keep()

    def step(self, by: int) -> None:
        """The next pane, or the one before."""
        self._active = (self._active + by) % len(self.all)
        self._changed()

    def be_like(self, other: Panes) -> None:
        """Show the same entries in the same layout as a seat that is followed."""
        while len(self.all) > len(other.all):
            self.remove(self.all[-1])
        while len(self.all) < len(other.all):
            self.all.append(Pane(self._seat))
        before = self.mode, self.maximised, self._active
        self.mode, self.maximised, self._active = other.mode, other.maximised, other._active
        if before != (self.mode, self.maximised, self._active):
            self._changed()
        for mine, theirs in zip(self.all, other.all, strict=True):
            if mine.key != theirs.key:
                mine.select(theirs.key)

    def _changed(self) -> None:
        self._settle()
        self._seat.mark(SETTLE)

    def _settle(self) -> None:
        """Have those look that are seen, and no others."""
        catalogue = self._seat.catalogue
        seen = self.seen if self._there else []
        for pane in self.all:
            if pane in catalogue.panes and pane not in seen:
                catalogue.part(pane)
        for pane in seen:
            if pane not in catalogue.panes:
                catalogue.join(pane)

    # -- where they lie ----------------------------------------------------------------------------------------

    def place(self, area: Rect, scale: float) -> None:
        """Give those that are seen their parts of `area`, each with a strip above it if there are several."""
        seen = self.seen
        columns, rows = grid(len(seen), area.width, area.height)
        header = min(round(HEADER * scale), area.height // (2 * rows)) if len(self.all) > 1 else 0
        gap = max(round(GAP * scale), 1)
        for i, pane in enumerate(seen):
            row, column = divmod(i, columns)
            across = columns if row < rows - 1 else len(seen) - columns * (rows - 1)  # the last row is shared by fewer
            left, right = (round(area.width * c / across) + gap * (0 < c < across) for c in (column, column + 1))
            top, bottom = (round(area.height * r / rows) + gap * (0 < r < rows) for r in (row, row + 1))
            right, bottom = right - gap * (column + 1 < across), bottom - gap * (row + 1 < rows)
            x, y, width = area.x + left, area.y + top, max(right - left, 1)
            pane.head = Rect(x, y, width, header)
            pane.rect = Rect(x, y + header, width, max(bottom - top - header, 1))

    def meant(self, event: Event) -> Pane:
        """The pane that an event is for: where the pointer is, or where a drag began; of keys the active one."""
        seen = self.seen
        if (held := next((pane for pane in seen if pane.captured), None)) is not None:
            return held
        if isinstance(event, (PointerMove, PointerPress, PointerRelease, Wheel, Pinch)):
            for pane in seen:
                if pane.rect.contains(event.x, event.y):
                    if self._over is not None and self._over is not pane and self._over in seen:
                        self._over.take(PointerLeave(), False)
                    self._over = pane
                    return pane
        if isinstance(event, PointerLeave) and self._over is not None and self._over in seen:
            return self._over
        return self.active

    def boards(self) -> Sequence[Rect]:
        """Return the rectangles of imgui's windows over the panes, and of the strips above them."""
        return [*(pane.head for pane in self.seen if pane.head.height), *(b for p in self.seen for b in p.boards())]

    # -- remembering -------------------------------------------------------------------------------------------

    def keep(self) -> None:
        """Remember for the next time how the streams of these names lie."""
        names = [pane.entry.name if pane.entry is not None else "" for pane in self.all]
        if not all(names):
            return
        memo = self._seat.host.memo
        kept = [a for a in _arrangements(memo.get("panes")) if sorted(a["names"]) != sorted(names)]
        memo.put("panes", [*kept, {"names": names, "mode": self.mode, "active": self._active}][-_MOST_KEPT:])

    def restore(self) -> bool:
        """Once after streams have come that were seen in several panes before: lie as then. True when they do."""
        entries = {e.name: e.key for e in reversed(self._seat.state.entries)}
        there = frozenset(entries)
        if there == self._tried or len(self.all) > 1 or not self.active.by_itself or not self._there:
            return False
        self._tried = there
        fits = [a for a in _arrangements(self._seat.host.memo.get("panes"))
                if there.issuperset(a["names"])]
        if not fits or len((wanted := fits[-1])["names"]) < 2:
            return False
        self.active.select(entries[wanted["names"][0]])
        for name in wanted["names"][1:MOST]:
            self.add(entries[name])
        self.mode, self._active = wanted["mode"], min(wanted["active"], len(self.all) - 1)
        self._changed()
        return True


def grid(count: int, width: int, height: int) -> tuple[int, int]:
    """Columns and rows for so many panes, each as near as can be to a shape that one likes to look at."""
    def badness(columns: int) -> float:
        rows = -(-count // columns)
        shape = (width / columns) / max(height / rows, 1e-9)
        return abs(math.log(max(shape, 1e-9) / _WISH)) + 0.2 * (columns * rows - count)

    columns = min(range(1, max(count, 1) + 1), key=badness)
    return columns, max(-(-count // columns), 1)


def _arrangements(found: object) -> list[dict]:
    """Return the layouts of the memo that are valid."""
    return [a for a in (found if isinstance(found, list) else []) if isinstance(a, dict)
            and isinstance(a.get("names"), list) and all(isinstance(n, str) for n in a["names"])
            and a.get("mode") in ("grid", "tabs") and isinstance(a.get("active"), int) and a["active"] >= 0]


# -- the strips -------------------------------------------------------------------------------------------------------


def draw_heads(user: Seat, scale: float) -> None:
    """Draw the strips above the panes that are seen; with tabs, all of them in the one that is."""
    panes = user.panes
    for pane in panes.seen:
        strip = pane.head
        parts = [(pane, strip.x, strip.width)]
        if panes.mode == "tabs":
            width = min(strip.width // len(panes), round(_TAB * scale))
            parts = [(pane, strip.x + i * width, width) for i, pane in enumerate(panes)]
        if strip.height:
            with board(f"head {panes.all.index(pane)}", strip) as opened:
                for part, x, width in parts if opened else ():
                    _head(part, Rect(x, strip.y, width, strip.height), user, scale)


def _head(pane: Pane, place: Rect, user: Seat, scale: float) -> None:
    x, y, width, height = place.x, place.y, place.width, place.height
    entry, active, number = pane.entry, pane is user.panes.active, user.panes.all.index(pane)
    name, group = ("Empty", "") if entry is None else (entry.name, entry.group)
    cross = min(height, width / 2)
    imgui.set_cursor_screen_pos(ImVec2(x, y))
    pressed = imgui.invisible_button(f"name {number}", ImVec2(max(width - cross, 1), height))
    over = imgui.is_item_hovered()
    if over and imgui.is_mouse_double_clicked(imgui.MouseButton_.left):
        user.do(user.on_pane, Panes.maximise, pane)
    elif pressed:
        user.do(user.on_pane, Panes.activate, pane)
    imgui.set_item_tooltip(f"{name}, {group}\n{_TIP}" if group else _TIP)
    if imgui.begin_popup_context_item(f"arrange {number}"):
        _menu(pane, user)
        imgui.end_popup()
    imgui.set_cursor_screen_pos(ImVec2(x + width - cross, y))
    if imgui.invisible_button(f"close {number}", ImVec2(max(cross, 1), height)):
        user.do(user.on_pane, Panes.remove, pane)
    closing = imgui.is_item_hovered()
    imgui.set_item_tooltip("Close this pane; its stream stays in the list")
    draw, line = imgui.get_window_draw_list(), imgui.get_text_line_height()
    fill = theme.FIELD_DOWN if over else theme.FIELD if active else theme.BAR
    draw.add_rect_filled(ImVec2(x, y), ImVec2(x + width, y + height), theme.u32(fill))
    if active:
        draw.add_rect_filled(ImVec2(x, y + height - 2 * scale), ImVec2(x + width, y + height), theme.u32(theme.ACCENT))
    pad = 8 * scale
    room, text_y = width - cross - pad, round(y + (height - line) / 2)
    color = theme.TEXT if active else theme.DIM
    draw.add_text(ImVec2(round(x + pad), text_y), theme.u32(color), fitted(name, room))
    at = imgui.calc_text_size(name + "  ").x
    if group and at + imgui.calc_text_size(group).x <= room:  # the name goes before where it comes from
        draw.add_text(ImVec2(round(x + pad + at), text_y), theme.u32(theme.GONE), group)
    r, cx, cy = 3.5 * scale, x + width - cross / 2, y + height / 2
    ink = theme.u32(theme.TEXT if closing else theme.DIM)
    draw.add_line(ImVec2(cx - r, cy - r), ImVec2(cx + r, cy + r), ink, 1.3 * scale)
    draw.add_line(ImVec2(cx - r, cy + r), ImVec2(cx + r, cy - r), ink, 1.3 * scale)


def _menu(pane: Pane, user: Seat) -> None:
    panes = user.panes
    if imgui.menu_item("All panes" if panes.maximised else "This one alone", "Double click", False)[0]:
        user.do(user.on_pane, Panes.maximise, pane)
    if imgui.menu_item("Side by side", "", panes.mode != "tabs")[0]:
        user.do(panes.arrange, "grid")
    if imgui.menu_item("Tabs", "", panes.mode == "tabs")[0]:
        user.do(panes.arrange, "tabs")
    if imgui.menu_item("Close", "", False)[0]:
        user.do(user.on_pane, Panes.remove, pane)
