"""Descriptors handed from process to process over the run's socket, and what is done without /proc."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import torch
from support.open_files import open_files
from support.reading import newest
from support.wait import turns

import splatview
from splatview.ipc import Subscriber, descriptors
from splatview.ipc.descriptors import Fetch, Server
from splatview.ipc.errors import SharingError, UnreachableError
from splatview.ipc.messages import SegmentRef
from splatview.ipc.segments import Segment
from splatview.ipc.source import RunSource
from splatview.ipc.ways.base import NotYet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NO_PROCESS = 2**22 + 1


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


def test_descriptors_are_made_for_who_asks(server: Server, tmp_path: Path) -> None:
    """Few at a time, and none is kept: a trainer needs its descriptors for itself."""
    there = files(450)
    before, calls = open_files(), []

    def make(start: int, stop: int) -> list[int]:
        calls.append((start, stop))
        return [os.dup(fd) for fd in there[start:stop]]

    token = descriptors.offer_made(450, make)
    assert calls == [] and open_files() <= before
    fds = fetched(server, Fetch(tmp_path, token))
    assert [int(os.pread(fd, 10, 0)) for fd in fds] == list(range(450))
    assert calls == [(0, 200), (200, 400), (400, 450)]
    close(fds)
    assert open_files() <= before
    descriptors.withdraw(token)
    with pytest.raises(SharingError, match="offer"):
        fetched(server, Fetch(tmp_path, token))
    close(there)


@pytest.mark.parametrize("fails_at", [0, 200])
def test_what_cannot_be_made_any_more_is_refused(server: Server, tmp_path: Path, fails_at: int) -> None:
    there = files(300)
    before = open_files()

    def make(start: int, stop: int) -> list[int]:
        if start >= fails_at:
            raise SharingError("the memory is gone")
        return [os.dup(fd) for fd in there[start:stop]]

    token = descriptors.offer_made(300, make)
    with pytest.raises(SharingError, match="offer"):
        fetched(server, Fetch(tmp_path, token))
    descriptors.withdraw(token)
    assert open_files() <= before
    close(there)


def test_a_segment_that_proc_does_not_show_is_handed_over(server: Server, tmp_path: Path) -> None:
    segment = Segment(1000, "test")
    source = RunSource(NO_PROCESS, tmp_path, lambda: False)

    def get(ref: SegmentRef) -> int:
        for _ in turns("an answer"):
            try:
                return source.segment(ref)
            except NotYet:
                server.serve()
        raise AssertionError

    fd = get(segment.ref)
    assert os.fstat(fd).st_size == segment.size
    os.close(fd)
    forged = SegmentRef(segment.fd, segment.size * 2, segment.token)
    with pytest.raises(SharingError, match="were announced"):
        get(forged)
    other = descriptors.offer(files(1))
    with pytest.raises(SharingError, match="not the segment"):
        get(SegmentRef(segment.fd, segment.size, other))
    descriptors.withdraw(other)
    segment.close()
    source.close()
    with pytest.raises(SharingError, match="offer"):
        get(segment.ref)
    source.close()


def test_a_viewer_in_another_pid_namespace_sees_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where process ids mean something else, /proc leads nowhere: all memory comes over the socket."""
    def closed(ref: SegmentRef, pid: int) -> int:
        raise UnreachableError("no /proc here")

    monkeypatch.setattr("splatview.ipc.source.open_segment", closed)
    monkeypatch.setattr("splatview.ipc.remote.pid_namespace", lambda: 1)
    with Subscriber() as subscriber:
        for value in range(1, 4):
            splatview.publish(torch.full((64, 64), value, dtype=torch.uint8), "image")
            version, _, tensors = newest(subscriber, "image", after=value - 1)
            assert version == value and (tensors["image"] == value).all()
