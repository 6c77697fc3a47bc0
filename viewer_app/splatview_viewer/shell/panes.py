"""The layout of a seat's panes: beside each other, as tabs, or one alone; it is kept for the next session."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from splatview_viewer.core.events import Pinch, PointerLeave, PointerMove, PointerPress, PointerRelease, Wheel
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.settings import PaneHead
from splatview_viewer.shell.pane import Pane

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

    @property
    def headed(self) -> bool:
        """True where there is a strip with names."""
        return len(self.all) > 1

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

    def heads(self) -> list[PaneHead]:
        """Return the contents of the strips; none for a single pane."""
        if not self.headed:
            return []
        return [PaneHead(entry.name if (entry := pane.entry) is not None else "Empty",
                         entry.group if entry is not None else "", pane is self.active, i)
                for i, pane in enumerate(self.all)]

    def _changed(self) -> None:
        self._settle()
        self._seat.rearranged()

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

    def places(self, area: Rect, scale: float) -> list[tuple[Pane, Rect, Rect]]:
        """Return the panes that are seen, each with the rectangles of its strip (of no height if there is none) and of
        its picture."""
        seen = self.seen
        columns, rows = grid(len(seen), area.width, area.height)
        header = min(round(HEADER * scale), area.height // (2 * rows)) if self.headed else 0
        gap = max(round(GAP * scale), 1)
        out = []
        for i, pane in enumerate(seen):
            row, column = divmod(i, columns)
            across = columns if row < rows - 1 else len(seen) - columns * (rows - 1)  # the last row is shared by fewer
            left, right = (round(area.width * c / across) + gap * (0 < c < across) for c in (column, column + 1))
            top, bottom = (round(area.height * r / rows) + gap * (0 < r < rows) for r in (row, row + 1))
            right, bottom = right - gap * (column + 1 < across), bottom - gap * (row + 1 < rows)
            x, y, width = area.x + left, area.y + top, max(right - left, 1)
            out.append((pane, Rect(x, y, width, header), Rect(x, y + header, width, max(bottom - top - header, 1))))
        return out

    def meant(self, event: Event, area: Rect) -> Pane:
        """The pane that an event is for: where the pointer is, or where a drag began; of keys the active one."""
        seen = self.seen
        if (held := next((pane for pane in seen if pane.captured), None)) is not None:
            return held
        places = self.places(area, self._seat.screen.state.scale)
        for pane, _, rect in places:
            pane.rect = rect
        if isinstance(event, (PointerMove, PointerPress, PointerRelease, Wheel, Pinch)):
            for pane, _, rect in places:
                if rect.contains(event.x, event.y):
                    if self._over is not None and self._over is not pane and self._over in seen:
                        self._over.take(PointerLeave(), False)
                    self._over = pane
                    return pane
        if isinstance(event, PointerLeave) and self._over is not None and self._over in seen:
            return self._over
        return self.active

    def boards(self, area: Rect) -> Sequence[Rect]:
        """Return the rectangles of imgui's windows over the panes, and of the strips above them."""
        heads = [head for _, head, _ in self.places(area, self._seat.screen.state.scale)] if self.headed else []
        return [*heads, *(board for pane in self.seen for board in pane.boards())]

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
