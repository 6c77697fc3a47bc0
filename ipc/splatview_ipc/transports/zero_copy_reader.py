"""Transport for CUDA tensors whose storage stays, in the viewer: the trainer's own memory, opened and read live.

`zero_copy_writer` says how it works. Memories are opened once, whatever generations use them, and closed when the last
frame in them is closed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

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
from splatview_ipc.cuda.memory import Opened, open_memory
from splatview_ipc.cuda.tensors import check_within
from splatview_ipc.shm.slot_layout import ARRIVED, OLDEST_KEPT, full_fence
from splatview_ipc.shm.slot_reader import SlotReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_ipc.control.messages import MemoryRef, Ref
    from splatview_ipc.transports import Descriptors

_WAIT_S = 5.0
"""Seconds for which the data of a version are waited for; then they are read as they are. Only a GPU that takes as
long for what was published before them, or that has failed, needs them."""
_PAUSE_S = 0.0003
"""Seconds between looks whether they have arrived."""


class _ReaderGeneration:
    """A generation in the viewer."""

    def __init__(
        self, ref: InPlaceRef, opened: dict[MemoryRef, Opened], reader: ZeroCopyReader
    ):
        self.number = ref.generation
        self.specs = {t.name: (t.dtype, t.shape) for t in ref.tensors}
        self.memories = frozenset(ref.memories)
        self.frames = 0
        """Frames of it that are not closed."""
        nothing = Opened(ref.gpu, 0)  # for tensors without elements
        memories = dict(enumerate(opened[memory] for memory in ref.memories))
        self.tensors = {
            t.name: DeviceTensor(
                t.dtype,
                t.shape,
                t.strides,
                memories.get(t.memory, nothing),
                t.offset,
                reader.wait,
            )
            for t in ref.tensors
        }


class ZeroCopyReader(SlotReader):
    """The viewer's side."""

    in_segment = False

    def __init__(self, ref: Ref, fds: Descriptors):
        if not isinstance(ref, InPlaceRef):
            raise SharingError(
                f"tensors in place were announced as {type(ref).__name__}"
            )
        check_tensors(ref)
        super().__init__(ref.control, fds)
        self._announced = ref.control, ref.gpu
        self._newest = self._settled = 0, 0
        """The word that tells that the newest version read has arrived, and its value then; and of the last version
        that was waited for."""
        self._open: dict[MemoryRef, Opened] = {}
        self._generations: list[_ReaderGeneration] = []
        """The current one last; before it those whose frames are still held."""
        self._closed = False
        try:
            self._take(ref, fds)
        except BaseException:
            self.close()
            raise

    @property
    def known(self) -> frozenset[str]:  # type: ignore[override]
        """As `Reader.known`."""
        return frozenset(
            [
                self._announced[0].token,
                *(m.token for m in self._open if not isinstance(m, IpcMemory)),
            ]
        )

    def follow(self, ref: Ref, fds: Descriptors) -> bool:
        if not isinstance(ref, InPlaceRef) or (ref.control, ref.gpu) != self._announced:
            return False
        if not self._generations or ref.generation > self._generations[-1].number:
            check_tensors(ref)
            self._take(ref, fds)
        return True

    def _take(self, ref: InPlaceRef, fds: Descriptors) -> None:
        """Open a generation; one that was replaced meanwhile is dropped unread."""
        try:
            for memory in ref.memories:
                if memory not in self._open:
                    if isinstance(memory, IpcMemory):
                        own = []
                    else:
                        own = fds.get(memory.token, ())
                    opened = self._open_memory(memory, own)
                    self._open[memory] = opened
                    if (
                        driver.torch_with_cuda() is not None
                    ):  # find out now, not when drawing, that it cannot be mapped
                        opened.pointer()
        except SharingError:
            self._close_unused()
            if self._words[OLDEST_KEPT] > ref.generation:
                return  # the trainer took it back meanwhile, and offers another
            raise
        if self._words[OLDEST_KEPT] <= ref.generation:
            self._generations.append(_ReaderGeneration(ref, self._open, self))
        self._retire()

    def _open_memory(self, memory: MemoryRef, fds: Sequence[int]) -> Opened:
        """Open a memory; `fds`, the descriptors of its token, stay the caller's. Raises SharingError."""
        if isinstance(memory, TorchMemory):
            raise SharingError("memory of torch was announced as memory of the driver")
        return open_memory(memory, descriptors.duplicates(fds))

    def read(self, after: int = 0, attempts: int = 4) -> StreamFrame | None:
        """As `Reader.read`. The tensors change when the trainer changes them."""
        self._retire()
        return super().read(after, attempts)

    def _decode(self, raw: bytes) -> VersionHeader:
        return decode_version_header(raw)

    def _frame(self, slot: int, seq: int, stamp: tuple[int, int]) -> StreamFrame | None:
        header = self._header
        generation = self._generations[-1] if self._generations else None
        if (
            generation is None
            or header.generation != generation.number
            or self._words[OLDEST_KEPT] > generation.number
        ):
            return None  # its tensors have not been offered yet, or are gone already
        kinds.check_frame(header.kind, generation.specs, header.meta)
        mark = (self.bases[slot] + ARRIVED, seq)
        self._newest = mark

        def kept() -> bool:
            full_fence()
            try:
                ok = self._words[OLDEST_KEPT] <= generation.number
            except (
                ValueError
            ):  # this reader was closed: whether the memory was kept is not known
                ok = False
            self.torn += not ok
            return ok

        def release() -> None:
            generation.frames -= 1
            self._retire()

        generation.frames += 1
        return StreamFrame(
            header.kind,
            *stamp,
            dict(header.meta),
            dict(generation.tensors),
            kept,
            release,
            self.wait,
            lambda: self._arrived(mark),
        )

    def _arrived(self, mark: tuple[int, int]) -> bool:
        try:
            return self._words[mark[0]] >= mark[1]
        except ValueError:  # this reader was closed
            return False

    def wait(self, stream: int) -> None:
        """As `Frame.wait`, for the newest version read. Waits on the host, whatever the stream, at most _WAIT_S: work
        of a trainer that is gone ended with it, unfinished.
        """
        mark = self._newest
        end = time.perf_counter() + _WAIT_S
        while mark != self._settled and not self._arrived(mark) and self.alive():
            if time.perf_counter() > end:
                break
            time.sleep(_PAUSE_S)
        self._settled = mark

    def _retire(self) -> None:
        """Close the memory of which no frame is held any more, nor will come."""
        if self._closed or not self._generations:
            current = None
        else:
            current = self._generations[-1]
        self._generations = [g for g in self._generations if g.frames or g is current]
        self._close_unused()

    def _close_unused(self) -> None:
        used = frozenset().union(*(g.memories for g in self._generations))
        for key in [key for key in self._open if key not in used]:
            self._open.pop(key).close()

    def close(self) -> None:
        self._settled = self._newest
        self._closed = True
        self._retire()
        super().close()


def check_tensors(ref: InPlaceRef) -> None:
    """Raise SharingError unless every tensor is within its memory."""
    if len({t.name for t in ref.tensors}) != len(ref.tensors):
        raise SharingError("a tensor name was announced twice")
    if len(set(ref.memories)) != len(ref.memories) or any(
        m.gpu != ref.gpu for m in ref.memories
    ):
        raise SharingError("memories were announced twice, or on several GPUs")
    for t in ref.tensors:
        size = ref.memories[t.memory].size if t.memory < len(ref.memories) else 0
        check_within(t.dtype, t.shape, t.strides, t.offset, size)
