"""Control block: one small segment per run with the words that change at every publish.

Viewers map it read-only and read a stream's version from it: no message, no system
call. Every word is one aligned 64-bit store, so a reader sees an old or a new value,
never half of one.

Invariants:

1. Only the trainer writes. PAUSED and DROPPED are the helper thread's, WAITS and SKIPPED
   the publishing threads'. FAULTS and COPIES are statistics that several threads add to:
   two at the same moment may lose one.
2. A stream's version only grows, and is written after the frame that it counts. A
   reader that sees it and then reads the slots finds that frame or a newer one, unless
   the publish left its frame to the helper thread. A viewer that found nothing tries
   again at its next poll.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.shm.segment import Segment, close_map, open_segment

if TYPE_CHECKING:
    import mmap
    from collections.abc import Mapping, Sequence

    from splatview_ipc.control.messages import SegmentRef

_MAGIC = 0x32_57_45_49_56_54_4C_50
"""The letters "PLTVIEW2"."""
_MAGIC_WORD, _PAUSED, DROPPED, FAULTS, COPIES, SKIPPED, _WAITS = range(7)
"""Indices in `ControlBlock.words`. Counters: DROPPED, invalid messages from outside;
FAULTS, of the surroundings, that were survived; COPIES, frames that a stream brought to
viewers; SKIPPED, values that no viewer was there for."""
_FIRST_STREAM = 8
_WORDS_PER_STREAM = 8
"""A cache line for each stream."""
_SIZE = (_FIRST_STREAM + limits.MAX_STREAMS * _WORDS_PER_STREAM) * 8


class _Words:
    """The words of a control block, as both sides see them."""

    def __init__(self, mapping: mmap.mmap):
        self.words = memoryview(mapping)[:_SIZE].cast("Q")

    @staticmethod
    def version_word(stream: int) -> int:
        """Return the index in `words` of a stream's version."""
        return _FIRST_STREAM + stream * _WORDS_PER_STREAM

    @property
    def paused(self) -> bool:
        return bool(self.words[_PAUSED])

    @property
    def waits(self) -> int:
        """Return the trainer's use of `splatview.wait_while_paused`.

        0: it has never called it; 1: it calls it; 2: it waits there now.
        """
        return self.words[_WAITS]

    @waits.setter
    def waits(self, value: int) -> None:
        self.words[_WAITS] = value

    def counters(self) -> dict[str, int]:
        return {
            "dropped_messages": self.words[DROPPED],
            "faults": self.words[FAULTS],
            "copies": self.words[COPIES],
            "skipped": self.words[SKIPPED],
        }


class ControlBlock(_Words):
    """The trainer's side."""

    def __init__(self) -> None:
        self.segment = Segment(_SIZE, "control")
        super().__init__(self.segment.map)
        self.paused_by = ""
        """The viewers that paused the run, for users: names and process ids."""
        self.granted_steps = 0
        """Steps granted to the paused run, written by the helper thread alone."""
        self.taken_steps = 0
        """Steps that the paused run has taken, written by the trainer's thread
        alone."""
        self.pause_logged_at: float | None = None
        """Clock time, seconds, at which the pause was logged.

        None: it was not logged, or its end was logged as well.
        """
        self.words[_MAGIC_WORD] = _MAGIC

    def pause(self, by: str) -> None:
        """Have the run pause, because of the viewers named here; "": go on."""
        if by and not self.paused:
            # Steps that were granted in another pause are forgotten.
            self.granted_steps = self.taken_steps
        self.paused_by = by
        self.words[_PAUSED] = int(bool(by))

    def close(self) -> None:
        """Release the memory. Idempotent.

        Threads that publish meanwhile go on to write words that no viewer reads.
        """
        self.words = memoryview(bytearray(_SIZE)).cast("Q")
        self.segment.close()


class ControlReader(_Words):
    """The viewer's side."""

    def __init__(self, ref: SegmentRef, fds: Mapping[str, Sequence[int]]):
        """Map the announced segment; `fds` are the descriptors by token.

        Raises SharingError when the segment is not what was announced.
        """
        self._map = open_segment(ref, fds, _SIZE)
        super().__init__(self._map)
        if self.words[_MAGIC_WORD] != _MAGIC:
            self.close()
            raise SharingError("the announced control block is not one")

    def version(self, stream: int) -> int:
        version = self.words[_FIRST_STREAM + stream * _WORDS_PER_STREAM]
        return min(version, limits.MAX_COUNTER)

    def versions(self) -> list[int]:
        """Return the version words of all streams, by index: one look for all."""
        return self.words[_FIRST_STREAM::_WORDS_PER_STREAM].tolist()

    def close(self) -> None:
        self.words.release()
        close_map(self._map)
