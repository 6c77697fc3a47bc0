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
from support.meters import footprint, settled
from support.programs import ROOT
from support.repetitions import exhaustive, with_exhaustive
from support.wait import PATIENCE
from support.web_clients import Page
from support.web_floods import MEMORY, Work, goes_on, honest_fixture, open_server_fixture, work_fixture  # noqa: F401
from test_web_server import raw

from benchmarks.browser import hostile
from splatview.viewer_app.web import door
from splatview.viewer_app.web import messages as m
from splatview.viewer_app.web import server as serving
from splatview.viewer_app.web.door import Turns
from splatview.viewer_app.web.server import WebServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview.viewer_app.web.connection import Connection


OF_A_KIND = ("pipelined requests, never read", "endless bodies", "endless chunks", "events, as fast as it goes",
             "pings", "empty fragments", "pages that come and go", "sockets without a hello", "compressed bombs")
"""Floods that do much as another one, or that take seconds of the processor."""


# -- floods ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.15, exhaustive(0.4), exhaustive(1.2)])
@pytest.mark.parametrize("kind", with_exhaustive(list(hostile.KINDS), *OF_A_KIND))
def test_a_flood_is_bounded(open_server: WebServer, work: Work, honest: tuple[Page, Connection], kind: str,
                            seconds: float, wait_until: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    goes_on(honest)
    base = footprint()
    flood = subprocess.Popen([sys.executable, "-m", "benchmarks.browser.hostile", kind, str(open_server.port),
                              str(seconds)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
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


# -- the machine -------------------------------------------------------------------------------------------------------


def test_no_descriptor_is_left(open_server: WebServer, honest: tuple[Page, Connection],
                               caplog: pytest.LogCaptureFixture) -> None:
    """Said once; the page that is there goes on, and others come again once there are some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    waiting = [socket.socket() for _ in range(30)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(n) for n in os.listdir("/proc/self/fd")) + 1, hard))
    spare = []
    try:
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
