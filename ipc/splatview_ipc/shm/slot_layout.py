"""Layout of the shared memory that holds a ring of slots.

The control segment begins with the control page. Each slot follows with a page for its
encoded header and, if the layout is `in_segment`, its data:

    | control page | header 0 | data 0 | header 1 | data 1 | ...

Otherwise the data lie in other memory, one slot after the other.

The control page consists of 64-bit words. The first four, MAGIC_WORD to OLDEST_KEPT,
describe the ring; from FIRST_SLOT on, each slot has WORDS_PER_SLOT words, of which SEQ
to STEP are in use. slot_writer.py explains how they change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from splatview_ipc.shm.segment import PAGE, round_up

if TYPE_CHECKING:
    import torch

MAGIC = 0x34_47_4E_49_52_54_4C_50
"""The letters "PLTRING4"."""

# Words of the ring.
MAGIC_WORD = 0
SLOT_COUNT = 1
CAPACITY = 2
"""Bytes of tensor data per slot."""
OLDEST_KEPT = 3
"""Zero-copy only: the oldest generation that readers may still use."""

FIRST_SLOT = 16
"""Index of the first word of slot 0."""
WORDS_PER_SLOT = 8

# Words of a slot, counted from its first one.
SEQ = 0
"""Sequence number: odd while the slot is written."""
DONE = 1
"""The sequence number whose copy has ended."""
VERSION = 2
"""The stream's version that the slot holds."""
TIME = 3
"""Time of writing, in ns since the epoch."""
HEADER_LENGTH = 4
"""Bytes of the encoded header."""
ARRIVED = 5
"""Zero-copy only: the sequence number that the GPU writes when it has come that far."""
STEP = 6
"""Zero-copy only: the metadata "step", 64 bits with a sign.

It is new at every version, where the rest of the header stays for long.
"""

HEADER_BYTES = PAGE
"""Bytes that each slot has for its header."""
ALIGN = 256
"""Alignment of tensors in a slot, bytes."""

_MIB = 1 << 20
_MAX_MANY_SLOTS_BYTES = 8 * _MIB
"""Up to this size, slots cost so little memory that a ring has eight."""
_MAX_SOME_SLOTS_BYTES = 64 * _MIB
"""Up to this size, a ring has four slots; above it, three."""


class SlotLayout:
    """Base of a ring's writer and its readers: computes where each slot lies."""

    in_segment = True
    """True if the data are stored in the control segment, after each slot's header."""

    def __init__(self, slot_count: int, capacity: int):
        self.slot_count = slot_count
        self.capacity = capacity
        """Bytes of tensor data per slot, whole pages."""
        end = FIRST_SLOT + slot_count * WORDS_PER_SLOT
        self.first_words = range(FIRST_SLOT, end, WORDS_PER_SLOT)
        """For each slot, the index of its first word in the control page."""
        bytes_per_slot = HEADER_BYTES
        if self.in_segment:
            bytes_per_slot += capacity
        self.size = PAGE + slot_count * bytes_per_slot
        """Bytes of the control segment."""
        self.header_offsets = range(PAGE, self.size, bytes_per_slot)
        """For each slot, the offset of its header in the control segment, in bytes."""

    def data_offset(self, slot: int) -> int:
        """Return the offset of a slot's data, in bytes.

        It is counted from the start of the control segment, or of the other memory that
        holds the data.
        """
        if self.in_segment:
            return self.header_offsets[slot] + HEADER_BYTES
        return slot * self.capacity


class RingSize(NamedTuple):
    """Size of a ring of slots."""

    capacity: int
    """Bytes of tensor data per slot."""
    slot_count: int


def choose_ring_size(tensors: dict[str, torch.Tensor], growing: bool) -> RingSize:
    """Return the size of a ring for versions like these tensors.

    Args:
        tensors: the tensors of one version.
        growing: True if later versions may be larger; slots are then half as large
            again.
    """
    capacity = data_bytes(tensors)
    if growing:
        capacity = capacity * 3 // 2
    capacity = max(capacity, 1)
    if capacity <= _MAX_MANY_SLOTS_BYTES:
        return RingSize(capacity, 8)
    if capacity <= _MAX_SOME_SLOTS_BYTES:
        return RingSize(capacity, 4)
    return RingSize(capacity, 3)


def data_bytes(tensors: dict[str, torch.Tensor]) -> int:
    """Return the bytes that tensors take in a slot, alignment included."""
    return sum(round_up(t.numel() * t.element_size(), ALIGN) for t in tensors.values())
