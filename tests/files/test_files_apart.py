"""Files of pages are decoded in a bounded program: whatever they do there, the viewer goes on and nothing stays."""

from __future__ import annotations

import gc
import json
import os
import pickle
import resource
import signal
import sys
import threading
import zipfile
import zlib
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from PIL import Image
from support import scene_files as w
from support.memory_data import event, snapshot
from support.meters import MB, children, footprint, settled
from support.repetitions import exhaustive, with_exhaustive

from splatview.viewer_app.errors import CameraError, FileError
from splatview.viewer_app.files import apart, open_file
from splatview.viewer_app.files.apart import (
    Column,
    FilmHeader,
    PictureHeader,
    SceneHeader,
    SnapshotHeader,
    read_apart,
    read_film_apart,
)
from splatview.viewer_app.files.program import ReadingProgram
from splatview.viewer_app.memory.model import Snapshot
from splatview.viewer_app.paths.nerfstudio import read_path, write_path
from splatview.viewer_app.scene import FIELDS, GaussianScene
from splatview.viewer_app.sources import FileSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.usefixtures("few_objects")
T = w.truth(50)


def picture(path: Path) -> Path:
    Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(path)
    return path


def array(path: Path, dtype: Any = np.float64) -> Path:
    np.save(path, np.arange(60, dtype=dtype).reshape(5, 4, 3))
    return path


def written(path: Path, how: Callable[..., Any], *args: Any, **options: Any) -> Path:
    how(path, *args, **options)
    return path


FILES: dict[str, Callable[[Path], Path]] = {
    "ply": lambda p: written(p / "scene.ply", w.write_ply, w.ply_columns(T)),
    "compressed ply": lambda p: written(p / "c.compressed.ply", w.write_compressed_ply, T),
    "splat": lambda p: written(p / "scene.splat", w.write_splat, T),
    "spz": lambda p: written(p / "scene.spz", w.write_spz, T),
    "sog": lambda p: written(p / "scene.sog", w.write_zip, w.sog_files(T)),
    "checkpoint": lambda p: written(p / "ckpt.pt", w.write_checkpoint, T),
    "a rank": lambda p: written(p / "ckpt_29999_rank0.pt", w.write_checkpoint, T),
    "png": lambda p: picture(p / "a.png"),
    "jpeg": lambda p: picture(p / "a.jpg"),
    "webp": lambda p: picture(p / "a.webp"),
    "npy": lambda p: array(p / "a.npy"),
    "npy of 16 bits": lambda p: array(p / "a.npy", np.uint16),
}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    assert isinstance(a, GaussianScene) and isinstance(b, GaussianScene)
    facts = [(s.notes, s.sh_degree, s.antialiased, s.activated) for s in (a, b)]
    return facts[0] == facts[1] and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in FIELDS)


def held() -> set[tuple[str, ...]]:
    """This process's descriptors, with what they lead to, and its children."""
    found: set[tuple[str, ...]] = {("child", str(pid)) for pid in children(os.getpid())}
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the listing's own
            found.add(("descriptor", name, os.readlink(f"/proc/self/fd/{name}")))
    return found


@contextmanager
def nothing_left() -> Iterator[None]:
    """Neither a descriptor nor a child is left of what is done meanwhile. Those of earlier tests may go."""
    before = held()
    yield
    gc.collect()
    assert not held() - before


# -- each format -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", with_exhaustive(
    list(FILES), "compressed ply", "splat", "checkpoint", "a rank", "jpeg", "webp", "npy of 16 bits"))
def test_read_apart_returns_what_open_file_does(kind: str, tmp_path: Path) -> None:
    path, said = FILES[kind](tmp_path), []
    with nothing_left():
        got = read_apart(path, lambda what, fraction: said.append(fraction))
        assert same(open_file(path), got)
        assert said and all(0 <= fraction <= 1 for fraction in said)
        values = got if isinstance(got, np.ndarray) else got.means  # type: ignore[union-attr]
        assert isinstance(values, np.ndarray) and values.flags.writeable
        del got, values


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


@pytest.fixture(scope="module")
def long_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A path that takes a while to be read."""
    return path_file(tmp_path_factory.mktemp("long"), 300_000)


def test_read_film_apart_returns_what_read_path_does(tmp_path: Path) -> None:
    path = path_file(tmp_path)
    assert write_path(read_film_apart(path)) == write_path(read_path(path))
    path.write_text("{}")
    with pytest.raises(CameraError, match='neither "keyframes" nor "camera_path"'):
        read_film_apart(path)
    path.unlink()
    with pytest.raises(CameraError, match="No such file"):
        read_film_apart(path)


@pytest.mark.exhaustive  # quick: a file that takes endless time
def test_a_page_sends_no_path_of_endless_frames(tmp_path: Path) -> None:
    path = path_file(tmp_path, apart.MOST_FRAMES + 1)
    with pytest.raises(CameraError, match=r"20,001 cameras; a page can send 1 to 20,000"):
        read_film_apart(path)


DECODERS = ("splatview.viewer_app.files.ply", "splatview.viewer_app.files.sog", "splatview.viewer_app.files.image",
            "splatview.viewer_app.files.checkpoint", "splatview.viewer_app.files.spz", "PIL.PngImagePlugin", "zipfile",
            "splatview.viewer_app.memory.loading.opening")


def test_no_decoder_is_loaded_in_the_process_that_asks(tmp_path: Path, programs: Any) -> None:
    """A fresh process: where a file is decoded its decoder is imported."""
    paths = [FILES[kind](tmp_path) for kind in ("ply", "spz", "sog", "png")]
    program = ("import sys; from pathlib import Path; from splatview.viewer_app.files.apart import read_apart\n"
               "for path in sys.argv[1:]: print(type(read_apart(Path(path))).__name__)\n"
               f"print([name for name in {DECODERS} if name in sys.modules])")
    done = programs.python("-c", program, *map(str, paths))
    out, err = done.communicate()
    assert out.splitlines() == ["GaussianScene"] * 3 + ["ndarray", "[]"], err


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
    bomb, before = png_bomb(tmp_path / "bomb.png"), footprint()
    with pytest.raises(FileError, match=r"not enough memory|unreadable picture|pixels of the picture need") as e:
        read_apart(bomb)
    assert str(e.value).startswith(str(bomb))
    assert not footprint().over(before, rss=32 * MB)


def test_the_memory_of_the_program_follows_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "available_bytes", lambda: 3 << 20)
    big = written(tmp_path / "big.ply", w.write_ply, w.ply_columns(w.truth(50_000)))
    with pytest.raises(FileError, match="not enough memory"):
        read_apart(big)


def test_a_file_that_takes_endless_time_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of the processor's time than one second, however fast the machine: half a million frames of a path."""
    monkeypatch.setattr(apart, "CPU_BASE", 0)
    monkeypatch.setattr(apart, "CPU_PER_BYTE", 0)
    path = path_file(tmp_path, 400_000)
    with pytest.raises(CameraError, match=r"path\.json: reading it took more of the processor's time than any file"):
        read_film_apart(path)


@pytest.mark.parametrize(("number", "words"), [
    (signal.SIGSEGV, r"crashed \(SIGSEGV\)"), exhaustive(signal.SIGABRT, r"crashed \(SIGABRT\)"),
    exhaustive(signal.SIGBUS, "SIGBUS"), (signal.SIGKILL, "not enough memory"), (signal.SIGXCPU, "processor's time"),
    exhaustive(signal.SIGILL, "SIGILL"),
])
def test_a_program_that_crashes_is_an_error_of_its_file(number: int, words: str, long_path: Path) -> None:
    with nothing_left(), pytest.raises(CameraError, match=words):
        read_film_apart(long_path, started=lambda pid: os.kill(pid, number))


def test_a_cancel_ends_the_program(long_path: Path) -> None:
    started: list[int] = []

    class Cancelled(Exception):  # noqa: N818
        pass

    def progress(what: str, fraction: float) -> None:
        if started:
            raise Cancelled

    with nothing_left(), pytest.raises(Cancelled):
        read_film_apart(long_path, progress, started=started.append)
    assert not Path(f"/proc/{started[0]}").exists()


def test_files_wait_for_their_turn(tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    """So many programs at a time, and a file that waits can be cancelled."""
    png, said, got = FILES["png"](tmp_path), [], []
    before = set(children(os.getpid()))  # other tests' programs
    for _ in range(apart.AT_ONCE):
        apart._turns.acquire()
    try:
        thread = threading.Thread(target=lambda: got.append(read_apart(png, lambda what, _: said.append(what))))
        thread.start()
        wait_until(lambda: "waiting for other files" in said)
        source = FileSource(png, apart=True)
        source.close()
        source._thread.join()
        assert not got and set(children(os.getpid())) <= before
    finally:
        for _ in range(apart.AT_ONCE):
            apart._turns.release()
    thread.join()
    assert isinstance(got[0], np.ndarray)


def test_the_program_ends_with_the_viewer(long_path: Path, programs: Any, wait_until: Callable[..., Any]) -> None:
    """Also one that is stopped, and so cannot look at anything."""
    program = ("import os, signal, sys; from pathlib import Path\n"
               "from splatview.viewer_app.files.apart import read_film_apart\n"
               "def started(pid):\n    print(pid, flush=True)\n"
               "read_film_apart(Path(sys.argv[1]), started=started)")
    viewer = programs.python("-c", program, str(long_path))
    pid = int(viewer.stdout.readline())

    def bounded() -> bool:
        return resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] == 64

    wait_until(bounded)
    assert resource.prlimit(pid, resource.RLIMIT_AS)[1] < 1 << 36
    assert resource.prlimit(pid, resource.RLIMIT_FSIZE)[1] < 1 << 36
    assert resource.prlimit(pid, resource.RLIMIT_CORE) == (0, 0)
    os.kill(pid, signal.SIGSTOP)
    viewer.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text())


def test_a_scene_in_a_folder_is_refused(tmp_path: Path) -> None:
    files = w.sog_files(T)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(FileError, match=r"send the scene as one \.sog file"):
        read_apart(tmp_path / "meta.json")
    with pytest.raises(FileError, match="cannot be read"):
        read_apart(tmp_path)


@pytest.mark.exhaustive
def test_neighbours_of_a_file_are_not_read(tmp_path: Path) -> None:
    """The ranks beside a checkpoint are other files, which the page did not send with it."""
    for rank in range(2):
        w.write_checkpoint(tmp_path / f"ckpt_1_rank{rank}.pt", T)
    assert len(open_file(tmp_path / "ckpt_1_rank0.pt")) == 100  # type: ignore[arg-type]
    assert len(read_apart(tmp_path / "ckpt_1_rank0.pt")) == 50  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", with_exhaustive(
    list(FILES), *(kind for kind in FILES if kind not in ("ply", "png"))))
def test_a_file_is_opened_by_its_descriptor(kind: str, tmp_path: Path) -> None:
    """Its name may be gone, or be another file's, by the time it is read."""
    path = FILES[kind](tmp_path)
    expected = open_file(path)

    def started(pid: int) -> None:
        path.unlink()
        path.write_bytes(b"another one")

    assert same(expected, read_apart(path, started=started))


@pytest.mark.exhaustive
def test_a_damaged_file_says_what_open_file_says(tmp_path: Path) -> None:
    damaged = {"a.ply": b"ply\nformat binary\n", "b.sog": b"PK\x03\x04" + bytes(50), "c.png": b"\x89PNG\r\n\x1a\n",
               "d.pt": b"cposix\nsystem\n.", "e.txt": b"hello", "f.ply": b""}
    for name, data in damaged.items():
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(FileError) as here:
            open_file(path)
        with pytest.raises(FileError) as there:
            read_apart(path)
        assert str(there.value).startswith(f"{path}: ")
        if name != "c.png":  # Pillow names the file as it was opened
            assert str(there.value) == str(here.value)


@pytest.mark.exhaustive
def test_many_zip_entries_are_parsed_apart(tmp_path: Path) -> None:
    """The directory of a zip is tens of thousands of objects, before any of them is looked at."""
    with zipfile.ZipFile(tmp_path / "many.sog", "w") as archive:
        for i in range(15_000):
            archive.writestr(f"{i:0200d}", b"")
    before = footprint()
    with pytest.raises(FileError, match=r"a zip with neither meta\.json"):
        read_apart(tmp_path / "many.sog")
    assert not footprint().over(before, rss=16 * MB)


# -- a program that lies -----------------------------------------------------------------------------------------------


def result(size: int = 4096) -> int:
    fd = os.memfd_create("splatview-test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    return fd


F4 = Column("f4", (3, 3), 0)


@pytest.mark.parametrize("header", [
    PictureHeader(Column("u1", (64, 65, 1), 0)), PictureHeader(Column("u1", (64, 64, 1), 64)),
    PictureHeader(Column("u1", (64, 64, 1), 1)), PictureHeader(Column("u1", (4, 4, 5), 0)),
    PictureHeader(Column("u1", (1 << 40, 1 << 40, 1), 0)), PictureHeader(Column("f8", (4, 4, 1), 0)),
    PictureHeader(Column("u1", (4, 4), 0)), PictureHeader(Column("u1", (0, 4, 3), 0)),
    SceneHeader([F4] * 6, 0, False, []), SceneHeader([Column("f4", (), 0)] * 6, 0, False, []),
    SceneHeader([F4, Column("f4", (3, 4), 0), F4, Column("f4", (3,), 0), F4, Column("f4", (3, 0, 3), 0)], 1, False, []),
    FilmHeader([Column("f8", (2, 3), 0), Column("f8", (2, 4), 0), Column("f8", (2,), 0), Column("f8", (2,), 0)],
               False, False, "pinhole", 10, 10, 30.0),
    FilmHeader([Column("f8", (), 0)] * 4, False, False, "pinhole", 10, 10, 30.0),
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


@pytest.mark.parametrize("said", [
    b"", b"null", b"[]", b"{}", b'{"type":"else"}', b'{"type":"picture"}', b"[" * 100_000, b"\xff",
    b'{"type":"picture","pixels":{"dtype":"O","shape":[1,1,1],"at":0}}',
    b'{"type":"picture","pixels":{"dtype":"u1","shape":[-1,1,1],"at":0}}',
    b'{"type":"picture","pixels":{"dtype":"u1","shape":[1,1,1],"at":-64}}',
    b'{"type":"picture","pixels":{"dtype":"u1","shape":[1,1,1,1],"at":0}}',
])
def test_a_description_of_another_form_is_refused(said: bytes) -> None:
    with pytest.raises(FileError, match="described the result wrongly"):
        apart._checked(said)


def test_descriptions_keep_their_form() -> None:
    for header in (PictureHeader(F4), SceneHeader([F4] * 6, 3, True, ["a"]), SnapshotHeader(),
                   FilmHeader([F4] * 4, True, False, "fisheye", 1, 2, 3.0)):
        assert apart._checked(msgspec.json.encode(msgspec.to_builtins(header))) == header


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


@pytest.mark.parametrize(("lines", "words"), [
    ('["progress","x",0.5]\\nnonsense\\n', "no message of its own"), ('["else"]\\n', "no message of its own"),
    ('["done"]\\n', "no message of its own"), ('["error","damaged"]\\n', "^damaged$"), ("", "ended with 0"),
])
def test_a_program_that_writes_anything_else_is_an_error(lines: str, words: str,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatview.ipc.child_process.command",
                        lambda module, *_: [sys.executable, "-c", f"print('{lines}', end='')"])
    program = ReadingProgram("any", {})
    try:
        with pytest.raises(FileError, match=words):
            program.wait(lambda what, fraction: None)
    finally:
        program.end()


def test_a_program_that_writes_without_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatview.ipc.child_process.command",
                        lambda module, *_: [sys.executable, "-c", "while True: print('x' * 65536, end='')"])
    program, before = ReadingProgram("any", {}), footprint()
    try:
        with pytest.raises(FileError, match="more than 1,048,576 bytes without an end of line"):
            program.wait(lambda what, fraction: None)
    finally:
        program.end()
    assert not footprint().over(before, rss=16 * MB)


@pytest.mark.exhaustive
def test_settled_after_many_files(tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    png = FILES["png"](tmp_path)
    read_apart(png)
    base = footprint()
    for _ in range(5):
        read_apart(png)
    gc.collect()
    settled(base, wait_until)
