"""The viewer's side of the program that reads snapshots."""

from __future__ import annotations

from typing import Any

from splatview_viewer.formats.program import ReadingProgram


class Reader(ReadingProgram):
    """A program that reads a snapshot and writes its columns.

    Args:
        job: what `worker` is told; the descriptors named in it are handed over.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        # Memory that was freed is kept for the next array (glibc, mallopt(3)): getting each from the kernel anew takes
        # a quarter of the time.
        super().__init__("splatview_viewer.kinds.snapshot.loading.worker", job, "snapshot", MALLOC_MMAP_MAX_="0",
                         MALLOC_TRIM_THRESHOLD_=str(1 << 40))
