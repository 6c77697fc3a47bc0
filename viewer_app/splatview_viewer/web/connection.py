"""A page's WebSocket: received messages wait for the thread that draws, sent ones wait here."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict, deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import WSMsgType

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import FileDrop, Inbox, PointerMove, Resize
from splatview_viewer.web import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from splatview_viewer.core.events import Event
    from splatview_viewer.web.sender import Sender

MAX_OFFERS = 8
"""Files that wait to be fetched; a further one replaces the oldest."""
_LAST_WORDS = 0.3
"""Seconds within which messages that wait are still sent when the connection ends."""

_log = logging.getLogger(__name__)


class Connection:
    """One page. Made by the server after the page's hello; usable from any thread.

    `inbox` has what the page sends. What is sent after the connection is over is dropped.
    """

    def __init__(self, socket: web.WebSocketResponse, hello: m.Hello, peer: str, wake: Callable[[], None]) -> None:
        """Call it in the web thread. `peer`: the page's address and port, for messages. `wake`: called when there is
        something in the inbox, another picture may be drawn, or the connection is over."""
        self.hello = hello
        self.peer = peer
        self.wake = wake
        self.inbox: Inbox[Event | m.Visible] = Inbox(_supersedes)
        self.pictures: Sender | None = None
        self.offers: OrderedDict[str, Path | bytes] = OrderedDict()
        """Each file that waits to be fetched, or its content, by its key."""
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._texts: deque[str] = deque()
        self._work = asyncio.Event()  # something to send, or to end
        self._stop = asyncio.Event()  # nothing more is read, and what cannot be sent soon is dropped
        self._ended: tuple[int, str] | None = None

    @property
    def closed(self) -> bool:
        """True once it is over or `close` was called."""
        return self._ended is not None

    def send(self, message: m.ServerMessage) -> None:
        """Send a message before pictures that wait."""
        if not self.closed:
            self._call(self._queue, m.encode(message))

    def offer(self, name: str, content: Path | bytes, size: int) -> None:
        """Offer a file for the user to keep, which the page fetches once."""
        key = secrets.token_urlsafe(16)
        self.offers[key] = content
        if len(self.offers) > MAX_OFFERS:
            self.offers.popitem(last=False)
        self.send(m.Offer(name, key, size))

    def put(self, message: Event | m.Visible) -> bool:
        """Put in the inbox what the page did; return False when the connection is over. In the web thread."""
        if self.closed:
            return False
        if not self.inbox.put(message):
            self.close("The viewer is too far behind.", 1013)
            return False
        self.wake()
        return True

    def work(self) -> None:
        """Have the writer look for something to send."""
        self._call(self._work.set)

    def close(self, reason: str = "", code: int = 1000) -> None:
        """End it; messages that wait are still sent if that takes under 0.3 s. `code`: the WebSocket's. Idempotent."""
        if self._ended is None:
            self._ended = code, reason
            self._call(self._stop.set)

    def _call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the web thread."""
        with suppress(RuntimeError):  # the server has ended, and its loop with it
            self._loop.call_soon_threadsafe(function, *args)

    # -- in the web thread -------------------------------------------------------------------------------------------

    def _queue(self, text: str) -> None:
        self._texts.append(text)
        self._work.set()

    async def run(self) -> tuple[int, str]:
        """Serve the page until the connection is over; return code and reason to close the WebSocket with. Called once,
        by the server."""
        tasks = [asyncio.create_task(work) for work in (self._read(), self._write(), self._stop.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self.close()
            self._stop.set()
            self._work.set()  # the writer sends the messages that are left, and ends
            await asyncio.wait((tasks[1],), timeout=_LAST_WORDS)
        finally:
            self.close()
            for task in tasks:
                task.cancel()
            for failed in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(failed, Exception) and not isinstance(failed, ConnectionError):
                    _log.error("The connection to %s ended with an error", self.peer, exc_info=failed)
            for message in self.inbox.take(0):
                if isinstance(message, FileDrop) and message.done is not None:
                    message.done(Path(message.paths[0]))
            self.pictures = None
            self._texts.clear()
            self.offers.clear()
            self.wake()
        return self._ended or (1000, "")

    async def _read(self) -> None:
        while not self.closed:
            received = await self._socket.receive()
            if received.type is WSMsgType.BINARY:
                return self.close("a page sends text, not bytes", 1008)
            if received.type is not WSMsgType.TEXT:
                return None  # closed, silent for too long, or not a WebSocket any more
            try:
                message = m.parse(received.data)
            except m.MessageError as e:
                return self.close(str(e), 1008)
            if isinstance(message, m.Hello):
                return self.close("a second hello", 1008)
            if not isinstance(message, m.Ack):
                self.put(message)
            elif self.pictures is not None:
                self.pictures.acked(message.number, message.took / 1000, self._loop.time())
                self._work.set()
        return None

    async def _write(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while self._texts:
                await self._socket.send_str(self._texts.popleft())
            if self._stop.is_set():  # behind the messages sent before `close`, which `closed` is not
                return None
            try:
                found = await self.pictures.next() if self.pictures is not None else None
            except Exception as e:
                if not isinstance(e, ViewerError):
                    _log.exception("A picture for the page at %s could not be made", self.peer)
                return self.close(f"no picture could be sent: {e}")
            if found is not None:
                await self._socket.send_str(m.encode(found[0]))
                await self._socket.send_bytes(found[1])
                self._work.set()  # another one may wait since


def _supersedes(new: object, last: object) -> bool:
    """Return whether an event says all that the one before it said."""
    return type(new) is type(last) and isinstance(new, (PointerMove, Resize))
