"""Files of pages: uploads into a private folder of this viewer, within bounds, and downloads of what is offered."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hmac
import logging
import os
import shutil
import tempfile
import time
import unicodedata
from itertools import islice
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, BinaryIO

from aiohttp import web
from aiohttp.helpers import content_disposition_header

from splatview_viewer.core.events import FileDrop
from splatview_viewer.core.regular import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aiohttp import StreamReader

    from splatview_viewer.web.connection import Connection

KEY_HEADER = "X-Splatview-Page"
"""Header with the key of the connection whose page sends a file. Forms of foreign pages cannot send it."""
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
_YOUNG = 60.0
"""Seconds within which a viewer locks a folder that it made."""
_MOST_LEFT = 100
"""Folders that are removed at a time."""
_MOST_NAME = 200
_BLOCK = 256 * 1024

_log = logging.getLogger(__name__)


class Refused(Exception):  # noqa: N818  (an answer to the page, not a fault here)
    """Why a file is rejected, for users."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        """Of HTTP."""


class Files:
    """Files of connected pages. The server has checked host, origin and token before. Web thread."""

    def __init__(self, connections: Callable[[], Iterable[Connection]]) -> None:
        """`connections`: returns the present ones."""
        self._connections = connections
        self._uploads = Uploads()

    async def receive(self, request: web.Request, now: float) -> None:
        """Take a file for the user of the page that sends it. Raises Refused."""
        given = request.headers.get(KEY_HEADER, "").encode("utf-8", "replace")
        connection = next((c for c in self._connections() if hmac.compare_digest(c.key.encode(), given)), None)
        if connection is None or connection.closed:
            raise Refused(403, "Only a page that is connected may send files")
        size = request.content_length
        if size is None:
            raise Refused(411, "A file comes with its size, in Content-Length")
        path = await self._uploads.take(request.content, request.query.get("name", ""), size,
                                        lambda: not connection.closed)
        if not connection.put(FileDrop((str(path),), self._uploads.remove), now):
            self._uploads.remove(path)
            raise Refused(410, f"The connection to the viewer was lost while {path.name} was sent")

    async def hand_out(self, request: web.Request, headers: dict[str, str]) -> web.StreamResponse:
        """Send what was offered to a page; each offer is good for one time. Raises Refused."""
        key = request.query.get("key", "")
        found = next((offer for c in self._connections() if (offer := c.offered(key)) is not None), None)
        if found is None:
            raise Refused(404, "This file was taken already, or is not offered any more")
        name, content = found
        headers = {**headers, "Content-Type": "application/octet-stream", "Cache-Control": "no-store",
                   "Content-Disposition": content_disposition_header("attachment", filename=name)}
        if isinstance(content, bytes):
            return web.Response(body=content, headers=headers)
        try:
            file, size = await asyncio.to_thread(_open, content)
        except OSError as e:
            raise Refused(404, f"{content}: cannot be read: {e.strerror or e}") from e
        with file:
            return await _sent(request, file, size, headers)

    def close(self) -> None:
        """Remove all uploads. Idempotent."""
        self._uploads.close()


async def _sent(request: web.Request, file: BinaryIO, size: int, headers: dict[str, str]) -> web.StreamResponse:
    response = web.StreamResponse(headers=headers)
    response.content_length = size
    try:
        await response.prepare(request)
        while size > 0:
            block = await asyncio.to_thread(file.read, min(size, _BLOCK))
            if not block:  # it has become shorter
                raise ConnectionResetError
            await asyncio.wait_for(response.write(block), STALL)
            size -= len(block)
        await response.write_eof()
    except OSError:  # the browser reports a broken file
        if request.transport is not None:
            request.transport.abort()
    return response


def _open(path: Path) -> tuple[BinaryIO, int]:
    file = open_regular(path)
    return file, os.fstat(file.fileno()).st_size


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
    """Make a folder and lock it. Raises OSError."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=around))
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return folder, lock


def _sweep(around: Path) -> None:
    """Remove folders of this user's killed viewers: those that nobody has locked."""
    for folder in islice(around.glob(f"{_PREFIX}*"), _MOST_LEFT):
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            found = os.fstat(lock)
            if found.st_uid == os.getuid() and time.time() - found.st_mtime > _YOUNG:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # it is in use
            pass
        finally:
            os.close(lock)


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
