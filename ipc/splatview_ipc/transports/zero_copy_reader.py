"""Transport for CUDA tensors whose storage stays, in the viewer: the trainer's own memory, opened and read live.

`zero_copy_writer` says how it works. Memories are opened once, whatever generations use them, and closed when the last
frame in them is closed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from splatview_ipc import kinds
from splatview_ipc.control import descriptors, limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import DeviceTensor, Frame, Made
from splatview_ipc.control.messages import (
    DecodeError,
    FdMemory,
    InPlaceRef,
    IpcMemory,
    TorchMemory,
    VersionHeader,
    decode_version_header,
)
from splatview_ipc.shm.slot_layout import ARRIVED, FIRST_SLOT, OLDEST_KEPT, WORDS_PER_SLOT, full_fence, load_fence
from splatview_ipc.shm.slot_reader import SlotReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from splatview_ipc.control.frame import DeviceMemory
    from splatview_ipc.control.messages import MemoryRef, Ref
    from splatview_ipc.transports.base import Descriptors

WAIT_S = 5.0
"""Seconds for which the data of a version are waited for; then they are read as they are. Only a GPU that takes as
long for what was published before them, or that has failed, needs them."""
_PAUSES_S = 0.0001, 0.001
"""Seconds between looks whether they have arrived: at first, and at most."""


class _Generation:
    """A generation in the viewer."""

    def __init__(self, ref: InPlaceRef, memories: dict[MemoryRef, DeviceMemory], reader: ZeroCopyReader):
        self.number = ref.generation
        self.specs = {t.name: (t.dtype, t.shape) for t in ref.tensors}
        self.memories = frozenset(ref.memories)
        self.frames = 0
        """Frames of it that are not closed."""
        empty = _NoMemory(ref.gpu)
        self.tensors = {
            t.name: DeviceTensor(t.dtype, t.shape, t.strides,
                                 memories[ref.memories[t.memory]] if 0 not in t.shape else empty, t.offset,
                                 reader.wait, Made())
            for t in ref.tensors}

    def retire(self) -> None:
        """Drop what was made for torch: no frame of it is held any more, and none will come."""
        for tensor in self.tensors.values():
            if tensor.made is not None:
                tensor.made.drop()


class ZeroCopyReader(SlotReader):
    """The viewer's side."""

    in_segment = False

    def __init__(self, ref: Ref, fds: Descriptors):
        if not isinstance(ref, InPlaceRef):
            raise SharingError(f"tensors in place were announced as {type(ref).__name__}")
        check_tensors(ref)
        super().__init__(ref.control, fds)
        self._announced = ref.control, ref.gpu
        self._newest = self._settled = 0, 0
        """The word that tells that the newest version read has arrived, and its value then; and of the last version
        that was waited for."""
        self._open: dict[MemoryRef, DeviceMemory] = {}
        self._generations: list[_Generation] = []
        """The current one last; before it those whose frames are still held."""
        self._version_header = VersionHeader("image", 0, {})
        self._closed = False
        try:
            self._take(ref, fds)
        except BaseException:
            self.close()
            raise

    @property
    def known(self) -> frozenset[str]:  # type: ignore[override]
        """As `Reader.known`."""
        return frozenset([self._announced[0].token, *(m.token for m in self._open if not isinstance(m, IpcMemory))])

    def follow(self, ref: Ref, fds: Descriptors) -> bool:
        if not isinstance(ref, InPlaceRef) or (ref.control, ref.gpu) != self._announced:
            return False
        if not self._generations or ref.generation > self._generations[-1].number:
            check_tensors(ref)
            self._take(ref, fds)
        return True

    def _take(self, ref: InPlaceRef, fds: Descriptors) -> None:
        """Open a generation; one that was replaced meanwhile is dropped unread."""
        from splatview_ipc.cuda.driver import torch_with_cuda

        try:
            for memory in ref.memories:
                if memory not in self._open:
                    own = [] if isinstance(memory, IpcMemory) else fds.get(memory.token, ())
                    self._open[memory] = opened = self._open_memory(memory, own)
                    if torch_with_cuda() is not None:  # what cannot be mapped is better known now than when it is drawn
                        opened.pointer()
        except SharingError:
            self._close_unused()
            if self._words[OLDEST_KEPT] > ref.generation:
                return  # the trainer took it back meanwhile, and offers another
            raise
        if self._words[OLDEST_KEPT] <= ref.generation:
            self._generations.append(_Generation(ref, self._open, self))
        self._retire()

    def _open_memory(self, memory: MemoryRef, fds: Sequence[int]) -> DeviceMemory:
        """Open a memory; `fds`, the descriptors of its token, stay the caller's. Raises SharingError."""
        from splatview_ipc.cuda.memory import open_memory

        if isinstance(memory, TorchMemory):
            raise SharingError("memory of torch was announced as memory of the driver")
        return open_memory(memory, descriptors.duplicates(fds))

    def read(self, after: int = 0, attempts: int = 4) -> Frame | None:
        """As `Reader.read`. The tensors change when the trainer changes them."""
        self._retire()
        for _ in range(attempts):
            slot, seq = self.newest(after)
            if slot < 0:
                return None
            load_fence()  # what follows is of this number, or a later one
            try:
                stamp, raw = self.stamp(slot), self.raw_header(slot)
                if not self.unchanged(slot, seq):
                    continue
                if raw != self._header_bytes:
                    self._version_header, self._header_bytes = decode_version_header(raw), raw
                header, current = self._version_header, self._generations[-1] if self._generations else None
                if (current is None or header.generation != current.number
                        or self._words[OLDEST_KEPT] > current.number):
                    return None  # its tensors have not been offered yet, or are gone already
                kinds.check_frame(header.kind, current.specs, header.meta)
            except (*DecodeError, ValueError):
                self.garbled += self.unchanged(slot, seq)
                return None
            return self._version(current, header, stamp, (FIRST_SLOT + slot * WORDS_PER_SLOT + ARRIVED, seq))
        return None

    def _version(self, generation: _Generation, header: VersionHeader, stamp: tuple[int, int],
                 mark: tuple[int, int]) -> Frame:
        self._newest = mark

        def kept() -> bool:
            full_fence()
            try:
                ok = self._words[OLDEST_KEPT] <= generation.number
            except ValueError:  # this reader was closed: whether the memory was kept is not known
                ok = False
            self.torn += not ok
            return ok

        def release() -> None:
            generation.frames -= 1
            self._retire()

        generation.frames += 1
        return Frame(header.kind, *stamp, dict(header.meta), dict(generation.tensors), kept, release, self.wait,
                     lambda: self._arrived(mark))

    def _arrived(self, mark: tuple[int, int]) -> bool:
        try:
            return self._words[mark[0]] >= mark[1]
        except ValueError:  # this reader was closed
            return False

    def wait(self, stream: int) -> None:
        """As `Frame.wait`, for the newest version read. Waits on the host, whatever the stream, at most WAIT_S: work of
        a trainer that is gone ended with it, unfinished."""
        mark, pause = self._newest, _PAUSES_S[0]
        end = time.perf_counter() + WAIT_S
        while mark != self._settled and not self._arrived(mark) and self.alive():
            if time.perf_counter() > end:
                break
            time.sleep(pause)
            pause = min(2 * pause, _PAUSES_S[1])
        self._settled = mark

    def _retire(self) -> None:
        """Close what no frame holds any more."""
        current = None if self._closed or not self._generations else self._generations[-1]
        for generation in [g for g in self._generations if g.frames == 0 and g is not current]:
            self._generations.remove(generation)
            generation.retire()
        self._close_unused()

    def _close_unused(self) -> None:
        used = frozenset().union(*(g.memories for g in self._generations))
        for key in [key for key in self._open if key not in used]:
            self._open.pop(key).close()

    def close(self) -> None:
        self._settled, self._closed = self._newest, True
        self._retire()
        super().close()


class _NoMemory:
    """Memory of tensors without elements."""

    size = 0
    pieces = ()

    def __init__(self, gpu: str):
        self.gpu = gpu

    def pointer(self) -> int:
        return 0

    def tensor(self, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> torch.Tensor:
        import torch

        from splatview_ipc.cuda import driver

        return torch.empty(shape, dtype=getattr(torch, dtype), device=f"cuda:{driver.here(self.gpu)}")

    def close(self) -> None:
        pass


def check_tensors(ref: InPlaceRef) -> None:
    """Raise SharingError unless every tensor is within its memory."""
    if len({t.name for t in ref.tensors}) != len(ref.tensors):
        raise SharingError("a tensor name was announced twice")
    if len(set(ref.memories)) != len(ref.memories) or any(m.gpu != ref.gpu for m in ref.memories):
        raise SharingError("memories were announced twice, or on several GPUs")
    sizes = [sum(m.pieces) if isinstance(m, FdMemory) else m.size for m in ref.memories]
    for t in ref.tensors:
        if len(t.strides) != len(t.shape):
            raise SharingError(f"{t.name} was announced with {len(t.shape)} extents and {len(t.strides)} strides")
        if 0 in t.shape:
            continue
        item = limits.ITEM_SIZE[t.dtype]
        last = sum((extent - 1) * stride for extent, stride in zip(t.shape, t.strides, strict=True))
        if t.memory >= len(sizes) or t.offset % item or t.offset + (last + 1) * item > sizes[t.memory]:
            raise SharingError(f"{t.name} {t.shape} was announced outside of its memory")
