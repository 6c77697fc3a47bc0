"""The way for CUDA tensors that are new at every call: copied on the GPU into a ring of slots in GPU memory.

The slots are memory of our own that other processes open by a descriptor, with CUDA or with OpenGL alone; the control
page and the headers lie in a sealed segment, so that following a ring needs no CUDA. A copy is queued on the trainer's
current stream, and the GPU writes behind it that the slot is whole (`ipc.ways.gpu_slots`). Two copies never meet in
one slot, whatever their streams: a slot is taken only when its last copy has ended.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ipc import descriptors
from ipc.cuda.memory import Allocation, open_memory
from ipc.cuda.tensors import contiguous
from ipc.errors import SharingError
from ipc.frames import DeviceTensor
from ipc.messages import DeviceRingRef, FdMemory
from ipc.ways.gpu_slots import GpuSlotWriter
from ipc.ways.layout import data_bytes
from ipc.ways.slots import SlotReader

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from ipc.frames import Frame
    from ipc.messages import Ref, TensorHeader
    from ipc.ways.base import Source


class DeviceRingWriter(GpuSlotWriter):
    """The trainer's side."""

    in_segment = False

    @classmethod
    def make(cls, tensors: dict[str, torch.Tensor], spare: float, leased: Callable[[], bytes]) -> DeviceRingWriter:
        """As `Way.writer`; the tensors lie on one CUDA device."""
        index = next(iter(tensors.values())).get_device()
        if index < 0:
            raise SharingError("a ring in GPU memory takes CUDA tensors")
        return cls(index, int(data_bytes(tensors) * spare), leased=leased)

    def __init__(self, index: int, capacity: int, slots: int = 4, leased: Callable[[], bytes] = bytes):
        """`index`: the device's ordinal; the rest as for SlotWriter. Raises SharingError."""
        super().__init__(index, max(capacity, 1), slots, leased)
        self._memory: Allocation | None = None
        self._token = ""
        try:
            self._pin(0)
            self._memory = Allocation(slots * self.capacity, index)
            self._token = descriptors.offer([self._memory.fd()])
        except BaseException:
            self.close()
            raise
        fd_memory = FdMemory(self._token, (self._memory.size,), self._memory.gpu)
        self._ref = DeviceRingRef(self.segment.ref, fd_memory)

    @property
    def ref(self) -> DeviceRingRef:
        return self._ref

    def _targets(self, slot: int, headers: tuple[TensorHeader, ...]) -> list[torch.Tensor]:
        assert self._memory is not None
        return [self._memory.tensor(h.dtype, h.shape, self.data_offset(slot) + h.offset) for h in headers]

    def close(self) -> None:
        descriptors.withdraw(self._token)
        super().close()

    def _give_back(self) -> None:
        super()._give_back()
        if self._memory is not None:
            self._memory.close(idle=True)


class DeviceRingReader(SlotReader):
    """A viewer's side. Its frames hold DeviceTensors; no CUDA is touched before one of them is asked for its bytes."""

    in_segment = False

    @classmethod
    def make(cls, ref: Ref, source: Source, lease: Callable[[int], None]) -> DeviceRingReader:
        """As `Way.reader`."""
        if not isinstance(ref, DeviceRingRef):
            raise SharingError(f"a ring in GPU memory was announced as {type(ref).__name__}")
        return cls(ref, source, lease)

    def __init__(self, ref: DeviceRingRef, source: Source, lease: Callable[[int], None]):
        super().__init__(ref.control, source, lease)
        try:
            if self.slots * self.capacity > sum(ref.memory.pieces):
                raise SharingError(f"{self.slots} slots of {self.capacity} bytes were announced in "
                                   f"{sum(ref.memory.pieces)} bytes of GPU memory")
            self.memory = open_memory(ref.memory, source.descriptors(ref.memory.token, len(ref.memory.pieces)))
        except BaseException:
            super().close()
            raise

    def _tensor(self, slot: int, header: TensorHeader) -> DeviceTensor:
        return DeviceTensor(header.dtype, header.shape, contiguous(header.shape), self.memory,
                            self.data_offset(slot) + header.offset)

    def _frame(self, slot: int, seq: int, version: int, time_ns: int) -> Frame | None:
        frame = super()._frame(slot, seq, version, time_ns)
        if frame is not None:
            share, release = self.memory.hold(), frame.release

            def let_go() -> None:
                share.close()
                release()

            frame.release = let_go
        return frame

    def close(self) -> None:
        super().close()
        with contextlib.suppress(AttributeError):  # it was never opened
            self.memory.close()
