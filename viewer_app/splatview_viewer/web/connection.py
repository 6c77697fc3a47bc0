"""A page's WebSocket: received messages wait for the thread that draws, sent ones wait here in bounds."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from aiohttp import WSMsgType

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import FileDrop, Inbox, PointerMove, Resize
from splatview_viewer.web import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from splatview_viewer.core.events import Event

MAX_WAITING = 64 * 1024**2
"""Bytes of messages, and of pictures to keep, that may wait for a page."""
MAX_OFFERS = 8
"""Files that wait to be fetched; a further one replaces the oldest."""
OFFERED_FOR = 60.0
"""Seconds in which a page has to fetch one."""
MAX_RATE = 1000
"""Sustained rate of a page's messages, per second."""
PATIENCE = 2.0
"""Seconds of MAX_RATE that may come in one burst."""

_log = logging.getLogger(__name__)


class Pictures(Protocol):
    """The pictures for a page. Called in the web thread."""

    @property
    def due(self) -> float:
        """When `next` has something to do by itself."""
        ...

    async def next(self, now: float) -> tuple[m.Picture, bytes] | None:
        """Return the next picture to send; None while there is none."""
        ...

    def acked(self, number: int, took: float, now: float) -> None:
        """Note a picture that is on the page; `took`: see messages.Ack, in seconds."""
        ...


class Connection:
    """One page. Made by the server after the page's hello; usable from any thread.

    `inbox` has what the page sends, with the time at which it came. All times are those of the web thread's loop. What
    is sent after the connection is over is dropped. A page for which more than MAX_WAITING bytes of messages wait is
    closed.
    """

    def __init__(self, socket: web.WebSocketResponse, hello: m.Hello, peer: str, wake: Callable[[], None]):
        """Call it in the web thread. `peer`: the page's address and port, for messages. `wake`: called when there is
        something in the inbox, another picture may be drawn, or the connection is over."""
        self.hello = hello
        self.peer = peer
        self.wake = wake
        self.key = secrets.token_urlsafe(16)
        """Secret of this page, with which it uploads files."""
        self.inbox: Inbox[tuple[Event | m.Visible, float]] = Inbox(_supersedes)
        self.pictures: Pictures | None = None
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._texts: deque[str] = deque()
        self._lock = threading.Lock()
        """Guards the messages and offers that wait."""
        self._waiting = 0
        """Bytes of messages that wait."""
        self._work = asyncio.Event()  # something to send, or to end
        self._stop = asyncio.Event()  # nothing more is read, and what cannot be sent soon is dropped
        self._offers: dict[str, tuple[str, Path | bytes, float]] = {}
        self._ended: tuple[int, str] | None = None
        self._over = False

    @property
    def closed(self) -> bool:
        """True once it is over or `close` was called."""
        return self._ended is not None

    @property
    def farewell(self) -> tuple[int, str]:
        """Code and reason to close the WebSocket with, once `run` is through."""
        return self._ended or (1000, "")

    def send(self, message: m.ServerMessage) -> None:
        """Send a message before pictures that wait."""
        if self._ended is not None:
            return
        text = m.encode(message)
        with self._lock:
            full = self._waiting + len(text) > MAX_WAITING
            if not full:
                self._waiting += len(text)
                self._texts.append(text)
        if full:
            self.close(f"more than {MAX_WAITING >> 20} MB wait to be sent already", 1008)
        self.work()

    def offer(self, name: str, content: Path | bytes, size: int) -> None:
        """Offer a file for the user to keep, which the page fetches once."""
        key = secrets.token_urlsafe(16)
        with self._lock:
            self._offers[key] = name, content, self._loop.time()
            while len(self._offers) > MAX_OFFERS or self._offered_bytes() > MAX_WAITING:
                del self._offers[next(iter(self._offers))]
        self.send(m.Offer(name, key, size))

    def _offered_bytes(self) -> int:
        return sum(len(content) for _, content, _ in self._offers.values() if isinstance(content, bytes))

    def offered(self, key: str) -> tuple[str, Path | bytes] | None:
        """Take out name and content of what was offered with this key; None for an unknown or expired one."""
        with self._lock:
            name, content, since = self._offers.pop(key, ("", b"", -math.inf))
        return (name, content) if self._loop.time() - since <= OFFERED_FOR and not self._over else None

    def put(self, message: Event | m.Visible, now: float) -> bool:
        """Put in the inbox what the page did; return False when the connection is over. In the web thread."""
        if self._over or self._ended is not None:
            return False
        if not self.inbox.put((message, now)):
            self.close("the viewer is too far behind; connect again", 1013)
            return False
        self.wake()
        return True

    def work(self) -> None:
        """Have the writer look for something to send."""
        self._call(self._work)

    def close(self, reason: str = "", code: int = 1000) -> None:
        """End it; messages that wait are still sent if that takes under 0.3 s. `code`: the WebSocket's. Idempotent."""
        if self._ended is None:
            self._ended = code, reason
            self._call(self._stop)

    def _call(self, event: asyncio.Event) -> None:
        try:
            self._loop.call_soon_threadsafe(event.set)
        except RuntimeError:  # the server has ended, and its loop with it
            pass

    # -- in the web thread -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the page until the connection is over. Called once, by the server."""
        reader, writer, stop = (asyncio.create_task(work) for work in (self._read(), self._write(), self._stop.wait()))
        try:
            await asyncio.wait((reader, writer, stop), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.close()
            self._over = True
            reader.cancel()
            stop.cancel()
            self._work.set()  # the writer sends the messages that are left, and ends
            try:
                await asyncio.wait((writer,), timeout=0.3)
            finally:
                writer.cancel()
                for failed in await asyncio.gather(reader, writer, return_exceptions=True):
                    if isinstance(failed, Exception) and not isinstance(failed, ConnectionError):
                        _log.error("The connection to %s ended with an error", self.peer, exc_info=failed)
                for message, _ in self.inbox.take(0):
                    if isinstance(message, FileDrop) and message.done is not None:
                        message.done(Path(message.paths[0]))
                self.pictures = None
                self._texts.clear()
                self._offers.clear()
                self.wake()

    async def _read(self) -> None:
        before, credit = self._loop.time(), MAX_RATE * PATIENCE
        while True:
            received = await self._socket.receive()
            now = self._loop.time()
            if received.type is WSMsgType.BINARY:
                return self.close("a page sends text, not bytes", 1008)
            if received.type is not WSMsgType.TEXT:
                return None  # closed, silent for too long, or not a WebSocket any more
            credit = min(credit + (now - before) * MAX_RATE, MAX_RATE * PATIENCE) - 1
            before = now
            if credit < 0:
                return self.close(f"more than {MAX_RATE} messages a second", 1008)
            try:
                message = m.parse(received.data)
            except m.MessageError as e:
                return self.close(str(e), 1008)
            if isinstance(message, m.Hello):
                return self.close("a second hello", 1008)
            if not isinstance(message, m.Ack):
                self.put(message, now)
            elif self.pictures is not None:
                self.pictures.acked(message.number, message.took / 1000, now)
                self._work.set()

    async def _write(self) -> None:
        while not self._over:
            due = self.pictures.due if self.pictures is not None else math.inf
            try:
                await asyncio.wait_for(self._work.wait(), None if due == math.inf else max(due - self._loop.time(), 0))
            except TimeoutError:
                pass
            self._work.clear()
            while self._texts:
                text = self._texts.popleft()
                with self._lock:
                    self._waiting -= len(text)
                await self._socket.send_str(text)
            if self._over or self.pictures is None:
                continue
            try:
                found = await self.pictures.next(self._loop.time())
            except Exception as e:
                if not isinstance(e, ViewerError):
                    _log.exception("A picture for the page at %s could not be made", self.peer)
                return self.close(f"no picture could be sent: {e}")
            if found is not None:
                await self._socket.send_str(m.encode(found[0]))
                await self._socket.send_bytes(found[1])
                self._work.set()  # another one may wait since
        return None


def _supersedes(new: tuple[object, float], last: tuple[object, float]) -> bool:
    """Return whether an event says all that the one before it said."""
    return type(new[0]) is type(last[0]) and isinstance(new[0], (PointerMove, Resize))
