"""Base of the transports for CUDA tensors: the GPU itself marks what has arrived.

The control page is pinned, and after each copy the GPU writes, in stream order, the
slot's number into its `done` word there (zero-copy: after each version, into
`arrived`). Nothing waits, and no reader needs CUDA to know that a frame is complete.

Invariants, beside those of `splatview_ipc.shm.slot_writer`
1. `done` is written by the GPU: the processor stores to it only where nothing was
   queued that will (a failed copy, or no tensors).
2. The slot's odd number is seen before its copy is queued, and no copy is queued into a
   slot before the last one into it has ended: two copies never meet there, whatever
   their streams.
3. The control page stays pinned, and the slots stay, until that word has caught up with
   every slot's number (`_idle`).
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Self

from splatview_ipc.cuda import driver, retiring
from splatview_ipc.shm.segment import PAGE
from splatview_ipc.shm.slot_layout import DONE, SEQ, choose_ring_size
from splatview_ipc.shm.slot_writer import SlotWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

_WORD_BYTES = 8


class GpuSlotWriter(SlotWriter):
    """Slots that the GPU marks. Call `_pin` before the first write."""

    marked = DONE
    """The word of a slot that the GPU writes."""
    _mark: Callable[[int, int], None]
    """Have the GPU write a slot's number at the end of torch's current stream."""

    @classmethod
    def make(cls, tensors: dict[str, torch.Tensor], growing: bool) -> Self:
        """Make a ring for such tensors on one CUDA device; see `Transport.writer`."""
        device_index = next(iter(tensors.values())).get_device()
        return cls(device_index, *choose_ring_size(tensors, growing))

    def __init__(self, index: int, capacity: int, slot_count: int) -> None:
        """Allocate the control segment.

        Args:
            index: the device's ordinal.
            capacity: bytes of tensor data per slot, alignment included.
            slot_count: the number of slots of the ring.

        Raises:
            SharingError: the memory cannot be allocated.
        """
        super().__init__(capacity, slot_count)
        self.index = index
        self._pinned = 0
        """Address of the pinned memory; 0: nothing is pinned."""
        self._closed = False

    def _pin(self, size: int) -> None:
        """Pin the first bytes of the segment, its control page at least, for the GPU.

        Raises SharingError.
        """
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.segment.map))
        device_address = driver.register_host(address, max(size, PAGE), self.index)
        self._pinned = address
        addresses = [
            device_address + _WORD_BYTES * (first_word + self.marked)
            for first_word in self.first_words
        ]
        self._mark = driver.StreamMarks(self.index, addresses).mark

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        """Return whether tensors are on this device and fit into a slot."""
        if any(tensor.get_device() != self.index for tensor in tensors.values()):
            return False
        return super().fits(tensors)

    def holds(self, tensors: dict[str, torch.Tensor]) -> bool:
        """Return False: to compare would be to wait for the GPU."""
        return False

    def write(
        self,
        kind: str,
        tensors: dict[str, torch.Tensor],
        meta: dict[str, Any],
        version: int,
        confirmed: bool = True,
    ) -> bool:
        if driver.is_capturing():
            # What is captured would be repeated at each replay, into a slot that has
            # moved on.
            return False
        return super().write(kind, tensors, meta, version, confirmed)

    def _copy(
        self,
        slot: int,
        targets: list[torch.Tensor],
        sources: list[torch.Tensor],
        even_sequence: int,
    ) -> None:
        if not sources:
            # Metadata come through also when the GPU has failed.
            self.set_done(slot, even_sequence)
            return
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source, non_blocking=True)
        self._mark(slot, even_sequence)

    def _idle(self) -> bool:
        """Return whether no queued GPU work uses the slots or the control page."""
        slot_words = self._slot_words
        is_idle = all(
            slot_words[first_word + self.marked] == slot_words[first_word + SEQ]
            for first_word in self.first_words
        )
        return is_idle or driver.is_broken(self.index)

    def close(self) -> None:
        """Release everything as soon as the GPU is through with it. Idempotent."""
        if not self._closed:
            self._closed = True
            self._slot_targets = []
            retiring.retire(self._idle, self._release)

    def _release(self) -> None:
        if self._pinned:
            driver.release_host(self._pinned, self.index)
        super().close()
