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
        """The status of HTTP."""


class Files:
    """Files of connected pages. The server has checked host, origin and token before.

    The folder of uploads is made with the first file, only its owner may look into it, and it goes with `close`. What a
    killed viewer has left is removed by the next one that begins or takes a file.
    """

    def __init__(self, connections: Callable[[], Iterable[Connection]]) -> None:
        """`connections`: returns the present ones."""
        Thread(target=_sweep, args=(Path(tempfile.gettempdir()),), name="sweep", daemon=True).start()
        self._connections = connections
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._lock = Lock()
        self._folder: Path | None = None
        self._held = -1
        """The lock of the folder."""
        self._kept: dict[Path, int] = {}
        """Bytes of each upload, those to come included."""
        self._count = 0
        self._closed = False

    # -- in the web thread -------------------------------------------------------------------------------------------

    async def receive(self, request: web.Request, now: float) -> None:
        """Take a file for the user of the page that sends it. Raises Refused, and keeps nothing then."""
        given = request.headers.get(KEY_HEADER, "").encode("utf-8", "replace")
        connection = next((c for c in self._connections() if hmac.compare_digest(c.key.encode(), given)), None)
        if connection is None or connection.closed:
            raise Refused(403, "Only a page that is connected may send files")
        size = request.content_length
        if size is None:
            raise Refused(411, "A file comes with its size, in Content-Length")
        async with self._at_once:
            path = await asyncio.to_thread(self._reserve, safe_name(request.query.get("name", "")), size)
            try:
                with path.open("xb") as file:
                    await _write(request.content, path.name, file, size, connection)
                if not connection.put(FileDrop((str(path),), self.remove), now):
                    raise Refused(410, f"The connection to the viewer was lost while {path.name} was sent")
            except OSError as e:
                self.remove(path)
                _log.warning("%s: cannot be written: %s", path, e.strerror or e)
                if e.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise Refused(507, f"There is no room for {path.name} on the disk of the viewer's machine") from e
                raise Refused(500, f"{path.name} cannot be written on the viewer's machine: {e.strerror or e}") from e
            except BaseException:
                self.remove(path)
                raise

    def _reserve(self, name: str, size: int) -> Path:
        """Return a path for a file of this size, in a folder of its own: names may be the same."""
        if size > MAX_FILE:
            raise Refused(413, f"{name} has {in_words(size)}; {in_words(MAX_FILE)} is the most that a page can send. "
                               "Open it where the viewer runs")
        with self._lock:
            if self._closed:
                raise Refused(410, "The viewer has ended")
            if len(self._kept) >= MAX_COUNT or sum(self._kept.values()) + size > MAX_KEPT:
                raise Refused(507, f"There is no room for {name}: this viewer keeps {MAX_COUNT} files and "
                                   f"{in_words(MAX_KEPT)} of those that were sent to it. Close some in the list")
            try:
                if self._folder is None:
                    _sweep(Path(tempfile.gettempdir()))
                    self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
                    self._held = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                    fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                free = shutil.disk_usage(self._folder).free - SPARE
                if size > free:
                    raise Refused(507, f"There is no room for {name} on the disk of the viewer's machine: it has "
                                       f"{in_words(size)}, and {in_words(max(free, 0))} are free")
                self._count += 1
                path = self._folder / str(self._count) / name
                path.parent.mkdir(mode=0o700)
            except OSError as e:
                raise Refused(500, f"{name} cannot be written on the viewer's machine: {e.strerror or e}") from e
            self._kept[path] = size
            return path

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
            file = await asyncio.to_thread(open_regular, content)
        except OSError as e:
            raise Refused(404, f"{content}: cannot be read: {e.strerror or e}") from e
        with file:
            return await _sent(request, file, headers)

    # -- from any thread ---------------------------------------------------------------------------------------------

    def remove(self, path: Path) -> None:
        """Remove an upload that is not needed any more. Idempotent."""
        with self._lock:
            if self._kept.pop(path, None) is None:
                return
        # Removing gigabytes takes a while, and the caller may be the thread that draws.
        Thread(target=shutil.rmtree, args=(path.parent, True), name="remove", daemon=True).start()

    def close(self) -> None:
        """Remove all uploads and reject further ones. Idempotent."""
        with self._lock:
            self._closed = True
            self._kept.clear()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                os.close(self._held)  # last: without the lock another viewer would remove the folder as well
                self._folder = None


async def _write(content: StreamReader, name: str, file: BinaryIO, size: int, connection: Connection) -> None:
    """Write what comes, in another thread. Raises Refused where it ends or stalls before all has come."""
    come = 0
    while True:
        try:
            chunk = await asyncio.wait_for(content.readany(), STALL)
        except TimeoutError:
            raise Refused(408, f"{name}: nothing came for {STALL:g} s") from None
        except Exception as e:  # the connection broke, or is no HTTP any more
            raise Refused(400, f"{name} did not come as a whole: {e}") from None
        if not chunk:
            break
        await asyncio.to_thread(file.write, chunk)
        come += len(chunk)
        if connection.closed:
            raise Refused(410, f"The connection to the viewer was lost while {name} was sent")
    if come != size:
        raise Refused(400, f"{name} did not come as a whole: {come:,} of {size:,} bytes")


async def _sent(request: web.Request, file: BinaryIO, headers: dict[str, str]) -> web.StreamResponse:
    size = os.fstat(file.fileno()).st_size
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


def _sweep(around: Path) -> None:
    """Remove folders of this user's killed viewers: those without a lock."""
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
