"""The connection of one page: what it sends, and the messages and pictures for it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict, deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from aiohttp import WSMsgType

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import (
    FileDrop,
    Inbox,
    Placed,
    PointerMove,
    PointerPress,
    PointerRelease,
    Ranged,
    Resize,
)
from splatview_viewer.web import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aiohttp import web

    from splatview_viewer.web.sender import Sender

MAX_OFFERS = 8
"""Files that wait to be fetched by a page; a further one replaces the oldest."""
_MOST_DRAG_MOVES = 2048
"""Moves of one drag that are all kept: at 60 a second those of half a minute."""
_FLUSH_S = 0.3
"""Seconds within which messages that wait are still sent when a connection ends."""

_log = logging.getLogger(__name__)


class Closing(NamedTuple):
    """The code and the reason with which a WebSocket is closed."""

    code: int
    reason: str


class _PageInbox(Inbox[m.PageInput]):
    """Keeps what a page does, and of sizes and of moves without a button the newest.

    The moves of a drag are kept up to a limit, so that a lasso has its corners.
    """

    def __init__(self) -> None:
        super().__init__(self._replaces)
        self._buttons: set[str] = set()
        """The buttons that are down."""
        self._moves_left = 0
        """Moves of the drag that are still kept."""

    def put(self, *items: m.PageInput) -> bool:
        for item in items:
            self._note(item)
        return super().put(*items)

    def _note(self, message: m.PageInput) -> None:
        """Follow the buttons and the drag."""
        match message:
            case PointerPress():
                self._buttons.add(message.button)
                self._moves_left = _MOST_DRAG_MOVES
            case PointerRelease():
                self._buttons.discard(message.button)
            case PointerMove():
                self._moves_left -= 1

    def _replaces(self, new: m.PageInput, last: m.PageInput) -> bool:
        """Return True if a message makes the one before it superfluous."""
        if type(new) is not type(last):
            return False
        if isinstance(new, PointerMove):
            return not self._buttons or self._moves_left <= 0
        if isinstance(new, (Placed, Ranged)) and isinstance(last, (Placed, Ranged)):
            return new.pane == last.pane
        return isinstance(new, Resize)


class PageConnection:
    """The connection of one page.

    Made by the server after the page's hello; usable from any thread.

    `inbox` has what the page sends. What is sent after the connection is over is
    dropped.
    """

    def __init__(
        self,
        socket: web.WebSocketResponse,
        hello: m.Hello,
        peer: str,
        wake: Callable[[], None],
    ) -> None:
        """Make the connection, in the web thread.

        Args:
            socket: the socket of the page.
            hello: the page's first message.
            peer: the page's address and port, for messages.
            wake: called when there is something in the inbox, another picture may be
                drawn, or the connection is over.
        """
        self.hello = hello
        self.peer = peer
        self.wake = wake
        self.inbox = _PageInbox()
        self.pictures: Sender | None = None
        self.offers: OrderedDict[str, Path | bytes] = OrderedDict()
        """Each file that waits to be fetched, or its content, by its key."""
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._texts: deque[str] = deque()
        self._has_output = asyncio.Event()
        """Set when there is something to send, or the writer has to end."""
        self._stop = asyncio.Event()
        """Set when nothing more is read, and what cannot be sent soon is dropped."""
        self._closing: Closing | None = None

    @property
    def closed(self) -> bool:
        """True once the connection is over or `close` was called."""
        return self._closing is not None

    def send(self, message: m.ServerMessage) -> None:
        """Send a message before pictures that wait."""
        if not self.closed:
            self._texts.append(m.encode(message))
            self.wake_writer()

    def offer(self, name: str, content: Path | bytes, size: int) -> None:
        """Offer a file for the user to keep, which the page fetches once."""
        key = secrets.token_urlsafe(16)
        self.offers[key] = content
        if len(self.offers) > MAX_OFFERS:
            self.offers.popitem(last=False)
        self.send(m.Offer(name, key, size))

    def put(self, message: m.PageInput) -> bool:
        """Put in the inbox what the page did; return False when the connection is over.

        In the web thread.
        """
        if self.closed:
            return False
        if not self.inbox.put(message):
            self.close("The viewer is too far behind.", 1013)
            return False
        self.wake()
        return True

    def wake_writer(self) -> None:
        """Have the writer look for something to send."""
        self._call(self._has_output.set)

    def close(self, reason: str = "", code: int = 1000) -> None:
        """End the connection. Idempotent.

        Messages that wait are still sent if that takes under 0.3 s.

        Args:
            reason: for the page.
            code: the WebSocket's.
        """
        if self._closing is None:
            self._closing = Closing(code, reason)
            self._call(self._stop.set)

    def _call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the web thread."""
        # The server may have ended, and its loop with it.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    # -- in the web thread -------------------------------------------------------------

    async def run(self) -> Closing:
        """Serve the page until the connection is over.

        Called once, by the server, which then closes the WebSocket as this returns.
        """
        reader = asyncio.create_task(self._read())
        writer = asyncio.create_task(self._write())
        stop = asyncio.create_task(self._stop.wait())
        tasks = [reader, writer, stop]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self.close()
            self._stop.set()
            # The writer sends the messages that are left, and ends.
            self._has_output.set()
            await asyncio.wait((writer,), timeout=_FLUSH_S)
        finally:
            self.close()
            await self._end_tasks(tasks)
            self._drop_files()
            if self.pictures is not None:
                self.pictures.end()
            self.pictures = None
            self._texts.clear()
            self.offers.clear()
            self.wake()
        return self._closing or Closing(1000, "")

    async def _end_tasks(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        """Cancel the tasks and report what they failed with."""
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            is_error = isinstance(result, Exception)
            if is_error and not isinstance(result, ConnectionError):
                _log.error(
                    "The connection to %s ended with an error",
                    self.peer,
                    exc_info=result,
                )

    def _drop_files(self) -> None:
        """Remove uploads that are still in the inbox."""
        for message in self.inbox.take(0):
            if isinstance(message, FileDrop) and message.done is not None:
                message.done(Path(message.paths[0]))

    async def _read(self) -> None:
        """Take the page's messages until the connection is over."""
        while not self.closed:
            received = await self._socket.receive()
            if received.type is WSMsgType.BINARY:
                self.close("a page sends text, not bytes", 1008)
                return
            if received.type is not WSMsgType.TEXT:
                # It is closed, silent for too long, or not a WebSocket any more.
                return
            try:
                message = m.parse(received.data)
            except m.MessageError as e:
                self.close(str(e), 1008)
                return
            if isinstance(message, m.Hello):
                self.close("a second hello", 1008)
                return
            if not isinstance(message, (m.Ack, m.Taken)):
                self.put(message)
            elif self.pictures is not None:
                self.pictures.acked(message, self._loop.time())
                self._has_output.set()

    async def _write(self) -> None:
        """Send messages and pictures until the connection is over."""
        while True:
            await self._has_output.wait()
            self._has_output.clear()
            while self._texts:
                await self._socket.send_str(self._texts.popleft())
            # Messages that were sent before `close` have gone out, which `closed` does
            # not tell.
            if self._stop.is_set() or not await self._write_picture():
                return

    async def _write_picture(self) -> bool:
        """Send what comes next of interface and pictures, if there is anything.

        Return False where that fails.
        """
        if self.pictures is None:
            return True
        try:
            messages = await self.pictures.next()
        except Exception as e:
            if not isinstance(e, ViewerError):
                _log.exception(
                    "A picture for the page at %s could not be made", self.peer
                )
            self.close(f"no picture could be sent: {e}")
            return False
        if messages is None:
            return True
        for message in messages:
            if isinstance(message, bytes):
                await self._socket.send_bytes(message)
            else:
                await self._socket.send_str(m.encode(message))
        # There may be more since then.
        self._has_output.set()
        return True
