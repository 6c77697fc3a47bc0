"""Reader of a ring of slots: finds the newest whole frame, and checks afterwards that it stayed whole.

It only reads: nothing that a reader does, or dies of, is noticed by the writer or by other readers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from splatview_ipc import kinds
from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import StreamFrame
from splatview_ipc.control.messages import (
    DecodeError,
    TensorHeader,
    decode_frame_header,
)
from splatview_ipc.shm.segment import PAGE, close_map, open_segment
from splatview_ipc.shm.slot_layout import (
    ALIGN,
    CAPACITY,
    DONE,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    MAGIC_WORD,
    SEQ,
    SLOTS,
    TIME,
    VERSION,
    SlotLayout,
    full_fence,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from splatview_ipc.control.frame import DeviceTensor, RemoteTensor
    from splatview_ipc.control.messages import Ref, SegmentRef


class SlotReader(SlotLayout):
    """Base of the transports' readers. A transport fills in `_tensor`, the place of a tensor."""

    known_tokens: frozenset[str] = frozenset()
    """As `Reader.known_tokens`."""

    def __init__(self, ref: SegmentRef, fds: Mapping[str, Sequence[int]]):
        """`fds`: the descriptors of each token in what was announced; they stay the caller's.

        Raises SharingError when the segment is not what was announced.
        """
        self._map = open_segment(ref, fds, PAGE)
        self._words = memoryview(self._map)[:PAGE].cast("Q")
        super().__init__(self._words[SLOTS], self._words[CAPACITY])
        if (
            self._words[MAGIC_WORD] != MAGIC
            or not limits.MIN_SLOTS <= self.slots <= limits.MAX_SLOTS
            or self.capacity % PAGE
            or self.size > ref.size
        ):
            SlotReader.close(self)
            raise SharingError("the announced ring is not one")
        self._header_bytes: bytes | None = None
        self._header: Any = None
        self.garbled = 0
        """Whole frames whose header is invalid."""
        self.torn = 0
        """As `Reader.torn`."""
        self.alive: Callable[[], bool] = lambda: True
        """As `Reader.alive`."""

    def _tensor(self, slot: int, header: TensorHeader) -> RemoteTensor | DeviceTensor:
        """Return the tensor that this header describes; it has been checked to be within the slot's data."""
        raise NotImplementedError

    def follow(self, ref: Ref, fds: Mapping[str, Sequence[int]]) -> bool:
        """As `Reader.follow`: a ring never changes."""
        return False

    def read(self, after: int = 0, attempts: int = 4) -> StreamFrame | None:
        """As `Reader.read`."""
        for _ in range(attempts):
            slot, seq = self.find_newest(after)
            if slot < 0:
                return None
            full_fence()  # what follows is of this number, or a later one
            try:
                stamp = self.stamp(slot)
                start = self.header_offset(slot)
                raw = self._map[
                    start : start
                    + min(self._words[self.bases[slot] + HEADER], HEADER_BYTES)
                ]
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

    def find_newest(self, after: int) -> tuple[int, int]:
        """Return the slot with the highest whole version over `after` and its sequence number; slot -1: none."""
        words = self._words
        found = (-1, 0)
        best = after
        for slot, base in enumerate(self.bases):
            seq = words[base + SEQ]
            if (
                seq % 2 == 0
                and words[base + DONE] == seq
                and words[base + VERSION] > best
            ):
                found = (slot, seq)
                best = words[base + VERSION]
        return found

    def stamp(self, slot: int) -> tuple[int, int]:
        """Return a slot's version and time. Raises ValueError for numbers out of range."""
        base = self.bases[slot]
        version = self._words[base + VERSION]
        time_ns = self._words[base + TIME]
        if max(version, time_ns) > limits.MAX_COUNTER:
            raise ValueError("version or time out of range")
        return version, time_ns

    def is_unchanged(self, slot: int, seq: int) -> bool:
        """Return whether the slot has been what it was at this sequence number until now."""
        full_fence()
        try:
            return self._words[self.bases[slot] + SEQ] == seq
        except ValueError:  # this reader was closed, as when its writer ended: the slot is not written any more
            return True

    def _decode(self, raw: bytes) -> Any:
        """Return the decoded header of a slot. Raises DecodeError or ValueError."""
        header = decode_frame_header(raw)
        for t in header.tensors:
            if (
                t.offset % ALIGN
                or t.offset + math.prod(t.shape) * limits.ITEM_SIZE[t.dtype]
                > self.capacity
            ):
                raise ValueError(f"{t.name} {t.shape} is outside of its slot")
        specs = {t.name: (t.dtype, t.shape) for t in header.tensors}
        if len(specs) != len(header.tensors):
            raise ValueError("a tensor name appears twice")
        kinds.check_frame(header.kind, specs, header.meta)
        return header

    def _frame(self, slot: int, seq: int, stamp: tuple[int, int]) -> StreamFrame | None:
        """Return a slot's frame, of the decoded header; None if there is nothing to read yet. Raises ValueError."""

        def intact() -> bool:
            ok = self.is_unchanged(slot, seq)
            self.torn += not ok
            return ok

        header = self._header
        return StreamFrame(
            header.kind,
            *stamp,
            dict(header.meta),
            {t.name: self._tensor(slot, t) for t in header.tensors},
            intact,
            confirmed=header.confirmed,
        )

    def close(self) -> None:
        """Unmap; a frame still held keeps its memory. Idempotent."""
        self._words.release()
        close_map(self._map)
