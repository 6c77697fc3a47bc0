"""Rings that a GPU fills, as far as they can be checked without one: what is whole, what is skipped, who waits."""

from __future__ import annotations

import os
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.open_files import open_files
from support.wait import PATIENCE

import splatview
from splatview.ipc import Subscriber
from splatview.ipc.cuda import driver, retiring
from splatview.ipc.errors import SharingError
from splatview.ipc.frames import DeviceTensor
from splatview.ipc.messages import DeviceRingRef, FdMemory, RingRef, TensorHeader
from splatview.ipc.source import OwnSource
from splatview.ipc.subscriber import can_take
from splatview.ipc.ways.device_ring import DeviceRingReader
from splatview.ipc.ways.gpu_slots import GpuSlotWriter
from splatview.ipc.ways.host import HostWriter
from splatview.ipc.ways.ring import RingReader, RingWriter
from splatview.ipc.ways.slots import SlotWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GPU = "0123456789abcdef" * 2
META = {"layout": "HW"}


class Writer(GpuSlotWriter):
    """A writer whose GPU is the test: `done` comes when `gpu_does` is called."""

    in_segment = False

    def __init__(self, capacity: int, slots: int = 4):
        super().__init__(-1, capacity, slots, bytes)
        self.pending: list[tuple[int, int]] = []

    @property
    def ref(self) -> DeviceRingRef:
        return DeviceRingRef(self.segment.ref, FdMemory("t-1", (self.slots * self.capacity,), GPU))

    def _targets(self, slot: int, headers: tuple[TensorHeader, ...]) -> list[torch.Tensor]:
        return [torch.empty(h.shape) for h in headers]

    def _copy(self, slot: int, targets: list[torch.Tensor], sources: list[torch.Tensor], whole: int) -> None:
        self.pending.append((slot, whole))

    def gpu_does(self, count: int = 1) -> None:
        for _ in range(count):
            self.set_done(*self.pending.pop(0))


class OneMemory(OwnSource):
    """With a memfd in place of GPU memory: nothing here maps it."""

    def descriptors(self, token: str, count: int) -> list[int]:
        return [os.memfd_create("not-cuda", os.MFD_CLOEXEC) for _ in range(count)]


@pytest.fixture
def ring() -> Iterator[tuple[Writer, DeviceRingReader]]:
    before = open_files()
    writer = Writer(100_000)
    reader = DeviceRingReader.make(writer.ref, OneMemory(), lambda slot: None)
    yield writer, reader
    reader.close()
    writer.gpu_does(len(writer.pending))
    writer.close()
    assert retiring.settle()
    assert open_files() <= before


def publish(writer: Any, version: int) -> bool:
    return writer.write("image", {"image": torch.zeros(9, 7)}, META, version)


def test_a_frame_is_there_when_the_gpu_says_so_and_not_before(ring: tuple[Writer, DeviceRingReader]) -> None:
    writer, reader = ring
    assert publish(writer, 1)
    assert reader.read() is None
    writer.gpu_does()
    assert publish(writer, 2)
    frame = reader.read()
    assert frame is not None
    with frame:
        assert (frame.version, frame.on_gpu, frame.intact()) == (1, True, True)
        image = frame.tensors["image"]
        assert isinstance(image, DeviceTensor)
        assert (image.dtype, image.shape, image.strides, image.memory.gpu) == ("float32", (9, 7), (7, 1), GPU)
        assert image.offset + 9 * 7 * 4 <= image.memory.size
    assert reader.read(after=1) is None
    writer.gpu_does()
    second = reader.read(after=1)
    assert second is not None
    assert second.version == 2
    second.close()


def test_a_writer_far_ahead_of_the_gpu_skips_and_leaves_the_newest_frame_alone(
        ring: tuple[Writer, DeviceRingReader]) -> None:
    writer, reader = ring
    assert publish(writer, 1)
    writer.gpu_does()
    frame = reader.read()
    assert frame is not None
    taken = [publish(writer, version) for version in range(2, 12)]
    assert taken == [True] * 3 + [False] * 7
    assert frame.intact()
    assert reader.read(after=1) is None
    writer.gpu_does(2)
    newer = reader.read(after=1)
    assert newer is not None
    assert newer.version == 3
    frame.close()
    newer.close()


def test_a_frame_outlives_its_reader(ring: tuple[Writer, DeviceRingReader]) -> None:
    writer, _ = ring
    reader = DeviceRingReader.make(writer.ref, OneMemory(), lambda slot: None)
    publish(writer, 1)
    writer.gpu_does()
    frame = reader.read()
    assert frame is not None
    image = frame.tensors["image"]
    assert isinstance(image, DeviceTensor)
    (piece,) = image.memory.pieces
    reader.close()
    os.fstat(piece.fd)
    frame.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(piece.fd)


def test_rings_that_do_not_fit_their_memory_are_refused() -> None:
    writer = Writer(100_000)
    before = open_files()
    small = DeviceRingRef(writer.segment.ref, FdMemory("t-1", (writer.capacity,), GPU))
    with pytest.raises(SharingError, match=r"4 slots of \d+ bytes were announced in \d+ bytes"):
        DeviceRingReader.make(small, OneMemory(), lambda slot: None)
    with pytest.raises(SharingError, match="announced as RingRef"):
        DeviceRingReader.make(RingRef(writer.segment.ref), OneMemory(), lambda slot: None)
    assert open_files() <= before
    writer.close()


@pytest.fixture
def host() -> Iterator[HostWriter]:
    writer = HostWriter(-1, 1 << 20)  # -1 is what torch calls the CPU: there is nothing to pin memory for
    yield writer
    writer.close()
    assert retiring.settle()


def test_where_memory_cannot_be_pinned_copies_are_plain_and_it_is_said(host: HostWriter) -> None:
    image = torch.rand(50, 60).t()
    before = host.ref
    assert host._ready.wait(PATIENCE)
    assert host.write("image", {"image": image}, META, 1, lambda: True)
    assert host.note.startswith("copies wait for the GPU: ")
    assert host.ref == before
    assert host.ref is not before, "viewers are told again"
    reader = RingReader.make(host.ref, OneMemory(), lambda slot: None)
    frame = reader.read()
    assert frame is not None
    assert torch.equal(torch.from_numpy(frame.tensors["image"].to_float32()), image)
    frame.close()
    reader.close()


def test_copies_through_the_host_are_spaced(host: HostWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("splatview.ipc.ways.host.time", SimpleNamespace(monotonic=lambda: now[0]))
    assert host._ready.wait(PATIENCE)

    set_done = host.set_done

    def slowly(slot: int, whole: int) -> None:
        now[0] += 0.02
        set_done(slot, whole)

    monkeypatch.setattr(host, "set_done", slowly)  # the last thing that a plain copy does
    assert publish(host, 1)
    now[0] = 100.15
    assert not publish(host, 2)
    now[0] = 100.21
    assert publish(host, 3)


def test_nobody_waits_until_memory_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(HostWriter, "_pin", lambda self, size: go_on.wait(PATIENCE))
    writer = HostWriter(-1, 1 << 20)
    begun = time.monotonic()
    assert not publish(writer, 1)
    assert not writer.write("image", {"image": torch.zeros(9, 7)}, META, 1, lambda: True)
    writer.close()
    assert time.monotonic() - begun < PATIENCE / 2
    assert not retiring.settle(0.05), "its memory stays while it is being pinned"
    go_on.set()
    assert retiring.settle()


def test_a_host_writer_takes_only_tensors_that_fit_and_of_its_device(host: HostWriter) -> None:
    assert host.fits({"a": torch.zeros(10)})
    assert not host.fits({"a": torch.zeros(1 << 19)})
    host.index = 0
    assert not host.fits({"a": torch.zeros(10)})
    host.index = -1
    with pytest.raises(SharingError, match="takes CUDA tensors"):
        HostWriter.make({"a": torch.zeros(10)}, 1.0, bytes)


def test_what_is_worse_about_a_way_than_usually_reaches_its_viewers_once_it_is_known(
        monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    monkeypatch.setattr(RingWriter, "prepare", SlotWriter.prepare)  # it speaks in `write`, as the way host does
    splatview.publish(torch.zeros(8, 8, 3), "picture")
    with Subscriber() as subscriber:
        def found() -> Any:
            subscriber.poll()
            return next(iter(subscriber.streams), None)

        def read(after: int) -> Any:
            subscriber.poll()
            return stream.read(after)

        stream = wait_until(found)
        stream.open()
        wait_until(lambda: read(0)).close()
        assert stream.fallback == ""
        reader = stream._reader
        write = SlotWriter.write

        def noting(writer: Any, *args: Any) -> bool:
            writer.note = "it is slow today"
            writer._ref = RingRef(writer.segment.ref)
            return write(writer, *args)

        monkeypatch.setattr(SlotWriter, "write", noting)
        splatview.publish(torch.ones(8, 8, 3), "picture")
        wait_until(lambda: read(1)).close()

        def told() -> bool:
            subscriber.poll()
            return stream.fallback == "ring: it is slow today"

        wait_until(told)
        assert stream._reader is reader, "the same memory is not opened again"


@pytest.mark.parametrize("old", [0, 2, 2**32 - 4, 2**32 - 2, 2**32, 2**40 - 2, 2**63 - 4])
def test_a_number_written_in_halves_is_never_taken_for_another(monkeypatch: pytest.MonkeyPatch, old: int) -> None:
    memory = bytearray(old.to_bytes(8, "little"))
    seen = []

    def memset(index: int, stream: int, name: str, address: int, value: int, count: int, on: Any) -> None:
        assert (index, stream, name, count, on) == (0, 5, "cuMemsetD32Async", 1, "stream 5")
        memory[address - 4096 : address - 4092] = value.to_bytes(4, "little")
        seen.append(int.from_bytes(memory, "little"))

    monkeypatch.setattr(driver, "stream_writes", lambda index: False)
    monkeypatch.setattr(driver, "stream_object", lambda stream: f"stream {stream}")
    monkeypatch.setattr(driver, "in_stream", memset)
    new = old + 2
    driver.write_value(0, 5, 4096, new)
    between, last = seen
    assert last == new
    assert between not in (new - 1, new), "what the sequence number may be meanwhile"


def test_a_gpu_that_opengl_draws_on_needs_no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(driver, "device_of", asked.append)
    assert can_take("device-ring", GPU, GPU)
    assert can_take("host", GPU)
    assert can_take("ring", "")
    assert not asked
    assert not can_take("device-ring", GPU, "f" * 32)
    assert not can_take("device-ring", GPU)
    assert asked == [GPU, GPU]
