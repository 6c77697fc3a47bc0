"""Slots that a writer fills in turn: the base of every way, one writer that never waits, any number of readers.

Where things stand is said in `ipc.ways.layout`.

Invariants
- A slot's sequence number is odd while the writer is in it and grows by two with each frame. `done` becomes that even
  number when the data are there: written at once where the processor copies, by the GPU behind its copy otherwise.
  A slot is whole when its number is even and equal to `done`. A reader takes the number, reads, takes it again: the
  frame was whole if it did not change (`Frame.intact`).
- Readers look at all slots and take the highest version that is whole; 0 is no version.
- The writer never picks the newest whole slot, nor one whose copy has not ended: rather it skips the version, and
  whoever called it comes back. It avoids slots that readers lease while there are others.
- The tensors of one version stand in one slot: no reader can mix versions.
"""

from __future__ import annotations

import mmap
import os
import time
from typing import TYPE_CHECKING, Any

from ipc import kinds, limits
from ipc.errors import SharingError
from ipc.frames import Frame
from ipc.messages import DecodeError, FrameHeader, TensorHeader, decode_frame_header
from ipc.segments import PAGE, Segment, close_map, round_up
from ipc.ways.layout import (
    ALIGN,
    CAPACITY,
    DONE,
    FIRST_SLOT,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    MAGIC_WORD,
    SEQ,
    SLOTS,
    TIME,
    VERSION,
    WORDS_PER_SLOT,
    data_bytes,
    dtype_name,
    full_fence,
    header_before_meta,
    header_with,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from ipc.frames import DeviceTensor, RemoteTensor
    from ipc.messages import Ref, SegmentRef
    from ipc.ways.base import Source


class SlotWriter:
    """The trainer's side. Calls must not overlap: the stream's lock sees to that.

    A way derives from it and says where a slot's tensors lie (`_targets`) and how they are filled (`_copy`,
    `_finish`). It adds `ref`.
    """

    in_segment = True
    """Whether the data lie in the control segment: at `data_offset(slot)`."""
    at_once = True
    """Whether a copy has ended when `_copy` returns. If not, it is the GPU that writes `done`."""
    note = ""
    """As `FrameWriter.note`."""

    def __init__(self, capacity: int, slots: int = 4, leased: Callable[[], bytes] = bytes, label: str = "ring"):
        """`capacity`: bytes of tensor data per slot, alignment included (`data_bytes`). `leased` is asked before each
        write which slots to avoid: one byte per reader, slot + 1 that it is reading, or 0.

        Raises SharingError when the memory is not to be had.
        """
        if not limits.MIN_SLOTS <= slots <= limits.MAX_SLOTS:
            raise ValueError(f"slots is {slots}, not {limits.MIN_SLOTS} to {limits.MAX_SLOTS}")
        self.slots = slots
        self.leased = leased
        self.capacity = round_up(capacity, PAGE)
        self._stride = HEADER_BYTES + (self.capacity if self.in_segment else 0)
        self.segment = Segment(PAGE + slots * self._stride, label)
        self._words = memoryview(self.segment.map).cast("Q")
        self._bytes = memoryview(self.segment.map)
        self._words[SLOTS], self._words[CAPACITY] = slots, self.capacity
        self._words[MAGIC_WORD] = MAGIC
        self._layout: tuple[Any, ...] | None = None
        self._meta: dict[str, Any] | None = None
        self._tensor_headers: tuple[TensorHeader, ...] = ()
        self._slot_targets: list[list[torch.Tensor]] = []
        self._headers: list[bytes] = [b""] * slots
        self._header = b""
        self._header_start = b""
        """A header up to its metadata."""
        self._bases = [FIRST_SLOT + slot * WORDS_PER_SLOT for slot in range(slots)]
        self._last = -1

    # What a way fills in.

    def _targets(self, slot: int, headers: tuple[TensorHeader, ...]) -> list[torch.Tensor]:
        """Tensors over the slot's data, contiguous, of these dtypes, shapes and offsets (bytes from the slot's
        data on); those without elements may be any empty tensor of the shape. Called when the layout changed."""
        raise NotImplementedError

    def _copy(self, slot: int, targets: list[torch.Tensor], sources: list[torch.Tensor], whole: int) -> None:
        """Copy the sources (any strides) into the targets, and see to it that the word at `done_offset(slot)`
        becomes `whole` behind the last of them: `set_done`, or a write of the GPU in stream order."""
        raise NotImplementedError

    def _finish(self, slot: int, whole: int) -> None:
        """Wait until that copy has ended. Only called on the helper thread, and not where copies end `at_once`."""
        raise NotImplementedError

    # What it gets for it.

    def header_offset(self, slot: int) -> int:
        """Bytes from the segment's start to a slot's header."""
        return PAGE + slot * self._stride

    def data_offset(self, slot: int) -> int:
        """Bytes from the segment's start to a slot's data, or, for data elsewhere, from the start of those."""
        return PAGE + slot * self._stride + HEADER_BYTES if self.in_segment else slot * self.capacity

    @staticmethod
    def done_offset(slot: int) -> int:
        """Bytes from the segment's start to a slot's `done` word."""
        return 8 * (FIRST_SLOT + slot * WORDS_PER_SLOT + DONE)

    def set_done(self, slot: int, whole: int) -> None:
        self._words[FIRST_SLOT + slot * WORDS_PER_SLOT + DONE] = whole

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        return data_bytes(tensors) <= self.capacity

    def prepare(self, tensors: dict[str, torch.Tensor], published: tuple[torch.Tensor, ...]) -> bool:
        """As `FrameWriter.prepare`; a way for which it pays adds `again`."""
        return False

    def again(self, published: tuple[torch.Tensor, ...], addresses: list[int], meta: dict[str, Any], version: int,
              stream: int) -> bool:
        """As `FrameWriter.again`."""
        raise NotImplementedError

    def write(self, kind: str, tensors: dict[str, torch.Tensor], meta: dict[str, Any], version: int,
              still_wanted: Callable[[], bool] | None = None) -> bool:
        """As `FrameWriter.write`. Raises SharingError when the tensors do not fit (`data_bytes` against
        `capacity`)."""
        layout = (kind, [(name, t.dtype, t.shape) for name, t in tensors.items()])
        if layout != self._layout:
            self._lay_out(tensors)
            self._header_start = header_before_meta(
                FrameHeader(kind, self._tensor_headers, {}))  # type: ignore[arg-type]
            self._layout, self._meta = layout, None
        if meta is not self._meta and meta != self._meta:
            self._header = header_with(self._header_start, meta)
            self._meta = dict(meta)
        slot = self.take()
        if slot < 0:
            return False
        whole = self.begin(slot)
        wanted = False
        try:
            self._copy(slot, self._slot_targets[slot], list(tensors.values()), whole)
            if still_wanted is None:
                wanted = True
            else:
                if not self.at_once:
                    self._finish(slot, whole)
                wanted = still_wanted()
        except BaseException:
            self.set_done(slot, whole)  # a slot whose copy failed must not count as busy for ever
            raise
        finally:
            self.end(slot, whole, self._header, version if wanted else 0)
        return wanted

    def take(self) -> int:
        """A slot to write into; -1 when the GPU is still busy with all that may be written."""
        last, leased = self._last, self.leased()
        start = (last + 1) % self.slots
        if self._whole(last) and self._whole(start) and start + 1 not in leased:
            return start  # nearly always: the newest frame is whole, and the slot that was written longest ago free
        newest, best, busy = -1, 0, False
        free: list[int] = []
        for i in range(self.slots):
            slot = (start + i) % self.slots
            if not self._whole(slot):
                busy = True
                continue
            free.append(slot)
            version = self._words[FIRST_SLOT + slot * WORDS_PER_SLOT + VERSION]
            if version > best:
                newest, best = slot, version
        free = [slot for slot in free if slot != newest]
        for slot in free:
            if slot + 1 not in leased:
                return slot
        return -1 if busy or not free else free[0]

    def _whole(self, slot: int) -> bool:
        """Whether no copy into a slot is under way."""
        if self.at_once:
            return slot >= 0
        base = FIRST_SLOT + slot * WORDS_PER_SLOT
        return slot >= 0 and self._words[base + DONE] == self._words[base + SEQ]

    def begin(self, slot: int) -> int:
        """Go into a slot; the even number that `done` must become."""
        index = FIRST_SLOT + slot * WORDS_PER_SLOT + SEQ
        number = self._words[index] + 1
        self._words[index] = number
        full_fence()
        return number + 1

    def end(self, slot: int, whole: int, header: bytes, version: int) -> None:
        """Come out of a slot; readers may have it when it is done. Version 0: nobody gets it."""
        words, base = self._words, FIRST_SLOT + slot * WORDS_PER_SLOT
        if self._headers[slot] is not header:
            start = PAGE + slot * self._stride
            self._bytes[start : start + len(header)] = header
            self._headers[slot] = header
            words[base + HEADER] = len(header)
        words[base + VERSION] = version
        words[base + TIME] = time.time_ns()
        full_fence()
        words[base + SEQ] = whole
        if version:
            self._last = slot

    def _lay_out(self, tensors: dict[str, torch.Tensor]) -> None:
        if not self.fits(tensors):
            raise SharingError(f"a frame of {data_bytes(tensors)} bytes does not fit a slot of {self.capacity}")
        headers, offset = [], 0
        for name, t in tensors.items():
            headers.append(TensorHeader(name, dtype_name(t), tuple(t.shape), offset))  # type: ignore[arg-type]
            offset = round_up(offset + t.numel() * t.element_size(), ALIGN)
        self._tensor_headers = tuple(headers)
        self._slot_targets = [self._targets(slot, self._tensor_headers) for slot in range(self.slots)]

    def close(self) -> None:
        self._slot_targets = []
        self._words.release()
        self._bytes.release()
        self.segment.close()


class SlotReader:
    """A viewer's side: the newest whole frame, read where it lies. A way says where that is (`_tensor`)."""

    in_segment = True
    """As `SlotWriter.in_segment`."""
    taken = 0
    asks = False

    def __init__(self, ref: SegmentRef, source: Source, lease: Callable[[int], None]):
        """`lease(slot)` tells the writer which slot is being read; -1: none.

        Raises SharingError when the segment is not what was announced, NotYet when it has not come.
        """
        if ref.size < PAGE:
            raise SharingError(f"a ring of {ref.size} bytes was announced; it starts with {PAGE} of control")
        fd = source.segment(ref)
        try:
            self._map = mmap.mmap(fd, ref.size, prot=mmap.PROT_READ)
        except (OSError, ValueError) as e:
            raise SharingError(f"cannot map {ref.size} bytes: {e}") from None
        finally:
            os.close(fd)
        self._words = memoryview(self._map)[:PAGE].cast("Q")
        self.slots, self.capacity = self._words[SLOTS], self._words[CAPACITY]
        self._stride = HEADER_BYTES + (self.capacity if self.in_segment else 0)
        if (self._words[MAGIC_WORD] != MAGIC or not limits.MIN_SLOTS <= self.slots <= limits.MAX_SLOTS
                or PAGE + self.slots * self._stride > ref.size):
            SlotReader.close(self)
            raise SharingError("the announced ring is not one")
        self._lease = lease
        self._leased: tuple[int, int] | None = None
        self._header_bytes: bytes | None = None
        self._header = FrameHeader("image", (), {})
        self.garbled = 0
        """Whole frames whose header made no sense."""
        self.torn = 0
        """Frames given up because the writer came back to their slot."""

    # What a way fills in.

    def _tensor(self, slot: int, header: TensorHeader) -> RemoteTensor | DeviceTensor:
        """The tensor that this header describes; it has been checked to lie within the slot's data."""
        raise NotImplementedError

    # What it gets for it.

    def data_offset(self, slot: int) -> int:
        """As `SlotWriter.data_offset`."""
        return PAGE + slot * self._stride + HEADER_BYTES if self.in_segment else slot * self.capacity

    def follow(self, ref: Ref) -> bool:
        return False  # a ring is one for all its life

    def ask(self) -> None:
        """As `FrameReader.ask`: copies are made whether or not somebody asks."""

    def read(self, after: int = 0, attempts: int = 4) -> Frame | None:
        """The newest whole frame with a version over `after`, or None. Its tensors are views of the slot."""
        held = self._leased
        for _ in range(attempts):
            slot, seq = self.newest(after)
            if slot < 0:
                break
            self._take_lease((slot, seq))
            full_fence()  # the lease must be seen before we trust the slot
            if self.unchanged(slot, seq):
                frame = self._frame(slot, seq, *self.stamp(slot))
                if frame is not None:
                    return frame
        if self._leased != held:
            self._take_lease(held)  # a frame that is held goes on being read
        return None

    def newest(self, after: int) -> tuple[int, int]:
        """The slot with the highest whole version over `after`, and its sequence number; slot -1: there is none."""
        words, found, best = self._words, (-1, 0), after
        for slot in range(self.slots):
            base = FIRST_SLOT + slot * WORDS_PER_SLOT
            seq = words[base + SEQ]
            if seq % 2 == 0 and words[base + DONE] == seq and words[base + VERSION] > best:
                found, best = (slot, seq), words[base + VERSION]
        return found

    def stamp(self, slot: int) -> tuple[int, int]:
        """A slot's version and time."""
        base = FIRST_SLOT + slot * WORDS_PER_SLOT
        return self._words[base + VERSION], self._words[base + TIME]

    def raw_header(self, slot: int) -> bytes:
        """The bytes of a slot's header, as they stand there."""
        start = PAGE + slot * self._stride
        size = min(self._words[FIRST_SLOT + slot * WORDS_PER_SLOT + HEADER], HEADER_BYTES)
        return self._map[start : start + size]

    def unchanged(self, slot: int, seq: int) -> bool:
        """Whether the slot is still what it was when its number was `seq`."""
        full_fence()
        try:
            return self._words[FIRST_SLOT + slot * WORDS_PER_SLOT + SEQ] == seq
        except ValueError:  # this reader was closed: what becomes of the slot is not seen any more
            return False

    def _frame(self, slot: int, seq: int, version: int, time_ns: int) -> Frame | None:
        try:
            raw = self.raw_header(slot)
            if raw != self._header_bytes:
                header = decode_frame_header(raw)
                self._check(header)
                self._header_bytes, self._header = raw, header
        except (*DecodeError, ValueError):
            self.garbled += self.unchanged(slot, seq)
            return None
        header = self._header
        tensors = {t.name: self._tensor(slot, t) for t in header.tensors}

        def intact() -> bool:
            try:
                ok = self.unchanged(slot, seq)
            except ValueError:  # this reader was closed: nobody keeps the slot for us any more
                ok = False
            self.torn += not ok
            return ok

        return Frame(kind=header.kind, version=version, time_ns=time_ns, meta=dict(header.meta), tensors=tensors,
                     intact=intact, release=lambda: self._release((slot, seq)))

    def _check(self, header: FrameHeader) -> None:
        for t in header.tensors:
            count = 1
            for extent in t.shape:
                count *= extent
            if t.offset % ALIGN or t.offset + count * limits.ITEM_SIZE[t.dtype] > self.capacity:
                raise ValueError(f"{t.name} {t.shape} lies outside its slot")
        specs = {t.name: (t.dtype, t.shape) for t in header.tensors}
        if len(specs) != len(header.tensors):
            raise ValueError("a tensor name appears twice")
        kinds.check_frame(header.kind, specs, header.meta)

    def _take_lease(self, lease: tuple[int, int] | None) -> None:
        self._leased = lease
        self._lease(lease[0] if lease is not None else -1)

    def _release(self, lease: tuple[int, int]) -> None:
        if self._leased == lease:  # else a newer frame has it by now
            self._take_lease(None)

    def close(self) -> None:
        """Unmap; a frame still held keeps its memory. Idempotent."""
        self._words.release()
        close_map(self._map)
