"""Viewers are stopped and continued: the trainer does not wait for them."""

from __future__ import annotations

import json
import signal

from support.programs import Program, Programs
from support.trainers import Trainer

PUBLISHES = """
def publish(name, shape, step):
    splatview.publish(torch.full(shape, step % 251, dtype=torch.uint8), name, meta={"step": step})
"""


def next_step(reader: Program) -> int:
    """Return the step of the next frame that a viewer reports, with nothing wrong."""
    report = json.loads(reader.line())
    assert not report["wrong"], report
    return report["seen"]["frames"]


def test_publishing_continues_while_a_viewer_is_stopped(programs: Programs) -> None:
    """The stop lasts for a thousand versions and two hundred changes of streams."""
    trainer = Trainer(programs)
    step = 1
    trainer.do(PUBLISHES + "publish('frames', (100, 200, 3), 1)")
    # One viewer is never stopped, one holds a frame, and one holds none.
    running, *stopped = (
        programs.python("-m", "support.watcher", "--streams", "frames", "--hold", n)
        for n in (0, 1, 0)
    )
    assert [next_step(reader) for reader in (running, *stopped)] == [1, 1, 1]
    for reader in stopped:
        reader.send_signal(signal.SIGSTOP)
    for step in range(2, 1001):
        # Larger frames are stored somewhere else from then on.
        side = 100
        if step > 500:
            side = 200
        trainer.do(f"publish('frames', ({side}, {2 * side}, 3), {step})")
        # News of these fill up the queues of stopped viewers.
        if step % 5 == 0:
            trainer.do(f"publish('changing {step % 20}', ({4 + step % 7}, 5), {step})")
        assert next_step(running) == step, "the viewer beside sees each version"
    for reader in stopped:
        reader.send_signal(signal.SIGCONT)
        # A viewer may first report the last frame of the ring that it knew.
        if next_step(reader) != step:
            assert next_step(reader) == step
    assert (
        trainer.do(
            "answer = publishing.started_publisher().control.counters()['faults']"
        )
        == 0
    )
