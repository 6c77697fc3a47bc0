"""What is no frame, no head, no path and no file is refused by the web server, and whoever says nothing is dropped."""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.meters import footprint
from support.wait import PATIENCE
from support.web_clients import Page
from support.web_floods import Work, goes_on, honest_fixture, open_server_fixture, work_fixture  # noqa: F401
from support.web_visitors import Visitor, ask, folder_fixture, server_fixture, visitor_fixture  # noqa: F401
from test_web_files import coming, kept
from test_web_server import raw

from benchmarks.browser import hostile
from splatview.viewer_app.web import door, uploads
from splatview.viewer_app.web import messages as m
from splatview.viewer_app.web.door import Visit
from splatview.viewer_app.web.server import WebServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from splatview.viewer_app.web.connection import Connection


# -- single ones -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sent", "code"), [
    (hostile.frame(hostile.TEXT, b"", length=1 << 62), 1009),
    (hostile.frame(hostile.TEXT, b"", length=m.MAX_MESSAGE + 1), 1009),
    (hostile.frame(hostile.TEXT, b"x" * 60_000, last=False) + hostile.frame(hostile.MORE, b"x" * 60_000), 1009),
    (hostile.frame(hostile.TEXT, b"\xff\xfe"), 1007), (hostile.frame(hostile.TEXT, b"x", packed=True), 1002),
    (hostile.frame(hostile.BINARY, b"x"), 1008), (hostile.frame(3, b"x"), 1002),
    (hostile.frame(hostile.MORE, b""), None),
    (hostile.frame(hostile.PING, b"x" * 126), 1002), (hostile.frame(hostile.TEXT, b"[" * 60_000), 1008),
], ids=["a frame of 2^62 bytes", "a frame too long", "fragments without end", "no UTF-8", "compressed", "bytes",
        "an unknown kind", "a fragment of nothing", "a long ping", "deep nesting"])
def test_frames_that_are_none(open_server: WebServer, honest: tuple[Page, Connection], sent: bytes,
                              code: int | None) -> None:
    base = footprint()
    with socket.create_connection(("127.0.0.1", open_server.port), timeout=PATIENCE) as one:
        one.sendall(hostile.upgrade(open_server.port, **{"Sec-WebSocket-Extensions": "permessage-deflate"})
                    + hostile.hello() + sent)
        got = b""
        while part := one.recv(65536):
            got += part
    assert b"Sec-WebSocket-Extensions" not in got, "nothing is ever unpacked"
    assert code is None or (b"\x88" in got and struct.pack(">H", code) in got[got.rindex(b"\x88"):])
    assert not footprint().over(base, descriptors=8, threads=4)
    goes_on(honest)


@pytest.mark.parametrize("path", [
    "/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "/..%5c..%5cetc/passwd", "//127.0.0.1/etc/passwd", "/%c0%ae%c0%ae/etc/passwd",
    "/viewer.js%00", "/%00", "/%", "/%zz", "/" + "../" * 2000 + "etc/passwd", "/" + "%2e%2e%2f" * 800,
    "/proc/self/environ", "/..;/etc/passwd", "/./././viewer.js", "/download?key=../../etc/passwd", "/download?key=%00",
    "/download", "/download?key=" + "a" * 5000, "/ws/../etc/passwd", "/upload/../viewer.py",
    "/viewer.js?/../server.py#x",
])
def test_tricks_with_paths(open_server: WebServer, path: str) -> None:
    answer = raw(open_server.port, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    assert b"root:" not in answer and b"PATH=" not in answer and b"import annotations" not in answer
    status = answer[9:12]
    assert status in (b"400", b"404", b"403") or (status == b"200" and path.startswith("/viewer.js?"))


@pytest.mark.parametrize(("headers", "said"), [
    ({"Host": "evil.example"}, b" 403 "), ({"Host": ""}, b" 40"), ({"Host": "127.0.0.1\r\nHost: evil.example"}, b" 40"),
    ({"Origin": "http://evil.example"}, b" 403 "), ({"Origin": "null"}, b" 403 "),
    ({"Origin": "http://127.0.0.1:{port}.evil.example"}, b" 403 "), ({"Content-Length": "x"}, b" 400 "),
    ({"Content-Length": "-1"}, b" 400 "), ({"Transfer-Encoding": "chunked", "Content-Length": "5"}, b" 400 "),
    ({"Content-Length": "5\r\nContent-Length: 6"}, b" 400 "), ({"X-A\0": "b"}, b" 400 "),
])
def test_heads_that_lie(open_server: WebServer, headers: dict[str, str], said: bytes) -> None:
    port = open_server.port
    filled = {name: value.format(port=port) for name, value in headers.items()}
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as one:
        one.sendall(hostile.upgrade(port, **filled))
        got = one.recv(4096)
    assert said in got[:20], got
    assert not open_server.arrivals()


def test_pipelined_requests_are_not_kept(open_server: WebServer, work: Work) -> None:
    """10,000 at once: few are taken in before it is seen that no browser does so."""
    with socket.create_connection(("127.0.0.1", open_server.port), timeout=PATIENCE) as one:
        try:
            one.sendall(hostile.head(open_server.port) * 10_000)
            while one.recv(1 << 20):
                pass
        except ConnectionError:
            pass
    assert work.requests < 200
    assert raw(open_server.port, hostile.head(open_server.port, Connection="close")).startswith(b"HTTP/1.1 200")


def test_sockets_too_many(open_server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who say nothing keep nobody out: the oldest of them goes. A page stays, however many come."""
    monkeypatch.setattr(door, "MAX_SOCKETS", 3)
    get = hostile.head(open_server.port, Connection="close")
    with Page(open_server.port) as page:
        page.connect().greet()
        idle = [socket.create_connection(("127.0.0.1", open_server.port), timeout=PATIENCE) for _ in range(5)]
        try:
            for one in idle[:3]:
                assert one.recv(1) == b""
            for _ in range(5):
                assert raw(open_server.port, get).startswith(b"HTTP/1.1 200")
        finally:
            for one in idle:
                one.close()
        (connection,) = open_server.arrivals()
        connection.send(m.Clipboard("here"))
        assert page.receive() == m.Clipboard("here")


def test_who_says_nothing_is_dropped_after_a_while(monkeypatch: pytest.MonkeyPatch, open_server: WebServer,
                                                   honest: tuple[Page, Connection]) -> None:
    """Also who sends a byte now and then. A page stays for as long as it likes."""
    monkeypatch.setattr(door, "WITHIN", 1.0)
    server = WebServer(port=0, wake=lambda: None)
    try:
        with Page(server.port) as page, socket.create_connection(("127.0.0.1", server.port)) as one:
            page.connect().greet()
            one.settimeout(0.05)
            one.sendall(b"GET / HTTP/1.1\r\nX: ")
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:
                try:
                    one.sendall(b"a")
                    assert one.recv(100) == b""
                    break
                except TimeoutError:
                    continue
                except ConnectionError:
                    break
            else:
                pytest.fail("it still listens to half a request")
            time.sleep(1.5)
            (connection,) = server.arrivals()
            goes_on((page, connection))
    finally:
        server.close()


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_file_that_trickles(visitor: Visitor, monkeypatch: pytest.MonkeyPatch,
                              wait_until: Callable[..., Any]) -> None:
    """A byte now and then keeps no place among the two that may be sent at a time."""
    monkeypatch.setattr(uploads, "STALL", 0.5)
    with visitor.begin(10**6, b"some") as one:
        one.settimeout(0.05)
        got, end = b"", time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                one.sendall(b"x")
                got = one.recv(4096)
                break
            except TimeoutError:
                continue
        assert b" 408 " in got and b"hardly anything came" in got
    wait_until(lambda: not coming(visitor))


def test_a_file_without_end(visitor: Visitor, folder: Path, wait_until: Callable[..., Any]) -> None:
    """More than its size is not part of it: no more is written, and who sends it is dropped."""
    written = 0
    with visitor.begin(1000, bytes(100_000)) as one:
        try:
            while one.recv(4096):
                one.sendall(bytes(100_000))
                written = max([written, *(f.stat().st_size for f in kept(folder))])
        except ConnectionError:
            pass
    wait_until(lambda: not coming(visitor))
    assert max([written, *(f.stat().st_size for f in kept(folder))]) <= 1000
    assert visitor.post(b"another")[0] == 200


def test_files_are_read_as_fast_as_they_come(visitor: Visitor, wait_until: Callable[..., Any]) -> None:
    """The bound on what is read is for those of whom nothing is known."""
    visits: list[Visit] = []
    before = Visit.unmetered

    def noted(visit: Visit, free: bool) -> None:
        visits.append(visit)
        before(visit, free)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Visit, "unmetered", noted)
        patch.setattr(door, "READ_PER_SECOND", 1)
        patch.setattr(door, "READ_AT_LEAST", 1)  # at this pace it would take two years
        assert visitor.post(bytes(64 << 20))[0] == 200
    assert visits and not visits[0].settled
    (upload,) = wait_until(lambda: visitor.receiver.uploads)
    assert upload.path.stat().st_size == 64 << 20


def test_a_stranger_gets_no_further_than_the_door(visitor: Visitor) -> None:
    """Without the token: nothing of the viewer is given out but the page's own looks, and no socket is opened."""
    for path in ("/", "/ws", "/download?key=x"):
        assert ask(visitor.port, "GET", path)[0] == 403
    assert ask(visitor.port, "POST", "/upload?name=a", b"x")[0] == 403
    for path in ("/viewer.js", "/viewer.css", "/files.js", "/favicon.svg"):
        assert ask(visitor.port, "GET", path)[0] == 200
