"""The board: one small segment per run with the counters that change at every publish, and the lease table.

Viewers map the board read-only and read a stream's version from it: no message, no system call. Every word is
one aligned 64-bit store, so a reader sees an old or a new value, never half of one.

Invariants
1. Only the trainer writes the board. PAUSED and DROPPED are the helper thread's, WAITS and SKIPPED the publishing
   threads'. FAULTS and COPIES are counts for people that both add to: two that count at once may lose one. A stream's
   version is told by whoever publishes it; the helper thread tells it beside that (`Tally.tell_beside`).
2. A stream's version only grows, and is written after the frame it counts: who reads it, and then looks at the slots,
   finds that one or a newer one. Not so where a publish could not be shared at once (`Stream.late`), where the writer
   goes round all slots during the look, and for a moment on processors that reorder stores: a viewer that found
   nothing looks again at its next poll.
3. Leases are hints. A viewer writes into its own column, byte by byte, which slots of a stream it reads; the writer
   avoids such slots while it has others. The trainer clears a column when its viewer comes or goes, and a stream's row
   when its ring is replaced. Whether a frame was whole is decided by the slot's sequence number alone, so a lease that
   is stale, forged or lost costs a slot or a retry, never a torn picture.
4. Of a stream in place, which has no slots to avoid, the same byte says that the viewer would take a newer version now.
   The trainer marks only such versions.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.shm.segment import Segment, close_map, map_segment

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_ipc.control.messages import SegmentRef
    from splatview_ipc.shm.segment import Source

_MAGIC = 0x31_57_45_49_56_54_4C_50  # "PLTVIEW1"
_MAGIC_WORD, _PAUSED, _DROPPED, _FAULTS, COPIES, _SKIPPED, _WAITS = range(7)
_FIRST_STREAM = 8
_WORDS_PER_STREAM = 8  # a cache line each
_SIZE = (_FIRST_STREAM + limits.MAX_STREAMS * _WORDS_PER_STREAM) * 8
_COLUMN = limits.MAX_HELD
"""Bytes of one stream in a viewer's column: for each frame that it holds, slot + 1."""
_ROW = limits.MAX_VIEWERS * _COLUMN
_LEASES = limits.MAX_STREAMS * _ROW


_NONE = bytes(limits.MAX_STREAMS)
NOBODY = bytes(_ROW)
"""What `Board.leased` tells when no viewer reads a slot, nor asks for a version."""


class Board:
    """The trainer's side."""

    def __init__(self) -> None:
        self.segment = Segment(_SIZE, "board")
        try:
            self.lease_segment = Segment(_LEASES, "leases")
        except BaseException:
            self.segment.close()
            raise
        self.words = memoryview(self.segment.map).cast("Q")
        """A stream adds to the word COPIES for each frame that it brought to viewers."""
        self.paused_by = ""
        """Who paused the run, for people: the viewers' names and process ids."""
        self.granted = self.passed = 0
        """How often a paused run may have passed since it was paused, written by the helper thread alone; and how often
        it has, written by the trainer's alone."""
        self.noted: float | None = None
        """When (time.monotonic) the trainer's log said that the run is paused; None: it does not say so now."""
        self._leases = memoryview(self.lease_segment.map)
        self.words[_MAGIC_WORD] = _MAGIC

    @staticmethod
    def version_word(stream: int) -> int:
        """Where in `words` the version of a stream stands."""
        return _FIRST_STREAM + stream * _WORDS_PER_STREAM

    def leased(self, stream: int) -> Callable[[], bytes]:
        """What tells, at each call, MAX_HELD bytes per viewer: slot + 1 of a stream that it is reading, or 0."""
        return self._leases[stream * _ROW : (stream + 1) * _ROW].tobytes

    def clear_stream(self, stream: int) -> None:
        """Forget which slots of a stream are being read: there are others now."""
        self._leases[stream * _ROW : (stream + 1) * _ROW] = bytes(_ROW)

    def clear_leases(self, reader: int) -> None:
        """Forget what a viewer that went away was reading."""
        for cell in range(reader * _COLUMN, (reader + 1) * _COLUMN):
            self._leases[cell:_LEASES:_ROW] = _NONE

    @property
    def paused(self) -> bool:
        return bool(self.words[_PAUSED])

    def pause(self, by: str) -> None:
        """Have the run pause, because of those who are named here; "": go on."""
        if by and not self.paused:
            self.granted = self.passed  # what was granted in another pause is forgotten
        self.paused_by = by
        self.words[_PAUSED] = int(bool(by))

    @property
    def waits(self) -> int:
        """0: the trainer has never asked whether to wait; 1: it does; 2: it waits now."""
        return self.words[_WAITS]

    @waits.setter
    def waits(self, value: int) -> None:
        self.words[_WAITS] = value

    def count_dropped(self) -> None:
        """One more message from outside was not understood."""
        self.words[_DROPPED] += 1

    def count_fault(self) -> None:
        """One more fault of the surroundings was survived."""
        self.words[_FAULTS] += 1

    def count_skipped(self) -> None:
        """One more publish came to nothing, because a CUDA graph was being captured."""
        self.words[_SKIPPED] += 1

    def counters(self) -> dict[str, int]:
        return _counters(self.words)

    def close(self) -> None:
        self.words.release()
        self._leases.release()
        self.segment.close()
        self.lease_segment.close()


class BoardReader:
    """The viewer's side."""

    def __init__(self, board: SegmentRef, leases: SegmentRef, source: Source, reader: int):
        """Raises SharingError when the segments are not what was announced, NotYet when they have not come."""
        self.reader = reader
        self._map = _map(board, source, _SIZE, mmap.PROT_READ)
        try:
            self._lease_map = _map(leases, source, _LEASES, mmap.PROT_READ | mmap.PROT_WRITE)
        except BaseException:
            close_map(self._map)
            raise
        self.words = memoryview(self._map).cast("Q")
        self._leases = memoryview(self._lease_map)
        if self.words[_MAGIC_WORD] != _MAGIC:
            self.close()
            raise SharingError("the announced board is not one")

    def version(self, stream: int) -> int:
        return min(self.words[_FIRST_STREAM + stream * _WORDS_PER_STREAM], limits.MAX_COUNTER)

    def lease(self, stream: int, slot: int, cell: int = 0) -> None:
        """Say that this viewer reads a slot of a stream, -1: none; `cell`: which of the MAX_HELD that it may hold."""
        self._leases[stream * _ROW + self.reader * _COLUMN + cell] = slot + 1

    @property
    def paused(self) -> bool:
        return bool(self.words[_PAUSED])

    @property
    def waits(self) -> int:
        """As `Board.waits`."""
        return self.words[_WAITS]

    def counters(self) -> dict[str, int]:
        return _counters(self.words)

    def close(self) -> None:
        self.words.release()
        self._leases.release()
        close_map(self._map)
        close_map(self._lease_map)


def _counters(words: memoryview) -> dict[str, int]:
    return {"dropped_messages": words[_DROPPED], "faults": words[_FAULTS], "copies": words[COPIES],
            "skipped": words[_SKIPPED]}


def _map(ref: SegmentRef, source: Source, needed: int, prot: int) -> mmap.mmap:
    if ref.size < needed:
        raise SharingError(f"a segment of {ref.size} bytes was announced; {needed} are needed")
    fd = source.segment(ref)
    try:
        return map_segment(fd, needed, prot)
    finally:
        os.close(fd)
