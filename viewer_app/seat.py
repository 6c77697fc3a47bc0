"""One user of the viewer: a screen with its panel, what it shows of the catalogue, and from where."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from viewer_app.catalogue import SETTLE
from viewer_app.controls import Rect
from viewer_app.desk import Desk
from viewer_app.errors import ViewerError
from viewer_app.events import (
    Close,
    Event,
    Expose,
    FileDrop,
    Key,
    Pinch,
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
    Resize,
    Screenshot,
    Text,
    Wheel,
)
from viewer_app.governor import after
from viewer_app.phrases import caption_of
from viewer_app.shown import describe
from viewer_app.sources import StreamSource
from viewer_app.state import BACKDROP, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from viewer_app.catalogue import Catalogue, Slot
    from viewer_app.gpu_work import GpuWork
    from viewer_app.panel import Asked, Panel
    from viewer_app.screens.base import Screen
    from viewer_app.views.base import View

log = logging.getLogger("splatview")

HINT = ("Waiting for a run\n"
        "In your training script:  import splatview;  splatview.publish(tensor)\n"
        "Or drop a scene or a picture here")
SMALL = 500
"""Points of width below which the panel is closed at first: a phone."""
_CATCH_UP = 0.001
"""Seconds to wait for a GPU that is behind."""
TOAST = 4.0
"""Seconds for which something is told."""
_IN_FLIGHT = 2
"""Pictures that the GPU may be behind."""
_MOST_SETTLE = 12
_SAID_FOR = 0.5
"""Seconds for which the panel's numbers stay as they are."""
_RATES_PERIOD = 0.5
"""Seconds within which streams' rates are shown; other pictures show them as well."""
_HOVER = 0.35
"""Seconds that the pointer rests before the panel is drawn again, for tooltips."""


class Seat:
    """Takes the events of one screen and draws its pictures. The views of several seats share what they show.

    Every call comes from the thread that holds the OpenGL context, which is the same for all seats.
    """

    def __init__(self, screen: Screen, catalogue: Catalogue, work: GpuWork, *, panel: bool = True,
                 max_fps: float = 60.0, name: str = "", far: bool = False) -> None:
        """`name`: what other seats call it. `far`: its pictures go to another program, which takes a while."""
        self.screen = screen
        self.catalogue = catalogue
        self.name = name
        small = screen.size[0] < SMALL * screen.scale
        self.state = State(entries=catalogue.entries, notices=catalogue.notices, hint=HINT, panel_open=not small)
        self.state.screen = str(screen.ctx.info["GL_RENDERER"]).split(" (")[0]
        self.by_itself = True
        """Whether what is shown was chosen without anybody."""
        self.draws = 0
        """Pictures drawn so far."""
        self.dirty = SETTLE
        """Pictures that have to be drawn."""
        self.leader: Seat | None = None
        """Whom this seat follows: it shows the same from the same place."""
        self.followers: list[Seat] = []
        self.desk = Desk(self.say, lambda path: self.drop([str(path)]), self._pasted, screen.wake, scale=screen.scale)
        self._work = work
        self._period = 1 / max_fps
        self._far = far
        self._panel: Panel | None = None
        self._with_panel = panel
        self._next_draw = 0.0
        self._in_flight: deque[int] = deque()
        self._latency_of = 0
        self._drawn_at: deque[float] = deque(maxlen=240)
        self._captured = False
        self._rate_shown = False
        self._rates_seen = 0
        self._say_at = 0.0
        self._hover_at = math.inf
        catalogue.join(self)
        self.sit(screen)

    def sit(self, screen: Screen) -> None:
        """Go on with another screen: somebody has come back."""
        self.screen = screen
        self.state.says_trouble = screen.says_trouble
        if self._with_panel and self._panel is None:
            from viewer_app.panel import Panel

            self._panel = Panel(screen.scale)
        self._captured = False
        self._in_flight.clear()
        self.mark(SETTLE)

    def rise(self) -> None:
        """The screen is gone; what was chosen, cameras included, is kept for who comes back."""
        self.unfollow()
        for follower in list(self.followers):
            follower.unfollow()
        if self._panel is not None:
            self._panel.close()
            self._panel = None

    def close(self) -> None:
        """Give back everything but the screen. Idempotent."""
        self.rise()
        self.catalogue.leave(self)

    @property
    def shown(self) -> Slot | None:
        """The entry that is selected."""
        return self.catalogue.shown(self)

    @property
    def view(self) -> View | None:
        """What shows it, from the first data on."""
        return self.catalogue.view(self)

    @property
    def has_panel(self) -> bool:
        """Whether the panel is seen."""
        return self._panel is not None and self.state.panel_open

    def select(self, key: str | None) -> None:
        """Show this entry because somebody wants it. Only what is shown costs its trainer anything."""
        self.by_itself = False
        self.catalogue.show(self, key)

    def mark(self, pictures: int = 1) -> None:
        """At least so many pictures have to be drawn, by those who follow as well."""
        self.dirty = max(self.dirty, pictures)
        for follower in self.followers:
            follower.mark(pictures)

    # -- following another seat ------------------------------------------------------------------------------

    def follow(self, leader: Seat) -> None:
        """Show what another seat shows from now on, until its own user moves something."""
        self.unfollow()
        above: Seat | None = leader
        while above is not None:
            if above is self:
                leader.unfollow()
            above = above.leader
        if leader is not self:
            self.leader = leader
            self.state.follows = leader.name
            leader.followers.append(self)
            self.mark(SETTLE)

    def unfollow(self) -> None:
        """Go one's own way from here on."""
        if self.leader is not None:
            self.leader.followers.remove(self)
            self.leader = self.state.follows = None
            self.mark(SETTLE)

    def _keep_up(self) -> None:
        """Be where the leader is."""
        if self.leader is None:
            return
        self.leader._keep_up()
        if self.state.selected != self.leader.state.selected:
            self.select(self.leader.state.selected)
        view, other = self.view, self.leader.view
        if view is not None and other is not None and view.kind == other.kind:
            view.like(other)

    # -- time ------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """What time brings, once in each turn of the loop."""
        slot, view = self.shown, self.view
        if slot is not None and view is not None and not slot.entry.fault:
            with self.catalogue.guard(slot):
                if view.tick(now):
                    self.mark()
        if self.state.toasts and now >= self.state.toasts[0][0]:
            self.state.toasts = [toast for toast in self.state.toasts if now < toast[0]]
            self.mark()
        if now >= self._hover_at:
            self._hover_at = math.inf
            self.mark(SETTLE)
        if self._rate_shown and now > self._drawn_at[-1] + 1.05:
            self.mark()  # once more, so that no rate stands there that is over
        if self._rates_seen != self.catalogue.rate_changes and self._panel is not None and self.state.panel_open and (
                not self._drawn_at or now > self._drawn_at[-1] + _RATES_PERIOD):
            self.mark()

    def due(self, now: float) -> bool:
        """Whether to draw now."""
        return self.waiting and now >= self.may_draw(now)

    def takes(self, now: float) -> bool:
        """Whether a new value would be seen soon. What is sent far away need not be taken before the next picture."""
        return self.screen.ready and (not self._far or now >= self.may_draw(now))

    @property
    def waiting(self) -> bool:
        """Whether there is something to draw, and somebody who would take it."""
        return self.dirty > 0 and self.screen.visible and self.screen.ready

    def may_draw(self, now: float) -> float:
        """When the next picture may be drawn: by --max-fps, by the share of the GPU, and when it has caught up."""
        while self._in_flight and self._in_flight[0] <= self._work.finished:
            self._in_flight.popleft()
        behind = now + _CATCH_UP if len(self._in_flight) >= _IN_FLIGHT else 0.0
        return max(self._next_draw, self._work.governor.next_picture(), behind)

    # -- events ----------------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """Take in what the user did."""
        match event:
            case Resize() | Expose() | Close():
                self.mark(SETTLE)
                return
            case FileDrop():
                self.drop(event.paths)
                return
            case Screenshot():
                self._keep_picture()
                return
        picture = self.layout()
        ours = changed = False
        if self._panel is not None:
            ours, changed = self._panel.handle(event, picture, self.screen.clipboard, self._boards(picture))
        if changed:  # imgui takes a press in one picture and the release in the next: one more for each event
            self.mark(min(max(self.dirty + 1, SETTLE), _MOST_SETTLE))
            self._hover_at = time.monotonic() + _HOVER
        if isinstance(event, Key) and event.pressed and event.name in ("h", "tab") and not ours:
            if self._panel is not None and not event.repeat:
                self.state.panel_open = not self.state.panel_open
                self.mark(SETTLE)
            return
        if self.state.help or (isinstance(event, Text) and event.text == "?" and not ours):
            self._help(event)
        slot, view = self.shown, self.view
        if slot is None or view is None or slot.entry.fault:
            return
        if isinstance(event, (PointerPress, Wheel, Pinch)) and ours:
            return
        if isinstance(event, PointerPress):
            self._captured = True
        if isinstance(event, PointerMove) and ours and not self._captured:
            event = PointerLeave()
        if isinstance(event, PointerRelease):
            self._captured = False
        if isinstance(event, Key) and ours:
            return
        with self.catalogue.guard(slot):
            if view.handle(event, picture):
                if self.leader is not None and _moves(event, self._captured):
                    self.unfollow()
                self.mark()

    def _help(self, event: Event) -> None:
        """The list of keys comes with ?, and goes with ?, Escape or a press."""
        shown = not self.state.help and isinstance(event, Text)
        gone = isinstance(event, PointerPress) or (isinstance(event, Text) and event.text == "?") or (
            isinstance(event, Key) and event.pressed and event.name == "escape")
        if shown or gone:
            self.state.help = shown
            self.mark(SETTLE)

    def _boards(self, picture: Rect) -> Sequence[Rect]:
        slot, view = self.shown, self.view
        if slot is not None and view is not None:
            with self.catalogue.guard(slot):
                return view.boards(picture)
        return ()

    def drop(self, paths: Iterable[str]) -> None:
        """Open files, and show the last of them."""
        for path in paths:
            self.catalogue.open_file(Path(path), self)

    def layout(self) -> Rect:
        """The part of the screen that the picture has."""
        if self._panel is None:
            return Rect(0, 0, *self.screen.size)
        return self._panel.layout(self.screen.size, self.screen.scale, self.state.panel_open)

    def _keep_picture(self) -> None:
        """Hand the user what the view shows, without the panel."""
        slot, view = self.shown, self.view
        if slot is None or view is None or slot.entry.fault or view.empty:
            return
        with self.catalogue.guard(slot):
            view.draw(self.screen.framebuffer, Rect(0, 0, *self.screen.size))
            if self._panel is not None:
                self._panel.draw_over(self.screen.framebuffer, view.over, self.screen.scale)
            entry = slot.entry
            name = Path(entry.name).stem if entry.is_file else f"{entry.name}-{entry.version}"
            try:
                self.screen.keep(self.screen.pixels()[..., :3], name)
            except ViewerError as e:
                self.notice(str(e))
        self.mark()

    def _pasted(self) -> str:
        return self.screen.clipboard()

    def say(self, text: str) -> None:
        """Tell the user something for a few seconds."""
        self.state.toasts = [*self.state.toasts[-2:], (time.monotonic() + TOAST, text)]
        self.mark(SETTLE)

    def notice(self, text: str) -> None:
        """Say what went wrong around the viewer, once."""
        if text not in self.state.notices:
            self.state.notices.append(text)
            log.warning("%s", text)

    # -- pictures --------------------------------------------------------------------------------------------

    def draw(self) -> None:
        """Draw a picture, all but showing it: see `present`."""
        begin = time.monotonic()
        self._next_draw = after(self._next_draw, begin, self._period)
        self._keep_up()
        self.dirty -= 1
        self._rates_seen = self.catalogue.rate_changes
        self.draws += 1
        governor = self._work.governor
        governor.begin_picture()
        self._drawn_at.append(begin)
        framebuffer, picture = self.screen.framebuffer, self.layout()
        slot, view = self.shown, self.view
        if slot is not None and view is not None and not slot.entry.fault:
            with self.catalogue.guard(slot):
                view.draw(framebuffer, picture)
        else:
            framebuffer.use()
            framebuffer.clear(*BACKDROP, 1.0, viewport=picture.viewport(framebuffer.height))
        t = self.state.timings
        t.fps = float(sum(1 for d in self._drawn_at if d > begin - 1))
        self._rate_shown = t.fps >= 2
        if self._panel is not None:
            if not self.state.panel_open:  # as a rule nothing is drawn over it: it need not wait for the words
                self._work.flush()
            work = partial(self._work, "panel", *framebuffer.size, self.state.panel_open)
            shown = describe(self.catalogue, slot, view, self.state.panel_open)
            if begin >= self._say_at or not self._rate_shown:
                self._say_at = begin + _SAID_FOR
                self.state.said = replace(t, stages=dict(t.stages))
            self._obey(self._panel.draw(framebuffer, self.state, shown, self.screen.scale, work))

    def present(self) -> None:
        """Show what was drawn, and take down what it cost."""
        shown = time.monotonic()
        self.screen.present()
        self.screen.caption(caption_of(self.state.shown, self._panel is not None and self._panel.typing))
        self._in_flight.append(self._work.submitted)
        slot, view, t, governor = self.shown, self.view, self.state.timings, self._work.governor
        t.stages = {**(view.timings if view is not None else {}), "present": (time.monotonic() - shown) * 1e3}
        t.gpu_share = governor.used if governor.limited else None
        t.gpu_budget = governor.share
        if slot is not None and slot.source.time_ns not in (0, self._latency_of):
            self._latency_of = slot.source.time_ns
            waited_for = {"load", "scene"} if view is not None and view.cuda else set()
            behind = sum(self._work.ms.get(w, 0.0) for w in governor.words - waited_for)
            behind = 0.0 if self._work.software else behind
            t.latency_ms = max(time.time_ns() - slot.source.time_ns, 0) * 1e-6 + behind

    def _obey(self, asked: Asked) -> None:
        slot = self.shown
        if asked.close is not None:
            self.catalogue.forget(asked.close)
        if asked.copied is not None:
            self.screen.copy(asked.copied)
        if asked.pause is not None and slot is not None and isinstance(slot.source, StreamSource):
            slot.source.set_paused(asked.pause)
        if asked.follow is not None:
            self._follow_named(asked.follow)
        if asked.select is not None and asked.select != self.state.selected:
            self.unfollow()
            self.select(asked.select)
        elif asked.select is not None and slot is not None:
            slot.entry.fault = ""  # a click on what failed tries again
            self.mark(SETTLE)
        if asked.changed:
            self.unfollow()
            self.mark(SETTLE)

    def _follow_named(self, name: str) -> None:
        """Follow the seat of this name; nobody, if it was followed already."""
        leader = next((seat for seat in self.catalogue.seats if seat.name == name), None)
        if leader is None or leader is self.leader:
            self.unfollow()
        else:
            self.follow(leader)


def _moves(event: Event, dragging: bool) -> bool:
    """Whether an event that changed the picture moved something, and not only what is said of the pointer's place."""
    return not isinstance(event, (PointerMove, PointerLeave)) or dragging
