"""The web server of the viewer: the page and its WebSocket on one port, in a thread of
its own.

The files of the page are read into memory at the start; a file that the viewer offers
to a page is fetched once, by a key. No name in a request leads to a file. The server
knows nothing of pictures: each page that says hello becomes a Connection, which the
thread that draws takes with `arrivals`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import threading
from collections import OrderedDict, deque
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import WSMessageTypeError, WSMsgType, web
from aiohttp.http_exceptions import HttpProcessingError

from splatview_ipc.control.limits import VERSION
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import FileDrop, Inbox, PointerMove, Resize
from splatview_viewer.web import messages as m
from splatview_viewer.web.address import (
    SUBPROTOCOL,
    Guard,
    allowed_host,
    open_listener,
    subprotocols,
)
from splatview_viewer.web.files import MAX_FILE, Files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aiohttp.typedefs import Handler

    from splatview_viewer.core.events import Event
    from splatview_viewer.web.sender import Sender

MAX_CLIENTS = 32
"""Pages connected at a time."""
MAX_CONNECTIONS = 256
"""TCP connections at a time. Further ones are closed at once."""
MAX_FIELD = 16 * 1024
"""Bytes of a header. Browsers send the cookies of all programs behind a proxy's name,
which has one for each login, in one."""
KEEP_ALIVE = 15.0
"""Seconds without a complete request after which an idle connection is closed."""
HELLO_WITHIN = 5.0
"""Seconds within which a page must say hello."""
HEARTBEAT = 14.0
"""Seconds between pings of a page; one that does not answer within half of that is
gone."""
MAX_OFFERS = 8
"""Files that wait to be fetched by a page; a further one replaces the oldest."""
_LAST_WORDS = 0.3
"""Seconds within which messages that wait are still sent when a connection ends."""
_CLOSING = 0.7
"""Seconds for a page to hear why its connection ends."""

_TYPES = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: "
    "data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)
_HEADERS = {
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Server": "splatview",
    "X-Splatview": "viewer",
}
"""Headers of every answer. By the last one a page tells the viewer's from a proxy's,
which replaces Server."""

_NOT_FOUND = (
    "There is nothing at this address. A reverse proxy has to take the path under "
    "which "
    "it shows the viewer off the addresses that it passes on (nginx: a / at the end of "
    "proxy_pass)."
)

_OF_CLIENTS = HttpProcessingError, ConnectionError
"""Faults of clients that speak no HTTP, or leave before the answer."""

_log = logging.getLogger(__name__)
_http_log = logging.getLogger(f"{__name__}.http")
_http_log.addFilter(
    lambda record: not (record.exc_info and isinstance(record.exc_info[1], _OF_CLIENTS))
)
"""aiohttp's, without the faults of clients, which must not fill the user's terminal."""


class PageConnection:
    """One page.

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
        """Call it in the web thread.

        `peer`: the page's address and port, for messages. `wake`: called when there is
        something in the inbox, another picture may be drawn, or the connection is over.
        """
        self.hello = hello
        self.peer = peer
        self.wake = wake
        self.inbox: Inbox[Event | m.Visible] = Inbox(
            lambda new, last: (
                type(new) is type(last) and isinstance(new, (PointerMove, Resize))
            )
        )
        self.pictures: Sender | None = None
        self.offers: OrderedDict[str, Path | bytes] = OrderedDict()
        """Each file that waits to be fetched, or its content, by its key."""
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._texts: deque[str] = deque()
        self._work = asyncio.Event()  # something to send, or to end
        self._stop = (
            asyncio.Event()
        )  # nothing more is read, and what cannot be sent soon is dropped
        self._ended: tuple[int, str] | None = None

    @property
    def closed(self) -> bool:
        """True once it is over or `close` was called."""
        return self._ended is not None

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

    def put(self, message: Event | m.Visible) -> bool:
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
        self._call(self._work.set)

    def close(self, reason: str = "", code: int = 1000) -> None:
        """End it; messages that wait are still sent if that takes under 0.3 s. `code`:
        the WebSocket's. Idempotent.
        """
        if self._ended is None:
            self._ended = code, reason
            self._call(self._stop.set)

    def _call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the web thread."""
        with suppress(RuntimeError):  # the server has ended, and its loop with it
            self._loop.call_soon_threadsafe(function, *args)

    # -- in the web thread -------------------------------------------------------------

    async def run(self) -> tuple[int, str]:
        """Serve the page until the connection is over; return code and reason to close
        the WebSocket with. Called once, by the server.
        """
        tasks = [
            asyncio.create_task(work)
            for work in (self._read(), self._write(), self._stop.wait())
        ]
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
                if isinstance(failed, Exception) and not isinstance(
                    failed, ConnectionError
                ):
                    _log.error(
                        "The connection to %s ended with an error",
                        self.peer,
                        exc_info=failed,
                    )
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
                self.pictures.acked(
                    message.number, message.took / 1000, self._loop.time()
                )
                self._work.set()
        return None

    async def _write(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while self._texts:
                await self._socket.send_str(self._texts.popleft())
            if (
                self._stop.is_set()
            ):  # behind the messages sent before `close`, which `closed` is not
                return None
            try:
                if self.pictures is not None:
                    found = await self.pictures.next()
                else:
                    found = None
            except Exception as e:
                if not isinstance(e, ViewerError):
                    _log.exception(
                        "A picture for the page at %s could not be made", self.peer
                    )
                return self.close(f"no picture could be sent: {e}")
            if found is not None:
                await self._socket.send_str(m.encode(found[0]))
                await self._socket.send_bytes(found[1])
                self._work.set()  # another one may wait since


class WebServer:
    """Serves the page from its construction until `close`.

    Usable from any thread. `wake` is called in the web thread when `arrivals` has a
    page, or a page has something for the thread that draws; it must return at once.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 7007,
        *,
        token: str | None = None,
        allow_hosts: Iterable[str] = (),
        wake: Callable[[], None],
    ) -> None:
        """Bind to `host`, a name or address of this machine, and `port`, 0 for any that
        is free. Where the port is taken: the next free one of the 20 that follow;
        `moved_from` then says which it was.

        Every request needs `token`, letters, digits, - and _; by default a random one
        of 128 bits, and also where the port is taken: pages send this token to the
        program that has it now.

        `allow_hosts`: names of reverse proxies, legal in Host and Origin as well.

        Raises ViewerError when it cannot listen there, for an invalid token, and for an
        invalid name.
        """
        if token is not None and not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", token):
            raise ViewerError("token: it must be 1 to 128 letters, digits, - and _")
        self.host = host
        self.allowed = tuple(allowed_host(name) for name in allow_hosts)
        """The names of reverse proxies."""
        self.viewer = secrets.token_hex(8)
        """Id of this viewer process for its pages."""
        self._wake = wake
        self._assets = _assets()
        self._arrived: deque[PageConnection] = deque()
        self._open = 0
        """WebSockets that are open."""
        self._connections: dict[str, PageConnection] = {}
        """Those whose pages have said hello, by their keys."""
        self._socket = open_listener(host, port)
        self._files = Files(self._connections)
        self.port: int = self._socket.getsockname()[1]
        self.moved_from = port if port not in (0, self.port) else None
        if token is not None and self.moved_from is None:
            self.token = token
        else:
            self.token = secrets.token_urlsafe(16)
        self._guard = Guard(host, self.token, self.allowed)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)
        self._thread.start()

    def arrivals(self) -> list[PageConnection]:
        """Return the pages that have said hello since the last call."""
        new = []
        while self._arrived:
            connection = self._arrived.popleft()
            if not connection.closed:  # it may have left since
                new.append(connection)
        return new

    def close(self) -> None:
        """End the thread and every connection, within 2 s. Idempotent."""
        with suppress(RuntimeError):  # closed before
            self._loop.call_soon_threadsafe(self._stop.set)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # -- the web thread ----------------------------------------------------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except Exception:
            _log.exception("The web server ended with an error")
        finally:
            self._socket.close()
            self._files.close()

    async def _serve(self) -> None:
        app = web.Application(middlewares=[self._guarded])
        app.on_response_prepare.append(self._sign)
        for path, handler in (
            ("/ws", self._websocket),
            ("/download", self._files.hand_out),
        ):
            app.router.add_get(path, handler, allow_head=False)
        for path in self._assets:
            app.router.add_get(path, self._asset, allow_head=False)
        app.router.add_post("/upload", self._files.receive)
        app.router.add_post("/check", self._check)
        runner = web.AppRunner(
            app,
            access_log=None,
            logger=_http_log,
            keepalive_timeout=KEEP_ALIVE,
            lingering_time=1,
            max_field_size=MAX_FIELD,
            shutdown_timeout=_CLOSING,
            auto_decompress=False,
        )
        await runner.setup()
        http = runner.server
        assert http is not None
        listening = await self._loop.create_server(
            lambda: http() if len(http.connections) < MAX_CONNECTIONS else _Full(),
            sock=self._socket,
        )
        await self._stop.wait()
        self._loop.remove_reader(
            self._socket
        )  # accepts no more; those that were just accepted are listed two turns
        for _ in range(3):  # later, and would be lost if the server were closed before
            await asyncio.sleep(0)
        listening.close()
        for connection in self._connections.values():
            connection.close("the viewer has ended", 1001)
        await runner.cleanup()
        await asyncio.sleep(0)  # aborted transports are closed in the next turn

    @web.middleware
    async def _guarded(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        reason = self._guard.refuse(request, public=request.path in self._assets)
        if reason:
            raise web.HTTPForbidden(text=reason)
        if isinstance(request.match_info.http_exception, web.HTTPNotFound):
            raise web.HTTPNotFound(text=_NOT_FOUND)
        return await handler(request)

    async def _sign(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the headers of every answer.

        A notebook shows the page in a frame, from another port or host. Another user's
        server can be at such a port, too, and have clicks land in a frame that is not
        seen: it has no token.
        """
        framed = self._guard.has_token(request)
        response.headers.update(_HEADERS)
        response.headers["Content-Security-Policy"] = (
            _POLICY if framed else f"{_POLICY}; frame-ancestors 'none'"
        )

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        body, kind = self._assets[request.path]
        return web.Response(
            body=body,
            content_type=kind,
            charset="utf-8",
            headers={"Cache-Control": "no-cache"},
        )

    async def _check(self, request: web.Request) -> web.StreamResponse:
        """Answer a page whose WebSocket failed.

        Browsers send the Origin with each POST, so the guard has judged this request
        as it judges a WebSocket's.
        """
        return web.Response(status=204)

    async def _websocket(self, request: web.Request) -> web.StreamResponse:
        offered = subprotocols(request)
        if (
            offered and SUBPROTOCOL not in offered
        ):  # aiohttp would log them, a token too
            raise web.HTTPBadRequest(
                text=f"Unknown subprotocols: expected {SUBPROTOCOL}"
            )
        response = web.WebSocketResponse(
            protocols=(SUBPROTOCOL,),
            timeout=_CLOSING,
            heartbeat=HEARTBEAT,
            compress=False,
            max_msg_size=m.MAX_MESSAGE,
        )
        try:
            await response.prepare(request)
        except ValueError as e:  # a key that is not even ASCII
            raise web.HTTPBadRequest(text=f"No WebSocket: {e}") from None
        self._open += 1
        try:
            code, reason = await self._talk(request, response)
            reason = reason.encode()[:120].decode(
                errors="ignore"
            )  # as much as fits into the frame
            await asyncio.wait_for(
                response.close(code=code, message=reason.encode()), _CLOSING
            )
        except (TimeoutError, ConnectionError):  # the other side is stuck or gone
            pass
        finally:
            self._open -= 1
            if request.transport is not None:
                request.transport.abort()  # unsent bytes are dropped
        return response

    async def _talk(
        self, request: web.Request, response: web.WebSocketResponse
    ) -> tuple[int, str]:
        """Serve a page from its hello on.

        Return code and reason to close its WebSocket with.
        """
        if self._open > MAX_CLIENTS:
            return 1013, f"{MAX_CLIENTS} pages show this viewer already: close one."
        key = secrets.token_urlsafe(16)
        await response.send_str(
            m.encode(m.Welcome(m.PROTOCOL, VERSION, self.viewer, key, MAX_FILE))
        )
        try:
            # Not the time-out of `receive_str`, which begins anew with each ping.
            async with asyncio.timeout(HELLO_WITHIN):
                hello = m.parse(await response.receive_str())
        except TimeoutError:
            return 1008, f"no hello within {HELLO_WITHIN:g} s"
        except m.MessageError as e:
            return 1008, str(e)
        except WSMessageTypeError:  # bytes, or the page has left
            hello = None
        if not isinstance(hello, m.Hello):
            return 1008, "the first message must be hello"
        if request.transport is not None:
            found = request.transport.get_extra_info("peername")
        else:
            found = None
        peer = "{}:{}".format(*found) if found else "a page that has gone"
        connection = PageConnection(response, hello, peer, self._wake)
        self._connections[key] = connection
        self._arrived.append(connection)
        try:
            self._wake()
            return await connection.run()
        finally:
            del self._connections[key]


class _Full(asyncio.Protocol):
    """Closes a connection beyond MAX_CONNECTIONS."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


def _assets() -> dict[str, tuple[bytes, str]]:
    """Return content and type of each file of the page, by its path."""
    found = {
        f"/{file.name}": (file.read_bytes(), _TYPES[file.name.rpartition(".")[2]])
        for file in (resources.files("splatview_viewer.web") / "page").iterdir()
    }
    found["/"] = found.pop("/index.html")
    return found
