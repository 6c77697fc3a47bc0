"""Transports: the ways in which the tensors of a stream reach a viewer.

Each has a writer in the trainer and a reader in the viewer.

| transport | for | how |
|---|---|---|
| ring | CPU tensors | copied into a ring of slots in shared memory |
| device-ring | CUDA tensors, new at every call | copied into a ring in GPU memory |
| in-place | CUDA tensors whose storage stays | shared; a version is a header and a word |
| torch-ipc | the same, of memory that the driver does not report | by handles of torch |
| host | CUDA tensors that a viewer cannot open | copied into pinned shared memory |

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
    """File descriptors by token."""


class Writer(Protocol):
    """The trainer's side of one stream.

    Calls do not overlap; none of them waits for a reader. Writers for CUDA tensors
    queue their work on torch's current stream of the tensors' device.
    """

    note: str
    """The reason why this transport is worse here than usual, for users; "": it is not.

    It is sent along with `ref`.
    """

    @property
    def ref(self) -> Ref:
        """The announcement for readers. A new object each time that it changes."""
        ...

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        """Return whether `write` can take these tensors.

        If it cannot, another writer is made for them.
        """
        ...

    def holds(self, tensors: dict[str, torch.Tensor]) -> bool:
        """Return whether the newest frame is known to have the present values of these.

        False where comparing them would cost more than writing them.
        """
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

        Args:
            kind: kind of the stream.
            tensors: the tensors of the frame by name.
            meta: metadata of the frame.
            version: number of the version.
            confirmed: as `StreamFrame.confirmed`.

        Returns:
            False if it is not possible now (all slots are busy, the transport rests) or
            the tensors do not fit: the stream writes the newest version later.

        Raises:
            SharingError: the tensors cannot be shared.
        """
        ...

    def turn(self, now: float) -> float | None:
        """Do what is due, on the helper thread.

        Returns when to be called again, in the clock's seconds; None: not by time.
        """
        ...

    def close(self) -> None:
        """Release everything.

        What readers have mapped stays readable to them, and is not written any more.
        """
        ...


class Reader(Protocol):
    """A viewer's side of one stream."""

    torn: int
    """Number of frames discarded because the writer overwrote them."""
    alive: Callable[[], bool]
    """Returns whether the writer's process still runs; set by the stream."""
    known_tokens: frozenset[str]
    """Tokens of memory that is open here, whose descriptors are not fetched again."""

    def follow(self, ref: Ref, fds: Descriptors) -> bool:
        """Take in a newer `Writer.ref`; return False if it needs another reader.

        Raises SharingError; what was read until now stays readable then.
        """
        ...

    def read(self, after: int = 0) -> StreamFrame | None:
        """Return the newest whole frame with a version over `after`, or None.

        Never waits.
        """
        ...

    def read_next(self, last_version: int = 0) -> StreamFrame | None:
        """Return the oldest whole frame that is left with a version over `after`.

        None without one. Never waits.
        """
        ...

    def holds(self, version: int) -> bool:
        """Return whether a version, or a newer one, was written. Never waits."""
        ...

    def close(self) -> None:
        """Release everything, but for what frames still hold. Idempotent."""
        ...


@dataclass(frozen=True)
class Transport:
    """The two sides of a transport."""

    writer: Callable[[dict[str, torch.Tensor], bool], Writer]
    """Makes a writer from tensors like those to come, and whether they will grow.

    Called on the helper thread, since memory is allocated. Raises SharingError.
    """
    reader: Callable[[Ref, Descriptors], Reader]
    """Makes a reader from an announcement of the trainer and its descriptors.

    The descriptors stay the caller's. Raises SharingError when what was announced
    cannot be trusted or opened.
    """
    label: str
    """Description for users."""


@dataclass(frozen=True)
class _Late:
    """A callable whose module is imported at the first call: most of them need CUDA."""

    module: str
    name: str

    def __call__(self, *args: Any) -> Any:
        module = import_module(f"{__name__}.{self.module}")
        return attrgetter(self.name)(module)(*args)


_ring_reader = _Late("cpu_ring", "CpuRingReader")
TRANSPORTS: dict[str, Transport] = {
    "ring": Transport(
        writer=_Late("cpu_ring", "CpuRingWriter.make"),
        reader=_ring_reader,
        label="shared-memory ring",
    ),
    "device-ring": Transport(
        writer=_Late("device_ring", "DeviceRingWriter.make"),
        reader=_Late("device_ring", "DeviceRingReader"),
        label="ring in GPU memory",
    ),
    "in-place": Transport(
        writer=_Late("zero_copy_writer", "ZeroCopyWriter.make"),
        reader=_Late("zero_copy_reader", "ZeroCopyReader"),
        label="in place (zero-copy)",
    ),
    "torch-ipc": Transport(
        writer=_Late("torch_ipc", "TorchIpcWriter.make"),
        reader=_Late("torch_ipc", "TorchIpcReader"),
        label="torch.multiprocessing (zero-copy)",
    ),
    "host": Transport(
        writer=_Late("pinned_host", "PinnedHostWriter.make"),
        reader=_ring_reader,
        label="GPU to pinned host memory",
    ),
}
ZERO_COPY = "in-place", "torch-ipc"
"""Transports that share tensors where they are stored, the best first."""
