"""The way for CUDA tensors whose storage stays, in the trainer: shared where they lie, nothing is copied.

The trainer describes its tensors once; this is a *generation*, offered to each viewer. A version is then an event
recorded on the trainer's stream and a header with time and metadata in one of a few slots; versions that no viewer asks
for have neither (`ipc.tally`). When the tensors lie somewhere else (a densification), a new generation begins.

Invariants (tests/faults explores 1 to 4)
1. The tensors of a header are those of the generation that it names: no reader can mix generations. A reader that has
   not opened it yet shows nothing new.
2. A slot's number is odd while the writer is in it. A reader takes the number, the version, time and header, and the
   number again, with the loads in this order: what it made a frame of was whole then, and is a copy of its own.
3. The trainer keeps the tensors of a replaced generation until no viewer reads them any more (`Took`), at most
   KEEP seconds and never more than two; the word `oldest kept` moves on before their memory is given back, and never
   goes back: one thread at a time moves it.
4. A reader reads the tensors, and then (fence) the word: if it is not beyond the generation, they were kept meanwhile.
5. The event is one for all the writer's life, recorded before its handle is given away, and before the version that it
   is to mark: who waits for it waits for that version or a later one.
6. The GPU writes into the slot that the data have arrived, behind all that the event marks. Readers look at that word,
   or query the event where no such word can be written, and never give a GPU something to wait for: work of a process
   that is killed never ends, and a stream that waited for it would wait for ever.
7. Marking is done under the stream's lock; forgetting may be done by any thread beside it.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
import time
from collections import deque
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Any

from splatview_ipc.control import descriptors, limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import InPlaceRef, VersionHeader, encode
from splatview_ipc.cuda import driver, retiring
from splatview_ipc.shm.segment import PAGE
from splatview_ipc.shm.slot_layout import (
    ARRIVED,
    DONE,
    HEADER,
    HEADER_BYTES,
    OLDEST_KEPT,
    SEQ,
    TIME,
    VERSION,
    full_fence,
    header_before_meta,
    store_fence,
    too_long,
)
from splatview_ipc.shm.slot_writer import SlotWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from splatview_ipc.control.messages import MemoryRef
    from splatview_ipc.cuda.export import Export

KEEP = 1.0
"""Seconds for which a replaced generation is kept for viewers that still read it."""
_MOST_KEPT = 2
_NONE_KEPT = 2**63 - 1
_numbers = itertools.count(1)
"""Of all generations of this process: what a viewer said of one writer's means nothing to the next one's."""


class _Kept:
    """A generation in the trainer."""

    def __init__(self, number: int, tensors: tuple[torch.Tensor, ...], tokens: list[str]):
        self.number = number
        self.tensors = tensors
        self.tokens = tokens
        self.until = float("inf")

    def drop(self) -> None:
        self.tensors = ()
        for token in self.tokens:
            descriptors.withdraw(token)


class InPlaceWriter(SlotWriter):
    """The trainer's side."""

    in_segment = False

    @classmethod
    def make(cls, tensors: dict[str, torch.Tensor], spare: float, leased: Callable[[], bytes]) -> InPlaceWriter:
        return cls(tensors)

    def __init__(self, tensors: dict[str, torch.Tensor]):
        """For tensors on the device of these, which are shared at once. Raises SharingError."""
        from torch._C import _cuda_getCurrentRawStream as stream_of

        from splatview_ipc.cuda.events import InterprocessEvent

        self._index = next(iter(tensors.values())).device.index or 0
        self._gpu = driver.gpu_uuid(self._index)
        with driver.relaxed_capture():
            self._event = InterprocessEvent(self._index)
        try:
            super().__init__(0, label="inplace")
        except BaseException:
            self._event.close()
            raise
        self._stream_of = stream_of  # what torch.cuda.current_stream wraps, at a tenth
        self._generations: deque[_Kept] = deque()
        self._forgetting = threading.Lock()
        self._key: tuple[Any, ...] = ()
        self._number = 0
        self._kind = "image"
        self._pinned = 0
        self._arrivals: list[int] = []
        """Where the GPU writes that a version has arrived, by slot; empty before the first version, and where the GPU
        cannot write there."""
        self._sent: dict[int, int] = {}
        """What it writes there last."""
        self._closed = False
        self._ref: InPlaceRef | None = None
        try:
            self._begin(tensors)
        except BaseException:
            self.close()
            raise

    @property
    def ref(self) -> InPlaceRef:
        assert self._ref is not None
        return self._ref

    @property
    def generation(self) -> int:
        return self._number

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        return all((t.device.index or 0) == self._index and t.is_cuda for t in tensors.values())

    def write(self, kind: str, tensors: dict[str, torch.Tensor], meta: dict[str, Any], version: int,
              still_wanted: Callable[[], bool] | None = None) -> bool:
        """As `FrameWriter.write`; begins a generation when the tensors lie elsewhere than the last ones."""
        if _key(tensors) != self._key:
            self._begin(tensors)
        if self._meta is None or kind != self._kind:
            self._kind, self._meta = kind, None
            self._header_start = header_before_meta(VersionHeader(kind, self._number, {}))  # type: ignore[arg-type]
        if not self._arrivals:
            self._pin()
        return self.again((), [], dict(meta), version, self._stream_of(self._index))

    def prepare(self, tensors: dict[str, torch.Tensor], published: tuple[torch.Tensor, ...]) -> bool:
        return True

    def again(self, published: tuple[torch.Tensor, ...], addresses: list[int], meta: dict[str, Any], version: int,
              stream: int) -> bool:
        """A new version of the same tensors: all that the stream was given so far. Costs microseconds.

        One long function, since after a while of other work what each call costs is what it has to fetch from memory.
        """
        if meta is not self._meta:
            header = self._header_start + encode(meta)
            if len(header) > HEADER_BYTES:
                raise too_long(header)
            self._header, self._meta = header, meta
        self._event.record(stream)
        header, words = self._header, self._words
        slot = self._last + 1
        if slot == self.slots:
            slot = 0
        base = self._bases[slot]
        whole = words[base + SEQ] + 2
        words[base + SEQ] = whole - 1
        store_fence()
        if self._headers[slot] is not header:
            start, size = self.header_offset(slot), len(header)
            self._bytes[start : start + size] = header
            self._headers[slot] = header
            words[base + HEADER] = size
        words[base + DONE] = whole
        words[base + VERSION] = version
        words[base + TIME] = time_ns()
        store_fence()
        words[base + SEQ] = whole
        self._last = slot
        if self._arrivals:
            self._sent[slot] = whole
            driver.write_value(self._index, stream, self._arrivals[slot], whole)
        return True

    def _pin(self) -> None:
        """Have the GPU write into the control page. Where that cannot be, versions arrive without notice."""
        if self._pinned:
            return
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.segment.map))
        try:
            on_device = driver.register_host(address, PAGE, self._index)
        except SharingError:
            return
        self._pinned = address
        self._arrivals = [on_device + 8 * (base + ARRIVED) for base in self._bases]

    def _begin(self, tensors: dict[str, torch.Tensor]) -> None:
        from splatview_ipc.cuda.memory import describe

        exports, refs = describe(tensors)
        if len(exports) > limits.MAX_MEMORIES:
            raise SharingError(f"the tensors lie in {len(exports)} allocations; at most {limits.MAX_MEMORIES} are "
                               "shared at once")
        # Tensors over the same memory: the storages stay, whatever the caller assigns to `.data` of its own.
        kept = tuple(t.detach() for t in tensors.values())
        memories: list[MemoryRef] = []
        tokens = []
        for export in exports:
            token = descriptors.offer_made(len(export.pieces), partial(_made, export, kept)) if export.pieces else ""
            memories.append(export.ref(token))
            if token:
                tokens.append(token)
        self._number = next(_numbers)
        if self._generations:
            self._generations[-1].until = time.monotonic() + KEEP
        self._generations.append(_Kept(self._number, kept, tokens))
        self._key, self._meta = _key(tensors), None
        self._ref = InPlaceRef(self.segment.ref, self._gpu, self._number, tuple(memories), refs, self._event.handle)
        with contextlib.suppress(IndexError):  # the helper thread forgets as well
            while len(self._generations) > 1 + _MOST_KEPT:
                self.forget(self._generations[1].number)

    @property
    def due(self) -> float | None:
        """When (time.monotonic) to call `forget` for a generation that was kept long enough; None: nothing is old."""
        with contextlib.suppress(IndexError):
            first = self._generations[0]
            return first.until if first.until < float("inf") else None
        return None

    def forget(self, before: int) -> None:
        """Give back replaced generations that are older than `before`, or were kept long enough. Any thread."""
        now = time.monotonic()
        while True:
            # One thread at a time: the word must never go back, else a reader takes what is gone for kept.
            with self._forgetting:
                if len(self._generations) < 2:
                    return
                first = self._generations[0]
                if first.number >= before and first.until > now:
                    return
                try:
                    self._words[OLDEST_KEPT] = first.number + 1
                except ValueError:  # closed meanwhile
                    return
                full_fence()
                self._generations.popleft()
            first.drop()

    def close(self) -> None:
        with self._forgetting:
            with contextlib.suppress(ValueError):  # closed already
                self._words[OLDEST_KEPT] = _NONE_KEPT
            full_fence()
            kept = [*self._generations]
            self._generations.clear()
        for one in kept:
            one.drop()
        self._event.close()
        if self._closed:
            return
        self._closed = True
        if not self._pinned or self._idle():
            self._give_back()
        else:
            retiring.retire(self._idle, self._give_back)

    def _idle(self) -> bool:
        """Whether the GPU will not write into the control page any more."""
        words = self._words
        return (all(words[self._bases[slot] + ARRIVED] == whole for slot, whole in self._sent.items())
                or driver.broken(self._index))

    def _give_back(self) -> None:
        if self._pinned:
            driver.release_host(self._pinned, self._index)
        super().close()


def _made(export: Export, tensors: tuple[torch.Tensor, ...], start: int, stop: int) -> list[int]:
    """Descriptors of memory that these tensors keep."""
    return export.descriptors(start, stop)


def _key(tensors: dict[str, torch.Tensor]) -> tuple[Any, ...]:
    """Where tensors lie and how."""
    return tuple((name, t.data_ptr(), t.dtype, t.shape, t.stride()) for name, t in tensors.items())
