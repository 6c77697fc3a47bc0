"""Files that want to run code or to take all memory are refused by name."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from support.memory_data import block, event, segment, snapshot
from support.scene_files import ENDLESS, little_memory

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats import sandbox
from splatview_viewer.formats.sandbox import File
from splatview_viewer.snapshot.loading import (
    from_pickled,
    load_snapshot,
    read_pickle,
)

REFUSED = "refused: the pickle asks for"


def ignore_progress(step: str, fraction: float) -> None:
    pass


def read(tmp_path: Path, data: bytes) -> object:
    """Read a pickle as the sandbox does, in this process."""
    path = tmp_path / "x.pickle"
    path.write_bytes(data)
    with little_memory():
        return read_pickle([File(path, "x.pickle")], ignore_progress)


def text(s: str) -> bytes:
    return b"X" + struct.pack("<I", len(s)) + s.encode()


CALLS = {
    "reduce": b"cposix\nsystem\n" + b"%s\x85R",
    "stack_global": text("posix") + text("system") + b"\x93%s\x85R",
    "newobj": b"csubprocess\nPopen\n%s\x85\x81",
    "persid": b"Pposix.system\n",
    "extension": b"\x82\x01",
}


@pytest.mark.parametrize("name", CALLS)
def test_pickles_cannot_call_anything(name: str, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    body = CALLS[name].replace(b"%s", text(f"touch {canary}"))
    pickle_start = (
        b"}" + text("segments") + b"]s" + text("device_traces") + body + b"s."
    )
    for protocol in (2, 4, 5):
        with pytest.raises(FileError) as e:
            read(tmp_path, bytes([0x80, protocol]) + pickle_start)
    assert not canary.exists()
    assert name in ("persid", "extension") or REFUSED in str(e.value)


BOMBS = {
    "memo": b"\x80\x04Nr" + struct.pack("<I", 0x7FFFFFFF) + b".",
    "long text": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"x.",
    "bytearray": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"x.",
    "nested": b"\x80\x04" + b"]" * 20_000 + b"a" * 19_999 + b".",
    "itself": b"\x80\x04]q\x00h\x00a.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_false_sizes_take_no_memory(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileError) as e:
        read(tmp_path, BOMBS[name])
    assert len(str(e.value)) < 500


def test_truncated_files_raise_an_error(
    tmp_path: Path, read_in_process: list[Any]
) -> None:
    events = [event("alloc", 512 * i, 100 + i, time_us=i) for i in range(1, 20)]
    data = pickle.dumps(snapshot(events, [segment(512, [block(512, 512)])]), 4)
    path = tmp_path / "cut.pickle"
    lengths = {0, 1, 2, 3, 11, 12, 40}
    lengths |= {len(data) // 3, len(data) // 2, len(data) - 20, len(data) - 1}
    for n in sorted(lengths):
        path.write_bytes(data[:n])
        with pytest.raises(FileError, match="damaged"):
            load_snapshot(path)
    packed = gzip.compress(data)
    for damaged in (
        packed[: len(packed) // 2],
        packed[:-9],
        packed[:20] + bytes(30) + packed[50:],
    ):
        path.write_bytes(damaged)
        with pytest.raises(FileError, match="damaged"):
            load_snapshot(path)


BROKEN: list[tuple[Any, str]] = [
    (
        {"device_traces": [[], [6]]},
        r"device_traces\[1\]\[0\]: Expected `object`, got `int`",
    ),
    (
        snapshot([event("alloc", 512)] * 17 + [{**event("alloc", 512), "size": "abc"}]),
        r"device_traces\[0\]\[17\]: Expected `int`, got `str` - at `\$.size`",
    ),
    (
        snapshot([event("alloc", -512)]),
        r"device_traces\[0\]\[0\]: Expected `int` >= 0 - at `\$.addr`",
    ),
    (
        snapshot([event("alloc", 2**64 - 512)]),
        r"device_traces\[0\]\[0\]: 512 bytes at 0xf.*ends at 2\^64",
    ),
    (
        snapshot([event("alloc", 2**70)]),
        r"device_traces\[0\]: a number is more than 2\^64",
    ),
    (
        snapshot([event("alloc", 512, frames=[{"line": "x"}])]),
        r"frames\[0\]: Expected `int`, got `str`",
    ),
    (
        snapshot([], [segment(512, [block(512, 512)], total_size=None)]),
        r"got `null` - at `\$.segments\[0\].total_size",
    ),
    (
        snapshot([event("segment_alloc", i << 61, 1 << 61) for i in range(4)]),
        "reserved ranges are together more than any machine",
    ),
    (
        {"device_traces": [[event("alloc", 512)]] * 300},
        "tells of 300 devices; at most 256",
    ),
    (
        {"segments": [segment(512, [block(512, 512)], device=i) for i in range(300)]},
        "tells of 300 devices; at most 256",
    ),
    ([1, 2], "no memory snapshot: it holds a list"),
    ({"a": 1}, "a mapping with 'a'"),
]


def test_wrong_types_are_refused_by_name() -> None:
    for data, message in BROKEN:
        with pytest.raises(FileError, match=message):
            from_pickled(data)


@pytest.mark.programs
def test_sandbox_limits_cpu_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hash of a key of 60 tuples that hold each other twice takes 2^60 steps.

    Such a key takes 400 bytes.
    """
    monkeypatch.setattr(sandbox, "CPU_BASE", 0)
    path = tmp_path / "x.pickle"
    path.write_bytes(ENDLESS)
    with pytest.raises(FileError, match="processor's time"):
        load_snapshot(path)


def tower(height: int) -> list[Any]:
    """Make lists that hold each other twice: a walk through them takes 2^height steps."""
    value: list[Any] = []
    for _ in range(height):
        value = [value, value]
    return value


def wide(**fields: Any) -> dict[str, Any]:
    return {**{f"key {i}": 0 for i in range(3000)}, **fields}


SHARED: dict[str, Any] = {
    "traces": {"device_traces": [[event("alloc", 512)] * 2000] * 2000},
    "entries": {"device_traces": [[wide(**event("alloc", 512))] * 3000]},
    "stacks": {
        "device_traces": [[event("alloc", 512, frames=[{}] * 9000)] * 9000],
    },
    "blocks": {"segments": [segment(512, [block(512, 512)] * 1500)] * 1500},
    "tuples": {
        "segments": ({**segment(512, []), "blocks": (block(512, 512),) * 1500},) * 1500
    },
    "tuples of frames": {
        "device_traces": [[event("alloc", 512, frames=({},) * 9000)] * 9000],
    },
    "segments": {"segments": [wide(**segment(512, []))] * 3000},
    "annotations": {"segments": [], "external_annotations": [wide()] * 3000},
    "host": {"segments": [], "host_segments": [wide(**segment(512, []))] * 3000},
}


@pytest.mark.parametrize("name", SHARED)
def test_values_shared_too_often_are_refused(name: str, tmp_path: Path) -> None:
    data = pickle.dumps(SHARED[name])
    with pytest.raises(FileError, match="named again and again"):
        read(tmp_path, data)


@pytest.mark.programs
def test_unused_towers_of_shared_lists_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that are not needed are neither compared nor walked through."""
    monkeypatch.setattr(sandbox, "CPU_BASE", 1)
    common = {"filename": "a.py", "line": 1, "name": "f"}
    stacks = [[common, {**common, "more": tower(60)}] for _ in range(2)]
    events = [event("alloc", 512 * i, frames=stacks[i], more=tower(60)) for i in (0, 1)]
    data = snapshot(events, allocator_settings={"a": tower(60)}, more=tower(60))
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps(data))
    loaded = load_snapshot(path, cache=False)
    assert loaded.traces[0].events.stack.tolist() == [0, 0]
    assert [f.name for f in loaded.stack(0)] == ["f", "f"]


def test_shared_stacks_are_read(tmp_path: Path) -> None:
    """PyTorch shares frames among entries, and a writer may share their lists as well."""
    stack = [{"filename": "a.py", "line": i, "name": "f"} for i in range(60)]
    events = [event("alloc", 512 * i, frames=stack) for i in range(5000)]
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps(snapshot(events)))
    with little_memory():
        answer, _ = read_pickle([File(path, "x.pickle")], ignore_progress)
    assert answer.devices[0].rows[0] == 5000


def test_endless_texts_and_stacks_are_cut_and_noted() -> None:
    """Panes measure each letter of a text and draw each frame of a stack."""
    deep = [{"filename": "a.py", "line": i, "name": "f"} for i in range(9000)]
    data = snapshot(
        [
            event("alloc", 512, frames=[{"name": "f" * 100_000}]),
            event("alloc", 1024, frames=deep, user_metadata="u" * 100_000),
        ],
        external_annotations=[{"name": "n" * 100_000, "stage": "START"}],
    )
    loaded = from_pickled(data)
    assert max(map(len, loaded.texts)) == len(loaded.annotations[0].name) == 16384
    assert [f.line for f in loaded.stack(1)] == list(range(4096))
    assert "are cut" in loaded.notes[-1]


@pytest.mark.usefixtures("read_in_process")
def test_lone_surrogates_are_read(tmp_path: Path) -> None:
    half = "a\ud800"
    data = snapshot(
        [event("alloc", 512, frames=[{"name": half}], user_metadata=half)],
        external_annotations=[{"name": half, "stage": half}],
        allocator_settings={half: half, "k" * 2_000_000: 1},
    )
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps(data))
    loaded = load_snapshot(path, cache=False)
    assert loaded.stack(0)[0].name == loaded.annotations[0].name == "a?"
    assert loaded.settings == {"a?": "a?", "k" * 200: "1"}


def test_annotation_that_is_none_is_left_out_with_a_note() -> None:
    loaded = from_pickled(
        snapshot(
            [event("alloc", 1 << 20)],
            external_annotations=[
                {"name": "step", "stage": "START", "time_us": 3},
                {"name": "step", "stage": "END", "time_us": "soon"},
            ],
        )
    )
    assert [annotation.stage for annotation in loaded.annotations] == ["START"]
    assert any("left out" in note and "time_us" in note for note in loaded.notes)
