"""The viewer's loop: streams and events in, pictures out; asleep while nothing happens."""

from __future__ import annotations

import logging
import signal
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from viewer_app.controls import Rect
from viewer_app.errors import FileError
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
from viewer_app.shot import save_png
from viewer_app.sources import FileSource, StreamSource
from viewer_app.state import Entry, State
from viewer_app.views import make_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ipc import RemoteStream, Subscriber
    from viewer_app.panel import Asked, Panel, Shown
    from viewer_app.screens.base import Screen
    from viewer_app.sources import Source
    from viewer_app.views.base import View

log = logging.getLogger("splatview")

HINT = ("Waiting for a run\n"
        "In your training script:  import splatview;  splatview.publish(tensor)\n"
        "Or drop a scene or a picture here")
_ACTIVE_PERIOD = 1 / 60
"""Seconds between looks at the streams while something happens."""
_IDLE_PERIOD = 1 / 15
_ACTIVE_FOR = 1.0
_OUT_PERIOD = 1.0
_SETTLE = 3
"""Pictures after an event until imgui has come to rest."""


@dataclass(frozen=True)
class AppOptions:
    files: tuple[Path, ...] = ()
    run: str | None = None
    max_fps: float = 60.0
    out: Path | None = None
    """Where to write what is shown, once a second when it changed."""
    panel: bool = True


class Slot:
    """One entry of the list with what belongs to it: its source, and its view once it was shown."""

    def __init__(self, entry: Entry, source: Source) -> None:
        self.entry = entry
        self.source = source
        self.view: View | None = None
        self.view_kind = ""
        self.next_feed = 0.0
        self.logged = ""


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
        self._slots: dict[str, Slot] = {}
        self._stopping = False
        self._dirty = _SETTLE
        self._next_draw = 0.0
        self._active_until = 0.0
        self._drawn_at: deque[float] = deque(maxlen=240)
        self._out_due = False
        self._out_at = 0.0
        self._captured = False
        self._panel: Panel | None = None
        if subscriber is None:
            from ipc import Subscriber

            subscriber = Subscriber(run=self.options.run)
        self.subscriber = subscriber
        if self.options.panel:
            from viewer_app.panel import Panel

            self._panel = Panel(screen.scale)
        for path in self.options.files:
            self.open_file(path)

    # -- the loop ------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Run until the screen closes, SIGINT or SIGTERM comes; then give back everything."""
        with self._signals():
            try:
                while not (self.screen.closed or self._stopping):
                    self.turn()
                self._write_out(time.monotonic(), last=True)
            finally:
                self.close()

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
        for event in self.screen.poll(self._patience(time.monotonic())):
            self._take(event)
        if self.screen.closed:
            return False
        now = time.monotonic()
        self._poll_sources(now)
        slot = self._shown
        if slot is not None and slot.view is not None:
            with self._guard(slot):
                self._mark(1 if slot.view.tick(now) else 0)
        drew = False
        if self._dirty and now >= self._next_draw and self.screen.visible:
            self._draw()
            drew = True
        self._write_out(time.monotonic())
        return drew

    def _patience(self, now: float) -> float:
        """How long the screen may sleep."""
        if self._dirty and self.screen.visible:
            return max(self._next_draw - now, 0.0)
        period = _ACTIVE_PERIOD if now < self._active_until else _IDLE_PERIOD
        return max(period, 1 / self.options.max_fps) if self._slots else _IDLE_PERIOD

    def _mark(self, pictures: int = 1) -> None:
        """At least so many pictures have to be drawn."""
        self._dirty = max(self._dirty, pictures)

    # -- events --------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        self._active_until = time.monotonic() + _ACTIVE_FOR
        match event:
            case Resize() | Expose() | Close():
                self._mark(_SETTLE)
                return
            case FileDrop():
                for path in event.paths:
                    self.open_file(Path(path), select=True)
                return
        picture = self._layout()
        ours = changed = False
        if self._panel is not None:
            ours, changed = self._panel.handle(event, picture)
        if changed:
            self._mark(_SETTLE)
        if isinstance(event, Key) and event.pressed and event.name in ("h", "tab") and not ours:
            if self._panel is not None and not event.repeat:
                self.state.panel_open = not self.state.panel_open
                self._mark(_SETTLE)
            return
        slot = self._shown
        if slot is None or slot.view is None:
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
        with self._guard(slot):
            if slot.view.handle(event, picture):
                self._mark()

    def _layout(self) -> Rect:
        if self._panel is None:
            return Rect(0, 0, *self.screen.size)
        return self._panel.layout(self.screen.size, self.screen.scale, self.state.panel_open)

    # -- what there is to show -----------------------------------------------------------------------------

    @property
    def _shown(self) -> Slot | None:
        return self._slots.get(self.state.selected or "")

    def open_file(self, path: Path, *, select: bool = False) -> None:
        """Add a file to the list; a thread reads it."""
        key = str(path.absolute())
        if key in self._slots:
            self.forget(key)
        entry = Entry(key, "Files", path.name, is_file=True, progress=0.0)
        self._slots[key] = Slot(entry, FileSource(path, self.screen.wake))
        self._list_changed()
        if select or self.state.selected is None:
            self.select(key)

    def forget(self, key: str) -> None:
        """Take an entry off the list and give back what it holds."""
        slot = self._slots.pop(key, None)
        if slot is None:
            return
        slot.source.close()
        if slot.view is not None:
            slot.view.close()
        if self.state.selected == key:
            self.state.selected = None
        self._list_changed()

    def select(self, key: str | None) -> None:
        """Show this entry. Only what is shown costs its trainer anything."""
        if key == self.state.selected:
            return
        if (before := self._shown) is not None:
            before.source.release()
        self.state.selected = key
        if (slot := self._shown) is not None:
            slot.entry.fault = ""
            slot.source.open()
        self._mark(_SETTLE)

    def _list_changed(self) -> None:
        entries = [slot.entry for slot in self._slots.values()]
        self.state.entries = sorted(entries, key=lambda e: (e.is_file, not e.alive))
        self._mark(_SETTLE)

    def _poll_sources(self, now: float) -> None:
        if self.subscriber.poll():
            self._match_streams()
        if (fault := self.subscriber.fault) and fault not in self.state.notices:
            self.state.notices.append(fault)
            self._mark()
        news = False
        for slot in list(self._slots.values()):
            if slot.source.refresh(slot.entry):
                news = True
        if news:
            self._list_changed()
        if self.state.selected is None:
            self._choose()
        slot = self._shown
        if slot is not None and slot.source.has_news():
            self._active_until = now + _ACTIVE_FOR
            if now >= slot.next_feed:
                self._feed(slot, now)

    def _match_streams(self) -> None:
        """A new stream continues where one of its name and kind ended; otherwise it is a new entry."""
        followed: dict[int, Slot] = {
            id(slot.source.stream): slot for slot in self._slots.values() if isinstance(slot.source, StreamSource)
        }
        there = self.subscriber.streams
        for stream in there:
            if id(stream) in followed:
                continue
            slot = self._ended_like(stream)
            if slot is not None and isinstance(slot.source, StreamSource):
                slot.source.follow(stream)
                slot.entry.group, slot.entry.fault = _group(stream), ""
            else:
                entry = Entry(f"{stream.run.id}/{stream.name}", _group(stream), stream.name, stream.kind)
                self._slots[entry.key] = Slot(entry, StreamSource(stream))
            self._list_changed()
        present = {id(stream) for stream in there}
        for slot in followed.values():
            gone = isinstance(slot.source, StreamSource) and id(slot.source.stream) not in present
            if gone and slot.entry.key != self.state.selected:
                self.forget(slot.entry.key)

    def _ended_like(self, stream: RemoteStream) -> Slot | None:
        """The entry that a new stream continues: the one shown before others, the same run's name before others."""
        if not stream.run.alive:
            return None
        fits = [slot for slot in self._slots.values() if isinstance(slot.source, StreamSource)
                and not slot.source.stream.run.alive and slot.entry.name == stream.name
                and slot.source.stream.kind == stream.kind]
        return max(fits, default=None, key=lambda s: (s.entry.key == self.state.selected,
                                                      s.entry.group == _group(stream)))

    def _choose(self) -> None:
        """With nothing chosen: a live stream, Gaussians before others, the newest before older; then a file."""
        if self._slots:
            slots = list(self._slots.values())
            best = max(range(len(slots)), key=lambda i: (
                slots[i].entry.alive, not slots[i].entry.is_file, slots[i].entry.kind == "gaussians", i))
            self.select(slots[best].entry.key)

    def _feed(self, slot: Slot, now: float) -> None:
        begin = time.monotonic()
        with self._guard(slot):
            kind = slot.entry.kind
            if slot.view is None or slot.view_kind != kind:
                if slot.view is not None:
                    slot.view.close()
                    slot.view = None
                slot.view = make_view(kind, self.screen.ctx, slot.entry.settings)
                slot.view_kind = kind
            if slot.source.feed(slot.view):
                slot.entry.fault = ""
                self._mark()
        cost = time.monotonic() - begin
        # A scene that takes long to load leaves time for the mouse; a torn or late frame is soon asked for again.
        slot.next_feed = now + (2 * cost if cost > 0.02 else 0.0)

    @contextmanager
    def _guard(self, slot: Slot) -> Iterator[None]:
        """A fault of one view or stream is shown in its place and logged once; everything else goes on."""
        try:
            yield
        except Exception as e:
            text = str(e) or type(e).__name__
            slot.entry.fault = text
            if slot.logged != text:
                slot.logged = text
                log.warning("%s cannot be shown: %s", slot.entry.name, text, exc_info=log.isEnabledFor(logging.DEBUG))
            self._mark(_SETTLE)

    # -- pictures ------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        begin = time.monotonic()
        self._next_draw = begin + 1 / self.options.max_fps
        self._dirty -= 1
        self.draws += 1
        self._drawn_at.append(begin)
        t = self.state.timings
        t.fps = float(sum(1 for d in self._drawn_at if d > begin - 1))
        framebuffer, picture = self.screen.framebuffer, self._layout()
        slot = self._shown
        view = slot.view if slot is not None else None
        if view is not None and slot is not None and not slot.entry.fault:
            with self._guard(slot):
                view.draw(framebuffer, picture)
        else:
            framebuffer.use()
            framebuffer.clear(*_EMPTY, 1.0, viewport=picture.viewport(framebuffer.height))
        if self._panel is not None:
            asked = self._panel.draw(framebuffer, self.state, self._describe(slot), self.screen.scale)
            self._obey(asked)
            if self._panel.busy:
                self._mark()
        if self.options.out is not None:
            self._out_due = True
            if begin - self._out_at >= _OUT_PERIOD:
                self._save_out(begin)
        shown = time.monotonic()
        self.screen.present()
        t.stages = {**(view.timings if view is not None else {}), "present": (time.monotonic() - shown) * 1e3}

    def _describe(self, slot: Slot | None) -> Shown:
        from viewer_app.panel import Shown

        if slot is None or slot.view is None:
            return Shown()
        view, path = slot.view, [slot.source.path, *slot.view.path]

        def controls() -> bool:
            with self._guard(slot):
                return view.panel()
            return False

        return Shown(controls, view.details, view.extras, view.readout, path, view.empty)

    def _obey(self, asked: Asked) -> None:
        if asked.close is not None:
            self.forget(asked.close)
        if asked.pause is not None and (slot := self._shown) is not None and isinstance(slot.source, StreamSource):
            slot.source.set_paused(asked.pause)
        if asked.select is not None and asked.select == self.state.selected and (slot := self._shown) is not None:
            slot.entry.fault = ""  # a click on what failed tries again
            self._mark(_SETTLE)
        elif asked.select is not None:
            self.select(asked.select)
        if asked.changed:
            self._mark(_SETTLE)

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
        closers: list[Callable[[], None]] = [slot.source.close for slot in self._slots.values()]
        closers += [slot.view.close for slot in self._slots.values() if slot.view is not None]
        self._slots.clear()
        if self._panel is not None:
            closers.append(self._panel.close)
        for close in [*closers, self.subscriber.close, self.screen.close]:
            try:
                close()
            except Exception:
                log.exception("while closing")


_EMPTY = (0.075, 0.08, 0.09)


def _group(stream: RemoteStream) -> str:
    return f"{stream.run.name} \u00b7 {stream.run.pid}"
