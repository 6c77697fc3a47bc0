"""Memory snapshots that trainers wrote: their folder, their names, and which of them can be trusted."""

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
    """Return $XDG_CACHE_HOME/splatview/snapshots/taken, or the same below ~/.cache. It is not made."""
    return cache_folder() / "snapshots" / "taken"


def write_snapshot(name: str, content: bytes) -> Path:
    """Write a snapshot, whole or not at all, readable for its owner alone (0600, in a folder of 0700).

    Raises OSError, RuntimeFolderError.
    """
    path = snapshot_folder()
    try:
        make_private(path)
        if not _is_own(path, stat.S_IFDIR):
            raise RuntimeFolderError(
                f"{path}: not a folder that belongs to you; set XDG_CACHE_HOME to another one"
            )
        path.chmod(0o700)
    except OSError as e:
        raise RuntimeFolderError(
            f"{path}: {e.strerror}; set XDG_CACHE_HOME to a folder that you can write"
        ) from None
    write_output(path / name, content, private=True)
    return path / name


def snapshot_name(run_id: str, count: int, cause: str) -> str:
    """Return the name of a run's snapshot; `why`: "asked" or "oom"."""
    return f"{run_id}-{count}-{cause}.pickle"


def find_snapshot(name: str) -> Path | None:
    """Return the snapshot of this name; None if there is none, or one that is not this user's own regular file."""
    path = snapshot_folder() / name
    with contextlib.suppress(OSError):
        if (
            _NAME.fullmatch(name)
            and _is_own(path.parent, stat.S_IFDIR)
            and _is_own(path, stat.S_IFREG)
        ):
            return path
    return None


def newest_oom_snapshot(run_id: str, since: float) -> Path | None:
    """Return the newest snapshot that a run took when it ran out of memory, after `since` (seconds since the epoch)."""
    of_run = re.compile(re.escape(run_id) + r"-[0-9]+-oom\.pickle")
    with contextlib.suppress(OSError):
        newest = next(
            (path for path in reversed(_all()) if of_run.fullmatch(path.name)), None
        )
        if newest is not None and newest.lstat().st_mtime >= since:
            return find_snapshot(newest.name)
        return None
    return None


def remove_old_snapshots() -> None:
    """Remove all but the newest, and old half-written files. Never raises: other processes may remove them as well."""
    with contextlib.suppress(OSError):
        parts = snapshot_folder().glob(".splatview-*.part")
        stale = [
            path for path in parts if time.time() - path.lstat().st_mtime > _STALE_S
        ]
        for path in [*stale, *_all()[:-MAX_KEPT]]:
            path.unlink()


def _all() -> list[Path]:
    """Return all snapshots, the oldest first."""
    found = [
        path
        for path in snapshot_folder().glob("*.pickle")
        if _NAME.fullmatch(path.name)
    ]
    return sorted(found, key=lambda path: path.lstat().st_mtime)


def _is_own(path: Path, kind: int) -> bool:
    info = path.lstat()
    return stat.S_IFMT(info.st_mode) == kind and info.st_uid == os.getuid()
