"""publish_memory beside PyTorch's real allocator: its numbers, and its snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.memory_cases import COLUMN_INDEX, MemoryReader, newest, rows
from support.programs import Program, Programs
from support.wait import wait_until

import splatview
from splatview_ipc.control import memory_snapshots
from splatview_ipc.subscriber.subscriber import Subscriber
from splatview_viewer.snapshot.loading import load_snapshot
from splatview_viewer.snapshot.model import ACTIONS

pytestmark = pytest.mark.cuda

MIB = 2**20


@pytest.fixture(autouse=True)
def cuda_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    torch.zeros(1, device="cuda")
    yield
    splatview.close()
    torch.cuda.memory._record_memory_history(None)


@pytest.fixture
def reader() -> Iterator[MemoryReader]:
    with Subscriber() as subscriber:
        yield MemoryReader(subscriber)


def test_the_numbers_are_the_allocators(reader: MemoryReader) -> None:
    splatview.publish_memory(hz=100)
    allocation = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    wait_until(lambda: newest("allocated") == torch.cuda.memory_allocated())
    last_peak = torch.cuda.max_memory_allocated()
    # Freed sooner than the allocator's numbers are read.
    spike = torch.empty(last_peak + 300 * MIB, dtype=torch.uint8, device="cuda")
    peak = torch.cuda.memory_allocated()
    del spike
    wait_until(lambda: rows()[:, COLUMN_INDEX["peak"]].max() == peak)

    def is_over() -> bool:
        allocated = torch.cuda.memory_allocated()
        return newest("peak") == allocated and newest("allocated") == allocated

    wait_until(is_over)
    assert newest("reserved") == torch.cuda.memory_reserved()
    device = f"cuda:{torch.cuda.current_device()}"
    reader.wait_for_meta("device", device)
    assert reader.meta["gpu"] == torch.cuda.get_device_name()
    assert reader.meta["total"] == torch.cuda.get_device_properties(0).total_memory
    assert reader.meta["trouble"] == ""
    assert allocation.numel()


PROGRAM = """
import sys, time, torch, splatview
splatview.publish_memory(hz=50)
assert not torch.cuda.is_initialized()
def my_own_function():
    return torch.empty(5_000_000, dtype=torch.uint8, device="cuda")
kept = my_own_function()
assert torch._C._cuda_isHistoryEnabled()
print("allocated", flush=True)
sys.stdin.readline()
if sys.argv[1] == "fail":
    try:
        torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as e:
        print("caught", flush=True)
    sys.stdin.readline()
else:
    for step in range(200):
        splatview.publish_memory(step=step)
        time.sleep(0.05)
"""


def start_program(programs: Programs, mode: str, reader: MemoryReader) -> Program:
    """Start the program, and wait until its GPU is shown."""
    trainer = programs.code(PROGRAM, mode)
    assert trainer.line() == "allocated", trainer.end()[1]
    # Though no call came since CUDA is in use.
    reader.wait_for_meta("device", "cuda:0")
    reader.wait_for_least("allocated", 5_000_000)
    trainer.write_line()
    return trainer


def snapshot_of(reader: MemoryReader) -> tuple[Path, Any]:
    reader.wait_for_meta("snapshots", 1)
    path = memory_snapshots.find_snapshot(reader.meta["snapshot"])
    assert path is not None
    return path, load_snapshot(path)


def test_a_snapshot_that_a_viewer_asks_for(
    programs: Programs, reader: MemoryReader
) -> None:
    start_program(programs, "go on", reader)
    reader.wait_for_least("step", 5)
    reader.stream.request_snapshot()
    _, snapshot = snapshot_of(reader)
    assert {"step 3", "step 4"} <= {a.name for a in snapshot.annotations}
    trace = snapshot.traces[0]
    index = int(np.flatnonzero(trace.allocations.size == 5_000_000)[0])
    # It was recorded, though publish_memory came before CUDA.
    assert trace.allocations.start[index] >= 0
    assert trace.allocations.end[index] == len(trace.events)
    stack = snapshot.stack(int(trace.allocations.stack[index]))
    assert "my_own_function" in [frame.name for frame in stack]


def test_memory_that_runs_out(programs: Programs, reader: MemoryReader) -> None:
    trainer = start_program(programs, "fail", reader)
    assert trainer.line() == "caught"  # the exception is the trainer's as ever
    path, snapshot = snapshot_of(reader)
    assert reader.samples[-1, COLUMN_INDEX["ooms"]] >= 1
    assert path.name.endswith("-1-oom.pickle")
    events = snapshot.traces[0].events
    assert events.size[events.action == ACTIONS.index("oom")].tolist() == [1 << 44]
    trainer.write_line()
    _, errors = trainer.end()
    assert f"splatview memory {path}" in errors
    assert trainer.returncode == 0, errors
