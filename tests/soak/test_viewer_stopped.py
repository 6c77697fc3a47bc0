"""Viewers are stopped and continued: the trainer does not wait, and they then show the newest frame."""

from __future__ import annotations

import json
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.trainers import Trainer
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.programs import Program, Programs

PUBLISHES = """
calls = 0
def publish(name, shape, step):
    global calls
    calls += 1
    splatview.publish(torch.full(shape, step % 251, dtype=torch.uint8), name, step=step)
"""


class Reader:
    """A viewer, and what it has told of each frame."""

    def __init__(self, programs: Programs, hold: int) -> None:
        self.program: Program = programs.python("-m", "support.watcher", "--streams", "frames", "--hold", hold)
        self.told: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        for line in self.program.stdout:
            self.told.append(json.loads(line))

    @property
    def steps(self) -> list[int]:
        return [told["seen"]["frames"] for told in list(self.told)]

    def has(self, step: int) -> bool:
        """Return whether this is what it told last."""
        return self.steps[-1:] == [step]

    def close(self) -> None:
        self.program.killed()
        self._thread.join()


@pytest.fixture
def readers(programs: Programs) -> Iterator[list[Reader]]:
    """One that is never stopped, one that holds a frame, and one that looks in."""
    found = [Reader(programs, hold) for hold in (0, 1, 0)]
    yield found
    for reader in found:
        reader.close()


def test_stopped_for_a_minute(programs: Programs, readers: list[Reader]) -> None:
    """For as long as a thousand versions take, and two hundred streams that change."""
    trainer, (beside, *stopped) = Trainer(programs), readers
    trainer.do(PUBLISHES + "publish('frames', (100, 200, 3), 1)")
    wait_until(lambda: all(r.has(1) for r in readers), what="the first picture everywhere")
    for reader in stopped:
        reader.program.send_signal(signal.SIGSTOP)
    before, step = [len(r.told) for r in stopped], 1
    for step in range(2, 1001):
        side = 200 if step > 500 else 100  # larger: it is stored somewhere else from then on
        trainer.do(f"publish('frames', ({side}, {2 * side}, 3), {step})")
        if step % 5 == 0:  # news of which their queues fill up
            trainer.do(f"publish('changing {step % 20}', ({4 + step % 7}, 5), {step})")
        wait_until(lambda n=step: beside.has(n), what="the viewer beside sees each version")
    assert [len(r.told) for r in stopped] == before, "they are stopped"
    for reader in stopped:
        reader.program.send_signal(signal.SIGCONT)
    wait_until(lambda: all(r.has(step) for r in stopped), what="the newest frame everywhere")
    assert trainer.do("answer = calls, publishing.begun().control.counters()['faults']") == [step + 200, 0]
    assert beside.steps == list(range(1, step + 1))
    assert not any(reader.told[-1]["wrong"] for reader in readers)
    for reader, told in zip(stopped, before, strict=True):
        assert len(reader.told) <= told + 2, "the last of the ring that it knew, and the newest, no other"
