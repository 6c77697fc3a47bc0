"""Pages that send files and fetch some over HTTP, without a browser: for tests of the serving side."""

from __future__ import annotations

import http.client
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from splatview_viewer.core.events import FileDrop
from splatview_viewer.web import messages as m
from support.wait import PATIENCE, wait_until
from support.web_clients import Page, Pictures

if TYPE_CHECKING:
    from splatview_viewer.core.events import Event
    from splatview_viewer.web.connection import Connection
    from splatview_viewer.web.server import WebServer


class Visitor:
    """A page that is connected, and what it may do over HTTP."""

    def __init__(self, server: WebServer, **options: bool) -> None:
        """`options` as in Page."""
        self.server, self.port = server, server.port
        self.page = Page(server.port, **options).connect(token=server.token)
        self.key, self.most = "", 0
        """What its welcome says, where it reads: its key, and the bytes of the largest file."""
        if options.get("reading", True):
            welcome = self.page.greet()
            self.key, self.most = welcome.key, welcome.most
        else:
            self.page.send(m.Hello(protocol=m.PROTOCOL, id="deaf", width=320, height=240))
        self.connection: Connection
        (self.connection,) = wait_until(server.arrivals, "the page arrives")
        self._said: list[Event | m.Visible] = []
        self.pictures = Pictures(self.connection)

    @property
    def said(self) -> list[Event | m.Visible]:
        """What the page has done so far."""
        self._said += [message for message, _ in self.connection.inbox.take(0)]
        return self._said

    @property
    def uploads(self) -> list[FileDrop]:
        """The files that have come so far."""
        return [event for event in self.said if isinstance(event, FileDrop)]

    def headers(self, **other: str) -> dict[str, str]:
        """Those of a page; "" leaves one out."""
        sent = {"Origin": f"http://127.0.0.1:{self.port}", "X-Splatview-Page": self.key, **other}
        return {name: value for name, value in sent.items() if value}

    def post(self, body: bytes = b"content", name: str = "scene.ply", *, token: str = "secret",
             **headers: str) -> tuple[int, str]:
        return ask(self.port, "POST", f"/upload?token={token}&name={quote(name)}", body, self.headers(**headers))[:2]

    def begin(self, size: int, body: bytes = b"", name: str = "scene.ply") -> socket.socket:
        """As much of a file as there is; the rest is to follow."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        lines = [f"POST /upload?token=secret&name={name} HTTP/1.1", f"Host: 127.0.0.1:{self.port}",
                 f"Content-Length: {size}", *(f"{k}: {v}" for k, v in self.headers().items()), "", ""]
        client.sendall("\r\n".join(lines).encode() + body)
        return client

    def goes_on(self, number: int = 1) -> None:
        """The page gets a picture, and is heard."""
        self.pictures.put(m.Picture(number, "jpeg", (8, 8)), os.urandom(20_000))
        assert self.page.picture().number == number
        self.page.send(m.Ack(number))
        assert not self.connection.closed


def ask(port: int, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None,
        ) -> tuple[int, str, http.client.HTTPResponse, bytes]:
    """Status, text, answer and bytes."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        client.request(method, path, body, headers or {})
        answer = client.getresponse()
        got = answer.read()
        return answer.status, got.decode(errors="replace"), answer, got
    finally:
        client.close()


def fetch(visitor: Visitor, key: str, token: str = "secret", **headers: str) -> tuple[int, str,
                                                                                  http.client.HTTPResponse, bytes]:
    """Download what was offered with `key`, as the page's script does."""
    return ask(visitor.port, "GET", f"/download?key={key}", headers={"X-Splatview-Token": token, **headers})


def raw(port: int, request: bytes) -> bytes:
    """What comes back on one connection until the server ends it."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
        client.sendall(request)
        received = b""
        while chunk := client.recv(65536):
            received += chunk
        return received


def kept(folder: Path) -> list[Path]:
    """Files that were sent and are there, whole or in part."""
    return sorted(Path(parent, name) for parent, _, names in os.walk(folder) for name in names
                  if Path(parent).parent.name.startswith("splatview-files-"))
