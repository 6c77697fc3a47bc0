"""A viewer comes late to a trainer that computes for long without a call: it sees what was published last all the same,
as soon as the trainer's helper thread may run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.frames import host_array
from support.soak import Stopwatch, next_line
from support.wait import wait_until

from splatview.ipc import Subscriber

if TYPE_CHECKING:
    from pathlib import Path

    from support.programs import Program, Programs

TRAINER = """
import ctypes, math, os, signal, sys, torch, splatview

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
    signal.pause()
elif how == "sort":
    numbers = [math.sin(i) for i in range(300_000)]
    while True:
        sorted(numbers)  # a tenth of a second or more each, in which no other thread runs
else:  # a call into C that keeps the interpreter until something is written into the gate
    fd = os.open(gate, os.O_RDWR)
    if how == "seen, held":
        os.read(fd, 1)  # until the viewer has seen both
        publish(8)
        print("held", flush=True)
    python = ctypes.PyDLL(None)
    python.read(fd, ctypes.create_string_buffer(1), 1)
    print("on", flush=True)
    signal.pause()
"""
"""Publishes twice seven versions, and then computes for ever without a call. Arguments: how, and the gate's path."""
NEWEST = {"render": 7, "scene": 7}


def start(programs: Programs, how: str, folder: Path) -> Program:
    os.mkfifo(folder / "gate")
    trainer = programs.code(TRAINER, how, folder / "gate")
    assert next_line(trainer) == "published"
    return trainer


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


@pytest.mark.parametrize("how", ["asleep", "torch", "python", "sort"])
def test_it_sees_what_was_published_last(programs: Programs, tmp_path: Path, how: str) -> None:
    trainer, watch = start(programs, how, tmp_path), Stopwatch()
    with Subscriber() as viewer:
        wait_until(lambda: shown(viewer) == NEWEST, what="the newest of both streams")
    assert trainer.poll() is None
    print(f"\n{how}: shown after {watch}")


def test_nothing_comes_while_no_thread_may_run_and_all_afterwards(programs: Programs, tmp_path: Path) -> None:
    """A call into C that does not let go of the interpreter stops the helper thread as well: a run is known then, and
    what it shows comes when the call has ended."""
    trainer = start(programs, "held", tmp_path)
    with Subscriber() as viewer:
        wait_until(lambda: (viewer.poll(), viewer.runs)[-1])
        (run,) = viewer.runs
        assert run.alive
        with open(tmp_path / "gate", "wb", buffering=0) as gate:
            gate.write(b"x")
        assert next_line(trainer) == "on"
        wait_until(lambda: shown(viewer) == NEWEST, what="the newest of both streams")
