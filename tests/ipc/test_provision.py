"""Memory for a viewer that attaches: made by the helper thread, outside of `publish` and its lock, bounded, and refused
where it does not fit."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.frames import host_array
from support.wait import PATIENCE, turns

import splatview
from splatview.api import session as publishing
from splatview_ipc import Subscriber
from splatview_ipc.publisher import ring_allocation as provision
from splatview_ipc.shm.segment import PAGE, Segment
from splatview_ipc.shm.slot_layout import LARGE, room_for, slots_for
from splatview_ipc.system import free_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.programs import Programs

    from splatview_ipc import Frame, RemoteStream, Stream

SIDE = 8200
"""Of a large image of one byte a pixel, 67 MB."""
MB = 10**6


def published(name: str = "image") -> Stream:
    publisher = publishing.begun()
    assert publisher is not None
    return publisher.streams[name]


def publish(value: int, side: int = 8) -> None:
    splatview.publish(torch.full((side, side), value, dtype=torch.uint8), "image", step=value)


def opened(subscriber: Subscriber, wait_until: Callable[..., Any]) -> RemoteStream:
    wait_until(lambda: (subscriber.poll(), subscriber.streams)[-1])
    stream = subscriber.streams[0]
    stream.open()
    return stream


def frame_of(subscriber: Subscriber, value: int, wait_until: Callable[..., Any]) -> Frame:
    """The frame with this value, whole, once it comes; it stays held."""
    stream, after = opened(subscriber, wait_until), 0

    def read() -> Frame | None:
        nonlocal after
        subscriber.poll()
        frame = stream.read(after)
        if frame is None:
            return None
        after = frame.version
        if frame.meta["step"] == value:
            return frame
        frame.close()
        return None

    frame = wait_until(read, what=f"step {value}")
    assert whole(frame, value)
    return frame


def whole(frame: Frame, value: int) -> bool:
    pixels = host_array(frame.tensors["image"])
    return bool((pixels == value).all()) and frame.intact()


class Rings:
    """The shared memory for frames that this process makes from now on."""

    def __init__(self) -> None:
        self._before = frozenset(self._allocated())  # left to the garbage collector by an earlier test

    def size(self) -> int:
        """Bytes that are allocated."""
        return sum(size for inode, size in self._allocated().items() if inode not in self._before)

    @staticmethod
    def _allocated() -> dict[int, int]:
        """By number of the file: bytes."""
        found: dict[int, int] = {}
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                path = f"/proc/self/fd/{fd}"
                if os.readlink(path).startswith("/memfd:splatview-ring"):
                    info = os.stat(path)
                    found[info.st_ino] = info.st_blocks * 512
        return found


@pytest.fixture
def rings() -> Rings:
    return Rings()


class Gate:
    """Keeps the thread that makes memory waiting, and notes which one that is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rings: Rings):
        self.makers: set[int] = set()
        self.peak = 0
        """Bytes of shared memory that were allocated at a time, at most."""
        self.open = threading.Event()
        self.reached = threading.Event()
        self.open.set()
        before, init = Segment.reserve, Segment.__init__

        def reserve(segment: Segment, count: int) -> bool:
            self.makers.add(threading.get_ident())
            self.reached.set()
            assert self.open.wait(PATIENCE)
            done = before(segment, count)
            self.peak = max(self.peak, rings.size())
            return done

        def made(segment: Segment, *args: Any) -> None:
            init(segment, *args)
            if segment.token.startswith("ring"):
                self.makers.add(threading.get_ident())

        monkeypatch.setattr(Segment, "reserve", reserve)
        monkeypatch.setattr(Segment, "__init__", made)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch, rings: Rings) -> Iterator[Gate]:
    made = Gate(monkeypatch, rings)
    yield made
    made.open.set()


def test_publish_makes_no_memory_and_does_not_wait_for_it(gate: Gate, wait_until: Callable[..., Any]) -> None:
    publish(1)
    with Subscriber() as subscriber:
        for turn, side in enumerate((8, 300, 20)):  # the first memory, more, and what fits into it
            gate.reached.clear()
            gate.open.clear()
            first = 10 * turn + 2
            publish(first, side)
            remote = opened(subscriber, wait_until)
            if side != 20:
                assert gate.reached.wait(PATIENCE)
                assert published().lock.acquire(blocking=False), "memory is made outside of the stream's lock"
                published().lock.release()
                for value in range(first + 1, first + 6):
                    publish(value, side)  # if it waited, it would do so for ever
            else:
                publish(first + 5, side)
            assert remote.version == published().version
            gate.open.set()
            frame_of(subscriber, first + 5, wait_until).close()  # without any other call
    assert len(gate.makers) == 1 and threading.get_ident() not in gate.makers, "only the helper thread makes memory"


def test_memory_that_is_made_while_the_run_ends_is_given_back(
        gate: Gate, rings: Rings, wait_until: Callable[..., Any]) -> None:
    publish(1, 300)
    stream = published()
    gate.open.clear()
    with Subscriber() as subscriber:
        opened(subscriber, wait_until)
        assert gate.reached.wait(PATIENCE)
        closing = threading.Thread(target=splatview.close)
        closing.start()
        wait_until(lambda: stream.tally.newest is None, "the run ends")
        gate.open.set()
        closing.join(PATIENCE)
    wait_until(lambda: rings.size() == 0, "the memory is given back")


@pytest.mark.parametrize("frame", [LARGE + 1, 100 * MB, 40 * 10**9])
@pytest.mark.parametrize("growing", [False, True], ids=["of one size", "growing"])
def test_slots_of_large_frames_take_less_than_2_2_frames(frame: int, growing: bool) -> None:
    capacity = room_for(frame, growing)
    assert capacity >= frame
    slots = slots_for(capacity)
    assert (slots, slots_for(capacity, 3)) == (2, 3), "a GPU that copies has one more"
    assert 2 * PAGE + slots * (capacity + 2 * PAGE) <= 2.2 * frame


def test_a_large_frame_takes_two_slots_whoever_holds_what(
        gate: Gate, rings: Rings, wait_until: Callable[..., Any]) -> None:
    size = SIDE * SIDE
    publish(1, SIDE)
    with Subscriber() as slow, Subscriber() as other, Subscriber() as third:
        held = frame_of(slow, 1, wait_until)
        for value in range(2, 5):  # what is held leaves one slot, which all newer versions go through
            publish(value, SIDE)
            frame_of(other, value, wait_until).close()
        assert whole(held, 1)
        newest = frame_of(third, 4, wait_until)
        for value in range(5, 8):  # no slot is left: versions are skipped
            publish(value, SIDE)
        assert whole(held, 1)
        assert whole(newest, 4)
        assert rings.size() <= 2.2 * size
        held.close()
        frame_of(other, 7, wait_until).close()  # without another call
        assert whole(newest, 4)
        newest.close()
    assert gate.peak <= 2.2 * size
    assert publishing.begun().control.counters()["faults"] == 0  # type: ignore[union-attr]


class Meminfo:
    """What /proc/meminfo says is free."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch):
        self._file = root / "proc" / "meminfo"
        self._file.parent.mkdir()
        real = free_memory.available_bytes
        monkeypatch.setattr(free_memory, "available_bytes", partial(real, root))

    def is_free(self, size: int) -> None:
        scratch = self._file.with_name("new")
        scratch.write_text(f"MemAvailable: {size >> 10} kB\n")
        scratch.rename(self._file)


@pytest.fixture
def meminfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Meminfo:
    monkeypatch.setattr(provision, "RETRY", 0.05)
    return Meminfo(tmp_path, monkeypatch)


def test_what_does_not_fit_is_refused_and_said_and_comes_when_memory_is_free(
        meminfo: Meminfo, rings: Rings, caplog: pytest.LogCaptureFixture,
        wait_until: Callable[..., Any]) -> None:
    meminfo.is_free(5 * MB)
    publish(1, 1200)  # four slots take 6 MB
    with Subscriber() as subscriber, caplog.at_level(logging.WARNING, "splatview"):
        stream = opened(subscriber, wait_until)
        fault = wait_until(lambda: (subscriber.poll(), stream.fault)[-1])
        assert "the frames need 6 MB" in fault
        with Subscriber() as late:  # one that finds it so
            assert wait_until(lambda: (late.poll(), opened(late, wait_until).fault)[-1]) == fault
        for value in range(2, 6):
            publish(value, 1200)
        assert (stream.version, stream.read()) == (5, None)
        assert rings.size() == 0
        meminfo.is_free(100 * MB)
        frame_of(subscriber, 5, wait_until).close()
        assert stream.fault is None
        publish(6, 1200)
        frame_of(subscriber, 6, wait_until).close()
    assert len(caplog.records) == 1, "said once"
    assert publishing.begun().control.counters()["faults"] == 1  # type: ignore[union-attr]


CGROUPS = Path("/sys/fs/cgroup")
IN_CGROUP = """
import sys, torch, splatview
from pathlib import Path
folder = Path(sys.argv[1])
import os
(folder / "cgroup.procs").write_text(str(os.getpid()))
image = torch.full((8000, 8000), 7, dtype=torch.uint8)
splatview.publish(image, "image", step=7)
print("published", flush=True)
for _ in sys.stdin:
    splatview.publish(image, "image", step=7)
    print("went on", flush=True)
"""


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup with 150 MB, which the kernel enforces by killing."""
    folder = CGROUPS / f"splatview-test-{os.getpid()}"
    if not (CGROUPS / "cgroup.controllers").exists():
        pytest.skip("cgroups of version 1, whose limits are not followed")
    try:
        folder.mkdir()
    except OSError as e:
        pytest.skip(f"no cgroup can be made here: {e}")
    try:
        (folder / "memory.max").write_text(str(150 * MB))
    except OSError as e:
        folder.rmdir()
        pytest.skip(f"a cgroup's memory cannot be limited here: {e}")
    yield folder
    for _ in turns("the end of its process"):
        with contextlib.suppress(OSError):
            folder.rmdir()
            break


def test_a_trainer_whose_cgroup_is_full_is_not_killed(
        cgroup: Path, programs: Programs, wait_until: Callable[..., Any]) -> None:
    trainer = programs.code(IN_CGROUP, str(cgroup))
    assert trainer.line() == "published"
    with Subscriber() as subscriber:
        stream = opened(subscriber, wait_until)
        fault = wait_until(lambda: (subscriber.poll(), stream.fault)[-1])
        assert "not enough memory" in fault
        trainer.say("again")
        assert trainer.line() == "went on"
    trainer.killed()
