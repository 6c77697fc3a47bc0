"""Transport for CUDA tensors that are new at every call: a ring of slots in GPU memory.

The slots are memory of our own that other processes open by a descriptor, with CUDA or
with OpenGL alone; the control page and the headers are in a sealed segment, so that
following a ring needs no CUDA. A copy is queued on the trainer's current stream, and
the GPU writes after it that the slot is whole (`gpu_slots`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_ipc.control import descriptors
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import DeviceTensor
from splatview_ipc.control.messages import DeviceRingRef, FdMemory
from splatview_ipc.cuda.memory import ExportableMemory, open_memory
from splatview_ipc.cuda.tensors import contiguous_strides
from splatview_ipc.shm.slot_reader import SlotReader
from splatview_ipc.transports.gpu_slots import GpuSlotWriter

if TYPE_CHECKING:
    import torch

    from splatview_ipc.control.messages import Ref, TensorHeader
    from splatview_ipc.transports import Descriptors


class DeviceRingWriter(GpuSlotWriter):
    """The trainer's side."""

    in_segment = False

    def __init__(self, index: int, capacity: int, slot_count: int) -> None:
        """Allocate the ring; the arguments are those of GpuSlotWriter.

        Raises SharingError.
        """
        super().__init__(index, capacity, slot_count)
        self._memory: ExportableMemory | None = None
        self._token = ""
        try:
            self._pin(0)
            memory = ExportableMemory(slot_count * self.capacity, index)
            self._memory = memory
            self._token = descriptors.offer(1, lambda start, stop: [memory.fd()])
        except BaseException:
            self.close()
            raise
        fd_memory = FdMemory(self._token, (memory.size,), memory.gpu)
        self.ref = DeviceRingRef(self.segment.ref, fd_memory)

    def _targets(
        self, slot: int, headers: tuple[TensorHeader, ...]
    ) -> list[torch.Tensor]:
        memory = self._memory
        assert memory is not None
        start = self.data_offset(slot)
        return [memory.tensor(h.dtype, h.shape, start + h.offset) for h in headers]

    def close(self) -> None:
        descriptors.withdraw(self._token)
        super().close()

    def _release(self) -> None:
        super()._release()
        if self._memory is not None:
            self._memory.close(idle=True)


class DeviceRingReader(SlotReader):
    """The viewer's side.

    Its frames hold DeviceTensors, which touch no CUDA before they are asked for their
    bytes.
    """

    in_segment = False

    def __init__(self, ref: Ref, fds: Descriptors) -> None:
        if not isinstance(ref, DeviceRingRef):
            raise SharingError(
                f"a ring in GPU memory was announced as {type(ref).__name__}"
            )
        super().__init__(ref.control, fds)
        self.memory = None
        try:
            if self.slot_count * self.capacity > ref.memory.size:
                raise SharingError(
                    f"{self.slot_count} slots of {self.capacity} bytes were announced in "
                    f"{ref.memory.size} bytes of GPU memory"
                )
            own_fds = descriptors.duplicate_all(fds.get(ref.memory.token, ()))
            self.memory = open_memory(ref.memory, own_fds)
        except BaseException:
            self.close()
            raise

    def _tensor(self, slot: int, header: TensorHeader) -> DeviceTensor:
        assert self.memory is not None
        return DeviceTensor(
            dtype=header.dtype,
            shape=header.shape,
            strides=contiguous_strides(header.shape),
            memory=self.memory,
            offset=self.data_offset(slot) + header.offset,
        )

    def close(self) -> None:
        super().close()
        self.memory = None  # frames that are still open keep it
