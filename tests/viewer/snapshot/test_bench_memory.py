"""The generator of memory snapshots against PyTorch's tools and a replay; the check of the benchmark's answers."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest
from torch.cuda import _memory_viz

from benchmarks.memory import answers
from benchmarks.memory.reference import live_bytes
from benchmarks.memory.traces import write_trace
from splatview_viewer.kinds.snapshot.loading import from_pickled
from splatview_viewer.kinds.snapshot.timeline.bands import Bands

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two devices; the last allocation fails."""
    path = tmp_path_factory.mktemp("traces") / "trace.pickle"
    write_trace(path, 2_001, devices=2, layers=2, oom=True)
    return path


def test_traces_are_what_torchs_tools_and_a_replay_read(trace: Path) -> None:
    snapshot = pickle.loads(trace.read_bytes())
    assert "total_reserved" in _memory_viz.segsum(snapshot)  # it checks that segments add up
    assert "adam.py:185:_init_group" in _memory_viz.memory(snapshot, lambda text: text)
    assert sum(map(len, snapshot["device_traces"])) == 2_001
    read = from_pickled(snapshot)
    assert [t.device for t in read.traces] == [0, 1]
    for t in read.traces:
        np.testing.assert_array_equal(Bands(t).live, live_bytes(snapshot, t.device))


def test_the_benchmark_checks_its_answers(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    live = tmp_path / "live.npz"
    snapshot = pickle.loads(trace.read_bytes())
    monkeypatch.setattr(answers, "load_snapshot", lambda *_: from_pickled(snapshot))
    np.savez(live, device0=live_bytes(snapshot, 0), device1=live_bytes(snapshot, 1))
    monkeypatch.setattr("sys.argv", ["answers", str(trace), str(live)])
    answers.main()
    found = json.loads(capsys.readouterr().out)
    assert found["sql rows"] == 20 and set(found["search"]) == set(answers.SEARCHES)
    np.savez(live, device0=live_bytes(snapshot, 0) + 1, device1=live_bytes(snapshot, 1))
    with pytest.raises(RuntimeError, match="the live bytes are not those of a replay"):
        answers.main()
