"""The web server of the viewer: the page and its WebSocket, in a thread of its own.

The files of the page are read into memory at the start; a file that the viewer offers
to a page is fetched once, by a key. No name in a request leads to a file. The server
knows nothing of pictures: each page that says hello becomes a `PageConnection`, which
the thread that draws takes with `arrivals`.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import logging
import re
import secrets
import threading
from collections import deque
from contextlib import suppress
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import WSMessageTypeError, web
from aiohttp.http_exceptions import HttpProcessingError

from splatview_ipc.control.limits import VERSION
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.splat_page.page_scripts import script_to_serve
from splatview_viewer.splat_page.page_splats import splat_scripts
from splatview_viewer.web import messages as m
from splatview_viewer.web.address import (
    SUBPROTOCOL,
    Guard,
    allowed_host,
    open_listener,
    subprotocols,
)
from splatview_viewer.web.connection import Closing, PageConnection
from splatview_viewer.web.files import MAX_FILE, Files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aiohttp.typedefs import Handler

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
_CLOSE_S = 0.7
"""Seconds for a page to learn why its connection ends."""
_MAX_REASON_BYTES = 120
"""What fits into the frame that closes a WebSocket."""

_TYPES = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
    "ttf": "font/ttf",
}
_FONTS = (
    "Roboto/Roboto-Regular.ttf",
    "Roboto/Roboto-Bold.ttf",
    "Inconsolata-Medium.ttf",
)
"""Those of the interface, in imgui-bundle, for what the page itself says."""
_FONTS_FOR_S = 24 * 3600
"""Seconds for which browsers keep them."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; "
    "img-src 'self' blob: data:; connect-src 'self'; "
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
    "which it shows the viewer off the addresses that it passes on (nginx: a / at the "
    "end of proxy_pass)."
)

_CLIENT_ERRORS = (HttpProcessingError, ConnectionError)
"""Faults of clients that speak no HTTP, or leave before the answer."""

_log = logging.getLogger(__name__)
_http_log = logging.getLogger(f"{__name__}.http")
"""aiohttp's, without the faults of clients, which must not fill the user's terminal."""


def _is_no_client_error(record: logging.LogRecord) -> bool:
    if not record.exc_info:
        return True
    _, error, _ = record.exc_info
    return not isinstance(error, _CLIENT_ERRORS)


_http_log.addFilter(_is_no_client_error)


class _Asset(NamedTuple):
    """A file of the page."""

    body: bytes
    content_type: str
    packed: bytes = b""
    """The body by gzip; empty where that saves little."""


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
        """Bind to an address, and serve from now on.

        Args:
            host: a name or address of this machine.
            port: 0 for any that is free. Where it is taken, it is the next free one of
                the 20 that follow; `moved_from` then tells which it was.
            token: letters, digits, - and _, which every request needs. By default a
                random one of 128 bits, and also where the port is taken: pages send
                this token to the program that has it now.
            allow_hosts: names of reverse proxies, legal in Host and Origin as well.
            wake: called as the class says.

        Raises:
            ViewerError: it cannot listen there, or a token or a name is invalid.
        """
        if token is not None and not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", token):
            raise ViewerError("token: it must be 1 to 128 letters, digits, - and _")
        self.host = host
        self.allowed = tuple(allowed_host(name) for name in allow_hosts)
        """The names of reverse proxies."""
        self.viewer = secrets.token_hex(8)
        """Id of this viewer process for its pages."""
        self.command = ""
        """The command that starts such a viewer, for pages that miss it."""
        self._wake = wake
        self._assets = _assets()
        self._arrived: deque[PageConnection] = deque()
        self._open_count = 0
        """Number of WebSockets that are open."""
        self._connections: dict[str, PageConnection] = {}
        """Those whose pages have said hello, by their keys."""
        self._socket = open_listener(host, port)
        self._files = Files(self._connections)
        self.port: int = self._socket.getsockname()[1]
        if port not in (0, self.port):
            self.moved_from = port
        else:
            self.moved_from = None
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
        pages = []
        while self._arrived:
            connection = self._arrived.popleft()
            # A page may have left again.
            if not connection.closed:
                pages.append(connection)
        return pages

    def close(self) -> None:
        """End the thread and every connection, within 2 s. Idempotent."""
        # The loop may have been closed before.
        with suppress(RuntimeError):
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
        runner = web.AppRunner(
            self._application(),
            access_log=None,
            logger=_http_log,
            keepalive_timeout=KEEP_ALIVE,
            lingering_time=1,
            max_field_size=MAX_FIELD,
            shutdown_timeout=_CLOSE_S,
            auto_decompress=False,
        )
        await runner.setup()
        http = runner.server
        assert http is not None

        def new_protocol() -> asyncio.Protocol:
            is_full = len(http.connections) >= MAX_CONNECTIONS
            if is_full:
                return _Full()
            return http()

        listening = await self._loop.create_server(new_protocol, sock=self._socket)
        await self._stop.wait()
        # Nothing more is accepted. Connections that were just accepted are listed two
        # turns later, and would be lost if the server were closed before.
        self._loop.remove_reader(self._socket)
        for _ in range(3):
            await asyncio.sleep(0)
        listening.close()
        for connection in self._connections.values():
            connection.close("the viewer has ended", 1001)
        await runner.cleanup()
        # Transports that were aborted are closed in the next turn.
        await asyncio.sleep(0)

    def _application(self) -> web.Application:
        """Return the application with all addresses that it answers."""
        app = web.Application(middlewares=[self._guarded])
        app.on_response_prepare.append(self._sign)
        router = app.router
        router.add_get("/ws", self._websocket, allow_head=False)
        router.add_get("/download", self._files.hand_out, allow_head=False)
        for path in self._assets:
            router.add_get(path, self._asset, allow_head=False)
        router.add_post("/upload", self._files.receive)
        router.add_post("/check", self._check)
        return app

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
        policy = _POLICY
        if not self._guard.has_token(request):
            policy += "; frame-ancestors 'none'"
        response.headers.update(_HEADERS)
        response.headers["Content-Security-Policy"] = policy

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        asset = self._assets[request.path]
        is_font = asset.content_type == _TYPES["ttf"]
        if is_font:
            charset = None
            keeping = f"max-age={_FONTS_FOR_S}"
        else:
            charset = "utf-8"
            keeping = "no-cache"
        headers = {"Cache-Control": keeping}
        body = asset.body
        if asset.packed:
            headers["Vary"] = "Accept-Encoding"
            if "gzip" in request.headers.get("Accept-Encoding", ""):
                headers["Content-Encoding"] = "gzip"
                body = asset.packed
        return web.Response(
            body=body,
            content_type=asset.content_type,
            charset=charset,
            headers=headers,
        )

    async def _check(self, request: web.Request) -> web.StreamResponse:
        """Answer a page whose WebSocket failed.

        Browsers send the Origin with each POST, so the guard has judged this request
        as it judges a WebSocket's.
        """
        return web.Response(status=204)

    async def _websocket(self, request: web.Request) -> web.StreamResponse:
        offered = subprotocols(request)
        # aiohttp would log unknown ones, also a token.
        if offered and SUBPROTOCOL not in offered:
            raise web.HTTPBadRequest(
                text=f"Unknown subprotocols: expected {SUBPROTOCOL}"
            )
        response = web.WebSocketResponse(
            protocols=(SUBPROTOCOL,),
            timeout=_CLOSE_S,
            heartbeat=HEARTBEAT,
            compress=False,
            max_msg_size=m.MAX_MESSAGE,
        )
        try:
            await response.prepare(request)
        # The key of such a request is not even ASCII.
        except ValueError as e:
            raise web.HTTPBadRequest(text=f"No WebSocket: {e}") from None
        self._open_count += 1
        try:
            closing = await self._talk(request, response)
            reason = closing.reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore")
            await asyncio.wait_for(
                response.close(code=closing.code, message=reason.encode()), _CLOSE_S
            )
        except (TimeoutError, ConnectionError):
            # The other side is stuck or gone.
            pass
        finally:
            self._open_count -= 1
            if request.transport is not None:
                # Bytes that were not sent are dropped.
                request.transport.abort()
        return response

    async def _talk(
        self, request: web.Request, response: web.WebSocketResponse
    ) -> Closing:
        """Serve a page from its hello on; return how to close its WebSocket."""
        if self._open_count > MAX_CLIENTS:
            return Closing(
                1013, f"{MAX_CLIENTS} pages show this viewer already: close one."
            )
        key = secrets.token_urlsafe(16)
        welcome = m.Welcome(
            m.PAGE_PROTOCOL, VERSION, self.viewer, key, MAX_FILE, self.command
        )
        await response.send_str(m.encode(welcome))
        hello = await _receive_hello(response)
        if isinstance(hello, Closing):
            return hello
        connection = PageConnection(response, hello, _peer_of(request), self._wake)
        self._connections[key] = connection
        self._arrived.append(connection)
        try:
            self._wake()
            return await connection.run()
        finally:
            del self._connections[key]


async def _receive_hello(socket: web.WebSocketResponse) -> m.Hello | Closing:
    """Return a page's first message, or how to close its WebSocket without one."""
    try:
        # Not the time-out of `receive_str`, which starts again with each ping.
        async with asyncio.timeout(HELLO_WITHIN):
            message = m.parse(await socket.receive_str())
    except TimeoutError:
        return Closing(1008, f"no hello within {HELLO_WITHIN:g} s")
    except m.MessageError as e:
        return Closing(1008, str(e))
    except WSMessageTypeError:
        # The page sent bytes, or has left.
        message = None
    if not isinstance(message, m.Hello):
        return Closing(1008, "the first message must be hello")
    return message


def _peer_of(request: web.Request) -> str:
    """Return the address and port of the other side, for messages."""
    peer = None
    if request.transport is not None:
        peer = request.transport.get_extra_info("peername")
    if not peer:
        return "a page that has gone"
    return "{}:{}".format(*peer)


class _Full(asyncio.Protocol):
    """Closes a connection beyond MAX_CONNECTIONS."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


@functools.cache
def _assets() -> dict[str, _Asset]:
    """Return each file of the page, by its path."""
    assets: dict[str, _Asset] = {}
    own_files = resources.files("splatview_viewer.web") / "page"
    shared_files = resources.files("splatview_viewer.splat_page") / "shared"
    for file in [*own_files.iterdir(), *shared_files.iterdir()]:
        # An update of a checkout may leave empty folders behind.
        if file.is_file():
            suffix = file.name.rpartition(".")[2]
            assets[f"/{file.name}"] = _text_asset(file.read_text("utf-8"), suffix)
    for name, text in splat_scripts().items():
        assets[f"/splats/{name}"] = _text_asset(text, "js")
    fonts = resources.files("imgui_bundle") / "assets" / "fonts"
    for name in _FONTS:
        file = fonts / name
        if file.is_file():
            assets[f"/{file.name}"] = _Asset(file.read_bytes(), _TYPES["ttf"])
    assets["/"] = assets.pop("/index.html")
    return assets


def _text_asset(text: str, suffix: str) -> _Asset:
    """Return a text, as small as browsers take it."""
    if suffix == "js":
        text = script_to_serve(text)
    body = text.encode()
    return _Asset(body, _TYPES[suffix], gzip.compress(body, mtime=0))
