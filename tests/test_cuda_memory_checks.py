"""GPU memory, as far as it can be checked without a GPU: what is refused, what is closed, who waits for whom."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from ipc.cuda import driver, export, memory, retiring
from ipc.cuda.export import describe
from ipc.cuda.tensors import check_within, contiguous, span
from ipc.errors import SharingError
from ipc.frames import DeviceTensor
from ipc.messages import DeviceRingRef, FdMemory, IpcMemory, RingRef, TensorHeader
from ipc.segments import open_segment
from ipc.ways.device_ring import DeviceRingReader
from ipc.ways.gpu_slots import GpuSlotWriter
from ipc.ways.host import HostWriter
from ipc.ways.ring import RingReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipc.messages import SegmentRef

GPU = "0123456789abcdef" * 2
META = {"layout": "HW"}
without_driver = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def some_fd() -> int:
    return os.memfd_create("not-cuda", os.MFD_CLOEXEC)


def test_importing_it_loads_neither_torch_nor_the_bindings() -> None:
    program = ("import sys, ipc.cuda.memory, ipc.cuda.export, ipc.cuda.events, ipc.cuda.retiring; "
               "print([m for m in ('torch', 'numpy', 'cuda.bindings', 'zmq') if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@without_driver
@pytest.mark.parametrize("ask", [
    lambda: driver.gpu_uuid(0), lambda: driver.device_of(GPU), lambda: driver.here(GPU),
    lambda: driver.primary_context(0), lambda: memory.Allocation(1 << 20, 0), lambda: driver.register_host(0, 1, 0)])
def test_without_a_driver_the_error_says_so(ask: Any) -> None:
    with pytest.raises(SharingError, match="no NVIDIA driver"):
        ask()


@without_driver
def test_without_cuda_there_is_only_the_default_stream() -> None:
    assert driver.current_stream(0) == 0
    assert not driver.is_capturing()


def test_errors_name_the_call_and_say_what_to_do() -> None:
    error = driver.CudaError("cuMemCreate", "CUDA_ERROR_OUT_OF_MEMORY")
    assert str(error) == ("cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (the GPU's memory is full; free some, or publish "
                          "less at once)")
    assert isinstance(error, SharingError)


@pytest.mark.parametrize("make", [
    lambda t: t, lambda t: t[::2, 1:4], lambda t: t.t(), lambda t: t[0], lambda t: t[3:3], lambda t: t[5, 2],
    lambda t: t[1].expand(4, 6)])
def test_span_is_what_a_tensor_reaches_over(make: Any) -> None:
    t = make(torch.arange(60).reshape(10, 6))
    flat = set(t.flatten().tolist())
    assert span(t.shape, t.stride()) == (max(flat) - min(flat) + 1 if flat else 0)


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (4, 1, 3), (2, 0, 3)])
def test_contiguous_strides_are_those_of_torch(shape: tuple[int, ...]) -> None:
    assert contiguous(shape) == torch.empty(shape).stride()


def test_a_tensor_must_lie_within_its_memory() -> None:
    check_within("float32", (4, 5), (5, 1), 20, 100)
    check_within("uint8", (0, 5), (5, 1), 100, 100)


@pytest.mark.parametrize(("dtype", "shape", "strides", "offset"), [
    ("float32", (4, 5), (5, 1), 24), ("float32", (4, 5), (6, 1), 20), ("uint8", (1,), (1,), -1),
    ("float32", (1,), (1,), 2), ("uint8", (2,), (-1,), 1), ("uint8", (2,), (1, 1), 0), ("int64", (1,), (1,), 0),
    ("uint8", (1 << 40, 1 << 40), (1 << 40, 1), 0)])
def test_a_tensor_outside_its_memory_is_refused(dtype: str, shape: tuple[int, ...], strides: tuple[int, ...],
                                                offset: int) -> None:
    with pytest.raises(SharingError):
        check_within(dtype, shape, strides, offset, 100)


@pytest.mark.parametrize(("pieces", "count", "says"), [
    ((4096,), 0, "1 pieces came with 0 descriptors"), ((4096, 4096), 1, "2 pieces came with 1 descriptors"),
    ((0,), 1, "pieces of 0 bytes"), ((1 << 42, 1), 2, "legal are 1 to")])
def test_pieces_that_do_not_fit_are_refused_and_their_descriptors_closed(
        pieces: tuple[int, ...], count: int, says: str) -> None:
    before = open_fds()
    with pytest.raises(SharingError, match=says):
        memory.open_memory(FdMemory("t-1", pieces, GPU), [some_fd() for _ in range(count)])
    assert open_fds() == before


@pytest.mark.parametrize(("handle", "size", "fds"), [(b"x" * 63, 4096, 0), (b"x" * 64, 0, 0), (b"x" * 64, 4096, 1)])
def test_handles_that_cannot_be_are_refused(handle: bytes, size: int, fds: int) -> None:
    before = open_fds()
    with pytest.raises(SharingError):
        memory.open_memory(IpcMemory(handle, size, GPU), [some_fd() for _ in range(fds)])
    assert open_fds() == before


def test_memory_keeps_its_descriptors_until_the_last_share_is_gone() -> None:
    before = open_fds()
    opened = memory.open_memory(FdMemory("t-1", (4096, 8192), GPU), [some_fd(), some_fd()])
    assert (opened.size, opened.gpu) == (12288, GPU)
    assert [piece.size for piece in opened.pieces] == [4096, 8192]
    share, other = opened.hold(), opened.hold()
    opened.close()
    opened.close()
    assert open_fds() == before + 2
    share.close()
    share.close()
    assert open_fds() == before + 2
    del other
    assert open_fds() == before
    with pytest.raises(SharingError, match="closed"):
        opened.hold()
    with pytest.raises(SharingError, match="closed"):
        opened.pointer()


def test_memory_of_a_gpu_that_is_not_here_cannot_be_mapped() -> None:
    opened = memory.open_memory(FdMemory("t-1", (1 << 21,), GPU), [some_fd()])
    with pytest.raises(SharingError):
        opened.pointer()
    with pytest.raises(SharingError, match="does not lie within"):
        opened.tensor("float32", (1 << 20,), (1,), 0)
    opened.close()


@pytest.mark.parametrize("tensors", [{}, {"a": torch.zeros(3)}])
def test_only_cuda_tensors_are_described(tensors: dict[str, torch.Tensor]) -> None:
    with pytest.raises(SharingError, match="one CUDA device at a time"):
        describe(tensors)


class Mapped:
    """What a driver would say of chunks mapped at some addresses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, chunks: dict[int, int], mapping: str = "known"):
        self.chunks, self.mapping = chunks, mapping
        monkeypatch.setattr(driver, "pointer_attribute", self.attribute)
        monkeypatch.setattr(driver, "handle", self.retain)
        monkeypatch.setattr(driver, "release", lambda name, *args: "")

    def find(self, address: int) -> tuple[int, int] | None:
        return next(((base, size) for base, size in self.chunks.items() if base <= address < base + size), None)

    def attribute(self, attribute: int, address: int) -> int:
        chunk = self.find(address)
        if chunk is None or (self.mapping == "refused" and attribute in (18, 19)):
            raise driver.CudaError("cuPointerGetAttribute", "CUDA_ERROR_INVALID_VALUE")
        if self.mapping == "whole reservation":
            chunk = min(self.chunks), 1 << 37
        return {14: 1, 18: chunk[1], 19: chunk[0]}.get(attribute, 0)

    def retain(self, name: str, address: int) -> int:
        assert name == "cuMemRetainAllocationHandle"
        chunk = self.find(address)
        if chunk is None:
            raise driver.CudaError(name, "CUDA_ERROR_INVALID_VALUE")
        return 1000 + chunk[0]


GRANULE = 2 << 20
BASE = 0x7F0000000000


@pytest.mark.parametrize("mapping", ["known", "refused", "whole reservation"])
def test_the_chunks_behind_tensors(monkeypatch: pytest.MonkeyPatch, mapping: str) -> None:
    a, b, c = BASE, BASE + 10 * GRANULE, BASE + 13 * GRANULE
    far = BASE + 40 * GRANULE
    Mapped(monkeypatch, {a: 10 * GRANULE, b: 3 * GRANULE, c: GRANULE, far: 2 * GRANULE}, mapping)
    for address, chunk in [(a, a), (a + 9 * GRANULE + 5, a), (b, b), (c - 1, b), (c + 77, c), (far + GRANULE, far)]:
        assert export.chunk_at(address)[0] == chunk
    assert export.chunk_at(b + GRANULE) == (b, 3 * GRANULE)
    with pytest.raises(SharingError, match="no shareable memory"):
        export.chunk_at(far - 1)
    finder = export._Finder()
    finder.add(c + 3, c + 9)
    finder.add(a + 5, b + 1)  # two chunks, the third of which lies next to them
    finder.add(far, far + 2 * GRANULE)
    together = [(a, 10 * GRANULE), (b, 3 * GRANULE), (c, GRANULE)]
    assert finder.runs() == [(together, False), ([(far, 2 * GRANULE)], False)]
    finder = export._Finder()
    finder.add(a, a + 1)
    finder.add(c, c + 1)
    assert finder.runs() == [([(a, 10 * GRANULE)], False), ([(c, GRANULE)], False)], "only what is touched"
    with pytest.raises(SharingError, match="no shareable memory"):
        finder.add(far, far + 2 * GRANULE + 1)


@pytest.mark.parametrize(("attributes", "says"), [
    ({17: 5}, "cudaMallocAsync cannot be shared"), ({8: 1}, "managed memory"), ({}, "no way to export it"),
    ({14: 8}, "handle types 0x8")])
def test_memory_that_cannot_be_shared_is_refused_with_the_reason(
        monkeypatch: pytest.MonkeyPatch, attributes: dict[int, int], says: str) -> None:
    monkeypatch.setattr(driver, "pointer_attribute", lambda attribute, pointer: attributes.get(attribute, 0))
    with pytest.raises(SharingError, match=says):
        export._Finder().add(BASE, BASE + 1)


def test_what_is_retired_is_freed_when_it_is_ready_and_nobody_waits() -> None:
    ready, freed = threading.Event(), threading.Event()
    begun = time.monotonic()
    retiring.retire(ready.is_set, freed.set)
    assert time.monotonic() - begun < 0.5
    assert not retiring.settle(0.05)
    assert not freed.is_set()
    quick = threading.Event()
    retiring.retire(lambda: True, quick.set)
    assert quick.wait(5)  # not held up by the other
    ready.set()
    assert retiring.settle()
    assert freed.is_set()


@pytest.mark.parametrize("before", ["", "retiring.retire(late, lambda: print('first'))"])
def test_what_is_retired_as_the_process_ends_is_freed_as_well(before: str) -> None:
    program = ("import atexit, time; from ipc.cuda import retiring; end = time.monotonic() + 0.2\n"
               "late = lambda: time.monotonic() > end\n"
               "atexit.register(lambda: retiring.retire(late, lambda: print('last')))\n" + before)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split() == (["first"] if before else []) + ["last"]
    assert done.stderr == ""


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


class OneMemory:
    """A source with a memfd in place of GPU memory: nothing here maps it."""

    def segment(self, ref: SegmentRef) -> int:
        return open_segment(ref, os.getpid())

    def descriptors(self, token: str, count: int) -> list[int]:
        return [some_fd() for _ in range(count)]


@pytest.fixture
def ring() -> Iterator[tuple[Writer, DeviceRingReader]]:
    before = open_fds()
    writer = Writer(100_000)
    reader = DeviceRingReader.make(writer.ref, OneMemory(), lambda slot: None)
    yield writer, reader
    reader.close()
    writer.gpu_does(len(writer.pending))
    writer.close()
    assert retiring.settle()
    assert open_fds() == before


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
    before = open_fds()
    small = DeviceRingRef(writer.segment.ref, FdMemory("t-1", (writer.capacity,), GPU))
    with pytest.raises(SharingError, match=r"4 slots of \d+ bytes were announced in \d+ bytes"):
        DeviceRingReader.make(small, OneMemory(), lambda slot: None)
    with pytest.raises(SharingError, match="announced as RingRef"):
        DeviceRingReader.make(RingRef(writer.segment.ref), OneMemory(), lambda slot: None)
    assert open_fds() == before
    writer.close()


@pytest.fixture
def host() -> Iterator[HostWriter]:
    writer = HostWriter(-1, 1 << 20)  # -1 is what torch calls the CPU: there is nothing to pin memory for
    yield writer
    writer.close()
    assert retiring.settle()


def test_where_memory_cannot_be_pinned_copies_are_plain_and_it_is_said(host: HostWriter) -> None:
    image = torch.rand(50, 60).t()
    assert host._ready.wait(10)
    assert host.write("image", {"image": image}, META, 1, lambda: True)
    assert host.note.startswith("copies wait for the GPU: ")
    reader = RingReader.make(host.ref, OneMemory(), lambda slot: None)
    frame = reader.read()
    assert frame is not None
    assert torch.equal(torch.from_numpy(frame.tensors["image"].to_float32()), image)
    frame.close()
    reader.close()


def test_copies_through_the_host_are_spaced(host: HostWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("ipc.ways.host.time", SimpleNamespace(monotonic=lambda: now[0]))
    assert host._ready.wait(10)

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
    monkeypatch.setattr(HostWriter, "_pin", lambda self, size: go_on.wait(30))
    writer = HostWriter(-1, 1 << 20)
    begun = time.monotonic()
    assert not publish(writer, 1)
    assert not writer.write("image", {"image": torch.zeros(9, 7)}, META, 1, lambda: True)
    writer.close()
    assert time.monotonic() - begun < 5
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
