"""Transport for CPU tensors: copied into slots in shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import RemoteTensor
from splatview_ipc.control.messages import RingRef
from splatview_ipc.shm.slot_layout import data_bytes, slots_for
from splatview_ipc.shm.slot_reader import SlotReader
from splatview_ipc.shm.slot_writer import SlotWriter

if TYPE_CHECKING:
    import torch

    from splatview_ipc.control.messages import Ref, TensorHeader
    from splatview_ipc.transports.base import Descriptors


class CpuRingWriter(SlotWriter):
    """The trainer's side."""

    @classmethod
    def make(cls, tensors: dict[str, torch.Tensor], growing: bool) -> CpuRingWriter:
        """As `Transport.writer`."""
        capacity = room_for(data_bytes(tensors), growing)
        return cls(capacity, slots_for(capacity))

    def __init__(self, capacity: int, slots: int):
        super().__init__(capacity, slots)
        self.ref = RingRef(self.segment.ref)

    def _targets(self, slot: int, headers: tuple[TensorHeader, ...]) -> list[torch.Tensor]:
        return targets_in(self.segment.map, self.data_offset(slot), headers)

    def _copy(self, slot: int, targets: list[torch.Tensor], sources: list[torch.Tensor], whole: int) -> None:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)
        self.set_done(slot, whole)

    def holds(self, tensors: dict[str, torch.Tensor]) -> bool:
        """Return whether the newest frame has the values that these tensors have now. (A NaN differs from itself.)"""
        import torch

        looks = [(name, t.dtype, t.shape) for name, t in tensors.items()]
        return (self._last >= 0 and looks == self._layout
                and all(map(torch.equal, self._slot_targets[self._last], tensors.values())))


class CpuRingReader(SlotReader):
    """The viewer's side, of pinned_host as well."""

    def __init__(self, ref: Ref, fds: Descriptors):
        if not isinstance(ref, RingRef):
            raise SharingError(f"a ring was announced as {type(ref).__name__}")
        super().__init__(ref.segment, fds)

    def _tensor(self, slot: int, header: TensorHeader) -> RemoteTensor:
        return RemoteTensor.view(self._map, header.dtype, header.shape, self.data_offset(slot) + header.offset)


def room_for(frame: int, growing: bool) -> int:
    """Return the bytes of a slot for frames of `frame` bytes: half as much again where they are growing."""
    return max(frame * 3 // 2 if growing else frame, 1)


def targets_in(buffer: Any, start: int, headers: tuple[TensorHeader, ...]) -> list[torch.Tensor]:
    """Return tensors over a writable buffer, as `SlotWriter._targets`; a slot's data begin at byte `start`."""
    import torch

    targets = []
    for h in headers:
        dtype, count = getattr(torch, h.dtype), 1
        for extent in h.shape:
            count *= extent
        targets.append(torch.frombuffer(buffer, dtype=dtype, count=count, offset=start + h.offset).view(h.shape)
                       if count else torch.empty(h.shape, dtype=dtype))
    return targets
