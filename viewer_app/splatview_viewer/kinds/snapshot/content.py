"""One snapshot and all answers about it, for all its views.

Answers are worked out by jobs, kept, and never waited for:

    table = content.request(("leaks", device), lambda: find_leaks(snapshot, trace))
    if table is None:
        ...  # `current_work`, or `fault(key)`; draw again once `changes` has changed
"""

from __future__ import annotations

import atexit
import logging
import threading
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar
from weakref import WeakSet

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.jobs import Job, JobQueue
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
    from splatview_viewer.snapshot.model import MemorySnapshot, Trace

    Key = tuple[Hashable, ...]

T = TypeVar("T")
log = logging.getLogger("splatview")

Lane = Literal["layout", "analysis", "query"]
LANES: tuple[Lane, ...] = ("layout", "analysis", "query")
"""Threads that work side by side."""
_EXIT_WAIT_S = 3.0
"""Seconds that the end of the program waits for a job."""
_MAX_ANSWERS = 6
"""Answers that are kept of questions of which only the newest matters."""
_MAX_OOMS = 50


def _close_all() -> None:
    """Close all snapshots at the end of the program.

    No thread may still be in compiled code when Python takes itself apart.
    """
    for content in list(Content._all):
        content.close()
        content.wait(_EXIT_WAIT_S)


atexit.register(_close_all)


class _Question(NamedTuple):
    """A question that is worked on, or was answered."""

    job: Job[Any]
    description: str
    """What is being done, for the user; may be empty."""
    lane: Lane
    started: threading.Event
    """Set once a thread works on it."""


def _argmax(values: np.ndarray) -> int:
    """Return the index of the largest value."""
    return int(np.argmax(values))


def _find_ooms(trace: Trace) -> list[int]:
    """Return the moments at which an allocation failed, the first 50."""
    is_oom = trace.events.action == ACTIONS.index("oom")
    return np.flatnonzero(is_oom).tolist()[:_MAX_OOMS]


class Content:
    """A snapshot, and the answers about it.

    `device` is always an index into `MemorySnapshot.traces`. Called by the thread of the
    viewer's loop alone.
    """

    _all: ClassVar[WeakSet[Content]] = WeakSet()

    def __init__(
        self, snapshot: MemorySnapshot, wake: Callable[[], None] = lambda: None
    ) -> None:
        """Start without answers.

        Args:
            wake: called from a thread when an answer is there.
        """
        self.snapshot = snapshot
        Content._all.add(self)
        self.changes = 0
        """Changes after each job that ended."""
        self._wake = wake
        self._lanes = {
            lane: JobQueue(f"snapshot {lane}", self._on_job_end) for lane in LANES
        }
        self._questions: dict[Key, _Question] = {}
        """By key; of the questions of one name the newest is the last."""
        self._closed = False

    # -- questions ---------------------------------------------------------------------

    def request(
        self,
        key: Key,
        function: Callable[..., T],
        *,
        newest: bool = False,
        lane: Lane = "analysis",
        description: str = "",
    ) -> T | None:
        """Return the result of `function()` once a thread has called it.

        None until then, or if it failed (`fault`). The answer is kept as long as the
        snapshot.

        Args:
            key: names the question; begins with a name of its kind.
            function: reads nothing that the loop changes; in the lane "query" it is called
                with its job.
            newest: of the questions of one name only the newest is worked on, and a few
                answers are kept.
            lane: the thread that works on it.
            description: what is being done, for the user.
        """
        if key in self._questions:
            if newest:
                self._questions[key] = self._questions.pop(key)
            return self.peek(key)
        if self._closed:
            return None
        if newest:
            self._forget_older(key, lane)
        started = threading.Event()

        def answer(job: Job[T]) -> T:
            started.set()
            try:
                if lane == "query":
                    return function(job)
                return function()
            except Exception as error:
                # A ViewerError is for the user, and stands in the pane.
                if not isinstance(error, ViewerError):
                    log.error("%s", description or key, exc_info=error)
                raise

        job = self._lanes[lane].submit(answer)
        self._questions[key] = _Question(job, description, lane, started)
        return None

    def _forget_older(self, key: Key, lane: Lane) -> None:
        """Forget the questions of a name but for a few that are answered or worked on.

        A query that runs is interrupted.
        """
        same_name = {k: q for k, q in self._questions.items() if k[0] == key[0]}
        useful_keys = []
        for other_key, question in same_name.items():
            may_run_on = question.started.is_set() and lane != "query"
            if question.job.done or may_run_on:
                useful_keys.append(other_key)
        newest_keys = useful_keys[-_MAX_ANSWERS + 1 :]
        for other_key in same_name:
            if other_key not in newest_keys:
                self.forget(other_key)

    def _on_job_end(self) -> None:
        self.changes += 1
        self._wake()

    def peek(self, key: Key) -> Any:
        """Return the answer if it is there; starts nothing."""
        question = self._questions.get(key)
        if question is None or not question.job.done or question.job.fault:
            return None
        return question.job.result()

    def fault(self, key: Key) -> str:
        """Return why there will be no answer; "" while there may be one."""
        question = self._questions.get(key)
        if question is None:
            return ""
        return question.job.fault

    def forget(self, key: Key) -> None:
        """Drop a question and its answer, so that it can be worked on anew.

        A query that runs is interrupted.
        """
        question = self._questions.pop(key, None)
        if question is not None:
            question.job.cancel()

    @property
    def busy(self) -> bool:
        """A question waits for its answer."""
        return any(not q.job.done for q in self._questions.values())

    @property
    def current_work(self) -> str:
        """Description of a job in progress; "" without one."""
        for question in self._questions.values():
            if question.description and not question.job.done:
                return question.description
        return ""

    @property
    def layout_fault(self) -> str:
        """The reason why something cannot be laid out; "" while nothing failed."""
        for question in self._questions.values():
            if question.lane == "layout" and question.job.fault:
                return question.job.fault
        return ""

    def wait(self, timeout: float) -> bool:
        """Wait until nothing is worked on, at most so many seconds for each lane.

        Returns whether that is so.
        """
        # Every lane is waited for, also behind one that does not end.
        has_ended = [lane.wait(timeout) for lane in self._lanes.values()]
        return all(has_ended)

    def close(self) -> None:
        """Drop questions that wait, and cancel those that run. Idempotent."""
        self._closed = True
        for lane in self._lanes.values():
            lane.close()
        self._questions.clear()

    # -- the snapshot ------------------------------------------------------------------

    def _trace(self, device: int) -> Trace:
        return self.snapshot.traces[device]

    @cached_property
    def busiest(self) -> int:
        """The GPU with most events; pinned host memory where there is no GPU."""

        def activity(index: int) -> tuple[bool, int, int]:
            trace = self._trace(index)
            return trace.device >= 0, len(trace.events), len(trace.segments)

        return max(range(len(self.snapshot.traces)), key=activity)

    def other_contents(self) -> list[Content]:
        """Return the other open snapshots, by name, to compare them with this one."""
        contents = [c for c in Content._all if c is not self and not c._closed]
        return sorted(contents, key=lambda content: content.snapshot.name)

    # -- the timeline ------------------------------------------------------------------

    def bands(self, device: int) -> Bands | None:
        """Return the layout of the timeline."""
        return self.request(
            ("bands", device),
            partial(Bands, self._trace(device)),
            lane="layout",
            description="Laying out the timeline",
        )

    def addresses(self, device: int) -> Addresses | None:
        """Return the layout of the address space."""
        return self.request(
            ("addresses", device),
            partial(Addresses, self._trace(device)),
            lane="layout",
            description="Laying out the addresses",
        )

    def axis(self, device: int, unit: Literal["events", "time"]) -> TimelineAxis | None:
        """Return the time axis."""
        return self.request(
            ("axis", device, unit),
            partial(TimelineAxis, self._trace(device), unit),
            lane="layout",
            description="Reading the times",
        )

    def peak(self, device: int) -> int | None:
        """Return the moment with most live bytes."""
        bands = self.bands(device)
        if bands is None:
            return None
        return self.request(
            ("peak", device),
            partial(_argmax, bands.live),
            lane="layout",
            description="Looking for the peak",
        )

    def colors(self, device: int, color_by: ColorBy) -> Colors | None:
        """Return the colour of each allocation, and the legend."""
        return self.request(
            ("colors", device, color_by),
            partial(color_allocations, self.snapshot, self._trace(device), color_by),
            lane="layout",
            description="Colouring",
        )

    def ooms(self, device: int) -> list[int] | None:
        """Return the moments at which an allocation failed, the first 50."""
        return self.request(
            ("ooms", device),
            partial(_find_ooms, self._trace(device)),
            lane="layout",
        )

    # -- search and SQL ----------------------------------------------------------------

    def hits(self, device: int, text: str) -> Hits | None:
        """Return the hits of a search; None without a search."""
        text = text.strip()
        if not text:
            return None
        return self.request(
            ("search", device, text),
            partial(search, self.snapshot, self._trace(device), text),
            newest=True,
        )

    def highlight_mask(
        self, device: int, text: str, highlight: Highlight | None
    ) -> tuple[Key, np.ndarray | None]:
        """Return the allocations that a search and a row highlight together.

        Returns:
            A key of them, and bool (A,); None: all.
        """
        hits = self.hits(device, text)
        if hits is None and highlight is None:
            return ("", None), None
        if hits is None:
            assert highlight is not None
            return ("", highlight), highlight.mask
        if highlight is None:
            return (text, None), hits.mask
        return (text, highlight), hits.mask & highlight.mask

    def _open_database(self, _: Job[Database]) -> Database:
        return Database(self.snapshot)

    def database(self) -> Database | None:
        """Return the database that answers SQL. To be used in the lane "query" alone."""
        return self.request(
            ("database",),
            self._open_database,
            lane="query",
            description="Opening the database",
        )
