"""Measure the resources of a process, from /proc."""

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
    """The resources of a process at one moment."""

    rss: int
    """Bytes of anonymous memory: allocated by itself, without files and shared memory.
    """
    descriptors: int
    threads: int
    segments: int
    """Number of shared-memory segments of splatview that are mapped."""
    segment_bytes: int
    """Bytes of those."""

    def growth_over(self, base: Footprint, **slack: int) -> dict[str, tuple[int, int]]:
        """Compare with an earlier footprint.

        Args:
            base: The earlier footprint.
            slack: Growth of each field that is allowed. It is 0 unless given, but 16 MB
                of anonymous memory, which allocators keep.

        Returns:
            (before, now) of the fields that grew by more; empty if none did.
        """
        allowed = {"rss": 16 * MB, **slack}
        growth = {}
        for field in fields(self):
            previous = getattr(base, field.name)
            present = getattr(self, field.name)
            if present > previous + allowed.get(field.name, 0):
                growth[field.name] = (previous, present)
        return growth


def footprint(pid: int | None = None) -> Footprint:
    """Measure a living process, this one by default. Raises OSError when it is gone."""
    if pid is None:
        pid = os.getpid()
    root = Path(f"/proc/{pid}")
    lines = (root / "status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    segments: dict[str, int] = defaultdict(int)
    for line in (root / "maps").read_text().splitlines():
        if "/memfd:splatview-" in line:
            addresses, _, _, _, inode, _ = line.split(maxsplit=5)
            start, end = (int(address, 16) for address in addresses.split("-"))
            segments[inode] += end - start
    return Footprint(
        rss=int(status["RssAnon"].split()[0]) * 1024,
        descriptors=len(os.listdir(root / "fd")),
        threads=int(status["Threads"]),
        segments=len(segments),
        segment_bytes=sum(segments.values()),
    )


def settled(base: Footprint, pid: int | None = None, **slack: int) -> None:
    """Wait until a process takes up no more than `base` (`Footprint.growth_over`)."""
    try:
        wait_until(lambda: not footprint(pid).growth_over(base, **slack))
    except AssertionError:
        growth = footprint(pid).growth_over(base, **slack)
        raise AssertionError(
            f"still more than before (before, now): {growth}"
        ) from None


def open_files() -> frozenset[tuple[int, int, int]]:
    """Return descriptor, device and inode of each open file, device, memfd and pipe.

    Sockets, eventfds and the like are left out: ZeroMQ and drivers open and close
    theirs at any time, and `support.leaks` finds those of Python. Compare sets,
    `open_files() <= before`: what an earlier test left to the garbage collector may be
    closed at any time.
    """
    files = set()
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            status = os.fstat(fd)
        except OSError:
            # It is the listing's own, or was closed meanwhile.
            continue
        if stat.S_IFMT(status.st_mode) in (stat.S_IFREG, stat.S_IFCHR, stat.S_IFIFO):
            files.add((fd, status.st_dev, status.st_ino))
    return frozenset(files)
