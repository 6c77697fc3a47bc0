"""The program of a `splatview.Window`: a window that shows the stream that the caller names.

The caller alone starts it. It reads messages on its standard input and writes its state to its standard output
(`splatview_ipc.control.render_requests`).
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
    try:
        app = _OneWindow(
            _Titled(settings.width, settings.height, title=settings.title),
            settings,
            caller,
        )
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

    def present(self, caption: Caption) -> None:
        super().present(Caption(self._title))


class _OneWindow(App):
    """Shows the stream that the caller wants. What was seen before stays until there is something to see of that."""

    def __init__(
        self, screen: WindowScreen, settings: WindowSettings, caller: NewestLines
    ) -> None:
        self._caller = caller
        self._show: Show | None = None
        self._told: WindowState | None = None
        self._brought = 0
        self._at_latest = 0.0
        """Time of publication of what the awaited stream had brought before, and when to show it in any case."""
        subscriber = make_subscriber(screen.ctx, str(settings.pid), client="window")
        super().__init__(screen, AppOptions(), subscriber=subscriber)
        self._waiting = Viewport(
            self.user
        )  # without a picture: it opens what the caller wants
        self.catalogue.chooses = False
        self.catalogue.join(self._waiting)
        self.state.panel_open = False
        self.state.hint = ""

    def turn(self, now: float, events: Sequence[Event] = ()) -> float:
        line = self._caller.newest()
        if line is not None:
            self._show = msgspec.json.decode(line, type=Show)
            self._active_until = self._news_until = now + _LIVELY
        viewport = self.user.layout.active
        waiting = self._waiting
        show = self._show
        slot = next(
            (
                s
                for s in self.catalogue.slots.values()
                if show is not None
                and s.source.stream is not None
                and (s.entry.name, s.source.stream.run.id) == (show.stream, show.run)
            ),
            None,
        )
        if slot is None or slot.entry.key == viewport.key:
            waiting.select(None)
        elif slot.entry.key != waiting.key:
            self._brought = slot.source.time_ns
            self._at_latest = now + _AT_LATEST
            waiting.select(slot.entry.key)
        elif (
            slot.source.time_ns != self._brought
            or slot.entry.fault
            or now > self._at_latest
        ):
            viewport.select(slot.entry.key)
        due = super().turn(now, events)
        state = WindowState(*self.screen.state.size, self.user.pace.fps(now))
        if not self.screen.state.closed and state != self._told:
            self._told = state
            self._caller.send(_line(state))
        return due


def _line(state: WindowState) -> bytes:
    return encode(state) + b"\n"
