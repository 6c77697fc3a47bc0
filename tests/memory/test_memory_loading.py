"""Snapshots from files: every schema, protocol and packing; what is recognised; progress and cancel."""

from __future__ import annotations

import gzip
import pickle
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zstandard
from support.memory_data import block, event, frame, segment, snapshot
from support.repetitions import exhaustive, one_at_a_time
from support.wait import PATIENCE

from splatview.viewer_app.errors import FileError
from splatview.viewer_app.files import open_file, program
from splatview.viewer_app.memory.loading import from_pickled, is_snapshot, load_snapshot, worker
from splatview.viewer_app.memory.model import ACTIONS, NO_STACK, UNKNOWN_POOL, Snapshot
from splatview.viewer_app.sources import FileSource
from splatview.viewer_app.state import Entry

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def small() -> dict[str, Any]:
    frames = [frame("mul", 7, "ops.py"), frame("forward", 20, "model.py")]
    return snapshot(
        [event("alloc", 4096, 1000, frames=frames, time_us=5),
         event("alloc", 8192, 300, frames=list(frames), time_us=6),
         event("free_requested", 4096, 1000, time_us=7), event("free_completed", 4096, 1000, time_us=9)],
        [segment(4096, [block(4096, 4096, "inactive"), block(8192, 512, requested=300)])],
        external_annotations=[{"stage": "START", "name": "step", "device": 0, "time_us": 4}])


def arrays(snap: Snapshot) -> dict[str, np.ndarray]:
    """All arrays of a snapshot by name."""
    out: dict[str, np.ndarray] = {}
    for part, holder in [("texts", snap.texts), ("stacks", snap.stacks)] + [
            (f"{t.device}.{name}", getattr(t, name)) for t in snap.traces
            for name in ("events", "allocations", "spans", "segments", "blocks")]:
        out |= {f"{part}.{name}": a for name, a in vars(holder).items() if isinstance(a, np.ndarray)}
    return out


def same(a: Snapshot, b: Snapshot) -> None:
    for name, array in arrays(a).items():
        other = arrays(b)[name]
        assert array.dtype == other.dtype, name
        assert array.tolist() == other.tolist(), name
    for name in ("streams", "pools", "annotations", "settings", "notes"):
        assert getattr(a, name) == getattr(b, name), name
    assert [t.device for t in a.traces] == [t.device for t in b.traces]


@pytest.mark.parametrize(("protocol", "pack"), one_at_a_time(
    [5, 2, 3, 4], [bytes, gzip.compress, zstandard.ZstdCompressor().compress]))
def test_every_protocol_and_packing_holds_the_same(pack: Any, protocol: int, tmp_path: Path):
    plain = pickle.dumps(small(), protocol)
    path = tmp_path / "a snapshot"
    path.write_bytes(pack(plain))
    snap = open_file(path)
    assert isinstance(snap, Snapshot)
    assert snap.name == "a snapshot"
    assert snap.file_bytes == len(plain)
    same(snap, from_pickled(small()))
    assert all(not a.flags.writeable for a in arrays(snap).values() if a.size)


def test_a_real_snapshot_by_the_program_is_what_it_is_here(data_dir: Path):
    path = data_dir / "training_memory_snapshot.pickle"
    snap = load_snapshot(path)
    same(snap, from_pickled(pickle.loads(path.read_bytes())))
    assert len(snap.traces[0].events) == 22332
    assert [a.stage for a in snap.annotations] == ["START", "END"]
    assert snap.settings["expandable_segments"] is False


def test_what_is_in_it():
    snap = from_pickled(small(), "small")
    (trace,) = snap.traces
    e, a = trace.events, trace.allocations
    assert [ACTIONS[i] for i in e.action] == ["alloc", "alloc", "free_requested", "free_completed"]
    assert e.time_us.tolist() == [5, 6, 7, 9]
    assert a.size.tolist() == [1000, 300]
    assert a.rounded.tolist() == [0, 512]
    assert [(f.file, f.line, f.name) for f in snap.stack(int(a.stack[0]))] == [
        ("ops.py", 7, "mul"), ("model.py", 20, "forward")]
    assert a.stack[0] == a.stack[1]
    assert trace.segments.total.tolist() == [4608]
    assert trace.blocks.allocation.tolist() == [-1, 1]
    assert snap.pools == ((0, 0),)
    assert snap.annotations[0].name == "step"
    assert e.context.tolist() == [-1] * 4


def test_old_files_lack_much():
    old = {"segments": [{"device": 0, "address": 512, "total_size": 1024, "stream": 0, "segment_type": "small",
                         "blocks": [{"size": 512, "state": "active_allocated",
                                     "history": [{"addr": 512, "real_size": 77, "frames": [frame("f")]}]},
                                    {"size": 512, "state": "inactive"}]}]}
    for data in (old, old["segments"]):  # the second is what torch.cuda.memory_snapshot returns
        snap = from_pickled(data)  # type: ignore[arg-type]
        (trace,) = snap.traces
        assert trace.blocks.addr.tolist() == [512, 1024]
        assert trace.allocations.size.tolist() == [77]
        assert snap.stack(int(trace.allocations.stack[0]))[0].name == "f"
        assert any("recording was off" in note for note in snap.notes)
    bare = [{"action": "alloc", "addr": 512, "size": 3, "stream": 9}, {"action": "free", "addr": 512, "size": 3}]
    snap = from_pickled({"device_traces": [bare], "segments": []})
    (trace,) = snap.traces
    assert trace.events.stack.tolist() == [NO_STACK] * 2
    assert trace.events.pool.tolist() == [UNKNOWN_POOL] * 2
    assert trace.events.time_us.tolist() == [0, 0]
    assert [snap.streams[s] for s in trace.events.stream] == [9, 0]
    assert (trace.allocations.start[0], trace.allocations.end[0], trace.allocations.freed[0]) == (0, 1, 1)


def test_new_files_hold_more():
    events = [event("alloc", 512, pool_id=(0, 0)), event("annotate", 0, 0, user_metadata="epoch 3"),
              {"action": "oom", "size": 1 << 30, "device_free": 12345, "stream": 0, "time_us": 8, "frames": []},
              event("snapshot", 0, 0), event("free_requested", 512, compile_context="2/1"), event("what is new", 0, 0),
              event("user_defined", 0, 0, unknown_key=[1, 2])]
    snap = from_pickled(snapshot(events, host_segments=[{}], host_traces=[[{}, {}]], something_else=3))
    e = snap.traces[0].events
    assert [ACTIONS[i] for i in e.action] == ["alloc", "annotate", "oom", "snapshot", "free_requested", "other",
                                              "user_defined"]
    assert (e.addr[2], e.size[2]) == (12345, 1 << 30)
    assert snap.texts[int(e.metadata[1])] == "epoch 3"
    assert snap.texts[int(e.context[4])] == "2/1"
    assert e.allocation.tolist() == [0, -1, -1, -1, 0, -1, -1]
    assert any("pinned host memory (1 segments, 2 events)" in note for note in snap.notes)


def test_several_devices_and_those_without_events():
    data = snapshot([event("alloc", 512, 5)], [segment(512, [block(512, 512)], device=2)])
    data["device_traces"] = [[event("alloc", 512, 5)], [], [event("alloc", 1024, 6), event("alloc", 2048, 7)], []]
    snap = from_pickled(data)
    assert [(t.device, len(t.events), len(t.allocations), len(t.segments)) for t in snap.traces] == [
        (0, 1, 1, 0), (2, 2, 3, 1)]
    assert from_pickled(snapshot([])).traces == ()


def test_many_events_in_many_chunks(tmp_path: Path):
    """More than are read together; with keys that some entries lack."""
    events = [event("free" if i % 2 else "alloc", 512 * (i // 2 + 1), i // 2 + 1, time_us=i) for i in range(20_000)]
    for e in events[4096 * 2 + 5: 4096 * 2 + 50: 2]:
        del e["user_metadata"]
    path = tmp_path / "many.pickle"
    path.write_bytes(pickle.dumps(snapshot(events)))
    (trace,) = load_snapshot(path).traces
    assert trace.events.time_us.tolist() == list(range(20_000))
    assert trace.allocations.size.tolist() == list(range(1, 10_001))
    assert trace.allocations.start.tolist() == list(range(0, 20_000, 2))


def test_recognised_by_content(tmp_path: Path):
    data = pickle.dumps(small(), 4)
    path = tmp_path / "any.name"
    path.write_bytes(data)
    assert isinstance(open_file(path), Snapshot)
    assert is_snapshot(path, data[:512])
    path.write_bytes(b"\x28\xb5\x2f\xfdxx")
    for head in (b"", b"\x80", b"\x80\x01", b"\x80\x06", gzip.compress(b"NGSP"), b"ply\n", b"\x28\xb5\x2f\xfdxx",
                 b"\x1f\x8bxx"):
        assert not is_snapshot(path, head)
    for suffix in (".pt", ".pth", ".ckpt"):
        path = tmp_path / f"checkpoint{suffix}"
        path.write_bytes(data)
        with pytest.raises(FileError) as e:
            open_file(path)
        assert "checkpoint" in str(e.value) or "torch" in str(e.value)


def test_an_old_checkpoint_of_any_name_stays_one(tmp_path: Path):
    path = tmp_path / "model.bin"
    path.write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps({}, 2))
    with pytest.raises(FileError) as e:
        open_file(path)
    assert "memory snapshot" not in str(e.value)


def test_an_error_names_the_file_once(tmp_path: Path):
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps({"a": 1}, 4))
    with pytest.raises(FileError) as e:
        open_file(path)
    assert str(e.value).startswith(f"{path}: a pickle, but no memory snapshot")
    assert str(e.value).count(str(path)) == 1


class CancelledError(Exception):
    pass


@pytest.mark.exhaustive
@pytest.mark.parametrize("after", [exhaustive("starting"), "reading", exhaustive("reading events")])
def test_a_cancel_ends_the_program_and_leaves_nothing(after: str, tmp_path: Path, cache: Path,
                                                      monkeypatch: pytest.MonkeyPatch):
    events = [event("alloc", 512 * i, i, frames=[frame("f", i)]) for i in range(1, 60_000)]
    path = tmp_path / "long.pickle"
    path.write_bytes(pickle.dumps(snapshot(events)))
    started: list[Any] = []
    begin = program.subprocess.Popen
    monkeypatch.setattr(program.subprocess, "Popen", lambda *a, **k: started.append(begin(*a, **k)) or started[-1])
    said: list[str] = []

    def progress(what: str, fraction: float) -> None:
        assert 0 <= fraction <= 1
        said.append(what)
        if what == after:
            raise CancelledError

    with pytest.raises(CancelledError):
        load_snapshot(path, progress)
    (process,) = started
    assert process.returncode is not None
    assert not [f for f in cache.rglob("*") if f.is_file()]
    assert len(load_snapshot(path).traces[0].events) == 59_999


def test_progress_only_grows(data_dir: Path):
    told: list[float] = []
    path = data_dir / "training_memory_snapshot.pickle"
    load_snapshot(path, lambda what, fraction: told.append(fraction), cache=False)
    assert len(set(told)) > 1
    assert told == sorted(told)


def test_each_part_of_the_work_is_told(data_dir: Path):
    told: list[tuple[str, float]] = []
    with open(data_dir / "training_memory_snapshot.pickle", "rb") as f:
        worker.read_job({"kind": "pickle", "file": f.fileno()},
                        SimpleNamespace(told=lambda *said: told.append(said)),  # type: ignore[arg-type]
                        SimpleNamespace(at=lambda size: None))  # type: ignore[arg-type]
    fractions = [fraction for _, fraction in told]
    assert len(set(fractions)) > 8 and fractions == sorted(fractions)
    assert fractions[0] < 0.2 and fractions[-1] > 0.8
    assert len({what for what, _ in told}) > 2


def test_a_file_entry_shows_it_as_a_snapshot(tmp_path: Path):
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps(small(), 4))
    done = threading.Event()
    source = FileSource(path, done.set)
    end = time.monotonic() + PATIENCE
    while source.reading and time.monotonic() < end:
        done.wait(0.1)
    entry = Entry("x", "file", "")
    source.refresh(entry)
    assert (source.error, entry.kind) == ("", "snapshot")
    assert isinstance(source.value, Snapshot)
    source.close()
