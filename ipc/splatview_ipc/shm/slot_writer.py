"""Write frames into a ring of slots, each with a number that tells if it is complete.

Invariants; tests/ipc/test_models.py explores the real code in every interleaving:

1. One thread at a time writes (the stream's lock). Any number of readers, in other
   processes, only read.
2. A slot's sequence number is odd while the slot is written, and becomes the next even
   number when the slot is committed. Data, header, version and time are stored between
   the two, with a full fence on either side.
3. The word `done` takes the slot's even number when the copy has ended. The processor
   stores it, or the GPU writes it in stream order after the copy. A slot is complete
   when its number is even and equal to `done`.
4. A reader takes the number, reads the slot, and after a fence takes the number again.
   If both are the same, and the slot was complete, what it read is one version. Nothing
   else is needed, whatever a reader or the writer does or dies of.
5. The newest complete slot is never written, nor a slot whose copy has not ended. Where
   no other slot is left the version is skipped, and the stream writes the newest one
   later.
6. The tensors of one version are stored in one slot: no reader can mix versions.
7. The memory of all slots is allocated and mapped before the first write: no write
   finds a missing page.
"""

from __future__ import annotations

import math
import operator
import time
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.dtypes import dtype_name
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import FrameHeader, TensorHeader, encode
from splatview_ipc.shm.fence import full_fence
from splatview_ipc.shm.segment import PAGE, Segment, round_up
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
    TIME,
    VERSION,
    SlotLayout,
    data_bytes,
)

if TYPE_CHECKING:
    import torch

FORM_OF = operator.attrgetter("dtype", "shape", "device")
"""Returns what, beside its name, decides how a tensor is stored in a slot."""


class SlotWriter(SlotLayout):
    """Base of the transports' writers; they add `ref`, and implement `_copy`."""

    note = ""
    """Why this transport is worse here than usual, for users; "": it is not."""

    def __init__(self, capacity: int, slot_count: int):
        """Allocate all memory. Raises SharingError when it cannot be allocated.

        Args:
            capacity: bytes of tensor data per slot, alignment included (`data_bytes`).
            slot_count: the number of slots of the ring.
        """
        super().__init__(slot_count, round_up(capacity, PAGE))
        self.segment = Segment(self.size, "ring")
        self._slot_words = memoryview(self.segment.map).cast("Q")
        self._slot_words[CAPACITY] = self.capacity
        self._slot_words[SLOT_COUNT] = slot_count
        self._slot_words[MAGIC_WORD] = MAGIC
        self._layout: list[Any] | None = None
        self._tensor_headers: tuple[TensorHeader, ...] = ()
        self._slot_targets: list[list[torch.Tensor]] = []
        self._last = -1
        """The slot that was written last."""

    def _targets(
        self, slot: int, headers: tuple[TensorHeader, ...]
    ) -> list[torch.Tensor]:
        """Return contiguous tensors over a slot's data, as the headers describe them.

        Called when the layout changed.
        """
        import torch

        targets = []
        for header in headers:
            dtype = getattr(torch, header.dtype)
            if 0 in header.shape:
                targets.append(torch.empty(header.shape, dtype=dtype))
                continue
            target = torch.frombuffer(
                self.segment.map,
                dtype=dtype,
                count=math.prod(header.shape),
                offset=self.data_offset(slot) + header.offset,
            )
            targets.append(target.view(header.shape))
        return targets

    def _copy(
        self,
        slot: int,
        targets: list[torch.Tensor],
        sources: list[torch.Tensor],
        even_sequence: int,
    ) -> None:
        """Copy the sources (any strides) into the targets.

        Behind the last copy, `done` must become the even number of the slot:
        by `set_done`, or by a write of the GPU in stream order.
        """
        raise NotImplementedError

    def set_done(self, slot: int, even_sequence: int) -> None:
        """Store that the copy into a slot has ended."""
        self._slot_words[self.first_words[slot] + DONE] = even_sequence

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        """Return whether a slot has space for these tensors; see `Writer.fits`."""
        return data_bytes(tensors) <= self.capacity

    def write(
        self,
        kind: str,
        tensors: dict[str, torch.Tensor],
        meta: dict[str, Any],
        version: int,
        confirmed: bool = True,
    ) -> bool:
        """Write a version into a slot; see `Writer.write`.

        Returns False when no slot is free now, or a slot is too small.
        """
        layout = [*tensors, *map(FORM_OF, tensors.values())]
        if layout != self._layout:
            if not self.fits(tensors):
                return False
            self._make_targets(tensors)
            self._layout = layout
        header = encode(FrameHeader(kind, self._tensor_headers, meta, confirmed))  # type: ignore[arg-type]
        if len(header) > HEADER_BYTES:
            raise header_error(header)
        slot = self.free_slot()
        if slot < 0:
            return False
        even_sequence = self.begin(slot)
        try:
            sources = list(tensors.values())
            self._copy(slot, self._slot_targets[slot], sources, even_sequence)
        except BaseException:
            # A slot whose copy failed must not count as busy for ever.
            self.set_done(slot, even_sequence)
            self.commit(slot, even_sequence, header, 0)
            raise
        self.commit(slot, even_sequence, header, version)
        return True

    def _make_targets(self, tensors: dict[str, torch.Tensor]) -> None:
        """Prepare headers and slots for tensors of a new layout."""
        headers = []
        offset = 0
        for name, tensor in tensors.items():
            header = TensorHeader(
                name,
                dtype_name(tensor),  # type: ignore[arg-type]
                tuple(tensor.shape),
                offset,
            )
            headers.append(header)
            offset = round_up(offset + tensor.numel() * tensor.element_size(), ALIGN)
        self._tensor_headers = tuple(headers)
        self._slot_targets = [
            self._targets(slot, self._tensor_headers) for slot in range(self.slot_count)
        ]

    def free_slot(self) -> int:
        """Return the slot to write into next, -1 if there is none (invariant 5)."""
        slot_words = self._slot_words
        last = self._last
        newest = -1
        first_word = self.first_words[last]
        if last >= 0 and slot_words[first_word + DONE] != slot_words[first_word + SEQ]:
            # A GPU is behind: an older slot is the newest complete one.
            newest = self._newest_done()
        for step in range(1, self.slot_count):
            slot = (last + step) % self.slot_count
            first_word = self.first_words[slot]
            is_done = slot_words[first_word + DONE] == slot_words[first_word + SEQ]
            if is_done and slot != newest:
                return slot
        return -1

    def _newest_done(self) -> int:
        """Return the complete slot with the highest version, -1 if there is none."""
        slot_words = self._slot_words
        newest = -1
        best_version = 0
        for slot, first_word in enumerate(self.first_words):
            version = slot_words[first_word + VERSION]
            is_done = slot_words[first_word + DONE] == slot_words[first_word + SEQ]
            if is_done and version > best_version:
                newest = slot
                best_version = version
        return newest

    def begin(self, slot: int) -> int:
        """Start to write a slot; return the even number that its `done` must become."""
        index = self.first_words[slot] + SEQ
        odd_sequence = self._slot_words[index] + 1
        self._slot_words[index] = odd_sequence
        # On x86 as well: large copies overtake the stores before them.
        full_fence()
        return odd_sequence + 1

    def commit(
        self, slot: int, even_sequence: int, header: bytes, version: int
    ) -> None:
        """Finish a slot; readers get it once it is done.

        `version` 0: no reader gets it.
        """
        slot_words = self._slot_words
        first_word = self.first_words[slot]
        start = self.header_offsets[slot]
        self.segment.map[start : start + len(header)] = header
        slot_words[first_word + HEADER_LENGTH] = len(header)
        slot_words[first_word + VERSION] = version
        slot_words[first_word + TIME] = time.time_ns()
        full_fence()
        slot_words[first_word + SEQ] = even_sequence
        if version:
            self._last = slot

    def turn(self, now: float) -> float | None:
        """Return None: nothing is due; see `Writer.turn`."""
        return None

    def close(self) -> None:
        """Release the memory; see `Writer.close`."""
        self._slot_targets = []
        self._slot_words.release()
        self.segment.close()


def header_error(header: bytes) -> SharingError:
    """Return the error for an encoded header of more than HEADER_BYTES."""
    return SharingError(f"metadata of {len(header)} bytes; the limit is {HEADER_BYTES}")
