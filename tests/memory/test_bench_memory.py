"""The generator of memory snapshots, held to PyTorch's rules and tools; and the benchmark of them, run small."""

from __future__ import annotations

import json
import pickle
import pickletools
from bisect import bisect_right
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.repetitions import exhaustive, with_exhaustive
from torch.cuda import _memory_viz

from benchmarks.__main__ import main as benchmarks
from benchmarks.memory import answers, measure
from benchmarks.memory.reference import live_bytes
from benchmarks.memory.traces import write_trace
from splatview.viewer_app.memory.loading import load_snapshot
from splatview.viewer_app.memory.timeline import Bands

if TYPE_CHECKING:
    from pathlib import Path

    Written = tuple[Path, dict[str, Any]]

TRACES = {"long": (10_000, {"layers": 3}), "short": (5, {"layers": 2}), "part of a step": (3_000, {"layers": 24}),
          "devices": (9_001, {"devices": 2, "layers": 2, "seed": 3}), "oom": (12_000, {"layers": 4, "oom": True})}


@pytest.fixture(scope="module", params=with_exhaustive(list(TRACES), "long", "part of a step", "devices", "oom"))
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    events, options = TRACES[request.param]
    path = tmp_path_factory.mktemp("traces") / f"{request.param}.pickle"
    write_trace(path, events, **options)
    return path, pickle.loads(path.read_bytes())


def test_it_is_what_python_would_pickle(trace: Written) -> None:
    path, snapshot = trace
    assert list(snapshot) == ["segments", "device_traces", "allocator_settings", "external_annotations"]
    again = pickle.dumps(snapshot, 4)
    assert pickle.loads(again) == snapshot
    ours, python = (Counter(op.name for op, _, _ in pickletools.genops(data)) for data in (path.read_bytes(), again))
    assert ours["FRAME"] > 0
    for name in ("EMPTY_DICT", "EMPTY_LIST", "TUPLE2", "SHORT_BINUNICODE", "LONG1"):  # as much is shared
        assert abs(ours[name] - python[name]) <= 0.01 * python[name] + 20, name
    assert abs(path.stat().st_size - len(again)) < 0.02 * len(again) + 500


def test_as_many_events_as_wanted(trace: Written, request: pytest.FixtureRequest) -> None:
    _, snapshot = trace
    events, options = TRACES[request.node.callspec.params["trace"]]
    traces = snapshot["device_traces"]
    assert sum(map(len, traces)) == events
    assert len(traces) == options.get("devices", 1)
    for entries in traces:
        times = [e["time_us"] for e in entries]
        assert times == sorted(times)
        last = entries[-1]
        assert (last["action"] == "oom") == options.get("oom", False)
        assert ("device_free" in last) == (last["action"] == "oom") == ("addr" not in last)
        for e in entries:
            assert 14 <= len(e["frames"]) <= 61
            assert e["compile_context"] == "N/A" and e["user_metadata"] == ""


def test_torchs_own_tools_read_it(trace: Written) -> None:
    _, snapshot = trace
    assert "total_reserved" in _memory_viz.segsum(snapshot)  # it checks that segments add up
    assert "adam.py:185:_init_group" in _memory_viz.memory(snapshot, lambda text: text)


def test_segments_are_full_of_blocks(trace: Written) -> None:
    _, snapshot = trace
    segments = snapshot["segments"]
    assert segments
    for s in segments:
        end = s["address"]
        for b in s["blocks"]:
            assert b["address"] == end and b["size"] > 0 and b["size"] % 512 == 0
            assert b["state"] == "inactive" or 0 < b["requested_size"] <= b["size"]
            end += b["size"]
        assert end == s["address"] + s["total_size"]
        sums = {state: sum(b["size"] for b in s["blocks"] if b["state"] == state)
                for state in ("active_allocated", "active_pending_free", "inactive")}
        assert s["allocated_size"] == sums["active_allocated"]
        assert s["active_size"] == s["total_size"] - sums["inactive"]
        assert s["total_size"] == 2 << 20 if s["segment_type"] == "small" else s["total_size"] % (2 << 20) == 0
        for b, c in pairwise(s["blocks"]):  # free neighbours become one
            assert not b["state"] == c["state"] == "inactive"


def test_no_two_things_are_in_one_place(trace: Written) -> None:
    """Backwards from the end: what is allocated lies in segments, and what is free again was taken."""
    _, snapshot = trace
    for device, entries in enumerate(snapshot["device_traces"]):
        mine = [s for s in snapshot["segments"] if s["device"] == device]
        reserved = {s["address"]: s["total_size"] for s in mine}
        blocks = {b["address"]: b for s in mine for b in s["blocks"] if b["state"] != "inactive"}
        live = {a: b["requested_size"] for a, b in blocks.items()}
        pending = {a for a, b in blocks.items() if b["state"] == "active_pending_free"}
        seen: Counter[str] = Counter()
        for e in reversed(entries):
            addr, size = e.get("addr"), e["size"]
            seen[e["action"]] += 1
            if e["action"] == "free_completed":
                assert addr not in live and _holds(reserved, addr, size)
                live[addr] = size
                pending.add(addr)
            elif e["action"] == "free_requested":
                pending.remove(addr)
            elif e["action"] == "alloc":
                assert addr not in pending and live.pop(addr) == size and _holds(reserved, addr, size)
            elif e["action"] == "segment_alloc":
                assert reserved.pop(addr) == size
                assert not any(addr <= a < addr + size for a in live)
            elif e["action"] == "segment_free":
                assert not any(a < addr + size and addr < a + n for a, n in reserved.items())
                reserved[addr] = size
        order = sorted(live)  # what was there before the trace
        assert all(a + live[a] <= b for a, b in pairwise(order))
        assert len(entries) < 100 or (live and seen["free_requested"])


def _holds(reserved: dict[int, int], addr: int, size: int) -> bool:
    starts = sorted(reserved)
    at = bisect_right(starts, addr) - 1
    return at >= 0 and addr + size <= starts[at] + reserved[starts[at]]


def test_frames_are_shared_as_pytorch_shares_them(trace: Written) -> None:
    _, snapshot = trace
    frames = {id(f): (f["name"], f["filename"], f["line"])
              for entries in snapshot["device_traces"] for e in entries for f in e["frames"]}
    assert len(set(frames.values())) * len(snapshot["device_traces"]) >= len(frames)
    for entries in snapshot["device_traces"]:
        requested = {}
        for e in entries:
            if e["action"] == "free_requested":
                requested[e["addr"]] = e["frames"]
            elif e["action"] == "free_completed" and e["addr"] in requested:
                assert e["frames"] is requested.pop(e["addr"])


def test_the_viewer_reads_it_as_the_replay_does(trace: Written) -> None:
    path, snapshot = trace
    read = load_snapshot(path, cache=False)
    assert [t.device for t in read.traces] == list(range(len(snapshot["device_traces"])))
    for t in read.traces:
        np.testing.assert_array_equal(Bands(t).live, live_bytes(snapshot, t.device))


def test_a_long_run_has_what_long_runs_have(tmp_path: Path) -> None:
    path = tmp_path / "long.pickle"
    write_trace(path, 60_000, layers=2)
    snapshot = pickle.loads(path.read_bytes())
    (entries,) = snapshot["device_traces"]
    actions = Counter(e["action"] for e in entries)
    assert {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free"} == set(actions)
    assert len({e["stream"] for e in entries}) >= 3  # copies and communication beside the main one
    assert {(0, 0), (0, 1)} == {s["segment_pool_id"] for s in snapshot["segments"]}  # a CUDA graph's
    assert {"START", "END"} == {a["stage"] for a in snapshot["external_annotations"]}
    live = live_bytes(snapshot, 0)
    steps = np.array_split(live, 8)
    assert min(step.max() - step.min() for step in steps) > 0.2 * live.max()  # up and down
    assert steps[-2].min() > steps[1].min()  # the leaks


@pytest.mark.exhaustive
def test_the_same_seed_writes_the_same_file(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_trace(tmp_path / name, 2_000, seed, layers=2)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c


@pytest.mark.parametrize(("events", "options", "words"), [
    (0, {}, "0 events on 1 devices"), (1, {"devices": 2}, "1 events on 2 devices"), (5, {"layers": 0}, "0 layers"),
    exhaustive(10, {"layers": 200}, "200 layers does not fit"),
])
def test_what_cannot_be_made_is_refused(tmp_path: Path, events: int, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        write_trace(tmp_path / "no", events, **options)


def test_the_command_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.pickle"
    monkeypatch.setattr("sys.argv", ["benchmarks", "memory-trace", str(path), "--events", "500", "--layers", "2"])
    assert benchmarks() == 0
    assert len(pickle.loads(path.read_bytes())["device_traces"][0]) == 500


@pytest.mark.exhaustive
@pytest.mark.parametrize("devices", [1, 2])
def test_the_benchmark_checks_its_answers(devices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    """In this process, against what a replay says."""
    path, live = tmp_path / "a.pickle", tmp_path / "live.npz"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_trace(path, 3_000, devices=devices, layers=2)
    snapshot = pickle.loads(path.read_bytes())
    arrays: dict[str, Any] = {f"device{i}": live_bytes(snapshot, i) for i in range(devices)}
    np.savez(live, **arrays)
    monkeypatch.setattr("sys.argv", ["answers", str(path), str(live)])
    answers.main()
    found = json.loads(capsys.readouterr().out)
    assert {"bands", "addresses", "reserved", "pick", "search", "flame", "stacks", "leaks", "sql"} <= set(found)
    assert found["sql rows"] == 20 and set(found["search"]) == set(answers.SEARCHES)
    assert found["search"]["stream:0"][1] > 0 == found["search"]["nothing_at_all"][1]
    np.savez(live, **{name: array + 1 for name, array in arrays.items()})
    with pytest.raises(RuntimeError, match="device 0: the live bytes are not those of a replay"):
        answers.main()


@pytest.mark.exhaustive  # three viewers, and four other programs
def test_the_benchmark_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPLATVIEW_SNAPVIEWER", "SPLATVIEW_MEMORY_VIZ", "SPLATVIEW_BENCH_TRACES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(measure, "SECONDS", 0.5)
    monkeypatch.setattr(measure, "PARTS", (0.2,))
    rows = measure.run((measure.Case("tiny", 6_000),))
    assert not [row for row in rows if "failed" in row]
    assert {row["trace"] for row in rows} == {"tiny"}
    by = {row["what"]: row for row in rows}
    assert {"load", "load again, from the cache", "first picture, from the command", "layout", "pick", "search",
            "pan at 0.2 of the time", "zoom at 0.2 of the time", "SnapViewer's converter"} <= set(by)
    assert float(by["pan at 0.2 of the time"]["new pictures/s"]) > 0
    assert "6,000 events" in by["load"]["of which"]
    assert by["layout"]["checked"]
    assert "not measured: SPLATVIEW_SNAPVIEWER" in by["SnapViewer's converter"]["of which"]
    assert "not measured: SPLATVIEW_MEMORY_VIZ" in by["memory_viz's processing, in node"]["of which"]


def test_a_replay_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    write_trace(tmp_path / "a", 2_000, layers=2)
    snapshot = pickle.loads((tmp_path / "a").read_bytes())
    entries = snapshot["device_traces"][0]
    first = next(i for i, e in enumerate(entries) if e["action"] == "alloc")
    entries[first]["size"] += 512
    with pytest.raises(RuntimeError, match=rf"device_traces\[0\]\[{first}\]"):
        live_bytes(snapshot, 0)
