"""The ways in which the tensors of a stream reach a viewer, behind one protocol.

| way | for | how |
|---|---|---|
| ring | CPU tensors | copied into a ring of slots in shared memory |
| host | GPU tensors | copied through the host into the same kind of ring |

A way is a writer in the trainer and a reader in the viewer. `tests/test_sharing.py` runs one conformance suite over all
of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ipc.ring import RingReader, RingWriter, data_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from ipc.frames import Frame
    from ipc.messages import SegmentRef


class FrameWriter(Protocol):
    """The trainer's side of one stream. Calls do not overlap; none of them waits for a reader."""

    @property
    def ref(self) -> SegmentRef:
        """What readers are told."""
        ...

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        """Whether `write` can take these tensors; if not, another writer is made for them."""
        ...

    def write(self, kind: str, tensors: dict[str, torch.Tensor], meta: dict[str, Any], version: int,
              still_wanted: Callable[[], bool] | None = None) -> bool:
        """Make these tensors, all of one version, the newest frame, unless `still_wanted` says no in the end."""
        ...

    def close(self) -> None:
        """Give everything back. What readers hold stays readable to them."""
        ...


class FrameReader(Protocol):
    """A viewer's side of one stream."""

    torn: int
    """Frames given up because the writer came back to them."""

    def read(self, after: int = 0) -> Frame | None:
        """The newest whole frame with a version over `after`, or None. Never waits."""
        ...

    def close(self) -> None:
        """Give everything back. Idempotent."""
        ...


@dataclass(frozen=True)
class Way:
    """How to make the two sides."""

    writer: Callable[[dict[str, torch.Tensor], float, Callable[[], bytes]], FrameWriter]
    """From tensors like those to come, how many times their size to make room for, and what tells which slots are
    being read: one byte per reader, slot + 1, or 0. Raises SharingError."""
    reader: Callable[[SegmentRef, int, Callable[[int], None]], FrameReader]
    """From what the trainer announced, its process id, and what tells it which slot is being read (-1: none).
    Raises SharingError when what was announced cannot be trusted."""


def _ring_writer(tensors: dict[str, torch.Tensor], spare: float, leased: Callable[[], bytes]) -> FrameWriter:
    return RingWriter(int(data_bytes(tensors) * spare), leased=leased)


WAYS: dict[str, Way] = {
    "ring": Way(_ring_writer, RingReader),
    "host": Way(_ring_writer, RingReader),  # copy_ of a CUDA tensor into the ring goes through the host
}


def way_for(device: str) -> str:
    """Which way serves tensors on a device, "cpu" or "cuda:0"."""
    return "ring" if device == "cpu" else "host"
