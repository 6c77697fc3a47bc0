"""Pages without a browser, with blocking calls, and what their server sees of them: for tests of the serving side."""

from __future__ import annotations

import contextlib
import http.client
import os
import queue
import re
import socket
import subprocess
import threading
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import quote

import msgspec
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from benchmarks.browser.websocket import Closed, WebSocket
from splatview_viewer.core.events import Event, FileDrop
from splatview_viewer.web import messages as m
from splatview_viewer.web.server import PageConnection, WebServer
from support.wait import PATIENCE, clock, wait_until

T = TypeVar("T")
HELLO = m.Hello(id="page", width=320, height=240)


def address(viewer: subprocess.Popen[str], said: list[str]) -> tuple[int, str]:
    """Port and token of a page's address, once a viewer prints it; `said`: what it has printed goes there."""
    assert viewer.stderr is not None
    while True:
        line = viewer.stderr.readline()
        assert line, f"it ended: {said}"
        said.append(line)
        found = re.search(r"http://127\.0\.0\.1:(\d+)/?\?token=(\S+)", line)
        if found:
            return int(found[1]), found[2]


class Image(m.Picture, frozen=True, tag="picture"):
    """A picture with its image."""

    data: bytes = b""


_decoder = msgspec.json.Decoder(m.ServerMessage)


class Page:
    """One connection to a viewer at 127.0.0.1.

    What arrives is read in a thread: `receive` gives the messages and `picture` the pictures, each in order of
    arrival. `acks`: every picture is answered. `reading=False` reads nothing: a page on a stalled link.
    """

    def __init__(self, port: int, *, acks: bool = False, reading: bool = True) -> None:
        self.port = port
        self.acks = acks
        self._reading = reading
        self.closed: Closed | None = None
        """Code and reason, once the server has closed it."""
        self._messages: queue.SimpleQueue[m.ServerMessage] = queue.SimpleQueue()
        self._pictures: queue.SimpleQueue[Image] = queue.SimpleQueue()
        self._socket: WebSocket | None = None
        self._thread = threading.Thread(target=self._read, name="page", daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def connect(self, *, token: str) -> Page:
        """Open the socket. Raises ConnectionError when it is refused."""
        self._socket = WebSocket(self.port, f"/ws?token={token}")
        if self._reading:
            self._thread.start()
        return self

    def greet(
        self,
        width: int = 320,
        height: int = 240,
        scale: float = 1.0,
        *,
        id: str = "page",
        visible: bool = True,
    ) -> m.Welcome:
        """Say hello; the viewer's welcome."""
        self.send(
            m.Hello(id=id, width=width, height=height, scale=scale, visible=visible)
        )
        answer = self.receive()
        assert isinstance(answer, m.Welcome), answer
        return answer

    def send(self, message: m.ClientMessage | str | bytes) -> None:
        """A message, or any text or bytes in its place."""
        assert self._socket is not None
        text = message if isinstance(message, (str, bytes)) else m.encode(message)
        self._socket.send(
            text.encode() if isinstance(text, str) else text,
            binary=isinstance(text, bytes),
        )

    def receive(self) -> m.ServerMessage:
        return self._messages.get(timeout=PATIENCE)

    def messages(self) -> list[m.ServerMessage]:
        """The messages that have come since this was asked last. Does not wait."""
        return [self._messages.get() for _ in range(self._messages.qsize())]

    def picture(self) -> Image:
        return self._pictures.get(timeout=PATIENCE)

    def next_picture(self) -> Image | None:
        """The next picture; None where it has not come. Does not wait."""
        return None if self._pictures.empty() else self._pictures.get()

    @property
    def waiting(self) -> int:
        """Pictures that have come and were not taken."""
        return self._pictures.qsize()

    def ended(self) -> Closed:
        """Code and reason with which the server closes the connection, once it does."""
        return wait_until(lambda: self.closed, "the server closes the page")

    def end(self) -> None:
        """Close the connection without a word, as when a machine loses its network. Idempotent."""
        if self._socket is not None:
            self._socket.close()
        if self._thread.is_alive():
            self._thread.join()

    def _read(self) -> None:
        assert self._socket is not None
        try:
            while True:
                answer = _decoder.decode(self._socket.receive()[1])
                came = clock()
                if not isinstance(answer, m.Picture):
                    self._messages.put(answer)
                    continue
                self._pictures.put(
                    Image(
                        **msgspec.structs.asdict(answer), data=self._socket.receive()[1]
                    )
                )
                if self.acks:
                    self.send(m.Ack(answer.number, (clock() - came) * 1e3))
        except (Closed, OSError) as e:
            self._socket.close()  # the server waits for that
            self.closed = e if isinstance(e, Closed) else Closed(str(e))


class Client:
    """A page as its server sees it: what it has said, and the pictures that a test has made for it."""

    def __init__(self, connection: PageConnection) -> None:
        self.connection = connection
        self.hello = connection.hello
        self.acks: list[int] = []
        self.number = 0
        self._received: list[Event | m.Visible] = []
        self._waiting: deque[tuple[m.Picture, bytes]] = deque()
        connection.pictures = self  # type: ignore[assignment]  # in a Sender's place

    def received(self, *kinds: type[T]) -> list[T]:
        """All that it said so far, of these kinds."""
        self._received += self.connection.inbox.take(0)
        return [message for message in self._received if isinstance(message, kinds)]

    def forget(self) -> None:
        self.received()
        self._received.clear()

    def wait(self, kind: type[T], count: int = 1) -> T:
        """The message of this kind that makes it `count` of them."""
        return wait_until(
            lambda: (self.received(kind)[count - 1 :] or [None])[0],
            f"{count} of {kind}: {self._received[-20:]}",
        )

    def files(self, count: int = 1) -> list[Path]:
        """The files that it has sent, as soon as there are so many."""
        wait_until(lambda: len(self.received(FileDrop)) >= count, f"{count} files")
        return [Path(drop.paths[0]) for drop in self.received(FileDrop)]

    def put(self, picture: m.Picture, image: bytes) -> None:
        self._waiting.append((picture, image))
        self.connection.wake_writer()

    async def next(self) -> tuple[m.Picture, bytes] | None:
        return self._waiting.popleft() if self._waiting else None

    def acked(self, number: int, took: float, now: float) -> None:
        self.acks.append(number)


class Visitor(Page):
    """A page that is connected to a server of this process, and what it may do over HTTP."""

    def __init__(self, server: WebServer, *, reading: bool = True) -> None:
        super().__init__(server.port, reading=reading)
        self.connect(token=server.token)
        self.send(HELLO)
        self.token = server.token
        self.key = ""
        if reading and isinstance(welcome := self.receive(), m.Welcome):
            self.key = welcome.key
        (connection,) = wait_until(server.arrivals, "the page arrives")
        self.client = Client(connection)

    def headers(self, **other: str) -> dict[str, str]:
        return {
            "Origin": f"http://127.0.0.1:{self.port}",
            "X-Splatview-Page": self.key,
            "X-Splatview-Token": self.token,
            **other,
        }

    def post(
        self, body: bytes = b"content", name: str = "scene.ply", **headers: str
    ) -> Answer:
        return send_request(
            self.port, f"/upload?name={quote(name)}", body, **self.headers(**headers)
        )

    def start_upload(
        self, size: int, body: bytes = b"", name: str = "scene.ply"
    ) -> socket.socket:
        """As much of a file as there is; the rest is to follow."""
        lines = {
            "Host": "127.0.0.1",
            "Content-Length": str(size),
            **self.headers(Origin="http://127.0.0.1"),
        }
        head = "".join(
            [
                f"POST /upload?name={name} HTTP/1.1\r\n",
                *(f"{k}: {v}\r\n" for k, v in lines.items()),
                "\r\n",
            ]
        )
        client = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        client.sendall(head.encode() + body)
        return client

    def fetch(self, key: str, **headers: str) -> Answer:
        """Download what was offered with `key`, as the page's script does."""
        headers = {"X-Splatview-Token": self.token, **headers}
        return send_request(
            self.port, f"/download?key={quote(key)}", None, "GET", **headers
        )

    def check_goes_on(self, number: int = 1) -> None:
        """The page gets a picture, and is heard."""
        self.client.put(m.Picture(number, "jpeg", (8, 8)), os.urandom(20_000))
        assert self.picture().number == number
        self.send(m.Ack(number))
        wait_until(lambda: number in self.client.acks)


class Answer(NamedTuple):
    status: int
    headers: Any
    body: bytes
    text: str


def send_request(
    port: int, path: str, body: bytes | None = None, method: str = "", **headers: str
) -> Answer:
    """Send one request; `method`: by default POST with a body, and GET without."""
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    ) as client:
        client.request(
            method or ("GET" if body is None else "POST"), path, body, headers
        )
        answer = client.getresponse()
        body = answer.read()
        return Answer(
            answer.status, answer.headers, body, body.decode(errors="replace")
        )


def server_request(path: str, *headers: tuple[str, str]) -> web.Request:
    """A request as a server gets it, without a server."""
    return make_mocked_request("GET", path, headers=CIMultiDict(headers))


def raw(port: int, request: bytes) -> bytes:
    """What comes back on one connection until the server ends it; b"" where that resets it."""
    received = b""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client,
        contextlib.suppress(ConnectionError),
    ):
        client.sendall(request)
        while chunk := client.recv(65536):
            received += chunk
    return received


def uploaded_files(folder: Path) -> list[Path]:
    """Files that were sent and are there, whole or in part. Folders may go meanwhile, which `glob` does not bear."""
    return sorted(
        Path(at, name)
        for at, _, names in os.walk(folder)
        for name in names
        if at.startswith(str(folder / "splatview-files-"))
    )
