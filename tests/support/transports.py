"""Pairs of a writer and a reader of each transport, in one process."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from splatview_ipc.control import descriptors
from splatview_ipc.control.frame import StreamFrame
from splatview_ipc.control.messages import descriptor_counts
from splatview_ipc.control.sockets import close_all
from splatview_ipc.cuda import retiring
from splatview_ipc.transports import TRANSPORTS, Reader, Transport, Writer
from splatview_ipc.transports.memory import MemoryTransport
from support.pair import Pair
from support.wait import polls, wait_until

META = {"color": "sh", "activated": False, "step": 3}
SHAPES = {
    "means": (3,),
    "quats": (4,),
    "scales": (3,),
    "opacities": (),
    "sh0": (3,),
    "shN": (15, 3),
}
NAMES = "memory", *(name for name in TRANSPORTS if name != "torch-ipc")
"""Without torch's handles, which no process can open itself:
tests/cuda/test_torch_ipc.py has two."""

RING = TRANSPORTS["ring"]


class Handed(dict[str, list[int]]):
    """The descriptors of a writer's announcement, as a viewer fetches them.

    They are closed at the end of the `with` block.
    """

    def __init__(self, ref: Any):
        super().__init__()
        for token, count in descriptor_counts(ref).items():
            self[token] = descriptors.make_descriptors(token, 0, count)[0]

    def __enter__(self) -> Handed:
        return self

    def __exit__(self, *exc: object) -> None:
        for fds in self.values():
            close_all(fds)


def reader_of(name: str, ref: Any) -> Reader:
    with Handed(ref) as fds:
        return TRANSPORTS[name].reader(ref, fds)


def offer(monkeypatch: pytest.MonkeyPatch, pair: Pair, **transports: Transport) -> None:
    """Have the stream's tensors go by these transports, the best first."""
    names = tuple(name.replace("_", "-") for name in transports)
    for name, transport in zip(names, transports.values(), strict=True):
        monkeypatch.setitem(TRANSPORTS, name, transport)
    monkeypatch.setattr(
        "splatview_ipc.publisher.transport_choice.CPU_TRANSPORTS", names
    )


class TransportPair:
    """Both sides of one transport, made for scenes of up to 1000 Gaussians."""

    def __init__(self, name: str):
        self.name = name
        self._memory: Any = None
        self.writer: Writer
        self.reader: Reader
        if name == "memory":
            transport: Any = MemoryTransport()
            self.writer = transport
            self.reader = transport
            return
        if name == "in-place":
            # A process cannot open an IPC handle of its own, but it can open a
            # descriptor.
            from splatview_ipc.cuda.memory import ExportableMemory

            self._memory = ExportableMemory(4 << 20, 0)
        self.writer = TRANSPORTS[name].writer(self.scene(1000, 0), False)
        self.reader = reader_of(name, self.writer.ref)

    def scene(self, n: int, value: float) -> dict[str, torch.Tensor]:
        """Make a scene of one number; in place, always in the same memory."""
        tensors = {}
        device = "cpu" if self.name in ("memory", "ring") else "cuda"
        for i, (name, shape) in enumerate(SHAPES.items()):
            size = (n, *shape)
            if self._memory is None:
                tensors[name] = torch.full(size, float(value), device=device)
            else:
                tensor = self._memory.tensor("float32", size, i << 19)
                tensors[name] = tensor.fill_(value)
        return tensors

    def write(self, n: int, version: int) -> None:
        """Write a version until the transport takes it.

        Transports that fill slots on the GPU may be busy, or rest.
        """
        for _ in polls(f"version {version} is taken"):
            if self.writer.write("gaussians", self.scene(n, version), META, version):
                break
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def follow(self, reader: Reader) -> None:
        """Tell a reader of the newest generation."""
        if self.name == "in-place":
            with Handed(self.writer.ref) as fds:
                assert reader.follow(self.writer.ref, fds)

    def read(self, after: int = 0) -> StreamFrame:
        """Wait for a frame with a version over `after`."""
        for _ in polls(f"a frame after {after}"):
            self.follow(self.reader)
            frame = self.reader.read(after)
            if frame is not None:
                return frame
        raise AssertionError

    def close(self) -> None:
        self.reader.close()
        self.writer.close()
        if self._memory is not None:
            self._memory.close()
        if self.name not in ("memory", "ring"):
            wait_until(retiring.release_idle, "GPU memory is given back")
