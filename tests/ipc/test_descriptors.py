"""Descriptors handed from process to process over the run's socket, and what is done without /proc."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.open_files import open_files
from support.wait import PATIENCE

import splatview
from splatview.ipc import Subscriber, descriptors
from splatview.ipc.descriptors import Fetch, Server
from splatview.ipc.errors import SharingError, UnreachableError
from splatview.ipc.messages import SegmentRef
from splatview.ipc.segments import Segment
from splatview.ipc.source import RunSource
from splatview.ipc.ways.base import NotYet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.programs import Programs


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


def fetched(server: Server, fetch: Fetch, seconds: float = PATIENCE) -> list[int]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        server.serve()
        fds = fetch.poll()
        if fds is not None:
            return fds
    raise AssertionError("no answer")


@pytest.mark.parametrize("count", [1, 7, 200, 201, 450])
def test_descriptors_arrive_in_order(server: Server, tmp_path: Path, count: int) -> None:
    before = open_files()
    token = descriptors.offer(files(count))
    fds = fetched(server, Fetch(tmp_path, token))
    assert [int(os.pread(fd, 10, 0)) for fd in fds] == list(range(count))
    assert not any(os.get_inheritable(fd) for fd in fds)
    descriptors.withdraw(token)
    descriptors.withdraw(token)
    for fd in fds:
        os.close(fd)
    assert open_files() <= before


@pytest.mark.parametrize("count", [1, 200, 450])
def test_descriptors_are_made_for_who_asks(server: Server, tmp_path: Path, count: int) -> None:
    """Few at a time, and none is kept: a trainer needs its descriptors for itself."""
    there = files(count)
    before, most, calls = open_files(), 0, []

    def make(start: int, stop: int) -> list[int]:
        nonlocal most
        calls.append((start, stop))
        made = [os.dup(fd) for fd in there[start:stop]]
        most = max(most, len(open_files() - before))
        return made

    token = descriptors.offer_made(count, make)
    assert calls == [] and open_files() <= before
    for _ in range(2):
        fds = fetched(server, Fetch(tmp_path, token))
        assert [int(os.pread(fd, 10, 0)) for fd in fds] == list(range(count))
        for fd in fds:
            os.close(fd)
    assert len(calls) == 2 * -(-count // 200)
    assert most <= 200 + 8 + (count if count > 200 else 0), "in parts (what the viewer got counts in here)"
    assert open_files() <= before
    descriptors.withdraw(token)
    with pytest.raises(SharingError, match="offer"):
        fetched(server, Fetch(tmp_path, token))
    for fd in there:
        os.close(fd)


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
    for fd in there:
        os.close(fd)


def test_what_is_not_offered_is_not_had(server: Server, tmp_path: Path) -> None:
    token = descriptors.offer(files(1))
    descriptors.withdraw(token)
    for wrong in (token, "fds-0", "", "x" * 500, "../../etc/passwd"):
        with pytest.raises(SharingError, match="offer"):
            fetched(server, Fetch(tmp_path, wrong))


def test_a_viewer_that_asks_in_vain_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SharingError, match="cannot ask"):
        Fetch(tmp_path, "fds-1")
    silent = Server(tmp_path)  # a trainer that is stopped
    monkeypatch.setattr("splatview.ipc.descriptors._TIMEOUT", PATIENCE)
    begin = time.monotonic()
    fetch = Fetch(tmp_path, "fds-1")
    assert fetch.poll() is None
    assert time.monotonic() - begin < PATIENCE / 2
    fetch._end = time.monotonic()
    with pytest.raises(SharingError, match="stopped"):
        fetch.poll()
    silent.close()


def test_connections_are_bounded_and_dropped_in_time(
        server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatview.ipc.descriptors._TIMEOUT", PATIENCE)
    idle = []
    for _ in range(40):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.connect(str(tmp_path / descriptors.SOCKET_NAME))
        idle.append(s)
        server.serve()
    assert len(server.fds()) <= 17
    assert server.due() is not None
    server._connections.update({fd: (connection, 0.0) for fd, (connection, _) in server._connections.items()})
    server.serve()
    assert len(server.fds()) == 1
    assert server.due() is None
    token = descriptors.offer(files(1))
    (fd,) = fetched(server, Fetch(tmp_path, token))
    os.close(fd)
    descriptors.withdraw(token)
    for s in idle:
        s.close()


def test_a_long_folder_name_works(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30) / ("path" * 20)
    folder.mkdir(parents=True)
    server = Server(folder)
    token = descriptors.offer(files(1))
    (fd,) = fetched(server, Fetch(folder, token))
    os.close(fd)
    descriptors.withdraw(token)
    server.close()


def test_a_segment_that_proc_does_not_show_is_handed_over(server: Server, tmp_path: Path) -> None:
    segment = Segment(1000, "test")
    source = RunSource(2**22 + 1, tmp_path, lambda: False)  # no such process

    def get(ref: SegmentRef) -> int:
        while True:
            try:
                return source.segment(ref)
            except NotYet:
                server.serve()

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


def test_a_viewer_in_another_pid_namespace_sees_everything(
        programs: Programs, wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where process ids mean something else, /proc leads nowhere: all memory comes over the socket."""
    trainer = programs.code("""
import time, torch, splatview
i = 0
while True:
    splatview.publish(torch.full((64, 64), i % 250, dtype=torch.uint8), "image")
    if i == 0: print("ready", flush=True)
    i += 1
    time.sleep(0.005)
""")
    assert trainer.stdout is not None
    assert trainer.stdout.readline() == "ready\n"

    def closed(ref: SegmentRef, pid: int) -> int:
        raise UnreachableError("no /proc here")

    monkeypatch.setattr("splatview.ipc.source.open_segment", closed)
    monkeypatch.setattr("splatview.ipc.remote.pid_namespace", lambda: 1)
    with Subscriber() as subscriber:
        seen: set[int] = set()

        def read() -> bool:
            subscriber.poll()
            for s in subscriber.streams:
                s.open()
                frame = s.read(max(seen, default=0))
                if frame is not None:
                    with frame:
                        pixels = frame.tensors["image"].to_float32()
                        if frame.intact():
                            assert (pixels == pixels[0, 0]).all()
                            seen.add(frame.version)
            return len(seen) > 20

        wait_until(read, what="21 frames")


def test_a_viewer_whose_process_id_means_another_process_is_not_watched(wait_until: Callable[..., Any]) -> None:
    """Its number, in the trainer's namespace, may be anybody's: the end of that process is not the viewer's."""
    from splatview import publishing

    splatview.publish(torch.zeros(4, 4))
    publisher = publishing._publisher
    assert publisher is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("splatview.ipc.remote.pid_namespace", lambda: 1)
        with Subscriber() as subscriber:
            wait_until(lambda: (subscriber.poll(), subscriber.runs and subscriber.runs[0].welcomed)[-1])
            assert [v.pidfd for v in publisher._helper._viewers.values()] == [-1]
    wait_until(lambda: not publisher._helper._viewers, what="its goodbye")


def test_an_answer_that_was_taken_is_forgotten(server: Server, tmp_path: Path) -> None:
    """A training that densifies often must not fill its viewer's table of descriptors."""
    source = RunSource(2**22 + 1, tmp_path, lambda: False)
    before = open_files()
    for _ in range(20):
        token = descriptors.offer(files(3))
        taken: list[int] = []
        while not taken:
            try:
                taken = source.descriptors(token, 3)
            except NotYet:
                server.serve()
        source.forget(token)
        for fd in taken:
            os.close(fd)
        descriptors.withdraw(token)
    for _ in range(20):
        server.serve()
    assert len(open_files() - before) <= 2
    source.close()
