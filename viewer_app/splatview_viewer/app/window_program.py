"""The program of a `splatview.Window`: a window that shows the stream that the caller names.

The caller alone starts it. It reads messages on its standard input and writes its state to its standard output
(`splatview_ipc.control.render_requests`).
"""

from __future__ import annotations

import logging
import os
from collections import deque
from typing import TYPE_CHECKING, ClassVar

import msgspec

from splatview_ipc.control.errors import IpcError
from splatview_ipc.control.render_requests import (
    DecodeError,
    NewestLines,
    Show,
    WindowSettings,
    WindowState,
    encode,
)
from splatview_viewer.app.loop import App, AppOptions, run
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.screens._xlib import on_display_lost
from splatview_viewer.screens.window import WindowScreen
from splatview_viewer.workspace.catalogue import Catalogue, Slot
from splatview_viewer.workspace.sources import StreamSource, make_subscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Caption
    from splatview_viewer.shell.pane import Pane

log = logging.getLogger("splatview")

_AT_LATEST = 1.0
"""Seconds after which what is wanted is shown, if only that it has brought nothing."""
_LIVELY = 1.0
"""Seconds for which the loop looks often after something else was wanted."""


def main(args: list[str]) -> int:
    """`args`: WindowSettings as JSON. The exit status: 0, 2 after a fault, of which the caller has the reason."""
    try:
        (text,) = args
        settings = msgspec.json.decode(text, type=WindowSettings)
    except (ValueError, *DecodeError) as e:
        raise ViewerError(f"window: {e}; it is opened by splatview.Window") from None
    caller = NewestLines(0, os.dup(1))
    os.dup2(2, 1)  # what libraries print must not be taken for a message
    reason = ""
    on_display_lost(lambda why: caller.send(_line(WindowState(closed=True, reason=why))))
    try:
        app = _OneWindow(_Titled(settings.width, settings.height, title=settings.title), settings, caller)
        run(app)
    except (ViewerError, IpcError) as e:
        reason = str(e)
    except Exception as e:
        log.exception("the window ends")
        reason = f"{type(e).__name__}: {e}"
    finally:
        caller.send(_line(WindowState(closed=True, reason=reason[:1000])))
    return 2 if reason else 0


class _Titled(WindowScreen):
    """A window whose title is the caller's."""

    def caption(self, caption: Caption) -> None:
        pass


class _Two(Catalogue):
    """Chooses what its caller wants to be seen, and nothing else by itself. What was seen before stays until there is
    something to see of that."""

    wanted: Callable[[Slot], bool]
    coming: Slot | None = None
    """What is wanted and has brought nothing since."""
    _brought = 0
    """When what it brought last was published."""
    _due = 0.0

    def _choose(self, pane: Pane, now: float) -> None:
        slot = next(filter(self.wanted, self.slots.values()), None)
        if slot is None or slot.entry.key == pane.key:
            self._expect(None, now)
            return
        if slot is not self.coming:
            self._expect(slot, now)
        elif slot.source.time_ns != self._brought or slot.entry.fault or now > self._due:
            self.show(pane, slot.entry.key)
            self.coming = None

    def _expect(self, slot: Slot | None, now: float) -> None:
        before, self.coming = self.coming, slot
        if before is not None:
            self.let_go(before)
        if slot is not None:
            self._brought, self._due = slot.source.time_ns, now + _AT_LATEST
            slot.entry.fault = ""
            slot.source.open()

    def watched(self) -> list[Slot]:
        slots = super().watched()
        return slots if self.coming is None or self.coming in slots else [*slots, self.coming]

    def _ready(self, slot: Slot, now: float) -> bool:
        if slot is not self.coming:
            return super()._ready(slot, now)
        return now >= slot.next_feed and not (slot.view is not None and slot.view.busy)


class _OneWindow(App):
    """Shows what the caller wants, which each turn of the loop asks for."""

    catalogue_type: ClassVar = _Two
    catalogue: _Two

    def __init__(self, screen: WindowScreen, settings: WindowSettings, caller: NewestLines) -> None:
        self._caller = caller
        self._show: Show | None = None
        self._told: WindowState | None = None
        self._drawn_at: deque[float] = deque(maxlen=1000)
        subscriber = make_subscriber(screen.ctx, str(settings.pid), client="window")
        super().__init__(screen, AppOptions(), subscriber=subscriber)
        self.catalogue.wanted = self._wanted
        self.state.panel_open = False
        self.state.hint = ""

    def _wanted(self, slot: Slot) -> bool:
        return (self._show is not None and isinstance(slot.source, StreamSource)
                and (slot.entry.name, slot.source.stream.run.id) == (self._show.stream, self._show.run))

    def turn(self, now: float, events: Sequence[Event] = ()) -> float:
        if (line := self._caller.newest()) is not None:
            self._show, self.seat.panes.active.by_itself = msgspec.json.decode(line, type=Show), True
            self._active_until = self._news_until = now + _LIVELY
        due = super().turn(now, events)
        if self.drew:
            self._drawn_at.append(now)
        state = WindowState(*self.screen.size, sum(at > now - 1 for at in self._drawn_at))
        if not self.screen.closed and state != self._told:
            self._told = state
            self._caller.send(_line(state))
        return due


def _line(state: WindowState) -> bytes:
    return encode(state) + b"\n"
