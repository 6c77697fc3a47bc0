"""The web server over real sockets: its answers, refusals, bad pages, and its end."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import socket
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pytest
from fuzz.targets import PAGE
from support.other_users import OTHER_USER_ID, needs_root
from support.wait import PATIENCE_S, polls, wait_until
from support.web_clients import (
    HELLO,
    Answer,
    Page,
    Visitor,
    raw,
    send_request,
    some_picture,
)

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


def ignore_wake() -> None:
    """Stand for the wake-up call of a loop that does not run."""


def serve(
    host: str = "127.0.0.1", port: int = 0, token: str | None = None
) -> WebServer:
    return WebServer(host, port, token=token, wake=ignore_wake)


def upgrade(port: int, path: str = "/ws?token=secret", **headers: str) -> Answer:
    """Ask for a WebSocket."""
    return send_request(
        port,
        path,
        None,
        "GET",
        **{
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
            **headers,
        },
    )


def test_page_has_a_policy_and_loads_nothing_from_the_internet(
    server: WebServer,
) -> None:
    for path, kind in (
        ("/?token=secret", "html"),
        ("/", "html"),
        ("/viewer.js", "javascript"),
        ("/files.js", "javascript"),
        ("/session.js", "javascript"),
        ("/viewer.css", "css"),
        ("/favicon.svg", "svg+xml"),
    ):
        answer = send_request(server.port, path)
        assert (answer.status, answer.headers.get_content_subtype()) == (200, kind)
        for name, value in (
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cache-Control", "no-cache"),
        ):
            assert answer.headers[name] == value
        policy = answer.headers["Content-Security-Policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "connect-src 'self'"} < {
            *policy
        }
        forbids_frames = "frame-ancestors 'none'" in policy
        assert forbids_frames == ("token" not in path), "a frame needs the token"
        assert "secret" not in answer.text
        foreign = re.findall(r"(?:https?:)?//[a-z0-9][\w.-]*\.[a-z]{2,}", answer.text)
        assert not [url for url in foreign if "w3.org" not in url]


def test_no_path_leads_anywhere_else_and_methods_are_few(server: WebServer) -> None:
    for path in (
        "/server.py",
        "/../../etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "//127.0.0.1/etc/passwd",
        "/viewer.js/../server.py",
        "/viewer.js%00.css",
        "/download?key=../../etc/passwd",
    ):
        lines = (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            "X-Splatview-Token: secret\r\n\r\n"
        )
        answer = raw(server.port, lines.encode())
        assert re.match(rb"HTTP/1.[01] 40[0345] |$", answer), (path, answer[:200])
        assert b"root:" not in answer, path
        assert b"import" not in answer, path
    for method in ("PUT", "OPTIONS", "HEAD"):
        for path in ("/", "/upload", "/download"):
            answer = send_request(server.port, path + "?token=secret", method=method)
            assert answer.status == 405
            assert answer.headers.get("Access-Control-Allow-Origin") is None


def test_address_with_a_proxys_path_is_explained(server: WebServer) -> None:
    answer = send_request(server.port, "/sites/view/?token=secret")
    assert answer.status == 404
    assert "proxy_pass" in answer.text


def test_page_can_ask_whether_its_websocket_would_be_accepted(
    server: WebServer,
) -> None:
    """The answer depends on Origin, Host and token, and shows that it is a viewer's."""
    own_origin = f"http://127.0.0.1:{server.port}"
    token = {"X-Splatview-Token": "secret"}
    for origin, headers, status in (
        (own_origin, token, 204),
        (own_origin, {}, 403),
        ("http://a.example", token, 403),
    ):
        answer = send_request(server.port, "/check", b"", Origin=origin, **headers)
        assert answer.status == status, origin
        assert answer.headers["X-Splatview"] == "viewer"


# -- which requests it refuses ---------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_server_reveals_nothing_without_the_token(
    host: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the files of the page, which are the same everywhere, need no token.

    No answer and no log holds the token.
    """
    caplog.set_level(logging.DEBUG)
    token = "a-long-token-of-its-own"
    with closing(serve(host, token=token)) as server:
        port = server.port
        for query in ("", "?token=", "?token=wrong", f"?token={token}%20"):
            for path in ("/ws", "/download", "/nothing"):
                answer = send_request(port, path + query)
                assert answer.status == 403
                assert "?token=" in answer.text
                assert token not in answer.text
            assert send_request(port, f"/upload{query}", b"x").status == 403
            with pytest.raises(ConnectionError, match="403"):
                Page(port).connect(token=query)
        (tmp_path / "scene.ply").write_bytes(b"content")
        # The key and the link of this page are known to others somehow.
        with Visitor(server) as visitor:
            visitor.client.connection.offer("scene.ply", tmp_path / "scene.ply", 7)
            offer = visitor.receive()
            assert isinstance(offer, m.Offer)
            for wrong_token in ("", "wrong"):
                headers = {"X-Splatview-Token": wrong_token}
                assert visitor.post(b"x", "a", **headers).status == 403
                assert visitor.fetch(offer.key, **headers).status == 403
            assert visitor.post().status == 200
            assert visitor.fetch(offer.key).text == "content"
        answers = [
            send_request(port, f"/?token={token}"),
            send_request(
                port, "/download", None, "GET", **{"X-Splatview-Token": token}
            ),
            *(
                upgrade(port, "/ws", **{"Sec-WebSocket-Protocol": offered})
                for offered in (f"token.{token}", f"splatview, token.{token}")
            ),
        ]
        assert [answer.status for answer in answers] == [200, 404, 400, 101]
        assert not any(token in answer.text + str(answer.headers) for answer in answers)
    assert token not in caplog.text


def test_other_hosts_origins_and_malformed_heads_are_refused(
    server: WebServer,
) -> None:
    """DNS rebinding makes a browser believe that evil.example's page comes from here."""
    port = server.port
    for path in ("/", "/viewer.js", "/download?token=secret", "/nothing"):
        assert (
            send_request(
                port, path, Host=f"evil.example:{port}", Origin="http://evil.example"
            ).status
            == 403
        )
    assert upgrade(port, Host="evil.example").status == 403
    assert upgrade(port, Origin="null").status == 403
    answer = upgrade(port, Host="localhost:9999", Origin="http://localhost:9999")
    assert answer.status == 101, "a tunnel's end"
    twice = (
        "GET /ws?token=secret HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n"
    )
    assert b" 40" in raw(port, twice.encode())[:12]
    assert not server.arrivals()


@needs_root
def test_status_of_root_prints_no_token_of_another_user(
    programs: Programs, runtime_dir: Path
) -> None:
    other_folder = runtime_dir / "theirs"
    other_folder.mkdir(mode=0o700, parents=True)
    announcement = other_folder / "viewer-1-00000000.json"
    announcement.write_text(
        '{"pid": 1, "url": "http://127.0.0.1:7007/?token=secret", "host": "127.0.0.1", '
        '"port": 7007}'
    )
    os.chown(other_folder, OTHER_USER_ID, OTHER_USER_ID)
    os.chown(announcement, OTHER_USER_ID, OTHER_USER_ID)
    with announcement.open() as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)  # A running viewer holds this lock.
        program = programs.splatview(
            "status", "--json", SPLATVIEW_RUNTIME_DIR=str(other_folder)
        )
        output, errors = program.end()
        assert program.returncode == 2
        assert "belongs to you" in errors
        assert "secret" not in output + errors


def test_port_is_free_after_close_and_gets_another_token(
    server: WebServer,
) -> None:
    """Pages that come back send the token to whatever program has the port then."""
    moved = serve(port=server.port, token="of-before")
    moved.close()
    assert moved.moved_from == server.port < moved.port <= server.port + 20
    assert moved.token != "of-before"
    assert len(moved.token) >= 22, "128 bits"
    page = Visitor(server)
    server.close()
    page.end()
    reopened = serve(port=server.port, token="of-before")
    reopened.close()
    assert reopened.port == server.port
    assert reopened.token == "of-before"
    assert reopened.moved_from is None
    assert reopened.viewer != server.viewer


@pytest.mark.parametrize(
    ("host", "port", "token", "message"),
    [
        ("192.0.2.77", 0, None, r"host: cannot listen at '192\.0\.2\.77'"),
        ("no such host", 0, None, "'no such host'"),
        ("127.0.0.1", 65536, None, "invalid port 65536"),
        ("127.0.0.1", 0, "a&b", "token"),
    ],
)
def test_error_names_the_address_that_cannot_be_opened(
    host: str, port: int, token: str | None, message: str
) -> None:
    with pytest.raises(ViewerError, match=message):
        serve(host, port, token)


def test_page_connects_sends_events_and_is_closed_with_a_reason(
    visitor: Visitor,
) -> None:
    client = visitor.client
    connection = visitor.client.connection
    assert client.hello == HELLO
    assert connection.peer.startswith("127.0.0.1:")
    assert not connection.closed
    visitor.send(m.Visible(False))
    client.wait(m.Visible)
    connection.send(m.Clipboard("text"))
    connection.send(Caption("last words", "b", True))
    connection.close("enough, " * 40)
    connection.close("not this")
    connection.send(Caption("too late"))
    assert [visitor.receive(), visitor.receive()] == [
        m.Clipboard("text"),
        Caption("last words", "b", True),
    ]
    assert visitor.ended().code == 1000
    assert str(visitor.closed).startswith("enough")


BAD = [
    "",
    '{"t":"nothing"}',
    '{"t":"move"}',
    "[" * 60000,
    b"\xff\xfe",
    '{"t":"leave"}' + " " * m.MAX_MESSAGE,
    '{"t":"move","x":1,"y":NaN}',
    '{"t":"move","x":1e300,"y":1}',
    '{"t":"press","x":1,"y":1,"button":"fourth"}',
    '{"t":"resize","width":8193,"height":100}',
    '{"t":"text","text":"\\ud800"}',
    '{"t":"ack","number":-1}',
    '{"t":"pinch","x":1,"y":1,"factor":0}',
    '{"t":"wheel","x":1,"y":1,"dy":1e9}',
]


def test_messages_round_trip_and_others_are_refused() -> None:
    for message in PAGE:
        text = m.encode(message)
        assert m.parse(text) == m.parse(text.encode()) == message
    for bad in BAD:
        with pytest.raises(m.MessageError):
            m.parse(bad)
            pytest.fail(str(bad[:60]))


def test_events_have_clean_text_and_clicks_by_the_clock_of_the_page() -> None:
    """Presses may arrive late, at once or far apart: the page's clock counts."""
    clicks = ev.ClickCounter()

    def event(message: Any) -> Any:
        return m.event_of(message, clicks, 1.0)

    assert event(ev.Text("a\r\nb\tc\x1b\x00\x7f\x9f🙂")) == ev.Text("a\nb\tc🙂")
    assert event(ev.Text("\x00")) is None
    press = event(ev.PointerPress(1, 2, clicks=9))
    assert press == ev.PointerPress(1, 2), "the page cannot state its clicks"
    for time, count in ((1e3, 1), (1.3e3, 2), (3e3, 1), (0.0, 1), (0.0, 1)):
        assert event(ev.PointerPress(3, 3, at=time)).clicks == count


def test_malformed_message_closes_only_its_own_page(
    visitor: Visitor, server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sent, reason in (
        (['{"t":"leave"}'], "hello"),
        ([], "no hello within 0.2 s"),
        ([HELLO, "x" * 60_000], ""),
        ([HELLO, b"x"], ""),
        ([HELLO, HELLO], ""),
        ([HELLO, "[" * 40_000], "not a message"),
    ):
        limit = PATIENCE_S
        if not sent:
            limit = 0.2
        monkeypatch.setattr(module, "HELLO_WITHIN", limit)
        with Page(server.port) as page:
            page.connect(token="secret")
            for message in sent:
                page.send(message)
            assert page.ended().code in (1008, 1009), sent
            assert reason in str(page.closed), sent
    visitor.check_goes_on()


UPGRADE = {
    "X-Splatview-Token": "secret",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
"""Headers of a request that opens a WebSocket."""


def test_pings_do_not_extend_the_time_for_the_hello(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HELLO_WITHIN", 0.3)
    ping = b"\x89\x80" + bytes(4)
    lines = "".join(f"{name}: {value}\r\n" for name, value in UPGRADE.items())
    head = f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n"
    received = b""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as client:
        client.sendall(head.encode())
        client.settimeout(0.05)
        for _ in polls("the server closes a page that only pings"):
            with suppress(TimeoutError, ConnectionError):
                client.sendall(ping)
                received += client.recv(65536)
            if b"no hello within" in received:
                break


def test_malformed_handshakes_get_one_answer(
    server: WebServer, caplog: pytest.LogCaptureFixture
) -> None:
    for key in ("\xff", "a", "", "=" * 8000):
        headers = {**UPGRADE, "Sec-WebSocket-Key": key}
        assert send_request(server.port, "/ws", None, "GET", **headers).status == 400, (
            key
        )
    assert not caplog.records


def test_cookies_of_other_programs_are_accepted(
    server: WebServer,
) -> None:
    """Browsers send all cookies in one header; those of single sign-on are large."""
    cookies = "; ".join(f"session{i}={'x' * 3900}" for i in range(4))
    assert send_request(server.port, "/", Cookie=cookies).status == 200


def test_page_that_floods_a_busy_viewer_is_closed(server: WebServer) -> None:
    """Nothing takes the page's events here. Consecutive moves would be merged."""
    with Page(server.port) as page:
        page.connect(token="secret").send(HELLO)
        with suppress(OSError):
            for _ in range(5000):
                page.send(ev.PointerLeave())
        # 1006 is the reset, where the page was sending another message.
        assert page.ended().code in (1013, 1006)
    assert server.arrivals() == []


def test_moves_that_wait_are_kept_while_a_button_is_down(visitor: Visitor) -> None:
    """A lasso has all its corners however busy the viewer is."""
    corners = [ev.PointerMove(x, 5) for x in (10, 20, 30)]
    visitor.send(ev.PointerPress(1, 5))
    for message in (*corners, ev.PointerRelease(30, 5), *corners):
        visitor.send(message)
    visitor.check_goes_on()
    assert visitor.client.received(ev.PointerMove) == [*corners, corners[-1]]


def test_pages_and_connections_beyond_the_caps_are_closed(
    server: WebServer, join: Callable[..., Visitor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connected pages stay, and others may join once there is room."""
    monkeypatch.setattr(module, "MAX_CLIENTS", 2)
    first = join()
    second = join()
    with Page(server.port) as third:
        third.connect(token="secret")
        assert third.ended().code == 1013
        assert "2 pages" in str(third.closed)
    first.end()
    wait_until(lambda: first.client.connection.closed)
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 3)
    get = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    idle = [
        socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S)
        for _ in range(2)
    ]
    wait_until(lambda: raw(server.port, get) == b"")
    for connection in idle:
        connection.close()
    wait_until(lambda: raw(server.port, get).startswith(b"HTTP/1.1 200"))
    second.check_goes_on()


def test_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEP_ALIVE", 0.2)
    with closing(serve()) as server:
        for sent in (b"", b"GET / HTTP/1.1\r\nX: "):
            assert raw(server.port, sent) == b""


def test_closing_the_server_closes_all_pages(
    server: WebServer, join: Callable[..., Visitor]
) -> None:
    """Pages that do not read or have not said hello are closed, too."""
    silent = Page(server.port).connect(token="secret")
    deaf = join(reading=False)
    page = join()
    deaf.client.put(*some_picture(1, bytes(10_000_000), (64, 32)))
    page.check_goes_on()
    server.close()
    server.close()
    assert deaf.client.connection.closed
    assert page.ended().code == 1001
    assert silent.ended()
    silent.end()
    page.client.connection.send(Caption())
