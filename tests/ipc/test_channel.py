"""Connections between viewers and trainers end for both sides, and what was sent before arrives."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.wait import wait_until

from splatview.ipc.channel import Connection, Link, Listener

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    made = Listener(tmp_path)
    yield made
    made.close()
    made.close()


def connected(listener: Listener, link: Link) -> Connection:
    assert link.connect()
    (fd,) = wait_until(listener.accept)
    found = listener.connection(fd)
    assert found is not None
    return found


def test_what_a_forked_process_keeps_open_holds_nobody(listener: Listener, tmp_path: Path) -> None:
    """A worker that was forked while a viewer was there has the connection for as long as it lives."""
    link = Link(tmp_path)
    connection = connected(listener, link)
    worker = os.dup(connection.fileno())
    assert connection.send(b"the last")
    listener.close_one(connection)
    assert wait_until(link.receive) == b"the last"
    assert link.receive() is None
    assert not link.up, "it would wait for an answer that never comes"
    again = connected(listener, link)
    assert link.send(b"hello")
    assert again.receive() == b"hello"
    os.close(worker)
    link.close()


def test_a_flood_on_one_connection_keeps_no_other_waiting(listener: Listener, tmp_path: Path) -> None:
    links = [Link(tmp_path) for _ in range(5)]
    fds = [connected(listener, link).fileno() for link in links]
    for link in links:
        assert link.send(b"the first")
    while links[0].send(b"another"):
        pass
    heard: list[int] = []

    def take(connection: Connection) -> bool:
        if connection.receive() is None:
            return False
        heard.append(connection.fileno())
        return True

    listener.in_turn(fds, take)
    assert heard[:5] == fds
    assert len(heard) <= 70, "what is left waits for the next turn"
    for link in links:
        link.close()
