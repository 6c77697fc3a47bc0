"""Memory snapshots that trainers wrote: where they lie, what they are called, and which of them can be trusted."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from pathlib import Path

from splatview_ipc.control.errors import RuntimeFolderError
from splatview_ipc.control.run_folder import held
from splatview_ipc.system.files import make_private

KEPT = 8
"""Snapshots that are kept; older ones are removed."""
STALE_S = 10.0
"""Seconds after which what is half written, and not locked by whoever writes it, is known to be nobody's any more."""
WHY = ("asked", "oom")
"""What a snapshot was taken for."""
_NAME = re.compile(r"\A[A-Za-z0-9_][A-Za-z0-9._-]{0,63}-[0-9]{1,6}-(asked|oom)\.pickle\Z")
_PART = re.compile(r"\A\." + _NAME.pattern[2:-2] + r"\.part\Z")


def folder() -> Path:
    """$XDG_CACHE_HOME/splatview/snapshots/taken, or the same below ~/.cache. Not made."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    return root / "splatview" / "snapshots" / "taken"


def make_folder() -> Path:
    """The folder, made if need be, for nobody but its owner (0700). Raises RuntimeFolderError."""
    path = folder()
    try:
        make_private(path)
        if not _own(path):
            raise RuntimeFolderError(f"{path}: not a folder that belongs to you; set XDG_CACHE_HOME to another one")
        path.chmod(0o700)
    except OSError as e:
        raise RuntimeFolderError(f"{path}: {e.strerror}; set XDG_CACHE_HOME to a folder that you can write") from None
    return path


def name_of(run_id: str, number: int, why: str) -> str:
    """What a run's snapshot is called; `why` is one of WHY."""
    return f"{run_id}-{number}-{why}.pickle"


def find(name: str) -> Path | None:
    """A snapshot of this name; None for what is no such name, not there, no plain file, or somebody else's."""
    if not _NAME.match(name):
        return None
    path = folder() / name
    try:
        info = path.lstat()
    except OSError:
        return None
    mine = stat.S_ISREG(info.st_mode) and info.st_uid == os.getuid()
    return path if mine and _own(path.parent) else None


def last_words(run_id: str, since: float) -> Path | None:
    """The newest snapshot that a run took when it ran out of memory, if that was not before `since` (seconds since the
    epoch)."""
    found = [path for path in _all() if path.name.startswith(f"{run_id}-") and path.name.endswith("-oom.pickle")
             and path.name.count("-") == run_id.count("-") + 2]
    newest = max(found, key=_age, default=None)
    return find(newest.name) if newest is not None and _age(newest) >= since else None


def tidy() -> None:
    """Remove all but the newest, and what was left half written. Never raises."""
    with contextlib.suppress(OSError):
        for path in folder().glob(".*.part"):
            if _PART.match(path.name) and abs(time.time() - _age(path)) > STALE_S and not held(path):
                with contextlib.suppress(OSError):
                    path.unlink()
    for path in sorted(_all(), key=_age)[:-KEPT]:
        with contextlib.suppress(OSError):
            path.unlink()


def _all() -> list[Path]:
    try:
        return [path for path in folder().iterdir() if _NAME.match(path.name)]
    except OSError:
        return []


def _age(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _own(path: Path) -> bool:
    try:
        info = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid()
