"""Transport for CPU tensors: copied into slots in shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import RemoteTensor
from splatview_ipc.control.messages import RingRef
from splatview_ipc.shm.slot_layout import DONE, choose_ring_size
from splatview_ipc.shm.slot_reader import SlotReader
from splatview_ipc.shm.slot_writer import FORM_OF, SlotWriter

if TYPE_CHECKING:
    import torch

    from splatview_ipc.control.messages import Ref, TensorHeader
    from splatview_ipc.transports import Descriptors


class CpuRingWriter(SlotWriter):
    """The trainer's side."""

    @classmethod
    def make(cls, tensors: dict[str, torch.Tensor], growing: bool) -> CpuRingWriter:
        """Make a ring for such tensors; see `Transport.writer`."""
        return cls(*choose_ring_size(tensors, growing))

    def __init__(self, capacity: int, slot_count: int) -> None:
        super().__init__(capacity, slot_count)
        self.ref = RingRef(self.segment.ref)

    def _copy(
        self,
        slot: int,
        targets: list[torch.Tensor],
        sources: list[torch.Tensor],
        even_sequence: int,
    ) -> None:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)
        self._slot_words[self.first_words[slot] + DONE] = even_sequence

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        """Return whether tensors fit into a slot; those on a GPU do not."""
        if any(tensor.device.type != "cpu" for tensor in tensors.values()):
            return False
        return super().fits(tensors)

    def holds(self, tensors: dict[str, torch.Tensor]) -> bool:
        """Return whether the newest frame has the present values of these tensors.

        A NaN differs from itself.
        """
        import torch

        layout = [*tensors, *map(FORM_OF, tensors.values())]
        if self._last < 0 or layout != self._layout:
            return False
        targets = self._slot_targets[self._last]
        return all(map(torch.equal, targets, tensors.values()))


class CpuRingReader(SlotReader):
    """The viewer's side, of pinned_host as well."""

    def __init__(self, ref: Ref, fds: Descriptors) -> None:
        if not isinstance(ref, RingRef):
            raise SharingError(f"a ring was announced as {type(ref).__name__}")
        super().__init__(ref.segment, fds)

    def _tensor(self, slot: int, header: TensorHeader) -> RemoteTensor:
        offset = self.data_offset(slot) + header.offset
        return RemoteTensor.view(self._map, header.dtype, header.shape, offset)
