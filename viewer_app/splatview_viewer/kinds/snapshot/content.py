"""What is known of one snapshot, whoever looks at it: laid out and worked out by threads, kept, never waited for.

    rows = content.ask(("stacks", look.device, moment), lambda: Tables(...).group(...), slot="stacks")
    if rows is None:
        ...  # "Working", or content.fault(key); the view draws again when the answer is there
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar
from weakref import WeakSet

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.kinds.snapshot.analysis import colors, size_text
from splatview_viewer.kinds.snapshot.query import Database
from splatview_viewer.kinds.snapshot.timeline import Addresses, Axis, Bands, Envelope, lanes, reserved, warm_up

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from splatview_viewer.kinds.snapshot.analysis import ColorBy, Colors
    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace
    from splatview_viewer.kinds.snapshot.state import Look
    from splatview_viewer.kinds.snapshot.timeline import Lane

T = TypeVar("T")
log = logging.getLogger("splatview")

LANES = ("kernels", "layout", "analysis", "query")
"""What is worked on side by side: one thread each while there is anything to do."""
_PARTING = 3.0
"""Seconds that a thread is waited for when the program ends."""
_KEPT = 6
"""Answers that are kept of each slot."""
_LEFT = object()
"""The slot of a job that runs though nobody waits for it any more."""


@dataclass
class _Job:
    key: Hashable
    function: Callable[[], Any]
    slot: Hashable
    words: str


def _end() -> None:
    """The program ends: no thread may still be in compiled code when Python takes itself apart."""
    for content in list(Content._all):
        threads = list(content._threads.values())
        content.close()
        for thread in threads:
            thread.join(_PARTING)


atexit.register(_end)


class Content:
    """A snapshot, and what is worked out of it. Lives until the last view of it is closed.

    Called by the thread of the viewer's loop alone, but for `cancelled`.
    """

    _all: ClassVar[WeakSet[Content]] = WeakSet()

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        Content._all.add(self)
        self.changes = 0
        """Counts answers, and jobs that began: what is drawn while something is worked on is old when it changes."""
        self.misses = 0
        """Counts questions that had no answer yet: who asked has to be drawn again when `changes` does."""
        self._lock = threading.Condition()
        self._answers: dict[Hashable, Any] = {}
        self._faults: dict[Hashable, str] = {}
        self._slots: dict[Hashable, OrderedDict[Hashable, None]] = {}
        self._waiting: dict[str, deque[_Job]] = {lane: deque() for lane in LANES}
        self._running: dict[str, tuple[_Job, float]] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._closed = False

    # -- questions -----------------------------------------------------------------------------------------------

    def ask(self, key: Hashable, function: Callable[[], T], *, slot: Hashable = None,
            lane: Literal["kernels", "layout", "analysis", "query"] = "analysis", words: str = "") -> T | None:
        """What `function()` returns, once a thread has called it; None until then, and if it failed (see `fault`).

        The answer is kept for as long as the snapshot is shown. With a `slot` only the newest question of that slot is
        worked on and a few answers are kept: for what depends on where the user is. `words`: what is being done, for
        the user. `function` may take long, holds no lock, and reads nothing that the loop changes: bind what it needs
        of `Look` beforehand. An answer of None is no answer.
        """
        with self._lock:
            if key in self._answers:
                if slot is not None and key in self._slots.get(slot, ()):
                    self._slots[slot].move_to_end(key)
                return self._answers[key]
            self.misses += key not in self._faults
            if key in self._faults or self._closed or self._is_asked(key, lane):
                return None
            queue = self._waiting[lane]
            if slot is not None:
                for job in [job for job in queue if job.slot == slot]:
                    queue.remove(job)
            queue.append(_Job(key, function, slot, words))
            if lane not in self._threads:
                thread = threading.Thread(target=self._work, args=(lane,), name=f"snapshot {lane}", daemon=True)
                self._threads[lane] = thread
                thread.start()
        return None

    def peek(self, key: Hashable) -> Any:
        """The answer, if it is there; asks nothing."""
        with self._lock:
            return self._answers.get(key)

    def fault(self, key: Hashable) -> str:
        """Why there is no answer and will be none; "" while there may be one."""
        with self._lock:
            return self._faults.get(key, "")

    def forget(self, key: Hashable) -> None:
        """Drop an answer or a fault, so that asking works on it anew."""
        with self._lock:
            self._drop(key)

    def cancelled(self) -> bool:
        """For long jobs, in any thread: whether nobody looks at the snapshot any more; they may raise anything then."""
        return self._closed

    @property
    def working(self) -> list[tuple[str, float]]:
        """What is being worked on, in words, and for how many seconds by now."""
        now = time.monotonic()
        with self._lock:
            return [(job.words, now - since) for job, since in self._running.values() if job.words]

    def wait(self, timeout: float) -> bool:
        """Wait until nothing is worked on any more, at most so many seconds: for a picture that is written to a file,
        and for tests. Returns whether that is so."""
        with self._lock:
            return self._lock.wait_for(lambda: not (self._running or any(self._waiting.values())), timeout)

    def _is_asked(self, key: Hashable, lane: str) -> bool:
        running = self._running.get(lane)
        return (running is not None and running[0].key == key) or any(job.key == key for job in self._waiting[lane])

    def _work(self, lane: str) -> None:
        """The thread of a lane: works until there is nothing to do."""
        while True:
            with self._lock:
                if self._closed or not self._waiting[lane]:
                    self._threads.pop(lane, None)
                    self._lock.notify_all()
                    return
                job = self._waiting[lane].popleft()
                self._running[lane] = job, time.monotonic()
                self.changes += 1
            answer, fault = None, ""
            try:
                answer = job.function()
            except ViewerError as e:
                fault = str(e)
            except Exception as e:  # a fault of one pane is said there, and the others go on
                if not self._closed:
                    log.exception("%s", job.words or job.key)
                fault = f"{type(e).__name__}: {e}"
            with self._lock:
                del self._running[lane]
                self.changes += 1
                if (fault or answer is not None) and not self._closed and job.slot is not _LEFT:
                    self._keep(job, answer, fault)
                self._lock.notify_all()
            del job, answer

    def _keep(self, job: _Job, answer: Any, fault: str) -> None:
        if fault:
            self._faults[job.key] = fault
        else:
            self._answers[job.key] = answer
        if job.slot is None:
            return
        slot = self._slots.setdefault(job.slot, OrderedDict())
        slot[job.key] = None
        slot.move_to_end(job.key)
        while len(slot) > _KEPT:
            self._drop(slot.popitem(last=False)[0])

    def _drop(self, key: Hashable) -> None:
        self._answers.pop(key, None)
        self._faults.pop(key, None)

    def leave(self, *owners: object) -> None:
        """These panes and lamps ask no more: what waits for them and was answered to them is dropped. Theirs are the
        slots whose last word is their `id`."""
        ids = set(map(id, owners))

        def theirs(slot: Hashable) -> bool:
            return isinstance(slot, tuple) and slot[-1] in ids

        with self._lock:
            for queue in self._waiting.values():
                for job in [job for job in queue if theirs(job.slot)]:
                    queue.remove(job)
            for job, _ in self._running.values():
                if theirs(job.slot):
                    job.slot = _LEFT
            for slot in [slot for slot in self._slots if theirs(slot)]:
                for key in self._slots.pop(slot):
                    self._drop(key)
            self._lock.notify_all()

    def prepare(self) -> None:
        """Begin with what every view needs. Called once, before anybody asks."""
        self.ask(("warm",), warm_up, lane="kernels", words="Loading kernels (10 s the first time)")
        self.bands(self.busiest)

    # -- what is said of it ----------------------------------------------------------------------------------------

    @cached_property
    def busiest(self) -> int:
        """The device with most events, a place in `Snapshot.traces`."""
        return max(range(len(self.snapshot.traces)), key=lambda k: (
            len(self.snapshot.traces[k].events), len(self.snapshot.traces[k].segments)))

    @cached_property
    def phrases(self) -> list[str]:
        """What it holds, in short."""
        traces = self.snapshot.traces
        events, allocations = sum(len(t.events) for t in traces), sum(len(t.allocations) for t in traces)
        devices = [f"{len(traces)} devices"] if len(traces) > 1 else []
        notes = len(self.snapshot.notes)
        return [*devices, f"{events:,} events", f"{allocations:,} allocations",
                *([f"{notes} {'note' if notes == 1 else 'notes'}"] if notes else [])]

    def said_of(self, look: Look) -> str:
        """What lies under the pointer, for the status line."""
        bands = self.peek(("bands", look.device))
        if look.pointed is None or bands is None:
            return ""
        return f"{look.pointed:,}   {size_text(int(bands.live[look.pointed]))} live"

    # -- what everybody asks; `device` is a place in `Snapshot.traces` ----------------------------------------------

    def trace(self, look: Look) -> Trace:
        """What the user looks at."""
        return self.snapshot.traces[look.device]

    def bands(self, device: int) -> Bands | None:
        """The timeline, laid out."""
        return self.ask(("bands", device), lambda: Bands(self.snapshot.traces[device], cancelled=self.cancelled),
                        lane="layout", words="Laying out the timeline")

    def addresses(self, device: int) -> Addresses | None:
        """The address space, laid out."""
        return self.ask(("addresses", device), lambda: Addresses(self.snapshot.traces[device]),
                        lane="layout", words="Laying out the addresses")

    def lanes(self, device: int) -> list[Lane] | None:
        """The timeline of each memory pool."""
        return self.ask(("lanes", device),
                        lambda: lanes(self.snapshot.traces[device], self.snapshot.pools, cancelled=self.cancelled),
                        lane="layout", words="Laying out the memory pools")

    def axis(self, device: int, unit: Literal["events", "time"]) -> Axis | None:
        """The time axis."""
        return self.ask(("axis", device, unit), lambda: Axis(self.snapshot.traces[device], unit),
                        lane="layout", words="Reading the times")

    def reserved(self, device: int) -> np.ndarray | None:
        """int64 (M + 1,): bytes reserved at each moment."""
        return self.ask(("reserved", device), lambda: reserved(self.snapshot.traces[device]),
                        lane="layout", words="Adding up what is reserved")

    def reserved_envelope(self, device: int) -> Envelope | None:
        """The least and the most of it in any part of the time."""
        values = self.reserved(device)
        if values is None:
            return None
        return self.ask(("reserved envelope", device), lambda: Envelope(values),
                        lane="layout", words="Adding up what is reserved")

    def peak(self, device: int) -> int | None:
        """The moment with most live bytes."""
        bands = self.bands(device)
        return None if bands is None else self.ask(
            ("peak", device), lambda: int(np.argmax(bands.live)), lane="layout", words="Looking for the peak")

    def colors(self, device: int, by: ColorBy) -> Colors | None:
        """The colour of each allocation, and the legend; `by`: see `analysis.colors`."""
        return self.ask(("colors", device, by), lambda: colors(self.snapshot, self.snapshot.traces[device], by),
                        lane="layout", words="Colouring")

    def moment(self, look: Look) -> int | None:
        """The moment that panes tell of: the chosen one, or the peak; None until that is known."""
        return look.moment if look.moment is not None else self.peak(look.device)

    def database(self) -> Database | None:
        """Answers SQL. To be used in the lane "query" alone, but for `interrupt()`."""
        return self.ask(("database",), lambda: Database(self.snapshot), lane="query", words="Opening the database")

    def reveal(self, look: Look, moment: int) -> None:
        """Bring a moment into sight: the window of the plot moves there if it is outside, as wide as it was."""
        axis = self.axis(look.device, look.settings.unit)
        if axis is None or look.x is None:
            return
        at, (x0, x1) = axis.x_of(moment), look.x
        if not x0 <= at <= x1:
            low, high = axis.extent
            begin = min(max(at - (x1 - x0) / 2, low), max(high - (x1 - x0), low))
            look.x = begin, begin + (x1 - x0)

    def others(self) -> list[Content]:
        """What else is open, to compare it with this one, by name."""
        return sorted((c for c in Content._all if c is not self and not c._closed), key=lambda c: c.snapshot.name)

    def close(self) -> None:
        """Nobody looks any more: what waits is dropped, what runs is told. Idempotent."""
        with self._lock:
            self._closed = True
            if (database := self._answers.get(("database",))) is not None:
                database.interrupt()  # it gives its memory back once nothing runs in it
            for queue in self._waiting.values():
                queue.clear()
            self._answers.clear()
            self._faults.clear()
            self._slots.clear()
            self._lock.notify_all()
