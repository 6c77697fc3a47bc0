"""Viewers are killed while a run publishes: it continues, and nothing of them is left."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
import torch
from support.meters import MB, footprint, settled
from support.programs import Programs
from support.trainers import ALLOCATORS, Trainer
from support.wait import at_random, wait_until

KILLS = 40
AT_ONCE = 10
FLAT_OUT = """
def flat_out(device, gate):
    step = 0
    while not os.path.exists(gate):
        step += 1
        fill(scene, step % 251)
        splatview.publish(scene, meta={"step": step})
        picture = torch.full((300, 400, 3), step % 251, dtype=torch.uint8, device=device)
        splatview.publish(picture, "image", meta={"step": step})
        if device == "cuda" and step % 50 == 0:
            torch.cuda.synchronize()
    return step
def quiet(device):
    from splatview_ipc.control import descriptors
    run = publishing.started_publisher()
    until(lambda: not any(s.readers or s.offer("ring") for s in run.streams.values()) and len(run.helper.fds()) <= 2)
    until(lambda: not any(token.startswith("fds-") for token in descriptors._offers))
    return memory() if device == "cuda" else 0
"""


@pytest.mark.parametrize(
    ("sharing", "allocator"),
    [
        ("ring", ""),
        *(
            pytest.param(sharing, allocator, marks=pytest.mark.cuda)
            for sharing in ("in-place", "device-ring")
            for allocator in ALLOCATORS.values()
        ),
    ],
)
def test_killed_viewers_leave_nothing(
    programs: Programs, tmp_path: Path, sharing: str, allocator: str
) -> None:
    trainer = Trainer(programs, allocator)
    chance = random.Random(8)
    device = "cuda"
    kernels_bytes = 64 * MB
    if sharing == "ring":
        device = "cpu"
        kernels_bytes = 16 * MB

    def live(name: str, viewers: int, longest_pause: float) -> None:
        """Kill viewers while the run publishes, half of them before they have read."""
        gate = tmp_path / name
        trainer.start(f"answer = flat_out({device!r}, {str(gate)!r})")
        for _ in range(0, viewers, AT_ONCE):
            started = [
                programs.python(
                    "-m",
                    "support.watcher",
                    "--ways",
                    sharing,
                    "--hold",
                    3,
                    "--period",
                    0.05,
                )
                for _ in range(min(viewers, AT_ONCE))
            ]
            for i, viewer in enumerate(started):
                if i % 2 or not longest_pause:
                    assert json.loads(viewer.line())["sharing"] == sharing
                at_random(chance, longest_pause)
                viewer.killed()
        gate.touch()
        assert trainer.finish() > 10

    def free() -> int:
        """Return the GPU's free bytes; 0 where tests of other workers use it, too."""
        if device == "cuda" and "PYTEST_XDIST_WORKER" not in os.environ:
            return torch.cuda.mem_get_info()[0]
        return 0

    trainer.do(
        FLAT_OUT
        + f"scene = make(20_000, 1, {device!r}); splatview.publish(scene, meta={{'step': 0}})"
    )
    live("first", 2, 0.0)
    allocated = trainer.do(f"answer = quiet({device!r})")
    base = footprint(trainer.process.pid)
    free_before = free()
    live("second", KILLS, 0.2)
    assert trainer.do(f"answer = quiet({device!r})") <= allocated
    settled(base, trainer.process.pid, rss=kernels_bytes)
    # The slots of a viewer take 2 MB at least, so that a hundred of them show up.
    # Kernels that are loaded late take up to 70 MB.
    wait_until(lambda: free() >= free_before - 96 * MB, "the GPU's memory is back")
    assert (
        trainer.do(
            "answer = publishing.started_publisher().control.counters()['faults']"
        )
        == 0
    )
