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

import math
import time
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import FrameHeader, TensorHeader, encode
from splatview_ipc.shm.segment import PAGE, Segment, round_up
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
    data_bytes,
    dtype_name,
    full_fence,
)

if TYPE_CHECKING:
    import torch

    from splatview_ipc.control.messages import VersionHeader


class SlotWriter(SlotLayout):
    """Base of the transports' writers. A transport adds `ref`, and fills in `_copy`."""

    note = ""
    """As `Writer.note`."""

    def __init__(self, capacity: int, slots: int):
        """`capacity`: bytes of tensor data per slot, alignment included (`data_bytes`). Allocates all memory.

        Raises SharingError when the memory cannot be allocated.
        """
        super().__init__(slots, round_up(capacity, PAGE))
        self.segment = Segment(self.size, "ring")
        self._words = memoryview(self.segment.map).cast("Q")
        self._words[CAPACITY] = self.capacity
        self._words[SLOTS] = slots
        self._words[MAGIC_WORD] = MAGIC
        self._layout: list[Any] | None = None
        self._tensor_headers: tuple[TensorHeader, ...] = ()
        self._slot_targets: list[list[torch.Tensor]] = []
        self._last = -1

    def _targets(
        self, slot: int, headers: tuple[TensorHeader, ...]
    ) -> list[torch.Tensor]:
        """Return contiguous tensors over the slot's data, of these dtypes, shapes and offsets (bytes from the start of
        the slot's data). Called when the layout changed.
        """
        import torch

        targets = []
        for h in headers:
            dtype = getattr(torch, h.dtype)
            start = self.data_offset(slot) + h.offset
            targets.append(
                torch.empty(h.shape, dtype=dtype)
                if 0 in h.shape
                else torch.frombuffer(
                    self.segment.map,
                    dtype=dtype,
                    count=math.prod(h.shape),
                    offset=start,
                ).view(h.shape)
            )
        return targets

    def _copy(
        self,
        slot: int,
        targets: list[torch.Tensor],
        sources: list[torch.Tensor],
        whole: int,
    ) -> None:
        """Copy the sources (any strides) into the targets, and have `done` become `whole` behind the last of them:
        `set_done`, or a write of the GPU in stream order.
        """
        raise NotImplementedError

    def set_done(self, slot: int, whole: int) -> None:
        """Store that the copy into a slot has ended."""
        self._words[self.bases[slot] + DONE] = whole

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        """As `Writer.fits`."""
        return data_bytes(tensors) <= self.capacity

    def write(
        self,
        kind: str,
        tensors: dict[str, torch.Tensor],
        meta: dict[str, Any],
        version: int,
        confirmed: bool = True,
    ) -> bool:
        """As `Writer.write`; False when no slot is free now, or a slot is too small."""
        layout = [(name, t.dtype, t.shape, t.device) for name, t in tensors.items()]
        if layout != self._layout:
            if not self.fits(tensors):
                return False
            headers = []
            offset = 0
            for name, t in tensors.items():
                headers.append(
                    TensorHeader(
                        name,
                        dtype_name(t),  # type: ignore[arg-type]
                        tuple(t.shape),
                        offset,
                    )
                )
                offset = round_up(offset + t.numel() * t.element_size(), ALIGN)
            self._tensor_headers = tuple(headers)
            self._slot_targets = [
                self._targets(slot, self._tensor_headers) for slot in range(self.slots)
            ]
            self._layout = layout
        header = encode_header(FrameHeader(kind, self._tensor_headers, meta, confirmed))  # type: ignore[arg-type]
        slot = self.free_slot()
        if slot < 0:
            return False
        whole = self.begin(slot)
        try:
            self._copy(slot, self._slot_targets[slot], list(tensors.values()), whole)
        except BaseException:
            self.set_done(
                slot, whole
            )  # a slot whose copy failed must not count as busy for ever
            self.commit(slot, whole, header, 0)
            raise
        self.commit(slot, whole, header, version)
        return True

    def free_slot(self) -> int:
        """Return the slot to write into next, -1 if there is none (invariant 5)."""
        newest = -1
        if self._last >= 0 and not self._is_done(
            self._last
        ):  # a GPU is behind: an older slot is the newest whole one
            versions = [
                self._words[base + VERSION] if self._is_done(slot) else 0
                for slot, base in enumerate(self.bases)
            ]
            newest = versions.index(max(versions)) if max(versions) else -1
        for i in range(1, self.slots):
            slot = (self._last + i) % self.slots
            if slot != newest and self._is_done(slot):
                return slot
        return -1

    def _is_done(self, slot: int) -> bool:
        base = self.bases[slot]
        return self._words[base + DONE] == self._words[base + SEQ]

    def begin(self, slot: int) -> int:
        """Enter a slot; return the even number that its `done` must become."""
        index = self.bases[slot] + SEQ
        number = self._words[index] + 1
        self._words[index] = number
        full_fence()  # on x86 as well: large copies overtake the stores before them
        return number + 1

    def commit(self, slot: int, whole: int, header: bytes, version: int) -> None:
        """Leave a slot; readers get it once it is done. `version` 0: no reader gets it."""
        words = self._words
        base = self.bases[slot]
        start = self.header_offset(slot)
        self.segment.map[start : start + len(header)] = header
        words[base + HEADER] = len(header)
        words[base + VERSION] = version
        words[base + TIME] = time.time_ns()
        full_fence()
        words[base + SEQ] = whole
        if version:
            self._last = slot

    def turn(self, now: float) -> float | None:
        """As `Writer.turn`."""
        return None

    def close(self) -> None:
        """As `Writer.close`."""
        self._slot_targets = []
        self._words.release()
        self.segment.close()


def encode_header(header: FrameHeader | VersionHeader) -> bytes:
    """Return the bytes of a slot's header. Raises SharingError when there are too many."""
    data = encode(header)
    if len(data) > HEADER_BYTES:
        raise SharingError(
            f"metadata of {len(data)} bytes; the limit is {HEADER_BYTES}"
        )
    return data
