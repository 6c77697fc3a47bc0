"""Reader of a ring of slots: finds the newest whole frame, and checks afterwards that it stayed whole.

It only reads: nothing that a reader does, or dies of, is noticed by the writer or by other readers.
"""

from __future__ import annotations

import math
import mmap
from typing import TYPE_CHECKING

from splatview_ipc import kinds
from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import Frame
from splatview_ipc.control.messages import DecodeError, FrameHeader, TensorHeader, decode_frame_header
from splatview_ipc.shm.segment import PAGE, close_map, open_segment
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
    full_fence,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from splatview_ipc.control.frame import DeviceTensor, RemoteTensor
    from splatview_ipc.control.messages import Ref, SegmentRef


class SlotReader:
    """Base of the transports' readers. A transport fills in `_tensor`, the place of a tensor."""

    in_segment = True
    """As `SlotWriter.in_segment`."""
    known: frozenset[str] = frozenset()
    """Tokens of memory that is open here already: their descriptors need not be fetched again."""

    def __init__(self, ref: SegmentRef, fds: Mapping[str, Sequence[int]]):
        """`fds`: the descriptors of each token in what was announced; they stay the caller's.

        Raises SharingError when the segment is not what was announced.
        """
        if ref.size < PAGE:
            raise SharingError(f"a ring of {ref.size} bytes was announced; it starts with {PAGE} of control")
        self._map = open_segment(ref, fds, mmap.PROT_READ)
        self._words = memoryview(self._map)[:PAGE].cast("Q")
        self.slots, self.capacity = self._words[SLOTS], self._words[CAPACITY]
        self._stride = HEADER_BYTES + (self.capacity if self.in_segment else 0)
        if (self._words[MAGIC_WORD] != MAGIC or not limits.MIN_SLOTS <= self.slots <= limits.MAX_SLOTS
                or self.capacity % PAGE or PAGE + self.slots * self._stride > ref.size):
            SlotReader.close(self)
            raise SharingError("the announced ring is not one")
        self._header_bytes: bytes | None = None
        self._header = FrameHeader("image", (), {})
        self.garbled = 0
        """Whole frames whose header is invalid."""
        self.torn = 0
        """Frames discarded because the writer overwrote their slot."""
        self.alive: Callable[[], bool] = _always
        """Tells whether the writer's process still runs; set by the stream."""

    def _tensor(self, slot: int, header: TensorHeader) -> RemoteTensor | DeviceTensor:
        """Return the tensor that this header describes; it has been checked to be within the slot's data."""
        raise NotImplementedError

    def data_offset(self, slot: int) -> int:
        """As `SlotWriter.data_offset`."""
        return PAGE + slot * self._stride + HEADER_BYTES if self.in_segment else slot * self.capacity

    def follow(self, ref: Ref, fds: Mapping[str, Sequence[int]]) -> bool:
        """Take in a newer `ref` of the same writer. Returns False when another reader is needed: a ring never changes.

        Raises SharingError; what was read until now stays readable then.
        """
        return False

    def read(self, after: int = 0, attempts: int = 4) -> Frame | None:
        """Return the newest whole frame with a version over `after`, or None. Never waits.

        Its tensors are views of the slot: use them, then ask `Frame.intact`.
        """
        for _ in range(attempts):
            slot, seq = self.newest(after)
            if slot < 0:
                return None
            full_fence()  # what follows is of this number, or a later one
            frame = self._frame(slot, seq)
            if frame is not None:
                return frame
        return None

    def newest(self, after: int) -> tuple[int, int]:
        """Return the slot with the highest whole version over `after` and its sequence number; slot -1: none."""
        words, found, best = self._words, (-1, 0), after
        for slot in range(self.slots):
            base = FIRST_SLOT + slot * WORDS_PER_SLOT
            seq = words[base + SEQ]
            if seq % 2 == 0 and words[base + DONE] == seq and words[base + VERSION] > best:
                found, best = (slot, seq), words[base + VERSION]
        return found

    def stamp(self, slot: int) -> tuple[int, int]:
        """Return a slot's version and time. Raises ValueError for numbers out of range."""
        base = FIRST_SLOT + slot * WORDS_PER_SLOT
        version, time_ns = self._words[base + VERSION], self._words[base + TIME]
        if max(version, time_ns) > limits.MAX_COUNTER:
            raise ValueError("version or time out of range")
        return version, time_ns

    def raw_header(self, slot: int) -> bytes:
        """Return the bytes of a slot's header."""
        start = PAGE + slot * self._stride
        size = min(self._words[FIRST_SLOT + slot * WORDS_PER_SLOT + HEADER], HEADER_BYTES)
        return self._map[start : start + size]

    def unchanged(self, slot: int, seq: int) -> bool:
        """Return whether the slot has been what it was at this sequence number until now."""
        full_fence()
        try:
            return self._words[FIRST_SLOT + slot * WORDS_PER_SLOT + SEQ] == seq
        except ValueError:  # this reader was closed, as when its writer ended: the slot is not written any more
            return True

    def _frame(self, slot: int, seq: int) -> Frame | None:
        try:
            version, time_ns = self.stamp(slot)
            raw = self.raw_header(slot)
            if not self.unchanged(slot, seq):
                return None
            if raw != self._header_bytes:
                header = decode_frame_header(raw)
                self._check(header)
                self._header_bytes, self._header = raw, header
        except (*DecodeError, ValueError):
            self.garbled += self.unchanged(slot, seq)
            return None

        def intact() -> bool:
            ok = self.unchanged(slot, seq)
            self.torn += not ok
            return ok

        header = self._header
        return Frame(header.kind, version, time_ns, dict(header.meta),
                     {t.name: self._tensor(slot, t) for t in header.tensors}, intact, _nothing,
                     confirmed=header.confirmed)

    def _check(self, header: FrameHeader) -> None:
        for t in header.tensors:
            if t.offset % ALIGN or end_of(t) > self.capacity:
                raise ValueError(f"{t.name} {t.shape} is outside of its slot")
        specs = {t.name: (t.dtype, t.shape) for t in header.tensors}
        if len(specs) != len(header.tensors):
            raise ValueError("a tensor name appears twice")
        kinds.check_frame(header.kind, specs, header.meta)

    def close(self) -> None:
        """Unmap; a frame still held keeps its memory. Idempotent."""
        self._words.release()
        close_map(self._map)


def end_of(tensor: TensorHeader) -> int:
    """Return the offset of a tensor's end from the start of its slot's data, bytes."""
    return tensor.offset + math.prod(tensor.shape) * limits.ITEM_SIZE[tensor.dtype]


def _nothing() -> None:
    pass


def _always() -> bool:
    return True
