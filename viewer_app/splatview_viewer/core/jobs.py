"""Functions that take too long for the loop.

They run on worker threads, and wake the loop when they have ended.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from splatview_ipc.control.errors import IpcError
from splatview_ipc.system.terminal import printable_lines
from splatview_viewer.core.errors import ViewerError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Cancelled(Exception):  # noqa: N818  (it reports no mistake)
    """Raised by `Job.report` in a job whose result is no longer needed."""


class Job(Generic[T]):
    """One call of a function on a worker thread; made by `Jobs.submit`."""

    def __init__(
        self,
        owner: JobQueue,
        function: Callable[[Job[T]], T],
        wake: Callable[[], None] | None = None,
    ) -> None:
        self.progress = 0.0
        """Completed fraction, 0 to 1, as the function reported it."""
        self.cancelled = False
        self.error: Exception | None = None
        """Exception raised by the function."""
        self.function: Callable[[Job[T]], T] | None = function
        """None once it has ended: it may hold a scene."""
        self.ended = threading.Event()
        self.wake = wake
        """Called from the thread once it has ended, in place of the queue's; None:
        that."""
        self._owner = owner
        self._value: T | None = None

    @property
    def done(self) -> bool:
        """The function has returned, has raised, or will never be called."""
        return self.ended.is_set()

    @property
    def fault(self) -> str:
        """Reason of the failure in words; "" without one."""
        e = self.error
        if e is None:
            return ""
        reason = ""
        if isinstance(e, (ViewerError, IpcError, OSError)):
            reason = str(e)
        return printable_lines(reason or f"{type(e).__name__}: {e}")

    def result(self) -> T:
        """Return what the function returned, or raise what it raised.

        For a job that is done and not cancelled.
        """
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]

    def report(self, stage: str, fraction: float) -> None:
        """Note the progress. Called by the function; raises Cancelled to end it."""
        if self.cancelled:
            raise Cancelled
        self.progress = min(max(fraction, 0.0), 1.0)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is done, at most `timeout` seconds; return whether it is."""
        return self.ended.wait(timeout)

    def cancel(self) -> None:
        """Drop the result. Idempotent.

        A waiting job is never called; a running one ends at its next report.
        """
        self._owner.cancel(self)

    def end(self, value: T | None, error: Exception | None) -> None:
        """Store the outcome unless it was cancelled.

        Called by `Jobs` under its lock.
        """
        if not self.cancelled:
            self._value = value
            self.error = error
        self.function = None
        self.ended.set()


class JobQueue:
    """A queue of jobs, and the one thread that works on it while there are any."""

    def __init__(self, name: str, wake: Callable[[], None] = lambda: None) -> None:
        """Start without jobs.

        Args:
            name: of the thread.
            wake: called from the thread when a job that was not cancelled has ended.
        """
        self.wake = wake
        self._name = name
        self._lock = threading.RLock()
        self._waiting: deque[Job[Any]] = deque()
        self._running: Job[Any] | None = None
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """A job is waiting or running, also if it was cancelled while it ran."""
        with self._lock:
            return self._running is not None or bool(self._waiting)

    @property
    def pending_count(self) -> int:
        """The number of jobs that wait or run."""
        with self._lock:
            return len(self._waiting) + (self._running is not None)

    def submit(
        self,
        function: Callable[[Job[T]], T],
        *,
        first: bool = False,
        wake: Callable[[], None] | None = None,
    ) -> Job[T]:
        """Call a function with its job on the thread, after all others.

        Args:
            first: before all that wait.
            wake: called in place of the queue's.
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

        Where the system has no thread left, the job has failed; a later one may start
        it.
        """
        thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as e:
            self._waiting.remove(job)
            job.end(None, ViewerError(f"no thread could be started: {e}"))
            return
        self._thread = thread

    def cancel(self, job: Job[Any]) -> None:
        """Drop the result of one job; see `Job.cancel`."""
        with self._lock:
            if job.done:
                return
            job.cancelled = True
            if job in self._waiting:
                self._waiting.remove(job)
                job.end(None, None)

    def wait(self, timeout: float | None) -> bool:
        """Wait until no job is left, and return whether that is so.

        Args:
            timeout: seconds; None: any time.
        """
        thread = self._thread
        if thread is not None and timeout != 0:
            thread.join(timeout)
        return not self.busy

    def close(self, timeout: float | None = 0.0) -> bool:
        """Cancel all jobs, and `wait` for the running one; return whether it has ended."""
        with self._lock:
            for job in list(self._waiting):
                self.cancel(job)
            if self._running is not None:
                self.cancel(self._running)
        return self.wait(timeout)

    def _work(self) -> None:
        """Call one job after the other, until none is left."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                job = self._waiting.popleft()
                self._running = job
            value = None
            error: Exception | None = None
            try:
                value = job.function(job)  # type: ignore[misc]
            except BaseException as e:
                # The thread goes on with the next job, whatever this one raised.
                error = RuntimeError(repr(e))
                if isinstance(e, Exception):
                    error = e
            with self._lock:
                self._running = None
                job.end(value, error)
            if not job.cancelled:
                wake = job.wake or self.wake
                # A loop that has ended needs no waking.
                with suppress(Exception):
                    wake()
            # They may hold a scene, which is not kept until the next job.
            del job, value, error


class JobPool:
    """A bounded number of queues, and so of threads, for jobs of many owners."""

    def __init__(self, name: str, count: int) -> None:
        self._queues = [JobQueue(f"{name} {index}") for index in range(count)]

    def submit(
        self, function: Callable[[Job[T]], T], *, wake: Callable[[], None]
    ) -> Job[T]:
        """Call a function with its job on the thread that has the fewest; then `wake`."""
        queue = min(self._queues, key=lambda jobs: jobs.pending_count)
        return queue.submit(function, wake=wake)
