"""One transport that viewers read a stream by, and the value that was written last.

A `Channel` holds data only: `Stream` decides when to write and which thread may.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from splatview_ipc.transports import ZERO_COPY

if TYPE_CHECKING:
    import torch

    from splatview_ipc.kinds import ValueLayout
    from splatview_ipc.transports import Writer

    Tensors = tuple[torch.Tensor, ...]
    Published = tuple[Tensors, dict[str, Any]]
    """The tensors of a value, in the order of its layout, and its metadata."""
    Value = tuple[ValueLayout, Published]
    """A published value. Two values are the same version only if they are one object.

    A plain tuple, since one is made at every publish, also without viewers: a dataclass
    costs 0.1 of 2 us more.
    """

PERIOD_S = {"ring": 1 / 240, "device-ring": 1 / 240, "host": 1 / 240}
"""Shortest mean time between two frames, by transport.

The last version is always sent.
"""
DEFAULT_PERIOD_S = 1 / 60
LOWEST_PACE = 0.1
"""Versions a second that the readers of a stream in place are taken to need at least."""


@dataclass(slots=True)
class SharedFields:
    """The fields of a value that was shared in place, and what they were made from."""

    layout: ValueLayout
    tensors: Tensors
    addresses: list[int]
    fields: dict[str, torch.Tensor]


@dataclass
class Channel:
    """A transport that at least one viewer reads."""

    transport: str
    readers: int = 0
    """Number of viewers that read this transport."""
    writer: Writer | None = None
    is_outgrown: bool = False
    """True if the writer refused a value that needs another writer."""
    written: Value | None = None
    """The value that was written last; None: nothing by this writer."""
    written_version: int = 0
    """Number of the version that was written last, by this or an earlier writer."""
    next_write_at: float = 0.0
    """When the next version may be written, in the clock's seconds."""
    retry_at: float = 0.0
    """When to try again to make the writer; 0: it did not fail."""
    is_zero_copy: bool = field(init=False)
    """True for a transport that shares the tensors where they are stored."""
    period: float = field(init=False)
    """Shortest mean time between two versions, seconds."""
    shared: SharedFields | None = None
    """The fields that were shared last.

    Their tensors are referenced here, so that no other ones can get their addresses.
    """

    def __post_init__(self) -> None:
        self.is_zero_copy = self.transport in ZERO_COPY
        self.period = PERIOD_S.get(self.transport, DEFAULT_PERIOD_S)

    def follow_pace(self, hz: float) -> None:
        """Write in place as often as the fastest reader takes a version.

        Args:
            hz: versions that it takes a second.
        """
        if not self.is_zero_copy:
            return
        period = max(1 / max(hz, LOWEST_PACE), DEFAULT_PERIOD_S)
        # A faster reader does not wait for the end of a long period.
        self.next_write_at += period - self.period
        self.period = period

    def take_writer(self) -> Writer | None:
        """Return the writer, which the caller closes, and forget all that it holds."""
        writer = self.writer
        self.writer = None
        self.written = None
        self.shared = None
        return writer

    def drop_writer(self) -> None:
        """Close the writer, whatever its error."""
        writer = self.take_writer()
        if writer is not None:
            with contextlib.suppress(Exception):
                writer.close()


@dataclass(slots=True)
class LateCopy:
    """A copy not made by `publish`, which may have caught tensors amid a write."""

    value: Value
    inplace_counts: list[int]
    """In-place operations that had ended on each tensor before the copy."""
    check_at: float
    """When to compare with the counts by then."""


def count_inplace(tensors: tuple[Any, ...]) -> list[int] | None:
    """Return torch's counter of in-place operations of each tensor.

    None if torch does not count them. NumPy arrays have no counter; theirs is 0.
    """
    if any(hasattr(t, "is_inference") and t.is_inference() for t in tensors):
        return None
    return [getattr(tensor, "_version", 0) for tensor in tensors]
