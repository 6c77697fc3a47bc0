"""Run functions on worker threads that would take too long for the viewer's loop.

`JobQueue.submit` returns a `Job`. The loop looks at `Job.done` in its turns, and is woken
when a job ends.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from splatview_ipc.control.errors import IpcError
from splatview_ipc.system.terminal import printable_lines
from splatview_viewer.core.errors import ViewerError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_EXIT_WAIT_S = 10.0
"""Seconds for which the end of the program waits for a running job."""


class Cancelled(Exception):  # noqa: N818  (it reports no mistake)
    """Raised by `Job.report` inside a job that was cancelled."""


class Job(Generic[T]):
    """One call of a function on a worker thread. `JobQueue.submit` makes it."""

    def __init__(
        self,
        owner: JobQueue,
        function: Callable[[Job[T]], T],
        wake: Callable[[], None] | None = None,
    ) -> None:
        self.progress = 0.0
        """The completed fraction, 0 to 1, that the function has reported last."""
        self.cancelled = False
        self.error: Exception | None = None
        """The exception that the function has raised."""
        self.function: Callable[[Job[T]], T] | None = function
        """The function to call.

        None once the job has ended: the function may refer to a scene, whose memory
        would not be freed.
        """
        self.ended = threading.Event()
        self.wake = wake
        """Called from the thread once the job has ended.

        With None the queue's own `wake` is called.
        """
        self._context = copy_context()
        """What was set for the user who began it, such as units."""
        self._owner = owner
        self._value: T | None = None

    @property
    def done(self) -> bool:
        """The function has returned, has raised, or will never be called."""
        return self.ended.is_set()

    @property
    def fault(self) -> str:
        """A text for users that says why the function failed; "" if it did not."""
        e = self.error
        if e is None:
            return ""
        reason = ""
        if isinstance(e, (ViewerError, IpcError, OSError)):
            reason = str(e)
        return printable_lines(reason or f"{type(e).__name__}: {e}")

    def result(self) -> T:
        """Return what the function returned, or raise what it raised.

        The job must be done, and not cancelled.
        """
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]

    def report(self, stage: str, fraction: float) -> None:
        """Store the progress. The function calls it; Cancelled ends a cancelled job."""
        if self.cancelled:
            raise Cancelled
        self.progress = min(max(fraction, 0.0), 1.0)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds; return whether the job is done."""
        return self.ended.wait(timeout)

    def call(self) -> T:
        """Call the function; its queue does so, once."""
        assert self.function is not None
        return self._context.run(self.function, self)

    def cancel(self) -> None:
        """Cancel the job, whose result is dropped. Idempotent.

        If the job still waits, its function is never called. A running function ends at
        its next `report`.
        """
        self._owner.cancel(self)

    def end(self, value: T | None, error: Exception | None) -> None:
        """Store the outcome, unless the job was cancelled.

        The queue calls it under its lock.
        """
        if not self.cancelled:
            self._value = value
            self.error = error
        self.function = None
        self.ended.set()


@dataclass(frozen=True)
class RunningJob:
    """A job that a user began, as a list of them tells of it."""

    title: str
    """"The film", "Loading robot.ply"."""
    progress: float
    """0 to 1."""
    cancel: Callable[[], object] | None = None
    """Gives it up; None: it cannot be."""
    count: str = ""
    """How far it is in pieces, "214 / 360"; "" where they are not counted."""


class JobQueue:
    """A queue of jobs, and the thread that works on them one after the other.

    The thread exists only while there are jobs.
    """

    def __init__(self, name: str, wake: Callable[[], None] = lambda: None) -> None:
        """Start without jobs.

        Args:
            name: name of the thread.
            wake: called from the thread when a job that was not cancelled has ended.
        """
        self.wake = wake
        self._name = name
        self._lock = threading.RLock()
        self._waiting: deque[Job[Any]] = deque()
        self._running: Job[Any] | None = None
        self._thread: threading.Thread | None = None
        _queues.add(self)

    @property
    def busy(self) -> bool:
        """True while a job waits or runs, also if it was cancelled while running."""
        with self._lock:
            return self._running is not None or bool(self._waiting)

    @property
    def pending_count(self) -> int:
        """Number of jobs that wait or run."""
        with self._lock:
            return len(self._waiting) + (self._running is not None)

    def submit(
        self,
        function: Callable[[Job[T]], T],
        *,
        first: bool = False,
        wake: Callable[[], None] | None = None,
    ) -> Job[T]:
        """Queue a function to be called on the thread, with its job as the argument.

        Args:
            function: the function.
            first: True to put the job before all jobs that wait.
            wake: called when the job has ended, in place of the queue's `wake`.
        """
        job = Job(self, function, wake)
        with self._lock:
            if first:
                self._waiting.appendleft(job)
            else:
                self._waiting.append(job)
            if self._thread is None:
                self._start(job)
        return job

    def _start(self, job: Job[Any]) -> None:
        """Start the thread for a job.

        If the system has no thread left, the job fails, and the next job tries again.
        """
        thread = threading.Thread(target=self._run_jobs, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as e:
            self._waiting.remove(job)
            job.end(None, ViewerError(f"no thread could be started: {e}"))
            return
        self._thread = thread

    def cancel(self, job: Job[Any]) -> None:
        """Cancel one job; see `Job.cancel`."""
        with self._lock:
            if job.done:
                return
            job.cancelled = True
            if job in self._waiting:
                self._waiting.remove(job)
                job.end(None, None)

    def wait(self, timeout: float | None) -> bool:
        """Wait until no job is left; return whether none is.

        Args:
            timeout: seconds to wait at most; None for no limit.
        """
        thread = self._thread
        if thread is not None and timeout != 0:
            thread.join(timeout)
        return not self.busy

    def close(self, timeout: float | None = 0.0) -> bool:
        """Cancel all jobs; return whether the running one has ended within `timeout`."""
        with self._lock:
            for job in list(self._waiting):
                self.cancel(job)
            if self._running is not None:
                self.cancel(self._running)
        return self.wait(timeout)

    def _run_jobs(self) -> None:
        """Run one job after the other, until none is left."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                job = self._waiting.popleft()
                self._running = job
            self._run(job)
            # The result may be a scene, which is freed now and not with the next job.
            del job

    def _run(self, job: Job[Any]) -> None:
        """Call the function of a job, store the outcome, and wake the loop."""
        value = None
        error: Exception | None = None
        try:
            value = job.call()
        except BaseException as e:
            # The thread goes on with the next job, whatever this one has raised.
            error = e if isinstance(e, Exception) else RuntimeError(repr(e))
        with self._lock:
            self._running = None
            job.end(value, error)
        if not job.cancelled:
            wake = job.wake or self.wake
            # A loop that has ended need not be woken.
            with suppress(Exception):
                wake()
        # The traceback of an error refers to this frame. Without these names no cycle
        # keeps the job and its scene in memory.
        del job, value, error


_queues: weakref.WeakSet[JobQueue] = weakref.WeakSet()


@atexit.register
def _end_jobs() -> None:
    """Cancel all jobs, and wait a while for those that run.

    A thread that the interpreter's end stops inside of C++, such as an operation of
    torch or DuckDB, would abort the program.
    """
    queues = list(_queues)
    for queue in queues:
        queue.close()
    for queue in queues:
        queue.wait(_EXIT_WAIT_S)


@cache
def end_jobs_before(_package: str) -> None:
    """Have jobs end before what a package, imported just now, does at the exit.

    What was registered last is called first. The earlier call stays registered: the
    exit may have begun, and then calls nothing that is registered now.
    """
    atexit.register(_end_jobs)


class JobPool:
    """A fixed number of queues, and so of threads, that many owners share."""

    def __init__(self, name: str, count: int) -> None:
        self._queues = [JobQueue(f"{name} {index}") for index in range(count)]

    def submit(
        self, function: Callable[[Job[T]], T], *, wake: Callable[[], None]
    ) -> Job[T]:
        """Queue a function on the thread that has the fewest jobs, as `JobQueue.submit`."""
        queue = min(self._queues, key=lambda jobs: jobs.pending_count)
        return queue.submit(function, wake=wake)
