"""Transports: how the tensors of a stream reach a viewer, each with a writer in the trainer and a reader in the viewer.

| transport | for | how |
|---|---|---|
| ring | CPU tensors | copied into a ring of slots in shared memory |
| device-ring | CUDA tensors that are new at every call | copied on the GPU into a ring of slots in GPU memory |
| in-place | CUDA tensors whose storage stays | shared without a copy; a version is a header and a word of the GPU |
| torch-ipc | the same, where the driver does not report their memory | by the handles of torch.multiprocessing |
| host | CUDA tensors that a viewer cannot open | copied by the GPU into a ring of slots in pinned shared memory |

tests/ipc/test_transports.py runs one conformance suite over all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from splatview_ipc.control.frame import StreamFrame
    from splatview_ipc.control.messages import Ref

    Descriptors = Mapping[str, Sequence[int]]


class Writer(Protocol):
    """The trainer's side of one stream. Calls do not overlap; none of them waits for a reader.

    Writers for CUDA tensors queue their work on torch's current stream of the tensors' device.
    """

    note: str
    """The reason why this transport is worse here than usual, for users; "" if it is not. Sent along with `ref`."""

    @property
    def ref(self) -> Ref:
        """The announcement for readers. A new object each time that it changes."""
        ...

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        """Return whether `write` can take these tensors; otherwise another writer is made for them."""
        ...

    def write(
        self,
        kind: str,
        tensors: dict[str, torch.Tensor],
        meta: dict[str, Any],
        version: int,
        confirmed: bool = True,
    ) -> bool:
        """Make these tensors, all of one version, the newest frame.

        confirmed: as `Frame.confirmed`. Returns False when it is not possible now (all slots are busy, the transport
        rests) or the tensors do not fit: the stream brings the newest version later. Raises SharingError.
        """
        ...

    def turn(self, now: float) -> float | None:
        """Do what is due, on the helper thread; return when (seconds) to be called again, None: not by time."""
        ...

    def close(self) -> None:
        """Give everything back. What readers have mapped stays readable to them, and is not written any more."""
        ...


class Reader(Protocol):
    """A viewer's side of one stream."""

    torn: int
    """Frames discarded because the writer overwrote them."""
    alive: Callable[[], bool]
    """Tells whether the writer's process still runs; set by the stream."""
    known: frozenset[str]
    """Tokens of memory that is open here already: their descriptors need not be fetched again."""

    def follow(self, ref: Ref, fds: Descriptors) -> bool:
        """Take in a newer `Writer.ref`; return False when another reader is needed for it.

        Raises SharingError; what was read until now stays readable then.
        """
        ...

    def read(self, after: int = 0) -> StreamFrame | None:
        """Return the newest whole frame with a version over `after`, or None. Never waits."""
        ...

    def close(self) -> None:
        """Give everything back, but for what frames still hold. Idempotent."""
        ...


@dataclass(frozen=True)
class Transport:
    """The two sides of a transport."""

    writer: Callable[[dict[str, torch.Tensor], bool], Writer]
    """Made from tensors like those to come, and whether they are going to grow; on the helper thread, since memory is
    allocated. Raises SharingError."""
    reader: Callable[[Ref, Descriptors], Reader]
    """Made from what the trainer announced and the descriptors of its tokens, which stay the caller's. Raises
    SharingError when what was announced cannot be trusted or opened."""
    words: str
    """Description for users."""


def _load(module: str, name: str) -> Callable[..., Any]:
    """Return a callable that imports its module at the first call: most of them need CUDA."""
    return lambda *args: attrgetter(name)(import_module(f"{__name__}.{module}"))(*args)


_ring_reader = _load("cpu_ring", "CpuRingReader")
TRANSPORTS: dict[str, Transport] = {
    "ring": Transport(
        _load("cpu_ring", "CpuRingWriter.make"), _ring_reader, "shared-memory ring"
    ),
    "device-ring": Transport(
        _load("device_ring", "DeviceRingWriter.make"),
        _load("device_ring", "DeviceRingReader"),
        "ring in GPU memory",
    ),
    "in-place": Transport(
        _load("zero_copy_writer", "ZeroCopyWriter.make"),
        _load("zero_copy_reader", "ZeroCopyReader"),
        "in place (zero-copy)",
    ),
    "torch-ipc": Transport(
        _load("torch_ipc", "TorchIpcWriter.make"),
        _load("torch_ipc", "TorchIpcReader"),
        "torch.multiprocessing (zero-copy)",
    ),
    "host": Transport(
        _load("pinned_host", "PinnedHostWriter.make"),
        _ring_reader,
        "GPU to pinned host memory",
    ),
}
ZERO_COPY = "in-place", "torch-ipc"
"""Those that share tensors where they are stored, the best first."""
