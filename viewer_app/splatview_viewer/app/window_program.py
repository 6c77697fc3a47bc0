"""The program of a `splatview.Window`, which shows the stream that the caller names.

The caller alone starts it. It reads messages on its standard input and writes its state
to its standard output (`splatview_ipc.control.render_requests`).
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

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
from splatview_viewer.core.screen import Caption
from splatview_viewer.screens.window import WindowScreen
from splatview_viewer.shell.viewport import Viewport
from splatview_viewer.workspace.sources import make_subscriber

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.workspace.slot import Slot

log = logging.getLogger("splatview")

_SHOW_AFTER_S = 1.0
"""Seconds after which a named stream is shown, if only that it has brought nothing."""
_LIVELY_S = 1.0
"""Seconds for which the loop looks often after another stream was named."""
_MAX_REASON = 1000
"""Characters of the reason why the window ended."""


def main(args: list[str]) -> int:
    """Run the program, and return its exit status.

    Args:
        args: WindowSettings as JSON. The status is 0, or 2 after a fault, of which the
            caller has the reason.
    """
    try:
        (text,) = args
        settings = msgspec.json.decode(text, type=WindowSettings)
    except (ValueError, *DecodeError) as e:
        raise ViewerError(f"window: {e}; it is opened by splatview.Window") from None
    caller = NewestLines(0, os.dup(1))
    # What libraries print must not be taken for a message.
    os.dup2(2, 1)
    reason = ""
    try:
        screen = _Titled(settings.width, settings.height, title=settings.title)
        run(_OneWindow(screen, settings, caller))
    except (ViewerError, IpcError) as e:
        reason = str(e)
    except Exception as e:
        log.exception("the window ends")
        reason = f"{type(e).__name__}: {e}"
    finally:
        caller.send(_line(WindowState(closed=True, reason=reason[:_MAX_REASON])))
    if reason:
        return 2
    return 0


class _Titled(WindowScreen):
    """A window whose title is the caller's."""

    def present(self, caption: Caption) -> None:
        super().present(Caption(self._title))


class _OneWindow(App):
    """Shows the stream that the caller names.

    The previous one stays until there is something to see of that.
    """

    def __init__(
        self, screen: WindowScreen, settings: WindowSettings, caller: NewestLines
    ) -> None:
        self._caller = caller
        self._show: Show | None = None
        """The stream that the caller named last."""
        self._sent_state: WindowState | None = None
        self._previous_time_ns = 0
        """Time of publication of what the awaited stream had brought before."""
        self._show_at = 0.0
        """Time at which the awaited stream is shown in any case."""
        subscriber = make_subscriber(screen.ctx, str(settings.pid), client="window")
        super().__init__(screen, AppOptions(), subscriber=subscriber)
        # A viewport without a picture opens the stream.
        self._waiting = Viewport(self.user)
        self.catalogue.chooses = False
        self.catalogue.join(self._waiting)
        self.user.interface.state.bare = True
        self.user.interface.state.hides_all = True
        self.state.helps = False

    def tick(self, now: float, events: Sequence[Event] = ()) -> float:
        line = self._caller.newest()
        if line is not None:
            self._show = msgspec.json.decode(line, type=Show)
            self.expect_news(now + _LIVELY_S)
        self._show_named_stream(now)
        due = super().tick(now, events)
        state = WindowState(*self.screen.state.size, self.user.pace.fps(now))
        if not self.screen.state.closed and state != self._sent_state:
            self._sent_state = state
            self._caller.send(_line(state))
        return due

    def _show_named_stream(self, now: float) -> None:
        """Open the stream that the caller named, and show it once it brings a value."""
        viewport = self.user.layout.active
        waiting = self._waiting
        slot = self._named_slot()
        if slot is None or slot.entry.key == viewport.key:
            waiting.select(None)
        elif slot.entry.key != waiting.key:
            self._previous_time_ns = slot.source.time_ns
            self._show_at = now + _SHOW_AFTER_S
            waiting.select(slot.entry.key)
        else:
            has_brought = slot.source.time_ns != self._previous_time_ns
            if has_brought or slot.entry.fault or now > self._show_at:
                viewport.select(slot.entry.key)

    def _named_slot(self) -> Slot | None:
        """Return the entry of the stream that the caller named; None: not there yet."""
        show = self._show
        if show is None:
            return None
        for slot in self.catalogue.slots.values():
            stream = slot.source.stream
            if stream is None or slot.entry.name != show.stream:
                continue
            if stream.run.id == show.run:
                return slot
        return None


def _line(state: WindowState) -> bytes:
    return encode(state) + b"\n"
