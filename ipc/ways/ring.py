"""The way for CPU tensors: copied into slots in shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipc.errors import SharingError
from ipc.frames import RemoteTensor
from ipc.messages import RingRef
from ipc.ways.layout import data_bytes
from ipc.ways.slots import SlotReader, SlotWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from ipc.messages import Ref, TensorHeader
    from ipc.ways.base import Source


class RingWriter(SlotWriter):
    """The trainer's side."""

    @classmethod
    def make(cls, tensors: dict[str, torch.Tensor], spare: float, leased: Callable[[], bytes]) -> RingWriter:
        return cls(int(data_bytes(tensors) * spare), leased=leased)

    @property
    def ref(self) -> RingRef:
        return self._ref

    def __init__(self, capacity: int, slots: int = 4, leased: Callable[[], bytes] = bytes):
        super().__init__(capacity, slots, leased)
        self._ref = RingRef(self.segment.ref)

    def _targets(self, slot: int, headers: tuple[TensorHeader, ...]) -> list[torch.Tensor]:
        return targets_in(self.segment.map, self.data_offset(slot), headers)

    def _copy(self, slot: int, targets: list[torch.Tensor], sources: list[torch.Tensor], whole: int) -> None:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)
        self.set_done(slot, whole)


class RingReader(SlotReader):
    """A viewer's side."""

    @classmethod
    def make(cls, ref: Ref, source: Source, lease: Callable[[int], None]) -> RingReader:
        if not isinstance(ref, RingRef):
            raise SharingError(f"a ring was announced as {type(ref).__name__}")
        return cls(ref.segment, source, lease)

    def _tensor(self, slot: int, header: TensorHeader) -> RemoteTensor:
        return RemoteTensor.view(self._map, header.dtype, header.shape, self.data_offset(slot) + header.offset)


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
