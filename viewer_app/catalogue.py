"""The list of streams and files: what comes and goes, what is chosen, and each one's view."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ipc.interop.glapi import gl_device_uuid
from viewer_app.sources import FileSource, StreamSource
from viewer_app.state import Entry, State
from viewer_app.views import make_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import moderngl

    from ipc import RemoteStream, Subscriber
    from viewer_app.gpu_work import GpuWork
    from viewer_app.sources import Source
    from viewer_app.views.base import View

log = logging.getLogger("splatview")

SETTLE = 3
"""Pictures after an event until the panel has come to rest."""
_NEEDED_FOR = 2.0
"""Seconds for which a run still counts as needing its GPU after it was last seen to publish."""


class Slot:
    """One entry of the list with what belongs to it: its source, and its view once it was shown."""

    def __init__(self, entry: Entry, source: Source) -> None:
        self.entry = entry
        self.source = source
        self.view: View | None = None
        self.view_kind = ""
        self.next_feed = 0.0
        self.logged = ""


class Catalogue:
    """Keeps `state.entries` as the runs and files are. Faults of one entry never reach another."""

    def __init__(self, state: State, subscriber: Subscriber, ctx: moderngl.Context, work: GpuWork, *,
                 wake: Callable[[], None], mark: Callable[..., None]) -> None:
        """`wake` ends the loop's sleep, from any thread; `mark(n=1)` asks for n pictures to be drawn."""
        self.state = state
        self.subscriber = subscriber
        self.slots: dict[str, Slot] = {}
        self.rates_changed = False
        """Whether streams come faster or slower than when somebody last took this back."""
        self._by_itself = True
        """Whether what is shown was chosen without anybody."""
        self._ctx = ctx
        self._work = work
        self._needed_until = 0.0
        self._gpu = gl_device_uuid(ctx)
        self._wake = wake
        self._mark = mark

    @property
    def shown(self) -> Slot | None:
        return self.slots.get(self.state.selected or "")

    def open_file(self, path: Path, *, select: bool = False) -> FileSource:
        """Add a file to the list; a thread reads it."""
        key = str(path.absolute())
        if key in self.slots:
            self.forget(key)
        entry = Entry(key, "Files", path.name, is_file=True, progress=0.0)
        source = FileSource(path, self._wake)
        self.slots[key] = Slot(entry, source)
        self._list_changed()
        if select:
            self.select(key)
        elif self.state.selected is None:
            self._show(key)
        return source

    def forget(self, key: str) -> None:
        """Take an entry off the list and give back what it holds."""
        slot = self.slots.pop(key, None)
        if slot is None:
            return
        slot.source.close()
        if slot.view is not None:
            slot.view.close()
        if self.state.selected == key:
            self.state.selected = None
        self._list_changed()

    def select(self, key: str | None) -> None:
        """Show this entry because somebody wants it. Only what is shown costs its trainer anything."""
        self._by_itself = False
        self._show(key)

    def _show(self, key: str | None) -> None:
        if key == self.state.selected:
            return
        if (before := self.shown) is not None:
            if before.view is not None:
                with self.guard(before):
                    before.view.leave()
            before.source.release()
        self.state.selected = key
        if (slot := self.shown) is not None:
            slot.entry.fault = ""
            slot.source.open()
        self._mark(SETTLE)

    def _list_changed(self) -> None:
        entries = [slot.entry for slot in self.slots.values()]
        first = {e.group: i for i, e in reversed(list(enumerate(entries)))}  # streams of one run stay together
        self.state.entries = sorted(entries, key=lambda e: (e.is_file, not e.alive, first[e.group]))
        self._mark(SETTLE)

    def poll(self, now: float) -> bool:
        """Take in what runs and files brought. True when there is something new for the picture."""
        if self.subscriber.poll():
            self._match_streams()
        if (fault := self.subscriber.fault) and fault not in self.state.notices:
            self.state.notices.append(fault)
            self._mark()
        news = False
        for slot in list(self.slots.values()):
            rate = slot.entry.rate_hz
            if slot.source.refresh(slot.entry):
                news = True
            self.rates_changed |= slot.entry.rate_hz != rate
        if news:
            self._list_changed()
        if self.state.selected is None or self._by_itself:
            self._choose()
        slot = self.shown
        if slot is None:
            return False
        view = slot.view
        if view is not None and view.stale:
            slot.source.again()
        if view is not None and view.busy and slot.entry.fault:  # nobody else asks it while a fault is shown
            with self.guard(slot):
                view.tick(now)
        ready = self._ready(slot, now)
        if not slot.source.has_news():
            if ready:
                slot.source.ask()
            return False
        if ready:
            self._feed(slot, now)
        return True

    def has_news(self, now: float) -> bool:
        """Whether `poll` would take a new value of what is shown. Costs a hundredth of it."""
        slot = self.shown
        return slot is not None and slot.source.has_news() and self._ready(slot, now)

    def _ready(self, slot: Slot, now: float) -> bool:
        """Whether an entry may take another value."""
        view = slot.view
        return now >= slot.next_feed and not (
            view is not None and (view.busy or now < self._next_version(slot, view)))

    def _next_version(self, slot: Slot, view: View) -> float:
        """When a view may take another version, for the GPU's sake. An image costs no more than its drawing."""
        if view.kind != "gaussians":
            return 0.0
        return self._work.governor.next_version(slot.entry.rate_hz, view.moving)

    def gpu_is_needed(self, now: float) -> bool:
        """Whether a run that is shown works on the GPU that the viewer uses: it publishes from there.

        That is OpenGL's GPU, and for what is drawn with CUDA the one where it lies.
        """
        slot = self.shown
        if slot is not None and isinstance(slot.source, StreamSource):
            run, cuda = slot.source.stream.run, slot.view is not None and slot.view.cuda
            if run.alive and any(s.rate_hz > 0 and s.gpu and (cuda or s.gpu == self._gpu)
                                 for s in run.streams.values()):
                self._needed_until = now + _NEEDED_FOR
        return now < self._needed_until

    def _match_streams(self) -> None:
        """A new stream continues where one of its name and kind ended; otherwise it is a new entry."""
        followed: dict[int, Slot] = {
            id(slot.source.stream): slot for slot in self.slots.values() if isinstance(slot.source, StreamSource)
        }
        there = self.subscriber.streams
        for stream in there:
            if id(stream) in followed or not stream.run.alive:  # an ended one is shown already, or was continued
                continue
            slot = self._ended_like(stream)
            if slot is not None and isinstance(slot.source, StreamSource):
                slot.source.follow(stream)
                slot.entry.group, slot.entry.fault = _group(stream), ""
            else:
                entry = Entry(f"{stream.run.id}/{stream.name}", _group(stream), stream.name, stream.kind)
                self.slots[entry.key] = Slot(entry, StreamSource(stream))
            self._list_changed()
        present = {id(stream) for stream in there}
        for slot in followed.values():
            gone = isinstance(slot.source, StreamSource) and id(slot.source.stream) not in present
            if gone and slot.entry.key != self.state.selected:
                self.forget(slot.entry.key)

    def _ended_like(self, stream: RemoteStream) -> Slot | None:
        """The entry that a new stream continues: the one shown before others, the same run's name before others."""
        fits = [slot for slot in self.slots.values() if isinstance(slot.source, StreamSource)
                and not slot.source.stream.run.alive and slot.entry.name == stream.name
                and slot.source.stream.kind == stream.kind]
        return max(fits, default=None, key=lambda s: (s.entry.key == self.state.selected,
                                                      s.entry.group == _group(stream)))

    def _choose(self) -> None:
        """With nothing chosen: a live stream, Gaussians before others, the newest before older; then a file.

        What was found first gives way to the first Gaussians of its run, which often come a little later.
        """
        slots = list(self.slots.values())
        if (shown := self.shown) is not None:
            slots = [s for s in slots if s.entry.kind == "gaussians" and s.entry.alive and not s.entry.is_file
                     and s.entry.group == shown.entry.group and shown.entry.kind != "gaussians"]
        if slots:
            best = max(range(len(slots)), key=lambda i: (
                slots[i].entry.alive, not slots[i].entry.is_file, slots[i].entry.kind == "gaussians", i))
            self._show(slots[best].entry.key)

    def _feed(self, slot: Slot, now: float) -> None:
        begin = time.monotonic()
        with self.guard(slot):
            kind = slot.entry.kind
            if slot.view is None or slot.view_kind != kind:
                if slot.view is not None:
                    slot.view.close()
                    slot.view = None
                slot.view = make_view(kind, self._ctx, slot.entry.settings, self._work)
                slot.view_kind = kind
            if slot.source.feed(slot.view):
                slot.entry.fault = ""
                self._work.governor.loads_version()
                self._mark()
        cost = time.monotonic() - begin
        # A scene that takes long to load leaves time for the mouse; a torn or late frame is soon asked for again.
        slot.next_feed = now + (2 * cost if cost > 0.02 else 0.0)

    @contextmanager
    def guard(self, slot: Slot) -> Iterator[None]:
        """A fault of one view or stream is shown in its place and logged once; everything else goes on."""
        try:
            yield
        except Exception as e:
            text = str(e) or type(e).__name__
            if slot.entry.fault != text:
                self._mark(SETTLE)
            slot.entry.fault = text
            if slot.logged != text:
                slot.logged = text
                log.warning("%s cannot be shown: %s", slot.entry.name, text, exc_info=log.isEnabledFor(logging.DEBUG))

    def close(self) -> None:
        """Give back everything. Idempotent."""
        slots = list(self.slots.values())
        self.slots.clear()
        closers: list[Callable[[], None]] = [slot.source.close for slot in slots]
        closers += [slot.view.close for slot in slots if slot.view is not None]
        for close in [*closers, self.subscriber.close]:
            try:
                close()
            except Exception:
                log.exception("while closing")


def _group(stream: RemoteStream) -> str:
    return f"{stream.run.name} \u00b7 {stream.run.pid}"
