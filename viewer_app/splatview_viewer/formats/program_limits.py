"""Limits that grow with what has been read, for the program that reads memory snapshots.

They go when that program becomes a function of the sandbox.
"""

from __future__ import annotations

import os
import resource

from splatview_ipc.system.free_memory import available_bytes
from splatview_viewer.formats.sandbox import BASE, Out, address_space, end_with_viewer, lower_limit

__all__ = ["Bound", "Out", "end_with_viewer", "limit_file"]

FREE_SHARE, LEAST = 0.9, 512 << 20
"""The part of the free memory that the program may take, and what it may take in any case: libraries reserve address
space that they do not use."""


class Bound:
    """Memory and processor time that the program may take, which grow with what it has read: `at(bytes)`."""

    def __init__(self, per_byte: int, seconds: int, seconds_per_mb: int) -> None:
        """Args: bytes of address space for each byte that was read, beside BASE; seconds of the processor in any case,
        and for each megabyte."""
        self._per_byte, self._seconds, self._seconds_per_mb = per_byte, seconds, seconds_per_mb
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        self._top = pages if self._hard == resource.RLIM_INFINITY else min(pages, self._hard)
        self._free = available_bytes()
        if self._free is not None:
            self._top = min(self._top, address_space() + max(int(FREE_SHARE * self._free), LEAST))
        self.lacking: int | None = None
        """The bytes that were free, where they and not the file's size were the limit; None: they were not."""
        lower_limit(resource.RLIMIT_CORE, 0)
        self.at(0)

    def at(self, count: int) -> None:
        """Allow what `count` bytes may need."""
        most = BASE + self._per_byte * count
        if most > self._top:
            self.lacking = self._free
        resource.setrlimit(resource.RLIMIT_AS, (min(most, self._top), self._hard))
        lower_limit(resource.RLIMIT_CPU, self._seconds + self._seconds_per_mb * count // 1_000_000)


def limit_file(size: int) -> None:
    """Allow no file to become larger than so many bytes."""
    lower_limit(resource.RLIMIT_FSIZE, size)
