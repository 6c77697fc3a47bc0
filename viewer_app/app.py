"""The viewer's loop: streams and events in, pictures out; asleep while nothing happens."""

from __future__ import annotations

import logging
import math
import signal
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from viewer_app.catalogue import SETTLE, Catalogue
from viewer_app.controls import Rect
from viewer_app.errors import FileError, ViewerError
from viewer_app.events import (
    Close,
    Event,
    Expose,
    FileDrop,
    Key,
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
    Resize,
    Wheel,
)
from viewer_app.garbage import Garbage
from viewer_app.governor import Governor
from viewer_app.gpu_work import GpuWork
from viewer_app.pictures import save_png
from viewer_app.sources import StreamSource, make_subscriber
from viewer_app.state import BACKDROP, State

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ipc import Subscriber
    from viewer_app.catalogue import Slot
    from viewer_app.panel import Asked, Panel, Shown
    from viewer_app.screens.base import Screen

log = logging.getLogger("splatview")

HINT = ("Waiting for a run\n"
        "In your training script:  import splatview;  splatview.publish(tensor)\n"
        "Or drop a scene or a picture here")
_NEWS_PERIOD, _NAP = 0.004, 0.00025
"""Seconds between turns while new versions come, and between glances at whether there is one, which cost little."""
_CATCH_UP = 0.001
"""Seconds to wait for a GPU that is behind."""
_ACTIVE_PERIOD = 1 / 60
"""The same while something else happens, and where nothing is seen: in a window that is hidden."""
_IDLE_PERIOD = 1 / 15
_IN_FLIGHT = 2
"""Pictures that the GPU may be behind."""
_ACTIVE_FOR = 1.0
_OUT_PERIOD = 1.0
_MOST_SETTLE = 12
_RATES_PERIOD = 0.5
"""Seconds within which streams' rates are shown; other pictures show them as well."""
_HOVER = 0.35
"""Seconds that the pointer rests before the panel is drawn again, for tooltips."""


@dataclass(frozen=True)
class AppOptions:
    files: tuple[Path, ...] = ()
    run: str | None = None
    max_fps: float = 60.0
    out: Path | None = None
    """Where to write what is shown, once a second when it changed."""
    panel: bool = True
    gpu_budget: float = 0.1
    """The share of the GPU's time that the viewer takes at most while a run that it shows needs it; 1: no limit."""


class App:
    """Shows streams and files on a screen. Everything happens in the thread that made it."""

    def __init__(self, screen: Screen, options: AppOptions | None = None, *,
                 subscriber: Subscriber | None = None) -> None:
        self.screen = screen
        self.options = options or AppOptions()
        self.state = State(hint=HINT, panel_open=self.options.panel)
        self.state.screen = str(screen.ctx.info["GL_RENDERER"]).split(" (")[0]
        self.draws = 0
        """Pictures drawn so far."""
        self.governor = _governor(self.options.gpu_budget)
        self.work = GpuWork(screen.ctx, self.governor)
        self._stopping = False
        self._dirty = SETTLE
        self._next_draw = 0.0
        self._in_flight: deque[int] = deque()
        self._latency_of = 0
        self._active_until = self._news_until = 0.0
        self._drawn_at: deque[float] = deque(maxlen=240)
        self._out_due = False
        self._out_at = 0.0
        self._captured = False
        self._rate_shown = False
        self._hover_at = math.inf
        self._panel: Panel | None = None
        if subscriber is None:
            subscriber = make_subscriber(screen.ctx, self.options.run)
        self.catalogue = Catalogue(self.state, subscriber, screen.ctx, self.work, wake=screen.wake, mark=self._mark)
        if self.options.panel:
            from viewer_app.panel import Panel

            self._panel = Panel(screen.scale)
        self._asked = [self.catalogue.open_file(path) for path in self.options.files]

    # -- the loop ------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Run until the screen closes, SIGINT or SIGTERM comes; then give back everything.

        Raises FileError when none of the files that were asked for can be read.
        """
        garbage = Garbage()
        with self._signals(), garbage.held_back(time.monotonic()):
            try:
                while not (self.screen.closed or self._stopping):
                    drew = self.turn()
                    garbage.turn(time.monotonic(), drew or self._dirty > 0)
                    self._check_files()
                self._write_out(time.monotonic(), last=True)
            finally:
                self.close()

    def _check_files(self) -> None:
        """One damaged file among others is said in its place; when there is nothing else, it ends the program."""
        if self._asked and not any(source.reading for source in self._asked):
            errors = [source.error for source in self._asked if source.error]
            if len(errors) == len(self._asked):
                raise FileError("\n".join(errors))
            self._asked = []

    def stop(self) -> None:
        """End `serve` after this turn. May be called from any thread."""
        self._stopping = True
        self.screen.wake()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        before = {s: signal.signal(s, lambda *_: self.stop()) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for s, handler in before.items():
                signal.signal(s, handler)

    def turn(self) -> bool:
        """One turn: wait for something to happen, take it in, draw if need be. True when a picture was drawn."""
        for event in self._wait():
            self._take(event)
        if self.screen.closed:
            return False
        now = time.monotonic()
        self.work.collect()
        self.governor.shared = self.catalogue.gpu_is_needed(now)
        if self.catalogue.poll(now):
            self._active_until = self._news_until = now + _ACTIVE_FOR
        slot = self.catalogue.shown
        if slot is not None and slot.view is not None and not slot.entry.fault:
            with self.catalogue.guard(slot):
                self._mark(1 if slot.view.tick(now) else 0)
        if now >= self._hover_at:
            self._hover_at = math.inf
            self._mark(SETTLE)
        if self._rate_shown and now > self._drawn_at[-1] + 1.05:
            self._mark()  # once more, so that no rate stands there that is over
        if self.catalogue.rates_changed and self._panel is not None and self.state.panel_open and (
                not self._drawn_at or now > self._drawn_at[-1] + _RATES_PERIOD):
            self._mark()
        drew = False
        if self._dirty and now >= self._may_draw(now) and self.screen.visible:
            self._draw()
            drew = True
        self._write_out(time.monotonic())
        return drew

    def _wait(self) -> Sequence[Event]:
        """Sleep until something has to be done."""
        now = time.monotonic()
        end, watched = now + self._patience(now), now < self._news_until and self.screen.visible
        while True:
            events = self.screen.poll(max(min(end - now, _NAP if watched else math.inf), 0.0))
            now = time.monotonic()
            if events or not watched or now >= end or self._stopping or self.screen.closed or (
                    self.catalogue.has_news(now)):
                return events

    def _patience(self, now: float) -> float:
        """How long it may take until the next turn if nothing happens."""
        period = _IDLE_PERIOD
        if self.catalogue.slots and now < self._active_until:
            period = _NEWS_PERIOD if now < self._news_until and self.screen.visible else _ACTIVE_PERIOD
        if self._dirty and self.screen.visible:
            return min(max(self._may_draw(now) - now, 0.0), period)
        return period

    def _may_draw(self, now: float) -> float:
        """When the next picture may be drawn: by --max-fps, by the share of the GPU, and when it has caught up."""
        while self._in_flight and self._in_flight[0] <= self.work.finished:
            self._in_flight.popleft()
        behind = now + _CATCH_UP if len(self._in_flight) >= _IN_FLIGHT else 0.0
        return max(self._next_draw, self.governor.next_picture(), behind)

    def _mark(self, pictures: int = 1) -> None:
        """At least so many pictures have to be drawn."""
        self._dirty = max(self._dirty, pictures)

    # -- events --------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        self._active_until = time.monotonic() + _ACTIVE_FOR
        match event:
            case Resize() | Expose() | Close():
                self._mark(SETTLE)
                return
            case FileDrop():
                for path in event.paths:
                    self.catalogue.open_file(Path(path), select=True)
                return
        picture = self._layout()
        ours = changed = False
        if self._panel is not None:
            ours, changed = self._panel.handle(event, picture)
        if changed:  # imgui takes a press in one picture and the release in the next: one more for each event
            self._mark(min(max(self._dirty + 1, SETTLE), _MOST_SETTLE))
            self._hover_at = time.monotonic() + _HOVER
        if isinstance(event, Key) and event.pressed and event.name in ("h", "tab") and not ours:
            if self._panel is not None and not event.repeat:
                self.state.panel_open = not self.state.panel_open
                self._mark(SETTLE)
            return
        slot = self.catalogue.shown
        if slot is None or slot.view is None or slot.entry.fault:
            return
        if isinstance(event, (PointerPress, Wheel)) and ours:
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
            if slot.view.handle(event, picture):
                self._mark()

    def _layout(self) -> Rect:
        if self._panel is None:
            return Rect(0, 0, *self.screen.size)
        return self._panel.layout(self.screen.size, self.screen.scale, self.state.panel_open)

    # -- pictures ------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        begin = time.monotonic()
        self._next_draw = after(self._next_draw, begin, 1 / self.options.max_fps)
        self._dirty -= 1
        self.catalogue.rates_changed = False
        self.draws += 1
        self.governor.begin_picture()
        self._drawn_at.append(begin)
        framebuffer, picture = self.screen.framebuffer, self._layout()
        slot = self.catalogue.shown
        view = slot.view if slot is not None else None
        if view is not None and slot is not None and not slot.entry.fault:
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
                self.work.flush()
            work = partial(self.work, "panel", *framebuffer.size, self.state.panel_open)
            self._obey(self._panel.draw(framebuffer, self.state, self._describe(slot), self.screen.scale, work))
        if self.options.out is not None:
            self._out_due = True
            now = time.monotonic()  # drawing may have taken long
            if now - self._out_at >= _OUT_PERIOD:
                self._save_out(now)
        shown = time.monotonic()
        self.screen.present()
        self._in_flight.append(self.work.submitted)
        t.stages = {**(view.timings if view is not None else {}), "present": (time.monotonic() - shown) * 1e3}
        t.gpu_share = self.governor.used if self.governor.limited else None
        t.gpu_budget = self.governor.share
        if slot is not None and slot.source.time_ns not in (0, self._latency_of):
            self._latency_of = slot.source.time_ns
            waited_for = {"load", "scene"} if view is not None and view.cuda else set()
            behind = sum(self.work.ms.get(w, 0.0) for w in self.governor.words - waited_for)
            behind = 0.0 if self.work.software else behind
            t.latency_ms = max(time.time_ns() - slot.source.time_ns, 0) * 1e-6 + behind

    def _describe(self, slot: Slot | None) -> Shown:
        from viewer_app.panel import Shown

        if slot is None or slot.view is None or slot.entry.fault:
            return Shown()
        if not self.state.panel_open:
            return Shown(empty=slot.view.empty)
        view, path = slot.view, [slot.source.path, *slot.view.path]

        def controls() -> bool:
            with self.catalogue.guard(slot):
                return view.panel()
            return False

        return Shown(controls, view.details, [*view.extras, *slot.source.notes], view.readout, path, view.empty)

    def _obey(self, asked: Asked) -> None:
        if asked.close is not None:
            self.catalogue.forget(asked.close)
        slot = self.catalogue.shown
        if asked.pause is not None and slot is not None and isinstance(slot.source, StreamSource):
            slot.source.set_paused(asked.pause)
        if asked.select is not None and asked.select != self.state.selected:
            self.catalogue.select(asked.select)
        elif asked.select is not None and slot is not None:
            slot.entry.fault = ""  # a click on what failed tries again
            self._mark(SETTLE)
        if asked.changed:
            self._mark(SETTLE)

    def _write_out(self, now: float, *, last: bool = False) -> None:
        """Draw once more when the file is behind what was shown."""
        if self.options.out is None or not self._out_due or (now - self._out_at < _OUT_PERIOD and not last):
            return
        self._dirty, self._out_at = 1, now - 2 * _OUT_PERIOD
        self._draw()

    def _save_out(self, now: float) -> None:
        assert self.options.out is not None
        self._out_due, self._out_at = False, now
        try:
            save_png(self.screen.pixels()[..., :3], self.options.out)
        except FileError as e:
            if str(e) not in self.state.notices:
                self.state.notices.append(str(e))
                log.warning("%s", e)

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self.catalogue.close()
        if self._panel is not None:
            self._panel.close()
        self.work.close()
        self.screen.close()


def after(due: float, begun: float, period: float) -> float:
    """When the picture after one may begin that was due and begun at these times: on average one in a period, though
    each begins a little late."""
    return max(due + period, begun + period / 2)


def _governor(share: float) -> Governor:
    try:
        return Governor(share)
    except ValueError:
        raise ViewerError(f"serve: --gpu-budget is {share:g}, not a number over 0 up to 1 (1: no limit)") from None
