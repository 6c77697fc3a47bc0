"""Writer of a ring of slots: a sequence number per slot tells whether its frame is whole.

Invariants (tests/ipc/test_models.py explores the real code through every interleaving)
1. One thread at a time writes (the stream's lock); any number of readers, in other processes, only read.
2. A slot's sequence number is odd while it is written, and set to the next even number when it is committed. Data,
   header, version and time are stored between the two, with a full fence on either side.
3. The word `done` takes the slot's even number when the copy has ended: stored by the processor, or written by the GPU
   in stream order behind the copy. A slot is whole when its number is even and equal to `done`.
4. A reader takes the number, reads, and compares (fence) with the number again: equal and whole means that what it
   read is one version. Nothing else is needed, whatever a reader or the writer does or dies of.
5. The newest whole slot is never written, nor a slot whose copy has not ended. Where no other slot is left the version
   is skipped, and the stream brings the newest one later.
6. The tensors of one version are stored in one slot: no reader can mix versions.
7. The memory of all slots is allocated and mapped before the first write: no write finds a missing page.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import FrameHeader, TensorHeader, encode
from splatview_ipc.shm.segment import PAGE, Segment, round_up
from splatview_ipc.shm.slot_layout import (
    ALIGN,
    CAPACITY,
    DONE,
    FIRST_SLOT,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    MAGIC_WORD,
    SEQ,
    SLOTS,
    TIME,
    VERSION,
    WORDS_PER_SLOT,
    data_bytes,
    dtype_name,
    full_fence,
)

if TYPE_CHECKING:
    import torch


class SlotWriter:
    """Base of the transports' writers. A transport adds `ref` and fills in `_targets` and `_copy`."""

    in_segment = True
    """True if the data are stored in the control segment, at `data_offset(slot)`."""
    note = ""
    """The reason why this transport is worse here than usual, for users; "" if it is not. Sent along with `ref`."""

    def __init__(self, capacity: int, slots: int, label: str = "ring"):
        """`capacity`: bytes of tensor data per slot, alignment included (`data_bytes`). Allocates all memory.

        Raises SharingError when the memory cannot be allocated.
        """
        if not limits.MIN_SLOTS <= slots <= limits.MAX_SLOTS:
            raise ValueError(f"slots is {slots}, not {limits.MIN_SLOTS} to {limits.MAX_SLOTS}")
        self.slots = slots
        self.capacity = round_up(capacity, PAGE)
        self._stride = HEADER_BYTES + (self.capacity if self.in_segment else 0)
        self.segment = Segment(PAGE + slots * self._stride, label)
        self._words = memoryview(self.segment.map).cast("Q")
        self._bytes = memoryview(self.segment.map)
        self._words[SLOTS], self._words[CAPACITY] = slots, self.capacity
        self._words[MAGIC_WORD] = MAGIC
        self._layout: list[Any] | None = None
        self._tensor_headers: tuple[TensorHeader, ...] = ()
        self._slot_targets: list[list[torch.Tensor]] = []
        self._last = -1

    def _targets(self, slot: int, headers: tuple[TensorHeader, ...]) -> list[torch.Tensor]:
        """Return contiguous tensors over the slot's data, of these dtypes, shapes and offsets (bytes from the start of
        the slot's data). Called when the layout changed."""
        raise NotImplementedError

    def _copy(self, slot: int, targets: list[torch.Tensor], sources: list[torch.Tensor], whole: int) -> None:
        """Copy the sources (any strides) into the targets, and have `done` become `whole` behind the last of them:
        `set_done`, or a write of the GPU in stream order."""
        raise NotImplementedError

    def header_offset(self, slot: int) -> int:
        """Return the bytes from the segment's start to a slot's header."""
        return PAGE + slot * self._stride

    def data_offset(self, slot: int) -> int:
        """Return the bytes from the segment's start to a slot's data; for data elsewhere, from their start."""
        return PAGE + slot * self._stride + HEADER_BYTES if self.in_segment else slot * self.capacity

    @staticmethod
    def done_offset(slot: int) -> int:
        """Return the bytes from the segment's start to a slot's `done` word."""
        return 8 * (FIRST_SLOT + slot * WORDS_PER_SLOT + DONE)

    def set_done(self, slot: int, whole: int) -> None:
        """Store that the copy into a slot has ended."""
        self._words[FIRST_SLOT + slot * WORDS_PER_SLOT + DONE] = whole

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        """Return whether `write` can take these tensors; otherwise another writer is made for them."""
        return data_bytes(tensors) <= self.capacity

    def write(self, kind: str, tensors: dict[str, torch.Tensor], meta: dict[str, Any], version: int,
              confirmed: bool = True) -> bool:
        """Make these tensors, all of one version, the newest frame. Never waits for a reader.

        Returns False when no slot is free now. Raises SharingError when the tensors or the metadata do not fit.
        """
        layout = [(name, t.dtype, t.shape) for name, t in tensors.items()]
        if layout != self._layout:
            self._lay_out(tensors)
            self._layout = layout
        header = encode(FrameHeader(kind, self._tensor_headers, meta, confirmed))  # type: ignore[arg-type]
        if len(header) > HEADER_BYTES:
            raise SharingError(f"metadata of {len(header)} bytes; the limit is {HEADER_BYTES}")
        slot = self.free_slot()
        if slot < 0:
            return False
        whole, committed = self.begin(slot), 0
        try:
            self._copy(slot, self._slot_targets[slot], list(tensors.values()), whole)
            committed = version
        except BaseException:
            self.set_done(slot, whole)  # a slot whose copy failed must not count as busy for ever
            raise
        finally:
            self.commit(slot, whole, header, committed)
        return True

    def free_slot(self) -> int:
        """Return the slot to write into next, -1 if there is none (invariant 5)."""
        newest, words = -1, self._words
        if self._last >= 0 and not self._whole(self._last):  # a GPU is behind: an older slot is the newest whole one
            versions = [words[FIRST_SLOT + i * WORDS_PER_SLOT + VERSION] if self._whole(i) else 0
                        for i in range(self.slots)]
            newest = versions.index(max(versions)) if max(versions) else -1
        for i in range(1, self.slots):
            slot = (self._last + i) % self.slots
            if slot != newest and self._whole(slot):
                return slot
        return -1

    def _whole(self, slot: int) -> bool:
        base = FIRST_SLOT + slot * WORDS_PER_SLOT
        return self._words[base + DONE] == self._words[base + SEQ]

    def begin(self, slot: int) -> int:
        """Enter a slot; return the even number that its `done` must become."""
        index = FIRST_SLOT + slot * WORDS_PER_SLOT + SEQ
        number = self._words[index] + 1
        self._words[index] = number
        full_fence()  # on x86 as well: large copies overtake the stores before them
        return number + 1

    def commit(self, slot: int, whole: int, header: bytes, version: int) -> None:
        """Leave a slot; readers get it once it is done. `version` 0: no reader gets it."""
        words, base, start = self._words, FIRST_SLOT + slot * WORDS_PER_SLOT, self.header_offset(slot)
        self._bytes[start : start + len(header)] = header
        words[base + HEADER] = len(header)
        words[base + VERSION] = version
        words[base + TIME] = time.time_ns()
        full_fence()
        words[base + SEQ] = whole
        if version:
            self._last = slot

    def _lay_out(self, tensors: dict[str, torch.Tensor]) -> None:
        if not self.fits(tensors):
            raise SharingError(f"a frame of {data_bytes(tensors)} bytes does not fit a slot of {self.capacity}")
        headers, offset = [], 0
        for name, t in tensors.items():
            headers.append(TensorHeader(name, dtype_name(t), tuple(t.shape), offset))  # type: ignore[arg-type]
            offset = round_up(offset + t.numel() * t.element_size(), ALIGN)
        self._tensor_headers = tuple(headers)
        self._slot_targets = [self._targets(slot, self._tensor_headers) for slot in range(self.slots)]

    def turn(self, now: float) -> float | None:
        """Do what is due, on the helper thread; return when (seconds) to be called again, None: not by time."""
        return None

    def close(self) -> None:
        """Give everything back; what readers have mapped stays readable to them, and is not written any more."""
        self._slot_targets = []
        self._words.release()
        self._bytes.release()
        self.segment.close()
