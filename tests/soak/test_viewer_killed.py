"""A viewer is killed at any point of its life while the run publishes flat out: soon after nothing of it is left in the
trainer."""

from __future__ import annotations

import json
import random
import signal
from typing import TYPE_CHECKING, Any

import pytest
from support.meters import footprint, settled
from support.wait import at_random, wait_until

if TYPE_CHECKING:
    from support.programs import Program, Programs

AT_ONCE = 5

TRAINER = """
import json, os, signal, torch, splatview
from splatview.api import session as publishing
frame = torch.zeros(120, 160, 3, dtype=torch.uint8)
scene = {"means": torch.randn(300, 3), "quats": torch.randn(300, 4), "scales": torch.full((300, 3), -4.0),
         "opacities": torch.zeros(300), "sh0": torch.zeros(300, 1, 3)}
splatview.publish(frame, "frame")
splatview.publish(scene, "scene")
run = publishing.begun()
calls = 0

def tell(*_):
    streams = run.streams.values()
    stood = json.dumps({"calls": calls, "readers": sum(s.readers for s in streams),
                        "sockets": len(run.helper.fds()), "faults": run.control.counters()["faults"],
                        "offers": sum(s.offer("ring") is not None for s in streams)})
    os.write(1, stood.encode() + b"\\n")  # `print` in a signal handler may interrupt another one

signal.signal(signal.SIGUSR1, tell)
print("ready", flush=True)
while True:
    for step in range(100):
        for value, name in ((frame, "frame"), (scene, "scene")):
            splatview.publish(value, name, step=step)
            calls += 1
"""
"""Tells how it stands at SIGUSR1."""

VIEWER = """
import os, signal, sys, time
from splatview_ipc.subscriber.subscriber import Subscriber
at, frames = sys.argv[1], int(sys.argv[2])
seen = {}

def trace(frame, event, arg):
    where = frame.f_code.co_filename.rpartition("/ipc/")[2] + ":" + str(frame.f_lineno)
    if where not in seen:
        if "/ipc/" not in frame.f_code.co_filename:
            return None
        seen[where] = 1
        if where == at:
            os.kill(os.getpid(), signal.SIGKILL)
    return trace

sys.settrace(trace)
with Subscriber() as subscriber:
    held = []
    while frames > 0:
        subscriber.poll()
        for stream in subscriber.streams:
            stream.open()
            frame = stream.read()
            if frame is not None:
                frames -= 1
                held.append(frame)
                if len(held) > 3:
                    held.pop(0).close()
                if frames == 4:
                    stream.release()
        time.sleep(0.001)
sys.settrace(None)
print("\\n".join(seen), flush=True)
"""
"""Arguments: the line of code at which it kills itself when it comes there first (file:line, or "": it lives), and how
many frames it reads."""

class Trainer:
    def __init__(self, program: Program):
        self.program = program

    def tell(self) -> dict[str, Any]:
        self.program.send_signal(signal.SIGUSR1)
        return json.loads(self.program.line())

    def quiet(self) -> dict[str, Any]:
        """Wait until it has forgotten all viewers; how it stands then."""
        def forgotten() -> dict[str, Any] | None:
            told = self.tell()
            return None if told["sockets"] > 2 or told["readers"] or told["offers"] else told

        return wait_until(forgotten, what="the trainer has forgotten all viewers")


@pytest.fixture
def trainer(programs: Programs) -> Trainer:
    program = programs.code(TRAINER)
    assert program.line() == "ready"
    return Trainer(program)


def test_killed_at_any_line_or_moment(programs: Programs, trainer: Trainer) -> None:
    """At a line of its code, chosen among all that it comes by in its life, or at any moment."""
    lines = programs.code(VIEWER, "", 12).end()[0].split()
    assert len(lines) > 500 and any("slot_reader" in line for line in lines)
    base, before, chance, itself, kills = footprint(trainer.program.pid), trainer.quiet(), random.Random(8), 0, 40
    where = [*(chance.choice(lines) for _ in range(kills // 2)), *[""] * (kills // 2)]
    chance.shuffle(where)
    for start in range(0, kills, AT_ONCE):
        viewers = [(programs.code(VIEWER, at, 12 if at else 10**9), at) for at in where[start:start + AT_ONCE]]
        for viewer, at in viewers:
            if at:
                viewer.end()
                itself += viewer.returncode == -signal.SIGKILL
            else:
                at_random(chance, 0.5)
                viewer.close()
    after = trainer.quiet()
    settled(base, wait_until, trainer.program.pid)
    assert itself >= kills // 3
    assert after["calls"] > before["calls"]
    assert after["faults"] == 0
