"""Snapshots from files: every schema, protocol and packing; which events make one allocation; the cache."""

from __future__ import annotations

import gzip
import os
import pickle
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
def test_every_protocol_and_packing_holds_the_same(
    pack: Any, protocol: int, tmp_path: Path, here: list[Any]
) -> None:
    plain = pickle.dumps(small(), protocol)
    path = tmp_path / "a snapshot"
    path.write_bytes(pack(plain))
    snap = open_file(path)
    assert isinstance(snap, MemorySnapshot)
    assert (snap.name, snap.file_bytes) == ("a snapshot", len(plain))
    assert columns(snap) == columns(from_pickled(small()))


def test_a_real_snapshot_by_the_program_is_what_it_is_here(
    data_dir: Path, real: MemorySnapshot
) -> None:
    told: list[float] = []
    snap = load_snapshot(
        data_dir / "training_memory_snapshot.pickle",
        lambda what, fraction: told.append(fraction),
    )
    assert columns(snap) == columns(real)
    assert snap.notes == real.notes
    assert told == sorted(told)
    assert len(set(told)) > 1
    assert not any(a.flags.writeable for a in vars(snap.traces[0].events).values())


def test_old_files_lack_much() -> None:
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
    snap = from_pickled(segments)  # type: ignore[arg-type]  (what torch.cuda.memory_snapshot returns)
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
    assert (
        trace.allocations.start[0],
        trace.allocations.end[0],
        trace.allocations.freed[0],
    ) == (0, 1, 1)


def test_new_files_hold_more() -> None:
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


def test_recognised_by_content(tmp_path: Path) -> None:
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


def make(path: Path, size: int = 100) -> Path:
    path.write_bytes(
        pickle.dumps(
            snapshot(
                [event("alloc", 512, size), event("alloc", 1024, 7)],
                [segment(512, [block(512, 512, requested=size)])],
            )
        )
    )
    return path


def kept(cache: Path) -> list[Path]:
    return sorted(p for p in cache.rglob("*") if p.is_file())


def test_the_second_opening_reads_no_pickle(
    tmp_path: Path, cache: Path, here: list[Any]
) -> None:
    first = load_snapshot(make(tmp_path / "a.pickle"))
    (tmp_path / "link").symlink_to(tmp_path / "a.pickle")
    again = load_snapshot(tmp_path / "link")
    assert len(here) == 1
    assert again.name == "link"
    (file,) = kept(cache)
    assert file.parent == cache / "splatview" / "snapshots" / "columns-v1"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o077 == 0
    file.unlink()  # what was read stays
    os.utime(tmp_path / "a.pickle", (1000, 1000))  # written again
    load_snapshot(tmp_path / "a.pickle")
    assert len(here) == 2
    assert (
        first.traces[0].allocations.size.tolist()
        == again.traces[0].allocations.size.tolist()
        == [100, 7]
    )


def test_a_folder_that_cannot_be_used_is_not_used(
    tmp_path: Path, cache: Path, here: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [
        tmp_path / name / "splatview" / "snapshots" / "columns-v1"
        for name in ("file", "open", "link")
    ]
    folders[0].parents[2].write_text("in the way")
    folders[1].mkdir(parents=True)
    folders[1].chmod(0o777)  # others may write
    folders[2].parent.mkdir(parents=True)
    folders[2].symlink_to(tmp_path)
    path = make(tmp_path / "a.pickle")
    for folder in folders:
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parents[2]))
        assert load_snapshot(path).traces[0].allocations.size[0] == 100
        assert not list(tmp_path.rglob("*.columns"))


def test_damaged_columns_are_made_again_and_links_not_followed(
    tmp_path: Path, cache: Path, here: list[Any]
) -> None:
    path = make(tmp_path / "a.pickle")
    load_snapshot(path)
    (file,) = kept(cache)
    whole = file.read_bytes()
    for n, damage in enumerate(
        [b"", whole[:-1], whole[:-30] + bytes(30), whole + b"x"]
    ):
        file.write_bytes(damage)
        assert load_snapshot(path).traces[0].allocations.size[0] == 100
        assert len(here) == 2 + n
        assert file.read_bytes() == whole
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    load_snapshot(path)
    assert not file.is_symlink()


def test_the_folder_stays_small(
    tmp_path: Path, cache: Path, here: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    files: list[Path] = []
    for i in range(4):
        load_snapshot(make(tmp_path / f"{i}.pickle", 100 + i))
        (new,) = [p for p in kept(cache) if p not in files]
        files.append(new)
        os.utime(new, (1000 + i, 1000 + i))
    load_snapshot(tmp_path / "0.pickle")  # used: now the newest
    monkeypatch.setattr(store, "MAX_CACHE_BYTES", files[0].stat().st_size * 2 + 100)
    load_snapshot(make(tmp_path / "new.pickle", 200))
    left = kept(cache)
    assert len(left) == 2
    assert files[0] in left


def test_every_event_of_a_real_snapshot(
    real: MemorySnapshot, pickled: dict[str, Any]
) -> None:
    (trace,) = real.traces
    check_replay(pickled, trace)
    assert live_bytes(trace)[-1] == int(trace.segments.requested.sum())
    stacks = [
        *(
            [(f.file, f.line, f.name) for f in real.stack(i)]
            for i in range(len(real.stacks))
        ),
        [],
    ]
    assert len(set(map(tuple, stacks))) == len(stacks)
    blocks = [
        b
        for s in sorted(pickled["segments"], key=lambda s: s["address"])
        for b in s["blocks"]
    ]
    for numbers, entries in (
        (trace.events.stack, pickled["device_traces"][0]),
        (trace.blocks.stack, blocks),
    ):
        for number, entry in zip(numbers.tolist(), entries, strict=True):
            assert stacks[number] == [
                (f["filename"], f["line"], f["name"]) for f in entry["frames"]
            ]
    assert (trace.blocks.allocation >= 0).tolist() == [
        b["state"] == "active_allocated" for b in blocks
    ]


ADDRESS = st.integers(0, 4).map(lambda i: 0x7F0000000000 + i * 512)
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
def test_any_order_of_entries(
    events: list[dict[str, Any]], states: list[str], with_blocks: bool, odd: int
) -> None:
    """Also orders that no allocator makes; addresses near and far, which are sorted in different ways."""
    for e in events:
        e["addr"] += odd
    start = 0x7F0000000000 + odd
    segments = [
        segment(
            start,
            [block(start + i * 512, 512, s, 100 + i) for i, s in enumerate(states)],
        )
    ]
    data = snapshot(events, segments if with_blocks else [])
    for trace in from_pickled(data).traces:
        check_replay(data, trace)


def test_oddities_are_noted() -> None:
    for events in (
        [event("alloc", 512), event("alloc", 512)],
        [event("alloc", 512), *[event("free", 512)] * 2],
    ):
        assert any(
            "1 allocations lack" in note
            for note in from_pickled(snapshot(events)).notes
        )


def live_mb(trace: Trace) -> list[int]:
    return (live_bytes(trace) // MB).tolist()


def test_a_completion_alone_frees_only_where_no_request_is_recorded() -> None:
    """Requested before the trace, it was not live in it; with skip_actions=["free_requested"] it was."""

    def entry(action: str, addr: int, mb: int) -> dict[str, Any]:
        return event(action, addr * MB, mb * MB)

    completed_alone = [
        entry("alloc", 8, 2),
        entry("alloc", 12, 3),
        entry("free_completed", 0, 5),
    ]
    whole_free = [entry("free_requested", 8, 2), entry("free_completed", 8, 2)]
    (requested,) = from_pickled(snapshot(completed_alone + whole_free)).traces
    assert live_mb(requested) == [0, 2, 5, 5, 3, 3]
    assert requested.events.allocation.tolist() == [0, 1, -1, 0, 0]
    (skipped,) = from_pickled(snapshot(completed_alone + whole_free[1:])).traces
    assert live_mb(skipped) == [5, 7, 10, 5, 3]


def host_memory() -> dict[str, Any]:
    """Pinned memory: two traces, of which the second has a segment that was there before."""
    traces = [
        [event("segment_alloc", 512, 4 * MB), event("alloc", 512, 4 * MB)],
        [event("alloc", 512, 2 * MB), event("free", 512, 2 * MB)],
    ]
    held = segment(512, [block(512, 4 * MB)]), segment(512, [], device=1)
    return {"host_segments": list(held), "host_traces": traces}


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


def test_pools_come_from_the_segment_where_the_events_do_not_tell() -> None:
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
    named = {
        int(a): snap.pools[p] if p >= 0 else None
        for a, p in zip(trace.allocations.addr, trace.allocations.pool, strict=True)
    }
    assert named == {1 << 20: (0, 3), (1 << 20) + 512: (0, 3), 64: (7, 0), 128: None}
    assert [snap.pools[p] if p >= 0 else None for p in trace.events.pool] == [
        (0, 3),
        (0, 3),
        (7, 0),
        None,
    ]


def test_what_is_reserved_when() -> None:
    events = [
        event("segment_alloc", 0x1000, 0x1000),
        event("segment_free", 0x5000, 0x1000),
        event("segment_map", 0x8000, 0x3000),
        event("segment_unmap", 0x9000, 0x1000),
        event("segment_free", 0x1000, 0x1000),
    ]
    segments = [segment(at, [block(at, 0x1000)]) for at in (0x8000, 0xA000, 0xF000)]
    s = from_pickled(snapshot(events, segments)).traces[0].spans
    found = sorted(
        zip(
            *(column.tolist() for column in (s.addr, s.size, s.start, s.end)),
            strict=True,
        )
    )
    assert found == [
        (0x1000, 0x1000, 0, 4),
        (0x5000, 0x1000, -1, 1),
        (0x8000, 0x1000, 2, 5),
        (0x9000, 0x1000, 2, 3),
        (0xA000, 0x1000, 2, 5),
        (0xF000, 0x1000, -1, 5),
    ]
