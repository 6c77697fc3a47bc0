"""Whatever comes over a run's socket is refused before anything is opened or allocated, and counted; publishing, honest
viewers and the trainer's memory, descriptors and threads do not notice; nothing is ever executed."""

from __future__ import annotations

import os
import random
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from fuzz.messages import to_trainer
from support.impostor import Liar, pickles
from support.meters import footprint, settled
from support.reading import copied, stream, welcomed
from support.wait import turns, wait_until

import splatview
from splatview_ipc import Subscriber
from splatview_ipc.control import channel, limits, messages
from splatview_ipc.control.run_folder import list_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ODD: list[Any] = [2**63, 2**64 - 1, -(2**63), -1, 2**31, 1.5, float("nan"), float("inf"), None, True, "",
                  "x" * 100_000, "\x00\x1b[2J", b"\x80\x04", [], [[[[]]]], {}, {"a": {"b": {}}}, "ring", "Hello"]
GARBAGE = [b"\x00" * 100, b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\x91" * 5000, b"\x81\xa1a" * 5000,
           b"\xc1", b"\xff" * limits.MAX_MESSAGE, b"\xc6\x00\x03\xff\xf0" + b"x" * 262_000]


class Run:
    """A run of this process with an honest viewer, which looks at every picture."""

    def __init__(self, folder: Path) -> None:
        self.image = torch.zeros(40, 60, 3, dtype=torch.uint8)
        self.step = 0
        self.publish()
        self.folder = list_runs(folder)[0].path
        self.honest = Subscriber(client="honest")
        self.run = welcomed(self.honest)
        self.stream = stream(self.honest, "frame")
        self.goes_on()

    def publish(self) -> None:
        self.step += 1
        splatview.publish(self.image.fill_(self.step % 256), "frame", step=self.step)

    def goes_on(self) -> None:
        """Publish, and wait until the honest viewer sees it."""
        self.publish()

        def seen() -> bool:
            self.honest.poll()
            found = copied(self.stream)
            return found is not None and (found[2]["image"] == self.step % 256).all() and found[1]["step"] == self.step

        wait_until(seen, "the honest viewer's picture")

    def count(self, name: str) -> int:
        self.honest.poll()
        return self.run.counters[name]

    def alone(self) -> bool:
        """Whether the honest viewer is the only one."""
        self.honest.poll()
        return len(self.run.viewers) == 1

    def liar(self) -> Liar:
        """One that has said hello."""
        liar = Liar(self.folder)
        liar.hello()
        return liar


@pytest.fixture
def run(runtime_dir: Path) -> Iterator[Run]:
    made = Run(runtime_dir)
    yield made
    made.honest.close()


def push(link: Liar, packet: bytes) -> None:
    """Send, with patience: what the trainer has not read yet is bounded."""
    for _ in turns("the trainer reads"):
        if link.send(packet):
            return
        assert link.up


def test_cut_short_at_every_byte(run: Run) -> None:
    link, sent = run.liar(), 0
    for message in to_trainer():
        packet = messages.encode(message)
        for part in (*(packet[:end] for end in range(1, len(packet))), packet + b"\x00"):
            push(link, part)
            sent += 1
    wait_until(lambda: run.count("dropped_messages") >= sent, what="all of them counted")
    assert (run.count("dropped_messages"), run.count("faults")) == (sent, 0)
    run.goes_on()
    link.close()


def test_anything_in_any_field(run: Run) -> None:
    """Each field of each message holds what it may not; each message holds more, and less, than it should."""
    base = footprint()
    packets = []
    for message in to_trainer():
        said = msgspec.to_builtins(message)
        packets += [messages.encode({**said, name: odd}) for name in said for odd in ODD]
        packets += [messages.encode({**said, "more": 1})]
        packets += [messages.encode({k: v for k, v in said.items() if k != name}) for name in said]
    wrong, right = [], []
    for packet in packets:
        try:
            messages.decode_to_trainer(packet)
        except messages.DecodeError:
            wrong.append(packet)
        else:
            right.append(packet)
    assert len(wrong) > 0.9 * len(packets)
    link = run.liar()
    for packet in [*wrong, *GARBAGE]:
        push(link, packet)
    wait_until(lambda: run.count("dropped_messages") == len(wrong) + len(GARBAGE))
    link.close()
    for packet in right:  # a Bye, or another Hello, ends a connection
        link = run.liar()
        link.send(packet)
        link.close()
    run.goes_on()
    wait_until(run.alone)
    assert run.count("faults") == 0
    settled(base, wait_until)


def test_nothing_is_executed(run: Run, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    forms = pickles(canary)
    wrapped = [{"type": "Hello", "protocol": limits.PROTOCOL, "pid": 1, "client": p} for p in forms]
    packets = [*forms, *map(messages.encode, wrapped),
               *(messages.encode(msgspec.msgpack.Ext(code, p)) for p in forms for code in (-1, 1, 80))]
    link = run.liar()
    for packet in packets:
        push(link, packet)
    for packet in forms:
        asking = Liar(run.folder, "descriptors")
        assert asking.send(packet)
        assert wait_until(asking.receive) == b"\x00" * 4, "nothing is offered under such a token"
        asking.close()
    wait_until(lambda: run.count("dropped_messages") == len(packets))
    assert not canary.exists()
    run.goes_on()
    link.close()


def knock(path: Path, said: bytes) -> None:
    """Connect, say something if there is room, and leave."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as s:
        if s.connect_ex(str(path)) == 0 and said:
            s.send(said)


@pytest.mark.parametrize("what", ["garbage", "hellos", "opens", "connections", "tokens"])
def test_a_flood_is_dropped_and_pictures_go_on(run: Run, what: str) -> None:
    base = footprint()
    luck = random.Random(7)
    hello = messages.encode(messages.Hello(limits.PROTOCOL, os.getpid(), "liar"))
    opens = [messages.encode(m) for m in (messages.Open(0, "ring"), messages.Release(0), messages.Open(0, "host"),
                                          messages.Pause(False), messages.Want(0), messages.Took(0, 7))]
    kinds: dict[str, Callable[[], bytes]] = {
        "garbage": lambda: luck.choice(GARBAGE), "hellos": lambda: hello, "opens": lambda: luck.choice(opens)}
    links = [run.liar() for _ in range(3)] if what in kinds else []
    for _ in range(10):
        for link in links:
            for _ in range(50):
                if not link.send(kinds[what]()):
                    break
            while link.receive() is not None:
                pass
        for number in range(0 if links else 20):
            knock(run.folder / ("socket" if what == "connections" else "descriptors"),
                  b"fds-0123456789abcdef" if number % 2 else b"")
        assert footprint().descriptors <= base.descriptors + 60, "as many as there may be connections, and no more"
        run.goes_on()
    for link in links:
        link.close()
    wait_until(run.alone)
    assert run.count("faults") == 0
    settled(base, wait_until)


def test_who_wakes_the_helper_thread_all_the_time_makes_it_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast messages come, the interpreter belongs to the training."""
    rests: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: 100.0, sleep=rests.append)
    monkeypatch.setattr(channel, "time", clock)
    calm = channel.Calm()
    for _ in range(1000):
        calm.turn()
    assert len(rests) > 900 and min(rests) >= 0.01
    clock.monotonic = lambda: 200.0
    rests.clear()
    calm.turn()
    assert rests == []


def test_what_comes_before_a_hello_or_again_is_dropped(run: Run) -> None:
    link = Liar(run.folder)
    for message in to_trainer()[1:]:
        assert link.send(messages.encode(message))
    wait_until(lambda: run.count("dropped_messages") == len(to_trainer()) - 1)
    again = run.liar()
    replayed = [messages.Release(0), messages.Open(0, "ring"), messages.Open(0, "ring"), messages.Release(0),
                messages.Release(0), messages.Took(0, 2**63 - 1), messages.Took(0, 1), messages.Snapshot(0),
                messages.Photos(0, 9999, 4), messages.Step(), messages.Pause(True), messages.Pause(False)]
    for message in replayed * 3:
        push(again, messages.encode(message))
    push(again, messages.encode(messages.Bye()))
    wait_until(lambda: (again.receive(), not again.up)[-1])
    wait_until(run.alone)
    assert run.count("faults") == 0
    run.goes_on()
    link.close()
    again.close()
