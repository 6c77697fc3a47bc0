"""Run folders: how viewers find trainers without an address.

Each run has a folder in the runtime folder, with a description (`run.json`), a socket and a lock that the trainer
holds as long as it lives. The lock is the only sign of life: the kernel gives it back however a process ends, and
nothing else (a process id that was used again, a clock set back) can be mistaken for it. Who follows a run keeps its
lock open, and so knows that it lives even where its folder was taken away.

What is removed is known to be ours: folders that are called as a run's and hold nothing but what a run's holds. The
runtime folder may be any folder that people name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
import threading
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
from msgspec import Meta

from splatview_ipc.control import limits
from splatview_ipc.control.errors import RuntimeFolderError
from splatview_ipc.system.terminal import printable, without_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable

SOCKET_NAME = "socket"
SOCKET_PATH_MAX = 107
"""Bytes that a UNIX socket's path may have (sun_path on Linux)."""
MAX_DESCRIPTION = 64 * 1024
"""Bytes of a description."""
_LOCK, _DESCRIPTION = "lock", "run.json"
_CONTENTS = re.compile(r"lock|run\.json|socket|descriptors|inbox-[0-9a-f]{16}")
"""All that a run's folder may hold, the last where viewers take what they are told: what lies beside it is not ours."""
_FOLDER = re.compile(r"\.?[A-Za-z0-9._-]{1,40}-[0-9]{1,10}-[0-9a-f]{4}")
_ANNOUNCEMENT = re.compile(r"\.?viewer-[0-9]{1,10}-[0-9a-f]{8}\.json")
"""Files by which viewers say where they serve (`splatview_ipc.control.registry`)."""
_TAKEN = (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.EAGAIN)
"""What comes of a name that is taken, or of a folder that was cleared away while it was made."""
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What keeps this process from opening anything now; it tells nothing of a lock."""
_MOST = 1000
"""Folders that are looked at for live runs: each look takes some ten microseconds."""
_TRIES = 5
"""How often another name is tried then."""
_MAKING = 10.0
"""Seconds after which something hidden, which is being made, counts as left behind."""
_Described = TypeVar("_Described", bound=msgspec.Struct)


class Description(msgspec.Struct, frozen=True):
    """What `run.json` says. Fields that a later version adds are ignored."""

    protocol: Annotated[int, Meta(ge=0, le=limits.MAX_COUNTER)]
    id: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"\A[A-Za-z0-9._-]+\Z")]
    name: Annotated[str, Meta(max_length=limits.MAX_NAME)]
    pid: Annotated[int, Meta(ge=1, lt=2**31)]
    started: Annotated[float, Meta(ge=0, le=1e11)]
    """Seconds since the epoch."""
    hidden: bool = False
    """Whether it is found only by who knows its id: what a program of ours publishes for another one."""
    version: Annotated[str, Meta(max_length=limits.MAX_VERSION)] = ""
    """The release of splatview that it uses, for people; "": not known."""

    def is_called(self, text: str) -> bool:
        """Whether people may mean this run by a text: its id, the beginning of one, its name or its process id."""
        return self.id.startswith(text) or text in (self.name, str(self.pid))


@dataclass(frozen=True)
class RunFolder:
    path: Path
    description: Description

    def alive(self) -> bool:
        """Whether the trainer still holds its lock."""
        return held(self.path / _LOCK)

    def watch(self) -> RunWatch:
        return RunWatch(self.path / _LOCK)


class RunWatch:
    """Tells whether a run lives, also when its folder is not where it was: its lock, kept open."""

    def __init__(self, lock: Path):
        self._lock = lock
        self._fd = -1
        self.renew()

    def alive(self) -> bool:
        return self._fd >= 0 and _is_locked(self._fd)

    def renew(self) -> None:
        """Take the lock that lies there now: a run whose folder was taken away has made another one."""
        with contextlib.suppress(OSError):
            there, known = os.lstat(self._lock), os.fstat(self._fd) if self._fd >= 0 else None
            if known is None or not os.path.samestat(there, known):
                fd = _open(self._lock)
                self.close()
                self._fd = fd

    def close(self) -> None:
        """Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OwnedRunFolder(RunFolder):
    """The folder of this process's own run."""

    def __init__(self, path: Path, description: Description, lock_fd: int):
        super().__init__(path, description)
        self.__dict__.update(_lock_fd=lock_fd, _before=-1)

    def abandon(self) -> None:
        """In a forked child, where the kernel would otherwise keep the lock for the parent's run: let go of it."""
        for name in ("_lock_fd", "_before"):
            _let_go(self.__dict__[name])
            self.__dict__[name] = -1

    @property
    def in_place(self) -> bool:
        """Whether viewers find the run: its folder lies where they look, with its lock and its socket in it."""
        try:
            return (self._holds(self.path)
                    and stat.S_ISSOCK(os.lstat(self.path / SOCKET_NAME).st_mode)
                    and stat.S_ISREG(os.lstat(self.path / _DESCRIPTION).st_mode))
        except OSError:
            return False

    def restore(self, furnish: Callable[[Path], None]) -> None:
        """Make the folder again, under its name, where it was taken away; `furnish` puts the sockets into it before
        anyone sees it. Who follows the run by the lock before goes on doing so until the next time.

        Raises RuntimeFolderError.
        """
        root = _usable(self.path.parent, "it is needed again as it was")
        if not held(self.path / _LOCK) or self._holds(self.path):
            _remove(self.path, dead=False)
        fd = _make(root, self.path.name, self.description, furnish)
        _let_go(self.__dict__["_before"])
        self.__dict__.update(_before=self.__dict__["_lock_fd"], _lock_fd=fd)

    def _holds(self, path: Path) -> bool:
        try:
            return os.path.samestat(os.fstat(self.__dict__["_lock_fd"]), os.lstat(path / _LOCK))
        except OSError:
            return False

    def remove(self) -> None:
        """Take the folder away, if it is this one that lies there, and give the lock back. Idempotent."""
        if self._holds(self.path):
            _remove(self.path, dead=False)
        self.abandon()


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
    remove_stale(runtime_folder())
    name = without_surrogates(name)  # bytes of the environment, or of the script's name, that are not UTF-8
    for left in reversed(range(_TRIES)):
        root = runtime_folder()
        run_id = f"{_slug(name)}-{pid}-{secrets.token_hex(2)}"
        description = Description(limits.PROTOCOL, run_id, name[: limits.MAX_NAME], pid, started, hidden,
                                  limits.VERSION)
        try:
            return OwnedRunFolder(root / run_id, description, _make(root, run_id, description))
        except RuntimeFolderError as e:
            if not left or e.__cause__ is None:
                raise
    raise AssertionError


def _make(root: Path, run_id: str, description: Description,
          furnish: Callable[[Path], None] = lambda _: None) -> int:
    """Make a run's folder; the descriptor of its lock, which is held before anyone can see it.

    Raises RuntimeFolderError, with a cause where another name may do.
    """
    making, final = root / f".{run_id}", root / run_id
    fd, made = -1, False
    with _forking:
        try:
            making.mkdir(mode=0o700)
            made = True
            fd = os.open(making / _LOCK, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            _locks.add(fd)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write(making / _DESCRIPTION, msgspec.json.encode(description))
            furnish(making)
            if os.path.lexists(final):  # an empty folder would be replaced
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            making.rename(final)
        except BaseException as e:
            if made:
                _remove(making, dead=False)
            _let_go(fd)
            if isinstance(e, OSError):
                raise RuntimeFolderError(f"runtime folder {root}: {e.strerror}; set SPLATVIEW_RUNTIME_DIR to a folder "
                                         "you can write") from (e if e.errno in _TAKEN else None)
            raise
    return fd


def _write(path: Path, content: bytes) -> None:
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as f:
        f.write(content)


def list_runs(root: Path) -> list[RunFolder]:
    """The live runs, oldest first. What cannot be read or understood is left out."""
    found = []
    for path in _folders(root)[:_MOST]:
        description = _describe(path)
        if description is not None and held(path / _LOCK):
            found.append(RunFolder(path, description))
    return sorted(found, key=lambda r: (r.description.started, r.description.id))


def other_runs(root: Path, text: str) -> str:
    """Return which live runs there are, by name and process id, where `text` means none of them; "" where it does."""
    runs = [run.description for run in list_runs(root)]
    if any(run.is_called(text) for run in runs):
        return ""
    named = [f"{printable(run.name)} ({run.pid})" for run in runs if not run.hidden]
    return (f"there are: {', '.join(named)}" if named else
            "there are none: start one (splatview.publish(tensor) in a training script, or splatview demo)")


def remove_stale(root: Path) -> int:
    """Remove what dead runs and dead viewers have left; how many there were. What is not theirs stays as it is."""
    runs = sum(_remove(path) for path in _folders(root, hidden=True)
               if _FOLDER.fullmatch(path.name) and not being_made(path) and not held(path / _LOCK))
    return runs + sum(remove_announcement(path) for path in announcements(root))


def announcements(root: Path) -> list[Path]:
    """The files of viewers, dead ones and those that are being made included."""
    try:
        with os.scandir(root) as entries:
            return [Path(e.path) for e in islice(entries, _MOST)
                    if _ANNOUNCEMENT.fullmatch(e.name) and e.is_file(follow_symlinks=False)]
    except OSError:
        return []


def remove_announcement(path: Path) -> bool:
    """Remove a viewer's file unless the viewer lives or has just begun to make it; whether it was removed."""
    if being_made(path) or held(path):
        return False
    try:
        path.unlink()  # names are never used again, so this is the dead one's
    except OSError:
        return False
    return True


def _remove(path: Path, dead: bool = True) -> bool:
    """Remove a run's folder; whether it is gone. What holds anything else is none.

    `dead`: not if its lock is held. A shared lock is held meanwhile: a process that makes a folder of this name
    cannot lock it then and chooses another name, and for others that look the run stays dead.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    lock = -1
    try:
        with os.scandir(fd) as entries:
            names = [entry.name for entry in islice(entries, 1000)]
        if not all(map(_CONTENTS.fullmatch, names)):
            return False
        if dead and _LOCK in names:
            try:
                lock = os.open(_LOCK, _READ_LOCK, dir_fd=fd)
            except OSError as e:
                if e.errno in _SHORT:
                    return False
            else:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # others clear away as well
                os.unlink(name, dir_fd=fd)
        path.rmdir()
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
        if lock >= 0:
            os.close(lock)


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
    """Whether somebody holds this lock. Asked for shared, so that two who ask do not take each other for its holder.
    Where this process can open no file now, it is not known: nobody is taken for dead for that."""
    try:
        fd = _open(lock)
    except OSError as e:
        return e.errno in _SHORT
    try:
        return _is_locked(fd)
    finally:
        os.close(fd)


_READ_LOCK = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def _open(lock: Path) -> int:
    return os.open(lock, _READ_LOCK)


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def _slug(name: str) -> str:
    """A run's name as the start of a folder name: letters, digits, '._-', at most 40 of them."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name)[:40].strip(".-")
    return kept or "run"


_locks: set[int] = set()
"""Descriptors of the locks that this process holds."""
_forking = threading.RLock()
"""Held while a lock is being taken: no fork comes between, which would keep it for a child that does not know."""


def _let_go(fd: int) -> None:
    """Close a lock, unless a fork has done so. Idempotent."""
    if fd in _locks:
        _locks.discard(fd)
        os.close(fd)


def _after_fork_in_child() -> None:
    """Runs are the parent's: the kernel would keep their locks as long as any process has them open."""
    global _forking
    _forking = threading.RLock()
    for fd in list(_locks):
        _let_go(fd)


os.register_at_fork(before=lambda: _forking.acquire(), after_in_parent=lambda: _forking.release(),
                    after_in_child=_after_fork_in_child)
