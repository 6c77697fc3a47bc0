"""A bounded program that reads files for the viewer: what it may take, and what it writes to the viewer.

It opens nothing but Python's own modules: the files are descriptors that it inherits. It ends when the viewer does.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import threading
import time
from typing import Any

from splatview_ipc.system.free_memory import available_bytes

PERIOD = 0.05
"""Seconds between two messages on how far it is."""
BASE = 3 << 29
"""Bytes of address space that the program may take in any case."""
CPU_BASE, CPU_PER_BYTE = 120, 1 / (1 << 20)
"""Seconds of the processor that it may take in any case, and for each byte of the file."""
FREE_SHARE, LEAST = 0.9, 512 << 20
"""The part of the free memory that the program may take, and what it may take in any case: libraries reserve address
space that they do not use."""
MAX_FILES = 64
"""Descriptors that it may have open beside those that it inherits: modules are opened one by one."""
_PR_SET_PDEATHSIG = 1


class Out:
    """Lines of JSON on stdout, not too many of them."""

    def __init__(self) -> None:
        self._next = self._far = 0.0

    def told(self, what: str, fraction: float) -> None:
        """Report progress. The fraction never falls, though a file that one way cannot read is read again."""
        now, self._far = time.monotonic(), max(self._far, fraction)
        if now >= self._next:
            self._next = now + PERIOD
            self.say("progress", what, round(self._far, 4))

    def say(self, *words: Any) -> None:
        """Write one message."""
        sys.stdout.write(json.dumps(words) + "\n")
        sys.stdout.flush()


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
            self._top = min(self._top, _address_space() + max(int(FREE_SHARE * self._free), LEAST))
        self.lacking: int | None = None
        """The bytes that were free, where they and not the file's size were the limit; None: they were not."""
        _lower(resource.RLIMIT_CORE, 0)
        self.at(0)

    def at(self, count: int) -> None:
        """Allow what `count` bytes may need."""
        most = BASE + self._per_byte * count
        if most > self._top:
            self.lacking = self._free
        resource.setrlimit(resource.RLIMIT_AS, (min(most, self._top), self._hard))
        _lower(resource.RLIMIT_CPU, self._seconds + self._seconds_per_mb * count // 1_000_000)


def bound_for_good(memory: int, seconds: int, files: int) -> None:
    """Allow so many more bytes of memory, as many in the result, so many seconds of the processor, and MAX_FILES
    descriptors beside `files` inherited ones; no new limits can be set afterwards.

    Call it after everything is imported: libraries reserve address space that costs no memory.
    """
    _lower(resource.RLIMIT_AS, _address_space() + memory, hard=True)
    _lower(resource.RLIMIT_FSIZE, memory, hard=True)
    _lower(resource.RLIMIT_NOFILE, MAX_FILES + files, hard=True)
    _lower(resource.RLIMIT_CORE, 0, hard=True)
    spent = time.process_time()
    _lower(resource.RLIMIT_CPU, int(spent) + 1 + seconds)


def _address_space() -> int:
    """Return the bytes of address space that this process has."""
    with open("/proc/self/statm", encoding="ascii") as sizes:
        return int(sizes.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def limit_file(size: int) -> None:
    """Allow no file to become larger than so many bytes."""
    _lower(resource.RLIMIT_FSIZE, size)


def end_with_viewer() -> None:
    """Have this program end when the viewer does, also while a decoder keeps all other threads from running."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before
        os._exit(3)
    threading.Thread(target=_watch_stdin, daemon=True).start()


def _watch_stdin() -> None:
    try:
        while os.read(0, 4096):
            pass
    finally:
        os._exit(3)


def _lower(kind: int, most: int, *, hard: bool = False) -> None:
    allowed = resource.getrlimit(kind)[1]
    most = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
    resource.setrlimit(kind, (most, most if hard else allowed))
