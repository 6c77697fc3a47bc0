"""What a process takes up, from /proc."""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from dataclasses import dataclass, fields
from pathlib import Path

from support.wait import wait_until

MB = 1 << 20


@dataclass(frozen=True)
class Footprint:
    """What a process takes up at one moment."""

    rss: int
    """Bytes of anonymous memory: what it allocated itself, without files and shared memory."""
    descriptors: int
    threads: int
    segments: int
    """Shared-memory segments of ours that are mapped."""
    segment_bytes: int
    """Bytes of those."""

    def growth_over(self, base: Footprint, **slack: int) -> dict[str, tuple[int, int]]:
        """What is more than in `base` by more than its slack (0 unless given; 16 MB of anonymous memory, which
        allocators keep): name -> (before, now). Empty: nothing grew.
        """
        allowed = {"rss": 16 * MB, **slack}
        pairs = {
            f.name: (getattr(base, f.name), getattr(self, f.name)) for f in fields(self)
        }
        return {
            name: pair
            for name, pair in pairs.items()
            if pair[1] > pair[0] + allowed.get(name, 0)
        }


def footprint(pid: int | None = None) -> Footprint:
    """Of a living process, this one by default. Raises OSError when it is gone."""
    root = Path(f"/proc/{os.getpid() if pid is None else pid}")
    status = dict(
        line.split(":", 1) for line in (root / "status").read_text().splitlines()
    )
    segments: dict[str, int] = defaultdict(int)
    for line in (root / "maps").read_text().splitlines():
        if "/memfd:splatview-" in line:
            place, _, _, _, inode, _ = line.split(maxsplit=5)
            begin, end = (int(p, 16) for p in place.split("-"))
            segments[inode] += end - begin
    return Footprint(
        rss=int(status["RssAnon"].split()[0]) * 1024,
        descriptors=len(os.listdir(root / "fd")),
        threads=int(status["Threads"]),
        segments=len(segments),
        segment_bytes=sum(segments.values()),
    )


def settled(base: Footprint, pid: int | None = None, **slack: int) -> None:
    """Wait until a process takes up no more than `base` (`Footprint.over`)."""
    try:
        wait_until(lambda: not footprint(pid).growth_over(base, **slack))
    except AssertionError:
        raise AssertionError(
            f"still more than before (before, now): {footprint(pid).growth_over(base, **slack)}"
        ) from None


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
