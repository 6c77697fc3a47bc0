"""Answers to questions about a snapshot.

They are worked out by jobs, kept, and never waited for:

    table = answers.request(("leaks", device), lambda: find_leaks(snapshot, trace))
    if table is None:
        ...  # `current_work`, or `fault(key)`; draw again once `changes` has changed
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.jobs import Job, JobQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    Key = tuple[Hashable, ...]

T = TypeVar("T")
log = logging.getLogger("splatview")

Lane = Literal["layout", "analysis", "query"]
LANES: tuple[Lane, ...] = ("layout", "analysis", "query")
"""Threads that work side by side."""
_MAX_ANSWERS = 6
"""Answers that are kept of questions of which only the newest matters."""


class _Question(NamedTuple):
    """A question that is worked on, or was answered."""

    job: Job[Any]
    description: str
    """What is being done, for the user; may be empty."""
    lane: Lane
    started: threading.Event
    """Set once a thread works on it."""


class SnapshotAnswers:
    """Answers to questions, which threads work out.

    Called by the thread of the viewer's loop alone.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        """Start without answers.

        Args:
            wake: called from a thread when an answer is there.
        """
        self.closed = False
        self._lanes = {lane: JobQueue(f"snapshot {lane}", wake) for lane in LANES}
        self._forgotten = 0
        """Number of questions that were answered and then forgotten."""
        self._questions: dict[Key, _Question] = {}
        """By key; of the questions of one name the newest is the last."""

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

        None until then, or if it failed (`fault`). The answer is kept until it is
        closed.

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
        if self.closed:
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
                # A ViewerError is for the user, and stands in the pane. What was
                # cancelled fails in any way.
                if not job.cancelled and not isinstance(error, ViewerError):
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

    @property
    def changes(self) -> int:
        """The number of questions whose jobs have ended, those forgotten included.

        It is counted when it is asked for: a number that the threads raised would lag
        behind the answers, and a picture without the last one would seem complete.
        """
        ended = sum(question.job.done for question in self._questions.values())
        return self._forgotten + ended

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
        """Drop a question and its answer, so that it can be worked on again.

        A query that runs is interrupted.
        """
        question = self._questions.pop(key, None)
        if question is None:
            return
        if question.job.done:
            self._forgotten += 1
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
        """Wait until nothing is worked on, at most this many seconds for each lane.

        Returns whether that is so.
        """
        # Every lane is waited for, also after one that does not end.
        has_ended = [lane.wait(timeout) for lane in self._lanes.values()]
        return all(has_ended)

    def close(self) -> None:
        """Drop questions that wait, and cancel those that run. Idempotent."""
        self.closed = True
        for lane in self._lanes.values():
            lane.close()
        self._questions.clear()
