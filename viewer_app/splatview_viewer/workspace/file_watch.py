"""A watch on a file, or on the files of a folder that make one value, on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.core.jobs import Job, JobQueue
from splatview_viewer.kinds.files import Signature, signature_of

if TYPE_CHECKING:
    from pathlib import Path

LOOK_PERIOD_S = 0.5
"""Seconds between two looks at the disk."""


class FileWatch:
    """Compares what is on the disk with what was read.

    A worker thread looks, because a disk may not answer. A change counts when two looks
    find the same files: their writer is done.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._jobs = JobQueue(f"watch {path.name}")
        self._signature_job: Job[Signature | None] | None = None
        self._next_look = 0.0
        self._read_signature: Signature | None = None
        """The files that were read last."""
        self._last_signature: Signature | None = None
        """The files of the last look."""

    def note(self) -> None:
        """Remember the files as they are before they are read. For a worker thread."""
        self._read_signature = signature_of(self._path)

    def tick(self, now: float) -> bool:
        """Look when it is time.

        Returns whether there are other files, completely written.
        """
        job = self._signature_job
        if job is None:
            if now >= self._next_look:
                self._signature_job = self._jobs.submit(
                    lambda _: signature_of(self._path)
                )
            return False
        if not job.done:
            return False
        self._signature_job = None
        self._next_look = now + LOOK_PERIOD_S
        signature = None
        if not job.fault:
            signature = job.result()
        is_settled = signature is not None and signature == self._last_signature
        self._last_signature = signature
        return is_settled and signature != self._read_signature

    def close(self) -> None:
        """Stop looking. Idempotent."""
        self._signature_job = None
        self._jobs.close(0.2)
