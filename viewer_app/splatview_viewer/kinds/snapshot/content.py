"""One snapshot and everything worked out of it for all views: by jobs, kept, never waited for.

    rows = content.ask(("stacks", look.device, moment), lambda: Tables(...).group(...), slot="stacks")
    if rows is None:
        ...  # "Working", or content.fault(key); the view draws again when the answer is there
"""

from __future__ import annotations

import atexit
import itertools
import logging
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar
from weakref import WeakSet

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.kinds.snapshot.analysis.colors import colors
from splatview_viewer.kinds.snapshot.query import Database
from splatview_viewer.kinds.snapshot.timeline.bands import Addresses, Bands
from splatview_viewer.kinds.snapshot.timeline.compiled import warm_up
from splatview_viewer.kinds.snapshot.timeline.index import Axis, reserved

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from splatview_viewer.kinds.snapshot.analysis.colors import ColorBy, Colors
    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace
    from splatview_viewer.kinds.snapshot.state import Look

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


@dataclass(eq=False)
class _Question:
    job: Job[Any]
    slot: Hashable
    words: str


class Content:
    """A snapshot, and what is worked out of it. Lives until the last view of it is closed.

    Called by the thread of the viewer's loop alone.
    """

    _all: ClassVar[WeakSet[Content]] = WeakSet()

    def __init__(self, snapshot: Snapshot, wake: Callable[[], None] = lambda: None) -> None:
        """`wake`: called from a thread when an answer is there."""
        self.snapshot = snapshot
        Content._all.add(self)
        self.misses = 0
        """Counts questions that had no answer yet: who asked has to be drawn again when `changes` does."""
        self.changes = 0
        """Another number after each job that began or ended: what is drawn while something is worked on is old then."""
        self._numbers = itertools.count(1)
        self._wake = wake
        self._lanes = {lane: Jobs(f"snapshot {lane}", self._ended) for lane in LANES}
        self._questions: dict[Hashable, _Question] = {}
        """All that were asked and are not dropped, by key; of each slot, the one that was used last is the last."""
        self._begun: set[Job[Any]] = set()
        """Jobs that run or have run."""
        self._closed = False

    # -- questions -----------------------------------------------------------------------------------------------

    def ask(self, key: Hashable, function: Callable[..., T], *, slot: Hashable = None,
            lane: Literal["kernels", "layout", "analysis", "query"] = "analysis", words: str = "") -> T | None:
        """Return the result of `function()` once a thread has called it; None until then, or if it failed (`fault`).

        The answer is kept for as long as the snapshot is shown. With a `slot` only the newest question of that slot is
        worked on and a few answers are kept: for what depends on where the user is. `words`: what is being done, for
        the user. `function` may take long, holds no lock, and reads nothing that the loop changes: bind what it needs
        of `Look` beforehand. In the lane "query" it is called with its job, and ends once that is cancelled.
        """
        question = self._questions.get(key)
        if question is None:
            self.misses += 1
            if not self._closed:
                self._submit(key, function, slot, lane, words)
            return None
        if slot is not None:
            self._questions[key] = self._questions.pop(key)
        if question.job.done and not question.job.fault:
            return question.job.result()
        self.misses += not question.job.done
        return None

    def _submit(self, key: Hashable, function: Callable[..., T], slot: Hashable, lane: str, words: str) -> None:
        def work(job: Job[T]) -> T:
            self._begun.add(job)
            self.changes = next(self._numbers)
            try:
                return function(job) if lane == "query" else function()
            except Exception as e:
                if not isinstance(e, ViewerError):  # it is said in its pane, and the others go on
                    log.error("%s", words or key, exc_info=e)
                raise

        if slot is not None:
            self._drop(lambda q: q.slot == slot and not q.job.done and (lane == "query" or q.job not in self._begun))
            mine = [k for k, q in self._questions.items() if q.slot == slot]
            for old in mine[:max(len(mine) - _KEPT + 1, 0)]:
                self.forget(old)
        self._questions[key] = _Question(self._lanes[lane].submit(work), slot, words)

    def _ended(self) -> None:
        self.changes = next(self._numbers)
        self._wake()

    def peek(self, key: Hashable) -> Any:
        """The answer, if it is there; asks nothing."""
        question = self._questions.get(key)
        return None if question is None or not question.job.done or question.job.fault else question.job.result()

    def fault(self, key: Hashable) -> str:
        """Why there is no answer and will be none; "" while there may be one."""
        question = self._questions.get(key)
        return question.job.fault if question is not None else ""

    def forget(self, key: Hashable) -> None:
        """Drop a question, its answer or fault, so that asking works on it anew. A query that runs is interrupted."""
        if (question := self._questions.pop(key, None)) is not None:
            question.job.cancel()
            self._begun.discard(question.job)

    @property
    def working(self) -> str:
        """The job in progress, in words; "" without one."""
        return next((q.words for q in self._questions.values()
                     if q.words and q.job in self._begun and not q.job.done), "")

    def wait(self, timeout: float) -> bool:
        """Wait until nothing is worked on any more, at most so many seconds: for tests, and when the program ends.
        Returns whether that is so."""
        return all([lane.wait(timeout) for lane in self._lanes.values()])

    def _drop(self, which: Callable[[_Question], bool]) -> None:
        for key in [key for key, question in self._questions.items() if which(question)]:
            self.forget(key)

    def leave(self, *owners: object) -> None:
        """These panes and lamps ask no more: what waits for them and was answered to them is dropped. Theirs are the
        slots whose last word is their `id`."""
        ids = set(map(id, owners))
        self._drop(lambda q: isinstance(q.slot, tuple) and q.slot[-1] in ids)

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
        """Counts of its content, in short phrases."""
        traces = self.snapshot.traces
        events, allocations = sum(len(t.events) for t in traces), sum(len(t.allocations) for t in traces)
        devices = [f"{len(traces)} devices"] if len(traces) > 1 else []
        notes = len(self.snapshot.notes)
        return [*devices, f"{events:,} events", f"{allocations:,} allocations",
                *([f"{notes} {'note' if notes == 1 else 'notes'}"] if notes else [])]

    # -- what everybody asks; `device` is a place in `Snapshot.traces` ----------------------------------------------

    def trace(self, look: Look) -> Trace:
        """Return the trace of the device that is shown."""
        return self.snapshot.traces[look.device]

    def bands(self, device: int) -> Bands | None:
        """The timeline, laid out."""
        return self.ask(("bands", device), lambda: Bands(self.snapshot.traces[device]),
                        lane="layout", words="Laying out the timeline")

    def addresses(self, device: int) -> Addresses | None:
        """The address space, laid out."""
        return self.ask(("addresses", device), lambda: Addresses(self.snapshot.traces[device]),
                        lane="layout", words="Laying out the addresses")

    def axis(self, device: int, unit: Literal["events", "time"]) -> Axis | None:
        """The time axis."""
        return self.ask(("axis", device, unit), lambda: Axis(self.snapshot.traces[device], unit),
                        lane="layout", words="Reading the times")

    def reserved(self, device: int) -> np.ndarray | None:
        """int64 (M + 1,): bytes reserved at each moment."""
        return self.ask(("reserved", device), lambda: reserved(self.snapshot.traces[device]),
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
        """Answers SQL. To be used in the lane "query" alone."""
        return self.ask(("database",), lambda _: Database(self.snapshot), lane="query", words="Opening the database")

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
        """Return the other open snapshots, to compare it with this one, by name."""
        return sorted((c for c in Content._all if c is not self and not c._closed), key=lambda c: c.snapshot.name)

    def close(self) -> None:
        """Nobody looks any more: what waits is dropped, what runs is told. Idempotent."""
        self._closed = True
        for lane in self._lanes.values():
            lane.close()
        self._questions.clear()
        self._begun.clear()
