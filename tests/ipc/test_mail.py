"""What a trainer tells viewers goes over ZeroMQ, to which nothing can connect in a trainer."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Any

import pytest
import torch
import zmq
from support.reading import newest, welcomed
from support.wait import wait_until

import splatview
from splatview.ipc import Subscriber, channel, limits, mail, messages
from splatview.ipc.runs import list_runs

if TYPE_CHECKING:
    from pathlib import Path

    from support.programs import Programs

FULL = """
import os, resource, sys, torch, splatview
splatview.publish(torch.zeros(8, 8, 3), step=0)
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
    splatview.publish(torch.zeros(8, 8, 3), step=step)
    print(step, flush=True)
"""


@pytest.fixture(autouse=True)
def published(runtime_dir: Path) -> None:
    splatview.publish(torch.zeros(4, 4, 3))


def test_answers_come_by_zeromq_and_the_inbox_is_shut_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    outbox = mail.Mailroom.outbox
    monkeypatch.setattr(mail.Mailroom, "outbox", lambda self, inbox: (made.append(inbox), outbox(self, inbox))[1])
    with Subscriber() as subscriber:
        run = welcomed(subscriber)
        assert [path.name.startswith("inbox-") for path in made] == [True]
        assert not [n for n in os.listdir(run.folder.path) if n.startswith("inbox-")]
        assert newest(subscriber, "image")[0] == 1


@pytest.mark.parametrize(("side", "lacks"), [("inbox", "_try_descriptors"), ("outbox", "_try_threads")])
def test_without_zeromq_the_same_goes_by_the_connection(side: str, lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise mail.SharingError("none left")

    made = getattr(mail.Mailroom, side)
    given: list[Any] = []

    def lacking(self: mail.Mailroom, path: Path) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(mail, lacks, fails)
            given.append(made(self, path))
        return given[-1]

    monkeypatch.setattr(mail.Mailroom, side, lacking)
    with Subscriber() as subscriber:
        welcomed(subscriber)
        assert given == [None]
        assert newest(subscriber, "image")[0] == 1


def test_what_makes_no_sense_in_an_inbox_is_counted(tmp_path: Path) -> None:
    context, mailroom = zmq.Context(), mail.Mailroom()
    inbox = mailroom.inbox(tmp_path)
    assert inbox is not None
    address = f"ipc://{tmp_path / inbox.name}"
    with context.socket(zmq.PUSH) as sender:
        sender.connect(address)
        sender.send_multipart([b"a", b"b"])
        sender.send(b"third")
        assert wait_until(lambda: inbox.receive() == b"")
        assert wait_until(inbox.receive) == b"third"
    assert not (tmp_path / inbox.name).exists()
    with context.socket(zmq.PUSH) as late:
        late.setsockopt(zmq.LINGER, 0)
        late.setsockopt(zmq.IMMEDIATE, 1)
        late.connect(address)
        with pytest.raises(zmq.Again):
            late.send(b"late", zmq.NOBLOCK)
    inbox.close()
    inbox.close()
    context.term()


def test_an_inbox_that_is_not_there_is_answered_by_the_connection(tmp_path: Path, runtime_dir: Path) -> None:
    """ZeroMQ would go on trying to connect, and the viewer never hear of anything."""
    assert mail.Mailroom().outbox(tmp_path / "inbox-0123456789abcdef") is None
    link = channel.Link(list_runs(runtime_dir)[0].path)
    assert link.connect()
    hello = messages.Hello(limits.PROTOCOL, os.getpid(), "test", inbox="inbox-0123456789abcdef")
    assert link.send(messages.encode(hello))
    assert isinstance(messages.decode_to_viewer(wait_until(link.receive)), messages.Welcome)
    link.close()


def test_open_files_are_counted_before_any_is_taken(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 10, hard))
        assert mail.Mailroom().inbox(tmp_path) is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_trainer_without_any_open_file_left_lives_on_and_answers_when_it_has_some(programs: Programs) -> None:
    """libzmq would have ended it, had it been the one that listens."""
    splatview.close()
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
