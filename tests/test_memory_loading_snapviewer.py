"""Folders that SnapViewer converted."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from memory_data import live_bytes

from splatview.viewer_app.errors import FileError
from splatview.viewer_app.files import open_file
from splatview.viewer_app.memory.model import ACTIONS, Snapshot

if TYPE_CHECKING:
    from pathlib import Path

# What was there before the trace comes first, then the allocs. A step is 1 long at an alloc, 4 at a free below others.
ENTRIES = [
    {"elem": 2, "timesteps": [0, 6], "offsets": [0, 0], "size": 30, "color": 2},
    {"elem": 0, "timesteps": [0, 1, 4, 7, 10, 14], "offsets": [30, 30, 30, 0, 0, 0], "size": 100, "color": 0},
    {"elem": 1, "timesteps": [5, 10], "offsets": [130, 100], "size": 7, "color": 1},
]


def convert(folder: Path, entries: list[dict[str, Any]], stacks: list[str], schema: str = "") -> Path:
    folder.mkdir()
    (folder / "allocations.json").write_text(json.dumps(entries))
    with sqlite3.connect(folder / "elements.db") as db:
        db.execute(schema or "CREATE TABLE allocs (idx INTEGER PRIMARY KEY, size INTEGER, start_time INTEGER, "
                             "end_time INTEGER, callstack TEXT)")
        if not schema:
            db.executemany("INSERT INTO allocs VALUES (?, 0, 0, 0, ?)", enumerate(stacks))
    db.close()
    return folder


STACKS = ["(0) C:/train.py:3:step\n(1) at.cpp:0:at::empty(int)", "(0) b.py:5:g\nnot a frame", "(0) free.py:1:f"]


def test_what_it_holds(tmp_path: Path):
    snap = open_file(convert(tmp_path / "converted", ENTRIES, STACKS))
    assert isinstance(snap, Snapshot)
    (trace,) = snap.traces
    e, a = trace.events, trace.allocations
    assert [ACTIONS[i] for i in e.action] == ["alloc", "alloc", "free", "free"]
    assert a.size.tolist() == [30, 100, 7]
    assert a.start.tolist() == [-1, 0, 1]
    assert a.end.tolist() == [2, 4, 3]
    assert live_bytes(trace) == [30, 130, 137, 107, 100]
    stack = snap.stack(int(a.stack[1]))
    assert [(f.file, f.line, f.name) for f in stack] == [("C:/train.py", 3, "step"), ("at.cpp", 0, "at::empty(int)")]
    assert [f.name for f in snap.stack(int(a.stack[2]))] == ["g"]
    assert a.stack[0] == -1
    assert len({int(x) for x in a.addr}) == 3
    assert "stand-ins" in snap.notes[0]


@pytest.mark.parametrize(("entries", "words"), [
    ({}, "a dict, not a list"), ([3], r"\[0\] is 3"), ([{"timesteps": []}], "timesteps"),
    ([{"timesteps": [5, 2], "elem": 0, "size": 1}], "before its beginning"),
    ([{"timesteps": [1, 2], "elem": 0, "size": "x"}], r"\['size'\] is 'x'"),
    ([{"timesteps": [1, 2], "elem": 0, "size": -1}], r"\['size'\] is -1"),
])
def test_damaged_lists_are_told(entries: Any, words: str, tmp_path: Path):
    with pytest.raises(FileError, match=words):
        open_file(convert(tmp_path / "x", entries, STACKS))


def test_damaged_databases_are_told(tmp_path: Path):
    folder = convert(tmp_path / "view", ENTRIES, [], "CREATE VIEW allocs AS SELECT 1 AS idx, 'x' AS callstack")
    with pytest.raises(FileError, match="no table allocs"):
        open_file(folder)
    (folder / "elements.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(FileError, match=r"elements\.db"):
        open_file(folder)
    (folder / "allocations.json").write_text("[" * 100_000)
    with pytest.raises(FileError, match=r"allocations\.json: damaged"):
        open_file(folder)


def test_columns_that_are_computed_are_refused(tmp_path: Path):
    """A row of 10 bytes could make a text of a gigabyte."""
    schema = "CREATE TABLE allocs (idx INTEGER PRIMARY KEY, callstack TEXT AS (hex(zeroblob(400000000))))"
    with pytest.raises(FileError, match="columns of the table allocs are computed"):
        open_file(convert(tmp_path / "converted", ENTRIES, [], schema))
