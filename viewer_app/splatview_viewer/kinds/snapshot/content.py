"""What is known of one snapshot, whoever looks at it: laid out and worked out by jobs, kept, never waited for.

    rows = content.ask(("stacks", look.device, moment), lambda: Tables(...).group(...), slot="stacks")
    if rows is None:
        ...  # "Working", or content.fault(key); the view draws again when the answer is there
"""

from __future__ import annotations

import atexit
import logging
import time
from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar
from weakref import WeakSet

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.jobs import Job, Jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from splatview_viewer.kinds.snapshot.analysis import ColorBy, Colors
    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace
    from splatview_viewer.kinds.snapshot.query import Database
    from splatview_viewer.kinds.snapshot.state import Look
    from splatview_viewer.kinds.snapshot.timeline import Addresses, Axis, Bands, Envelope, Lane

T = TypeVar("T")
log = logging.getLogger("splatview")

LANES = ("kernels", "layout", "analysis", "query")
"""What is worked on side by side."""
_PARTING = 3.0
"""Seconds to wait for a job when the program ends."""
_KEPT = 6
"""Answers that are kept of each slot."""


def _end() -> None:
    """The program ends: no thread may still be in compiled code when Python takes itself apart."""
    for content in list(Content._all):
        content.close()
        content.wait(_PARTING)


atexit.register(_end)


class Content:
    """A snapshot, and what is worked out of it. Lives until the last view of it is closed.

    Called by the thread of the viewer's loop alone, but for `cancelled`.
    """

    _all: ClassVar[WeakSet[Content]] = WeakSet()

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        Content._all.add(self)
        self.misses = 0
        """Counts questions that had no answer yet: who asked has to be drawn again when `changes` does."""
        self._answers: dict[Hashable, Any] = {}
        self._faults: dict[Hashable, str] = {}
        self._slots: dict[Hashable, OrderedDict[Hashable, None]] = {}
        self._lanes = {lane: Jobs(f"snapshot {lane}") for lane in LANES}
        self._asked: dict[Hashable, tuple[Job[Any], Hashable, str]] = {}
        """What is being worked on or waits for that, by key: the job, the slot, what is being done in words."""
        self._begun: dict[Job[Any], float] = {}
        """When the jobs began that are not taken in yet."""
        self._ended = 0
        """Jobs that were taken in."""
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
        self._take_in()
        if key in self._answers:
            if slot is not None and key in self._slots.get(slot, ()):
                self._slots[slot].move_to_end(key)
            return self._answers[key]
        self.misses += key not in self._faults
        if key in self._faults or self._closed or key in self._asked:
            return None
        if slot is not None:
            self._drop_jobs(lambda job, other: other == slot and job not in self._begun)

        def work(job: Job[T]) -> T:
            self._begun[job] = time.perf_counter()
            return function()

        self._asked[key] = self._lanes[lane].submit(work), slot, words
        return None

    @property
    def changes(self) -> int:
        """Counts answers, and jobs that began: what is drawn while something is worked on is old when it changes."""
        self._take_in()
        return 2 * self._ended + len(self._begun)

    def peek(self, key: Hashable) -> Any:
        """The answer, if it is there; asks nothing."""
        self._take_in()
        return self._answers.get(key)

    def fault(self, key: Hashable) -> str:
        """Why there is no answer and will be none; "" while there may be one."""
        self._take_in()
        return self._faults.get(key, "")

    def forget(self, key: Hashable) -> None:
        """Drop an answer or a fault, so that asking works on it anew."""
        self._answers.pop(key, None)
        self._faults.pop(key, None)

    def cancelled(self) -> bool:
        """For long jobs, in any thread: whether nobody looks at the snapshot any more; they may raise anything then."""
        return self._closed

    @property
    def working(self) -> list[tuple[str, float]]:
        """What is being worked on, in words, and for how many seconds by now."""
        self._take_in()
        now = time.perf_counter()
        return [(words, now - self._begun[job]) for job, _, words in self._asked.values()
                if words and job in self._begun]

    def wait(self, timeout: float) -> bool:
        """Wait until nothing is worked on any more, at most so many seconds: for tests, and when the program ends.
        Returns whether that is so."""
        return all([lane.wait(timeout) for lane in self._lanes.values()])

    def _take_in(self) -> None:
        """Keep what the jobs have brought."""
        for job in [job for job in list(self._begun) if job.done]:
            del self._begun[job]
            self._ended += 1
        for key, (job, slot, words) in [found for found in self._asked.items() if found[1][0].done]:
            del self._asked[key]
            if job.error is not None and not isinstance(job.error, ViewerError):
                log.error("%s", words or key, exc_info=job.error)  # it is said in its pane, and the others go on
            if job.fault or job.result() is not None:
                self._keep(key, slot, job)

    def _keep(self, key: Hashable, slot: Hashable, job: Job[Any]) -> None:
        if job.fault:
            self._faults[key] = job.fault
        else:
            self._answers[key] = job.result()
        if slot is None:
            return
        kept = self._slots.setdefault(slot, OrderedDict())
        kept[key] = None
        kept.move_to_end(key)
        while len(kept) > _KEPT:
            self.forget(kept.popitem(last=False)[0])

    def _drop_jobs(self, which: Callable[[Job[Any], Hashable], bool]) -> None:
        """Cancel the jobs of these slots."""
        for key, (job, slot, _) in list(self._asked.items()):
            if which(job, slot):
                job.cancel()
                del self._asked[key]

    def leave(self, *owners: object) -> None:
        """These panes and lamps ask no more: what waits for them and was answered to them is dropped. Theirs are the
        slots whose last word is their `id`."""
        ids = set(map(id, owners))

        def theirs(slot: Hashable) -> bool:
            return isinstance(slot, tuple) and slot[-1] in ids

        self._drop_jobs(lambda _, slot: theirs(slot))
        for slot in [slot for slot in self._slots if theirs(slot)]:
            for key in self._slots.pop(slot):
                self.forget(key)

    def prepare(self) -> None:
        """Begin with what every view needs. Called once, before anybody asks."""
        from splatview_viewer.kinds.snapshot.timeline import warm_up

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
        from splatview_viewer.kinds.snapshot.analysis import size_text

        return f"{look.pointed:,}   {size_text(int(bands.live[look.pointed]))} live"

    # -- what everybody asks; `device` is a place in `Snapshot.traces` ----------------------------------------------

    def trace(self, look: Look) -> Trace:
        """What the user looks at."""
        return self.snapshot.traces[look.device]

    def bands(self, device: int) -> Bands | None:
        """The timeline, laid out."""
        def work() -> Bands:
            from splatview_viewer.kinds.snapshot.timeline import Bands

            return Bands(self.snapshot.traces[device], cancelled=self.cancelled)

        return self.ask(("bands", device), work, lane="layout", words="Laying out the timeline")

    def addresses(self, device: int) -> Addresses | None:
        """The address space, laid out."""
        def work() -> Addresses:
            from splatview_viewer.kinds.snapshot.timeline import Addresses

            return Addresses(self.snapshot.traces[device])

        return self.ask(("addresses", device), work, lane="layout", words="Laying out the addresses")

    def lanes(self, device: int) -> list[Lane] | None:
        """The timeline of each memory pool."""
        def work() -> list[Lane]:
            from splatview_viewer.kinds.snapshot.timeline import lanes

            return lanes(self.snapshot.traces[device], self.snapshot.pools, cancelled=self.cancelled)

        return self.ask(("lanes", device), work, lane="layout", words="Laying out the memory pools")

    def axis(self, device: int, unit: Literal["events", "time"]) -> Axis | None:
        """The time axis."""
        def work() -> Axis:
            from splatview_viewer.kinds.snapshot.timeline import Axis

            return Axis(self.snapshot.traces[device], unit)

        return self.ask(("axis", device, unit), work, lane="layout", words="Reading the times")

    def reserved(self, device: int) -> np.ndarray | None:
        """int64 (M + 1,): bytes reserved at each moment."""
        def work() -> np.ndarray:
            from splatview_viewer.kinds.snapshot.timeline import reserved

            return reserved(self.snapshot.traces[device])

        return self.ask(("reserved", device), work, lane="layout", words="Adding up what is reserved")

    def reserved_envelope(self, device: int) -> Envelope | None:
        """The least and the most of it in any part of the time."""
        values = self.reserved(device)
        if values is None:
            return None

        def work() -> Envelope:
            from splatview_viewer.kinds.snapshot.timeline import Envelope

            return Envelope(values)

        return self.ask(("reserved envelope", device), work, lane="layout", words="Adding up what is reserved")

    def peak(self, device: int) -> int | None:
        """The moment with most live bytes."""
        bands = self.bands(device)
        return None if bands is None else self.ask(
            ("peak", device), lambda: int(np.argmax(bands.live)), lane="layout", words="Looking for the peak")

    def colors(self, device: int, by: ColorBy) -> Colors | None:
        """The colour of each allocation, and the legend; `by`: see `analysis.colors`."""
        def work() -> Colors:
            from splatview_viewer.kinds.snapshot.analysis import colors

            return colors(self.snapshot, self.snapshot.traces[device], by)

        return self.ask(("colors", device, by), work, lane="layout", words="Colouring")

    def moment(self, look: Look) -> int | None:
        """The moment that panes tell of: the chosen one, or the peak; None until that is known."""
        return look.moment if look.moment is not None else self.peak(look.device)

    def database(self) -> Database | None:
        """Answers SQL. To be used in the lane "query" alone, but for `interrupt()`."""
        def work() -> Database:
            from splatview_viewer.kinds.snapshot.query import Database

            return Database(self.snapshot)

        return self.ask(("database",), work, lane="query", words="Opening the database")

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
        self._closed = True
        if (database := self._answers.get(("database",))) is not None:
            database.interrupt()  # it gives its memory back once nothing runs in it
        for lane in self._lanes.values():
            lane.close()
        for held in (self._asked, self._answers, self._faults, self._slots):
            held.clear()
