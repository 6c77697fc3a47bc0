"""The web server over real sockets: what it gives out and refuses, pages that behave badly, and its end."""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import random
import re
import socket
import struct
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest
from support import hostile
from support.other_users import OTHER, needs_root
from support.wait import PATIENCE, wait_until
from support.web_clients import HELLO, Page, Visitor, ask, raw

from splatview_viewer.core import events as ev
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.screen import Caption
from splatview_viewer.web import messages as m
from splatview_viewer.web import server as module
from splatview_viewer.web.server import WebServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.programs import Programs

SOCKET = "/ws?token=secret"


def serve(host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> WebServer:
    return WebServer(host, port, token=token, wake=lambda: None)


# -- what it gives out ------------------------------------------------------------------------------------------------


def test_the_page_comes_with_its_policy_and_asks_nothing_of_the_internet(server: WebServer) -> None:
    for path, kind in (("/?token=secret", "html"), ("/", "html"), ("/viewer.js", "javascript"),
                       ("/files.js", "javascript"), ("/session.js", "javascript"), ("/viewer.css", "css"),
                       ("/favicon.svg", "svg+xml")):
        answer = ask(server.port, path)
        assert (answer.status, answer.headers.get_content_subtype()) == (200, kind)
        for name, value in (("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"),
                            ("Cross-Origin-Resource-Policy", "same-origin"), ("Cache-Control", "no-cache")):
            assert answer.headers[name] == value
        policy = answer.headers["Content-Security-Policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "connect-src 'self'"} < {*policy}
        assert ("frame-ancestors 'none'" in policy) == ("token" not in path), "a frame needs the token"
        assert "secret" not in answer.text
        foreign = re.findall(r"(?:https?:)?//[a-z0-9][\w.-]*\.[a-z]{2,}", answer.text)
        assert not [url for url in foreign if "w3.org" not in url]


NOWHERE = [
    "/server.py", "/../../etc/passwd", "/..%2f..%2fetc%2fpasswd", "//127.0.0.1/etc/passwd", "/viewer.js/../server.py",
    "/viewer.js%00.css", "/%zz", "*", "\x00", "/download?key=../../etc/passwd", "file:///etc/passwd",
]


def test_no_path_leads_anywhere_else_and_methods_are_few(server: WebServer) -> None:
    for path in NOWHERE:
        lines = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nX-Splatview-Token: secret\r\n\r\n"
        answer = raw(server.port, lines.encode())
        assert re.match(rb"HTTP/1.[01] 40[0345] |$", answer), (path, answer[:200])
        assert b"root:" not in answer and b"PATH=" not in answer and b"import" not in answer, path
    for method in ("PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "PATCH"):
        for path in ("/", "/upload", "/download"):
            answer = ask(server.port, path + "?token=secret", method=method)
            assert answer.status == 405 and answer.headers.get("Access-Control-Allow-Origin") is None
    assert ask(server.port, "/").status == 200


# -- which requests it refuses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_nothing_of_a_viewer_is_given_out_without_the_token(host: str, tmp_path: Path,
                                                            caplog: pytest.LogCaptureFixture) -> None:
    """But the files of the page, which are the same everywhere. No answer and no log holds the token."""
    caplog.set_level(logging.DEBUG)
    token = "a-long-token-of-its-own"
    with closing(serve(host, token=token)) as server:
        port = server.port
        for wrong in ("", "?token=", "?token=wrong", f"?token={token}%20"):
            for path in ("/ws", "/download", "/nothing"):
                answer = ask(port, path + wrong)
                assert answer.status == 403 and "?token=" in answer.text and token not in answer.text
            assert ask(port, f"/upload{wrong}", b"x").status == 403
            with pytest.raises(ConnectionError, match="403"):
                Page(port).connect(token=wrong)
        (tmp_path / "scene.ply").write_bytes(b"content")
        with Visitor(server) as own:  # whose key and link are known somehow
            own.client.connection.offer("scene.ply", tmp_path / "scene.ply", 7)
            offer = own.receive()
            assert isinstance(offer, m.Offer)
            for given in ("", "wrong"):
                assert own.post(b"x", "a", **{"X-Splatview-Token": given}).status == 403
                assert own.fetch(offer.key, **{"X-Splatview-Token": given}).status == 403
            assert own.post().status == 200 and own.fetch(offer.key).text == "content"
        for request, status in (
                (hostile.head(port, f"/?token={token}"), 200), (hostile.upgrade(port, f"/ws?token={token}"), 101),
                (hostile.head(port, "/download", **{"X-Splatview-Token": token}), 404),
                (hostile.upgrade(port, **{"Sec-WebSocket-Protocol": f"token.{token}"}), 400),
                (hostile.upgrade(port, **{"Sec-WebSocket-Protocol": f"splatview, token.{token}"}), 101)):
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
                client.sendall(request)
                answered = client.recv(4096)
            assert int(answered.split()[1]) == status and token.encode() not in answered
    assert token not in caplog.text


def test_other_hosts_and_origins_are_refused_and_heads_that_lie(server: WebServer) -> None:
    """DNS rebinding: the browser believes that the page of evil.example comes from here."""
    port = server.port
    for path in ("/", "/viewer.js", "/download?token=secret", "/nothing"):
        assert ask(port, path, Host=f"evil.example:{port}", Origin="http://evil.example").status == 403
    for headers, said in (
            ({"Host": "evil.example"}, b" 403 "), ({"Host": "127.0.0.1\r\nHost: evil.example"}, b" 40"),
            ({"Origin": "null"}, b" 403 "), ({"Upgrade": "h2c"}, b" 400 "), ({"Content-Length": "-1"}, b" 400 "),
            ({"Transfer-Encoding": "chunked", "Content-Length": "5"}, b" 400 "), ({"X-A\0": "b"}, b" 400 "),
            ({"Host": "localhost:9999", "Origin": "http://localhost:9999"}, b" 101 ")):  # a tunnel's end
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as one:
            one.sendall(hostile.upgrade(port, SOCKET, **headers))
            assert said in one.recv(4096)[:20], headers
    assert not server.arrivals()


# -- another user of the machine -------------------------------------------------------------------------------------


@needs_root
def test_status_of_root_prints_no_token_of_another_user(programs: Programs, runtime_dir: Path) -> None:
    theirs = runtime_dir / "theirs"
    theirs.mkdir(mode=0o700, parents=True)
    told = theirs / "viewer-1-00000000.json"
    told.write_text('{"pid": 1, "url": "http://127.0.0.1:7007/?token=secret", "host": "127.0.0.1", "port": 7007}')
    os.chown(theirs, OTHER, OTHER)
    os.chown(told, OTHER, OTHER)
    with told.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as the viewer holds it
        program = programs.splatview("status", "--json", SPLATVIEW_RUNTIME_DIR=str(theirs))
        said, errors = program.end()
        assert program.returncode == 2 and "belongs to you" in errors
        assert "secret" not in said + errors


# -- where it listens -------------------------------------------------------------------------------------------------


def test_a_taken_port_has_another_token_and_is_free_again_at_once(server: WebServer) -> None:
    """A viewer that starts anew: another program at the port is sent the token by pages that come back."""
    moved = serve(port=server.port, token="of-before")
    moved.close()
    assert moved.moved_from == server.port < moved.port <= server.port + 20
    assert moved.token != "of-before" and len(moved.token) >= 22, "128 bits"
    page = Visitor(server)
    server.close()
    page.end()
    again = serve(port=server.port, token="of-before")
    again.close()
    assert (again.port, again.token, again.moved_from) == (server.port, "of-before", None)
    assert again.viewer != server.viewer


@pytest.mark.parametrize(("host", "port", "token", "message"), [
    ("192.0.2.77", 0, None, r"host: cannot listen at '192\.0\.2\.77'"), ("no such host", 0, None, "'no such host'"),
    ("127.0.0.1", 65536, None, "port: 65536"), ("127.0.0.1", -1, None, "port: -1"), ("127.0.0.1", 0, "a&b", "token"),
    ("127.0.0.1", 0, "", "token"), ("127.0.0.1", 0, "a" * 200, "token"),
])
def test_what_it_cannot_listen_at_is_named(host: str, port: int, token: str | None, message: str) -> None:
    with pytest.raises(ViewerError, match=message):
        serve(host, port, token)


# -- pages ------------------------------------------------------------------------------------------------------------


def test_a_page_arrives_is_heard_and_closed_after_the_last_words(visitor: Visitor, server: WebServer) -> None:
    client, connection = visitor.client, visitor.client.connection
    assert client.hello == HELLO and connection.peer.startswith("127.0.0.1:") and not connection.closed
    visitor.send(m.Visible(False))
    client.wait(m.Visible)
    connection.send(m.Clipboard("text"))
    connection.send(Caption("last words", "b", True))
    connection.close("enough, " * 40)
    connection.close("not this")
    connection.send(Caption("too late"))
    assert [visitor.receive(), visitor.receive()] == [m.Clipboard("text"), Caption("last words", "b", True)]
    assert visitor.ended().code == 1000 and str(visitor.closed).startswith("enough")
    with Page(server.port) as page:
        welcome = page.connect(token="secret").receive()
        assert isinstance(welcome, m.Welcome) and welcome.protocol == m.PROTOCOL and welcome.viewer == server.viewer


# -- bad pages --------------------------------------------------------------------------------------------------------


def test_what_is_no_hello_ends_the_page(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for first, reason in (("{", "not a message"), ('{"t":"leave"}', "hello"), (m.encode(HELLO).encode(), "hello"),
                          (None, "no hello within 0.2 s")):
        monkeypatch.setattr(module, "HELLO_WITHIN", PATIENCE if first else 0.2)
        with Page(server.port) as page:
            page.connect(token="secret")
            if first is not None:
                page.send(first)
            assert page.ended().code == 1008 and reason in str(page.closed)
    assert server.arrivals() == []


def test_what_is_no_message_ends_that_page_only(visitor: Visitor) -> None:
    for name, sent, code in (
            ("a frame of 2^62 bytes", hostile.frame(hostile.TEXT, b"", length=1 << 62), 1009),
            ("fragments without end", hostile.frame(hostile.TEXT, b"x" * 60_000, last=False)
             + hostile.frame(hostile.MORE, b"x" * 60_000), 1009),
            ("no UTF-8", hostile.frame(hostile.TEXT, b"\xff\xfe"), 1007),
            ("compressed", hostile.frame(hostile.TEXT, b"x", packed=True), 1002),
            ("bytes", hostile.frame(hostile.BINARY, b"x"), 1008), ("a second hello", hostile.hello(), 1008),
            ("deep nesting", hostile.frame(hostile.TEXT, b"[" * 60_000), 1008)):
        upgrade = hostile.upgrade(visitor.port, SOCKET, **{"Sec-WebSocket-Extensions": "permessage-deflate"})
        got = raw(visitor.port, upgrade + hostile.hello() + sent)
        assert b"Sec-WebSocket-Extensions" not in got, "nothing is ever unpacked"
        assert struct.pack(">H", code) in got[got.rindex(b"\x88"):], name
    visitor.goes_on()


def test_a_page_that_floods_a_busy_viewer_is_closed(server: WebServer) -> None:
    """Here nothing takes what it sends; moves in a row would be one."""
    with Page(server.port) as page:
        page.connect(token="secret").send(HELLO)
        with suppress(OSError):
            for _ in range(5000):
                page.send(ev.PointerLeave())
        assert page.ended().code in (1013, 1006)  # or the reset, where the page was amid another one
    assert server.arrivals() == []


def test_pages_and_connections_beyond_the_caps_are_closed(server: WebServer, join: Callable[..., Visitor],
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that are connected stay, and others may come once there is room."""
    monkeypatch.setattr(module, "MAX_CLIENTS", 2)
    first, second = join(), join()
    with Page(server.port) as third:
        third.connect(token="secret")
        assert third.ended().code == 1013 and "2 pages" in str(third.closed)
    first.end()
    wait_until(lambda: first.client.connection.closed)
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 3)
    get = hostile.head(server.port, "/", Connection="close")
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) for _ in range(2)]
    wait_until(lambda: raw(server.port, get) == b"")
    for one in idle:
        one.close()
    wait_until(lambda: raw(server.port, get).startswith(b"HTTP/1.1 200"))
    second.goes_on()


def test_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEP_ALIVE", 0.2)
    with closing(serve()) as server:
        for sent in (b"", b"GET / HTTP/1.1\r\nX: "):
            assert raw(server.port, sent) == b""


def test_connections_that_break_anywhere(visitor: Visitor, caplog: pytest.LogCaptureFixture) -> None:
    """At any byte of what a page, a file or a browser sends; closed, or reset in the middle."""
    luck, port = random.Random(3), visitor.port
    talks = [hostile.head(port), hostile.head(port, "/viewer.js") * 3, hostile.upgrade(port, SOCKET),
             hostile.upgrade(port, SOCKET) + hostile.hello() + hostile.frame(hostile.TEXT, b'{"t":"leave"}') * 3,
             hostile.upgrade(port, SOCKET) + hostile.hello() + hostile.frame(hostile.CLOSE),
             hostile.head(port, "/upload?token=secret", "POST", **{"Content-Length": "500",
                                                                   "X-Splatview-Page": visitor.key}) + bytes(500)]
    for _ in range(60):
        talk = luck.choice(talks)
        one = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        if luck.random() < 0.7:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.sendall(talk[:luck.randrange(len(talk) + 1)])
        one.close()
    visitor.goes_on()
    assert not caplog.records


# -- the end ----------------------------------------------------------------------------------------------------------


def test_the_end_of_the_server_is_the_end_of_all_pages(server: WebServer, join: Callable[..., Visitor]) -> None:
    """Of those that do not read, have not said hello, or connect meanwhile: an unclosed socket would be a warning."""
    silent = Page(server.port).connect(token="secret")
    deaf, page = join(reading=False), join()
    deaf.client.put(m.Picture(1, "jpeg", (64, 32)), bytes(10_000_000))
    page.goes_on()
    late = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) for _ in range(30)]
    server.close()
    server.close()
    assert deaf.client.connection.closed and page.client.connection.closed
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    assert page.ended().code == 1001 and silent.ended()
    silent.end()
    page.client.connection.send(Caption())
    page.client.connection.close()
    for one in late:
        one.close()
    gc.collect()
