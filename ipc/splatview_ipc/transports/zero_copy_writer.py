"""Transport for CUDA tensors whose storage stays, in the trainer: nothing is copied.

The trainer describes its tensors once; this is a *generation*, offered to each viewer.
A version is then a header with the metadata in one of a few slots, some words beside it
with number, time and step, and a word there that the GPU writes after the trainer's
work. When the tensors move (a densification), a new generation begins.

In a training the caches are cold at each version, so that its cost is that of the code
and the objects that it touches: a header is encoded and stored only when it differs
from the one that the slot has.

Invariants (tests/ipc/test_models.py explores 1 to 4)
1. The tensors of a header are those of the generation that it names: no reader can mix
   generations. A reader that has not opened it yet shows nothing new.
2. A slot's number is odd while the writer is in it. A reader takes the number, then
   version, time, step and header, then the number again, with the loads in this order:
   what it made a frame of was whole then, and is a copy of its own.
3. The trainer keeps the tensors of a replaced generation for KEEP_S seconds, and never
   more than two; the word `oldest kept` moves on before their memory is released, and
   never goes back: only one thread at a time moves it.
4. A reader reads the tensors, and then (fence) the word: if it is not beyond the
   generation, they were kept meanwhile.
5. The GPU writes into the slot that the data have arrived, after all that the
   trainer's stream was given before the version. Readers look at that word, and never
   give a GPU something to wait for: work of a process that is killed never ends, and a
   stream that waited for it would wait for ever.
6. Versions are marked, and generations released, under the stream's lock.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from operator import is_
from typing import TYPE_CHECKING, Any, Self

from splatview_ipc.control.messages import InPlaceRef, VersionHeader, encode
from splatview_ipc.cuda import driver
from splatview_ipc.cuda.export import Shared, share_tensors
from splatview_ipc.shm.fence import IS_WEAKLY_ORDERED, full_fence
from splatview_ipc.shm.slot_layout import (
    ARRIVED,
    DONE,
    HEADER_BYTES,
    HEADER_LENGTH,
    OLDEST_KEPT,
    SEQ,
    STEP,
    TIME,
    VERSION,
)
from splatview_ipc.shm.slot_writer import header_error
from splatview_ipc.transports.gpu_slots import GpuSlotWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch


KEEP_S = 1.0
"""Seconds for which a replaced generation is kept for viewers that still read it."""
_MAX_REPLACED = 2
"""Number of replaced generations that are kept."""
_ALL_RELEASED = 2**63 - 1
"""The word `oldest kept` when no generation is kept any more."""
_SLOTS = 4
_WORD_MASK = 2**64 - 1
_serials = itertools.count(1)
"""Serial numbers of all generations of this process: no two writers share any."""


class _WriterGeneration:
    """A generation in the trainer."""

    def __init__(
        self,
        serial: int,
        tensors: tuple[torch.Tensor, ...],
        undo: list[Callable[[], object]],
    ) -> None:
        self.serial = serial
        self.tensors = tensors
        """Referenced here, so that their memory stays."""
        self.undo = undo
        """Called when the generation is released."""
        self.release_at = 0.0
        """When to release it (clock seconds); 0: `turn` did not see it replaced."""

    def release(self) -> None:
        """Share its memory no more."""
        for call in self.undo:
            call()


class ZeroCopyWriter(GpuSlotWriter):
    """The trainer's side."""

    in_segment = False
    marked = ARRIVED
    ref: InPlaceRef
    """The newest generation, for readers."""
    _last_tensors: dict[str, torch.Tensor] | None = None
    """The tensors of the last version."""
    _header: bytes = b""
    """The encoded header of the last version."""
    _header_items: Sequence[Any] = ()
    """What it was encoded from: the kind, and the metadata's names and values."""

    @classmethod
    def make(cls, tensors: dict[str, torch.Tensor], growing: bool) -> Self:
        """Share these tensors; see `Transport.writer`."""
        return cls(tensors)

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        """Share these tensors, and take others of their device later.

        Raises SharingError.
        """
        index = next(iter(tensors.values())).get_device()
        self._gpu = driver.gpu_uuid(index)
        super().__init__(index, 0, _SLOTS)
        self._slot_headers = [b""] * _SLOTS
        """The header that each slot has."""
        self._generations: deque[_WriterGeneration] = deque()
        self._last_key: tuple[Any, ...] = ()
        """`_storage_key` of the newest generation."""
        try:
            self._pin(0)
            self._start_generation(tensors)
        except BaseException:
            self.close()
            raise

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        """Return whether tensors are on this device."""
        return all(tensor.get_device() == self.index for tensor in tensors.values())

    def write(
        self,
        kind: str,
        tensors: dict[str, torch.Tensor],
        meta: dict[str, Any],
        version: int,
        confirmed: bool = True,
    ) -> bool:
        """Mark all that torch's current stream was given so far as this version.

        Costs microseconds. Starts a generation when the tensors are stored elsewhere
        than the last ones.
        """
        # The same dictionary holds the same tensors.
        if tensors is not self._last_tensors:
            if _storage_key(tensors) != self._last_key:
                if not self.fits(tensors):
                    return False
                self._start_generation(tensors)
            self._last_tensors = tensors
        step = meta.get("step")
        if type(step) is int:
            meta = {**meta, "step": 0}
        else:
            step = 0
        items = [kind, *meta, *meta.values()]
        # Objects, since 1 and True are equal; none of them is of a type that changes.
        has_same_items = len(items) == len(self._header_items)
        if not has_same_items or not all(map(is_, items, self._header_items)):
            self._header = self._encode_header(kind, meta)
            self._header_items = items
        slot = (self._last + 1) % self.slot_count
        sequence = self._store(slot, version, step)
        self._mark(slot, sequence)
        return True

    def _encode_header(self, kind: str, meta: dict[str, Any]) -> bytes:
        """Return the header of the newest generation's versions with this metadata.

        Raises SharingError when it is too long.
        """
        serial = self._generations[-1].serial
        header = encode(VersionHeader(kind, serial, meta))  # type: ignore[arg-type]
        if len(header) > HEADER_BYTES:
            raise header_error(header)
        return header

    def _store(self, slot: int, version: int, step: int) -> int:
        """Store a version with the present header in a slot; return its even number.

        All words of the slot in one pass: nothing is copied between its begin and its
        end that would need `begin` and `commit` apart.
        """
        page = self._slot_words
        first_word = self.first_words[slot]
        even_sequence = page[first_word + SEQ] + 2
        page[first_word + SEQ] = even_sequence - 1
        if IS_WEAKLY_ORDERED:
            full_fence()
        header = self._header
        if self._slot_headers[slot] is not header:
            start = self.header_offsets[slot]
            self.segment.map[start : start + len(header)] = header
            page[first_word + HEADER_LENGTH] = len(header)
            self._slot_headers[slot] = header
        page[first_word + DONE] = even_sequence
        page[first_word + VERSION] = version
        page[first_word + TIME] = time.time_ns()
        page[first_word + STEP] = step & _WORD_MASK
        if IS_WEAKLY_ORDERED:
            full_fence()
        page[first_word + SEQ] = even_sequence
        self._last = slot
        return even_sequence

    def _start_generation(self, tensors: dict[str, torch.Tensor]) -> None:
        """Share these tensors, and offer them instead of the last ones."""
        # Tensors over the same memory: the storages stay, whatever the caller assigns
        # to `.data` of its own.
        detached = {name: tensor.detach() for name, tensor in tensors.items()}
        memories, refs, undo = self._describe(detached)
        generation = _WriterGeneration(next(_serials), tuple(detached.values()), undo)
        self._generations.append(generation)
        self._last_key = _storage_key(tensors)
        self._header_items = ()
        self.ref = InPlaceRef(
            self.segment.ref, self._gpu, generation.serial, memories, refs
        )
        while len(self._generations) > 1 + _MAX_REPLACED:
            self._release_oldest()

    def _describe(self, tensors: dict[str, torch.Tensor]) -> Shared:
        """Share the memory of the tensors of a generation. Raises SharingError."""
        return share_tensors(tensors)

    def _release_oldest(self) -> None:
        """Release the oldest generation."""
        oldest = self._generations[0]
        self._slot_words[OLDEST_KEPT] = oldest.serial + 1
        full_fence()
        self._generations.popleft()
        oldest.release()

    def turn(self, now: float) -> float | None:
        """Release replaced generations that were kept long enough."""
        for generation in list(self._generations)[:-1]:
            generation.release_at = generation.release_at or now + KEEP_S
        while len(self._generations) > 1:
            release_at = self._generations[0].release_at
            if release_at > now:
                return release_at
            self._release_oldest()
        return None

    def close(self) -> None:
        """Release everything as soon as the GPU is through with it. Idempotent."""
        if not self._closed:
            self._slot_words[OLDEST_KEPT] = _ALL_RELEASED
            full_fence()
            for generation in self._generations:
                generation.release()
            self._generations.clear()
        super().close()


def _storage_key(tensors: dict[str, torch.Tensor]) -> tuple[Any, ...]:
    """Return where and how tensors are stored: what a generation depends on."""
    return tuple(
        (name, t.data_ptr(), t.dtype, t.shape, t.stride())
        for name, t in tensors.items()
    )
