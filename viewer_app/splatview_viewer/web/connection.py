"""A page's WebSocket, for the thread that draws: received messages are passed on, sent ones wait here in bounds."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from aiohttp import WSMsgType

from splatview_viewer.core.events import PointerMove
from splatview_viewer.web import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aiohttp import web

MAX_WAITING = 64 * 1024**2
"""Bytes of messages and files that may wait to be sent to a page."""
MAX_OFFERS = 8
"""Files that wait to be fetched; a further one replaces the oldest."""
OFFERED_FOR = 60.0
"""Seconds in which a page has to fetch one."""
MAX_KEPT = 4096
"""Received messages that wait for a receiver to attach."""
MAX_RATE = 1000
"""Sustained rate of a page's messages, per second."""
PATIENCE = 2.0
"""Seconds of MAX_RATE that may come in one burst."""

T = TypeVar("T", str, bytes)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Upload:
    """A file that the page has uploaded."""

    path: Path
    done: Callable[[Path], None]
    """To be called with the path once the file is not needed any more, from any thread."""


class Receiver(Protocol):
    """Receives a page's messages. Called in the web thread; must return at once."""

    def take(self, message: m.ClientMessage | Upload, now: float) -> None:
        """`message`: any but hello, received at `now` of time.monotonic(); or a file."""
        ...

    def lost(self) -> None:
        """The connection is over. Called once, as the last call."""
        ...


class Connection:
    """One page. Made by the server after the page's hello; usable from any thread.

    What is sent after the connection is over is dropped. A page for which more than MAX_WAITING bytes of messages and
    files wait is closed; a picture that waits is replaced by the next one.
    """

    def __init__(self, socket: web.WebSocketResponse, hello: m.Hello, peer: str):
        """Call it in the web thread. `peer`: the page's address and port, for messages."""
        self.hello = hello
        self.peer = peer
        self.key = secrets.token_urlsafe(16)
        """Secret of this page, with which it uploads files."""
        self.receiver: Receiver | None = None
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        """Of all that waits."""
        self._texts: deque[str] = deque()
        self._files: deque[bytes] = deque()
        self._waiting = 0
        """Bytes in these queues."""
        self._picture: bytes | None = None
        self._work = asyncio.Event()  # something to send, or to end
        self._stop = asyncio.Event()  # nothing more is read, and what cannot be sent soon is dropped
        self._woken = False  # a call that sets _work is under way: a burst costs one
        self._offers: dict[str, tuple[Path, float]] = {}
        self._offering = threading.Lock()
        self._kept: deque[tuple[m.ClientMessage | Upload, float]] = deque()
        self._ended: tuple[int, str] | None = None
        self._over = False
        self._credit = MAX_RATE * PATIENCE

    @property
    def closed(self) -> bool:
        """Whether it is over, or `close` was called."""
        return self._ended is not None

    def attach(self, receiver: Receiver) -> None:
        """Pass on messages from now on, and first those received since the hello."""
        if not self._call(self._attach, receiver):
            receiver.lost()

    def send(self, message: m.ServerMessage) -> None:
        """Before files and pictures that wait."""
        self._queue(self._texts, m.encode(message))

    def send_picture(self, picture: m.Picture) -> None:
        """In place of one that still waits."""
        if self._ended is not None:
            return
        packed = m.pack(picture)
        with self._lock:  # against the writer, which takes it and puts nothing in its place
            self._picture = packed
        self._wake()

    def send_file(self, name: str, png: bytes) -> None:
        """A picture for the user to keep. Raises ValueError for a name of more than 255 bytes."""
        self._queue(self._files, m.pack_file(name, png))

    @property
    def files_waiting(self) -> int:
        """Number of pictures to keep that wait to be sent."""
        return len(self._files)

    def offer(self, path: Path, size: int) -> None:
        """Offer a file for the user to keep, which the page fetches."""
        if self._ended is not None:
            return
        key = secrets.token_urlsafe(16)
        with self._offering:
            self._offers[key] = path, time.monotonic()
            while len(self._offers) > MAX_OFFERS:
                del self._offers[next(iter(self._offers))]
        self.send(m.Offer(path.name, key, size))

    def offered(self, key: str) -> Path | None:
        """Take the file that was offered with this key; None for an unknown or expired one. Each is fetched once."""
        with self._offering:
            path, since = self._offers.pop(key, (None, 0.0))
        return path if time.monotonic() - since <= OFFERED_FOR and not self._over else None

    def hand_in(self, upload: Upload) -> bool:
        """Pass on a complete upload; return False when the connection is over. In the web thread."""
        if self._over or self._ended is not None:
            return False
        self._take(upload, time.monotonic())
        return True

    def close(self, reason: str = "", code: int = 1000) -> None:
        """End it; messages that wait are still sent if that takes under 0.3 s. `code`: the WebSocket's. Idempotent."""
        self._end(code, reason)

    async def run(self) -> None:
        """Serve the page until the connection is over. Called once, by the server, in the web thread."""
        reader, writer, stop = (asyncio.create_task(work) for work in (self._read(), self._write(), self._stop.wait()))
        try:
            await asyncio.wait((reader, writer, stop), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._end(1000, "")
            self._over = True
            reader.cancel()
            stop.cancel()
            self._tell(lambda receiver: receiver.lost())
            self.receiver = None
            for message, _ in self._kept:
                if isinstance(message, Upload):
                    message.done(message.path)
            self._kept.clear()
            self._work.set()  # the writer sends what is left, and ends
            try:
                await asyncio.wait((writer,), timeout=0.3)
            finally:
                writer.cancel()
                for failed in await asyncio.gather(reader, writer, return_exceptions=True):
                    if isinstance(failed, Exception) and not isinstance(failed, ConnectionError):
                        _log.error("The connection to %s ended with an error", self.peer, exc_info=failed)
                self._texts.clear()
                self._files.clear()
                self._picture = None

    @property
    def farewell(self) -> tuple[int, str]:
        """Code and reason to close the WebSocket with, once `run` is through."""
        return self._ended or (1000, "")

    # -- in the web thread -------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        before = time.monotonic()
        while True:
            received = await self._socket.receive()
            now = time.monotonic()
            if received.type is WSMsgType.BINARY:
                return self._end(1008, "a page sends text, not bytes")
            if received.type is not WSMsgType.TEXT:
                return None  # closed, silent for too long, or not a WebSocket any more
            self._credit = min(self._credit + (now - before) * MAX_RATE, MAX_RATE * PATIENCE) - 1
            before = now
            if self._credit < 0:
                return self._end(1008, f"more than {MAX_RATE} messages a second")
            try:
                message = m.parse(received.data)
            except m.MessageError as e:
                return self._end(1008, str(e))
            if isinstance(message, m.Hello):
                return self._end(1008, "a second hello")
            self._take(message, now)

    def _take(self, message: m.ClientMessage | Upload, now: float) -> None:
        if self.receiver is not None:
            self._tell(lambda receiver: receiver.take(message, now))
            return
        if self._kept and isinstance(message, PointerMove) and isinstance(self._kept[-1][0], PointerMove):
            self._kept.pop()
        self._kept.append((message, now))
        if len(self._kept) > MAX_KEPT:
            self._end(1008, "no receiver takes its messages")

    def _attach(self, receiver: Receiver) -> None:
        self.receiver = receiver
        if self._over:
            self._tell(lambda receiver: receiver.lost())
            self.receiver = None
            return
        while self._kept:
            message, now = self._kept.popleft()
            self._tell(lambda receiver, message=message, now=now: receiver.take(message, now))

    def _tell(self, what: Callable[[Receiver], None]) -> None:
        """Call the receiver. Its errors are logged; the connection stays."""
        if self.receiver is None:
            return
        try:
            what(self.receiver)
        except Exception:
            _log.exception("A message of the page at %s was not taken", self.peer)

    async def _write(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            self._woken = False  # before looking: what is put here from now on wakes again
            while (item := self._next()) is not None:
                if isinstance(item, str):
                    await self._socket.send_str(item)
                else:
                    await self._socket.send_bytes(item)
            if self._over:
                return

    def _next(self) -> str | bytes | None:
        """Take what is to be sent next; None for nothing. Once the connection is over only messages are sent."""
        with self._lock:
            item: str | bytes | None = None
            if self._texts:
                item = self._texts.popleft()
            elif self._files and not self._over:
                item = self._files.popleft()
            if item is not None:
                self._waiting -= len(item)
            elif not self._over:
                item, self._picture = self._picture, None
            return item

    # -- from any thread ---------------------------------------------------------------------------------------------

    def _end(self, code: int, reason: str) -> None:
        if self._ended is None:
            self._ended = code, reason
            self._call(self._stop.set)

    def _queue(self, queue: deque[T], item: T) -> None:
        if self._ended is not None:
            return
        with self._lock:
            full = self._waiting + len(item) > MAX_WAITING
            if not full:
                self._waiting += len(item)
                queue.append(item)
        if full:
            self._end(1008, f"more than {MAX_WAITING >> 20} MB wait to be sent already")
        else:
            self._wake()

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._call(self._work.set)

    def _call(self, what: Callable[..., object], *args: object) -> bool:
        try:
            self._loop.call_soon_threadsafe(what, *args)
        except RuntimeError:  # the server has ended, and its loop with it
            return False
        return True
