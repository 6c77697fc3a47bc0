"""Segments and rings of slots beyond what all ways have in common: values and strides, what is held, GPUs that copy."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.open_files import open_files
from support.wait import PATIENCE, turns

from splatview.ipc.cuda import driver, retiring
from splatview.ipc.errors import SharingError
from splatview.ipc.frames import DeviceTensor
from splatview.ipc.messages import DeviceRingRef, FdMemory, RingRef, TensorHeader
from splatview.ipc.segments import PAGE, Segment
from splatview.ipc.source import OwnSource
from splatview.ipc.subscriber import can_take
from splatview.ipc.ways.device_ring import DeviceRingReader
from splatview.ipc.ways.gpu_slots import GpuSlotWriter
from splatview.ipc.ways.host import HostWriter
from splatview.ipc.ways.ring import RingReader, RingWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

GPU = "0123456789abcdef" * 2
META = {"layout": "HW"}


@pytest.fixture
def ring() -> Iterator[tuple[RingWriter, RingReader]]:
    writer = RingWriter(200_000)
    reader = RingReader(writer.segment.ref, OwnSource(), lambda slot: None)
    yield writer, reader
    reader.close()
    writer.close()


@pytest.mark.parametrize("image", [
    *(torch.arange(60).reshape(10, 6).to(dtype) for dtype in (torch.float16, torch.bfloat16, torch.float32)),
    torch.arange(60, dtype=torch.uint8).reshape(10, 6).t(),
    torch.arange(60, dtype=torch.uint8).reshape(10, 6)[::2, 1:4],
    torch.arange(6, dtype=torch.uint8).expand(5, 6), torch.arange(60, dtype=torch.uint8)[7:].reshape(1, 53),
], ids=["float16", "bfloat16", "float32", "transposed", "a part", "repeated", "from its middle"])
def test_values_of_any_dtype_and_strides_and_metadata_arrive(
        ring: tuple[RingWriter, RingReader], image: torch.Tensor) -> None:
    writer, reader = ring
    meta = {"layout": "HW", "step": 12, "note": "é", "ok": True, "lr": 0.5}
    writer.write("image", {"image": image}, meta, 5)
    frame = reader.read()
    assert frame is not None
    with frame:
        assert (frame.version, frame.meta) == (5, meta)
        assert np.array_equal(frame.tensors["image"].to_float32(), image.float().numpy())


# ---- segments


def test_segments_are_sealed_and_told_apart() -> None:
    writer = RingWriter(64)
    ref = writer.segment.ref
    for size in (10, ref.size * 2):
        with pytest.raises(PermissionError):
            os.ftruncate(writer.segment.fd, size)
    writer.close()
    with pytest.raises(SharingError):
        RingReader(ref, OwnSource(), lambda slot: None)


def test_a_segment_is_allocated_part_by_part() -> None:
    segment = Segment(40 * PAGE, "ring", PAGE)
    try:
        assert os.fstat(segment.fd).st_blocks * 512 == PAGE
        segment.map[:3] = b"abc"
        assert not segment.reserve(10 * PAGE)
        assert os.fstat(segment.fd).st_blocks * 512 == 11 * PAGE
        assert segment.reserve(100 * PAGE)
        assert segment.reserve(PAGE), "all is there"
        assert segment.map[:5] == b"abc\0\0"
        segment.free(20 * PAGE, 5 * PAGE)
        assert os.fstat(segment.fd).st_blocks * 512 == 35 * PAGE
        assert segment.map[20 * PAGE] == 0
    finally:
        segment.close()


def test_a_reader_at_its_limit_of_open_files_names_the_limit() -> None:
    writer = RingWriter(4096)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.open("/dev/null", os.O_RDONLY)  # the lowest free number
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe + 1, hard))  # the segment can be opened, and not be mapped
    try:
        with pytest.raises(SharingError, match=r"cannot map .* limit of open files"):
            RingReader(writer.segment.ref, OwnSource(), lambda slot: None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    RingReader(writer.segment.ref, OwnSource(), lambda slot: None).close()
    writer.close()


# ---- rings that a GPU fills


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
def gpu_ring() -> Iterator[tuple[Writer, DeviceRingReader]]:
    before = open_files()
    writer = Writer(100_000)
    reader = DeviceRingReader.make(writer.ref, OneMemory(), lambda slot: None)
    yield writer, reader
    reader.close()
    writer.gpu_does(len(writer.pending))
    writer.close()
    assert retiring.settle(PATIENCE)
    assert open_files() <= before


def publish(writer: Any, version: int) -> bool:
    return writer.write("image", {"image": torch.zeros(9, 7)}, META, version)


def test_a_frame_is_there_when_the_gpu_says_so_and_not_before(gpu_ring: tuple[Writer, DeviceRingReader]) -> None:
    writer, reader = gpu_ring
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
        gpu_ring: tuple[Writer, DeviceRingReader]) -> None:
    writer, reader = gpu_ring
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


def test_rings_that_do_not_fit_their_memory_are_refused() -> None:
    writer = Writer(100_000)
    before = open_files()
    small = DeviceRingRef(writer.segment.ref, FdMemory("t-1", (writer.capacity,), GPU))
    for ref in (small, RingRef(writer.segment.ref)):
        with pytest.raises(SharingError):
            DeviceRingReader.make(ref, OneMemory(), lambda slot: None)
    assert open_files() <= before
    writer.close()


def test_where_memory_cannot_be_pinned_copies_are_plain_and_viewers_learn_why() -> None:
    host = HostWriter(-1, 1 << 20)  # -1 is what torch calls the CPU: there is nothing to pin memory for
    before, image = host.ref, torch.rand(50, 60).t()
    for _ in turns("the memory is not pinned"):
        if host.write("image", {"image": image}, META, 1):
            break
    assert host.note
    assert host.ref == before
    assert host.ref is not before, "the reference is sent again"
    reader = RingReader.make(host.ref, OwnSource(), lambda slot: None)
    frame = reader.read()
    assert frame is not None
    assert torch.equal(torch.from_numpy(frame.tensors["image"].to_float32()), image)
    frame.close()
    reader.close()
    host.close()
    assert retiring.settle(PATIENCE)


@pytest.mark.parametrize("old", [0, 2**32 - 4, 2**32 - 2, 2**63 - 4])
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
    assert asked == [GPU]
