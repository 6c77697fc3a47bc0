"""Where things stand in the segments of slots.

The control segment: one control page, then per slot one page with an encoded header, and after it the slot's data
where these lie in the segment too (`in_segment`); else they lie somewhere else, slot after slot.
Control page, in 64-bit words: magic, slots, bytes of data per slot, oldest generation kept (in-place only), when the
writer was closed (0: it is not; CLOCK_MONOTONIC, ns); from word 16 on, eight words per slot: sequence number, done,
version, time in ns since the epoch, bytes of the header, arrived
(in place only: the sequence number as the GPU writes it when it has come that far).
"""

from __future__ import annotations

import os
import platform
import threading
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import encode
from splatview_ipc.shm.segment import PAGE, round_up

if TYPE_CHECKING:
    import torch

    from splatview_ipc.control.messages import FrameHeader, VersionHeader

MAGIC = 0x32_47_4E_49_52_54_4C_50  # "PLTRING2"
MAGIC_WORD, SLOTS, CAPACITY, OLDEST_KEPT, CLOSED = range(5)
FIRST_SLOT, WORDS_PER_SLOT = 16, 8
SEQ, DONE, VERSION, TIME, HEADER, ARRIVED = range(6)
CLAIMED = 1 << 63
"""In a slot's sequence number: the writer wants the slot, and looks whether a reader leases it."""
HEADER_BYTES = PAGE
ALIGN = 256
"""Bytes to which tensors in a slot are aligned."""
LARGE = 976 * PAGE  # whole pages, just below 64 MB
"""Bytes of a slot above which a ring has as few slots as can be, and never gets more."""

_fence_lock = threading.Lock()
_STORES_IN_ORDER = ("x86_64", "AMD64", "i686")
_WEAKLY_ORDERED = platform.machine() not in _STORES_IN_ORDER
_EMPTY_MAP = b"\x80"


def full_fence() -> None:
    """Order all memory accesses before it against all after it, on every processor.

    One lock-unlock pair lets accesses slip into the critical section from both sides on ARM; two pairs of the same
    lock do not, since a release is ordered before the acquire that follows it. On x86, where locking is a full fence,
    one is enough.
    """
    with _fence_lock:
        pass
    if _WEAKLY_ORDERED:
        with _fence_lock:
            pass


def _after_fork_in_child() -> None:
    """Another thread of the parent may have been within a fence."""
    global _fence_lock
    _fence_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)

if platform.machine() in _STORES_IN_ORDER:
    def store_fence() -> None:
        """Order the stores of a word or a few before it against all stores after it."""
        # x86 makes them seen in the order of the program.

    def load_fence() -> None:
        """Order the loads of words before it before all loads after it."""
        # x86 makes them in the order of the program.
else:
    store_fence = load_fence = full_fence


def header_before_meta(header: FrameHeader | VersionHeader) -> bytes:
    """What all headers begin with that are like this one, whose metadata are empty, but for their metadata."""
    raw = encode(header)
    assert raw[-1:] == _EMPTY_MAP, "metadata stand at the end"
    return raw[:-1]


def header_with(before: bytes, meta: dict[str, Any]) -> bytes:
    """A header as it stands in a slot. Raises SharingError when it is too long."""
    raw = before + encode(meta)
    if len(raw) > HEADER_BYTES:
        raise too_long(raw)
    return raw


def too_long(header: bytes) -> SharingError:
    return SharingError(f"metadata of {len(header)} bytes; the limit is {HEADER_BYTES}")


def data_bytes(tensors: dict[str, torch.Tensor]) -> int:
    """Bytes of a slot's data that these tensors take, alignment included."""
    return sum(round_up(t.numel() * t.element_size(), ALIGN) for t in tensors.values())


def slots_for(capacity: int, large: int = 2) -> int:
    """Return how many slots a new ring has for frames of up to `capacity` bytes; `large`: of large frames."""
    return 4 if capacity <= LARGE else large


def room_for(frame: int, growing: bool) -> int:
    """Return the bytes of a slot for frames of `frame` bytes, with spare room where they are `growing`.

    Two slots of a large frame, with its spare room, take less than 2.2 times the frame.
    """
    if not growing:
        return frame
    return min(frame * 3 // 2, LARGE) if frame <= LARGE else frame * 27 // 25


def ring_bytes(capacity: int) -> int:
    """Return the size of the segment of a new ring for frames of up to `capacity` bytes."""
    return PAGE + slots_for(capacity) * (HEADER_BYTES + round_up(capacity, PAGE))


def as_published(tensors: dict[str, torch.Tensor], published: tuple[torch.Tensor, ...]) -> list[tuple[int, int]] | None:
    """Which of the published tensors each tensor of their frame is, and how many bytes it has if they lie in a row,
    else 0; None unless each is one of them as it is, or has its bytes in the same order."""
    addresses = [t.data_ptr() for t in published if t.numel()]
    if len(set(addresses)) < len(addresses):
        return None  # by its address we tell which is which
    found: list[tuple[int, int]] = []
    for tensor in tensors.values():
        address = tensor.data_ptr()
        number = next((i for i, t in enumerate(published) if t.data_ptr() == address), None)
        if number is None or not tensor.numel() or published[number].nbytes != tensor.nbytes:
            return None
        whole = published[number]
        if tensor.is_contiguous() and whole.is_contiguous():
            found.append((number, tensor.nbytes))
        elif (tensor.shape, tensor.stride(), tensor.dtype) == (whole.shape, whole.stride(), whole.dtype):
            found.append((number, 0))
        else:
            return None
    return found


def dtype_name(tensor: torch.Tensor) -> str:
    """"float32" for torch.float32."""
    return str(tensor.dtype).rpartition(".")[2]
