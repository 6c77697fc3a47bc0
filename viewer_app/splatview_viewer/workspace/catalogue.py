"""The list of streams and files: entries, the viewports that show them, and each entry's views."""

from __future__ import annotations

import logging
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from splatview_ipc.control.memory_snapshots import newest_oom_snapshot
from splatview_ipc.gl.glapi import gl_device_uuid
from splatview_viewer.core.errors import words_of
from splatview_viewer.core.host import Memo
from splatview_viewer.core.settings import Entry
from splatview_viewer.gpu.work import GpuMemory
from splatview_viewer.kinds import about, make_view
from splatview_viewer.workspace.links import PLOT_PERIOD_S, Counts, Links
from splatview_viewer.workspace.names import meant
from splatview_viewer.workspace.shards import Shards, key_of, runs_of, title_of
from splatview_viewer.workspace.sources import FileSource, StreamSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import moderngl

    from splatview_ipc.subscriber.subscriber import Subscriber
    from splatview_viewer.core.host import Host
    from splatview_viewer.core.screen import Screen
    from splatview_viewer.core.view import Section, ShownView
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.recording.recorder import Recorder
    from splatview_viewer.workspace.sources import Source

log = logging.getLogger("splatview")

SETTLE = 3
"""Pictures after an event until the panel has come to rest."""
_NEEDED_FOR = 2.0
"""Seconds for which a run still counts as needing its GPU after it was last seen to publish."""
_DYING = 60.0
"""Seconds before a run's end within which it ran out of memory because of which it ended."""


class User(Protocol):
    """One screen: `shell.user.User`."""

    screen: Screen

    def mark(self, pictures: int = 1) -> None: ...
    def takes(self, now: float) -> bool: ...
    def may_draw(self, now: float) -> float: ...
    def unfollow(self) -> None: ...


class Viewport(Protocol):
    """A part of a user's picture that shows one entry: `shell.viewport.Viewport`."""

    key: str | None
    by_itself: bool

    @property
    def user(self) -> User: ...
    @property
    def host(self) -> Host: ...
    @property
    def has_panel(self) -> bool: ...

    def select(self, key: str | None) -> None: ...


class Feature(Protocol):
    """An addition to the catalogue that shows several entries in one picture: comparisons."""

    def pull(self, user: Any) -> None:
        """Prepare the viewports of a user, before they are drawn."""

    def sections(self, viewport: Any) -> Sequence[Section]:
        """Return its parts of the panel for a viewport."""
        ...

    def compare(self, how: str, viewport: Any, key: str) -> None:
        """Show the entry `key` with what a viewport shows: in a "pair", "together" or "beside"."""


class Slot:
    """One entry of the list with what belongs to it: its source, and its views once it was shown."""

    def __init__(self, entry: Entry, source: Source) -> None:
        self.entry = entry
        self.source = source
        self.views: dict[Viewport | None, ShownView] = {}
        """The view of each viewport; they share their data. Key None: the last view, kept after its viewport closed."""
        self.view_kind = ""
        self.next_feed = 0.0
        self.logged = ""

    @property
    def view(self) -> ShownView | None:
        """Any view of this entry, for calls that affect the shared data."""
        return next(iter(self.views.values()), None)

    def close_views(self) -> None:
        for view in self.views.values():
            view.close()
        self.views.clear()


class Catalogue:
    """Keeps `entries` as the runs and files are. Faults of one entry never reach another."""

    def __init__(self, subscriber: Subscriber, ctx: moderngl.Context, work: GpuWork, *,
                 wake: Callable[[], None]) -> None:
        """`wake` ends the loop's sleep, from any thread."""
        self.entries: list[Entry] = []
        """The list, in its order; always the same object."""
        self.notices: list[str] = []
        """Faults of the surroundings, one line each; likewise."""
        self.subscriber = subscriber
        self.slots: dict[str, Slot] = {}
        self.viewports: list[Viewport] = []
        """Those that are seen."""
        self.recorder: Recorder | None = None
        """Takes snapshots of scenes. To be set before there are streams."""
        self.memo = Memo()
        self.gpu_memory = GpuMemory(ctx)
        self.rate_changes = 0
        """Counts changes of the streams' rates, and of the plots in the panel."""
        self.shards = Shards()
        self.links = Links(self)
        self.counts = Counts()
        self.features: list[Feature] = []
        self.chooses = True
        """Viewports whose users have chosen nothing show what is meant by no name."""
        self._commands: deque[Callable[[], object]] = deque()
        self._first: str | None = None
        """The entry that a new viewport shows: the first file, if files were opened before there were viewports."""
        self._ctx, self._work, self._wake = ctx, work, wake
        self._gpu = gl_device_uuid(ctx)
        self._needed_until = 0.0
        self._ended: set[str] = set()
        """Runs whose last snapshot was looked for."""

    # -- who shows what ------------------------------------------------------------------------------------

    def join(self, viewport: Viewport) -> None:
        self.viewports.append(viewport)
        if viewport.key not in self.slots:
            viewport.key = self._first if self._first in self.slots else None
        viewport.user.mark(SETTLE)

    def part(self, viewport: Viewport) -> None:
        """Remove a viewport while it is not seen; its entry and its views stay."""
        if viewport in self.viewports:
            self.viewports.remove(viewport)
            self.drop_pictures(viewport)

    def drop_pictures(self, viewport: Viewport) -> None:
        """Give back what a viewport's views make again when they are drawn."""
        for slot in self.slots.values():
            if (view := slot.views.get(viewport)) is not None:
                with self.guard(slot):
                    view.view.release("away")

    def leave(self, viewport: Viewport) -> None:
        """Give back what belongs to a viewport alone, for good. Idempotent."""
        self.part(viewport)
        for slot in self.slots.values():
            if (view := slot.views.pop(viewport, None)) is None:
                continue
            if slot.views:
                view.close()
            else:  # its data is wanted again; a file's is nowhere else
                slot.views[None] = view

    def shown(self, viewport: Viewport) -> Slot | None:
        return self.slots.get(viewport.key or "")

    def watched(self) -> list[Slot]:
        """Return the entries that are seen, if only in the panel."""
        return [slot for slot in self.links.watched if slot.entry.key in self.slots]

    def view(self, viewport: Viewport) -> ShownView | None:
        """Return the view that shows a viewport's entry, once it has had data."""
        slot = self.shown(viewport)
        if slot is None or not slot.views:
            return None
        view = slot.views.get(viewport)
        if view is None:
            view = slot.views.pop(None, None) or next(iter(slot.views.values())).beside()
            slot.views[viewport] = view
            view.view.host = replace(viewport.host, name=slot.entry.name, again=slot.source.again)
        return view

    def show(self, viewport: Viewport, key: str | None) -> None:
        """Have a viewport show this entry."""
        if key != viewport.key:
            viewport.key = key
            viewport.user.mark(SETTLE)

    def let_go(self, slot: Slot) -> None:
        """Release an entry that is not seen any more."""
        if slot.view is not None:
            if not slot.entry.alive and not slot.view.wants.busy and slot.source.has_news():
                self._feed(slot, slot.next_feed)  # what an ended run published last can be had now, or never
            with self.guard(slot):
                slot.view.view.release("idle")
        slot.source.release()

    def _mark(self, slot: Slot | None = None, pictures: int = 1) -> None:
        """Have the viewports that show an entry drawn; without one, all."""
        for viewport in self.viewports:
            if slot is None or self.links.seen_by(viewport, slot):
                viewport.user.mark(pictures)

    # -- what there is -------------------------------------------------------------------------------------

    def open_file(self, file: Path | FileSource, viewport: Viewport | None = None) -> FileSource:
        """Add a file to the list, for a viewport to show; a job reads it, or does already."""
        source = file if isinstance(file, FileSource) else FileSource(file)
        source.wake, path = self._wake, source.file
        key = str(path.absolute())
        if key in self.slots:
            self.forget(key)
        entry = Entry(key, "Files", path.name, is_file=True, progress=0.0)
        self.slots[key] = Slot(entry, source)
        self.list_changed()
        if viewport is not None:
            viewport.user.unfollow()
            viewport.select(key)
        elif self._first not in self.slots:
            self._first = key
        for other in self.viewports:
            if other.key is None:
                self.show(other, key)
        return source

    def do(self, command: Callable[..., object], *values: Any) -> None:
        """Queue a command, from any thread. Commands are executed in `poll`, not in the middle of a picture."""
        self._commands.append(partial(command, *values))
        self._wake()

    def notice(self, text: str) -> None:
        """Show all users a fault, once."""
        if text not in self.notices:
            self.notices.append(text)
            log.warning("%s", text)
            self._mark()

    def add(self, slot: Slot) -> None:
        self.slots[slot.entry.key] = slot
        self.list_changed()

    def forget(self, key: str) -> None:
        """Take an entry off the list and give back what it holds."""
        slot = self.slots.pop(key, None)
        if slot is None:
            return
        slot.source.close()
        slot.close_views()
        for viewport in self.viewports:
            if viewport.key == key:
                viewport.key = None
        self.list_changed()

    def list_changed(self) -> None:
        entries = [slot.entry for slot in self.slots.values()]
        first = {e.group: i for i, e in reversed(list(enumerate(entries)))}  # streams of one run stay together
        self.entries[:] = sorted(entries, key=lambda e: (e.is_file, not e.alive, first[e.group]))
        self._mark(None, SETTLE)

    def poll(self, now: float) -> bool:
        """Take in what runs and files brought. True when there is something new for a picture."""
        self.shards.turn(now)
        if self.subscriber.poll():
            self._match_streams(now)
        if self.subscriber.fault:
            self.notice(self.subscriber.fault)

        def told(entry: Entry) -> tuple[object, ...]:
            """Return what the list shows of an entry, beside its rate and progress."""
            return (entry.alive, entry.kind, entry.fault_of_source, entry.paused, entry.paused and entry.waits,
                    entry.progress is None)

        news = False
        for slot in list(self.slots.values()):
            entry = slot.entry
            before, rate, progress = told(entry), entry.rate_hz, entry.progress
            slot.source.refresh(entry, now)
            news |= told(entry) != before
            self.rate_changes += entry.rate_hz != rate
            if entry.progress != progress:
                self._mark()
        if news:
            self.list_changed()
        for viewport in list(self.viewports):
            if not self.chooses or not (viewport.key is None or viewport.by_itself):
                continue
            entries = [slot.entry for slot in self.slots.values()]
            if (shown := self.shown(viewport)) is not None:  # gives way to better of its run, which comes later
                rank, group = about(shown.entry.kind).rank, shown.entry.group
                entries = [e for e in entries if e.alive and not e.is_file and e.group == group
                           and about(e.kind).rank < rank]
            if (entry := meant(entries)) is not None:
                self.show(viewport, entry.key)
        news = bool(self._commands)
        while self._commands:
            self._commands.popleft()()
        self.counts.update(self, now)
        self.links.update()
        self._open_snapshots()
        news = any([self._take_in(slot, now) for slot in self.watched()]) or news
        return self.links.read(now) or news

    def _match_streams(self, now: float) -> None:
        """A new stream continues an entry whose stream of its name and kind has ended: the one shown before others, one
        of the same run's name before others. Otherwise it is a new entry."""
        followed = {id(slot.source.stream): slot for slot in self.slots.values() if slot.source.stream is not None}
        there = self.shards.update(self.subscriber.streams, now)
        present = {id(stream) for stream in there}
        for _, name, world in self.shards.clashes:
            self.notice(f"{name}: two trainings of {world} shards look like one. Set SPLATVIEW_GROUP to a word of its "
                        "own for each of them")
        for stream in there:
            if id(stream) in followed or not stream.run.alive or stream.info.over:  # ended ones are shown or continued
                continue
            group = f"{stream.run.name} \u00b7 {stream.run.pid}"
            fits = [slot for slot in self.slots.values() if (ended := slot.source.stream) is not None
                    and (not ended.run.alive or id(ended) not in present)
                    and (slot.entry.name, ended.kind) == (title_of(stream), stream.kind)]
            if fits:
                watched = self.watched()
                slot = max(fits, key=lambda s: (s in watched, s.entry.group == group))
                slot.source.follow(stream)
                slot.entry.group, slot.entry.fault = group, ""
            else:
                self.slots[key_of(stream)] = Slot(Entry(key_of(stream), group, title_of(stream), stream.kind),
                                                  StreamSource(stream, self.recorder))
            self.list_changed()
        for slot in followed.values():
            if id(slot.source.stream) not in present and slot not in self.watched():
                self.forget(slot.entry.key)

    def _open_snapshots(self) -> None:
        """Open the last full snapshot of memory of a run that ran out of it."""
        for slot in list(self.slots.values()):
            stream = slot.source.stream
            if stream is None or not about(slot.entry.kind).snapshots:
                continue
            if slot.view is not None:
                slot.view.content.ask = stream.request_snapshot
            if not stream.run.alive and stream.run.id not in self._ended:
                self._ended.add(stream.run.id)
                path = newest_oom_snapshot(stream.run.id, stream.run.ended_at - _DYING)
                if path is None:
                    continue
                viewports = [viewport for viewport in self.viewports if viewport.key == slot.entry.key]
                if str(path) not in self.slots:
                    self.open_file(path, viewports[0] if viewports else None)
                for viewport in viewports:
                    viewport.select(str(path))

    def _take_in(self, slot: Slot, now: float) -> bool:
        """Give an entry's views what is new. True when there is something."""
        view = slot.view
        if view is not None and slot.entry.alive and view.wants.stale:
            slot.source.again()
        if view is not None and slot.entry.fault and view.wants.busy:  # the viewport does not while a fault is shown
            with self.guard(slot):
                view.tick(now)
        ready = self._ready(slot, now)
        if not slot.source.has_news():
            return False
        if ready:
            self._feed(slot, now)
        return True

    def has_news(self, now: float) -> bool:
        """Return whether `poll` would take a new value of what is shown. Costs a hundredth of it."""
        return any(slot.source.has_news() and self._ready(slot, now) for slot in self.watched()) or (
            self.links.has_news(now))

    def _ready(self, slot: Slot, now: float) -> bool:
        """Return whether an entry may take another value, which would soon be seen."""
        view = slot.view
        if now < slot.next_feed or (view is not None and view.wants.busy):
            return False
        if view is not None and about(view.kind).scene:  # for the GPU's sake; an image costs no more than its drawing
            moving = any(v.wants.moving for v in slot.views.values())
            if now < self._work.governor.next_version(slot.entry.rate_hz, moving):
                return False
        return any(viewport.user.takes(now) for viewport in self.viewports if self.links.seen_by(viewport, slot))

    def gpu_is_needed(self, now: float) -> bool:
        """Return whether a run that is shown works on the GPU that the viewer uses: it publishes from there.

        That is OpenGL's GPU, and for what is drawn with CUDA the one where it lies.
        """
        for slot in self.watched():
            if slot.source.stream is None:
                continue
            cuda = slot.view is not None and slot.view.wants.cuda
            if any(run.alive and s.rate_hz > 0 and s.gpu and (cuda or s.gpu == self._gpu)
                   for run in runs_of(slot.source.stream) for s in run.streams.values()):
                self._needed_until = now + _NEEDED_FOR
        return now < self._needed_until

    def _feed(self, slot: Slot, now: float) -> None:
        begin = time.perf_counter()
        with self.guard(slot):
            kind = slot.entry.kind
            view = slot.view
            if view is None or slot.view_kind != kind:
                slot.close_views()
                view = slot.views[None] = make_view(kind, self._ctx, self._work)
                slot.view_kind = kind
            if slot.source.feed(view):
                slot.entry.fault = ""
                self._work.governor.loads_version()
                self._mark(slot)
        cost = time.perf_counter() - begin
        # A scene that takes long to load leaves time for the mouse; a torn or late frame is soon asked for again.
        slot.next_feed = now + (2 * cost if cost > 0.02 else 0.0)
        if self.links.watched.get(slot) is False:
            slot.next_feed = now + PLOT_PERIOD_S

    @contextmanager
    def guard(self, slot: Slot) -> Iterator[None]:
        """A fault of one view or stream is shown in its place and logged once; everything else goes on."""
        try:
            yield
        except Exception as e:
            text = words_of(e)
            if slot.entry.fault != text:
                self._mark(slot, SETTLE)
            slot.entry.fault = text
            if slot.logged != text:
                slot.logged = text
                log.warning("%s cannot be shown: %s", slot.entry.name, text, exc_info=log.isEnabledFor(logging.DEBUG))

    def close(self) -> None:
        """Give back everything. Idempotent."""
        slots = list(self.slots.values())
        self.slots.clear()
        closers = [*(slot.source.close for slot in slots), *(slot.close_views for slot in slots)]
        for close in [*closers, *([self.recorder.close] if self.recorder else []), self.subscriber.close]:
            try:
                close()
            except Exception:
                log.exception("while closing")
