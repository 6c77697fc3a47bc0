"""Files written for the user: complete or absent, never in place of a device node, a FIFO, a socket or a link.

    with OutputFile(path) as out:
        out.file.write(...)             # nothing has this name yet, or the old content has
    print(out.path)                     # the new content has it

The content is written to a file without a name (O_TMPFILE) in the folder of the target, and gets its name when it is
complete: an exception, a signal, or the end of the process at any moment before leaves nothing. To replace a file the
content has a temporary name between two system calls, since the kernel links only to new names. On file systems without
O_TMPFILE it has this name all the time: `.splatview-<16 digits>.part`, which exceptions and exits remove.

Links are followed: writing to a link replaces the file to which it leads, and the link stays. A replaced file passes
its permissions and, where allowed, its group on to the new one; its other hard links keep the old content.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import stat
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, BinaryIO, Literal

_KINDS = {stat.S_IFCHR: "a character device", stat.S_IFBLK: "a block device", stat.S_IFIFO: "a FIFO",
          stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder", stat.S_IFREG: "a regular file",
          stat.S_IFLNK: "a link"}
_MOST_LINKS = 40
"""Links followed one after the other, as the kernel limits them."""
_MOST_NAMES = 10_000
"""Numbered names tried for a file that replaces none."""
_WITHOUT_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.ENOSYS)
"""Errors of O_TMPFILE on file systems and kernels without it."""
_TOO_MANY = f"it and {_MOST_NAMES - 2:,} more like it exist; remove some"
_STICKY = stat.S_ISVTX | stat.S_IWOTH

PICTURES = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
"""Suffixes of picture files, and Pillow's names of their formats."""
_parts: dict[str, tuple[int, int]] = {}
"""Files with a temporary name: the process that writes each, and a descriptor of its folder."""


class OutputError(OSError):
    """A file or folder cannot be written. The message names it, the reason and the next step."""

    def __init__(self, path: str | os.PathLike[str], reason: str, number: int = errno.EINVAL) -> None:
        super().__init__(number, reason, os.fspath(path))

    def __str__(self) -> str:
        return f"cannot write to {self.filename!r}: {self.strerror}"


def output_error(path: str | os.PathLike[str], error: OSError) -> OutputError:
    """Return any fault of writing to `path` as an OutputError."""
    return error if isinstance(error, OutputError) else OutputError(path, _reason(path, error),
                                                                    error.errno or errno.EIO)


def check_output(path: str | os.PathLike[str]) -> None:
    """Raise OutputError unless a file can be written at `path` now. For use before long work."""
    OutputFile(path).open().abort()


def check_picture(path: str | os.PathLike[str], transparent: bool = False) -> None:
    """Raise OutputError unless a picture can be written at `path` now, in the format that its suffix names."""
    check_output(path)
    legal = [suffix for suffix, name in PICTURES.items() if not (transparent and name == "JPEG")]
    if os.path.splitext(path)[1].lower() not in legal:
        raise OutputError(path, f"the name of a {'transparent ' * transparent}picture ends in {', '.join(legal)}")


def make_output_folder(path: str | os.PathLike[str]) -> list[Path]:
    """Make a folder for output, and missing ones above it. Return those made, the deepest first: none if it exists.

    A link is followed as for files. Raises OutputError.
    """
    at, made = -1, list[Path]()
    try:
        parent = os.path.dirname(os.fspath(path).rstrip("/")) or "."
        if not os.path.isdir(parent):
            made = make_output_folder(parent)
        at, name, info = _follow(path)
        if info is None:
            os.mkdir(name, dir_fd=at)
            return [Path(os.path.realpath(path)), *made]
        if not stat.S_ISDIR(info.st_mode):
            raise OutputError(path, f"it is {_KINDS.get(stat.S_IFMT(info.st_mode), 'not a folder')}; expected a folder "
                                    "or a new name", errno.ENOTDIR)
        return made
    except OSError as e:
        raise output_error(path, e) from e
    finally:
        if at >= 0:
            os.close(at)


def make_new_folder(path: Path) -> Path:
    """Make a folder for output that did not exist: `path`, or the next free numbered name. Raises OutputError."""
    for i in range(1, _MOST_NAMES):
        made = path if i == 1 else path.with_name(f"{path.name}-{i}")
        try:
            made.mkdir()
        except FileExistsError:
            continue
        except OSError as e:
            raise output_error(path, e) from e
        return made
    raise OutputError(path, _TOO_MANY, errno.EEXIST)


def safe_name(text: str, default: str = "splatview") -> str:
    """Return `text` as the stem of a file name of at most 200 bytes: letters, digits, and "-_. " within.

    Streams and runs are named by other processes: a name never leads to another folder or begins an option.
    """
    clean = "".join(c if c.isalnum() or c in "-_. " else "-" for c in text).encode()[:200].decode(errors="ignore")
    return clean.strip(" .").lstrip("-. ") or default


class OutputFile:
    """One file being written. Belongs to one thread at a time."""

    def __init__(self, path: str | os.PathLike[str], existing: Literal["replace", "number", "refuse"] = "replace", *,
                 private: bool = False) -> None:
        """Name the target; `open`, or `with`, begins.

        Args:
            path: the target. Its folder must exist.
            existing: treatment of a file with this name: replace it, take the next free name ("a-2.png") instead, or
                raise OutputError. The last two replace nothing that appears meanwhile either, and follow no link.
            private: new files are for their owner alone (0600); default: as the umask has it.
        """
        self.path = Path(path)
        """The file's name; of a numbered one known after `commit`."""
        self._existing = existing
        self._private = private
        self._folder = -1
        self._name = ""
        self._before: os.stat_result | None = None
        """The file that is replaced."""
        self._part = ""
        """The temporary name; "" while the file has none."""
        self._file: BinaryIO | None = None

    @property
    def file(self) -> BinaryIO:
        """The file object for the content: seekable, for writing."""
        assert self._file is not None, "the file is not open"
        return self._file

    def open(self) -> OutputFile:
        """Begin. Raises OutputError for a target that cannot be written."""
        try:
            if self._existing == "replace":
                self._folder, self._name, self._before = _follow(self.path)
                _refuse_special(self.path, self._before)
            else:
                self._folder, self._name = _folder_of(self.path)
                if self._existing == "refuse" and _lstat(self._name, self._folder) is not None:
                    raise OutputError(self.path, "it exists already; choose another name", errno.EEXIST)
            if os.fstat(self._folder).st_nlink == 0:
                raise OutputError(self.path, "its folder was removed; choose another", errno.ENOENT)
            fd = self._create(0o600 if self._private or self._before is not None else 0o666)
            try:
                self._file = open(fd, "wb")
            except BaseException:
                os.close(fd)
                raise
        except BaseException as e:
            self.abort()
            if isinstance(e, OSError):
                raise output_error(self.path, e) from e
            raise
        return self

    def _create(self, mode: int) -> int:
        try:
            fd = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, mode, dir_fd=self._folder)
            if os.path.exists(f"/proc/self/fd/{fd}"):  # by which it gets a name
                return fd
            os.close(fd)
        except OSError as e:
            if e.errno not in _WITHOUT_TMPFILE:
                raise
        part = self._take_part_name()
        return os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, mode,
                       dir_fd=self._folder)

    def _take_part_name(self) -> str:
        """Choose a temporary name, which is removed from here on, before there is a file of it."""
        self._part = f".splatview-{os.urandom(8).hex()}.part"
        _parts[self._part] = os.getpid(), self._folder
        return self._part

    def commit(self) -> None:
        """Give the complete file its name. Raises OutputError; nothing of it is left then."""
        try:
            self.file.flush()
            os.close(os.dup(self.file.fileno()))  # network file systems report a full disk when a file is closed
            if self._existing == "replace":
                self._replace()
            else:
                self._add()
        except BaseException as e:
            self.abort()
            if isinstance(e, OSError):
                raise output_error(self.path, e) from e
            raise
        self.abort()

    def _replace(self) -> None:
        now = _lstat(self._name, self._folder)
        if now is not None and stat.S_ISLNK(now.st_mode):
            raise OutputError(self.path, "it was replaced by a link meanwhile; try again")
        _refuse_special(self.path, now)
        self._inherit(now or self._before)
        if now is None:
            with contextlib.suppress(FileExistsError):  # made meanwhile by another process: replace it
                self._link(self._name)
                return
        if not self._part:
            self._link(self._take_part_name())
        os.rename(self._part, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._forget_part()

    def _add(self) -> None:
        """Take the first name that is free."""
        for i in range(1, _MOST_NAMES if self._existing == "number" else 2):
            path = self.path if i == 1 else self.path.with_name(f"{self.path.stem}-{i}{self.path.suffix}")
            try:
                self._link(path.name)
            except FileExistsError:
                continue
            self.path = path
            return
        raise OutputError(self.path, "it exists already; choose another name" if self._existing == "refuse" else
                          _TOO_MANY, errno.EEXIST)

    def _link(self, name: str) -> None:
        """Give the file a name that nothing has. Raises FileExistsError where something has it."""
        if not self._part or name == self._part:
            os.link(f"/proc/self/fd/{self.file.fileno()}", name, dst_dir_fd=self._folder, follow_symlinks=True)
            return
        try:
            os.link(self._part, name, src_dir_fd=self._folder, dst_dir_fd=self._folder, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links: the name is taken by an empty file first
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600,
                             dir_fd=self._folder))
            try:
                os.rename(self._part, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            except BaseException:
                os.unlink(name, dir_fd=self._folder)
                raise
            self._forget_part()

    def _inherit(self, before: os.stat_result | None) -> None:
        """Take over the permissions and the group of the file that is replaced."""
        if before is None:
            return
        fd, mode = self.file.fileno(), stat.S_IMODE(before.st_mode) & 0o777
        mine = os.fstat(fd)
        if mine.st_gid != before.st_gid:
            try:
                os.fchown(fd, -1, before.st_gid)
            except OSError:  # another group gets no more than all users do
                mode = mode & 0o707 | (mode & 0o007) << 3 & mode
        if stat.S_IMODE(mine.st_mode) != mode:
            os.fchmod(fd, mode)

    def abort(self) -> None:
        """Remove what is not complete. Idempotent; after `commit` only closes."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # a full disk refuses what is still in the buffer
                file.close()
        if self._part:
            with contextlib.suppress(OSError):
                os.unlink(self._part, dir_fd=self._folder)
            self._forget_part()
        folder, self._folder = self._folder, -1
        if folder >= 0:
            os.close(folder)

    def _forget_part(self) -> None:
        _parts.pop(self._part, None)
        self._part = ""

    def __enter__(self) -> OutputFile:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()


def write_output(path: str | os.PathLike[str], content: Any, *, private: bool = False) -> None:
    """Write bytes as a file, or replace one by them. Raises OutputError."""
    try:
        with OutputFile(path, private=private) as out:
            out.file.write(content)
    except OSError as e:
        raise output_error(path, e) from e


def _folder_of(path: str | os.PathLike[str], at: int | None = None) -> tuple[int, str]:
    """Open the folder of a path, relative to the folder `at`, and return it with the name within it."""
    folder, name = os.path.split(os.fspath(path).rstrip("/"))
    if name in ("", ".", ".."):
        raise OutputError(path, "it is a folder; expected a regular file or a new name", errno.EISDIR)
    return os.open(folder or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at), name


def _follow(path: str | os.PathLike[str]) -> tuple[int, str, os.stat_result | None]:
    """Follow links from `path` to its target: the open folder, the name within, and what has that name, if anything.

    The caller closes the folder. Raises OutputError for links in a circle and for untrusted ones.
    """
    try:
        reached = os.stat(path)  # where the kernel leads: links in /proc are no texts
    except OSError as e:
        if e.errno != errno.ENOENT:
            raise
        reached = None
    if reached is not None and not (stat.S_ISREG(reached.st_mode) or stat.S_ISDIR(reached.st_mode)):
        _refuse_special(path, reached)
    target, at, magic = os.fspath(path), None, False
    if reached is not None and stat.S_ISDIR(reached.st_mode) and os.path.basename(target) in ("", ".", ".."):
        target = os.path.realpath(target)
    for _ in range(_MOST_LINKS):
        try:
            folder, name = _folder_of(target, at)
        finally:
            if at is not None:
                os.close(at)
        at = folder
        try:
            info = _lstat(name, folder)
            if info is not None:
                _refuse_untrusted(path, info, os.fstat(folder))
            if info is None or not stat.S_ISLNK(info.st_mode):
                if magic and reached is not None and not (info is not None and os.path.samestat(info, reached)):
                    raise OutputError(path, "it leads to a file without a name; expected a regular file or a new name")
                return folder, name, info
            target = os.readlink(name, dir_fd=folder)
            magic = magic or os.fstat(folder).st_dev == os.stat("/proc").st_dev
        except BaseException:
            os.close(folder)
            raise
    os.close(at)  # type: ignore[arg-type]
    raise OutputError(path, os.strerror(errno.ELOOP), errno.ELOOP)


def _lstat(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return None


def _refuse_special(path: str | os.PathLike[str], info: os.stat_result | None) -> None:
    if info is None or stat.S_ISREG(info.st_mode):
        return
    raise OutputError(path, f"it is {_KINDS.get(stat.S_IFMT(info.st_mode), 'not a file')}; expected a regular file or "
                            "a new name", errno.EISDIR if stat.S_ISDIR(info.st_mode) else errno.EINVAL)


def _refuse_untrusted(path: str | os.PathLike[str], info: os.stat_result, folder: os.stat_result) -> None:
    """Refuse another user's link or file in a sticky folder that all users can write, such as /tmp.

    The kernel has the same rule (fs.protected_symlinks, fs.protected_regular), where it is switched on.
    """
    if folder.st_mode & _STICKY != _STICKY or info.st_uid in (os.geteuid(), folder.st_uid):
        return
    if stat.S_ISDIR(info.st_mode):  # its own permissions decide
        return
    kind = _KINDS.get(stat.S_IFMT(info.st_mode), "a file")
    raise OutputError(path, f"it is {kind} of another user (uid {info.st_uid}) in a folder that all users can write; "
                            "choose another folder", errno.EACCES)


def _reason(path: str | os.PathLike[str], error: OSError) -> str:
    folder = os.path.dirname(os.fspath(path).rstrip("/")) or "."
    if error.errno == errno.ENOENT:
        if os.path.islink(path):
            return f"it is a link to {os.path.realpath(path)!r}, and there is no such folder; make it first"
        if not os.path.isdir(folder):
            return f"there is no folder {_absolute(folder)!r}; make it first"
        return "its folder takes no new files; choose another"
    if error.errno == errno.ENOTDIR and error.filename is not None and not os.path.isdir(folder):
        return f"{folder!r} is not a folder"
    return error.strerror or str(error) or type(error).__name__


def _absolute(folder: str) -> str:
    try:
        return os.path.abspath(folder)
    except OSError:  # the working folder was removed
        return folder


def _remove_parts() -> None:
    """Remove what threads were writing when the program ended."""
    for part, (pid, folder) in list(_parts.items()):
        if pid == os.getpid():
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=folder)


atexit.register(_remove_parts)
