"""A GPU whose memory is the CPU's, for the trainer's side of publishing CUDA tensors: what is copied, and when."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from splatview.adapt import recognise
from splatview.ipc.board import Board
from splatview.ipc.cuda import driver, retiring
from splatview.ipc.errors import SharingError
from splatview.ipc.frames import DeviceTensor
from splatview.ipc.messages import FdMemory, TensorRef, decode_version_header
from splatview.ipc.source import OwnSource
from splatview.ipc.stream import Stream
from splatview.ipc.ways import WAYS
from splatview.ipc.ways.base import Way
from splatview.ipc.ways.device_ring import DeviceRingReader, DeviceRingWriter
from splatview.ipc.ways.gpu_slots import GpuSlotWriter
from splatview.ipc.ways.in_place import InPlaceWriter
from splatview.ipc.ways.layout import VERSION, data_bytes
from splatview.ipc.ways.ring import RingReader
from splatview.ipc.ways.slots import SlotWriter
from support.wait import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

GPU = "0123456789abcdef" * 2
OK, REFUSED = 0, 1


class Machine:
    """A GPU whose work is done when it is asked for, in the stream that it is told."""

    def __init__(self) -> None:
        self.stream = 7
        self.device = 0
        self.copied: list[tuple[int, int]] = []
        """Stream and bytes of each plain copy."""
        self.recorded: list[int] = []
        """The streams in which events were recorded."""
        self.refuses: set[str] = set()

    def copy(self, target: int, source: int, size: int, stream: int) -> tuple[int]:
        if "cuMemcpyDtoDAsync" in self.refuses:
            return (REFUSED,)
        ctypes.memmove(target, source, size)
        self.copied.append((stream, size))
        return (OK,)

    def write(self, stream: int, address: int, value: int, flags: int) -> tuple[int]:
        ctypes.c_uint64.from_address(address).value = value
        return (OK,)

    def record(self, event: Any, stream: int) -> tuple[int]:
        self.recorded.append(stream)
        return (OK,)

    def in_stream(self, index: int, stream: int, name: str, *args: Any) -> None:
        if name in self.refuses:
            raise SharingError(f"{name}: refused")
        {"cuMemcpyDtoDAsync": self.copy, "cuStreamWriteValue64": self.write}[name](*args)


class Memory:
    """As `splatview.ipc.cuda.memory.Allocation`."""

    def __init__(self, size: int, index: int):
        self.size, self.gpu = size, GPU
        self._fd = os.memfd_create("memory", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, size)
        self.map = mmap.mmap(self._fd, size)

    def fd(self) -> int:
        return os.dup(self._fd)

    def tensor(self, dtype: str, shape: tuple[int, ...], offset: int) -> torch.Tensor:
        count = int(torch.Size(shape).numel())
        return torch.frombuffer(self.map, dtype=getattr(torch, dtype), count=count, offset=offset).view(shape)

    def close(self, idle: bool = False) -> None:
        os.close(self._fd)


class Shared:
    """As `splatview.ipc.cuda.memory.Export`."""

    pieces = ()

    def ref(self, token: str) -> FdMemory:
        return FdMemory("t-1", (1 << 30,), GPU)


def describe(tensors: dict[str, torch.Tensor]) -> Any:
    return (Shared(),), tuple(TensorRef(name, "float32", tuple(t.shape), t.stride(), 0, 0)  # type: ignore[arg-type]
                              for name, t in tensors.items())


def installed(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine in the place of torch's CUDA and the driver."""
    machine = Machine()
    nothing = contextlib.nullcontext
    for name, value in {"_cuda_getCurrentRawStream": lambda index: machine.stream,
                        "_cuda_getDevice": lambda: machine.device,
                        "_cuda_isCurrentStreamCapturing": lambda: False}.items():
        monkeypatch.setattr(torch._C, name, value, raising=False)
    cu = SimpleNamespace(CUdeviceptr=int, cuMemcpyDtoDAsync=machine.copy, cuStreamWriteValue64=machine.write,
                         cuEventRecord=machine.record)
    for name, value in {"bindings": lambda: cu, "gpu_uuid": lambda index: GPU, "stream_object": lambda stream: stream,
                        "stream_writes": lambda index: True, "is_capturing": lambda: False,
                        "register_host": lambda address, size, index: address, "in_stream": machine.in_stream,
                        "release_host": lambda address, index: None, "relaxed_capture": nothing,
                        "context": lambda index: nothing()}.items():
        monkeypatch.setattr(driver, name, value)
    monkeypatch.setattr("splatview.ipc.cuda.late.behind", lambda index, stream: nothing())
    monkeypatch.setattr("splatview.ipc.ways.device_ring.Allocation", Memory)
    monkeypatch.setattr("splatview.ipc.cuda.memory.describe", describe)
    monkeypatch.setattr(GpuSlotWriter, "fits", SlotWriter.fits)
    monkeypatch.setattr(InPlaceWriter, "fits", lambda writer, tensors: True)
    event = SimpleNamespace(handle=b"e" * 64, record=lambda stream: machine.record(None, stream), close=lambda: None)
    monkeypatch.setattr("splatview.ipc.cuda.events.InterprocessEvent", lambda index: event)
    monkeypatch.setitem(WAYS, "device-ring", Way(
        lambda tensors, spare, leased: DeviceRingWriter(0, int(data_bytes(tensors) * spare), leased=leased),
        DeviceRingReader.make, ""))
    return machine


class Run:
    """As `splatview.ipc.stream.Run`, with one stream in it, read by one viewer, which would take any version."""

    def __init__(self, kind: str, way: str, device: str = "cuda:0") -> None:
        self.board = Board()
        self.faults: list[BaseException] = []
        self.stream = Stream(0, "it", kind, self)
        self.way = way
        self.device = device
        self.form: Any = None
        self.described = 0
        if way == "in-place":
            self.ask(True)

    def ask(self, asks: bool) -> None:
        """Whether the viewer asks for a newer version."""
        self.board._leases[0] = int(asks)

    def announce(self) -> None:
        pass

    def attend(self) -> None:
        pass

    def fault(self, error: BaseException) -> None:
        self.faults.append(error)

    def publish(self, value: Any, **meta: Any) -> None:
        """As `splatview.publish` does it."""
        if self.stream.tally.steady is not None and self.stream.tally.pass_over(value, meta):
            return
        tensors = self.form.collect(value) if self.form is not None else None
        if tensors is None:
            self.form = recognise(value, None, {})
            self.form.device = self.device
            tensors = self.form.collect(value)
            self.stream.describe(self.form)
            if not self.described:
                self.stream.open(self.way)
            self.described += 1
        assert tensors is not None
        self.stream.publish((tensors, meta))
        if any(outlet.aside for outlet in self.stream._outlets.values()):
            while self.stream.due() == 0.0:  # as the helper thread does: it makes the memory
                self.stream.tend(0)
            self.stream.catch_up()

    @property
    def ways(self) -> tuple[str, ...]:
        """The ways that are offered, the best first."""
        return self.stream._offered.ways

    @property
    def writer(self) -> Any:
        return self.stream._outlets[self.way].writer

    @property
    def generation(self) -> int:
        """Of tensors in place."""
        return self.writer.ref.generation

    def marked(self) -> tuple[int, Any]:
        """The version in place that was marked last, and its step."""
        words, base = self.writer._words, self.writer._bases[self.writer._last]
        return words[base + VERSION], decode_version_header(self.writer._header).meta["step"]

    def picture(self, version: int, meta: dict[str, Any]) -> torch.Tensor:
        """What the viewer sees of the version, which must be there."""
        reader = (RingReader.make if self.way == "ring" else DeviceRingReader.make)(
            self.writer.ref, OwnSource(), lambda slot: None)
        frame = reader.read()
        assert frame is not None
        with frame:
            assert (frame.version, frame.meta, frame.intact()) == (version, meta, True)
            image = frame.tensors["image"]
            if isinstance(image, DeviceTensor):
                seen = self.writer._memory.tensor(image.dtype, image.shape, image.offset).clone()
            else:
                seen = torch.from_numpy(image.array.copy())
        reader.close()
        return seen


@contextlib.contextmanager
def running(kind: str, way: str, device: str = "cuda:0") -> Iterator[Run]:
    """A run, closed afterwards."""
    run = Run(kind, way, device)
    yield run
    run.stream.close()
    run.board.close()
    assert retiring.settle(PATIENCE)


def picture(*shape: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    return (torch.rand(shape) * 200).to(dtype)


def scene(n: int = 5) -> dict[str, torch.nn.Parameter]:
    shapes = {"means": (3,), "quats": (4,), "scales": (3,), "opacities": (), "sh0": (1, 3), "shN": (15, 3)}
    return {name: torch.nn.Parameter(torch.rand(n, *shape)) for name, shape in shapes.items()}


def moved(it: dict[str, torch.nn.Parameter], what: str) -> dict[str, torch.nn.Parameter]:
    if what == "data":
        it["shN"].data = it["shN"].data.clone()
    elif what == "another parameter":
        it["shN"] = torch.nn.Parameter(it["shN"].detach().clone())
    elif what == "densified":
        return scene(7)
    else:
        for name, p in scene(7).items():
            it[name].data = p.data
    return it
