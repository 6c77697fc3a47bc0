"""Snapshots load from every schema, protocol and packing; their columns are cached."""

from __future__ import annotations

import gzip
import os
import pickle
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.memory_data import MB, block, check_replay, event, frame, segment, snapshot

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.common import Start
from splatview_viewer.kinds.files import open_file
from splatview_viewer.snapshot.loading import (
    from_pickled,
    is_snapshot,
    load_snapshot,
    store,
)
from splatview_viewer.snapshot.model import (
    ACTIONS,
    NO_STACK,
    UNKNOWN_POOL,
    MemorySnapshot,
    Trace,
    device_text,
    live_bytes,
)


def small() -> dict[str, Any]:
    frames = [frame("mul", 7, "ops.py"), frame("forward", 20, "model.py")]
    return snapshot(
        [
            event("alloc", 4096, 1000, frames=frames, time_us=5),
            event("alloc", 8192, 300, frames=list(frames), time_us=6),
            event("free_requested", 4096, 1000, time_us=7),
            event("free_completed", 4096, 1000, time_us=9),
        ],
        [
            segment(
                4096, [block(4096, 4096, "inactive"), block(8192, 512, requested=300)]
            )
        ],
        external_annotations=[
            {"stage": "START", "name": "step", "device": 0, "time_us": 4}
        ],
    )


def columns(snap: MemorySnapshot) -> list[bytes]:
    return [a.tobytes() for a in store.pack(snap)[1]]


@pytest.mark.parametrize(
    ("protocol", "pack"), [(2, bytes), (3, gzip.compress), (4, bytes), (5, bytes)]
)
def test_protocols_and_packings_load_the_same(
    pack: Any, protocol: int, tmp_path: Path, read_in_process: list[Any]
) -> None:
    pickled = pickle.dumps(small(), protocol)
    path = tmp_path / "a snapshot"
    path.write_bytes(pack(pickled))
    snap = open_file(path)
    assert isinstance(snap, MemorySnapshot)
    assert (snap.name, snap.file_bytes) == ("a snapshot", len(pickled))
    assert columns(snap) == columns(from_pickled(small()))


def test_sandbox_loads_a_real_snapshot_as_this_process_does(
    data_dir: Path, real: MemorySnapshot
) -> None:
    fractions: list[float] = []

    def note_progress(step: str, fraction: float) -> None:
        fractions.append(fraction)

    path = data_dir / "training_memory_snapshot.pickle"
    snap = load_snapshot(path, note_progress)
    assert columns(snap) == columns(real)
    assert snap.notes == real.notes
    assert fractions == sorted(fractions)
    assert len(set(fractions)) > 1
    assert not any(a.flags.writeable for a in vars(snap.traces[0].events).values())


def test_old_files_load_without_recent_fields() -> None:
    segments = [
        {
            "address": 512,
            "total_size": 1024,
            "blocks": [
                {
                    "address": 512,
                    "size": 512,
                    "state": "active_allocated",
                    "frames": [frame("f")],
                },
                {"address": 1024, "size": 512, "state": "inactive"},
            ],
        }
    ]
    # torch.cuda.memory_snapshot returns such a list.
    snap = from_pickled(segments)  # type: ignore[arg-type]
    (trace,) = snap.traces
    assert trace.allocations.size.tolist() == [512]
    assert snap.stack(int(trace.allocations.stack[0]))[0].name == "f"
    assert any("recording was off" in note for note in snap.notes)
    bare = [
        {"action": "alloc", "addr": 512, "size": 3, "stream": 9},
        {"action": "free", "addr": 512, "size": 3},
    ]
    snap = from_pickled({"device_traces": [bare], "segments": []})
    (trace,) = snap.traces
    assert trace.events.stack.tolist() == [NO_STACK] * 2
    assert trace.events.pool.tolist() == [UNKNOWN_POOL] * 2
    assert trace.events.time_us.tolist() == [0, 0]
    assert [snap.streams[s] for s in trace.events.stream] == [9, 0]
    assert trace.allocations.start[0] == 0
    assert trace.allocations.end[0] == 1
    assert trace.allocations.freed[0] == 1


def test_new_files_load_with_recent_fields() -> None:
    events = [
        event("alloc", 512, pool_id=(0, 0)),
        event("annotate", 0, 0, user_metadata="epoch 3"),
        {
            "action": "oom",
            "size": 1 << 30,
            "device_free": 12345,
            "stream": 0,
            "time_us": 8,
            "frames": [],
        },
        event("snapshot", 0, 0),
        event("free_requested", 512, compile_context="2/1"),
        event("what is new", 0, 0),
        event("user_defined", 0, 0, unknown_key=[1, 2]),
    ]
    snap = from_pickled(
        snapshot(events, host_segments=[{}], host_traces=[[{}, {}]], something_else=3)
    )
    e = snap.traces[0].events
    assert [ACTIONS[i] for i in e.action] == [
        "alloc",
        "annotate",
        "oom",
        "snapshot",
        "free_requested",
        "other",
        "user_defined",
    ]
    assert (e.addr[2], e.size[2]) == (12345, 1 << 30)
    assert snap.texts[int(e.metadata[1])] == "epoch 3"
    assert snap.texts[int(e.context[4])] == "2/1"
    assert e.allocation.tolist() == [0, -1, -1, -1, 0, -1, -1]
    assert any(
        "pinned host memory (1 segments, 2 events)" in note for note in snap.notes
    )


def test_snapshots_are_recognised_by_content(tmp_path: Path) -> None:
    data = pickle.dumps(small(), 4)
    path = tmp_path / "any.name"
    path.write_bytes(data)
    assert is_snapshot(Start(path, str(path), data[:512]))
    for head in (
        b"",
        b"\x80",
        b"\x80\x01",
        b"\x80\x06",
        gzip.compress(b"NGSP"),
        b"ply\n",
        b"\x1f\x8bxx",
    ):
        path.write_bytes(head)
        assert not is_snapshot(Start(path, str(path), head))
    path = tmp_path / "checkpoint.pth"
    path.write_bytes(data)
    with pytest.raises(FileError, match=r"checkpoint|torch"):
        open_file(path)


def write_snapshot(path: Path, size: int = 100) -> Path:
    """Write a small snapshot."""
    events = [event("alloc", 512, size), event("alloc", 1024, 7)]
    segments = [segment(512, [block(512, 512, requested=size)])]
    path.write_bytes(pickle.dumps(snapshot(events, segments)))
    return path


def cached_files(cache: Path) -> list[Path]:
    return sorted(p for p in cache.rglob("*") if p.is_file())


def test_second_opening_reads_the_cache(
    tmp_path: Path, cache: Path, read_in_process: list[Any]
) -> None:
    first = load_snapshot(write_snapshot(tmp_path / "a.pickle"))
    (tmp_path / "link").symlink_to(tmp_path / "a.pickle")
    second = load_snapshot(tmp_path / "link")
    assert len(read_in_process) == 1
    assert second.name == "link"
    (file,) = cached_files(cache)
    assert file.parent == cache / "splatview" / "snapshots" / "columns-v1"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o077 == 0
    # Columns that were read stay when their file goes.
    file.unlink()
    # A new time makes the snapshot another one.
    os.utime(tmp_path / "a.pickle", (1000, 1000))
    load_snapshot(tmp_path / "a.pickle")
    assert len(read_in_process) == 2
    assert first.traces[0].allocations.size.tolist() == [100, 7]
    assert second.traces[0].allocations.size.tolist() == [100, 7]


def test_unsafe_cache_folders_are_not_used(
    tmp_path: Path,
    cache: Path,
    read_in_process: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache_folder = Path("splatview", "snapshots", "columns-v1")
    below_file, writable, link = (
        tmp_path / n / cache_folder for n in ("file", "open", "link")
    )
    below_file.parents[2].write_text("in the way")
    writable.mkdir(parents=True)
    writable.chmod(0o777)
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path)
    path = write_snapshot(tmp_path / "a.pickle")
    for folder in (below_file, writable, link):
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parents[2]))
        assert load_snapshot(path).traces[0].allocations.size[0] == 100
        assert not list(tmp_path.rglob("*.columns"))


def test_damaged_columns_are_rewritten_and_links_not_followed(
    tmp_path: Path, cache: Path, read_in_process: list[Any]
) -> None:
    path = write_snapshot(tmp_path / "a.pickle")
    load_snapshot(path)
    (file,) = cached_files(cache)
    intact = file.read_bytes()
    for n, damage in enumerate(
        [b"", intact[:-1], intact[:-30] + bytes(30), intact + b"x"]
    ):
        file.write_bytes(damage)
        assert load_snapshot(path).traces[0].allocations.size[0] == 100
        assert len(read_in_process) == 2 + n
        assert file.read_bytes() == intact
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    load_snapshot(path)
    assert not file.is_symlink()


def test_cache_folder_stays_small(
    tmp_path: Path,
    cache: Path,
    read_in_process: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files: list[Path] = []
    for i in range(4):
        load_snapshot(write_snapshot(tmp_path / f"{i}.pickle", 100 + i))
        (new,) = [p for p in cached_files(cache) if p not in files]
        files.append(new)
        os.utime(new, (1000 + i, 1000 + i))
    # Using a file makes it the newest.
    load_snapshot(tmp_path / "0.pickle")
    monkeypatch.setattr(store, "MAX_CACHE_BYTES", files[0].stat().st_size * 2 + 100)
    load_snapshot(write_snapshot(tmp_path / "new.pickle", 200))
    left = cached_files(cache)
    assert len(left) == 2
    assert files[0] in left


def test_real_snapshot_keeps_every_event_and_stack(
    real: MemorySnapshot, pickled: dict[str, Any]
) -> None:
    (trace,) = real.traces
    check_replay(pickled, trace)
    assert live_bytes(trace)[-1] == int(trace.segments.requested.sum())
    stacks: list[list[Any]] = []
    for i in range(len(real.stacks)):
        stacks.append([(f.file, f.line, f.name) for f in real.stack(i)])
    # The index -1, of no stack, means the last one.
    stacks.append([])
    assert len(set(map(tuple, stacks))) == len(stacks)
    blocks = []
    for pickled_segment in sorted(pickled["segments"], key=itemgetter("address")):
        blocks += pickled_segment["blocks"]
    for stack_ids, entries in (
        (trace.events.stack, pickled["device_traces"][0]),
        (trace.blocks.stack, blocks),
    ):
        for stack_id, entry in zip(stack_ids.tolist(), entries, strict=True):
            assert stacks[stack_id] == [
                (f["filename"], f["line"], f["name"]) for f in entry["frames"]
            ]
    assert (trace.blocks.allocation >= 0).tolist() == [
        b["state"] == "active_allocated" for b in blocks
    ]


ADDRESS = st.sampled_from([0x7F0000000000 + i * 512 for i in range(5)])
ENTRY = st.builds(
    event,
    st.sampled_from(
        ["alloc", "alloc", "free_requested", "free_completed", "free", "snapshot"]
    ),
    ADDRESS,
    st.integers(0, 2000),
)
STATE = st.sampled_from(["active_allocated", "active_pending_free", "inactive"])
ODD = st.sampled_from([0, 1, 2**63 - 0x7F0000000400, 9 << 60])


@settings(max_examples=30, deadline=None)
@given(
    st.lists(ENTRY, max_size=40),
    st.lists(STATE, min_size=5, max_size=5),
    st.booleans(),
    ODD,
)
def test_entries_of_any_order_are_replayed(
    events: list[dict[str, Any]], states: list[str], with_blocks: bool, odd: int
) -> None:
    """Orders that no allocator makes are replayed as well.

    Near and far addresses are sorted in different ways.
    """
    for e in events:
        e["addr"] += odd
    start = 0x7F0000000000 + odd
    segments = [
        segment(
            start,
            [block(start + i * 512, 512, s, 100 + i) for i, s in enumerate(states)],
        )
    ]
    if not with_blocks:
        segments = []
    data = snapshot(events, segments)
    for trace in from_pickled(data).traces:
        check_replay(data, trace)


def test_oddities_are_noted() -> None:
    for events in (
        [event("alloc", 512), event("alloc", 512)],
        [event("alloc", 512), *[event("free", 512)] * 2],
    ):
        notes = from_pickled(snapshot(events)).notes
        assert any("1 allocations lack" in note for note in notes)


def live_mb(trace: Trace) -> list[int]:
    return (live_bytes(trace) // MB).tolist()


def test_completion_alone_frees_only_where_requests_are_not_recorded() -> None:
    """A completion frees a live block only with skip_actions=["free_requested"].

    A block whose freeing was requested before the trace was not live in it.
    """

    def entry(action: str, addr: int, mb: int) -> dict[str, Any]:
        return event(action, addr * MB, mb * MB)

    completed_alone = [
        entry("alloc", 8, 2),
        entry("alloc", 12, 3),
        entry("free_completed", 0, 5),
    ]
    complete_free = [entry("free_requested", 8, 2), entry("free_completed", 8, 2)]
    (requested,) = from_pickled(snapshot(completed_alone + complete_free)).traces
    assert live_mb(requested) == [0, 2, 5, 5, 3, 3]
    assert requested.events.allocation.tolist() == [0, 1, -1, 0, 0]
    (skipped,) = from_pickled(snapshot(completed_alone + complete_free[1:])).traces
    assert live_mb(skipped) == [5, 7, 10, 5, 3]


def host_memory() -> dict[str, Any]:
    """Make two traces of pinned memory; the second has a segment from before it."""
    traces = [
        [event("segment_alloc", 512, 4 * MB), event("alloc", 512, 4 * MB)],
        [event("alloc", 512, 2 * MB), event("free", 512, 2 * MB)],
    ]
    segments = [segment(512, [block(512, 4 * MB)]), segment(512, [], device=1)]
    return {"host_segments": segments, "host_traces": traces}


def test_pinned_host_memory_has_devices_of_its_own(tmp_path: Path) -> None:
    empty = {"segments": [], "device_traces": [[]]}
    alone = from_pickled(empty | host_memory())
    assert [t.device for t in alone.traces] == [-1, -2]
    assert [live_mb(t) for t in alone.traces] == [[0, 0, 4], [0, 2, 0]]
    assert [len(t.segments) for t in alone.traces] == [1, 1]
    assert [device_text(t.device) for t in alone.traces] == [
        "pinned host memory",
        "pinned host memory 2",
    ]
    both = small() | host_memory()
    path = tmp_path / "both.pickle"
    path.write_bytes(pickle.dumps(both))
    assert [t.device for t in load_snapshot(path).traces][-2:] == [-1, -2]
    with pytest.raises(FileError, match=r"host_traces\[0\]\[0\]"):
        from_pickled({"host_traces": [[{}]]})


def test_pools_come_from_the_segment_where_events_lack_them() -> None:
    private = segment(
        1 << 20,
        [block(1 << 20, 512), block((1 << 20) + 512, 512, "inactive")],
        segment_pool_id=(0, 3),
    )
    snap = from_pickled(
        snapshot(
            [
                event("alloc", (1 << 20) + 512),
                event("free", (1 << 20) + 512),
                event("alloc", 64, pool_id=(7, 0)),
                event("alloc", 128),
            ],
            [private],
        )
    )
    (trace,) = snap.traces

    def pool_of(index: int) -> Any:
        return snap.pools[index] if index >= 0 else None

    pools = {}
    for addr, index in zip(trace.allocations.addr, trace.allocations.pool, strict=True):
        pools[int(addr)] = pool_of(index)
    assert pools == {1 << 20: (0, 3), (1 << 20) + 512: (0, 3), 64: (7, 0), 128: None}
    event_pools = [pool_of(index) for index in trace.events.pool]
    assert event_pools == [(0, 3), (0, 3), (7, 0), None]


def test_spans_cover_the_time_of_reserved_memory() -> None:
    events = [
        event("segment_alloc", 0x1000, 0x1000),
        event("segment_free", 0x5000, 0x1000),
        event("segment_map", 0x8000, 0x3000),
        event("segment_unmap", 0x9000, 0x1000),
        event("segment_free", 0x1000, 0x1000),
    ]
    addresses = (0x8000, 0xA000, 0xF000)
    segments = [segment(addr, [block(addr, 0x1000)]) for addr in addresses]
    s = from_pickled(snapshot(events, segments)).traces[0].spans
    span_columns = [column.tolist() for column in (s.addr, s.size, s.start, s.end)]
    assert sorted(zip(*span_columns, strict=True)) == [
        (0x1000, 0x1000, 0, 4),
        (0x5000, 0x1000, -1, 1),
        (0x8000, 0x1000, 2, 5),
        (0x9000, 0x1000, 2, 3),
        (0xA000, 0x1000, 2, 5),
        (0xF000, 0x1000, -1, 5),
    ]
