"""The window of a `splatview.Window`: shows one of two streams of the process that opened it, as that says.

Nobody types this command. What is to be seen, and how the window is, stands on a page that both share
(`splatview_ipc.shm.window_page`).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING, ClassVar

import msgspec

from splatview_ipc.control.errors import IpcError
from splatview_ipc.shm.window_page import CLOSED, FAILED, IMAGE, OPEN, SCENE, WindowPage, WindowSettings
from splatview_viewer.app import App, AppOptions
from splatview_viewer.catalogue import Catalogue, Slot
from splatview_viewer.errors import ViewerError
from splatview_viewer.screens._xlib import on_display_lost
from splatview_viewer.screens.window import WindowScreen
from splatview_viewer.sources import StreamSource, make_subscriber

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.pane import Pane
    from splatview_viewer.screens.base import Caption

log = logging.getLogger("splatview")

_AT_LATEST = 1.0
"""Seconds after which what is wanted is shown, if only that it has brought nothing."""
_LIVELY = 1.0
"""Seconds for which the loop looks often after something else was wanted."""


def main(args: list[str]) -> int:
    """`args`: WindowSettings as JSON. The exit status: 0, 2 when the page says why not."""
    try:
        (text,) = args
        settings = msgspec.json.decode(text, type=WindowSettings)
        page = WindowPage(settings.page)
    except (ValueError, msgspec.DecodeError, IpcError) as e:
        raise ViewerError(f"window: {e}; it is opened by splatview.Window") from None
    state, reason = CLOSED, ""
    on_display_lost(lambda why: page.end(FAILED, why))
    try:
        app = _OneWindow(_Titled(settings.width, settings.height, title=settings.title), settings, page)
        app.serve()
    except (ViewerError, IpcError) as e:
        state, reason = FAILED, str(e)
        return 2
    except Exception as e:
        log.exception("the window ends")
        state, reason = FAILED, f"{type(e).__name__}: {e}"
        return 2
    finally:
        page.end(state, reason)
    return 0


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

    def _choose(self, pane: Pane) -> None:
        slot, now = next(filter(self.wanted, self.slots.values()), None), time.monotonic()
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
    """Follows the page in each turn of the loop."""

    catalogue_type: ClassVar = _Two
    catalogue: _Two

    def __init__(self, screen: WindowScreen, settings: WindowSettings, page: WindowPage) -> None:
        self._settings = settings
        self._page = page
        self._switches = -1
        self._drawn_at: deque[float] = deque(maxlen=1000)
        subscriber = make_subscriber(screen.ctx, str(settings.pid), client="window")
        super().__init__(screen, AppOptions(), subscriber=subscriber)
        self.catalogue.wanted = self._wanted
        self.state.panel_open = False
        self.state.hint = ""

    def _wanted(self, slot: Slot) -> bool:
        what, run = self._page.shown
        if not isinstance(slot.source, StreamSource) or slot.source.stream.run.id != run:
            return False
        return (slot.entry.name, slot.entry.kind) == {
            IMAGE: (self._settings.image, "image"), SCENE: (self._settings.scene, "gaussians")}.get(what)

    def turn(self) -> bool:
        if self._page.switches != self._switches:
            self._switches, self.seat.panes.active.by_itself = self._page.switches, True
            self._active_until = self._news_until = time.monotonic() + _LIVELY
        drew = super().turn()
        now = time.monotonic()
        if drew:
            self._drawn_at.append(now)
        if not self.screen.closed:
            self._page.tell(OPEN, self.screen.size, sum(at > now - 1 for at in self._drawn_at))
        return drew
