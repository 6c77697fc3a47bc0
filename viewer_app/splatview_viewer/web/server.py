"""The web server of the viewer: the page and its WebSocket on one port, in a thread of its own.

The page itself is read into memory at the start; a file that the viewer offers to a page is fetched once, by a key. No
name in a request leads to a file. The server knows nothing of pictures: each page that says hello becomes a Connection,
which the thread that draws takes with `arrivals`.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import html
import logging
import re
import secrets
import socket
import threading
from collections import deque
from importlib import resources
from typing import TYPE_CHECKING

from aiohttp import WSMsgType, web
from aiohttp.http_exceptions import HttpProcessingError

from splatview_ipc.control.limits import VERSION
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.web import guard
from splatview_viewer.web import messages as m
from splatview_viewer.web.connection import Connection
from splatview_viewer.web.files import MAX_FILE, Files, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

MAX_CLIENTS = 32
"""Pages connected at a time."""
MAX_CONNECTIONS = 256
"""TCP connections at a time. Further ones are closed at once."""
KEEP_ALIVE = 15.0
"""Seconds without a complete request after which an idle connection is closed."""
HELLO_WITHIN = 5.0
"""Seconds within which a page must say hello."""
HEARTBEAT = 14.0
"""Seconds between pings of a page; one that does not answer within half of that is gone."""
_CLOSING = 1.2
"""Seconds for pages to hear that the server ends."""
PORTS_TRIED = 20
"""Ports tried after one that is taken."""
_BUFFER, _UNSENT = 384 * 1024, 128 * 1024
"""Bytes in the kernel for each connection, and those of them that were not sent yet."""

_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_FILES = {"/": "index.html"} | {f"/{name}": name for name in (
    "viewer.js", "files.js", "session.js", "refused.js", "viewer.css", "favicon.svg")}
_GUARDED = "/", "/ws", "/upload", "/download"
"""Paths that need the token. The others are parts of the page, which is public in the package."""

_OF_CLIENTS = HttpProcessingError, ConnectionError
"""Faults of clients that speak no HTTP, or leave before the answer."""

_REFUSAL = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>splatview</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="viewer.css">
<script type="module" src="refused.js"></script>
<body class="empty"><div id="notice" role="alert" hidden><span id="words">{0}</span></div>
<noscript>{0}</noscript></body>
</html>
"""
"""The page that shows why a request was refused. If the tab still has the token it loads again with it."""

_log = logging.getLogger(__name__)
_http_log = logging.getLogger(f"{__name__}.http")
_http_log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], _OF_CLIENTS)))
"""aiohttp's, without the faults of clients, which must not fill the user's terminal."""


class WebServer:
    """Serves the page from its construction until `close`.

    Usable from any thread. `wake` is called in the web thread when `arrivals` has a page, or a page has something for
    the thread that draws; it must return at once.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 7007, *, token: str | None = None,
                 wake: Callable[[], None]) -> None:
        """Bind to `host`, a name or address of this machine, and `port`, 0 for any that is free. Where the port is
        taken: the next free one of the 20 that follow; `moved_from` then says which it was.

        Every request needs `token`, letters, digits, - and _; by default a random one of 128 bits, and also where the
        port is taken: pages send this token to the program that has it now. Raises ViewerError when it cannot listen
        there, or for an invalid token.
        """
        if token is not None and not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", token):
            raise ViewerError("token: it must be 1 to 128 letters, digits, - and _")
        self.host = host
        self.viewer = secrets.token_hex(8)
        """Id of this viewer process for its pages."""
        self._wake = wake
        self._assets = _assets()
        self._arrived: deque[Connection] = deque()
        self._serving: dict[asyncio.Task[Any], Connection | None] = {}
        self._files = Files(lambda: [c for c in self._serving.values() if c is not None])
        self._socket = listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self.moved_from = port if port not in (0, self.port) else None
        self.token = token if token is not None and self.moved_from is None else secrets.token_urlsafe(16)
        self._rules = guard.rules_for(host, self.token)
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise ViewerError(f"the web server did not start: {self._failure}") from self._failure

    def arrivals(self) -> list[Connection]:
        """Return the pages that have said hello since the last call."""
        new = []
        while self._arrived:
            connection = self._arrived.popleft()
            if not connection.closed:  # it may have left since
                new.append(connection)
        return new

    def close(self) -> None:
        """End the thread and every connection, within 2 s. Idempotent."""
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            try:
                loop.call_soon_threadsafe(stop.set)
            except RuntimeError:  # closed before
                pass
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # -- the web thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._serve(self._socket))
        except BaseException as e:
            self._failure = e
            if self._started.is_set():
                _log.exception("The web server ended with an error")
        finally:
            self._socket.close()
            self._files.close()
            self._started.set()

    async def _serve(self, bound: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, logger=_http_log, keepalive_timeout=KEEP_ALIVE,
                               lingering_time=1, shutdown_timeout=0.2, auto_decompress=False)
        await runner.setup()
        http = runner.server
        assert http is not None
        listening = await self._loop.create_server(
            lambda: http() if len(http.connections) < MAX_CONNECTIONS else _Full(), sock=bound)
        self._started.set()
        await self._stop.wait()
        self._loop.remove_reader(bound)  # accepts no more; those that were just accepted are listed two turns later,
        for _ in range(3):  # and would be lost if the server were closed before
            await asyncio.sleep(0)
        listening.close()
        for connection in filter(None, self._serving.values()):
            connection.close("the viewer has ended", 1001)
        if self._serving:
            await asyncio.wait(self._serving, timeout=_CLOSING)
        for protocol in http.connections:
            if protocol.transport is not None:
                protocol.transport.abort()
        await runner.cleanup()
        await asyncio.sleep(0)  # aborted transports are closed in the next turn

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        hosts = request.headers.getall("Host", [])
        if reason := guard.refuse_host(self._rules, hosts):
            return _text(403, reason)
        path = request.rel_url.raw_path
        method = "POST" if path == "/upload" else "GET"
        if request.method != method:
            return _text(405, f"Only {method}.", {"Allow": method})
        headers = request.headers.getall(guard.TOKEN_HEADER, [])
        given = guard.tokens(request.query.get("token"), headers, _offered(request))
        if path in _GUARDED and (reason := guard.refuse_token(self._rules, given)):
            if path == "/" and "text/html" in request.headers.get("Accept", ""):  # not the page's script
                return web.Response(status=403, text=_REFUSAL.format(html.escape(reason)), content_type="text/html",
                                    headers=_headers(hosts[0], framed=False))
            return _text(403, reason)
        if path == "/ws":
            return await self._websocket(request, hosts[0])
        if path in ("/upload", "/download"):
            return await self._file(request, hosts[0])
        if path not in self._assets:
            return _text(404, "Not found. The viewer is at /")
        body, kind, tag = self._assets[path]
        framed = guard.has_token(self._rules, given)
        headers = {**_headers(hosts[0], framed=framed), "ETag": tag, "Cache-Control": "no-cache"}
        if tag in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=headers)

    async def _file(self, request: web.Request, host: str) -> web.StreamResponse:
        """Answer an upload or a download."""
        try:
            if request.method == "GET":
                return await self._files.hand_out(request, _headers(host))
            if reason := guard.refuse_origin(host, request.headers.getall("Origin", []), "file"):
                raise Refused(403, reason)
            await self._files.receive(request, asyncio.get_running_loop().time())
        except Refused as e:
            answer = _text(e.status, str(e))
            answer.force_close()  # the rest of an upload is not read
            return answer
        return _text(200, "Taken.")

    async def _websocket(self, request: web.Request, host: str) -> web.StreamResponse:
        if reason := guard.refuse_origin(host, request.headers.getall("Origin", [])):
            return _text(403, reason)
        if request.headers.get("Upgrade", "").lower() != "websocket":
            return _text(400, "This is a WebSocket. Open / in a browser.")
        if (offered := _offered(request)) and guard.SUBPROTOCOL not in offered:  # aiohttp would log them, a token too
            return _text(400, f"Unknown subprotocols: expected {guard.SUBPROTOCOL}")
        response = web.WebSocketResponse(protocols=(guard.SUBPROTOCOL,), timeout=1, heartbeat=HEARTBEAT,
                                         compress=False, max_msg_size=m.MAX_MESSAGE)
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = None
        try:
            hello = await self._hello(response)
            if hello is not None and sum(c is not None for c in self._serving.values()) >= MAX_CLIENTS:
                await self._refuse(response, f"{MAX_CLIENTS} pages show this viewer already: close one", True)
            elif hello is not None:
                await self._connected(request, response, hello, task)
        finally:
            self._serving.pop(task)
            await _soon(response.close())
            if request.transport is not None:
                request.transport.abort()  # unsent bytes are dropped
        return response

    async def _hello(self, response: web.WebSocketResponse) -> m.Hello | None:
        """Return the page's hello; None where the connection ends before."""
        try:
            first = await asyncio.wait_for(response.receive(), HELLO_WITHIN)
        except TimeoutError:
            await _soon(response.close(code=1008, message=f"no hello within {HELLO_WITHIN:g} s".encode()))
            return None
        if first.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
            return None
        try:
            if first.type is WSMsgType.TEXT and (protocol := m.other_protocol(first.data)) is not None:
                # a page that hears of the viewer's protocol loads itself anew
                await _soon(response.send_str(m.encode(m.Welcome(m.PROTOCOL, VERSION, self.viewer))))
                await self._refuse(response, f"the page speaks protocol {protocol}, this viewer {m.PROTOCOL}: reload "
                                             "the page", False)
                return None
            message = m.parse(first.data) if first.type is WSMsgType.TEXT else None
        except m.MessageError as e:
            await _soon(response.close(code=1008, message=_reason(str(e))))
            return None
        if not isinstance(message, m.Hello):
            await _soon(response.close(code=1008, message=b"the first message must be hello"))
            return None
        return message

    async def _connected(self, request: web.Request, response: web.WebSocketResponse, hello: m.Hello,
                         task: asyncio.Task[Any]) -> None:
        connection = Connection(response, hello, _peer(request), self._wake)
        connection.send(m.Welcome(m.PROTOCOL, VERSION, self.viewer, connection.key, MAX_FILE))
        self._serving[task] = connection
        self._arrived.append(connection)
        try:
            self._wake()
            await connection.run()
        finally:
            connection.close()
            code, reason = connection.farewell
            await _soon(response.close(code=code, message=_reason(reason)))

    async def _refuse(self, response: web.WebSocketResponse, reason: str, again: bool) -> None:
        await _soon(response.send_str(m.encode(m.Refused(reason, again))))
        await _soon(response.close(code=1013 if again else 1008, message=_reason(reason)))


def listen(host: str, port: int) -> socket.socket:
    """A TCP socket that listens at `host`, and at `port` or the first free one of the PORTS_TRIED that follow.

    Raises ViewerError naming what is wrong with host or port.
    """
    if not 0 <= port <= 65535:
        raise ViewerError(f"port: {port} is none; it must be 1024 to 65535, or 0 for any that is free")
    last = port if port == 0 else min(port + PORTS_TRIED, 65535)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise ViewerError(_no_host(host)) from None
    # IPv4 where there is a choice: a tunnel leads to 127.0.0.1
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    for number in range(port, last + 1):
        try:
            return _bound(family, (address[0], number, *address[2:]))
        except OSError as e:
            if e.errno == errno.EACCES:
                raise ViewerError(f"port: {number} is kept for the system's own services; choose 1024 to 65535, "
                                  "or 0 for any that is free") from None
            if e.errno != errno.EADDRINUSE:
                raise ViewerError(_no_host(host) if e.errno == errno.EADDRNOTAVAIL
                                  else f"host: cannot listen at {host!r}: {e}") from None
    raise ViewerError(f"port: {port} to {last} are all taken; choose another, or 0 for any that is free")


def _bound(family: int, address: tuple) -> socket.socket:
    made = socket.create_server(address, family=family, backlog=128, dualstack_ipv6=address[0] == "::")
    # Connections inherit these. A picture that waits in the kernel is old when it arrives, so little may: on a slow
    # link it waits in the viewer, which then makes fewer.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
    return made


def _no_host(host: str) -> str:
    return (f"host: {host!r} is no address of this machine; choose 127.0.0.1 for this machine only, 0.0.0.0 for all "
            "of its addresses, or one of them")


class _Full(asyncio.Protocol):
    """Closes a connection beyond MAX_CONNECTIONS."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


async def _soon(work: Coroutine[Any, Any, object]) -> None:
    """Do something quick that hangs only if the other side is stuck or gone."""
    try:
        await asyncio.wait_for(work, 0.7)
    except (TimeoutError, ConnectionError):
        pass


def _reason(text: str) -> bytes:
    """Return a text cut to fit into the frame that closes a WebSocket."""
    return text.encode()[:120].decode(errors="ignore").encode()


def _offered(request: web.Request) -> list[str]:
    """Return the subprotocols of a WebSocket's request: of the first header, as aiohttp takes them."""
    return guard.subprotocols(request.headers.getall("Sec-WebSocket-Protocol", [])[:1])


def _peer(request: web.Request) -> str:
    name = request.transport.get_extra_info("peername") if request.transport is not None else None
    return f"{name[0]}:{name[1]}" if name else "a page that has gone"


def _text(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=text + "\n", headers={**_headers(""), **(headers or {})})


def _headers(host: str, *, framed: bool = True) -> dict[str, str]:
    """Return the headers of every answer. `host`: the Host header, once it is allowed; "" leaves it out. `framed`:
    pages of other servers on this machine may show the answer in a frame."""
    name = guard.host_name(host)
    named = bool(name) and ":" not in name  # the grammar of a policy has no IPv6 addresses
    sockets = f" ws://{host.lower()} wss://{host.lower()}" if named else ""
    # A notebook on the same machine shows the page in a frame, at another port; VS Code does so in a webview. Another
    # user's server can be at such a port, too, and have clicks land in a frame that is not seen: it has no token.
    around = "".join(f" {scheme}://{n}:*" for n in sorted({"localhost", "127.0.0.1"} | ({name} if named else set()))
                     for scheme in ("http", "https") if framed)
    return {
        "Content-Security-Policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
            f"connect-src 'self'{sockets}; base-uri 'none'; form-action 'none'; "
            f"frame-ancestors 'self'{around} vscode-webview: vscode-file:"),
        "Cross-Origin-Resource-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Server": "splatview",
    }


def _assets() -> dict[str, tuple[bytes, str, str]]:
    """Return content, type and entity tag of each path."""
    page = resources.files("splatview_viewer.web") / "page"
    found = {}
    for path, name in _FILES.items():
        body = (page / name).read_bytes()
        found[path] = body, _TYPES[name.rpartition(".")[2]], f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    return found
