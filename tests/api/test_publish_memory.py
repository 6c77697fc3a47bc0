"""publish_memory: what it looks at, records and costs, and how it ends. On a GPU, tests/cuda has the rest."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.memory_cases import (  # noqa: F401
    PLACE,
    Reader,
    allocator_fixture,
    cache_fixture,
    meter,
    newest,
    reader_fixture,
    rows,
)
from support.memory_on_cpu import GIB, Allocator
from support.wait import PATIENCE

import splatview
from splatview import memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


# -- the call ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wrong", "words"), [
    ({"hz": 0}, "hz is 0; legal"), ({"hz": 1000.0}, "hz is 1000"), ({"hz": "fast"}, "hz is a str"),
    ({"hz": float("nan")}, "hz is nan"), ({"max_entries": 0}, "max_entries is 0"),
    ({"max_entries": 1.5}, "max_entries is a float"), ({"device": "tpu"}, "device is 'tpu'; legal"),
    ({"device": -1}, "device is -1"), ({"device": 2}, "there are 2 GPUs"), ({"device": 1.0}, "device is a float"),
    ({"device": "meta"}, "device is 'meta'"), ({"name": "a/b"}, "'/'"), ({"name": ""}, "0 characters"),
])
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any], words: str, allocator: Allocator) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        splatview.publish_memory(**wrong)
    assert words in str(caught.value)
    assert not memory._meters
    assert not allocator.recorded


@pytest.mark.parametrize("wrong", ["seven", None, [1], 1e300, 10**400, 2**60, float("nan")])
def test_a_step_must_be_a_number(wrong: Any, allocator: Allocator) -> None:
    splatview.publish_memory()
    if wrong is None:
        splatview.publish_memory(step=None)
        return
    with pytest.raises((TypeError, ValueError), match="step is"):
        splatview.publish_memory(step=wrong)


def test_a_name_that_shows_something_else_is_refused() -> None:
    splatview.publish(torch.zeros(4, 4), "x")
    with pytest.raises(ValueError, match="shows image"):
        splatview.publish_memory("x")
    with pytest.raises(ValueError, match="kind is 'memory'"):
        splatview.publish(torch.zeros(4, 4), "y", kind="memory")


def test_without_cuda_it_shows_the_hosts_memory(reader: Reader, wait_until: Callable[..., Any],
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[bool] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: bool(begun))  # whatever other tests began in this process
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: begun.append(True))
    for _ in range(5):
        splatview.publish_memory(hz=50)
    wait_until(lambda: len(reader.look().samples) > 3)
    assert reader.meta["device"] == "cpu"
    assert reader.meta["total"] == 0
    assert (reader.samples[:, PLACE["host"]] > 10_000_000).all()
    assert not reader.samples[:, PLACE["reserved"]].any()
    assert reader.samples[-1, PLACE["step"]] == 4
    assert abs(reader.samples[-1, 0] - time.time()) < 30
    reader.stream.request_snapshot()
    wait_until(lambda: "CUDA is not in use" in reader.look().meta["trouble"])
    assert reader.meta["snapshots"] == 0
    assert not begun


def test_it_shows_a_gpu_and_the_peaks_between_two_looks(allocator: Allocator, reader: Reader,
                                                         wait_until: Callable[..., Any]) -> None:
    allocator.current = 1
    splatview.publish_memory(hz=100, step=12)
    wait_until(lambda: newest("step") == 12)
    allocator.allocate(3 * GIB, gpu=1)
    allocator.allocate(-2 * GIB, gpu=1)
    wait_until(lambda: newest("allocated") == GIB and newest("peak") == GIB)
    assert rows()[:, PLACE["peak"]].max() == 3 * GIB
    assert newest("reserved") == 3 * GIB
    wait_until(lambda: reader.look().meta.get("device") == "cuda:1")
    assert reader.meta["gpu"] == "GPU 1"
    assert reader.meta["total"] == 80 * GIB
    np.testing.assert_array_equal(reader.samples, rows()[: len(reader.samples)])


def test_steps_are_counted_unless_they_are_named(allocator: Allocator, wait_until: Callable[..., Any]) -> None:
    splatview.publish_memory(hz=100)
    splatview.publish_memory()
    splatview.publish_memory()
    wait_until(lambda: newest("step") == 2)
    splatview.publish_memory(step=torch.tensor(40))  # type: ignore[arg-type]
    wait_until(lambda: newest("step") == 40)


def test_cuda_that_begins_later_is_noticed(allocator: Allocator, wait_until: Callable[..., Any]) -> None:
    allocator.begun = False
    splatview.publish_memory(hz=100)
    wait_until(lambda: len(rows()) > 2)
    assert newest("reserved") == 0
    assert not allocator.recorded
    allocator.begin()
    assert len(allocator.recorded) == 1  # with the first use, by the trainer's own thread
    allocator.allocate(GIB, gpu=1)
    wait_until(lambda: newest("reserved") == GIB)  # no call came: the one on which something is allocated
    assert meter()._about["device"] == "cuda:1"


def test_a_gpu_that_turns_out_not_to_be_there(allocator: Allocator, reader: Reader, caplog: pytest.LogCaptureFixture,
                                              wait_until: Callable[..., Any]) -> None:
    allocator.begun = False
    splatview.publish_memory(device=7, hz=100)
    allocator.begin()
    splatview.publish_memory()  # training goes on
    wait_until(lambda: "device is 7, and there are 2 GPUs" in reader.look().meta.get("trouble", ""))
    assert "device is 7" in caplog.text
    assert reader.meta["device"] == "cpu"


def test_each_gpu_has_a_stream_of_its_own(allocator: Allocator, wait_until: Callable[..., Any]) -> None:
    splatview.publish_memory("first", device=0, hz=100)
    splatview.publish_memory("second", device="cuda:1", hz=100)
    splatview.publish_memory("host", device="cpu", hz=100)
    allocator.allocate(GIB, 0)
    allocator.allocate(2 * GIB, 1)
    wait_until(lambda: newest("allocated", "first") == GIB and newest("allocated", "second") == 2 * GIB)
    assert newest("allocated", "host") == 0
    assert len(allocator.recorded) == len(allocator.observers) == 1
    assert [t.name for t in threading.enumerate()].count("splatview memory") == 1


# -- recording ---------------------------------------------------------------------------------------------------


def test_recording_is_switched_on_and_off_again(allocator: Allocator) -> None:
    splatview.publish_memory(max_entries=777)
    (enabled, more), = allocator.recorded
    assert enabled == "all"
    assert more["max_entries"] == 777
    assert more["stacks"] == "python"
    splatview.close()
    assert allocator.recorded[-1] == (None, {})
    assert len(allocator.recorded) == 2


def test_somebody_elses_recording_is_left_alone(allocator: Allocator) -> None:
    allocator.recording = True
    splatview.publish_memory()
    splatview.close()
    assert allocator.recorded == []


def test_without_record_nothing_is_recorded(allocator: Allocator) -> None:
    splatview.publish_memory(record=False)
    assert allocator.recorded == []
    splatview.close()
    assert allocator.recorded == []


def test_an_allocator_that_cannot_record_is_a_trouble(allocator: Allocator, monkeypatch: pytest.MonkeyPatch,
                                                       reader: Reader, wait_until: Callable[..., Any]) -> None:
    def refuse(*args: Any, **more: Any) -> None:
        raise RuntimeError("cudaMallocAsync does not yet support recordHistory")

    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", refuse)
    splatview.publish_memory(hz=50)
    wait_until(lambda: "does not yet support" in reader.look().meta.get("trouble", ""))
    assert len(reader.samples)


# -- its life ----------------------------------------------------------------------------------------------------


def test_close_ends_it_and_the_next_call_begins_anew(allocator: Allocator, wait_until: Callable[..., Any]) -> None:
    splatview.publish_memory(hz=50)
    wait_until(lambda: len(rows()) > 1)
    splatview.close()
    assert "splatview memory" not in [t.name for t in threading.enumerate()]
    splatview.close()
    splatview.publish_memory(hz=50)
    wait_until(lambda: len(rows()) > 1)
    assert len(allocator.observers) == 1  # PyTorch knows no way to take one back


def test_a_snapshot_that_was_taken_is_written_before_the_end(allocator: Allocator, cache: Path) -> None:
    splatview.publish_memory(hz=50)
    meter().wanted = True
    splatview.publish_memory()
    splatview.close()
    assert [p.name[-15:] for p in cache.iterdir()] == ["-1-asked.pickle"]


def test_disabled_it_does_nothing(allocator: Allocator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLATVIEW_DISABLE", "1")
    splatview.publish_memory()
    assert not memory._meters
    assert not allocator.recorded


def test_a_forked_child_has_none_of_it(programs: Any) -> None:
    program = """
import os, sys, time, warnings
warnings.simplefilter("ignore")
import splatview
from splatview import memory
splatview.publish_memory(hz=50)
time.sleep(0.2)
child = os.fork()
if child == 0:
    ok = not memory._meters
    splatview.publish_memory(hz=50)
    end = time.monotonic() + 240
    while time.monotonic() < end and len(memory._meters["memory"]._samples.rows) < 3:
        time.sleep(0.01)
    ok = ok and len(memory._meters["memory"]._samples.rows) >= 3
    splatview.close()
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
before = len(memory._meters["memory"]._samples.rows)
end = time.monotonic() + 240
while time.monotonic() < end and len(memory._meters["memory"]._samples.rows) < before + 3:
    time.sleep(0.01)
print("OK" if status == 0 and len(memory._meters["memory"]._samples.rows) >= before + 3 else "WRONG")
"""
    out, err = programs.code(program).communicate(timeout=PATIENCE)
    assert out.strip() == "OK", err


def test_a_fault_of_the_statistics_does_not_end_it(allocator: Allocator, monkeypatch: pytest.MonkeyPatch,
                                                   caplog: pytest.LogCaptureFixture,
                                                   wait_until: Callable[..., Any]) -> None:
    splatview.publish_memory(hz=100)
    wait_until(lambda: len(rows()) > 1)
    working = meter()._stats

    def fail(gpu: int) -> None:
        raise RuntimeError("the driver is gone")

    meter()._stats = fail
    wait_until(lambda: "the driver is gone" in caplog.text)
    meter()._stats = working
    count = len(rows())
    wait_until(lambda: len(rows()) > count)
