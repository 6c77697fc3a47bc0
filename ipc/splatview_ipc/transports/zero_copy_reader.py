"""Transport for CUDA tensors whose storage stays, in the viewer.

The trainer's own memory is opened and read live; `zero_copy_writer` says how it works.
Memories are opened once, whatever generations use them, and closed when the last frame
in them is closed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from splatview_ipc import kinds
from splatview_ipc.control import descriptors
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import DeviceTensor, StreamFrame
from splatview_ipc.control.messages import (
    InPlaceRef,
    IpcMemory,
    TorchMemory,
    VersionHeader,
    decode_version_header,
)
from splatview_ipc.cuda import driver
from splatview_ipc.cuda.memory import OpenedMemory, open_memory
from splatview_ipc.cuda.tensors import check_bounds
from splatview_ipc.shm.fence import full_fence
from splatview_ipc.shm.slot_layout import ARRIVED, OLDEST_KEPT
from splatview_ipc.shm.slot_reader import SlotReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_ipc.control.messages import MemoryRef, Ref
    from splatview_ipc.shm.slot_reader import Stamp
    from splatview_ipc.transports import Descriptors

_WAIT_S = 5.0
"""Seconds to wait for the data of a version; then they are read as they are.

Only a GPU that takes as long for what was published before them, or that has failed,
needs them.
"""
_PAUSE_S = 0.0003
"""Seconds between two looks at the word that tells whether they have arrived."""


class _Arrival(NamedTuple):
    """The word that the GPU writes when a version has arrived, and its value then."""

    word: int
    sequence: int


class _ReaderGeneration:
    """A generation in the viewer."""

    def __init__(
        self,
        ref: InPlaceRef,
        opened: dict[MemoryRef, OpenedMemory],
        wait: Callable[[int], None],
    ) -> None:
        """Make the tensors of a generation.

        Args:
            ref: the announced generation.
            opened: its memories.
            wait: as `StreamFrame.wait`.
        """
        self.serial = ref.generation
        self.specs = {t.name: (t.dtype, t.shape) for t in ref.tensors}
        self.memories = frozenset(ref.memories)
        self.frames = 0
        """Number of its frames that are not closed."""
        no_memory = OpenedMemory(ref.gpu, 0)  # for tensors without elements
        memories = [opened[memory] for memory in ref.memories]
        self.tensors: dict[str, DeviceTensor] = {}
        for tensor in ref.tensors:
            is_known = tensor.memory < len(memories)
            self.tensors[tensor.name] = DeviceTensor(
                dtype=tensor.dtype,
                shape=tensor.shape,
                strides=tensor.strides,
                memory=memories[tensor.memory] if is_known else no_memory,
                offset=tensor.offset,
                ready=wait,
            )


class ZeroCopyReader(SlotReader):
    """The viewer's side."""

    in_segment = False

    def __init__(self, ref: Ref, fds: Descriptors) -> None:
        if not isinstance(ref, InPlaceRef):
            raise SharingError(
                f"tensors in place were announced as {type(ref).__name__}"
            )
        check_tensors(ref)
        super().__init__(ref.control, fds)
        self._control_ref = ref.control
        self._gpu = ref.gpu
        self._newest = _Arrival(0, 0)
        """Of the newest version that was read."""
        self._settled = _Arrival(0, 0)
        """Of the last version that was waited for."""
        self._opened: dict[MemoryRef, OpenedMemory] = {}
        self._generations: list[_ReaderGeneration] = []
        """The current one last; before it those whose frames are not closed."""
        self._closed = False
        try:
            self._open_generation(ref, fds)
        except BaseException:
            self.close()
            raise

    @property
    def known_tokens(self) -> frozenset[str]:  # type: ignore[override]
        """Tokens of memory that is open here; see `Reader.known_tokens`."""
        tokens = {m.token for m in self._opened if not isinstance(m, IpcMemory)}
        return frozenset({self._control_ref.token, *tokens})

    def follow(self, ref: Ref, fds: Descriptors) -> bool:
        """Open a newer generation; see `Reader.follow`."""
        if not isinstance(ref, InPlaceRef):
            return False
        if ref.control != self._control_ref or ref.gpu != self._gpu:
            return False
        if not self._generations or ref.generation > self._generations[-1].serial:
            check_tensors(ref)
            self._open_generation(ref, fds)
        return True

    def _open_generation(self, ref: InPlaceRef, fds: Descriptors) -> None:
        """Open a generation; one that was replaced meanwhile is dropped unread."""
        try:
            for memory in ref.memories:
                if memory not in self._opened:
                    self._add_memory(memory, fds)
        except SharingError:
            self._close_unused()
            if self._slot_words[OLDEST_KEPT] > ref.generation:
                return  # the trainer took it back meanwhile, and offers another
            raise
        if self._slot_words[OLDEST_KEPT] <= ref.generation:
            generation = _ReaderGeneration(ref, self._opened, self.wait)
            self._generations.append(generation)
        self._retire()

    def _add_memory(self, memory: MemoryRef, fds: Descriptors) -> None:
        """Open a memory that a generation uses. Raises SharingError."""
        memory_fds: Sequence[int] = ()
        if not isinstance(memory, IpcMemory):
            memory_fds = fds.get(memory.token, ())
        opened = self._open_memory(memory, memory_fds)
        self._opened[memory] = opened
        # Find out now, not when drawing, that it cannot be mapped.
        if driver.torch_with_cuda() is not None:
            opened.pointer()

    def _open_memory(self, memory: MemoryRef, fds: Sequence[int]) -> OpenedMemory:
        """Open a memory; `fds`, the descriptors of its token, stay the caller's.

        Raises SharingError.
        """
        if isinstance(memory, TorchMemory):
            raise SharingError("memory of torch was announced as memory of the driver")
        return open_memory(memory, descriptors.duplicate_all(fds))

    def read(self, after: int = 0, attempts: int = 4) -> StreamFrame | None:
        """Return the newest whole frame; see `Reader.read`.

        Its tensors change when the trainer changes them.
        """
        self._retire()
        return super().read(after, attempts)

    def _decode(self, raw: bytes) -> VersionHeader:
        return decode_version_header(raw)

    def _frame(self, slot: int, seq: int, stamp: Stamp) -> StreamFrame | None:
        header = self._header
        if not self._generations:
            return None
        generation = self._generations[-1]
        is_offered = header.generation == generation.serial
        if not is_offered or self._slot_words[OLDEST_KEPT] > generation.serial:
            return None  # its tensors have not been offered yet, or are gone already
        meta = dict(header.meta)
        if type(meta.get("step")) is int:
            meta["step"] = stamp.step
        kinds.check_frame(header.kind, generation.specs, meta)
        arrival = _Arrival(self.first_words[slot] + ARRIVED, seq)
        self._newest = arrival

        def intact() -> bool:
            is_intact = self._is_kept(generation)
            self.torn += not is_intact
            return is_intact

        def release() -> None:
            generation.frames -= 1
            self._retire()

        generation.frames += 1
        return StreamFrame(
            kind=header.kind,
            version=stamp.version,
            time_ns=stamp.time_ns,
            meta=meta,
            tensors=dict(generation.tensors),
            intact=intact,
            release=release,
            wait=self.wait,
            arrived=lambda: self._has_arrived(arrival),
        )

    def _is_kept(self, generation: _ReaderGeneration) -> bool:
        """Return whether the trainer has kept a generation's memory until now."""
        full_fence()
        try:
            return self._slot_words[OLDEST_KEPT] <= generation.serial
        except ValueError:  # this reader was closed: it is not known
            return False

    def _has_arrived(self, arrival: _Arrival) -> bool:
        try:
            return self._slot_words[arrival.word] >= arrival.sequence
        except ValueError:  # this reader was closed
            return False

    def wait(self, stream: int) -> None:
        """Wait for the newest version read; see `StreamFrame.wait`.

        Waits on the host, whatever the stream, at most _WAIT_S: work of a trainer that
        is gone ended with it, unfinished.
        """
        arrival = self._newest
        deadline = time.perf_counter() + _WAIT_S
        while (
            arrival != self._settled
            and not self._has_arrived(arrival)
            and self.alive()
            and time.perf_counter() <= deadline
        ):
            time.sleep(_PAUSE_S)
        self._settled = arrival

    def _retire(self) -> None:
        """Close the memory of which no frame is used any more, nor will come."""
        current: _ReaderGeneration | None = None
        if self._generations and not self._closed:
            current = self._generations[-1]
        self._generations = [g for g in self._generations if g.frames or g is current]
        self._close_unused()

    def _close_unused(self) -> None:
        used = frozenset().union(*(g.memories for g in self._generations))
        unused = [memory for memory in self._opened if memory not in used]
        for memory in unused:
            self._opened.pop(memory).close()

    def close(self) -> None:
        """Release everything, but for what frames still hold. Idempotent."""
        self._settled = self._newest
        self._closed = True
        self._retire()
        super().close()


def check_tensors(ref: InPlaceRef) -> None:
    """Raise SharingError unless every tensor is within its memory."""
    names = {tensor.name for tensor in ref.tensors}
    if len(names) != len(ref.tensors):
        raise SharingError("a tensor name was announced twice")
    has_repeated = len(set(ref.memories)) != len(ref.memories)
    if has_repeated or any(memory.gpu != ref.gpu for memory in ref.memories):
        raise SharingError("memories were announced twice, or on several GPUs")
    for tensor in ref.tensors:
        is_known = tensor.memory < len(ref.memories)
        size = ref.memories[tensor.memory].size if is_known else 0
        check_bounds(tensor.dtype, tensor.shape, tensor.strides, tensor.offset, size)
