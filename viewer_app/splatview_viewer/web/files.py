"""Files of pages: uploads into a private folder of this viewer, within bounds, and downloads of what is offered."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import tempfile
import time
import unicodedata
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING

from aiohttp import web

from splatview_viewer.core.events import FileDrop
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats.pictures import safe_name
from splatview_viewer.ui.format import size_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from splatview_viewer.web.server import Connection

KEY_HEADER = "X-Splatview-Page"
"""Header with the key of the connection whose page sends a file. Forms of foreign pages cannot send it."""
MAX_FILE = 4 * 1024**3
"""Bytes of one file."""
MAX_KEPT = 8 * 1024**3
"""Bytes of all that are kept."""
SPARE = 512 * 1024**2
"""Bytes of the disk that stay free."""
STALL = 20.0
"""Seconds without a byte after which a file does not come any more."""
_PREFIX = "splatview-files-"
_YOUNG = 60.0
"""Seconds within which a viewer locks a folder that it made."""

_log = logging.getLogger(__name__)


class Files:
    """Files of connected pages. The server has checked host, origin and token before.

    Only the owner may look into the folder of uploads, and it goes with `close`. What a killed viewer has left is
    removed by the next one that begins. `receive` and `hand_out` answer requests in the web thread.
    """

    def __init__(self, connections: Mapping[str, Connection]) -> None:
        """`connections`: the present ones by their keys."""
        around = Path(tempfile.gettempdir())
        Thread(target=_sweep, args=(around,), name="sweep", daemon=True).start()
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=around))
        self._held = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._connections = connections
        self._lock = Lock()
        self._kept: dict[Path, int] = {}
        """Bytes of each upload, those to come included."""
        self._count = 0

    async def receive(self, request: web.Request) -> web.Response:
        """Take a file for the user of the page that sends it, or keep nothing of it."""
        connection = self._connections.get(request.headers.get(KEY_HEADER, ""))
        if connection is None:
            raise web.HTTPForbidden(text="Only a page that is connected may send files")
        size, name, taken = (
            request.content_length,
            file_name(request.query.get("name", "")),
            False,
        )
        if size is None:
            raise web.HTTPLengthRequired(
                text="A file comes with its size, in Content-Length"
            )
        if size > MAX_FILE:
            raise web.HTTPRequestEntityTooLarge(
                MAX_FILE,
                size,
                text=(
                    f"{name} has {size_text(size)}; {size_text(MAX_FILE)} is the most that a page can send. Open it where "
                    "the viewer runs"
                ),
            )
        with self._lock:
            room = min(
                MAX_KEPT - sum(self._kept.values()),
                shutil.disk_usage(self._folder).free - SPARE,
            )
            if size > room:
                raise web.HTTPInsufficientStorage(
                    text=(
                        f"There is no room for {name} on the viewer's machine: it has {size_text(size)}, and "
                        f"{size_text(max(room, 0))} are the most. Close some in the list"
                    )
                )
            self._count += 1
            path = (
                self._folder / str(self._count) / name
            )  # in a folder of its own: names may be the same
            self._kept[path] = size
        try:
            path.parent.mkdir(mode=0o700)
            with path.open("xb") as file:
                while chunk := await asyncio.wait_for(request.content.readany(), STALL):
                    await asyncio.to_thread(file.write, chunk)
            taken = connection.put(FileDrop((str(path),), self.remove))
        except (TimeoutError, ConnectionError):
            raise web.HTTPRequestTimeout(
                text=f"{name} did not come as a whole"
            ) from None
        except OSError as e:
            _log.warning("%s: cannot be written: %s", path, e.strerror or e)
            raise web.HTTPInsufficientStorage(
                text=f"{name} cannot be written on the viewer's machine: {e.strerror or e}"
            ) from e
        finally:
            if not taken:
                self.remove(path)
        if not taken:
            raise web.HTTPGone(
                text=f"The connection to the viewer was lost while {name} was sent"
            )
        return web.Response(text="Taken.")

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
            body = (
                found[0]
                if isinstance(found[0], bytes)
                else await asyncio.to_thread(open_regular, found[0])
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

    # -- from any thread ---------------------------------------------------------------------------------------------

    def remove(self, path: Path) -> None:
        """Remove an upload that is not needed any more. Idempotent."""
        with self._lock:
            if self._kept.pop(path, None) is None:
                return
        # Removing gigabytes takes a while, and the caller may be the thread that draws.
        Thread(
            target=shutil.rmtree, args=(path.parent, True), name="remove", daemon=True
        ).start()

    def close(self) -> None:
        """Remove all uploads, once the web thread has ended."""
        with self._lock:
            self._kept.clear()
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(
            self._held
        )  # last: without the lock another viewer would remove the folder as well


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
            if found.st_uid == os.getuid() and time.time() - found.st_mtime > _YOUNG:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # it is in use
            pass
        finally:
            os.close(lock)


def file_name(given: str) -> str:
    """Return one safe part of a path for the name of a user's file."""
    stem, suffix = os.path.splitext(
        unicodedata.normalize("NFC", given).replace("\\", "/").rpartition("/")[2]
    )
    suffix = safe_name(suffix, "")[:16]
    return safe_name(stem, "file") + (f".{suffix}" if suffix else "")
