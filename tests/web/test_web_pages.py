"""Pages that connect to the web server: what goes both ways, what a bad page cannot do, and the end."""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from support.open_files import open_files
from support.wait import PATIENCE
from support.web_clients import Page

from splatview.viewer_app.web import connection as bounds
from splatview.viewer_app.web import messages as m
from splatview.viewer_app.web import server as module
from splatview.viewer_app.web.server import WebServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from splatview.viewer_app.web.connection import Connection, Upload


class Receiver:
    def __init__(self) -> None:
        self.taken: list[m.ClientMessage | Upload] = []
        self.times: list[float] = []
        self.threads: set[str] = set()
        self.over = threading.Event()

    def take(self, message: m.ClientMessage | Upload, now: float) -> None:
        self.taken.append(message)
        self.times.append(now)
        self.threads.add(threading.current_thread().name)

    def lost(self) -> None:
        assert not self.over.is_set()
        self.over.set()


@pytest.fixture
def server() -> Iterator[WebServer]:
    made = WebServer(port=0, wake=lambda: None)
    yield made
    made.close()


@pytest.fixture
def join(server: WebServer, wait_until: Callable[..., Any]) -> Iterator[Callable[..., tuple[Page, Connection]]]:
    pages = []

    def join(**options: Any) -> tuple[Page, Connection]:
        page = Page(server.port, **options)
        pages.append(page)
        page.connect()
        page.send(m.Hello(protocol=1, id=f"page{len(pages)}", width=320, height=240))
        if options.get("reading", True):
            assert isinstance(page.receive(), m.Welcome)
        (connection,) = wait_until(server.arrivals)
        return page, connection

    yield join
    for page in pages:
        page.end()


def picture(number: int, size: int = 1000) -> m.Picture:
    return m.Picture(number, "jpeg", (32, 16), (64, 32), 1.5, 10, 80, False, os.urandom(size))


def clog(connection: Connection, wait_until: Callable[..., Any]) -> None:
    """Send to a page that does not read more than all buffers on the way hold."""
    for number in range(2):  # aiohttp's client takes in the first one as a whole, and then no more
        connection.send_picture(picture(number, 30_000_000))
    wait_until(lambda: not connection._pictures)


def _status(port: int) -> int:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        client.request("GET", "/")
        return client.getresponse().status
    finally:
        client.close()


# -- pages -------------------------------------------------------------------------------------------------------------


def test_a_page_arrives() -> None:
    woken = threading.Event()
    server = WebServer(port=0, wake=woken.set)
    try:
        with Page(server.port) as page:
            welcome = page.connect().greet(640, 480, 2.0, id="tab", visible=False)
            assert welcome.viewer == server.viewer and welcome.protocol == 1 and welcome.version
            assert woken.wait(PATIENCE)
            (connection,) = server.arrivals()
            assert server.arrivals() == []
            assert connection.hello == m.Hello(protocol=1, id="tab", width=640, height=480, scale=2.0, visible=False)
            assert connection.peer.startswith("127.0.0.1:")
            assert not connection.closed
    finally:
        server.close()


def test_what_the_page_says_is_taken_in_order(join: Callable[..., tuple[Page, Connection]],
                                              wait_until: Callable[..., Any]) -> None:
    """Also what it said before somebody attached; of moves in a row then only the last."""
    page, connection = join()
    early = [m.Move(1, 1), m.Move(2, 2), m.Press(2, 2), m.Resize(400, 300), m.Visible(False)]
    for message in early:
        page.send(message)
    wait_until(lambda: len(connection._kept) == 4)
    receiver = Receiver()
    connection.attach(receiver)
    late = [m.Ack(1), m.Move(3, 3), m.Move(4, 4), m.Text("hi")]
    for message in late:
        page.send(message)
    wait_until(lambda: len(receiver.taken) == 8)
    assert receiver.taken == early[1:] + late
    assert receiver.times == sorted(receiver.times) and time.monotonic() - receiver.times[0] < 60
    assert receiver.threads == {"web"}
    page.drop()
    assert receiver.over.wait(PATIENCE)
    assert connection.closed


def test_an_error_of_the_receiver_ends_nothing(join: Callable[..., tuple[Page, Connection]],
                                               wait_until: Callable[..., Any],
                                               caplog: pytest.LogCaptureFixture) -> None:
    page, connection = join()

    class Bad(Receiver):
        def take(self, message: m.ClientMessage | Upload, now: float) -> None:
            super().take(message, now)
            raise KeyError("a bug")

    receiver = Bad()
    connection.attach(receiver)
    page.send(m.Leave())
    page.send(m.Ack(2))
    wait_until(lambda: len(receiver.taken) == 2)
    assert "a bug" in caplog.text
    connection.send(m.Caption("still here"))
    assert page.receive() == m.Caption("still here")


def test_pictures_files_and_words(join: Callable[..., tuple[Page, Connection]]) -> None:
    page, connection = join()
    pictures = [picture(1), picture(2, 3_000_000), picture(3, 0)]
    for sent in pictures:
        connection.send_picture(sent)
    connection.send(m.Caption("a", "b", True))
    connection.send(m.Clipboard("text"))
    connection.send_file("shot.png", b"\x89PNG")
    assert [page.picture() for _ in pictures] == pictures
    assert [page.receive(), page.receive()] == [m.Caption("a", "b", True), m.Clipboard("text")]
    assert page.file() == m.File("shot.png", b"\x89PNG")
    with pytest.raises(ValueError, match="255"):
        connection.send_file("", b"")


def test_little_waits_in_the_kernel(join: Callable[..., tuple[Page, Connection]]) -> None:
    """On a slow link what waits there is old when it arrives; and small messages wait for no answer."""
    _, connection = join()
    used = connection._socket.get_extra_info("socket")
    assert used.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 1024 * 1024
    assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 128 * 1024
    assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_two_pages_have_two_connections(join: Callable[..., tuple[Page, Connection]]) -> None:
    (page, connection), (other, another) = join(), join()
    connection.send(m.Clipboard("one"))
    another.send(m.Clipboard("two"))
    assert page.receive() == m.Clipboard("one")
    assert other.receive() == m.Clipboard("two")


def test_the_viewer_closes_a_page(join: Callable[..., tuple[Page, Connection]]) -> None:
    """What was said before still arrives."""
    page, connection = join()
    receiver = Receiver()
    connection.attach(receiver)
    connection.send(m.Caption("last words"))
    connection.close("enough, " * 40)
    connection.close("not this")
    assert connection.closed
    connection.send(m.Caption("too late"))
    connection.send_picture(picture(1))
    assert page.receive() == m.Caption("last words")
    assert page.ended()
    assert page.close_code == 1000 and page.close_reason.startswith("enough")
    assert receiver.over.wait(PATIENCE)
    late = Receiver()
    connection.attach(late)
    assert late.over.wait(PATIENCE)


# -- bad pages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "code", "reason"), [
    ("", 1008, "not a message"), ("{", 1008, "not a message"), ('{"t":"move","x":1,"y":1}', 1008, "hello"),
    (b'{"t":"hello","protocol":1,"id":"a","width":100,"height":100}', 1008, "hello"),
    ('{"t":"hello","protocol":1,"id":"a","width":1e9,"height":100}', 1008, "not a message"),
    ('{"t":"hello","protocol":1,"id":"a","width":NaN,"height":100}', 1008, "not a message"),
    ("a" * (m.MAX_MESSAGE + 1), 1009, ""),
])
def test_no_hello(server: WebServer, first: str | bytes, code: int, reason: str) -> None:
    with Page(server.port) as page:
        page.connect().send(first)
        assert page.ended()
        assert page.close_code == code and reason in page.close_reason
    assert server.arrivals() == []


def test_silence_in_place_of_hello(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELLO_WITHIN", 0.2)
    with Page(server.port) as page:
        page.connect()
        assert page.ended()
        assert (page.close_code, page.close_reason) == (1008, "no hello within 0.2 s")


def test_another_protocol(server: WebServer) -> None:
    with Page(server.port) as page:
        page.connect().send('{"t":"hello","protocol":2,"something":"new"}')
        welcome, refused = page.receive(), page.receive()
        assert isinstance(welcome, m.Welcome) and welcome.protocol == m.PROTOCOL  # an older page loads itself anew
        assert isinstance(refused, m.Refused) and not refused.again
        assert "protocol 2" in refused.reason and "viewer 1" in refused.reason
        assert page.ended() and page.close_code == 1008


@pytest.mark.parametrize(("message", "code"), [
    ("null", 1008), ('{"t":"move","x":NaN,"y":0}', 1008), ('{"t":"move","x":"1","y":0}', 1008), ('{"t":"mo', 1008),
    (b"\x00\x01", 1008), ('{"t":"ack","number":-1}', 1008), ("[" * 60000, 1008), ("x" * 70000, 1009),
    ('{"t":"hello","protocol":1,"id":"a","width":100,"height":100}', 1008),
])
def test_what_is_no_message_ends_that_page_only(join: Callable[..., tuple[Page, Connection]], message: str | bytes,
                                                code: int) -> None:
    (page, connection), (other, another) = join(), join()
    receiver = Receiver()
    connection.attach(receiver)
    page.send(message)
    assert page.ended()
    assert page.close_code == code
    assert receiver.over.wait(PATIENCE) and receiver.taken == [] and connection.closed
    another.send(m.Clipboard("fine"))
    assert other.receive() == m.Clipboard("fine")


def test_too_many_messages(join: Callable[..., tuple[Page, Connection]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_RATE", 10)  # the page is slow to send 2000 a second
    page, connection = join()
    receiver = Receiver()
    connection.attach(receiver)
    with pytest.raises((ConnectionError, AssertionError)):
        for _ in range(100_000):
            page.send(m.Leave())
            assert not page.ended(0)
    assert page.ended()
    assert page.close_code == 1008 and "10 messages a second" in page.close_reason


def test_a_page_that_does_not_read_slows_no_other(join: Callable[..., tuple[Page, Connection]],
                                                  wait_until: Callable[..., Any]) -> None:
    _, to_stuck = join(reading=False)
    page, connection = join()
    clog(to_stuck, wait_until)
    for number in range(bounds.MAX_PICTURES):
        to_stuck.send_picture(picture(number))
    for number in range(50):
        connection.send_picture(picture(number, 50_000))
        assert page.picture().number == number
    assert not to_stuck.closed
    receiver = Receiver()
    to_stuck.attach(receiver)
    to_stuck.send_picture(picture(9))  # one too many
    assert to_stuck.closed
    assert receiver.over.wait(PATIENCE)
    connection.send_picture(picture(51))
    assert page.picture().number == 51


def test_messages_wait_in_bounds(join: Callable[..., tuple[Page, Connection]], wait_until: Callable[..., Any]) -> None:
    _, connection = join(reading=False)
    clog(connection, wait_until)
    for _ in range(bounds.MAX_TEXTS):
        connection.send(m.Caption())
    assert not connection.closed
    connection.send(m.Caption())
    assert connection.closed


@pytest.mark.exhaustive  # quick: floods of silent connections
def test_a_page_that_is_silent_is_gone(join: Callable[..., tuple[Page, Connection]],
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """One that reads answers when it is asked, without its script; one that does not read is closed after a while."""
    monkeypatch.setattr(bounds, "PING_EVERY", 0.1)
    monkeypatch.setattr(bounds, "SILENCE", 3.0)
    _, silent = join(reading=False)
    page, connection = join()
    receiver, other = Receiver(), Receiver()
    silent.attach(receiver)
    connection.attach(other)
    assert receiver.over.wait(PATIENCE) and silent.closed
    assert not other.over.wait(1.5)  # it joined at the same time
    connection.send(m.Clipboard("here"))
    assert page.receive() == m.Clipboard("here")


def test_a_page_too_many(server: WebServer, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    monkeypatch.setattr(module, "MAX_CLIENTS", 2)
    with Page(server.port) as first, Page(server.port) as second, Page(server.port) as third:
        first.connect().greet()
        second.connect().greet()
        third.connect().send(m.Hello(protocol=1, id="third", width=100, height=100))
        refused = third.receive()
        assert isinstance(refused, m.Refused) and refused.again and "2 pages" in refused.reason and third.ended()
        first.drop()

        def enters() -> bool:
            with Page(server.port) as page, suppress(ConnectionError):  # refused, and closed before that was read
                page.connect().send(m.Hello(protocol=1, id="new", width=100, height=100))
                return isinstance(page.receive(), m.Welcome)
            return False
        wait_until(enters)


# -- the end -----------------------------------------------------------------------------------------------------------


def test_nothing_is_left(wait_until: Callable[..., Any]) -> None:
    threads, files = threading.active_count(), open_files()
    server = WebServer(port=0, wake=lambda: None)
    pages = [Page(server.port, reading=number != 0).connect() for number in range(4)]
    idle = socket.create_connection(("127.0.0.1", server.port))
    for page in pages[:3]:  # one never says hello
        page.send(m.Hello(protocol=1, id="page", width=100, height=100))
    connections: list[Connection] = []
    wait_until(lambda: connections.extend(server.arrivals()) or len(connections) == 3)
    receivers = [Receiver() for _ in connections]
    for connection, receiver in zip(connections, receivers, strict=True):
        connection.attach(receiver)
        connection.send_picture(picture(1, 30_000_000))
    connections[0].send_picture(picture(2, 30_000_000))
    assert isinstance(pages[1].receive(), m.Welcome)
    pages[1].picture()
    server.close()
    server.close()
    assert all(receiver.over.is_set() for receiver in receivers)
    assert all(connection.closed for connection in connections)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    assert pages[1].ended() and pages[1].close_code == 1001 and pages[3].ended()
    idle.close()
    for page in pages:
        page.end()
    assert threading.active_count() <= threads
    assert open_files() <= files
    late = Receiver()
    connections[0].attach(late)
    assert late.over.is_set()
    connections[0].send(m.Caption())
    connections[0].close()


def test_it_may_be_closed_in_its_own_thread() -> None:
    """As a receiver does that ends the viewer."""
    server = WebServer(port=0, wake=lambda: server.close())
    with Page(server.port) as page:
        page.connect().send(m.Hello(protocol=1, id="a", width=100, height=100))
        assert page.ended()
    server.close()
    assert not server._thread.is_alive()
