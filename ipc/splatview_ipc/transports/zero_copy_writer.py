"""Transport for CUDA tensors whose storage stays, in the trainer: shared where they are, nothing is copied.

The trainer describes its tensors once; this is a *generation*, offered to each viewer. A version is then a header with
time and metadata in one of a few slots, and a word there that the GPU writes behind the trainer's work. When the
tensors move (a densification), a new generation begins.

Invariants (tests/ipc/test_models.py explores 1 to 4)
1. The tensors of a header are those of the generation that it names: no reader can mix generations. A reader that has
   not opened it yet shows nothing new.
2. A slot's number is odd while the writer is in it. A reader takes the number, then version, time and header, then the
   number again, with the loads in this order: what it made a frame of was whole then, and is a copy of its own.
3. The trainer keeps the tensors of a replaced generation for KEEP_S seconds, and never more than two; the word `oldest
   kept` moves on before their memory is given back, and never goes back: only one thread at a time moves it.
4. A reader reads the tensors, and then (fence) the word: if it is not beyond the generation, they were kept meanwhile.
5. The GPU writes into the slot that the data have arrived, behind all that the trainer's stream was given before the
   version. Readers look at that word, and never give a GPU something to wait for: work of a process that is killed
   never ends, and a stream that waited for it would wait for ever.
6. Versions are marked, and generations given back, under the stream's lock.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from splatview_ipc.control.messages import InPlaceRef, VersionHeader
from splatview_ipc.cuda import driver
from splatview_ipc.cuda.export import Shared, describe
from splatview_ipc.shm.slot_layout import ARRIVED, OLDEST_KEPT, full_fence
from splatview_ipc.shm.slot_writer import encoded
from splatview_ipc.transports.gpu_slots import GpuSlotWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


KEEP_S = 1.0
"""Seconds for which a replaced generation is kept for viewers that still read it."""
_MOST_KEPT = 2
_NONE_KEPT = 2**63 - 1
_SLOTS = 4
_numbers = itertools.count(1)
"""Numbers of all generations of this process: one writer's are never taken for another's."""


class _WriterGeneration:
    """A generation in the trainer."""

    def __init__(
        self,
        number: int,
        tensors: tuple[torch.Tensor, ...],
        undo: list[Callable[[], object]],
    ):
        self.number = number
        self.tensors = tensors
        self.undo = undo
        """Called when the generation is given back."""
        self.until = 0.0
        """When to give it back (clock seconds); 0: it was not seen replaced by `turn` yet."""


class ZeroCopyWriter(GpuSlotWriter):
    """The trainer's side."""

    in_segment = False
    marked = ARRIVED
    _seen: dict[str, torch.Tensor] | None = None
    """The tensors of the last version."""

    @classmethod
    def make(cls, tensors: dict[str, torch.Tensor], growing: bool) -> Self:
        return cls(tensors)

    def __init__(self, tensors: dict[str, torch.Tensor]):
        """For tensors on the device of these, which are shared at once. Raises SharingError."""
        index = next(iter(tensors.values())).get_device()
        self._gpu = driver.gpu_uuid(index)
        super().__init__(index, 0, _SLOTS)
        self._generations: deque[_WriterGeneration] = deque()
        self._key: tuple[Any, ...] = ()
        self._ref: InPlaceRef | None = None
        try:
            self._pin(0)
            self._begin_generation(tensors)
        except BaseException:
            self.close()
            raise

    @property
    def ref(self) -> InPlaceRef:
        assert self._ref is not None
        return self._ref

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        return all(t.get_device() == self.index for t in tensors.values())

    def write(
        self,
        kind: str,
        tensors: dict[str, torch.Tensor],
        meta: dict[str, Any],
        version: int,
        confirmed: bool = True,
    ) -> bool:
        """As `Writer.write`: marks all that torch's current stream was given so far. Costs microseconds.

        Begins a generation when the tensors are stored elsewhere than the last ones.
        """
        if tensors is not self._seen:  # the same dictionary holds the same tensors
            if _key(tensors) != self._key:
                if not self.fits(tensors):
                    return False
                self._begin_generation(tensors)
            self._seen = tensors
        header = encoded(VersionHeader(kind, self._generations[-1].number, meta))  # type: ignore[arg-type]
        slot = (self._last + 1) % self.slots
        whole = self.begin(slot)
        self.set_done(slot, whole)
        self.commit(slot, whole, header, version)
        self._mark(slot, whole)
        return True

    def _begin_generation(self, tensors: dict[str, torch.Tensor]) -> None:
        # Tensors over the same memory: the storages stay, whatever the caller assigns to `.data` of its own.
        kept = {name: t.detach() for name, t in tensors.items()}
        memories, refs, undo = self._describe(kept)
        self._generations.append(
            _WriterGeneration(next(_numbers), tuple(kept.values()), undo)
        )
        self._key = _key(tensors)
        self._ref = InPlaceRef(
            self.segment.ref, self._gpu, self._generations[-1].number, memories, refs
        )
        while len(self._generations) > 1 + _MOST_KEPT:
            self._forget()

    def _describe(self, tensors: dict[str, torch.Tensor]) -> Shared:
        """Share the memory of the tensors of a generation. Raises SharingError."""
        return describe(tensors)

    def _forget(self) -> None:
        """Give the oldest generation back."""
        first = self._generations[0]
        self._words[OLDEST_KEPT] = first.number + 1
        full_fence()
        self._generations.popleft()
        for call in first.undo:
            call()

    def turn(self, now: float) -> float | None:
        """Give replaced generations back that were kept long enough."""
        for generation in list(self._generations)[:-1]:
            generation.until = generation.until or now + KEEP_S
        while len(self._generations) > 1 and self._generations[0].until <= now:
            self._forget()
        return self._generations[0].until if len(self._generations) > 1 else None

    def close(self) -> None:
        if not self._closed:
            self._words[OLDEST_KEPT] = _NONE_KEPT
            full_fence()
            for generation in self._generations:
                for call in generation.undo:
                    call()
            self._generations.clear()
        super().close()


def _key(tensors: dict[str, torch.Tensor]) -> tuple[Any, ...]:
    """Return where tensors are stored and how."""
    return tuple(
        (name, t.data_ptr(), t.dtype, t.shape, t.stride())
        for name, t in tensors.items()
    )
