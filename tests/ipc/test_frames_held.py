"""Frames that readers hold stay whole, whatever the writer and other readers do; and readers that die leave nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.frame_programs import NUMBERED, holds_its_number
from support.open_files import open_files
from support.wait import PATIENCE

import splatview
from splatview import publishing
from splatview.ipc import limits
from splatview.ipc.errors import SharingError
from splatview.ipc.source import OwnSource
from splatview.ipc.ways.ring import RingReader, RingWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.programs import Programs

META = {"layout": "HW"}


def image(value: int) -> dict[str, torch.Tensor]:
    return {"image": torch.full((4, 4), value, dtype=torch.uint8)}


class Leases:
    """What readers hold, as a writer sees it."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], int] = {}

    def __call__(self) -> bytes:
        return bytes(slot + 1 for slot in self.cells.values() if slot >= 0)

    def column(self, reader: int) -> Callable[..., None]:
        def lease(slot: int, cell: int = 0) -> None:
            self.cells[reader, cell] = slot

        return lease


@pytest.fixture
def leases() -> Leases:
    return Leases()


@pytest.fixture
def writer(leases: Leases) -> Iterator[RingWriter]:
    made = RingWriter(64, leased=leases)
    made.grows = True
    yield made
    made.close()


def reader_of(writer: RingWriter, leases: Leases, number: int = 0, holds: int = 1) -> RingReader:
    reader = RingReader(writer.segment.ref, OwnSource(), leases.column(number))
    if holds > 1:
        reader.hold_several(holds)
    return reader


# One writer and its readers.

def test_a_reader_may_hold_several_frames(writer: RingWriter, leases: Leases) -> None:
    reader = reader_of(writer, leases, holds=2)
    for version in (1, 2):
        assert writer.write("image", image(version), META, version)
    first = reader.read()
    assert writer.write("image", image(3), META, 3)
    second = reader.read(2)
    assert first is not None
    assert second is not None
    assert (first.version, second.version) == (2, 3)
    for version in range(4, 30):
        assert writer.write("image", image(version), META, version), "one is free beside those and the newest"
    assert first.intact()
    assert second.intact()
    assert (second.tensors["image"].array == 3).all()  # type: ignore[union-attr]
    third = reader.read(3)  # one more than it said: the oldest is not kept any more
    assert third is not None
    for version in range(30, 40):
        writer.write("image", image(version), META, version)
    assert (first.intact(), second.intact(), third.intact()) == (False, True, True)
    first.close()
    second.close()
    third.close()
    assert leases() == b""
    reader.close()


def test_rather_than_overwrite_a_frame_that_is_held_the_writer_asks_for_more_slots(
        writer: RingWriter, leases: Leases) -> None:
    readers, frames = [reader_of(writer, leases, i) for i in range(3)], []
    for version, reader in enumerate(readers, 1):
        assert writer.write("image", image(version), META, version)
        frames.append(reader.read())
    assert not writer.crowded
    assert writer.write("image", image(9), META, 9), "three are held, one was free"
    assert not writer.write("image", image(10), META, 10), "and is the newest now"
    assert writer.crowded
    larger = writer.larger()
    assert larger.slots > writer.slots
    assert larger.capacity == writer.capacity
    for frame in frames:
        assert frame is not None
        assert frame.intact()
        frame.close()
    assert writer.write("image", image(10), META, 10)
    for reader in readers:
        reader.close()
    larger.close()


def test_with_more_held_than_slots_can_be_the_oldest_is_overwritten_and_its_reader_told() -> None:
    held = bytes(range(1, limits.MAX_SLOTS + 1))
    leased = b""
    writer = RingWriter(64, limits.MAX_SLOTS, lambda: leased)
    writer.grows = True
    reader = RingReader(writer.segment.ref, OwnSource(), lambda slot: None)
    assert writer.write("image", image(1), META, 1)
    frame = reader.read()
    assert frame is not None
    leased = held
    for version in range(2, 60):
        assert writer.write("image", image(version), META, version), "it never waits"
    assert not writer.crowded
    assert not frame.intact()
    newest = reader.read(1)
    assert newest is not None
    assert (newest.tensors["image"].array == 59).all()  # type: ignore[union-attr]
    reader.close()
    writer.close()


@pytest.mark.parametrize("prepared", [False, True])
def test_a_lease_that_comes_while_the_slot_is_being_taken_is_seen(prepared: bool) -> None:
    """The reader leases a slot after the writer looked whether it is free, and before the writer goes into it."""
    came: list[int] = []
    asked = 0

    def leased() -> bytes:
        nonlocal asked
        asked += 1
        return bytes(came) if asked > 1 else b""

    writer = RingWriter(64, leased=leased)
    reader = RingReader(writer.segment.ref, OwnSource(), lambda slot: None)
    source = image(0)["image"]
    for version in range(1, 5):
        source.fill_(version)
        assert writer.write("image", {"image": source}, META, version)
    if prepared:
        assert writer.prepare({"image": source}, (source,))
    following = (writer._last + 1) % writer.slots
    frame = reader.read()
    assert frame is not None
    oldest = writer._words[writer._bases[following]], bytes(writer._slot_targets[following][0].flatten().tolist())
    came.append(following + 1)
    asked = 0
    source.fill_(77)
    written = (writer.again((source,), [], META, 5, 0) if prepared
               else writer.write("image", {"image": source}, META, 5))
    assert written
    assert asked > 2, "it looked again when it had gone in"
    assert writer._last != following
    assert oldest == (writer._words[writer._bases[following]],
                      bytes(writer._slot_targets[following][0].flatten().tolist())), "and left it as it was"
    newest = reader.read(4)
    assert newest is not None
    assert (newest.tensors["image"].array == 77).all()  # type: ignore[union-attr]
    reader.close()
    writer.close()


def test_what_is_held_when_a_ring_is_replaced_stays_whole(writer: RingWriter, leases: Leases) -> None:
    reader = reader_of(writer, leases)
    assert writer.write("image", image(7), META, 1)
    frame = reader.read()
    assert frame is not None
    pixels = frame.tensors["image"].array  # type: ignore[union-attr]
    writer.close()
    reader.settle()
    reader.close()
    assert frame.intact()
    assert (pixels == 7).all()
    assert leases() == b"", "slots of the ring that comes are others"
    leases.cells[0, 0] = 2  # another reader has the cell now
    frame.close()
    assert leases.cells[0, 0] == 2


# Whole programs.

def test_many_slow_readers_and_a_fast_writer(programs: Programs) -> None:
    """Each holds its frame for long; none is ever torn, none keeps another or the writer waiting."""
    program = programs.code(NUMBERED.replace("time.sleep(pause)", """
    from splatview import publishing
    if sys.stdin in __import__("select").select([sys.stdin], [], [], pause)[0]:
        sys.stdin.readline()
        stream = publishing._entries[name].stream
        print(stream._outlets["ring"].writer.slots, publishing._publisher.board.counters()["faults"], flush=True)
"""), "it", "0.0005", "0")
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    torn: list[Any] = []
    counts: list[int] = []
    quick, asked = threading.Event(), threading.Event()
    done = threading.Semaphore(0)

    def read(pause: float, least: int) -> None:
        with splatview.frames("it", timeout=PATIENCE) as frames:
            for count, frame in enumerate(frames, 1):
                pixels = frame.numpy()
                upper = pixels[:45].copy()
                time.sleep(pause)
                if not (frame.intact() and holds_its_number(frame) and (upper == pixels[45:]).all()):
                    torn.append((pause, frame))
                if count >= least and (pause == 0 or quick.is_set()):  # all hold one as long as the quick one reads
                    counts.append(count)
                    quick.set()
                    done.release()
                    asked.wait()
                    return

    readers = [threading.Thread(target=read, args=(0.02 * i, 200 if i == 0 else 5), daemon=True) for i in range(9)]
    for reader in readers:
        reader.start()
    for _ in readers:
        assert done.acquire(timeout=PATIENCE)
    assert not torn
    assert len(counts) == 9
    program.stdin.write("slots?\n")
    program.stdin.flush()
    slots, faults = map(int, program.stdout.readline().split())
    asked.set()
    for reader in readers:
        reader.join()
    assert 4 < slots <= limits.MAX_SLOTS
    assert faults == 0


def test_frames_that_are_held_outlive_the_ring_that_they_lie_in(wait_until: Callable[..., Any]) -> None:
    number = 0

    def publish() -> None:
        nonlocal number
        number += 1
        splatview.publish(torch.full((9, 16, 3), number % 251, dtype=torch.uint8), "it", number=number)

    publish()
    outlet = publishing._entries["it"].stream._outlets
    everybody = [splatview.frames("it", timeout=PATIENCE) for _ in range(6)]
    held = []
    for frames in everybody:
        before = number
        publish()
        frame = next(frames)
        while frame.meta["number"] <= before:  # from a ring that was replaced meanwhile
            publish()
            frame = next(frames)
        held.append(frame)
    outlet = publishing._entries["it"].stream._outlets["ring"]

    def grown() -> bool:
        publish()
        return isinstance(outlet.writer, RingWriter) and outlet.writer.slots > 4

    wait_until(grown)
    for _ in range(50):
        publish()
    assert all(frame.intact() and holds_its_number(frame) for frame in held)
    assert len({frame.version for frame in held}) == 6
    for frames in everybody:
        wait_until(lambda frames=frames: next(frames).meta["number"] >= number)
        assert holds_its_number(frames.latest())
        frames.close()


def test_where_more_slots_are_not_to_be_had_it_goes_on_with_those_there_are(
        monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    def refused(self: RingWriter) -> RingWriter:
        raise SharingError("no shared memory, says the test")

    monkeypatch.setattr(RingWriter, "larger", refused)
    number = 0

    def publish() -> None:
        nonlocal number
        number += 1
        splatview.publish(torch.full((9, 16, 3), number % 251, dtype=torch.uint8), "it", number=number)

    publish()
    everybody = [splatview.frames("it", timeout=PATIENCE) for _ in range(5)]
    held = []
    for frames in everybody:
        publish()
        held.append(next(frames))

    def overwritten() -> bool:
        publish()
        return not all(frame.intact() for frame in held)

    wait_until(overwritten)
    assert publishing._publisher is not None
    assert publishing._publisher.board.counters()["faults"] == 1
    for frames in everybody:
        assert holds_its_number(next(frames))
        frames.close()


def test_a_reader_that_is_killed_leaves_nothing_behind(programs: Programs, wait_until: Callable[..., Any]) -> None:
    splatview.publish(torch.zeros(400, 400, 3), "it", number=0)
    stream, board = publishing._entries["it"].stream, publishing._publisher.board  # type: ignore[union-attr]
    with splatview.frames("it", timeout=PATIENCE) as frames:
        next(frames)
    wait_until(lambda: stream.readers == 0)
    before = open_files()
    for moment in ("before", "held", "closed"):
        reader = programs.code("""
import sys, time, splatview
frames = splatview.frames("it", timeout=200)
if sys.argv[1] != "before":
    frame = frames.latest()
    frame.tensor
if sys.argv[1] == "closed":
    frame.close()
print("there", flush=True)
next(frames) if sys.argv[1] != "held" else time.sleep(1000)
""", moment)
        assert reader.stdout is not None
        assert reader.stdout.readline() == "there\n"
        if moment == "held":
            assert any(board.leased(stream.index)())
        os.kill(reader.pid, signal.SIGKILL)
        reader.wait()
        for pipe in (reader.stdin, reader.stdout, reader.stderr):
            assert pipe is not None
            pipe.close()
        wait_until(lambda: stream.readers == 0)
        wait_until(lambda: not any(board.leased(stream.index)()))
        wait_until(lambda: open_files() <= before, what=f"killed {moment}")
        wait_until(lambda: not stream._outlets)
        splatview.publish(torch.ones(400, 400, 3), "it", number=1)
    with splatview.frames("it", timeout=PATIENCE) as frames:
        assert np.asarray(next(frames)).min() == 1
