"""Uploads and downloads of pages, over HTTP beside their WebSockets."""

from __future__ import annotations

import asyncio
import hmac
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.helpers import content_disposition_header

from splatview_viewer.core.regular import open_regular
from splatview_viewer.web.connection import Upload
from splatview_viewer.web.uploads import STALL, Refused, Uploads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from typing import BinaryIO

    from splatview_viewer.web.connection import Connection

KEY_HEADER = "X-Splatview-Page"
"""Header with the key of the connection whose page sends a file. Forms of foreign pages cannot send it."""
_BLOCK = 256 * 1024


class Files:
    """Files of connected pages. The server has checked host, origin and token before. Web thread."""

    def __init__(self, connections: Callable[[], Iterable[Connection]]) -> None:
        """`connections`: returns the present ones."""
        self._connections = connections
        self.uploads = Uploads()

    async def receive(self, request: web.Request) -> None:
        """Take a file for the user of the page that sends it. Raises Refused."""
        given = request.headers.get(KEY_HEADER, "").encode("utf-8", "replace")
        connection = next((c for c in self._connections() if hmac.compare_digest(c.key.encode(), given)), None)
        if connection is None or connection.closed:
            raise Refused(403, "Only a page that is connected may send files")
        size = request.content_length
        if size is None:
            raise Refused(411, "A file comes with its size, in Content-Length")
        path = await self.uploads.take(request.content, request.query.get("name", ""), size,
                                       lambda: not connection.closed)
        if not connection.hand_in(Upload(path, self.uploads.remove)):
            self.uploads.remove(path)
            raise Refused(410, f"The connection to the viewer was lost while {path.name} was sent")

    async def hand_out(self, request: web.Request, headers: dict[str, str]) -> web.StreamResponse:
        """Send a file that was offered to a page; each offer is good for one time. Raises Refused."""
        key = request.query.get("key", "")
        path = next((p for c in self._connections() if (p := c.offered(key)) is not None), None)
        if path is None:
            raise Refused(404, "This file was taken already, or is not offered any more")
        return await self._sent(request, path, headers)

    async def _sent(self, request: web.Request, path: Path, headers: dict[str, str]) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        try:
            file, size = await loop.run_in_executor(None, _open, path)
        except OSError as e:
            raise Refused(404, f"{path}: cannot be read: {e.strerror or e}") from e
        response = web.StreamResponse(headers={
            **headers, "Content-Type": "application/octet-stream", "Cache-Control": "no-store",
            "Content-Disposition": content_disposition_header("attachment", filename=path.name)})
        response.content_length = size
        try:
            await response.prepare(request)
            while size > 0:
                block = await loop.run_in_executor(None, file.read, min(size, _BLOCK))
                if not block:  # it has become shorter
                    raise ConnectionResetError
                await asyncio.wait_for(response.write(block), STALL)
                size -= len(block)
            await response.write_eof()
        except OSError:  # the browser reports a broken file
            if request.transport is not None:
                request.transport.abort()
        finally:
            file.close()
        return response

    def close(self) -> None:
        """Remove all uploads. Idempotent."""
        self.uploads.close()


def _open(path: Path) -> tuple[BinaryIO, int]:
    file = open_regular(path)
    try:
        size = file.seek(0, 2)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file, size
