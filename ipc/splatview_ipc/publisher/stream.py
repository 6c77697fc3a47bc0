"""One published stream: the newest value, and how it reaches viewers while somebody looks.

A stream has one outlet for each way (`ipc.ways`) that some viewer chose. What a call to `publish` may cost: with no
reader, an attribute and a counter; with one, what the way takes: a copy, or for tensors shared in place, if a viewer
asks for a version at the moment, the record of an event. It waits neither for a viewer nor for the helper thread.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.errors import NotYet, SharingError
from splatview_ipc.control.limits import MAX_META_TEXT
from splatview_ipc.control.messages import StreamInfo
from splatview_ipc.publisher.offered import Offered
from splatview_ipc.publisher.outlet import Outlet, at_rest, undo
from splatview_ipc.publisher.preference import Place
from splatview_ipc.publisher.ring_allocation import abandon, due, provide
from splatview_ipc.publisher.tally import LOOK, Steady, Tally
from splatview_ipc.shm.control_block import COPIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from splatview_ipc.control.messages import Ref
    from splatview_ipc.kinds import ValueLayout
    from splatview_ipc.publisher.outlet import Published, Run


class Stream:
    """One named thing that a run publishes."""

    def __init__(self, index: int, name: str, kind: str, run: Run):
        self.index = index
        self.name = name
        self.kind = kind
        self.tally = Tally(run.board, index)
        self.readers = 0
        """Viewers that opened this stream. Written by the helper thread alone."""
        self.live = False
        self.over: tuple[str, str] = "", ""
        """Of kind overlay: what it is drawn over, a stream's name and its run's id (`StreamInfo`)."""
        self.shard: tuple[tuple[int, int] | None, str] = None, ""
        """Which part of a scene it is, and of which (`StreamInfo.group`)."""
        self.late = False
        """Whether a version could not be shared at its publish. Taken back by the helper thread."""
        self._looks: tuple[tuple[int, ...], str, str] | None = None
        self._form: ValueLayout | None = None
        self._run = run
        self._words = run.board.words
        self._outlets: dict[str, Outlet] = {}
        """By way. Never changed in place, since two threads look at it."""
        self._lock = threading.RLock()
        self._broken_off = False
        self._is_mine: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]
        self._offered = Offered(kind)
        self._place = Place()
        self._late_copies = 0, 0.0
        """The version that was last copied for readers who came late, and since when (time.monotonic)."""
        self._reported: set[str] = set()
        """Ways whose shortage of memory was logged."""

    @property
    def version(self) -> int:
        """The newest version's number."""
        return self.tally.version

    # The trainer's thread.

    def publish(self, value: Published) -> None:
        """Make `value` the newest version. `describe` must have been called for a value of this form."""
        tally = self.tally
        if tally.raw_stream is not None:
            tally.cuda_stream = tally.raw_stream(tally.device)
        version, steady = tally.version + 1, tally.steady
        asked = self.readers and (steady is None or value[0] is not steady.tensors or not version & LOOK
                                  or tally.asked)
        if asked and (capturing := self._offered.capturing) is not None and capturing():
            # Nothing runs yet, and what we would record would run at each replay.
            self._run.board.count_skipped()
            return
        form = self._form
        assert form is not None
        tally.newest, tally.version = (form, value), version
        if asked:
            # The helper thread may be serving a viewer that came late: it finds out by itself that it is behind.
            if self._broken_off:
                self._undo()
            amid = self._is_mine()  # another publish, in which a signal's handler calls this one
            try:
                if amid or not self._lock.acquire(False):
                    self._is_late()
                else:
                    try:
                        self._share(form, value, version)
                    except Exception as e:
                        self._run.fault(e)
                    self._lock.release()
            except BaseException:  # Ctrl-C as a rule, anywhere in here, and once more anywhere in `_undo`
                self._broken_off = not amid
                if not amid:
                    self._undo()
                raise
        tally.tell()

    def _undo(self) -> None:
        if self._is_mine():
            self.tally.steady = None
            undo(self._outlets.values(), self._place)
            self._offered.preference.forget()
            self._lock.release()
        self._broken_off = False

    def describe(self, form: ValueLayout, copy: bool | None = None, live: bool = False) -> None:
        """Say what is published from now on, and what the caller asked for: `copy` True, False or either, `live`."""
        self._form = form
        looks, wishes = (form.shape, form.dtype, form.device), (copy, live)
        if looks == self._looks and wishes == self._offered.preference.wishes:
            return
        if form.device != self._offered.device:
            with self._lock:
                for outlet in self._outlets.values():
                    outlet.close()
                trouble = self._offered.settle_on(form.device, self.tally)
            if trouble is not None:
                self._run.fault(trouble)
        self._offered.preference.wishes = wishes
        self.tally.steady = None
        self.live = live
        self._looks = looks
        self._offered.order()
        self._run.announce()

    def _share(self, form: ValueLayout, value: Published, version: int) -> None:
        place, tally = self._place, self.tally
        tensors, meta = value
        steady = tally.steady
        if (steady is not None and tensors is steady.tensors and form is steady.form
                and [*map(place.address, tensors)] == steady.addresses):
            if tally.asked:  # in as few functions as possible: see Tally
                try:
                    steady.again(tensors, steady.addresses, meta, version, tally.cuda_stream)
                except SharingError as e:
                    tally.steady = None
                    self._failed_by(steady.outlet, e)
                    return
                steady.outlet.version = version
                self._words[COPIES] += 1
            return
        self.tally.steady = None
        frame: dict[str, torch.Tensor] | None = None
        same = stays = place.same(tensors)
        if self.tally.raw_stream is not None:
            preference = self._offered.preference
            if same is not preference.expected:
                if preference.saw(place.number):
                    self._offered.order()
                    self._run.announce()
            elif not same:
                preference.place = place.number
            stays = same and preference.expected
        steady = None
        for outlet in self._outlets.values():
            if outlet.form is form and outlet.ready == (place.number if outlet.in_place else place.looks):
                if self._again(outlet, value, meta, version) and outlet.in_place and stays:
                    steady = Steady(form, outlet, tensors, place.addresses)
                continue
            if outlet.rests(self._offered.ways):
                self._is_late()
                continue
            if outlet.writer is None and outlet.waits:
                continue  # the helper thread shares the newest version when the memory is there
            if frame is None:
                frame = form.frame(tensors)
            if not self._write(outlet, form, value, frame, version, None):
                self._is_late()
        if len(self._outlets) == 1:
            self.tally.steady = steady

    def _again(self, outlet: Outlet, value: Published, meta: dict[str, Any], version: int) -> bool:
        """Whether a writer that is prepared for this value has taken it."""
        try:
            written = outlet.writer.again(  # type: ignore[union-attr]
                value[0], self._place.addresses, meta, version, self.tally.cuda_stream)
        except SharingError as e:
            self._failed_by(outlet, e)
            return False
        if written:
            outlet.version = version
            self._words[COPIES] += 1
        else:
            self._is_late()
        return written

    def _is_late(self) -> None:
        self.tally.steady = None
        if not self.late:
            self.late = True
            self._run.attend()

    def _write(self, outlet: Outlet, form: ValueLayout, value: Published, frame: dict[str, torch.Tensor], version: int,
               still_wanted: Callable[[], bool] | None) -> bool:
        """Whether the outlet has this version now. Under the lock."""
        meta = value[1]
        if outlet.way not in self._offered.ways:
            return True  # it failed; its viewers are choosing another
        try:
            before = outlet.writer and outlet.writer.ref
            writer = outlet.fitting(self.kind, frame, self._run.board.leased(self.index))
            written = writer.write(self.kind, frame, meta, version, still_wanted)
            if writer.ref is not before:
                self._run.attend()
            if written:
                outlet.version = version
                self._words[COPIES] += 1
                outlet.prepare(form, self._place, frame, value[0])
        except NotYet:  # the helper thread makes the memory, or the program ends
            if outlet.wants:
                self._run.attend()
            return False
        except SharingError as e:
            self._failed_by(outlet, e)
            return True
        return written

    def _failed_by(self, outlet: Outlet, error: SharingError) -> None:
        """Offer this way no more, if there is another. Its viewers see that, and take the next."""
        if len(self._offered.ways) < 2:
            raise error
        self._offered.failed[outlet.way] = str(error)
        outlet.close()
        self._offered.order()
        self._run.announce()
        goes = f"cannot be shared by {outlet.way}, and goes by {self._offered.ways[0]}"
        self._run.fault(SharingError(f"stream {self.name!r} {goes}: {error}"))

    # Any thread.

    def _newest(self) -> tuple[ValueLayout, Published]:
        """The newest value and its layout. Raises NotYet before there is one, and where the next publish has to see to
        it."""
        found = self.tally.newest
        if found is None or self._form is None:
            raise NotYet
        return found

    @property
    def info(self) -> StreamInfo | None:
        """What viewers are told; None before there is anything to tell."""
        if self._looks is None:
            return None
        offered = self._offered
        return StreamInfo(self.index, self.name, self.kind, *self._looks, offered.ways,  # type: ignore[arg-type]
                          offered.why[:MAX_META_TEXT], offered.gpu, self.live, *self.over, *self.shard)

    def ref(self, way: str) -> Ref | None:
        """Where the frames lie that one way brings; None before there is one."""
        return None if (writer := self._writer(way)) is None else writer.ref

    def note(self, way: str) -> str:
        """What is worse about a way here than usually, for people (`FrameWriter.note`)."""
        return "" if (writer := self._writer(way)) is None else writer.note[:MAX_META_TEXT]

    def _writer(self, way: str) -> Any:
        return None if (outlet := self._outlets.get(way)) is None else outlet.writer

    # The helper thread.

    def open(self, way: str) -> None:
        """One more viewer takes frames in this way."""
        with self._lock:
            outlet = self._outlets.get(way)
            if outlet is None:
                outlet = Outlet(way)
                self._outlets = {**self._outlets, way: outlet}
            outlet.readers += 1
            self.tally.steady = None
        self.readers += 1

    def release(self, way: str) -> None:
        """One viewer less does. What nobody reads is given back."""
        with self._lock:  # which a publish gives back that was broken off (`_undo`), as long as there are readers
            self.readers -= 1
            outlet = self._outlets[way]
            outlet.readers -= 1
            if outlet.readers:
                return
            self._outlets = {w: o for w, o in self._outlets.items() if w != way}
            before = outlet.install(None)
            self.tally.steady = None
            if not self._outlets:
                self._place.forget()  # which keeps the tensors of the last version that was shared
                self._offered.preference.forget()
        abandon(self, outlet)
        if before is not None:
            before.close()  # outside of the lock: to give a gigabyte back takes long

    def behind(self) -> bool:
        """Whether a reader waits for a version that it has not been given."""
        return self.readers > 0 and self.tally.newest is not None and any(map(self._lacks, self._outlets.values()))

    def _lacks(self, outlet: Outlet) -> bool:
        if outlet.way not in self._offered.ways or (outlet.writer is None and outlet.waits):
            return False
        if outlet.in_place:
            return outlet.version != self.version and (self.tally.steady is None or self.tally.asked)
        return outlet.version != self.version or self.live

    def catch_up(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Share the newest value for readers who came late, or where its own publish could not, as long as `goes_on`.

        The trainer may be writing into that very tensor. A copy is handed out only if no publish came and no
        in-place operation ended on its tensors until a moment after it (`at_rest`); of a live stream, whose tensors
        may never be at rest so long, as it was found. Raises NotYet when it is not possible now.
        """
        with self._lock:
            if not self.behind():
                return  # the trainer came by while we waited for the lock
            with self._side_stream():
                found = self.tally.newest
                form, value = self._newest()
                self.tally.steady = None  # what the writer has then may be something else
                self._place.same(value[0])
                frame = form.frame(value[0])
                for outlet in self._outlets.values():
                    if self._lacks(outlet):
                        # A publish puts its value there before it counts: else its number would go with this one.
                        self._catch_up(outlet, form, value, frame, lambda: self.tally.newest is found and goes_on())
        self.tally.tell_beside()

    @contextlib.contextmanager
    def _side_stream(self) -> Iterator[None]:
        """Within it, work for the GPU is queued behind the trainer's own. Raises NotYet, SharingError."""
        if self.tally.raw_stream is None:
            yield
            return
        from splatview_ipc.cuda.late import behind

        with behind(self.tally.device, self.tally.cuda_stream):
            yield

    def _catch_up(self, outlet: Outlet, form: ValueLayout, value: Published, frame: dict[str, torch.Tensor],
                  goes_on: Callable[[], bool]) -> None:
        version = self.version
        if version == outlet.version:  # a live stream: the same publish, newer contents if there are any
            if outlet.holds(frame) or self.version != version:  # a publish came by during the look
                return
            version = self.tally.version = version + 1
        described = self._form

        def current() -> bool:
            return self.version == version and self._form is described and goes_on()

        if self._late_copies[0] != version:
            self._late_copies = version, time.monotonic()
        self._write(outlet, form, value, frame, version,
                    current if self.live else at_rest(frame, current, self._late_copies[1]))

    def due(self) -> float | None:
        """When (time.monotonic) to call `tend` even if no viewer says anything; None: there is nothing to tend."""
        when = min(map(due, self._outlets_to_provide()), default=math.inf)
        if (writer := self._writer("in-place")) is not None:
            when = min(when, writer.due or math.inf)
        return when if when < math.inf else None

    # For `splatview_ipc.publisher.ring_allocation`, on the helper thread.

    @property
    def lock(self) -> threading.RLock:
        """Held by whoever writes a version. `publish` does not wait for it."""
        return self._lock

    @property
    def leased(self) -> Callable[[], bytes]:
        """As `Board.leased`, of this stream."""
        return self._run.board.leased(self.index)

    def newest_tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors of the newest value's frame. Raises as `_newest`, and SharingError."""
        with self._lock, self._side_stream():
            form, value = self._newest()
            return form.frame(value[0])

    def forget_leases(self) -> None:
        """What viewers lease are slots of a ring that was replaced. Under the lock."""
        if len(self._outlets) == 1:
            self._run.board.clear_stream(self.index)

    def withhold(self, way: str, reason: str) -> None:
        """Do not offer a way as long as its memory is short, for this reason; offer it again if that is empty. Under
        the lock."""
        self._offered.short.pop(way, None)
        if reason:
            self._offered.short[way] = reason
        self._offered.order()
        self._run.announce()

    def report_shortage(self, way: str, error: SharingError) -> None:
        """Count it, and log it once for each way."""
        if way in self._reported:
            self._run.board.count_fault()
            return
        self._reported.add(way)
        goes = f"goes by {self._offered.ways[0]} instead of {way}" if self._offered.ways else "is not shown"
        with contextlib.suppress(Exception):  # raising on request is for the trainer's own thread
            self._run.fault(SharingError(f"stream {self.name!r} {goes}: {error}"))

    def _outlets_to_provide(self) -> list[Outlet]:
        """Viewers may have opened ways that are not offered: no memory is made for these."""
        return [o for o in self._outlets.values()
                if o.way in self._offered.ways or o.making is not None or o.refused is not None]

    def finish(self) -> None:
        """Share the newest version, which no publish follows, if its own publish could not, and mark it in place:
        viewers read it when this process has ended. For when the helper thread has."""
        self.tally.steady = None
        self._late_copies = self.version, -math.inf  # there is no later turn in which to wait for other threads
        try:
            with contextlib.suppress(NotYet):
                self.catch_up()
        except Exception as e:
            self._run.fault(e)

    def tend(self, generation: int) -> None:
        """Let go of generations in place before this one, which no viewer reads any more; make memory for what is to be
        shared, step by step."""
        for outlet in self._outlets_to_provide():
            if due(outlet) <= time.monotonic():
                provide(self, outlet)
        if (writer := self._writer("in-place")) is not None:
            writer.forget(generation)

    def abandon(self) -> None:
        """Give up memory that is being made: the helper thread ends."""
        for outlet in self._outlets.values():
            abandon(self, outlet)

    def close(self) -> None:
        with self._lock:
            self._form = self.tally.steady = self.tally.newest = None
            self._place.forget()
            for outlet in self._outlets.values():
                outlet.close()
