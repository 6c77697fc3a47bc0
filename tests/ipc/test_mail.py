"""What a trainer tells viewers goes over ZeroMQ, to which nobody can connect in a trainer."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
import zmq
from support.open_files import open_files
from support.programs import environment

import splatview
from splatview import publishing
from splatview.ipc import Subscriber, channel, limits, mail, messages
from splatview.ipc.runs import list_runs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.programs import Programs

    from splatview.ipc import RemoteRun

FULL = """
import os, resource, signal, sys, time, torch, splatview
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
signal.signal(signal.SIGUSR1, lambda *_: [os.close(held.pop()) for _ in range(50)])
while True:
    step += 1
    splatview.publish(torch.zeros(8, 8, 3), step=step)
    time.sleep(0.01)
"""


def outboxes() -> list[mail.Outbox | None]:
    """Of the connections to this process's run."""
    publisher = publishing.begun()
    return [] if publisher is None else [c.outbox for c in publisher._helper._viewers]


def first_run(subscriber: Subscriber, wait_until: Callable[..., Any]) -> RemoteRun:
    splatview.publish(torch.zeros(4, 4, 3))
    wait_until(lambda: subscriber.poll() and subscriber.runs and subscriber.runs[0].welcomed)
    return subscriber.runs[0]


def frame_of(run: RemoteRun, subscriber: Subscriber, wait_until: Callable[..., Any]) -> Any:
    stream = run.streams[0]
    stream.open()

    def read() -> Any:
        splatview.publish(torch.zeros(4, 4, 3))
        subscriber.poll()
        return stream.read()

    return wait_until(read)


def test_answers_come_by_zeromq_and_the_inbox_is_shut_after_the_first(wait_until: Callable[..., Any]) -> None:
    with Subscriber() as subscriber:
        run = first_run(subscriber, wait_until)
        assert [type(o) for o in outboxes()] == [mail.Outbox]
        assert run._link is not None and run._link.inbox.startswith("inbox-")
        assert not [n for n in os.listdir(run.folder.path) if n.startswith("inbox-")]
        assert frame_of(run, subscriber, wait_until).kind == "image"
    wait_until(lambda: not outboxes())


def test_a_long_path_of_the_folder_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                         wait_until: Callable[..., Any]) -> None:
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(tmp_path / ("a" * 60) / ("b" * 60)))
    with Subscriber() as subscriber:
        run = first_run(subscriber, wait_until)
        assert [type(o) for o in outboxes()] == [mail.Outbox]
        assert frame_of(run, subscriber, wait_until) is not None


@pytest.mark.parametrize("lacks", ["_try_descriptors", "_try_threads"])
@pytest.mark.parametrize("side", ["viewer", "trainer"])
def test_without_zeromq_the_same_goes_by_the_connection(lacks: str, side: str, monkeypatch: pytest.MonkeyPatch,
                                                        wait_until: Callable[..., Any]) -> None:
    def fails() -> None:
        raise mail.SharingError("none left")

    method = "inbox" if side == "viewer" else "outbox"
    made = getattr(mail.Mailroom, method)

    def lacking(self: mail.Mailroom, path: Path) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(mail, lacks, fails)
            return made(self, path)

    monkeypatch.setattr(mail.Mailroom, method, lacking)
    with Subscriber() as subscriber:
        run = first_run(subscriber, wait_until)
        assert outboxes() == [None]
        assert frame_of(run, subscriber, wait_until) is not None


def test_what_makes_no_sense_in_an_inbox_is_counted(wait_until: Callable[..., Any], tmp_path: Path) -> None:
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


def test_a_viewer_that_does_not_read_is_sent_so_much_and_no_more(tmp_path: Path) -> None:
    mailroom = mail.Mailroom()
    inbox = mailroom.inbox(tmp_path)
    assert inbox is not None
    outbox = mailroom.outbox(tmp_path / inbox.name)
    assert outbox is not None
    sent = 0
    while outbox.send(bytes(1000)):
        sent += 1
        assert sent <= 5000
    assert sent >= 10
    outbox.close()
    inbox.close()


def test_who_names_an_inbox_that_is_not_there_is_answered_by_the_connection(
        tmp_path: Path, runtime_dir: Path, wait_until: Callable[..., Any]) -> None:
    """ZeroMQ would go on trying to connect, and the viewer never hear of anything."""
    assert mail.Mailroom().outbox(tmp_path / "inbox-0123456789abcdef") is None
    splatview.publish(torch.zeros(4, 4, 3))
    link = channel.Link(list_runs(runtime_dir)[0].path)
    assert link.connect()
    hello = messages.Hello(limits.PROTOCOL, os.getpid(), "test", inbox="inbox-0123456789abcdef")
    assert link.send(messages.encode(hello))
    assert isinstance(messages.decode_to_viewer(wait_until(link.receive)), messages.Welcome)
    assert outboxes() == [None]
    link.close()


def test_open_files_are_counted_before_any_is_taken() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    mail._try_descriptors()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 10, hard))
        with pytest.raises(mail.SharingError, match="ulimit -n"):
            mail._try_descriptors()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_nobody_is_told_of_the_streams_twice(wait_until: Callable[..., Any]) -> None:
    with Subscriber() as subscriber:
        run = first_run(subscriber, wait_until)
        publisher = publishing.begun()
        assert publisher is not None
        told: list[Any] = []
        take = run._take
        run._take = lambda message: (told.append(message), take(message))[1]  # type: ignore[method-assign]
        for name in ("a", "b"):
            for _ in range(3):
                publisher.announce()
                wait_until(lambda: not publisher._helper._changed.is_set())
            splatview.publish(torch.zeros(4, 4, 3), name)
            wait_until(lambda n=name: subscriber.poll() and n in [s.name for s in run.streams.values()])
        manifests = [m for m in told if isinstance(m, messages.Manifest)]
        assert manifests and not [a for a, b in itertools.pairwise(manifests) if a == b]


def test_nothing_is_left_of_viewers_that_were_killed(programs: Programs, wait_until: Callable[..., Any]) -> None:
    server()  # which stays
    splatview.publish(torch.zeros(4, 4, 3))
    folder = publishing.begun().folder.path  # type: ignore[union-attr]
    before, threads = open_files(), threading.active_count()
    for _ in range(3):
        viewer = programs.code("import time\nfrom splatview.ipc import Subscriber\ns = Subscriber()\n"
                                "while True: s.poll(); time.sleep(0.001)")
        wait_until(lambda: len(outboxes()) == 1)
        viewer.send_signal(signal.SIGKILL)
        wait_until(lambda: not outboxes() and set(os.listdir(folder)) <= {"lock", "run.json", "socket", "descriptors"})
    programs.close()  # the pipes to them
    wait_until(lambda: open_files() <= before and threading.active_count() == threads)


def test_a_trainer_without_any_open_file_left_lives_on_and_answers_when_it_has_some(
        programs: Programs, wait_until: Callable[..., Any]) -> None:
    """libzmq would have ended it, had it been the one that listens."""
    trainer = programs.code(FULL)
    assert trainer.stdout is not None and trainer.stdin is not None and trainer.stdout.readline() == "up\n"
    with Subscriber() as early:
        wait_until(lambda: early.poll() and early.runs and early.runs[0].welcomed)
        stream = early.runs[0].streams[0]
        trainer.stdin.write("\n")
        trainer.stdin.flush()
        assert trainer.stdout.readline() == "full\n"
        seen = stream.version
        wait_until(lambda: early.poll() and stream.version > seen + 20)
        with Subscriber() as late:
            wait_until(lambda: (late.poll(), early.poll()) and stream.version > seen + 100)
            assert trainer.poll() is None
            trainer.send_signal(signal.SIGUSR1)
            wait_until(lambda: late.poll() and late.runs[0].welcomed)
            late.runs[0].streams[0].open()
            wait_until(lambda: (late.poll(), late.runs[0].streams[0].read())[1])
    assert trainer.poll() is None


def test_names_of_inboxes_lead_nowhere_else(tmp_path: Path) -> None:
    for name in ("../x", "inbox-0123456789abcdeg", "inbox-0123456789abcdef/..", "inbox-0123456789ABCDEF", "socket"):
        raw = messages.encode(messages.Hello(limits.PROTOCOL, 1, "", 0, "", name))
        with pytest.raises(messages.DecodeError):
            messages.decode_to_trainer(raw)
    assert channel.Link(tmp_path).inbox == ""
