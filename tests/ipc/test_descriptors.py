"""Descriptors handed from process to process over the run's socket, and a viewer without /proc."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import torch
from support.open_files import open_files
from support.reading import newest
from support.wait import turns

import splatview
from splatview_ipc import Subscriber
from splatview_ipc.control import descriptors
from splatview_ipc.control.descriptors import Fetch, Server
from splatview_ipc.control.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from splatview_ipc.control.messages import SegmentRef


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    s = Server(tmp_path)
    yield s
    s.close()


def files(count: int) -> list[int]:
    """Descriptors of files that hold their own number."""
    made = []
    for i in range(count):
        fd = os.memfd_create("test")
        os.write(fd, str(i).encode())
        made.append(fd)
    return made


def close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def fetched(server: Server, fetch: Fetch) -> list[int]:
    for _ in turns("an answer"):
        server.serve()
        fds = fetch.poll()
        if fds is not None:
            return fds
    raise AssertionError


@pytest.mark.parametrize("count", [1, 200, 201, 450])
def test_descriptors_arrive_in_order(server: Server, tmp_path: Path, count: int) -> None:
    before = open_files()
    token = descriptors.offer(files(count))
    fds = fetched(server, Fetch(tmp_path, token))
    assert [int(os.pread(fd, 10, 0)) for fd in fds] == list(range(count))
    assert not any(os.get_inheritable(fd) for fd in fds)
    descriptors.withdraw(token)
    descriptors.withdraw(token)
    close(fds)
    assert open_files() <= before


def test_a_viewer_in_another_pid_namespace_sees_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where process ids mean something else, /proc leads nowhere: all memory comes over the socket."""
    def closed(ref: SegmentRef, pid: int) -> int:
        raise UnreachableError("no /proc here")

    monkeypatch.setattr("splatview_ipc.subscriber.source.open_segment", closed)
    monkeypatch.setattr("splatview_ipc.subscriber.remote_run.pid_namespace", lambda: 1)
    with Subscriber() as subscriber:
        for value in range(1, 4):
            splatview.publish(torch.full((64, 64), value, dtype=torch.uint8), "image")
            version, _, tensors = newest(subscriber, "image", after=value - 1)
            assert version == value and (tensors["image"] == value).all()
