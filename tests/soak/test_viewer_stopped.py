"""Viewers are stopped and continued: the trainer does not wait, and they then show the newest frame."""

from __future__ import annotations

import json
import signal
import threading
from typing import TYPE_CHECKING

import pytest
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.programs import Program, Programs

TRAINER = """
import json, sys, torch, splatview
from splatview.api import session as publishing
calls = 0
for line in sys.stdin:
    side, number = map(int, line.split())
    if side < 0:
        print(json.dumps([calls, publishing.begun().control.counters()["faults"]]), flush=True)
        continue
    if side:
        value, name = torch.full((side, side * 2, 3), number % 251, dtype=torch.uint8), "frames"
    else:
        value, name = torch.zeros(4 + number % 7, 5), f"changing {number % 20}"
    splatview.publish(value, name, step=number)
    calls += 1
"""
"""Publishes what a line says: a side and a step; 0 and a number: a stream that looks different from the last time; -1:
it tells its calls to publish, and the faults that it met."""

VIEWER = """
import sys, time
from splatview_ipc.subscriber.subscriber import Subscriber
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
            kept = held is None or right(held) or not held.intact()
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
newest frame until there is a newer one, and looks whether it has stayed as it was or says that it was overwritten;
"look": it closes each."""

class Reader:
    """A viewer, and what it has said."""

    def __init__(self, program: Program):
        self.program = program
        self.said: list[tuple[int, str]] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        for line in self.program.stdout:
            number, word = line.split()
            self.said.append((int(number), word))

    def has(self, number: int) -> bool:
        """Whether this is what it said last."""
        return bool(self.said) and self.said[-1][0] == number

    def close(self) -> None:
        self.program.killed()
        self._thread.join()


@pytest.fixture
def readers(programs: Programs) -> Iterator[dict[str, Reader]]:
    """By name: one that holds a frame, one that looks in, and one that is never stopped."""
    found = {"beside": Reader(programs.code(VIEWER, "look")), "hold": Reader(programs.code(VIEWER, "hold")),
             "look": Reader(programs.code(VIEWER, "look"))}
    yield found
    for reader in found.values():
        reader.close()


def test_stopped_for_a_minute(programs: Programs, readers: dict[str, Reader]) -> None:
    """For as long as a thousand versions take, and two hundred streams that change."""
    trainer, step = programs.code(TRAINER), 1
    beside = readers["beside"]
    stopped = {name: reader for name, reader in readers.items() if reader is not beside}

    def all_see() -> bool:
        return all(r.has(step) for r in stopped.values())

    trainer.say("100 1")
    wait_until(lambda: all_see() and beside.has(1), what="the first picture everywhere")
    for reader in stopped.values():
        reader.program.send_signal(signal.SIGSTOP)
    told = {name: len(r.said) for name, r in stopped.items()}
    for step in range(2, 1001):
        trainer.say(f"{200 if step > 500 else 100} {step}")  # larger: it lies somewhere else from then on
        if step % 5 == 0:  # news of which their queues fill up
            trainer.say(f"0 {step}")
        wait_until(lambda n=step: beside.has(n), what="the viewer beside sees each version")
    assert {name: len(r.said) for name, r in stopped.items()} == told, "they are stopped"
    for reader in stopped.values():
        reader.program.send_signal(signal.SIGCONT)
    wait_until(all_see, what="the newest frame everywhere")
    trainer.say("-1 0")
    assert json.loads(trainer.line()) == [step + 200, 0]
    assert [number for number, _ in beside.said] == list(range(1, step + 1))
    for name, reader in stopped.items():
        assert all(word == "right" for _, word in reader.said), name
        assert len(reader.said) <= told[name] + 2, "the last of the ring that it knew, and the newest, no other"
