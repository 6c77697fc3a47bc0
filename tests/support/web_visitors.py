"""Pages that send files and fetch some over HTTP, without a browser: for tests of the serving side."""

from __future__ import annotations

import http.client
import socket
import tempfile
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from splatview.viewer_app.web import messages as m
from splatview.viewer_app.web.connection import Upload
from splatview.viewer_app.web.server import WebServer
from support.wait import PATIENCE
from support.web_clients import Page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Receiver:
    """Who takes what a page says."""

    def __init__(self) -> None:
        self.uploads: list[Upload] = []
        self.over = threading.Event()

    def take(self, message: m.ClientMessage | Upload, now: float) -> None:
        if isinstance(message, Upload):
            self.uploads.append(message)

    def lost(self) -> None:
        self.over.set()


class Visitor:
    """A page that is connected, and what it may do over HTTP."""

    def __init__(self, server: WebServer, wait_until: Callable[..., Any]) -> None:
        self.page = Page(server.port)
        self.page.connect(token="secret")
        self.page.send(m.Hello(protocol=1, id="page", width=320, height=240))
        welcome = self.page.receive()
        assert isinstance(welcome, m.Welcome)
        self.welcome = welcome
        (self.connection,) = wait_until(server.arrivals)
        self.server = server
        self.receiver = Receiver()
        self.connection.attach(self.receiver)
        self.port = server.port

    def headers(self, **other: str) -> dict[str, str]:
        """Those of a page; "" leaves one out."""
        sent = {"Origin": f"http://127.0.0.1:{self.port}", "X-Splatview-Page": self.welcome.key, **other}
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


def ask(port: int, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None,
        ) -> tuple[int, str, http.client.HTTPResponse, bytes]:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        client.request(method, path, body, headers or {})
        answer = client.getresponse()
        got = answer.read()
        return answer.status, got.decode(errors="replace"), answer, got
    finally:
        client.close()


@pytest.fixture(name="folder")
def folder_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files lie."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture(name="server")
def server_fixture(folder: Path) -> Iterator[WebServer]:
    made = WebServer(port=0, token="secret", wake=lambda: None)
    yield made
    made.close()
    assert not list(folder.glob("splatview-files-*"))


@pytest.fixture(name="visitor")
def visitor_fixture(server: WebServer, wait_until: Callable[..., Any]) -> Iterator[Visitor]:
    made = Visitor(server, wait_until)
    yield made
    made.page.end()
