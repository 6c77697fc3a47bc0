"""Connections between viewers and trainers end for both sides, and what was sent before arrives."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from splatview.ipc.channel import Connection, Link, Listener

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def connected(listener: Listener, link: Link, wait_until: Callable[..., Any]) -> Connection:
    assert link.connect()
    (fd,) = wait_until(listener.accept)
    found = listener.connection(fd)
    assert found is not None
    return found


def test_what_a_forked_process_keeps_open_holds_nobody(tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    """A worker that was forked while a viewer was there has the connection for as long as it lives."""
    listener, link = Listener(tmp_path), Link(tmp_path)
    connection = connected(listener, link, wait_until)
    worker = os.dup(connection.fileno())
    try:
        assert connection.send(b"the last")
        listener.close_one(connection)
        assert wait_until(link.receive) == b"the last"
        assert link.receive() is None
        assert not link.up, "it would wait for an answer that nobody gives"
        again = connected(listener, link, wait_until)
        assert link.send(b"hello")
        assert again.receive() == b"hello"
    finally:
        os.close(worker)
        link.close()
        listener.close()
        listener.close()


def test_each_is_heard_however_slow_it_is_to_listen(tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    listener, links = Listener(tmp_path), [Link(tmp_path) for _ in range(5)]
    fds = [connected(listener, link, wait_until).fileno() for link in links]
    for link in links:
        for _ in range(3):
            assert link.send(b"a message")
    heard: list[int] = []

    def take(connection: Connection) -> bool:
        time.sleep(0.005)  # another thread has the GIL
        if connection.receive() is None:
            return False
        heard.append(connection.fileno())
        return True

    for turn in range(1, 4):
        listener.in_turn(fds, take)
        assert heard == fds * turn
    for link in links:
        link.close()
    listener.close()
