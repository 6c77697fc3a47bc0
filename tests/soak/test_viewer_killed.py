"""A viewer is killed at any point of its life while the run publishes flat out: soon after nothing of it is left in the
trainer."""

from __future__ import annotations

import random
import signal
from typing import TYPE_CHECKING, Any

from support.meters import footprint, settled
from support.trainers import Trainer
from support.wait import at_random, wait_until

if TYPE_CHECKING:
    from support.programs import Programs

ROUNDS = 8

FLAT_OUT = """
frame = torch.zeros(120, 160, 3, dtype=torch.uint8)
scene = {"means": torch.randn(300, 3), "quats": torch.randn(300, 4), "scales": torch.full((300, 3), -4.0),
         "opacities": torch.zeros(300), "sh0": torch.zeros(300, 1, 3)}
calls = 0
def publish():
    global calls
    splatview.publish(frame, "frame", step=calls)
    splatview.publish(scene, "scene", step=calls)
    calls += 1
def tell():
    run = publishing.begun()
    streams = run.streams.values()
    return {"calls": calls, "readers": sum(s.readers for s in streams), "sockets": len(run.helper.fds()),
            "faults": run.control.counters()["faults"], "offers": sum(s.offer("ring") is not None for s in streams)}
def loop():
    while True:
        publish()
publish()
threading.Thread(target=loop, daemon=True).start()
"""

VIEWER = """
import os, signal, sys, time
from splatview_ipc.subscriber.subscriber import Subscriber
left, frames, ran = int(sys.argv[1]), int(sys.argv[2]), 0

def trace(frame, event, arg):
    global ran
    if "/ipc/" not in frame.f_code.co_filename:
        return None
    ran += 1
    if ran == left:
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
print(ran, flush=True)
"""
"""Arguments: how many lines of ours it runs before it kills itself (0: it lives), and how many frames it reads. It
tells the lines of its whole life."""


def test_killed_at_any_line_or_moment(programs: Programs) -> None:
    """At a line of its code, any of its life, or at any moment."""
    trainer, chance = Trainer(programs), random.Random(8)
    trainer.do(FLAT_OUT)

    def forgotten() -> dict[str, Any] | None:
        """How the trainer stands when it has forgotten all viewers."""
        told = trainer.do("answer = tell()")
        return None if told["sockets"] > 2 or told["readers"] or told["offers"] else told

    lines, itself = int(programs.code(VIEWER, 0, 12).end()[0]), 0
    before, base = wait_until(forgotten), footprint(trainer.process.pid)
    for _ in range(ROUNDS):
        at_a_line = [programs.code(VIEWER, chance.randint(1, lines // 2), 12) for _ in range(3)]
        at_a_moment = [programs.code(VIEWER, 0, 10**9) for _ in range(2)]
        for viewer in at_a_line:
            viewer.end()
            itself += viewer.returncode == -signal.SIGKILL
        for viewer in at_a_moment:
            at_random(chance, 0.5)
            viewer.close()
    after = wait_until(forgotten, what="the trainer has forgotten all viewers")
    settled(base, trainer.process.pid)
    assert itself >= 2 * ROUNDS, itself
    assert after["calls"] > before["calls"] and after["faults"] == 0
