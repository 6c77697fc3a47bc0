"""Trainers and viewers find each other, in any order and number, and survive each other's ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from support.impostor import Liar
from support.pair import Pair, show
from support.programs import Programs
from support.reading import newest, stream_of, welcomed
from support.trainers import Trainer
from support.wait import wait_until

import splatview
from splatview.adapters.checks import metadata
from splatview_ipc.control import limits, messages
from splatview_ipc.control.sockets import wait_readable
from splatview_ipc.publisher.publisher import Publisher
from splatview_ipc.subscriber.subscriber import Subscriber


def image(value: int, size: int = 4) -> torch.Tensor:
    return torch.full((size, size), value, dtype=torch.uint8)


def test_value_arrives_with_its_metadata(pair: Pair) -> None:
    value = torch.arange(2 * 3 * 3, dtype=torch.uint8).reshape(2, 3, 3)
    pair.publish(value, "picture", step=7, note="hello")
    version, meta, tensors = pair.newest("picture")
    assert version == 1
    assert meta == {"step": 7, "note": "hello", "layout": "HWC"}
    assert np.array_equal(tensors["image"], value.numpy())
    (s,) = pair.viewer.streams
    assert (s.kind, s.shape, s.dtype, s.device, s.sharing) == (
        "image",
        (2, 3, 3),
        "uint8",
        "cpu",
        "ring",
    )
    assert pair.run.viewers == [{"pid": os.getpid(), "client": "viewer"}]


def test_metadata_up_to_its_limit_arrives(pair: Pair) -> None:
    """Counted in bytes, as a slot's header holds it; of texts, in characters, as receivers count them."""
    letter = "\u6d41"
    count = limits.MAX_META_BYTES // limits.MAX_META_TEXT // len(letter.encode())
    texts = {f"text_{i}": letter * limits.MAX_META_TEXT for i in range(count)}
    numbers = {f"{'n' * 38}{i}": (0.1,) * 16 for i in range(24 - count)}
    given = metadata(texts | numbers)
    for value in (1, 2):
        pair.publish(torch.full((4, 4), value, dtype=torch.uint8), **given)
        _, meta, arrays = pair.newest(after=value - 1)
        assert meta == given | {"layout": "HW"}
        assert (arrays["image"] == value).all()
    assert not pair.faults


def test_all_streams_are_announced_however_long_their_names_are(
    runtime_dir: Path, subscriber: Subscriber
) -> None:
    """More than one message holds, to viewers that were there and to those that come."""
    publisher = Publisher("many")
    letter = "\U0001f600"
    welcomed(subscriber)
    for i in range(limits.MAX_STREAMS):
        name = letter * (limits.MAX_NAME - 3) + f"{i:03}"
        show(publisher, torch.zeros(4, 4), name)
        publisher.streams[name].over = name, ""
    with Subscriber() as late:

        def all_are_known() -> bool:
            subscriber.poll()
            late.poll()
            counts = {len(subscriber.streams), len(late.streams)}
            return counts == {limits.MAX_STREAMS}

        wait_until(all_are_known, "all streams are known")
        assert welcomed(subscriber).dropped == welcomed(late).dropped == 0
    publisher.close()


def test_nothing_is_copied_for_a_stream_that_is_not_open(pair: Pair) -> None:
    for value in range(100):
        pair.publish(image(value))
    pair.until(lambda: [s.version for s in pair.viewer.streams] == [100])
    assert pair.run.counters["copies"] == 0
    assert (pair.newest()[2]["image"] == 99).all()
    copies = pair.counted("copies")
    pair.viewer.streams[0].release()
    pair.pump(2)
    for value in range(100):
        pair.publish(image(value))
    pair.pump(5)
    assert pair.viewer.streams[0].version == 200
    assert pair.counted("copies") == copies > 0


def test_each_viewer_has_streams_of_its_own(pair: Pair) -> None:
    other = pair.attach(client="other")
    for name in ("a", "b"):
        pair.publish(image(5), name)
    pair.newest("a")
    pair.newest("b", viewer=other)
    assert sorted(v["client"] for v in pair.run.viewers) == ["other", "viewer"]
    assert [s.opened for s in pair.viewer.streams] == [True, False]
    other.close()
    pair.until(lambda: len(pair.run.viewers) == 1)
    assert [s.readers for s in pair.publisher.streams.values()] == [1, 0]


def test_turn_is_due_only_when_something_is_to_be_done(pair: Pair) -> None:
    """A run with a viewer that has all it opened sleeps for an hour."""
    pair.publish(image(1))
    pair.newest()
    pair.pump(40)
    due = pair.turn_helper()
    assert due is not None
    assert 600 < due - pair.now <= 3600
    assert not wait_readable(pair.publisher.helper.fds(), 0)
    pair.publisher.wake()
    pair.publisher.wake()
    assert len(wait_readable(pair.publisher.helper.fds(), 0)) == 1


def test_connection_that_was_cut_is_made_again(pair: Pair) -> None:
    pair.publish(image(1))
    pair.newest()
    pair.run.send(messages.Bye())  # the trainer takes it for gone
    pair.pump()
    frame = pair.viewer.streams[0].read()
    assert frame is not None, "what it has stays readable"
    frame.close()
    pair.until(
        lambda: pair.publisher.streams["image"].readers == 1, "it attaches again"
    )
    pair.publish(image(2))
    assert (pair.newest(after=1)[2]["image"] == 2).all()


NEXT = limits.PROTOCOL + 1
"""The protocol of a later release."""


def test_viewer_of_another_protocol_is_refused_with_both_versions(pair: Pair) -> None:
    liar = Liar(pair.publisher.folder.path)
    liar.hello(protocol=NEXT, version="9.0.0")
    refused = messages.decode_to_viewer(pair.until(liar.receive, "an answer"))
    assert isinstance(refused, messages.Refused)
    assert (
        f"9.0.0 (protocol {NEXT}), the run {limits.VERSION} (protocol {limits.PROTOCOL})"
        in refused.reason
    )
    pair.until(lambda: (liar.receive(), not liar.up)[-1])
    liar.close()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"protocol": NEXT, "version": "9.0.0"}, f"the run 9.0.0 (protocol {NEXT})"),
        ({"protocol": 1}, "the run of an unknown version (protocol 1)"),
        (
            {
                "protocol": 10**6,
                "version": "x" * limits.MAX_VERSION,
                "more": [1, {"a": None}],
            },
            "(protocol 1000000)",
        ),
    ],
)
def test_run_of_another_protocol_is_not_attached_to(
    pair: Pair, said: dict[str, Any], words: str
) -> None:
    folder = pair.publisher.folder
    before = msgspec.to_builtins(folder.description)
    del before["version"]
    (folder.path / "run.json").write_bytes(msgspec.json.encode(before | said))
    pair.until(lambda: pair.viewer.runs)
    pair.pump(200)
    assert words in str(pair.viewer.runs[0].refused)
    assert len(pair.publisher.helper.fds()) == 2, "it is not even spoken to"


PUBLISH = "splatview.publish(torch.full((8, 8, 3), {step}, dtype=torch.uint8), 'render', meta={{'step': {step}}})"


def test_runs_of_one_name_are_told_apart_and_a_killed_ones_last_picture_stays(
    subscriber: Subscriber,
    programs: Programs,
    runtime_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPLATVIEW_NAME", "same")
    trainer = Trainer(programs)
    splatview.publish(image(7), "render")
    for step in range(2):
        trainer.do(PUBLISH.format(step=step))
    assert (newest(subscriber, "render", pid=os.getpid())[2]["image"] == 7).all()
    version, _, tensors = newest(subscriber, "render", pid=trainer.process.pid)
    assert version == 2
    assert (tensors["image"] == 1).all()
    assert [run.name for run in subscriber.runs] == ["same", "same"]
    assert len({run.id for run in subscriber.runs}) == 2
    with Subscriber(str(trainer.process.pid)) as one:
        dead = stream_of(one, "render")
        assert [r.pid for r in one.runs] == [trainer.process.pid]
        assert newest(one, "render")[0] == 2
        trainer.process.killed()
        wait_until(lambda: (one.poll(), not dead.run.alive)[-1])
        frame = dead.read()
        assert frame is not None, "the last picture of a dead run can still be read"
        with frame:
            assert frame.intact()
    wait_until(
        lambda: (subscriber.poll(), sum(r.alive for r in subscriber.runs) == 1)[-1]
    )
    living = [r.id for r in subscriber.runs if r.alive]
    wait_until(
        lambda: (subscriber.poll(), [p.name for p in runtime_dir.iterdir()] == living)[
            -1
        ],
        "the dead is swept",
    )


def test_stopped_trainer_stops_no_viewer(
    programs: Programs, subscriber: Subscriber
) -> None:
    trainer = Trainer(programs)
    trainer.do(PUBLISH.format(step=0))
    newest(subscriber, "render")
    trainer.process.send_signal(signal.SIGSTOP)
    os.waitid(
        os.P_PID, trainer.process.pid, os.WSTOPPED
    )  # its threads may run for a moment after the signal
    with Subscriber() as late:
        for _ in range(50):  # each poll returns
            late.poll()
            subscriber.poll()
        assert [r.welcomed for r in late.runs] == [False]
        assert subscriber.streams[0].read() is not None
        trainer.process.send_signal(signal.SIGCONT)
        assert newest(late, "render")[0] == 1
