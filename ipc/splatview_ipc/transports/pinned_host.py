"""Transport for CUDA tensors that a viewer cannot open: a ring in pinned shared memory.

Viewers read it like the ring of a CPU tensor. Copies are queued on the trainer's
current stream and end there later; one is under way at a time, and versions are skipped
so that copies take at most a tenth of the GPU's time. Where memory cannot be pinned,
the copies are plain ones that wait for the GPU, spaced in the same way; `note` then
says so.
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
    """The trainer's side.

    The viewer's is `splatview_ipc.transports.cpu_ring.CpuRingReader`.
    """

    def __init__(self, index: int, capacity: int, slot_count: int) -> None:
        """Allocate and pin the ring, which takes a millisecond per 3 MB.

        The arguments are those of GpuSlotWriter. Raises SharingError.
        """
        import torch

        super().__init__(index, capacity, slot_count)
        self.ref = RingRef(self.segment.ref)
        self._copy_start = torch.cuda.Event(enable_timing=True)
        self._copy_end = torch.cuda.Event(enable_timing=True)
        self._copied_at: float | None = None
        """When the copy was queued whose duration is not known yet (perf_counter)."""
        self._rests_until = 0.0
        try:
            self._pin(self.segment.size)
        except SharingError as error:
            self.note = f"copies wait for the GPU: {error}"

    def write(
        self,
        kind: str,
        tensors: dict[str, torch.Tensor],
        meta: dict[str, Any],
        version: int,
        confirmed: bool = True,
    ) -> bool:
        # Before anything else: asking how a copy goes would spoil the capture.
        if driver.is_capturing():
            return False
        if not tensors:
            return super().write(kind, tensors, meta, version, confirmed)
        if self._copied_at is not None:
            # Asking would spoil a capture in another thread as well.
            with driver.relaxed_capture():
                if not self._copy_end.query():
                    return False
                seconds = self._copy_start.elapsed_time(self._copy_end) / 1e3
            self._rests_until = self._copied_at + seconds / SHARE
            self._copied_at = None
        if time.perf_counter() < self._rests_until:
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
            super()._copy(slot, targets, sources, even_sequence)
            return
        started_at = time.perf_counter()
        if self._pinned:
            self._copy_start.record()
            super()._copy(slot, targets, sources, even_sequence)
            self._copy_end.record()
            self._copied_at = started_at
            return
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)
        self.set_done(slot, even_sequence)
        seconds = time.perf_counter() - started_at
        self._rests_until = started_at + seconds / SHARE
