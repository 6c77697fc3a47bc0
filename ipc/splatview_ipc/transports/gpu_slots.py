"""What the ways share whose slots the GPU fills: it says itself, in the order of its stream, when a slot is whole.

The segment's control page is pinned, and behind each copy the GPU writes the slot's number into its `done` word there.
Nobody waits, and no reader needs CUDA to know that a frame is complete.

Where the GPU can only write half a word at a time, `done` passes through one value more, of the new upper half and the
old lower one. No reader takes that for whole: it compares with the slot's sequence number, which from before the copy
on is the new number, or that less one; and the intermediate value is either the old number (the upper half did not
change) or, once in two thousand million frames of a slot, far above the new one.

Invariants, beside those of `splatview_ipc.shm.slot_writer`
1. `done` is the GPU's word: the processor stores to it only where nothing was queued that will (a copy that failed).
2. The slot's odd number is seen before its copy is queued, and no copy is queued into a slot before the last one into
   it has ended: two copies never meet there, whatever their streams.
3. The control page stays pinned, and the slots stay, until `done` has caught up with every slot's number (`_idle`).
"""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.errors import SharingError
from splatview_ipc.cuda import driver, retiring
from splatview_ipc.shm.segment import PAGE
from splatview_ipc.shm.slot_layout import CLAIMED
from splatview_ipc.shm.slot_writer import SlotWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

_FINISH = 60.0
"""Seconds that the helper thread waits for a copy that it queued itself, behind all that training had queued."""


class GpuSlotWriter(SlotWriter):
    """The base of ways whose copies the GPU makes. `_pin` before the first write."""

    at_once = False

    def __init__(self, index: int, capacity: int, slots: int, leased: Callable[[], bytes], ready: bool = True):
        """`index`: the device's ordinal; the rest as for SlotWriter. Raises SharingError."""
        super().__init__(capacity, slots, leased, ready=ready)
        self.index = index
        self._pinned = 0
        self._done: list[int] = []
        self._writes_64 = False
        self._closed = False

    def _pin(self, size: int) -> None:
        """Pin the first bytes of the segment, its control page at least, for the GPU. Raises SharingError."""
        from torch._C import _cuda_getCurrentRawStream, _cuda_getDevice  # type: ignore[attr-defined]

        self._stream_of, self._device = _cuda_getCurrentRawStream, _cuda_getDevice
        self._writes_64 = driver.stream_writes(self.index)
        self._write_value = driver.bindings().cuStreamWriteValue64
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.segment.map))
        on_device = driver.register_host(address, max(size, PAGE), self.index)
        self._pinned = address
        self._done = [on_device + self.done_offset(slot) for slot in range(self.slots)]

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        return all(t.get_device() == self.index for t in tensors.values()) and super().fits(tensors)

    def write(self, kind: str, tensors: dict[str, torch.Tensor], meta: dict[str, Any], version: int,
              still_wanted: Callable[[], bool] | None = None) -> bool:
        if driver.is_capturing():
            return False  # what is captured would be repeated at each replay, into a slot of somebody else's
        return super().write(kind, tensors, meta, version, still_wanted)

    def _copy(self, slot: int, targets: list[torch.Tensor], sources: list[torch.Tensor], whole: int) -> None:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source, non_blocking=True)
        stream = self._stream_of(self.index)
        # The common cases, in as few calls as possible.
        if self._writes_64 and (stream or self._device() == self.index):
            error = self._write_value(driver.stream_object(stream), self._done[slot], whole, 0)[0]
            if not error:
                return
        driver.write_value(self.index, stream, self._done[slot], whole)

    def _finish(self, slot: int, whole: int) -> None:
        word, end, pause = self.done_offset(slot) // 8, time.monotonic() + _FINISH, 1e-4
        while self._words[word] != whole:
            if driver.broken(self.index) or time.monotonic() > end:
                raise SharingError("the GPU did not come to copy the frame")
            time.sleep(pause)
            pause = min(pause * 1.5, 5e-3)

    def _idle(self) -> bool:
        """Whether nothing queued on the GPU uses the slots any more."""
        words = [self.done_offset(slot) // 8 for slot in range(self.slots)]
        # The sequence number stands before `done`; Ctrl-C may have left a mark on it.
        return (all(self._words[word] == self._words[word - 1] & ~CLAIMED for word in words)
                or driver.broken(self.index))

    def close(self) -> None:
        """Give everything back as soon as the GPU is through with it. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._slot_targets = []
        retiring.retire(self._idle, self._give_back)

    def _give_back(self) -> None:
        if self._pinned:
            driver.release_host(self._pinned, self.index)
        super().close()
