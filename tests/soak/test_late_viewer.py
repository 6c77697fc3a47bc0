"""A viewer comes late to a trainer that computes for long without a call: it sees what was published last all the same,
as soon as the trainer's helper thread may run."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.frames import host_array
from support.repetitions import exhaustive

from splatview.ipc import Subscriber, transport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.programs import Program, Programs


SHOWN_WITHIN = 1.0
"""Seconds within which a late viewer has to see the newest value, on a machine that does nothing else."""

TRAINER = """
import ctypes, math, os, sys, time, torch, splatview

def publish(value):
    splatview.publish(torch.full((90, 160, 3), value, dtype=torch.uint8), "render", step=value)
    splatview.publish({"means": torch.full((300, 3), float(value)), "quats": torch.ones(300, 4),
                       "scales": torch.zeros(300, 3), "opacities": torch.zeros(300),
                       "sh0": torch.zeros(300, 1, 3)}, "scene", step=value)

for value in range(1, 8):
    publish(value)
print("published", flush=True)
how, gate = sys.argv[1:]
if how == "python":
    x = 0
    while True:
        x = (x * 31 + 7) % 1000003
elif how == "torch":
    a = torch.rand(700, 700)
    while True:
        a = torch.tanh(a @ a)
elif how == "asleep":
    time.sleep(1e6)
elif how == "sort":
    numbers = [math.sin(i) for i in range(300_000)]
    while True:
        sorted(numbers)  # a tenth of a second or more each, in which no other thread runs
else:  # a call into C that keeps the interpreter until somebody writes into the gate
    fd = os.open(gate, os.O_RDWR)
    if how == "seen, held":
        os.read(fd, 1)  # until the viewer has seen both
        publish(8)
        print("held", flush=True)
    python = ctypes.PyDLL(None)
    python.read(fd, ctypes.create_string_buffer(1), 1)
    print("on", flush=True)
    while True:
        time.sleep(0.01)
"""
"""Publishes twice seven versions, and then computes for ever without a call. Arguments: how, and the gate's path."""


@pytest.fixture
def start(programs: Programs, tmp_path: Path) -> Iterator[Callable[[str], Program]]:
    os.mkfifo(tmp_path / "gate")
    children: list[Program] = []

    def begin(how: str) -> Program:
        children.append(programs.start(TRAINER, how, tmp_path / "gate"))
        assert children[-1].line() == "published"
        return children[-1]

    yield begin
    for child in children:
        child.kill()


def shown(viewer: Subscriber) -> dict[str, int]:
    """By stream: the step that is seen."""
    viewer.poll()
    found = {}
    for stream in viewer.streams:
        stream.open()
        frame = stream.read()
        if frame is None:
            continue
        with frame:
            first = host_array(frame.tensors["image" if frame.kind == "image" else "means"])
            step = frame.meta["step"]
            assert np.all(first == step)
            found[stream.name] = step
    return found


NEWEST = {"render": 7, "scene": 7}


@pytest.mark.parametrize("how", ["asleep", "torch", exhaustive("python"), exhaustive("sort")])
def test_it_sees_what_was_published_last(
        start: Callable[[str], Program], how: str, wait_until: Callable[..., Any],
        capsys: pytest.CaptureFixture[str]) -> None:
    trainer = start(how)
    time.sleep(0.2)  # it is at it
    begin = time.monotonic()
    with Subscriber() as viewer:
        wait_until(lambda: shown(viewer) == NEWEST, what="the newest of both streams")
        took = time.monotonic() - begin
        assert trainer.alive
    with capsys.disabled():
        print(f"\n{how}: shown after {took:.2f} s")


def test_nothing_comes_while_no_thread_may_run_and_all_afterwards(
        start: Callable[[str], Program], tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    """A call into C that does not let go of the interpreter stops the helper thread as well: a run is known then, and
    what it shows comes when the call has ended. A viewer that was there before keeps what it has."""
    trainer = start("held")
    with Subscriber() as viewer:
        wait_until(lambda: (viewer.poll(), viewer.runs)[-1])
        end = time.monotonic() + 3
        while time.monotonic() < end:
            assert shown(viewer) == {}
            time.sleep(0.01)
        (run,) = viewer.runs
        assert run.alive
        assert not run.welcomed
        with open(tmp_path / "gate", "wb", buffering=0) as gate:
            gate.write(b"x")
        assert trainer.line() == "on"
        begin = time.monotonic()
        wait_until(lambda: shown(viewer) == NEWEST, what="the newest of both streams")
        print(f"shown {time.monotonic() - begin:.2f} s after the call ended")


def test_who_was_there_before_sees_the_last_value_meanwhile(
        start: Callable[[str], Program], tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    """It lies in shared memory when `publish` returns."""
    trainer = start("seen, held")
    with Subscriber() as viewer, open(tmp_path / "gate", "r+b", buffering=0) as gate:
        wait_until(lambda: shown(viewer) == NEWEST, what="the newest of both streams")
        gate.write(b"x")
        wait_until(lambda: shown(viewer) == {"render": 8, "scene": 8}, what="what was published since then")
        assert trainer.line() == "held"
        for _ in range(100):
            assert shown(viewer) == {"render": 8, "scene": 8}
            time.sleep(0.005)
        assert trainer.alive


def test_the_newest_is_shown_within_a_second() -> None:
    """Seconds that are waited on purpose: until a viewer looks for runs first (it does at once), and until the helper
    thread copies what no call of the trainer's brings."""
    assert 0 < transport.GRACE <= SHOWN_WITHIN / 4
