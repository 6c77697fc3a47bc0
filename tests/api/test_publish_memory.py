"""`publish_memory`: its samples, what it has PyTorch record, full snapshots, and its
end. tests/cuda has a real GPU.
"""

from __future__ import annotations

import os
import pickle
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.memory_cases import COLUMN_INDEX, MemoryReader, newest, rows
from support.memory_on_cpu import GIB, Allocator
from support.wait import PATIENCE_S, wait_until

import splatview
from splatview.adapters.series import Samples
from splatview.api import memory_recording
from splatview_ipc.control import memory_snapshots
from splatview_ipc.kinds.memory import MEMORY_COLUMNS, MEMORY_ROWS
from splatview_ipc.subscriber.subscriber import Subscriber

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give each test a cache folder, and yield the folder of snapshots in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    memory_recording.observe.cache_clear()
    yield tmp_path / "cache" / "splatview" / "snapshots" / "taken"
    splatview.close()


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    def put(owner: Any, name: str, value: Any) -> None:
        monkeypatch.setattr(owner, name, value, raising=False)

    return Allocator().install(put)


@pytest.fixture
def reader(subscriber: Subscriber) -> MemoryReader:
    return MemoryReader(subscriber)


def never() -> bool:
    return False


def wait_for_newest(column: str, value: float) -> None:
    wait_until(lambda: newest(column) == value)


def wait_for_samples(reader: MemoryReader, count: int = 1) -> None:
    wait_until(lambda: len(reader.poll().samples) >= count)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hz": "x"}, "hz is a str"),
        ({"max_entries": 0}, "max_entries is 0"),
        ({"device": "tpu"}, "device is 'tpu'"),
    ],
)
def test_mistakes_in_later_calls_are_named(
    arguments: dict[str, Any], message: str
) -> None:
    splatview.publish_memory(device="cpu", hz=1)
    for _ in range(2):
        with pytest.raises((TypeError, ValueError), match=message):
            splatview.publish_memory(**arguments)
    splatview.publish_memory(device="cpu", hz=2)


def test_publish_memory_samples_host_memory_without_cuda(
    reader: MemoryReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests may have initialised CUDA in this process.
    monkeypatch.setattr(torch.cuda, "is_initialized", never)
    for _ in range(5):
        splatview.publish_memory(hz=50)
    wait_for_samples(reader, 4)
    assert (reader.meta["device"], reader.meta["total"]) == ("cpu", 0)
    assert (reader.samples[:, COLUMN_INDEX["host"]] > 10_000_000).all()
    assert not reader.samples[:, COLUMN_INDEX["reserved"]].any()
    assert reader.samples[-1, COLUMN_INDEX["step"]] == 4
    reader.stream.request_snapshot()
    wait_until(lambda: "CUDA is not in use" in reader.poll().meta["trouble"])
    assert reader.meta["snapshots"] == 0


def test_publish_memory_samples_a_gpu_and_the_peaks_between_samples(
    allocator: Allocator, reader: MemoryReader
) -> None:
    allocator.current = 1
    splatview.publish_memory(hz=100, step=12)
    wait_for_newest("step", 12)
    allocator.allocate(3 * GIB, gpu=1)
    allocator.allocate(-2 * GIB, gpu=1)
    wait_until(lambda: newest("allocated") == newest("peak") == GIB)
    assert rows()[:, COLUMN_INDEX["peak"]].max() == 3 * GIB
    assert newest("reserved") == 3 * GIB
    reader.wait_for_meta("device", "cuda:1")
    assert (reader.meta["gpu"], reader.meta["total"]) == ("GPU 1", 80 * GIB)
    np.testing.assert_array_equal(reader.samples, rows()[: len(reader.samples)])


def test_cuda_that_starts_later_is_noticed(
    allocator: Allocator, reader: MemoryReader
) -> None:
    allocator.is_initialized = False
    splatview.publish_memory(hz=100)
    wait_until(lambda: len(rows()) > 2)
    assert newest("reserved") == 0
    assert not allocator.recorded
    allocator.initialize()
    # The trainer's own thread starts the recording with its first use of CUDA.
    assert len(allocator.recorded) == 1
    allocator.allocate(GIB, gpu=1)
    # The trainer made no further call: the GPU that has memory allocated is sampled.
    wait_for_newest("reserved", GIB)
    reader.wait_for_meta("device", "cuda:1")


def test_publish_memory_switches_recording_on_and_off(allocator: Allocator) -> None:
    splatview.publish_memory(max_entries=777)
    ((enabled, options),) = allocator.recorded
    assert enabled == "all"
    assert options["max_entries"] == 777
    assert options["stacks"] == "python"
    splatview.close()
    assert allocator.recorded[1:] == [(None, {})]
    allocator.recording = True  # Another library records.
    splatview.publish_memory()
    splatview.close()
    allocator.recording = False
    splatview.publish_memory(record=False)
    splatview.close()
    assert len(allocator.recorded) == 2


def test_snapshot_is_written_when_a_viewer_requests_it(
    allocator: Allocator, reader: MemoryReader, cache: Path
) -> None:
    for step in range(3):
        splatview.publish_memory(hz=50, step=step)
    wait_for_samples(reader)
    reader.stream.request_snapshot()
    reader.wait_for_meta("snapshots", 1)
    assert allocator.snapshots == 1
    path = memory_snapshots.find_snapshot(reader.meta["snapshot"])
    assert path is not None
    assert [stat.S_IMODE(p.stat().st_mode) for p in (cache, path)] == [0o700, 0o600]
    assert list(cache.iterdir()) == [path], "no temporary file is left"
    written = pickle.loads(path.read_bytes())
    assert written["segments"] == allocator.snapshot()["segments"]
    names = [a["name"] for a in written["external_annotations"]]
    assert names == [f"step {i}" for i in range(3) for _ in range(2)]
    assert [a["stage"] for a in written["external_annotations"]] == ["START", "END"] * 3


def test_snapshot_is_written_at_once_when_memory_runs_out(
    allocator: Allocator,
    reader: MemoryReader,
    cache: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_recording, "OOM_PERIOD_S", PATIENCE_S)
    splatview.publish_memory(hz=1)
    wait_for_samples(reader)
    allocator.fail()
    # It has been published when the exception reaches the trainer.
    assert newest("ooms") == 1
    (name,) = (path.name for path in cache.iterdir())
    assert name.endswith("-1-oom.pickle")
    assert f"splatview memory {memory_snapshots.find_snapshot(name)}" in caplog.text
    reader.wait_for_meta("snapshot", name)
    allocator.fail()
    assert allocator.snapshots == 1, "no second snapshot follows so soon"
    assert newest("ooms") == 2
    run = name.removesuffix("-1-oom.pickle")
    path = memory_snapshots.find_snapshot(name)
    assert memory_snapshots.newest_oom_snapshot(run, 0) == path


def test_last_few_snapshots_are_kept() -> None:
    names = [memory_snapshots.snapshot_name("run-1-ab", i, "asked") for i in range(12)]
    folder = memory_snapshots.write_snapshot(names[0], b"x").parent
    for i, name in enumerate([*names, "mine.txt"]):
        (folder / name).write_bytes(b"x")
        os.utime(folder / name, (1000 + i, 1000 + i))
    memory_snapshots.remove_old_snapshots()
    assert {p.name for p in folder.iterdir()} == {"mine.txt", *names[4:]}


def test_old_samples_share_rows_and_keep_their_peaks() -> None:
    samples = Samples()
    for i in range(3 * MEMORY_ROWS):
        row = dict.fromkeys(MEMORY_COLUMNS, 5.0) | {"time": i, "step": i}
        if i == 77:
            row["peak"] = 9.0
        if i == 88:
            row["low"] = 1.0
        samples.add([*row.values()])
    rows = samples.rows
    assert len(rows) <= MEMORY_ROWS
    assert rows[:, COLUMN_INDEX["peak"]].max() == 9
    assert rows[:, COLUMN_INDEX["low"]].min() == 1
    spans = np.diff(rows[:, COLUMN_INDEX["time"]])
    assert rows[-1, COLUMN_INDEX["time"]] == 3 * MEMORY_ROWS - 1
    assert spans.max() <= 16
    assert (spans[-1000:] == 1).all()
