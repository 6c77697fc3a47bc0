"""One snapshot and all answers about it, for all its views: worked out by jobs, kept, never waited for.

table = content.ask(("leaks", device), lambda: leaks(snapshot, trace))
if table is None:
    ...  # `working`, or `fault(key)`; the view draws again once `changes` is another number
"""

from __future__ import annotations

import atexit
import logging
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar
from weakref import WeakSet

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.snapshot.analysis.colors import color_allocations
from splatview_viewer.snapshot.analysis.search import Hits, search
from splatview_viewer.snapshot.model import ACTIONS
from splatview_viewer.snapshot.query import Database
from splatview_viewer.snapshot.timeline.bands import (
    Addresses,
    Bands,
    TimelineAxis,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from splatview_viewer.kinds.snapshot.state import ColorBy, Highlight
    from splatview_viewer.snapshot.analysis.colors import Colors
    from splatview_viewer.snapshot.model import MemorySnapshot

    Key = tuple[Hashable, ...]

T = TypeVar("T")
log = logging.getLogger("splatview")

LANES = ("layout", "analysis", "query")
"""Threads that work side by side."""
_PARTING_S = 3.0
"""Wait for a job when the program ends."""
_KEPT = 6
"""Answers that are kept of questions of which only the newest matters."""


def _end() -> None:
    """The program ends: no thread may still be in compiled code when Python takes itself apart."""
    for content in list(Content._all):
        content.close()
        content.wait(_PARTING_S)


atexit.register(_end)


class _Question(NamedTuple):
    job: Job[Any]
    words: str
    lane: str
    begun: threading.Event


class Content:
    """A snapshot, and its answers. `device` is always a place in `Snapshot.traces`.

    Called by the thread of the viewer's loop alone.
    """

    _all: ClassVar[WeakSet[Content]] = WeakSet()

    def __init__(
        self, snapshot: MemorySnapshot, wake: Callable[[], None] = lambda: None
    ) -> None:
        """`wake`: called from a thread when an answer is there."""
        self.snapshot = snapshot
        Content._all.add(self)
        self.changes = 0
        """Another number after each job that ended."""
        self._wake = wake
        self._lanes = {lane: Jobs(f"snapshot {lane}", self._ended) for lane in LANES}
        self._questions: dict[Key, _Question] = {}
        """By key; the newest of a name is the last of that name."""
        self._closed = False

    # -- questions -----------------------------------------------------------------------------------------------

    def request(
        self,
        key: Key,
        function: Callable[..., T],
        *,
        newest: bool = False,
        lane: Literal["layout", "analysis", "query"] = "analysis",
        words: str = "",
    ) -> T | None:
        """Return the result of `function()` once a thread has called it; None until then, or if it failed (`fault`).

        The answer is kept as long as the snapshot. newest: of the questions whose key begins with the same name only
        the newest is worked on, and a few answers are kept. words: what is being done, for the user. `function` reads
        nothing that the loop changes; in the lane "query" it is called with its job.
        """
        begun = threading.Event()

        def work(job: Job[T]) -> T:
            begun.set()
            try:
                return function(job) if lane == "query" else function()
            except Exception as e:
                if not isinstance(
                    e, ViewerError
                ):  # its pane says it, and the others go on
                    log.error("%s", words or key, exc_info=e)
                raise

        if key in self._questions:
            if newest:
                self._questions[key] = self._questions.pop(key)
            return self.peek(key)
        if self._closed:
            return None
        if newest:
            same = {k: q for k, q in self._questions.items() if k[0] == key[0]}
            going = [
                k
                for k, q in same.items()
                if q.job.done or (q.begun.is_set() and lane != "query")
            ]
            for old in {*same} - {*going[-_KEPT + 1 :]}:
                self.forget(old)
        self._questions[key] = _Question(
            self._lanes[lane].submit(work), words, lane, begun
        )
        return None

    def _ended(self) -> None:
        self.changes += 1
        self._wake()

    def peek(self, key: Key) -> Any:
        """The answer, if it is there; asks nothing."""
        question = self._questions.get(key)
        if question is None or not question.job.done or question.job.fault:
            return None
        return question.job.result()

    def fault(self, key: Key) -> str:
        """The reason why there will be no answer; "" while there may be one."""
        question = self._questions.get(key)
        return question.job.fault if question is not None else ""

    def forget(self, key: Key) -> None:
        """Drop a question and its answer, so that asking works on it anew. A query that runs is interrupted."""
        question = self._questions.pop(key, None)
        if question is not None:
            question.job.cancel()

    @property
    def busy(self) -> bool:
        """A question waits for its answer."""
        return any(not q.job.done for q in self._questions.values())

    @property
    def current_work(self) -> str:
        """The job in progress, in words; "" without one."""
        return next(
            (q.words for q in self._questions.values() if q.words and not q.job.done),
            "",
        )

    @property
    def layout_fault(self) -> str:
        """The reason why something cannot be laid out; "" while nothing failed."""
        return next(
            (
                q.job.fault
                for q in self._questions.values()
                if q.lane == "layout" and q.job.fault
            ),
            "",
        )

    def wait(self, timeout: float) -> bool:
        """Wait until nothing is worked on any more, at most so many seconds. Returns whether that is so."""
        return all([lane.wait(timeout) for lane in self._lanes.values()])

    def close(self) -> None:
        """Drop what waits, and cancel what runs. Idempotent."""
        self._closed = True
        for lane in self._lanes.values():
            lane.close()
        self._questions.clear()

    # -- the snapshot ----------------------------------------------------------------------------------------------

    @cached_property
    def busiest(self) -> int:
        """The GPU with most events; pinned host memory where there is no GPU."""

        def activity(index: int) -> tuple[bool, int, int]:
            trace = self.snapshot.traces[index]
            return trace.device >= 0, len(trace.events), len(trace.segments)

        return max(range(len(self.snapshot.traces)), key=activity)

    def other_contents(self) -> list[Content]:
        """Return the other open snapshots, to compare it with this one, by name."""
        return sorted(
            (c for c in Content._all if c is not self and not c._closed),
            key=lambda c: c.snapshot.name,
        )

    # -- the timeline ----------------------------------------------------------------------------------------------

    def bands(self, device: int) -> Bands | None:
        """The timeline, laid out."""
        return self.request(
            ("bands", device),
            lambda: Bands(self.snapshot.traces[device]),
            lane="layout",
            words="Laying out the timeline",
        )

    def addresses(self, device: int) -> Addresses | None:
        """The address space, laid out."""
        return self.request(
            ("addresses", device),
            lambda: Addresses(self.snapshot.traces[device]),
            lane="layout",
            words="Laying out the addresses",
        )

    def axis(self, device: int, unit: Literal["events", "time"]) -> TimelineAxis | None:
        """The time axis."""
        return self.request(
            ("axis", device, unit),
            lambda: TimelineAxis(self.snapshot.traces[device], unit),
            lane="layout",
            words="Reading the times",
        )

    def peak(self, device: int) -> int | None:
        """The moment with most live bytes."""
        bands = self.bands(device)
        if bands is None:
            return None
        return self.request(
            ("peak", device),
            lambda: int(np.argmax(bands.live)),
            lane="layout",
            words="Looking for the peak",
        )

    def colors(self, device: int, by: ColorBy) -> Colors | None:
        """The colour of each allocation, and the legend; `by`: see `analysis.colors`."""
        return self.request(
            ("colors", device, by),
            lambda: color_allocations(self.snapshot, self.snapshot.traces[device], by),
            lane="layout",
            words="Colouring",
        )

    def ooms(self, device: int) -> list[int] | None:
        """The moments at which an allocation failed, the first 50."""
        action = self.snapshot.traces[device].events.action
        return self.request(
            ("ooms", device),
            lambda: np.flatnonzero(action == ACTIONS.index("oom")).tolist()[:50],
            lane="layout",
        )

    # -- what is lit -----------------------------------------------------------------------------------------------

    def hits(self, device: int, text: str) -> Hits | None:
        """Return the hits of a search."""
        text = text.strip()
        if not text:
            return None
        return self.request(
            ("search", device, text),
            lambda: search(self.snapshot, self.snapshot.traces[device], text),
            newest=True,
        )

    def highlight_mask(
        self, device: int, text: str, lit: Highlight | None
    ) -> tuple[Key, np.ndarray | None]:
        """The allocations that a search and a row light together, bool (A,), and a key of them; None: all."""
        hits = self.hits(device, text)
        key = text if hits is not None else "", lit
        if hits is None or lit is None:
            return (
                key,
                lit.mask
                if lit is not None
                else hits.mask
                if hits is not None
                else None,
            )
        return key, hits.mask & lit.mask

    def database(self) -> Database | None:
        """Answers SQL. To be used in the lane "query" alone."""
        return self.request(
            ("database",),
            lambda _: Database(self.snapshot),
            lane="query",
            words="Opening the database",
        )
