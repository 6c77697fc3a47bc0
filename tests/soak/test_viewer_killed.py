"""A viewer is killed at any point of its life, a hundred times, while the run publishes flat out: no call to `publish`
waits for it, and soon after nothing of it is left in the trainer."""

from __future__ import annotations

import json
import random
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from support.meters import footprint, settled
from support.repetitions import exhaustive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.programs import Program, Programs


AT_ONCE = 5
FEW = 30
"""Times that the publishing thread may have to wait for one viewer's coming and going, whatever it publishes
meanwhile: the helper thread answers a few messages, and holds the interpreter for each."""

TRAINER = """
import json, os, resource, signal, torch, splatview
from splatview import publishing
frame = torch.zeros(120, 160, 3, dtype=torch.uint8)
scene = {"means": torch.randn(300, 3), "quats": torch.randn(300, 4), "scales": torch.full((300, 3), -4.0),
         "opacities": torch.zeros(300), "sh0": torch.zeros(300, 1, 3)}
splatview.publish(frame, "frame")
splatview.publish(scene, "scene")
run = publishing.begun()
waits = calls = waited = 0

def tell(*_):
    streams = run.streams.values()
    stood = json.dumps({"calls": calls, "waits": waits, "waited": waited, "readers": sum(s.readers for s in streams),
                        "viewers": len(run._helper._viewers), "faults": run.board.counters()["faults"],
                        "leases": sum(any(run.board.leased(s.index)()) for s in streams),
                        "outlets": sum(len(s._outlets) for s in streams)})
    os.write(1, stood.encode() + b"\\n")  # `print` in a signal handler may interrupt another one

signal.signal(signal.SIGUSR1, tell)
print("ready", flush=True)
while True:
    for step in range(100):
        for value, name in ((frame, "frame"), (scene, "scene")):
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
            splatview.publish(value, name, step=step)
            more = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before
            calls, waits, waited = calls + 1, waits + more, waited + (more > 0)
"""
"""Tells how it stands at SIGUSR1: calls to publish, in how many of them its thread gave the processor away, and how
often."""

VIEWER = """
import os, signal, sys, time
import splatview.ipc.remote
from splatview.ipc import Subscriber
at, frames, namespace = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if namespace:
    splatview.ipc.remote.pid_namespace = lambda: namespace  # the trainer cannot watch the process then
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
"""Arguments: the line of code at which it kills itself when it comes there first (file:line, or "": it lives), how many
frames it reads, and the PID namespace that it claims to be in (0: the truth)."""

PICTURES = """
import sys
from splatview.viewer_app.app import App, AppOptions
from splatview.viewer_app.screens.offscreen import OffscreenScreen
print("screen", flush=True)
app = App(OffscreenScreen(640, 360), AppOptions(max_fps=500))
print("viewer", flush=True)
said = None
while True:
    app.turn()
    slot = app.seat.shown
    word = "picture" if slot is not None and slot.view is not None else "list" if app.catalogue.slots else None
    if word != said:
        said = word
        print(word, flush=True)
"""


@dataclass
class Trainer:
    child: Program

    def tell(self) -> dict[str, Any]:
        self.child.signal(signal.SIGUSR1)
        return json.loads(self.child.line())


LOADED = "splatview.viewer_app.app", "splatview.viewer_app.shot"
"""What the programs has loaded."""


@pytest.fixture
def trainer(programs: Programs) -> Iterator[Trainer]:
    child = programs.start(TRAINER)
    assert child.line() == "ready"
    yield Trainer(child)
    child.kill()


def quiet(trainer: Trainer, wait_until: Callable[..., Any]) -> dict[str, Any]:
    """Wait until the trainer has forgotten all viewers; how it stands then, and after how many seconds."""
    begin = time.monotonic()

    def forgotten() -> dict[str, Any] | None:
        told = trainer.tell()
        return None if told["viewers"] or told["readers"] or told["leases"] or told["outlets"] else told

    told = wait_until(forgotten, what="the trainer has forgotten all viewers")
    return {**told, "seconds": time.monotonic() - begin}


def lines_of_a_life(programs: Programs) -> list[str]:
    """Every line of code that a viewer comes by from its first to its last."""
    child = programs.start(VIEWER, "", 12, 0)
    lines = child.rest()
    assert child.wait() == 0
    return lines


@pytest.mark.parametrize("kills", [10, exhaustive(100)])
def test_killed_at_any_line_or_moment(
        kills: int, programs: Programs, trainer: Trainer, wait_until: Callable[..., Any],
        capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of_a_life(programs)
    for word in ("subscriber.py", "remote.py", "remote_stream.py", "board.py", "segments.py", "ways/slot_reader.py"):
        assert any(line.startswith(word) for line in lines), f"a viewer's life comes by no line of {word}"
    quiet(trainer, wait_until)
    base, before = footprint(trainer.child.pid), trainer.tell()
    chance = random.Random(8)
    where = [*chance.sample(lines, kills * 7 // 10), *[""] * (kills - kills * 7 // 10)]
    chance.shuffle(where)
    itself = 0
    for start in range(0, kills, AT_ONCE):
        viewers = [(programs.start(VIEWER, at, 12 if at else 10**9, 0), at) for at in where[start:start + AT_ONCE]]
        for viewer, at in viewers:
            if at:
                itself += viewer.wait() is None
            else:
                time.sleep(chance.uniform(0, 0.1))
                viewer.kill()
    after = quiet(trainer, wait_until)
    settled(base, wait_until, trainer.child.pid)
    calls, waits = after["calls"] - before["calls"], after["waits"] - before["waits"]
    with capsys.disabled():
        print(f"\n{kills} viewers killed, {itself} of them by themselves at a chosen line, forgotten after "
              f"{after['seconds']:.2f} s. {calls} calls to publish, {after['waited'] - before['waited']} waited, "
              f"{waits} times")
    assert itself >= kills // 2
    assert calls > 1000
    assert (after["waited"] - before["waited"]) * 100 <= calls, "the 99th percentile of calls has waited"
    assert waits <= FEW * kills
    assert after["faults"] == 0


@pytest.mark.parametrize("kills", [4, exhaustive(12)])
def test_killed_with_pictures(kills: int, programs: Programs, trainer: Trainer, wait_until: Callable[..., Any]) -> None:
    """The viewer as people start it: at its first words, with a list, with a picture, and between."""
    base, before = footprint(trainer.child.pid), trainer.tell()
    chance, stages = random.Random(8), ("screen", "viewer", "list", "picture")
    reached: list[str] = []
    for start in range(0, kills, AT_ONCE):
        viewers = [programs.start(PICTURES) for _ in range(min(AT_ONCE, kills - start))]
        for number, viewer in enumerate(viewers, start):
            while (said := viewer.line()) != stages[number % 4] and said != "picture":
                assert said
            reached.append(said)
            time.sleep(chance.uniform(0, 0.1))
            viewer.kill()
    assert "picture" in reached
    after = quiet(trainer, wait_until)
    settled(base, wait_until, trainer.child.pid)
    assert after["calls"] > before["calls"]
    assert after["waits"] - before["waits"] <= FEW * kills
    assert after["faults"] == 0


@pytest.mark.exhaustive
def test_killed_where_its_process_cannot_be_watched(
        programs: Programs, trainer: Trainer, wait_until: Callable[..., Any]) -> None:
    """A viewer in another container has another number there: its connection tells."""
    base = footprint(trainer.child.pid)
    viewers = [programs.start(VIEWER, "", 10**9, 1) for _ in range(4)]
    wait_until(lambda: trainer.tell()["readers"] == 8)
    for viewer in viewers:
        viewer.kill()
    quiet(trainer, wait_until)
    settled(base, wait_until, trainer.child.pid)
