"""Layout of the segments that hold slots, and the memory fences of the slot protocol.

The control segment: one control page, then per slot one page with an encoded header, followed by the slot's data if
these are stored in the segment (`in_segment`); otherwise the data are stored elsewhere, slot after slot.
Control page, in 64-bit words: magic, slots, bytes of data per slot, oldest generation kept (zero-copy only); from word
16 on, eight words per slot: sequence number, done, version, time in ns since the epoch, bytes of the header, arrived
(zero-copy only: the sequence number, written by the GPU when it has come that far).
"""

from __future__ import annotations

import platform
import threading
from typing import TYPE_CHECKING

from splatview_ipc.shm.segment import PAGE, round_up

if TYPE_CHECKING:
    import torch

MAGIC = 0x33_47_4E_49_52_54_4C_50  # "PLTRING3"
MAGIC_WORD, SLOTS, CAPACITY, OLDEST_KEPT = range(4)
FIRST_SLOT, WORDS_PER_SLOT = 16, 8
SEQ, DONE, VERSION, TIME, HEADER, ARRIVED = range(6)
HEADER_BYTES = PAGE
ALIGN = 256
"""Alignment of tensors in a slot, bytes."""

_STORES_IN_ORDER = ("x86_64", "AMD64", "i686")
_WEAKLY_ORDERED = platform.machine() not in _STORES_IN_ORDER
_local = threading.local()


def full_fence() -> None:
    """Order all memory accesses before it against all after it, on every processor.

    One lock-unlock pair lets accesses slip into the critical section from both sides on ARM; two pairs of the same
    lock do not, since a release is ordered before the acquire that follows it. On x86, where locking is a full fence,
    one is enough. Each thread has its own lock, so that a fork finds none of them held.
    """
    try:
        lock = _local.lock
    except AttributeError:
        lock = _local.lock = threading.Lock()
    with lock:
        pass
    if _WEAKLY_ORDERED:
        with lock:
            pass


if platform.machine() in _STORES_IN_ORDER:
    def store_fence() -> None:
        """Order the stores of single words before it against all stores after it."""
        # x86 makes them visible in program order.

    def load_fence() -> None:
        """Order the loads of words before it before all loads after it."""
        # x86 performs them in program order.
else:
    store_fence = load_fence = full_fence


def data_bytes(tensors: dict[str, torch.Tensor]) -> int:
    """Return the bytes of a slot's data that these tensors take, alignment included."""
    return sum(round_up(t.numel() * t.element_size(), ALIGN) for t in tensors.values())


def slots_for(capacity: int) -> int:
    """Return how many slots a ring has for frames of up to `capacity` bytes."""
    return 8 if capacity <= 8 << 20 else 4 if capacity <= 64 << 20 else 3


def dtype_name(tensor: torch.Tensor) -> str:
    """Return "float32" for torch.float32."""
    return str(tensor.dtype).rpartition(".")[2]
