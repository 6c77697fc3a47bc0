"""Jobs: their order, how they are cancelled, wake the loop and fail."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from support.programs import environment
from support.wait import PATIENCE_S, wait_until

from splatview_viewer.core.errors import FileError
from splatview_viewer.core.jobs import Job, JobPool, JobQueue


def has_ended(jobs: JobQueue) -> bool:
    return not jobs.busy


class Rig:
    """Jobs of which the first one runs until `open`, so that the others wait."""

    def __init__(self) -> None:
        self.called: list[Any] = []
        self.woken = threading.Semaphore(0)
        self.jobs = JobQueue("under test", self.woken.release)
        self._gate = threading.Event()
        self._started = threading.Event()
        self.first: Job[str] = self.jobs.submit(self._wait)
        assert self._started.wait(PATIENCE_S)

    def _wait(self, job: Job[str]) -> str:
        self._started.set()
        assert self._gate.wait(PATIENCE_S)
        job.report("waited", 2.0)
        return "first"

    def submit(self, name: Any, **options: Any) -> Job[Any]:
        def call(_: Job[Any]) -> Any:
            self.called.append(name)
            return name

        return self.jobs.submit(call, **options)

    def open(self, wakes: int) -> None:
        """Let all jobs run, and check that the loop is woken `wakes` times."""
        self._gate.set()
        for _ in range(wakes):
            assert self.woken.acquire(timeout=PATIENCE_S)
        wait_until(partial(has_ended, self.jobs))
        wait_until(self._has_no_thread)
        assert not self.woken.acquire(blocking=False)

    def _has_no_thread(self) -> bool:
        return all(t.name != "under test" for t in threading.enumerate())


@pytest.fixture
def rig() -> Iterator[Rig]:
    new_rig = Rig()
    yield new_rig
    new_rig.jobs.close()
    new_rig.open(0)


def test_results_arrive_in_order_and_each_wakes_the_loop(rig: Rig) -> None:
    a = rig.submit("a")
    b = rig.submit("b")
    c = rig.submit("c", first=True)
    assert rig.jobs.busy
    assert not rig.first.done
    assert rig.first.progress == 0.0
    rig.open(4)
    assert rig.called == ["c", "a", "b"]
    assert [job.result() for job in (rig.first, a, b, c)] == ["first", "a", "b", "c"]
    assert rig.first.progress == 1.0
    assert not (a.fault)
    assert not (a.function)


def test_cancelled_jobs_are_not_called_or_end_without_a_result(
    rig: Rig,
) -> None:
    cancelled_job = rig.submit("a")
    next_job = rig.submit("after")
    cancelled_job.cancel()
    rig.first.cancel()
    assert cancelled_job.wait(0)
    assert not rig.first.done
    rig.open(1)
    next_job.cancel()  # This comes too late.
    assert rig.first.done
    assert not rig.first.fault
    assert rig.first.progress == 0.0
    assert rig.called == ["after"]
    assert not next_job.cancelled
    assert next_job.result() == "after"


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (FileError("a.ply: no scene"), "a.ply: no scene"),
        (OSError("gone"), "gone"),
        (MemoryError(), "MemoryError: "),
        (ValueError("odd"), "ValueError: odd"),
    ],
)
def test_error_of_a_job_is_described_and_raised_by_its_result(
    rig: Rig, error: Exception, fault: str
) -> None:
    def fail(_: Job[None]) -> None:
        raise error

    job = rig.jobs.submit(fail)
    next_job = rig.submit("after")
    rig.open(3)
    assert job.fault == fault
    assert next_job.result() == "after"
    with pytest.raises(type(error)):
        job.result()


def test_closing_cancels_all_jobs_and_waits_for_the_running_one(rig: Rig) -> None:
    waiting = rig.submit("a")
    assert not rig.jobs.close()
    assert waiting.done
    assert waiting.cancelled
    assert rig.first.cancelled
    rig.open(0)
    assert rig.jobs.close(PATIENCE_S)
    assert rig.jobs.close(None)
    # A new thread starts for a job after that.
    assert rig.submit("again").wait(PATIENCE_S)
    assert rig.woken.acquire(timeout=PATIENCE_S)


def test_pool_bounds_its_threads_and_wakes_each_owner() -> None:
    pool = JobPool("test pool", 3)
    gate = threading.Event()
    woken_owners = list[int]()

    def wait(_: Job[bool]) -> bool:
        return gate.wait(PATIENCE_S)

    jobs = [pool.submit(wait, wake=partial(woken_owners.append, i)) for i in range(50)]
    names = {t.name for t in threading.enumerate() if t.name.startswith("test pool")}
    assert len(names) == 3
    gate.set()
    for job in jobs:
        assert job.wait(PATIENCE_S)
    wait_until(lambda: sorted(woken_owners) == [*range(50)])


def return_two(_: Job[int]) -> int:
    return 2


def test_job_without_a_thread_has_failed_and_the_next_one_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = JobQueue("under test")

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", fail)
        job = jobs.submit(return_two)
    assert job.done
    assert "no thread could be started" in job.fault
    assert not jobs.busy
    assert jobs.close()
    later = jobs.submit(return_two)
    assert later.wait(PATIENCE_S)
    assert later.result() == 2


def test_queue_continues_after_a_job_that_exits_and_a_wake_that_fails() -> None:
    def wake() -> None:
        raise OSError("the loop has ended")

    def leave(_: object) -> None:
        raise SystemExit(3)

    jobs = JobQueue("under test", wake)
    first = jobs.submit(leave)
    second = jobs.submit(return_two)
    assert second.wait(PATIENCE_S)
    assert second.result() == 2
    assert "SystemExit" in first.fault
    assert wait_until(partial(has_ended, jobs))


def test_end_of_a_program_waits_for_the_job_that_runs() -> None:
    """The interpreter would stop its thread wherever it is, also inside of C++."""
    program = """
import threading
from splatview_viewer.core.jobs import JobQueue
started, exiting = threading.Event(), threading.Event()
def work(job):
    started.set()
    threading.main_thread().join()
    print("done", flush=True)
JobQueue("under test").submit(work)
started.wait()
"""
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert result.stdout == "done\n"
