"""The list of streams and files: what comes and goes, who looks at what, and each one's views."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

from splatview_ipc.gl.glapi import gl_device_uuid
from splatview_viewer.core.errors import words_of
from splatview_viewer.core.memo import Memo
from splatview_viewer.core.settings import Entry
from splatview_viewer.gpu.memory import GpuMemory
from splatview_viewer.kinds import make_view
from splatview_viewer.workspace.companions import PERIOD, Companions
from splatview_viewer.workspace.matching import first_choice, match_streams
from splatview_viewer.workspace.overlays import Overlays
from splatview_viewer.workspace.recorded import file_source
from splatview_viewer.workspace.shards.grouping import Shards
from splatview_viewer.workspace.sources import FileSource, StreamSource
from splatview_viewer.workspace.training_cameras import TrainingCameras

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import moderngl

    from splatview_ipc.subscriber.subscriber import Subscriber
    from splatview_viewer.core.old_view import View
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.recording.recorder import Recorder
    from splatview_viewer.workspace.sources import Source
    from splatview_viewer.workspace.viewport import Feature, Viewport

log = logging.getLogger("splatview")

SETTLE = 3
"""Pictures after an event until the panel has come to rest."""
_NEEDED_FOR = 2.0
"""Seconds for which a run still counts as needing its GPU after it was last seen to publish."""


class Slot:
    """One entry of the list with what belongs to it: its source, and its views once it was shown."""

    def __init__(self, entry: Entry, source: Source) -> None:
        self.entry = entry
        self.source = source
        self.views: dict[Viewport | None, View] = {}
        """Each pane's view; what their data is, they share. Under None the last one of those who left."""
        self.view_kind = ""
        self.next_feed = 0.0
        self.logged = ""

    @property
    def view(self) -> View | None:
        """One of the views, to ask and tell what concerns all."""
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
        self.panes: list[Viewport] = []
        """Who looks."""
        self.recorder: Recorder | None = None
        """Takes snapshots of scenes. To be set before there are streams."""
        self.memo = Memo()
        """What is remembered for the next time."""
        self.gpu_memory = GpuMemory(ctx)
        self.rate_changes = 0
        """How many times streams began to come faster or slower, or there was more memory to be seen beside one."""
        self.shards = Shards()
        self.companions = Companions(self)
        self.overlays = Overlays(self)
        self.cameras = TrainingCameras(self)
        self.features: list[Feature] = []
        """To be set before anything is shown."""
        self._asked: list[Callable[[], None]] = []
        self._first: str | None = None
        """What a new seat shows: the first file, if there were files before there was anybody."""
        self._ctx = ctx
        self._work = work
        self._needed_until = 0.0
        self._gpu = gl_device_uuid(ctx)
        self._wake = wake

    # -- who shows what ------------------------------------------------------------------------------------

    def join(self, pane: Viewport) -> None:
        """Somebody looks from now on."""
        self.panes.append(pane)
        if pane.key in self.slots:
            self._open(pane)
            return
        pane.key = None
        if self._first in self.slots:
            self.show(pane, self._first)

    def part(self, pane: Viewport) -> None:
        """Somebody does not look for now; what they chose stays."""
        if pane in self.panes:
            self.panes.remove(pane)
            self.drop_pictures(pane)
            if (slot := self.shown(pane)) is not None:
                self.let_go(slot)

    def drop_pictures(self, pane: Viewport) -> None:
        """Give back what a pane's views make again when they are drawn."""
        for slot in self.slots.values():
            if (view := slot.views.get(pane)) is not None:
                with self.guard(slot):
                    view.drop()

    def leave(self, pane: Viewport) -> None:
        """Somebody will not come back: give back what is theirs alone. Idempotent."""
        self.part(pane)
        for slot in self.slots.values():
            if (view := slot.views.pop(pane, None)) is None:
                continue
            if slot.views:
                view.close()
            else:  # its data is wanted again; a file's is nowhere else
                slot.views[None] = view

    def shown(self, pane: Viewport) -> Slot | None:
        return self.slots.get(pane.key or "")

    def watched(self) -> list[Slot]:
        """What is shown by anybody, if only in the panel."""
        keys = {pane.key: None for pane in self.panes} | {
            s.entry.key: None for owner in (self.companions, *self.features, self.cameras) for s in owner.slots}
        return [self.slots[key] for key in keys if key in self.slots]

    def view(self, pane: Viewport) -> View | None:
        """What shows a pane's entry, once it has had data."""
        slot = self.shown(pane)
        if slot is None or not slot.views:
            return None
        view = slot.views.get(pane)
        if view is None:
            view = slot.views.pop(None, None)
            if view is None:
                other = slot.view
                assert other is not None
                view = other.beside(getattr(deepcopy(slot.entry.settings), other.kind, None))
            slot.views[pane] = view
            view.desk = replace(pane.desk, name=slot.entry.name, again=slot.source.again)
        return view

    def show(self, pane: Viewport, key: str | None) -> None:
        """Have a pane show this entry."""
        if key == pane.key:
            return
        before = self.shown(pane)
        pane.key = key
        if before is not None:
            self.let_go(before)
        if pane in self.panes:
            self._open(pane)

    def _open(self, pane: Viewport) -> None:
        if (slot := self.shown(pane)) is not None:
            slot.entry.fault = ""
            slot.source.open()
        pane.mark(SETTLE)

    def let_go(self, slot: Slot) -> None:
        """What nobody shows any more costs nobody anything."""
        if slot in self.watched():
            return
        if slot.view is not None:
            if not slot.entry.alive and not slot.view.busy and slot.source.has_news():
                self._feed(slot, slot.next_feed)  # what an ended run published last can be had now, or never
            with self.guard(slot):
                slot.view.leave()
        slot.source.release()

    def _mark(self, slot: Slot, pictures: int = 1) -> None:
        """Have those who show it draw."""
        for pane in self.panes:
            if pane.key == slot.entry.key or any(f.seen_by(pane, slot) for f in self.features):
                pane.mark(pictures)

    def _mark_all(self, pictures: int = 1) -> None:
        for pane in self.panes:
            pane.mark(pictures)

    # -- what there is -------------------------------------------------------------------------------------

    def open_file(self, file: Path | FileSource, pane: Viewport | None = None) -> FileSource:
        """Add a file to the list, for a pane to show; a job reads it, or does already."""
        source = file if isinstance(file, FileSource) else file_source(file)
        source.wake, path = self._wake, source.file
        key = str(path.absolute())
        if key in self.slots:
            self.forget(key)
        entry = Entry(key, "Files", path.name, is_file=True, progress=0.0)
        self.slots[key] = Slot(entry, source)
        self.list_changed()
        if pane is not None:
            pane.unfollow()
            pane.select(key)
        elif self._first not in self.slots:
            self._first = key
        for other in self.panes:
            if other.key is None:
                self.show(other, key)
        return source

    def soon(self, do: Callable[[], None]) -> None:
        """Call `do` before the next picture, and not in the middle of one."""
        self._asked.append(do)
        self._wake()

    def add(self, slot: Slot) -> None:
        """Put an entry on the list."""
        self.slots[slot.entry.key] = slot
        self.list_changed()

    def forget(self, key: str) -> None:
        """Take an entry off the list and give back what it holds."""
        slot = self.slots.pop(key, None)
        if slot is None:
            return
        slot.source.close()
        slot.close_views()
        for pane in self.panes:
            if pane.key == key:
                pane.key = None
        self.list_changed()

    def list_changed(self) -> None:
        entries = [slot.entry for slot in self.slots.values()]
        first = {e.group: i for i, e in reversed(list(enumerate(entries)))}  # streams of one run stay together
        self.entries[:] = sorted(entries, key=lambda e: (e.is_file, not e.alive, first[e.group]))
        self._mark_all(SETTLE)

    def poll(self, now: float) -> bool:
        """Take in what runs and files brought. True when there is something new for a picture."""
        if self.subscriber.poll():
            match_streams(self)
        if (fault := self.subscriber.fault) and fault not in self.notices:
            self.notices.append(fault)
            self._mark_all()
        news = False
        for slot in list(self.slots.values()):
            rate, progress = slot.entry.rate_hz, slot.entry.progress
            if slot.source.refresh(slot.entry, now):
                news = True
            self.rate_changes += slot.entry.rate_hz != rate
            if slot.entry.progress != progress:
                self._mark_all()
        if news:
            self.list_changed()
        for pane in list(self.panes):
            if pane.key is None or pane.by_itself:
                self._choose(pane, now)
        self.companions.update(now)
        self.cameras.update(now)
        asked, self._asked = self._asked, []
        for do in asked:
            do()
        news = any([feature.update() for feature in self.features]) or bool(asked)
        news = any([self._take_in(slot, now) for slot in self.watched()]) or news
        return self.overlays.update(now) or news

    def settled(self) -> bool:
        """No source reads anything or has something new for who looks, and nothing waits to be done."""
        working = any(slot.source.reading or (slot.view is not None and slot.view.busy) for slot in self.slots.values())
        return not (working or self._asked or any(slot.source.has_news() for slot in self.watched()))

    def _take_in(self, slot: Slot, now: float) -> bool:
        """Give an entry's views what is new. True when there is something."""
        view = slot.view
        if view is not None and view.stale and slot.entry.alive:
            slot.source.again()
        if view is not None and view.busy and slot.entry.fault:  # nobody else asks it while a fault is shown
            with self.guard(slot):
                view.tick(now)
        ready = self._ready(slot, now)
        if not slot.source.has_news():
            return False
        if ready:
            self._feed(slot, now)
        return True

    def has_news(self, now: float) -> bool:
        """Whether `poll` would take a new value of what is shown. Costs a hundredth of it."""
        return any(slot.source.has_news() and self._ready(slot, now) for slot in self.watched()) or (
            self.overlays.has_news(now))

    def _ready(self, slot: Slot, now: float) -> bool:
        """Whether an entry may take another value, which somebody would soon see."""
        view = slot.view
        return now >= slot.next_feed and not any(f.reads(slot) for f in self.features) and not (
            view is not None and (view.busy or now < self._next_version(slot, view))) and any(
                pane.takes(now) for pane in self.panes
                if pane.key == slot.entry.key or self.companions.seen_by(pane, slot)
                or self.cameras.seen_by(pane, slot) or any(f.seen_by(pane, slot) for f in self.features))

    def _next_version(self, slot: Slot, view: View) -> float:
        """When a view may take another version, for the GPU's sake. An image costs no more than its drawing."""
        if view.kind != "gaussians":
            return 0.0
        return self._work.governor.next_version(slot.entry.rate_hz, any(v.moving for v in slot.views.values()))

    def gpu_is_needed(self, now: float) -> bool:
        """Whether a run that is shown works on the GPU that the viewer uses: it publishes from there.

        That is OpenGL's GPU, and for what is drawn with CUDA the one where it lies.
        """
        for slot in self.watched():
            if not isinstance(slot.source, StreamSource):
                continue
            run, cuda = slot.source.stream.run, slot.view is not None and slot.view.cuda
            if run.alive and any(s.rate_hz > 0 and s.gpu and (cuda or s.gpu == self._gpu)
                                 for s in run.streams.values()):
                self._needed_until = now + _NEEDED_FOR
        return now < self._needed_until

    def _choose(self, pane: Viewport, now: float) -> None:
        """With nothing chosen by anybody, show what is looked at first."""
        if (key := first_choice(self, pane)) is not None:
            self.show(pane, key)

    def _feed(self, slot: Slot, now: float) -> None:
        begin = time.perf_counter()
        with self.guard(slot):
            kind = slot.entry.kind
            view = slot.view
            if view is None or slot.view_kind != kind:
                slot.close_views()
                view = slot.views[None] = make_view(kind, self._ctx, slot.entry.settings, self._work)
                slot.view_kind = kind
            if slot.source.feed(view):
                slot.entry.fault = ""
                self._work.governor.loads_version()
                self._mark(slot)
        cost = time.perf_counter() - begin
        # A scene that takes long to load leaves time for the mouse; a torn or late frame is soon asked for again.
        slot.next_feed = now + (2 * cost if cost > 0.02 else 0.0)
        if slot in self.companions.slots and all(self.shown(pane) is not slot for pane in self.panes):
            slot.next_feed = now + PERIOD
            self.rate_changes += 1

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
        closers: list[Callable[[], None]] = [slot.source.close for slot in slots]
        closers += [slot.close_views for slot in slots]
        recorder = [self.recorder.close] if self.recorder is not None else []
        for close in [*closers, *recorder, self.subscriber.close]:
            try:
                close()
            except Exception:
                log.exception("while closing")

