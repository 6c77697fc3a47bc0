"""Viewers are stopped and continued: the trainer does not wait, and they then show the
newest frame.
"""

from __future__ import annotations

import json
import signal

from support.programs import Program, Programs
from support.trainers import Trainer

PUBLISHES = """
def publish(name, shape, step):
    splatview.publish(torch.full(shape, step % 251, dtype=torch.uint8), name, meta={"step": step})
"""


def seen(reader: Program) -> int:
    """Return the step of the next frame that a viewer tells of; nothing was wrong."""
    told = json.loads(reader.line())
    assert not told["wrong"], told
    return told["seen"]["frames"]


def test_publishing_continues_while_a_viewer_is_stopped(programs: Programs) -> None:
    """For as long as a thousand versions take, and two hundred streams that change."""
    trainer = Trainer(programs)
    step = 1
    trainer.do(PUBLISHES + "publish('frames', (100, 200, 3), 1)")
    # One that is never stopped, one that holds a frame, and one that looks in.
    beside, *stopped = (
        programs.python("-m", "support.watcher", "--streams", "frames", "--hold", n)
        for n in (0, 1, 0)
    )
    assert [seen(reader) for reader in (beside, *stopped)] == [1, 1, 1]
    for reader in stopped:
        reader.send_signal(signal.SIGSTOP)
    for step in range(2, 1001):
        # larger: it is stored somewhere else from then on
        if step > 500:
            side = 200
        else:
            side = 100
        trainer.do(f"publish('frames', ({side}, {2 * side}, 3), {step})")
        if step % 5 == 0:  # news of which their queues fill up
            trainer.do(f"publish('changing {step % 20}', ({4 + step % 7}, 5), {step})")
        assert seen(beside) == step, "the viewer beside sees each version"
    for reader in stopped:
        reader.send_signal(signal.SIGCONT)
        assert seen(reader) == step or seen(reader) == step, (
            "after the last of the ring that it knew, the newest"
        )
    assert trainer.do("answer = publishing.begun().control.counters()['faults']") == 0
