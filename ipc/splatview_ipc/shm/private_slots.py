"""Private copy-on-write mappings of a ring's slots, for readers that may write into the frames they get.

A page that is written becomes this process's own and no longer shows the shared memory, so a later frame in the same
slot would show the old drawing there. A slot that has such pages is therefore mapped anew for its next frame; a slot
that has none keeps its mapping, since to fill a page table again takes longer than to copy the frame.
"""

from __future__ import annotations

import os
import weakref
from ctypes import addressof

import numpy as np

from splatview_ipc.control.errors import SharingError
from splatview_ipc.shm.segment import has_private_pages, map_private, page_faults


class _Mapping:
    """The private mapping of one slot's data."""

    __slots__ = ("address", "array", "buffer", "clean", "faults", "size")

    def __init__(self, fd: int, size: int, offset: int):
        """As `map_private`."""
        self.faults = page_faults()
        """Of this process, when all that was handed out was known to show the shared memory."""
        self.buffer = buffer = map_private(fd, size, offset)
        self.address = addressof(buffer)
        self.array: weakref.ref[np.ndarray] | None = None
        """All of it. It lives as long as any view of a frame in this mapping."""
        self.size = 0
        """Leading bytes that were handed out in `array`."""
        self.clean = False
        """Whether `array` is gone, and nothing was written through it."""

    def hand_out(self, size: int) -> np.ndarray:
        """Return an array over the mapping, of which `size` bytes are to be used."""
        array = None if self.array is None else self.array()
        if array is None:
            array, self.size = np.frombuffer(memoryview(self.buffer), np.uint8), 0
            self.array = weakref.ref(array)
        self.size, self.clean = max(self.size, size), False
        return array

    def shows(self, size: int) -> bool:
        """Return whether the first `size` bytes, and all that was handed out, are those of the shared memory."""
        faults = page_faults()
        if faults and faults == self.faults:  # to make a page private takes one
            return True
        # Where nothing can have been written, mlock or mlockall may have made pages private, all of a mapping at once.
        if has_private_pages(self.address, 1 if self.clean else max(size, self.size)):
            return False
        self.faults = faults
        return True

    def idle(self) -> bool:
        """Return whether all views are gone, and what they left has not been looked at."""
        return not self.clean and self.array is not None and self.array() is None


class PrivateSlots:
    """The private mappings of one ring's slots, made when a slot is first read.

    For the thread that reads. `fd` is duplicated: every mapping is made from it, and the mappings need no descriptors
    of their own.
    """

    def __init__(self, fd: int):
        """Raises SharingError when the process has no descriptor left."""
        try:
            self._fd = os.dup(fd)
        except OSError as e:
            raise SharingError(f"cannot duplicate a file descriptor: {e.strerror}. Raise the limit of open files "
                               "(ulimit -n), or read fewer streams") from None
        self._mappings: dict[int, _Mapping] = {}

    def data(self, slot: int, offset: int, capacity: int, size: int) -> np.ndarray | None:
        """Return a slot's data as a writable uint8 array, of which the first `size` bytes show the shared memory.

        offset, capacity: the slot's data in the segment, bytes. The slot must be leased by now. A write stays in this
        process, and the array has nothing of what was written into frames before.
        None: the system denies the memory.
        """
        mapping = self._mappings.get(slot)
        if mapping is None or not mapping.shows(size):
            # Views of earlier frames keep the mapping before, with what was drawn into them.
            self._mappings.pop(slot, None)
            try:
                mapping = self._mappings[slot] = _Mapping(self._fd, capacity, offset)
            except SharingError:
                return None
        return mapping.hand_out(size)

    def tidy(self) -> None:
        """Drop mappings that were written into, of frames that are gone, with the pages that they cost.

        To be called when a frame is given back, which is seldom waited for: a look at a page table takes 8 us or more
        per megabyte, which `data` then saves.
        """
        for slot, mapping in list(self._mappings.items()):
            if mapping.idle():
                mapping.clean = mapping.shows(mapping.size)
                if not mapping.clean:
                    del self._mappings[slot]

    def close(self) -> None:
        """Let go of all mappings; views keep theirs. Idempotent."""
        self._mappings.clear()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
