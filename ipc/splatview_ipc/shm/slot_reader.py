"""A viewer's side of slots (`splatview_ipc.shm.slot_writer`): the newest whole frame, read where it lies.

What this side adds to the invariants there: it maps the segment for reading only, and slots' data copy-on-write for
readers that may write into their frames (`splatview_ipc.shm.private_slots`); it trusts no word of it further than
it has checked (sizes, offsets, kinds); what `newest` and `stamp` gave counts only together with an `unchanged` that
comes after; and its own leases are stored by the thread that reads, one byte each.
"""

from __future__ import annotations

import math
import mmap
import os
import time
from typing import TYPE_CHECKING

from splatview_ipc import kinds
from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import Frame
from splatview_ipc.control.messages import DecodeError, FrameHeader, TensorHeader, decode_frame_header
from splatview_ipc.shm.private_slots import PrivateSlots
from splatview_ipc.shm.segment import PAGE, close_map, map_segment
from splatview_ipc.shm.slot_layout import (
    ALIGN,
    CAPACITY,
    CLAIMED,
    CLOSED,
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
    full_fence,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_ipc.control.frame import DeviceTensor, RemoteTensor
    from splatview_ipc.control.messages import Ref, SegmentRef
    from splatview_ipc.shm.segment import Source

_OUTDATED_NS = 500_000_000
"""After so long what was closed has been replaced by something that its viewers know of, unless they were stopped."""


class Lease:
    """One reading of a slot. Two readings of the same frame are two."""

    __slots__ = ("seq", "slot")

    def __init__(self, slot: int, seq: int):
        self.slot = slot
        self.seq = seq


class SlotReader:
    """The base of every way. A way says where a tensor lies (`_tensor`)."""

    in_segment = True
    """As `SlotWriter.in_segment`."""
    taken = 0
    asks = False

    def __init__(self, ref: SegmentRef, source: Source, lease: Callable[..., None], writable: bool = False):
        """`lease(slot)` tells the writer which slot is being read, -1: none; `lease(slot, cell)` of those that are held
        beside it (`hold_several`). `writable`: as for `Way.reader`, of data in the segment.

        Raises SharingError when the segment is not what was announced, NotYet when it has not come.
        """
        if ref.size < PAGE:
            raise SharingError(f"a ring of {ref.size} bytes was announced; it starts with {PAGE} of control")
        fd = source.segment(ref)
        try:
            self._map = map_segment(fd, ref.size, mmap.PROT_READ)
            self._private = PrivateSlots(fd) if writable else None
        finally:
            os.close(fd)
        self._held: list[Lease | None] = [None]
        """By cell."""
        self._words = memoryview(self._map)[:PAGE].cast("Q")
        self.slots, self.capacity = self._words[SLOTS], self._words[CAPACITY]
        self._stride = HEADER_BYTES + (self.capacity if self.in_segment else 0)
        if (self._words[MAGIC_WORD] != MAGIC or not limits.MIN_SLOTS <= self.slots <= limits.MAX_SLOTS
                or self.capacity % PAGE or PAGE + self.slots * self._stride > ref.size):
            SlotReader.close(self)
            raise SharingError("the announced ring is not one")
        self._lease = lease
        self._turn = 0
        """The cell that was taken last."""
        self._final: list[Lease] = []
        """What was held, and whole, when the writer had ended."""
        self._header_bytes: bytes | None = None
        self._header = FrameHeader("image", (), {})
        self.garbled = 0
        """Whole frames whose header made no sense."""
        self.torn = 0
        """Frames given up because the writer came back to their slot."""

    # What a way fills in.

    def _tensor(self, slot: int, header: TensorHeader) -> RemoteTensor | DeviceTensor:
        """The tensor that this header describes; it has been checked to lie within the slot's data."""
        raise NotImplementedError

    # What it gets for it.

    def data_offset(self, slot: int) -> int:
        """As `SlotWriter.data_offset`."""
        return PAGE + slot * self._stride + HEADER_BYTES if self.in_segment else slot * self.capacity

    def follow(self, ref: Ref) -> bool:
        return False  # a ring is one for all its life

    def ask(self) -> None:
        """As `FrameReader.ask`: copies are made whether or not somebody asks."""

    def hold_several(self, count: int) -> None:
        """Keep up to `count` frames from being overwritten until they are closed, not only the one that was read last.
        To be called before the first is read."""
        self._held = [None] * count

    def read(self, after: int = 0, attempts: int = 4) -> Frame | None:
        """The newest whole frame with a version over `after`, or None. Its tensors are views of the slot."""
        held, free = self._held, 0
        while free < len(held) and held[free] is not None:
            free += 1
        cell = free if free < len(held) else (self._turn + 1) % len(held)
        before = held[cell]
        for _ in range(attempts):
            slot, seq = self.newest(after)
            if slot < 0:
                break
            lease = Lease(slot, seq)
            self._take_lease(cell, lease)
            full_fence()  # the lease must be seen before we trust the slot
            if self._words[FIRST_SLOT + slot * WORDS_PER_SLOT + SEQ] == seq:  # neither claimed nor entered
                frame = self._frame(cell, lease, *self.stamp(slot))
                if frame is not None:
                    self._turn = cell
                    return frame
        if held[cell] is not before:
            self._take_lease(cell, before)  # a frame that is held goes on being read
        return None

    @property
    def outdated(self) -> bool:
        """As `FrameReader.outdated`."""
        closed = self._words[CLOSED]
        return closed > 0 and time.monotonic_ns() - closed > _OUTDATED_NS

    def newest(self, after: int) -> tuple[int, int]:
        """The slot with the highest whole version over `after`, and its sequence number; slot -1: there is none."""
        words, found, best = self._words, (-1, 0), after
        for slot in range(self.slots):
            base = FIRST_SLOT + slot * WORDS_PER_SLOT
            seq = words[base + SEQ]
            if seq % 2 == 0 and words[base + DONE] == seq and words[base + VERSION] > best:
                found, best = (slot, seq), words[base + VERSION]
        return found

    def stamp(self, slot: int) -> tuple[int, int]:
        """A slot's version and time."""
        base = FIRST_SLOT + slot * WORDS_PER_SLOT
        return self._words[base + VERSION], self._words[base + TIME]

    def raw_header(self, slot: int) -> bytes:
        """The bytes of a slot's header, as they stand there."""
        start = PAGE + slot * self._stride
        size = min(self._words[FIRST_SLOT + slot * WORDS_PER_SLOT + HEADER], HEADER_BYTES)
        return self._map[start : start + size]

    def unchanged(self, lease: Lease) -> bool:
        """Whether the slot is still what it was when its number was that of the lease. A writer that claims it sees the
        lease, and leaves it alone."""
        full_fence()
        try:
            return self._words[FIRST_SLOT + lease.slot * WORDS_PER_SLOT + SEQ] & ~CLAIMED == lease.seq
        except ValueError:  # this reader was closed: what becomes of the slot is not seen any more
            return lease in self._final

    def _frame(self, cell: int, lease: Lease, version: int, time_ns: int) -> Frame | None:
        try:
            if max(version, time_ns) > limits.MAX_COUNTER:
                raise ValueError("no such version, or time")
            raw = self.raw_header(lease.slot)
            if raw != self._header_bytes:
                header = decode_frame_header(raw)
                self._check(header)
                self._header_bytes, self._header = raw, header
        except (*DecodeError, ValueError):
            self.garbled += self.unchanged(lease)
            return None
        header = self._header
        tensors = self._views(lease.slot, header.tensors)

        def intact() -> bool:
            ok = self.unchanged(lease)
            self.torn += not ok
            return ok

        return Frame(kind=header.kind, version=version, time_ns=time_ns, meta=dict(header.meta), tensors=tensors,
                     intact=intact, release=lambda: self._release(cell, lease))

    def _views(self, slot: int, headers: tuple[TensorHeader, ...]) -> dict[str, RemoteTensor | DeviceTensor]:
        return {t.name: self._tensor(slot, t) for t in headers}

    def _check(self, header: FrameHeader) -> None:
        for t in header.tensors:
            if t.offset % ALIGN or end_of(t) > self.capacity:
                raise ValueError(f"{t.name} {t.shape} lies outside its slot")
        specs = {t.name: (t.dtype, t.shape) for t in header.tensors}
        if len(specs) != len(header.tensors):
            raise ValueError("a tensor name appears twice")
        kinds.check_frame(header.kind, specs, header.meta)

    def _take_lease(self, cell: int, lease: Lease | None) -> None:
        self._held[cell] = lease
        slot = lease.slot if lease is not None else -1
        if cell:
            self._lease(slot, cell)
        else:
            self._lease(slot)

    def _release(self, cell: int, lease: Lease) -> None:
        if self._held[cell] is lease:  # else a newer frame has it by now
            self._take_lease(cell, None)
        if self._private is not None:
            self._private.tidy()

    def settle(self) -> None:
        """As `FrameReader.settle`."""
        self._final = [lease for lease in self._held if lease is not None and self.unchanged(lease)]

    def close(self) -> None:
        """Unmap; a frame still held keeps its memory. Idempotent."""
        for cell, lease in enumerate(self._held):
            if lease is not None:
                self._take_lease(cell, None)
        if self._private is not None:
            self._private.close()
        self._words.release()
        close_map(self._map)


def end_of(tensor: TensorHeader) -> int:
    """Return the offset of a tensor's end from the start of its slot's data, bytes."""
    return tensor.offset + math.prod(tensor.shape) * limits.ITEM_SIZE[tensor.dtype]
