"""A ring of slots in shared memory: one writer that never waits, any number of readers, no torn frame.

Layout: one control page, then the slots; each slot is one page with an encoded FrameHeader, then the data.
Control page, in 64-bit words: magic, slots, bytes of data per slot, latest slot + 1 (0: none yet); from word 16
on, eight words per slot: sequence number, version, time in ns since the epoch, bytes of the header.

Invariants
- A slot's sequence number is odd while the writer is in it and grows by two with each frame. A reader takes the
  number, reads, takes it again: the frame was whole if it was even and did not change (`Frame.intact`).
- `latest` is set after the slot it names is whole. The writer never picks the slot that `latest` names, so even
  with every lease ignored a reader has the time of (slots - 2) whole writes before the writer can return.
- The tensors of one version stand in one slot: no reader can mix versions.
"""

from __future__ import annotations

import mmap
import os
import platform
import threading
import time
from typing import TYPE_CHECKING, Any

from ipc import kinds, limits
from ipc.errors import SharingError
from ipc.frames import Frame, RemoteTensor
from ipc.messages import DecodeError, FrameHeader, TensorHeader, decode_frame_header, encode
from ipc.segments import PAGE, Segment, close_map, open_segment, round_up

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from ipc.messages import SegmentRef

_MAGIC = 0x31_47_4E_49_52_54_4C_50  # "PLTRING1"
_MAGIC_WORD, _SLOTS, _CAPACITY, _LATEST = range(4)
_FIRST_SLOT, _WORDS_PER_SLOT = 16, 8
_SEQ, _VERSION, _TIME, _HEADER = range(4)
_HEADER_BYTES = PAGE
_ALIGN = 256

_fence_lock = threading.Lock()
_WEAKLY_ORDERED = platform.machine() not in ("x86_64", "AMD64", "i686")


def full_fence() -> None:
    """Order all memory accesses before it against all after it, on every processor.

    One lock-unlock pair lets accesses slip into the critical section from both sides on ARM; two pairs of the same
    lock do not, since a release is ordered before the acquire that follows it. On x86, where locking is a full fence,
    one is enough.
    """
    with _fence_lock:
        pass
    if _WEAKLY_ORDERED:
        with _fence_lock:
            pass


class RingWriter:
    """The trainer's side. Calls must not overlap: the stream's lock sees to that."""

    def __init__(self, capacity: int, slots: int = 4, leased: Callable[[], bytes] = bytes):
        """`capacity`: bytes of tensor data per slot, alignment included (`data_bytes`). `leased` is asked before each
        write which slots to avoid: one byte per reader, slot + 1 that it is reading, or 0.

        Raises SharingError when the memory is not to be had.
        """
        if not limits.MIN_SLOTS <= slots <= limits.MAX_SLOTS:
            raise ValueError(f"slots is {slots}, not {limits.MIN_SLOTS} to {limits.MAX_SLOTS}")
        self.slots = slots
        self.leased = leased
        self.capacity = round_up(max(capacity, 1), PAGE)
        self._stride = _HEADER_BYTES + self.capacity
        self.segment = Segment(PAGE + slots * self._stride, "ring")
        self._words = memoryview(self.segment.map).cast("Q")
        self._bytes = memoryview(self.segment.map)
        self._words[_SLOTS], self._words[_CAPACITY] = slots, self.capacity
        self._words[_MAGIC_WORD] = _MAGIC
        self._layout: tuple[Any, ...] | None = None
        self._targets: list[list[torch.Tensor]] = []
        self._headers: list[bytes] = [b""] * slots
        self._header = b""

    def write(self, kind: str, tensors: dict[str, torch.Tensor], meta: dict[str, Any], version: int,
              still_wanted: Callable[[], bool] | None = None) -> bool:
        """Copy tensors (any strides, any device) into a free slot and make it the newest.

        `still_wanted` is asked after the copy; False leaves the ring as it was, and is returned.
        Raises SharingError when the tensors do not fit (`data_bytes` against `capacity`).
        """
        layout = (kind, meta, [(name, t.dtype, t.shape) for name, t in tensors.items()])
        if layout != self._layout:
            self._lay_out(kind, tensors, meta)
            self._layout = (kind, dict(meta), layout[2])
        slot = self._free_slot()
        words, base = self._words, _FIRST_SLOT + slot * _WORDS_PER_SLOT
        words[base + _SEQ] += 1
        full_fence()
        for target, source in zip(self._targets[slot], tensors.values(), strict=True):
            target.copy_(source)
        if self._headers[slot] is not self._header:
            start = PAGE + slot * self._stride
            self._bytes[start : start + len(self._header)] = self._header
            self._headers[slot] = self._header
            words[base + _HEADER] = len(self._header)
        words[base + _VERSION] = version
        words[base + _TIME] = time.time_ns()
        full_fence()
        words[base + _SEQ] += 1
        if still_wanted is not None and not still_wanted():
            return False
        words[_LATEST] = slot + 1
        return True

    @property
    def ref(self) -> SegmentRef:
        """What a reader is told of it."""
        return self.segment.ref

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        return data_bytes(tensors) <= self.capacity

    def _free_slot(self) -> int:
        latest = self._words[_LATEST] - 1
        order = [(latest + 1 + i) % self.slots for i in range(self.slots - 1 if latest >= 0 else self.slots)]
        leased = self.leased()
        for slot in order:
            if slot + 1 not in leased:
                return slot
        return order[0]

    def _lay_out(self, kind: str, tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> None:
        import torch

        if not self.fits(tensors):
            raise SharingError(f"a frame of {data_bytes(tensors)} bytes does not fit a slot of {self.capacity}")
        headers, offset = [], 0
        for name, t in tensors.items():
            headers.append(TensorHeader(name, dtype_name(t), tuple(t.shape), offset))  # type: ignore[arg-type]
            offset = round_up(offset + t.numel() * t.element_size(), _ALIGN)
        header = encode(FrameHeader(kind, tuple(headers), meta))  # type: ignore[arg-type]
        if len(header) > _HEADER_BYTES:
            raise SharingError(f"metadata of {len(header)} bytes; the limit is {_HEADER_BYTES}")
        self._header = header
        self._targets = []
        for slot in range(self.slots):
            start = PAGE + slot * self._stride + _HEADER_BYTES
            self._targets.append([
                torch.frombuffer(self.segment.map, dtype=t.dtype, count=t.numel(), offset=start + h.offset)
                .view(t.shape) if t.numel() else torch.empty_like(t, device="cpu")
                for h, t in zip(headers, tensors.values(), strict=True)])

    def close(self) -> None:
        self._targets = []
        self._words.release()
        self._bytes.release()
        self.segment.close()


class RingReader:
    """A viewer's side: the newest whole frame, read where it lies."""

    def __init__(self, ref: SegmentRef, pid: int, lease: Callable[[int], None]):
        """`lease(slot)` tells the writer which slot is being read; -1: none.

        Raises SharingError when the segment is not a ring of the announced size.
        """
        if ref.size < PAGE:
            raise SharingError(f"a ring of {ref.size} bytes was announced; it starts with {PAGE} of control")
        fd = open_segment(ref, pid)
        try:
            self._map = mmap.mmap(fd, ref.size, prot=mmap.PROT_READ)
        except (OSError, ValueError) as e:
            raise SharingError(f"cannot map {ref.size} bytes: {e}") from None
        finally:
            os.close(fd)
        self._words = memoryview(self._map)[:PAGE].cast("Q")
        self.slots, self.capacity = self._words[_SLOTS], self._words[_CAPACITY]
        self._stride = _HEADER_BYTES + self.capacity
        if (self._words[_MAGIC_WORD] != _MAGIC or not limits.MIN_SLOTS <= self.slots <= limits.MAX_SLOTS
                or PAGE + self.slots * self._stride > ref.size):
            self.close()
            raise SharingError("the announced ring is not one")
        self._lease = lease
        self._header_bytes: bytes | None = None
        self._header = FrameHeader("image", (), {})
        self.garbled = 0
        """Whole frames whose header made no sense."""
        self.torn = 0
        """Frames given up because the writer came back to their slot."""

    def read(self, after: int = 0, attempts: int = 4) -> Frame | None:
        """The newest frame with a version over `after`, or None.

        Leave the frame (`with frame:` or `close`) before the next read. Its arrays are views of the slot.
        """
        words = self._words
        for _ in range(attempts):
            slot = words[_LATEST] - 1
            if not 0 <= slot < self.slots:
                return None
            self._lease(slot)
            full_fence()  # the lease must be seen before we trust the slot
            base = _FIRST_SLOT + slot * _WORDS_PER_SLOT
            seq = words[base + _SEQ]
            full_fence()
            version = words[base + _VERSION]
            if seq % 2 == 0:
                if version <= after:
                    break
                frame = self._frame(slot, seq, version, words[base + _TIME], words[base + _HEADER])
                if frame is not None:
                    return frame
        self._lease(-1)
        return None

    def _frame(self, slot: int, seq: int, version: int, time_ns: int, header_bytes: int) -> Frame | None:
        start = PAGE + slot * self._stride
        data = start + _HEADER_BYTES
        try:
            raw = self._map[start : start + min(header_bytes, _HEADER_BYTES)]
            if raw != self._header_bytes:
                header = decode_frame_header(raw)
                self._check(header)
                self._header_bytes, self._header = raw, header
        except (*DecodeError, ValueError):
            if self._unchanged(slot, seq):
                self.garbled += 1
            return None
        header = self._header
        tensors = {t.name: RemoteTensor.view(self._map, t.dtype, t.shape, data + t.offset) for t in header.tensors}

        def intact() -> bool:
            ok = self._unchanged(slot, seq)
            self.torn += not ok
            return ok

        return Frame(kind=header.kind, version=version, time_ns=time_ns, meta=dict(header.meta), tensors=tensors,
                     intact=intact, release=lambda: self._lease(-1))

    def _check(self, header: FrameHeader) -> None:
        for t in header.tensors:
            count = 1
            for extent in t.shape:
                count *= extent
            if t.offset % _ALIGN or t.offset + count * limits.ITEM_SIZE[t.dtype] > self.capacity:
                raise ValueError(f"{t.name} {t.shape} lies outside its slot")
        specs = {t.name: (t.dtype, t.shape) for t in header.tensors}
        if len(specs) != len(header.tensors):
            raise ValueError("a tensor name appears twice")
        kinds.check_frame(header.kind, specs, header.meta)

    def _unchanged(self, slot: int, seq: int) -> bool:
        full_fence()
        return self._words[_FIRST_SLOT + slot * _WORDS_PER_SLOT + _SEQ] == seq

    def close(self) -> None:
        """Unmap; a frame still held keeps its memory. Idempotent."""
        self._words.release()
        close_map(self._map)


def data_bytes(tensors: dict[str, torch.Tensor]) -> int:
    """Bytes of a slot's data that these tensors take, alignment included."""
    return sum(round_up(t.numel() * t.element_size(), _ALIGN) for t in tensors.values())


def dtype_name(tensor: torch.Tensor) -> str:
    """"float32" for torch.float32."""
    return str(tensor.dtype).rpartition(".")[2]
