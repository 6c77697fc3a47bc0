"""Memory for a viewer that attaches: made by the helper thread, outside of `publish` and its lock, bounded, and refused
where it does not fit."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.frames import host_array
from support.wait import PATIENCE

import splatview
from splatview import publishing
from splatview.ipc import Subscriber, free_memory, provision
from splatview.ipc.errors import SharingError
from splatview.ipc.offered import Offered
from splatview.ipc.segments import PAGE, Segment
from splatview.ipc.ways.layout import LARGE, room_for, slots_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.programs import Programs

    from splatview.ipc import Frame, RemoteStream, Stream

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


def shared() -> int:
    """Bytes of shared memory that this process has allocated for frames."""
    return sum(size for inode, size in _rings().items() if inode not in _before)


_before: frozenset[int] = frozenset()
"""Memory that a test before this one has left to the garbage collector."""


@pytest.fixture(autouse=True)
def nothing_before() -> None:
    global _before
    _before = frozenset(_rings())


def _rings() -> dict[int, int]:
    """By number of the file: allocated bytes."""
    found: dict[int, int] = {}
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            path = f"/proc/self/fd/{fd}"
            if os.readlink(path).startswith("/memfd:splatview-ring"):
                info = os.stat(path)
                found[info.st_ino] = info.st_blocks * 512
    return found


class Gate:
    """Keeps whoever makes memory waiting, and notes which thread that is and whether the stream was locked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.made: list[tuple[int, int, bool]] = []
        """Thread, bytes, and whether it held the lock of a stream."""
        self.peak = 0
        """Bytes of shared memory that were allocated at a time, at most."""
        self.open = threading.Event()
        self.reached = threading.Event()
        self.open.set()
        before, init = Segment.reserve, Segment.__init__

        def reserve(segment: Segment, count: int) -> bool:
            self._note(segment.size)
            self.reached.set()
            assert self.open.wait(PATIENCE)
            done = before(segment, count)
            self.peak = max(self.peak, shared())
            return done

        def made(segment: Segment, *args: Any) -> None:
            init(segment, *args)
            if segment.token.startswith("ring"):
                self._note(segment.reserved)

        monkeypatch.setattr(Segment, "reserve", reserve)
        monkeypatch.setattr(Segment, "__init__", made)

    def _note(self, size: int) -> None:
        publisher = publishing.begun()
        streams = [] if publisher is None else publisher.streams.values()
        self.made.append((threading.get_ident(), size, any(s._is_mine() for s in streams)))


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
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
                for value in range(first + 1, first + 6):
                    publish(value, side)  # if it waited, it would do so for ever
            else:
                publish(first + 5, side)
            assert remote.version == published().version
            gate.open.set()
            frame_of(subscriber, first + 5, wait_until).close()  # without any other call
    helper = published_by = publishing.begun()._helper._thread.ident  # type: ignore[union-attr]
    assert gate.made
    assert {thread for thread, _, _ in gate.made} == {helper}, f"{published_by} is the only one that makes memory"
    assert not any(locked for _, _, locked in gate.made)


def test_more_slots_are_made_outside_of_publish_as_well(gate: Gate, wait_until: Callable[..., Any]) -> None:
    publish(1)
    with contextlib.ExitStack() as stack:
        viewers = [stack.enter_context(Subscriber()) for _ in range(5)]
        held = []
        for value, viewer in enumerate(viewers, 2):
            publish(value)
            held.append(frame_of(viewer, value, wait_until))

        def grown() -> bool:
            publish(99)
            return published()._outlets["ring"].writer.slots > 4  # type: ignore[union-attr]

        wait_until(grown)
        assert all(whole(frame, value) for value, frame in enumerate(held, 2))
    helper = publishing.begun()._helper._thread.ident  # type: ignore[union-attr]
    assert {thread for thread, _, _ in gate.made} == {helper}
    assert not any(locked for _, _, locked in gate.made)


@pytest.mark.parametrize("frame", [LARGE + 1, 100 * MB, 600 * MB, 40 * 10**9])
@pytest.mark.parametrize("growing", [False, True], ids=["of one size", "growing"])
def test_slots_of_large_frames_take_less_than_2_2_frames(frame: int, growing: bool) -> None:
    capacity = room_for(frame, growing)
    assert capacity >= frame
    slots = slots_for(capacity)
    assert (slots, slots_for(capacity, 3)) == (2, 3), "a GPU that copies has one more"
    assert 2 * PAGE + slots * (capacity + 2 * PAGE) <= 2.2 * frame


@pytest.mark.parametrize("frame", [0, 1, 1000, 40 * MB, LARGE - 1, LARGE])
def test_slots_of_other_frames_are_four_with_room_to_grow(frame: int) -> None:
    assert frame <= room_for(frame, True) <= max(1.5 * frame, 1)
    assert slots_for(room_for(frame, True)) == slots_for(room_for(frame, False)) == 4


@pytest.mark.exhaustive  # quick: the model of leases
def test_a_large_frame_takes_two_slots_whoever_holds_what(gate: Gate, wait_until: Callable[..., Any]) -> None:
    size = SIDE * SIDE
    publish(1, SIDE)
    with Subscriber() as slow, Subscriber() as other, Subscriber() as third:
        held = frame_of(slow, 1, wait_until)
        for value in range(2, 8):  # what is held leaves one slot, which all newer versions go through
            publish(value, SIDE)
            frame_of(other, value, wait_until).close()
        assert whole(held, 1)
        newest = frame_of(third, 7, wait_until)
        for value in range(8, 12):  # no slot is left: versions are skipped
            publish(value, SIDE)
        assert whole(held, 1)
        assert whole(newest, 7)
        assert shared() <= 2.2 * size
        held.close()
        frame_of(other, 11, wait_until).close()  # without another call
        assert whole(newest, 7)
        newest.close()
    assert gate.peak <= 2.2 * size
    assert publishing.begun().board.counters()["faults"] == 0  # type: ignore[union-attr]


@pytest.mark.exhaustive
def test_a_large_ring_is_given_back_before_another_is_made(gate: Gate, wait_until: Callable[..., Any]) -> None:
    size = SIDE * SIDE
    publish(1, SIDE)
    with Subscriber() as subscriber, Subscriber() as other:
        held = frame_of(subscriber, 1, wait_until)
        frame_of(other, 1, wait_until).close()
        gate.peak = 0
        publish(2, SIDE + 500)
        frame_of(other, 2, wait_until).close()
        larger = (SIDE + 500) ** 2
        assert 2 * larger < gate.peak <= 2.2 * larger + size * 1.05, "the slot that is held stays, the other does not"
        assert whole(held, 1)
        held.close()
        frame_of(subscriber, 2, wait_until).close()
        wait_until(lambda: (subscriber.poll(), other.poll(), shared() <= 2.2 * larger)[-1])


@pytest.mark.exhaustive
def test_memory_of_large_frames_is_given_back_when_frames_are_small(
        monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    monkeypatch.setattr(provision, "ROOMY", 0.05)
    publish(1, SIDE + 1000)
    with Subscriber() as subscriber:
        frame_of(subscriber, 1, wait_until).close()
        for value in range(2, 5):
            publish(value, 100)
            frame_of(subscriber, value, wait_until).close()
        wait_until(lambda: published()._outlets["ring"].writer is not None and shared() < 10 * MB)
        frame_of(subscriber, 4, wait_until).close()
        assert publishing.begun().board.counters()["faults"] == 0  # type: ignore[union-attr]


class Meminfo:
    """What /proc/meminfo says is free, for all that asks."""

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
        meminfo: Meminfo, caplog: pytest.LogCaptureFixture, wait_until: Callable[..., Any]) -> None:
    meminfo.is_free(5 * MB)
    publish(1, 1200)  # four slots take 6 MB
    with Subscriber() as subscriber, caplog.at_level(logging.WARNING, "splatview"):
        stream = opened(subscriber, wait_until)
        fault = wait_until(lambda: (subscriber.poll(), stream.fault)[-1])
        assert fault.startswith("ring: not enough memory: the frames need 6 MB, and 6 MB stay free for the training, "
                                "but 5 MB are left. Free some memory, or publish less at once")
        with Subscriber() as late:  # one that finds it so
            assert wait_until(lambda: (late.poll(), opened(late, wait_until).fault)[-1]) == fault
        for value in range(2, 30):
            publish(value, 1200)
            time.sleep(0.01)
        assert (stream.version, stream.read()) == (29, None)
        assert shared() == 0
        meminfo.is_free(100 * MB)
        frame_of(subscriber, 29, wait_until).close()
        assert stream.fault is None
        publish(30, 1200)
        frame_of(subscriber, 30, wait_until).close()
    assert len(caplog.records) == 1, "said once"
    assert "stream 'image' is not shown: not enough memory" in caplog.text
    assert publishing.begun().board.counters()["faults"] == 1  # type: ignore[union-attr]


def test_memory_is_measured_for_the_value_that_is_there_while_another_comes(
        meminfo: Meminfo, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    """A smaller value is described, not yet published, when memory for the larger is refused again."""
    refusals = []
    refuse = provision._refuse
    monkeypatch.setattr(provision, "_refuse", lambda *args: (refuse(*args), refusals.append(args)))
    meminfo.is_free(5 * MB)
    publish(1, 1200)
    with Subscriber() as subscriber:
        stream = opened(subscriber, wait_until)
        wait_until(lambda: (subscriber.poll(), stream.fault)[-1])
        offered = published()._offered
        order = offered.order

        def slowly() -> None:
            order()
            if threading.current_thread() is threading.main_thread():
                before = len(refusals)
                wait_until(lambda: len(refusals) > before + 1, what="the memory is refused again")

        monkeypatch.setattr(offered, "order", slowly)
        publish(2, 100)
        frame_of(subscriber, 2, wait_until).close()
        wait_until(lambda: (subscriber.poll(), stream.fault is None)[-1])


def test_what_is_offered_is_settled_from_what_another_thread_changes_meanwhile() -> None:
    offered = Offered("image")

    class Short(dict[str, str]):
        def __contains__(self, way: object) -> bool:
            was = super().__contains__(way)
            if was:  # here the helper thread finds that there is memory again
                self.clear()
                offered.order()
            return was

    offered.short = Short(ring="too little")
    offered.order()
    assert offered.ways == ("ring",)


def test_a_frame_that_became_smaller_is_shown_where_the_larger_was_refused(
        meminfo: Meminfo, wait_until: Callable[..., Any]) -> None:
    meminfo.is_free(5 * MB)
    publish(1, 1200)
    with Subscriber() as subscriber:
        stream = opened(subscriber, wait_until)
        wait_until(lambda: (subscriber.poll(), stream.fault)[-1])
        publish(2, 100)
        frame_of(subscriber, 2, wait_until).close()
        assert stream.fault is None
        publish(3, 2400)
        assert "need 35 MB" in wait_until(lambda: (subscriber.poll(), stream.fault)[-1]), "with room to grow"
        publish(4, 100)  # the memory for these is still there
        frame_of(subscriber, 4, wait_until).close()
        wait_until(lambda: (subscriber.poll(), stream.fault is None)[-1])


def test_memory_that_is_taken_by_others_meanwhile_is_given_back(
        meminfo: Meminfo, gate: Gate, wait_until: Callable[..., Any]) -> None:
    meminfo.is_free(1000 * MB)
    publish(1, SIDE)
    with Subscriber() as subscriber:
        gate.open.clear()
        stream = opened(subscriber, wait_until)
        assert gate.reached.wait(PATIENCE)
        meminfo.is_free(50 * MB)
        gate.open.set()
        assert "50 MB are left" in wait_until(lambda: (subscriber.poll(), stream.fault)[-1])
        wait_until(lambda: shared() == 0)
        publish(2, SIDE)
        meminfo.is_free(1000 * MB)
        frame_of(subscriber, 2, wait_until).close()


LIMITED = """
import resource, sys, torch, splatview
from splatview import publishing
image = torch.full((6000, 6000), 7, dtype=torch.uint8)  # 4 slots take 144 MB
splatview.publish(image, "image", step=7)
size = int(open("/proc/self/status").read().split("VmSize:")[1].split()[0]) << 10
resource.setrlimit(resource.RLIMIT_AS, (size + 100_000_000, resource.RLIM_INFINITY))
print("published", flush=True)
for line in sys.stdin:
    if line == "more\\n":
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    splatview.publish(image, "image", step=7)
    print("went on", flush=True)
"""
"""A trainer whose address space has no room for a ring, until it is told that there is."""


def test_a_trainer_whose_address_space_is_limited_goes_on(
        programs: Programs, wait_until: Callable[..., Any]) -> None:
    trainer = programs.code(LIMITED)
    assert trainer.stdout is not None
    assert trainer.stdin is not None

    def goes_on(order: str) -> None:
        print(order, file=trainer.stdin, flush=True)
        assert trainer.stdout.readline() == "went on\n"  # type: ignore[union-attr]

    assert trainer.stdout.readline() == "published\n"
    with Subscriber() as subscriber:
        stream = opened(subscriber, wait_until)
        assert "the frames need 145 MB" in wait_until(lambda: (subscriber.poll(), stream.fault)[-1])
        goes_on("again")
        assert stream.read() is None
        goes_on("more")
        frame_of(subscriber, 7, wait_until).close()


CGROUP = Path("/sys/fs/cgroup/memory")
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
    version_2 = not CGROUP.is_dir()
    folder = (Path("/sys/fs/cgroup") if version_2 else CGROUP) / f"splatview-test-{os.getpid()}"
    limit = "memory.max" if version_2 else "memory.limit_in_bytes"
    try:
        folder.mkdir()
    except OSError as e:
        pytest.skip(f"no cgroup can be made here: {e}")
    try:
        (folder / limit).write_text(str(150 * MB))
    except OSError as e:
        folder.rmdir()
        pytest.skip(f"a cgroup's memory cannot be limited here: {e}")
    yield folder
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            folder.rmdir()
            break
        except OSError:  # its process ends
            time.sleep(0.05)


def test_a_trainer_whose_cgroup_is_full_is_not_killed(
        cgroup: Path, programs: Programs, wait_until: Callable[..., Any]) -> None:
    trainer = programs.code(IN_CGROUP, str(cgroup))
    assert trainer.stdout is not None
    assert trainer.stdin is not None
    assert trainer.stdout.readline() == "published\n"
    with Subscriber() as subscriber:
        stream = opened(subscriber, wait_until)
        fault = wait_until(lambda: (subscriber.poll(), stream.fault)[-1])
        assert "not enough memory" in fault
        print("again", file=trainer.stdin, flush=True)
        assert trainer.stdout.readline() == "went on\n"
    trainer.kill()
    trainer.wait()


def test_a_segment_is_allocated_part_by_part() -> None:
    segment = Segment(40 * PAGE, "ring", PAGE)
    try:
        assert os.fstat(segment.fd).st_blocks * 512 == PAGE
        segment.map[:3] = b"abc"
        assert not segment.reserve(10 * PAGE)
        assert os.fstat(segment.fd).st_blocks * 512 == 11 * PAGE
        assert segment.reserve(100 * PAGE)
        assert segment.reserve(PAGE), "all is there"
        assert os.fstat(segment.fd).st_blocks * 512 == 40 * PAGE
        assert segment.map[:5] == b"abc\0\0"
        segment.free(20 * PAGE, 5 * PAGE)
        assert os.fstat(segment.fd).st_blocks * 512 == 35 * PAGE
        assert segment.map[20 * PAGE] == 0
    finally:
        segment.close()


def test_a_segment_is_mapped_by_writing_where_the_kernel_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatview.ipc.segments._MADV_POPULATE_WRITE", 9999)  # which no kernel knows
    segment = Segment(40 * PAGE, "ring", PAGE)
    try:
        segment.map[:3] = b"abc"
        assert segment.reserve(100 * PAGE)
        assert segment.map[:5] == b"abc\0\0"
    finally:
        segment.close()


def test_a_segment_that_is_not_to_be_had_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    segment = Segment(40 * PAGE, "ring", PAGE)
    monkeypatch.setattr(os, "posix_fallocate", full)
    try:
        with pytest.raises(SharingError, match=r"no shared memory for 2.6 MB .*No space left"):
            segment.reserve(PAGE)
    finally:
        segment.close()


def test_a_helper_thread_that_is_held_up_closes_its_sockets_when_it_ends(
        gate: Gate, wait_until: Callable[..., Any]) -> None:
    """ZeroMQ waits without end for sockets that are left open when their context is collected."""
    publish(1)
    with Subscriber() as subscriber:
        gate.open.clear()
        opened(subscriber, wait_until)
        assert gate.reached.wait(PATIENCE)
        helper = publishing.begun()._helper  # type: ignore[union-attr]
        splatview.close()  # which does not wait for it
        assert helper._thread.is_alive()
        gate.open.set()
        helper._thread.join(PATIENCE)
        assert not helper._thread.is_alive()
        assert helper._door._mailroom._context is None
