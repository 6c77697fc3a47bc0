"""Slots that a writer fills in turn: the base of every way, one writer that never waits, any number of readers
(`splatview_ipc.shm.slot_reader`).

Where things stand is said in `splatview_ipc.shm.slot_layout`.

Invariants (tests/faults explores them, with readers, GPUs and deaths, on x86 and on a memory that reorders more)
1. One writer: the control page, headers and data are stored to by the trainer alone, one call at a time, and by its GPU
   (`done` and the data, in the order of its stream). Readers store to the lease table alone.
2. A slot's sequence number is odd while the writer is in it and grows by two with each frame. `done` becomes that even
   number when the data are there: written at once where the processor copies, by the GPU behind its copy otherwise.
   A slot is whole when its number is even and equal to `done`. A reader takes the number, reads, takes it again: the
   frame was whole if it did not change (`Frame.intact`). Of what it read before that, nothing is trusted.
3. The odd number is seen before any of the data, header, version and time; these are before the even one: a full fence
   stands on either side, on x86 as well, where large copies go past other stores.
4. Readers look at all slots and take the highest version that is whole; 0 is no version. For one reader versions never
   go back. A look is no single moment: a writer that goes round all slots meanwhile may leave it an older version, or
   none; at rest it finds the newest.
5. The writer never picks the newest whole slot, nor one whose copy has not ended: rather it skips the version, and
   whoever called it comes back. So the newest whole frame stays readable whenever the writer dies. One exception: 10.
6. The writer avoids slots that readers lease while there are others; one that `grows` has others made for it
   (`larger`), up to MAX_SLOTS, so that nobody's frame is ever overwritten, or said to be, while they hold it.
7. A reader leases a slot, and then (fence) looks whether its number is the same, without the mark CLAIMED. The writer
   marks the number so, and then (fence) looks whether the slot is leased: if so it takes the mark away, else it goes
   in. One of the two sees the other. A mark does not concern who holds the slot already; a writer that dies with it has
   changed nothing. A writer that must overwrite what is leased goes in without.
8. A lease that is stale, forged or lost costs a slot or a retry. While a reader with one cell looks for a newer frame,
   its lease is on that one: what it held may be overwritten then, and `intact` says so.
9. The tensors of one version stand in one slot: no reader can mix versions.
10. A ring of large frames has two slots and never more (`most`), so that a frame that is held leaves one slot for all
   newer versions. The writer then writes into the newest slot, provided that no reader leases it: the held frame stays
   whole, other readers get every version, and meanwhile a whole frame is readable, but an older one. Where all slots
   are leased, versions are skipped until one is free. A lease on a slot without any frame (version 0) holds nothing,
   and the slot is written into.
11. A ring is written into only when all its memory has been allocated and mapped (`ready`), so that no write finds a
   missing page. `retire` enters each slot that no reader leases and never leaves it: readers see an odd number, as if
   the writer had died there, and the slot's memory is given back although they have it mapped.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import FrameHeader, TensorHeader
from splatview_ipc.shm.segment import PAGE, Segment, round_up
from splatview_ipc.shm.slot_layout import (
    ALIGN,
    CAPACITY,
    CLAIMED,
    CLOSED,
    DONE,
    FIRST_SLOT,
    HEADER,
    HEADER_BYTES,
    LARGE,
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
    header_before_meta,
    header_with,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


_UNHELD = 3
"""Slots that a GPU needs beside those that are held: the newest, one that is being copied into, one to go on with."""
_TOUCHED_AT_ONCE = 32 << 20
"""Bytes of memory that are made at a time, some 50 milliseconds: the helper thread answers viewers in between."""


class SlotWriter:
    """The trainer's side. Calls must not overlap: the stream's lock sees to that.

    A way derives from it and says where a slot's tensors lie (`_targets`) and how they are filled (`_copy`,
    `_finish`). It adds `ref`.
    """

    in_segment = True
    """Whether the data lie in the control segment: at `data_offset(slot)`."""
    at_once = True
    """Whether a copy has ended when `_copy` returns. If not, it is the GPU that writes `done`."""
    note = ""
    """As `FrameWriter.note`."""
    grows = False
    crowded = False

    def __init__(self, capacity: int, slots: int = 4, leased: Callable[[], bytes] = bytes, label: str = "ring",
                 ready: bool = True):
        """`capacity`: bytes of tensor data per slot, alignment included (`data_bytes`). `leased` is asked before each
        write which slots to avoid: one byte per reader, slot + 1 that it is reading, or 0. `ready`: whether to allocate
        all memory now; otherwise `populate` does, before the first write.

        Raises SharingError when the memory is not to be had.
        """
        if not limits.MIN_SLOTS <= slots <= limits.MAX_SLOTS:
            raise ValueError(f"slots is {slots}, not {limits.MIN_SLOTS} to {limits.MAX_SLOTS}")
        self.slots = slots
        self.leased = leased
        self.capacity = round_up(capacity, PAGE)
        self._stride = HEADER_BYTES + (self.capacity if self.in_segment else 0)
        self.most = limits.MAX_SLOTS if self.capacity <= LARGE else slots
        """Slots that a ring for these frames may have."""
        self.segment = Segment(PAGE + slots * self._stride, label, None if ready else PAGE)
        self.ready = ready
        """Whether all memory is there."""
        self._words = memoryview(self.segment.map).cast("Q")
        self._bytes = memoryview(self.segment.map)
        self._words[SLOTS], self._words[CAPACITY] = slots, self.capacity
        self._words[MAGIC_WORD] = MAGIC
        self._layout: tuple[Any, ...] | None = None
        self._meta: dict[str, Any] | None = None
        self._tensor_headers: tuple[TensorHeader, ...] = ()
        self._slot_targets: list[list[torch.Tensor]] = []
        self._headers: list[bytes] = [b""] * slots
        self._header = b""
        self._header_start = b""
        """A header up to its metadata."""
        self._bases = [FIRST_SLOT + slot * WORDS_PER_SLOT for slot in range(slots)]
        self._last = -1
        self._robs = False
        """Whether the slot that was taken is one that a reader leases."""

    # What a way fills in.

    def larger(self) -> SlotWriter:
        """As `FrameWriter.larger`."""
        raise NotImplementedError

    def _targets(self, slot: int, headers: tuple[TensorHeader, ...]) -> list[torch.Tensor]:
        """Tensors over the slot's data, contiguous, of these dtypes, shapes and offsets (bytes from the slot's
        data on); those without elements may be any empty tensor of the shape. Called when the layout changed."""
        raise NotImplementedError

    def _copy(self, slot: int, targets: list[torch.Tensor], sources: list[torch.Tensor], whole: int) -> None:
        """Copy the sources (any strides) into the targets, and see to it that the word at `done_offset(slot)`
        becomes `whole` behind the last of them: `set_done`, or a write of the GPU in stream order."""
        raise NotImplementedError

    def _finish(self, slot: int, whole: int) -> None:
        """Wait until that copy has ended. Only called on the helper thread, and not where copies end `at_once`."""
        raise NotImplementedError

    # What it gets for it.

    def header_offset(self, slot: int) -> int:
        """Bytes from the segment's start to a slot's header."""
        return PAGE + slot * self._stride

    def data_offset(self, slot: int) -> int:
        """Bytes from the segment's start to a slot's data, or, for data elsewhere, from the start of those."""
        return PAGE + slot * self._stride + HEADER_BYTES if self.in_segment else slot * self.capacity

    @staticmethod
    def done_offset(slot: int) -> int:
        """Bytes from the segment's start to a slot's `done` word."""
        return 8 * (FIRST_SLOT + slot * WORDS_PER_SLOT + DONE)

    def set_done(self, slot: int, whole: int) -> None:
        self._words[FIRST_SLOT + slot * WORDS_PER_SLOT + DONE] = whole

    def populate(self) -> bool:
        """As `FrameWriter.populate`."""
        if not self.ready:
            self.ready = self.segment.reserve(_TOUCHED_AT_ONCE)
        return self.ready

    @property
    def size(self) -> int:
        """As `FrameWriter.size`."""
        return self.segment.size

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        return data_bytes(tensors) <= self.capacity

    def roomy(self, tensors: dict[str, torch.Tensor]) -> bool:
        """As `FrameWriter.roomy`."""
        return self.capacity * 10 > max(data_bytes(tensors), LARGE) * 11 + PAGE * 10

    def prepare(self, tensors: dict[str, torch.Tensor], published: tuple[torch.Tensor, ...]) -> bool:
        """As `FrameWriter.prepare`; a way for which it pays adds `again`."""
        return False

    def again(self, published: tuple[torch.Tensor, ...], addresses: list[int], meta: dict[str, Any], version: int,
              stream: int) -> bool:
        """As `FrameWriter.again`."""
        raise NotImplementedError

    def write(self, kind: str, tensors: dict[str, torch.Tensor], meta: dict[str, Any], version: int,
              still_wanted: Callable[[], bool] | None = None) -> bool:
        """As `FrameWriter.write`. Raises SharingError when the tensors do not fit (`data_bytes` against
        `capacity`)."""
        if not self.ready:
            return False
        layout = (kind, [(name, t.dtype, t.shape) for name, t in tensors.items()])
        if layout != self._layout:
            self._lay_out(tensors)
            self._header_start = header_before_meta(
                FrameHeader(kind, self._tensor_headers, {}))  # type: ignore[arg-type]
            self._layout, self._meta = layout, None
        if meta is not self._meta and meta != self._meta:
            self._header = header_with(self._header_start, meta)
            self._meta = dict(meta)
        slot, whole = self.enter()
        if slot < 0:
            return False
        wanted = False
        try:
            self._copy(slot, self._slot_targets[slot], list(tensors.values()), whole)
            if still_wanted is None:
                wanted = True
            else:
                if not self.at_once:
                    self._finish(slot, whole)
                wanted = still_wanted()
        except BaseException:
            self.set_done(slot, whole)  # a slot whose copy failed must not count as busy for ever
            raise
        finally:
            self.end(slot, whole, self._header, version if wanted else 0)
        return wanted

    def enter(self) -> tuple[int, int]:
        """Take a slot and go into it: the slot, and the even number that its `done` must become. Slot -1: there is none
        to write into now."""
        for _ in range(self.slots):
            slot = self.take()
            if slot < 0:
                break
            if self._robs or self._claim(slot):
                return slot, self.begin(slot)
        return -1, 0

    def take(self) -> int:
        """A slot to write into; -1 when the GPU is still busy with all that may be written, or readers hold them and
        there are to be more."""
        self._robs = False
        last, leased = self._last, self.leased()
        start = (last + 1) % self.slots
        if self._whole(last) and self._whole(start) and start + 1 not in leased:
            return start  # nearly always: the newest frame is whole, and the slot that was written longest ago free
        newest, best, busy = -1, 0, False
        free: list[int] = []
        for i in range(self.slots):
            slot = (start + i) % self.slots
            if not self._whole(slot):
                busy = True
                continue
            free.append(slot)
            version = self._words[FIRST_SLOT + slot * WORDS_PER_SLOT + VERSION]
            if version > best:
                newest, best = slot, version
        free = [slot for slot in free if slot != newest]
        for slot in free:
            if slot + 1 not in leased:
                return slot
        # Where the GPU is busy as well, there must be as many slots beside those that are held as do without readers.
        if self.grows and self.slots < self.most and free and (not busy or self.slots - len(free) < _UNHELD):
            self.crowded = True
            return -1
        if busy or not free:
            return -1
        if self.grows and self.most < limits.MAX_SLOTS:  # invariant 10
            empty = [slot for slot in free if not self._words[FIRST_SLOT + slot * WORDS_PER_SLOT + VERSION]]
            if not empty:
                return newest if newest + 1 not in leased else -1
            free = empty
        self._robs = True
        return free[0]

    def _whole(self, slot: int) -> bool:
        """Whether no copy into a slot is under way."""
        if self.at_once:
            return slot >= 0
        base = FIRST_SLOT + slot * WORDS_PER_SLOT
        return slot >= 0 and self._words[base + DONE] == self._words[base + SEQ]

    def _claim(self, slot: int) -> bool:
        """Whether no reader leases a slot: none trusts it from now on. Else it stays as it was."""
        words, index = self._words, FIRST_SLOT + slot * WORDS_PER_SLOT + SEQ
        number = words[index]
        words[index] = number | CLAIMED
        full_fence()  # the claim must be seen before we trust the leases
        if slot + 1 not in self.leased():
            return True
        words[index] = number
        return False

    def begin(self, slot: int) -> int:
        """Go into a slot; the even number that `done` must become."""
        index = FIRST_SLOT + slot * WORDS_PER_SLOT + SEQ
        number = (self._words[index] & ~CLAIMED) + 1
        self._words[index] = number
        full_fence()  # on x86 as well: large copies go past the stores before them
        return number + 1

    def end(self, slot: int, whole: int, header: bytes, version: int) -> None:
        """Come out of a slot; readers may have it when it is done. Version 0: nobody gets it."""
        words, base = self._words, FIRST_SLOT + slot * WORDS_PER_SLOT
        if self._headers[slot] is not header:
            start = PAGE + slot * self._stride
            self._bytes[start : start + len(header)] = header
            self._headers[slot] = header
            words[base + HEADER] = len(header)
        words[base + VERSION] = version
        words[base + TIME] = time.time_ns()
        full_fence()
        words[base + SEQ] = whole
        if version:
            self._last = slot
        elif slot == self._last:  # an unwanted copy replaced the newest frame (invariant 10)
            self._last = max(range(self.slots), key=lambda i: words[self._bases[i] + VERSION])

    def _lay_out(self, tensors: dict[str, torch.Tensor]) -> None:
        if not self.fits(tensors):
            raise SharingError(f"a frame of {data_bytes(tensors)} bytes does not fit a slot of {self.capacity}")
        headers, offset = [], 0
        for name, t in tensors.items():
            headers.append(TensorHeader(name, dtype_name(t), tuple(t.shape), offset))  # type: ignore[arg-type]
            offset = round_up(offset + t.numel() * t.element_size(), ALIGN)
        self._tensor_headers = tuple(headers)
        self._slot_targets = [self._targets(slot, self._tensor_headers) for slot in range(self.slots)]

    def more(self) -> int:
        """How many slots a larger ring than this one has."""
        return min(self.most, self.slots * 3 // 2)

    def retire(self) -> None:
        """As `FrameWriter.retire`."""
        if self.in_segment and self.at_once and self.segment.fd >= 0:
            for slot in range(self.slots):
                if self._claim(slot):
                    self.begin(slot)
                    self._drop(slot)
        self.close()

    def _drop(self, slot: int) -> None:
        """Give a slot's memory back that no reader looks at any more."""
        self.segment.free(self.data_offset(slot), self.capacity)

    def close(self) -> None:
        self._slot_targets = []
        if self.segment.fd >= 0:
            self._words[CLOSED] = time.monotonic_ns()
        self._words.release()
        self._bytes.release()
        self.segment.close()
