"""Viewers that read GPU memory are killed at any moment: the trainer goes on, and all memory comes back."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest
import torch
from support.meters import MB, footprint, settled
from support.trainers import ALLOCATORS, Trainer
from support.wait import at_random, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from support.programs import Programs

pytestmark = pytest.mark.cuda

KILLS = 20
"""Viewers that are killed for each way and allocator."""
AT_ONCE = 10
WAYS = ("in-place", "device-ring")

FLAT_OUT = """
import os
step = 0
while not os.path.exists(gate):
    step += 1
    fill(scene, step % 251)
    splatview.publish(scene, step=step)
    splatview.publish(torch.full((300, 400, 3), step % 251, dtype=torch.uint8, device="cuda"), "image", step=step)
    if step % 50 == 0:
        torch.cuda.synchronize()
torch.cuda.synchronize()
answer = step
"""


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("way", WAYS)
def test_killed_viewers_leave_nothing(programs: Programs, tmp_path: Path, allocator: str, way: str) -> None:
    trainer = Trainer(programs, ALLOCATORS[allocator])
    quiet = ("until(lambda: not any(s.readers for s in publishing.begun().streams.values())); "
             "from splatview_ipc.control import descriptors; "
             "until(lambda: not any(t.startswith('fds-') for t in descriptors._offers)); "
             "answer = memory()")

    def live(name: str, viewers: int, most: float) -> None:
        """Kill so many viewers while it publishes, half of them before they have read."""
        gate, chance = tmp_path / name, random.Random(8)
        trainer.start(f"gate = {str(gate)!r}\n{FLAT_OUT}")
        for _ in range(0, viewers, AT_ONCE):
            for number, viewer in enumerate([
                    programs.python("-m", "support.watcher", "--ways", way, "--hold", 3, "--period", 0.05)
                    for _ in range(min(viewers, AT_ONCE))]):
                if number % 2 or not most:
                    assert json.loads(viewer.line())["sharing"] == way
                at_random(chance, most)
                viewer.killed()
        gate.touch()
        assert trainer.finish() > 10

    trainer.do("scene = make(20_000, 1); splatview.publish(scene, step=0)")
    live("first", 2, 0.0)
    allocated, base = trainer.do(quiet), footprint(trainer.process.pid)
    free = torch.cuda.mem_get_info()[0]
    live("second", KILLS, 0.2)
    assert trainer.do(quiet) <= allocated
    settled(base, trainer.process.pid, rss=64 * MB)
    # A viewer's slots take 2 MB at least: a hundred of them are seen. Kernels that are loaded late take up to 70.
    wait_until(lambda: torch.cuda.mem_get_info()[0] >= free - 96 * MB, "the GPU's memory is back")
    assert trainer.do("answer = publishing.begun().control.counters()['faults']") == 0
