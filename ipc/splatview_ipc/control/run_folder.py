"""Run folders, in which viewers find trainers without an address.

Each run has a folder in the runtime folder, with a description (`run.json`), a socket, and a lock that the trainer
holds as long as it lives. The lock is the only sign of life: the kernel releases it however a process ends. A viewer
keeps the lock's file open, and so knows whether the run lives even after its folder was deleted.

The runtime folder may be any folder that the user names: only folders with the name of a run and nothing but a run's
files in them are removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
import secrets
import shutil
import stat
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from splatview_ipc.control import limits
from splatview_ipc.control.errors import RuntimeFolderError
from splatview_ipc.system.terminal import printable, without_surrogates

_log = logging.getLogger("splatview")
SOCKET_NAME = "socket"
TOUCH_PERIOD_S = 3600.0
"""Cleaners of temporary files go by age: what is in use is touched so often."""
_LOCK = "lock"
_DESCRIPTION = "run.json"
_CONTENTS = re.compile(r"lock|run\.json|socket|in-[0-9a-f]{8}")
"""All that a run's folder may hold; `in-` are viewers' sockets."""
_FOLDER = re.compile(r"\.?[A-Za-z0-9._-]{1,40}-[0-9]{1,10}-[0-9a-f]{4}")
_LONGEST = 60
"""Bytes of the runtime folder's path. A socket's address has 107: the rest is for a run's folder and its sockets."""
_OTHERS = 0o077
_OTHERS_WRITE = 0o022
"""Bits of a folder's mode."""
_SLUG = 20
"""Letters of a run's name in the name of its folder."""
_MAX_DESCRIPTION = 64 * 1024
"""Bytes."""
_NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that leave a lock's state unknown: this process can open no more files."""
MAX_ENTRIES = 1000
"""Entries of the runtime folder that are looked at: each takes some ten microseconds."""
_MAKING_S = 10.0
"""A hidden folder or file older than this was left behind while it was made."""
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_Described = TypeVar("_Described", bound=msgspec.Struct)


class Description(msgspec.Struct, frozen=True):
    """The contents of `run.json`. Fields that a later version adds are ignored."""

    protocol: Annotated[int, Meta(ge=0, le=limits.MAX_COUNTER)]
    id: Annotated[
        str, Meta(min_length=1, max_length=64, pattern=r"\A[A-Za-z0-9._-]+\Z")
    ]
    name: Annotated[str, Meta(max_length=limits.MAX_NAME)]
    pid: Annotated[int, Meta(ge=1, lt=2**31)]
    started: Annotated[float, Meta(ge=0, le=1e11)]
    """Seconds since the epoch."""
    hidden: bool = False
    """True: found by its id alone, as a child program publishes it for its parent."""
    version: Annotated[str, Meta(max_length=limits.MAX_VERSION)] = ""
    """The release of splatview that it uses, for users; "": unknown."""

    def is_called(self, text: str) -> bool:
        """Return whether a text names this run: its id, the beginning of it, its name or its process id."""
        return self.id.startswith(text) or text in (self.name, str(self.pid))


@dataclass
class RunFolder:
    path: Path
    description: Description


class RunWatch:
    """The lock of a run, kept open."""

    def __init__(self, folder: RunFolder):
        self._fd = -1
        with contextlib.suppress(OSError):
            self._fd = os.open(folder.path / _LOCK, _OPEN)

    def alive(self) -> bool:
        return self._fd >= 0 and _is_locked(self._fd)

    def close(self) -> None:
        """Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OwnedRunFolder(RunFolder):
    """The folder of this process's own run."""

    def __init__(self, path: Path, description: Description, lock_fd: int):
        super().__init__(path, description)
        self._lock_fd = lock_fd
        self._touch_due = 0.0
        self._deleted = False

    def refresh(self, now: float) -> float:
        """Touch the folder if an hour has passed, and return when to call it again. A folder that was deleted is logged
        once: viewers that are attached stay, others do not find the run.
        """
        if now >= self._touch_due:
            self._touch_due = now + TOUCH_PERIOD_S
            try:
                os.utime(self.path)
                for path in self.path.iterdir():
                    with contextlib.suppress(FileNotFoundError):  # a viewer has left
                        os.utime(path)
            except OSError as e:
                is_deleted = e.errno not in _NO_FILES
                if is_deleted and not self._deleted:
                    _log.warning(
                        "viewers will not find this run: its folder %s was deleted (%s); a new run makes "
                        "another",
                        self.path,
                        e.strerror,
                    )
                self._deleted = self._deleted or is_deleted
        return self._touch_due

    def abandon(self) -> None:
        """Close the lock: in a forked child, which would otherwise hold it for the parent's run."""
        fd = self._lock_fd
        if fd >= 0:
            # First: after Ctrl-C behind `close` its number may be another file's.
            self._lock_fd = -1
            os.close(fd)

    def remove(self) -> None:
        """Remove the folder, unless another one has taken its place, and release the lock. Idempotent."""
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(self._lock_fd), os.lstat(self.path / _LOCK)):
                fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
                _remove(self.path)
        self.abandon()


def runtime_folder() -> Path:
    """Return the folder with all runs: SPLATVIEW_RUNTIME_DIR or /tmp/splatview-UID.

    It is made (mode 0700) when missing. A folder of SPLATVIEW_RUNTIME_DIR that other users may enter keeps its mode:
    runs are in `splatview-UID` in it. Raises RuntimeFolderError when it cannot be used safely.
    """
    own_name = f"splatview-{os.getuid()}"
    named = os.environ.get("SPLATVIEW_RUNTIME_DIR")
    if not named:
        return _private_folder(Path("/tmp") / own_name, own_name)
    path = Path(named).absolute()
    if _is_open_to_others(path):
        path /= own_name
    return _private_folder(path, own_name)


def _is_open_to_others(path: Path) -> bool:
    """Return whether there is a folder that other users may enter, in which one of ours is safe.

    Raises RuntimeFolderError where they could take the place of ours.
    """
    try:
        info = path.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(info.st_mode) or info.st_uid not in (0, os.getuid()):
        return False
    mode = stat.S_IMODE(info.st_mode)
    if info.st_uid == os.getuid() and not mode & _OTHERS:
        return False
    if mode & _OTHERS_WRITE and not mode & stat.S_ISVTX:
        raise RuntimeFolderError(
            f"runtime folder {path}: other users can write in it (mode {mode:o}) and could replace what is made "
            "there; chmod go-w it, or set SPLATVIEW_RUNTIME_DIR to a folder of your own"
        )
    return True


def _private_folder(path: Path, own_name: str) -> Path:
    """Return a folder that this user alone may enter, which is made when missing; `own_name` is no user's choice.

    Raises RuntimeFolderError.
    """
    trouble = ""
    if len(os.fsencode(path)) > _LONGEST:
        trouble = f"longer than {_LONGEST} bytes, too long for sockets in it"
    else:
        try:
            path.mkdir(mode=0o700, parents=path.parent != Path("/tmp"), exist_ok=True)
            info = path.lstat()
            if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
                trouble = "not a folder that belongs to you"
            elif info.st_mode & _OTHERS:
                if path.name == own_name:
                    path.chmod(0o700)
                else:
                    trouble = "opened to other users just now"
        except OSError as e:
            trouble = str(e.strerror)
    if trouble:
        raise RuntimeFolderError(
            f"runtime folder {path}: {trouble}; set SPLATVIEW_RUNTIME_DIR to a folder of your own"
        )
    return path


def create_run(
    name: str, pid: int, started: float, hidden: bool = False
) -> OwnedRunFolder:
    """Make this process's run folder, locked before anyone can see it; `hidden` as in Description.

    Raises RuntimeFolderError.
    """
    root = runtime_folder()
    remove_stale(root)
    name = without_surrogates(
        name
    )  # bytes of the environment, or of the script's name, that are not UTF-8
    kept = "".join(
        c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name
    )[:_SLUG].strip(".-")
    path = root / f"{kept or 'run'}-{pid}-{secrets.token_hex(2)}"
    description = Description(
        limits.PROTOCOL,
        path.name,
        name[: limits.MAX_NAME],
        pid,
        started,
        hidden,
        limits.VERSION,
    )
    making = path.with_name(f".{path.name}")
    fd = -1
    try:
        making.mkdir(mode=0o700)
        try:
            fd = create_locked(making / _LOCK)
            (making / _DESCRIPTION).touch(0o600)
            (making / _DESCRIPTION).write_bytes(msgspec.json.encode(description))
            making.rename(path)
        except BaseException:  # Ctrl-C too
            shutil.rmtree(making, ignore_errors=True)
            if fd >= 0:
                os.close(fd)
            raise
    except OSError as e:
        raise RuntimeFolderError(
            f"runtime folder {root}: {e.strerror}; set SPLATVIEW_RUNTIME_DIR to a folder you can "
            "write"
        ) from None
    return OwnedRunFolder(path, description, fd)


def create_locked(path: Path) -> int:
    """Create a file, readable for its owner alone, and hold its lock; return the descriptor. Raises OSError."""
    fd = os.open(
        path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def list_runs(root: Path) -> list[RunFolder]:
    """Return the live runs, oldest first. What cannot be read or understood is left out."""
    found = []
    for path in _folders(root):
        if path.name.startswith("."):
            description = None
        else:
            description = read_description(path / _DESCRIPTION, Description)
        if (
            description is not None
            and description.id == path.name
            and is_lock_held(path / _LOCK)
        ):
            found.append(RunFolder(path, description))
    return sorted(found, key=lambda r: (r.description.started, r.description.id))


def explain_missing_run(root: Path, text: str) -> str:
    """Return the names and process ids of the live runs if `text` names none of them; "" if it names one."""
    runs = [run.description for run in list_runs(root)]
    if any(run.is_called(text) for run in runs):
        return ""
    named = [f"{printable(run.name)} ({run.pid})" for run in runs if not run.hidden]
    if named:
        return f"there are: {', '.join(named)}"
    return "there are none: start one (splatview.publish(tensor) in a training script, or splatview demo)"


def remove_stale(root: Path) -> int:
    """Remove the folders of dead runs, and return their number. Other folders stay as they are."""
    return sum(
        _remove(path)
        for path in _folders(root)
        if _FOLDER.fullmatch(path.name) and not is_being_made(path)
    )


def _folders(root: Path) -> list[Path]:
    try:
        with os.scandir(root) as entries:
            return [
                Path(e.path)
                for e in islice(entries, MAX_ENTRIES)
                if e.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return []


def _remove(path: Path) -> bool:
    """Remove a run's folder, unless its lock is held; return whether it is gone."""
    try:
        fd = os.open(path, _OPEN | os.O_DIRECTORY)
    except OSError:
        return False
    try:  # by the descriptor: another folder may take this name meanwhile
        names = os.listdir(fd)
        if not all(map(_CONTENTS.fullmatch, names)) or is_lock_held(_LOCK, fd):
            return False
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # others clear away as well
                os.unlink(name, dir_fd=fd)
        path.rmdir()
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def read_description(path: Path, form: type[_Described]) -> _Described | None:
    """Return the contents of a JSON file, checked against `form`; None when it cannot be read or understood."""
    try:
        fd = os.open(path, _OPEN)
        try:
            raw = os.read(fd, _MAX_DESCRIPTION + 1)
        finally:
            os.close(fd)
        if len(raw) <= _MAX_DESCRIPTION:
            return msgspec.json.decode(raw, type=form)
        return None
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None


def is_being_made(path: Path) -> bool:
    """Return whether a folder or file is hidden because it is not ready."""
    try:
        return (
            path.name.startswith(".")
            and abs(path.stat().st_mtime - time.time()) < _MAKING_S
        )
    except OSError:
        return False


def is_lock_held(lock: Path | str, folder_fd: int | None = None) -> bool:
    """Return whether a process holds this lock; True also while this process can open no more files."""
    try:
        fd = os.open(lock, _OPEN, dir_fd=folder_fd)
    except OSError as e:
        return e.errno in _NO_FILES
    try:
        return _is_locked(fd)
    finally:
        os.close(fd)


def _is_locked(fd: int) -> bool:
    """Try the lock, shared: two that try at once do not take each other for its holder."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False
