"""Reader of a ring of slots: finds the newest complete frame, and checks it afterwards.

It only reads: nothing that a reader does, or dies of, is noticed by the writer or by
other readers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from splatview_ipc import kinds
from splatview_ipc.control import limits
from splatview_ipc.control.dtypes import DTYPES
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import StreamFrame
from splatview_ipc.control.messages import (
    DecodeError,
    TensorHeader,
    decode_frame_header,
)
from splatview_ipc.shm.fence import full_fence
from splatview_ipc.shm.segment import PAGE, close_map, open_segment
from splatview_ipc.shm.slot_layout import (
    ALIGN,
    CAPACITY,
    DONE,
    HEADER_BYTES,
    HEADER_LENGTH,
    MAGIC,
    MAGIC_WORD,
    SEQ,
    SLOT_COUNT,
    STEP,
    TIME,
    VERSION,
    SlotLayout,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from splatview_ipc.control.frame import DeviceTensor, RemoteTensor
    from splatview_ipc.control.messages import Ref, SegmentRef

_MAX_SIGNED = 2**63 - 1
"""Words above it stand for negative numbers."""


class Stamp(NamedTuple):
    """A version as the words of its slot describe it."""

    version: int
    time_ns: int
    """Time of writing, in ns since the epoch."""
    step: int
    """Zero-copy only: the metadata "step", where that is a whole number."""


class SlotReader(SlotLayout):
    """Base of the transports' readers. A transport implements `_tensor`."""

    known_tokens: frozenset[str] = frozenset()
    """Tokens of memory that is open here, whose descriptors are not fetched again."""

    def __init__(self, ref: SegmentRef, fds: Mapping[str, Sequence[int]]):
        """Map the announced segment.

        Raises SharingError when the segment is not what was announced.

        Args:
            ref: the announced segment.
            fds: the descriptors of each token; they stay the caller's.
        """
        self._map = open_segment(ref, fds, PAGE)
        self._slot_words = memoryview(self._map)[:PAGE].cast("Q")
        super().__init__(self._slot_words[SLOT_COUNT], self._slot_words[CAPACITY])
        if not self._is_valid(ref.size):
            SlotReader.close(self)
            raise SharingError("the announced ring is not one")
        self._header_bytes: bytes | None = None
        self._header: Any = None
        """The decoded header of `_header_bytes`; most frames have the same."""
        self.garbled = 0
        """Complete frames whose header is invalid."""
        self.torn = 0
        """Number of frames discarded because the writer overwrote them."""
        self.alive: Callable[[], bool] = lambda: True
        """Returns whether the writer's process still runs; set by the stream."""

    def _is_valid(self, segment_size: int) -> bool:
        """Return whether the control page describes a ring within the segment."""
        if self._slot_words[MAGIC_WORD] != MAGIC:
            return False
        if not limits.MIN_SLOTS <= self.slot_count <= limits.MAX_SLOTS:
            return False
        return self.capacity % PAGE == 0 and self.size <= segment_size

    def _tensor(self, slot: int, header: TensorHeader) -> RemoteTensor | DeviceTensor:
        """Return the tensor that this header describes.

        It has been checked to be within the slot's data.
        """
        raise NotImplementedError

    def follow(self, ref: Ref, fds: Mapping[str, Sequence[int]]) -> bool:
        """Return False: a ring never changes. See `Reader.follow`."""
        return False

    def read(self, after: int = 0, attempts: int = 4) -> StreamFrame | None:
        """Return the newest complete frame; see `Reader.read`."""
        return self._read(after, attempts)

    def read_next(self, last_version: int = 0, attempts: int = 4) -> StreamFrame | None:
        """Return the oldest complete frame over `after`; see `Reader.read_next`."""
        return self._read(last_version, attempts, oldest=True)

    def _read(
        self, after: int, attempts: int, *, oldest: bool = False
    ) -> StreamFrame | None:
        """Return the newest complete frame over `after`, or the oldest one."""
        for _ in range(attempts):
            if oldest:
                slot, seq = _find_oldest(self._slot_words, self.first_words, after)
            else:
                slot, seq = self.find_newest(after)
            if slot < 0:
                return None
            # What is read below is of this sequence number, or of a later one.
            full_fence()
            try:
                stamp = self.stamp(slot)
                raw = self._read_header(slot)
                if not self.is_unchanged(slot, seq):
                    continue
                if raw != self._header_bytes:
                    self._header = self._decode(raw)
                    self._header_bytes = raw
                frame = self._frame(slot, seq, stamp)
            except (*DecodeError, ValueError):
                self.garbled += self.is_unchanged(slot, seq)
                continue
            return frame
        return None

    def holds(self, version: int) -> bool:
        """Return whether a version, or a newer one, was written; see `Reader.holds`."""
        slot_words = self._slot_words
        return any(slot_words[first + VERSION] >= version for first in self.first_words)

    def find_newest(self, after: int) -> tuple[int, int]:
        """Return the slot with the highest complete version, and its sequence number.

        Returns slot -1 if no version is over `after`.
        """
        slot_words = self._slot_words
        newest = (-1, 0)
        best_version = after
        for slot, first_word in enumerate(self.first_words):
            seq = slot_words[first_word + SEQ]
            is_complete = seq % 2 == 0 and slot_words[first_word + DONE] == seq
            if is_complete and slot_words[first_word + VERSION] > best_version:
                newest = (slot, seq)
                best_version = slot_words[first_word + VERSION]
        return newest

    def stamp(self, slot: int) -> Stamp:
        """Return the version of a slot, as its words describe it.

        Raises ValueError for numbers out of range.
        """
        first_word = self.first_words[slot]
        version = self._slot_words[first_word + VERSION]
        time_ns = self._slot_words[first_word + TIME]
        step = self._slot_words[first_word + STEP]
        if max(version, time_ns) > limits.MAX_COUNTER:
            raise ValueError("version or time out of range")
        if step > _MAX_SIGNED:
            step -= 2**64
        return Stamp(version, time_ns, step)

    def _read_header(self, slot: int) -> bytes:
        """Return the bytes of a slot's header, at most HEADER_BYTES."""
        start = self.header_offsets[slot]
        size = min(
            self._slot_words[self.first_words[slot] + HEADER_LENGTH], HEADER_BYTES
        )
        return self._map[start : start + size]

    def is_unchanged(self, slot: int, seq: int) -> bool:
        """Return whether a slot has had this sequence number until now."""
        full_fence()
        try:
            return self._slot_words[self.first_words[slot] + SEQ] == seq
        except ValueError:
            # This reader was closed, as when its writer ended: the slot is not written
            # any more.
            return True

    def _decode(self, raw: bytes) -> Any:
        """Return the decoded header of a slot. Raises DecodeError or ValueError."""
        header = decode_frame_header(raw)
        specs = {}
        for tensor in header.tensors:
            size = math.prod(tensor.shape) * DTYPES[tensor.dtype].item_size
            if tensor.offset % ALIGN or tensor.offset + size > self.capacity:
                raise ValueError(f"{tensor.name} {tensor.shape} is outside of its slot")
            specs[tensor.name] = (tensor.dtype, tensor.shape)
        if len(specs) != len(header.tensors):
            raise ValueError("a tensor name appears twice")
        kinds.check_frame(header.kind, specs, header.meta)
        return header

    def _frame(self, slot: int, seq: int, stamp: Stamp) -> StreamFrame | None:
        """Return a slot's frame, of the decoded header. Raises ValueError.

        Returns None if there is nothing to read yet.
        """

        def is_intact() -> bool:
            is_unchanged = self.is_unchanged(slot, seq)
            self.torn += not is_unchanged
            return is_unchanged

        header = self._header
        return StreamFrame(
            kind=header.kind,
            version=stamp.version,
            time_ns=stamp.time_ns,
            meta=dict(header.meta),
            tensors={t.name: self._tensor(slot, t) for t in header.tensors},
            intact=is_intact,
            confirmed=header.confirmed,
        )

    def close(self) -> None:
        """Unmap the segment; a frame still in use keeps its memory. Idempotent."""
        self._slot_words.release()
        close_map(self._map)


def _find_oldest(
    slot_words: memoryview, first_words: Sequence[int], after: int
) -> tuple[int, int]:
    """Return the slot with the lowest complete version, and its sequence number.

    Returns slot -1 if no version is over `after`.
    """
    oldest = (-1, 0)
    lowest_version = math.inf
    for slot, first_word in enumerate(first_words):
        seq = slot_words[first_word + SEQ]
        is_complete = seq % 2 == 0 and slot_words[first_word + DONE] == seq
        version = slot_words[first_word + VERSION]
        if is_complete and after < version < lowest_version:
            oldest = (slot, seq)
            lowest_version = version
    return oldest
