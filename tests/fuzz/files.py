"""Files that a user opens or drops, and those that were kept from the last time.

What is refused is refused with an error of the viewer's own, whose words can be shown: short, and text that is.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from support import scene_files as w
from support.memory_data import block, event, segment, snapshot

from fuzz import FORMAT_OF, target
from fuzz.damage import odd
from splatview_viewer.core import events as ev
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.memo import Memo
from splatview_viewer.formats import silent
from splatview_viewer.formats.checkpoint import read_tensors
from splatview_viewer.formats.nerfstudio import Film, parse_path, write_path
from splatview_viewer.formats.sandbox import File
from splatview_viewer.geometry.bookmarks import Bookmarks
from splatview_viewer.geometry.cameras import camera_from_json, camera_from_text
from splatview_viewer.geometry.path import CameraPath, Key
from splatview_viewer.kinds.files import open_file
from splatview_viewer.kinds.snapshot.loading import from_pickled, read_pickle, store
from splatview_viewer.recording.packed import pack, read_packed, unpack, write_packed
from splatview_viewer.recording.recording import INDEX, read_index
from splatview_viewer.scene.scene import FIELDS, GaussianScene
from splatview_viewer.web import messages as m
from splatview_viewer.web.files import safe_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = w.truth(6, degree=1)


@cache
def folder() -> Path:
    """Of this process, in memory where that is possible."""
    import atexit

    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    made = Path(tempfile.mkdtemp(prefix="splatview-fuzz-", dir=base))
    pid = os.getpid()
    atexit.register(lambda: pid == os.getpid() and shutil.rmtree(made, ignore_errors=True))
    return made


@contextlib.contextmanager
def refused_in_words() -> Iterator[None]:
    """Errors of the viewer's own are fine, where a panel can show them."""
    try:
        yield
    except ViewerError as e:
        words = str(e)
        assert 0 < len(words) < 4000 and "not enough memory" not in words, words[:200]
        words.encode()


def put(name: str, data: bytes) -> Path:
    path = folder() / name
    path.write_bytes(data)
    return path


# -- scenes and pictures -----------------------------------------------------------------------------------------------


def _scene(name: str, kind: str, *writers: Callable[[Path], Path], read: Callable[[Path], Any] = open_file) -> None:
    """A target for a format of `viewer_app.files`, whose name is part of what it is."""
    FORMAT_OF[name.replace(".", "_")] = kind

    def seeds() -> list[bytes]:
        return [write(folder()).read_bytes() for write in writers]

    @target(name.replace(".", "_"), seeds)
    def run(data: bytes) -> None:
        with w.little_memory(), refused_in_words():
            value = read(put(name, data))
            if isinstance(value, GaussianScene):
                n = len(value)
                assert value.means.shape == (n, 3) and value.quats.shape == (n, 4) and value.shN.shape[0] == n
                assert value.opacities.shape == (n,) and value.shN.dtype == torch.float32
                assert value.means.dtype in (torch.float32, torch.float64)
            elif isinstance(value, np.ndarray):
                assert value.ndim == 3 and 1 <= value.shape[2] <= 4


def _picture(path: Path, form: str) -> Path:
    from PIL import Image

    Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(path, form)
    return path


def _tensors(path: Path) -> Any:
    """What the program that reads checkpoints does; a fault that has no words of its own gets some in the viewer."""
    try:
        with np.errstate(all="ignore"):
            return read_tensors([path], silent)
    except (MemoryError, OSError):
        return None


def _array(path: Path) -> Path:
    np.save(path, np.zeros((6, 5, 3), np.float32))
    return path


_scene("scene.ply", "ply", lambda p: w.write_ply(p / "s.ply", w.ply_columns(T)),
       lambda p: w.write_ply(p / "s.ply", w.ply_columns(T), order="a"),
       lambda p: w.write_ply(p / "s.ply", w.ply_columns(T), types={"x": "f8"}, order=">"),
       lambda p: w.write_compressed_ply(p / "s.ply", T))
_scene("scene.splat", "splat", lambda p: w.write_splat(p / "s.splat", T))
_scene("scene.spz", "spz", lambda p: w.write_spz(p / "s.spz", T),
       lambda p: w.write_spz_4(p / "s.spz", T, lambda data: data))
_scene("scene.sog", "sog", lambda p: w.write_zip(p / "s.sog", w.sog_files(T)))
_scene("checkpoint.pt", "checkpoint", lambda p: w.write_checkpoint(p / "s.pt", T), read=_tensors)
_scene("picture.png", "picture", lambda p: _picture(p / "s.png", "PNG"))
_scene("picture.jpg", "picture", lambda p: _picture(p / "s.jpg", "JPEG"))
_scene("picture.webp", "picture", lambda p: _picture(p / "s.webp", "WEBP"))
_scene("array.npy", "npy", lambda p: _array(p / "s.npy"))


FORMAT_OF["sog_meta_json"] = "sog"


@target("sog_meta_json", lambda: [b"a", b"b"])
def _sog_meta(data: bytes) -> None:
    files = w.sog_files(T)
    there = folder() / "sog"
    there.mkdir(exist_ok=True)
    for name, content in files.items():
        (there / name).write_bytes(content)
    (there / "meta.json").write_text(odd(data, [json.loads(files["meta.json"])]))
    with w.little_memory(), refused_in_words():
        open_file(there)


# -- recordings --------------------------------------------------------------------------------------------------------


def _packed() -> list[bytes]:
    path = folder() / "000000001.gaussians"
    seeds = []
    for degree in (0, 1):
        t = w.truth(5, degree)
        fields = (np.array(getattr(t, name), np.float32) for name in FIELDS)
        scene = GaussianScene.of_arrays(*fields, sh_degree=degree)
        write_packed(path, pack(scene, (0.2, 0.4, 1.0) if degree else None))
        seeds.append(path.read_bytes())
    return seeds


@target("recorded_gaussians", _packed)
def _recorded(data: bytes) -> None:
    with w.little_memory(), refused_in_words():
        scene = unpack(read_packed(put("000000002.gaussians", data)))
        assert len(scene) == len(scene.means) == len(scene.quats)


INDEX_OF = {"format": 1, "run": "run", "name": "splats", "every": 100.0, "snapshots": [
    {"file": "000000001.gaussians", "step": 1, "version": 1, "time_ns": 1, "count": 5, "bytes": 5}]}


@target("recording_json", lambda: [json.dumps(INDEX_OF).encode()])
def _recording(data: bytes) -> None:
    for text in (data, odd(data, [INDEX_OF]).encode()):
        put(INDEX, text)
        with refused_in_words():
            for line in read_index(folder()).snapshots:
                assert (folder() / line.file).parent == folder()


# -- memory snapshots --------------------------------------------------------------------------------------------------


def _memory() -> dict[str, Any]:
    events = [event("alloc", 512 * i, 100 + i, time_us=i) for i in range(1, 6)]
    return snapshot([*events, event("free_completed", 512, 101)], [segment(512, [block(512, 512)])])


FORMAT_OF["memory_snapshot"] = "snapshot"


@target("memory_snapshot", lambda: [pickle.dumps(_memory(), protocol) for protocol in (2, 4, 5)])
def _snapshot(data: bytes) -> None:
    with w.little_memory(), refused_in_words():
        read_pickle([File(put("memory.pickle", data), "memory.pickle")], silent)


def _columns() -> list[bytes]:
    with open(put("columns", b""), "r+b", buffering=0) as f:
        store.write(f, *store.packed(from_pickled(_memory())))
        f.seek(0)
        return [f.read()]


@target("memory_columns", _columns)
def _column_file(data: bytes) -> None:
    with open(put("columns", data), "rb", buffering=0) as f, w.little_memory(), refused_in_words():
        store.read(f.fileno(), "x")


# -- cameras -----------------------------------------------------------------------------------------------------------


CAMERAS: list[Any] = [
    {"viewmat": np.eye(4).tolist(), "K": [[500, 0, 320], [0, 500, 240], [0, 0, 1]], "width": 640, "height": 480},
    {"position": [0, 0, -3], "look_at": [0, 0, 0], "up": [0, -1, 0], "fov": 40, "model": "ortho", "near": 0.1},
    {"camera_to_world": np.eye(4).ravel().tolist(), "fov": 50},
    {"transform_matrix": np.eye(4).tolist(), "fl_y": 500.0, "h": 480},
    {"transform_matrix": np.eye(4).tolist(), "camera_angle_x": 0.8, "w": 640, "h": 480},
    {"camera_path": [{"camera_to_world": np.eye(4)[:3].tolist(), "fov": 50}]},
]


@target("camera_json", lambda: [json.dumps(c).encode() for c in CAMERAS])
def _camera(data: bytes) -> None:
    for text in (data.decode(errors="replace"), odd(data, CAMERAS)):
        for read in (camera_from_text, camera_from_json):
            with refused_in_words(), np.errstate(all="ignore"):
                camera = read("{" + text.lstrip(" {"), 64, 48)  # whatever else it begins with, it names no file
                assert camera.viewmat.shape == (4, 4) and np.isfinite(camera.viewmat).all()
                assert camera.K.shape == (3, 3) and np.isfinite(camera.K).all()
                camera.to_json()


def _path_documents() -> list[Any]:
    keys = [Key(np.array([i, 0.0, 0.0]), np.array([1.0, 0.0, 0.0, 0.0]), 50.0, 0.2) for i in range(3)]
    made = json.loads(write_path(Film(CameraPath(keys), 64, 48, 5.0)))
    return [made, {**made, "keyframes": []}, {**made, "keyframes": [
        {"matrix": json.dumps(key["matrix"]), "fov": 50} for key in made["keyframes"]]}]


@target("camera_path_json", lambda: [json.dumps(d).encode() for d in _path_documents()])
def _camera_path(data: bytes) -> None:
    for text in (data, odd(data, _path_documents())):
        with refused_in_words():
            film = parse_path(text)
            assert 1 <= film.width <= 16384 and 1 <= film.height <= 16384 and film.fps > 0
            film.path.at(0.1, film.width, film.height)


def _memos() -> list[Any]:
    memo = Memo()
    Bookmarks(memo, "x").put(camera_from_json(json.dumps(CAMERAS[0]), 64, 48), np.zeros(3))
    return [{"bookmarks/x": memo.get("bookmarks/x"), "theme": "light"}]


@target("memo_json", lambda: [json.dumps(d).encode() for d in _memos()])
def _memo(data: bytes) -> None:
    for text in (data, odd(data, _memos()).encode()):
        memo = Memo(put("viewer.json", text))
        marks = Bookmarks(memo, "x")
        for number in marks.numbers:
            marks.get(number, 64, 48)
        marks.put(camera_from_json(json.dumps(CAMERAS[1]), 64, 48), np.ones(3))
        again = Bookmarks(Memo(folder() / "viewer.json"), "x")
        for number in again.numbers:
            again.get(number, 64, 48)
            again.delete(number)


# -- what a page says --------------------------------------------------------------------------------------------------


PAGE: list[Any] = [
    m.Hello(protocol=m.PROTOCOL, id="tab", width=640, height=480, scale=2.0), ev.Resize(320, 240), m.Visible(True),
    ev.PointerMove(1.5, 2.5, frozenset(("shift",)), at=12.0), ev.PointerPress(1, 2, "right", touch=True, at=5.0),
    ev.PointerRelease(1, 2), ev.PointerLeave(), ev.Wheel(1, 2, 0, 1),
    ev.Pinch(1, 2, 1.1, 0, 0, 0.1), ev.Key("a"), ev.Text("typed"), ev.Screenshot(), m.Ack(7)]


@target("page_message", lambda: [m.encode(message).encode() for message in PAGE])
def _page_message(data: bytes) -> None:
    from splatview_viewer.core.events import ClickCounter

    for text in (data, odd(data, [json.loads(m.encode(message)) for message in PAGE])):
        try:
            message = m.parse(text)
        except m.MessageError as e:
            str(e).encode()
            continue
        if not isinstance(message, (m.Hello, m.Visible, m.Ack)):
            m.event_of(message, ClickCounter(), 1.0, 1.0)
        assert m.parse(m.encode(message)) == message


@target("upload_name", lambda: [b"../../etc/passwd", "a\0b\u202e.ply".encode(), b"C:\\x\\y.ply", b"." * 300])
def _upload_name(data: bytes) -> None:
    name = safe_name(data.decode(errors="surrogateescape"))
    assert 0 < len(name.encode()) <= 200 and "/" not in name and "\0" not in name and name not in (".", "..")
