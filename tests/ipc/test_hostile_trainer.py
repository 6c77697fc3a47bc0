"""A hostile run, seen by a viewer: what it sends is refused, counted and bounded; other runs are seen as ever."""

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


@pytest.fixture
def pair(runtime_dir: Path) -> Iterator[Pair]:
    """A viewer that sees the impostor and an honest run, whose picture it has seen."""
    made = Pair(run=None, transports=("in-place", "ring"))
    made.publish(torch.full((4, 4), 9, dtype=torch.uint8), "honest")
    sees_the_honest(made)
    yield made
    made.close()


@pytest.fixture
def impostor(pair: Pair) -> Iterator[Impostor]:
    made = Impostor()
    pair.others.append(made.hear)
    pair.until(lambda: made.viewers)
    yield made
    made.close()


def sees_the_honest(pair: Pair) -> bool:
    return bool((pair.newest("honest")[2]["image"] == 9).all())


def liar(pair: Pair) -> RemoteRun:
    return next(r for r in pair.viewer.runs if r.name == "impostor")


def through(impostor: Impostor, pair: Pair, packets: list[Any]) -> None:
    """Send all of this, as fast as the viewer reads."""
    left = list(packets)
    for _ in range(250 + len(packets)):
        if not left:
            break
        del left[: impostor.tell(*left[:60])]
        pair.pump()
    assert not left
    pair.pump(5)


def opened(impostor: Impostor, pair: Pair, **said: Any) -> RemoteStream:
    """The viewer has attached to the impostor, and opened its stream 0, of which this is `said`."""
    through(
        impostor, pair, [impostor.welcome(), messages.Manifest((info(0, **said),), ())]
    )
    stream = liar(pair).streams[0]
    stream.open()
    pair.until(lambda: any(isinstance(h, messages.Open) for h in impostor.heard))
    return stream


def test_anything_in_any_field(impostor: Impostor, pair: Pair) -> None:
    before = footprint()
    wrong, right = spoiled(to_viewer(), messages.decode_to_viewer)
    through(impostor, pair, wrong)
    pair.until(lambda: liar(pair).dropped == len(wrong))
    through(impostor, pair, right)
    assert sees_the_honest(pair)
    assert not footprint().over(before, descriptors=8)


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
    ids=lambda packets: f"{packets[0][0]} with {packets[0][1]}, {len(packets)} times",
)
def test_descriptors_that_were_not_asked_for_are_closed(
    impostor: Impostor, pair: Pair, packets: list[tuple[int, int]]
) -> None:
    """A run hands over more than it says, less, none, or says what cannot be: all is closed, and its memory refused."""
    stream = opened(impostor, pair)
    impostor.silent = True
    segment = Segment(1 << 16, "ring")
    impostor.tell(messages.Offer(0, "ring", messages.RingRef(segment.ref)))
    pair.pump(2)
    before = open_files()
    null = os.open("/dev/null", os.O_RDONLY)
    for token in (segment.token, "never-asked-for"):
        for total, count in packets:
            impostor.hand(
                messages.encode(
                    {"type": "Descriptors", "token": token, "total": total}
                ),
                [null] * count,
            )
    os.close(null)
    pair.pump(5)
    assert not stream.opened
    segment.close()
    stream.release()
    pair.pump(2)
    assert open_files() <= before
    assert sees_the_honest(pair)


def test_offer_of_endless_memory_is_refused_before_it_is_fetched(
    impostor: Impostor, pair: Pair
) -> None:
    gpu = "0" * 32
    stream = opened(impostor, pair, transports=("in-place",), device="cuda:0", gpu=gpu)
    memories = tuple(
        messages.FdMemory(f"fds-{i}", (1 << 21,) * 4096, gpu) for i in range(2)
    )
    impostor.heard.clear()
    for _ in range(2):
        impostor.tell(
            messages.Offer(
                0,
                "in-place",
                messages.InPlaceRef(impostor.control.segment.ref, gpu, 1, memories, ()),
            )
        )
        pair.pump(20)
    assert stream.fault
    assert not stream.opened
    assert {type(h) for h in impostor.heard} == {messages.Open, messages.Release}, (
        "nothing is fetched"
    )


def test_silent_trainer_is_named_and_its_memory_taken_when_it_comes(
    impostor: Impostor, pair: Pair
) -> None:
    stream = opened(impostor, pair)
    writer = CpuRingWriter(1 << 16, 3)
    impostor.silent = True
    impostor.tell(messages.Offer(0, "ring", writer.ref))
    pair.pump(10)
    assert stream.fault is None, "it may be on its way"
    pair.until(lambda: stream.fault)
    assert "is the trainer stopped?" in str(stream.fault)
    pair.publish(torch.full((4, 4), 8, dtype=torch.uint8), "honest")
    assert (pair.newest("honest", after=1)[2]["image"] == 8).all(), "others do not wait"
    impostor.silent = False
    pair.until(lambda: stream.opened)
    assert stream.fault is None
    writer.close()
