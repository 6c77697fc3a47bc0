"""Files written for the user: complete or absent, and never in place of anything else.

    with output_file(path) as out:
        out.file.write(...)             # nothing has this name yet, or the old content
            has
    print(out.path)                     # the new content has it

The content is written beside the target, as `.splatview-*.part`, and renamed when it is
complete. Links are followed: writing to a link replaces the file to which it leads, and
the link stays. A device node, a FIFO, a socket or a folder is never replaced.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, BinaryIO

PICTURES = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
"""Suffixes of picture files, and Pillow's names of their formats."""
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk, and of a user's full share of one."""
_MAX_LINKS = 40
"""Links that the kernel follows in one path."""


class OutputError(OSError):
    """A file or folder cannot be written.

    The message names it, the reason and the next step.
    """

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        super().__init__(f"cannot write to {os.fspath(path)!r}: {reason}")
        self.reason = reason


def output_error(path: str | os.PathLike[str], error: OSError) -> OutputError:
    """Return any fault of writing to `path` as an OutputError."""
    if isinstance(error, OutputError):
        return error
    if isinstance(error, FileNotFoundError):
        try:
            folder = os.path.dirname(os.path.realpath(path))
        except OSError:
            # `realpath` asks for the current folder.
            reason = "the current folder was removed; go to another, or name one"
            return OutputError(path, reason)
        return OutputError(path, f"there is no folder {folder!r}; make it first")
    reason = error.strerror or str(error)
    if error.errno in _NO_SPACE:
        reason += "; free some there, or write to another disk"
    return OutputError(path, reason)


def check_output(path: str | os.PathLike[str]) -> None:
    """Raise OutputError unless a file can be written at `path` now.

    For use before long work.
    """
    with output_file(path) as out:
        out.keep = False


def check_picture(path: str | os.PathLike[str], transparent: bool = False) -> None:
    """Raise OutputError unless a picture can be written at `path` now.

    Its suffix must name a format, for a transparent picture one with an alpha channel.
    """
    check_output(path)
    formats = dict(PICTURES)
    adjective = ""
    if transparent:
        formats = {suffix: name for suffix, name in PICTURES.items() if name != "JPEG"}
        adjective = "transparent "
    if os.path.splitext(path)[1].lower() not in formats:
        reason = f"the name of a {adjective}picture ends in {', '.join(formats)}"
        raise OutputError(path, reason)


def cache_folder() -> Path:
    """Return $XDG_CACHE_HOME/splatview, or the same below ~/.cache. It is not made.

    Raises RuntimeError if the user has no home.
    """
    return _users_folder("XDG_CACHE_HOME", ".cache")


def state_folder() -> Path:
    """Return $XDG_STATE_HOME/splatview, or the same below ~/.local/state.

    It is not made. Raises RuntimeError if the user has no home.
    """
    return _users_folder("XDG_STATE_HOME", ".local/state")


def _users_folder(variable: str, default: str) -> Path:
    """Return the folder "splatview" in one of the XDG base folders.

    Args:
        variable: names the base folder; a relative path there does not count.
        default: the base folder without the variable, below the user's home.
    """
    base = os.environ.get(variable, "")
    if os.path.isabs(base):
        return Path(base) / "splatview"
    return Path.home() / default / "splatview"


def make_private(path: Path) -> None:
    """Make a folder and the missing ones above it, for their owner alone (0700).

    `Path.mkdir` opens those above as far as the umask allows. Raises OSError, also if
    the folder belongs to another user: in a shared folder its name may be taken
    already.
    """
    if not path.parent.is_dir():
        make_private(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    check_owner(path)


def check_owner(path: str | os.PathLike[str]) -> None:
    """Raise PermissionError for a folder of another user, or behind a link of one.

    Folders of root are allowed.
    """
    owner = os.stat(real_path(path, strict=True)).st_uid
    if owner not in (os.getuid(), 0):
        reason = f"it belongs to another user ({owner}); choose a folder of your own"
        raise PermissionError(errno.EPERM, reason, os.fspath(path))


def check_only_owner_writes(path: str | os.PathLike[str]) -> None:
    """Raise PermissionError for a folder in which other users can write.

    Includes `check_owner`. For folders whose files are executed.
    """
    check_owner(path)
    if os.stat(path).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        reason = "others can write to it; close it by chmod go-w, and remove its files"
        raise PermissionError(errno.EPERM, reason, os.fspath(path))


def real_path(path: str | os.PathLike[str], *, strict: bool = False) -> str:
    """Return a path without links, following none of a stranger.

    Does what `os.path.realpath` does otherwise. Where all can write, a link of any user
    may lead anywhere. The kernel refuses it only with fs.protected_symlinks, only in
    sticky folders, and never to programs that read links themselves. Each link is read
    together with its owner: one that is made a moment later is not in the path that is
    returned.

    Args:
        path: an absolute path, or one from the current folder. It may be missing.
        strict: follow none of the folder's owner either, where a group can write.

    Raises:
        PermissionError: another user has made a link on the way.
        OSError: the links have no end.
    """
    pending = os.fspath(path).split("/")[::-1]
    folder = "/" if os.path.isabs(path) else os.getcwd()
    links = 0
    while pending:
        name = pending.pop()
        if name in ("", "."):
            continue
        if name == "..":
            folder = os.path.dirname(folder)
            continue
        entry = os.path.join(folder, name)
        target = _read_link(entry, folder, strict=strict)
        if target is None:
            folder = entry
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
        if os.path.isabs(target):
            folder = "/"
        pending += target.split("/")[::-1]
    return folder


def _read_link(entry: str, folder: str, *, strict: bool) -> str | None:
    """Return the target of a link; None for anything else, or nothing.

    Raises PermissionError for a link that may not be followed.
    """
    try:
        fd = os.open(entry, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        # The kernel will report what is wrong when the path is used.
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISLNK(status.st_mode):
            return None
        target = os.readlink("", dir_fd=fd)
    finally:
        os.close(fd)
    if status.st_uid in (os.getuid(), 0):
        return target
    folder_status = os.stat(folder)
    all_can_write = bool(folder_status.st_mode & stat.S_IWOTH)
    group_can_write = bool(folder_status.st_mode & stat.S_IWGRP)
    is_folder_owners = status.st_uid == folder_status.st_uid and not strict
    if all_can_write or (group_can_write and not is_folder_owners):
        reason = f"{entry} is a link of another user; choose another name"
        raise PermissionError(errno.EPERM, reason, entry)
    return target


@dataclass
class OutputFile:
    """A file being written by `output_file`."""

    file: BinaryIO
    path: Path
    """The file's name; of a numbered one known at the end."""
    keep: bool = True
    """Set it to False to leave everything as it was."""


@contextlib.contextmanager
def output_file(
    path: str | os.PathLike[str], *, numbered: bool = False, private: bool = False
) -> Iterator[OutputFile]:
    """Write a file, which appears at the end of the `with` unless an exception ends it.

    Every OSError in the `with` is raised as an OutputError.

    Args:
        path: the target. Its folder must exist.
        numbered: replace nothing and follow no link: take the next free name, such as
            "a-2.png", instead.
        private: the file is for its owner alone (0600); otherwise a new one is as the
            umask has it, and a replaced one keeps its mode.
    """
    try:
        target = Path(real_path(Path(path).parent)) / Path(path).name
        replaced = None
        if not numbered:
            replaced = _replaced_file(path)
            target = Path(real_path(target, strict=True))
        temporary = target.with_name(f".splatview-{os.urandom(8).hex()}.part")
        mode = 0o600 if private else 0o666
        kept_mode = None
        # Another user's file in a shared folder does not say who reads this one.
        if not private and replaced is not None and replaced.st_uid == os.getuid():
            # It is set at the end: no other user reads the file before.
            mode = 0o600
            kept_mode = stat.S_IMODE(replaced.st_mode) & 0o777
        file = open(
            temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)
        )
        try:
            with file:
                out = OutputFile(file, Path(path))
                yield out
                if kept_mode is not None:
                    os.fchmod(file.fileno(), kept_mode)
            if out.keep:
                if numbered:
                    target = take_free_name(target, partial(Path.touch, exist_ok=False))
                    out.path = out.path.with_name(target.name)
                os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as e:
        raise output_error(path, e) from e


def _replaced_file(path: str | os.PathLike[str]) -> os.stat_result | None:
    """Return the status of the file that a new one is to replace.

    Returns None if there is none. Raises OutputError for anything else of this name.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        reason = "it is not a regular file; expected one, or a new name"
        raise OutputError(path, reason)
    return status


def write_output(
    path: str | os.PathLike[str], content: Any, *, private: bool = False
) -> None:
    """Write bytes as a file, or replace one by them. Raises OutputError."""
    with output_file(path, private=private) as out:
        out.file.write(content)


def take_free_name(path: Path, take: Callable[[Path], None]) -> Path:
    """Call `take` with free names until one raises no FileExistsError; return that one.

    The names are `path`, then "a-2.png", "a-3.png" and so on.
    """
    candidate = path
    attempt = 1
    while True:
        try:
            take(candidate)
            return candidate
        except FileExistsError:
            attempt += 1
            candidate = path.with_name(f"{path.stem}-{attempt}{path.suffix}")
        except OSError as e:
            raise output_error(path, e) from e
