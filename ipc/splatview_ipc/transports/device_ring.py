"""The way for CUDA tensors that are new at every call: copied on the GPU into a ring of slots in GPU memory.

The slots are memory of our own that other processes open by a descriptor, with CUDA or with OpenGL alone; the control
page and the headers lie in a sealed segment, so that following a ring needs no CUDA. A copy is queued on the trainer's
current stream, and the GPU writes behind it that the slot is whole (`ipc.ways.gpu_slots`). Two copies never meet in
one slot, whatever their streams: a slot is taken only when its last copy has ended.
"""

from __future__ import annotations

import contextlib
from time import time_ns
from typing import TYPE_CHECKING, Any

from splatview_ipc.control import descriptors, limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import DeviceTensor, Made
from splatview_ipc.control.messages import DeviceRingRef, FdMemory
from splatview_ipc.cuda import driver
from splatview_ipc.cuda.memory import Allocation, open_memory
from splatview_ipc.cuda.tensors import contiguous
from splatview_ipc.shm.slot_layout import (
    CLAIMED,
    DONE,
    HEADER,
    SEQ,
    TIME,
    VERSION,
    as_published,
    data_bytes,
    full_fence,
    header_with,
    slots_for,
    store_fence,
)
from splatview_ipc.shm.slot_reader import Lease, SlotReader
from splatview_ipc.transports.gpu_slots import GpuSlotWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from splatview_ipc.control.frame import Frame
    from splatview_ipc.control.messages import Ref, TensorHeader
    from splatview_ipc.shm.segment import Source


class DeviceRingWriter(GpuSlotWriter):
    """The trainer's side."""

    in_segment = False

    @classmethod
    def make(cls, tensors: dict[str, torch.Tensor], spare: float, leased: Callable[[], bytes]) -> DeviceRingWriter:
        """As `Way.writer`; the tensors lie on one CUDA device."""
        index = next(iter(tensors.values())).get_device()
        if index < 0:
            raise SharingError("a ring in GPU memory takes CUDA tensors")
        capacity = int(data_bytes(tensors) * spare)
        # Copies end later: one slot more than where they end at once, for the copy that is under way.
        return cls(index, capacity, slots_for(capacity, 3), leased)

    def __init__(self, index: int, capacity: int, slots: int = 4, leased: Callable[[], bytes] = bytes):
        """`index`: the device's ordinal; the rest as for SlotWriter. Raises SharingError."""
        super().__init__(index, max(capacity, 1), slots, leased)
        self._memory: Allocation | None = None
        self._token = ""
        self._stream, self._on = 0, driver.stream_object(0)
        self._plans: list[tuple[Any, list[tuple[int, int, Any, torch.Tensor]]]] = []
        """Per slot: where its `done` is written, and what is copied: the number of a published tensor, its bytes in a
        row (0: it has strides), where to, as an address and as a tensor."""
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

    def larger(self) -> DeviceRingWriter:
        return DeviceRingWriter(self.index, self.capacity, self.more(), self.leased)

    def _targets(self, slot: int, headers: tuple[TensorHeader, ...]) -> list[torch.Tensor]:
        assert self._memory is not None
        return [self._memory.tensor(h.dtype, h.shape, self.data_offset(slot) + h.offset) for h in headers]

    def prepare(self, tensors: dict[str, torch.Tensor], published: tuple[torch.Tensor, ...]) -> bool:
        """Frames whose tensors are published ones as they are, or their bytes in the same order."""
        self._plans = []
        if not self._writes_64:
            return False
        sources = as_published(tensors, published)
        if sources is None:
            return False
        pointer = driver.bindings().CUdeviceptr
        self._plans = [
            (pointer(self._done[slot]),
             [(number, size, pointer(target.data_ptr()), target)
              for (number, size), target in zip(sources, targets, strict=True)])
            for slot, targets in enumerate(self._slot_targets)]
        self._copy_bytes = driver.bindings().cuMemcpyDtoDAsync
        return True

    def again(self, published: tuple[torch.Tensor, ...], addresses: list[int], meta: dict[str, Any], version: int,
              stream: int) -> bool:
        """`write`, step by step the same, in one function and with all that can be made in advance made by `prepare`:
        after a while of other work what a call costs is what it has to fetch from memory."""
        if meta is not self._meta:
            self._header = header_with(self._header_start, meta)
            self._meta = meta
        if stream != self._stream:
            self._stream, self._on = stream, driver.stream_object(stream)
        words, last, on = self._words, self._last, self._on
        slot = last + 1
        if slot == self.slots:
            slot = 0
        base, newest = self._bases[slot], self._bases[last]
        before = words[base + SEQ]
        whole = before + 2
        entered = words[base + DONE] == before and words[newest + DONE] == words[newest + SEQ]
        if entered:
            words[base + SEQ] = before | CLAIMED
            full_fence()
            entered = slot + 1 not in self.leased()
            words[base + SEQ] = whole - 1 if entered else before
            full_fence()
        if not entered:  # seldom
            slot, whole = self.enter()
            if slot < 0:
                return False
            base = self._bases[slot]
        visible = 0
        try:
            done, sources = self._plans[slot]
            here = stream or self._device() == self.index
            for number, size, address, target in sources:
                if not size:
                    target.copy_(published[number].detach(), non_blocking=True)
                elif not here or self._copy_bytes(address, addresses[number], size, on)[0]:
                    driver.in_stream(self.index, stream, "cuMemcpyDtoDAsync", address, addresses[number], size, on)
            if not here or self._write_value(on, done, whole, 0)[0]:
                driver.write_value(self.index, stream, self._done[slot], whole)
            visible = version
        except BaseException:
            self.set_done(slot, whole)  # a slot whose copy failed must not count as busy for ever
            raise
        finally:
            header = self._header
            if self._headers[slot] is not header:
                start, length = self.header_offset(slot), len(header)
                self._bytes[start : start + length] = header
                self._headers[slot] = header
                words[base + HEADER] = length
            words[base + VERSION] = visible
            words[base + TIME] = time_ns()
            store_fence()
            words[base + SEQ] = whole
        self._last = slot
        return True

    def close(self) -> None:
        descriptors.withdraw(self._token)
        self._plans = []
        super().close()

    def _give_back(self) -> None:
        super()._give_back()
        if self._memory is not None:
            self._memory.close(idle=True)


class DeviceRingReader(SlotReader):
    """A viewer's side. Its frames hold DeviceTensors; no CUDA is touched before one of them is asked for its bytes."""

    in_segment = False

    @classmethod
    def make(cls, ref: Ref, source: Source, lease: Callable[[int], None], writable: bool = False) -> DeviceRingReader:
        """As `Way.reader`. `writable` has no effect: GPU memory cannot be mapped copy-on-write."""
        if not isinstance(ref, DeviceRingRef):
            raise SharingError(f"a ring in GPU memory was announced as {type(ref).__name__}")
        return cls(ref, source, lease)

    def __init__(self, ref: DeviceRingRef, source: Source, lease: Callable[[int], None]):
        super().__init__(ref.control, source, lease)
        self._tensors: dict[tuple[int, TensorHeader], DeviceTensor] = {}
        """By slot. What they make for torch is kept: to make it takes longer than all else done with a frame."""
        try:
            if self.slots * self.capacity > sum(ref.memory.pieces):
                raise SharingError(f"{self.slots} slots of {self.capacity} bytes were announced in "
                                   f"{sum(ref.memory.pieces)} bytes of GPU memory")
            self.memory = open_memory(ref.memory, source.descriptors(ref.memory.token, len(ref.memory.pieces)))
        except BaseException:
            super().close()
            raise

    def _tensor(self, slot: int, header: TensorHeader) -> DeviceTensor:
        tensor = self._tensors.get((slot, header))
        if tensor is None:
            if len(self._tensors) >= self.slots * limits.MAX_TENSORS:  # they look different all the time
                self._forget()
            tensor = self._tensors[slot, header] = DeviceTensor(
                header.dtype, header.shape, contiguous(header.shape), self.memory,
                self.data_offset(slot) + header.offset, made=Made())
        return tensor

    def _forget(self) -> None:
        for tensor in self._tensors.values():
            assert tensor.made is not None
            tensor.made.drop()
        self._tensors.clear()

    def _frame(self, cell: int, lease: Lease, version: int, time_ns: int) -> Frame | None:
        frame = super()._frame(cell, lease, version, time_ns)
        if frame is not None:
            share, release = self.memory.hold(), frame.release

            def let_go() -> None:
                share.close()
                release()

            frame.release = let_go
        return frame

    def close(self) -> None:
        super().close()
        self._forget()
        with contextlib.suppress(AttributeError):  # it was never opened
            self.memory.close()
