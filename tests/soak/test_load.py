"""A trainer takes up no more after a million publishes, or thousands of new tensors
beside a viewer.
"""

from __future__ import annotations

import json
from typing import Any

from support.meters import MB, Footprint, footprint, settled
from support.programs import Program, Programs
from support.trainers import Trainer

SLACK_BYTES = 4 * MB
"""A million publishes that left 8 bytes each would be twice as much."""

ALONE = """
import numpy as np
one, array = torch.full((48, 64, 3), 7, dtype=torch.uint8), np.zeros((20, 30, 3), np.uint8)
many = {name: torch.zeros(300, *shape) for name, shape in SHAPES.items()}
def block():
    for number in range(100_000):
        kind = number & 7
        if kind < 3:
            splatview.publish(one, "still", meta={"step": number})
        elif kind < 5:
            splatview.publish(many, "scene", meta={"step": number})
        elif kind < 6:
            splatview.publish(array, "array")
        else:
            splatview.publish(one[:], "fresh")
"""

FRESH = """
steps = {}
def put(name, filled):
    step = steps[name] = steps.get(name, 0) + 1
    splatview.publish(filled(float(step % 251)), name, meta={"step": step})
def call(n):
    if n % 3:
        put("picture", lambda value: torch.full((8 + n % 97, 8 + n % 89, 3), value).to(torch.uint8))
    else:
        put("grey", lambda value: torch.full((8 + n % 61, 70), value))
    put("scene", lambda value: {name: torch.full((n % 1009, *shape), value) for name, shape in SHAPES.items()})
def block():
    for n in range(500):
        call(n)
def all_read():
    call(7)
    return publishing.started_publisher().control.counters()["copies"] >= 10 and all(
        s.readers for s in publishing.started_publisher().streams.values())
for n in range(1010):  # the largest of all is among them
    call(n)
until(all_read)
answer = steps
"""


def blocks(trainer: Trainer, **slack: int) -> dict[str, Any]:
    """Publish in ten blocks; a trainer takes up no more after any of them than after
    the first. Its counters then.
    """
    first: tuple[Footprint, int] | None = None
    counters: dict[str, Any] = {}
    for i in range(10):
        counters, objects = trainer.do(
            "block(); gc.collect(); answer = publishing.started_publisher().control.counters(), "
            "len(gc.get_objects())",
            300,
        )
        now = footprint(trainer.process.pid)
        first = first or (now, objects)
        assert now.growth_over(first[0], rss=SLACK_BYTES, **slack) == {}, i
        assert objects <= first[1] + 200, i
        assert counters["faults"] == 0
    return counters


def wait_for_steps(reader: Program, steps: dict[str, int]) -> None:
    """Wait until a reader has reported these steps of streams, and nothing wrong."""
    while True:
        line = reader.line()
        assert line, reader.end()[1]
        report = json.loads(line)
        assert not report["wrong"], report
        if all(report["seen"].get(name, 0) >= step for name, step in steps.items()):
            return


def test_million_publishes_without_a_viewer_use_no_more_memory(
    programs: Programs,
) -> None:
    trainer = Trainer(programs)
    trainer.do(ALONE)
    assert blocks(trainer)["copies"] == 0
    # The one segment is the control block.
    assert footprint(trainer.process.pid).segments == 1


def test_ten_thousand_new_shapes_leave_nothing_behind(programs: Programs) -> None:
    trainer = Trainer(programs)
    reader = programs.python("-m", "support.watcher", "--period", "0.1")
    wait_for_steps(reader, dict.fromkeys(trainer.do(FRESH, 60), 1))
    base = footprint(reader.pid)
    blocks(trainer, segment_bytes=8 * MB)
    wait_for_steps(reader, trainer.do("answer = steps"))
    settled(base, reader.pid, rss=8 * MB, segment_bytes=8 * MB)
