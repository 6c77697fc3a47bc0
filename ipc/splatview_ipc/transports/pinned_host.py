"""The way for CUDA tensors that a viewer cannot open: copied by the GPU into a ring of slots in pinned shared memory.

Viewers read it like the ring of a CPU tensor. Copies are queued on the trainer's current stream and end there later;
one is under way at a time, and frames are skipped so that copies take at most a tenth of the time. Where memory cannot
be pinned, the copies are plain ones that wait for the GPU, spaced in the same way; `note` then says so.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import RingRef
from splatview_ipc.cuda import driver
from splatview_ipc.cuda.events import Stopwatch
from splatview_ipc.shm.slot_layout import data_bytes, slots_for
from splatview_ipc.transports.cpu_ring import targets_in
from splatview_ipc.transports.gpu_slots import GpuSlotWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from splatview_ipc.control.messages import TensorHeader

SHARE = 0.1
"""Of the time, what copies may take."""
_PINNING = 0.05
"""Seconds that the helper thread waits for the memory to be pinned before it goes on with something else."""


class HostWriter(GpuSlotWriter):
    """The trainer's side. The viewer's is `splatview_ipc.transports.cpu_ring.RingReader`."""

    @classmethod
    def make(cls, tensors: dict[str, torch.Tensor], spare: float, leased: Callable[[], bytes]) -> HostWriter:
        """As `Way.writer`; the tensors lie on one CUDA device."""
        index = next(iter(tensors.values())).get_device()
        if index < 0:
            raise SharingError("the way through the host takes CUDA tensors")
        capacity = int(data_bytes(tensors) * spare)
        return cls(index, capacity, slots_for(capacity), leased, ready=False)

    def __init__(self, index: int, capacity: int, slots: int = 4, leased: Callable[[], bytes] = bytes,
                 ready: bool = True):
        """`index`: the device's ordinal; the rest as for SlotWriter. Raises SharingError."""
        super().__init__(index, max(capacity, 1), slots, leased, ready)
        self._ref = RingRef(self.segment.ref)
        self._stopwatch: Stopwatch | None = None
        self._copied_at: float | None = None
        self._rests_until = 0.0
        self._said = False
        self._ready = threading.Event()
        """Set once the memory is pinned, or cannot be."""
        self._pinning = ready
        if ready:
            self._start_pinning()

    @property
    def ref(self) -> RingRef:
        return self._ref

    def write(self, kind: str, tensors: dict[str, torch.Tensor], meta: dict[str, Any], version: int,
              still_wanted: Callable[[], bool] | None = None) -> bool:
        if driver.is_capturing():
            return False  # before anything else: asking how a copy goes would spoil the capture
        if not self._ready.is_set() and (still_wanted is None or not self._ready.wait(_PINNING)):
            return False
        if self.note and not self._said:
            self._said, self._ref = True, RingRef(self.segment.ref)  # another object: viewers are told again
        if not self._rested():
            return False
        return super().write(kind, tensors, meta, version, still_wanted)

    def populate(self) -> bool:
        if super().populate() and not self._pinning:
            self._pinning = True
            self._start_pinning()
        return self.ready

    def larger(self) -> HostWriter:
        return HostWriter(self.index, self.capacity, self.more(), self.leased, ready=False)

    def _start_pinning(self) -> None:
        # It takes a millisecond per 3 MB: not on the thread that trains.
        threading.Thread(target=self._prepare, name="splatview-pinning", daemon=True).start()

    def _prepare(self) -> None:
        try:
            self._pin(self.segment.size)
            self._stopwatch = Stopwatch(self.index)
        except Exception as e:
            self.note = f"copies wait for the GPU: {e}"
            self.at_once = True
        finally:
            self._ready.set()

    def _rested(self) -> bool:
        """Whether the last copy has ended, and so long ago that another one keeps to the share."""
        if self._copied_at is not None and self._stopwatch is not None:
            seconds = self._stopwatch.seconds()
            if seconds is None:
                return False
            self._rests_until = self._copied_at + seconds / SHARE
            self._copied_at = None
        return time.monotonic() >= self._rests_until

    def _targets(self, slot: int, headers: tuple[TensorHeader, ...]) -> list[torch.Tensor]:
        return targets_in(self.segment.map, self.data_offset(slot), headers)

    def _copy(self, slot: int, targets: list[torch.Tensor], sources: list[torch.Tensor], whole: int) -> None:
        begun = time.monotonic()
        if self._stopwatch is None:
            for target, source in zip(targets, sources, strict=True):
                target.copy_(source)
            self.set_done(slot, whole)
            self._rests_until = begun + (time.monotonic() - begun) / SHARE
            return
        stream = driver.current_stream(self.index)
        self._stopwatch.start(stream)
        try:
            super()._copy(slot, targets, sources, whole)
        finally:
            self._stopwatch.stop(stream)
            self._copied_at = begun

    def _idle(self) -> bool:
        return (self._ready.is_set() or not self._pinning) and super()._idle()

    def _give_back(self) -> None:
        super()._give_back()
        if self._stopwatch is not None:
            self._stopwatch.close()
