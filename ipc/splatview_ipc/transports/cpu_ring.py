"""The way for CPU tensors: copied into slots in shared memory."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.control.errors import NotYet, SharingError
from splatview_ipc.control.frame import RemoteTensor
from splatview_ipc.control.messages import RingRef
from splatview_ipc.shm.slot_layout import as_published, data_bytes, header_with, slots_for
from splatview_ipc.shm.slot_reader import SlotReader, end_of
from splatview_ipc.shm.slot_writer import SlotWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from splatview_ipc.control.frame import DeviceTensor
    from splatview_ipc.control.messages import Ref, TensorHeader
    from splatview_ipc.shm.segment import Source


class RingWriter(SlotWriter):
    """The trainer's side."""

    @classmethod
    def make(cls, tensors: dict[str, torch.Tensor], spare: float, leased: Callable[[], bytes]) -> RingWriter:
        capacity = int(data_bytes(tensors) * spare)
        return cls(capacity, slots_for(capacity), leased, ready=False)

    @property
    def ref(self) -> RingRef:
        return self._ref

    def __init__(self, capacity: int, slots: int = 4, leased: Callable[[], bytes] = bytes, ready: bool = True):
        super().__init__(capacity, slots, leased, ready=ready)
        self._ref = RingRef(self.segment.ref)
        self._in_pieces = False
        """Whether the helper thread copies (`copy_in_pieces`)."""
        self._plans: list[list[tuple[int, torch.Tensor]]] = []
        """Per slot: what is copied where, the number of a published tensor and a tensor of its shape."""

    def _targets(self, slot: int, headers: tuple[TensorHeader, ...]) -> list[torch.Tensor]:
        return targets_in(self.segment.map, self.data_offset(slot), headers)

    def prepare(self, tensors: dict[str, torch.Tensor], published: tuple[torch.Tensor, ...]) -> bool:
        """Frames whose tensors are published ones as they are, or their bytes in the same order."""
        self._plans = []
        sources = as_published(tensors, published)
        if sources is not None:
            self._plans = [[(number, target.view(published[number].shape))
                            for (number, _), target in zip(sources, targets, strict=True)]
                           for targets in self._slot_targets]
        return sources is not None

    def again(self, published: tuple[torch.Tensor, ...], addresses: list[int], meta: dict[str, Any], version: int,
              stream: int) -> bool:
        if meta is not self._meta:
            self._header = header_with(self._header_start, meta)
            self._meta = meta
        slot, whole = self.enter()
        if slot < 0:
            return False
        shown = 0
        try:
            for number, target in self._plans[slot]:
                source = published[number]
                target.copy_(source.detach() if source.requires_grad else source)
            shown = version
        finally:
            self.set_done(slot, whole)
            self.end(slot, whole, self._header, shown)
        return True

    def holds(self, tensors: dict[str, torch.Tensor]) -> bool:
        """Whether the newest frame holds what these tensors hold now."""
        looks = [(name, t.dtype, t.shape) for name, t in tensors.items()]
        if self._last < 0 or self._layout is None or looks != self._layout[1]:
            return False
        return all(map(same_bytes, self._slot_targets[self._last], tensors.values()))

    def larger(self) -> RingWriter:
        return RingWriter(self.capacity, self.more(), self.leased, ready=False)

    def close(self) -> None:
        self._plans = []
        super().close()

    def write(self, kind: str, tensors: dict[str, torch.Tensor], meta: dict[str, Any], version: int,
              still_wanted: Callable[[], bool] | None = None) -> bool:
        self._in_pieces = still_wanted is not None
        return super().write(kind, tensors, meta, version, still_wanted)

    def _copy(self, slot: int, targets: list[torch.Tensor], sources: list[torch.Tensor], whole: int) -> None:
        for target, source in zip(targets, sources, strict=True):
            if self._in_pieces:
                copy_in_pieces(target, source)
            else:  # a third of the time: copies of this size go past the caches, and pieces do not
                target.copy_(source)
        self.set_done(slot, whole)


ending = False
"""Whether this process is about to end: the helper thread must not be in torch then, since Python ends such threads
when they come back from it, and C++ ends the process (abort) over that."""
_PIECE = 32 << 20
"""Bytes that are copied at a time, some 10 milliseconds."""


def copy_in_pieces(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy into a contiguous tensor of the same shape. Raises NotYet if it is large and the process ends meanwhile."""
    size = target.numel() * target.element_size()
    rows = len(target) if target.dim() else 0
    if size <= _PIECE or rows < 2:
        target.copy_(source)
        return
    step = max(1, rows * _PIECE // size)
    for start in range(0, rows, step):
        if ending:
            raise NotYet
        target[start : start + step].copy_(source[start : start + step])


class RingReader(SlotReader):
    """A viewer's side."""

    @classmethod
    def make(cls, ref: Ref, source: Source, lease: Callable[..., None], writable: bool = False) -> RingReader:
        if not isinstance(ref, RingRef):
            raise SharingError(f"a ring was announced as {type(ref).__name__}")
        return cls(ref.segment, source, lease, writable)

    def _views(self, slot: int, headers: tuple[TensorHeader, ...]) -> dict[str, RemoteTensor | DeviceTensor]:
        size = max(map(end_of, headers), default=0)
        if self._private is None or not size:
            return {t.name: self._tensor(slot, t) for t in headers}
        start = self.data_offset(slot)
        data = self._private.data(slot, start, self.capacity, size)
        if data is None:  # no memory for another mapping: `Frame.intact` tells whether the copy is whole
            data = np.frombuffer(self._map, np.uint8, size, start).copy()
        return {t.name: RemoteTensor.view(data, t.dtype, t.shape, t.offset) for t in headers}

    def _tensor(self, slot: int, header: TensorHeader) -> RemoteTensor:
        return RemoteTensor.view(self._map, header.dtype, header.shape, self.data_offset(slot) + header.offset)


def same_bytes(target: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether two tensors of the CPU, of one shape and dtype, the first one contiguous, hold the same bits: a NaN is
    itself. With the GIL released, in one thread where both are contiguous, and as a rule soon if they differ."""
    import torch

    if source.is_contiguous():
        size = source.numel() * source.element_size()
        return not size or _memcmp(target.data_ptr(), source.data_ptr(), size) == 0
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[source.element_size()]
    return torch.equal(target.view(bits), source.detach().view(bits))


_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes, _memcmp.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t), ctypes.c_int


def targets_in(buffer: Any, start: int, headers: tuple[TensorHeader, ...]) -> list[torch.Tensor]:
    """Tensors over a writable buffer, as `SlotWriter._targets` returns them; a slot's data begin at byte `start`."""
    import torch

    targets = []
    for h in headers:
        dtype, count = getattr(torch, h.dtype), 1
        for extent in h.shape:
            count *= extent
        targets.append(torch.frombuffer(buffer, dtype=dtype, count=count, offset=start + h.offset).view(h.shape)
                       if count else torch.empty(h.shape, dtype=dtype))
    return targets
