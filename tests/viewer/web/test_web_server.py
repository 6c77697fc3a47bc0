"""The web server over real sockets: what it gives out, which requests it refuses, and where it listens."""

from __future__ import annotations

import logging
import re
import socket
from typing import TYPE_CHECKING

import aiohttp
import pytest
from support.wait import PATIENCE
from support.web_clients import Page
from support.web_visitors import ask, raw

from benchmarks.browser import hostile
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.web.server import WebServer

if TYPE_CHECKING:
    import http.client

HOME = "/?token=secret"


def get(port: int, path: str = HOME, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    return ask(port, method, path, None, headers)[2:]


# -- what it gives out ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "kind"), [(HOME, "text/html"), ("/viewer.js", "text/javascript"),
                                            ("/viewer.css", "text/css"), ("/favicon.svg", "image/svg+xml")])
def test_the_page(server: WebServer, path: str, kind: str) -> None:
    answer, body = get(server.port, path)
    assert (answer.status, answer.headers.get_content_type()) == (200, kind)
    assert len(body) > 100
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert answer.headers["Cache-Control"] == "no-cache"
    again, nothing = get(server.port, path, **{"If-None-Match": answer.headers["ETag"]})
    assert (again.status, nothing) == (304, b"")
    assert get(server.port, path, **{"If-None-Match": '"other"'})[0].status == 200


def test_the_policy(server: WebServer) -> None:
    policy = get(server.port)[0].headers["Content-Security-Policy"]
    rules = {name: value for name, _, value in (part.strip().partition(" ") for part in policy.split(";"))}
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == "'self'"
    assert rules["connect-src"] == f"'self' ws://127.0.0.1:{server.port} wss://127.0.0.1:{server.port}"
    assert "http://localhost:*" in rules["frame-ancestors"]
    assert not {"http:", "*"} & set(rules["frame-ancestors"].split())
    assert "::1" not in get(server.port, Host="[::1]:7007")[0].headers["Content-Security-Policy"], "no room for it"


def test_nothing_is_asked_of_the_internet(server: WebServer) -> None:
    """The page works where there is no network."""
    for path in (HOME, "/viewer.js", "/viewer.css"):
        text = get(server.port, path)[1].decode()
        foreign = [u for u in re.findall(r"(?:https?:)?//[a-z0-9][\w.-]*\.[a-z]{2,}", text) if "w3.org" not in u]
        assert foreign == [], path


NOWHERE = [
    "/index.html", "/server.py", "/page/viewer.js", "/../../etc/passwd", "/..%2f..%2fetc%2fpasswd",
    "/%2e%2e/%2e%2e/etc/passwd", "/..%5c..%5cetc/passwd", "//127.0.0.1/etc/passwd", "/%c0%ae%c0%ae/etc/passwd",
    "/viewer.js/", "/viewer.js/../server.py", "/viewer.js%00.css", "/%00", "/%", "/%zz", "/..", "/C:\\",
    "/page/../viewer.js", "/VIEWER.JS", "/viewer.js;x", "/" + "../" * 2000 + "etc/passwd", "/proc/self/environ",
    "/./././viewer.js", "/download?key=../../etc/passwd&token=secret", "/ws/../etc/passwd", "/upload/../viewer.py",
    "*", "etc/passwd", "file:///etc/passwd", "http://evil.example/../../etc/passwd", "http://[", "\x00",
]


def test_no_path_leads_anywhere_else(server: WebServer) -> None:
    for path in NOWHERE:
        answer = raw(server.port, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        assert re.match(rb"HTTP/1.[01] 40[034] |$", answer), (path, answer[:200])  # or dropped, by older aiohttp
        assert b"root:" not in answer and b"PATH=" not in answer and b"import" not in answer, path
    assert get(server.port)[0].status == 200


def test_only_get(server: WebServer) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "PATCH"):
        answer, _ = get(server.port, method=method)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET")


# -- which requests it refuses ----------------------------------------------------------------------------------------


def test_a_name_that_points_here(server: WebServer) -> None:
    """DNS rebinding: the browser believes that the page of evil.example comes from here."""
    for path in (HOME, "/viewer.js", "/ws", "/nothing"):
        answer, body = get(server.port, path, Host=f"evil.example:{server.port}", Origin="http://evil.example")
        assert answer.status == 403
        assert b"127.0.0.1" in body and answer.headers.get_content_type() == "text/plain"


def test_a_tunnel_may_begin_at_another_port(server: WebServer) -> None:
    assert get(server.port, Host="localhost:9999")[0].status == 200
    with Page(server.port) as page:
        page.connect(token="secret", headers={"Host": "localhost:9999", "Origin": "http://localhost:9999"})
        page.greet()


def test_a_socket_that_is_none(server: WebServer) -> None:
    assert get(server.port, "/ws?token=secret", Origin=f"http://127.0.0.1:{server.port}")[0].status == 400
    with Page(server.port) as page, pytest.raises(aiohttp.WSServerHandshakeError, match="400"):
        page.connect(token="secret", headers={"Sec-WebSocket-Protocol": "token.abc"})


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_token(host: str) -> None:
    server = WebServer(host, 0, token="right_-1", wake=lambda: None)
    try:
        assert get(server.port, "/")[0].status == 403
        answer, body = get(server.port, "/?token=wrong")
        assert answer.status == 403 and b"?token=" in body and b"right" not in body
        answer, body = get(server.port, "/?token=%3Cb%3E", Accept="text/html,*/*")
        assert answer.status == 403 and b"?token=" in body and b"right" not in body and b"<b>" not in body
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert get(server.port, "/?token=right_-1")[0].status == 200
        for path in ("/viewer.js", "/viewer.css", "/favicon.svg", "/session.js", "/refused.js"):
            assert get(server.port, path)[0].status == 200
        for token in (None, "", "wrong", "right_-1 "):
            with Page(server.port) as page, pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                page.connect(token=token)
        with Page(server.port) as page:
            page.connect(token="right_-1").greet()
    finally:
        server.close()


def test_nothing_that_is_logged_holds_the_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = "a-long-token-of-its-own"
    server = WebServer(port=0, token=token, wake=lambda: None)
    try:
        port = server.port
        close = {"Connection": "close"}
        asked = [(hostile.head(port, f"/?token={token}", **close), 200),
                 (hostile.upgrade(port, f"/ws?token={token}"), 101),
                 (hostile.upgrade(port, **{"Sec-WebSocket-Protocol": f"token.{token}"}), 400),
                 (hostile.upgrade(port, **{"Sec-WebSocket-Protocol": f"splatview, token.{token}"}), 101),
                 (hostile.head(port, f"/nothing?token={token}", **close), 404)]
        for request, status in asked:
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
                client.sendall(request)
                answer = client.recv(4096)
            assert int(answer.split()[1]) == status
            assert token.encode() not in answer
            assert status == 101 or b"Referrer-Policy: no-referrer" in answer
    finally:
        server.close()
    assert token not in caplog.text


# -- where it listens -------------------------------------------------------------------------------------------------


def test_a_taken_port() -> None:
    first = WebServer(port=0, wake=lambda: None)
    second = None
    try:
        second = WebServer(port=first.port, wake=lambda: None)
        assert first.moved_from is None and len(first.token) >= 22, "128 bits"
        assert first.token != second.token
        assert second.moved_from == first.port
        assert first.port < second.port <= first.port + 20
    finally:
        first.close()
        if second is not None:
            second.close()


def test_a_token_of_before_stays_with_its_port(server: WebServer) -> None:
    """A viewer that starts anew: another program at the port is sent the token by pages that come back."""
    moved = WebServer(port=server.port, token="of-before", wake=lambda: None)
    moved.close()
    assert moved.moved_from == server.port != moved.port
    assert moved.token != "of-before" and len(moved.token) >= 22
    again = WebServer(port=moved.port, token="of-before", wake=lambda: None)
    again.close()
    assert (again.port, again.token, again.moved_from) == (moved.port, "of-before", None)


def test_the_port_is_free_again_at_once(server: WebServer) -> None:
    with Page(server.port) as page:
        page.connect(token="secret").greet()
        server.close()
        again = WebServer(port=server.port, wake=lambda: None)
        again.close()
        assert again.moved_from is None
        assert again.viewer != server.viewer


@pytest.mark.parametrize(("host", "port", "message"), [
    ("192.0.2.77", 0, r"host: '192\.0\.2\.77' is no address of this machine; choose 127\.0\.0\.1"),
    ("no such host", 0, "host: 'no such host'"), ("127.0.0.1", 65536, "port: 65536"),
    ("127.0.0.1", -1, "port: -1 is none; it must be 1024 to 65535"),
])
def test_where_it_cannot_listen(host: str, port: int, message: str) -> None:
    with pytest.raises(ViewerError, match=message):
        WebServer(host, port, wake=lambda: None)


@pytest.mark.parametrize("token", ["", "a b", "a&b", "a" * 200, "\xe4"])
def test_a_token_that_is_none(token: str) -> None:
    with pytest.raises(ViewerError, match="token: it must be"):
        WebServer(port=0, token=token, wake=lambda: None)
