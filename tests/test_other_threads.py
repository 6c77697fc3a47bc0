"""What tells whether another thread can still be amid a write: its processor time, and whether it wants to run."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from patience import PATIENCE

import splatview
from splatview import publishing
from splatview.ipc import Subscriber, other_threads, outlet
from splatview.ipc.other_threads import OtherThreads
from splatview.ipc.outlet import at_rest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from programs import Processes

    from splatview.ipc.stream import Stream

_FOREVER = 1e9
"""Seconds of processor time that no thread gets."""


class Others:
    """Threads of this test, ended with it."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, step: Callable[[], object], before: Callable[[], object] = lambda: None) -> threading.Thread:
        """Repeat a step until the test ends."""
        def run() -> None:
            before()
            while not self.over.is_set():
                step()

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()
        return self._threads[-1]

    def end(self) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def threads() -> Iterator[Others]:
    made = Others()
    yield made
    made.end()


def _compute() -> None:
    """Half a second or less without the GIL."""
    hashlib.pbkdf2_hmac("sha256", b"", b"", 100_000)


def test_a_thread_that_sleeps_has_come_on(threads: Others, wait_until: Callable[..., Any]) -> None:
    threads.start(threads.over.wait)
    wait_until(lambda: OtherThreads().came_on(_FOREVER))


def test_a_thread_that_runs_comes_on_with_its_processor_time(threads: Others, wait_until: Callable[..., Any]) -> None:
    threads.start(_compute)
    wait_until(lambda: not OtherThreads().came_on(_FOREVER), what="a thread that is seen running")
    others = OtherThreads()
    wait_until(lambda: others.came_on(0.05))
    wait_until(lambda: not OtherThreads().came_on(_FOREVER), what="the same thread, from now on")


def test_a_thread_that_has_ended_has_come_on(threads: Others, wait_until: Callable[..., Any]) -> None:
    threads.start(_compute)
    others = OtherThreads()
    threads.end()
    wait_until(lambda: others.came_on(_FOREVER))


def test_the_callers_own_thread_does_not_count(wait_until: Callable[..., Any]) -> None:
    wait_until(lambda: OtherThreads().came_on(_FOREVER))


@pytest.mark.parametrize("name", [") R 1 (", "a) D 2 2", "((((", "R", "fifteen bytes.."])
def test_names_of_threads_are_not_taken_for_their_state(name: str, threads: Others,
                                                        wait_until: Callable[..., Any]) -> None:
    def rename() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)

    threads.start(threads.over.wait, rename)
    wait_until(lambda: OtherThreads().came_on(_FOREVER))


def test_looking_at_many_threads_keeps_no_descriptors(threads: Others, wait_until: Callable[..., Any]) -> None:
    for _ in range(40):
        threads.start(threads.over.wait)
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        wait_until(lambda: OtherThreads().came_on(_FOREVER))
    assert os.listdir("/proc/self/fd") == before


def test_where_the_system_does_not_tell_of_threads_none_is_waited_for(threads: Others, tmp_path: Path,
                                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    threads.start(_compute)
    assert other_threads._threads(bytes(tmp_path / "none")) == []
    monkeypatch.setattr(other_threads, "_threads", list[int])
    assert OtherThreads().came_on(_FOREVER)


def test_all_threads_are_found(threads: Others, wait_until: Callable[..., Any]) -> None:
    own = {threads.start(threads.over.wait).native_id for _ in range(20)}
    assert own | {threading.get_native_id()} <= set(other_threads._threads())
    wait_until(lambda: sorted(other_threads._threads()) == sorted(map(int, os.listdir("/proc/self/task"))))


def _copies(threads: Others, processes: Processes, enough: Callable[[int, int], bool]) -> tuple[int, int]:
    """Copy a tensor into which a thread writes that seldom gets its processor, until there are `enough`: how many
    copies were taken to be whole, and how many of these were not."""
    processor = max(os.sched_getaffinity(0))
    processes.code(f"import os; os.sched_setaffinity(0, {{{processor}}})\nwhile True: pass")
    frame = torch.zeros(3000, 3000)

    def share_a_processor() -> None:
        os.sched_setaffinity(0, {processor})  # of this thread alone
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 12)

    def write() -> None:
        frame.add_(1)
        threads.over.wait(0.05)

    threads.start(write, share_a_processor)
    copy, taken, torn, end = torch.empty_like(frame), 0, 0, time.monotonic() + PATIENCE
    while not enough(taken, torn):
        assert time.monotonic() < end, f"only {taken} copies were taken to be whole"
        settled = at_rest({"image": frame}, lambda: True, time.monotonic())
        copy.copy_(frame)
        if settled():
            taken += 1
            torn += bool(copy.min() != copy.max())
    return taken, torn


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tensors are written by the thread that asks for it: the others of torch's pool would not be held up."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_a_write_that_is_held_up_is_not_taken_to_have_ended(threads: Others, processes: Processes) -> None:
    taken, torn = _copies(threads, processes, lambda taken, torn: taken == 25)
    assert (taken, torn) == (25, 0)


@pytest.mark.usefixtures("one_thread")
def test_the_threads_time_is_what_keeps_late_copies_whole(threads: Others, processes: Processes,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """The counter-proof: after a fixed time alone, half of what is written is taken for the whole."""
    monkeypatch.setattr(OtherThreads, "came_on", lambda self, seconds: True)
    assert _copies(threads, processes, lambda taken, torn: torn == 2)[1] == 2


def test_a_thread_that_gets_no_processor_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OtherThreads, "came_on", lambda self, seconds: False)
    monkeypatch.setattr(outlet, "_TURN", 0.05)
    tensors, now = {"image": torch.zeros(3)}, time.monotonic()
    assert not at_rest(tensors, lambda: True, now + PATIENCE)()
    assert at_rest(tensors, lambda: True, now - outlet._LONGEST)()


def test_a_viewer_is_shown_what_a_thread_without_a_processor_may_be_writing(
        monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    """In the end, and the helper thread does other work between."""
    monkeypatch.setattr(OtherThreads, "came_on", lambda self, seconds: False)
    monkeypatch.setattr(outlet, "_TURN", 0.02)
    splatview.publish(torch.full((6, 6, 3), 0.5))
    with Subscriber() as subscriber:
        def seen() -> bool:
            subscriber.poll()
            for stream in subscriber.streams:
                stream.open()
                if (frame := stream.read()) is not None:
                    frame.close()
                    return True
            return False

        wait_until(seen)


def _followed(subscriber: Subscriber, wait_until: Callable[..., Any]) -> Stream:
    """The one stream, which the subscriber has been given the newest version of. The helper thread has ended, as at the
    end of the program."""
    publisher = publishing._publisher
    assert publisher is not None
    (stream,) = publisher.streams.values()

    def given() -> bool:
        subscriber.poll()
        for remote in subscriber.streams:
            remote.open()
        return [o.version for o in stream._outlets.values()] == [stream.version]

    wait_until(given)
    assert publisher._helper.close()
    return stream


def test_the_last_version_is_shared_though_a_thread_gets_no_processor(
        monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    """The process ends: no later turn would share it."""
    splatview.publish(torch.zeros(6, 6, 3), "last")
    with Subscriber() as subscriber:
        stream = _followed(subscriber, wait_until)
        monkeypatch.setattr(OtherThreads, "came_on", lambda self, seconds: False)
        monkeypatch.setattr(outlet, "_TURN", 0.02)
        with ThreadPoolExecutor(1) as other:
            other.submit(stream.lock.acquire).result()
            splatview.publish(torch.ones(6, 6, 3), "last")
            other.submit(stream.lock.release).result()
        assert [o.version < stream.version for o in stream._outlets.values()] == [True]
        stream.finish()
        assert [o.version for o in stream._outlets.values()] == [stream.version]


def test_a_late_copy_does_not_get_the_number_of_what_is_published_meanwhile(
        monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    splatview.publish(torch.zeros(6, 6, 3), "raced", step=1)
    with Subscriber() as subscriber, ThreadPoolExecutor(1) as other:
        stream = _followed(subscriber, wait_until)
        newest = stream._newest
        with stream.lock:
            other.submit(splatview.publish, torch.ones(6, 6, 3), "raced", step=2).result()
        with monkeypatch.context() as patch:
            def meanwhile() -> Any:
                found = newest()
                other.submit(splatview.publish, torch.full((6, 6, 3), 2.0), "raced", step=3).result()
                return found

            patch.setattr(stream, "_newest", meanwhile)
            stream.catch_up()
        assert stream.behind()
        stream.catch_up()
        assert not stream.behind()
        (remote,) = subscriber.streams
        with wait_until(lambda: remote.read(1)) as frame:
            assert (frame.version, frame.meta["step"], frame.tensors["image"].to_float32().max()) == (3, 3, 2)


def test_a_value_that_is_replaced_during_the_last_look_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.zeros(3)

    def write(self: OtherThreads, seconds: float) -> bool:
        tensor.add_(1)
        return False

    monkeypatch.setattr(OtherThreads, "came_on", write)
    monkeypatch.setattr(outlet, "_TURN", 0.0)
    monkeypatch.setattr(outlet, "_SETTLE", 0.0)
    assert not at_rest({"image": tensor}, lambda: True, 0)()


def test_nothing_is_waited_for_once_something_newer_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OtherThreads, "came_on", lambda self, seconds: False)
    monkeypatch.setattr(outlet, "_TURN", PATIENCE)
    tensor = torch.zeros(3)
    looks = iter([True, True, False, False])
    begin = time.monotonic()
    assert not at_rest({"image": tensor}, lambda: next(looks), 0)()
    settled = at_rest({"image": tensor}, lambda: True, 0)
    tensor.add_(1)
    assert not settled()
    assert time.monotonic() - begin < PATIENCE
