"""Viewers are stopped for up to a minute and continued: the trainer does not wait, and they then show the newest
frame."""

from __future__ import annotations

import json
import os
import signal
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.repetitions import exhaustive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.programs import Program, Programs


TRAINER = """
import json, os, resource, struct, sys, torch, splatview
from splatview import publishing
gate = open(sys.argv[1], "rb", buffering=0)
calls = waited = 0
while len(order := gate.read(8)) == 8:
    side, number = struct.unpack("ii", order)
    if side < 0:
        print(json.dumps({"calls": calls, "waited": waited,
                          "faults": publishing.begun().board.counters()["faults"]}), flush=True)
        continue
    if side:
        value, name = torch.full((side, side * 2, 3), number % 251, dtype=torch.uint8), "frames"
    else:
        value, name = torch.zeros(4 + number % 7, 5), f"changing {number % 20}"
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    splatview.publish(value, name, step=number)
    waited += resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw > before
    calls += 1
"""
"""Publishes what it is told to through the gate, whose path is its argument: a side and a step; 0 and a number: a
stream that looks different from the last time; -1: it tells its calls to publish, and how many had to wait."""

VIEWER = """
import sys, time
from splatview.ipc import Subscriber
hold = sys.argv[1] == "hold"
with Subscriber() as subscriber:
    last, held = 0, None

    def right(frame):
        pixels = frame.tensors["image"].array
        values = {int(pixels.min()), int(pixels.max())}
        return values == {frame.meta["step"] % 251}

    while True:
        subscriber.poll()
        for stream in subscriber.streams:
            if stream.name != "frames":
                continue
            stream.open()
            frame = stream.read(last)
            if frame is None:
                continue
            good = right(frame)
            if not frame.intact():
                continue
            last = frame.version
            kept = held is None or (held.intact() and right(held))
            print(frame.meta["step"], "right" if good and kept else "wrong", flush=True)
            if hold:
                if held is not None:
                    held.close()
                held = frame
            else:
                frame.close()
        time.sleep(0.001)
"""
"""Prints for each new frame its step, and whether its picture is that of the step. Argument: "hold": it keeps the
newest frame until there is a newer one, and looks whether it has stayed as it was; "look": it closes each."""

PICTURES = """
from splatview.viewer_app.app import App, AppOptions
from splatview.viewer_app.screens.offscreen import OffscreenScreen
app = App(OffscreenScreen(320, 200), AppOptions(max_fps=500, panel=False))
said = None
while True:
    app.turn()
    slot = app.seat.shown
    if slot is None or slot.view is None or slot.entry.name != "frames":
        continue
    value = int(app.screen.pixels()[100, 160, 0])
    if value != said:
        said = value
        print(value, "right", flush=True)
"""
"""The viewer as people start it. Prints the grey in the middle of its screen when it changes."""


class Reader:
    """A viewer, and what it has said."""

    def __init__(self, child: Program):
        self.child = child
        self.said: list[tuple[int, str]] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        for line in iter(self.child.line, ""):
            number, word = line.split()
            self.said.append((int(number), word))

    def has(self, number: int) -> bool:
        """Whether this is what it said last."""
        return bool(self.said) and self.said[-1][0] == number

    def close(self) -> None:
        self.child.kill()
        self._thread.join()


LOADED = "splatview.viewer_app.app", "splatview.viewer_app.shot"
"""What the programs has loaded."""


@pytest.fixture
def readers(programs: Programs) -> Iterator[dict[str, Reader]]:
    """By name: two that hold a frame and that look in, one with pictures, and one that is never stopped."""
    found = {"beside": Reader(programs.start(VIEWER, "look")), "hold": Reader(programs.start(VIEWER, "hold")),
             "look": Reader(programs.start(VIEWER, "look")), "pictures": Reader(programs.start(PICTURES))}
    yield found
    for reader in found.values():
        reader.close()


class Trainer:
    """Publishes a picture of one value at each step."""

    def __init__(self, child: Program, gate: Path):
        self.child = child
        self.step = 0
        self._gate = open(gate, "wb", buffering=0)

    def publish(self, side: int) -> None:
        """In a moment."""
        self.step += 1
        self._gate.write(struct.pack("ii", side, self.step))

    def change(self, number: int) -> None:
        """Publish something that looks different from what was there."""
        self._gate.write(struct.pack("ii", 0, number))

    def tell(self) -> dict[str, int]:
        self._gate.write(struct.pack("ii", -1, 0))
        return json.loads(self.child.line())

    @property
    def grey(self) -> int:
        return self.step % 251

    def close(self) -> None:
        self._gate.close()
        self.child.kill()


@pytest.fixture
def trainer(programs: Programs, tmp_path: Path) -> Iterator[Trainer]:
    os.mkfifo(tmp_path / "gate")
    started = Trainer(programs.start(TRAINER, tmp_path / "gate"), tmp_path / "gate")
    yield started
    started.close()


@pytest.mark.parametrize("seconds", [4.0, exhaustive(60.0)])
def test_stopped_for_a_minute(
        seconds: float, trainer: Trainer, readers: dict[str, Reader], wait_until: Callable[..., Any],
        capsys: pytest.CaptureFixture[str]) -> None:
    beside = readers["beside"]
    readers = {name: reader for name, reader in readers.items() if reader is not beside}
    trainer.publish(100)

    def all_see() -> bool:
        return all(r.has(trainer.grey if name == "pictures" else trainer.step) for name, r in readers.items())

    try:
        wait_until(lambda: all_see() and beside.has(trainer.step), what="the first picture everywhere")
        first, grey, begin = trainer.step, trainer.grey, time.monotonic()
        for reader in readers.values():
            reader.child.signal(signal.SIGSTOP)
        told = {name: len(r.said) for name, r in readers.items()}
        changes = 0
        # Greys repeat: the viewer with pictures has nothing to say of a newest frame that looks like its last.
        while time.monotonic() < begin + seconds or trainer.grey == grey:
            late = time.monotonic() > begin + seconds / 2
            trainer.publish(200 if late else 100)  # larger: it lies somewhere else from then on
            if trainer.step % 10 == 0 and changes < 2000:  # news of which their queues fill up
                trainer.change(changes)
                changes += 1
            wait_until(lambda: beside.has(trainer.step), what="the viewer beside sees each version")
        assert {name: len(r.said) for name, r in readers.items()} == told, "somebody was not stopped"
        for reader in readers.values():
            reader.child.signal(signal.SIGCONT)
        on = time.monotonic()
        wait_until(all_see, what="the newest frame everywhere")
        took = time.monotonic() - on
        steps = trainer.step - first
        assert [step for step, _ in beside.said] == list(range(1, trainer.step + 1))
        for name, reader in readers.items():
            assert all(word == "right" for _, word in reader.said), name
            newest = trainer.grey if name == "pictures" else trainer.step
            assert [number for number, _ in reader.said[told[name]:]] == [newest], "an older frame came first"
        told_last = trainer.tell()
    finally:
        for reader in readers.values():
            reader.child.signal(signal.SIGCONT)
    with capsys.disabled():
        print(f"\n{steps} versions, {changes} changes while three viewers were stopped, {told_last['waited']} calls "
              f"waited; the newest everywhere {took:.2f} s after they went on")
    assert told_last["calls"] == trainer.step + changes
    assert told_last["faults"] == 0
    assert told_last["waited"] * 100 <= told_last["calls"], "the 99th percentile of calls has waited"
