"""A trainer's announcements over ZeroMQ, and descriptors over its socket.

Nothing can connect to a trainer over ZeroMQ, nothing waits, nothing stays behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.meters import open_files
from support.programs import Programs
from support.reading import newest

from splatview_ipc.control import descriptors, messages
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.sockets import (
    DESCRIPTORS_PER_PACKET,
    Connection,
    Server,
    close_all,
    connect,
)
from splatview_ipc.subscriber.subscriber import Subscriber

_TRAINER_WITHOUT_FILES = """
import os, resource, sys, torch, splatview
splatview.publish(torch.zeros(8, 8, 3), meta={"step": 0})
print("up", flush=True)
sys.stdin.readline()
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
fds = []
try:
    while True:
        fds.append(os.dup(0))
except OSError:
    print("full", flush=True)
step = 0
for line in sys.stdin:
    if line == "close files\\n":
        for fd in fds:
            os.close(fd)
    step += 1
    splatview.publish(torch.zeros(8, 8, 3), meta={"step": step})
    print(step, flush=True)
"""
"""Opens as many files as it may; publishes once for each line, and closes them if told to."""


def test_a_trainer_without_any_open_file_left_lives_on_and_answers_when_it_has_some(
    programs: Programs,
) -> None:
    """libzmq would have ended it, had it been the one that listens."""
    trainer = programs.code(_TRAINER_WITHOUT_FILES)
    assert trainer.line() == "up"
    with Subscriber() as early:
        assert newest(early, "image")[0] == 1
        trainer.write_line()
        assert trainer.line() == "full"
        with Subscriber() as late:
            for step in range(1, 5):
                trainer.write_line("publish")
                assert trainer.line() == str(step)
                assert newest(early, "image", after=step)[0] == step + 1
                late.poll()
            assert not any(run.welcomed for run in late.runs)
            trainer.write_line("close files")
            assert trainer.line() == "5"
            assert newest(late, "image", after=5)[0] == 6
    assert trainer.poll() is None


class _Ends(NamedTuple):
    """The two ends of a connection."""

    trainer: Connection
    viewer: Connection


@pytest.fixture
def ends(runtime_dir: Path) -> Iterator[_Ends]:
    runtime_dir.mkdir()
    server = Server(runtime_dir / "socket")
    viewer = connect(runtime_dir / "socket")
    server.accept(0.0)
    (trainer,) = server.connections.values()
    yield _Ends(trainer, viewer)
    viewer.close()
    server.close()


def _make_files(start: int, stop: int) -> list[int]:
    """Return descriptors of files that contain their own number."""
    fds = []
    for i in range(start, stop):
        fd = os.memfd_create("test")
        os.write(fd, str(i).encode())
        fds.append(fd)
    return fds


@pytest.mark.parametrize("count", [1, 200, 201, 450])
def test_descriptors_arrive_in_order_and_the_trainer_keeps_none(
    ends: _Ends, count: int
) -> None:
    files_before = open_files()
    token = descriptors.offer(count, _make_files)
    descriptors.send(ends.trainer, token)
    assert open_files() <= files_before
    fds = []
    while (packet := ends.viewer.receive(DESCRIPTORS_PER_PACKET)) is not None:
        message, packet_fds = packet
        expected = messages.Descriptors(token, count)
        assert messages.decode_to_viewer(message) == expected
        fds += packet_fds
    assert [int(os.pread(fd, 10, 0)) for fd in fds] == list(range(count))
    assert not any(os.get_inheritable(fd) for fd in fds)
    close_all(fds)
    descriptors.withdraw(token)
    descriptors.withdraw(token)
    assert open_files() <= files_before


def _fail_to_make(start: int, stop: int) -> list[int]:
    raise SharingError("the GPU refuses")


@pytest.mark.parametrize("token", ["never-offered", "withdrawn", "broken"])
def test_token_without_descriptors_is_answered_at_once(ends: _Ends, token: str) -> None:
    descriptors.offer(1, _fail_to_make, token)
    if token != "broken":
        descriptors.withdraw(token)
    descriptors.send(ends.trainer, token)
    packet = ends.viewer.receive(DESCRIPTORS_PER_PACKET)
    assert packet == (messages.encode(messages.Descriptors(token, 0)), [])
    descriptors.withdraw(token)


def test_descriptors_that_a_viewer_sends_are_closed(ends: _Ends) -> None:
    files_before = open_files()
    null = os.open("/dev/null", os.O_RDONLY)
    assert ends.viewer.send(b"x", [null] * 100)
    os.close(null)
    assert ends.trainer.receive() == (b"x", [])
    assert open_files() <= files_before
