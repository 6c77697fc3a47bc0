"""Files that this process has open: for tests that nothing is left behind."""

from __future__ import annotations

import os
import stat


def open_files() -> frozenset[tuple[int, int, int]]:
    """Return descriptor, device and inode of each open file, device, memfd and pipe.

    Sockets, eventfds and the like are left out: ZeroMQ and drivers open and close theirs at any time, and
    `support.leaks` finds those of Python. Compare sets, `open_files() <= before`: what an earlier test left to the
    garbage collector may be closed at any time.
    """
    there = set()
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            known = os.fstat(fd)
        except OSError:  # the listing's own, or closed meanwhile
            continue
        if stat.S_IFMT(known.st_mode) in (stat.S_IFREG, stat.S_IFCHR, stat.S_IFIFO):
            there.add((fd, known.st_dev, known.st_ino))
    return frozenset(there)
