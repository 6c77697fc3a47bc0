"""Whoever comes to the web server and means no good: what it does for them is bounded, by count and not by luck, and a
page that was there before goes on getting its pictures.

What a flood costs is counted in connections, bytes and requests that are looked at, so that a busy machine makes no
difference; `python -m benchmarks web_faults` has what it costs in pictures a second.
"""

from __future__ import annotations

import os
import random
import resource
import socket
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from meters import MB, footprint, settled
from patience import PATIENCE
from programs import ROOT
from test_web_files import coming, kept
from test_web_server import raw
from web_clients import Page
from web_visitors import Visitor, ask, folder_fixture, server_fixture, visitor_fixture  # noqa: F401

from benchmarks.browser import hostile
from viewer_app.web import door, uploads
from viewer_app.web import messages as m
from viewer_app.web import server as serving
from viewer_app.web.door import Turns, Visit
from viewer_app.web.server import WebServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from viewer_app.web.connection import Connection

SECONDS = 1.2
MEMORY = 48 * MB
"""What a flood may take up; 256 connections that had no bounds would take gigabytes."""


class Work:
    """What the server does for those who come."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connections = self.bytes = self.requests = 0
        made, fed, answer = Visit.connection_made, web.RequestHandler.data_received, WebServer._answer

        def connection_made(visit: Visit, transport: Any) -> None:
            self.connections += 1
            made(visit, transport)

        def data_received(handler: web.RequestHandler, data: bytes) -> None:
            self.bytes += len(data)
            fed(handler, data)

        async def answered(server: WebServer, request: web.BaseRequest) -> web.StreamResponse:
            self.requests += 1
            return await answer(server, request)

        monkeypatch.setattr(Visit, "connection_made", connection_made)
        monkeypatch.setattr(web.RequestHandler, "data_received", data_received)
        monkeypatch.setattr(WebServer, "_answer", answered)

    def check(self, seconds: float) -> None:
        """Held against what the module `door` promises."""
        most = door.AT_ONCE + door.PER_SECOND * seconds + 1
        assert self.connections <= most
        assert self.requests <= most * door.FIRST + door.ANSWERED_AT_ONCE + door.ANSWERED_PER_SECOND * seconds
        # Of each who comes the first bytes, and of all together so many a second; what few connections may read at
        # once is more than their share for a moment, and each may end in the middle of a piece.
        assert self.bytes <= (most * (door.READ_AT_FIRST + door._PIECE) + 32 * door.READ_AT_ONCE
                              + 2 * door.READ_IN_ALL * seconds)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


@pytest.fixture
def open_server(work: Work) -> Iterator[WebServer]:
    made = WebServer(port=0, wake=lambda: None)
    yield made
    made.close()


@pytest.fixture
def honest(open_server: WebServer, wait_until: Callable[..., Any]) -> Iterator[tuple[Page, Connection]]:
    with Page(open_server.port) as page:
        page.connect().greet()
        (connection,) = wait_until(open_server.arrivals)
        yield page, connection


def goes_on(honest: tuple[Page, Connection], number: int = 1) -> None:
    """The page gets a picture, and is heard."""
    page, connection = honest
    connection.send_picture(m.Picture(number, "jpeg", (4, 4), (8, 8), 0.0, 0, 80, False, os.urandom(20_000)))
    assert page.picture().number == number
    page.send(m.Ack(number))
    assert not connection.closed


# -- floods ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", hostile.KINDS)
def test_a_flood_is_bounded(open_server: WebServer, work: Work, honest: tuple[Page, Connection], kind: str,
                            wait_until: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    goes_on(honest)
    base = footprint()
    flood = subprocess.Popen([sys.executable, "-m", "benchmarks.browser.hostile", kind, str(open_server.port),
                              str(SECONDS)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert flood.stdout is not None
    begin, number, over = time.monotonic(), 1, {}
    with flood:
        assert flood.stdout.readline() == "begun\n"
        while flood.poll() is None:
            number += 1
            goes_on(honest, number)
            open_server.arrivals()
            over = over or footprint().over(base, rss=MEMORY, descriptors=door.MAX_SOCKETS + 16, threads=4,
                                            children=1)
            time.sleep(0.005)
    work.check(time.monotonic() - begin)
    assert not over
    goes_on(honest, number + 1)
    assert raw(open_server.port, hostile.head(open_server.port, Connection="close")).startswith(b"HTTP/1.1 200")
    settled(base, wait_until, rss=MEMORY, threads=4)
    assert not caplog.records, "nothing that they do is written into the user's terminal"


def test_200_pages(open_server: WebServer, honest: tuple[Page, Connection], wait_until: Callable[..., Any]) -> None:
    """As many as there are seats for; the others are told so, in words, and that they may try again."""
    base = footprint()
    answers: list[bytes] = []
    sockets = []
    for number in range(200):
        one = socket.create_connection(("127.0.0.1", open_server.port), timeout=PATIENCE)
        one.sendall(hostile.upgrade(open_server.port) + hostile.hello(f"page{number}"))
        sockets.append(one)
    for one in sockets:
        got = b""
        while b'"t":"welcome"' not in got and b'"t":"refused"' not in got:
            part = one.recv(4096)
            assert part, got
            got += part
        answers.append(got)
    seated = [one for one, got in zip(sockets, answers, strict=True) if b'"t":"welcome"' in got]
    assert len(seated) == serving.MAX_CLIENTS - 1
    for got in answers:
        if b'"t":"refused"' in got:
            assert b'"again":true' in got
            assert b"32 pages show this viewer already: close one" in got
    goes_on(honest)
    for one in sockets:
        one.close()
    settled(base, wait_until, rss=MEMORY, threads=4)
    goes_on(honest, 2)


def test_more_pages_than_screens_can_be_made_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that come and go: each costs the thread that draws a screen, so only so many arrive."""
    monkeypatch.setattr(serving, "PAGES_AT_ONCE", 2)
    monkeypatch.setattr(serving, "PAGES_PER_SECOND", 0.01)
    server = WebServer(port=0, wake=lambda: None)
    try:
        for number in range(6):
            with Page(server.port) as page:
                page.connect().send(m.Hello(protocol=1, id="again", width=100, height=100))
                answer = page.receive()
            if number < 2:
                assert isinstance(answer, m.Welcome)
            else:
                assert answer == m.Refused("more pages come than this viewer can let in", True)
        assert len(server.arrivals()) <= 2
    finally:
        server.close()


def test_connections_that_break_anywhere(open_server: WebServer, honest: tuple[Page, Connection],
                                         wait_until: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    """200 times, at any byte of what a page, a file or a browser sends; closed, or reset in the middle."""
    luck, port = random.Random(3), open_server.port
    talks = [hostile.head(port), hostile.head(port, "/viewer.js") * 3, hostile.upgrade(port),
             hostile.upgrade(port) + hostile.hello() + hostile.frame(hostile.TEXT, b'{"t":"leave"}') * 3,
             hostile.upgrade(port) + hostile.hello() + hostile.frame(hostile.CLOSE),
             hostile.head(port, "/upload?name=a.ply", "POST", **{"Content-Length": "500"}) + bytes(500)]
    base = footprint()
    for number in range(200):
        talk = luck.choice(talks)
        one = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        if luck.random() < 0.7:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.sendall(talk[:luck.randrange(len(talk) + 1)])
        if luck.random() < 0.3:
            time.sleep(0.003)
        one.close()
        if number % 20 == 0:
            goes_on(honest, number)
    goes_on(honest, 300)
    settled(base, wait_until, rss=MEMORY, threads=4)
    assert not caplog.records


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
        end = time.monotonic() + PATIENCE
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


# -- the machine -------------------------------------------------------------------------------------------------------


def test_no_descriptor_is_left(open_server: WebServer, honest: tuple[Page, Connection],
                               caplog: pytest.LogCaptureFixture) -> None:
    """Said once; the page that is there goes on, and others come again once there are some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    waiting = [socket.socket() for _ in range(30)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(n) for n in os.listdir("/proc/self/fd")) + 1, hard))
    try:
        spare = []
        try:
            while True:
                spare.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            pass
        for one in waiting:
            one.settimeout(PATIENCE)
            one.connect(("127.0.0.1", open_server.port))
            one.sendall(hostile.head(open_server.port))
        end = time.monotonic() + PATIENCE
        while "No browser can connect for now" not in caplog.text and time.monotonic() < end:
            goes_on(honest)
            time.sleep(0.01)
        for _ in range(20):
            goes_on(honest)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in spare:
            os.close(fd)
    for one in waiting:
        assert one.recv(100).startswith(b"HTTP/1.1 200")
        one.close()
    assert caplog.text.count("No browser can connect for now") == 1


def test_turns() -> None:
    turns = Turns(3, 2.0)
    assert [turns.due(10.0) for _ in range(5)] == [0, 0, 0, 0.5, 1.0]
    assert turns.due(10.0, most=1.0) is None
    assert turns.due(10.0, most=1.5) == 1.5, "who was sent away has taken no turn"
    assert turns.due(11.5) == 0.5
    assert [turns.due(100.0) for _ in range(4)] == [0, 0, 0, 0.5], "turns that nobody took are not saved up"


def test_a_stranger_gets_no_further_than_the_door(visitor: Visitor) -> None:
    """Without the token: nothing of the viewer is given out but the page's own looks, and no socket is opened."""
    for path in ("/", "/ws", "/download?key=x"):
        assert ask(visitor.port, "GET", path)[0] == 403
    assert ask(visitor.port, "POST", "/upload?name=a", b"x")[0] == 403
    for path in ("/viewer.js", "/viewer.css", "/files.js", "/favicon.svg"):
        assert ask(visitor.port, "GET", path)[0] == 200
