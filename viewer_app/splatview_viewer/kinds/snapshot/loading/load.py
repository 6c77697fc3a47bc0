"""A file's columns: from the cache folder, or by the program that reads it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splatview_viewer.core.errors import FileError
from splatview_viewer.kinds.snapshot.loading import columns
from splatview_viewer.kinds.snapshot.loading.cache import Hasher, find, folder, forget, has_size
from splatview_viewer.kinds.snapshot.loading.cache import draft as new_draft
from splatview_viewer.kinds.snapshot.loading.child import Reader

if TYPE_CHECKING:
    from splatview_viewer.formats import Progress
    from splatview_viewer.kinds.snapshot.model import Snapshot


def load(path: str | Path, progress: Progress, *, cache: bool) -> Snapshot:
    """As `load_snapshot`."""
    path = Path(path)
    with open(path, "rb", buffering=0) as f:
        if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
            raise FileError("not a regular file")
        where = folder() if cache else None
        return _columns({"file": f.fileno()}, path.name, progress, where)


def _columns(job: dict[str, Any], name: str, progress: Progress, where: Path | None) -> Snapshot:
    """The snapshot of a job, by the program that reads it or from the cache folder `where`."""
    files = [v for v in job.values() if type(v) is int]
    before = [(s.st_size, s.st_mtime_ns) for s in map(os.fstat, files)]
    hasher = Hasher(files[0]) if where is not None else None
    looked = False
    if hasher is not None and where is not None and has_size(where, before[0][0]):
        while hasher.step():
            progress("looking", 0.0)
        if (found := _cached(where, hasher.name, name)) is not None:
            return found
        looked = True
    draft = new_draft(where, sum(size for size, _ in before))
    reader = None
    try:
        reader = Reader({**job, "out": draft.fd})
        reader.wait(progress, (lambda: False) if hasher is None or looked else hasher.step)
        reader.end()
        snapshot = columns.read(draft.fd, name)
        if hasher is not None and where is not None:
            while hasher.step():
                pass
            if before == [(s.st_size, s.st_mtime_ns) for s in map(os.fstat, files)]:
                draft.keep(where, hasher.name)
        return snapshot
    finally:
        if reader is not None:
            reader.end()
        draft.close()


def _cached(where: Path, content: str, name: str) -> Snapshot | None:
    if (fd := find(where, content)) is None:
        return None
    try:
        return columns.read(fd, name)
    except columns.DamagedError:
        forget(where, content)
        return None
    finally:
        os.close(fd)
