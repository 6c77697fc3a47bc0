"""Where a viewer gets the memory that a trainer announced: through /proc, or handed over by the trainer itself."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from splatview_ipc.control import descriptors
from splatview_ipc.control.errors import NotYet, SharingError, UnreachableError
from splatview_ipc.shm.segment import check_segment, open_segment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from splatview_ipc.control.messages import SegmentRef


_KEPT = 4.0
"""Seconds for which an answer is kept: whoever needs several asks again for all of them until the last has come."""


class RunSource:
    """A `Source` for one run."""

    def __init__(self, pid: int, folder: Path, alive: Callable[[], bool]):
        """`alive`: as `Source.alive`."""
        self.alive = alive
        self._pid = pid
        self._folder = folder
        self._fetches: dict[str, descriptors.Fetch] = {}
        self._answers: dict[str, tuple[list[int], float]] = {}

    def segment(self, ref: SegmentRef) -> int:
        try:
            if ref.token not in self._fetches and ref.token not in self._answers:
                return open_segment(ref, self._pid)
        except UnreachableError:  # another PID namespace, or /proc is closed to us
            pass
        (fd,) = self.descriptors(ref.token, 1)
        check_segment(fd, ref)
        return fd

    def descriptors(self, token: str, count: int) -> list[int]:
        if token not in self._answers:
            try:
                if token not in self._fetches:
                    self._fetches[token] = descriptors.Fetch(self._folder, token)
                fds = self._fetches[token].poll()
            except SharingError:
                self._fetches.pop(token, None)
                raise
            if fds is None:
                raise NotYet
            del self._fetches[token]
            self._answers[token] = fds, time.monotonic() + _KEPT
        fds, _ = self._answers[token]
        if len(fds) != count:
            raise SharingError(f"the trainer handed over {len(fds)} descriptors, not {count}")
        return descriptors.duplicates(fds)

    def forget(self, token: str) -> None:
        fds, _ = self._answers.pop(token, ([], 0.0))
        _close(fds)

    def tidy(self) -> None:
        """Drop answers that nobody asks for any more. To be called now and then."""
        for token, fetch in list(self._fetches.items()):
            if fetch.overdue:
                fetch.close()
                del self._fetches[token]
        now = time.monotonic()
        for token, (fds, until) in list(self._answers.items()):
            if now > until:
                _close(fds)
                del self._answers[token]

    def close(self) -> None:
        """Give up what is on its way. Idempotent."""
        for fetch in self._fetches.values():
            fetch.close()
        for fds, _ in self._answers.values():
            _close(fds)
        self._fetches.clear()
        self._answers.clear()


class OwnSource:
    """A `Source` for what this very process announced: for a process that looks at itself, and for tests."""

    def segment(self, ref: SegmentRef) -> int:
        return open_segment(ref, os.getpid())

    def descriptors(self, token: str, count: int) -> list[int]:
        fds, _ = descriptors.copies(token)
        if len(fds) != count:
            _close(fds)
            raise SharingError(f"{len(fds)} descriptors are offered, not {count}")
        return fds

    def forget(self, token: str) -> None:
        pass  # nothing is kept

    def alive(self) -> bool:
        return True


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
