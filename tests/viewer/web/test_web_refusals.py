"""What is no frame, no head and no request is refused by the web server, and what says nothing is dropped."""

from __future__ import annotations

import gc
import random
import socket
import struct

import pytest
from support.wait import PATIENCE, wait_until
from support.web_visitors import Visitor, ask, raw

from benchmarks.browser import hostile
from splatview_viewer.web import messages as m
from splatview_viewer.web import server as module
from splatview_viewer.web.server import WebServer

SOCKET = "/ws?token=secret"


def test_frames_that_are_none(visitor: Visitor) -> None:
    port = visitor.port
    for name, sent, code in (
            ("a frame of 2^62 bytes", hostile.frame(hostile.TEXT, b"", length=1 << 62), 1009),
            ("a frame too long", hostile.frame(hostile.TEXT, b"", length=m.MAX_MESSAGE + 1), 1009),
            ("fragments without end", hostile.frame(hostile.TEXT, b"x" * 60_000, last=False)
             + hostile.frame(hostile.MORE, b"x" * 60_000), 1009),
            ("no UTF-8", hostile.frame(hostile.TEXT, b"\xff\xfe"), 1007),
            ("compressed", hostile.frame(hostile.TEXT, b"x", packed=True), 1002),
            ("bytes", hostile.frame(hostile.BINARY, b"x"), 1008),
            ("an unknown kind", hostile.frame(3, b"x"), 1002),
            ("a fragment of nothing", hostile.frame(hostile.MORE, b""), None),
            ("a long ping", hostile.frame(hostile.PING, b"x" * 126), 1002),
            ("deep nesting", hostile.frame(hostile.TEXT, b"[" * 60_000), 1008)):
        upgrade = hostile.upgrade(port, SOCKET, **{"Sec-WebSocket-Extensions": "permessage-deflate"})
        got = raw(port, upgrade + hostile.hello() + sent)
        assert b"Sec-WebSocket-Extensions" not in got, "nothing is ever unpacked"
        assert code is None or (b"\x88" in got and struct.pack(">H", code) in got[got.rindex(b"\x88"):]), name
    visitor.goes_on()


def test_heads_that_lie(server: WebServer) -> None:
    port = server.port
    for headers, said in (
            ({"Host": "evil.example"}, b" 403 "), ({"Host": ""}, b" 40"),
            ({"Host": "127.0.0.1\r\nHost: evil.example"}, b" 40"), ({"Origin": "http://evil.example"}, b" 403 "),
            ({"Origin": "null"}, b" 403 "), ({"Origin": f"http://127.0.0.1:{port}.evil.example"}, b" 403 "),
            ({"Content-Length": "x"}, b" 400 "), ({"Content-Length": "-1"}, b" 400 "),
            ({"Transfer-Encoding": "chunked", "Content-Length": "5"}, b" 400 "),
            ({"Content-Length": "5\r\nContent-Length: 6"}, b" 400 "), ({"X-A\0": "b"}, b" 400 ")):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as one:
            one.sendall(hostile.upgrade(port, SOCKET, **headers))
            assert said in one.recv(4096)[:20], headers
    assert not server.arrivals()


def test_nothing_is_given_out_without_the_token(server: WebServer) -> None:
    """But the page's own looks, which are the same everywhere."""
    for path in ("/", "/ws", "/download?key=x"):
        assert ask(server.port, "GET", path)[0] == 403
    assert ask(server.port, "POST", "/upload?name=a", b"x")[0] == 403
    for path in ("/viewer.js", "/viewer.css", "/files.js", "/favicon.svg"):
        assert ask(server.port, "GET", path)[0] == 200


def test_connections_too_many(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those beyond the cap are closed at once. A connected page stays, and idle connections go by themselves."""
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 3)
    get = hostile.head(visitor.port, "/?token=secret", Connection="close")
    idle = [socket.create_connection(("127.0.0.1", visitor.port), timeout=PATIENCE) for _ in range(2)]
    try:
        wait_until(lambda: answer(visitor.port, get) == b"")
    finally:
        for one in idle:
            one.close()
    wait_until(lambda: answer(visitor.port, get).startswith(b"HTTP/1.1 200"))
    visitor.goes_on()


def answer(port: int, request: bytes) -> bytes:
    """As `raw`; b"" where the connection is reset."""
    try:
        return raw(port, request)
    except ConnectionError:
        return b""


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nX: "], ids=["nothing", "half a request"])
def test_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(module, "KEEP_ALIVE", 0.2)
    server = WebServer(port=0, token="secret", wake=lambda: None)
    try:
        assert raw(server.port, sent) == b""
    finally:
        server.close()


def test_connections_that_break_anywhere(visitor: Visitor, caplog: pytest.LogCaptureFixture) -> None:
    """At any byte of what a page, a file or a browser sends; closed, or reset in the middle."""
    luck, port = random.Random(3), visitor.port
    talks = [hostile.head(port), hostile.head(port, "/viewer.js") * 3, hostile.upgrade(port, SOCKET),
             hostile.upgrade(port, SOCKET) + hostile.hello() + hostile.frame(hostile.TEXT, b'{"t":"leave"}') * 3,
             hostile.upgrade(port, SOCKET) + hostile.hello() + hostile.frame(hostile.CLOSE),
             hostile.head(port, "/upload?token=secret&name=a.ply", "POST", **{"Content-Length": "500"}) + bytes(500)]
    for number in range(60):
        talk = luck.choice(talks)
        one = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        if luck.random() < 0.7:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.sendall(talk[:luck.randrange(len(talk) + 1)])
        one.close()
        if number % 20 == 0:
            visitor.goes_on(number)
    visitor.goes_on(300)
    assert not caplog.records


def test_connections_that_come_while_it_closes_are_closed() -> None:
    """Nothing is left: an unclosed connection fails the test as a warning."""
    for _ in range(5):
        server = WebServer(port=0, wake=lambda: None)
        pages = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) for _ in range(30)]
        server.close()
        for page in pages:
            page.close()
        gc.collect()
