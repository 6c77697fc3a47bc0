"""Protocol of a transport: a writer in the trainer, a reader in the viewer.

tests/ipc/test_transports.py runs one conformance suite over all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from splatview_ipc.control.frame import Frame
    from splatview_ipc.control.messages import Ref

    Descriptors = Mapping[str, Sequence[int]]


class Writer(Protocol):
    """The trainer's side of one stream. Calls do not overlap; none of them waits for a reader.

    Writers for CUDA tensors queue their work on torch's current stream of the tensors' device.
    """

    note: str
    """Why this transport is worse here than it usually is, for people; "" if it is not. Sent along with `ref`."""

    @property
    def ref(self) -> Ref:
        """What readers are told. Another object whenever they have to be told again."""
        ...

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        """Return whether `write` can take these tensors; otherwise another writer is made for them."""
        ...

    def write(self, kind: str, tensors: dict[str, torch.Tensor], meta: dict[str, Any], version: int,
              confirmed: bool = True) -> bool:
        """Make these tensors, all of one version, the newest frame.

        confirmed: as `Frame.confirmed`. Returns False when it is not possible now (all slots are busy, the transport
        rests): the stream comes back with the newest version. Raises SharingError.
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
    """Frames given up because the writer came back to them."""
    alive: Callable[[], bool]
    """Tells whether the writer's process still runs; set by the stream."""
    known: frozenset[str]
    """Tokens of memory that is open here already: their descriptors need not be fetched again."""

    def follow(self, ref: Ref, fds: Descriptors) -> bool:
        """Take in a newer `Writer.ref`; return False when another reader is needed for it.

        Raises SharingError; what was read until now stays readable then.
        """
        ...

    def read(self, after: int = 0) -> Frame | None:
        """Return the newest whole frame with a version over `after`, or None. Never waits."""
        ...

    def close(self) -> None:
        """Give everything back, but for what frames still hold. Idempotent."""
        ...


@dataclass(frozen=True)
class Transport:
    """The two sides of a transport. Their modules are loaded when they are made: most need CUDA."""

    writer: Callable[[dict[str, torch.Tensor], bool], Writer]
    """Made from tensors like those to come, and whether they are going to grow; on the helper thread, since memory is
    allocated. Raises SharingError."""
    reader: Callable[[Ref, Descriptors], Reader]
    """Made from what the trainer announced and the descriptors of its tokens, which stay the caller's. Raises
    SharingError when what was announced cannot be trusted or opened."""
    words: str
    """What it does, for people."""
