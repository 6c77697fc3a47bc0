"""Run folders: how viewers find trainers without an address.

Each run has a folder in the runtime folder, with a description (`run.json`), a socket and a lock that the trainer
holds as long as it lives. The lock is the only sign of life: the kernel gives it back however a process ends, and
nothing else (a process id that was used again, a clock set back) can be mistaken for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from ipc import limits
from ipc.errors import RuntimeFolderError

SOCKET_PATH_MAX = 107
"""Bytes that a UNIX socket's path may have (sun_path on Linux)."""
MAX_DESCRIPTION = 64 * 1024
"""Bytes of a description."""
_SOCKET, _LOCK, _DESCRIPTION = "socket", "lock", "run.json"
_MAKING = 10.0
"""Seconds after which something hidden, which is being made, counts as left behind."""
_Described = TypeVar("_Described", bound=msgspec.Struct)


class Description(msgspec.Struct, frozen=True):
    """What `run.json` says. Fields that a later version adds are ignored."""

    protocol: Annotated[int, Meta(ge=0)]
    id: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"\A[A-Za-z0-9._-]+\Z")]
    name: Annotated[str, Meta(max_length=limits.MAX_NAME)]
    pid: Annotated[int, Meta(ge=1, le=2**31)]
    started: float
    """Seconds since the epoch."""
    hidden: bool = False
    """Whether it is found only by who knows its id: what a program of ours publishes for another one."""

    def is_called(self, text: str) -> bool:
        """Whether people may mean this run by a text: its id, the beginning of one, its name or its process id."""
        return self.id.startswith(text) or text in (self.name, str(self.pid))


@dataclass(frozen=True)
class RunFolder:
    path: Path
    description: Description

    def endpoint(self) -> tuple[str, int]:
        """The socket's ZeroMQ address, and a descriptor to close when the socket is closed, or -1.

        A path that is too long for a socket is reached through a descriptor of its folder.
        """
        path = self.path / _SOCKET
        if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
            return f"ipc://{path}", -1
        fd = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"ipc:///proc/self/fd/{fd}/{_SOCKET}", fd

    def alive(self) -> bool:
        """Whether the trainer still holds its lock."""
        return held(self.path / _LOCK)


class OwnedRunFolder(RunFolder):
    """The folder of this process's own run."""

    def __init__(self, path: Path, description: Description, lock_fd: int):
        super().__init__(path, description)
        object.__setattr__(self, "_lock_fd", lock_fd)

    def abandon(self) -> None:
        """In a forked child: let go of the lock, which the kernel would otherwise keep for the parent's run."""
        with contextlib.suppress(OSError):
            os.close(self.__dict__["_lock_fd"])

    def remove(self) -> None:
        """Take the folder away and give the lock back. Idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.abandon()
        object.__setattr__(self, "_lock_fd", -1)


def runtime_folder() -> Path:
    """Where runs are found: SPLATVIEW_RUNTIME_DIR, $XDG_RUNTIME_DIR/splatview or /tmp/splatview-UID.

    It is made (mode 0700) when missing. Raises RuntimeFolderError when it cannot be used safely.
    """
    explicit = os.environ.get("SPLATVIEW_RUNTIME_DIR")
    if explicit:
        return _usable(Path(explicit).absolute(), "choose another SPLATVIEW_RUNTIME_DIR")
    xdg = os.environ.get("XDG_RUNTIME_DIR")
    fallback = Path(f"/tmp/splatview-{os.getuid()}")
    if xdg:
        with contextlib.suppress(RuntimeFolderError):  # many containers name one that does not exist
            return _usable(Path(xdg) / "splatview", "")
    return _usable(fallback, "set SPLATVIEW_RUNTIME_DIR to a folder that you own")


def _usable(path: Path, mend: str) -> Path:
    try:
        path.mkdir(mode=0o700, parents=path.parent != Path("/tmp"), exist_ok=True)
        info = path.lstat()
    except OSError as e:
        raise RuntimeFolderError(f"runtime folder {path}: {e.strerror}; {mend}") from None
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        raise RuntimeFolderError(f"runtime folder {path}: not a folder that belongs to you; {mend}")
    if info.st_mode & 0o077:
        try:
            path.chmod(0o700)
        except OSError as e:
            raise RuntimeFolderError(f"runtime folder {path}: others may enter it ({e.strerror}); {mend}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise RuntimeFolderError(f"runtime folder {path}: not writable; {mend}")
    return path


def create_run(name: str, pid: int, started: float, hidden: bool = False) -> OwnedRunFolder:
    """Make this process's run folder, locked before anyone can see it; `hidden` as in Description.

    Raises RuntimeFolderError.
    """
    root = runtime_folder()
    remove_stale(root)
    run_id = f"{_slug(name)}-{pid}-{secrets.token_hex(2)}"
    making, final = root / f".{run_id}", root / run_id
    description = Description(limits.PROTOCOL, run_id, name[: limits.MAX_NAME], pid, started, hidden)
    try:
        making.mkdir(mode=0o700)
        fd = os.open(making / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (making / _DESCRIPTION).write_bytes(msgspec.json.encode(description))
        making.rename(final)
    except OSError as e:
        shutil.rmtree(making, ignore_errors=True)
        raise RuntimeFolderError(f"runtime folder {root}: {e.strerror}; "
                                 "set SPLATVIEW_RUNTIME_DIR to a folder you can write") from None
    return OwnedRunFolder(final, description, fd)


def list_runs(root: Path) -> list[RunFolder]:
    """The live runs, oldest first. What cannot be read or understood is left out."""
    found = []
    for path in _folders(root):
        description = _describe(path)
        if description is not None and held(path / _LOCK):
            found.append(RunFolder(path, description))
    return sorted(found, key=lambda r: (r.description.started, r.description.id))


def remove_stale(root: Path) -> int:
    """Remove the folders of dead runs; how many there were."""
    count = 0
    for path in _folders(root, hidden=True):
        if not being_made(path) and not held(path / _LOCK):
            shutil.rmtree(path, ignore_errors=True)
            count += 1
    return count


def _folders(root: Path, hidden: bool = False) -> list[Path]:
    try:
        return [p for p in root.iterdir()
                if (hidden or not p.name.startswith(".")) and p.is_dir() and not p.is_symlink()]
    except OSError:
        return []


def _describe(path: Path) -> Description | None:
    description = read_description(path / _DESCRIPTION, Description)
    return description if description is not None and description.id == path.name else None


def read_description(path: Path, form: type[_Described]) -> _Described | None:
    """What a JSON file says, checked against `form`; None when it cannot be read or understood."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as f:
            raw = f.read(MAX_DESCRIPTION + 1)
        return msgspec.json.decode(raw, type=form) if len(raw) <= MAX_DESCRIPTION else None
    except (OSError, msgspec.MsgspecError, ValueError):
        return None


def being_made(path: Path) -> bool:
    """Whether something is hidden because it is not ready. If that has lasted for long, its maker died over it."""
    try:
        return path.name.startswith(".") and abs(path.stat().st_mtime - time.time()) < _MAKING
    except OSError:
        return False


def held(lock: Path) -> bool:
    """Whether somebody holds this lock. Asked for shared, so that two who ask do not take each other for its holder."""
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(fd)


def _slug(name: str) -> str:
    """A run's name as the start of a folder name: letters, digits, '._-', at most 40 of them."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name)[:40].strip(".-")
    return kept or "run"
