"""Run folders, in which viewers find trainers without an address.

Each run has a folder in the runtime folder, with a description (`run.json`), a socket,
and a lock that the trainer holds as long as it lives. The lock is the only sign of
life: the kernel releases it however a process ends. A viewer keeps the lock's file
open, and so knows whether the run lives even after its folder was deleted.

The runtime folder may be any folder that the user names: only folders with the name of
a run and nothing but a run's files in them are removed.
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

from splatview_ipc.control import limits, machine
from splatview_ipc.control.errors import RuntimeFolderError
from splatview_ipc.system.terminal import without_surrogates

_log = logging.getLogger("splatview")
SOCKET_NAME = "socket"
TOUCH_PERIOD_S = 3600.0
"""Seconds between two touches of what is in use: cleaners of temporary files go by
age."""
_LOCK = "lock"
_DESCRIPTION = "run.json"
_CONTENTS = re.compile(r"lock|run\.json|socket|in-[0-9a-f]{8}")
"""All that a run's folder may hold; `in-` are viewers' sockets."""
_FOLDER = re.compile(r"\.?[A-Za-z0-9._-]{1,40}-[0-9]{1,10}-[0-9a-f]{4}")
_MAX_PATH = 60
"""Bytes of the runtime folder's path. A socket's address has 107: the rest is for a
run's folder and its sockets."""
_OTHERS_MODE = 0o077
_OTHERS_WRITE_MODE = 0o022
"""Bits of a folder's mode."""
_MAX_SLUG = 20
"""Letters of a run's name in the name of its folder."""
_MAX_DESCRIPTION = 64 * 1024
"""Bytes that a run's description may have."""
_NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that leave a lock's state unknown: this process can open no more files."""
MAX_ENTRIES = 1000
"""Entries of the runtime folder that are read: each takes some ten microseconds."""
_ELSEWHERE_S = 24 * TOUCH_PERIOD_S
"""A run of another machine that was not touched for so long has ended."""
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
    parent_run: Annotated[str, Meta(max_length=64)] = ""
    """Id of the run for which this one works, and with which it is found; "": of none."""
    version: Annotated[str, Meta(max_length=limits.MAX_VERSION)] = ""
    """The release of splatview that it uses, for users; "": unknown."""
    boot: Annotated[str, Meta(max_length=limits.MAX_NAME)] = ""
    """The start of its machine, as in `machine`; "": unknown."""
    host: Annotated[str, Meta(max_length=limits.MAX_NAME)] = ""
    """The name of its machine; "": unknown."""

    def is_called(self, text: str) -> bool:
        """Return whether a text names this run.

        It may be the run's id, the start of it, its name or its process id.
        """
        return self.id.startswith(text) or text in (self.name, str(self.pid))

    def is_elsewhere(self) -> bool:
        """Return whether its process runs on another machine, by a shared folder.

        A machine that was restarted keeps its name; containers keep the start of theirs.
        """
        return bool(self.boot) and (
            self.boot != machine.boot_id() and self.host != machine.host_name()
        )


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
        """Close the file. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OwnedRunFolder(RunFolder):
    """The folder of this process's own run."""

    def __init__(self, path: Path, description: Description, lock_fd: int):
        super().__init__(path, description)
        self._lock_fds = [lock_fd]
        """The descriptor of the lock, until it is closed. It is taken out by one `pop`:
        a signal's handler that closes the run amid `abandon` then finds none, and no
        number is closed twice, which might be another file's by then."""
        self._touch_due = 0.0
        self._deleted = False

    def refresh(self, now: float) -> float:
        """Touch the folder if an hour has passed, and return when to call this again.

        A folder that was deleted is logged once: viewers that are attached stay, others
        do not find the run.
        """
        if now < self._touch_due:
            return self._touch_due
        self._touch_due = now + TOUCH_PERIOD_S
        try:
            self._touch()
        except OSError as e:
            is_deleted = e.errno not in _NO_FILES
            if is_deleted and not self._deleted:
                _log.warning(
                    "viewers will not find this run: its folder %s was deleted (%s); "
                    "a new run makes another",
                    self.path,
                    e.strerror,
                )
            self._deleted = self._deleted or is_deleted
        return self._touch_due

    def _touch(self) -> None:
        """Touch the folder and its files. Raises OSError."""
        os.utime(self.path)
        for path in self.path.iterdir():
            # The socket of a viewer that has left is missing by now.
            with contextlib.suppress(FileNotFoundError):
                os.utime(path)

    def abandon(self) -> None:
        """Close the lock in a forked child, which would else hold it for the parent."""
        with contextlib.suppress(IndexError):
            os.close(self._lock_fds.pop())

    def remove(self) -> None:
        """Remove the folder and release the lock. Idempotent.

        Another folder that has taken its place stays.
        """
        with contextlib.suppress(OSError, IndexError):
            fd = self._lock_fds[0]
            if os.path.samestat(os.fstat(fd), os.lstat(self.path / _LOCK)):
                fcntl.flock(fd, fcntl.LOCK_UN)
                _remove(self.path)
        self.abandon()


# -- the runtime folder ----------------------------------------------------------------


def default_folder() -> Path:
    """Return the runtime folder of this user where no other is set."""
    return Path("/tmp") / f"splatview-{os.getuid()}"


def runtime_folder() -> Path:
    """Return the folder with all runs: SPLATVIEW_RUNTIME_DIR or /tmp/splatview-UID.

    It is made (mode 0700) when missing. A folder of SPLATVIEW_RUNTIME_DIR that other
    users may enter keeps its mode: runs are in `splatview-UID` in it. Raises
    RuntimeFolderError when it cannot be used safely.
    """
    own_name = default_folder().name
    setting = os.environ.get("SPLATVIEW_RUNTIME_DIR")
    if not setting:
        return _private_folder(default_folder(), own_name)
    # A shell leaves the ~ in quotes, and files of settings have no shell.
    path = Path(os.path.expanduser(setting)).absolute()
    if _is_open_to_others(path):
        path /= own_name
    return _private_folder(path, own_name)


def _is_open_to_others(path: Path) -> bool:
    """Return whether a folder that other users may enter exists, and is safe for ours.

    Raises RuntimeFolderError if they could replace the folder that is made in it.
    """
    try:
        info = path.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(info.st_mode) or info.st_uid not in (0, os.getuid()):
        return False
    mode = stat.S_IMODE(info.st_mode)
    if info.st_uid == os.getuid() and not mode & _OTHERS_MODE:
        return False
    if mode & _OTHERS_WRITE_MODE and not mode & stat.S_ISVTX:
        raise RuntimeFolderError(
            f"runtime folder {path}: other users can write in it (mode {mode:o}) and could "
            "replace what is made there; chmod go-w it, or set SPLATVIEW_RUNTIME_DIR to a "
            "folder of your own"
        )
    return True


def _private_folder(path: Path, own_name: str) -> Path:
    """Return a folder that this user alone may enter; make it when it is missing.

    Raises RuntimeFolderError.

    Args:
        path: the folder.
        own_name: a folder of this name is no user's choice: its mode may be changed.
    """
    problem = ""
    if len(os.fsencode(path)) > _MAX_PATH:
        problem = f"longer than {_MAX_PATH} bytes, too long for sockets in it"
    else:
        try:
            path.mkdir(mode=0o700, parents=path.parent != Path("/tmp"), exist_ok=True)
            problem = _make_private(path, own_name)
        except OSError as e:
            problem = str(e.strerror)
    if problem:
        raise RuntimeFolderError(
            f"runtime folder {path}: {problem}; set SPLATVIEW_RUNTIME_DIR to a folder of "
            "your own"
        )
    return path


def _make_private(path: Path, own_name: str) -> str:
    """Close a folder to other users; return the problem if it is not ours to close."""
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        return "not a folder that belongs to you"
    if not info.st_mode & _OTHERS_MODE:
        return ""
    if path.name != own_name:
        return "opened to other users just now"
    path.chmod(0o700)
    return ""


# -- runs ------------------------------------------------------------------------------


def create_run(
    name: str, pid: int, started: float, hidden: bool = False, parent_run: str = ""
) -> OwnedRunFolder:
    """Make this process's run folder, locked before any viewer can find it.

    Raises RuntimeFolderError.

    Args:
        name: the name of the run, for users.
        pid: of this process.
        started: seconds since the epoch.
        hidden: as in Description.
        parent_run: likewise.
    """
    root = runtime_folder()
    remove_stale(root)
    # Bytes of the environment, or of the script's name, may not be UTF-8.
    name = without_surrogates(name)
    path = root / f"{_slug(name) or 'run'}-{pid}-{secrets.token_hex(2)}"
    description = Description(
        protocol=limits.PROTOCOL,
        id=path.name,
        name=name[: limits.MAX_NAME],
        pid=pid,
        started=started,
        hidden=hidden,
        parent_run=parent_run,
        version=limits.VERSION,
        boot=machine.boot_id(),
        host=machine.host_name(),
    )
    unfinished = path.with_name(f".{path.name}")
    fd = -1
    try:
        unfinished.mkdir(mode=0o700)
        try:
            fd = create_locked(unfinished / _LOCK)
            (unfinished / _DESCRIPTION).touch(0o600)
            (unfinished / _DESCRIPTION).write_bytes(msgspec.json.encode(description))
            unfinished.rename(path)
        except BaseException:  # Ctrl-C too
            shutil.rmtree(unfinished, ignore_errors=True)
            if fd >= 0:
                os.close(fd)
            raise
    except OSError as e:
        raise RuntimeFolderError(
            f"runtime folder {root}: {e.strerror}; set SPLATVIEW_RUNTIME_DIR to a folder "
            "you can write"
        ) from None
    return OwnedRunFolder(path, description, fd)


def _slug(name: str) -> str:
    """Return the letters of a run's name that the name of its folder starts with."""
    letters = ""
    for letter in name[:_MAX_SLUG]:
        is_legal = letter.isascii() and (letter.isalnum() or letter in "._-")
        letters += letter if is_legal else "-"
    return letters.strip(".-")


def create_locked(path: Path) -> int:
    """Create a file, readable for its owner alone, and lock it; return its descriptor.

    Raises OSError.
    """
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def list_runs(root: Path) -> list[RunFolder]:
    """Return the live runs, the oldest first.

    Runs whose description cannot be read or understood are left out.
    """
    runs = []
    for path in _folders(root):
        if path.name.startswith("."):
            continue
        description = read_description(path / _DESCRIPTION, Description)
        if description is None or description.id != path.name:
            continue
        if is_lock_held(path / _LOCK):
            runs.append(RunFolder(path, description))

    def age_key(run: RunFolder) -> tuple[float, str]:
        return run.description.started, run.description.id

    return sorted(runs, key=age_key)


def remove_stale(root: Path) -> int:
    """Remove the folders of dead runs, and return their number.

    Other folders stay as they are.
    """
    removed = 0
    for path in _folders(root):
        if _FOLDER.fullmatch(path.name) and not is_being_made(path):
            removed += _remove(path)
    return removed


def _folders(root: Path) -> list[Path]:
    """Return the folders among the first MAX_ENTRIES entries of a folder."""
    try:
        with os.scandir(root) as scan:
            entries = islice(scan, MAX_ENTRIES)
            return [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _remove(path: Path) -> bool:
    """Remove a run's folder, unless its lock is held; return whether it is gone."""
    try:
        fd = os.open(path, _OPEN | os.O_DIRECTORY)
    except OSError:
        return False
    # All is done by the descriptor: another folder may take this name meanwhile.
    try:
        names = os.listdir(fd)
        if not all(map(_CONTENTS.fullmatch, names)) or is_lock_held(_LOCK, fd):
            return False
        if _may_run_elsewhere(path):
            return False
        for name in names:
            # Other processes clear away as well.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=fd)
        path.rmdir()
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def _may_run_elsewhere(path: Path) -> bool:
    """Return whether the run of a folder may live on another machine.

    Network file systems may show each machine its own locks only.
    """
    description = read_description(path / _DESCRIPTION, Description)
    if description is None or not description.is_elsewhere():
        return False
    return time.time() - path.stat().st_mtime < _ELSEWHERE_S


def read_description(path: Path, form: type[_Described]) -> _Described | None:
    """Return the contents of a JSON file, checked against `form`.

    Returns None when it cannot be read or understood.
    """
    try:
        fd = os.open(path, _OPEN)
        try:
            content = os.read(fd, _MAX_DESCRIPTION + 1)
        finally:
            os.close(fd)
        if len(content) > _MAX_DESCRIPTION:
            return None
        return msgspec.json.decode(content, type=form)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None


def is_being_made(path: Path) -> bool:
    """Return whether a folder or file is hidden because it is not ready."""
    if not path.name.startswith("."):
        return False
    try:
        return abs(path.stat().st_mtime - time.time()) < _MAKING_S
    except OSError:
        return False


def is_lock_held(lock: Path | str, folder_fd: int | None = None) -> bool:
    """Return whether a process holds this lock.

    Returns True also while this process can open no more files.
    """
    try:
        fd = os.open(lock, _OPEN, dir_fd=folder_fd)
    except OSError as e:
        return e.errno in _NO_FILES
    try:
        return _is_locked(fd)
    finally:
        os.close(fd)


def _is_locked(fd: int) -> bool:
    """Return whether another process holds the lock of an open file.

    The lock is tried shared: two that try at once do not take each other for its
    holder.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False
