"""What measures the others: the nursery and the meters tell what is true."""

from __future__ import annotations

import gc
import mmap
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from meters import MB, footprint, many, percentile, settled, waits

if TYPE_CHECKING:
    from collections.abc import Callable

    from nursery import Nursery


def test_a_program_has_its_arguments_prints_and_ends(nursery: Nursery) -> None:
    child = nursery.start("import sys\nprint('hello', *sys.argv[1:], flush=True)\nraise SystemExit(3)", 1, "two")
    assert child.line() == "hello 1 two"
    assert (child.wait(), child.alive, child.rest()) == (3, False, [])
    assert nursery.start("pass").wait() == 0
    assert nursery.start("import atexit; atexit.register(print, 'bye')").rest() == ["bye"]


def test_a_program_that_raises_or_is_killed_harms_no_other(nursery: Nursery) -> None:
    assert nursery.start("raise ValueError").wait() == 1
    first, second = (nursery.start("import time\nprint(1, flush=True)\ntime.sleep(1000)") for _ in range(2))
    assert first.line() == second.line() == "1"
    first.kill()
    assert (first.alive, second.alive, first.wait()) == (False, True, None)
    second.signal(signal.SIGTERM)
    assert second.wait() is None


def test_a_program_publishes_in_the_tests_folder(nursery: Nursery, wait_until: Callable[..., Any]) -> None:
    from splatview.ipc import Subscriber

    child = nursery.start("import time, torch, splatview\nsplatview.publish(torch.zeros(4, 4, 3))\ntime.sleep(1000)")
    with Subscriber() as subscriber:
        wait_until(lambda: subscriber.poll() and [s for s in subscriber.streams if s.run.pid == child.pid])
    child.kill()


def test_a_footprint_tells_what_a_process_has(wait_until: Callable[..., Any]) -> None:
    gc.collect()
    base = footprint()
    assert base.rss > MB and base.threads == len(os.listdir("/proc/self/task")) and not base.over(base)
    held, stop = os.memfd_create("splatview-test"), threading.Event()
    os.ftruncate(held, 3 * MB)
    thread = threading.Thread(target=stop.wait)
    thread.start()
    block = bytearray(200 * MB)  # much more than what earlier tests left behind, which may go meanwhile
    assert footprint().over(base).keys() == {"rss", "descriptors", "threads", "segments", "segment_bytes"}
    assert footprint().over(base, rss=220 * MB, descriptors=1, threads=1, segments=1, segment_bytes=3 * MB) == {}
    mapped = mmap.mmap(held, 3 * MB)
    os.close(held)
    assert footprint().segment_bytes == base.segment_bytes + 3 * MB  # mapped is enough
    mapped.close()
    del block
    stop.set()
    thread.join()
    settled(base, wait_until)


def test_a_pause_is_a_wait_and_work_is_none() -> None:
    before = waits()
    for _ in range(10):
        time.sleep(0.001)
    assert waits() >= before + 10
    before = waits()
    sum(range(200_000))
    assert waits() <= before + 1


def test_shares_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [percentile(range(1, 101), share) for share in (0, 0.5, 0.99, 1)] == [1, 50, 99, 100]
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)
    assert many(100, 5) == 5
    monkeypatch.setenv("SPLATVIEW_FAULTS", "long")
    assert many(100, 5) == 100
    monkeypatch.setenv("SPLATVIEW_FAULTS", "short")
    with pytest.raises(ValueError, match="legal is 'long'"):
        many(100, 5)
