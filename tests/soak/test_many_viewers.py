"""Many viewers come and go; several watch one run, one watches several; some are killed: the others see nothing of it,
and none reads memory that has come to hold something else."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from support.meters import footprint, settled
from support.programs import Program, Programs, Watcher
from support.soak import Stopwatch, at_random, next_line
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VIEWERS = RUNS = 6

TRAINER = """
import sys, time, torch, splatview
name, side, nap = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
step = int(sys.argv[4])
frame = torch.zeros(side, side, 3, dtype=torch.uint8)
scene = {"means": torch.zeros(500, 3), "quats": torch.zeros(500, 4), "scales": torch.zeros(500, 3),
         "opacities": torch.zeros(500), "sh0": torch.zeros(500, 1, 3)}
while True:
    frame.fill_(step % 251)
    for tensor in scene.values():
        tensor.fill_(step)
    splatview.publish(frame, "frame", step=step)
    splatview.publish(scene, "scene", step=step)
    if step == int(sys.argv[4]):
        print("ready", flush=True)
    step += 1
    if nap:
        time.sleep(nap)
"""
"""Publishes an image and a scene of one value each. Arguments: a name, the image's side, seconds between two versions,
the first step."""

LOOK = """
import json, random, sys, time
import numpy as np
from splatview.ipc import Subscriber

def right(frame):
    "Whether everything in it is of the step that its metadata name; None: it was written over, and says so."
    step = frame.meta["step"]
    good = all(bool(np.all(t.array == (step % 251 if name == "image" else np.float32(step))))
               for name, t in frame.tensors.items())
    return good if frame.intact() else None
"""

CYCLE = LOOK + """
sys.stdin = None
for cycle in range(int(sys.argv[1])):
    with Subscriber() as subscriber:
        wanted = {"frame", "scene"}
        while wanted:
            subscriber.poll()
            for stream in subscriber.streams:
                stream.open()
                frame = stream.read()
                if frame is not None and stream.name in wanted:
                    assert right(frame), (cycle, stream.name, frame.meta)
                    wanted.discard(stream.name)
                    if cycle % 3:
                        frame.close()
            time.sleep(0.0005)
    del frame, stream
    if cycle in (20, int(sys.argv[1]) - 1):
        print(cycle, flush=True)
time.sleep(1e6)
"""
"""Attaches, reads both streams and detaches, so often; says when it has warmed up, and when it is done."""

WATCH = LOOK + """
chance = random.Random(int(sys.argv[1]))
with Subscriber() as subscriber:
    held, seen, wrong, over, last = [], 0, 0, 0, {}
    told = time.monotonic()
    while True:
        subscriber.poll()
        for stream in subscriber.streams:
            stream.open()
            key = stream.run.pid, stream.name
            frame = stream.read(last.get(key, 0))
            if frame is not None and stream.run.alive:
                good = right(frame)
                wrong += good is False or frame.version <= last.get(key, 0)
                over += good is None
                seen += 1
                last[key] = frame.version
                held.append((frame, time.monotonic() + chance.uniform(0, 0.1)))
        for frame, until in list(held):
            if time.monotonic() >= until:  # what was held for a while is still the same
                good = right(frame)
                wrong += good is False
                held.remove((frame, until))
                frame.close()
        if time.monotonic() >= told:
            told += 0.05
            counts = {}
            for (pid, name), version in last.items():
                counts[str(pid)] = max(counts.get(str(pid), 0), version)
            print(json.dumps({"seen": seen, "wrong": wrong, "over": over, "runs": counts}), flush=True)
        time.sleep(chance.uniform(0, 0.003))
"""
"""Reads everything of all runs and holds it for a while; says twenty times a second how many it has seen, how many of
them were not what they say, and by process the newest version."""


@pytest.fixture
def watch(programs: Programs) -> Iterator[Callable[[int], Watcher]]:
    watchers: list[Watcher] = []

    def begin(seed: int) -> Watcher:
        watchers.append(Watcher(programs.code(WATCH, seed), seen=0, wrong=0, over=0, runs={}))
        return watchers[-1]

    yield begin
    for watcher in watchers:
        watcher.close()


def start(programs: Programs, *args: Any) -> Program:
    trainer = programs.code(TRAINER, *args)
    assert next_line(trainer) == "ready"
    return trainer


def test_hundreds_come_and_go(programs: Programs) -> None:
    trainer = start(programs, "one", 100, 0.002, 1)
    viewer = programs.code(CYCLE, 520)
    assert next_line(viewer) == "20"
    # What one viewer that is there takes is not counted: between two there may be one, or none.
    room = {"descriptors": 16, "segments": 8, "segment_bytes": 4 << 20, "threads": 2}
    base, mine, clock = footprint(trainer.pid), footprint(viewer.pid), Stopwatch()
    assert next_line(viewer) == "519", viewer.stderr.read() if viewer.poll() is not None else ""
    print(f"\n500 viewers one after another in {clock}; trainer {footprint(trainer.pid)}")
    settled(base, wait_until, trainer.pid, **room)
    settled(mine, wait_until, viewer.pid, **room)


def test_several_on_one_run_while_others_are_killed(programs: Programs, watch: Callable[[int], Watcher]) -> None:
    trainer = start(programs, "one", 200, 0.001, 1)
    watchers = [watch(i) for i in range(VIEWERS)]
    wait_until(lambda: all(w.said["seen"] > 20 for w in watchers), what="all see it")
    chance = random.Random(8)
    for i in range(12):
        other = programs.code(WATCH, 100 + i)  # it gets the place of one that was there before, with its leases
        at_random(chance, 0.5)
        other.close()
    watchers.pop().close()
    before = [w.said["seen"] for w in watchers]
    wait_until(lambda: all(w.said["seen"] > b + 50 for w, b in zip(watchers, before, strict=True)),
               what="the others go on")
    assert [w.said["wrong"] for w in watchers] == [0] * len(watchers)
    assert trainer.poll() is None
