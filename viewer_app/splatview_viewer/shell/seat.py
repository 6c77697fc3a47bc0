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

from splatview_viewer.core.events import Close, Event, Expose, FileDrop, Key, PointerPress, Resize, Screenshot, Text
from splatview_viewer.core.host import Desk
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.core.settings import BACKDROP, State
from splatview_viewer.geometry.controls import Rect
from splatview_viewer.gpu.governor import after
from splatview_viewer.shell.following import Following
from splatview_viewer.shell.keeping import keep_picture
from splatview_viewer.shell.pane import Pane
from splatview_viewer.shell.panes import Panes
from splatview_viewer.shell.stream_list import caption_of
from splatview_viewer.workspace.catalogue import SETTLE
from splatview_viewer.workspace.recorded import entries_of
from splatview_viewer.workspace.sources import FileSource, StreamSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from splatview_viewer.core.old_view import View
    from splatview_viewer.core.screen import Screen
    from splatview_viewer.formats.nerfstudio import Film
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.shell.panel import Asked, Panel
    from splatview_viewer.workspace.catalogue import Catalogue, Slot

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


class Seat(Following):
    """Takes the events of one screen and draws its pictures. The views of several seats share what they show.

    Every call comes from the thread that holds the OpenGL context, which is the same for all seats.
    """

    def __init__(self, screen: Screen, catalogue: Catalogue, work: GpuWork, *, panel: bool = True,
                 max_fps: float = 60.0, name: str = "", far: bool = False) -> None:
        """`name`: what other seats call it. `far`: its pictures go to another program, which takes a while."""
        super().__init__()
        self.screen = screen
        self.catalogue = catalogue
        self.name = name
        self.panes = Panes(self)
        """The parts of its picture; the panel tells of the active one."""
        small = screen.state.size[0] < SMALL * screen.state.scale
        self.state = State(entries=catalogue.entries, notices=catalogue.notices, hint=HINT, panel_open=not small)
        self.state.screen = str(screen.ctx.info["GL_RENDERER"]).split(" (")[0]
        self.draws = 0
        """Pictures drawn so far."""
        self.dirty = SETTLE
        """Pictures that have to be drawn."""
        self.desk = Desk(self.say, self.open, lambda: self.screen.user.pasted(), screen.wake,
                         catalogue.memo, screen.state.scale, hand_over=lambda path: self.screen.user.hand_over(path))
        self.state.light = self.desk.memo.get("light") is True
        self._work = work
        self._period = 1 / max_fps
        self._far = far
        self.panel: Panel | None = None
        self._with_panel = panel
        self._next_draw = 0.0
        self._in_flight: deque[int] = deque()
        self._drawn_at: deque[float] = deque(maxlen=240)
        self._rate_shown = False
        self._rates_seen = 0
        self._say_at = 0.0
        self._hover_at = math.inf
        self._seen = True
        self._reading = Jobs("read camera path", lambda: self.screen.wake())
        self._films: list[tuple[Job[Film], View, Path, Callable[[Path], None]]] = []
        """Camera paths that pages have sent: the view and the file of each, and what to call in the end."""
        self.sit(screen)

    def sit(self, screen: Screen) -> None:
        """Go on with another screen: somebody has come back."""
        self.screen = screen
        self.state.says_trouble = screen.user.shows_captions
        if self._with_panel and self.panel is None:
            from splatview_viewer.shell.panel import Panel

            self.panel = Panel(screen.state.scale)
        for pane in self.panes:
            pane.let_go()
        self._in_flight.clear()
        self.panes.join()
        self.mark(SETTLE)

    def rise(self) -> None:
        """The screen is gone; what was chosen, cameras included, is kept for who comes back."""
        self.follow_no_more()
        self._reading.close()
        for _, _, path, done in self._films:
            done(path)
        self._films.clear()
        self.panes.part()
        if self.panel is not None:
            self.panel.close()
            self.panel = None

    def close(self) -> None:
        """Give back everything but the screen. Idempotent."""
        self.rise()
        for pane in self.panes:
            self.catalogue.leave(pane)

    @property
    def shown(self) -> Slot | None:
        """The entry of the active pane."""
        return self.panes.active.slot

    @property
    def view(self) -> View | None:
        """What shows it, from the first data on."""
        return self.panes.active.view

    @property
    def has_panel(self) -> bool:
        """Whether the panel is seen."""
        return self.panel is not None and self.state.panel_open

    def select(self, key: str | None) -> None:
        """Show this entry in the active pane because somebody wants it."""
        self.panes.active.select(key)

    def shows(self, pane: Pane, key: str | None) -> None:
        """A pane shows another entry now."""
        if pane is self.panes.active:
            self.state.selected = key

    # -- time ------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """What time brings, once in each turn of the loop."""
        if self._far and self._seen != self.screen.state.visible:
            self._seen = self.screen.state.visible
            if not self._seen:
                for pane in self.panes:
                    self.catalogue.drop_pictures(pane)
        self._take_films()
        for pane in self.panes.seen:
            pane.tick(now)
        if self.panes.restore():
            self.mark(SETTLE)
        if toasts := self.state.toasts:
            self.state.toasts = [(end, text) for until, text in toasts if now < (end := min(until, now + TOAST))]
            if len(self.state.toasts) != len(toasts):
                self.mark()
        if now >= self._hover_at:
            self._hover_at = math.inf
            self.mark(SETTLE)
        if self._rate_shown and now > self._drawn_at[-1] + 1.05:
            self.mark()  # once more, so that no rate stands there that is over
        if self._rates_seen != self.catalogue.rate_changes and self.panel is not None and self.state.panel_open and (
                not self._drawn_at or now > self._drawn_at[-1] + _RATES_PERIOD):
            self.mark()

    def due(self, now: float) -> bool:
        """Whether to draw now."""
        return self.waiting and now >= self.may_draw(now)

    def takes(self, now: float) -> bool:
        """Whether a new value would be seen soon. What is sent far away need not be taken before the next picture."""
        return self.screen.state.ready and (not self._far or now >= self.may_draw(now))

    @property
    def waiting(self) -> bool:
        """Whether there is something to draw, and somebody who would take it."""
        return self.dirty > 0 and self.screen.state.visible and self.screen.state.ready

    def may_draw(self, now: float) -> float:
        """When the next picture may be drawn: by --max-fps, by the share of the GPU, and when it has caught up."""
        while self._in_flight and self._in_flight[0] <= self._work.finished:
            self._in_flight.popleft()
        behind = now + _CATCH_UP if len(self._in_flight) >= _IN_FLIGHT else 0.0
        governor, views = self._work.governor, [pane.view for pane in self.panes.seen]
        light = any(views) and all(view is None or getattr(view, "light", False) for view in views)
        return max(self._next_draw, governor.next_display() if light else governor.next_picture(), behind)

    # -- events ----------------------------------------------------------------------------------------------

    def take(self, event: Event, now: float) -> None:
        """Take in what the user did."""
        match event:
            case Resize() | Expose() | Close():
                self.mark(SETTLE)
                return
            case FileDrop():
                self.drop(event.paths, event.done)
                return
            case Screenshot():
                keep_picture(self)
                return
        area = self.area()
        pane = self.panes.meant(event, area)
        ours = changed = False
        if self.panel is not None:
            ours, changed = self.panel.handle(event, area, self.screen.user.pasted, self.panes.boards(area))
        if changed:  # imgui takes a press in one picture and the release in the next: one more for each event
            self.mark(min(max(self.dirty + 1, SETTLE), _MOST_SETTLE))
            self._hover_at = now + _HOVER
        if isinstance(event, Key) and event.pressed and event.name in ("h", "tab") and not (
                ours or event.mods & ({"alt", "super"} if event.name == "tab" else {"ctrl", "alt", "super"})):
            if event.name == "tab" and event.mods & {"ctrl", "shift"}:  # browsers keep Ctrl + Tab for themselves
                self.panes.step(-1 if event.mods >= {"ctrl", "shift"} else 1)
            elif self.panel is not None and not event.repeat:
                self.state.panel_open = not self.state.panel_open
                self.mark(SETTLE)
            return
        if isinstance(event, Key) and event.pressed and not (ours or event.repeat):
            if event.name == "s" and "ctrl" in event.mods:
                keep_picture(self, transparent="shift" in event.mods)
                return
            if event.name == "space" and not event.mods:
                self._pause()
                return
        if (self.state.help or (isinstance(event, Text) and event.text == "?" and not ours)) and (
                self._help(event) and not ours):
            return
        if isinstance(event, Key) and not event.pressed:
            for other in self.panes:  # it was pressed when another one was the active one
                if other is not pane:
                    other.take(event, ours)
        if isinstance(event, PointerPress) and not ours:
            self.panes.activate(pane)
        if pane.take(event, ours) and self.leader is not None:
            self.unfollow()

    def rearranged(self) -> None:
        """Other panes than before, or elsewhere: what the panel says of them."""
        panes, state = self.panes, self.state
        state.selected = panes.active.key
        state.tabs, state.maximised = panes.mode == "tabs", panes.maximised
        self.mark(SETTLE)

    def _pause(self) -> None:
        """Pause the run of what is shown, or have it go on."""
        slot = self.shown
        if slot is not None and isinstance(slot.source, StreamSource) and slot.entry.paused is not None:
            slot.source.set_paused(not slot.entry.paused)
            self.say("The run goes on" if slot.entry.paused else "The run pauses at its next step")

    def _help(self, event: Event) -> bool:
        """The list of keys comes with ?, and goes with ?, Escape or a press, which do nothing else then."""
        shown = not self.state.help and isinstance(event, Text)
        gone = isinstance(event, PointerPress) or (isinstance(event, Text) and event.text == "?") or (
            isinstance(event, Key) and event.pressed and event.name == "escape")
        if shown or gone:
            self.state.help = shown
            self.mark(SETTLE)
        return shown or gone

    def open(self, path: Path) -> None:
        """Show a file that a view has found, before the next picture."""
        known = str(path) in self.catalogue.slots
        self.catalogue.soon(lambda: self.select(str(path)) if known else self.drop([str(path)]))

    def drop(self, paths: Iterable[str], done: Callable[[Path], None] | None = None) -> None:
        """Open files, and show the last of them; some are for what is shown. `done`: the files come from a page;
        called with each that is not needed any more."""
        if done is not None:
            for path in map(Path, paths):
                self._take_in(path, done)
            return
        for path in entries_of(map(Path, paths)):
            found = self.panes.active.working()
            if found is not None and found[1].dropped(path):
                self.mark(SETTLE)
            else:
                self.catalogue.open_file(path, self.panes.active)

    def _take_in(self, path: Path, done: Callable[[Path], None]) -> None:
        """Open a file that a page has sent: nothing of it is decoded in this process."""
        found = self.panes.active.working()
        if found is not None and found[1].takes_films and path.suffix.lower() == ".json":
            from splatview_viewer.formats.untrusted import read_untrusted_film

            job = self._reading.submit(lambda job: read_untrusted_film(path, job.report))
            self._films.append((job, found[1], path, done))
            return
        source = FileSource(path, apart=True)
        source.done = done
        self.catalogue.open_file(source, self.panes.active)

    def _take_films(self) -> None:
        """Hand over camera paths that have been read."""
        for arrived in [film for film in self._films if film[0].done]:
            self._films.remove(arrived)
            job, view, path, done = arrived
            done(path)
            if job.fault:
                self.say(job.fault)
            elif any(pane.view is view for pane in self.panes):
                view.dropped(path, job.result())
                self.mark(SETTLE)

    def area(self) -> Rect:
        """The part of the screen that the pictures have."""
        if self.panel is None:
            return Rect(0, 0, *self.screen.state.size)
        return self.panel.layout(self.screen.state.size, self.screen.state.scale, self.state.panel_open)

    def layout(self) -> Rect:
        """The part of the screen that the active pane's picture has."""
        places = self.panes.places(self.area(), self.screen.state.scale)
        return next(rect for pane, _, rect in places if pane is self.panes.active)

    def say(self, text: str) -> None:
        """Tell the user something for a few seconds."""
        self.state.toasts = [*self.state.toasts[-2:], (math.inf, text)]
        self.mark(SETTLE)

    def notice(self, text: str) -> None:
        """Say what went wrong around the viewer, once."""
        if text not in self.state.notices:
            self.state.notices.append(text)
            log.warning("%s", text)

    # -- pictures --------------------------------------------------------------------------------------------

    def draw(self, now: float) -> None:
        """Draw a picture, all but showing it: see `present`."""
        self._next_draw = after(self._next_draw, now, self._period)
        self.keep_up()
        self.dirty -= 1
        self._rates_seen = self.catalogue.rate_changes
        self.draws += 1
        governor = self._work.governor
        governor.begin_picture()
        self._drawn_at.append(now)
        framebuffer = self.screen.framebuffer
        for feature in self.catalogue.features:
            feature.pull(self)
        places = self.panes.places(self.area(), self.screen.state.scale)
        if len(places) > 1:  # what lies between them
            framebuffer.use()
            framebuffer.clear(*BACKDROP, 1.0, viewport=self.area().viewport(framebuffer.height))
        for pane, _, rect in places:
            pane.draw(framebuffer, rect)
        t = self.state.timings
        t.fps = float(sum(1 for d in self._drawn_at if d > now - 1))
        self._rate_shown = t.fps >= 2
        if self.panel is not None:
            if not self.state.panel_open:  # as a rule nothing is drawn over it: it need not wait for the words
                self._work.flush()
            work = partial(self._work, "panel", *framebuffer.size, self.state.panel_open)
            state = self.state
            state.panes = self.panes.heads()
            active = self.panes.active
            described = [p.describe(state.panel_open and p is active, head) for p, head, _ in places]
            if now >= self._say_at or not self._rate_shown:
                self._say_at = now + _SAID_FOR
                self.state.said = replace(t, stages=dict(t.stages))
            shown = described.pop(next(i for i, (pane, *_) in enumerate(places) if pane is active))
            self._obey(self.panel.draw(framebuffer, state, shown, self.screen.state.scale, work, described))

    def present(self, now: float) -> None:
        """Show what was drawn, and take down what it cost."""
        begin = time.perf_counter()
        self.screen.present(caption_of(self.state.shown, self.panel is not None and self.panel.typing))
        self._in_flight.append(self._work.submitted)
        view, t, governor = self.view, self.state.timings, self._work.governor
        t.stages = {**(view.timings if view is not None else {}), "present": (time.perf_counter() - begin) * 1e3}
        t.gpu_share = governor.used if governor.limited else None
        t.gpu_budget = governor.share
        t.gpu_memory = self.catalogue.gpu_memory.read(now)
        waited_for = {"load", "scene"} if view is not None and view.cuda else set()
        behind = sum(self._work.ms.get(w, 0.0) for w in governor.words - waited_for)
        if (ms := self.panes.active.latency_ms(0.0 if self._work.software else behind)) is not None:
            t.latency_ms = ms

    def _obey(self, asked: Asked) -> None:
        slot = self.shown
        if asked.close is not None:
            self.catalogue.forget(asked.close)
        if asked.copied is not None:
            self.screen.user.copy(asked.copied)
        if asked.pause is not None and slot is not None and isinstance(slot.source, StreamSource):
            slot.source.set_paused(asked.pause)
        if asked.follow is not None:
            self._follow_named(asked.follow)
        self.panes.obey(asked)
        if asked.keep is not None:
            keep_picture(self, transparent=asked.keep == "transparent")
        if asked.light is not None:
            self.state.light = asked.light
            self.desk.memo.put("light", asked.light)
            self.mark(SETTLE)
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
        panes = (pane for pane in self.catalogue.panes if isinstance(pane, Pane))
        leader = next((pane.seat for pane in panes if pane.seat.name == name), None)
        if leader is None or leader is self.leader:
            self.unfollow()
        else:
            self.follow(leader)

