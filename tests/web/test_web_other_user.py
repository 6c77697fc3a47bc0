"""Another user of the machine at the viewer's page: sees nothing and steers nothing without the token."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import socket
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import torch
from support.other_users import OTHER, ask_as, needs_root, relay_as, request, upgrade
from support.wait import PATIENCE
from support.web_clients import Page, address
from support.web_visitors import Receiver, ask, folder_fixture  # noqa: F401

import splatview
from splatview.viewer_app.web import messages as m
from splatview.viewer_app.web import owner
from splatview.viewer_app.web.server import WebServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.programs import Programs


pytestmark = needs_root


@pytest.fixture(params=["127.0.0.1", "::1"])
def server(request: pytest.FixtureRequest, folder: Path) -> Iterator[WebServer]:
    """As `splatview serve --web` has it: on loopback, without a token of the user's choice."""
    if request.param == "::1" and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    made = WebServer(request.param, 0, wake=lambda: None)
    yield made
    made.close()


@pytest.fixture
def viewer(folder: Path) -> Iterator[WebServer]:
    made = WebServer(port=0, wake=lambda: None)
    yield made
    made.close()


class Own:
    """A page of the viewer's own user, without the token."""

    def __init__(self, server: WebServer, wait_until: Callable[..., Any]) -> None:
        self.page = Page(server.port)
        self.page.connect()
        self.welcome = self.page.greet()
        (self.connection,) = wait_until(server.arrivals)
        self.receiver = Receiver()
        self.connection.attach(self.receiver)


@pytest.fixture
def own(viewer: WebServer, wait_until: Callable[..., Any]) -> Iterator[Own]:
    made = Own(viewer, wait_until)
    yield made
    made.page.end()


def statuses(answers: list[str]) -> list[int]:
    return [int(re.match(r"HTTP/1.1 (\d+) ", answer)[1]) for answer in answers]  # type: ignore[index]


def test_other_user_without_the_token_gets_nothing(server: WebServer, programs: Programs) -> None:
    requests = [request(server.port, "/"), request(server.port, "/", Accept="text/html"), upgrade(server.port),
                request(server.port, "/upload?name=a", "POST", "x"), request(server.port, "/download?key=x"),
                request(server.port, "/?token=wrong"), upgrade(server.port, "?token=wrong"),
                upgrade(server.port, **{"Sec-WebSocket-Protocol": "splatview, token.wrong"}),
                request(server.port, "/", **{"X-Splatview-Token": "wrong"})]
    answers = ask_as(programs, server.port, [(server.host, one) for one in requests])
    assert statuses(answers) == [403] * len(requests)
    assert not any(server.token in answer for answer in answers)
    assert server.arrivals() == []
    assert "root" in answers[0] and "?token=" in answers[0], "whose it is, and what to do"
    assert "<html" in answers[1] and "canvas" not in answers[1]
    mine = ask_as(programs, server.port, [(server.host, one) for one in requests[:3]], uid=0)
    assert statuses(mine) == [200, 200, 101], "the same requests of the viewer's own user"


def test_other_user_with_the_token_gets_in(server: WebServer, programs: Programs) -> None:
    token = server.token
    requests = [request(server.port, f"/?token={token}"), request(server.port, "/", **{"X-Splatview-Token": token}),
                upgrade(server.port, f"?token={token}"),
                upgrade(server.port, **{"Sec-WebSocket-Protocol": f"splatview, token.{token}"})]
    answers = ask_as(programs, server.port, [(server.host, one) for one in requests])
    assert statuses(answers) == [200, 200, 101, 101]
    assert "Sec-WebSocket-Protocol: splatview\r\n" in answers[3]
    assert not any(token in answer for answer in answers), "no answer repeats it"


def test_keys_of_own_pages_are_no_use_to_other_user(viewer: WebServer, own: Own, programs: Programs,
                                                    tmp_path: Path) -> None:
    """The upload key and the download link of a page, known somehow."""
    (tmp_path / "scene.ply").write_bytes(b"a secret")
    own.connection.offer(tmp_path / "scene.ply", 8)
    offer = own.page.receive()
    assert isinstance(offer, m.Offer)
    upload = request(viewer.port, "/upload?name=a", "POST", "x", **{"X-Splatview-Page": own.welcome.key})
    download = request(viewer.port, f"/download?key={offer.key}")
    answers = ask_as(programs, viewer.port, [("127.0.0.1", one) for one in (upload, download)])
    assert statuses(answers) == [403, 403]
    assert own.receiver.uploads == [] and "a secret" not in answers[1]
    mine = ask_as(programs, viewer.port, [("127.0.0.1", one) for one in (upload, download)], uid=0)
    assert statuses(mine) == [200, 200]
    assert len(own.receiver.uploads) == 1 and mine[1].endswith("a secret")


def test_relay_of_other_user_needs_the_token(viewer: WebServer, programs: Programs, tmp_path: Path,
                                             wait_until: Callable[..., Any]) -> None:
    """A container's port mapping: the browser's own connection ends at the relay."""
    port = relay_as(programs, viewer.port)
    assert ask(port, "GET", "/")[0] == 403
    with Page(port) as page, pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
        page.connect()
    with Page(port) as page:
        page.connect(headers={"Sec-WebSocket-Protocol": f"splatview, token.{viewer.token}"})
        key = page.greet().key
        (connection,) = wait_until(viewer.arrivals)
        receiver = Receiver()
        connection.attach(receiver)
        headers = {"Origin": f"http://127.0.0.1:{port}", "X-Splatview-Page": key}
        assert ask(port, "POST", "/upload?name=a", b"x", headers)[0] == 403
        assert ask(port, "POST", "/upload?name=a", b"x", {**headers, "X-Splatview-Token": viewer.token})[0] == 200
        assert len(receiver.uploads) == 1
        (tmp_path / "film.mp4").write_bytes(b"pictures")
        connection.offer(tmp_path / "film.mp4", 8)
        offer = page.receive()
        assert isinstance(offer, m.Offer)
        assert ask(port, "GET", f"/download?key={'x' * 22}")[0] == 403
        assert ask(port, "GET", f"/download?key={offer.key}")[1] == "pictures", "a link needs no token for its one file"
        assert ask(port, "GET", f"/download?key={offer.key}")[0] == 403


def viewer_of(programs: Programs, uid: int) -> tuple[int, str]:
    """Start a web server as this user; return its port and token."""
    program = programs.python("-c", """
import os, sys
from splatview.viewer_app.web.server import WebServer
WebServer(port=0, wake=lambda: None).close()  # loads what may be out of the other user's reach
uid = int(sys.argv[1])
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
server = WebServer(port=0, wake=lambda: None)
print(server.port, server.token, flush=True)
sys.stdin.read()
server.close()
""", str(uid))
    assert program.stdout is not None and program.stderr is not None
    line = program.stdout.readline()
    assert line, program.stderr.read()
    port, token = line.split()
    return int(port), token


def test_user_whose_number_means_unmapped_needs_the_token(programs: Programs) -> None:
    """In a user namespace this number is every user without a name there, so that it is not taken for one of them."""
    port, token = viewer_of(programs, OTHER)
    requests = [request(port, "/"), request(port, f"/?token={token}")]
    assert statuses(ask_as(programs, port, [("127.0.0.1", one) for one in requests])) == [403, 200]


def test_root_is_another_user(programs: Programs) -> None:
    """The relays of root (docker-proxy, system proxies) carry other users' connections."""
    port, _ = viewer_of(programs, 1234)
    asked = [("127.0.0.1", request(port, "/"))]
    assert [statuses(ask_as(programs, port, asked, uid=uid)) for uid in (0, 4321, 1234)] == [[403], [403], [200]]


def test_kept_connection_is_looked_up_once(viewer: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []
    before = owner.by_netlink
    monkeypatch.setattr(owner, "by_netlink", lambda pairs: looked.append(pairs) or before(pairs))
    with socket.create_connection(("127.0.0.1", viewer.port)) as client, client.makefile("rb") as answers:
        for _ in range(3):
            client.sendall(request(viewer.port, "/", Connection="keep-alive").encode())
            head = b"".join(iter(answers.readline, b"\r\n"))
            assert head.startswith(b"HTTP/1.1 200")
            found = re.search(rb"Content-Length: (\d+)", head)
            assert found is not None
            answers.read(int(found[1]))
    assert len(looked) == 1


def test_nothing_that_is_logged_holds_the_token(viewer: WebServer, programs: Programs,
                                                caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = viewer.token
    requests = [request(viewer.port, f"/?token={token}"), upgrade(viewer.port, f"?token={token}"),
                upgrade(viewer.port, **{"Sec-WebSocket-Protocol": f"token.{token}"}),
                upgrade(viewer.port, **{"Sec-WebSocket-Protocol": f"splatview, token.{token}"}),
                request(viewer.port, f"/nothing?token={token}")]
    answers = ask_as(programs, viewer.port, [("127.0.0.1", one) for one in requests])
    assert statuses(answers) == [200, 101, 400, 101, 404]
    assert token not in caplog.text
    assert not any(token in answer for answer in answers)
    assert all("Referrer-Policy: no-referrer" in answer for answer in (answers[0], answers[2], answers[4]))


@pytest.mark.exhaustive
def test_whole_viewer_shows_nothing_to_other_user(runtime_dir: Path, programs: Programs) -> None:
    """`splatview serve --web` beside a run: the printed address gets in, the bare one only for the own user."""
    splatview.publish(torch.full((8, 8, 3), 200, dtype=torch.uint8), "render")
    program = programs.python("-m", "splatview.viewer_app", "serve", "--web", "--port", "0",
                               SPLATVIEW_RUNTIME_DIR=str(runtime_dir))
    port, token = address(program, [])
    assert len(token) >= 22, "128 bits"
    requests = [("127.0.0.1", one) for one in (request(port, "/"), upgrade(port), upgrade(port, f"?token={token}"))]
    assert statuses(ask_as(programs, port, requests)) == [403, 403, 101]
    with Page(port, acks=True) as page:
        page.connect().greet()
        assert page.picture().data
    for name in ("cmdline", "comm"):
        with open(f"/proc/{program.pid}/{name}") as file:
            assert token not in file.read()
    assert os.stat(f"/proc/{program.pid}/environ").st_mode & 0o077 == 0


def test_other_is_another_user() -> None:
    """So that the tests above fail for what is wrong."""
    assert os.getuid() != OTHER


def test_other_user_is_known_without_netlink(viewer: WebServer, programs: Programs,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """From the tables in /proc, as on kernels and in sandboxes that have no SOCK_DIAG."""
    monkeypatch.setattr(owner, "_SOCK_DIAG", 31)
    asked = [("127.0.0.1", one) for one in (request(viewer.port, "/"), upgrade(viewer.port))]
    assert statuses(ask_as(programs, viewer.port, asked)) == [403, 403]
    assert statuses(ask_as(programs, viewer.port, asked, uid=0)) == [200, 101]


def test_status_of_root_prints_no_token_of_another_user(programs: Programs, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    told = theirs / "viewer-1-00000000.json"
    told.write_text('{"pid": 1, "url": "http://127.0.0.1:7007/?token=secret", "host": "127.0.0.1", "port": 7007}')
    os.chown(theirs, OTHER, OTHER)
    os.chown(told, OTHER, OTHER)
    with told.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as the viewer holds it
        for options in ((), ("--json",)):
            program = programs.splatview("status", *options, SPLATVIEW_RUNTIME_DIR=str(theirs))
            said, errors = program.communicate(timeout=PATIENCE)
            assert program.returncode == 2 and "belongs to you" in errors
            assert "secret" not in said + errors
