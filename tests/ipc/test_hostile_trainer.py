"""A hostile run, seen by a viewer.

Its messages are refused, counted and bounded; other runs are seen as ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fuzz.messages import to_viewer
from support.impostor import Impostor, info, spoiled
from support.meters import footprint, open_files
from support.pair import Pair

from splatview_ipc.control import messages
from splatview_ipc.shm.segment import Segment
from splatview_ipc.subscriber.remote_run import RemoteRun
from splatview_ipc.subscriber.remote_stream import RemoteStream
from splatview_ipc.transports.cpu_ring import CpuRingWriter


def _image(value: int) -> torch.Tensor:
    return torch.full((4, 4), value, dtype=torch.uint8)


@pytest.fixture
def pair(runtime_dir: Path) -> Iterator[Pair]:
    """A viewer that sees all runs, and an honest run, whose picture it has read."""
    pair = Pair(run=None, transports=("in-place", "ring"))
    pair.publish(_image(9), "honest")
    _check_honest_run(pair)
    yield pair
    pair.close()


@pytest.fixture
def impostor(pair: Pair) -> Iterator[Impostor]:
    """A hostile run that the viewer has attached to."""
    impostor = Impostor()
    pair.other_programs.append(impostor.receive_messages)
    pair.until(lambda: impostor.viewers)
    yield impostor
    impostor.close()


def _check_honest_run(pair: Pair, value: int = 9, after: int = 0) -> None:
    """Check that the viewer can read the honest run's picture."""
    _, _, arrays = pair.newest("honest", after=after)
    assert (arrays["image"] == value).all()


def _hostile_run(pair: Pair) -> RemoteRun:
    return next(run for run in pair.viewer.runs if run.name == "impostor")


def _send_all(impostor: Impostor, pair: Pair, packets: list[Any]) -> None:
    """Send packets as fast as the viewer reads."""
    unsent = list(packets)
    for _ in range(250 + len(packets)):
        if not unsent:
            break
        sent = impostor.send_messages(*unsent[:60])
        del unsent[:sent]
        pair.pump()
    assert not unsent
    pair.pump(5)


def _open_stream(impostor: Impostor, pair: Pair, **fields: Any) -> RemoteStream:
    """Have the viewer open the impostor's stream 0, announced with these fields."""
    manifest = messages.Manifest((info(0, **fields),), ())
    _send_all(impostor, pair, [impostor.welcome(), manifest])
    stream = _hostile_run(pair).streams[0]
    stream.open()

    def has_heard_open() -> bool:
        return any(isinstance(message, messages.Open) for message in impostor.received)

    pair.until(has_heard_open)
    return stream


def test_anything_in_any_field(impostor: Impostor, pair: Pair) -> None:
    base = footprint()
    invalid, valid = spoiled(to_viewer(), messages.decode_to_viewer)
    _send_all(impostor, pair, invalid)
    pair.until(lambda: _hostile_run(pair).dropped == len(invalid))
    _send_all(impostor, pair, valid)
    _check_honest_run(pair)
    assert not footprint().growth_over(base, descriptors=8)


@pytest.mark.parametrize(
    "packets",
    [
        [(2**32 - 1, 1)],
        [(0, 5)],
        [(1, 2)],
        [(3, 1), (1, 1)],
        [(1, 250)],
        [(4096, 200)] * 21,
        [(2, 2)],
        [(1, 0)],
    ],
    ids=[
        "impossible total",
        "none announced",
        "more than announced",
        "totals that differ",
        "more than a packet may have",
        "more than a token may have",
        "more than the memory has",
        "less than announced",
    ],
)
def test_descriptors_that_were_not_asked_for_are_closed(
    impostor: Impostor, pair: Pair, packets: list[tuple[int, int]]
) -> None:
    """The packets are given by the total that they announce, and their descriptors."""
    stream = _open_stream(impostor, pair)
    impostor.silent = True
    segment = Segment(1 << 16, "ring")
    impostor.send_messages(messages.Offer(0, "ring", messages.RingRef(segment.ref)))
    pair.pump(2)
    files_before = open_files()
    null = os.open("/dev/null", os.O_RDONLY)
    for token in (segment.token, "never-asked-for"):
        for total, count in packets:
            message = {"type": "Descriptors", "token": token, "total": total}
            impostor.hand(messages.encode(message), [null] * count)
    os.close(null)
    pair.pump(5)
    assert not stream.opened
    segment.close()
    stream.release()
    pair.pump(2)
    assert open_files() <= files_before
    _check_honest_run(pair)


def test_offer_of_endless_memory_is_refused_before_it_is_fetched(
    impostor: Impostor, pair: Pair
) -> None:
    gpu = "0" * 32
    stream = _open_stream(
        impostor, pair, transports=("in-place",), device="cuda:0", gpu=gpu
    )
    pieces = (1 << 21,) * 4096
    memories = tuple(messages.FdMemory(f"fds-{i}", pieces, gpu) for i in range(2))
    ref = messages.InPlaceRef(
        control=impostor.control.segment.ref,
        gpu=gpu,
        generation=1,
        memories=memories,
        tensors=(),
    )
    impostor.received.clear()
    for _ in range(2):
        impostor.send_messages(messages.Offer(0, "in-place", ref))
        pair.pump(20)
    assert stream.fault
    assert not stream.opened
    # There is no Fetch among them.
    heard_types = {type(message) for message in impostor.received}
    assert heard_types == {messages.Open, messages.Release}


def test_silent_trainer_is_reported_and_its_memory_opened_when_it_comes(
    impostor: Impostor, pair: Pair
) -> None:
    stream = _open_stream(impostor, pair)
    writer = CpuRingWriter(1 << 16, 3)
    impostor.silent = True
    impostor.send_messages(messages.Offer(0, "ring", writer.ref))
    pair.pump(10)
    # The answer may be on its way.
    assert stream.fault is None
    silence = "no memory within 2 s: is the trainer stopped?"
    assert silence in pair.until_fault(stream)
    # Other runs do not wait.
    pair.publish(_image(8), "honest")
    _check_honest_run(pair, value=8, after=1)
    impostor.silent = False
    pair.until(lambda: stream.opened)
    assert stream.fault is None
    writer.close()
