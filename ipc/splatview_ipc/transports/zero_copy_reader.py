"""The way for CUDA tensors whose storage stays, in the viewer: the trainer's own memory, opened and read live.

`ipc.ways.in_place` says how it works. Memories are opened once, whatever generations lie in them, and closed once, when
the last frame in them is closed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from splatview_ipc import kinds
from splatview_ipc.control import limits
from splatview_ipc.control.errors import NotYet, SharingError
from splatview_ipc.control.frame import DeviceTensor, Frame, Made
from splatview_ipc.control.messages import DecodeError, FdMemory, InPlaceRef, VersionHeader, decode_version_header
from splatview_ipc.shm.slot_layout import ARRIVED, FIRST_SLOT, OLDEST_KEPT, WORDS_PER_SLOT, full_fence, load_fence
from splatview_ipc.shm.slot_reader import Lease, SlotReader

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from splatview_ipc.control.frame import DeviceMemory
    from splatview_ipc.control.messages import MemoryRef, Ref
    from splatview_ipc.shm.segment import Source


_PATIENCE = 5.0
"""Seconds for which the data of a version is waited for; then it is read as it is. Only a GPU that takes as long for
what was published before it, or that has failed, needs them."""
_PAUSES = 0.0001, 0.001
"""Seconds between looks whether it has arrived: at first, and at most."""


class _Shared:
    """A memory that is open here, and how many generations lie in it."""

    def __init__(self, memory: DeviceMemory):
        self.memory = memory
        self.users = 0


class _Generation:
    """A generation in the viewer."""

    def __init__(self, ref: InPlaceRef, memories: list[_Shared], ready: Callable[[int], None]):
        self.number = ref.generation
        self.specs = {t.name: (t.dtype, t.shape) for t in ref.tensors}
        self.memories = memories
        self.frames = 0
        """Frames of it that are not closed."""
        empty = _NoMemory(ref.gpu)
        self.tensors = {
            t.name: DeviceTensor(t.dtype, t.shape, t.strides,
                                 memories[t.memory].memory if 0 not in t.shape else empty, t.offset, ready, Made())
            for t in ref.tensors}

    def retire(self) -> None:
        """No frame of it is held any more, and none will come: its memories may go."""
        for tensor in self.tensors.values():
            if tensor.made is not None:
                tensor.made.drop()
        for one in self.memories:
            one.users -= 1


class InPlaceReader(SlotReader):
    """A viewer's side."""

    in_segment = False

    @classmethod
    def make(cls, ref: Ref, source: Source, lease: Callable[[int], None], writable: bool = False) -> InPlaceReader:
        """As `Way.reader`. `writable` has no effect: GPU memory cannot be mapped copy-on-write."""
        if not isinstance(ref, InPlaceRef):
            raise SharingError(f"tensors in place were announced as {type(ref).__name__}")
        return cls(ref, source, lease)

    def __init__(self, ref: InPlaceRef, source: Source, lease: Callable[[int], None]):
        check_tensors(ref)
        super().__init__(ref.control, source, lease)
        self._source = source
        self._control = ref.control
        self._gpu = ref.gpu
        self._event_handle = ref.event
        self._event: Any = None
        self._newest = self._settled = 0, 0
        """The word that tells that the newest version read has arrived, and what it says then; and of the last version
        that was waited for."""
        self._open: dict[MemoryRef, _Shared] = {}
        self._wanted: frozenset[MemoryRef] = frozenset()
        """Memories of a generation that has not come whole yet."""
        self._current: _Generation | None = None
        self._old: list[_Generation] = []
        self._version_header = VersionHeader("image", 0, {})
        self.asks = False
        try:
            self._take(ref)
        except BaseException:
            self.close()
            raise

    @property
    def taken(self) -> int:  # type: ignore[override]
        """The oldest generation that is still read; 0 before there is one."""
        current = self._current.number if self._current is not None else 0
        return min([current, *(g.number for g in self._old)])

    def follow(self, ref: Ref) -> bool:
        if not isinstance(ref, InPlaceRef) or (ref.control, ref.gpu, ref.event) != (
                self._control, self._gpu, self._event_handle):
            return False
        if self._current is None or ref.generation > self._current.number:
            check_tensors(ref)
            self._take(ref)
        return True

    def _take(self, ref: InPlaceRef) -> None:
        """Open a generation; one that was replaced meanwhile is dropped unread."""
        from splatview_ipc.cuda.driver import torch_with_cuda
        from splatview_ipc.cuda.memory import open_memory

        self._wanted = frozenset(ref.memories)
        missing = False
        try:
            for memory in ref.memories:
                if memory not in self._open:
                    try:
                        fds = (self._source.descriptors(memory.token, len(memory.pieces))
                               if isinstance(memory, FdMemory) else [])
                    except NotYet:  # go on: all are asked for at once
                        missing = True
                        continue
                    self._open[memory] = _Shared(open_memory(memory, fds))
                    if torch_with_cuda() is not None:  # what cannot be mapped is better known now than when it is drawn
                        self._open[memory].memory.pointer()
        except SharingError:
            self._wanted = frozenset()
            self._close_unused()
            if self._words[OLDEST_KEPT] > ref.generation:
                return  # the trainer took it back meanwhile, and offers another
            raise
        if missing:
            raise NotYet
        for memory in ref.memories:  # a training that densifies often must not fill our table of descriptors
            if isinstance(memory, FdMemory):
                self._source.forget(memory.token)
        self._wanted = frozenset()
        if self._words[OLDEST_KEPT] > ref.generation:
            self._close_unused()
            return
        shared = [self._open[memory] for memory in ref.memories]
        for one in shared:
            one.users += 1
        old, self._current = self._current, _Generation(ref, shared, self._wait)
        if old is not None:
            self._old.append(old)
            self._retire()

    def ask(self) -> None:
        """As `FrameReader.ask`."""
        if not self.asks:
            self.asks = True
            self._lease(0)

    def read(self, after: int = 0, attempts: int = 4) -> Frame | None:
        """As `FrameReader.read`. Its tensors change when the trainer changes them."""
        frame = self._read(after, attempts)
        if frame is None:
            self.ask()
        elif self.asks:
            self.asks = False
            self._lease(-1)
        return frame

    def _read(self, after: int, attempts: int) -> Frame | None:
        self._retire()
        for _ in range(attempts):
            slot, seq = self.newest(after)
            if slot < 0:
                return None
            load_fence()  # what follows is of this number, or a later one
            version, time_ns, raw = *self.stamp(slot), self.raw_header(slot)
            if not self.unchanged(Lease(slot, seq)):
                continue
            try:
                if raw != self._header_bytes:
                    self._version_header, self._header_bytes = decode_version_header(raw), raw
                header, current = self._version_header, self._current
                if (current is None or header.generation != current.number
                        or self._words[OLDEST_KEPT] > current.number):
                    return None  # its tensors have not been offered yet, or are gone already
                kinds.check_frame(header.kind, current.specs, header.meta)
                if max(version, time_ns) > limits.MAX_COUNTER:
                    raise ValueError("no such version, or time")
            except (*DecodeError, ValueError):
                self.garbled += 1
                return None
            return self._version(current, header, (version, time_ns), (slot, seq))
        return None

    def _version(self, generation: _Generation, header: VersionHeader, stamp: tuple[int, int],
                 place: tuple[int, int]) -> Frame | None:
        mark = self._newest = FIRST_SLOT + place[0] * WORDS_PER_SLOT + ARRIVED, place[1]

        def arrived() -> bool:
            return self._arrived(mark)

        def kept() -> bool:
            full_fence()
            try:
                ok = self._words[OLDEST_KEPT] <= generation.number
            except ValueError:  # this reader was closed: what it read is not ours to judge any more
                ok = False
            self.torn += not ok
            return ok

        def release() -> None:
            generation.frames -= 1
            self._retire()

        generation.frames += 1
        return Frame(header.kind, *stamp, dict(header.meta), dict(generation.tensors), kept, release, self._wait,
                     arrived)

    def _arrived(self, mark: tuple[int, int]) -> bool:
        try:
            return self._words[mark[0]] >= mark[1]
        except ValueError:  # this reader was closed
            return False

    def _wait(self, stream: int) -> None:
        """As `Frame.wait`, for the newest version read. Waits on the host, whatever the stream, at most `_PATIENCE`,
        and not for a trainer that is gone: its GPU work ended with it, unfinished."""
        mark, pause = self._newest, _PAUSES[0]
        end = time.monotonic() + _PATIENCE
        while mark != self._settled and not self._arrived(mark) and self._source.alive() and not self._marked():
            if time.monotonic() > end:
                break
            time.sleep(pause)
            pause = min(2 * pause, _PAUSES[1])
        self._settled = mark

    def _marked(self) -> bool:
        """Query the event, for trainers whose GPU cannot write into the control page."""
        if self._event is None:
            from splatview_ipc.cuda import driver
            from splatview_ipc.cuda.events import OpenedEvent

            self._event = OpenedEvent(self._event_handle, driver.here(self._gpu))
        return bool(self._event.done())

    def _retire(self) -> None:
        """Close what no frame holds any more."""
        for generation in [g for g in self._old if g.frames == 0]:
            self._old.remove(generation)
            generation.retire()
        self._close_unused()

    def _close_unused(self) -> None:
        for key, one in list(self._open.items()):
            if one.users == 0 and key not in self._wanted:
                del self._open[key]
                one.memory.close()

    def close(self) -> None:
        if self._current is not None:
            self._old.append(self._current)
            self._current = None
        self._wanted = frozenset()
        self._settled = self._newest
        self._retire()
        if self.asks:
            self.asks = False
            self._lease(-1)
        if self._event is not None:
            self._event.close()
            self._event = None
        super().close()


class _NoMemory:
    """What tensors without elements lie in."""

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
    """Raise SharingError unless every tensor lies within its memory."""
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
