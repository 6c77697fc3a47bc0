"""Viewers that read GPU memory, and trainers that lend it, are killed and stopped at any moment: the others go on, and
all memory comes back."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.gpu_memory import MB, used
from support.meters import footprint, settled
from support.programs import Program, Programs, Watcher
from support.soak import at_random, next_line
from support.trainers import ALLOCATORS, Trainer

from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.programs import Programs

pytestmark = pytest.mark.cuda

KILLS = 20
"""Viewers that are killed for each way and allocator."""
AT_ONCE = 10
TRAINERS_KILLED = 16
WAYS = ("in-place", "device-ring")

VIEWER = """
import json, random, sys, time
import numpy as np
from splatview_ipc.subscriber.subscriber import Subscriber
chance = random.Random(int(sys.argv[2]))

def right(frame):
    "Whether all that was copied is of the step that the metadata name; None: it was written over, and says so."
    step = frame.meta["step"]
    value = step % 251 if frame.kind == "image" else step
    good = all(bool(np.all(t.to_float32() == np.float32(value))) for t in frame.tensors.values())
    return good if frame.intact() else None

with Subscriber(transports=sys.argv[1].split(",")) as subscriber:
    last, held, seen, wrong, due = {}, [], 0, 0, 0.0
    while True:
        subscriber.poll()
        for stream in subscriber.streams:
            stream.open()
            frame = stream.read(last.get(stream.name, 0))
            if frame is None:
                continue
            ring = stream.sharing == "device-ring"  # in place a value may be of two steps: it is not stopped for us
            good = right(frame)
            wrong += good is False and ring
            seen += 1
            last[stream.name] = frame.version
            held.append((frame, ring))
            if len(held) > 3:
                old, ring = held.pop(chance.randrange(3))
                wrong += right(old) is False and ring
                old.close()
            newest = {"sharing": stream.sharing, "step": frame.meta["step"], "right": good}
        if seen and time.monotonic() >= due:
            due = time.monotonic() + 0.05
            print(json.dumps({"seen": seen, "wrong": wrong, **newest}), flush=True)
        time.sleep(chance.uniform(0, 0.002))
"""
"""Arguments: the ways that it takes, and where its chances begin. It holds frames for a while, looks at them again, and
says twenty times a second how many it has seen, how many of them were not what they say, and how the newest is."""

FLAT_OUT = """
import os
step = 0
while not os.path.exists(gate):
    step += 1
    fill(scene, step)
    splatview.publish(scene, step=step)
    splatview.publish(torch.full((300, 400, 3), step % 251, dtype=torch.uint8, device="cuda"), "image", step=step)
    if step % 50 == 0:
        torch.cuda.synchronize()
torch.cuda.synchronize()
answer = step
"""

DOOMED = """
import sys, torch, splatview
way, step = sys.argv[1], 0
scene = {name: torch.zeros(200_000, *shape, device="cuda") for name, shape in
         (("means", (3,)), ("quats", (4,)), ("scales", (3,)), ("opacities", ()), ("sh0", (1, 3)))}
while True:
    step += 1
    for tensor in scene.values():
        tensor.fill_(step)
    splatview.publish(scene, "scene", step=step, copy=True if way == "device-ring" else None)
    if step % 20 == 0:
        torch.cuda.synchronize()
    if step == 1:
        print("ready", flush=True)
"""
"""Argument: how its scene is to travel."""

MOURNER = """
import json, sys, time
import torch
from splatview_ipc.subscriber.subscriber import Subscriber
way = sys.argv[1]
torch.zeros(1, device="cuda")
held, told = {}, set()
with Subscriber(transports=(way,)) as subscriber:
    while True:
        subscriber.poll()
        for stream in subscriber.streams:
            stream.open()
            pid, before = stream.run.pid, held.get(stream.run.pid)
            if pid in told:
                continue
            if stream.run.alive:
                frame = stream.read(before.version if before is not None else 0)
                if frame is not None:
                    if before is not None:
                        before.close()
                    held[pid] = frame
                    if frame.version > 3 and (before is None or before.version <= 3):
                        print(json.dumps({"pid": pid, "sharing": stream.sharing}), flush=True)
                continue
            frame = stream.read()
            values = [t.to_float32() for t in frame.tensors.values()]
            if way == "device-ring":
                good = all((v == frame.meta["step"]).all() for v in values)
            else:  # it was filling them again and again: each is of some step
                good = all((v == v.round()).all() and v.min() >= 0 for v in values)
            print(json.dumps({"pid": pid, "ended": frame.version, "held": before.version,
                              "good": bool(good and frame.intact())}), flush=True)
            told.add(pid)
            frame.close()
            held.pop(pid).close()
            before = frame = values = None
            stream.release()
            torch.cuda.empty_cache()
        time.sleep(0.001)
"""
"""Argument: the way that it takes. Reads all runs, and says of each which way its frames come and, when it has ended,
what its last frame is like."""


@pytest.fixture
def subscriber() -> Iterator[Subscriber]:
    torch.zeros(1, device="cuda")
    with Subscriber() as s:
        yield s


def back_to(base: int, pid: int | None, wait_until: Callable[..., Any]) -> None:
    # A viewer's slots take 2 MB at least, so that a hundred of them are seen; kernels that are needed for the first
    # time take up to 70.
    wait_until(lambda: used(pid) <= base + 96 * MB, what="the GPU's memory is back")


class Heard(Watcher):
    """Likewise, and all that it said."""

    def __init__(self, program: Program):
        self.all: list[dict[str, Any]] = []
        super().__init__(program, seen=0, wrong=0, step=0, right=None)

    def _listen(self) -> None:
        for line in iter(lambda: next_line(self.program), ""):
            self.all.append(json.loads(line))


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("way", WAYS)
def test_killed_viewers_leave_nothing(
        programs: Programs, wait_until: Callable[..., Any], tmp_path: Path, allocator: str, way: str) -> None:
    trainer = Trainer(programs, ALLOCATORS[allocator])
    quiet = ("until(lambda: not any(s.readers for s in publishing.begun().streams.values())); "
             "from splatview_ipc.control import descriptors; "
             "until(lambda: not any(t.startswith('fds-') for t in descriptors._offers)); "
             "answer = memory()")

    def live(name: str, viewers: int, killing: Callable[[list[Program]], None]) -> None:
        gate = tmp_path / name
        trainer.start(f"gate = {str(gate)!r}\n{FLAT_OUT}")
        for start in range(0, viewers, AT_ONCE):
            children = [programs.code(VIEWER, way, i) for i in range(start, min(start + AT_ONCE, viewers))]
            killing(children)
        gate.touch()
        assert trainer.finish() > 10

    def when_they_read(children: list[Program]) -> None:
        for child in children:
            assert json.loads(next_line(child))["sharing"] == way
            child.killed()

    def any_time(children: list[Program]) -> None:
        chance = random.Random(8)
        for number, child in enumerate(children):
            if number % 2:
                next_line(child)
            at_random(chance, 0.2)
            child.killed()

    trainer.do("scene = make(20_000, 1); splatview.publish(scene, step=0)")
    live("first", 2, when_they_read)
    allocated, base = trainer.do(quiet), footprint(trainer.process.pid)
    gpu = used(trainer.process.pid)
    live("second", KILLS, any_time)
    assert trainer.do(quiet) <= allocated
    settled(base, wait_until, trainer.process.pid, rss=64 * MB)
    back_to(gpu, trainer.process.pid, wait_until)
    assert trainer.do("answer = publishing.begun().control.counters()['faults']") == 0


@pytest.mark.parametrize("way", WAYS)
def test_killed_trainers_leave_the_last_frame(
        programs: Programs, wait_until: Callable[..., Any], way: str) -> None:
    """Also while the GPU is at it, whose work ends with them: what waits for that work waits for ever, or is told."""
    chance, base = random.Random(8), 0
    viewer = Heard(programs.code(MOURNER, way))
    try:
        for start in range(0, TRAINERS_KILLED, 4):
            children = [programs.code(DOOMED, way) for _ in range(4)]
            for child in children:
                assert next_line(child) == "ready"
            pids = {child.pid for child in children}
            wait_until(lambda pids=pids: pids <= {e["pid"] for e in viewer.all if "sharing" in e}, what="all are read")
            for child in children:
                at_random(chance, 0.02)
                child.killed()
            wait_until(lambda pids=pids: pids <= {e["pid"] for e in viewer.all if "ended" in e}, what="all ends told")
            if not start:
                base = used(viewer.program.pid)
        assert all(e["sharing"] == way for e in viewer.all if "sharing" in e)
        ends = [e for e in viewer.all if "ended" in e]
        assert len(ends) == TRAINERS_KILLED
        assert all(e["ended"] >= e["held"] for e in ends), "an older frame than the one that was seen"
        assert all(e["good"] for e in ends)
        back_to(base, viewer.program.pid, wait_until)
    finally:
        viewer.close()
