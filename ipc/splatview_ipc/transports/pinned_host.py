"""Transport for CUDA tensors that a viewer cannot open: copied by the GPU into a ring of slots in pinned shared memory.

Viewers read it like the ring of a CPU tensor. Copies are queued on the trainer's current stream and end there later;
one is under way at a time, and versions are skipped so that copies take at most a tenth of the GPU's time. Where memory
cannot be pinned, the copies are plain ones that wait for the GPU, spaced in the same way; `note` then says so.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import RingRef
from splatview_ipc.cuda import driver
from splatview_ipc.transports.gpu_slots import GpuSlotWriter

if TYPE_CHECKING:
    import torch

SHARE = 0.1
"""Share of the time that copies may take."""


class PinnedHostWriter(GpuSlotWriter):
    """The trainer's side. The viewer's is `splatview_ipc.transports.cpu_ring.CpuRingReader`."""

    def __init__(self, index: int, capacity: int, slots: int):
        """`index`: the device's ordinal; the rest as for SlotWriter. Pins the memory, a millisecond per 3 MB.

        Raises SharingError.
        """
        import torch

        super().__init__(index, capacity, slots)
        self.ref = RingRef(self.segment.ref)
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        self._copied_at: float | None = None
        """When the copy was queued whose duration is not known yet (seconds, perf_counter)."""
        self._rests_until = 0.0
        try:
            self._pin(self.segment.size)
        except SharingError as e:
            self.note = f"copies wait for the GPU: {e}"

    def write(
        self,
        kind: str,
        tensors: dict[str, torch.Tensor],
        meta: dict[str, Any],
        version: int,
        confirmed: bool = True,
    ) -> bool:
        if driver.is_capturing():
            return False  # before anything else: asking how a copy goes would spoil the capture
        if self._copied_at is not None:
            with (
                driver.relaxed_capture()
            ):  # asking would spoil a capture in another thread
                if not self._events[1].query():
                    return False
                taken = self._events[0].elapsed_time(self._events[1]) / 1e3
            self._rests_until = self._copied_at + taken / SHARE
            self._copied_at = None
        return time.perf_counter() >= self._rests_until and super().write(
            kind, tensors, meta, version, confirmed
        )

    def _copy(
        self,
        slot: int,
        targets: list[torch.Tensor],
        sources: list[torch.Tensor],
        whole: int,
    ) -> None:
        begun = time.perf_counter()
        if not self._pinned:
            for target, source in zip(targets, sources, strict=True):
                target.copy_(source)
            self.set_done(slot, whole)
            self._rests_until = begun + (time.perf_counter() - begun) / SHARE
            return
        self._events[0].record()
        super()._copy(slot, targets, sources, whole)
        self._events[1].record()
        self._copied_at = begun
