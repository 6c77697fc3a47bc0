"""Files of pages: uploads into a private folder of this viewer, and downloads.

Uploads are kept within bounds; a download is what the viewer offered to a page.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import tempfile
import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, BinaryIO

from aiohttp import web

from splatview_viewer.core.events import FileDrop
from splatview_viewer.core.quantities import size_text
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats.pictures import safe_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import StreamReader

    from splatview_viewer.web.connection import PageConnection

KEY_HEADER = "X-Splatview-Page"
"""Header with the key of the connection whose page sends a file. Forms of foreign pages
cannot send it."""
MAX_FILE = 4 * 1024**3
"""Bytes of one file."""
MAX_KEPT = 8 * 1024**3
"""Bytes of all that are kept."""
MAX_FILES = 256
"""Files that are kept."""
MAX_COMING = 32
"""Files that come at a time."""
MAX_COMING_OF_PAGE = 4
"""Those of one page, which sends one after the other."""
SPARE = 512 * 1024**2
"""Bytes of the disk that stay free."""
STALL = 20.0
"""Seconds of waiting within which LEAST_PROGRESS has to come, or the end of the file.
"""
LEAST_PROGRESS = 16 * 1024
"""Bytes: what comes more slowly holds its place for nothing."""
_WORKERS = 4
"""Threads that write, open and remove files."""
_PREFIX = "splatview-files-"
_MIN_SWEEP_AGE_S = 60.0
"""Seconds within which a viewer locks a folder that it made."""

_log = logging.getLogger(__name__)


class Files:
    """Files of connected pages.

    The server has checked host, origin and token before.

    Only the owner may look into the folder of uploads, and it goes with `close`. What a
    killed viewer has left is removed by the next one that starts. `receive` and
    `hand_out` answer requests in the web thread.
    """

    def __init__(self, connections: Mapping[str, PageConnection]) -> None:
        """Make the folder of uploads.

        `connections` are the present ones by their keys.
        """
        parent = Path(tempfile.gettempdir())
        Thread(target=_sweep, args=(parent,), name="sweep", daemon=True).start()
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        self._lock_fd = os.open(
            self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        )
        fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._connections = connections
        self._workers = ThreadPoolExecutor(_WORKERS, "splatview files")
        self._lock = Lock()
        self._uploads: dict[Path, int] = {}
        """Bytes of each upload that have come."""
        self._coming: list[PageConnection] = []
        """The page of each upload that is on its way. In the web thread."""
        self._count = 0

    async def receive(self, request: web.Request) -> web.Response:
        """Take a file for the user of the page that sends it.

        Nothing of it is kept if it does not come as a whole.
        """
        connection = self._connections.get(request.headers.get(KEY_HEADER, ""))
        if connection is None:
            raise web.HTTPForbidden(text="Only a page that is connected may send files")
        size = request.content_length
        name = file_name(request.query.get("name", ""))
        if size is None:
            raise web.HTTPLengthRequired(
                text="A file comes with its size, in Content-Length"
            )
        self._check_size(name, size)
        self._check_count(name, connection)
        path = self._new_path(name)
        is_taken = False
        self._coming.append(connection)
        try:
            await self._write(request.content, path)
            is_taken = connection.put(FileDrop((str(path),), self.remove))
        except (TimeoutError, ConnectionError):
            raise web.HTTPRequestTimeout(
                text=f"{name} did not come as a whole, or came too slowly"
            ) from None
        except OSError as e:
            _log.warning("%s: cannot be written: %s", path, e.strerror or e)
            raise web.HTTPInsufficientStorage(
                text=f"{name} cannot be written on the viewer's machine: {e.strerror or e}"
            ) from e
        finally:
            self._coming.remove(connection)
            if not is_taken:
                self.remove(path)
        if not is_taken:
            raise web.HTTPGone(
                text=f"The connection to the viewer was lost while {name} was sent"
            )
        return web.Response(text="Taken.")

    def _check_size(self, name: str, size: int) -> None:
        """Refuse a file that is too large, or for which there is no room now."""
        if size > MAX_FILE:
            raise web.HTTPRequestEntityTooLarge(
                MAX_FILE,
                size,
                text=(
                    f"{name} has {size_text(size)}; {size_text(MAX_FILE)} is the most "
                    "that a page can send. Open it where the viewer runs"
                ),
            )
        free_bytes = self._free_bytes()
        if size > free_bytes:
            raise _no_space(name, size, free_bytes)

    def _check_count(self, name: str, connection: PageConnection) -> None:
        """Refuse a file beside too many others."""
        with self._lock:
            upload_count = len(self._uploads)
        if upload_count >= MAX_FILES:
            raise web.HTTPTooManyRequests(
                text=(
                    f"{name} is not taken: the viewer has {MAX_FILES} files of pages, "
                    "the most. Close some in the list"
                )
            )
        is_full = len(self._coming) >= MAX_COMING
        if is_full or self._coming.count(connection) >= MAX_COMING_OF_PAGE:
            raise web.HTTPTooManyRequests(
                text=(
                    f"{name} is not taken: too many files are on their way. Send it "
                    "once they have come"
                ),
                headers={"Retry-After": "5"},
            )

    def _new_path(self, name: str) -> Path:
        """Return the path of a new upload.

        It is in a folder of its own, since names may be the same.
        """
        with self._lock:
            self._count += 1
            path = self._folder / str(self._count) / name
            self._uploads[path] = 0
        return path

    def _free_bytes(self) -> int:
        """Return how many bytes more may be kept.

        Only what has come counts: a size that is only announced holds none.
        """
        disk_free = shutil.disk_usage(self._folder).free
        with self._lock:
            kept_bytes = sum(self._uploads.values())
        return min(MAX_KEPT - kept_bytes, disk_free - SPARE)

    async def _write(self, content: StreamReader, path: Path) -> None:
        """Write what comes into a new file.

        Raises:
            TimeoutError: too little comes.
            OSError: the file cannot be written.
            HTTPException: the file fills the space meanwhile.
        """
        loop = asyncio.get_running_loop()
        path.parent.mkdir(mode=0o700)
        with path.open("xb") as file:
            waited = 0.0
            progress = 0
            while True:
                started_at = loop.time()
                chunk = await asyncio.wait_for(content.readany(), STALL - waited)
                if not chunk:
                    return
                waited += loop.time() - started_at
                progress += len(chunk)
                if progress >= LEAST_PROGRESS:
                    waited = 0.0
                    progress = 0
                free_bytes = self._free_bytes()
                if len(chunk) > free_bytes:
                    raise _no_space(path.name, len(chunk), free_bytes)
                with self._lock:
                    self._uploads[path] += len(chunk)
                await loop.run_in_executor(self._workers, file.write, chunk)

    async def hand_out(self, request: web.Request) -> web.Response:
        """Send what was offered to a page; each offer is good for one time."""
        content = self._take_offer(request.query.get("key", ""))
        if content is None:
            raise web.HTTPNotFound(
                text="This file was taken already, or is not offered any more"
            )
        body: bytes | BinaryIO
        if isinstance(content, bytes):
            body = content
        else:
            loop = asyncio.get_running_loop()
            try:
                body = await loop.run_in_executor(self._workers, open_regular, content)
            except OSError as e:
                raise web.HTTPNotFound(
                    text=f"{content}: cannot be read: {e.strerror or e}"
                ) from e
        return web.Response(
            body=body,
            headers={
                "Content-Type": "application/octet-stream",
                "Cache-Control": "no-store",
                "Content-Disposition": "attachment",
            },
        )

    def _take_offer(self, key: str) -> Path | bytes | None:
        """Return what was offered with a key, which is good for one time."""
        for connection in [*self._connections.values()]:
            if key in connection.offers:
                return connection.offers.pop(key)
        return None

    # -- from any thread ---------------------------------------------------------------

    def remove(self, path: Path) -> None:
        """Remove an upload that is not needed any more. Idempotent."""
        with self._lock:
            if self._uploads.pop(path, None) is None:
                return
        # Removing gigabytes takes a while, and the caller may be the thread that draws.
        # The workers may have been closed meanwhile, which removes all.
        with suppress(RuntimeError):
            self._workers.submit(shutil.rmtree, path.parent, True)

    def close(self) -> None:
        """Remove all uploads, once the web thread has ended."""
        self._workers.shutdown(cancel_futures=True)
        with self._lock:
            self._uploads.clear()
        shutil.rmtree(self._folder, ignore_errors=True)
        # This comes last: without the lock another viewer would remove the folder too.
        os.close(self._lock_fd)


def _no_space(name: str, size: int, free_bytes: int) -> web.HTTPException:
    """Return the answer for a file that does not fit."""
    return web.HTTPInsufficientStorage(
        text=(
            f"There is no room for {name} on the viewer's machine: it has "
            f"{size_text(size)}, and {size_text(max(free_bytes, 0))} are the most. "
            "Close some in the list"
        )
    )


def _sweep(parent: Path) -> None:
    """Remove folders of this user's killed viewers: those without a lock."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            folder_fd = os.open(folder, flags)
        except OSError:
            continue
        try:
            if _may_remove(folder_fd):
                fcntl.flock(folder_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            # Another viewer has the lock.
            pass
        finally:
            os.close(folder_fd)


def _may_remove(folder_fd: int) -> bool:
    """Return True for a folder of this user's that is old and has uploads alone."""
    status = os.fstat(folder_fd)
    is_old = time.time() - status.st_mtime > _MIN_SWEEP_AGE_S
    is_own = status.st_uid == os.getuid()
    return is_own and is_old and _has_uploads_alone(folder_fd)


def _has_uploads_alone(folder_fd: int) -> bool:
    """Return True if a folder has only what `Files` makes: numbered folders.

    The user may have named one likewise, and where others write and nothing keeps them
    from renaming (TMPDIR), so may they have with any folder of the user's.
    """
    with os.scandir(folder_fd) as entries:
        return all(
            entry.name.isdecimal() and entry.is_dir(follow_symlinks=False)
            for entry in entries
        )


def file_name(user_name: str) -> str:
    """Return a name that is safe as one part of a path, for that of a user's file."""
    normal = unicodedata.normalize("NFC", user_name).replace("\\", "/")
    stem, suffix = os.path.splitext(normal.rpartition("/")[2])
    name = safe_name(stem, "file")
    suffix = safe_name(suffix, "")[:16]
    if suffix:
        return f"{name}.{suffix}"
    return name
