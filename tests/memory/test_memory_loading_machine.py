"""What the compiled machine makes of a pickle is what Python's own makes of it."""

from __future__ import annotations

import gzip
import hashlib
import os
import pickle
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from support.machine_cases import as_objects, by_machine, data, listing, long_trace
from support.memory_data import block, event, frame, segment, snapshot
from support.repetitions import exhaustive

from splatview.viewer_app.errors import FileError
from splatview.viewer_app.memory._kept import kept
from splatview.viewer_app.memory.loading import from_pickled, load_snapshot, machine, opening, worker
from splatview.viewer_app.memory.loading.machine import BATCH, OddError
from splatview.viewer_app.memory.loading.opening import Opened

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_trace_is_the_same(protocol: int):
    value = data(6_000)
    plain = pickle.dumps(value, protocol)
    assert listing(by_machine(plain)) == listing(from_pickled(value))


@pytest.mark.parametrize("piece", [1, 7, 100, 4099])
def test_it_may_come_in_pieces(piece: int):
    plain = pickle.dumps(data(300), 4)
    assert listing(by_machine(plain, piece)) == listing(as_objects(plain))


def test_a_file_is_read_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And is the same, plain and packed."""
    monkeypatch.setattr(machine, "LONG", 0)
    monkeypatch.setattr(machine, "VERY_LONG", 0)
    monkeypatch.setattr(opening, "unpickle", None)
    value = data(9_000)
    path = tmp_path / "long.pickle"
    for plain in (pickle.dumps(value, 2), pickle.dumps(value, 5), gzip.compress(pickle.dumps(value, 4)),
                  zstandard.ZstdCompressor().compress(pickle.dumps(value, 3))):
        path.write_bytes(plain)
        with open(path, "rb", buffering=0) as f:
            snap = worker.read_job({"kind": "pickle", "file": f.fileno()}, worker.Out(), FreeBound())  # type: ignore
        assert listing(snap) == listing(from_pickled(value))
        assert snap.file_bytes >= len(plain)


class FreeBound:
    """This process is not to be bounded."""

    def at(self, count: int) -> None:
        pass


@pytest.mark.exhaustive
def test_a_long_file_is_read_by_it_within_the_readers_bounds(tmp_path: Path):
    """By the program that reads files, whose memory is bounded: in Python's way it would say that it reads events."""
    frames = [frame(f"f{i}", i) for i in range(200)]
    value = snapshot([event("alloc", 512 * i, frames=[frames[(i * k) % 200] for k in range(1, 200)])
                      for i in range(40_000)])
    path = tmp_path / "long.pickle"
    path.write_bytes(pickle.dumps(value, 4))
    by_machine(pickle.dumps(snapshot([])))  # compiles it, if that has never been done
    with open(path, "rb", buffering=0) as f:
        assert machine.is_worth(Opened(f.fileno()))
    said: set[str] = set()
    snap = load_snapshot(path, lambda what, fraction: said.add(what))
    assert "reading" in said and "reading events" not in said
    assert listing(snap) == listing(from_pickled(value))


@pytest.mark.parametrize("size", ["short", "long"])
@pytest.mark.parametrize("compiled", [True, False])
def test_only_long_files_are_worth_it(size: str, compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine, "kept", lambda beside, module: compiled)
    least = machine.LONG if compiled else machine.VERY_LONG
    for packed, name in ((1, "a.pickle"), (machine.PACKED, "a.pickle.gz")):
        path = tmp_path / name
        path.write_bytes(b"\x80\x04" if packed == 1 else gzip.compress(b""))
        os.truncate(path, -(-least // packed) - (size == "short"))
        with open(path, "rb", buffering=0) as f:
            assert machine.is_worth(Opened(f.fileno())) == (size == "long")
            assert f.tell() == 0


def test_what_was_compiled_is_found_where_numba_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    module = tmp_path / "package" / "module.py"
    name = f"module.run-5.py{sys.version_info[0]}{sys.version_info[1]}.nbi"
    below = f"package_{hashlib.sha1(str(module.parent).encode()).hexdigest()}"
    places = {"NUMBA_CACHE_DIR": (tmp_path / "own", below), "": (module.parent, "__pycache__"),
              "XDG_CACHE_HOME": (tmp_path / "home", f"numba/{below}")}
    module.parent.mkdir()
    module.touch()
    for variable, (folder, inner) in places.items():
        for other in places:
            monkeypatch.delenv(other or "NOTHING", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
        if variable:
            monkeypatch.setenv(variable, str(folder))
        assert not kept(str(module), "module")
        (folder / inner).mkdir(parents=True, exist_ok=True)
        (folder / inner / name).touch()
        assert kept(str(module), "module")
        assert not kept(str(module), "other")
        os.utime(module, (time.time() + 10, time.time() + 10))
        assert not kept(str(module), "module")  # compiled before the module changed
        os.utime(module, (1, 1))
        (folder / inner / name).unlink()


TEXT = st.sampled_from(["alloc", "frames", "oom", "", "N/A", "name", "filename", "action", "\ud800", "ä", "x" * 300])
NUMBER = st.one_of(st.integers(0, 5), st.integers(-3, 2**65), st.sampled_from(
    [255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32, -1, -128, -129, -2**31, 2**62 - 1, 2**62, 2**63 - 1, -2**63]))
PLAIN = st.one_of(st.none(), st.booleans(), NUMBER, TEXT, st.floats())
ANY = st.recursive(PLAIN, lambda inner: st.one_of(
    st.lists(inner, max_size=4), st.tuples(inner), st.tuples(inner, inner), st.lists(inner, max_size=4).map(tuple),
    st.dictionaries(TEXT, inner, max_size=4)), max_leaves=12)
FRAMES = st.lists(st.integers(0, 6), max_size=5)


@st.composite
def snapshots(draw: st.DrawFn) -> dict[str, Any]:
    """Snapshots, mostly sound ones, with something odd here and there; objects are shared, as pickle keeps them."""
    shared = [frame(f"f{i}", i) for i in range(6)] + [frame("f1", 1)]  # equal frames need not be one object
    pool = draw(st.sampled_from([(0, 0), (1, 2), (2**63 - 1, 5), None]))
    traces = []
    for _ in range(draw(st.integers(0, 3))):
        trace = []
        for _ in range(draw(st.integers(0, 6))):
            e = event(draw(st.sampled_from(["alloc", "free_requested", "free_completed", "oom", "unheard of"])),
                      512 * draw(st.integers(0, 5)), frames=[shared[i] for i in draw(FRAMES)], pool_id=pool)
            for key in draw(st.lists(st.sampled_from([*e, "device_free", "new"]), max_size=2)):
                if draw(st.booleans()):
                    e.pop(key, None)
                else:
                    e[key] = draw(ANY)
            trace.append(e)
        if trace and draw(st.integers(0, 9)) == 0:
            trace.append(draw(st.one_of(ANY, st.just(trace[0]))))
        traces.append(trace)
    blocks = [block(512 * i, 512, frames=[shared[k] for k in draw(FRAMES)]) for i in range(draw(st.integers(0, 3)))]
    value = snapshot([], [segment(0, blocks)], allocator_settings=draw(st.dictionaries(TEXT, ANY)))
    if draw(st.booleans()):
        value["host_traces"] = draw(st.sampled_from([traces, [[event("alloc", 0)] * 2], [[frame("f")], ["x"]]]))
    return {**value, "device_traces": traces, "more": draw(ANY)}


@pytest.mark.parametrize("examples", [60, exhaustive(400)])
def test_what_it_reads_is_what_python_reads(examples: int):
    settings(max_examples=examples, deadline=None)(given(snapshots(), st.sampled_from([2, 3, 4, 5]))(read_alike))()


def read_alike(value: dict[str, Any], protocol: int) -> None:
    plain = pickle.dumps(value, protocol)
    try:
        expected: Any = listing(as_objects(plain))
    except FileError as e:
        expected = e
    try:
        found = listing(by_machine(plain))
    except (OddError, FileError) as e:
        assert not sound(value) or isinstance(expected, FileError), f"left though it is sound: {e}"
        return
    assert found == expected


def sound(value: dict[str, Any]) -> bool:
    """Whether it is one that PyTorch could write: those must be read."""
    def ordinary(e: Any) -> bool:
        return type(e) is dict and set(e) <= {*event("", 0), "pool_id", "device_free"} and all(
            type(e.get(k, 0)) is int and 0 <= e.get(k, 0) < 2**62 for k in ("addr", "size", "time_us", "device_free")
        ) and type(e.get("stream", 0)) is int and all(
            type(e.get(k, "")) is str for k in ("action", "compile_context", "user_metadata")) and "action" in e and (
            type(e.get("frames")) is list and all(type(f) is dict for f in e["frames"]))

    def small(v: Any) -> bool:
        """Numbers that have 64 bits, and no mapping that looks like an event or a frame."""
        if type(v) is dict:
            return not {"action", "filename"} & set(v) and all(map(small, v.values()))
        return all(map(small, v)) if type(v) in (list, tuple) else type(v) is not int or -(2**63) <= v < 2**63

    flat = [e for t in value["device_traces"] for e in t]
    return all(map(ordinary, flat)) and len(set(map(id, flat))) == len(flat) and (
        small([value["allocator_settings"], value["more"]]) and "host_traces" not in value)


def test_traces_of_the_host_are_counted():
    value = {**snapshot([event("alloc", 512)]), "host_traces": [[event("alloc", 0), event("free", 0)], []],
             "host_segments": [{"frames": [frame("f")]}]}
    snap = by_machine(pickle.dumps(value, 4))
    assert "1 segments, 2 events" in snap.notes[0]
    assert listing(snap) == listing(from_pickled(value))


def test_deep_stacks_grow_by_batches():
    frames = [frame(f"f{i}", i) for i in range(7)]
    deep = [frames[i % 7] for i in range(3 * BATCH + 5)]
    value = snapshot([event("alloc", 512, frames=deep[:n]) for n in (0, 1, BATCH - 1, BATCH, BATCH + 1, 2 * BATCH,
                                                                    len(deep))])
    plain = pickle.dumps(value, 4)
    snap = by_machine(plain)
    assert listing(snap) == listing(from_pickled(value))
    assert len(snap.stack(int(snap.traces[0].events.stack[-1]))) == len(deep)


def test_tuples_that_are_shared_are_made_once():
    """Each holds the one before twice: one by one they would be a million million."""
    shared: Any = ("x",)
    for _ in range(40):
        shared = (shared, shared, None)
    value = {**snapshot([event("alloc", 512)]), "more": shared}
    assert listing(by_machine(pickle.dumps(value, 4))) == listing(from_pickled(value))


def test_pairs_elsewhere_are_no_pools():
    value = {**snapshot([event("alloc", 512, pool_id=(1, 2))]), "more": [(5, 6), (7, 8)],
             "host_traces": [[event("alloc", 0, stream=99, pool_id=(3, 4))]]}
    snap = by_machine(pickle.dumps(value, 4))
    assert (snap.streams, snap.pools) == ((0,), ((0, 0), (1, 2)))


@pytest.mark.parametrize(("count", "stacks"), [(12_000, 3_000), exhaustive(70_000, 9_000)])
def test_many_texts_streams_and_stacks_find_room(count: int, stacks: int):
    frames = [frame(f"f{i}", i, f"file {i}.py") for i in range(stacks)]
    value = snapshot([event("alloc", 512 * i, stream=i % 30_000 - 7, user_metadata=f"step {i}",
                            frames=frames[i % stacks: i % stacks + 1 + i % 3]) for i in range(count)])
    plain = pickle.dumps(value, 4)
    assert listing(by_machine(plain)) == listing(from_pickled(value))


@pytest.mark.exhaustive
def test_entries_that_come_twice_are_read_twice(tmp_path: Path):
    """PyTorch writes none. What was emptied already is noticed, and the file is read in the plain way."""
    events = long_trace(60_000)
    value = snapshot([*events, *events])
    path = tmp_path / "twice.pickle"
    path.write_bytes(pickle.dumps(value, 4))
    snap = load_snapshot(path)
    assert len(snap.traces[0].events) == 120_000
    assert listing(snap) == listing(from_pickled(value))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.ZstdCompressor().compress])
def test_what_it_leaves_is_read_in_the_general_way(pack: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine, "LONG", 0)
    monkeypatch.setattr(machine, "VERY_LONG", 0)
    events = long_trace(3_000)
    value = snapshot([*events, *events])
    path = tmp_path / "twice.pickle"
    path.write_bytes(pack(pickle.dumps(value, 4)))
    with open(path, "rb", buffering=0) as f:
        snap = worker.read_job({"kind": "pickle", "file": f.fileno()}, worker.Out(), FreeBound())  # type: ignore
    assert listing(snap) == listing(from_pickled(value))


@pytest.mark.exhaustive
def test_what_is_wrong_far_inside_is_named(tmp_path: Path):
    value = data(60_000)
    value["device_traces"][2][20_001]["size"] = "abc"
    path = tmp_path / "wrong.pickle"
    path.write_bytes(pickle.dumps(value, 4))
    with pytest.raises(FileError, match=r"device_traces\[2\]\[20001\]\['size'\] is 'abc', not a whole number"):
        load_snapshot(path)
