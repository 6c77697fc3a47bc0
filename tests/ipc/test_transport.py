"""Trainers and viewers find each other, in any order and number, and survive each other's ends."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
import torch
from support.reading import newest, stream, welcomed
from support.wait import wait_until

import splatview
from splatview_ipc import Subscriber
from splatview_ipc.control import limits, messages
from splatview_ipc.control.channel import Link
from splatview_ipc.control.run_folder import list_runs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.programs import Programs


TRAINER = """
import sys, torch, splatview
for step, line in enumerate(sys.stdin):
    splatview.publish(torch.full((8, 8, 3), step % 256, dtype=torch.uint8), "render", step=step)
    print(step, flush=True)
"""
"""Publishes at each line, and prints the step."""
VIEWER = """
import time
from splatview_ipc import Subscriber
subscriber, held = Subscriber(), []
while True:
    subscriber.poll()
    for stream in subscriber.streams:
        stream.open()
        if len(held) < 1 and (frame := stream.read()):
            held.append(frame)
            print("reading", flush=True)
    time.sleep(0.01)
"""
"""Holds the first frame for ever."""


@pytest.fixture
def subscriber() -> Iterator[Subscriber]:
    with Subscriber() as s:
        yield s


def image(value: int) -> torch.Tensor:
    return torch.full((4, 4), value, dtype=torch.uint8)


def test_a_value_arrives_with_its_metadata(subscriber: Subscriber) -> None:
    value = torch.arange(2 * 3 * 3, dtype=torch.uint8).reshape(2, 3, 3)
    splatview.publish(value, "picture", step=7, note="hello")
    version, meta, tensors = newest(subscriber, "picture")
    assert version == 1
    assert meta == {"step": 7, "note": "hello", "layout": "HWC"}
    assert np.array_equal(tensors["image"], value.numpy())
    s = subscriber.streams[0]
    assert (s.kind, s.shape, s.dtype, s.device, s.sharing) == ("image", (2, 3, 3), "uint8", "cpu", "ring")


def test_nothing_is_copied_while_nobody_looks(subscriber: Subscriber) -> None:
    for _ in range(100):
        splatview.publish(image(0), "a")
    run = welcomed(subscriber)
    wait_until(lambda: (subscriber.poll(), [s.version for s in subscriber.streams] == [100])[-1])
    assert run.counters["copies"] == 0
    newest(subscriber, "a")
    assert (subscriber.poll(), run.counters["copies"])[-1] == 1
    subscriber.streams[0].release()
    with Subscriber() as other:  # heard after the release
        newest(other, "a")
    wait_until(lambda: (subscriber.poll(), len(run.viewers) == 1)[-1])
    copies = run.counters["copies"]
    for _ in range(100):
        splatview.publish(image(0), "a")
    wait_until(lambda: (subscriber.poll(), subscriber.streams[0].version == 200)[-1])
    assert run.counters["copies"] == copies


def test_runs_of_one_name_are_told_apart_and_a_killed_ones_last_picture_stays(
        subscriber: Subscriber, programs: Programs, runtime_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLATVIEW_NAME", "same")
    trainer = programs.code(TRAINER)
    splatview.publish(image(7), "render")
    for _ in range(2):
        trainer.say()
        trainer.line()
    assert (newest(subscriber, "render", pid=os.getpid())[2]["image"] == 7).all()
    version, _, tensors = newest(subscriber, "render", pid=trainer.pid)
    assert version == 2 and (tensors["image"] == 1).all()
    assert [run.name for run in subscriber.runs] == ["same", "same"]
    assert len({run.id for run in subscriber.runs}) == 2
    with Subscriber(str(trainer.pid)) as one:
        dead = stream(one, "render")
        assert [r.pid for r in one.runs] == [trainer.pid]
        assert newest(one, "render")[0] == 2
        trainer.killed()
        wait_until(lambda: (one.poll(), not dead.run.alive)[-1])
        frame = dead.read()
        assert frame is not None, "the last picture of a dead run can still be read"
        with frame:
            assert frame.intact()
    wait_until(lambda: (subscriber.poll(), sum(r.alive for r in subscriber.runs) == 1)[-1])
    living = [r.id for r in subscriber.runs if r.alive]
    wait_until(lambda: (subscriber.poll(), [p.name for p in runtime_dir.iterdir()] == living)[-1], "the dead is swept")


def test_a_stopped_viewer_stops_nothing_and_a_killed_one_is_forgotten(programs: Programs,
                                                                      subscriber: Subscriber) -> None:
    splatview.publish(image(0))
    viewer = programs.code(VIEWER)
    assert viewer.line() == "reading"
    run = welcomed(subscriber)
    wait_until(lambda: (subscriber.poll(), len(run.viewers) == 2)[-1])
    viewer.send_signal(signal.SIGSTOP)
    for i in range(2000):
        splatview.publish(image(i % 256))
    for i in range(300):  # a flood of news about streams: its queue fills, nothing waits
        splatview.publish(torch.zeros(4 + i % 7, 5), "changing")
    assert newest(subscriber, "image", after=2000)[0] == 2001
    viewer.send_signal(signal.SIGKILL)
    viewer.wait()
    wait_until(lambda: (subscriber.poll(), len(run.viewers) == 1)[-1])


def test_scenes_that_grow_and_shrink_arrive_whole(subscriber: Subscriber) -> None:
    version = 0
    for n in (10, 100_000, 3, 0, 400_000, 50):
        scene = {"means": torch.full((n, 3), float(n)), "quats": torch.full((n, 4), float(n)),
                 "scales": torch.full((n, 3), float(n)), "opacities": torch.full((n,), float(n)),
                 "sh0": torch.full((n, 1, 3), float(n))}
        splatview.publish(scene)
        version, _, tensors = newest(subscriber, "gaussians", after=version)
        assert all(len(t) == n and (t == n).all() for t in tensors.values())
    wait_until(lambda: (subscriber.poll(), subscriber.streams[0].shape == (50, 3))[-1])


# -- other releases ----------------------------------------------------------------------------------------------------

NEXT = limits.PROTOCOL + 1
"""The protocol of a later release."""


@pytest.fixture
def link(runtime_dir: Path) -> Iterator[Link]:
    """A connection to a run of this process, which publishes an image."""
    splatview.publish(image(0))
    (run,) = list_runs(runtime_dir)
    link = Link(run.path)
    assert link.connect()
    yield link
    link.close()


def answer(link: Link) -> Any:
    return messages.decode_to_viewer(wait_until(link.receive, what="an answer"))


@pytest.mark.parametrize(("hello", "words"), [
    ({"type": "Hello", "protocol": NEXT, "pid": 1, "client": "viewer", "namespace": 0, "version": "9.0.0"}, "9.0.0"),
    ({"type": "Hello", "protocol": NEXT, "version": "9.0.0", "what": {"later": ["ones", "add"]}}, "9.0.0"),
    ({"type": "Hello", "protocol": 7, "pid": 1, "client": "viewer", "namespace": 0}, "an unknown version (protocol 7)"),
])
def test_a_viewer_of_another_protocol_is_refused_with_both_versions(
        link: Link, hello: dict[str, Any], words: str) -> None:
    assert link.send(messages.encode(hello))
    refused = answer(link)
    assert isinstance(refused, messages.Refused)
    assert words in refused.reason and f"the run {limits.VERSION} (protocol {limits.PROTOCOL})" in refused.reason
    wait_until(lambda: (link.receive(), not link.up)[-1], what="the trainer has no more to say")


@pytest.mark.parametrize(("said", "words"), [
    ({"protocol": NEXT, "version": "9.0.0"}, f"the run 9.0.0 (protocol {NEXT})"),
    ({"protocol": 1}, "the run of an unknown version (protocol 1)"),
    ({"protocol": 10**6, "version": "x" * limits.MAX_VERSION, "more": [1, {"a": None}]}, "(protocol 1000000)"),
])
def test_a_run_of_another_protocol_is_not_attached_to(runtime_dir: Path, monkeypatch: pytest.MonkeyPatch,
                                                      said: dict[str, Any], words: str) -> None:
    splatview.publish(image(0))
    (run,) = list_runs(runtime_dir)
    before = msgspec.to_builtins(run.description)
    del before["version"]
    (run.path / "run.json").write_bytes(msgspec.json.encode(before | said))
    monkeypatch.setattr(Link, "connect", lambda self: pytest.fail("it is not even spoken to"))
    with Subscriber() as subscriber:
        wait_until(lambda: (subscriber.poll(), subscriber.runs)[-1])
        (seen,) = subscriber.runs
        assert words in str(seen.refused)
        for _ in range(20):
            subscriber.poll()


def test_what_a_later_release_adds_is_dropped_and_all_else_goes_on(link: Link) -> None:
    assert link.send(messages.encode(messages.Hello(limits.PROTOCOL, os.getpid(), "viewer")))
    assert isinstance(answer(link), messages.Welcome)
    assert link.send(messages.encode({"type": "Rewind", "index": 0, "to": 17}))
    assert link.send(messages.encode({"type": "Open", "index": 0, "way": "telepathy"}))
    assert link.send(messages.encode(messages.Open(0, "ring")))

    def offered() -> bool:
        packet = link.receive()
        return packet is not None and isinstance(messages.decode_to_viewer(packet), messages.Offer)

    wait_until(offered, what="an offer")
