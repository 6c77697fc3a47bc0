"""A viewer comes late to a trainer that computes for long without a call: it sees what was published last all the same,
as soon as the trainer's helper thread may run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.frames import host_array
from support.soak import Stopwatch, next_line
from support.wait import wait_until

from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:

    from support.programs import Program, Programs

TRAINER = """
import math, signal, sys, torch, splatview

def publish(value):
    splatview.publish(torch.full((90, 160, 3), value, dtype=torch.uint8), "render", step=value)
    splatview.publish({"means": torch.full((300, 3), float(value)), "quats": torch.ones(300, 4),
                       "scales": torch.zeros(300, 3), "opacities": torch.zeros(300),
                       "sh0": torch.zeros(300, 1, 3)}, "scene", step=value)

for value in range(1, 8):
    publish(value)
print("published", flush=True)
how = sys.argv[1]
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
"""
"""Publishes twice seven versions, and then computes for ever without a call. Argument: how."""
NEWEST = {"render": 7, "scene": 7}


def start(programs: Programs, how: str) -> Program:
    trainer = programs.code(TRAINER, how)
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
def test_it_sees_what_was_published_last(programs: Programs, how: str) -> None:
    trainer, watch = start(programs, how), Stopwatch()
    with Subscriber() as viewer:
        wait_until(lambda: shown(viewer) == NEWEST, what="the newest of both streams")
    assert trainer.poll() is None
    print(f"\n{how}: shown after {watch}")
