"""Transports: how the tensors of a stream reach a viewer, each with a writer in the trainer and a reader in the viewer.

| transport | for | how |
|---|---|---|
| ring | CPU tensors | copied into a ring of slots in shared memory |
| device-ring | CUDA tensors that are new at every call | copied on the GPU into a ring of slots in GPU memory |
| in-place | CUDA tensors whose storage stays | shared without a copy; a version is a header and a word of the GPU |
| torch-ipc | the same, where the driver does not report their memory | by the handles of torch.multiprocessing |
| host | CUDA tensors that a viewer cannot open | copied by the GPU into a ring of slots in pinned shared memory |

Every writer is a `splatview_ipc.shm.slot_writer.SlotWriter`, every reader a `splatview_ipc.shm.slot_reader.SlotReader`;
they document what is called.
tests/ipc/test_transports.py runs one conformance suite over all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from splatview_ipc.control.messages import Ref
    from splatview_ipc.shm.slot_reader import SlotReader
    from splatview_ipc.shm.slot_writer import SlotWriter

    Descriptors = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Transport:
    """The two sides of a transport."""

    writer: Callable[[dict[str, torch.Tensor], bool], SlotWriter]
    """Made from tensors like those to come, and whether they are going to grow; on the helper thread, since memory is
    allocated. Raises SharingError."""
    reader: Callable[[Ref, Descriptors], SlotReader]
    """Made from what the trainer announced and the descriptors of its tokens, which stay the caller's. Raises
    SharingError when what was announced cannot be trusted or opened."""
    words: str
    """What it does, for people."""


def _load(module: str, name: str) -> Callable[..., Any]:
    """Return a callable that imports its module at the first call: most of them need CUDA."""
    return lambda *args: attrgetter(name)(import_module(f"{__name__}.{module}"))(*args)


_ring_reader = _load("cpu_ring", "CpuRingReader")
TRANSPORTS: dict[str, Transport] = {
    "ring": Transport(_load("cpu_ring", "CpuRingWriter.make"), _ring_reader, "shared-memory ring"),
    "device-ring": Transport(_load("device_ring", "DeviceRingWriter.make"), _load("device_ring", "DeviceRingReader"),
                             "ring in GPU memory"),
    "in-place": Transport(_load("zero_copy_writer", "ZeroCopyWriter.make"), _load("zero_copy_reader", "ZeroCopyReader"),
                          "in place (zero-copy)"),
    "torch-ipc": Transport(_load("torch_ipc", "TorchIpcWriter.make"), _load("torch_ipc", "TorchIpcReader"),
                           "torch.multiprocessing (zero-copy)"),
    "host": Transport(_load("pinned_host", "PinnedHostWriter.make"), _ring_reader, "GPU to pinned host memory"),
}
ZERO_COPY = "in-place", "torch-ipc"
"""Those that share tensors where they are stored, the best first."""
