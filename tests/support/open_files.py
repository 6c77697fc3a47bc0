"""What this process has open: for tests that nothing is left behind."""

from __future__ import annotations

import os
from collections import Counter


def open_files() -> frozenset[tuple[int, int, int]]:
    """Each open file as its descriptor, its device and its number there.

    Compare sets, `open_files() <= before`, and not how many there are: what an earlier test has left to a helper thread
    or the garbage collector may be closed at any time.
    """
    there = set()
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            known = os.fstat(fd)
        except OSError:  # the listing's own, or closed meanwhile
            continue
        there.add((fd, known.st_dev, known.st_ino))
    return frozenset(there)


def open_inodes() -> Counter[tuple[int, int]]:
    """How often each file is open, by its device and number there. For files that are closed and opened again, whose
    descriptors may be others afterwards. Compare as those of `open_files`.
    """
    return Counter(file[1:] for file in open_files())
