"""Work of OpenGL in steps, between which the loop turns.

What draws in steps is a generator. Each of its yields ends a step: None after a part of
the drawing, or a function for another thread, whose result the generator is sent.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from splatview_viewer.core.jobs import JobQueue

if TYPE_CHECKING:
    import moderngl

    from splatview_viewer.core.jobs import Job

T = TypeVar("T")
Steps = Generator[Callable[[], Any] | None, Any, T]
"""A work in steps, and the type of its result."""


def run_at_once(steps: Steps[T]) -> T:
    """Run a work to its end in the calling thread, and return its result."""
    reply = None
    while True:
        try:
            function = steps.send(reply)
        except StopIteration as stop:
            return stop.value
        reply = None
        if function is not None:
            reply = function()


def _run_timed(function: Callable[[], T], job: Job[Any]) -> tuple[T, float]:
    """Call a function as a job; return its result, and the milliseconds it took."""
    started_at = time.perf_counter()
    value = function()
    return value, (time.perf_counter() - started_at) * 1e3


class SteppedWork(Generic[T]):
    """One work that goes on in the turns of the loop. `StepQueue.start` makes it."""

    def __init__(self, steps: Steps[T], queue: StepQueue) -> None:
        self.is_done = False
        """True once it has ended, or was given up."""
        self.ms = 0.0
        """Milliseconds of work until now, in all threads."""
        self._steps = steps
        self._queue = queue
        self._job: Job[tuple[Any, float]] | None = None
        """What another thread does for it; the result, and its milliseconds."""
        self._value: T | None = None
        self._error: Exception | None = None

    @property
    def can_go_on(self) -> bool:
        """True if the thread that draws can take its next step now."""
        if self.is_done:
            return False
        return self._job is None or self._job.done

    def step(self) -> None:
        """Take the next step, and wait until OpenGL is through with it."""
        started_at = time.perf_counter()
        try:
            reply = None
            if self._job is not None:
                reply, job_ms = self._job.result()
                self._job = None
                self.ms += job_ms
            function = self._steps.send(reply)
        except StopIteration as stop:
            self._value = stop.value
            self.is_done = True
        except Exception as error:
            self._error = error
            self.is_done = True
        else:
            if function is not None:
                self._job = self._queue.submit(partial(_run_timed, function))
        self._queue.ctx.finish()
        self.ms += (time.perf_counter() - started_at) * 1e3

    def result(self) -> T:
        """Return its result, or raise what it raised; it is done then."""
        while not self.is_done:
            if self._job is not None:
                self._job.wait()
            self.step()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def give_up(self) -> None:
        """End it without a result. Idempotent."""
        self.is_done = True
        if self._job is not None:
            self._job.cancel()
            self._job = None
        self._steps.close()


class StepQueue:
    """The works in steps of the thread that holds the context, which take turns."""

    def __init__(
        self, ctx: moderngl.Context, wake: Callable[[], None] = lambda: None
    ) -> None:
        """Start without works.

        Args:
            ctx: what they draw with.
            wake: has the loop turn; called from any thread when a work can go on.
        """
        self.ctx = ctx
        self._works: deque[SteppedWork[Any]] = deque()
        self._jobs = JobQueue("drawing steps", wake)

    def start(self, steps: Steps[T]) -> SteppedWork[T]:
        """Start a work, whose first step is taken by the next `advance`."""
        stepped_work = SteppedWork(steps, self)
        self._works.append(stepped_work)
        return stepped_work

    def submit(self, function: Callable[[Job[T]], T]) -> Job[T]:
        """Have another thread call a function."""
        return self._jobs.submit(function)

    @property
    def can_go_on(self) -> bool:
        """True if there is a step to take now."""
        return any(stepped_work.can_go_on for stepped_work in self._works)

    def advance(self, seconds: float, must_end: Callable[[], bool]) -> None:
        """Take steps, one at least, and none after so many seconds.

        Args:
            seconds: for all steps.
            must_end: asked after each step; True: take no more.
        """
        end = time.perf_counter() + seconds
        while True:
            self._forget_done()
            stepped_work = next((work for work in self._works if work.can_go_on), None)
            if stepped_work is None:
                return
            stepped_work.step()
            # Works take turns.
            self._works.remove(stepped_work)
            self._works.append(stepped_work)
            if time.perf_counter() >= end or must_end():
                self._forget_done()
                return

    def _forget_done(self) -> None:
        for stepped_work in list(self._works):
            if stepped_work.is_done:
                self._works.remove(stepped_work)

    def close(self) -> None:
        """Give all works up. Idempotent."""
        for stepped_work in self._works:
            stepped_work.give_up()
        self._works.clear()
        self._jobs.close()
