"""Notices that a file, or the files of a folder that make one value, became others on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.kinds.files import Signature, signature_of

if TYPE_CHECKING:
    from pathlib import Path

LOOK_PERIOD_S = 0.5
"""Seconds between two looks at the disk."""


class FileWatch:
    """Compares what is on the disk with what was read.

    A worker thread looks, because a disk may not answer. A change counts when two looks find the same files: their
    writer is done.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._jobs = Jobs(f"watch {path.name}")
        self._look: Job[Signature | None] | None = None
        self._next_look = 0.0
        self._read: Signature | None = None
        """The files that were read last."""
        self._found: Signature | None = None
        """The files of the last look."""

    def note(self) -> None:
        """Remember the files as they are, before they are read. For a thread that may wait."""
        self._read = signature_of(self._path)

    def turn(self, now: float) -> bool:
        """Look when it is time; return whether the files are others than those that were read, and whole."""
        look = self._look
        if look is None:
            if now >= self._next_look:
                self._look = self._jobs.submit(lambda _: signature_of(self._path))
            return False
        if not look.done:
            return False
        self._look = None
        self._next_look = now + LOOK_PERIOD_S
        found = None if look.fault else look.result()
        is_settled = found is not None and found == self._found
        self._found = found
        return is_settled and found != self._read

    def close(self) -> None:
        """Look no more. Idempotent."""
        self._look = None
        self._jobs.close(0.2)
