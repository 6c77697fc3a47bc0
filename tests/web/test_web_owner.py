"""The user at the other end of a connection, from the kernel's tables, and what its own user needs no token for."""

from __future__ import annotations

import asyncio
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from support.web_clients import Page
from support.web_visitors import ask

from splatview.viewer_app.web import owner
from splatview.viewer_app.web.owner import End, Entry, Owners, end_of
from splatview.viewer_app.web.server import WebServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def connection(address: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A socket that has connected to `address`, and the server's end."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listening = socket.create_server((address, 0), family=family)
    except OSError as e:
        pytest.skip(f"no {address} here: {e}")
    with listening, socket.socket(family) as client:
        client.connect((address, listening.getsockname()[1]))
        accepted, _ = listening.accept()
        with accepted:
            yield client, accepted


def owner_of(accepted: socket.socket) -> int | None:
    """Run it in a thread of its own: tests with a browser leave a loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(Owners().of(accepted))).result()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_owner_of_own_connection(address: str) -> None:
    with connection(address) as (client, accepted):
        assert owner_of(accepted) == owner_of(client) == os.geteuid()
        here, there = end_of(accepted.getsockname()), end_of(accepted.getpeername())
        unconnected = End(here.address, 1)  # the kernel has a listening socket for it
        pairs = [(there, here), (here, there), (here, here), (here, unconnected), (unconnected, here)]
        found = owner.by_netlink(pairs)
        assert found == owner.by_tables(pairs)
        ends = [Entry(1, os.geteuid(), os.fstat(one.fileno()).st_ino) for one in (client, accepted)]
        assert found == [*ends, None, None, None]


def test_owner_of_closed_connections_is_not_told() -> None:
    with connection("127.0.0.1") as (client, accepted):
        client.close()
        assert owner_of(accepted) is None, "what is left of a socket reads as root's"
    with connection("127.0.0.1") as (client, accepted):
        accepted.close()
        assert owner_of(accepted) is None


def test_own_user_needs_no_token() -> None:
    server = WebServer(port=0, wake=lambda: None)
    try:
        assert ask(server.port, "GET", "/?token=of-a-viewer-before")[0] == 200
        with Page(server.port) as page:
            page.connect(headers={"Sec-WebSocket-Protocol": "splatview, token.of-a-viewer-before"}).greet()
    finally:
        server.close()
