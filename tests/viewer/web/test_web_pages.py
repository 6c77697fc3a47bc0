"""Pages that connect to the web server: what goes both ways, what a bad page cannot do, and the end."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import aiohttp
import pytest
from support.wait import PATIENCE, turns, wait_until
from support.web_clients import Page

from splatview_viewer.core import events as ev
from splatview_viewer.core.screen import Caption
from splatview_viewer.web import connection as bounds
from splatview_viewer.web import messages as m
from splatview_viewer.web import server as module
from splatview_viewer.web.server import WebServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.web_visitors import Visitor


# -- pages ------------------------------------------------------------------------------------------------------------


def test_a_page_arrives() -> None:
    woken = threading.Event()
    server = WebServer(port=0, token="secret", wake=woken.set)
    try:
        with Page(server.port) as page:
            welcome = page.connect(token="secret").greet(640, 480, 2.0, id="tab", visible=False)
            assert welcome.viewer == server.viewer and welcome.protocol == m.PROTOCOL and welcome.version
            assert woken.wait(PATIENCE)
            (connection,) = server.arrivals()
            assert server.arrivals() == []
            assert connection.hello == m.Hello(protocol=m.PROTOCOL, id="tab", width=640, height=480, scale=2.0,
                                               visible=False)
            assert connection.peer.startswith("127.0.0.1:")
            assert not connection.closed
    finally:
        server.close()


def test_what_the_page_does_is_taken_in_order(visitor: Visitor) -> None:
    sent = [ev.PointerMove(1, 1), ev.PointerPress(2, 2), ev.Resize(400, 300), m.Visible(False), ev.PointerMove(3, 3),
            ev.Text("hi")]
    for message in sent:
        visitor.page.send(message)
    wait_until(lambda: len(visitor.said) == 6)
    assert visitor.said == sent
    visitor.page.drop()
    wait_until(lambda: visitor.connection.closed)


def test_the_viewer_closes_a_page(visitor: Visitor) -> None:
    """What was said before still arrives."""
    page, connection = visitor.page, visitor.connection
    connection.send(m.Clipboard("text"))
    connection.send(Caption("last words", "b", True))
    connection.close("enough, " * 40)
    connection.close("not this")
    assert connection.closed
    connection.send(Caption("too late"))
    assert [page.receive(), page.receive()] == [m.Clipboard("text"), Caption("last words", "b", True)]
    assert page.ended()
    assert page.close_code == 1000 and page.close_reason.startswith("enough")


# -- bad pages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "code", "reason"), [
    ("{", 1008, "not a message"), ('{"t":"move","x":1,"y":1}', 1008, "hello"),
    (b'{"t":"hello","protocol":3,"id":"a","width":100,"height":100}', 1008, "hello"),
    ('{"t":"hello","protocol":3,"id":"a","width":NaN,"height":100}', 1008, "not a message"),
    ("a" * (m.MAX_MESSAGE + 1), 1009, ""),
])
def test_no_hello(server: WebServer, first: str | bytes, code: int, reason: str) -> None:
    with Page(server.port) as page:
        page.connect(token="secret").send(first)
        assert page.ended()
        assert page.close_code == code and reason in page.close_reason
    assert server.arrivals() == []


def test_silence_in_place_of_hello(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELLO_WITHIN", 0.2)
    with Page(server.port) as page:
        page.connect(token="secret")
        assert page.ended()
        assert (page.close_code, page.close_reason) == (1008, "no hello within 0.2 s")


def test_another_protocol(server: WebServer) -> None:
    with Page(server.port) as page:
        page.connect(token="secret").send('{"t":"hello","protocol":4,"something":"new"}')
        welcome, refused = page.receive(), page.receive()
        assert isinstance(welcome, m.Welcome) and welcome.protocol == m.PROTOCOL  # an older page loads itself anew
        assert isinstance(refused, m.Refused) and not refused.again
        assert "protocol 4" in refused.reason and "viewer 3" in refused.reason
        assert page.ended() and page.close_code == 1008


@pytest.mark.parametrize(("message", "code"), [
    ('{"t":"move","x":NaN,"y":0}', 1008), (b"\x00\x01", 1008), ("[" * 60000, 1008), ("x" * 70000, 1009),
    ('{"t":"hello","protocol":3,"id":"a","width":100,"height":100}', 1008),
])
def test_what_is_no_message_ends_that_page_only(join: Callable[..., Visitor], message: str | bytes,
                                                code: int) -> None:
    bad, other = join(), join()
    bad.page.send(message)
    assert bad.page.ended()
    assert bad.page.close_code == code
    wait_until(lambda: bad.connection.closed)
    assert bad.said == []
    other.goes_on()


def test_too_many_messages(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_RATE", 10)  # the page is slow to send 2000 a second
    page = visitor.page
    with suppress(ConnectionError, aiohttp.ClientConnectionError):
        for _ in turns("the viewer closes the page", rest=False):
            if page.over:
                break
            page.send(ev.PointerLeave())
    assert page.ended()
    assert page.close_code == 1008 and "10 messages a second" in page.close_reason


def test_a_page_that_does_not_read_is_closed_and_slows_no_other(join: Callable[..., Visitor],
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for it is bounded."""
    monkeypatch.setattr(bounds, "MAX_WAITING", 4 << 20)
    stuck, other = join(reading=False), join()
    number = 0
    while not stuck.connection.closed:
        number += 1
        assert number < 2000, "nothing stopped it"
        stuck.connection.send(m.Clipboard("x" * 60_000))
        if number % 10 == 0:
            other.goes_on(number)
    other.goes_on(number + 1)


def test_a_page_too_many(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CLIENTS", 2)
    with Page(server.port) as first, Page(server.port) as second, Page(server.port) as third:
        first.connect(token="secret").greet()
        second.connect(token="secret").greet()
        third.connect(token="secret").send(m.Hello(protocol=m.PROTOCOL, id="third", width=100, height=100))
        refused = third.receive()
        assert isinstance(refused, m.Refused) and refused.again and "2 pages" in refused.reason and third.ended()
        first.drop()

        def enters() -> bool:
            with Page(server.port) as page, suppress(ConnectionError):  # refused, and closed before that was read
                page.connect(token="secret").send(m.Hello(protocol=m.PROTOCOL, id="new", width=100, height=100))
                return isinstance(page.receive(), m.Welcome)
            return False

        wait_until(enters)


# -- the end ----------------------------------------------------------------------------------------------------------


def test_the_end_of_the_server_is_the_end_of_all_pages(server: WebServer, join: Callable[..., Visitor]) -> None:
    silent = Page(server.port).connect(token="secret")  # never says hello
    deaf, page = join(reading=False), join()
    deaf.pictures.put(m.Picture(1, "jpeg", (64, 32)), bytes(10_000_000))
    page.goes_on()
    server.close()
    server.close()
    assert deaf.connection.closed and page.connection.closed
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    assert page.page.ended() and page.page.close_code == 1001 and silent.ended()
    silent.end()
    page.connection.send(Caption())
    page.connection.close()
