"""What comes over a run's socket is refused and counted; publishing and honest viewers do not notice."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from fuzz.messages import to_trainer
from support.impostor import Liar, spoiled
from support.meters import footprint, settled
from support.pair import Pair

from splatview_ipc.control import limits, messages
from splatview_ipc.control.sockets import MAX_CONNECTIONS

GARBAGE = [
    b"\x00" * 100,
    b"\xdf\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\x91" * 5000,
    b"\x81\xa1a" * 5000,
    b"\xc1",
    b"\xff" * limits.MAX_MESSAGE,
    b"\xc6\x00\x03\xff\xf0" + b"x" * 262_000,
]


class Run:
    """A run with an honest viewer, which looks at every picture."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.image = torch.zeros(40, 60, 3, dtype=torch.uint8)
        self.step = 0
        pair.publish(self.image, "frame", step=0)
        self.goes_on()

    def goes_on(self) -> None:
        """Publish; the honest viewer sees it."""
        self.step += 1
        self.pair.publish(self.image.fill_(self.step % 256), "frame", step=self.step)
        assert (
            self.pair.newest("frame", after=self.step)[2]["image"] == self.step % 256
        ).all()

    def alone(self) -> bool:
        """Return whether the honest viewer is the only one."""
        return len(self.pair.run.viewers) == 1

    def liar(self) -> Liar:
        """One that has sent a Hello."""
        liar = Liar(self.pair.publisher.folder.path)
        liar.hello()
        self.pair.pump()
        return liar


@pytest.fixture
def run(pair: Pair) -> Iterator[Run]:
    yield Run(pair)
    assert not pair.faults


def test_anything_in_any_field(run: Run) -> None:
    """Each field of each message holds what it may not; each message holds more, and less, than it should."""
    base = footprint()
    wrong, right = spoiled(to_trainer(), messages.decode_to_trainer)
    link = run.liar()
    for packet in (*wrong, *GARBAGE):  # the trainer reads meanwhile
        run.pair.until(lambda p=packet: link.send(p) or not link.up)
        assert link.up
    count = len(wrong) + len(GARBAGE)
    run.pair.until(lambda: run.pair.counted("dropped_messages") >= count)
    assert (run.pair.counted("dropped_messages"), run.pair.counted("faults")) == (
        count,
        0,
    )
    link.close()
    for packet in right:  # a Bye ends a connection
        link = run.liar()
        link.send(packet)
        run.pair.pump()
        link.close()
    run.goes_on()
    run.pair.until(run.alone)
    settled(base)


@pytest.mark.parametrize("what", ["garbage", "hellos", "opens", "fetches"])
def test_flood_is_dropped_and_pictures_go_on(run: Run, what: str) -> None:
    base = footprint()
    luck = random.Random(7)
    hello = messages.encode(
        messages.Hello(limits.PROTOCOL, os.getpid(), "liar", inbox="in-0123abcd")
    )
    opens = [
        messages.encode(m)
        for m in (
            messages.Open(0, "ring"),
            messages.Release(0),
            messages.Open(0, "host"),
            messages.Pause(False),
            messages.Snapshot(0),
        )
    ]
    fetch = messages.encode(
        messages.Fetch(run.pair.publisher.control.segment.ref.token)
    )
    kinds: dict[str, Callable[[], bytes]] = {
        "garbage": lambda: luck.choice(GARBAGE),
        "hellos": lambda: hello,
        "opens": lambda: luck.choice(opens),
        "fetches": lambda: fetch,
    }
    links = [run.liar() for _ in range(3)]
    for _ in range(10):
        for link in links:
            for _ in range(500):
                if not link.send(kinds[what]()):
                    break
        before = run.pair.publisher.control.counters()["dropped_messages"]
        run.pair.turn_helper()
        assert (
            run.pair.publisher.control.counters()["dropped_messages"] <= before + 64
        ), "in one turn"
        run.goes_on()
        assert footprint().descriptors <= base.descriptors + 24
        if (
            what != "fetches"
        ):  # those who fetch do not read: what is queued for them is bounded
            for link in links:
                while link.receive() is not None:
                    pass
    for link in links:
        link.close()
    run.pair.until(run.alone)
    settled(base)


def test_connections_that_say_nothing_are_bounded_and_closed(run: Run) -> None:
    base = footprint()
    links = []
    for _ in range(2 * MAX_CONNECTIONS):
        try:
            links.append(Liar(run.pair.publisher.folder.path))
        except BlockingIOError:  # as many wait as may
            run.pair.turn_helper()
    run.goes_on()
    assert len(run.pair.publisher.helper.fds()) <= MAX_CONNECTIONS + 4
    late = run.pair.attach(client="late")
    assert run.pair.newest("frame", viewer=late)[0], "it waits until they are closed"
    run.pair.until(lambda: len(run.pair.publisher.helper.fds()) == 6)
    for link in links:
        link.close()
    run.pair.viewers.remove(late)
    late.close()
    run.pair.pump(2)
    settled(base)


def test_full_table_of_open_files_is_named_once_and_neither_ends_nor_spins(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise OSError(24, "Too many open files")

    link = Liar(run.pair.publisher.folder.path)
    with monkeypatch.context() as broken:
        broken.setattr("socket.socket.accept", full)
        run.pair.turn_helper()
        listening = len(run.pair.publisher.helper.fds())
        run.pair.pump(50)
        assert len(run.pair.publisher.helper.fds()) == listening, (
            "what waits does not wake it"
        )
    assert len(run.pair.faults) == 1
    assert "ulimit -n" in str(run.pair.faults.pop())
    link.hello()
    run.pair.until(lambda: len(run.pair.run.viewers) == 2)
    link.close()
