"""Jobs behave the same whatever they do: order, cancelling, waking, errors as words."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.wait import PATIENCE, wait_until

from splatview_viewer.core.errors import FileError
from splatview_viewer.core.jobs import Job, JobPool, Jobs


class Rig:
    """Jobs behind a gate: the first one runs until `open`, so that the others wait in the queue."""

    def __init__(self) -> None:
        self.called: list[Any] = []
        self.woken = threading.Semaphore(0)
        self.jobs = Jobs("under test", self.woken.release)
        self._gate = threading.Event()
        self._begun = threading.Event()
        self.first: Job[str] = self.jobs.submit(self._wait)
        assert self._begun.wait(PATIENCE)

    def _wait(self, job: Job[str]) -> str:
        self._begun.set()
        assert self._gate.wait(PATIENCE)
        job.report("waited", 2.0)
        return "first"

    def submit(self, name: Any, **more: Any) -> Job[Any]:
        return self.jobs.submit(lambda _: self.called.append(name) or name, **more)

    def open(self, wakes: int) -> None:
        """Let all run; the loop is woken `wakes` times, not more."""
        self._gate.set()
        for _ in range(wakes):
            assert self.woken.acquire(timeout=PATIENCE)
        wait_until(lambda: not self.jobs.busy)
        wait_until(
            lambda: not [t for t in threading.enumerate() if t.name == "under test"]
        )
        assert not self.woken.acquire(blocking=False)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.jobs.close()
    made.open(0)


def test_results_come_in_order_and_each_wakes_the_loop(rig: Rig) -> None:
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


def test_a_cancelled_job_is_never_called_and_a_running_one_ends_unheard(
    rig: Rig,
) -> None:
    job = rig.submit("a")
    after = rig.submit("after")
    job.cancel()
    rig.first.cancel()
    assert job.wait(0)
    assert not rig.first.done
    rig.open(1)
    after.cancel()  # too late
    assert rig.first.done
    assert not rig.first.fault
    assert rig.first.progress == 0.0
    assert rig.called == ["after"]
    assert not after.cancelled
    assert after.result() == "after"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileError("a.ply: no scene"), "a.ply: no scene"),
        (OSError("gone"), "gone"),
        (MemoryError(), "MemoryError: "),
        (ValueError("odd"), "ValueError: odd"),
    ],
)
def test_what_a_job_raises_is_raised_again_and_said(
    rig: Rig, error: Exception, words: str
) -> None:
    def fail(_: Job[None]) -> None:
        raise error

    job = rig.jobs.submit(fail)
    after = rig.submit("after")
    rig.open(3)
    assert job.fault == words
    assert after.result() == "after"
    with pytest.raises(type(error)):
        job.result()


def test_closing_cancels_all_and_waits_for_the_running_one(rig: Rig) -> None:
    waiting = rig.submit("a")
    assert not rig.jobs.close()
    assert waiting.done
    assert waiting.cancelled
    assert rig.first.cancelled
    rig.open(0)
    assert rig.jobs.close(PATIENCE)
    assert rig.jobs.close(None)
    assert rig.submit("again").wait(PATIENCE)  # a thread begins anew
    assert rig.woken.acquire(timeout=PATIENCE)


def test_a_pool_has_a_bounded_number_of_threads() -> None:
    """And wakes the owner of each job."""
    pool = JobPool("test pool", 3)
    go = threading.Event()
    woken = list[int]()
    jobs = [
        pool.submit(
            lambda _: go.wait(PATIENCE), wake=lambda number=number: woken.append(number)
        )
        for number in range(50)
    ]
    names = {t.name for t in threading.enumerate() if t.name.startswith("test pool")}
    assert len(names) == 3
    go.set()
    assert all(job.wait(PATIENCE) for job in jobs)
    wait_until(lambda: sorted(woken) == [*range(50)])


def test_job_without_a_thread_has_failed_and_the_next_one_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = Jobs("under test")

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", fail)
        job = jobs.submit(lambda _: 1)
    assert job.done
    assert "no thread could be started" in job.fault
    assert not jobs.busy
    assert jobs.close()
    later = jobs.submit(lambda _: 2)
    assert later.wait(PATIENCE)
    assert later.result() == 2


def test_queue_goes_on_behind_a_job_that_exits_and_a_wake_that_fails() -> None:
    def wake() -> None:
        raise OSError("the loop has ended")

    def leave(_: object) -> None:
        raise SystemExit(3)

    jobs = Jobs("under test", wake)
    first = jobs.submit(leave)
    second = jobs.submit(lambda _: 2)
    assert second.wait(PATIENCE)
    assert second.result() == 2
    assert "SystemExit" in first.fault
    assert wait_until(lambda: not jobs.busy)
