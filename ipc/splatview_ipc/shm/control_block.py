"""Control block: one small segment per run with the words that change at every publish.

Viewers map it read-only and read a stream's version from it: no message, no system call. Every word is one aligned
64-bit store, so a reader sees an old or a new value, never half of one.

Invariants
1. Only the trainer writes. PAUSED and DROPPED are the helper thread's, WAITS and SKIPPED the publishing threads'.
   FAULTS and COPIES are statistics that several threads add to: two at the same moment may lose one.
2. A stream's version only grows, and is written after the frame that it counts: a reader that sees it and then looks at
   the slots finds that one or a newer one, unless the publish left its frame to the helper thread. A viewer that found
   nothing looks again at its next poll.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.shm.segment import Segment, close_map, open_segment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from splatview_ipc.control.messages import SegmentRef

_MAGIC = 0x32_57_45_49_56_54_4C_50  # "PLTVIEW2"
_MAGIC_WORD, _PAUSED, _DROPPED, _FAULTS, COPIES, SKIPPED, _WAITS = range(7)
_FIRST_STREAM = 8
_WORDS_PER_STREAM = 8  # a cache line each
_SIZE = (_FIRST_STREAM + limits.MAX_STREAMS * _WORDS_PER_STREAM) * 8


class ControlBlock:
    """The trainer's side."""

    def __init__(self) -> None:
        self.segment = Segment(_SIZE, "control")
        self.words = memoryview(self.segment.map).cast("Q")
        """A stream adds to the word COPIES for each frame that it brought to viewers."""
        self.paused_by = ""
        """The viewers that paused the run, for users: names and process ids."""
        self.granted = self.passed = 0
        """Steps granted to the paused run, written by the helper thread alone; and steps taken, written by the
        trainer's thread alone."""
        self.noted: float | None = None
        """Clock time, seconds, at which the log noted that the run is paused; None: not noted, or noted as over."""
        self.words[_MAGIC_WORD] = _MAGIC

    @staticmethod
    def version_word(stream: int) -> int:
        """Return the index in `words` of a stream's version."""
        return _FIRST_STREAM + stream * _WORDS_PER_STREAM

    @property
    def paused(self) -> bool:
        return bool(self.words[_PAUSED])

    def pause(self, by: str) -> None:
        """Have the run pause, because of the viewers named here; "": go on."""
        if by and not self.paused:
            self.granted = self.passed  # what was granted in another pause is forgotten
        self.paused_by = by
        self.words[_PAUSED] = int(bool(by))

    @property
    def waits(self) -> int:
        """0: the trainer has never called `splatview.wait_while_paused`; 1: it calls it; 2: it waits there now."""
        return self.words[_WAITS]

    @waits.setter
    def waits(self, value: int) -> None:
        self.words[_WAITS] = value

    def count_dropped(self) -> None:
        """Count an invalid message from outside."""
        self.words[_DROPPED] += 1

    def count_fault(self) -> None:
        """Count a fault of the surroundings that was survived."""
        self.words[_FAULTS] += 1

    def counters(self) -> dict[str, int]:
        return _counters(self.words)

    def close(self) -> None:
        self.words.release()
        self.segment.close()


class ControlReader:
    """The viewer's side."""

    def __init__(self, ref: SegmentRef, fds: Mapping[str, Sequence[int]]):
        """Raises SharingError when the segment is not what was announced."""
        if ref.size < _SIZE:
            raise SharingError(f"a control block of {ref.size} bytes was announced; {_SIZE} are needed")
        self._map = open_segment(ref, fds, mmap.PROT_READ, _SIZE)
        self.words = memoryview(self._map).cast("Q")
        if self.words[_MAGIC_WORD] != _MAGIC:
            self.close()
            raise SharingError("the announced control block is not one")

    def version(self, stream: int) -> int:
        return min(self.words[_FIRST_STREAM + stream * _WORDS_PER_STREAM], limits.MAX_COUNTER)

    @property
    def paused(self) -> bool:
        return bool(self.words[_PAUSED])

    @property
    def waits(self) -> int:
        """As `ControlBlock.waits`."""
        return self.words[_WAITS]

    def counters(self) -> dict[str, int]:
        return _counters(self.words)

    def close(self) -> None:
        self.words.release()
        close_map(self._map)


def _counters(words: memoryview) -> dict[str, int]:
    return {"dropped_messages": words[_DROPPED], "faults": words[_FAULTS], "copies": words[COPIES],
            "skipped": words[SKIPPED]}
