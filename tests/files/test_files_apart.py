"""Files of pages are decoded in a bounded program: whatever they do there, the viewer goes on and nothing stays."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import threading
import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from PIL import Image
from support import scene_files as w
from support.memory_data import event, snapshot

from splatview_viewer.errors import CameraError, FileError
from splatview_viewer.files import apart, open_file
from splatview_viewer.files.apart import Column, FilmHeader, PictureHeader, SceneHeader, read_apart, read_film_apart
from splatview_viewer.files.program import ReadingProgram
from splatview_viewer.memory.model import Snapshot
from splatview_viewer.paths.nerfstudio import read_path, write_path
from splatview_viewer.scene import FIELDS, GaussianScene

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.programs
T = w.truth(50)


class CancelledError(Exception):
    pass


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    assert isinstance(a, GaussianScene) and isinstance(b, GaussianScene)
    facts = [(s.notes, s.sh_degree, s.antialiased, s.activated, s.up) for s in (a, b)]
    return facts[0] == facts[1] and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in FIELDS)


@pytest.mark.parametrize("kind", ["ply", "png"])
def test_read_apart_returns_what_open_file_does(kind: str, tmp_path: Path) -> None:
    """Also where the name of the file is another's by the time it is read: it is opened by its descriptor."""
    path, said = tmp_path / f"a.{kind}", []
    if kind == "ply":
        w.write_ply(path, w.ply_columns(T), header="comment Vertical axis: -z\n")
    else:
        Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(path)
    expected = open_file(path)

    def started(pid: int) -> None:
        path.unlink()
        path.write_bytes(b"another one")

    got = read_apart(path, lambda what, fraction: said.append(fraction), started=started)
    assert same(expected, got)
    assert said and all(0 <= fraction <= 1 for fraction in said)
    values = got if isinstance(got, np.ndarray) else got.means  # type: ignore[union-attr]
    assert isinstance(values, np.ndarray) and values.flags.writeable


def test_read_apart_returns_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "memory.pickle"
    path.write_bytes(pickle.dumps(snapshot([event("alloc", 512), event("free", 512)])))
    got = read_apart(path)
    assert isinstance(got, Snapshot) and len(got.traces[0].events) == 2


def path_file(folder: Path, frames: int = 30) -> Path:
    frame = json.dumps({"camera_to_world": np.eye(4).ravel().tolist(), "fov": 40.0})
    (folder / "path.json").write_text(f'{{"camera_path": [{", ".join([frame] * frames)}]}}')
    return folder / "path.json"


def test_read_film_apart_returns_what_read_path_does(tmp_path: Path) -> None:
    path = path_file(tmp_path)
    assert write_path(read_film_apart(path)) == write_path(read_path(path))
    path.unlink()
    with pytest.raises(CameraError, match="No such file"):
        read_film_apart(path)


# -- hostile files -----------------------------------------------------------------------------------------------------


def png_bomb(path: Path) -> Path:
    """11000 x 11000 pixels of one colour, RGBA, in 470 kB: decoded it takes 484 MB, several times over."""
    side, rows = 11000, 100
    some = (b"\0" + b"\x10\x20\x30\xff" * side) * rows
    squeeze = zlib.compressobj(9, wbits=-15)
    part = squeeze.compress(some) + squeeze.flush(zlib.Z_FULL_FLUSH)  # which can be repeated
    total = 1
    for _ in range(side // rows):
        total = zlib.adler32(some, total)
    data = b"\x78\xda" + part * (side // rows) + squeeze.flush() + total.to_bytes(4, "big")

    def chunk(kind: bytes, body: bytes) -> bytes:
        return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")

    head = side.to_bytes(4, "big") * 2 + b"\x08\x06\0\0\0"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b""))
    return path


def test_a_picture_that_unpacks_to_too_much_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "BASE", 300 << 20)
    bomb = png_bomb(tmp_path / "bomb.png")
    with pytest.raises(FileError, match=r"not enough memory|unreadable picture|pixels of the picture need") as e:
        read_apart(bomb)
    assert str(e.value).startswith(str(bomb))


def test_a_file_that_takes_endless_time_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of the processor's time than one second, however fast the machine: half a million frames of a path."""
    monkeypatch.setattr(apart, "CPU_BASE", 0)
    monkeypatch.setattr(apart, "CPU_PER_BYTE", 0)
    path = path_file(tmp_path, 400_000)
    with pytest.raises(CameraError, match=r"path\.json: reading it took more of the processor's time than any file"):
        read_film_apart(path)


@pytest.mark.parametrize(("number", "words"), [(signal.SIGSEGV, r"crashed \(SIGSEGV\)"),
                                               (signal.SIGKILL, "not enough memory"),
                                               (signal.SIGXCPU, "processor's time")])
def test_a_program_that_crashes_is_an_error_of_its_file(number: int, words: str, tmp_path: Path) -> None:
    with pytest.raises(CameraError, match=words):
        read_film_apart(path_file(tmp_path), started=lambda pid: os.kill(pid, number))


def test_a_cancel_ends_the_program(tmp_path: Path) -> None:
    started: list[int] = []

    def progress(what: str, fraction: float) -> None:
        if started:
            raise CancelledError

    with pytest.raises(CancelledError):
        read_film_apart(path_file(tmp_path), progress, started=started.append)
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


def test_a_file_that_waits_for_its_turn_can_be_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many programs at a time."""
    monkeypatch.setattr(apart, "_turns", threading.Semaphore(0))

    def progress(what: str, fraction: float) -> None:
        assert what == "waiting for other files"
        raise CancelledError

    with pytest.raises(CancelledError):
        read_apart(w.write_splat(tmp_path / "a.splat", T), progress)


def test_a_scene_in_a_folder_is_refused(tmp_path: Path) -> None:
    files = w.sog_files(T)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(FileError, match=r"send the scene as one \.sog file"):
        read_apart(tmp_path / "meta.json")
    with pytest.raises(FileError, match="cannot be read"):
        read_apart(tmp_path)


# -- a program that lies -----------------------------------------------------------------------------------------------


def result(size: int = 4096) -> int:
    fd = os.memfd_create("splatview-test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    return fd


F4 = Column("f4", (3, 3), 0)
FIT = [Column("f4", shape, 0) for shape in ((3, 3), (3, 4), (3, 3), (3,), (3, 3), (3, 0, 3))]


@pytest.mark.parametrize("header", [
    PictureHeader(Column("u1", (64, 65, 1), 0)), PictureHeader(Column("u1", (64, 64, 1), 64)),
    PictureHeader(Column("u1", (64, 64, 1), 1)), PictureHeader(Column("u1", (1 << 40, 1 << 40, 1), 0)),
    PictureHeader(Column("f8", (4, 4, 1), 0)), PictureHeader(Column("u1", (0, 4, 3), 0)),
    SceneHeader([F4] * 6, 0, False, []), SceneHeader(FIT, 0, False, [], (0.0, 0.0, 0.0)),
    SceneHeader([Column("f4", (), 0)] * 6, 0, False, []),
    FilmHeader([Column("f8", (2, 3), 0), Column("f8", (2, 4), 0), Column("f8", (2,), 0), Column("f8", (2,), 0)],
               False, False, "pinhole", 10, 10, 30.0),
    FilmHeader([Column("f8", (1 << 40, 3), 0)] * 4, False, False, "pinhole", 10, 10, 30.0),
])
def test_a_description_that_does_not_fit_the_result_is_refused(header: Any) -> None:
    fd = result()
    try:
        room, got = apart._mapped(fd), apart._checked(msgspec.json.encode(header))
        read = {SceneHeader: apart._scene, PictureHeader: apart._picture, FilmHeader: apart._film}[type(got)]
        with pytest.raises(FileError, match="the program that read it described"):
            read(got, room)  # type: ignore[operator]
    finally:
        os.close(fd)


def test_a_description_of_another_form_is_refused() -> None:
    for said in (b"", b"null", b"{}", b'{"type":"else"}', b'{"type":"picture"}', b"[" * 100_000, b"\xff",
                 b'{"type":"picture","pixels":{"dtype":"O","shape":[1,1,1],"at":0}}',
                 b'{"type":"picture","pixels":{"dtype":"u1","shape":[-1,1,1],"at":0}}',
                 b'{"type":"picture","pixels":{"dtype":"u1","shape":[1,1,1],"at":-64}}'):
        with pytest.raises(FileError, match="described the result wrongly"):
            apart._checked(said)


def test_a_result_cannot_be_written_after_it_was_checked() -> None:
    fd = result()
    room = apart._mapped(fd)
    try:
        with pytest.raises(OSError, match="not permitted"):
            os.pwrite(fd, b"x", 0)
        with pytest.raises(OSError, match="not permitted"):
            os.ftruncate(fd, 0)
        assert room is not None
        room[0] = 1  # this process's own copy of the page
        assert os.pread(fd, 1, 0) == b"\0"
    finally:
        os.close(fd)


@pytest.mark.parametrize(("code", "words"), [
    ("print('nonsense')", "no message of its own"), ("print('[\"error\",\"damaged\"]')", "^damaged$"),
    ("while True: print('x' * 65536, end='')", "more than 1,048,576 bytes without an end of line"),
])
def test_a_program_that_writes_anything_else_is_an_error(code: str, words: str, monkeypatch: pytest.MonkeyPatch
                                                         ) -> None:
    monkeypatch.setattr("splatview_ipc.system.child_program.command", lambda module, *_: [sys.executable, "-c", code])
    program = ReadingProgram("any", {})
    try:
        with pytest.raises(FileError, match=words):
            program.wait(lambda what, fraction: None)
    finally:
        program.end()
