"""Files that pages upload: in a private folder of this viewer, within bounds, until they are not needed any more."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import shutil
import stat
import tempfile
import time
import unicodedata
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from aiohttp import StreamReader

MAX_FILE = 4 * 1024**3
"""Bytes of one file."""
MAX_KEPT = 8 * 1024**3
"""Bytes of all that are kept."""
MAX_COUNT = 256
AT_ONCE = 2
"""Uploads at a time."""
SPARE = 512 * 1024**2
"""Bytes of the disk that stay free."""
STALL = 20.0
"""Seconds without a byte after which a file does not come any more."""
_PREFIX = "splatview-files-"
_LOCK = "lock"
_YOUNG = 60.0
"""Seconds within which another viewer locks a hidden folder that it made."""
_MOST_LEFT = 100
"""Folders that are removed at a time."""
_MOST_NAME = 200

_log = logging.getLogger(__name__)


class Refused(Exception):  # noqa: N818  (an answer to the page, not a fault here)
    """Why a file is rejected, for users."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        """Of HTTP."""


class Uploads:
    """The folder is made with the first file, only its owner may look into it, and it goes with `close`. What a killed
    viewer has left is removed by the next one that begins or takes a file."""

    def __init__(self) -> None:
        Thread(target=_sweep, args=(Path(tempfile.gettempdir()),), name="sweep", daemon=True).start()
        self._lock = Lock()
        self._folder: Path | None = None
        self._held: int | None = None
        """The lock of the folder."""
        self._kept: dict[Path, int] = {}
        """Bytes of each file, those to come included."""
        self._running = self._count = 0
        self._closed = False

    async def take(self, content: StreamReader, name: str, size: int, wanted: Callable[[], bool]) -> Path:
        """Write the body of a request into a file called `name`, as far as a name can. Called in the web thread.

        Raises Refused when it is too large or incomplete, or once `wanted` returns False; nothing is kept then.
        """
        path = await asyncio.to_thread(self._reserve, name, size)
        try:
            with path.open("xb") as file:
                await _write(content, path, file, size, wanted)
        except BaseException as e:
            self.remove(path)
            if not isinstance(e, OSError):
                raise
            _log.warning("%s: cannot be written: %s", path, e.strerror or e)
            if e.errno in (errno.ENOSPC, errno.EDQUOT):
                raise Refused(507, f"There is no room for {path.name} on the disk of the viewer's machine") from e
            raise Refused(500, f"{path.name} cannot be written on the viewer's machine: {e.strerror or e}") from e
        finally:
            with self._lock:
                self._running -= 1
        return path

    def _reserve(self, name: str, size: int) -> Path:
        """A path for a file of this size, in a folder of its own: names may be the same."""
        name = safe_name(name)
        if size > MAX_FILE:
            raise Refused(413, f"{name} has {in_words(size)}; {in_words(MAX_FILE)} is the most that a page can send. "
                               "Open it where the viewer runs")
        with self._lock:
            if self._closed:
                raise Refused(410, "The viewer has ended")
            if self._running >= AT_ONCE:
                raise Refused(503, f"{AT_ONCE} files are being sent to this viewer already")
            if len(self._kept) >= MAX_COUNT or sum(self._kept.values()) + size > MAX_KEPT:
                raise Refused(507, f"There is no room for {name}: this viewer keeps {MAX_COUNT} files and "
                                   f"{in_words(MAX_KEPT)} of those that were sent to it. Close some in the list")
            try:
                folder = self._own_folder()
                free = shutil.disk_usage(folder).free - SPARE
                if size > free:
                    raise Refused(507, f"There is no room for {name} on the disk of the viewer's machine: it has "
                                       f"{in_words(size)}, and {in_words(max(free, 0))} are free")
                self._count += 1
                path = folder / str(self._count) / name
                path.parent.mkdir(mode=0o700)
            except OSError as e:
                raise Refused(500, f"{name} cannot be written on the viewer's machine: {e.strerror or e}") from e
            self._kept[path] = size
            self._running += 1
            return path

    def _own_folder(self) -> Path:
        if self._folder is None:
            around = Path(tempfile.gettempdir())
            _sweep(around)
            self._folder, self._held = _make_folder(around)
        return self._folder

    def remove(self, path: Path) -> None:
        """Remove a file that is not needed any more. From any thread; idempotent."""
        with self._lock:
            if self._kept.pop(path, None) is None:
                return
        # Removing gigabytes takes a while, and the caller may be the thread that draws.
        Thread(target=shutil.rmtree, args=(path.parent, True), name="remove", daemon=True).start()

    def close(self) -> None:
        """Remove everything and reject further files. Idempotent."""
        with self._lock:
            self._closed = True
            folder, self._folder = self._folder, None
            held, self._held = self._held, None
            self._kept.clear()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        if held is not None:
            os.close(held)  # last: without the lock another viewer would remove the folder as well


async def _write(content: StreamReader, path: Path, file: BinaryIO, size: int, wanted: Callable[[], bool]) -> None:
    """Write what comes, in another thread. Raises Refused where it ends or stalls before all has come."""
    come = 0
    while True:
        try:
            chunk = await asyncio.wait_for(content.readany(), STALL)
        except TimeoutError:
            raise Refused(408, f"{path.name}: nothing came for {STALL:g} s") from None
        except Exception as e:  # the connection broke, or is no HTTP any more
            raise Refused(400, f"{path.name} did not come as a whole: {e}") from None
        if not chunk:
            break
        await asyncio.to_thread(file.write, chunk)
        come += len(chunk)
        if not wanted():
            raise Refused(410, f"The connection to the viewer was lost while {path.name} was sent")
    if come != size:
        raise Refused(400, f"{path.name} did not come as a whole: {come:,} of {size:,} bytes")


def _make_folder(around: Path) -> tuple[Path, int]:
    """Make a folder, and lock it before it gets the name that other viewers look for. Raises OSError."""
    hidden = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=around))
    lock = -1
    try:
        lock = os.open(hidden / _LOCK, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder = around / hidden.name[1:]
        hidden.rename(folder)
        return folder, lock
    except OSError:
        shutil.rmtree(hidden, ignore_errors=True)
        if lock >= 0:
            os.close(lock)
        raise


def _sweep(around: Path) -> None:
    """Remove folders of this user's killed viewers: those whose locks are free."""
    left = (f for pattern in (f"{_PREFIX}*", f".{_PREFIX}*") for f in around.glob(pattern) if _is_ours(f))
    for folder in islice(left, _MOST_LEFT):
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            with suppress(OSError):  # killed before it had a lock, and so before there was a file
                folder.rmdir()
            continue
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # it is in use
            pass
        finally:
            os.close(lock)


def _is_ours(folder: Path) -> bool:
    """Return whether this user made a folder. A young hidden one does not count: it may be about to be locked."""
    try:
        found = folder.stat(follow_symlinks=False)
    except OSError:
        return False
    young = folder.name.startswith(".") and time.time() - found.st_mtime < _YOUNG
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not young


def safe_name(given: str) -> str:
    """Return one safe part of a path for a given file name, without invisible characters."""
    last = unicodedata.normalize("NFC", given).replace("\\", "/").rpartition("/")[2]
    name = "".join(c for c in last if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
    name = name.strip(" .") or "file"
    stem, suffix = os.path.splitext(name)
    suffix = suffix if len(suffix.encode()) <= 20 else ""
    room = _MOST_NAME - len(suffix.encode())
    return (stem if suffix else name).encode()[:room].decode(errors="ignore").rstrip(" .") + suffix


def in_words(size: int) -> str:
    """Return a number of bytes in words: 1.5 GB."""
    for unit, words in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {words}"
    return f"{size} bytes"
