"""Files of pages: uploads into a private folder of this viewer, within bounds, and
downloads of what is offered.
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
from typing import TYPE_CHECKING

from aiohttp import web

from splatview_viewer.core.events import FileDrop
from splatview_viewer.core.format import size_text
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats.pictures import safe_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import StreamReader

    from splatview_viewer.web.server import PageConnection

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
_YOUNG = 60.0
"""Seconds within which a viewer locks a folder that it made."""

_log = logging.getLogger(__name__)


class Files:
    """Files of connected pages.

    The server has checked host, origin and token before.

    Only the owner may look into the folder of uploads, and it goes with `close`. What a
    killed viewer has left is removed by the next one that begins. `receive` and
    `hand_out` answer requests in the web thread.
    """

    def __init__(self, connections: Mapping[str, PageConnection]) -> None:
        """`connections`: the present ones by their keys."""
        around = Path(tempfile.gettempdir())
        Thread(target=_sweep, args=(around,), name="sweep", daemon=True).start()
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=around))
        self._held = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._connections = connections
        self._workers = ThreadPoolExecutor(_WORKERS, "splatview files")
        self._lock = Lock()
        self._kept: dict[Path, int] = {}
        """Bytes of each upload that have come."""
        self._coming: list[PageConnection] = []
        """The page of each upload that is on its way. In the web thread."""
        self._count = 0

    async def receive(self, request: web.Request) -> web.Response:
        """Take a file for the user of the page that sends it, or keep nothing of it."""
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
        self._check_number(name, connection)
        path = self._new_path(name)
        taken = False
        self._coming.append(connection)
        try:
            await self._write(request.content, path)
            taken = connection.put(FileDrop((str(path),), self.remove))
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
            if not taken:
                self.remove(path)
        if not taken:
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
                    "that a page can send. Open it where "
                    "the viewer runs"
                ),
            )
        room = self._room()
        if size > room:
            raise _no_room(name, size, room)

    def _check_number(self, name: str, connection: PageConnection) -> None:
        """Refuse a file beside too many others."""
        with self._lock:
            kept = len(self._kept)
        if kept >= MAX_FILES:
            raise web.HTTPTooManyRequests(
                text=f"{name} is not taken: the viewer has {MAX_FILES} files of pages, the most. Close some in the list"
            )
        is_full = len(self._coming) >= MAX_COMING
        if is_full or self._coming.count(connection) >= MAX_COMING_OF_PAGE:
            raise web.HTTPTooManyRequests(
                text=f"{name} is not taken: too many files are on their way. Send it once they have come",
                headers={"Retry-After": "5"},
            )

    def _new_path(self, name: str) -> Path:
        """Return the path of a new upload, in a folder of its own: names may be the
        same.
        """
        with self._lock:
            self._count += 1
            path = self._folder / str(self._count) / name
            self._kept[path] = 0
        return path

    def _room(self) -> int:
        """Return how many bytes more may be kept.

        Only what has come counts: a size that is only announced holds none.
        """
        free = shutil.disk_usage(self._folder).free
        with self._lock:
            return min(MAX_KEPT - sum(self._kept.values()), free - SPARE)

    async def _write(self, content: StreamReader, path: Path) -> None:
        """Write what comes into a new file.

        Raises TimeoutError where too little comes, OSError, and the answer for a file
        that fills the room meanwhile.
        """
        loop = asyncio.get_running_loop()
        path.parent.mkdir(mode=0o700)
        with path.open("xb") as file:
            waited = 0.0
            progress = 0
            while True:
                began_at = loop.time()
                chunk = await asyncio.wait_for(content.readany(), STALL - waited)
                if not chunk:
                    return
                waited += loop.time() - began_at
                progress += len(chunk)
                if progress >= LEAST_PROGRESS:
                    waited = 0.0
                    progress = 0
                room = self._room()
                if len(chunk) > room:
                    raise _no_room(path.name, len(chunk), room)
                with self._lock:
                    self._kept[path] += len(chunk)
                await loop.run_in_executor(self._workers, file.write, chunk)

    async def hand_out(self, request: web.Request) -> web.Response:
        """Send what was offered to a page; each offer is good for one time."""
        key = request.query.get("key", "")
        found = [
            c.offers.pop(key) for c in [*self._connections.values()] if key in c.offers
        ]
        if not found:
            raise web.HTTPNotFound(
                text="This file was taken already, or is not offered any more"
            )
        try:
            if isinstance(found[0], bytes):
                body = found[0]
            else:
                body = await asyncio.get_running_loop().run_in_executor(
                    self._workers, open_regular, found[0]
                )
        except OSError as e:
            raise web.HTTPNotFound(
                text=f"{found[0]}: cannot be read: {e.strerror or e}"
            ) from e
        return web.Response(
            body=body,
            headers={
                "Content-Type": "application/octet-stream",
                "Cache-Control": "no-store",
                "Content-Disposition": "attachment",
            },
        )

    # -- from any thread ---------------------------------------------------------------

    def remove(self, path: Path) -> None:
        """Remove an upload that is not needed any more. Idempotent."""
        with self._lock:
            if self._kept.pop(path, None) is None:
                return
        # Removing gigabytes takes a while, and the caller may be the thread that draws.
        with suppress(RuntimeError):  # closed meanwhile, which removes all
            self._workers.submit(shutil.rmtree, path.parent, True)

    def close(self) -> None:
        """Remove all uploads, once the web thread has ended."""
        self._workers.shutdown(cancel_futures=True)
        with self._lock:
            self._kept.clear()
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(
            self._held
        )  # last: without the lock another viewer would remove the folder as well


def _no_room(name: str, size: int, room: int) -> web.HTTPException:
    return web.HTTPInsufficientStorage(
        text=(
            f"There is no room for {name} on the viewer's machine: it has "
            f"{size_text(size)}, and "
            f"{size_text(max(room, 0))} are the most. Close some in the list"
        )
    )


def _sweep(around: Path) -> None:
    """Remove folders of this user's killed viewers: those without a lock."""
    for folder in around.glob(f"{_PREFIX}*"):
        try:
            lock = os.open(
                folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
            )
        except OSError:
            continue
        try:
            found = os.fstat(lock)
            is_old = time.time() - found.st_mtime > _YOUNG
            if found.st_uid == os.getuid() and is_old and _has_uploads_alone(lock):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # it is in use
            pass
        finally:
            os.close(lock)


def _has_uploads_alone(folder: int) -> bool:
    """Return whether a folder has only what `Files` makes: a numbered folder for each.

    The user may have named one likewise, and where others write and nothing keeps them
    from renaming (TMPDIR), so may they have with any folder of the user's.
    """
    with os.scandir(folder) as entries:
        return all(
            entry.name.isdecimal() and entry.is_dir(follow_symlinks=False)
            for entry in entries
        )


def file_name(user_name: str) -> str:
    """Return one safe part of a path for the name of a user's file."""
    stem, suffix = os.path.splitext(
        unicodedata.normalize("NFC", user_name).replace("\\", "/").rpartition("/")[2]
    )
    suffix = safe_name(suffix, "")[:16]
    return safe_name(stem, "file") + (f".{suffix}" if suffix else "")
