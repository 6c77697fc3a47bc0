"""A trainer's announcements over ZeroMQ: nothing can connect to a trainer, nothing waits, nothing stays behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

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

FULL = """
import os, resource, sys, torch, splatview
splatview.publish(torch.zeros(8, 8, 3), meta={"step": 0})
print("up", flush=True)
sys.stdin.readline()
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError:
    print("full", flush=True)
step = 0
for line in sys.stdin:
    if line == "room\\n":
        for fd in held:
            os.close(fd)
    step += 1
    splatview.publish(torch.zeros(8, 8, 3), meta={"step": step})
    print(step, flush=True)
"""


def test_a_trainer_without_any_open_file_left_lives_on_and_answers_when_it_has_some(
    programs: Programs,
) -> None:
    """libzmq would have ended it, had it been the one that listens."""
    trainer = programs.code(FULL)
    assert trainer.line() == "up"
    with Subscriber() as early:
        assert newest(early, "image")[0] == 1
        trainer.say()
        assert trainer.line() == "full"
        with Subscriber() as late:
            for step in range(1, 5):
                trainer.say("on")
                assert trainer.line() == str(step)
                assert newest(early, "image", after=step)[0] == step + 1
                late.poll()
            assert not any(run.welcomed for run in late.runs)
            trainer.say("room")
            assert trainer.line() == "5"
            assert newest(late, "image", after=5)[0] == 6
    assert trainer.poll() is None


@pytest.fixture
def ends(runtime_dir: Path) -> Iterator[tuple[Connection, Connection]]:
    """The trainer's end of a connection, and the viewer's."""
    runtime_dir.mkdir()
    server = Server(runtime_dir / "socket")
    viewer = connect(runtime_dir / "socket")
    server.accept(0.0)
    (trainer,) = server.connections.values()
    yield trainer, viewer
    viewer.close()
    server.close()


def files(start: int, stop: int) -> list[int]:
    """Descriptors of files that hold their own number."""
    made = []
    for i in range(start, stop):
        fd = os.memfd_create("test")
        os.write(fd, str(i).encode())
        made.append(fd)
    return made


@pytest.mark.parametrize("count", [1, 200, 201, 450])
def test_descriptors_arrive_in_order(
    ends: tuple[Connection, Connection], count: int
) -> None:
    trainer, viewer = ends
    before = open_files()
    token = descriptors.offer(count, files)
    descriptors.send(trainer, token)
    assert open_files() <= before, "the trainer keeps none"
    fds = []
    while (packet := viewer.receive(DESCRIPTORS_PER_PACKET)) is not None:
        assert messages.decode_to_viewer(packet[0]) == messages.Descriptors(
            token, count
        )
        fds += packet[1]
    assert [int(os.pread(fd, 10, 0)) for fd in fds] == list(range(count))
    assert not any(os.get_inheritable(fd) for fd in fds)
    close_all(fds)
    descriptors.withdraw(token)
    descriptors.withdraw(token)
    assert open_files() <= before


def broken(start: int, stop: int) -> list[int]:
    raise SharingError("the GPU refuses")


@pytest.mark.parametrize("token", ["never-offered", "withdrawn", "broken"])
def test_token_without_descriptors_is_answered_at_once(
    ends: tuple[Connection, Connection], token: str
) -> None:
    trainer, viewer = ends
    descriptors.offer(1, broken, token)
    if token != "broken":
        descriptors.withdraw(token)
    descriptors.send(trainer, token)
    packet = viewer.receive(DESCRIPTORS_PER_PACKET)
    assert packet == (messages.encode(messages.Descriptors(token, 0)), [])
    descriptors.withdraw(token)


def test_descriptors_that_a_viewer_sends_are_closed(
    ends: tuple[Connection, Connection],
) -> None:
    trainer, viewer = ends
    before = open_files()
    null = os.open("/dev/null", os.O_RDONLY)
    assert viewer.send(b"x", [null] * 100)
    os.close(null)
    assert trainer.receive() == (b"x", [])
    assert open_files() <= before
