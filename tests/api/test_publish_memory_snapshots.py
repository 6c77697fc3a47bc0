"""The samples that publish_memory keeps, and the full snapshots that it takes."""

from __future__ import annotations

import os
import pickle
import stat
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
)
from support.wait import PATIENCE

import splatview
from splatview import memory, recording
from splatview.adapt.memory import FINE, Samples
from splatview.ipc import messages, taken
from splatview.ipc.kinds import MEMORY_COLUMNS, MEMORY_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.memory_on_cpu import Allocator


# -- samples -----------------------------------------------------------------------------------------------------


def row(time: float, **values: float) -> list[float]:
    return [time if name == "time" else values.get(name, 0.0) for name in MEMORY_COLUMNS]


def test_rows_stay_few_and_lose_no_extreme() -> None:
    samples, rng = Samples(), np.random.default_rng(0)
    peaks, lows = rng.uniform(5, 6, 60_000), rng.uniform(3, 4, 60_000)
    peaks[777], lows[31_234] = 100.0, 0.5
    for i in range(60_000):
        samples.add(row(i / 10, step=i, allocated=4.5, peak=peaks[i], low=lows[i], ooms=i // 50_000))
        if i % 1000 == 0:
            assert len(samples.rows) <= MEMORY_ROWS
            assert samples.rows[:, PLACE["peak"]].max() == peaks[: i + 1].max()
            assert samples.rows[:, PLACE["low"]].min() == lows[: i + 1].min()
    kept = samples.rows
    when = np.rint(kept[:, 0] * 10).astype(int)
    assert (np.diff(when) > 0).all()
    np.testing.assert_array_equal(kept[:, PLACE["step"]], when)  # each row's last sample gives its time, step, counts
    np.testing.assert_array_equal(kept[:, PLACE["ooms"]], when // 50_000)
    np.testing.assert_array_equal(when[-FINE:], np.arange(60_000 - FINE, 60_000))  # the newest are all there
    spans = np.split(peaks, when[:-1] + 1)[: len(when)]
    np.testing.assert_array_equal(kept[:, PLACE["peak"]], [span.max() for span in spans])
    assert np.diff(when).max() <= 2 * 60_000 / 1024 + 1  # of what lies long ago about equally much is known everywhere


def test_rows_that_were_given_out_never_change() -> None:
    samples = Samples()
    for i in range(MEMORY_ROWS):
        samples.add(row(i, peak=i))
    given = samples.rows
    before = given.copy()
    for i in range(5000):
        samples.add(row(MEMORY_ROWS + i))
    np.testing.assert_array_equal(given, before)


def test_a_clock_that_is_set_back_breaks_nothing() -> None:
    samples, rng = Samples(), np.random.default_rng(1)
    for i in range(20_000):
        samples.add(row(float(rng.uniform(0, 1e6)), peak=i))
        assert len(samples.rows) <= MEMORY_ROWS
    assert samples.rows[:, PLACE["peak"]].max() == 19_999


# -- snapshots ---------------------------------------------------------------------------------------------------


def test_a_snapshot_that_a_viewer_asks_for(allocator: Allocator, reader: Reader, cache: Path,
                                           wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "PATIENCE", PATIENCE)  # until the call below
    for step in range(3):
        splatview.publish_memory(hz=50, step=step)
    wait_until(lambda: len(reader.look().samples))
    reader.stream.request_snapshot()
    wait_until(lambda: meter().wanted)
    splatview.publish_memory(step=3)  # taken at this call
    assert allocator.snapshots == 1
    wait_until(lambda: reader.look().meta["snapshots"] == 1)
    path = taken.find(reader.meta["snapshot"])
    assert path is not None
    assert path.parent == cache
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in cache.iterdir()] == [path.name]  # nothing half done is left
    written = pickle.loads(path.read_bytes())
    assert written["segments"] == allocator.snapshot()["segments"]
    names = [a["name"] for a in written["external_annotations"]]
    assert names == [f"step {i}" for i in range(4) for _ in range(2)]
    assert [a["stage"] for a in written["external_annotations"]] == ["START", "END"] * 4


def test_a_snapshot_does_not_wait_for_a_trainer_that_publishes_rarely(
        allocator: Allocator, reader: Reader, wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "REST", PATIENCE)
    splatview.publish_memory(hz=50)
    wait_until(lambda: len(reader.look().samples))
    reader.stream.request_snapshot()
    wait_until(lambda: reader.look().meta["snapshots"] == 1)
    reader.stream.request_snapshot()  # again at once: refused, it would stop the training over and over
    time.sleep(0.3)
    assert not meter().wanted


def test_only_those_who_look_can_ask(allocator: Allocator, reader: Reader, wait_until: Callable[..., Any]) -> None:
    splatview.publish_memory(hz=50)
    wait_until(lambda: len(reader.look().samples))
    reader.stream.release()
    reader.stream.request_snapshot()
    reader.stream.run._send(messages.Snapshot(reader.stream.info.index))
    time.sleep(0.3)
    assert not meter().wanted
    assert allocator.snapshots == 0


def test_memory_that_runs_out_is_written_down_at_once(allocator: Allocator, reader: Reader,
                                                      caplog: pytest.LogCaptureFixture,
                                                      wait_until: Callable[..., Any],
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "OOM_REST", PATIENCE)
    splatview.publish_memory(hz=1)
    wait_until(lambda: len(reader.look().samples))
    allocator.fail()
    name = meter()._meta["snapshot"]  # it has been published when the exception comes to the trainer
    assert name.endswith("-1-oom.pickle")
    assert newest("ooms") == 1
    assert f"splatview memory {taken.find(name)}" in caplog.text
    wait_until(lambda: reader.look().meta["snapshot"] == name)
    allocator.fail()  # and no second one so soon
    assert allocator.snapshots == 1
    assert newest("ooms") == 2
    run = name.removesuffix("-1-oom.pickle")
    assert taken.last_words(run, time.time() - 60) == taken.find(name)
    assert taken.last_words(run, time.time() + 60) is None
    assert taken.last_words(run[:-1], 0) is None


def test_a_run_is_dumped_a_few_times_only(allocator: Allocator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "OOM_REST", 0.0)
    splatview.publish_memory()
    for _ in range(10):
        allocator.fail()
    assert allocator.snapshots == recording.OOM_DUMPS


@pytest.mark.parametrize("what", ["snapshot", "folder", "close"])
def test_what_fails_while_memory_runs_out_reaches_nobody(what: str, allocator: Allocator, cache: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLATVIEW_STRICT", "1")
    splatview.publish_memory()

    def fail() -> None:
        raise RuntimeError("no")

    if what == "snapshot":
        monkeypatch.setattr(torch.cuda.memory, "_snapshot", fail)
    elif what == "folder":
        cache.parent.mkdir(parents=True)
        cache.write_text("not a folder")
    else:
        splatview.close()
    allocator.fail()
    if what != "close":
        assert meter()._meta["trouble"]


def test_the_last_few_snapshots_are_kept(cache: Path) -> None:
    folder = taken.make_folder()
    for i in range(12):
        path = folder / taken.name_of("run-1-ab", i, "asked")
        path.write_bytes(b"x")
        os.utime(path, (1000 + i, 1000 + i))
    (folder / "mine.txt").write_text("kept")
    taken.tidy()
    assert sorted(p.name for p in folder.iterdir()) == sorted(
        ["mine.txt", *(taken.name_of("run-1-ab", i, "asked") for i in range(4, 12))])


@pytest.mark.parametrize("name", ["", "../x-1-oom.pickle", "x-1-oom.pickle/..", "x-1-why.pickle", "/etc/passwd",
                                  ".x-1-oom.pickle", "a/b-1-oom.pickle", "x-1-oom.pickle\n",
                                  "x" * 70 + "-1-oom.pickle"])
def test_only_its_own_names_are_found(name: str) -> None:
    folder = taken.make_folder()
    (folder / ".x-1-oom.pickle").write_bytes(b"x")
    assert taken.find(name) is None


def test_links_and_folders_are_not_found(tmp_path: Path) -> None:
    folder = taken.make_folder()
    (tmp_path / "other").write_bytes(b"x")
    (folder / "run-1-oom.pickle").symlink_to(tmp_path / "other")
    (folder / "run-2-oom.pickle").mkdir()
    (folder / "run-3-oom.pickle").write_bytes(b"x")
    assert taken.find("run-1-oom.pickle") is None
    assert taken.find("run-2-oom.pickle") is None
    assert taken.find("run-3-oom.pickle") == folder / "run-3-oom.pickle"
    moved = folder.rename(tmp_path / "moved")
    folder.symlink_to(moved)
    assert taken.find("run-3-oom.pickle") is None


def test_what_a_killed_trainer_left_half_written_goes(cache: Path) -> None:
    folder = taken.make_folder()
    old, new, other = (folder / name for name in (".run-1-1-oom.pickle.part", ".run-1-2-oom.pickle.part", ".x.part"))
    for path in (old, new, other):
        path.write_bytes(b"half")
    for path in (old, other):
        then = time.time() - 2 * taken.STALE_S
        os.utime(path, (then, then))
    taken.tidy()
    assert not old.exists() and new.exists() and other.exists()


def test_a_recording_that_waits_for_cuda_is_not_begun_by_a_forked_child(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[int] = []
    monkeypatch.setattr(recording, "_observe", lambda: began.append(1))
    mine = recording.Recording("run", None, lambda: None)
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    with mine._lock:  # as the sampler's thread may hold it while the process forks
        mine.attach()
    assert not began and not mine.attached
    monkeypatch.undo()
