"""Whatever comes over a run's socket is refused before anything is opened or allocated, and counted; publishing, honest
viewers and the trainer's memory, descriptors and threads do not notice; nothing is ever executed."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from fuzz.messages import to_trainer
from support.impostor import Liar, pickles
from support.meters import Footprint, footprint, settled
from support.repetitions import exhaustive

from splatview.ipc import Subscriber, limits, messages
from splatview.ipc.runs import list_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.programs import Program, Programs

    from splatview.ipc.runs import RunFolder

TRAINER = """
import json, os, signal, time, torch, splatview
from splatview import publishing
frame = torch.zeros(40, 60, 3, dtype=torch.uint8)
splatview.publish(frame, "frame")
run = publishing.begun()
calls = 0

def tell(*_):
    stood = {"calls": calls, "viewers": len(run._helper._viewers), "helper": run._helper._thread.native_id,
             "readers": sum(s.readers for s in run.streams.values()), **run.board.counters()}
    os.write(1, json.dumps(stood).encode() + b"\\n")  # `print` in a signal handler may interrupt another one

signal.signal(signal.SIGUSR1, tell)
print("ready", flush=True)
while True:
    for step in range(100):
        splatview.publish(frame.fill_(step), "frame", step=step)
        calls += 1
        time.sleep(0.0005)
"""
"""Tells how it stands at SIGUSR1."""
ODD: list[Any] = [2**63, 2**64 - 1, -(2**63), -1, 2**31, 1.5, float("nan"), float("inf"), None, True, "",
                  "x" * 100_000, "\x00\x1b[2J", b"\x80\x04", [], [[[[]]]], {}, {"a": {"b": {}}}, "ring", "Hello"]
GARBAGE = [b"\x00" * 100, b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\x91" * 5000, b"\x81\xa1a" * 5000,
           b"\xc1", b"\xff" * limits.MAX_MESSAGE, b"\xc6\x00\x03\xff\xf0" + b"x" * 262_000]


class Trainer:
    def __init__(self, child: Program, folder: RunFolder):
        self.child = child
        self.folder = folder

    def tell(self) -> dict[str, Any]:
        self.child.signal(signal.SIGUSR1)
        return msgspec.json.decode(self.child.line())

    def liar(self) -> Liar:
        """Somebody who has said hello."""
        liar = Liar(self.folder.path)
        liar.hello()
        return liar

    def footprint(self) -> Footprint:
        return footprint(self.child.pid)


@pytest.fixture
def trainer(programs: Programs, runtime_dir: Path) -> Iterator[Trainer]:
    child = programs.start(TRAINER)
    assert child.line() == "ready"
    (folder,) = list_runs(runtime_dir)
    yield Trainer(child, folder)
    child.kill()


class Honest:
    """A viewer that looks at every picture."""

    def __init__(self) -> None:
        self.subscriber = Subscriber(client="honest")
        self.version = 0
        self.pictures = 0

    def look(self) -> None:
        self.subscriber.poll()
        for stream in self.subscriber.streams:
            stream.open()
            if (frame := stream.read(self.version)) is not None:
                with frame:
                    pixels = frame.tensors["image"].array.copy()  # type: ignore[union-attr]
                    if frame.intact():
                        assert (pixels == frame.meta["step"]).all()
                        self.version, self.pictures = frame.version, self.pictures + 1

    def sees(self, wait_until: Callable[..., Any], more: int = 5) -> None:
        """So many new pictures come."""
        wanted = self.pictures + more
        wait_until(lambda: (self.look(), self.pictures >= wanted)[-1], what=f"{more} more pictures")


@pytest.fixture
def honest(trainer: Trainer, wait_until: Callable[..., Any]) -> Iterator[Honest]:
    honest = Honest()
    honest.sees(wait_until, 1)
    yield honest
    honest.subscriber.close()


def push(link: Liar, packet: bytes, honest: Honest) -> None:
    """Send, with patience: what the trainer has not read yet is bounded."""
    while not link.send(packet):
        assert link.up
        honest.look()
        time.sleep(0.001)


def test_cut_short_at_every_byte(trainer: Trainer, honest: Honest, wait_until: Callable[..., Any]) -> None:
    link, sent = trainer.liar(), 0
    for message in to_trainer():
        packet = messages.encode(message)
        for end in range(1, len(packet)):
            push(link, packet[:end], honest)
            sent += 1
        push(link, packet + b"\x00", honest)
        sent += 1
    wait_until(lambda: trainer.tell()["dropped_messages"] >= sent, what="all of them counted")
    told = trainer.tell()
    assert (told["dropped_messages"], told["faults"]) == (sent, 0)
    honest.sees(wait_until)
    link.close()


def test_anything_in_any_field(trainer: Trainer, honest: Honest, wait_until: Callable[..., Any]) -> None:
    """Each field of each message holds what it may not; each message holds more, and less, than it should."""
    base = trainer.footprint()
    packets = []
    for message in to_trainer():
        said = msgspec.to_builtins(message)
        packets += [messages.encode({**said, name: odd}) for name in said for odd in ODD]
        packets += [messages.encode({**said, "more": 1})]
        packets += [messages.encode({k: v for k, v in said.items() if k != name}) for name in said]
    wrong = 0
    for packet in packets:
        try:
            messages.decode_to_trainer(packet)
        except messages.DecodeError:
            wrong += 1
    assert wrong > 0.9 * len(packets)
    before = honest.pictures
    for first in range(0, len(packets), 50):  # a Bye or a stranger's Hello ends a connection
        link = trainer.liar()
        for packet in [*packets[first : first + 50], *GARBAGE]:
            if not link.send(packet):
                break
            honest.look()
        link.close()
    wait_until(lambda: trainer.tell()["viewers"] == 1)
    told = trainer.tell()
    assert told["faults"] == 0
    assert told["dropped_messages"] > 0
    honest.sees(wait_until)
    assert honest.pictures > before
    settled(base, wait_until, trainer.child.pid)


def test_nothing_is_executed(trainer: Trainer, honest: Honest, tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    canary = tmp_path / "canary"
    forms = pickles(canary)
    wrapped = [{"type": "Hello", "protocol": limits.PROTOCOL, "pid": 1, "client": p} for p in forms]
    link = trainer.liar()
    for packet in [*forms, *map(messages.encode, wrapped),
                   *(messages.encode(msgspec.msgpack.Ext(code, p)) for p in forms for code in (-1, 1, 80))]:
        push(link, packet, honest)
    for packet in forms:
        asking = Liar(trainer.folder.path, "descriptors")
        assert asking.send(packet)
        assert wait_until(asking.receive) == b"\x00" * 4, "nothing is offered under such a token"
        asking.close()
    wait_until(lambda: trainer.tell()["dropped_messages"] == 10)
    assert not canary.exists()
    honest.sees(wait_until)
    link.close()


def helper_seconds(trainer: Trainer, tid: int) -> float:
    """What the helper thread has used of the processor."""
    fields = Path(f"/proc/{trainer.child.pid}/task/{tid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("seconds", [0.5, exhaustive(1.5)])
@pytest.mark.parametrize("what", ["garbage", exhaustive("hellos"), exhaustive("opens"), exhaustive("bytes"),
                                  "connections", exhaustive("tokens")])
def test_a_flood_takes_little_of_the_processor(
        trainer: Trainer, honest: Honest, wait_until: Callable[..., Any], what: str, seconds: float) -> None:
    """However fast it comes: the helper thread rests, and the interpreter belongs to the training. The pictures of the
    honest viewer go on."""
    base, told = trainer.footprint(), trainer.tell()
    hello = messages.encode(messages.Hello(limits.PROTOCOL, os.getpid(), "liar"))
    opens = [messages.encode(m) for m in (messages.Open(0, "ring"), messages.Release(0), messages.Open(0, "host"),
                                          messages.Pause(False), messages.Want(0), messages.Took(0, 7))]
    luck = random.Random(7)
    kinds = {"garbage": lambda: luck.choice(GARBAGE[:4]), "hellos": lambda: hello, "opens": lambda: luck.choice(opens),
             "bytes": lambda: b"\xff" * limits.MAX_MESSAGE}
    links = [trainer.liar() for _ in range(3)] if what in kinds else []
    before, begin, sent = helper_seconds(trainer, told["helper"]), time.monotonic(), 0
    top = base
    while time.monotonic() < begin + seconds:
        if links:
            for link in links:
                for _ in range(100):
                    if not link.send(kinds[what]()):
                        break
                    sent += 1
                while link.receive() is not None:
                    pass
        else:
            sent += knock(trainer.folder.path / ("socket" if what == "connections" else "descriptors"), 20)
        honest.look()
        now = trainer.footprint()
        top = now if now.descriptors > top.descriptors else top
    used, passed = helper_seconds(trainer, told["helper"]) - before, time.monotonic() - begin
    assert sent > 50, "the flood came through"
    assert used < 0.5 * passed, f"{used:.2f} s of {passed:.2f} s"
    assert top.descriptors <= base.descriptors + 60, "as many as there may be connections, and no more"
    honest.sees(wait_until)
    for link in links:
        link.close()
    wait_until(lambda: trainer.tell()["viewers"] == 1)
    assert trainer.tell()["faults"] == 0
    settled(base, wait_until, trainer.child.pid)


def knock(path: Path, times: int) -> int:
    """Connect and say something, or nothing; how often that was possible."""
    done = 0
    for number in range(times):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as s:
            try:
                s.connect(str(path))
                if number % 2:
                    s.send(b"fds-0123456789abcdef")
            except OSError:
                continue
            done += 1
    return done


def test_connections_that_stay_keep_nobody_out(
        trainer: Trainer, honest: Honest, wait_until: Callable[..., Any]) -> None:
    """Whoever does not say who it is makes room for who comes after it."""
    base = trainer.footprint()
    silent = [Liar(trainer.folder.path) for _ in range(300)]
    assert trainer.footprint().descriptors <= base.descriptors + 10
    late = Honest()
    late.sees(wait_until)
    late.subscriber.close()
    honest.sees(wait_until)
    for s in silent:
        s.close()
    settled(base, wait_until, trainer.child.pid)


def test_descriptors_that_come_along_are_not_taken(
        trainer: Trainer, honest: Honest, wait_until: Callable[..., Any]) -> None:
    base = trainer.footprint()
    for name in ("socket", "descriptors"):
        read, write = os.pipe()
        liar = Liar(trainer.folder.path, name)
        for _ in range(20):
            try:
                socket.send_fds(liar.socket, [messages.encode(messages.Want(0))], [read] * 100)
            except OSError:  # one request is answered, and the connection closed
                break
        os.close(read)
        liar.close()
        wait_until(lambda w=write: _nobody_reads(w), what="nobody holds the other end")
        os.close(write)
    honest.sees(wait_until)
    settled(base, wait_until, trainer.child.pid)


def _nobody_reads(write: int) -> bool:
    try:
        os.write(write, b"x")
    except BrokenPipeError:
        return True
    return False


def test_all_seats_taken_by_who_opens_everything_and_reads_nothing(
        trainer: Trainer, honest: Honest, wait_until: Callable[..., Any]) -> None:
    base = trainer.footprint()
    links = [trainer.liar() for _ in range(limits.MAX_VIEWERS - 1)]
    for link in links:
        for index in (0, 1, 255):
            for way in ("ring", "host", "in-place", "device-ring", "ring"):
                link.send(messages.encode(messages.Open(index, way)))  # type: ignore[arg-type]
    wait_until(lambda: trainer.tell()["viewers"] == limits.MAX_VIEWERS)
    with Subscriber() as late:
        wait_until(lambda: (late.poll(), late.runs and late.runs[0].refused)[-1])
        assert "viewers are attached" in str(late.runs[0].refused)
    honest.sees(wait_until, 50)
    told = trainer.tell()
    assert told["faults"] == 0
    assert not trainer.footprint().over(base, descriptors=100, segments=4, segment_bytes=64 << 20, rss=32 << 20)
    for link in links:
        link.close()
    wait_until(lambda: trainer.tell()["readers"] == 1)
    honest.sees(wait_until)
    settled(base, wait_until, trainer.child.pid)


def test_what_comes_before_a_hello_is_dropped(trainer: Trainer, honest: Honest, wait_until: Callable[..., Any]) -> None:
    """Also what is replayed after a goodbye, or comes in another order."""
    link = Liar(trainer.folder.path)
    for message in to_trainer()[1:]:
        assert link.send(messages.encode(message))
    wait_until(lambda: trainer.tell()["dropped_messages"] == len(to_trainer()) - 1)
    again = trainer.liar()
    replayed = [messages.Release(0), messages.Open(0, "ring"), messages.Open(0, "ring"), messages.Release(0),
                messages.Release(0), messages.Took(0, 2**63 - 1), messages.Took(0, 1), messages.Snapshot(0),
                messages.Photos(0, 9999, 4), messages.Step(), messages.Pause(True), messages.Pause(False)]
    for message in replayed * 3:
        push(again, messages.encode(message), honest)
    push(again, messages.encode(messages.Bye()), honest)
    wait_until(lambda: (again.receive(), not again.up)[-1])
    wait_until(lambda: trainer.tell()["readers"] == 1)
    assert trainer.tell()["faults"] == 0
    honest.sees(wait_until)
    link.close()
    again.close()
