"""Base of the transports whose slots the GPU fills: it writes itself, in stream order, when a slot is whole.

The control page is pinned, and behind each copy the GPU writes the slot's number into its `done` word there. Nothing
waits, and no reader needs CUDA to know that a frame is complete.

Invariants, beside those of `splatview_ipc.shm.slot_writer`
1. `done` is written by the GPU: the processor stores to it only where nothing was queued that will (a failed copy).
2. The slot's odd number is seen before its copy is queued, and no copy is queued into a slot before the last one into
   it has ended: two copies never meet there, whatever their streams.
3. The control page stays pinned, and the slots stay, until `done` has caught up with every slot's number (`_idle`).
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from splatview_ipc.cuda import driver, retiring
from splatview_ipc.shm.segment import PAGE
from splatview_ipc.shm.slot_writer import SlotWriter

if TYPE_CHECKING:
    import torch


class GpuSlotWriter(SlotWriter):
    """Slots whose copies the GPU makes. Call `_pin` before the first write."""

    def __init__(self, index: int, capacity: int, slots: int):
        """`index`: the device's ordinal; the rest as for SlotWriter. Raises SharingError."""
        super().__init__(capacity, slots)
        self.index = index
        self._pinned = 0
        self._done: list[int] = []
        self._closed = False

    def _pin(self, size: int) -> None:
        """Pin the first bytes of the segment, its control page at least, for the GPU. Raises SharingError."""
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.segment.map))
        on_device = driver.register_host(address, max(size, PAGE), self.index)
        self._pinned = address
        self._done = [on_device + self.done_offset(slot) for slot in range(self.slots)]

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        return all(t.get_device() == self.index for t in tensors.values()) and super().fits(tensors)

    def write(self, kind: str, tensors: dict[str, torch.Tensor], meta: dict[str, Any], version: int,
              confirmed: bool = True) -> bool:
        if driver.is_capturing():
            return False  # what is captured would be repeated at each replay, into a slot that has moved on
        return super().write(kind, tensors, meta, version, confirmed)

    def _copy(self, slot: int, targets: list[torch.Tensor], sources: list[torch.Tensor], whole: int) -> None:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source, non_blocking=True)
        driver.write_value(self.index, driver.current_stream(self.index), self._done[slot], whole)

    def _idle(self) -> bool:
        """Return whether nothing queued on the GPU uses the slots any more."""
        words = [self.done_offset(slot) // 8 for slot in range(self.slots)]
        # The sequence number stands before `done`.
        return all(self._words[word] == self._words[word - 1] for word in words) or driver.broken(self.index)

    def close(self) -> None:
        """Give everything back as soon as the GPU is through with it. Idempotent."""
        if not self._closed:
            self._closed = True
            self._slot_targets = []
            retiring.retire(self._idle, self._give_back)

    def _give_back(self) -> None:
        if self._pinned:
            driver.release_host(self._pinned, self.index)
        super().close()
