"""Memory snapshots that trainers wrote: their folder, their names, and their checks."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from typing import TYPE_CHECKING

from splatview_ipc.control.errors import RuntimeFolderError
from splatview_ipc.system.files import cache_folder, make_private, write_output

if TYPE_CHECKING:
    from pathlib import Path

MAX_KEPT = 8
_STALE_S = 3600.0
"""Age of a half-written file whose writer has certainly ended."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}-[0-9]{1,6}-(asked|oom)\.pickle")


def snapshot_folder() -> Path:
    """Return $XDG_CACHE_HOME/splatview/snapshots/taken, or the same below ~/.cache.

    It is not made.
    """
    return cache_folder() / "snapshots" / "taken"


def write_snapshot(name: str, content: bytes) -> Path:
    """Write a snapshot, complete or not at all, and return its path.

    It is readable for its owner alone (0600, in a folder of 0700). Raises OSError or
    RuntimeFolderError.
    """
    folder = snapshot_folder()
    try:
        make_private(folder)
        if not _is_own(folder, stat.S_IFDIR):
            raise RuntimeFolderError(
                f"{folder}: not a folder that belongs to you; set XDG_CACHE_HOME to "
                "another one"
            )
        folder.chmod(0o700)
    except OSError as e:
        raise RuntimeFolderError(
            f"{folder}: {e.strerror}; set XDG_CACHE_HOME to a folder that you can write"
        ) from None
    path = folder / name
    write_output(path, content, private=True)
    return path


def snapshot_name(run_id: str, count: int, cause: str) -> str:
    """Return the name of a run's snapshot; the cause is "asked" or "oom"."""
    return f"{run_id}-{count}-{cause}.pickle"


def find_snapshot(name: str) -> Path | None:
    """Return the snapshot of this name.

    Returns None if there is none, or one that is not this user's own regular file.
    """
    if not _NAME.fullmatch(name):
        return None
    folder = snapshot_folder()
    path = folder / name
    with contextlib.suppress(OSError):
        if _is_own(folder, stat.S_IFDIR) and _is_own(path, stat.S_IFREG):
            return path
    return None


def newest_oom_snapshot(run_id: str, since: float) -> Path | None:
    """Return the newest snapshot that a run took when it ran out of memory.

    Returns None if it has taken none after `since` (seconds since the epoch).
    """
    of_run = re.compile(re.escape(run_id) + r"-[0-9]+-oom\.pickle")
    with contextlib.suppress(OSError):
        paths = [path for path in _list_snapshots() if of_run.fullmatch(path.name)]
        if paths and paths[-1].lstat().st_mtime >= since:
            return find_snapshot(paths[-1].name)
    return None


def remove_old_snapshots() -> None:
    """Remove all but the newest snapshots, and old half-written files.

    Never raises: other processes may remove them as well.
    """
    with contextlib.suppress(OSError):
        stale_before = time.time() - _STALE_S
        partial = snapshot_folder().glob(".splatview-*.part")
        stale = [path for path in partial if path.lstat().st_mtime < stale_before]
        for path in [*stale, *_list_snapshots()[:-MAX_KEPT]]:
            path.unlink()


def _list_snapshots() -> list[Path]:
    """Return all snapshots, the oldest first. Raises OSError."""
    paths = snapshot_folder().glob("*.pickle")
    snapshots = [path for path in paths if _NAME.fullmatch(path.name)]
    return sorted(snapshots, key=lambda path: path.lstat().st_mtime)


def _is_own(path: Path, file_type: int) -> bool:
    """Return whether a path is of this type, no link, and belongs to this user."""
    info = path.lstat()
    return stat.S_IFMT(info.st_mode) == file_type and info.st_uid == os.getuid()
