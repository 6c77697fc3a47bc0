"""The table of targets: readers of files, of camera texts, of what a page sends, of
messages between processes.

A target refuses bytes only with errors of our own, whose words can be shown: short, and
text that can be encoded. Checkpoints and snapshots have no crafted inputs: what takes
time and memory there is ended by the sandbox.
"""

from __future__ import annotations

import atexit
import contextlib
import gzip
import json
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from support import scene_files as w
from support.memory_data import block, event, segment, snapshot

from fuzz import messages
from splatview_viewer.core import events as ev
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import ClickCounter
from splatview_viewer.core.handed import HandedPlace
from splatview_viewer.formats import silent
from splatview_viewer.formats.camera_paths import Film, parse_path, write_path
from splatview_viewer.formats.checkpoint import read_tensors
from splatview_viewer.formats.sandbox import File
from splatview_viewer.geometry.camera_text import camera_from_json, camera_from_text
from splatview_viewer.geometry.path import CameraPath, Keyframe
from splatview_viewer.kinds.files import open_file
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.snapshot.loading import from_pickled, read_pickle
from splatview_viewer.snapshot.loading.ranks import read_rank
from splatview_viewer.web import messages as m

Crafted = Callable[[bytes], dict[str, bytes]]


def no_crafted_inputs(seed: bytes) -> dict[str, bytes]:
    return {}


@dataclass
class Target:
    """A reader of bytes.

    `seeds` makes a few well-formed inputs, `crafted` small ones that claim much or are
    slow to look up, from the first seed. The values of `documents` are replaced by odd
    ones. `format` is that of `kinds.files.FORMATS`.
    """

    run: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    crafted: Crafted = no_crafted_inputs
    documents: Sequence[Any] = field(default=())
    format: str = ""


def wide_and_deep(seed: bytes) -> dict[str, bytes]:
    """Return JSON that is slow to look up, or nested."""
    document = json.loads(seed)
    crafted = {
        f"{n} levels": b'{"a": ' + b"[" * n + b"]" * n + b"}"
        for n in (200, 900, 980, 100_000)
    }
    for key in document:
        text = json.dumps({**document, key: "@"})
        for n in (400, 980):
            nested = text.replace('"@"', "[" * n + "]" * n)
            crafted[f"{key}, {n} levels"] = nested.encode()
    many = {f"key {i:06}": i for i in range(30_000)}
    return crafted | {
        "30,000 keys": json.dumps(document | many).encode(),
        "nested names": b'{"a":' * 100_000,
    }


def of_json(run: Callable[[bytes], object], documents: Sequence[Any]) -> Target:
    """Return the target of a reader of JSON."""

    def seeds() -> list[bytes]:
        return [json.dumps(document).encode() for document in documents]

    return Target(run, seeds, wide_and_deep, documents)


@cache
def folder() -> Path:
    """Return a folder of this process, in memory where that is possible."""
    parent = None
    if os.access("/dev/shm", os.W_OK):
        parent = "/dev/shm"
    path = Path(tempfile.mkdtemp(prefix="splatview-fuzz-", dir=parent))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def put(name: str, data: bytes) -> Path:
    path = folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """Accept errors of ours, if their text is short and can be printed."""
    try:
        yield
    except ViewerError as e:
        text = str(e)
        assert 0 < len(text) < 4000, text[:200]
        assert "not enough memory" not in text, text[:200]
        text.encode()


# -- scenes, pictures, snapshots -------------------------------------------------------

T = w.truth(6, degree=1)
SQUARE = w.truth(4, degree=1)


def of_format(
    kind: str,
    name: str,
    *writers: Callable[[Path], object],
    read: Callable[[Path], Any] = open_file,
) -> Target:
    """Return the target of a file format; the name of the file is part of what it is."""

    def seeds() -> list[bytes]:
        contents = []
        for write in writers:
            write(put(name, b""))
            contents.append((folder() / name).read_bytes())
        return contents

    def run(data: bytes) -> None:
        with refused():
            value = read(put(name, data))
            if isinstance(value, GaussianScene):
                n = len(value)
                assert value.means.shape == (n, 3)
                assert value.quats.shape == (n, 4)
                assert value.shN.shape[0] == n
                assert value.opacities.shape == (n,)
                assert value.shN.dtype == torch.float32
            elif isinstance(value, np.ndarray):
                assert value.ndim == 3
                assert 1 <= value.shape[2] <= 4

    return Target(run, seeds, format=kind)


def _picture(path: Path, form: str) -> None:
    from PIL import Image

    pixels = np.arange(300, dtype=np.uint8).reshape(10, 10, 3)
    Image.fromarray(pixels).save(path, form)


def _splatam(path: Path) -> None:
    """Write Gaussians under the names of SplaTAM's params.npz."""
    rng = np.random.default_rng(0)
    np.savez(
        path,
        means3D=rng.standard_normal((6, 3)).astype(np.float32),
        unnorm_rotations=rng.standard_normal((6, 4)).astype(np.float32),
        log_scales=rng.standard_normal((6, 1)).astype(np.float32),
        logit_opacities=rng.standard_normal((6, 1)).astype(np.float32),
        rgb_colors=rng.random((6, 3)).astype(np.float32),
    )


def _tensors(path: Path) -> object:
    """Read a checkpoint in this process; `sandbox.serve` has words for any exception."""
    try:
        with np.errstate(all="ignore"):
            return read_tensors([path], silent)
    except ViewerError:
        raise
    except Exception:
        return None


def _planes_meta(name: str, files: dict[str, bytes], data: bytes) -> None:
    for file, content in {**files, "meta.json": data}.items():
        put(f"{name}/{file}", content)
    with refused():
        open_file(folder() / name)


TRAINING = [{"id": 0, "rotation": np.eye(3).tolist(), "position": [0, 0, 0], "fx": 9.0}]


def _training_cameras(data: bytes) -> None:
    for name in ("cameras.json", "cfg_args"):
        put(f"training/{name}", data)
    path = put("training/point_cloud/iteration_7/point_cloud.ply", b"")
    w.write_ply(path, w.ply_columns(T))
    with refused():
        scene = open_file(folder() / "training")
        assert isinstance(scene, GaussianScene)
        assert len(scene) == len(T.means)


def _memory() -> dict[str, Any]:
    events = [event("alloc", 512 * i, 100 + i, time_us=i) for i in range(1, 6)]
    return snapshot(
        [*events, event("free_completed", 512, 101)], [segment(512, [block(512, 512)])]
    )


def _snapshot_values(data: bytes) -> None:
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(data)
        with refused():
            from_pickled(value)


# -- cameras ---------------------------------------------------------------------------


CAMERAS: list[Any] = [
    {
        "viewmat": np.eye(4).tolist(),
        "K": [[500, 0, 320], [0, 500, 240], [0, 0, 1]],
        "width": 640,
        "height": 480,
    },
    {
        "position": [0, 0, -3],
        "look_at": [0, 0, 0],
        "up": [0, -1, 0],
        "fov": 40,
        "model": "ortho",
        "near": 0.1,
    },
    {"camera_to_world": np.eye(4).ravel().tolist(), "fov": 50},
    {"camera_path": [{"camera_to_world": np.eye(4)[:3].tolist(), "fov": 50}]},
    {"camera_path": [{"camera_to_world": "1 " * 16}], "camera_type": "fisheye"},
    {"transform_matrix": np.eye(4).tolist(), "fl_y": 500.0, "h": 480},
    {
        "camera_angle_x": 0.8,
        "w": 640,
        "h": 480,
        "frames": [{"transform_matrix": np.eye(4).tolist()}],
    },
    {
        "position": [0, 0, 1],
        "rotation": np.eye(3).tolist(),
        "fx": 9.0,
        "fy": 9.0,
        "width": 64,
        "height": 48,
    },
]


def _camera(data: bytes) -> None:
    # A text that begins with a brace names no file.
    text = "{" + data.decode(errors="replace").lstrip(" {")
    for read in (camera_from_text, camera_from_json):
        with refused(), np.errstate(all="ignore"):
            camera = read(text, 64, 48)
            assert camera.viewmat.shape == (4, 4)
            assert np.isfinite(camera.viewmat).all()
            assert camera.K.shape == (3, 3)
            assert np.isfinite(camera.K).all()
            camera.to_json()


def _path_documents() -> list[Any]:
    keys = [
        Keyframe(np.array([i, 0.0, 0.0]), np.array([1.0, 0.0, 0.0, 0.0]), 50.0, 0.2)
        for i in range(3)
    ]
    document = json.loads(write_path(Film(CameraPath(keys), 64, 48, 5.0)))
    first_viewer = [
        {"matrix": json.dumps(key["matrix"]), "fov": 50}
        for key in document["keyframes"]
    ]
    return [
        document,
        {**document, "keyframes": []},
        {**document, "keyframes": first_viewer},
        {**document, "camera_type": "fisheye"},
    ]


def _camera_path(data: bytes) -> None:
    with refused():
        film = parse_path(data)
        assert 1 <= film.width <= 16384
        assert 1 <= film.height <= 16384
        assert film.fps > 0
        film.path.camera_at(0.1, film.width, film.height)


# -- pages -----------------------------------------------------------------------------


PAGE: list[Any] = [
    m.Hello(id="tab-1_A", width=640, height=480, scale=2.0, visible=False),
    ev.Resize(16, 8192, 0.25),
    m.Visible(True),
    ev.PointerMove(-3.5, 7.25, frozenset(("shift", "alt")), at=12.5),
    ev.PointerPress(1, 2, "middle", touch=True),
    ev.PointerRelease(1, 2, "right"),
    ev.PointerLeave(at=3.0),
    ev.Wheel(1, 2, 0.5, -1.5, at=4.0),
    ev.Pinch(1, 2, 1.25, -3.0, 4.0, 5.0),
    ev.Key("page_up", False, frozenset(("ctrl",)), True, at=6.0),
    ev.Text("äöü 日本 🙂"),
    ev.Screenshot(at=8.0),
    m.Ack(0xFFFFFFFF, 12.5),
    m.Lost(),
    m.Draws(on=True, max_gaussians=4_000_000),
    m.Taken(7),
    ev.Ranged(pane=1, show="depth", low=0.5, high=4.0),
    ev.Placed(
        pane=1,
        number=2,
        place=HandedPlace(
            rotation=(1.0, 0, 0, 0, 1, 0, 0, 0, 1),
            target=(1.0, 2, 3),
            distance=4.0,
            up=(0.0, -1, 0),
            fov=60.0,
            model="ortho",
            near=0.01,
            far=1e10,
        ),
    ),
]
"""One message of each kind that pages send."""


def _page_message(data: bytes) -> None:
    with contextlib.suppress(m.MessageError):
        message = m.parse(data)
        apart = (m.Hello, m.Visible, m.Ack, m.Lost, m.Draws, m.Taken)
        if not isinstance(message, apart):
            m.event_of(message, ClickCounter(), 1.0)
        assert m.parse(m.encode(message)) == message


# -- files of each format --------------------------------------------------------------


def write_ply(path: Path) -> None:
    w.write_ply(path, w.ply_columns(T))


def write_big_endian_ply(path: Path) -> None:
    w.write_ply(path, w.ply_columns(T), types={"x": "f8"}, order=">")


def write_compressed_ply(path: Path) -> None:
    w.write_compressed_ply(path, T)


def write_text_ply(path: Path) -> None:
    w.write_ply(path, w.ply_columns(T), order="a")


def write_ply_with_faces(path: Path) -> None:
    columns = w.ply_columns(T)
    w.write_ply(path, columns, header=w.FACES, before=w.faces(), order="<")


def write_text_ply_with_faces(path: Path) -> None:
    columns = w.ply_columns(T)
    w.write_ply(path, columns, header=w.FACES, before=w.faces("a"), order="a")


def write_gzipped_ply(path: Path) -> None:
    write_ply(path)
    path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def write_splat(path: Path) -> None:
    w.write_splat(path, T)


def write_spz(path: Path) -> None:
    w.write_spz(path, T)


def keep_data(data: bytes) -> bytes:
    return data


def write_spz_4(path: Path) -> None:
    w.write_spz_4(path, T, keep_data)


def write_sog(path: Path) -> None:
    w.write_zip(path, w.sog_files(T))


def write_sog_1(path: Path) -> None:
    w.write_zip(path, w.sog_files(T, 1))


def write_gsplat_png(path: Path) -> None:
    w.write_zip(path, w.gsplat_png_files(SQUARE))


def write_checkpoint(path: Path) -> None:
    w.write_checkpoint(path, T)


def write_npy(path: Path) -> None:
    np.save(path, np.zeros((6, 5, 3), np.float32))


def write_snapshot(path: Path, protocol: int) -> None:
    path.write_bytes(pickle.dumps(_memory(), protocol))


def read_snapshot(path: Path) -> object:
    return read_pickle([File(path, "s.pickle")], silent)


def read_rank_of(path: Path) -> object:
    return read_rank([File(path, path.name)], silent)


def training_seeds() -> list[bytes]:
    return [json.dumps(TRAINING).encode()]


def constant_seeds(seeds: list[bytes]) -> list[bytes]:
    return seeds


TARGETS: dict[str, Target] = {
    "ply": of_format(
        "ply",
        "s.ply",
        write_ply,
        write_big_endian_ply,
        write_compressed_ply,
        write_text_ply,
        write_ply_with_faces,
        write_text_ply_with_faces,
        write_gzipped_ply,
    ),
    "splat": of_format("splat", "s.splat", write_splat),
    "spz": of_format(
        "spz",
        "s.spz",
        write_spz,
        write_spz_4,
    ),
    "sog": of_format(
        "sog",
        "s.sog",
        write_sog,
        write_sog_1,
    ),
    "sog_meta": of_json(
        partial(_planes_meta, "sog", w.sog_files(T)),
        [json.loads(w.sog_files(T)["meta.json"])],
    ),
    "sog_1_meta": of_json(
        partial(_planes_meta, "sog_1", w.sog_files(T, 1)),
        [json.loads(w.sog_files(T, 1)["meta.json"])],
    ),
    "gsplat_png": of_format("sog", "s.zip", write_gsplat_png),
    "gsplat_png_meta": of_json(
        partial(_planes_meta, "gsplat_png", w.gsplat_png_files(SQUARE)),
        [json.loads(w.gsplat_png_files(SQUARE)["meta.json"])],
    ),
    "inria": Target(
        _training_cameras,
        training_seeds,
        documents=[TRAINING],
        format="inria",
    ),
    "checkpoint": of_format("checkpoint", "s.pt", write_checkpoint, read=_tensors),
    "npz": of_format("npz", "params.npz", _splatam),
    "picture": of_format(
        "picture",
        "s.png",
        *(
            partial(_picture, form=form)
            for form in ("JPEG", "PNG", "WEBP", "TIFF", "BMP")
        ),
    ),
    "npy": of_format("npy", "s.npy", write_npy),
    "snapshot": of_format(
        "snapshot",
        "s.pickle",
        *(partial(write_snapshot, protocol=protocol) for protocol in (2, 4, 5)),
        read=read_snapshot,
    ),
    "ranks": of_format(
        "ranks", "rank0.pickle", partial(write_snapshot, protocol=4), read=read_rank_of
    ),
    "snapshot_values": of_json(_snapshot_values, [_memory()]),
    "camera": of_json(_camera, CAMERAS),
    "camera_path": of_json(_camera_path, _path_documents()),
    "page_message": of_json(
        _page_message, [json.loads(m.encode(message)) for message in PAGE]
    ),
    **{
        name: Target(run, partial(constant_seeds, seeds))
        for name, (run, seeds) in messages.READERS.items()
    },
}
"""By name."""
