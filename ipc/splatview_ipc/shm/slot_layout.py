"""Layout of the segments that hold slots, and the memory fence of the slot protocol.

The control segment: one control page, then per slot one page with an encoded header,
followed by the slot's data if these are stored in the segment (`in_segment`); otherwise
the data are stored elsewhere, slot after slot.

Control page, in 64-bit words: magic, slots, bytes of data per slot, oldest generation
kept (zero-copy only); from word 16 on, eight words per slot: sequence number, done,
version, time in ns since the epoch, bytes of the header, arrived (zero-copy only: the
sequence number, written by the GPU when it has come that far).
"""

from __future__ import annotations

import platform
import threading
from typing import TYPE_CHECKING

from splatview_ipc.shm.segment import PAGE, round_up

if TYPE_CHECKING:
    import torch

MAGIC = 0x33_47_4E_49_52_54_4C_50
"""The letters "PLTRING3"."""
MAGIC_WORD, SLOTS, CAPACITY, OLDEST_KEPT = range(4)
FIRST_SLOT = 16
WORDS_PER_SLOT = 8
SEQ, DONE, VERSION, TIME, HEADER, ARRIVED = range(6)
HEADER_BYTES = PAGE
ALIGN = 256
"""Alignment of tensors in a slot, bytes."""

_WEAKLY_ORDERED = platform.machine() not in ("x86_64", "AMD64", "i686")
_local = threading.local()


class SlotLayout:
    """Offsets of a ring's slots, for its writer and its readers."""

    in_segment = True
    """True if the data are stored in the control segment, behind each slot's header."""

    def __init__(self, slots: int, capacity: int):
        self.slots = slots
        self.capacity = capacity
        """Bytes of tensor data per slot, whole pages."""
        stop = FIRST_SLOT + slots * WORDS_PER_SLOT
        self.bases = range(FIRST_SLOT, stop, WORDS_PER_SLOT)
        """By slot, the index of its first word."""
        data_bytes_here = capacity if self.in_segment else 0
        self._stride = HEADER_BYTES + data_bytes_here
        self.size = PAGE + slots * self._stride
        """Bytes of the control segment."""

    def header_offset(self, slot: int) -> int:
        """Return the bytes from the segment's start to a slot's header."""
        return PAGE + slot * self._stride

    def data_offset(self, slot: int) -> int:
        """Return the bytes from the segment's start to a slot's data.

        For data that are stored elsewhere, from their start.
        """
        if self.in_segment:
            return self.header_offset(slot) + HEADER_BYTES
        return slot * self.capacity


def full_fence() -> None:
    """Order all memory accesses before it against all after it, on every processor.

    One lock-unlock pair lets accesses slip into the critical section from both sides on
    ARM; two pairs of the same lock do not, since a release is ordered before the
    acquire that follows it. On x86, where locking is a full fence, one is enough. Each
    thread has its own lock, so that a fork finds none of them held.
    """
    try:
        lock = _local.lock
    except AttributeError:
        lock = threading.Lock()
        _local.lock = lock
    with lock:
        pass
    if _WEAKLY_ORDERED:
        with lock:
            pass


def data_bytes(tensors: dict[str, torch.Tensor]) -> int:
    """Return the bytes of a slot's data that these tensors take, alignment included."""
    return sum(round_up(t.numel() * t.element_size(), ALIGN) for t in tensors.values())


def ring_size(tensors: dict[str, torch.Tensor], growing: bool) -> tuple[int, int]:
    """Return the bytes of a slot for such tensors, and how many slots a ring has.

    Slots of growing tensors have room for half as much again.
    """
    halves = 3 if growing else 2
    capacity = max(data_bytes(tensors) * halves // 2, 1)
    if capacity <= 8 << 20:
        return capacity, 8
    if capacity <= 64 << 20:
        return capacity, 4
    return capacity, 3


def dtype_name(tensor: torch.Tensor) -> str:
    """Return "float32" for torch.float32."""
    return str(tensor.dtype).rpartition(".")[2]
