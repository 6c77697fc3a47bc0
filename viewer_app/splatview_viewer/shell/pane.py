"""One part of a seat's picture: which entry it shows. A seat has one, or several beside each other."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from splatview_viewer.core.events import (
    Key,
    Pinch,
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
    Text,
    Wheel,
)
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.settings import BACKDROP
from splatview_viewer.shell.shown import Shown, describe

if TYPE_CHECKING:
    from collections.abc import Sequence

    import moderngl

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.host import Host
    from splatview_viewer.core.old_view import View
    from splatview_viewer.core.settings import Entry
    from splatview_viewer.shell.seat import Seat
    from splatview_viewer.workspace.catalogue import Slot


class Pane:
    """One viewport of the catalogue, with a view of its own of what it shows."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.by_itself = True
        """True while the user has not chosen the entry."""
        self.rect = Rect(0, 0, 1, 1)
        """The rectangle in which it was drawn last."""
        self.key: str | None = None
        """The entry that it shows."""
        self.captured = False
        """True while a drag that began in it lasts."""
        self._latency_of = 0

    # -- what it shows -----------------------------------------------------------------------------------------

    @property
    def slot(self) -> Slot | None:
        """The entry with what belongs to it."""
        return self.seat.catalogue.shown(self)

    @property
    def view(self) -> View | None:
        """The view that shows it, from the first data on."""
        return self.seat.catalogue.view(self)

    @property
    def entry(self) -> Entry | None:
        return None if (slot := self.slot) is None else slot.entry

    def working(self) -> tuple[Slot, View] | None:
        """The entry and what shows it, unless there is nothing, or only a fault, to be shown."""
        slot, view = self.slot, self.view
        return None if slot is None or view is None or slot.entry.fault else (slot, view)

    def select(self, key: str | None) -> None:
        """Show this entry because the user chose it. Only what is shown costs its trainer anything."""
        self.by_itself = False
        self.seat.catalogue.show(self, key)

    @property
    def host(self) -> Host:
        return self.seat.host

    @property
    def has_panel(self) -> bool:
        """True while the panel describes it."""
        return self.seat.has_panel and self.seat.panes.active is self

    # -- time, events, pictures --------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Have the view do what is due, once in each turn of the loop."""
        if (found := self.working()) is not None:
            slot, view = found
            with self.seat.catalogue.guard(slot):
                if view.tick(now):
                    self.seat.mark()

    def boards(self) -> Sequence[Rect]:
        """Return the rectangles of imgui's windows over the picture."""
        slot, view = self.slot, self.view
        if slot is not None and view is not None:
            with self.seat.catalogue.guard(slot):
                return view.boards(self.rect)
        return ()

    def take(self, event: Event, ours: bool) -> bool:
        """Take what the user did over it. `ours`: it was meant for the panel. True when the picture has changed by what
        was moved, and not only by what is said of the pointer's place."""
        if (found := self.working()) is None:
            return False
        slot, view = found
        if isinstance(event, (PointerPress, Wheel, Pinch)) and ours:
            return False
        if isinstance(event, PointerPress):
            self.captured = True
        if isinstance(event, PointerMove) and ours and not self.captured:
            event = PointerLeave()
        if isinstance(event, PointerRelease):
            self.captured = False
        if ours and (isinstance(event, Text) or (isinstance(event, Key) and event.pressed)):
            return False  # a key that goes up may have gone down before a field was opened
        with self.seat.catalogue.guard(slot):
            if view.handle(event, self.rect):
                self.seat.mark()
                return not isinstance(event, (PointerMove, PointerLeave)) or self.captured
        return False

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        """Draw it into a part of the framebuffer."""
        self.rect = rect
        if (found := self.working()) is not None:
            slot, view = found
            view.host.scale = self.seat.screen.state.scale  # which changes with the monitor, and with a page's zoom
            with self.seat.catalogue.guard(slot):
                view.draw(framebuffer, rect)
                return
        framebuffer.use()
        framebuffer.clear(*BACKDROP, 1.0, viewport=rect.viewport(framebuffer.height))

    def describe(self, panel_open: bool, head: Rect) -> Shown:
        """Return its description for the panel, and for the strip above it."""
        shown = describe(self.seat.catalogue, self.slot, self.view, panel_open)
        shown.rect, shown.entry, shown.head = self.rect, self.entry, head if head.height else None
        shown.number, shown.boards = self.seat.panes.all.index(self), self.boards()
        return shown

    def latency_ms(self, behind: float) -> float | None:
        """Since what it shows was published, if that is told for the first time. `behind`: what the GPU has to do yet,
        beside loading."""
        slot = self.slot
        if slot is None or slot.source.time_ns in (0, self._latency_of):
            return None
        self._latency_of = slot.source.time_ns
        return max(time.time_ns() - slot.source.time_ns, 0) * 1e-6 + behind
