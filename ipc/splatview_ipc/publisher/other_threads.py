"""How far the other threads of this process have come: what tells whether one of them can still be amid a write.

A thread may lose the processor amid a write, and on a busy machine for longer than any fixed time. So what counts is
the processor time that it has had, and whether it wants to run at all.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time

_AT_ONCE = 8
"""Threads whose state is read before others may have the GIL: 0.2 ms on a slow machine."""
_RUNNABLE = b"RD"
"""States (proc(5)) of a thread that would go on by itself: running or waiting for a processor, or for the disk."""

# With the GIL held: each system call of a few microseconds would else give it up, and wait for it again, 5 ms or, where
# its next owner loses the processor, for long.
_libc = ctypes.PyDLL(None)
_libc.opendir.argtypes, _libc.opendir.restype = (ctypes.c_char_p,), ctypes.c_void_p
_libc.readdir.argtypes, _libc.readdir.restype = (ctypes.c_void_p,), ctypes.c_void_p
_libc.closedir.argtypes = (ctypes.c_void_p,)
_libc.read.argtypes = ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t
_libc.read.restype = ctypes.c_ssize_t
_NAME = 19
"""Where the name begins in a struct dirent of a 64-bit Linux: after two words, a length and a type."""


class OtherThreads:
    """The threads that there are now beside the caller's, and the processor time that each has had. Where the system
    does not tell (no /proc), none."""

    def __init__(self) -> None:
        own = threading.get_native_id()
        self._begin = {t: begin for t in _threads() if t != own and (begin := _processor_time(t)) is not None}

    def came_on(self, seconds: float) -> bool:
        """Whether each has had this much processor time since, does not want to run at the moment, or has ended.

        A thread that waits for the GIL does not count as wanting to run: PyTorch's operations end before they take it
        again. Gives up the GIL after every few threads.
        """
        for looked, (thread, begin) in enumerate(list(self._begin.items()), 1):
            now = _processor_time(thread)
            if now is None or now - begin >= seconds:
                del self._begin[thread]
            elif _wants_to_run(thread):
                return False
            if not looked % _AT_ONCE:
                time.sleep(0)
        return True


def _threads(folder: bytes = b"/proc/self/task") -> list[int]:
    """Return the numbers of all threads of this process."""
    listing, found = _libc.opendir(folder), list[int]()
    if listing:
        while entry := _libc.readdir(listing):
            name = ctypes.string_at(entry + _NAME)
            if name.isdigit():
                found.append(int(name))
        _libc.closedir(listing)
    return found


def _processor_time(thread: int) -> float | None:
    """Return the seconds for which a thread of this process has run, None when it has ended."""
    try:
        return time.clock_gettime(~thread << 3 | 6)  # the kernel's clock id for it, as pthread_getcpuclockid makes it
    except OSError:
        return None


def _wants_to_run(thread: int) -> bool:
    fd = _libc.open(b"/proc/self/task/%d/stat" % thread, os.O_RDONLY | os.O_CLOEXEC)
    if fd < 0:
        return False  # it has ended, or there are no more descriptors to be had
    text = ctypes.create_string_buffer(80)  # a number and a name of 15 bytes come before the state
    _libc.read(fd, text, 80)
    _libc.close(fd)
    _, found, after = text.raw.rpartition(b") ")
    return bool(found) and after[:1] in _RUNNABLE
