"""Files that want to run something, or to take all memory: refused by name, and nothing of them happens."""

from __future__ import annotations

import gzip
import os
import pickle
import random
import signal
import struct
import subprocess
import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from fuzz.crafted import tower
from support.machine_cases import by_machine
from support.memory_data import block, event, segment, snapshot
from support.repetitions import with_exhaustive
from support.wait import PATIENCE

from splatview.ipc import child_process
from splatview.viewer_app.errors import FileError
from splatview.viewer_app.memory.loading import from_pickled, load_snapshot
from splatview.viewer_app.memory.loading.convert import convert
from splatview.viewer_app.memory.loading.machine import OddError
from splatview.viewer_app.memory.loading.opening import Opened, unpickle

if TYPE_CHECKING:
    from pathlib import Path

REFUSED = "refused: the pickle asks for"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def load(tmp_path: Path, data: bytes) -> Any:
    path = tmp_path / "x.pickle"
    path.write_bytes(data)
    return load_snapshot(path)


def text(s: str) -> bytes:
    return b"X" + struct.pack("<I", len(s)) + s.encode()


CANARY = "touch {canary}"
CALLS = {
    "reduce": b"cposix\nsystem\n" + b"%s\x85R",
    "stack_global": text("posix") + text("system") + b"\x93%s\x85R",
    "inst": b"(%siposix\nsystem\n",
    "obj": b"(cposix\nsystem\n%so",
    "newobj": b"csubprocess\nPopen\n%s\x85\x81",
    "newobj_ex": b"csubprocess\nPopen\n%s\x85}\x92",
    "build": b"cbuiltins\nobject\n)\x81}" + text("__setstate__") + b"%ssb",
    "import alone": b"csubprocess\nPopen\n",
    "persid": b"Pposix.system\n",
    "binpersid": b"%sQ",
    "ext1": b"\x82\x01", "ext2": b"\x83\x01\x00", "ext4": b"\x84\x01\x00\x00\x00",
    "buffer": b"\x97", "reduce a text": b"%s" + b")R", "build a mapping": b"}}" + text("a") + b"%ssb",
}


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_called(name: str, tmp_path: Path):
    canary = tmp_path / "canary"
    body = CALLS[name].replace(b"%s", text(CANARY.format(canary=canary)))
    whole = b"}" + text("segments") + b"]s" + text("device_traces") + body + b"s."
    for protocol in (2, 3, 5):
        (tmp_path / "y.pickle").write_bytes(bytes([0x80, protocol]) + whole)
        with open(tmp_path / "y.pickle", "rb", buffering=0) as f, pytest.raises(FileError):
            unpickle(Opened(f.fileno()))
    with pytest.raises(OddError):
        by_machine(b"\x80\x04" + whole)
    with pytest.raises(FileError) as e:
        load(tmp_path, b"\x80\x04" + whole)
    assert not canary.exists()
    if name in ("reduce", "stack_global", "inst", "obj", "newobj", "newobj_ex", "build", "import alone"):
        assert REFUSED in str(e.value)
        assert "system" in str(e.value) or "Popen" in str(e.value) or "object" in str(e.value)


class Evil:
    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.canary}",)


def test_a_snapshot_with_one_object_too_many_is_refused_by_its_name(tmp_path: Path):
    data = snapshot([event("alloc", 512), event("free", 512)], extra=Evil(tmp_path / "canary"))
    with pytest.raises(FileError, match=r"asks for posix\.system"):
        load(tmp_path, pickle.dumps(data, 4))
    assert not (tmp_path / "canary").exists()


BOMBS = {
    "memo": b"\x80\x04Nr" + struct.pack("<I", 0x7FFFFFFF) + b".",
    "long text": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"x.",
    "long bytes": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"x.",
    "bytearray": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"x.",
    "long number": b"\x80\x04\x8b" + struct.pack("<i", 0x7FFFFFFF) + b"x.",
    "negative number": b"\x80\x04\x8b" + struct.pack("<i", -1) + b"x.",
    "frame": b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"N.",
    "nested": b"\x80\x04" + b"]" * 50_000 + b"a" * 49_999 + b".",
    "nested 500,000 deep": b"\x80\x04" + b"]" * 500_000 + b"a" * 499_999 + b".",
    "nested in the trace": b"\x80\x04}" + text("device_traces") + b"]" * 20_000 + b"a" * 19_999 + b"s.",
    "nested in the trace, 200,000 deep": b"\x80\x04}" + text("device_traces") + b"]" * 200_000 + b"a" * 199_999 + b"s.",
    "pops": b"\x80\x040000.", "no mark": b"\x80\x04e.", "nothing": b"\x80\x04.",
    "memo of none": b"\x80\x04j\xff\xff\xff\x7f.",
    "itself": b"\x80\x04]q\x00h\x00a.",
}


@pytest.mark.parametrize("name", with_exhaustive(
    list(BOMBS), "long bytes", "bytearray", "negative number", "frame", "nested 500,000 deep", "nested in the trace",
    "nested in the trace, 200,000 deep", "memo of none"))
def test_what_claims_to_be_large_takes_no_memory(name: str, tmp_path: Path):
    with pytest.raises(FileError) as e:
        load(tmp_path, BOMBS[name])
    assert len(str(e.value)) < 500
    with pytest.raises((OddError, FileError)):
        by_machine(BOMBS[name])


def test_stacks_within_stacks_end(tmp_path: Path):
    """Frames that hold themselves; two of them, so that they are compared."""
    loop = b"]q\x01(h\x01h\x01e"
    entry = b"}" + text("action") + text("alloc") + b"s" + text("frames") + b"%ss"
    one, two = entry.replace(b"%s", loop), entry.replace(b"%s", loop.replace(b"\x01", b"\x02"))
    with pytest.raises(FileError, match=r"\['frames'\]\[0\] is a list"):
        load(tmp_path, b"\x80\x04}" + text("device_traces") + b"]](" + one + two + b"eas.")


@pytest.mark.exhaustive  # quick: tests of damaged scene files
@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_a_small_file_does_not_unpack_to_a_large_one(pack: Any, tmp_path: Path):
    bomb = pack(b"\x80\x04" + b"N0" * (100 << 20) + b"N.")
    assert len(bomb) < 1 << 20
    with pytest.raises(FileError, match="made to exhaust memory"):
        load(tmp_path, bomb)


@pytest.mark.exhaustive
def test_a_file_cut_anywhere_is_an_error(tmp_path: Path):
    events = [event("alloc", 512 * i, 100 + i, time_us=i) for i in range(1, 20)]
    whole = pickle.dumps(snapshot(events, [segment(512, [block(512, 512)])]), 4)
    assert len(load(tmp_path, whole).traces[0].events) == 19
    path = tmp_path / "cut.pickle"
    for n in sorted({0, 1, 2, 3, 11, 12, 40, len(whole) // 3, len(whole) // 2, len(whole) - 20, len(whole) - 1}):
        path.write_bytes(whole[:n])
        with pytest.raises(FileError, match="damaged"):
            load_snapshot(path)
    for packed in (gzip.compress(whole), zstandard.ZstdCompressor().compress(whole)):
        path.write_bytes(packed)
        assert len(load_snapshot(path).traces[0].events) == 19
        for n in (len(packed) // 2, len(packed) - 9):
            path.write_bytes(packed[:n])
            with pytest.raises(FileError, match="damaged"):
                load_snapshot(path)
        path.write_bytes(packed[:20] + bytes(30) + packed[50:])
        with pytest.raises(FileError, match="damaged"):
            load_snapshot(path)


def test_flipped_bytes_are_errors_or_other_numbers_but_never_more(tmp_path: Path):
    rng = random.Random(5)
    events = [event("alloc", 512 * i, 100 + i, time_us=i) for i in range(1, 8)]
    whole = pickle.dumps(snapshot(events, [segment(512, [block(512, 512)])]), 4)
    path = tmp_path / "flipped.pickle"
    refused = 0
    for _ in range(600):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 1, 4))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
        with open(path, "rb", buffering=0) as f:
            try:
                convert(unpickle(Opened(f.fileno())), "x")
            except FileError:
                refused += 1
    assert refused > 100


BROKEN: list[tuple[Any, str]] = [
    ({"segments": 3}, "segments is 3, not a list"),
    ({"segments": [4]}, r"segments\[0\] is 4, not a mapping"),
    ({"device_traces": {}}, "device_traces is a dict, not a list"),
    ({"device_traces": [5]}, r"device_traces\[0\] is 5, not a list"),
    ({"device_traces": [[], [6]]}, r"device_traces\[1\]\[0\] is 6, not a mapping"),
    ({"device_traces": [[]] * 2000}, "at most 1,024"),
    (snapshot([event("alloc", 512)] * 17 + [event("alloc", 512, "abc")]),  # type: ignore[arg-type]
     r"device_traces\[0\]\[17\]\['size'\] is 'abc', not a whole number"),
    (snapshot([event("alloc", 512, 1.5)]), r"\['size'\] is 1.5, not a whole number"),  # type: ignore[arg-type]
    (snapshot([event("alloc", -512)]), r"\['addr'\] is -512; legal is 0 to"),
    (snapshot([event("alloc", 1 << 70)]), r"\['addr'\] is 0x4"),
    (snapshot([event("alloc", 512, 1 << 62)]), r"\['size'\]"),
    (snapshot([event(7, 512)]), r"\['action'\] is 7, not a text"),  # type: ignore[arg-type]
    (snapshot([{"addr": 5}]), r"device_traces\[0\]\[0\] has no action"),
    (snapshot([event("alloc", 512, stream="x")]), r"\['stream'\] is 'x'"),
    (snapshot([event("alloc", 512, stream=[1])]), r"\['stream'\] is a list"),
    (snapshot([event("alloc", 512, pool_id=3)]), r"\['pool_id'\] is 3, not a pair"),
    (snapshot([event("alloc", 512, compile_context=b"x")]), r"\['compile_context'\] is a bytes, not a text"),
    (snapshot([event("alloc", 512, user_metadata=4)]), r"\['user_metadata'\] is 4, not a text"),
    (snapshot([event("alloc", 512, frames="x")]), r"\['frames'\] is 'x', not a list of frames"),
    (snapshot([event("alloc", 512, frames=[4])]), r"\['frames'\]\[0\] is 4, not a mapping"),
    (snapshot([event("alloc", 512, frames=[{"line": "x"}])]), r"\['frames'\]\[0\]\['line'\] is 'x'"),
    (snapshot([event("alloc", 512, frames=[{"name": 3}])]), r"\['frames'\]\[0\]\['name'\] is 3"),
    (lambda: snapshot([event("alloc", i, stream=i) for i in range(40_000)]), "different one; at most 32,768"),
    (lambda: snapshot([event("alloc", 512 * i, 1 << 47) for i in range(1 << 15)]), "sizes"),
    (snapshot([], [segment(512, [block(512, 512)], device="x")]), r"segments\[0\]\['device'\] is 'x'"),
    (snapshot([], [segment(512, [block(512, 512)], total_size=None)]), r"segments\[0\]\['total_size'\] is None"),
    (snapshot([], [{**segment(512, []), "blocks": [{"size": 5, "state": 3}]}]),
     r"segments\[0\]\['blocks'\]\[0\]\['state'\] is 3, not a text"),
    (snapshot([], [], external_annotations=[3]), r"external_annotations\[0\] is 3"),
    (snapshot([], [], external_annotations=[{"name": 3}]), r"external_annotations\[0\]\['name'\] is 3"),
    (snapshot([], [], allocator_settings=[3]), "allocator_settings is a list"),
    ([1, 2], "no memory snapshot: it holds a list"), ({"a": 1}, "a mapping with 'a'"), ("x", "it holds 'x'"),
]


@pytest.mark.parametrize(("data", "words"), BROKEN, ids=range(len(BROKEN)))
def test_wrong_types_are_refused_by_name(data: Any, words: str):
    with pytest.raises(FileError, match=words):
        from_pickled(data() if isinstance(data, FunctionType) else data)  # large ones are made here


def test_huge_settings_and_texts_do_not_multiply():
    deep: Any = "x"
    for _ in range(40):
        deep = [deep] * 40
    snap = from_pickled(snapshot([event("alloc", 512)], allocator_settings={3: 4, "b": float("nan"), "a": deep}))
    assert snap.settings["3"] == 4
    assert snap.settings["b"] == "nan"
    assert len(repr(snap.settings)) < 1 << 20


def test_the_program_that_reads_ends_when_nobody_listens(tmp_path: Path):
    """Its stdin closed, as by a viewer that was killed."""
    fifo = tmp_path / "never"
    os.mkfifo(fifo)
    keep = os.open(fifo, os.O_RDWR)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "splatview.viewer_app.memory.loading.worker",
             f'{{"kind": "pickle", "file": {keep}, "out": {keep}}}'],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[keep])
        assert process.stdin is not None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.5)
        process.stdin.close()
        process.wait(PATIENCE)
    finally:
        os.close(keep)


def test_modules_of_the_working_folder_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The snapshot may lie among files that somebody else wrote."""
    monkeypatch.chdir(tmp_path)
    for name in ("numpy", "pickle", "splatview", "viewer_app", "json"):
        (tmp_path / f"{name}.py").write_text("import pathlib; pathlib.Path('canary').touch()")
    assert len(load(tmp_path, pickle.dumps(snapshot([event("alloc", 512)]))).traces) == 1
    assert not (tmp_path / "canary").exists()


def test_what_is_no_regular_file_is_refused():
    with pytest.raises(FileError, match="not a regular file"):
        load_snapshot("/dev/zero")


def test_the_program_that_reads_has_a_limit_of_cpu_time(tmp_path: Path):
    """A key of 60 tuples that hold each other twice: its hash takes 2^60 steps, from 400 bytes."""
    path = tmp_path / "x.pickle"
    path.write_bytes(b"\x80\x02](" + tower(60, "tuple") + b"}h\x3cK\x01se.")
    code = ("import sys; from splatview.viewer_app.memory.loading import worker; worker.CPU_BASE = 1; "
            "sys.exit(worker.main())")
    with open(path, "rb") as f, open(tmp_path / "out", "wb") as out:
        job = f'{{"kind": "pickle", "file": {f.fileno()}, "out": {out.fileno()}}}'
        process = subprocess.Popen([sys.executable, "-c", code, job], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   pass_fds=[f.fileno(), out.fileno()])
        process.wait(PATIENCE)
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()
    assert process.returncode == -signal.SIGXCPU


def test_a_reader_that_was_ended_for_its_time_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(child_process.sys, "executable", _ended_by_the_kernel(tmp_path))
    with pytest.raises(FileError, match="more of the processor's time than any snapshot of its size needs"):
        load(tmp_path, pickle.dumps(snapshot([event("alloc", 512)])))


def _ended_by_the_kernel(folder: Path) -> str:
    program = folder / "program"
    program.write_text("#!/bin/sh\nkill -XCPU $$\n")
    program.chmod(0o700)
    return str(program)
