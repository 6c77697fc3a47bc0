"""Pages without a browser, with blocking calls, and the server's side of them."""

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import quote

import msgspec
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from benchmarks.browser.websocket import Closed, WebSocket
from splatview_viewer.core.events import FileDrop
from splatview_viewer.web import messages as m
from splatview_viewer.web.connection import PageConnection
from splatview_viewer.web.server import WebServer
from support.scene_pages import PageScenes
from support.wait import PATIENCE_S, clock, wait_until

T = TypeVar("T")
HELLO = m.Hello(id="page", width=320, height=240)


def address(viewer: subprocess.Popen[str], printed: list[str]) -> tuple[int, str]:
    """Wait until a viewer prints a page's address, and return its port and token.

    The lines that it prints are added to `printed`.
    """
    assert viewer.stderr is not None
    while True:
        line = viewer.stderr.readline()
        assert line, f"it ended: {printed}"
        printed.append(line)
        match = re.search(r"http://127\.0\.0\.1:(\d+)/?\?token=(\S+)", line)
        if match:
            return int(match[1]), match[2]


class Image(m.Picture, frozen=True, tag="picture"):
    """A picture with its image."""

    data: bytes = b""


class Update(m.InterfaceUpdate, frozen=True, tag="interface"):
    """Tells what changed in an interface, with its files."""

    data: bytes = b""


_decoder = msgspec.json.Decoder(m.ServerMessage)


@dataclass(slots=True)
class _Coming:
    """A picture, or blocks of a scene, on its way."""

    message: m.Picture | m.Blocks | m.PanePhoto
    announced_at: float
    data: bytes = b""
    """What has come of it."""


class Page:
    """One connection to a viewer at 127.0.0.1.

    A thread reads what arrives: `receive` gives the messages and `picture` the
    pictures, each in order of arrival.
    """

    def __init__(self, port: int, *, acks: bool = False, reading: bool = True) -> None:
        """Make a page that is not connected yet.

        Args:
            port: The viewer's port.
            acks: Answer every picture.
            reading: False reads nothing, as a page on a stalled link.
        """
        self.port = port
        self.acks = acks
        self._reading = reading
        self.closed: Closed | None = None
        """Code and reason, once the server has closed it."""
        self._messages: queue.SimpleQueue[m.ServerMessage] = queue.SimpleQueue()
        self._pictures: queue.SimpleQueue[Image] = queue.SimpleQueue()
        self._updates: queue.SimpleQueue[Update] = queue.SimpleQueue()
        self.layouts: dict[int, m.PageLayout] = {}
        """All layouts that have come, by number."""
        self.scenes = PageScenes(self.send)
        """What it draws by itself, once it says so."""
        self._coming: _Coming | None = None
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
        """Send hello and return the viewer's welcome."""
        self.send(
            m.Hello(id=id, width=width, height=height, scale=scale, visible=visible)
        )
        answer = self.receive()
        assert isinstance(answer, m.Welcome), answer
        return answer

    def send(self, message: m.ClientMessage | str | bytes) -> None:
        """Send a message, or any text or bytes in its place."""
        assert self._socket is not None
        if not isinstance(message, (str, bytes)):
            message = m.encode(message)
        if isinstance(message, str):
            self._socket.send(message.encode(), binary=False)
        else:
            self._socket.send(message, binary=True)

    def receive(self) -> m.ServerMessage:
        return self._messages.get(timeout=PATIENCE_S)

    def messages(self) -> list[m.ServerMessage]:
        """Return the messages that have come since the last call, without waiting."""
        return [self._messages.get() for _ in range(self._messages.qsize())]

    def picture(self) -> Image:
        return self._pictures.get(timeout=PATIENCE_S)

    def next_picture(self) -> Image | None:
        """Return the next picture if it has come, without waiting."""
        if self._pictures.empty():
            return None
        return self._pictures.get()

    def update(self) -> Update:
        """Return the next update of the interface."""
        return self._updates.get(timeout=PATIENCE_S)

    def next_update(self) -> Update | None:
        """Return the next update of the interface if it has come, without waiting."""
        if self._updates.empty():
            return None
        return self._updates.get()

    @property
    def waiting(self) -> int:
        """Number of pictures that have come and were not taken."""
        return self._pictures.qsize()

    def ended(self) -> Closed:
        """Wait until the server closes the connection; return its code and reason."""
        return wait_until(lambda: self.closed, "the server closes the page")

    def end(self) -> None:
        """Close the connection as when a machine loses its network. Idempotent."""
        if self._socket is not None:
            self._socket.close()
        if self._thread.is_alive():
            self._thread.join()

    def _read(self) -> None:
        assert self._socket is not None
        try:
            while True:
                self._read_message(self._socket)
        except Closed as e:
            self._end_reading(e)
        except OSError as e:
            self._end_reading(Closed(str(e)))

    def _read_message(self, connection: WebSocket) -> None:
        is_binary, data = connection.receive()
        if is_binary:
            self.read_part(data)
            return
        answer = _decoder.decode(data)
        if isinstance(answer, (m.Picture, m.Blocks, m.PanePhoto)):
            assert self._coming is None
            self._coming = _Coming(answer, clock())
        elif isinstance(answer, m.SceneMessage):
            self.scenes.take(answer)
        elif isinstance(answer, m.InterfaceUpdate):
            files = connection.receive()[1] if answer.sizes else b""
            assert len(files) == sum(answer.sizes)
            self._updates.put(Update(**msgspec.structs.asdict(answer), data=files))
            if self.acks:
                self.send(m.Ack(answer.number, layer="interface"))
        elif isinstance(answer, m.PageLayout):
            self.layouts[answer.number] = answer
        else:
            self._messages.put(answer)

    def read_part(self, data: bytes) -> None:
        """Take a part of the picture or of the blocks that are on their way."""
        coming = self._coming
        assert coming is not None
        picture = coming.message
        coming.data += data
        assert len(coming.data) <= picture.bytes
        if len(coming.data) < picture.bytes:
            return
        self._coming = None
        if isinstance(picture, (m.Blocks, m.PanePhoto)):
            self.scenes.take(picture, coming.data)
            return
        self._pictures.put(Image(**msgspec.structs.asdict(picture), data=coming.data))
        if self.acks:
            self.send(m.Ack(picture.number, (clock() - coming.announced_at) * 1e3))

    def _end_reading(self, reason: Closed) -> None:
        # The server waits for the page's side to be closed.
        assert self._socket is not None
        self._socket.close()
        self.closed = reason


class Client:
    """A page as its server sees it: its messages, and pictures that a test makes for
    it.
    """

    def __init__(self, connection: PageConnection) -> None:
        self.connection = connection
        self.hello = connection.hello
        self.acks: list[int] = []
        """Numbers of the pictures that were acknowledged."""
        self.last_number = 0
        """Number of the picture that was sent last."""
        self.layout = m.PageLayout(0, (0, 0), [])
        """The layout that was sent last."""
        self.update_acks: list[int] = []
        """Numbers of the updates of the interface that were acknowledged."""
        self.update_number = 0
        self._received: list[m.PageInput] = []
        self._waiting: deque[tuple[m.ServerMessage | bytes, ...]] = deque()
        connection.pictures = self  # type: ignore[assignment]  # in a Sender's place

    def received(self, *kinds: type[T]) -> list[T]:
        """Return all messages so far that are of these kinds."""
        self._received += self.connection.inbox.take(0)
        return [message for message in self._received if isinstance(message, kinds)]

    def forget(self) -> None:
        self.received()
        self._received.clear()

    def wait(self, kind: type[T], count: int = 1) -> T:
        """Wait for `count` messages of a kind and return the last of these."""

        def find() -> T | None:
            messages = self.received(kind)
            if len(messages) < count:
                return None
            return messages[count - 1]

        return wait_until(find, f"{count} of {kind}: {self._received[-20:]}")

    def files(self, count: int = 1) -> list[Path]:
        """Wait until the page has sent this many files, and return them."""
        wait_until(lambda: len(self.received(FileDrop)) >= count, f"{count} files")
        return [Path(drop.paths[0]) for drop in self.received(FileDrop)]

    def put(self, *sent_parts: m.ServerMessage | bytes) -> None:
        """Send messages and data together."""
        self._waiting.append(sent_parts)
        self.connection.wake_writer()

    def arrange(self, size: tuple[int, int], *panes: m.PaneBox) -> None:
        """Send a layout, and an interface that shows nothing."""
        boxes = list(panes) or [m.PaneBox(0, (0, 0, *size))]
        self.layout = m.PageLayout(self.layout.number + 1, size, boxes)
        self.update()

    def update(self, *parts: tuple[m.Box, bytes]) -> None:
        """Send parts of the interface, which are files of PNG."""
        self.update_number += 1
        message = m.InterfaceUpdate(
            number=self.update_number,
            layout=self.layout.number,
            boxes=[box for box, _ in parts],
            sizes=[len(file) for _, file in parts],
            format="png",
        )
        data = [b"".join(file for _, file in parts)] if parts else []
        self.put(self.layout, message, *data)

    def end(self) -> None:
        """Take no message any more."""
        self._waiting.clear()

    async def next(self) -> tuple[m.ServerMessage | bytes, ...] | None:
        if not self._waiting:
            return None
        return self._waiting.popleft()

    def has_acked_update(self) -> bool:
        """Return whether the page acknowledged the update that was sent last."""
        return self.update_number in self.update_acks

    def acked(self, ack: m.Ack | m.Taken, now: float) -> None:
        if isinstance(ack, m.Taken):
            return
        acked_numbers = self.acks if ack.layer == "scene" else self.update_acks
        acked_numbers.append(ack.number)


class Visitor(Page):
    """A page of a server of this process, with its requests over HTTP."""

    def __init__(self, server: WebServer, *, reading: bool = True) -> None:
        super().__init__(server.port, reading=reading)
        self.connect(token=server.token)
        self.send(HELLO)
        self.token = server.token
        self.key = ""
        if reading:
            welcome = self.receive()
            if isinstance(welcome, m.Welcome):
                self.key = welcome.key
        (connection,) = wait_until(server.arrivals, "the page arrives")
        self.client = Client(connection)

    def headers(self, **changes: str) -> dict[str, str]:
        return {
            "Origin": f"http://127.0.0.1:{self.port}",
            "X-Splatview-Page": self.key,
            "X-Splatview-Token": self.token,
            **changes,
        }

    def post(
        self, body: bytes = b"content", name: str = "scene.ply", **headers: str
    ) -> Answer:
        path = f"/upload?name={quote(name)}"
        return send_request(self.port, path, body, **self.headers(**headers))

    def start_upload(
        self, size: int, body: bytes = b"", name: str = "scene.ply"
    ) -> socket.socket:
        """Send the beginning `body` of a file of `size` bytes, and return the socket."""
        headers = {
            "Host": "127.0.0.1",
            "Content-Length": str(size),
            **self.headers(Origin="http://127.0.0.1"),
        }
        head = f"POST /upload?name={name} HTTP/1.1\r\n"
        head += "".join(f"{k}: {v}\r\n" for k, v in headers.items())
        client = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        client.sendall(head.encode() + b"\r\n" + body)
        return client

    def fetch(self, key: str, **headers: str) -> Answer:
        """Download what was offered with `key`, as the page's script does."""
        headers = {"X-Splatview-Token": self.token, **headers}
        path = f"/download?key={quote(key)}"
        return send_request(self.port, path, None, "GET", **headers)

    def check_goes_on(self, number: int = 1) -> None:
        """Check that the page still gets pictures, and is heard."""
        self.client.put(*some_picture(number, os.urandom(20_000)))
        assert self.picture().number == number
        self.send(m.Ack(number))
        wait_until(lambda: number in self.client.acks)


def some_picture(
    number: int, data: bytes, size: tuple[int, int] = (8, 8), layout: int = 1
) -> tuple[m.Picture, bytes]:
    """Return a message of a picture of a whole page, and its data."""
    message = m.Picture(
        number=number,
        format="jpeg",
        layout=layout,
        box=(0, 0, *size),
        bytes=len(data),
    )
    return message, data


class Answer(NamedTuple):
    status: int
    headers: Any
    body: bytes
    text: str


def send_request(
    port: int, path: str, body: bytes | None = None, method: str = "", **headers: str
) -> Answer:
    """Send one request; `method`: by default POST with a body, and GET without."""
    if not method:
        method = "GET" if body is None else "POST"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    with contextlib.closing(connection) as client:
        client.request(method, path, body, headers)
        answer = client.getresponse()
        content = answer.read()
        text = content.decode(errors="replace")
        return Answer(answer.status, answer.headers, content, text)


def server_request(path: str, *headers: tuple[str, str]) -> web.Request:
    """Make a request as a server gets it, without a server."""
    return make_mocked_request("GET", path, headers=CIMultiDict(headers))


def raw(port: int, request: bytes) -> bytes:
    """Send a request; return all bytes until the server ends the connection.

    Where the server resets it, nothing may come: b"".
    """
    received = b""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client,
        contextlib.suppress(ConnectionError),
    ):
        client.sendall(request)
        while chunk := client.recv(65536):
            received += chunk
    return received


def uploaded_files(folder: Path) -> list[Path]:
    """Find the files that were sent and are there, whole or in part.

    Folders may be removed meanwhile, which `Path.glob` does not bear.
    """
    prefix = str(folder / "splatview-files-")
    files = []
    for parent, _, names in os.walk(folder):
        if parent.startswith(prefix):
            files += [Path(parent, name) for name in names]
    return sorted(files)


def wait_for_uploads(folder: Path, count: int) -> None:
    """Wait until so many files of pages are kept in a folder."""

    def has_come() -> bool:
        return len(uploaded_files(folder)) == count

    wait_until(has_come, f"{count} files")
