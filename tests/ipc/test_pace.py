"""Viewers say how many versions of a stream in place they take, and the trainer marks no
more than those.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from support.impostor import Liar
from support.pair import Pair

from splatview_ipc.control import messages
from splatview_ipc.publisher import transport_choice
from splatview_ipc.subscriber.remote_run import RemoteRun
from splatview_ipc.subscriber.remote_stream import RemoteStream
from splatview_ipc.subscriber.subscriber import Subscriber
from splatview_ipc.transports import TRANSPORTS, Transport

STEP_S = 0.005
IMAGE = torch.zeros(8, 8, dtype=torch.uint8)


class InPlaceTraining:
    """A training whose only stream is shared in place, and its viewers."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.step()
        pair.newest()

    def step(self) -> bool:
        """Publish a version; return whether it was marked."""
        marks_before = self._marks()
        self.pair.now += STEP_S
        self.pair.publish(IMAGE)
        return self._marks() > marks_before

    def _marks(self) -> int:
        return self.pair.publisher.control.counters()["copies"]

    def rate(self) -> float:
        """Return how many versions are marked a second of 200 steps."""
        self.pair.pump(2)
        marked = [self.step() for _ in range(600)]
        return sum(marked) / 3

    def stream(self, viewer: Subscriber | None = None) -> RemoteStream:
        """Return the stream as a viewer sees it that takes its versions."""
        stream = self.pair.stream(viewer=viewer)
        self.pair.until(lambda: stream.opened)
        return stream


@pytest.fixture
def training(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> InPlaceTraining:
    ring = TRANSPORTS["ring"]
    in_place = Transport(ring.writer, ring.reader, "")
    monkeypatch.setitem(TRANSPORTS, "in-place", in_place)
    monkeypatch.setattr(transport_choice, "CPU_TRANSPORTS", ("in-place", "ring"))

    def unfit(run: RemoteRun, transport: str, gpu: str) -> str:
        return ""

    monkeypatch.setattr(RemoteRun, "unfit", unfit)
    return InPlaceTraining(pair)


@pytest.fixture
def sent_paces(monkeypatch: pytest.MonkeyPatch) -> list[messages.VersionPace]:
    """The paces that viewers send, in order."""
    sent = []
    send: Callable[..., None] = RemoteRun.send

    def send_noted(run: RemoteRun, message: messages.ToTrainer) -> None:
        if isinstance(message, messages.VersionPace):
            sent.append(message)
        send(run, message)

    monkeypatch.setattr(RemoteRun, "send", send_noted)
    return sent


@pytest.mark.parametrize(
    ("paces", "marks"),
    [
        ([], 60),
        ([10], 10),
        ([0.1], 0),
        ([25], 25),
        ([100], 60),
        ([math.inf], 60),
        ([10, 16], 16),
    ],
)
def test_versions_are_marked_as_often_as_the_fastest_viewer_takes_one(
    training: InPlaceTraining, paces: list[float], marks: float
) -> None:
    for index, pace in enumerate(paces):
        viewer = None if index == 0 else training.pair.attach()
        training.stream(viewer).tell_pace(pace, training.pair.now)
    assert training.rate() == pytest.approx(marks, abs=1)


def test_a_viewer_that_says_nothing_gets_all_until_it_leaves(
    training: InPlaceTraining,
) -> None:
    training.stream().tell_pace(10, training.pair.now)
    assert training.rate() == pytest.approx(10, abs=1)
    second_viewer = training.pair.attach()
    training.stream(second_viewer)
    assert training.rate() == pytest.approx(60, abs=1)
    second_viewer.close()
    assert training.rate() == pytest.approx(10, abs=1)


def test_a_pace_is_forgotten_with_its_reader(training: InPlaceTraining) -> None:
    stream = training.stream()
    stream.tell_pace(10, training.pair.now)
    training.pair.pump()
    stream.release()
    training.stream()
    assert training.rate() == pytest.approx(60, abs=1)
    stream.tell_pace(10, training.pair.now)
    assert training.rate() == pytest.approx(10, abs=1)
    # By another transport, and then by this one again.
    stream.refuse("test")
    training.pair.until(lambda: stream.sharing == "ring")
    stream.release()
    training.stream()
    assert stream.sharing == "in-place"
    assert training.rate() == pytest.approx(60, abs=1)


def test_a_pace_is_told_again_over_another_connection(
    training: InPlaceTraining, sent_paces: list[messages.VersionPace]
) -> None:
    stream = training.stream()
    stream.tell_pace(10, training.pair.now)
    # The trainer takes the viewer for gone.
    training.pair.run.send(messages.Bye())
    training.pair.pump(25)
    stream.tell_pace(10, training.pair.now)
    assert [message.hz for message in sent_paces] == [10, 10]
    assert training.rate() == pytest.approx(10, abs=1)


def test_copies_know_no_pace(pair: Pair) -> None:
    training = InPlaceTraining(pair)
    stream = training.stream()
    assert stream.sharing == "ring"
    stream.tell_pace(10, pair.now)
    pair.pump()
    assert all(training.step() for _ in range(20))


def test_a_faster_pace_counts_at_once_and_a_slower_one_once_a_second(
    training: InPlaceTraining, sent_paces: list[messages.VersionPace]
) -> None:
    stream = training.stream()
    now = training.pair.now
    for pace, later in [
        (math.inf, 0.0),
        (200, 0.0),  # nearly the same
        (10, 0.0),
        (12, 0.1),  # nearly the same
        (math.inf, 0.1),
        (10, 0.2),  # too soon
        (10, 1.0),
        (10, 1.2),
        (math.inf, 1.2),
        (400, 1.3),  # all there are
    ]:
        stream.tell_pace(pace, now + later)
    assert [message.hz for message in sent_paces] == [10, 240, 10, 240]


def test_nothing_is_told_of_a_stream_that_is_not_open(
    training: InPlaceTraining, sent_paces: list[messages.VersionPace]
) -> None:
    stream = training.stream()
    stream.release()
    stream.tell_pace(10, training.pair.now)
    training.pair.pump()
    stream.tell_pace(10, training.pair.now)
    assert not sent_paces


def test_versions_do_not_wait_for_the_end_of_a_slower_period(
    training: InPlaceTraining,
) -> None:
    stream = training.stream()
    stream.tell_pace(1, training.pair.now)
    training.rate()
    while not training.step():
        pass
    stream.tell_pace(math.inf, training.pair.now)
    training.pair.turn_helper()
    marked = [training.step() for _ in range(4)]
    assert any(marked)


def test_a_flood_of_paces_causes_no_more_marks(training: InPlaceTraining) -> None:
    link = Liar(training.pair.publisher.folder.path)
    link.hello()
    training.pair.pump()
    assert link.send(messages.encode(messages.Open(0, "in-place")))
    training.stream().tell_pace(1, training.pair.now)
    marks = 0
    for step in range(600):
        link.send(messages.encode(messages.VersionPace(0, 1.0 + 100 * (step % 2))))
        training.pair.turn_helper()
        marks += training.step()
    assert marks <= 60 * 3 + 5
    link.close()


def test_the_last_version_is_shown_whatever_the_pace(training: InPlaceTraining) -> None:
    training.stream().tell_pace(1, training.pair.now)
    training.rate()
    training.pair.publish(IMAGE)
    stream = training.pair.publisher.streams["image"]
    assert stream.is_behind()
    training.pair.until(lambda: not stream.is_behind())
    version, *_ = training.pair.newest(after=stream.version - 1)
    assert version == stream.version


def test_versions_that_were_awaited_delay_no_later_one(
    training: InPlaceTraining,
) -> None:
    training.stream().tell_pace(1, training.pair.now)
    training.pair.pump()
    stream = training.pair.publisher.streams["image"]
    for _ in range(200):
        training.pair.now += STEP_S
        stream.publish_awaited(((IMAGE,), {"layout": "HW"}))
        assert not stream.is_behind()
    training.pair.publish(IMAGE)
    assert stream.is_behind()
    marked = [training.step() for _ in range(202)]
    assert any(marked)


@pytest.mark.parametrize("hz", [0, -1, math.nan, math.inf, 241, "10", None, True])
def test_a_pace_that_is_none_is_dropped_and_counted(
    training: InPlaceTraining, hz: Any
) -> None:
    link = Liar(training.pair.publisher.folder.path)
    link.hello()
    assert link.send(messages.encode(messages.Open(0, "in-place")))
    dropped_before = training.pair.counted("dropped_messages")
    packet = msgspec.msgpack.encode({"type": "VersionPace", "index": 0, "hz": hz})
    assert link.send(packet)
    assert training.pair.counted("dropped_messages") == dropped_before + 1
    link.close()


def test_a_pace_of_a_stream_that_is_not_open_is_dropped_and_counted(
    training: InPlaceTraining,
) -> None:
    link = Liar(training.pair.publisher.folder.path)
    link.hello()
    dropped_before = training.pair.counted("dropped_messages")
    for index in (0, 7):
        assert link.send(messages.encode(messages.VersionPace(index, 10.0)))
    assert training.pair.counted("dropped_messages") == dropped_before + 2
    link.close()
