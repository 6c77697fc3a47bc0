"""Hostile messages over a run's socket are refused and counted.

Publishing and honest viewers do not notice.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from fuzz.messages import to_trainer
from support.impostor import Liar, spoiled
from support.meters import footprint, settled
from support.pair import Pair

from splatview_ipc.control import limits, messages
from splatview_ipc.control.sockets import MAX_CONNECTIONS

_GARBAGE = [
    b"\x00" * 100,
    b"\xdf\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\x91" * 5000,
    b"\x81\xa1a" * 5000,
    b"\xc1",
    b"\xff" * limits.MAX_MESSAGE,
    b"\xc6\x00\x03\xff\xf0" + b"x" * 262_000,
]


class _Run:
    """A run with an honest viewer, which reads every picture."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.image = torch.zeros(40, 60, 3, dtype=torch.uint8)
        self.step = 0
        pair.publish(self.image, "frame", step=0)
        self.check_publishing()

    def check_publishing(self) -> None:
        """Publish, and check that the honest viewer gets it."""
        self.step += 1
        value = self.step % 256
        self.pair.publish(self.image.fill_(value), "frame", step=self.step)
        _, _, arrays = self.pair.newest("frame", after=self.step)
        assert (arrays["image"] == value).all()

    def has_one_viewer(self) -> bool:
        return len(self.pair.run.viewers) == 1

    def connect_liar(self) -> Liar:
        """Return a hostile viewer that has sent a Hello."""
        liar = Liar(self.pair.publisher.folder.path)
        liar.hello()
        self.pair.pump()
        return liar

    def waited_fds(self) -> int:
        """Return the number of descriptors that the helper waits for."""
        return len(self.pair.publisher.helper.fds())

    def dropped_messages(self) -> int:
        return self.pair.publisher.control.counters()["dropped_messages"]


@pytest.fixture
def run(pair: Pair) -> Iterator[_Run]:
    yield _Run(pair)
    assert not pair.faults


def test_anything_in_any_field(run: _Run) -> None:
    """Each message also comes with one field more, and with one less."""
    base = footprint()
    invalid, valid = spoiled(to_trainer(), messages.decode_to_trainer)
    link = run.connect_liar()
    for packet in (*invalid, *_GARBAGE):
        # The trainer reads meanwhile.
        run.pair.until(partial(_is_sent_or_refused, link, packet))
        assert link.up
    count = len(invalid) + len(_GARBAGE)
    run.pair.until(lambda: run.pair.counted("dropped_messages") >= count)
    assert run.pair.counted("dropped_messages") == count
    assert run.pair.counted("faults") == 0
    link.close()
    for packet in valid:
        # Each has a connection of its own, since a Bye ends it.
        link = run.connect_liar()
        link.send(packet)
        run.pair.pump()
        link.close()
    run.check_publishing()
    run.pair.until(run.has_one_viewer)
    settled(base)


def _packets_of_flood(run: _Run, name: str) -> list[bytes]:
    """Return the packets of which a flood consists."""
    if name == "garbage":
        return _GARBAGE
    if name == "hellos":
        hello = messages.Hello(
            limits.PROTOCOL, os.getpid(), "liar", inbox="in-0123abcd"
        )
        return [messages.encode(hello)]
    if name == "opens":
        flood = (
            messages.Open(0, "ring"),
            messages.VersionPace(0, 10.0),
            messages.Release(0),
            messages.Open(0, "host"),
            messages.Pause(False),
            messages.Snapshot(0),
        )
        return [messages.encode(message) for message in flood]
    token = run.pair.publisher.control.segment.ref.token
    return [messages.encode(messages.Fetch(token))]


def _is_sent_or_refused(link: Liar, packet: bytes) -> bool:
    return link.send(packet) or not link.up


def _send_until_full(link: Liar, packets: list[bytes], luck: random.Random) -> None:
    """Send 500 packets by chance, or as many as the queue takes."""
    for _ in range(500):
        if not link.send(luck.choice(packets)):
            return


@pytest.mark.parametrize("name", ["garbage", "hellos", "opens", "fetches"])
def test_flood_is_dropped_and_pictures_go_on(run: _Run, name: str) -> None:
    base = footprint()
    luck = random.Random(7)
    packets = _packets_of_flood(run, name)
    links = [run.connect_liar() for _ in range(3)]
    for _ in range(10):
        for link in links:
            _send_until_full(link, packets, luck)
        dropped_before = run.dropped_messages()
        run.pair.turn_helper()
        # One turn of the helper is bounded.
        assert run.dropped_messages() <= dropped_before + 64
        run.check_publishing()
        assert footprint().descriptors <= base.descriptors + 24
        # Those that fetch do not read: the queue of what is sent to them is bounded.
        if name == "fetches":
            continue
        for link in links:
            while link.receive() is not None:
                pass
    for link in links:
        link.close()
    run.pair.until(run.has_one_viewer)
    settled(base)


def test_connections_that_say_nothing_are_bounded_and_closed(run: _Run) -> None:
    base = footprint()
    links = []
    for _ in range(2 * MAX_CONNECTIONS):
        try:
            links.append(Liar(run.pair.publisher.folder.path))
        except BlockingIOError:
            # As many wait as may.
            run.pair.turn_helper()
    run.check_publishing()
    assert run.waited_fds() <= MAX_CONNECTIONS + 4
    # An honest viewer that comes late waits until they are closed.
    late_viewer = run.pair.attach(client="late")
    assert run.pair.newest("frame", viewer=late_viewer)[0]
    run.pair.until(lambda: run.waited_fds() == 6)
    for link in links:
        link.close()
    run.pair.viewers.remove(late_viewer)
    late_viewer.close()
    run.pair.pump(2)
    settled(base)


def test_full_table_of_open_files_is_named_once_and_neither_ends_nor_spins(
    run: _Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_to_accept(*_: Any) -> Any:
        raise OSError(24, "Too many open files")

    link = Liar(run.pair.publisher.folder.path)
    with monkeypatch.context() as patch:
        patch.setattr("socket.socket.accept", fail_to_accept)
        run.pair.turn_helper()
        fds_while_full = run.waited_fds()
        run.pair.pump(50)
        assert run.waited_fds() == fds_while_full
    assert len(run.pair.faults) == 1
    assert "ulimit -n" in str(run.pair.faults.pop())
    link.hello()
    run.pair.until_viewers(2)
    link.close()


def test_hostile_masks_are_bounded_and_never_mixed(run: _Run) -> None:
    """Pieces that are missing, repeated, of another mask or size make no mask."""
    pair = run.pair
    piece_size = limits.MAX_SELECTION_PIECE
    count = 8 * piece_size * 2
    shape = torch.zeros(1, 1, 3, dtype=torch.uint8).expand(count, 1, 3)
    pair.publish(shape, "wide")
    masks: list[Any] = []
    pair.publisher.on_request["SelectionMask", "wide"] = masks.append
    stream = pair.publisher.streams["wide"]
    link = run.connect_liar()
    index = stream.index

    def send(number: int, offset: int, count: int = count, value: int = 255) -> None:
        bits = bytes([value]) * min(piece_size, (count + 7) // 8 - offset)
        selection_bits = messages.SelectionBits(index, number, count, offset, bits)
        assert link.send(messages.encode(selection_bits))
        pair.pump()

    refused = run.dropped_messages()
    link.send(messages.encode(messages.Open(index, "ring")))
    send(1, 0)
    assert run.dropped_messages() == refused + 1  # it was not asked for
    stream.wants_selection = True
    send(2, piece_size)
    send(2, 0)
    send(3, piece_size)
    send(3, piece_size)
    send(4, 0, count=2**40)
    send(4, piece_size, count=2**40)
    for number in range(5, 40):
        send(number, 0)
    assert not masks
    send(50, 0, value=0)
    send(50, piece_size)
    (mask,) = masks
    assert bytes(mask.bits) == bytes(piece_size) + b"\xff" * piece_size
    send(51, 0)
    link.close()
    assert run.dropped_messages() == refused + 1
    run.check_publishing()


@pytest.mark.parametrize(
    ("count", "offset", "length"),
    [(20, 0, 2), (20, 0, 4), (20, 3, 0), (20, 1, 2), (0, 0, 1), (2**41, 0, 1)],
)
def test_pieces_that_do_not_fit_are_refused(
    count: int, offset: int, length: int
) -> None:
    fields = {"type": "SelectionBits", "index": 0, "number": 1}
    fields |= {"count": count, "offset": offset, "bits": bytes(length)}
    with pytest.raises(messages.DecodeError):
        messages.decode_to_trainer(messages.encode(fields))  # type: ignore[arg-type]
