"""Columns that were made once, in the user's cache folder, named by the whole content of the file they are of."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from splatview_ipc.system.files import make_private

BLOCK = 1 << 22
LIMIT_BYTES = 8 << 30
"""What all of them may take; those not used for longest are removed."""
ROOM = 256 << 20
"""What must stay free on the disk."""
STALE_S = 86_400


class Hasher:
    """The BLAKE2b of a file, a piece at a time, by its own position: who else reads the file is not disturbed."""

    def __init__(self, fd: int) -> None:
        self._fd, self._at, self._hash = fd, 0, blake2b(digest_size=20)

    def step(self) -> bool:
        """Read some more. False at the end."""
        data = os.pread(self._fd, BLOCK, self._at)
        self._at += len(data)
        self._hash.update(data)
        return bool(data)

    @property
    def name(self) -> str:
        """What the columns of this content are called: the hash, then the size."""
        return f"{self._hash.hexdigest()}-{self._at}"


def has_size(where: Path, size: int) -> bool:
    """Whether there are columns of any content of so many bytes. If not, nothing is gained by reading all of a file to
    look for its own before the program that reads it is started."""
    return any(where.glob(f"*-{size}.columns"))


def folder() -> Path | None:
    """The folder for columns, made if needed; None if it cannot be used: it must be the user's own."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
        path = root / "splatview" / "snapshots" / "columns-v1"
        make_private(path)
        s = path.lstat()
    except (OSError, RuntimeError):
        return None
    mine = stat.S_ISDIR(s.st_mode) and s.st_uid == os.geteuid() and not s.st_mode & 0o022
    return path if mine and os.access(path, os.W_OK | os.X_OK) else None


def find(where: Path, name: str) -> int | None:
    """A descriptor of the columns of a content, or None."""
    try:
        fd = os.open(where / f"{name}.columns", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    s = os.fstat(fd)
    if not stat.S_ISREG(s.st_mode) or s.st_uid != os.geteuid():
        os.close(fd)
        return None
    with contextlib.suppress(OSError):
        os.utime(fd)  # it was used
    return fd


def forget(where: Path, name: str) -> None:
    """Remove columns that are damaged."""
    with contextlib.suppress(OSError):
        (where / f"{name}.columns").unlink()


@dataclass
class Draft:
    """A file that columns are written to; it is gone when it is closed, unless it was kept."""

    fd: int
    path: Path | None

    def keep(self, where: Path, name: str) -> None:
        """Let it be found under this name from now on. Does nothing for one that has none, or when that fails."""
        if self.path is None:
            return
        with contextlib.suppress(OSError):
            os.replace(self.path, where / f"{name}.columns")
            self.path = None
            _trim(where, name)

    def close(self) -> None:
        os.close(self.fd)
        if self.path is not None:
            with contextlib.suppress(OSError):
                self.path.unlink()


def draft(where: Path | None, size: int) -> Draft:
    """A file to write the columns of a file of `size` bytes to: in the cache, or else one without a name."""
    if where is not None:
        try:
            if _free(where) > 2 * size + ROOM:
                fd, path = tempfile.mkstemp(".part", "", where)
                return Draft(fd, Path(path))
        except OSError:
            pass
    try:
        if _free(Path(tempfile.gettempdir())) > 2 * size + ROOM:
            with tempfile.TemporaryFile() as f:
                return Draft(os.dup(f.fileno()), None)
    except OSError:
        pass
    return Draft(os.memfd_create("splatview columns"), None)


def _free(where: Path) -> int:
    s = os.statvfs(where)
    return s.f_bavail * s.f_frsize


def _trim(where: Path, newest: str) -> None:
    """Remove what was not used for longest until the rest is small enough, and what was left half written."""
    found: list[tuple[float, int, Path]] = []
    now = time.time()
    for path in where.iterdir():
        with contextlib.suppress(OSError):
            s = path.lstat()
            if path.suffix == ".part" and now - s.st_mtime > STALE_S:
                path.unlink()
            elif path.suffix == ".columns":
                found.append((float("inf") if path.stem == newest else s.st_mtime, s.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found)[:-1]:
        if total <= LIMIT_BYTES:
            break
        with contextlib.suppress(OSError):
            path.unlink()
            total -= size
