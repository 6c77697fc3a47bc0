"""A web server whose work is counted, and a page that was there before: for tests of those who mean no good."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from splatview.viewer_app.web import door
from splatview.viewer_app.web import messages as m
from splatview.viewer_app.web.door import Visit
from splatview.viewer_app.web.server import WebServer
from support.meters import MB
from support.web_clients import Page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from splatview.viewer_app.web.connection import Connection

MEMORY = 48 * MB
"""What a flood may take up; 256 connections that had no bounds would take gigabytes."""


class Work:
    """What the server does for those who come."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connections = self.bytes = self.requests = 0
        made, fed, answer = Visit.connection_made, web.RequestHandler.data_received, WebServer._answer

        def connection_made(visit: Visit, transport: Any) -> None:
            self.connections += 1
            made(visit, transport)

        def data_received(handler: web.RequestHandler, data: bytes) -> None:
            self.bytes += len(data)
            fed(handler, data)

        async def answered(server: WebServer, request: web.BaseRequest) -> web.StreamResponse:
            self.requests += 1
            return await answer(server, request)

        monkeypatch.setattr(Visit, "connection_made", connection_made)
        monkeypatch.setattr(web.RequestHandler, "data_received", data_received)
        monkeypatch.setattr(WebServer, "_answer", answered)

    def check(self, seconds: float) -> None:
        """Held against what the module `door` promises."""
        most = door.AT_ONCE + door.PER_SECOND * seconds + 1
        assert self.connections <= most
        assert self.requests <= most * door.FIRST + door.ANSWERED_AT_ONCE + door.ANSWERED_PER_SECOND * seconds
        # Of each who comes the first bytes, and of all together so many a second; what few connections may read at
        # once is more than their share for a moment, and each may end in the middle of a piece.
        assert self.bytes <= (most * (door.READ_AT_FIRST + door._PIECE) + 32 * door.READ_AT_ONCE
                              + 2 * door.READ_IN_ALL * seconds)


@pytest.fixture(name="work")
def work_fixture(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


@pytest.fixture(name="open_server")
def open_server_fixture(work: Work) -> Iterator[WebServer]:
    made = WebServer(port=0, wake=lambda: None)
    yield made
    made.close()


@pytest.fixture(name="honest")
def honest_fixture(open_server: WebServer, wait_until: Callable[..., Any]) -> Iterator[tuple[Page, Connection]]:
    with Page(open_server.port) as page:
        page.connect().greet()
        (connection,) = wait_until(open_server.arrivals)
        yield page, connection


def goes_on(honest: tuple[Page, Connection], number: int = 1) -> None:
    """The page gets a picture, and is heard."""
    page, connection = honest
    connection.send_picture(m.Picture(number, "jpeg", (4, 4), (8, 8), 0.0, 0, 80, False, os.urandom(20_000)))
    assert page.picture().number == number
    page.send(m.Ack(number))
    assert not connection.closed
