"""Columns in the user's cache folder: found by content, checked when read, bounded, and never needed."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from support.memory_data import block, event, segment, snapshot

from splatview.viewer_app.errors import FileError
from splatview.viewer_app.memory.loading import cache, columns, from_pickled, load_snapshot

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The programs that were started to read."""
    out: list[Any] = []
    begin = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: out.append(begin(*a, **k)) or out[-1])
    return out


def make(path: Path, size: int = 100) -> Path:
    path.write_bytes(pickle.dumps(snapshot([event("alloc", 512, size), event("alloc", 1024, 7)],
                                           [segment(512, [block(512, 512, requested=size)])])))
    return path


def kept(home: Path) -> list[Path]:
    return sorted(p for p in home.rglob("*") if p.is_file())


def test_the_second_opening_starts_no_program(tmp_path: Path, home: Path, started: list[Any]):
    first = load_snapshot(make(tmp_path / "a.pickle"))
    again = load_snapshot(make(tmp_path / "another name.pickle"))
    assert len(started) == 1
    assert again.name == "another name.pickle"
    assert first.traces[0].allocations.size.tolist() == again.traces[0].allocations.size.tolist() == [100, 7]
    (file,) = kept(home)
    assert file.parent == home / "splatview" / "snapshots" / "columns-v1"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o077 == 0


def test_other_content_is_another_entry_also_when_size_and_time_are_the_same(tmp_path: Path, started: list[Any]):
    path = make(tmp_path / "a.pickle", 100)
    before = path.stat()
    load_snapshot(path)
    make(path, 101)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert load_snapshot(path).traces[0].allocations.size[0] == 101
    assert len(started) == 2


def test_without_the_cache_nothing_is_written(tmp_path: Path, home: Path, started: list[Any]):
    path = make(tmp_path / "a.pickle")
    for _ in range(2):
        assert len(load_snapshot(path, cache=False).traces) == 1
    assert len(started) == 2
    assert not home.exists()


def unusable(home: Path, how: str) -> None:
    if how == "a file in the way":
        home.write_text("")
    elif how == "others may write":
        folder = home / "splatview" / "snapshots" / "columns-v1"
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    elif how == "a link":
        (home / "splatview" / "snapshots").mkdir(parents=True)
        (home / "else").mkdir()
        (home / "splatview" / "snapshots" / "columns-v1").symlink_to(home / "else")


@pytest.mark.parametrize("how", ["a file in the way", "others may write", "a link", "full"])
def test_a_folder_that_cannot_be_used_is_not_used(how: str, tmp_path: Path, home: Path,
                                                  monkeypatch: pytest.MonkeyPatch):
    unusable(home, how)
    if how == "full":
        monkeypatch.setattr(cache, "_free", lambda where: 0)
    assert load_snapshot(make(tmp_path / "a.pickle")).traces[0].allocations.size[0] == 100
    assert [p for p in kept(home) if p.suffix] == []


def test_what_the_snapshot_shows_stays_when_its_file_is_removed(tmp_path: Path, home: Path):
    snap = load_snapshot(make(tmp_path / "a.pickle"))
    for file in kept(home):
        file.unlink()
    assert snap.traces[0].allocations.size.tolist() == [100, 7]


@pytest.mark.exhaustive
def test_damaged_columns_are_made_again(tmp_path: Path, home: Path, started: list[Any]):
    path = make(tmp_path / "a.pickle")
    load_snapshot(path)
    (file,) = kept(home)
    whole = file.read_bytes()
    for n, damage in enumerate([b"", whole[:40], whole[:-1], whole[:-30] + bytes(30), b"x" * len(whole), whole + b"x"]):
        file.write_bytes(damage)
        assert load_snapshot(path).traces[0].allocations.size[0] == 100
        assert len(started) == 2 + n
        assert file.read_bytes() == whole


def test_a_link_in_the_place_of_columns_is_not_followed(tmp_path: Path, home: Path, started: list[Any]):
    path = make(tmp_path / "a.pickle")
    load_snapshot(path)
    (file,) = kept(home)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    load_snapshot(path)
    assert len(started) == 2
    assert not file.is_symlink()


def test_any_byte_of_columns_may_be_wrong(tmp_path: Path):
    """Either it is told, or the numbers are others, but all of them are places that exist."""
    data = snapshot([event("alloc", 512, 100), event("free_requested", 512, 100), event("alloc", 1024, 7)],
                    [segment(512, [block(512, 512), block(1024, 512, requested=7)])])
    out = os.memfd_create("columns")
    columns.write(from_pickled(data), out, lambda fraction: None)
    whole = os.pread(out, 1 << 20, 0)
    os.close(out)
    rng = random.Random(3)
    told = 0
    for _ in range(1500):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] = rng.choice((0, 1, 255, 128, rng.randrange(256)))
        fd = os.memfd_create("damaged")
        os.write(fd, damaged)
        try:
            snap = columns.read(fd, "x")
        except FileError:
            told += 1
            continue
        finally:
            os.close(fd)
        for trace in snap.traces:
            e, a = trace.events, trace.allocations
            for number in e.stack.tolist() + a.stack.tolist():
                assert all(f.file is not None for f in snap.stack(number))
            assert all(type(snap.streams[i]) is int for i in e.stream.tolist())
            assert all(-1 <= i < len(a) for i in e.allocation.tolist() + trace.blocks.allocation.tolist())
            assert ((a.start >= -1) & (a.start < a.end) & (a.end <= len(e))).all()
            assert all(type(snap.pools[i]) is tuple for i in a.pool.tolist() if i >= 0)
    assert told > 300


@pytest.mark.exhaustive
def test_the_folder_stays_small(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch):
    files: list[Path] = []
    for i in range(4):
        load_snapshot(make(tmp_path / f"{i}.pickle", 100 + i))
        (new,) = [p for p in kept(home) if p not in files]
        files.append(new)
        os.utime(new, (1000 + i, 1000 + i))
    load_snapshot(tmp_path / "0.pickle")  # used: now the newest
    stale = files[0].parent / "left.part"
    stale.write_text("x")
    os.utime(stale, (1000, 1000))
    monkeypatch.setattr(cache, "LIMIT_BYTES", files[0].stat().st_size * 2 + 100)
    load_snapshot(make(tmp_path / "new.pickle", 200))
    left = kept(home)
    assert len(left) == 2
    assert files[0] in left
    assert not {files[1], files[2], files[3], stale} & set(left)
